#include "compiler/inspect/jacobian_schedule.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <string_view>

namespace sparsertc {
namespace {

/// The value of a residual with one entry takes as long as so many of its tangents.
constexpr double kValueUnits = 4;
/// Double-precision results of a multiprocessor in one cycle, and the cycles that starting a kernel
/// in a graph takes.
constexpr double kUnitsOfMultiprocessor = 64;
constexpr double kLaunchUnits = 2000;
constexpr uint32_t kWarpLanes = 32;
/// Adding one number of all lanes takes so much for each halving.
constexpr double kReduceUnits = 0.25;
constexpr uint64_t kMostEntries = kNoTangent - 1;

double units_of(uint64_t entries, uint32_t width) {
  return static_cast<double>(entries) * (kValueUnits + width);
}

/// The width with which a row takes the least work.
uint32_t own_width(uint64_t entries) {
  uint32_t best = 1;
  double least = 0;
  for (const uint32_t width : kJacobianWidths) {
    const uint64_t tasks = (entries + width - 1) / width;
    const double work = static_cast<double>(tasks) * units_of(entries, width);
    if (width == 1 || work < least) {
      best = width;
      least = work;
    }
  }
  return best;
}

class Scheduler {
public:
  Scheduler(const Pattern& pattern, const JacobianScheduleOptions& options)
      : pattern_(pattern), options_(options) {}

  JacobianSchedule run() {
    schedule_.tables.pattern = to_jacobian_pattern(pattern_);
    schedule_.tables.places.assign(options_.places.begin(), options_.places.end());
    const bool local = options_.by_row && options_.compression != JacobianCompression::coloured;
    const bool coloured = options_.compression != JacobianCompression::local;
    // Where it is only compared with, the quickest order will do.
    colouring_ = colour_pattern(pattern_, ColouringSide::column,
                                local ? ColouringOrder::natural : options_.order);
    schedule_.colours = colouring_.column_colours;
    schedule_.colours_lower_bound = colouring_lower_bound(pattern_, ColouringSide::column);
    if (local) {
      const uint32_t most = options_.has_sums ? options_.machine.most_lanes : 1;
      const uint32_t asked = std::min(options_.lanes, most); // 0: all are compared
      for (uint32_t lanes = 1; lanes <= most; lanes *= 2) {
        if (asked != 0 && asked != lanes)
          continue;
        if (options_.width == 0)
          consider(local_candidate(0, lanes));
        for (const uint32_t width : kJacobianWidths)
          if (options_.width == 0 || options_.width == width)
            consider(local_candidate(width, lanes));
      }
    }
    if (coloured)
      for (const uint32_t width : kJacobianWidths)
        if (options_.width == 0 || options_.width == width)
          consider(coloured_candidate(width));
    // The first of the fastest.
    schedule_.chosen = *std::min_element(
        schedule_.candidates.begin(), schedule_.candidates.end(),
        [](const JacobianCandidate& a, const JacobianCandidate& b) { return a.time < b.time; });
    schedule_.tables.lanes = schedule_.chosen.lanes;
    if (schedule_.chosen.compression == JacobianCompression::local)
      make_local(schedule_.chosen.width);
    else
      make_coloured(schedule_.chosen.width);
    return std::move(schedule_);
  }

private:
  uint32_t width_of(uint64_t entries, uint32_t width) const {
    return width == 0 ? own_width(entries) : width;
  }
  uint32_t place(uint64_t entry) const {
    return options_.places.empty() ? static_cast<uint32_t>(entry) : options_.places[entry];
  }

  void consider(JacobianCandidate candidate) { schedule_.candidates.push_back(candidate); }

  double time_of(const JacobianCandidate& candidate, double longest) const {
    const auto instances = static_cast<double>(options_.machine.instances);
    return static_cast<double>(candidate.kernels) * options_.machine.launch +
           std::max(candidate.work * instances / options_.machine.parallel, longest);
  }

  JacobianCandidate local_candidate(uint32_t width, uint32_t lanes) const {
    JacobianCandidate candidate;
    candidate.compression = JacobianCompression::local;
    candidate.width = width;
    candidate.lanes = lanes;
    bool used[std::size(kJacobianWidths)] = {};
    double longest = 0;
    for (uint32_t i = 0; i < pattern_.rows; ++i) {
      const uint64_t entries = pattern_.row_length(i);
      if (entries == 0)
        continue;
      const uint32_t own = width_of(entries, width);
      const uint64_t tasks = (entries + own - 1) / own;
      candidate.tasks += tasks;
      const double one = units_of((entries + lanes - 1) / lanes, own) +
                         (lanes > 1 ? kReduceUnits * (1 + own) * std::countr_zero(lanes) : 0);
      candidate.work += static_cast<double>(tasks) * lanes * one;
      longest = std::max(longest, one);
      used[std::find(std::begin(kJacobianWidths), std::end(kJacobianWidths), own) -
           std::begin(kJacobianWidths)] = true;
    }
    candidate.kernels = static_cast<uint64_t>(std::count(std::begin(used), std::end(used), true));
    candidate.time = time_of(candidate, longest);
    return candidate;
  }

  JacobianCandidate coloured_candidate(uint32_t width) const {
    JacobianCandidate candidate;
    candidate.compression = JacobianCompression::coloured;
    candidate.width = width;
    candidate.tasks = (uint64_t{colouring_.column_colours} + width - 1) / width;
    candidate.kernels = candidate.tasks > 0 ? 1 : 0;
    const double one = units_of(pattern_.nnz(), width); // a task is of all rows
    candidate.work = static_cast<double>(candidate.tasks) * one;
    candidate.time = time_of(candidate, one);
    return candidate;
  }

  void make_local(uint32_t width) {
    // Long rows first, and rows of one length together: threads that run together end together.
    std::vector<uint32_t> rows(pattern_.rows);
    std::iota(rows.begin(), rows.end(), 0u);
    std::stable_sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) {
      return pattern_.row_length(a) > pattern_.row_length(b);
    });
    for (const uint32_t w : kJacobianWidths) {
      LocalTasks tasks;
      tasks.width = w;
      for (const uint32_t i : rows) {
        const uint64_t begin = pattern_.row_offset[i], end = pattern_.row_offset[i + 1];
        if (begin == end || width_of(end - begin, width) != w)
          continue;
        for (uint64_t first = begin; first < end; first += w) {
          tasks.row.push_back(i);
          for (uint64_t k = first; k < first + w; ++k) {
            tasks.columns.push_back(k < end ? pattern_.column_index[k] : kNoTangent);
            tasks.places.push_back(k < end ? place(k) : 0);
          }
        }
      }
      if (tasks.count() > 0)
        schedule_.tables.local.push_back(std::move(tasks));
    }
  }

  void make_coloured(uint32_t width) {
    ColouredTasks& tasks = schedule_.tables.coloured;
    tasks.width = width;
    tasks.colours = colouring_.column_colours;
    for (const uint32_t colour : colouring_.column_colour)
      tasks.colour.push_back(colour == 0 ? kNoTangent : colour - 1);
    const uint64_t count = (uint64_t{tasks.colours} + width - 1) / width;
    // Entries by task, within a task by row.
    tasks.offset.assign(count + 1, 0);
    for (const uint32_t column : pattern_.column_index)
      ++tasks.offset[tasks.colour[column] / width + 1];
    std::partial_sum(tasks.offset.begin(), tasks.offset.end(), tasks.offset.begin());
    std::vector<uint64_t> next(tasks.offset.begin(), tasks.offset.end() - 1);
    tasks.row.resize(pattern_.nnz());
    tasks.tangent.resize(pattern_.nnz());
    tasks.places.resize(pattern_.nnz());
    for (uint32_t i = 0; i < pattern_.rows; ++i)
      for (uint64_t k = pattern_.row_offset[i]; k < pattern_.row_offset[i + 1]; ++k) {
        const uint32_t colour = tasks.colour[pattern_.column_index[k]];
        const uint64_t at = next[colour / width]++;
        tasks.row[at] = i;
        tasks.tangent[at] = colour % width;
        tasks.places[at] = place(k);
      }
  }

  const Pattern& pattern_;
  const JacobianScheduleOptions& options_;
  Colouring colouring_;
  JacobianSchedule schedule_;
};

} // namespace

std::string_view to_string(JacobianCompression compression) {
  return compression == JacobianCompression::local ? "local" : "coloured";
}

JacobianMachine JacobianMachine::gpu(uint32_t multiprocessors, uint64_t instances) {
  // Instances fill a GPU by themselves.
  return {kUnitsOfMultiprocessor * multiprocessors, kLaunchUnits, instances,
          instances > 1 ? 1 : kWarpLanes};
}

JacobianSchedule schedule_jacobian(const Pattern& pattern, const JacobianScheduleOptions& options) {
  if (pattern.rows != pattern.columns)
    throw UserError(fmt::format("the Jacobian's pattern is {} x {}", pattern.rows, pattern.columns),
                    "there must be as many residuals as unknowns");
  if (pattern.nnz() > kMostEntries)
    throw UserError(fmt::format("the Jacobian has {} entries, more than 2^32 - 2", pattern.nnz()));
  if (!options.by_row && options.compression == JacobianCompression::local)
    throw UserError("a residual that gives all rows at once cannot be evaluated by rows",
                    "--compression=coloured, or write it by row");
  if (!options.places.empty() && options.places.size() != pattern.nnz())
    throw InternalError("as many places as entries are needed");
  if (options.width != 0 && std::find(std::begin(kJacobianWidths), std::end(kJacobianWidths),
                                      options.width) == std::end(kJacobianWidths))
    throw InternalError(fmt::format("tasks of width {}", options.width));
  return Scheduler(pattern, options).run();
}

JacobianPattern to_jacobian_pattern(const Pattern& pattern) {
  return {pattern.rows, pattern.columns, pattern.row_offset, pattern.column_index};
}

Pattern to_pattern(const JacobianPattern& pattern) {
  return {pattern.rows, pattern.columns, pattern.row_offset, pattern.column_index};
}

} // namespace sparsertc
