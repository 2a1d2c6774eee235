// The other strategies of sparse LU on the GPU than dataflow: the shapes that break solvers, bit by
// bit what the same sums give on the CPU, captured and replayed, real matrices.
#include "compiler/input/read.h"
#include "ir/error.h"
#include "runtime/driver/graph.h"
#include "runtime/driver/nvrtc.h"
#include "runtime/kernels/compile.h"
#include "tests/gpu/gpu_spmm.h"
#include "tests/support/lu_dataflow.h"
#include "tests/support/lu_emitted.h"
#include "tests/support/lu_patterns.h"
#include "tests/support/lu_right_looking.h"
#include "tools/assemblers.h"
#include "tools/gpu_device.h"
#include "tools/lu_gpu.h"
#include "tools/lu_solver.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <optional>
#include <string>
#include <type_traits>

using namespace sparsertc;
using test::Random;
using test::RightLookingOnDevice;

namespace {

const cuda::Context* gpu() {
  return Machine::get().gpu_or_skip();
}

using C64 = std::complex<float>;
using C128 = std::complex<double>;

/// For factors of type T. Null, said aloud, where there is no NVRTC.
template <class T>
const std::vector<uint8_t>* image(const cuda::Context& context) {
  static std::optional<std::vector<uint8_t>> compiled;
  try {
    if (!compiled)
      compiled = kernels::compile_lu_right_looking(
          *cuda::Nvrtc::open(), context.properties().compute_capability,
          lu::GpuRightLooking::number(std::is_same_v<lu::Real<T>, float>,
                                      lu::ScalarTraits<T>::kComplex));
    return &*compiled;
  } catch (const RuntimeError& error) {
    WARN("SKIPPED: " << error.what());
    return nullptr;
  }
}

LuRightLookingOptions options_for(const cuda::Context& context, LuWorkColumns columns,
                                  LuStageFusion fusion) {
  LuRightLookingOptions options;
  options.multiprocessors = context.properties().multiprocessors;
  options.free_bytes = context.free_memory() / 2;
  options.columns = columns;
  options.fusion = fusion;
  options.tail_columns = 0;
  return options;
}

constexpr LuWorkColumns kColumns[] = {LuWorkColumns::automatic, LuWorkColumns::dense,
                                      LuWorkColumns::compressed};
constexpr LuStageFusion kFusions[] = {LuStageFusion::automatic, LuStageFusion::none,
                                      LuStageFusion::all};

template <class T>
void check(const cuda::Context& context, const Pattern& pattern, Random& random, bool scaled,
           LuRightLookingOptions options) {
  const std::vector<uint8_t>* const code = image<T>(context);
  if (code == nullptr)
    return;
  options.number_bytes = sizeof(T);
  const LuTables tables = test::tables_in_order(pattern, scaled ? &random : nullptr);
  RightLookingOnDevice<T> factors(context, *code, tables, options);
  lu::Factors<T> on_cpu(tables);
  for (int round = 0; round < 2; ++round) {
    const std::vector<lu::Wide<T>> a = test::dominant_values<lu::Wide<T>>(pattern, random);
    factors.refactor(a, std::sqrt(double{lu::unit_roundoff<T>()}));
    const lu::FactorStatus expected = on_cpu.refactor_rounded(a);
    const LuStatusRecord status = factors.status();
    CHECK(factors.is_ready_again());
    CHECK((status.zero_column != INT64_MAX) == (expected.outcome == lu::FactorOutcome::singular));
    // In a dense tail a column of zeros makes NaN of all that come after it.
    if (expected.outcome == lu::FactorOutcome::ok || factors.plan().tail_columns == 0)
      CHECK((status.perturbed > 0) == (expected.perturbed > 0));
    if (expected.outcome != lu::FactorOutcome::ok || expected.perturbed > 0)
      continue;
    CHECK(status.nonfinite_column == INT64_MAX);
    const std::vector<T> v = factors.values();
    CHECK(test::product_error(tables, v, a) <= 1);
    const std::vector<T> reference =
        test::factor_by_levels<T>(tables, a, factors.plan().tail_columns);
    if (!options.atomics) {
      CHECK(test::same_bits(v, reference));
      continue;
    }
    double worst = 0;
    for (size_t slot = 0; slot < v.size(); ++slot)
      worst = std::max(worst, double{std::abs(v[slot] - reference[slot])} /
                                  (1 + double{std::abs(reference[slot])}));
    CHECK(worst <= tables.size * double{lu::unit_roundoff<T>()});
  }
}

LuEmittedOptions emitted_with(uint32_t least_lanes, uint64_t budget) {
  LuEmittedOptions options;
  options.least_lanes = least_lanes;
  options.most_multiply_adds = budget;
  return options;
}

/// Much straight-line code, as the rules choose, loops alone. The driver is slow to compile it.
const LuEmittedOptions kEmitted[] = {emitted_with(0, 2000), emitted_with(4, 2000),
                                     emitted_with(0, 0)};

/// By kernels that are made for the pattern.
template <class T>
void check_emitted(const cuda::Context& context, const Pattern& pattern, Random& random,
                   bool scaled, LuEmittedOptions options) {
  using V = lu::Wide<T>;
  options.number_bytes = sizeof(T);
  const LuTables tables = test::tables_in_order(pattern, scaled ? &random : nullptr);
  const LuEmitted plan = make_lu_emitted(tables, options);
  test::StrategyOnDevice<T> factors(
      context, tables, test::make_emitted<T>(context, tables, plan, target_of(context)));
  lu::Factors<T> on_cpu(tables);
  for (int round = 0; round < 2; ++round) {
    const std::vector<V> a = test::dominant_values<V>(pattern, random);
    const double threshold = std::sqrt(double{lu::unit_roundoff<T>()});
    factors.refactor(a, threshold);
    const lu::FactorStatus expected = on_cpu.refactor_rounded(a);
    const LuStatusRecord status = factors.status();
    CHECK(factors.is_ready_again());
    CHECK((status.zero_column != INT64_MAX) == (expected.outcome == lu::FactorOutcome::singular));
    CHECK((status.perturbed > 0) == (expected.perturbed > 0));
    if (expected.outcome != lu::FactorOutcome::ok || expected.perturbed > 0)
      continue;
    CHECK(status.nonfinite_column == INT64_MAX);
    const std::vector<T> v = factors.values();
    CHECK(test::product_error(tables, v, a) <= 1);
    CHECK(test::same_bits(v, test::factor_by_plan<T>(tables, plan, a)));
    factors.refactor(a, threshold);
    CHECK(test::same_bits(factors.values(), v));
  }
}

} // namespace

TEST_CASE("lu strategies: kernels for a small pattern", "[sanitize]") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  Random random(8);
  const Pattern pattern = test::random_square(random, 60, 4);
  for (const LuEmittedOptions& options : kEmitted)
    check_emitted<double>(*context, pattern, random, true, options);
}

TEST_CASE("lu strategies: kernels for the pattern, hostile shapes") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  Random random(9);
  for (const test::NamedPattern& named : test::hostile_squares(60))
    for (const LuEmittedOptions& options : kEmitted) {
      INFO(named.name << ", budget " << options.most_multiply_adds << ", lanes "
                      << options.least_lanes);
      check_emitted<double>(*context, named.pattern, random, false, options);
      check_emitted<std::complex<float>>(*context, named.pattern, random, true, options);
    }
}

TEST_CASE("lu strategies: kernels for grids and random patterns") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  const uint64_t seed = 12;
  INFO("seed " << seed);
  Random random(seed);
  check_emitted<double>(*context, test::random_square(random, 150, 4), random, true, kEmitted[0]);
  check_emitted<float>(*context, test::random_grid(random, 12, 12, 0.2), random, true, kEmitted[1]);
  check_emitted<std::complex<double>>(*context, test::random_square(random, 100, 3), random, false,
                                      kEmitted[1]);
  // A level for each column: more would be more kernels than the driver compiles in a few seconds.
  check_emitted<double>(*context, test::random_grid(random, 18, 15, 0.2), random, true,
                        kEmitted[2]);
}

TEST_CASE("lu strategies: small patterns", "[sanitize]") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  Random random(6);
  const Pattern pattern = test::random_square(random, 40, 3);
  for (const LuWorkColumns columns : kColumns)
    for (const LuStageFusion fusion : kFusions)
      check<double>(*context, pattern, random, true, options_for(*context, columns, fusion));
  for (const LuWorkColumns columns : kColumns)
    check<C128>(*context, pattern, random, false,
                options_for(*context, columns, LuStageFusion::automatic));
  check<C64>(*context, pattern, random, true,
             options_for(*context, LuWorkColumns::automatic, LuStageFusion::none));
}

TEST_CASE("lu strategies: hostile shapes") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  Random random(5);
  for (const test::NamedPattern& named : test::hostile_squares(2000))
    for (const LuWorkColumns columns : kColumns)
      for (const LuStageFusion fusion : kFusions) {
        INFO(named.name << ", columns " << static_cast<int>(columns) << ", fusion "
                        << static_cast<int>(fusion));
        check<double>(*context, named.pattern, random, false,
                      options_for(*context, columns, fusion));
        check<float>(*context, named.pattern, random, true, options_for(*context, columns, fusion));
      }
  for (const test::NamedPattern& named : test::hostile_squares(500))
    for (const LuWorkColumns columns : kColumns) {
      INFO(named.name << ", complex, columns " << static_cast<int>(columns));
      const LuRightLookingOptions options =
          options_for(*context, columns, LuStageFusion::automatic);
      check<C128>(*context, named.pattern, random, true, options);
      check<C64>(*context, named.pattern, random, false, options);
    }
}

TEST_CASE("lu strategies: a small dense tail", "[sanitize]") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  Random random(10);
  LuRightLookingOptions options =
      options_for(*context, LuWorkColumns::automatic, LuStageFusion::automatic);
  for (const uint32_t columns : {70u, 200u}) {
    options.tail_columns = columns;
    check<double>(*context, test::random_square(random, 200, 4), random, true, options);
    check<C128>(*context, test::random_square(random, 200, 4), random, true, options);
    check<C64>(*context, test::random_square(random, 200, 4), random, false, options);
  }
}

TEST_CASE("lu strategies: dense tails") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  Random random(14);
  LuRightLookingOptions options =
      options_for(*context, LuWorkColumns::automatic, LuStageFusion::automatic);
  const Pattern pattern = test::random_square(random, 1500, 4);
  const Pattern smaller = test::random_square(random, 500, 4); // the host's complex is slow
  for (const std::optional<uint32_t>& columns :
       {std::optional<uint32_t>(), std::optional<uint32_t>(1000), std::optional<uint32_t>(1500),
        std::optional<uint32_t>(64), std::optional<uint32_t>(1)}) {
    INFO("tail of " << (columns ? static_cast<int>(*columns) : -1));
    options.tail_columns = columns;
    check<double>(*context, pattern, random, true, options);
    check<float>(*context, pattern, random, false, options);
    if (columns)
      options.tail_columns = std::min(*columns, smaller.rows);
    check<C128>(*context, smaller, random, false, options);
    check<C64>(*context, smaller, random, true, options);
  }
  options.tail_columns = 50;
  for (const test::NamedPattern& named : test::hostile_squares(300)) {
    INFO(named.name);
    check<double>(*context, named.pattern, random, false, options);
    check<C128>(*context, named.pattern, random, true, options);
  }
}

TEST_CASE("lu strategies: grids and random patterns, with and without atomics") {
  const cuda::Context* context = gpu();
  if (context == nullptr)
    return;
  const uint64_t seed = 11;
  INFO("seed " << seed);
  Random random(seed);
  for (const LuWorkColumns columns : kColumns)
    for (const bool atomics : {false, true}) {
      LuRightLookingOptions options = options_for(*context, columns, LuStageFusion::automatic);
      options.atomics = atomics;
      check<double>(*context, test::random_grid(random, 60, 50, 0.2), random, true, options);
      check<double>(*context, test::random_square(random, 1500, 3), random, false, options);
      check<float>(*context, test::random_square(random, 400, 3), random, true, options);
      check<C128>(*context, test::random_grid(random, 40, 30, 0.2), random, false, options);
      check<C64>(*context, test::random_square(random, 600, 3), random, true, options);
    }
}

TEST_CASE("lu strategies: captured, replayed with new values") {
  const cuda::Context* context = gpu();
  if (context == nullptr || image<double>(*context) == nullptr)
    return;
  Random random(3);
  const Pattern pattern = test::random_grid(random, 20, 20, 0.2);
  const LuTables tables = test::tables_in_order(pattern);
  LuGpuOptions options;
  options.strategy = LuStrategy::right_looking;
  options.tail_columns = 100;
  const auto plan = make_gpu_plan(*context, tables, options, nullptr);
  const cuda::Stream stream(*context);
  const lu::GpuWorkspace workspace(*context, *plan, 1, stream);
  const cuda::DeviceBuffer matrix(*context, tables.input_nnz * sizeof(double));
  const auto bytes = [](auto& values) {
    return std::span(reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(double));
  };
  plan->refactor(workspace, matrix.address(), stream); // loads the code
  const cuda::Graph graph(*context, stream,
                          [&] { plan->refactor(workspace, matrix.address(), stream); });
  for (int round = 0; round < 3; ++round) {
    std::vector<double> a = test::dominant_values(pattern, random);
    std::vector<double> values(tables.nnz());
    matrix.upload(bytes(a), stream);
    graph.launch();
    CHECK(plan->status(workspace, stream).outcome == lu::FactorOutcome::ok);
    workspace.values().download(bytes(values), stream);
    CHECK(test::same_bits(values, test::factor_by_levels<double>(tables, a, 100)));
  }
}

TEST_CASE("lu strategies: real matrices") {
  const char* const folder = std::getenv("SPARSERTC_DATA");
  if (folder == nullptr) {
    WARN("SKIPPED: SPARSERTC_DATA is not set");
    return;
  }
  const cuda::Context* context = gpu();
  if (context == nullptr || image<double>(*context) == nullptr)
    return;
  TaskPool pool;
  std::vector<std::string> refused;
  const std::unique_ptr<Assembler> assembler = find_assembler({}, refused);
  for (const char* const name :
       {"add32", "memplus", "west0479", "pf_ACTIVSg2000_it0", "orsreg_1", "young1c"})
    for (const LuStrategy strategy :
         {LuStrategy::right_looking, LuStrategy::compressed_columns, LuStrategy::emitted}) {
      INFO(name << ", " << name_of(strategy));
      const Matrix a = read_matrix(std::string(folder) + "/lu/" + name + ".mtx.gz", {});
      LuSolverOptions options;
      options.pool = options.analysis.pool = &pool;
      options.make_gpu_backend = [&](const LuTables& tables, const Pattern& pattern,
                                     LuPrecision precision, bool complex, TaskPool* with) {
        LuGpuOptions gpu_options;
        gpu_options.strategy = strategy;
        gpu_options.budget = 30000; // assembled in a few seconds
        gpu_options.assembler = assembler.get();
        return make_gpu_backend(tables, pattern, precision, complex, with, gpu_options);
      };
      LuVectors ones;
      ones.real.assign(a.pattern.rows, 1);
      if (!a.imaginary.empty())
        ones.imaginary.assign(a.pattern.rows, 0);
      LuSolver solver(a, options);
      LuSystemReport report;
      solver.solve(a, multiply(a, ones, false), report);
      CHECK(report.residual <= 1e-12);
      CHECK(solver.strategy() ==
            name_of(strategy == LuStrategy::right_looking ? LuStrategy::dense_columns : strategy));
    }
}
