// The words of `--tile=...`: parsing and printing, in one fixed order.
#include "compiler/inspect/spmm_schedule.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

namespace sparsertc {
namespace {

constexpr std::string_view kKnownWords =
    "strategy=unrolled|streamed|compressed|panels|bitmap|dense, rows, vec, warps, groups, "
    "splitk, cluster, stage=global|smem, chunk, "
    "prefetch, weights=imm|const, border=own|shared, dense=library|own, order=natural|similar";

constexpr std::string_view kStrategies[] = {"unrolled", "streamed", "compressed",
                                            "panels",   "bitmap",   "dense"};
constexpr std::string_view kStages[] = {"global", "smem"};
constexpr std::string_view kWeights[] = {"imm", "const"};
constexpr std::string_view kBorders[] = {"own", "shared"};
constexpr std::string_view kDenseCodes[] = {"library", "own"};
constexpr std::string_view kOrders[] = {"natural", "similar"};

struct NumberWord {
  std::string_view word;
  std::optional<uint32_t> SpmmTileChoice::*choice;
  uint32_t SpmmTile::*value;
  uint32_t least, most;
};
constexpr NumberWord kNumbers[] = {
    {"rows", &SpmmTileChoice::rows, &SpmmTile::rows, 1, 256},
    {"vec", &SpmmTileChoice::vec, &SpmmTile::vec, 1, 8},
    {"warps", &SpmmTileChoice::warps, &SpmmTile::warps, 1, 32},
    {"groups", &SpmmTileChoice::groups, &SpmmTile::groups, 1, 32},
    {"splitk", &SpmmTileChoice::splitk, &SpmmTile::splitk, 1, 32},
    {"cluster", &SpmmTileChoice::cluster, &SpmmTile::cluster, 1, 8},
    {"chunk", &SpmmTileChoice::chunk, &SpmmTile::chunk, 1, 512},
    {"prefetch", &SpmmTileChoice::prefetch, &SpmmTile::prefetch, 0, 64},
};

[[noreturn]] void fail(std::string_view item, const std::string& why) {
  throw UsageError(fmt::format("--tile: '{}': {}", item, why),
                   fmt::format("known words: {}", kKnownWords));
}

template <class Enum, size_t N>
Enum word_value(std::string_view item, std::string_view value, const std::string_view (&words)[N]) {
  for (size_t i = 0; i < N; ++i)
    if (words[i] == value)
      return static_cast<Enum>(i);
  fail(item, fmt::format("expected one of {}", fmt::join(words, ", ")));
}

void parse_item(std::string_view item, SpmmTileChoice& choice) {
  const size_t equals = item.find('=');
  if (equals == std::string_view::npos)
    fail(item, "expected word=value");
  const std::string_view word = item.substr(0, equals);
  const std::string_view value = item.substr(equals + 1);
  if (word == "strategy") {
    choice.strategy = word_value<Strategy>(item, value, kStrategies);
    return;
  }
  if (word == "stage") {
    choice.stage = word_value<Stage>(item, value, kStages);
    return;
  }
  if (word == "weights") {
    choice.weights = word_value<WeightOperand>(item, value, kWeights);
    return;
  }
  if (word == "border") {
    choice.border = word_value<BorderCode>(item, value, kBorders);
    return;
  }
  if (word == "dense") {
    choice.dense = word_value<DenseCode>(item, value, kDenseCodes);
    return;
  }
  if (word == "order") {
    choice.order = word_value<RowOrder>(item, value, kOrders);
    return;
  }
  for (const NumberWord& number : kNumbers) {
    if (word != number.word)
      continue;
    uint32_t parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (error != std::errc() || end != value.data() + value.size() || parsed < number.least ||
        parsed > number.most)
      fail(item, fmt::format("expected a whole number from {} to {}", number.least, number.most));
    choice.*number.choice = parsed;
    return;
  }
  fail(item, "unknown word");
}

} // namespace

std::string_view name_of(Strategy strategy) {
  return kStrategies[static_cast<unsigned>(strategy)];
}
std::string_view name_of(Stage stage) {
  return kStages[static_cast<unsigned>(stage)];
}
std::string_view name_of(WeightOperand weights) {
  return kWeights[static_cast<unsigned>(weights)];
}
std::string_view name_of(BorderCode border) {
  return kBorders[static_cast<unsigned>(border)];
}
std::string_view name_of(DenseCode code) {
  return kDenseCodes[static_cast<unsigned>(code)];
}
std::string_view name_of(RowOrder order) {
  return kOrders[static_cast<unsigned>(order)];
}

SpmmTileChoice parse_tile_choice(std::string_view text) {
  SpmmTileChoice choice;
  std::vector<std::string_view> given;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::string_view word = item.substr(0, item.find('='));
    parse_item(item, choice);
    if (std::find(given.begin(), given.end(), word) != given.end())
      fail(item, "the word is given twice");
    given.push_back(word);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return choice;
}

std::string to_string(const SpmmTile& tile) {
  std::string text = fmt::format("strategy={}", name_of(tile.strategy));
  for (const NumberWord& number : kNumbers)
    text += fmt::format(",{}={}", number.word, tile.*number.value);
  text += fmt::format(",stage={},weights={}", name_of(tile.stage), name_of(tile.weights));
  if (tile.border)
    text += fmt::format(",border={}", name_of(*tile.border));
  if (tile.dense)
    text += fmt::format(",dense={}", name_of(*tile.dense));
  if (tile.order)
    text += fmt::format(",order={}", name_of(*tile.order));
  return text;
}

} // namespace sparsertc
