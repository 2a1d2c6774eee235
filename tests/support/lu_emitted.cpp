#include "tests/support/lu_emitted.h"

#include "compiler/emit/ptx.h"
#include "compiler/lower/lu_emitted.h"

#include <algorithm>
#include <type_traits>

namespace sparsertc::test {
namespace {

constexpr uint32_t kLanes = 32;

template <class T>
void factor_column(const LuTables& t, uint32_t j, std::vector<T>& v) {
  for (uint64_t right = t.column_offset[j]; right < t.diagonal[j]; ++right) {
    const uint32_t k = t.row_index[right];
    const T minus = -rounded_product(v[right], v[t.diagonal[k]]);
    uint64_t slot = right;
    for (uint64_t left = t.diagonal[k] + 1; left < t.column_offset[k + 1]; ++left) {
      while (t.row_index[slot] != t.row_index[left])
        ++slot;
      v[slot] = fused(v[left], minus, v[slot]);
    }
  }
  v[t.diagonal[j]] = lu::reciprocal(v[t.diagonal[j]]);
}

template <class T>
T gathered(const LuEmitted& plan, const LuEmittedTask& task, bool is_long,
           const std::vector<T>& v) {
  std::vector<T> lane(kLanes, T(0));
  for (uint32_t p = 0; p < task.count; ++p) {
    const uint32_t place = task.first + p;
    T& sum = lane[is_long ? p % kLanes : 0];
    sum = fused(v[plan.left[place]], rounded_product(v[plan.right[place]], v[plan.pivot[place]]),
                sum);
  }
  if (!is_long)
    return lane[0];
  for (uint32_t distance = kLanes / 2; distance > 0; distance /= 2)
    for (uint32_t l = 0; l < distance; ++l)
      lane[l] += lane[l + distance];
  return lane[0];
}

} // namespace

template <class T>
std::vector<T> factor_by_plan(const LuTables& t, const LuEmitted& plan,
                              const std::vector<lu::Wide<T>>& values) {
  std::vector<T> v = placed<T>(t, values);
  for (const LuEmittedLevel& level : plan.levels) {
    for (uint32_t c = plan.strip_offset[level.first_strip]; c < plan.strip_offset[level.end_strip];
         ++c)
      factor_column(t, plan.strip_column[c], v);
    for (uint32_t number = level.first_task; number < level.end_task; ++number) {
      const LuEmittedTask& task = plan.task[number];
      const T value = v[task.slot] - gathered(plan, task, number < level.end_long, v);
      v[task.slot] = task.column < 0 ? lu::reciprocal(value) : value;
    }
  }
  return v;
}

std::vector<std::string> kernel_names(const LuEmitted& plan) {
  std::vector<std::string> names;
  for (uint32_t number = 0; number < plan.launches.size(); ++number)
    names.push_back(lu_emitted_kernel(number));
  return names;
}

template <class T>
std::unique_ptr<lu::GpuEmitted> make_emitted(const cuda::Context& context, const LuTables& tables,
                                             const LuEmitted& plan, const std::string& target) {
  LuKernelOptions options;
  options.type = std::is_same_v<lu::Real<T>, float> ? ir::Scalar::f32 : ir::Scalar::f64;
  options.complex = lu::ScalarTraits<T>::kComplex;
  const std::string ptx =
      emit_ptx(make_lu_emitted_kernels(tables, plan, options), find_target(target));
  lu::GpuEmittedCode code;
  code.image = {reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()};
  code.kernels = kernel_names(plan);
  code.notes = kLuEmittedNotes;
  code.notes_threads = kLuNotesThreads;
  code.notes_slots = kLuNotesSlots;
  code.factor_bytes = sizeof(T);
  code.wide = options.type == ir::Scalar::f64;
  return std::make_unique<lu::GpuEmitted>(context, code, tables, plan);
}

#define SPARSERTC_INSTANTIATE(T)                                                                   \
  template std::vector<T> factor_by_plan(const LuTables&, const LuEmitted&,                        \
                                         const std::vector<lu::Wide<T>>&);                         \
  template std::unique_ptr<lu::GpuEmitted> make_emitted<T>(const cuda::Context&, const LuTables&,  \
                                                           const LuEmitted&, const std::string&);
SPARSERTC_INSTANTIATE(float)
SPARSERTC_INSTANTIATE(double)
SPARSERTC_INSTANTIATE(std::complex<float>)
SPARSERTC_INSTANTIATE(std::complex<double>)
#undef SPARSERTC_INSTANTIATE

} // namespace sparsertc::test
