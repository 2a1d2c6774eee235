#include "tools/bench_regimes.h"

#include "compiler/inspect/spmm_cost.h"
#include "compiler/inspect/svg.h"
#include "ir/error.h"
#include "tools/assemblers.h"
#include "tools/bench_layer.h"
#include "tools/gpu.h"
#include "tools/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <tuple>

namespace sparsertc {
namespace {

/// A prediction is good where its strategy takes at most so much longer than the fastest.
constexpr double kGoodEnough = 1.15;

/// What is measured for one case.
struct Measured {
  RegimeCase result;
  std::unique_ptr<GpuLayer> layer;
  std::vector<StrategyPlan> plans; ///< that can be
  std::vector<std::shared_ptr<const tune::CandidateCode>> codes;
};

/// The case's strategies, all but unrolled code over the budget.
Measured prepare(const cuda::Context& gpu, const cuda::Stream& stream, const Assembler& assembler,
                 TaskPool& pool, const BenchCase& one, uint64_t seed) {
  SpmmProblem problem = one.problem;
  Matrix weights = as_matrix(one.weights(), problem);
  Measured measured;
  RegimeCase& result = measured.result;
  result.name = one.name;
  result.m = weights.pattern.rows;
  result.k = weights.pattern.columns;
  result.nnz = weights.pattern.nnz();
  result.zeros_percent = one.nominal_percent >= 0 ? one.nominal_percent
                                                  : 100 * statistics_of(weights.pattern).sparsity;
  measured.layer =
      std::make_unique<GpuLayer>(gpu, stream, assembler, pool, std::move(weights), problem, seed);
  result.n = measured.layer->operands().columns;
  for (StrategyPlan& plan : plan_strategies(measured.layer->weights(), problem,
                                            measured.layer->target(), SpmmTileChoice()))
    if (plan.us && (plan.strategy != Strategy::unrolled ||
                    plan.schedule.prediction.multiply_adds <= kDefaultGpuBudget))
      measured.plans.push_back(std::move(plan));
  measured.codes.resize(measured.plans.size());
  return measured;
}

void measure(Measured& measured, unsigned rounds) {
  std::vector<const tune::GraphReplay*> contenders;
  for (size_t i = 0; i < measured.plans.size(); ++i) {
    const std::string wrong = measured.layer->check(*measured.codes[i]);
    if (!wrong.empty())
      throw RuntimeError(fmt::format("measuring {} of {}", name_of(measured.plans[i].strategy),
                                     measured.result.name),
                         wrong);
    contenders.push_back(&measured.layer->replay(*measured.codes[i]));
  }
  const std::vector<tune::Timing> timings = tune::time_in_turns(contenders, rounds);
  for (size_t i = 0; i < timings.size(); ++i)
    measured.result.times.push_back({measured.plans[i].strategy,
                                     to_string(measured.plans[i].schedule.tile),
                                     *measured.plans[i].us, timings[i].median_us});
}

std::string csv_of(const std::vector<RegimeCase>& cases) {
  std::string csv = "matrix,zeros_percent,m,k,n,nnz,strategy,tile,predicted_us,time_us\n";
  for (const RegimeCase& one : cases)
    for (const RegimeTime& time : one.times)
      csv += fmt::format("\"{}\",{:g},{},{},{},{},{},\"{}\",{:.3f},{:.3f}\n", one.name,
                         one.zeros_percent, one.m, one.k, one.n, one.nnz, name_of(time.strategy),
                         time.tile, time.predicted_us, time.time_us);
  return csv;
}

std::string line_of(const RegimeCase& one) {
  std::string text = fmt::format("{:>14} {:>6.6g} %  ",
                                 fmt::format("{}x{}x{}", one.m, one.k, one.n), one.zeros_percent);
  for (const RegimeTime& time : one.times)
    text +=
        fmt::format(" {} {:.2f} ({:.2f})", name_of(time.strategy), time.time_us, time.predicted_us);
  const RegimeTime *best = one.fastest(), *predicted = one.predicted_fastest();
  if (best != nullptr)
    text += fmt::format("; fastest {}, predicted {}: {:.2f} of its time", name_of(best->strategy),
                        name_of(predicted->strategy), predicted->time_us / best->time_us);
  return text + "\n";
}

std::string summary_of(const std::vector<RegimeCase>& cases) {
  unsigned all = 0, good = 0;
  double worst = 1;
  for (const RegimeCase& one : cases) {
    if (one.times.empty())
      continue;
    const double ratio = one.predicted_fastest()->time_us / one.fastest()->time_us;
    ++all;
    good += ratio <= kGoodEnough;
    worst = std::max(worst, ratio);
  }
  return fmt::format("the strategy predicted to be the fastest takes at most {:g} times as long as "
                     "the fastest in {} of {} cases; at worst {:.2f} times\n",
                     kGoodEnough, good, all, worst);
}

constexpr const char* kColours[] = {"#3b7dd8", "#b8b8b8", "#e0a030",
                                    "#8a55b5", "#c2566a", "#4fa36b"};

} // namespace

const RegimeTime* RegimeCase::fastest() const {
  const auto found =
      std::min_element(times.begin(), times.end(), [](const RegimeTime& a, const RegimeTime& b) {
        return a.time_us < b.time_us;
      });
  return found == times.end() ? nullptr : &*found;
}

const RegimeTime* RegimeCase::predicted_fastest() const {
  const auto found =
      std::min_element(times.begin(), times.end(), [](const RegimeTime& a, const RegimeTime& b) {
        return a.predicted_us < b.predicted_us;
      });
  return found == times.end() ? nullptr : &*found;
}

int bench_regimes(const GpuBenchOptions& options) {
  const std::unique_ptr<cuda::Context> gpu = require_gpu();
  const std::unique_ptr<Assembler> assembler = require_assembler();
  const cuda::Stream stream(*gpu);
  TaskPool pool(options.jobs);
  Progress progress;
  // Some cases at a time: compiled together, so that all processors have work, then measured.
  const size_t at_once = pool.threads();
  std::vector<RegimeCase> results;
  if (!options.json)
    fmt::print("{}, {}: each strategy's time in us, the predicted one in parentheses; medians of "
               "{} rounds, warm\n",
               gpu->properties().name, name_of(options.type), options.rounds);
  bool failed = false;
  for (size_t first = 0; first < options.cases.size() && !interrupt_flag(); first += at_once) {
    const size_t end = std::min(options.cases.size(), first + at_once);
    progress.show(
        fmt::format("sparsertc: cases {} to {} of {} ...", first + 1, end, options.cases.size()));
    std::vector<Measured> some;
    for (size_t i = first; i < end; ++i) {
      try {
        some.push_back(prepare(*gpu, stream, *assembler, pool, options.cases[i], options.seed + 2));
      } catch (const UserError& error) { // a file that cannot be read, say
        fmt::print(stderr, "sparsertc: {}\n", error.what());
        failed = true;
      }
    }
    std::vector<std::pair<size_t, size_t>> work;
    for (size_t i = 0; i < some.size(); ++i)
      for (size_t j = 0; j < some[i].plans.size(); ++j)
        work.emplace_back(i, j);
    try {
      pool.run(work.size(), [&](uint64_t number) {
        Measured& measured = some[work[number].first];
        const size_t which = work[number].second;
        tune::Candidate candidate;
        candidate.words = fmt::format("strategy={}", name_of(measured.plans[which].strategy));
        measured.codes[which] = measured.layer->hooks(1).make(candidate, interrupt_flag());
      });
    } catch (const RuntimeError&) {
      if (!interrupt_flag())
        throw;
      break; // what was measured is kept
    }
    for (Measured& measured : some) {
      try {
        measure(measured, options.rounds);
      } catch (const RuntimeError& error) {
        fmt::print(stderr, "sparsertc: {}\n", error.what());
        failed = true;
        continue;
      }
      results.push_back(measured.result);
      progress.clear();
      if (!options.json)
        fmt::print("{}", line_of(measured.result));
      std::fflush(stdout);
    }
  }
  progress.clear();
  fmt::print(options.json ? stderr : stdout, "{}", summary_of(results));
  if (options.json)
    fmt::print("{}", csv_of(results));
  if (!options.csv.empty())
    write_text(options.csv, csv_of(results));
  if (!options.plot.empty())
    write_text(options.plot,
               regimes_svg(results, fmt::format("The fastest strategy: {}, {}",
                                                name_of(options.type), gpu->properties().name)));
  stop_if_interrupted();
  return failed ? 1 : 0;
}

std::string regimes_svg(const std::vector<RegimeCase>& cases, const std::string& title) {
  constexpr double kCell = 46, kHeight = 24, kLeft = 60, kTop = 74, kGap = 70;
  std::set<std::pair<uint32_t, uint32_t>> shapes;
  std::set<double> levels;
  std::set<uint32_t> columns;
  for (const RegimeCase& one : cases) {
    shapes.insert({one.m, one.k});
    levels.insert(one.zeros_percent);
    columns.insert(one.n);
  }
  const double panel = kCell * static_cast<double>(levels.size());
  const double width =
      kLeft + (panel + kGap) * static_cast<double>(std::max<size_t>(shapes.size(), 1));
  const double height = kTop + kHeight * static_cast<double>(columns.size()) + 86;
  std::string svg = svg_begin(std::max(width, 480.0), height, kLeft, title);
  const auto place = [](const auto& set, const auto& value) {
    return static_cast<double>(std::distance(set.begin(), set.find(value)));
  };
  for (const auto& shape : shapes) {
    const double left = kLeft + (panel + kGap) * place(shapes, shape);
    svg +=
        svg_text(left, kTop - 14, "start", fmt::format("A is {} x {}", shape.first, shape.second));
    for (const double level : levels)
      svg += svg_text(left + kCell * (place(levels, level) + 0.5),
                      kTop + kHeight * static_cast<double>(columns.size()) + 16, "middle",
                      fmt::format("{:g} %", level));
    for (const uint32_t n : columns)
      svg += svg_text(left - 6, kTop + kHeight * (place(columns, n) + 0.7), "end",
                      fmt::format("N={}", n));
  }
  for (const RegimeCase& one : cases) {
    const RegimeTime* best = one.fastest();
    if (best == nullptr)
      continue;
    const double x = kLeft + (panel + kGap) * place(shapes, std::make_pair(one.m, one.k)) +
                     kCell * place(levels, one.zeros_percent);
    const double y = kTop + kHeight * place(columns, one.n);
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                       "fill=\"{}\" stroke=\"#fff\"/>\n",
                       x, y, kCell, kHeight, kColours[static_cast<size_t>(best->strategy)]);
    const bool good = one.predicted_fastest()->time_us <= kGoodEnough * best->time_us;
    svg += svg_text(x + kCell / 2, y + kHeight * 0.68, "middle",
                    fmt::format("{:.1f}{}", best->time_us, good ? "" : " *"));
  }
  double x = kLeft;
  const double y = height - 40;
  for (size_t i = 0; i < std::size(kColours); ++i) {
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n",
                       x, y - 10, kColours[i]);
    svg += svg_text(x + 16, y, "start", std::string(name_of(static_cast<Strategy>(i))));
    x += 92;
  }
  svg += svg_text(kLeft, height - 16, "start",
                  "Microseconds; zeros of A across. * the model's choice takes over 1.15 times as "
                  "long.");
  return svg + "</svg>\n";
}

} // namespace sparsertc
