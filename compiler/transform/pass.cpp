#include "compiler/transform/pass.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <charconv>

namespace sparsertc {
namespace {

constexpr unsigned kDefaultDistance = 8;
constexpr unsigned kLargestDistance = 1024;

unsigned parse_distance(std::string_view text, std::string_view number) {
  unsigned distance = 0;
  const char* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, distance);
  if (error != std::errc() || stop != end || distance > kLargestDistance)
    throw UsageError(fmt::format("pass '{}': expected a whole number from 0 to {} after '='", text,
                                 kLargestDistance));
  return distance;
}

} // namespace

Pass find_pass(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view word = text.substr(0, equals);
  if (word == "schedule-loads")
    return schedule_loads_pass(equals == std::string_view::npos
                                   ? kDefaultDistance
                                   : parse_distance(text, text.substr(equals + 1)));
  if (text == "place-weights")
    return place_weights_pass();
  if (text == "place")
    return place_pass();
  throw UsageError(fmt::format("unknown pass '{}'", text),
                   fmt::format("known passes:\n  {}", fmt::join(describe_passes(), "\n  ")));
}

std::vector<std::string> describe_passes() {
  return {"schedule-loads[=N]  issue each read-only load N loads ahead of its place (8)",
          "place-weights       put the immediates of multiply-adds into the constant bank, up to "
          "64 KB",
          "place               give every buffer without a place host or device memory, with the "
          "copies that this takes"};
}

} // namespace sparsertc
