// sparsertc inspect: what is in a pattern, and what each strategy would make of it.
#include "compiler/inspect/spmm_cost.h"
#include "compiler/inspect/spy_plot.h"
#include "compiler/pipeline.h"
#include "ir/error.h"
#include "tools/command.h"
#include "tools/inspect_lu.h"
#include "tools/inspect_network.h"
#include "tools/network_options.h"
#include "tools/option_checks.h"
#include "tools/options.h"
#include "tools/regimes.h"
#include "tools/session.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  InputOptions input;
  std::string network;
  ProblemOptions problem;
  ScheduleOptions schedule;
  LuOptions lu;
  WatchOptions watch;
  ReportOptions report;
  std::string target; ///< empty: sm_90, or what a network's file says
  std::string plot;
  std::string save_placement;
  std::string kernels;
};

/// How long the columns are, which the pattern's statistics leave out.
struct ColumnLengths {
  uint64_t minimum = 0;
  uint64_t maximum = 0;
  double mean = 0;
};

ColumnLengths column_lengths(const Pattern& pattern) {
  ColumnLengths lengths;
  if (pattern.columns == 0)
    return lengths;
  std::vector<uint64_t> length(pattern.columns, 0);
  for (uint32_t column : pattern.column_index)
    ++length[column];
  lengths.minimum = *std::min_element(length.begin(), length.end());
  lengths.maximum = *std::max_element(length.begin(), length.end());
  lengths.mean = static_cast<double>(pattern.nnz()) / pattern.columns;
  return lengths;
}

// ---- JSON --------------------------------------------------------------------------------------

Json to_json(const SpmmSchedule& schedule) {
  const SpmmPrediction& predicted = schedule.prediction;
  Json json;
  json["strategy"] = name_of(schedule.tile.strategy);
  json["tile"] = to_string(schedule.tile);
  json["tiles"] = schedule.tile_count();
  json["multiply_adds"] = predicted.multiply_adds;
  json["loads"] = predicted.loads;
  json["instructions"] = predicted.instructions;
  json["bytes_code"] = predicted.code_bytes;
  json["bytes_data"] = predicted.data_bytes;
  json["balance"] = predicted.balance;
  if (schedule.tile.order)
    json["order"] = name_of(*schedule.tile.order);
  if (predicted.loads_in_other_order)
    json["loads_in_other_order"] = *predicted.loads_in_other_order;
  if (schedule.tile.strategy == Strategy::panels) {
    json["steps"] = schedule.panels.steps;
    json["slots_over_columns"] = schedule.panels.fraction();
    json["second_slots"] = schedule.panels.second_slots;
  }
  if (schedule.tile.strategy == Strategy::compressed) {
    json["delta_bits"] = schedule.stream.staged.delta_bits;
    json["bytes_stream"] = schedule.stream.bytes;
    json["slots"] = schedule.stream.slots;
  }
  if (schedule.tile.strategy == Strategy::bitmap) {
    json["bytes_stream"] = schedule.bitmap.bytes;
    json["pairs"] = schedule.bitmap.pairs;
  }
  if (schedule.request.convolution) {
    json["interior_multiply_adds"] = predicted.multiply_adds - predicted.border_multiply_adds;
    json["border_multiply_adds"] = predicted.border_multiply_adds;
    json["border_loads"] = predicted.border_loads;
    if (schedule.tile.strategy == Strategy::unrolled)
      json["multiply_adds_ratio"] = predicted.multiply_adds_ratio;
  }
  return json;
}

/// Output pixels of an image: interior, border. A convolution that is a product has no border.
std::pair<uint64_t, uint64_t> pixels_of(const SpmmSchedule& schedule) {
  if (!schedule.problem.convolution)
    return {schedule.request.convolution->out_pixels(), 0};
  return {schedule.pixels.interior_count(), schedule.pixels.border_count()};
}

Json convolution_json(const SpmmSchedule& schedule) {
  const Convolution& convolution = *schedule.request.convolution;
  const auto [interior, border] = pixels_of(schedule);
  return {{"geometry", to_string(convolution)},
          {"layout", layout_word(schedule.request)},
          {"out_height", convolution.out_height()},
          {"out_width", convolution.out_width()},
          {"interior_pixels", interior},
          {"border_pixels", border}};
}

Json to_json(const PipelineResult& result, const PatternStatistics& statistics,
             const ColumnLengths& columns, const std::vector<StrategyPlan>& plans) {
  Json json;
  json["input"] = result.weights.name;
  json["stored_dtype"] = to_string(result.weights.stored);
  json["m"] = statistics.rows;
  json["k"] = statistics.columns;
  json["nnz"] = statistics.nnz;
  json["sparsity"] = statistics.sparsity;
  json["pattern_digest"] = result.pattern_digest;
  json["row_length"] = {{"min", statistics.minimum_row_length},
                        {"mean", statistics.mean_row_length},
                        {"max", statistics.maximum_row_length},
                        {"empty", statistics.empty_rows},
                        {"variation", statistics.row_length_variation}};
  json["column_length"] = {{"min", columns.minimum},
                           {"mean", columns.mean},
                           {"max", columns.maximum},
                           {"empty", statistics.empty_columns}};
  json["bandwidth"] = statistics.bandwidth;
  json["row_length_histogram"] = statistics.row_length_histogram;
  json["dtype"] = name_of(result.schedule.problem.type);
  json["target"] = result.schedule.target.name;
  if (result.schedule.request.convolution)
    json["convolution"] = convolution_json(result.schedule);
  json["strategies"] = Json::array();
  for (const StrategyPlan& plan : plans) {
    json["strategies"].push_back(plan.refused.empty() ? to_json(plan.schedule)
                                                      : Json{{"strategy", name_of(plan.strategy)},
                                                             {"refused", plan.refused}});
    if (plan.us)
      json["strategies"].back()["predicted_us"] = *plan.us;
  }
  add_regimes(json, result.weights.pattern, plans);
  json["chosen"] = to_json(result.schedule);
  json["remarks"] = result.schedule.remarks;
  return json;
}

// ---- text --------------------------------------------------------------------------------------

std::string draw_histogram(const std::vector<uint64_t>& histogram) {
  constexpr uint64_t kBarWidth = 50;
  std::string text = "entries in a row      rows\n";
  const uint64_t most =
      histogram.empty() ? 1 : *std::max_element(histogram.begin(), histogram.end());
  size_t bin = 0;
  while (bin < histogram.size() && histogram[bin] == 0)
    ++bin; // begin where the rows are
  for (; bin < histogram.size(); ++bin) {
    const uint64_t low = bin == 0 ? 0 : uint64_t{1} << (bin - 1);
    const uint64_t high = bin == 0 ? 0 : (uint64_t{1} << bin) - 1;
    const std::string range = low == high ? std::to_string(low) : fmt::format("{} - {}", low, high);
    uint64_t bar = histogram[bin] * kBarWidth / most;
    if (histogram[bin] != 0)
      bar = std::max<uint64_t>(bar, 1);
    text += fmt::format("{:>16}  {:>8}", range, histogram[bin]);
    text += bar == 0 ? "\n" : "  " + std::string(bar, '#') + "\n";
  }
  return text;
}

uint64_t budget_of(const InspectOptions& options, const PipelineResult& result) {
  if (options.schedule.budget != 0)
    return options.schedule.budget;
  return result.schedule.target.is_host ? kDefaultHostBudget : kDefaultGpuBudget;
}

std::string describe_convolution(const SpmmSchedule& schedule) {
  const Convolution& c = *schedule.request.convolution;
  const SpmmPrediction& predicted = schedule.prediction;
  const auto [interior, border] = pixels_of(schedule);
  std::string text = fmt::format("images:  {} x {} x {} to {} x {} x {} ({}), {}\n", c.channels,
                                 c.height, c.width, schedule.rows, c.out_height(), c.out_width(),
                                 layout_word(schedule.request), to_string(c));
  text +=
      schedule.tile.border == BorderCode::shared
          ? fmt::format("outputs: {} pixels an image, all with the code of the border\n", border)
          : fmt::format("outputs: {} interior and {} border pixels an image\n", interior, border);
  text += fmt::format("code:    {} multiply-adds and {} loads for the interior, {} and {} for the "
                      "border\n",
                      predicted.multiply_adds - predicted.border_multiply_adds,
                      predicted.loads - predicted.border_loads, predicted.border_multiply_adds,
                      predicted.border_loads);
  if (schedule.tile.strategy == Strategy::unrolled)
    text += fmt::format("         together {} multiply-adds, {:.2f} for each weight and column of "
                        "a thread\n",
                        predicted.multiply_adds, predicted.multiply_adds_ratio);
  return text;
}

/// What a weight takes in memory, beside what it would in a dense matrix.
std::string describe_stream(const SpmmSchedule& schedule, const PatternStatistics& statistics) {
  const CompressedStream& stream = schedule.stream;
  const auto weights = static_cast<double>(std::max<uint64_t>(statistics.nnz, 1));
  const double dense = static_cast<double>(uint64_t{statistics.rows} * statistics.columns) *
                       element_bytes(schedule.problem.type);
  return fmt::format("stream:  distances of {} bits, {:.3f} bytes for each weight ({:.3f} of them "
                     "to fill up steps), {:.1f} % of the dense matrix\n",
                     stream.staged.delta_bits, static_cast<double>(stream.bytes) / weights,
                     static_cast<double>(stream.slots - std::min(stream.slots, statistics.nnz)) *
                         (element_bytes(schedule.problem.type) + stream.staged.delta_bits / 8.0) /
                         weights,
                     dense > 0 ? 100 * static_cast<double>(stream.bytes) / dense : 0.0);
}

/// What bringing similar rows together saves, where that was looked at.
std::string describe_row_order(const SpmmSchedule& schedule) {
  const SpmmPrediction& predicted = schedule.prediction;
  if (!predicted.loads_in_other_order)
    return {};
  const bool similar = schedule.tile.order == RowOrder::similar;
  const uint64_t other = *predicted.loads_in_other_order;
  return fmt::format("  rows:    {} loads of B dealt by length, {} with similar ones together: "
                     "order={}\n",
                     similar ? other : predicted.loads, similar ? predicted.loads : other,
                     name_of(*schedule.tile.order));
}

std::string describe_bitmap(const SpmmSchedule& schedule, const PatternStatistics& statistics) {
  const BitmapStream& stream = schedule.bitmap;
  const auto weights = static_cast<double>(std::max<uint64_t>(statistics.nnz, 1));
  const double dense = static_cast<double>(uint64_t{statistics.rows} * statistics.columns) *
                       element_bytes(schedule.problem.type);
  return fmt::format("bitmap:  {} pairs, {:.3f} bytes for each weight, {:.1f} % of the dense "
                     "matrix\n",
                     stream.pairs, static_cast<double>(stream.bytes) / weights,
                     dense > 0 ? 100 * static_cast<double>(stream.bytes) / dense : 0.0);
}

/// Why a strategy cannot be, for its line of the table: "not here: REASON".
std::string reason_of(const StrategyPlan& plan) {
  const std::string begin = fmt::format("strategy={} ", name_of(plan.strategy));
  const bool is_of_it = plan.refused.rfind(begin, 0) == 0;
  return "not here: " + (is_of_it ? plan.refused.substr(begin.size()) : plan.refused);
}

std::string to_text(const PipelineResult& result, const PatternStatistics& statistics,
                    const ColumnLengths& columns, const std::vector<StrategyPlan>& plans,
                    const InspectOptions& options) {
  std::string text =
      fmt::format("{}: {} x {}, {} non-zeros, {:.2f} % zeros, values {}\n", result.weights.name,
                  statistics.rows, statistics.columns, statistics.nnz, 100 * statistics.sparsity,
                  to_string(result.weights.stored));
  text += fmt::format("rows:    {} to {} entries, mean {:.1f}, variation {:.2f}, {} empty\n",
                      statistics.minimum_row_length, statistics.maximum_row_length,
                      statistics.mean_row_length, statistics.row_length_variation,
                      statistics.empty_rows);
  text += fmt::format("columns: {} to {} entries, mean {:.1f}, {} empty\n", columns.minimum,
                      columns.maximum, columns.mean, statistics.empty_columns);
  if (result.schedule.request.convolution)
    text += describe_convolution(result.schedule);
  text += fmt::format("pattern: {}\n\n", result.pattern_digest);
  text += draw_histogram(statistics.row_length_histogram);
  text += fmt::format("\n{:<10} {:>7} {:>13} {:>9} {:>12} {:>12} {:>12} {:>8} {:>12}\n", "strategy",
                      "tiles", "multiply-adds", "loads", "instructions", "code bytes", "data bytes",
                      "balance", "predicted us");
  for (const StrategyPlan& plan : plans) {
    if (!plan.refused.empty()) {
      text += fmt::format("{:<10} {}\n", name_of(plan.strategy), reason_of(plan));
      continue;
    }
    const SpmmPrediction& predicted = plan.schedule.prediction;
    text += fmt::format("{:<10} {:>7} {:>13} {:>9} {:>12} {:>12} {:>12} {:>8.3f} {:>12}\n",
                        name_of(plan.strategy), plan.schedule.tile_count(), predicted.multiply_adds,
                        predicted.loads, predicted.instructions, predicted.code_bytes,
                        predicted.data_bytes, predicted.balance,
                        plan.us ? fmt::format("{:.2f}", *plan.us) : "-");
    if (plan.strategy == Strategy::unrolled)
      text += describe_row_order(plan.schedule);
    if (plan.strategy == Strategy::panels)
      text +=
          fmt::format("  panels:  {} step{} of {} columns each, {:.3f} of the columns of A\n",
                      plan.schedule.panels.steps, plan.schedule.panels.steps == 1 ? "" : "s",
                      plan.schedule.panels.shape.slots_of_step(), plan.schedule.panels.fraction());
    if (plan.strategy == Strategy::compressed)
      text += describe_stream(plan.schedule, statistics);
    if (plan.strategy == Strategy::bitmap)
      text += describe_bitmap(plan.schedule, statistics);
  }
  text += describe_regimes(result.weights.pattern, plans);
  text += fmt::format("\nchosen for {}: {}\n", result.schedule.target.name,
                      to_string(result.schedule.tile));
  if (result.schedule.remarks.empty() && !options.schedule.tile.empty())
    text += "why: --tile was given\n";
  else if (result.schedule.remarks.empty())
    text += fmt::format("why: {} multiply-adds are within the budget of {}\n",
                        result.schedule.prediction.multiply_adds, budget_of(options, result));
  for (const std::string& remark : result.schedule.remarks)
    text += fmt::format("why: {}\n", remark);
  return text;
}

int inspect(const CLI::App& parser, const InspectOptions& options) {
  if (!options.network.empty())
    return inspect_network_file(options.network, options.target, 0, wants_json(options.report));
  if (options.input.path.ends_with(".srtc"))
    return inspect_bundle(options.input.path, wants_json(options.report));
  if (options.input.list_tensors) {
    print_tensors(options.input);
    return 0;
  }
  const size_t operation = choose_word("--op", options.problem.op, {"spmm", "conv2d", "lu"});
  const bool for_lu = operation == 2;
  if (for_lu)
    refuse_given(parser,
                 {"--conv", "--columns", "--dtype", "--layout", "--ldb", "--ldc", "--bias",
                  "--residual", "--activation", "--half-terms", "--precision", "--nonfinite",
                  "--tile", "--budget"},
                 "not for --op=lu", "leave it out");
  else
    refuse_given(parser,
                 {"--matching", "--order", "--blocks", "--placement", "--symbolic",
                  "--memory-limit", "--strategy", "--atomics", "--dense-tail", "--verify",
                  "--save-placement", "--kernels"},
                 "only for --op=lu",
                 "say --op=lu, or leave it out; strategies of products are words of --tile");
  const std::string outputs[] = {options.plot, options.save_placement, options.kernels};
  for (const std::string& output : outputs) {
    refuse_overwriting(output, {options.input.path, options.lu.placement});
    if (!output.empty() && std::count(std::begin(outputs), std::end(outputs), output) > 1)
      throw UsageError(fmt::format("two outputs would be written to {}", output),
                       "give each a file of its own");
  }
  if (for_lu)
    return inspect_lu({options.input, options.lu, options.watch, options.plot,
                       options.save_placement, options.kernels, wants_json(options.report)});
  PipelineOptions pipeline;
  pipeline.problem = to_problem(options.problem);
  pipeline.target = resolve_target(options.target.empty() ? "sm_90" : options.target);
  pipeline.tile = to_tile_choice(options.schedule);
  pipeline.budget = options.schedule.budget;
  const bool json = wants_json(options.report);

  Progress progress;
  watch_pipeline(pipeline, options.watch, progress);
  pipeline.stop_after = "inspect";
  const ReadOptions read = to_read_options(options.input);
  PipelineResult result =
      compile_spmm([&] { return read_matrix(options.input.path, read); }, pipeline);
  const std::vector<StrategyPlan> plans =
      plan_strategies(result.weights, result.schedule.request, pipeline.target, pipeline.tile);
  const PatternStatistics statistics = statistics_of(result.weights.pattern);
  const ColumnLengths columns = column_lengths(result.weights.pattern);
  stop_if_interrupted();

  if (!options.plot.empty()) {
    progress.show("sparsertc: drawing ...");
    const std::string title =
        fmt::format("{}: {} x {}, {} non-zeros, {:.2f} % zeros", result.weights.name,
                    statistics.rows, statistics.columns, statistics.nnz, 100 * statistics.sparsity);
    write_text(options.plot, spy_plot_svg(result.weights.pattern, result.schedule, title));
  }
  progress.clear();
  const std::string report = json ? to_json(result, statistics, columns, plans).dump(2) + "\n"
                                  : to_text(result, statistics, columns, plans, options);
  // The remarks are part of the report.
  result.schedule.remarks.clear();
  print_watched(result, options.watch);
  fmt::print(options.plot == "-" ? stderr : stdout, "{}", report);
  return 0;
}

} // namespace

Command add_inspect_command(CLI::App& application) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* parser = application.add_subcommand(
      "inspect", "Pattern statistics, planned tiles, predicted code; the layers of a network "
                 "or of a bundle");
  declare(*parser, options->input);
  declare_network(*parser, options->network);
  parser->add_option("--target", options->target,
                     "What the code would be made for; else sm_90, or what a network's file says");
  parser->add_option("--plot", options->plot,
                     "Write a spy plot with the tiles drawn in (--op=lu: the factors with their "
                     "levels), as SVG (-: to standard output, the report then goes to standard "
                     "error)");
  declare(*parser, options->report);
  declare(*parser, options->problem);
  CLI::Option* const operation = parser->get_option("--op");
  operation->description(operation->get_description() + "; or lu, factors of a square A");
  declare(*parser, options->schedule);
  declare(*parser, options->lu);
  parser
      ->add_option("--save-placement", options->save_placement,
                   "Write the order of rows and columns as an array (.npy) that --placement reads")
      ->group("Sparse LU");
  parser
      ->add_option("--kernels", options->kernels,
                   "Write the kernels that --strategy=emitted makes for the pattern, as IR (.sir) "
                   "or PTX for sm_90 (.ptx)")
      ->group("Sparse LU");
  declare(*parser, options->watch);
  parser->footer("Examples:\n"
                 "  sparsertc inspect layer.smtx.gz\n"
                 "  sparsertc inspect layer.npy --plot=layer.svg -n 256 --dtype=f16\n"
                 "  sparsertc inspect layer.npz --report=json --target=host\n"
                 "  sparsertc inspect --network net.json\n"
                 "  sparsertc inspect net.srtc\n"
                 "  sparsertc inspect circuit.mtx --op=lu --plot=factors.svg");
  return {parser, [parser, options] {
            std::vector<std::string> for_one_layer = options_of_a_layer();
            for_one_layer.push_back("--columns");
            check_network_options(*parser, options->network, for_one_layer);
            return inspect(*parser, *options);
          }};
}

} // namespace sparsertc
