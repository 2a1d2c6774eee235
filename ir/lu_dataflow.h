// A sparse LU factorization, or the substitutions of a solve, as tasks that start when their
// operands are there: plain arrays, filled by the compiler's inspector, read by the kernels of
// compiler/lower/lu_dataflow.h, which the runtime launches.
//
// A warp works through a *stream* of packets, one after the other. A packet gives each of its 32
// lanes up to four products to add up:
//
//          lane 0        lane 1        lane 2        lane 3
//   4 products    4 products    4 products    4 products     of task A   |  of task B, with
//   \_______________________ _________________________/                 |  `group` lanes, too
//                           V
//              sum over `group` lanes, in a fixed order, then the task's result is stored
//
// A task with more than 4 * group products goes on in the stream's next packets; the one that ends
// its tasks says so. No task of a packet waits for another of it. Over all streams the tasks stand
// in one order, in which each comes after those it waits for, so that the first unfinished one can
// always go on.
//
// Where most products of an entry of L'+U should be there long before the last ones, they are a
// task of their own, a *partial sum*: b(i,j) less these products, from which the entry's task
// starts. An entry of B off the diagonal from which no products are taken is *given*: it has no
// task.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsertc {

/// Where a word of a packet means nothing.
inline constexpr uint32_t kNoWord = UINT32_MAX;

struct LuDataflow {
  static constexpr uint32_t kLanes = 32;
  static constexpr uint32_t kProducts = 4; ///< of a lane and packet

  uint32_t operand_words = 0; ///< of a product: 3 of a factorization, 2 of a substitution
  uint32_t task_words = 0;    ///< of a lane: 4
  /// Of a factorization: their places follow the slots.
  uint32_t partial_sums = 0;

  /// streams + 1 places in the arrays of packets.
  std::vector<uint32_t> stream_offset = {0};
  /// By packet: the lanes of a task where its tasks end here, else 0. One more follows the last, so
  /// that it can be read ahead.
  std::vector<uint32_t> group;
  /// By packet, of a factorization: the slot of an entry that one of its operands waits for, the
  /// one that is there last. Whoever finds operands missing waits for this first, so that those
  /// that have long to wait do not ask for everything again and again. kNoWord for none. Of a
  /// substitution: kNoWord.
  std::vector<uint32_t> gate;
  /// By packet, lane: the task that ends here, or kNoWord. It is given to the first lane of its
  /// group. Of a factorization: the slot of v(i,j), or the place of a partial sum of it; j, or ~j
  /// for the pivot of column j; the place of the partial sum it starts from, or ~slot where it
  /// starts from b(i,j); 1 for a partial sum, else 0. Of a substitution: the place of the result
  /// (below), the caller's number of the unknown (kNoWord in the forward substitution), the slot of
  /// the pivot, 0.
  std::vector<uint32_t> task;
  /// By packet, operand word, lane, product. Of a factorization: the slots of v(i,k), v(k,j) and
  /// d(k). Of a substitution: the slot of the entry and the place of what it is multiplied with.
  std::vector<uint32_t> operands;

  uint32_t streams() const { return static_cast<uint32_t>(stream_offset.size() - 1); }
  uint32_t packets() const { return stream_offset.back(); }
};

/// By slot of a factorization, whether it is given: no task computes it.
inline std::vector<bool> given_slots(const LuDataflow& flow, uint64_t slots) {
  std::vector<bool> given(slots, true);
  for (uint64_t at = 0; at < flow.task.size(); at += flow.task_words)
    if (flow.task[at] < slots)
      given[flow.task[at]] = false;
  return given;
}

/// Places in the vector of a solve: the permuted and scaled right-hand side from 0, z from n, x
/// from 2n. The task whose result is at place p starts from the number at place p - n.
inline constexpr uint32_t kSolveVectors = 3;

/// What a factorization on the GPU has to say, in device memory; kernels write it. Columns are
/// those of B; INT64_MAX for none. `largest` are the bits of non-negative float64 numbers, which
/// compare like integers.
struct LuStatusRecord {
  int64_t largest = 0;       ///< of L'+U
  int64_t largest_input = 0; ///< of B
  int64_t perturbed = 0;     ///< pivots that were replaced
  int64_t perturbed_column = INT64_MAX;
  int64_t zero_column = INT64_MAX;
  int64_t nonfinite_column = INT64_MAX;
};
static_assert(sizeof(LuStatusRecord) == 48, "kernels and hosts agree on the layout");

} // namespace sparsertc
