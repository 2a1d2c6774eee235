// sparsertc colour: which columns or rows of a Jacobian can be evaluated together.
#include "compiler/input/read.h"
#include "compiler/pattern/colouring.h"
#include "ir/error.h"
#include "tools/colouring_words.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/session.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

struct ColourOptions {
  InputOptions input;
  ReportOptions report;
  std::string side = "column";
  std::string order = "smallest-last";
  std::string output;
};

/// A pattern is coloured again until this much time has passed, but at most so often.
constexpr double kTimedMicroseconds = 200'000;
constexpr size_t kMaximumRuns = 25;

struct TimedColouring {
  Colouring colouring;
  double time_us = 0; ///< the median
  size_t runs = 0;
};

TimedColouring colour_timed(const Pattern& pattern, ColouringSide side, ColouringOrder order) {
  using Clock = std::chrono::steady_clock;
  TimedColouring result;
  std::vector<double> times;
  double total = 0;
  while (times.empty() || (total < kTimedMicroseconds && times.size() < kMaximumRuns)) {
    const Clock::time_point start = Clock::now();
    result.colouring = colour_pattern(pattern, side, order);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  result.time_us = times[times.size() / 2];
  result.runs = times.size();
  return result;
}

/// Colour after colour, a line each; of both sides with a heading before each.
std::string colours_text(const Colouring& colouring) {
  std::string text;
  const auto add = [&](std::string_view heading, const std::vector<uint32_t>& colours) {
    if (colouring.side == ColouringSide::star)
      fmt::format_to(std::back_inserter(text), "{} {}\n", heading, colours.size());
    for (const uint32_t colour : colours)
      fmt::format_to(std::back_inserter(text), "{}\n", colour);
  };
  if (colouring.side != ColouringSide::row)
    add("columns", colouring.column_colour);
  if (colouring.side != ColouringSide::column)
    add("rows", colouring.row_colour);
  return text;
}

Json to_json(const Matrix& matrix, const TimedColouring& timed, ColouringOrder order,
             uint64_t lower_bound) {
  const Colouring& colouring = timed.colouring;
  Json json;
  json["input"] = matrix.name;
  json["rows"] = matrix.pattern.rows;
  json["columns"] = matrix.pattern.columns;
  json["nnz"] = matrix.pattern.nnz();
  json["side"] = to_string(colouring.side);
  json["order"] = to_string(order);
  json["count"] = colouring.count();
  json["column_colours"] = colouring.column_colours;
  json["row_colours"] = colouring.row_colours;
  json["lower_bound"] = lower_bound;
  json["time_us"] = timed.time_us;
  json["runs"] = timed.runs;
  return json;
}

std::string to_text(const Matrix& matrix, const TimedColouring& timed, ColouringOrder order,
                    uint64_t lower_bound) {
  const Colouring& colouring = timed.colouring;
  std::string text = fmt::format("{}: {} x {}, {} non-zeros\n", matrix.name, matrix.pattern.rows,
                                 matrix.pattern.columns, matrix.pattern.nnz());
  text += fmt::format("{} colour{}", colouring.count(), colouring.count() == 1 ? "" : "s");
  if (colouring.side == ColouringSide::star)
    text += fmt::format(" ({} of columns, {} of rows)", colouring.column_colours,
                        colouring.row_colours);
  text += fmt::format(", no colouring has fewer than {}; side {}, order {}\n", lower_bound,
                      to_string(colouring.side), to_string(order));
  text +=
      fmt::format("coloured in {:.1f} us (median of {}), and checked\n", timed.time_us, timed.runs);
  return text;
}

int colour(const ColourOptions& options) {
  const ColouringSide side = choose_colouring_side(options.side);
  const ColouringOrder order = choose_colouring_order(options.order);
  const bool json = wants_json(options.report);
  if (options.input.list_tensors) {
    print_tensors(options.input);
    return 0;
  }
  refuse_overwriting(options.output, {options.input.path});
  ReadOptions read = to_read_options(options.input);
  read.allow_nonfinite = true; // values do not matter
  Progress progress;
  progress.show("sparsertc: reading ...");
  const Matrix matrix = read_matrix(options.input.path, read);
  stop_if_interrupted();

  progress.show("sparsertc: colouring ...");
  TimedColouring timed;
  uint64_t lower_bound = 0;
  {
    const StopAtOnce stop_at_once; // nothing has been written yet
    timed = colour_timed(matrix.pattern, side, order);
    lower_bound = colouring_lower_bound(matrix.pattern, side);
    if (const auto conflict = find_conflict(matrix.pattern, timed.colouring))
      throw InternalError("a colouring is wrong: " + *conflict);
  }
  progress.clear();
  for (const std::string& remark : matrix.remarks)
    fmt::print(stderr, "{}: note: {}\n", matrix.name, remark);
  if (!options.output.empty())
    write_text(options.output, colours_text(timed.colouring));
  fmt::print(options.output == "-" ? stderr : stdout, "{}",
             json ? to_json(matrix, timed, order, lower_bound).dump(2) + "\n"
                  : to_text(matrix, timed, order, lower_bound));
  return 0;
}

} // namespace

Command add_colour_command(CLI::App& application) {
  auto options = std::make_shared<ColourOptions>();
  CLI::App* parser = application.add_subcommand(
      "colour", "Columns or rows of a Jacobian pattern that can be evaluated together");
  declare(*parser, options->input);
  parser
      ->add_option("--side", options->side,
                   "What gets colours: column (forward mode), row (reverse mode), or star: both "
                   "together, each entry from either")
      ->capture_default_str();
  parser->add_option("--order", options->order, kColouringOrderHelp)->capture_default_str();
  parser->add_option(
      "--output", options->output,
      "Write the colours, a line each, counted from 1; 0: not needed. For star a line `columns "
      "N`, their colours, a line `rows M`, their colours. -: to standard output, the report then "
      "goes to standard error");
  declare(*parser, options->report);
  parser->footer("time_us is the median time of colouring alone, one thread, of up to 25 runs.\n"
                 "Examples:\n"
                 "  sparsertc colour jacobian.mtx.gz\n"
                 "  sparsertc colour jacobian.mtx --order=natural --report=json\n"
                 "  sparsertc colour jacobian.mtx --side=star --output=colours.txt");
  return {parser, [options] { return colour(*options); }};
}

} // namespace sparsertc
