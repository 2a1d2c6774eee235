#include "runtime/tune/record.h"

#include "ir/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <tuple>

namespace sparsertc::tune {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kSchema = 2;
constexpr const char* kKind = "sparsertc tuning record";

/// Calls visit(key, member pointer) for every part of an environment: one list for writing,
/// reading and comparing.
template <class Visit>
void for_each_key(Visit&& visit) {
  visit("gpu", &Environment::gpu);
  visit("driver_cuda_version", &Environment::driver);
  visit("target", &Environment::target);
  visit("sparsertc", &Environment::sparsertc);
  visit("assembler", &Environment::assembler);
  visit("pattern_digest", &Environment::pattern_digest);
  visit("nnz", &Environment::nnz);
  visit("m", &Environment::m);
  visit("k", &Environment::k);
  visit("n", &Environment::n);
  visit("dtype", &Environment::dtype);
  visit("options", &Environment::options);
}

Json to_json(const Timing& timing) {
  return {{"median_us", timing.median_us},
          {"min_us", timing.minimum_us},
          {"max_us", timing.maximum_us}};
}

/// Reads keys of one object and says where it failed.
class Reader {
public:
  Reader(const Json& json, std::string name) : json_(json), name_(std::move(name)) {}

  template <class Value>
  Value value(const char* key) const {
    const Json& found = member(key);
    constexpr bool is_flag = std::is_same_v<Value, bool>;
    const bool fits = is_flag                              ? found.is_boolean()
                      : std::is_same_v<Value, std::string> ? found.is_string()
                      : std::is_integral_v<Value>          ? found.is_number_unsigned()
                                                           : found.is_number();
    if (!fits)
      fail(key, "has the wrong type");
    if constexpr (std::is_integral_v<Value> && !is_flag)
      if (found.get<uint64_t>() > std::numeric_limits<Value>::max())
        fail(key, "is too large");
    return found.get<Value>();
  }
  Reader object(const char* key) const {
    if (!member(key).is_object())
      fail(key, "has the wrong type");
    return {member(key), name_};
  }
  const Json& member(const char* key) const {
    if (!json_.is_object() || !json_.contains(key))
      fail(key, "is missing");
    return json_.at(key);
  }
  [[noreturn]] void fail(const char* key, const char* what) const {
    throw UserError(Place{name_, 0, 0, {}}, fmt::format("tuning record: \"{}\" {}", key, what),
                    "sparsertc tune writes a new one");
  }

private:
  const Json& json_;
  std::string name_;
};

Timing timing_from(const Reader& reader) {
  return {reader.value<double>("median_us"), reader.value<double>("min_us"),
          reader.value<double>("max_us")};
}

} // namespace

std::vector<std::string> differences(const Environment& record, const Environment& here) {
  std::vector<std::string> found;
  for_each_key([&](const char* key, auto member) {
    if (record.*member != here.*member)
      found.push_back(
          fmt::format("{}: the record has {}, here it is {}", key, record.*member, here.*member));
  });
  return found;
}

std::string to_string(const LayerOptions& options) {
  std::string allowed;
  if (!options.precision.empty())
    allowed += ",precision=" + options.precision;
  if (!options.nonfinite.empty())
    allowed += ",nonfinite=" + options.nonfinite;
  if (options.dynamic_columns)
    allowed += ",columns=dynamic";
  return fmt::format("layout={},ldb={},ldc={},bias={},residual={},activation={},half_terms={}{}{}",
                     options.layout, options.ldb, options.ldc, options.bias ? 1 : 0,
                     options.residual ? 1 : 0, options.activation, options.half_terms, allowed,
                     options.convolution.empty() ? "" : ",conv:" + options.convolution);
}

bool is_similar(const Environment& record, const Environment& here) {
  Environment same = record;
  same.pattern_digest = here.pattern_digest;
  same.nnz = here.nnz;
  const auto [fewer, more] = std::minmax(record.nnz, here.nnz);
  return differences(same, here).empty() &&
         static_cast<double>(more) <= kSimilarEntries * static_cast<double>(fewer);
}

const Record* find_record(const std::vector<Record>& records, const Environment& here,
                          bool similar) {
  const Record* best = nullptr;
  // Smaller is better: whether it only is similar, how far its entries are away, its time.
  std::tuple<bool, uint64_t, double> best_rank;
  for (const Record& record : records) {
    const Environment& there = record.environment;
    const bool holds = differences(there, here).empty();
    if (!holds && !(similar && is_similar(there, here)))
      continue;
    const std::tuple<bool, uint64_t, double> rank = {
        !holds, std::max(there.nnz, here.nnz) - std::min(there.nnz, here.nnz),
        record.warm.median_us};
    if (best == nullptr || rank < best_rank) {
      best = &record;
      best_rank = rank;
    }
  }
  return best;
}

bool is_record(std::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  return json.is_object() && json.contains("kind") && json["kind"] == kKind;
}

std::string to_json(const Record& record) {
  Json json;
  json["kind"] = kKind;
  json["schema"] = kSchema;
  for_each_key(
      [&](const char* key, auto member) { json["environment"][key] = record.environment.*member; });
  json["tile"] = record.tile;
  json["registers"] = record.registers;
  json["warm"] = to_json(record.warm);
  json["cold"] = to_json(record.cold);
  json["search_s"] = record.search_seconds;
  json["candidates_tried"] = record.candidates_tried;
  json["candidates_in_space"] = record.candidates_in_space;
  json["exhausted"] = record.exhausted;
  json["interrupted"] = record.interrupted;
  json["rivals"] = Json::array();
  for (const Record::Rival& rival : record.rivals)
    json["rivals"].push_back({{"name", rival.name}, {"time_us", rival.time_us}});
  return json.dump(2) + "\n";
}

Record record_from_json(std::string_view text, const std::string& name) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded())
    throw UserError(Place{name, 0, 0, {}}, "tuning record: it is no JSON text",
                    "sparsertc tune writes a new one");
  const Reader reader(json, name);
  if (reader.value<std::string>("kind") != kKind)
    reader.fail("kind", "does not name a tuning record");
  if (reader.value<uint64_t>("schema") != kSchema)
    reader.fail("schema", "is of another version");
  Record record;
  const Reader environment = reader.object("environment");
  for_each_key([&](const char* key, auto member) {
    using Value = std::remove_reference_t<decltype(record.environment.*member)>;
    record.environment.*member = environment.value<Value>(key);
  });
  record.tile = reader.value<std::string>("tile");
  record.registers = reader.value<uint32_t>("registers");
  record.warm = timing_from(reader.object("warm"));
  record.cold = timing_from(reader.object("cold"));
  record.search_seconds = reader.value<double>("search_s");
  record.candidates_tried = reader.value<uint64_t>("candidates_tried");
  record.candidates_in_space = reader.value<uint64_t>("candidates_in_space");
  record.exhausted = reader.value<bool>("exhausted");
  record.interrupted = reader.value<bool>("interrupted");
  if (!reader.member("rivals").is_array())
    reader.fail("rivals", "has the wrong type");
  for (const Json& rival : json.at("rivals")) {
    const Reader one(rival, name);
    record.rivals.push_back({one.value<std::string>("name"), one.value<double>("time_us")});
  }
  return record;
}

} // namespace sparsertc::tune
