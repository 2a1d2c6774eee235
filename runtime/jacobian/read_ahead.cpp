#include "runtime/jacobian/read_ahead.h"

#include <algorithm>

namespace sparsertc::jacobian {
namespace {

// residual_reads.cuh has the same.
constexpr uint64_t kUnknownWord = 0xFFFC0000u;
constexpr uint64_t kNoTangentOfTask = 255;
/// More do not stay in registers.
constexpr uint64_t kMostWords = 24;
constexpr uint64_t kMostTerms = 4; // of a thread
constexpr uint32_t kMostLanes = 32;

/// Reads of a row beside its sum, or of one of its terms: positions in the log.
struct OwnReads {
  std::vector<uint64_t> integers, words;
};

void widen(ReadsShape& shape, const OwnReads& own, const ReadLog& log) {
  shape.integers = std::max(shape.integers, static_cast<uint32_t>(own.integers.size()));
  shape.words = std::max(shape.words, static_cast<uint32_t>(own.words.size()));
  for (size_t k = 0; k < std::min<size_t>(own.words.size(), 64); ++k)
    (log.kind[own.words[k]] == ReadKind::unknown ? shape.unknowns : shape.numbers) |= uint64_t{1}
                                                                                      << k;
}

/// Whether a parameter's word could be taken for an unknown's.
bool is_ambiguous(const ReadsShape& shape, const OwnReads& own, const ReadLog& log) {
  for (size_t k = 0; k < own.words.size(); ++k) {
    const uint64_t read = own.words[k];
    if (log.kind[read] == ReadKind::number && (shape.unknowns >> k & 1) != 0 &&
        log.word[read] >> 40 == kUnknownWord >> 8)
      return true;
  }
  return false;
}

class Maker {
public:
  Maker(const TermTasks& tasks, const ReadLog& log)
      : tasks_(tasks), log_(log), parts_(parts_of(tasks.lanes)) {}

  std::optional<ReadAhead> run() {
    if (log_.decides)
      return std::nullopt;
    for (uint32_t task = 0; task < tasks_.count(); ++task)
      split(task);
    if (!is_whole_)
      return std::nullopt;
    ReadAheadShape& shape = made_.shape;
    shape.outer = tasks_.outer;
    shape.inner = tasks_.inner;
    for (const TaskPart& part : parts_)
      if (part.lanes != 0) {
        const uint64_t terms = terms_[part.task].size();
        const uint32_t own = static_cast<uint32_t>((terms + part.lanes - 1) / part.lanes);
        shape.terms = std::max(shape.terms, own);
        if (part.lanes < kMostLanes)
          shape.often = std::max(shape.often, own);
      }
    if (shape.terms == 0 || shape.terms > kMostTerms ||
        shape.row.words + shape.terms * shape.term.words > kMostWords ||
        shape.row.integers + shape.terms * shape.term.integers > kMostWords)
      return std::nullopt;
    for (uint32_t task = 0; task < tasks_.count(); ++task) {
      if (is_ambiguous(shape.row, rows_[task], log_))
        return std::nullopt;
      for (const OwnReads& term : terms_[task])
        if (is_ambiguous(shape.term, term, log_))
          return std::nullopt;
    }
    fill();
    return std::move(made_);
  }

private:
  void split(uint32_t task) {
    const uint32_t row = tasks_.row[task];
    OwnReads& own = rows_.emplace_back();
    std::vector<OwnReads>& terms = terms_.emplace_back(log_.terms[row]);
    if (tasks_.first[task + 1] - tasks_.first[task] > terms.size())
      is_whole_ = false;
    for (uint64_t r = log_.offset[row]; r < log_.offset[row + 1]; ++r) {
      OwnReads& reads = log_.term[r] == 0 ? own : terms[log_.term[r] - 1];
      (log_.kind[r] == ReadKind::integer ? reads.integers : reads.words).push_back(r);
    }
    widen(made_.shape.row, own, log_);
    for (const OwnReads& term : terms)
      widen(made_.shape.term, term, log_);
  }

  /// The number of the tangent that unknown j has; `term`: in that term of the task.
  uint64_t tangent(uint32_t task, std::optional<uint32_t> term, uint32_t unknown) const {
    const auto outer =
        tasks_.columns.begin() + static_cast<std::ptrdiff_t>(uint64_t{task} * tasks_.outer);
    for (uint32_t k = 0; k < tasks_.outer; ++k)
      if (outer[k] == unknown)
        return k;
    const uint32_t known = tasks_.first[task + 1] - tasks_.first[task];
    if (term && *term < known)
      for (uint32_t i = 0; i < tasks_.inner; ++i)
        if (tasks_.term_columns[uint64_t{tasks_.first[task] + *term} * tasks_.inner + i] == unknown)
          return tasks_.outer + i;
    return kNoTangentOfTask;
  }

  uint64_t word(uint32_t task, std::optional<uint32_t> term, uint64_t read) const {
    if (log_.kind[read] == ReadKind::number)
      return log_.word[read];
    const auto unknown = static_cast<uint32_t>(log_.word[read]);
    return (kUnknownWord + tangent(task, term, unknown)) << 32 | unknown;
  }

  void fill() {
    const ReadAheadShape& shape = made_.shape;
    const uint64_t tasks = tasks_.count(), all = made_.threads = parts_.size();
    made_.kept_numbers = shape.terms * shape.inner + shape.outer;
    made_.row = tasks_.row;
    // Where a thread reads less than others, it reads unknown 0.
    const uint64_t nothing = (kUnknownWord + kNoTangentOfTask) << 32;
    made_.integers.resize(shape.row.integers * tasks);
    made_.words.assign(shape.row.words * tasks, nothing);
    made_.term_integers.resize(uint64_t{shape.terms} * shape.term.integers * all);
    made_.term_words.assign(uint64_t{shape.terms} * shape.term.words * all, nothing);
    for (uint32_t task = 0; task < tasks; ++task) {
      const OwnReads& own = rows_[task];
      for (size_t k = 0; k < own.integers.size(); ++k)
        made_.integers[k * tasks + task] = static_cast<uint32_t>(log_.word[own.integers[k]]);
      for (size_t k = 0; k < own.words.size(); ++k)
        made_.words[k * tasks + task] = word(task, {}, own.words[k]);
    }
    WarpStores stores(all);
    for (uint64_t t = 0; t < all; ++t) {
      const TaskPart& part = parts_[t];
      if (part.lanes != 0)
        fill_thread(t, part, stores);
      if ((t + 1) % kWarpThreads == 0)
        made_.shape.rounds = std::max(made_.shape.rounds, stores.finish_warp(t + 1 - kWarpThreads));
    }
    made_.stores = stores.take();
  }

  void fill_thread(uint64_t t, const TaskPart& part, WarpStores& stores) {
    const ReadAheadShape& shape = made_.shape;
    const uint64_t all = made_.threads;
    const uint32_t lane = static_cast<uint32_t>(t % kWarpThreads);
    const std::vector<OwnReads>& terms = terms_[part.task];
    const uint32_t known = tasks_.first[part.task + 1] - tasks_.first[part.task];
    uint32_t m = 0;
    for (uint32_t term = part.lane; term < terms.size(); term += part.lanes, ++m) {
      const OwnReads& own = terms[term];
      for (size_t k = 0; k < own.integers.size(); ++k)
        made_.term_integers[(uint64_t{m} * shape.term.integers + k) * all + t] =
            static_cast<uint32_t>(log_.word[own.integers[k]]);
      for (size_t k = 0; k < own.words.size(); ++k)
        made_.term_words[(uint64_t{m} * shape.term.words + k) * all + t] =
            word(part.task, term, own.words[k]);
      for (uint32_t i = 0; term < known && i < shape.inner; ++i) {
        const uint64_t from = uint64_t{tasks_.first[part.task] + term} * shape.inner + i;
        if (tasks_.term_columns[from] != kNoTangent)
          stores.add(tasks_.term_places[from], m * shape.inner + i, lane);
      }
    }
    for (uint32_t k = 0; part.lane == 0 && k < shape.outer; ++k) {
      const uint64_t from = uint64_t{part.task} * shape.outer + k;
      if (tasks_.columns[from] != kNoTangent)
        stores.add(tasks_.places[from], shape.terms * shape.inner + k, lane);
    }
  }

  const TermTasks& tasks_;
  const ReadLog& log_;
  std::vector<TaskPart> parts_;
  std::vector<OwnReads> rows_;               ///< by task
  std::vector<std::vector<OwnReads>> terms_; ///< by task, term
  bool is_whole_ = true;                     ///< the log has all terms that tasks have
  ReadAhead made_;
};

} // namespace

std::optional<ReadAhead> read_ahead(const TermTasks& tasks, const ReadLog& log) {
  return Maker(tasks, log).run();
}

} // namespace sparsertc::jacobian
