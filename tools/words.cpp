#include "tools/words.h"

#include "compiler/pattern/pattern.h"
#include "ir/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace sparsertc {
namespace {

const std::vector<std::string> kTileWords = {"strategy", "rows",    "vec",   "warps", "groups",
                                             "splitk",   "cluster", "stage", "chunk", "prefetch",
                                             "weights",  "border",  "dense", "order"};

const std::vector<std::string> kConvolutionWords = {
    "N",          "H",        "W",         "C",      "R",        "S",      "pad", "pad_top",
    "pad_bottom", "pad_left", "pad_right", "stride", "dilation", "groups", "taps"};

/// Insertions, deletions, substitutions and swaps of neighbours that turn one word into the other
/// (optimal string alignment).
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> distance(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      const size_t substituted = distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance[i][j] = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, substituted});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
    }
  return distance[a.size()][b.size()];
}

} // namespace

uint64_t parse_number(const std::string& what, std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw UsageError(fmt::format("{}: expected a whole number, found \"{}\"", what, text));
  return number;
}

std::optional<std::string> nearest_word(const std::string& word,
                                        const std::vector<std::string>& known) {
  std::optional<std::string> nearest;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

size_t choose_word(const std::string& what, const std::string& word,
                   const std::vector<std::string>& known) {
  const auto found = std::find(known.begin(), known.end(), word);
  if (found != known.end())
    return static_cast<size_t>(found - known.begin());
  const std::optional<std::string> nearest = nearest_word(word, known);
  throw UsageError(
      fmt::format("{}: unknown word \"{}\"", what, word),
      nearest ? fmt::format("did you mean {}? Known are {}", *nearest, fmt::join(known, ", "))
              : fmt::format("known are {}", fmt::join(known, ", ")));
}

namespace {

std::optional<uint32_t> parse_columns(const std::string& text) {
  if (text == "dynamic")
    return std::nullopt;
  const uint64_t columns = parse_number("--columns", text);
  if (columns > kMaximumDimension)
    throw UsageError(fmt::format("--columns: {} is too large", columns),
                     fmt::format("at most {}", kMaximumDimension));
  return static_cast<uint32_t>(columns);
}

/// The geometry and the number of images, which may also be given as columns.
void add_convolution(const ProblemOptions& options, SpmmProblem& problem) {
  if (options.conv.empty())
    throw UsageError("--op=conv2d needs the geometry of the convolution",
                     "for example --conv=N=1,H=28,W=28,pad=1");
  size_t begin = 0;
  while (begin <= options.conv.size()) {
    const size_t end = std::min(options.conv.find(',', begin), options.conv.size());
    const std::string item = options.conv.substr(begin, end - begin);
    choose_word("--conv", item.substr(0, item.find('=')), kConvolutionWords);
    begin = end + 1;
  }
  const ConvolutionWords words = parse_convolution(options.conv);
  problem.convolution = words.convolution;
  if (!words.images_given)
    return;
  if (problem.columns && problem.columns != words.images)
    throw UsageError("--columns and N in --conv disagree about the number of images",
                     "give one of them");
  problem.columns = words.images;
}

Layout to_layout(const ProblemOptions& options) {
  if (options.layout.empty())
    return Layout::row_major;
  const std::vector<std::string> words = options.op == "conv2d"
                                             ? std::vector<std::string>{"nchw", "nhwc"}
                                             : std::vector<std::string>{"row", "column"};
  return choose_word("--layout", options.layout, words) == 0 ? Layout::row_major
                                                             : Layout::column_major;
}

} // namespace

SpmmProblem to_problem(const ProblemOptions& options) {
  const bool is_convolution = choose_word("--op", options.op, {"spmm", "conv2d"}) == 1;
  SpmmProblem problem;
  problem.columns = parse_columns(options.columns);
  if (is_convolution)
    add_convolution(options, problem);
  else if (!options.conv.empty())
    throw UsageError("--conv is for --op=conv2d");
  constexpr DataType types[] = {DataType::f32, DataType::f16, DataType::bf16, DataType::f64};
  problem.type = types[choose_word("--dtype", options.type, {"f32", "f16", "bf16", "f64"})];
  problem.layout = to_layout(options);
  problem.ldb = options.ldb;
  problem.ldc = options.ldc;
  problem.epilogue.bias = options.bias;
  problem.epilogue.residual = options.residual;
  constexpr Activation activations[] = {Activation::none, Activation::relu, Activation::gelu,
                                        Activation::silu};
  problem.epilogue.activation = activations[choose_word("--activation", options.activation,
                                                        {"none", "relu", "gelu", "silu"})];
  problem.half_terms = options.half_terms;
  choose_word("--precision", options.precision, {"full", "tf32"});
  problem.precision = precision_from_name(options.precision);
  choose_word("--nonfinite", options.nonfinite, {"exact", "dense"});
  problem.nonfinite = nonfinite_from_name(options.nonfinite);
  return problem;
}

SpmmTileChoice to_tile_choice(const ScheduleOptions& options) {
  if (options.tile.empty())
    return {};
  size_t begin = 0;
  while (begin <= options.tile.size()) {
    const size_t end = std::min(options.tile.find(',', begin), options.tile.size());
    const std::string item = options.tile.substr(begin, end - begin);
    choose_word("--tile", item.substr(0, item.find('=')), kTileWords);
    begin = end + 1;
  }
  return parse_tile_choice(options.tile);
}

} // namespace sparsertc
