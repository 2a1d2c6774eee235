#include "runtime/plan/lu_manifest.h"

#include "runtime/plan/manifest_reader.h"

#include <array>
#include <cmath>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;
using Reader = ManifestReader;

constexpr uint64_t kSchema = 1;
constexpr uint64_t kMost = uint64_t{1} << 62;
constexpr const char* kTypes[] = {"f32", "f64", "c64", "c128"};
constexpr uint32_t kTypeBytes[] = {4, 8, 8, 16};
constexpr uint32_t kWarp = 32;
constexpr uint32_t kMostThreads = 1024;
constexpr uint64_t kMostBatchNumbers = uint64_t{1} << 31;

double real_number(const Reader& json, std::string_view key) {
  const Reader::Json& value = json.at(key, "a number");
  if (!value.is_number() || !(value.get<double>() >= 0) || !std::isfinite(value.get<double>()))
    json.refuse(key, "a number from 0");
  return value.get<double>();
}

void require_interface(const Reader& json) {
  if (json.number32("interface", 0, Reader::kMost32) != kLuKernelInterface)
    json.refuse("interface", std::to_string(kLuKernelInterface));
}

std::string kernel_name(const Reader& json, std::string_view key) {
  std::string name = json.text(key);
  if (!name.starts_with("sparsertc_"))
    json.refuse(key, "a name that begins with sparsertc_");
  return name;
}

/// Of a block: whole warps.
uint32_t threads(const Reader& json, std::string_view key) {
  const uint32_t count = json.number32(key, kWarp, kMostThreads);
  if (count % kWarp != 0)
    json.refuse(key, "a multiple of 32");
  return count;
}

LuKernels read_kernels(const Reader& json) {
  require_interface(json);
  LuKernels kernels;
  kernels.input = kernel_name(json, "input");
  kernels.factor = kernel_name(json, "factor");
  kernels.solve_input = kernel_name(json, "solve_input");
  kernels.solve = kernel_name(json, "solve");
  kernels.input_threads = threads(json, "input_threads");
  kernels.dataflow_threads = threads(json, "dataflow_threads");
  kernels.multiprocessors = json.number32("multiprocessors", 1, Reader::kMost32);
  if (json.at("block_solve", "a name or null").is_null())
    return kernels;
  kernels.block_input = kernel_name(json, "block_input");
  kernels.block_solve = kernel_name(json, "block_solve");
  kernels.block_threads = threads(json, "block_threads");
  kernels.block_shared_bytes = json.number32("block_shared_bytes", 0, Reader::kMost32);
  return kernels;
}

LuRefineKernels read_refinement(const Reader& json) {
  require_interface(json);
  LuRefineKernels kernels;
  kernels.begin = kernel_name(json, "begin");
  kernels.update = kernel_name(json, "update");
  kernels.residual = kernel_name(json, "residual");
  kernels.decide = kernel_name(json, "decide");
  kernels.end = kernel_name(json, "end");
  kernels.threads = threads(json, "threads");
  return kernels;
}

Json to_json(const LuRefineKernels& kernels) {
  Json json;
  json["interface"] = kLuKernelInterface;
  json["begin"] = kernels.begin;
  json["update"] = kernels.update;
  json["residual"] = kernels.residual;
  json["decide"] = kernels.decide;
  json["end"] = kernels.end;
  json["threads"] = kernels.threads;
  return json;
}

LuBatchKernels read_batch_kernels(const Reader& json) {
  require_interface(json);
  LuBatchKernels kernels;
  kernels.factor = kernel_name(json, "factor");
  kernels.solve = kernel_name(json, "solve");
  kernels.looped = json.word("strategy", {"unrolled", "looped"}) == 1;
  kernels.factor_threads = threads(json, "factor_threads");
  kernels.solve_threads = threads(json, "solve_threads");
  kernels.numbers = json.number("numbers", 1, kMostBatchNumbers);
  return kernels;
}

Json to_json(const LuBatchKernels& kernels) {
  Json json;
  json["interface"] = kLuKernelInterface;
  json["factor"] = kernels.factor;
  json["solve"] = kernels.solve;
  json["strategy"] = kernels.looped ? "looped" : "unrolled";
  json["factor_threads"] = kernels.factor_threads;
  json["solve_threads"] = kernels.solve_threads;
  json["numbers"] = kernels.numbers;
  return json;
}

Json to_json(const LuKernels& kernels) {
  Json json;
  json["interface"] = kLuKernelInterface;
  json["input"] = kernels.input;
  json["factor"] = kernels.factor;
  json["solve_input"] = kernels.solve_input;
  json["solve"] = kernels.solve;
  json["input_threads"] = kernels.input_threads;
  json["dataflow_threads"] = kernels.dataflow_threads;
  json["multiprocessors"] = kernels.multiprocessors;
  if (kernels.block_solve.empty()) {
    json["block_solve"] = nullptr;
    return json;
  }
  json["block_input"] = kernels.block_input;
  json["block_solve"] = kernels.block_solve;
  json["block_threads"] = kernels.block_threads;
  json["block_shared_bytes"] = kernels.block_shared_bytes;
  return json;
}

} // namespace

const char* name_of(LuNumber type) {
  return kTypes[static_cast<size_t>(type)];
}

uint32_t bytes_of(LuNumber type) {
  return kTypeBytes[static_cast<size_t>(type)];
}

std::string lu_manifest_json(const LuManifest& manifest) {
  Json json;
  json["schema"] = kSchema;
  json["sparsertc"] = manifest.sparsertc;
  json["family"] = "lu";
  json["artefact"] = "bundle";
  json["target"] = manifest.target;
  json["assembler"] = manifest.assembler.empty() ? Json(nullptr) : Json(manifest.assembler);
  json["n"] = manifest.n;
  json["nnz"] = manifest.nnz;
  json["dtype"] = name_of(manifest.type);
  json["factor_dtype"] = name_of(manifest.factor_type);
  json["pattern_digest"] = manifest.pattern_digest;
  json["transposed"] = manifest.transposed;
  json["matched"] = manifest.matched;
  json["matching_reason"] = manifest.matching_reason;
  json["blocks"] = manifest.blocks;
  json["order"] = manifest.order;
  json["nnz_l"] = manifest.nnz_l;
  json["nnz_u"] = manifest.nnz_u;
  json["flops"] = manifest.flops;
  json["levels"] = manifest.levels;
  json["levels_forward"] = manifest.levels_forward;
  json["levels_backward"] = manifest.levels_backward;
  json["chosen"] = nullptr;
  if (manifest.chosen)
    json["chosen"] = {{"growth", manifest.chosen->growth},
                      {"perturbations", manifest.chosen->perturbed}};
  json["kernels"] = manifest.kernels ? to_json(*manifest.kernels) : Json(nullptr);
  json["refinement"] = manifest.refinement ? to_json(*manifest.refinement) : Json(nullptr);
  json["batch"] = manifest.batch;
  json["batch_kernels"] = manifest.batch_kernels ? to_json(*manifest.batch_kernels) : Json(nullptr);
  return json.dump(2) + "\n";
}

LuManifest parse_lu_manifest(const std::string& text, const std::string& name) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded())
    throw UserError(Place{name, 0, 0, {}}, "the manifest is not JSON");
  const Reader reader(json, name, "");
  if (reader.number("schema", 0, std::numeric_limits<uint32_t>::max()) != kSchema)
    reader.refuse("schema", std::to_string(kSchema));
  if (const std::string family = reader.text("family"); family != "lu")
    throw UserError(Place{name, 0, 0, {}},
                    fmt::format("this bundle's family is {}, expected lu", family),
                    family == "network" ? "load it with sparsertc_network_load"
                                        : "load it with sparsertc_plan_load");
  LuManifest manifest;
  manifest.sparsertc = reader.text_or_empty("sparsertc");
  manifest.target = reader.text("target");
  manifest.assembler = reader.text_or_empty("assembler");
  manifest.n = reader.number("n", 0, Reader::kMost32);
  manifest.nnz = reader.number("nnz", 0, kMost);
  const auto type = [&](std::string_view key) {
    return static_cast<LuNumber>(reader.word(key, {"f32", "f64", "c64", "c128"}));
  };
  manifest.type = type("dtype");
  manifest.factor_type = type("factor_dtype");
  if (is_complex(manifest.type) != is_complex(manifest.factor_type) ||
      (is_single(manifest.type) && !is_single(manifest.factor_type)))
    reader.refuse("factor_dtype", "the dtype, or that of half its size");
  manifest.pattern_digest = reader.text("pattern_digest");
  manifest.transposed = reader.flag("transposed");
  manifest.matched = reader.flag("matched");
  manifest.matching_reason = reader.text("matching_reason");
  manifest.blocks = reader.number("blocks", 0, Reader::kMost32);
  manifest.order = reader.text("order");
  manifest.nnz_l = reader.number("nnz_l", 0, kMost);
  manifest.nnz_u = reader.number("nnz_u", 0, kMost);
  manifest.flops = real_number(reader, "flops");
  manifest.levels = reader.number("levels", 0, Reader::kMost32);
  manifest.levels_forward = reader.number("levels_forward", 0, Reader::kMost32);
  manifest.levels_backward = reader.number("levels_backward", 0, Reader::kMost32);
  if (!reader.at("chosen", "an object or null").is_null()) {
    const Reader chosen = reader.object("chosen");
    manifest.chosen.emplace();
    manifest.chosen->growth = real_number(chosen, "growth");
    manifest.chosen->perturbed = chosen.number("perturbations", 0, Reader::kMost32);
  }
  if (!reader.at("kernels", "an object or null").is_null())
    manifest.kernels = read_kernels(reader.object("kernels"));
  if (manifest.kernels.has_value() == (manifest.target == "host"))
    reader.refuse("kernels", "kernels for a GPU, and none for the host");
  if (!reader.at("refinement", "an object or null").is_null())
    manifest.refinement = read_refinement(reader.object("refinement"));
  if (manifest.refinement && !manifest.kernels)
    reader.refuse("refinement", "null without kernels");
  manifest.batch = reader.flag("batch");
  if (manifest.batch && manifest.type != manifest.factor_type)
    reader.refuse("batch", "false where the factors are of another type");
  if (!reader.at("batch_kernels", "an object or null").is_null())
    manifest.batch_kernels = read_batch_kernels(reader.object("batch_kernels"));
  if (manifest.batch_kernels.has_value() != (manifest.batch && manifest.kernels.has_value()))
    reader.refuse("batch_kernels", "kernels where there is a batch on a GPU, else null");
  return manifest;
}

} // namespace sparsertc
