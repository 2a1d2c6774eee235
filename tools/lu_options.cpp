#include "tools/lu_options.h"

#include "compiler/input/read.h"
#include "ir/error.h"
#include "tools/option_checks.h"
#include "tools/words.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>
#include <vector>

namespace sparsertc {
namespace {

Toggle to_toggle(const char* option, const std::string& word) {
  constexpr Toggle kToggles[] = {Toggle::automatic, Toggle::on, Toggle::off};
  return kToggles[choose_word(option, word, {"auto", "on", "off"})];
}

Permutation to_permutation(std::span<const double> numbers, const std::string& path) {
  Permutation result;
  result.reserve(numbers.size());
  for (double number : numbers) {
    if (!(number >= 0 && number <= double(kMaximumDimension) && std::floor(number) == number))
      throw UserError(Place{path, 0, 0, {}}, fmt::format("{} is no row or column", number),
                      "they are counted from 0");
    result.push_back(static_cast<uint32_t>(number));
  }
  return result;
}

void read_placement(const std::string& path, LuAnalysisOptions& analysis) {
  const DenseTensor tensor = read_dense(path);
  const std::span<const double> numbers = tensor.values;
  if (tensor.shape.size() == 1) {
    analysis.columns = to_permutation(numbers, path);
    return;
  }
  if (tensor.shape.size() != 2 || tensor.shape[0] != 2)
    throw UserError(Place{path, 0, 0, {}}, "not an array of 2 x n or of n permutation entries",
                    "the first line of 2 x n holds the rows, the second the columns; n alone are "
                    "columns");
  analysis.rows = to_permutation(numbers.first(tensor.shape[1]), path);
  analysis.columns = to_permutation(numbers.subspan(tensor.shape[1]), path);
}

} // namespace

void declare(CLI::App& parser, LuOptions& options) {
  parser
      .add_option("--matching", options.matching,
                  "Move and scale rows so that the pivots are large: on, off, or auto: unless the "
                  "diagonal is strong")
      ->capture_default_str()
      ->group("Sparse LU");
  parser
      .add_option("--order", options.order,
                  "Order for little fill: natural, amd, colamd, nd (nested dissection), or auto: "
                  "what promises the least time")
      ->capture_default_str()
      ->group("Sparse LU");
  parser
      .add_option("--blocks", options.blocks,
                  "Keep the blocks of the block triangular form together: on, off, or auto: where "
                  "it promises less time")
      ->capture_default_str()
      ->group("Sparse LU");
  parser
      .add_option(
          "--placement", options.placement,
          "Take rows and columns in the order that this array says: 2 x n, the rows, then "
          "the columns, counted from 0 (nothing is scaled then); or n columns, for which the "
          "matching finds the rows")
      ->group("Sparse LU");
  parser
      .add_option("--symbolic", options.symbolic.where,
                  "Where the pattern of the factors and their levels are found: cpu, gpu, or auto: "
                  "large ones on the GPU")
      ->capture_default_str()
      ->group("Sparse LU");
  parser
      .add_option("--memory-limit", options.symbolic.memory_limit,
                  "Find them with at most so much device memory (bytes, or 64MB, 2GB, ...), out of "
                  "core where need be, and choose a --strategy for so much; else with what is free")
      ->transform(CLI::Validator(
          [](std::string& text) {
            const std::string fault = unsigned_fault(text);
            return fault.empty() ? CLI::AsSizeValue(false)(text) : fault;
          },
          "SIZE"))
      ->group("Sparse LU");
  parser
      .add_option("--strategy", options.strategy,
                  "How a GPU factorizes: dataflow, right-looking (columns by levels), "
                  "dense-columns or compressed-columns (the same, with or without dense vectors), "
                  "emitted (by levels, kernels made for the pattern), or auto: dataflow where its "
                  "tables fit")
      ->capture_default_str()
      ->group("Sparse LU");
  parser
      .add_flag("--atomics", options.atomics,
                "With columns by levels, let several warps add to one column: the last bits then "
                "differ from run to run")
      ->group("Sparse LU");
  parser
      .add_option("--dense-tail", options.dense_tail,
                  "With columns by levels, factorize so many of the last ones as a dense matrix: "
                  "a number, off, or auto: what promises the least time")
      ->capture_default_str()
      ->group("Sparse LU");
  parser.add_flag("--verify", options.symbolic.verify, "Find them on the CPU as well, and compare")
      ->group("Sparse LU");
}

LuStrategy to_strategy(const LuOptions& options) {
  return static_cast<LuStrategy>(
      choose_word("--strategy", options.strategy,
                  std::vector<std::string>(kLuStrategyWords.begin(), kLuStrategyWords.end())));
}

std::optional<uint32_t> to_tail_columns(const LuOptions& options) {
  const std::string& word = options.dense_tail;
  if (word == "auto")
    return std::nullopt;
  if (word == "off")
    return 0;
  uint32_t columns = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), columns);
  if (error != std::errc() || end != word.data() + word.size())
    throw UsageError(
        fmt::format("--dense-tail: expected auto, off or a number of columns, not {}", word));
  return columns;
}

LuAnalysisOptions to_analysis_options(const LuOptions& options) {
  LuAnalysisOptions analysis;
  analysis.matching = to_toggle("--matching", options.matching);
  analysis.blocks = to_toggle("--blocks", options.blocks);
  std::vector<std::string> words = {"auto"};
  for (FillOrder order : kFillOrders)
    words.emplace_back(name_of(order));
  if (const size_t word = choose_word("--order", options.order, words); word > 0)
    analysis.order = kFillOrders[word - 1];
  if (!options.placement.empty())
    read_placement(options.placement, analysis);
  return analysis;
}

void write_placement(const std::string& path, const LuAnalysis& analysis) {
  std::vector<double> numbers(analysis.rows.begin(), analysis.rows.end());
  numbers.insert(numbers.end(), analysis.columns.begin(), analysis.columns.end());
  const uint64_t shape[] = {2, analysis.rows.size()};
  write_npy(path, shape, StoredType::f64, numbers);
}

} // namespace sparsertc
