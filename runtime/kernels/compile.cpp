#include "runtime/kernels/compile.h"

#include "ir/sha256.h"
#include "runtime/kernels/kernel_sources.h"

#include <fmt/format.h>

#include <optional>
#include <string>

namespace sparsertc::kernels {
namespace {

constexpr const char* kProgram = "lu_analysis.cu";
constexpr const char* kHeaders[] = {"fill2.cuh", "fill2.cu", "kahn.cuh", "kahn.cu", "scan.cu"};

/// The form of the cache's entries, too.
constexpr const char* kManifest = R"({"schema": 1, "artefact": "lu_analysis kernels"})"
                                  "\n";

CacheKey key_of(const cuda::CudaSource& source, const std::string& compiler) {
  Sha256 digest;
  digest.add(source.text);
  for (const cuda::CudaSource::Header& header : source.headers)
    digest.add(header.text);
  std::string text = fmt::format("schema=1\nprogram={}\ntexts={}\ntarget={}\ncompiler={}\n",
                                 source.name, digest.hex(), source.target, compiler);
  for (const std::string& option : source.options)
    text += fmt::format("option={}\n", option);
  return {text};
}

} // namespace

std::vector<uint8_t> compile_lu_analysis(const cuda::Nvrtc& nvrtc, uint32_t compute_capability,
                                         Cache* cache) {
  cuda::CudaSource source;
  source.name = kProgram;
  source.text = kernel_source(kProgram);
  for (const char* header : kHeaders)
    source.headers.push_back({header, std::string(kernel_source(header))});
  source.target = fmt::format("sm_{}", compute_capability);
  source.options = {"-std=c++17"};
  source.want_cubin = true;
  const CacheKey key = key_of(source, nvrtc.identity());
  if (cache != nullptr)
    if (const std::optional<Bundle> bundle = cache->find(key); bundle)
      if (const Bundle::Section* cubin = bundle->find("cubin"); cubin != nullptr)
        return cubin->bytes;
  std::vector<uint8_t> cubin = nvrtc.compile(source).cubin;
  if (cache != nullptr)
    cache->store(key, {kManifest, {{"cubin", cubin}}});
  return cubin;
}

} // namespace sparsertc::kernels
