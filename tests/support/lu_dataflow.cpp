#include "tests/support/lu_dataflow.h"

#include "compiler/emit/ptx.h"
#include "compiler/inspect/lu_block_solve.h"
#include "compiler/inspect/lu_dataflow.h"
#include "compiler/lower/lu_dataflow.h"
#include "runtime/lu/refine.h"
#include "tests/support/lu_rounding.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

namespace sparsertc::test {
namespace {

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::span<uint8_t> bytes_of(std::vector<T>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)};
}

/// A number of the caller's times a scale, rounded.
template <class T>
T scaled(lu::Wide<T> value, double scale) {
  return lu::to_scalar<T>(value * scale);
}

} // namespace

template <class V>
std::vector<V> dominant_values(const Pattern& pattern, Random& random) {
  std::vector<V> values(pattern.nnz());
  std::vector<double> sum(pattern.rows, 1);
  for (uint64_t p = 0; p < pattern.nnz(); ++p) {
    if constexpr (lu::ScalarTraits<V>::kComplex) {
      const double re = random.symmetric();
      values[p] = {re, random.symmetric()};
    } else {
      values[p] = random.symmetric();
    }
    sum[pattern.column_index[p]] += std::abs(values[p]);
  }
  for (uint32_t i = 0; i < pattern.rows; ++i)
    for (uint64_t p = pattern.row_offset[i]; p < pattern.row_offset[i + 1]; ++p)
      if (pattern.column_index[p] == i)
        values[p] = lu::phase(values[p]) * sum[i];
  return values;
}

LuTables tables_in_order(const Pattern& pattern, Random* scales) {
  Permutation order(pattern.rows);
  std::iota(order.begin(), order.end(), 0u);
  std::vector<double> row_scale, column_scale;
  if (scales != nullptr)
    for (uint32_t i = 0; i < pattern.rows; ++i) {
      row_scale.push_back(0.5 + scales->unit());
      column_scale.push_back(0.5 + scales->unit());
    }
  return make_lu_tables(pattern, {order, order, row_scale, column_scale});
}

template <class T>
std::vector<T> factor_in_order(const LuTables& t, const LuDataflow& flow,
                               const std::vector<lu::Wide<T>>& values) {
  constexpr uint32_t kLanes = LuDataflow::kLanes, kProducts = LuDataflow::kProducts;
  std::vector<T> initial(t.nnz(), T(0));
  for (uint32_t j = 0; j < t.size; ++j)
    for (uint64_t p = t.input_offset[j]; p < t.input_offset[j + 1]; ++p)
      initial[t.input_slot[p]] =
          scaled<T>(values[t.input_source[p]], t.input_scale.empty() ? 1.0 : t.input_scale[p]);
  std::vector<T> v(t.nnz() + flow.partial_sums, T(0));
  std::vector<bool> is_there = given_slots(flow, t.nnz());
  for (uint64_t slot = 0; slot < t.nnz(); ++slot)
    if (is_there[slot])
      v[slot] = initial[slot];
  is_there.resize(v.size(), false);
  std::vector<std::vector<T>> sums(flow.streams(), std::vector<T>(kLanes, T(0)));
  const auto operand = [&](uint64_t packet, uint32_t word, uint32_t lane, uint32_t product) {
    return flow.operands[((packet * 3 + word) * kLanes + lane) * kProducts + product];
  };
  // The packet, if all that it reads is there.
  const auto advance = [&](uint32_t stream, uint64_t packet) {
    const uint32_t* const tasks = flow.task.data() + packet * kLanes * flow.task_words;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      for (uint32_t p = 0; p < kProducts; ++p)
        for (uint32_t word = 0; word < 3; ++word)
          if (const uint32_t place = operand(packet, word, lane, p);
              place != kNoWord && !is_there[place])
            return false;
      const uint32_t* const task = tasks + uint64_t{lane} * flow.task_words;
      if (task[0] != kNoWord && task[2] < v.size() && !is_there[task[2]])
        return false;
    }
    std::vector<T>& sum = sums[stream];
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      for (uint32_t p = 0; p < kProducts; ++p)
        if (const uint32_t left = operand(packet, 0, lane, p); left != kNoWord)
          sum[lane] =
              fused(v[left],
                    rounded_product(v[operand(packet, 1, lane, p)], v[operand(packet, 2, lane, p)]),
                    sum[lane]);
    const uint32_t group = flow.group[packet];
    if (group == 0)
      return true;
    for (uint32_t first = 0; first < kLanes; first += group) {
      for (uint32_t distance = group / 2; distance > 0; distance /= 2)
        for (uint32_t lane = first; lane < first + distance; ++lane)
          sum[lane] += sum[lane + distance];
      const uint32_t* const task = tasks + uint64_t{first} * flow.task_words;
      if (task[0] == kNoWord)
        continue;
      T result = (task[2] < v.size() ? v[task[2]] : initial[~task[2]]) - sum[first];
      if (task[0] < t.nnz() && static_cast<int32_t>(task[1]) < 0)
        result = lu::reciprocal(result);
      v[task[0]] = result;
      is_there[task[0]] = true;
    }
    sum.assign(kLanes, T(0));
    return true;
  };
  std::vector<uint64_t> head(flow.stream_offset.begin(), flow.stream_offset.end() - 1);
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t s = 0; s < flow.streams(); ++s)
      for (; head[s] < flow.stream_offset[s + 1] && advance(s, head[s]); ++head[s])
        moved = true;
  }
  for (uint32_t s = 0; s < flow.streams(); ++s)
    REQUIRE(head[s] == flow.stream_offset[s + 1]);
  v.resize(t.nnz());
  return v;
}

template <class T>
std::vector<lu::Wide<T>> solve_in_steps(const LuTables& t, const LuBlockSolve& steps,
                                        const std::vector<T>& values,
                                        const std::vector<lu::Wide<T>>& b, bool transposed) {
  constexpr uint32_t kLanes = LuBlockSolve::kLanes;
  const std::vector<uint32_t>& from = transposed ? t.column_order : t.row_order;
  const std::vector<uint32_t>& to = transposed ? t.row_order : t.column_order;
  const std::vector<double>& from_scale = transposed ? t.column_scale : t.row_scale;
  const std::vector<double>& to_scale = transposed ? t.row_scale : t.column_scale;
  const uint32_t n = t.size;
  std::vector<T> x(n + 1, T(0));
  for (uint32_t i = 0; i < n; ++i)
    x[i] = rounded_product(scaled<T>(b[from[i]], from_scale.empty() ? 1.0 : from_scale[from[i]]),
                           values[t.diagonal[i]]);
  std::vector<std::vector<T>> sums(steps.warps, std::vector<T>(kLanes, T(0)));
  for (uint32_t step = 0; step < steps.steps; ++step)
    for (uint32_t warp = 0; warp < steps.warps; ++warp)
      for (uint32_t r = steps.end[step * steps.warps + warp];
           r < steps.end[(step + 1) * steps.warps + warp]; ++r) {
        const auto half = [&](uint32_t lane, uint32_t number) {
          const uint32_t word = steps.records[(r * kLanes + lane) * 4 + number / 2];
          return word >> number % 2 * 16 & 0xFFFF;
        };
        const auto number = [&](uint32_t lane, uint32_t i) {
          const uint64_t at =
              ((steps.shape[2 * r + 1] + i / 4) * uint64_t{kLanes} + lane) * 4 + i % 4;
          const uint32_t slot = steps.slot[at];
          return slot == kNoWord ? T(0) : -rounded_product(values[slot], values[steps.pivot[at]]);
        };
        std::vector<T>& sum = sums[warp];
        const uint32_t group = steps.shape[2 * r];
        if (group != LuBlockSolve::kTriangle) {
          for (uint32_t lane = 0; lane < kLanes; ++lane)
            for (uint32_t p = 0; p < LuBlockSolve::kProducts; ++p)
              sum[lane] = fused(number(lane, p), x[half(lane, 2 + p)], sum[lane]);
          if (group == 0)
            continue;
          for (uint32_t lane = 0; lane < kLanes; lane += group) {
            for (uint32_t distance = group / 2; distance > 0; distance /= 2)
              for (uint32_t i = lane; i < lane + distance; ++i)
                sum[i] += sum[i + distance];
            if (const uint32_t row = half(lane, 0); row < n)
              x[row] += sum[lane];
          }
          sum.assign(kLanes, T(0));
          continue;
        }
        std::vector<T> row(kLanes);
        for (uint32_t lane = 0; lane < kLanes; ++lane)
          row[lane] = x[half(lane, 0)];
        for (uint32_t column = 0; column < LuBlockSolve::kColumns; ++column) {
          const std::vector<T> before = row;
          for (uint32_t lane = 0; lane < kLanes; ++lane)
            row[lane] =
                fused(number(lane, column), before[(half(lane, 1) + column) % kLanes], row[lane]);
        }
        for (uint32_t lane = 0; lane < kLanes; ++lane)
          if (half(lane, 0) < n)
            x[half(lane, 0)] = row[lane];
      }
  std::vector<lu::Wide<T>> solution(n);
  for (uint32_t i = 0; i < n; ++i)
    solution[to[i]] = lu::to_scalar<lu::Wide<T>>(x[i]) * (to_scale.empty() ? 1.0 : to_scale[to[i]]);
  return solution;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
LuOnDevice<T>::LuOnDevice(const cuda::Context& context, const LuTables& tables, uint32_t threads,
                          uint32_t right_sides, uint32_t block_threads)
    : tables_(tables), stream_(context) {
  LuDataflowOptions deal;
  deal.warps = lu::gpu_streams(context.properties().multiprocessors, threads);
  lu::GpuFlows flows;
  const LuGather gather = *make_lu_gather(tables, uint64_t{1} << 30);
  flow_ = flows.factor = make_factor_dataflow(tables, gather, deal);
  const bool one_block = block_threads > 0 && tables.size > 0;
  const auto make_solve = [&](bool transposed) -> lu::GpuFlows::Solve {
    if (one_block)
      return make_block_solve(tables, {block_threads / 32}, transposed);
    return make_solve_dataflow(tables, deal, transposed);
  };
  flows.solve = make_solve(false);
  flows.transposed = make_solve(true);
  LuKernelOptions options;
  options.type = std::is_same_v<lu::Real<T>, float> ? ir::Scalar::f32 : ir::Scalar::f64;
  options.complex = lu::ScalarTraits<T>::kComplex;
  options.threads = threads;
  if (one_block) {
    options.block_rows = tables.size;
    options.block_threads = block_threads;
  }
  const ir::Module module = make_lu_kernels(options);
  const std::string ptx = emit_ptx(module, find_target("sm_80"));
  lu::GpuCode code;
  if (one_block) {
    code.block_input = kLuBlockInputKernel;
    code.block_solve = kLuBlockSolveKernel;
    code.block_threads = block_threads;
    code.block_shared_bytes = ptx_dynamic_shared_bytes(module);
  }
  code.image = {reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()};
  code.input = kLuInputKernel;
  code.factor = kLuFactorKernel;
  code.solve_input = kLuSolveInputKernel;
  code.solve = kLuSolveKernel;
  code.input_threads = kLuInputThreads;
  code.dataflow_threads = threads;
  code.complex = options.complex;
  code.factor_bytes = sizeof(T);
  code.given_bytes = sizeof(V);
  plan_ = std::make_unique<lu::GpuPlan>(context, code, tables, flows);
  workspace_ = std::make_unique<lu::GpuWorkspace>(context, *plan_, right_sides, stream_);
  matrix_ = std::make_unique<cuda::DeviceBuffer>(context, tables.input_nnz * sizeof(V));
  vectors_ = std::make_unique<cuda::DeviceBuffer>(context,
                                                  uint64_t{tables.size} * right_sides * sizeof(V));
}

template <class T>
lu::FactorStatus LuOnDevice<T>::refactor(const std::vector<V>& values,
                                         const lu::FactorOptions& options) {
  matrix_->upload(bytes_of(values), stream_);
  plan_->refactor(*workspace_, matrix_->address(), stream_, options);
  return plan_->status(*workspace_, stream_);
}

template <class T>
std::vector<T> LuOnDevice<T>::values() const {
  std::vector<T> v(tables_.nnz());
  plan_->download_values(*workspace_, bytes_of(v), stream_);
  return v;
}

template <class T>
std::vector<lu::Wide<T>> LuOnDevice<T>::solve(std::vector<V> b, uint32_t right_sides,
                                              bool transposed) {
  vectors_->upload(bytes_of(b), stream_);
  plan_->solve(*workspace_, vectors_->address(), vectors_->address(), right_sides, transposed,
               stream_);
  vectors_->download(bytes_of(b), stream_);
  return b;
}

template <class T>
void check_dataflow(const cuda::Context& context, const Pattern& pattern, Random& random,
                    bool scaled, uint32_t threads, uint32_t block_threads) {
  using V = lu::Wide<T>;
  const uint32_t n = pattern.rows;
  const LuTables tables = tables_in_order(pattern, scaled ? &random : nullptr);
  LuOnDevice<T> device(context, tables, threads, 3, block_threads);
  lu::Factors<T> on_cpu(tables);
  for (int round = 0; round < 2; ++round) {
    const std::vector<V> a = dominant_values<V>(pattern, random);
    const lu::FactorStatus status = device.refactor(a);
    const lu::FactorStatus expected = on_cpu.refactor_rounded(a);
    CHECK(status.outcome == expected.outcome);
    CHECK((status.perturbed > 0) == (expected.perturbed > 0));
    if (expected.outcome != lu::FactorOutcome::ok) {
      CHECK(status.column == expected.column);
      continue;
    }
    if (expected.perturbed > 0)
      continue; // factors of a matrix nearby
    CHECK(status.weakest_pivot == Approx(expected.weakest_pivot).epsilon(1e-4));
    CHECK(status.growth == Approx(expected.growth).epsilon(1e-4));
    CHECK(same_bits(device.values(), factor_in_order<T>(tables, device.flow(), a)));
    const std::vector<T> once = device.values();
    device.refactor(a);
    CHECK(same_bits(device.values(), once));

    const lu::MatrixView<V> view{n, pattern.row_offset, pattern.column_index, a};
    for (const bool transposed : {false, true}) {
      std::vector<V> b(uint64_t{n} * 3);
      for (V& value : b)
        if constexpr (lu::ScalarTraits<V>::kComplex) {
          const double re = random.symmetric();
          value = {re, random.symmetric()};
        } else {
          value = random.symmetric();
        }
      const std::vector<V> x = device.solve(b, 3, transposed);
      CHECK(same_bits(device.solve(b, 3, transposed), x));
      if (block_threads > 0 && n > 0) {
        const LuBlockSolve steps = make_block_solve(tables, {block_threads / 32}, transposed);
        const std::vector<V> first(b.begin(), b.begin() + n);
        CHECK(same_bits(solve_in_steps(tables, steps, once, first, transposed),
                        {x.begin(), x.begin() + n}));
      }
      for (uint64_t c = 0; c < 3; ++c) {
        const std::span<const V> right = std::span<const V>(b).subspan(c * n, n);
        const double residual = lu::relative_residual<V>(
            view, right, std::span<const V>(x).subspan(c * n, n), transposed);
        CHECK(residual <= 100 * std::numeric_limits<lu::Real<T>>::epsilon());
      }
    }
  }
}

#define SPARSERTC_INSTANTIATE(T)                                                                   \
  template std::vector<T> factor_in_order(const LuTables&, const LuDataflow&,                      \
                                          const std::vector<lu::Wide<T>>&);                        \
  template bool same_bits(const std::vector<T>&, const std::vector<T>&);                           \
  template std::vector<lu::Wide<T>> solve_in_steps(const LuTables&, const LuBlockSolve&,           \
                                                   const std::vector<T>&,                          \
                                                   const std::vector<lu::Wide<T>>&, bool);         \
  template class LuOnDevice<T>;                                                                    \
  template void check_dataflow<T>(const cuda::Context&, const Pattern&, Random&, bool, uint32_t,   \
                                  uint32_t);
SPARSERTC_INSTANTIATE(float)
SPARSERTC_INSTANTIATE(double)
SPARSERTC_INSTANTIATE(std::complex<float>)
SPARSERTC_INSTANTIATE(std::complex<double>)
#undef SPARSERTC_INSTANTIATE

template std::vector<double> dominant_values(const Pattern&, Random&);
template std::vector<std::complex<double>> dominant_values(const Pattern&, Random&);

} // namespace sparsertc::test
