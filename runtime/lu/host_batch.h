// Sparse LU of many matrices of one pattern on the CPU, by the tables of ir/lu_batch_loop.h:
// instances that fill a cache line are worked on together, one in each lane of the vector unit. The
// sums and their order are those of the GPU's kernels (compiler/lower/lu_batch.h), and so are the
// bits, whatever instructions this machine has.
#pragma once

#include "ir/lu_batch_loop.h"
#include "runtime/host/task_pool.h"
#include "runtime/lu/host_batch_loops.h"
#include "runtime/lu/scalar.h"

#include <complex>
#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc::lu {

/// T is float, double, std::complex<float> or std::complex<double>. Does not change while it
/// executes.
template <class T>
class HostBatch {
public:
  /// Instances of a group.
  static constexpr uint32_t kLanes = kBatchLineBytes / sizeof(Real<T>);
  static constexpr uint64_t kAlignment = kBatchLineBytes;

  /// `loop` must outlive it.
  explicit HostBatch(const LuBatchLoop& loop);
  /// The same with other instructions, for tests: "baseline", "avx2" or "avx512", which the machine
  /// must have (instruction_sets()).
  HostBatch(const LuBatchLoop& loop, const std::string& instructions);

  /// Of memory for the factors of so many instances.
  uint64_t bytes(uint64_t instances) const { return groups(instances) * bytes_of_group(); }

  /// Factorizes all instances: values[entry * instances + instance], entries in the caller's order.
  /// `memory` is aligned to kAlignment. A pivot below the threshold (0: the root of the unit
  /// roundoff) times the largest of its column is replaced. status[instance] is a word of
  /// host_batch_loops.h. What goes wrong in one instance reaches no other.
  void factor(const T* values, uint64_t instances, double threshold, void* memory, uint32_t* status,
              TaskPool* pool = nullptr) const;
  /// Solves with what was factorized in `memory`, whose unknowns it overwrites: b[row * instances +
  /// instance] and x likewise, which may be the same memory.
  void solve(const T* b, T* x, uint64_t instances, void* memory, TaskPool* pool = nullptr) const;

private:
  static uint64_t groups(uint64_t instances) { return (instances + kLanes - 1) / kLanes; }
  uint64_t bytes_of_group() const { return numbers_ * kLanes * sizeof(T); }
  template <class Work>
  void for_each_group(uint64_t instances, void* memory, TaskPool* pool, const Work& work) const;

  BatchLoopArrays arrays_;
  uint64_t numbers_;
  BatchLoops loops_;
};

/// What this machine has of "baseline", "avx2" and "avx512", the best one last.
std::vector<std::string> instruction_sets();

extern template class HostBatch<float>;
extern template class HostBatch<double>;
extern template class HostBatch<std::complex<float>>;
extern template class HostBatch<std::complex<double>>;

} // namespace sparsertc::lu
