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
constexpr double kValueUnits = 3;
/// What a thread does beside the entries, in entries.
constexpr double kThreadEntries = 1.5;
/// An entry with so many tangents takes twice as long as one without, where nothing else waits.
constexpr double kTangentsOfEntry = 16;
// Fitted to runs of the power flow of 9241 buses on an NVIDIA H200, with widths of 1 to 8 and 2 to
// 16 entries for each thread.
constexpr double kUnitsOfMultiprocessor = 4;
constexpr double kEntryCycles = 900;
constexpr double kLaunchCycles = 2000;
constexpr uint32_t kMostLanes = 32;
/// For values alone, which are one number a thread: about a term.
constexpr uint32_t kRowEntriesPerLane = 2;
constexpr uint64_t kMostEntries = kNoTangent - 1;
constexpr uint32_t kTermWidths[] = {1, 2, 4};

double units_of(double entries, uint32_t width) {
  return entries * (kValueUnits + width);
}

/// The width with which a row takes the least work.
uint32_t own_width(uint64_t entries) {
  uint32_t best = 1;
  double least = 0;
  for (const uint32_t width : kJacobianWidths) {
    const uint64_t tasks = (entries + width - 1) / width;
    const double work = static_cast<double>(tasks) * units_of(static_cast<double>(entries), width);
    if (width == 1 || work < least) {
      best = width;
      least = work;
    }
  }
  return best;
}

/// A row's entries by the terms of its sum; numbers of entries.
struct SplitRow {
  std::vector<uint64_t> outer;
  std::vector<std::vector<uint64_t>> terms;
  uint64_t most_inner = 0; ///< of a term
  bool has_sum = false;    ///< one
};

class Scheduler {
public:
  Scheduler(const Pattern& pattern, const JacobianScheduleOptions& options)
      : pattern_(pattern), options_(options) {}

  JacobianSchedule run() {
    schedule_.tables.pattern = to_jacobian_pattern(pattern_);
    schedule_.tables.places.assign(options_.places.begin(), options_.places.end());
    const auto allowed = [&](JacobianCompression one) {
      return !options_.compression || options_.compression == one;
    };
    const bool local = options_.by_row && allowed(JacobianCompression::local);
    const bool coloured = allowed(JacobianCompression::coloured);
    // Where it is only compared with, the quickest order will do.
    colouring_ = colour_pattern(pattern_, ColouringSide::column,
                                local ? ColouringOrder::natural : options_.order);
    schedule_.colours = colouring_.column_colours;
    schedule_.colours_lower_bound = colouring_lower_bound(pattern_, ColouringSide::column);
    if (local) {
      for (const uint32_t share : shares()) {
        if (options_.width == 0)
          consider(local_candidate(0, share));
        for (const uint32_t width : kJacobianWidths)
          if (options_.width == 0 || options_.width == width)
            consider(local_candidate(width, share));
      }
    }
    if (options_.by_row && options_.terms != nullptr && allowed(JacobianCompression::terms) &&
        (options_.width == 0 || options_.compression)) {
      split_rows();
      if (choose_term_widths())
        for (const uint32_t share : shares())
          consider(terms_candidate(share));
    }
    if (coloured)
      for (const uint32_t width : kJacobianWidths)
        if (options_.width == 0 || options_.width == width)
          consider(coloured_candidate(width));
    if (schedule_.candidates.empty())
      throw UserError("no row has one sum whose terms have a few unknowns each",
                      "--compression=local");
    // The first of the fastest.
    schedule_.chosen = *std::min_element(
        schedule_.candidates.begin(), schedule_.candidates.end(),
        [](const JacobianCandidate& a, const JacobianCandidate& b) { return a.time < b.time; });
    switch (schedule_.chosen.compression) {
    case JacobianCompression::local:
      make_rows(schedule_.chosen.entries_per_lane);
      make_local(schedule_.chosen.width, schedule_.chosen.entries_per_lane);
      break;
    case JacobianCompression::terms:
      make_rows(schedule_.chosen.entries_per_lane);
      make_terms(schedule_.tables.rows.lanes.shared() ? schedule_.chosen.entries_per_lane : 0);
      make_local(0, schedule_.chosen.entries_per_lane);
      break;
    case JacobianCompression::coloured:
      make_coloured(schedule_.chosen.width);
      break;
    }
    return std::move(schedule_);
  }

private:
  uint32_t width_of(uint64_t entries, uint32_t width) const {
    return width == 0 ? own_width(entries) : width;
  }
  uint32_t place(uint64_t entry) const {
    return options_.places.empty() ? static_cast<uint32_t>(entry) : options_.places[entry];
  }

  /// The ways of sharing tasks that are compared.
  std::vector<uint32_t> shares() const {
    if (!options_.has_sums || !options_.machine.shares_tasks)
      return {0};
    if (options_.entries_per_lane)
      return {*options_.entries_per_lane};
    std::vector<uint32_t> all = {0};
    all.insert(all.end(), std::begin(kEntriesPerLane), std::end(kEntriesPerLane));
    return all;
  }
  static uint32_t lanes_of(uint64_t entries, uint32_t share) {
    if (share == 0)
      return 1;
    return static_cast<uint32_t>(std::min<uint64_t>(
        std::bit_ceil(std::max<uint64_t>((entries + share - 1) / share, 1)), kMostLanes));
  }

  /// Nobody starts threads on a CPU.
  double thread_entries() const { return options_.machine.launch_cycles > 0 ? kThreadEntries : 0; }

  void consider(JacobianCandidate candidate) { schedule_.candidates.push_back(candidate); }

  /// `longest`: entries of a thread, each with as many tangents as the candidate is wide at most.
  double time_of(const JacobianCandidate& candidate, uint64_t longest) const {
    const JacobianMachine& machine = options_.machine;
    const double tangents = candidate.width == 0 ? std::end(kJacobianWidths)[-1] : candidate.width;
    return static_cast<double>(candidate.kernels) * machine.launch_cycles +
           candidate.work * static_cast<double>(machine.instances) / machine.units_per_cycle +
           static_cast<double>(longest) * machine.entry_cycles * (1 + tangents / kTangentsOfEntry);
  }

  JacobianCandidate local_candidate(uint32_t width, uint32_t share) const {
    return local_candidate(width, share, [](uint32_t) { return true; });
  }
  /// Of the rows for which `is_local` holds.
  template <class IsLocal>
  JacobianCandidate local_candidate(uint32_t width, uint32_t share, const IsLocal& is_local) const {
    JacobianCandidate candidate;
    candidate.compression = JacobianCompression::local;
    candidate.width = width;
    candidate.entries_per_lane = share;
    bool used[std::size(kJacobianWidths)] = {};
    uint64_t longest = 0;
    for (uint32_t i = 0; i < pattern_.rows; ++i) {
      const uint64_t entries = pattern_.row_length(i);
      if (entries == 0 || !is_local(i))
        continue;
      const uint32_t own = width_of(entries, width);
      const uint64_t tasks = (entries + own - 1) / own;
      const uint32_t lanes = lanes_of(entries, share);
      const uint64_t each = (entries + lanes - 1) / lanes;
      candidate.tasks += tasks;
      candidate.threads += tasks * lanes;
      candidate.work += static_cast<double>(tasks * lanes) *
                        units_of(static_cast<double>(each) + thread_entries(), own);
      longest = std::max(longest, each);
      used[std::find(std::begin(kJacobianWidths), std::end(kJacobianWidths), own) -
           std::begin(kJacobianWidths)] = true;
    }
    candidate.kernels = static_cast<uint64_t>(std::count(std::begin(used), std::end(used), true));
    candidate.time = time_of(candidate, longest);
    return candidate;
  }

  void split_rows() {
    const RowTerms& terms = *options_.terms;
    split_.assign(pattern_.rows, {});
    std::vector<uint32_t> term_of; // by entry of the row: 0 outside, kNoTangent not read
    for (uint32_t i = 0; i < pattern_.rows; ++i) {
      SplitRow& row = split_[i];
      row.has_sum = terms.sums[i] == 1;
      if (!row.has_sum)
        continue;
      row.terms.resize(terms.lengths[i]);
      const uint64_t begin = pattern_.row_offset[i], end = pattern_.row_offset[i + 1];
      const auto first = pattern_.column_index.begin() + static_cast<std::ptrdiff_t>(begin),
                 last = pattern_.column_index.begin() + static_cast<std::ptrdiff_t>(end);
      term_of.assign(end - begin, kNoTangent);
      for (uint64_t r = terms.offset[i]; r < terms.offset[i + 1]; ++r) {
        const auto at = std::lower_bound(first, last, terms.column[r]);
        if (at == last || *at != terms.column[r])
          continue; // read, but without derivatives
        uint32_t& term = term_of[static_cast<size_t>(at - first)];
        term = term == kNoTangent || term == terms.term[r] ? terms.term[r] : 0;
      }
      for (uint64_t k = begin; k < end; ++k) {
        const uint32_t term = term_of[k - begin];
        if (term == 0 || term == kNoTangent) {
          row.outer.push_back(k);
          continue;
        }
        row.terms.resize(std::max<size_t>(row.terms.size(), term));
        row.terms[term - 1].push_back(k);
        row.most_inner = std::max<uint64_t>(row.most_inner, row.terms[term - 1].size());
      }
    }
  }

  bool by_terms(const SplitRow& row, uint32_t outer, uint32_t inner, uint32_t share) const {
    return row.has_sum && row.outer.size() <= outer && row.most_inner <= inner &&
           terms_of_lane(row, inner, share) * inner <= options_.machine.kept_numbers;
  }
  static uint64_t terms_of_lane(const SplitRow& row, uint32_t inner, uint32_t share) {
    const uint64_t terms = row.terms.size();
    const uint32_t lanes = lanes_of(terms * inner, share);
    return (terms + lanes - 1) / lanes;
  }

  /// Those with the least work in one thread a task; false where no row is by terms.
  bool choose_term_widths() {
    double least = 0;
    for (const uint32_t outer : kTermWidths)
      for (const uint32_t inner : kTermWidths) {
        outer_ = outer;
        inner_ = inner;
        const JacobianCandidate candidate = terms_candidate(0);
        if (candidate.term_tasks > 0 && (chosen_outer_ == 0 || candidate.work < least)) {
          least = candidate.work;
          chosen_outer_ = outer;
          chosen_inner_ = inner;
        }
      }
    outer_ = chosen_outer_;
    inner_ = chosen_inner_;
    return outer_ > 0;
  }

  JacobianCandidate terms_candidate(uint32_t share) const {
    // The other rows are local.
    uint64_t longest = 0;
    JacobianCandidate candidate = local_candidate(
        0, share, [&](uint32_t i) { return !by_terms(split_[i], outer_, inner_, share); });
    candidate.compression = JacobianCompression::terms;
    candidate.width = outer_ + inner_;
    candidate.outer = outer_;
    candidate.inner = inner_;
    for (uint32_t i = 0; i < pattern_.rows; ++i) {
      const SplitRow& row = split_[i];
      if (!by_terms(row, outer_, inner_, share))
        continue;
      const uint32_t lanes = lanes_of(row.terms.size() * inner_, share);
      const uint64_t each = outer_ + terms_of_lane(row, inner_, share) * inner_;
      candidate.threads += lanes;
      candidate.work +=
          lanes * units_of(static_cast<double>(each) + thread_entries(), outer_ + inner_);
      longest = std::max(longest, each);
      ++candidate.term_tasks;
    }
    candidate.tasks += candidate.term_tasks;
    candidate.kernels += candidate.term_tasks > 0 ? 1 : 0;
    candidate.time = time_of(candidate, longest);
    return candidate;
  }

  void make_terms(uint32_t share) {
    TermTasks& tasks = schedule_.tables.terms;
    tasks.outer = outer_;
    tasks.inner = inner_;
    const auto lanes = [&](uint32_t i) { return lanes_of(split_[i].terms.size() * inner_, share); };
    std::vector<uint32_t> rows = rows_by_size(0);
    // Equations of one point read the same unknowns: threads that run together load them once.
    const auto own_column = [&](uint32_t i) {
      const SplitRow& row = split_[i];
      return row.outer.empty() ? kNoTangent : pattern_.column_index[row.outer[0]];
    };
    if (share > 0)
      std::stable_sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) {
        return std::pair(lanes(b), own_column(a)) < std::pair(lanes(a), own_column(b));
      });
    is_by_terms_.assign(pattern_.rows, false);
    const auto add = [&](std::vector<uint32_t>& columns, std::vector<uint32_t>& places,
                         const std::vector<uint64_t>& entries, uint32_t width) {
      for (size_t k = 0; k < width; ++k) {
        columns.push_back(k < entries.size() ? pattern_.column_index[entries[k]] : kNoTangent);
        places.push_back(k < entries.size() ? place(entries[k]) : kNoTangent);
      }
    };
    for (const uint32_t i : rows) {
      const SplitRow& row = split_[i];
      if (!by_terms(row, outer_, inner_, share))
        continue;
      is_by_terms_[i] = true;
      tasks.row.push_back(i);
      add(tasks.columns, tasks.places, row.outer, outer_);
      for (const std::vector<uint64_t>& term : row.terms)
        add(tasks.term_columns, tasks.term_places, term, inner_);
      tasks.first.push_back(tasks.first.back() + static_cast<uint32_t>(row.terms.size()));
      tasks.most_terms =
          std::max(tasks.most_terms, static_cast<uint32_t>(terms_of_lane(row, inner_, share)));
      if (share > 0)
        add_tasks(tasks.lanes, lanes(i), 1);
    }
  }

  JacobianCandidate coloured_candidate(uint32_t width) const {
    JacobianCandidate candidate;
    candidate.compression = JacobianCompression::coloured;
    candidate.width = width;
    candidate.tasks = (uint64_t{colouring_.column_colours} + width - 1) / width;
    candidate.kernels = candidate.tasks > 0 ? 1 : 0;
    // A task is of all rows.
    const double one = units_of(static_cast<double>(pattern_.nnz()) + thread_entries(), width);
    candidate.threads = candidate.tasks;
    candidate.work = static_cast<double>(candidate.tasks) * one;
    candidate.time = time_of(candidate, pattern_.nnz());
    return candidate;
  }

  /// Adds tasks of the next, not longer row.
  static void add_tasks(TaskLanes& lanes, uint32_t each, uint32_t tasks) {
    const auto group = static_cast<size_t>(std::countr_zero(kMostLanes / each));
    for (size_t g = group; g < lanes.task_end.size(); ++g)
      lanes.task_end[g] += tasks;
  }

  /// Long rows first, those that take about as long together: threads that run together end
  /// together. Among them the order stays: neighbours in memory are read together.
  std::vector<uint32_t> rows_by_size(uint32_t share) const {
    const auto size_class = [&](uint32_t i) {
      const uint64_t entries = pattern_.row_length(i);
      return share > 0 ? lanes_of(entries, share) : static_cast<uint32_t>(std::bit_width(entries));
    };
    std::vector<uint32_t> rows(pattern_.rows);
    std::iota(rows.begin(), rows.end(), 0u);
    std::stable_sort(rows.begin(), rows.end(),
                     [&](uint32_t a, uint32_t b) { return size_class(a) > size_class(b); });
    return rows;
  }

  /// For values alone.
  void make_rows(uint32_t share) {
    RowTasks& all = schedule_.tables.rows;
    if (share == 0)
      return;
    all.row = rows_by_size(kRowEntriesPerLane);
    for (const uint32_t i : all.row)
      add_tasks(all.lanes, lanes_of(pattern_.row_length(i), kRowEntriesPerLane), 1);
    if (!all.lanes.shared())
      all = {};
  }

  void make_local(uint32_t width, uint32_t share) {
    const RowTasks& all = schedule_.tables.rows;
    const std::vector<uint32_t> rows = rows_by_size(share);
    for (const uint32_t w : kJacobianWidths) {
      LocalTasks tasks;
      tasks.width = w;
      for (const uint32_t i : rows) {
        const uint64_t begin = pattern_.row_offset[i], end = pattern_.row_offset[i + 1];
        if (begin == end || width_of(end - begin, width) != w || is_by_terms(i))
          continue;
        for (uint64_t first = begin; first < end; first += w) {
          if (all.lanes.shared())
            add_tasks(tasks.lanes, lanes_of(end - begin, share), 1);
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

  bool is_by_terms(uint32_t i) const { return !is_by_terms_.empty() && is_by_terms_[i]; }

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
  std::vector<SplitRow> split_;
  uint32_t outer_ = 0, inner_ = 0, chosen_outer_ = 0, chosen_inner_ = 0;
  std::vector<bool> is_by_terms_; ///< by row; empty: none
  JacobianSchedule schedule_;
};

} // namespace

std::string_view to_string(JacobianCompression compression) {
  switch (compression) {
  case JacobianCompression::local:
    return "local";
  case JacobianCompression::terms:
    return "terms";
  default:
    return "coloured";
  }
}

JacobianMachine JacobianMachine::gpu(uint32_t multiprocessors, uint64_t instances) {
  // Instances fill a GPU by themselves.
  return {kUnitsOfMultiprocessor * multiprocessors,
          kEntryCycles,
          kLaunchCycles,
          instances,
          instances == 1,
          kMostKeptNumbers};
}

JacobianSchedule schedule_jacobian(const Pattern& pattern, const JacobianScheduleOptions& options) {
  if (pattern.rows != pattern.columns)
    throw UserError(fmt::format("the Jacobian's pattern is {} x {}", pattern.rows, pattern.columns),
                    "there must be as many residuals as unknowns");
  if (pattern.nnz() > kMostEntries)
    throw UserError(fmt::format("the Jacobian has {} entries, more than 2^32 - 2", pattern.nnz()));
  if (!options.by_row && options.compression &&
      *options.compression != JacobianCompression::coloured)
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
