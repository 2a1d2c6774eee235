#include "tools/json_text.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepest = 64;

} // namespace

Json parse_json_text(std::span<const uint8_t> text, const std::string& path) {
  std::vector<std::set<std::string>> open;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kDeepest)
      throw UserError(Place{path, 0, 0, {}},
                      fmt::format("the JSON is nested more than {} deep", kDeepest));
    if (event == Json::parse_event_t::object_start)
      open.emplace_back();
    else if (event == Json::parse_event_t::object_end)
      open.pop_back();
    else if (event == Json::parse_event_t::key && !open.back().insert(parsed).second)
      throw UserError(Place{path, 0, 0, {}},
                      fmt::format("key \"{}\" is given twice", parsed.get<std::string>()));
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& error) {
    uint64_t line = 1, column = 1;
    for (size_t i = 0; i + 1 < std::min(error.byte, text.size() + 1); ++i) {
      column = text[i] == '\n' ? 1 : column + 1;
      line += text[i] == '\n' ? 1 : 0;
    }
    throw UserError(Place::text(path, line, column), "expected JSON here");
  } catch (const Json::out_of_range&) {
    throw UserError(Place{path, 0, 0, {}}, "a number is too large for float64");
  }
}

} // namespace sparsertc
