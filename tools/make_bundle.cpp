#include "tools/make_bundle.h"

#include "compiler/manifest.h"
#include "runtime/bundle/binding.h"

namespace sparsertc {

Bundle make_bundle(const PipelineResult& result, const PipelineOptions& options) {
  Bundle bundle;
  bundle.manifest = manifest_json(result, options);
  if (!result.assembled.cubin.empty())
    bundle.sections.push_back({"cubin", result.assembled.cubin});
  if (result.places)
    bundle.sections.push_back({kBindingSection, serialize_binding(*result.places)});
  bundle.sections.push_back({"ptx", {result.artefact.begin(), result.artefact.end()}});
  return bundle;
}

} // namespace sparsertc
