// Sparse LU as dataflow: the kernels' PTX, interpreted, against the CPU's factorization, bit by bit
// against the same sums in the same order, and again and again with other values.
#include "compiler/emit/ptx.h"
#include "compiler/inspect/lu_dataflow.h"
#include "compiler/inspect/lu_schedule.h"
#include "compiler/lower/lu_dataflow.h"
#include "ir/error.h"
#include "runtime/lu/gpu_plan.h"
#include "runtime/lu/refine.h"
#include "tests/support/interpreting_driver.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace sparsertc {
namespace {

using test::Random;

/// A device on which kernels are interpreted.
struct Scene {
  cuda::FakeCudaDriver fake;
  std::unique_ptr<cuda::Context> context;

  Scene() {
    interpret_launches(fake);
    fake.kernels = {kLuInputKernel, kLuFactorKernel, kLuSolveInputKernel, kLuSolveKernel};
    fake.attributes[cuda::DeviceAttribute::multiprocessor_count] = 1;
    context = std::make_unique<cuda::Context>(std::make_shared<const cuda::Driver>(fake.table()));
  }
};

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::span<uint8_t> bytes_of(std::vector<T>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)};
}

/// The patterns' entries with random values and a diagonal that is heavier than its column.
std::vector<double> dominant_values(const Pattern& pattern, Random& random) {
  std::vector<double> values(pattern.nnz()), sum(pattern.rows, 1);
  std::vector<uint32_t> column(pattern.nnz());
  for (uint64_t p = 0; p < pattern.nnz(); ++p) {
    values[p] = random.symmetric();
    sum[pattern.column_index[p]] += std::abs(values[p]);
  }
  for (uint32_t i = 0; i < pattern.rows; ++i)
    for (uint64_t p = pattern.row_offset[i]; p < pattern.row_offset[i + 1]; ++p)
      if (pattern.column_index[p] == i)
        values[p] = std::copysign(sum[i], values[p]);
  return values;
}

/// The kernel's sums on the CPU: each lane adds every lanes-th product, then lanes are added in
/// pairs, the farthest first.
template <class T>
std::vector<T> factor_in_order(const LuTables& t, const LuGather& gather,
                               const std::vector<double>& values) {
  std::vector<T> v(t.nnz(), T(0));
  std::vector<bool> is_pivot(t.nnz(), false);
  for (uint32_t j = 0; j < t.size; ++j) {
    is_pivot[t.diagonal[j]] = true;
    for (uint64_t p = t.input_offset[j]; p < t.input_offset[j + 1]; ++p)
      v[t.input_slot[p]] = static_cast<T>(values[t.input_source[p]] *
                                          (t.input_scale.empty() ? 1.0 : t.input_scale[p]));
  }
  for (uint64_t task = 0; task < gather.tasks(); ++task) {
    const uint64_t first = gather.pair_offset[task], end = gather.pair_offset[task + 1];
    const uint64_t lanes =
        std::min<uint64_t>(32, std::bit_ceil(std::max<uint64_t>(1, (end - first + 3) / 4)));
    std::vector<T> sum(lanes, T(0));
    for (uint64_t pair = first; pair < end; ++pair)
      sum[(pair - first) % lanes] = std::fma(
          v[gather.pair_left[pair]], v[gather.pair_right[pair]] * v[gather.pair_pivot[pair]],
          sum[(pair - first) % lanes]);
    for (uint64_t distance = lanes / 2; distance > 0; distance /= 2)
      for (uint64_t lane = 0; lane < distance; ++lane)
        sum[lane] += sum[lane + distance];
    const uint64_t slot = gather.task_slot[task];
    v[slot] -= sum[0];
    if (is_pivot[slot])
      v[slot] = 1 / v[slot];
  }
  return v;
}

/// One pattern on the interpreted device.
template <class T>
class Device {
public:
  Device(const Scene& scene, const LuTables& tables, uint32_t threads, uint32_t right_sides = 3)
      : tables_(tables), gather(*make_lu_gather(tables, uint64_t{1} << 30)),
        stream_(*scene.context) {
    lu::GpuFlows flows;
    flows.factor = make_factor_dataflow(tables, gather, threads / 32);
    flows.solve = make_solve_dataflow(tables, threads / 32, false);
    flows.transposed = make_solve_dataflow(tables, threads / 32, true);
    LuKernelOptions options;
    options.type = std::is_same_v<T, float> ? ir::Scalar::f32 : ir::Scalar::f64;
    options.threads = threads;
    const std::string ptx = emit_ptx(make_lu_kernels(options), find_target("sm_90"));
    lu::GpuCode code;
    code.image = {reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()};
    code.input = kLuInputKernel;
    code.factor = kLuFactorKernel;
    code.solve_input = kLuSolveInputKernel;
    code.solve = kLuSolveKernel;
    code.input_threads = kLuInputThreads;
    code.dataflow_threads = threads;
    code.factor_bytes = sizeof(T);
    code.given_bytes = sizeof(double);
    plan = std::make_unique<lu::GpuPlan>(*scene.context, code, tables, flows);
    workspace = std::make_unique<lu::GpuWorkspace>(*scene.context, *plan, right_sides, stream_);
    a_ = std::make_unique<cuda::DeviceBuffer>(*scene.context, tables.input_nnz * sizeof(double));
    x_ = std::make_unique<cuda::DeviceBuffer>(*scene.context,
                                              tables.size * right_sides * sizeof(double));
  }

  lu::FactorStatus refactor(const std::vector<double>& values,
                            const lu::FactorOptions& options = {}) {
    a_->upload(bytes_of(values), stream_);
    plan->refactor(*workspace, a_->address(), stream_, options);
    return plan->status(*workspace, stream_);
  }
  std::vector<T> values() {
    std::vector<T> v(tables_.nnz());
    workspace->values().download(bytes_of(v), stream_);
    return v;
  }
  std::vector<double> solve(std::vector<double> b, uint32_t right_sides, bool transposed) {
    x_->upload(bytes_of(b), stream_);
    plan->solve(*workspace, x_->address(), x_->address(), right_sides, transposed, stream_);
    x_->download(bytes_of(b), stream_);
    return b;
  }

private:
  const LuTables& tables_;

public:
  const LuGather gather;
  std::unique_ptr<lu::GpuPlan> plan;
  std::unique_ptr<lu::GpuWorkspace> workspace;

private:
  cuda::Stream stream_;
  std::unique_ptr<cuda::DeviceBuffer> a_, x_;
};

Permutation identity(uint32_t n) {
  Permutation order(n);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Factorizes and solves twice with different values. A block of one warp does all tasks in order
/// and never waits; of several, those that wait make the interpreter slow.
template <class T>
void check_pattern(const Scene& scene, const Pattern& pattern, Random& random, bool scaled,
                   uint32_t threads = 32) {
  const uint32_t n = pattern.rows;
  std::vector<double> row_scale, column_scale;
  if (scaled)
    for (uint32_t i = 0; i < n; ++i) {
      row_scale.push_back(0.5 + random.unit());
      column_scale.push_back(0.5 + random.unit());
    }
  const LuTables tables =
      make_lu_tables(pattern, {identity(n), identity(n), row_scale, column_scale});
  Device<T> device(scene, tables, threads);
  lu::Factors<T> on_cpu(tables);
  for (int round = 0; round < 2; ++round) {
    const std::vector<double> a = dominant_values(pattern, random);
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
    CHECK(same_bits(device.values(), factor_in_order<T>(tables, device.gather, a)));
    const std::vector<T> once = device.values();
    device.refactor(a);
    CHECK(same_bits(device.values(), once));

    const lu::MatrixView<double> view{n, pattern.row_offset, pattern.column_index, a};
    for (const bool transposed : {false, true}) {
      std::vector<double> b(uint64_t{n} * 3);
      for (double& value : b)
        value = random.symmetric();
      const std::vector<double> x = device.solve(b, 3, transposed);
      CHECK(same_bits(device.solve(b, 3, transposed), x));
      for (uint64_t c = 0; c < 3; ++c) {
        const std::span<const double> right = std::span<const double>(b).subspan(c * n, n);
        const double residual = lu::relative_residual<double>(
            view, right, std::span<const double>(x).subspan(c * n, n), transposed);
        CHECK(residual <= 100 * std::numeric_limits<T>::epsilon());
      }
    }
  }
}

} // namespace

TEST_CASE("dataflow: hostile shapes", "[lu_gpu]") {
  Scene scene;
  Random random(5);
  for (const test::NamedPattern& named : test::hostile_squares(40)) {
    // Those without a diagonal have no pivots where they stand.
    INFO(named.name);
    check_pattern<double>(scene, named.pattern, random, false);
  }
}

TEST_CASE("dataflow: random patterns, both precisions, scaled", "[lu_gpu]") {
  Scene scene;
  const uint64_t seed = 20;
  INFO("seed " << seed);
  Random random(seed);
  for (int i = 0; i < 3; ++i) {
    const Pattern pattern = test::random_square(random, 60, 3);
    check_pattern<double>(scene, pattern, random, true);
    check_pattern<float>(scene, pattern, random, i == 0);
  }
  check_pattern<double>(scene, test::random_grid(random, 12, 10, 0.2), random, true);
  check_pattern<double>(scene, test::random_square(random, 12, 3), random, true, 64);
}

} // namespace sparsertc
