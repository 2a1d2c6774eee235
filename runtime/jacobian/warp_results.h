// Which thread has which part of a task that lanes share, and who stores a warp's results.
#pragma once

#include "ir/jacobian_tables.h"

#include <cstdint>
#include <vector>

namespace sparsertc::jacobian {

/// Of blocks whose threads share tasks.
inline constexpr uint32_t kSharedBlockThreads = 128;
inline constexpr uint32_t kWarpThreads = 32;

/// The part of a task that a thread has.
struct TaskPart {
  uint32_t task = 0;
  uint32_t lane = 0;
  uint32_t lanes = 0; ///< 0: no task
};
/// By thread, of whole warps: tasks with as many lanes fill warps of their own.
std::vector<TaskPart> parts_of(const TaskLanes& lanes);

/// Where a result is stored (kNoTangent: nowhere), and which of its warp's it is: number k of lane
/// l is k kSharedBlockThreads + l.
struct ResultStore {
  uint32_t place = kNoTangent;
  uint32_t result = 0;
};

/// Deals the stores of each warp's results to its threads, in the order of their places.
class WarpStores {
public:
  explicit WarpStores(uint64_t threads) : threads_(threads) {}
  /// Result `number` of the warp's thread `lane`.
  void add(uint32_t place, uint32_t number, uint32_t lane) {
    own_.push_back({place, number * kSharedBlockThreads + lane});
  }
  /// Those added are of the warp with this first thread; returns its rounds.
  uint32_t finish_warp(uint64_t first_thread);
  /// [round][thread].
  std::vector<ResultStore> take() { return std::move(stores_); }

private:
  uint64_t threads_;
  std::vector<ResultStore> own_, stores_;
};

} // namespace sparsertc::jacobian
