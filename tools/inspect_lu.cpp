#include "tools/inspect_lu.h"

#include "compiler/emit/ptx.h"
#include "compiler/inspect/lu_plot.h"
#include "compiler/inspect/lu_statistics.h"
#include "compiler/lower/lu_emitted.h"
#include "ir/error.h"
#include "ir/printer.h"
#include "tools/lu_gpu_analysis.h"
#include "tools/lu_strategy_report.h"
#include "tools/session.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <optional>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

/// Factors beyond this many entries are not worked out for a report.
constexpr uint64_t kLargestInspected = 100'000'000;

/// What symbolic factorization adds to an analysis.
struct Factors {
  Pattern placed;
  LuPattern rows;
  LuLevels levels;
  LuStatistics statistics;
  LuStrategyReport strategy;
};

/// The kernels that --strategy=emitted makes for the pattern.
void write_kernels(const std::string& path, const LuTables& tables,
                   const LuStrategyRequest& request) {
  LuEmittedOptions options;
  options.most_multiply_adds = request.budget;
  options.number_bytes = request.number_bytes;
  LuKernelOptions kernels;
  kernels.complex = request.complex;
  const ir::Module module =
      make_lu_emitted_kernels(tables, make_lu_emitted(tables, options), kernels);
  write_text(path,
             path.ends_with(".ptx") ? emit_ptx(module, find_target("sm_90")) : ir::print(module));
}

/// How the GPU would factorize; what has been found is not searched again. Writes the kernels, if
/// `kernels` names a file.
LuStrategyReport strategy_of(const Matrix& matrix, const LuAnalysis& analysis,
                             const Factors& factors, const LuOptions& options,
                             const std::string& kernels) {
  LuFinders found;
  found.pattern = [&](const Pattern&) { return factors.rows; };
  found.levels = [&](const LuPattern&, const LuColumns&, LevelRule) { return factors.levels; };
  const LuTables tables =
      make_lu_tables(matrix.pattern, {analysis.rows, analysis.columns, {}, {}}, nullptr, found);
  LuStrategyRequest request;
  request.strategy = to_strategy(options);
  request.complex = !matrix.imaginary.empty();
  request.number_bytes = request.complex ? 16 : 8;
  request.memory_bytes = options.symbolic.memory_limit;
  request.atomics = options.atomics;
  request.tail_columns = to_tail_columns(options);
  if (!kernels.empty())
    write_kernels(kernels, tables, request);
  try {
    return report_strategy(tables, request);
  } catch (const UserError& error) {
    if (request.strategy != LuStrategy::automatic)
      throw;
    // The CPU takes it.
    LuStrategyReport none;
    none.refusal = error.what();
    return none;
  }
}

Factors factorize(const Matrix& matrix, const LuAnalysis& analysis, LuPatternFinder& finder,
                  const LuOptions& options, const std::string& kernels) {
  Factors factors;
  factors.placed = permute(matrix.pattern, analysis.rows, analysis.columns);
  factors.rows = finder.pattern(factors.placed);
  const LuColumns columns = by_columns(factors.rows);
  factors.levels = finder.levels(factors.rows, columns, LevelRule::gather);
  factors.statistics =
      lu_statistics(factors.rows, columns, factors.levels,
                    finder.levels(factors.rows, columns, LevelRule::right_looking));
  factors.strategy = strategy_of(matrix, analysis, factors, options, kernels);
  return factors;
}

double fill_ratio(const LuStatistics& statistics, const Matrix& matrix) {
  return matrix.pattern.nnz() == 0 ? 1
                                   : static_cast<double>(statistics.entries()) /
                                         static_cast<double>(matrix.pattern.nnz());
}

// ---- JSON --------------------------------------------------------------------------------------

Json to_json(const OrderCandidate& candidate) {
  return {{"order", candidate.name},
          {"entries", candidate.cost.entries},
          {"flops", candidate.cost.flops},
          {"levels", candidate.cost.levels},
          {"exact", candidate.exact},
          {"shallow", candidate.shallow},
          {"predicted_us", candidate.predicted_us}};
}

Json to_json(const LuStatistics& statistics, const Matrix& matrix) {
  Json json;
  json["entries"] = statistics.entries();
  json["lower"] = statistics.lower;
  json["upper"] = statistics.upper;
  json["fill_ratio"] = fill_ratio(statistics, matrix);
  json["multiply_adds"] = statistics.multiply_adds;
  json["levels"] = {{"gather", statistics.gather_levels},
                    {"right_looking", statistics.right_looking_levels},
                    {"widest", statistics.widest_level},
                    {"narrow", statistics.narrow_levels}};
  json["level_width_histogram"] = statistics.level_width_histogram;
  json["bytes_values"] = statistics.bytes_values();
  json["bytes_pattern"] = statistics.bytes_pattern();
  json["bytes_gather"] = statistics.bytes_gather();
  return json;
}

Json to_json(const Matrix& matrix, const LuAnalysis& analysis,
             const std::optional<Factors>& factors, const std::vector<LuAnalysisStep>& steps,
             const std::vector<LuSymbolicStep>& symbolic) {
  Json json;
  json["input"] = matrix.name;
  json["stored_dtype"] = to_string(matrix.stored);
  json["n"] = matrix.pattern.rows;
  json["nnz"] = matrix.pattern.nnz();
  json["pattern_digest"] = pattern_digest(matrix.pattern);
  json["structural_rank"] = analysis.structural_rank;
  json["matching"] = {{"used", analysis.matched}, {"why", analysis.matching_reason}};
  json["blocks"] = {{"count", analysis.blocks.blocks()},
                    {"largest", analysis.blocks.largest_block()},
                    {"used", analysis.order.winner().in_blocks}};
  json["orders"] = Json::array();
  for (const OrderCandidate& candidate : analysis.order.candidates)
    json["orders"].push_back(to_json(candidate));
  json["chosen"] = analysis.order.winner().name;
  if (factors)
    json["factors"] = to_json(factors->statistics, matrix);
  if (factors)
    json["strategy"] = to_json(factors->strategy);
  json["symbolic"] = to_json(symbolic);
  for (const LuAnalysisStep& step : steps)
    json["steps"].push_back({{"step", step.name}, {"time_us", step.time_us}});
  return json;
}

// ---- text --------------------------------------------------------------------------------------

std::string bytes_in_words(uint64_t bytes) {
  if (bytes < 10'000)
    return fmt::format("{} bytes", bytes);
  if (bytes < 10'000'000)
    return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string describe_factors(const LuStatistics& statistics, const Matrix& matrix) {
  std::string text = fmt::format(
      "\nL + U:     {} entries ({} below, {} above the diagonal), {:.2f} times the matrix\n",
      statistics.entries(), statistics.lower, statistics.upper, fill_ratio(statistics, matrix));
  text += fmt::format("work:      {} multiply-adds\n", statistics.multiply_adds);
  text += fmt::format("levels:    {} by gathering, {} looking right; {} of at most {} columns, the "
                      "widest of {}\n",
                      statistics.gather_levels, statistics.right_looking_levels,
                      statistics.narrow_levels, kNarrowLevel, statistics.widest_level);
  text += fmt::format("memory:    {} values (f64), {} pattern, {} positions for gathering\n\n",
                      bytes_in_words(statistics.bytes_values()),
                      bytes_in_words(statistics.bytes_pattern()),
                      bytes_in_words(statistics.bytes_gather()));
  text += "columns of a level    levels\n";
  for (size_t bin = 0; bin < statistics.level_width_histogram.size(); ++bin) {
    const uint64_t low = uint64_t{1} << bin, high = 2 * low - 1;
    text += fmt::format("{:>18}  {:>8}\n",
                        low == high ? std::to_string(low) : fmt::format("{} - {}", low, high),
                        statistics.level_width_histogram[bin]);
  }
  return text;
}

std::string to_text(const Matrix& matrix, const LuAnalysis& analysis,
                    const std::optional<Factors>& factors,
                    const std::vector<LuSymbolicStep>& symbolic) {
  std::string text =
      fmt::format("{}: {} x {}, {} non-zeros, values {}\n", matrix.name, matrix.pattern.rows,
                  matrix.pattern.columns, matrix.pattern.nnz(), to_string(matrix.stored));
  text += fmt::format("structure: rank {}, {} block{} in triangular form, the largest of {}\n",
                      analysis.structural_rank, analysis.blocks.blocks(),
                      analysis.blocks.blocks() == 1 ? "" : "s", analysis.blocks.largest_block());
  text += fmt::format("matching:  {}: {}\n\n", analysis.matched ? "used" : "not used",
                      analysis.matching_reason);
  text += fmt::format("  {:<12} {:>12} {:>12} {:>10} {:>14}\n", "order", "entries", "flops",
                      "levels", "predicted us");
  for (const OrderCandidate& candidate : analysis.order.candidates)
    text += fmt::format("{} {:<12} {:>12} {:>12.3g} {:>10} {:>14.1f}{}\n",
                        &candidate == &analysis.order.winner() ? '*' : ' ', candidate.name,
                        candidate.cost.entries, candidate.cost.flops, candidate.cost.levels,
                        candidate.predicted_us,
                        candidate.shallow ? "  reordered for few levels"
                        : candidate.exact ? ""
                                          : "  at most");
  if (factors)
    text += describe_factors(factors->statistics, matrix) +
            to_text(factors->strategy, factors->statistics.gather_levels) + to_text(symbolic);
  else
    text +=
        fmt::format("\nmore than {} entries of L + U: levels are not listed\n", kLargestInspected);
  return text;
}

} // namespace

int inspect_lu(const InspectLuOptions& options) {
  if (!options.kernels.empty() && to_strategy(options.lu) != LuStrategy::emitted)
    throw UsageError("--kernels: only --strategy=emitted makes kernels for the pattern",
                     "say --strategy=emitted, or leave it out");
  if (!options.kernels.empty() && !options.kernels.ends_with(".sir") &&
      !options.kernels.ends_with(".ptx"))
    throw UsageError(fmt::format("--kernels: {} ends in neither .sir nor .ptx", options.kernels),
                     "the ending says what is written: IR, or PTX for sm_90");
  Progress progress;
  // Nothing has to be cleaned up, and the orders' libraries do not look up.
  const StopAtOnce stop_at_once;
  const auto show = [&](std::string_view step) {
    progress.show(fmt::format("sparsertc: {} ...", step));
  };
  show("input");
  const Matrix matrix = read_matrix(options.input.path, to_read_options(options.input));
  TaskPool pool;
  LuAnalysisOptions analysis_options = to_analysis_options(options.lu);
  analysis_options.pool = &pool;
  analysis_options.before_step = show;
  const LuAnalysis analysis = analyse_lu(matrix, analysis_options);

  static const CacheOptions cache;
  LuPatternFinder finder(options.lu.symbolic, cache, &pool);
  std::vector<LuAnalysisStep> steps = analysis.steps;
  std::optional<Factors> factors;
  if (analysis.order.winner().cost.entries <= kLargestInspected) {
    show("symbolic");
    const auto start = std::chrono::steady_clock::now();
    factors = factorize(matrix, analysis, finder, options.lu, options.kernels);
    const std::chrono::duration<double, std::micro> wall = std::chrono::steady_clock::now() - start;
    steps.push_back({"symbolic", wall.count()});
    for (const LuSymbolicStep& step : finder.steps())
      steps.push_back({step.name, step.time_us});
  }
  if (!options.plot.empty() && factors) {
    show("drawing");
    write_text(
        options.plot,
        lu_plot_svg(factors->rows, factors->placed, factors->levels,
                    fmt::format("{}: {} x {}, {} entries of L + U, {} levels", matrix.name,
                                matrix.pattern.rows, matrix.pattern.columns,
                                factors->statistics.entries(), factors->statistics.gather_levels)));
  }
  if (!options.save_placement.empty())
    write_placement(options.save_placement, analysis);
  progress.clear();
  for (const std::string& remark : matrix.remarks)
    fmt::print(stderr, "{}: note: {}\n", matrix.name, remark);
  if (!options.plot.empty() && !factors)
    fmt::print(stderr, "remark: the factors are too large to be drawn\n");
  if (!options.kernels.empty() && !factors)
    fmt::print(stderr, "remark: the factors are too large for kernels of their own\n");
  if (options.watch.print_timing)
    for (const LuAnalysisStep& step : steps)
      fmt::print(stderr, "{:<15} {:>12.1f} us\n", step.name, step.time_us);
  fmt::print(options.plot == "-" ? stderr : stdout, "{}",
             options.json ? to_json(matrix, analysis, factors, steps, finder.steps()).dump(2) + "\n"
                          : to_text(matrix, analysis, factors, finder.steps()));
  return 0;
}

} // namespace sparsertc
