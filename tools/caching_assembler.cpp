#include "tools/caching_assembler.h"

#include "compiler/manifest.h"
#include "ir/sha256.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

/// Grows when the entries' form changes.
constexpr int kSchema = 1;

std::string digest_of_units(const AssembleRequest& request) {
  Sha256 digest;
  for (const std::string& unit : request.units) {
    digest.add(fmt::format("{}\n", unit.size())); // so that units cannot be cut differently
    digest.add(unit);
  }
  return digest.hex();
}

} // namespace

CacheKey cache_key(const AssembleRequest& request, const std::string& assembler) {
  std::string text = fmt::format("schema={}\nsparsertc={}\n", kSchema, sparsertc_version());
  text += request.provenance;
  text += fmt::format("target={}\nassembler={}\n", request.target, assembler);
  text += fmt::format("optimisation={}\nmax_registers={}\n", request.optimisation_level,
                      request.max_registers);
  for (const std::string& kernel : request.kernels)
    text += fmt::format("kernel={}\n", kernel);
  text += fmt::format("units={}\n", digest_of_units(request));
  return {text};
}

Bundle to_bundle(const Assembled& assembled, const AssembleRequest& request) {
  Json json;
  json["schema"] = kSchema;
  json["sparsertc"] = sparsertc_version();
  json["artefact"] = "assembled";
  json["target"] = request.target;
  json["assembler"] = assembled.assembler;
  json["functions"] = Json::array();
  for (const FunctionResources& function : assembled.functions)
    json["functions"].push_back({{"name", function.name},
                                 {"is_kernel", function.is_kernel},
                                 {"registers", function.registers},
                                 {"barriers", function.barriers},
                                 {"stack_bytes", function.stack_bytes},
                                 {"spill_store_bytes", function.spill_store_bytes},
                                 {"spill_load_bytes", function.spill_load_bytes},
                                 {"static_shared_bytes", function.shared_bytes},
                                 {"code_bytes", function.code_bytes}});
  json["log"] = assembled.log;
  Bundle bundle;
  // The log is another program's: what is no UTF-8 in it is replaced.
  bundle.manifest = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  bundle.sections.push_back({"cubin", assembled.cubin});
  return bundle;
}

std::optional<Assembled> from_bundle(const Bundle& bundle) {
  const Bundle::Section* cubin = bundle.find("cubin");
  if (cubin == nullptr)
    return std::nullopt;
  Assembled assembled;
  assembled.cubin = cubin->bytes;
  try {
    const Json json = Json::parse(bundle.manifest);
    if (json.at("schema") != kSchema || json.at("artefact") != "assembled")
      return std::nullopt;
    assembled.assembler = json.at("assembler").get<std::string>();
    assembled.log = json.at("log").get<std::string>();
    for (const Json& one : json.at("functions")) {
      FunctionResources& function = assembled.functions.emplace_back();
      function.name = one.at("name").get<std::string>();
      function.is_kernel = one.at("is_kernel").get<bool>();
      function.registers = one.at("registers").get<uint32_t>();
      function.barriers = one.at("barriers").get<uint32_t>();
      function.stack_bytes = one.at("stack_bytes").get<uint32_t>();
      function.spill_store_bytes = one.at("spill_store_bytes").get<uint32_t>();
      function.spill_load_bytes = one.at("spill_load_bytes").get<uint32_t>();
      function.shared_bytes = one.at("static_shared_bytes").get<uint32_t>();
      function.code_bytes = one.at("code_bytes").get<uint64_t>();
    }
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return assembled;
}

CachingAssembler::CachingAssembler(const Assembler& assembler, Cache& cache,
                                   std::function<void(const std::string&)> tell,
                                   std::function<void(const std::string&)> remark)
    : assembler_(assembler), cache_(cache), tell_(std::move(tell)), remark_(std::move(remark)) {}

Assembled CachingAssembler::assemble(const AssembleRequest& request) const {
  const CacheKey key = cache_key(request, assembler_.identity());
  std::optional<Assembled> cached;
  if (const std::optional<Bundle> bundle = cache_.find(key))
    cached = from_bundle(*bundle);
  if (tell_) {
    const std::lock_guard lock(mutex_);
    tell_(fmt::format("{} {}", cached ? "hit" : "miss", key.digest()));
  }
  if (cached)
    return *std::move(cached);
  Assembled assembled = assembler_.assemble(request);
  const Bundle bundle = to_bundle(assembled, request);
  const std::lock_guard lock(mutex_);
  cache_.store(key, bundle);
  if (!cache_.remark().empty() && !remarked_ && remark_) {
    remark_(cache_.remark());
    remarked_ = true;
  }
  return assembled;
}

} // namespace sparsertc
