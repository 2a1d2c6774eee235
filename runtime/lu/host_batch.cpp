#include "runtime/lu/host_batch.h"

#include "ir/error.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace sparsertc::lu {
namespace {

// What host_batch_loops.cpp says again.
static_assert(LuBatchLoop::kProducts == 8 && LuBatchLoop::kWords == 20 &&
              LuBatchLoop::start == 16 && LuBatchLoop::result == 17 && LuBatchLoop::pivot == 18 &&
              LuBatchLoop::side == 19);

template <class T>
constexpr size_t type_number() {
  return (ScalarTraits<T>::kComplex ? 2 : 0) + (std::is_same_v<Real<T>, double> ? 1 : 0);
}

const BatchLoopSet& loops_for(const std::string& instructions) {
  if (instructions == "baseline")
    return kBatchLoopsBaseline;
#ifdef SPARSERTC_BATCH_X86
  if (instructions == "avx2")
    return kBatchLoopsAvx2;
  if (instructions == "avx512")
    return kBatchLoopsAvx512;
#endif
  throw InternalError("no loops for " + instructions);
}

BatchLoopArrays arrays_of(const LuBatchLoop& loop) {
  const auto packets = [](const std::vector<uint32_t>& words) {
    return words.size() / LuBatchLoop::kWords;
  };
  BatchLoopArrays a;
  a.entry_source = loop.entry_source.data();
  a.entry_slot = loop.entry_slot.data();
  a.entry_end = loop.entry_end.data();
  a.entry_scale = loop.entry_scale.data();
  a.entries = loop.entry_source.size();
  a.factor = loop.factor.data();
  a.forward = loop.forward.data();
  a.backward = loop.backward.data();
  a.factor_count = packets(loop.factor);
  a.forward_count = packets(loop.forward);
  a.backward_count = packets(loop.backward);
  a.row = loop.row.data();
  a.column = loop.column.data();
  a.row_scale = loop.row_scale.data();
  a.column_scale = loop.column_scale.data();
  a.size = loop.row.size();
  a.unknowns = loop.forward.empty() ? 0 : loop.forward[LuBatchLoop::start];
  a.plus_zero = loop.plus_zero();
  a.minus_zero = loop.minus_zero();
  return a;
}

} // namespace

std::vector<std::string> instruction_sets() {
  std::vector<std::string> sets = {"baseline"};
#ifdef SPARSERTC_BATCH_X86
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    sets.push_back("avx2");
    if (__builtin_cpu_supports("avx512f"))
      sets.push_back("avx512");
  }
#endif
  return sets;
}

template <class T>
HostBatch<T>::HostBatch(const LuBatchLoop& loop, const std::string& instructions)
    : arrays_(arrays_of(loop)), numbers_(loop.numbers),
      loops_(loops_for(instructions).of[type_number<T>()]) {}

template <class T>
HostBatch<T>::HostBatch(const LuBatchLoop& loop) : HostBatch(loop, instruction_sets().back()) {}

template <class T>
template <class Work>
void HostBatch<T>::for_each_group(uint64_t instances, void* memory, TaskPool* pool,
                                  const Work& work) const {
  const auto one = [&](uint64_t group) {
    const uint64_t first = group * kLanes;
    const auto used = static_cast<uint32_t>(std::min<uint64_t>(kLanes, instances - first));
    work(first, used, static_cast<char*>(memory) + group * bytes_of_group());
  };
  if (pool != nullptr)
    pool->run(groups(instances), one);
  else
    for (uint64_t group = 0; group < groups(instances); ++group)
      one(group);
}

template <class T>
void HostBatch<T>::factor(const T* values, uint64_t instances, double threshold, void* memory,
                          uint32_t* status, TaskPool* pool) const {
  if (threshold == 0)
    threshold = std::sqrt(unit_roundoff<T>());
  for_each_group(instances, memory, pool, [&](uint64_t first, uint32_t used, void* numbers) {
    loops_.factor(arrays_, values + first, instances, used, numbers, status + first, threshold);
  });
}

template <class T>
void HostBatch<T>::solve(const T* b, T* x, uint64_t instances, void* memory, TaskPool* pool) const {
  for_each_group(instances, memory, pool, [&](uint64_t first, uint32_t used, void* numbers) {
    loops_.solve(arrays_, b + first, x + first, instances, used, numbers);
  });
}

template class HostBatch<float>;
template class HostBatch<double>;
template class HostBatch<std::complex<float>>;
template class HostBatch<std::complex<double>>;

} // namespace sparsertc::lu
