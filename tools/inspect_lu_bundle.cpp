#include "tools/inspect_lu_bundle.h"

#include "ir/counted.h"
#include "runtime/plan/lu_plan.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <string_view>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

const char* batch_word(const LuManifest& manifest) {
  if (!manifest.batch)
    return "none";
  return manifest.batch_kernels && !manifest.batch_kernels->looped ? "unrolled" : "looped";
}

/// Solutions can be refined, on the GPU by kernels that the bundle has.
bool has_refinement(const LuManifest& manifest) {
  return manifest.refinement || !manifest.kernels;
}

std::string to_json(const LuManifest& manifest, const Bundle& bundle) {
  Json json;
  json["family"] = "lu";
  json["n"] = manifest.n;
  json["nnz"] = manifest.nnz;
  json["dtype"] = name_of(manifest.type);
  json["factor_dtype"] = name_of(manifest.factor_type);
  json["target"] = manifest.target;
  json["multiprocessors"] =
      manifest.kernels ? Json(manifest.kernels->multiprocessors) : Json(nullptr);
  json["matched"] = manifest.matched;
  json["order"] = manifest.order;
  json["nnz_l"] = manifest.nnz_l;
  json["nnz_u"] = manifest.nnz_u;
  json["flops"] = manifest.flops;
  json["levels"] = manifest.levels;
  json["levels_forward"] = manifest.levels_forward;
  json["levels_backward"] = manifest.levels_backward;
  json["growth"] = manifest.chosen ? Json(manifest.chosen->growth) : Json(nullptr);
  json["perturbations"] = manifest.chosen ? Json(manifest.chosen->perturbed) : Json(nullptr);
  json["transposed"] = manifest.transposed;
  json["refinement"] = has_refinement(manifest);
  json["batch"] = batch_word(manifest);
  for (const Bundle::Section& section : bundle.sections)
    json["bytes_sections"][section.name] = section.bytes.size();
  return json.dump(2) + "\n";
}

std::string to_text(const LuManifest& manifest, const Bundle& bundle, const std::string& path) {
  std::string text = fmt::format(
      "{}: sparse LU of {} x {}, {}, {}{}, for {}{}\n", path, manifest.n, manifest.n,
      counted(manifest.nnz, "entry", "entries"), name_of(manifest.type),
      manifest.type == manifest.factor_type
          ? ""
          : fmt::format(" with factors in {}", name_of(manifest.factor_type)),
      manifest.target,
      manifest.kernels
          ? fmt::format(", {}", counted(manifest.kernels->multiprocessors, "multiprocessor"))
          : "");
  text += fmt::format("order {}, rows {}: {}\n", manifest.order,
                      manifest.matched ? "matched" : "not matched", manifest.matching_reason);
  text += fmt::format("L has {}, U {}; {:.3g} flops in {}; solves in {} and {}\n",
                      counted(manifest.nnz_l, "entry", "entries"), manifest.nnz_u, manifest.flops,
                      counted(manifest.levels, "level"), manifest.levels_forward,
                      counted(manifest.levels_backward, "level"));
  text += manifest.chosen
              ? fmt::format("pivots chosen for a matrix with growth {:.3g} and {} replaced\n",
                            manifest.chosen->growth, counted(manifest.chosen->perturbed, "pivot"))
              : std::string("pivots chosen by the pattern alone\n");
  text += fmt::format("solves with A{}; refinement: {}; batches: {}\n",
                      manifest.transposed ? " and its transpose" : " alone",
                      has_refinement(manifest) ? "yes" : "no", batch_word(manifest));
  for (const Bundle::Section& section : bundle.sections)
    text += fmt::format("  {:<20} {}\n", section.name, counted(section.bytes.size(), "byte"));
  return text;
}

} // namespace

bool is_lu(const Bundle& bundle) {
  const nlohmann::json json = nlohmann::json::parse(bundle.manifest, nullptr, false);
  return json.is_object() && json.value("family", Json("")) == "lu";
}

int inspect_lu_bundle(const Bundle& bundle, const std::string& path, bool json) {
  // Without a device: nothing is loaded, and what the CPU works with is checked.
  const auto context = std::make_shared<ExecutionContext>(ExecutionContext::kNoDevice);
  const LuPlan plan(context, bundle, path);
  fmt::print("{}",
             json ? to_json(plan.manifest(), bundle) : to_text(plan.manifest(), bundle, path));
  return 0;
}

} // namespace sparsertc
