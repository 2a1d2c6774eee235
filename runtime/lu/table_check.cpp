#include "runtime/lu/table_check.h"

#include "ir/error.h"
#include "runtime/lu/refine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace sparsertc::lu {
namespace {

/// Numbers of slots, rows and packets are signed on the GPU.
constexpr uint64_t kMostOnGpu = uint64_t{1} << 31;

class Checker {
public:
  explicit Checker(const std::string& name) : name_(name) {}

  void expect(bool holds, const char* what) const {
    if (!holds) [[unlikely]]
      throw UserError(Place{name_, 0, 0, {}}, fmt::format("damaged: {}", what),
                      "compile it again: sparsertc compile IN --op=lu -o OUT.srtc");
  }
  void expect_permutation(std::span<const uint32_t> order, uint64_t size, const char* what) const {
    expect(order.size() == size, what);
    std::vector<bool> seen(size, false);
    for (const uint32_t i : order) {
      expect(i < size && !seen[i], what);
      seen[i] = true;
    }
  }
  /// `parts` + 1 offsets from 0 to `end`, none less than the one before.
  void expect_offsets(std::span<const uint64_t> offset, uint64_t parts, uint64_t end,
                      const char* what) const {
    expect(offset.size() == parts + 1 && offset.front() == 0 && offset.back() == end, what);
    for (uint64_t i = 0; i < parts; ++i)
      expect(offset[i] <= offset[i + 1], what);
  }
  void expect_scale(const std::vector<double>& scale, uint64_t size, const char* what) const {
    expect(scale.empty() || scale.size() == size, what);
    for (const double s : scale)
      expect(std::isfinite(s), what);
  }

private:
  const std::string& name_;
};

/// Members in levels: each once, and after all that it needs. `for_each_needed(i, f)` calls f(k).
template <class Needed>
void check_levels(const Checker& check, const LuLevels& levels, uint32_t size, const char* what,
                  const Needed& for_each_needed) {
  check.expect(!levels.offset.empty(), what);
  check.expect_offsets(levels.offset, levels.count(), size, what);
  check.expect_permutation(levels.member, size, what);
  std::vector<uint64_t> level(size);
  for (uint64_t l = 0; l < levels.count(); ++l)
    for (uint64_t m = levels.offset[l]; m < levels.offset[l + 1]; ++m)
      level[levels.member[m]] = l;
  for (uint32_t i = 0; i < size; ++i)
    for_each_needed(i, [&](uint32_t k) { check.expect(level[k] < level[i], what); });
}

/// L'+U in columns and rows.
void check_pattern(const Checker& check, const LuTables& t) {
  const uint64_t n = t.size;
  check.expect_offsets(t.column_offset, n, t.row_index.size(), "column_offset");
  check.expect(t.diagonal.size() == n, "diagonal");
  for (uint32_t j = 0; j < n; ++j) {
    for (uint64_t p = t.column_offset[j]; p < t.column_offset[j + 1]; ++p)
      check.expect(t.row_index[p] < n &&
                       (p == t.column_offset[j] || t.row_index[p - 1] < t.row_index[p]),
                   "row_index");
    check.expect(t.diagonal[j] >= t.column_offset[j] && t.diagonal[j] < t.column_offset[j + 1] &&
                     t.row_index[t.diagonal[j]] == j,
                 "diagonal");
  }
  check.expect_offsets(t.row_offset, n, t.column_index.size(), "row_offset");
  check.expect(t.column_index.size() == t.row_index.size() &&
                   t.row_slot.size() == t.row_index.size(),
               "column_index");
  check.expect(t.row_diagonal.size() == n, "row_diagonal");
  for (uint32_t i = 0; i < n; ++i) {
    for (uint64_t p = t.row_offset[i]; p < t.row_offset[i + 1]; ++p) {
      const uint32_t j = t.column_index[p];
      check.expect(j < n && (p == t.row_offset[i] || t.column_index[p - 1] < j), "column_index");
      check.expect(t.row_slot[p] >= t.column_offset[j] && t.row_slot[p] < t.column_offset[j + 1] &&
                       t.row_index[t.row_slot[p]] == i,
                   "row_slot");
    }
    check.expect(t.row_diagonal[i] >= t.row_offset[i] && t.row_diagonal[i] < t.row_offset[i + 1] &&
                     t.column_index[t.row_diagonal[i]] == i,
                 "row_diagonal");
  }
}

void check_input(const Checker& check, const LuTables& t) {
  check.expect_offsets(t.input_offset, t.size, t.input_nnz, "input_offset");
  check.expect(t.input_row.size() == t.input_nnz, "input_row");
  check.expect(t.input_slot.size() == t.input_nnz, "input_slot");
  check.expect(t.input_source.size() == t.input_nnz, "input_source");
  check.expect_scale(t.input_scale, t.input_nnz, "input_scale");
  std::vector<bool> seen(t.input_nnz, false);
  for (uint32_t j = 0; j < t.size; ++j)
    for (uint64_t p = t.input_offset[j]; p < t.input_offset[j + 1]; ++p) {
      const uint64_t slot = t.input_slot[p], source = t.input_source[p];
      check.expect(slot >= t.column_offset[j] && slot < t.column_offset[j + 1] &&
                       (p == t.input_offset[j] || t.input_slot[p - 1] < slot),
                   "input_slot");
      check.expect(t.input_row[p] == t.row_index[slot], "input_row");
      check.expect(source < t.input_nnz && !seen[source], "input_source");
      seen[source] = true;
    }
  // The caller's order is that of compressed rows.
  const MatrixPattern pattern = pattern_of(t);
  for (uint32_t j = 0; j < t.size; ++j)
    for (uint64_t p = t.input_offset[j]; p < t.input_offset[j + 1]; ++p) {
      const uint32_t row = t.row_order[t.input_row[p]];
      const uint64_t source = t.input_source[p];
      check.expect(source >= pattern.row_offset[row] && source < pattern.row_offset[row + 1],
                   "input_source");
    }
  for (uint32_t i = 0; i < t.size; ++i)
    for (uint64_t p = pattern.row_offset[i] + 1; p < pattern.row_offset[i + 1]; ++p)
      check.expect(pattern.column_index[p - 1] < pattern.column_index[p], "input_source");
}

/// The streams of packets, and what may stand in their words.
void check_packets(const Checker& check, const LuDataflow& flow, uint32_t operand_words,
                   uint32_t task_words, uint32_t warps) {
  check.expect(flow.operand_words == operand_words, "operand_words");
  check.expect(flow.task_words == task_words, "task_words");
  check.expect(flow.stream_offset.size() > 1 && flow.stream_offset.front() == 0 && warps > 0 &&
                   flow.streams() % warps == 0,
               "stream_offset");
  for (uint32_t s = 0; s < flow.streams(); ++s)
    check.expect(flow.stream_offset[s] <= flow.stream_offset[s + 1], "stream_offset");
  const uint64_t packets = uint64_t{flow.packets()} + 1; // one is read ahead
  check.expect(packets * LuDataflow::kLanes < kMostOnGpu, "stream_offset");
  check.expect(flow.group.size() == packets, "group");
  check.expect(flow.gate.size() == packets, "gate");
  check.expect(flow.task.size() == packets * LuDataflow::kLanes * task_words, "task");
  check.expect(flow.operands.size() ==
                   packets * LuDataflow::kLanes * LuDataflow::kProducts * operand_words,
               "operands");
  for (uint32_t packet = 0; packet < flow.packets(); ++packet) {
    const uint32_t group = flow.group[packet];
    check.expect(group == 0 || (group <= LuDataflow::kLanes && std::has_single_bit(group)),
                 "group");
    for (uint32_t lane = 0; lane < LuDataflow::kLanes; ++lane) {
      const bool may_end = group != 0 && lane % group == 0;
      const uint64_t at = (uint64_t{packet} * LuDataflow::kLanes + lane) * task_words;
      check.expect(may_end || flow.task[at] == kNoWord, "task");
    }
  }
}

/// What the words of a table of packets mean.
struct FlowMeaning {
  std::vector<bool> given;   ///< by number that can be waited for, whether it is always there
  uint32_t first_waited = 0; ///< the operand words from this one on are waited for
  /// Waits also for the number this far before its result; 0: for none.
  uint64_t base = 0;
  /// Waits also for the number in this word of its task, unless its highest bit is set; 0: for
  /// none.
  uint32_t base_word = 0;
};

/// Plays all packets through, each as soon as what it waits for is there. So it is found out
/// whether the kernel comes to an end, and whether each result is stored once.
class Player {
public:
  Player(const Checker& check, const LuDataflow& flow, const FlowMeaning& meaning)
      : check_(check), flow_(flow), meaning_(meaning), done_(meaning.given),
        waiting_(done_.size(), kNoWord), next_waiting_(flow.streams(), kNoWord),
        head_(flow.streams()), operand_(flow.streams(), 0) {}

  void play() {
    for (uint32_t s = 0; s < flow_.streams(); ++s) {
      head_[s] = flow_.stream_offset[s];
      ready_.push_back(s);
    }
    while (!ready_.empty()) {
      const uint32_t stream = ready_.back();
      ready_.pop_back();
      while (head_[stream] < flow_.stream_offset[stream + 1] && advance(stream))
        ;
    }
    for (uint32_t s = 0; s < flow_.streams(); ++s)
      check_.expect(head_[s] == flow_.stream_offset[s + 1], "tasks wait for one another");
    check_.expect(std::find(done_.begin(), done_.end(), false) == done_.end(), "a task is missing");
  }

private:
  static constexpr uint32_t kLanes = LuDataflow::kLanes;
  static constexpr uint32_t kInPacket = LuDataflow::kLanes * LuDataflow::kProducts;

  /// Whether the stream's next packet could be done; else it is noted with what it waits for.
  bool advance(uint32_t stream) {
    const uint32_t packet = head_[stream];
    const uint32_t words = flow_.operand_words;
    const uint32_t* const operands = flow_.operands.data() + uint64_t{packet} * words * kInPacket;
    for (uint32_t& i = operand_[stream]; i < kInPacket; ++i)
      if (operands[i] != kNoWord)
        for (uint32_t word = meaning_.first_waited; word < words; ++word)
          if (!is_there(operands[word * kInPacket + i], stream))
            return false;
    if (flow_.gate[packet] != kNoWord && !is_there(flow_.gate[packet], stream))
      return false;
    const uint32_t* const tasks = flow_.task.data() + uint64_t{packet} * kLanes * flow_.task_words;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t result = tasks[lane * flow_.task_words];
      if (result != kNoWord && meaning_.base != 0 &&
          !is_there(static_cast<uint32_t>(result - meaning_.base), stream))
        return false;
      if (result != kNoWord && meaning_.base_word != 0) {
        const uint32_t start = tasks[lane * flow_.task_words + meaning_.base_word];
        if (start < kMostOnGpu && !is_there(start, stream))
          return false;
      }
    }
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      if (const uint32_t result = tasks[lane * flow_.task_words]; result != kNoWord)
        finish(result);
    ++head_[stream];
    operand_[stream] = 0;
    return true;
  }

  bool is_there(uint32_t number, uint32_t stream) {
    if (done_[number])
      return true;
    next_waiting_[stream] = waiting_[number];
    waiting_[number] = stream;
    return false;
  }

  void finish(uint32_t number) {
    check_.expect(!done_[number], "a task stands twice");
    done_[number] = true;
    for (uint32_t stream = waiting_[number]; stream != kNoWord; stream = next_waiting_[stream])
      ready_.push_back(stream);
  }

  const Checker& check_;
  const LuDataflow& flow_;
  const FlowMeaning& meaning_;
  std::vector<bool> done_;
  std::vector<uint32_t> waiting_;      ///< by number, the first stream that waits for it
  std::vector<uint32_t> next_waiting_; ///< by stream, the next one that waits for the same
  std::vector<uint32_t> ready_;
  std::vector<uint32_t> head_;    ///< by stream, its next packet
  std::vector<uint32_t> operand_; ///< by stream, where its packet is still waiting
};

void check_solve_flow(const Checker& check, const LuDataflow& flow, const LuTables& t,
                      bool transposed, uint32_t warps) {
  check_packets(check, flow, 2, 4, warps);
  check.expect(flow.partial_sums == 0, "partial_sums");
  check.expect(std::all_of(flow.gate.begin(), flow.gate.end(),
                           [](uint32_t gate) { return gate == kNoWord; }),
               "gate");
  const uint64_t n = t.size, vector = kSolveVectors * n;
  check.expect(vector * sizeof(double) < kMostOnGpu, "operands");
  const uint32_t in_packet = LuDataflow::kLanes * LuDataflow::kProducts;
  for (uint64_t packet = 0; packet < flow.packets(); ++packet) {
    const uint32_t* const operands = flow.operands.data() + packet * 2 * in_packet;
    for (uint32_t i = 0; i < in_packet; ++i)
      check.expect(operands[i] == kNoWord ||
                       (operands[i] < t.nnz() && operands[in_packet + i] < vector),
                   "operands");
  }
  const std::vector<uint32_t>& order = transposed ? t.row_order : t.column_order;
  for (uint64_t at = 0; at < flow.task.size(); at += 4) {
    const uint32_t place = flow.task[at];
    if (place == kNoWord) {
      check.expect(flow.task[at + 1] == kNoWord, "task");
      continue;
    }
    check.expect(place >= n && place < vector, "task");
    const uint64_t i = place < 2 * n ? place - n : place - 2 * n;
    check.expect(flow.task[at + 1] == (place < 2 * n ? kNoWord : order[i]), "task");
    check.expect(flow.task[at + 2] == t.diagonal[i], "task");
  }
  FlowMeaning meaning{std::vector<bool>(vector, false), 1, n};
  std::fill_n(meaning.given.begin(), n, true);
  Player(check, flow, meaning).play();
}

void check_block_solve(const Checker& check, const LuBlockSolve& solve, const LuTables& t,
                       uint32_t block_warps) {
  constexpr uint64_t kLanes = LuBlockSolve::kLanes, kAhead = LuBlockSolve::kReadAhead;
  constexpr uint64_t kStrip = kLanes * LuBlockSolve::kProducts;
  check.expect(t.size <= LuBlockSolve::kMostRows, "size");
  check.expect(block_warps > 0 && solve.warps == block_warps, "warps");
  check.expect(solve.end.size() == (uint64_t{solve.steps} + 1 + kAhead) * solve.warps, "end");
  const uint64_t all = solve.shape.size() / 2;
  check.expect(solve.shape.size() % 2 == 0 && all >= kAhead, "shape");
  check.expect(solve.records.size() == all * kLanes * LuBlockSolve::kRecordWords, "records");
  check.expect(solve.slot.size() == solve.pivot.size() && solve.slot.size() % kStrip == 0 &&
                   solve.slot.size() < kMostOnGpu,
               "slot");
  // A warp's records stand in a row, and the warps' one behind the other.
  uint64_t begin = 0;
  for (uint32_t warp = 0; warp < solve.warps; ++warp) {
    for (uint64_t row = 0; row < uint64_t{solve.steps} + 1 + kAhead; ++row) {
      const uint64_t end = solve.end[row * solve.warps + warp];
      check.expect(row == 0 ? end == begin : end >= begin, "end");
      begin = end;
    }
  }
  check.expect(begin == all - kAhead, "end");
  const uint64_t strips = solve.slot.size() / kStrip;
  for (uint64_t record = 0; record < all; ++record) {
    const uint32_t shape = solve.shape[2 * record];
    const bool triangle = shape == LuBlockSolve::kTriangle;
    check.expect(shape == 0 || triangle || (shape <= kLanes && std::has_single_bit(shape)),
                 "shape");
    check.expect(solve.shape[2 * record + 1] + (triangle ? 2ull : 1ull) <= strips, "shape");
    for (uint64_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t* const words =
          solve.records.data() + (record * kLanes + lane) * LuBlockSolve::kRecordWords;
      check.expect((words[0] & 0xFFFF) <= t.size, "records");
      for (uint32_t word = 1; word < 3 && !triangle; ++word)
        check.expect((words[word] & 0xFFFF) <= t.size && words[word] >> 16 <= t.size, "records");
    }
  }
  for (uint64_t i = 0; i < solve.slot.size(); ++i)
    check.expect(solve.slot[i] == kNoWord || (solve.slot[i] < t.nnz() && solve.pivot[i] < t.nnz()),
                 "slot");
}

} // namespace

void check_tables(const LuTables& t, const std::string& name) {
  const Checker check(name);
  check.expect(t.size <= uint32_t{std::numeric_limits<int32_t>::max()}, "size");
  check.expect_permutation(t.row_order, t.size, "row_order");
  check.expect_permutation(t.column_order, t.size, "column_order");
  check.expect_scale(t.row_scale, t.size, "row_scale");
  check.expect_scale(t.column_scale, t.size, "column_scale");
  check_pattern(check, t);
  check_input(check, t);
  const auto above = [&](uint32_t j, const auto& f) { // entries of column j above the diagonal
    for (uint64_t p = t.column_offset[j]; p < t.diagonal[j]; ++p)
      f(t.row_index[p]);
  };
  const auto below = [&](uint32_t j, const auto& f) {
    for (uint64_t p = t.diagonal[j] + 1; p < t.column_offset[j + 1]; ++p)
      f(t.row_index[p]);
  };
  const auto left = [&](uint32_t i, const auto& f) {
    for (uint64_t p = t.row_offset[i]; p < t.row_diagonal[i]; ++p)
      f(t.column_index[p]);
  };
  const auto right = [&](uint32_t i, const auto& f) {
    for (uint64_t p = t.row_diagonal[i] + 1; p < t.row_offset[i + 1]; ++p)
      f(t.column_index[p]);
  };
  // A column of U alone is read by nobody.
  const auto gathered = [&](uint32_t j, const auto& f) {
    above(j, [&](uint32_t k) {
      if (t.diagonal[k] + 1 < t.column_offset[k + 1])
        f(k);
    });
  };
  check_levels(check, t.factor_levels, t.size, "factor_levels", gathered);
  check_levels(check, t.forward_levels, t.size, "forward_levels", left);
  check_levels(check, t.backward_levels, t.size, "backward_levels", right);
  check_levels(check, t.transposed_forward_levels, t.size, "transposed_forward_levels", above);
  check_levels(check, t.transposed_backward_levels, t.size, "transposed_backward_levels", below);
}

void check_factor_flow(const LuDataflow& flow, const LuTables& t, uint32_t warps,
                       const std::string& name) {
  const Checker check(name);
  check.expect(t.nnz() < kMostOnGpu && t.input_nnz < kMostOnGpu, "row_index");
  check_packets(check, flow, 3, 4, warps);
  const uint64_t places = t.nnz() + flow.partial_sums;
  check.expect(flow.partial_sums <= t.nnz() && places < kMostOnGpu, "partial_sums");
  for (const uint32_t gate : flow.gate)
    check.expect(gate == kNoWord || gate < t.nnz(), "gate");
  const uint32_t in_packet = LuDataflow::kLanes * LuDataflow::kProducts;
  for (uint64_t packet = 0; packet < flow.packets(); ++packet) {
    const uint32_t* const operands = flow.operands.data() + packet * 3 * in_packet;
    for (uint32_t i = 0; i < in_packet; ++i)
      check.expect(operands[i] == kNoWord ||
                       (operands[i] < t.nnz() && operands[in_packet + i] < t.nnz() &&
                        operands[2 * in_packet + i] < t.nnz()),
                   "operands");
  }
  std::vector<uint32_t> column_of(t.nnz());
  for (uint32_t j = 0; j < t.size; ++j)
    for (uint64_t slot = t.column_offset[j]; slot < t.column_offset[j + 1]; ++slot)
      column_of[slot] = slot == t.diagonal[j] ? ~j : j;
  // Each entry starts from b(i,j), or from a partial sum that does.
  std::vector<uint32_t> slot_of_sum(flow.partial_sums, kNoWord);
  for (uint64_t at = 0; at < flow.task.size(); at += flow.task_words)
    if (const uint32_t* const task = &flow.task[at]; task[0] != kNoWord && task[3] != 0) {
      check.expect(task[3] == 1 && task[0] >= t.nnz() && task[0] < places && ~task[2] < t.nnz(),
                   "task");
      slot_of_sum[task[0] - t.nnz()] = ~task[2];
      check.expect(task[1] == column_of[~task[2]], "task");
    }
  for (uint64_t at = 0; at < flow.task.size(); at += flow.task_words)
    if (const uint32_t* const task = &flow.task[at]; task[0] != kNoWord && task[3] == 0) {
      check.expect(task[0] < t.nnz() && task[1] == column_of[task[0]], "task");
      check.expect(~task[2] == task[0] || (task[2] >= t.nnz() && task[2] < places &&
                                           slot_of_sum[task[2] - t.nnz()] == task[0]),
                   "task");
    }
  // What has no task is an entry of B, and no pivot.
  std::vector<bool> may_be_given(t.nnz(), false);
  for (const uint64_t slot : t.input_slot)
    may_be_given[slot] = true;
  for (const uint64_t slot : t.diagonal)
    may_be_given[slot] = false;
  FlowMeaning meaning;
  meaning.given = given_slots(flow, t.nnz());
  for (uint64_t slot = 0; slot < t.nnz(); ++slot)
    check.expect(!meaning.given[slot] || may_be_given[slot], "a task is missing");
  meaning.given.resize(places, false);
  meaning.base_word = 2;
  Player(check, flow, meaning).play();
}

void check_solve(const GpuFlows::Solve& solve, const LuTables& tables, bool transposed,
                 uint32_t warps, uint32_t block_warps, const std::string& name) {
  const Checker check(name);
  if (const auto* const flow = std::get_if<LuDataflow>(&solve))
    check_solve_flow(check, *flow, tables, transposed, warps);
  else
    check_block_solve(check, std::get<LuBlockSolve>(solve), tables, block_warps);
}

void check_batch_loop(const LuBatchLoop& loop, const LuTables& t, const std::string& name) {
  constexpr uint32_t kWords = LuBatchLoop::kWords, kOperands = 2 * LuBatchLoop::kProducts;
  const Checker check(name);
  // The last three numbers have no place in L'+U, nor among the unknowns and the multipliers of a
  // column, of which there are fewer than rows.
  const uint64_t least = t.nnz() + t.size + 3;
  check.expect(loop.numbers >= least && loop.numbers <= least + t.size && loop.numbers < kMostOnGpu,
               "numbers");
  const auto is_place = [&](uint32_t word) { return word < loop.numbers; };
  const auto is_place_or_none = [&](uint32_t word) { return word == kNoWord || is_place(word); };

  const uint64_t entries = loop.entry_source.size();
  check.expect(entries % LuBatchLoop::kGroup == 0 && entries < kMostOnGpu, "entry_source");
  check.expect(loop.entry_slot.size() == entries, "entry_slot");
  check.expect(loop.entry_end.size() == entries, "entry_end");
  check.expect(loop.entry_scale.size() == entries, "entry_scale");
  for (uint64_t e = 0; e < entries; ++e) {
    check.expect(loop.entry_source[e] < t.input_nnz, "entry_source");
    check.expect(is_place(loop.entry_slot[e]), "entry_slot");
    check.expect(is_place_or_none(loop.entry_end[e]), "entry_end");
    check.expect(std::isfinite(loop.entry_scale[e]), "entry_scale");
  }

  const auto check_packets = [&](const std::vector<uint32_t>& packets, bool factor,
                                 const char* what) {
    check.expect(packets.size() % kWords == 0 && packets.size() / kWords < kMostOnGpu, what);
    for (size_t at = 0; at < packets.size(); at += kWords) {
      for (uint32_t i = 0; i < kOperands; ++i)
        check.expect(is_place(packets[at + i]), what);
      for (const uint32_t word :
           {LuBatchLoop::start, LuBatchLoop::result, LuBatchLoop::pivot, LuBatchLoop::side})
        check.expect(is_place_or_none(packets[at + word]), what);
      if (packets[at + LuBatchLoop::result] == kNoWord)
        continue;
      // What is read and written where a sum ends.
      const bool has_pivot = packets[at + LuBatchLoop::pivot] != kNoWord;
      const bool has_side = packets[at + LuBatchLoop::side] != kNoWord;
      check.expect(factor ? !has_pivot || has_side : has_pivot, what);
    }
  };
  check_packets(loop.factor, true, "factor");
  check_packets(loop.forward, false, "forward");
  check_packets(loop.backward, false, "backward");

  const uint64_t n = t.size;
  check.expect((n == 0) == loop.forward.empty(), "forward");
  // Unknown i is i places behind the first one.
  check.expect(n == 0 || (loop.forward[LuBatchLoop::start] != kNoWord &&
                          loop.forward[LuBatchLoop::start] + n <= loop.numbers),
               "forward");
  check.expect(loop.row.size() == n, "row");
  check.expect(loop.column.size() == n, "column");
  check.expect(loop.row_scale.size() == n, "row_scale");
  check.expect(loop.column_scale.size() == n, "column_scale");
  check.expect_scale(loop.row_scale, n, "row_scale");
  check.expect_scale(loop.column_scale, n, "column_scale");
  for (uint64_t i = 0; i < n; ++i) {
    check.expect(loop.row[i] < n, "row");
    check.expect(loop.column[i] < n, "column");
  }
}

} // namespace sparsertc::lu
