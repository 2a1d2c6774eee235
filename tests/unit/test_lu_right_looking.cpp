// Right-looking factorization by levels: the kernels as host code behind a driver without a GPU,
// against the CPU's factorization, and bit by bit against the same sums in the same order.
#include "compiler/inspect/lu_levels.h"
#include "compiler/inspect/lu_schedule.h"
#include "compiler/inspect/lu_strategy.h"
#include "ir/error.h"
#include "runtime/driver/nvrtc.h"
#include "runtime/kernels/compile.h"
#include "tests/support/lu_dataflow.h"
#include "tests/support/lu_patterns.h"
#include "tests/support/lu_right_looking.h"
#include "tests/support/lu_right_looking_on_host.h"
#include "tests/support/nvrtc.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <optional>
#include <set>

namespace sparsertc {
namespace {

using Catch::Contains;
using test::Random;
using test::RightLookingOnDevice;

using C64 = std::complex<float>;
using C128 = std::complex<double>;

struct Device {
  Device() {
    test::run_lu_right_looking_on_host(fake);
    context.emplace(std::make_shared<const cuda::Driver>(fake.table()));
  }
  cuda::FakeCudaDriver fake;
  std::optional<cuda::Context> context;
};

LuRightLookingOptions options_with(LuWorkColumns columns, LuStageFusion fusion) {
  LuRightLookingOptions options;
  options.multiprocessors = 2;
  options.warps_of_multiprocessor = 4;
  options.free_bytes = uint64_t{1} << 30;
  options.columns = columns;
  options.fusion = fusion;
  options.tail_columns = 0;
  return options;
}

/// Each U entry with something below it is a source once, in the level of its row; what a stage
/// writes no other update of the stage writes or multiplies with.
void check_plan(const LuTables& t, const LuRightLooking& plan) {
  const LuLevels levels = factor_levels(t, LevelRule::right_looking);
  std::vector<uint32_t> level_of(t.size);
  for (uint32_t level = 0; level < levels.count(); ++level)
    for (uint64_t m = levels.offset[level]; m < levels.offset[level + 1]; ++m)
      level_of[levels.member[m]] = level;
  std::vector<uint32_t> finished(t.size, 0);
  std::vector<uint64_t> slots_finished(t.size, 0);
  uint64_t pairs = 0;
  for (uint32_t stage = 0; stage < plan.stages(); ++stage) {
    std::set<uint64_t> written, read;
    for (uint32_t u = plan.stage_offset[stage]; u < plan.stage_offset[stage + 1]; ++u) {
      const LuUpdate& update = plan.update[u];
      REQUIRE(update.first_slot >= t.column_offset[update.column]);
      REQUIRE(update.end_slot <= t.column_offset[update.column + 1]);
      REQUIRE(update.first_slot <= update.reached_slot);
      if (update.flags & kLuUpdateLast)
        slots_finished[update.column] += update.end_slot - update.first_slot;
      uint32_t before = 0;
      for (uint32_t s = 0; s < update.sources; ++s) {
        const LuSource source = plan.source[update.first_source + s];
        const uint32_t slot = source.slot, j = t.row_index[slot];
        REQUIRE(source.begin == t.diagonal[j] + 1);
        REQUIRE(source.begin + source.length == t.column_offset[j + 1]);
        REQUIRE((s == 0 || j > before));
        before = j;
        REQUIRE(level_of[j] == plan.stage_level[stage]);
        REQUIRE(j < t.size - plan.tail_columns);
        REQUIRE(slots_finished[j] == t.column_offset[j + 1] - t.column_offset[j]);
        read.insert(slot);
        for (uint64_t q = t.diagonal[j] + 1; q < t.column_offset[j + 1]; ++q)
          for (uint32_t to = update.reached_slot; to < update.end_slot; ++to)
            if (t.row_index[to] == t.row_index[q]) {
              written.insert(to);
              ++pairs;
            }
      }
    }
    for (const uint64_t slot : read)
      REQUIRE(written.count(slot) == 0);
  }
  uint64_t expected = multiply_adds(t);
  const uint32_t first_of_tail = t.size - plan.tail_columns;
  for (uint32_t k = first_of_tail; k < t.size; ++k)
    expected -= (t.column_offset[k + 1] - t.diagonal[k] - 1) *
                (t.row_offset[k + 1] - t.row_diagonal[k] - 1);
  CHECK(pairs == expected);
  for (uint32_t k = 0; k < t.size; ++k)
    REQUIRE(slots_finished[k] ==
            (k < first_of_tail ? t.column_offset[k + 1] - t.column_offset[k] : 0));
}

template <class T>
void check(const Device& device, const Pattern& pattern, Random& random, bool scaled,
           const LuRightLookingOptions& given) {
  LuRightLookingOptions options = given;
  options.number_bytes = sizeof(T);
  const LuTables tables = test::tables_in_order(pattern, scaled ? &random : nullptr);
  RightLookingOnDevice<T> factors(*device.context, test::lu_right_looking_image(), tables, options);
  if (tables.size <= 200)
    check_plan(tables, factors.plan());
  lu::Factors<T> on_cpu(tables);
  for (int round = 0; round < 2; ++round) {
    const std::vector<lu::Wide<T>> a = test::dominant_values<lu::Wide<T>>(pattern, random);
    const double threshold = std::sqrt(double{lu::unit_roundoff<T>()});
    factors.refactor(a, threshold);
    const lu::FactorStatus expected = on_cpu.refactor_rounded(a);
    const LuStatusRecord status = factors.status();
    CHECK(factors.is_ready_again());
    CHECK((status.zero_column != INT64_MAX) == (expected.outcome == lu::FactorOutcome::singular));
    if (expected.outcome != lu::FactorOutcome::ok || expected.perturbed > 0) {
      // In a dense tail a column of zeros makes NaN of all that come after it.
      if (expected.outcome == lu::FactorOutcome::ok || factors.plan().tail_columns == 0)
        CHECK((status.perturbed > 0) == (expected.perturbed > 0));
      continue;
    }
    CHECK(status.perturbed == 0);
    CHECK(status.nonfinite_column == INT64_MAX);
    const std::vector<T> v = factors.values();
    CHECK(test::product_error(tables, v, a) <= 1);
    if (tables.size > 0)
      CHECK(std::bit_cast<double>(status.largest) / std::bit_cast<double>(status.largest_input) ==
            Approx(expected.growth).epsilon(1e-4));
    if (options.atomics)
      continue;
    CHECK(test::same_bits(v, test::factor_by_levels<T>(tables, a, factors.plan().tail_columns)));
    factors.refactor(a, threshold);
    CHECK(test::same_bits(factors.values(), v));
  }
}

constexpr LuWorkColumns kColumns[] = {LuWorkColumns::automatic, LuWorkColumns::dense,
                                      LuWorkColumns::compressed};
constexpr LuStageFusion kFusions[] = {LuStageFusion::automatic, LuStageFusion::none,
                                      LuStageFusion::all};

} // namespace

TEST_CASE("right-looking: hostile shapes, every kind of columns and launches") {
  const Device device;
  Random random(test::test_seed(20261201));
  for (const test::NamedPattern& named : test::hostile_squares(24))
    for (const LuWorkColumns columns : kColumns)
      for (const LuStageFusion fusion : kFusions) {
        INFO(named.name << ", columns " << static_cast<int>(columns) << ", fusion "
                        << static_cast<int>(fusion));
        check<double>(device, named.pattern, random, false, options_with(columns, fusion));
        if (fusion != LuStageFusion::automatic)
          continue;
        check<float>(device, named.pattern, random, true, options_with(columns, fusion));
        check<C128>(device, named.pattern, random, true, options_with(columns, fusion));
        check<C64>(device, named.pattern, random, false, options_with(columns, fusion));
      }
}

TEST_CASE("right-looking: random patterns and grids") {
  const Device device;
  Random random(test::test_seed(20261202));
  for (const LuWorkColumns columns : kColumns) {
    const LuRightLookingOptions options = options_with(columns, LuStageFusion::automatic);
    check<double>(device, test::random_square(random, 150, 3), random, true, options);
    check<float>(device, test::random_square(random, 90, 2), random, false, options);
    check<double>(device, test::random_grid(random, 14, 13, 0.2), random, false, options);
    check<C128>(device, test::random_square(random, 110, 3), random, false, options);
    check<C64>(device, test::random_grid(random, 13, 12, 0.2), random, true, options);
  }
}

TEST_CASE("right-looking: a dense tail of any size, as other columns and as all") {
  const Device device;
  Random random(test::test_seed(20261209));
  LuRightLookingOptions options = options_with(LuWorkColumns::automatic, LuStageFusion::automatic);
  const Pattern grid = test::random_grid(random, 14, 13, 0.2);
  for (const uint32_t columns : {1u, 2u, 63u, 64u, 65u, 128u, 150u, 181u, 182u, 1000u}) {
    INFO("tail of " << columns);
    options.tail_columns = columns;
    check<double>(device, grid, random, columns % 2 == 0, options);
    check<float>(device, test::random_square(random, 100, 4), random, true, options);
    check<C128>(device, test::random_square(random, 100, 4), random, columns % 2 == 1, options);
    if (columns % 64 == 0 || columns == 1000)
      check<C64>(device, grid, random, true, options);
  }
  for (const test::NamedPattern& named : test::hostile_squares(90))
    for (const std::optional<uint32_t>& columns :
         {std::optional<uint32_t>(), std::optional<uint32_t>(70), std::optional<uint32_t>(1)}) {
      INFO(named.name << ", tail " << (columns ? static_cast<int>(*columns) : -1));
      options.tail_columns = columns;
      check<double>(device, named.pattern, random, true, options);
      if (columns && *columns > 1)
        check<C128>(device, named.pattern, random, false, options);
    }
}

TEST_CASE("right-looking: a dense tail where it promises less time, and fits") {
  Random random(test::test_seed(20261210));
  // Columns on their own, and a grid row by row, which fills up and has many levels.
  constexpr uint32_t alone = 2000, width = 30, height = 20;
  const Pattern grid = test::random_grid(random, width, height, 0.2);
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  for (uint32_t i = 0; i < alone; ++i)
    entries.emplace_back(i, i);
  for (uint32_t i = 0; i < grid.rows; ++i)
    for (const uint32_t j : grid.row(i))
      entries.emplace_back(alone + i, alone + j);
  const LuTables dense = test::tables_in_order(test::pattern_of(alone + grid.rows, entries));
  LuRightLookingOptions options;
  options.multiprocessors = 100;
  options.free_bytes = uint64_t{1} << 30;
  const LuRightLooking plan = make_right_looking(dense, options);
  CHECK(plan.tail_columns > 128);
  CHECK(plan.tail_columns <= width * height);
  const LuTables diagonal = test::tables_in_order(test::random_square(random, 300, 0));
  CHECK(make_right_looking(diagonal, options).tail_columns == 0);
  // The square of 128 columns, with 64 rows beside it.
  options.number_bytes = 8;
  options.free_bytes = dense_tail_numbers(128) * 8;
  CHECK(dense_tail_numbers(128) == 128 * 192);
  CHECK(make_right_looking(dense, options).tail_columns <= 128);
  CHECK(make_right_looking(dense, options).tail_columns > 64);
  options.tail_columns = 200;
  CHECK(make_right_looking(dense, options).tail_columns == 72);
  options.free_bytes = 0;
  CHECK(make_right_looking(dense, options).tail_columns == 0);
}

TEST_CASE("right-looking: updates large enough to be divided by rows") {
  const Device device;
  Random random(test::test_seed(20261203));
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  // Sixteen columns that do not depend on one another, each in all that come later.
  constexpr uint32_t n = 100, first = 16;
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = 0; j < n; ++j)
      if (i == j || (i >= first) != (j >= first))
        entries.emplace_back(i, j);
  const Pattern pattern = test::pattern_of(n, entries);
  for (const LuWorkColumns columns : kColumns) {
    LuRightLookingOptions options = options_with(columns, LuStageFusion::none);
    options.warps_of_multiprocessor = 64;
    if (columns == LuWorkColumns::automatic)
      check<C64>(device, pattern, random, true, options);
    const LuRightLooking plan = make_right_looking(test::tables_in_order(pattern), options);
    CHECK(std::any_of(plan.update.begin(), plan.update.end(),
                      [](const LuUpdate& update) { return update.flags & kLuUpdateRows; }));
    check<double>(device, pattern, random, false, options);
  }
}

TEST_CASE("right-looking: atomics, only where they are asked for") {
  const Device device;
  Random random(test::test_seed(20261204));
  // An arrow whose last columns get something from all others.
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  constexpr uint32_t n = 300;
  for (uint32_t i = 0; i < n; ++i) {
    entries.emplace_back(i, i);
    for (uint32_t k = n - 2; k < n; ++k) {
      entries.emplace_back(i, k);
      entries.emplace_back(k, i);
    }
  }
  const Pattern pattern = test::pattern_of(n, entries);
  const auto shared = [](const LuUpdate& update) { return update.flags & kLuUpdateShared; };
  for (const LuWorkColumns columns : kColumns) {
    LuRightLookingOptions options = options_with(columns, LuStageFusion::none);
    check<double>(device, pattern, random, false, options);
    LuRightLooking plan = make_right_looking(test::tables_in_order(pattern), options);
    CHECK(std::none_of(plan.update.begin(), plan.update.end(), shared));
    options.atomics = true;
    plan = make_right_looking(test::tables_in_order(pattern), options);
    CHECK(std::any_of(plan.update.begin(), plan.update.end(), shared));
    check<double>(device, pattern, random, false, options);
    check<float>(device, pattern, random, true, options);
    check<C128>(device, pattern, random, true, options);
  }
}

TEST_CASE("right-looking: tiny pivots keep their sign, zeros and overflow are told") {
  const Device device;
  const Pattern pattern = test::pattern_of(3, {{0, 0}, {1, 0}, {1, 1}, {2, 1}, {2, 2}});
  const LuTables tables = test::tables_in_order(pattern);
  RightLookingOnDevice<double> factors(
      *device.context, test::lu_right_looking_image(), tables,
      options_with(LuWorkColumns::automatic, LuStageFusion::automatic));
  constexpr double kThreshold = 1e-8;
  factors.refactor({-1e-30, 1, 1e-30, 1, 2}, kThreshold);
  LuStatusRecord status = factors.status();
  CHECK(status.perturbed == 2);
  CHECK(status.perturbed_column == 0);
  CHECK(status.zero_column == INT64_MAX);
  CHECK(factors.values()[tables.diagonal[0]] == -1 / kThreshold);
  CHECK(factors.values()[tables.diagonal[1]] == 1 / kThreshold);
  CHECK(factors.values()[tables.diagonal[2]] == 0.5);
  CHECK(factors.quotient() == std::vector<double>{1e-30, 1e-30, 1});

  factors.refactor({0, 0, 1, 1, 2}, kThreshold);
  CHECK(factors.status().zero_column == 0);
  factors.refactor({1, 1, std::numeric_limits<double>::infinity(), 1, 2}, kThreshold);
  status = factors.status();
  CHECK(status.nonfinite_column == 1);
  CHECK(status.zero_column == INT64_MAX);
  factors.refactor({1, 1, 1, 1, 2}, kThreshold);
  CHECK(factors.status().nonfinite_column == INT64_MAX); // nothing is left
}

TEST_CASE("right-looking: tiny complex pivots keep their phase") {
  const Device device;
  const Pattern pattern = test::pattern_of(3, {{0, 0}, {1, 0}, {1, 1}, {2, 1}, {2, 2}});
  const LuTables tables = test::tables_in_order(pattern);
  constexpr double kThreshold = 1e-8;
  for (const uint32_t columns : {0u, 3u}) {
    INFO("tail of " << columns);
    LuRightLookingOptions options = options_with(LuWorkColumns::automatic, LuStageFusion::none);
    options.number_bytes = sizeof(C128);
    options.tail_columns = columns;
    RightLookingOnDevice<C128> factors(*device.context, test::lu_right_looking_image(), tables,
                                       options);
    // Magnitudes are sums of parts: the first column has 2.
    factors.refactor({{3e-30, -4e-30}, {1, -1}, {1e-200, 1e-200}, {0, 1}, {0, 2}}, kThreshold);
    const LuStatusRecord status = factors.status();
    CHECK(status.perturbed == 2);
    CHECK(status.perturbed_column == 0);
    CHECK(std::bit_cast<double>(status.largest_input) == 2);
    const std::vector<C128> v = factors.values();
    const C128 first = C128(1) / v[tables.diagonal[0]], second = C128(1) / v[tables.diagonal[1]];
    CHECK(std::abs(first - 2 * kThreshold * C128(0.6, -0.8)) <= 1e-15 * kThreshold);
    CHECK(std::abs(second - kThreshold * std::sqrt(0.5) * C128(1, 1)) <= 1e-15 * kThreshold);
    CHECK(v[tables.diagonal[2]] == C128(0, -0.5));
    factors.refactor({{1, 0}, {1, 0}, {1, 0}, {1, std::numeric_limits<double>::infinity()}, {1, 0}},
                     kThreshold);
    CHECK(factors.status().nonfinite_column == 1);
    factors.refactor({{0, 1}, {1, 0}, {0, 0}, {0, 0}, {1, 0}}, kThreshold);
    CHECK(factors.status().zero_column == 1);
  }
}

TEST_CASE("right-looking: pivots of a dense tail are looked at as all others") {
  const Device device;
  const Pattern pattern = test::pattern_of(3, {{0, 0}, {1, 0}, {1, 1}, {2, 1}, {2, 2}});
  const LuTables tables = test::tables_in_order(pattern);
  constexpr double kThreshold = 1e-8;
  for (const uint32_t columns : {2u, 3u}) {
    LuRightLookingOptions options = options_with(LuWorkColumns::automatic, LuStageFusion::none);
    options.tail_columns = columns;
    RightLookingOnDevice<double> factors(*device.context, test::lu_right_looking_image(), tables,
                                         options);
    factors.refactor({-1, 1, -1e-30, 1, 1e-30}, kThreshold);
    LuStatusRecord status = factors.status();
    CHECK(status.perturbed == 1);
    CHECK(status.perturbed_column == 1);
    CHECK(std::bit_cast<double>(status.largest) == 1);
    CHECK(std::bit_cast<double>(status.largest_input) == 1);
    CHECK(factors.values()[tables.diagonal[1]] == -1 / kThreshold);
    CHECK(factors.values()[tables.diagonal[2]] == 1 / 1e-30);
    CHECK(factors.quotient() == std::vector<double>{1, 1e-30, 1});
    factors.refactor({1, 1, 0, 0, 2}, kThreshold);
    CHECK(factors.status().zero_column == 1);
    factors.refactor({1, 1, 1, 1, std::numeric_limits<double>::quiet_NaN()}, kThreshold);
    CHECK(factors.status().nonfinite_column == 2);
    factors.refactor({1, std::numeric_limits<double>::infinity(), 1, 1, 2}, kThreshold);
    CHECK(factors.status().nonfinite_column == 0);
    factors.refactor({1, 1, 1, 1, 2}, kThreshold);
    CHECK(factors.status().nonfinite_column == INT64_MAX);
    CHECK(factors.is_ready_again());
  }
}

TEST_CASE("right-looking: dense columns as long as memory holds those in flight") {
  Random random(test::test_seed(20261205));
  const LuTables tables = test::tables_in_order(test::random_square(random, 144, 8));
  LuRightLookingOptions options = options_with(LuWorkColumns::automatic, LuStageFusion::automatic);
  const auto is_dense = [](const LuUpdate& update) { return update.flags & kLuUpdateDense; };
  const auto dense_updates = [&](const LuRightLooking& plan) {
    return std::count_if(plan.update.begin(), plan.update.end(), is_dense);
  };
  // M = L / (n sizeof): eight columns in flight of 144 numbers of 8 bytes.
  options.free_bytes = 8 * 144 * 8;
  CHECK(lu_column_memory(tables.size, options).fitting() == 8);
  CHECK(lu_column_memory(tables.size, options).dense());
  LuRightLooking plan = make_right_looking(tables, options);
  CHECK(dense_updates(plan) > 0);
  CHECK(plan.dense_columns > 0);
  CHECK(plan.dense_columns <= 8);
  options.free_bytes -= 1;
  CHECK(lu_column_memory(tables.size, options).fitting() == 7);
  CHECK_FALSE(lu_column_memory(tables.size, options).dense());
  plan = make_right_looking(tables, options);
  CHECK(dense_updates(plan) == 0);
  CHECK(plan.dense_columns == 0);

  // Forced, with room for three columns only: fewer warps.
  options.columns = LuWorkColumns::dense;
  options.free_bytes = 3 * 144 * 8;
  plan = make_right_looking(tables, options);
  CHECK(dense_updates(plan) > 0);
  CHECK(plan.dense_columns <= 3);
  const Device device;
  check<double>(device, test::random_grid(random, 12, 12, 0.2), random, false, options);
  options.free_bytes = 144 * 8 - 1;
  CHECK_THROWS_WITH(make_right_looking(tables, options),
                    Contains("a dense column of 144 numbers does not fit into 1151 bytes"));
}

TEST_CASE("strategies: dataflow where its tables fit, else columns by levels, and why") {
  Random random(test::test_seed(20261208));
  const LuTables tables = test::tables_in_order(test::random_grid(random, 12, 12, 0.2));
  const uint64_t gather = gather_bytes(tables.nnz(), multiply_adds(tables));
  LuStrategyRequest request;
  request.multiprocessors = 2;
  request.memory_bytes = 2 * gather;
  LuStrategyChoice choice = choose_lu_strategy(tables, request);
  CHECK(choice.strategy == LuStrategy::dataflow);
  CHECK(choice.dataflow_bytes == gather);
  CHECK_THAT(choice.reason, Contains("its tables fit"));

  request.gather_bytes = gather - 1;
  choice = choose_lu_strategy(tables, request);
  CHECK(choice.strategy != LuStrategy::dataflow);
  CHECK_THAT(choice.reason, Contains("multiply-adds take " + std::to_string(gather) + " bytes"));
  request.strategy = LuStrategy::dataflow;
  CHECK_THROWS_WITH(choose_lu_strategy(tables, request),
                    Contains("do not fit") && Contains("--strategy=right-looking"));

  // 32 columns in flight of 144 numbers of 8 bytes, beside what else is in memory.
  request.strategy = LuStrategy::right_looking;
  for (request.memory_bytes = 0;
       choose_lu_strategy(tables, request).strategy == LuStrategy::compressed_columns;)
    request.memory_bytes += 64;
  choice = choose_lu_strategy(tables, request);
  CHECK(choice.strategy == LuStrategy::dense_columns);
  CHECK(choice.columns.fitting() == 32);
  CHECK_THAT(choice.reason, Contains("(144 rows x 8 bytes) = 32 dense columns, 32 in flight"));
  request.strategy = LuStrategy::compressed_columns;
  CHECK(choose_lu_strategy(tables, request).right_looking.columns == LuWorkColumns::compressed);

  request.complex = true;
  request.number_bytes = 16;
  request.strategy = LuStrategy::automatic;
  CHECK(choose_lu_strategy(tables, request).strategy == LuStrategy::compressed_columns);
}

TEST_CASE("strategies: columns by levels where they promise less time") {
  LuStrategyRequest request;
  request.multiprocessors = 132;
  request.memory_bytes = uint64_t{64} << 30;
  const auto choose = [&](uint32_t n) {
    std::vector<std::pair<uint32_t, uint32_t>> entries;
    for (uint32_t i = 0; i < n; ++i)
      for (uint32_t j = 0; j < n; ++j)
        entries.emplace_back(i, j);
    return choose_lu_strategy(test::tables_in_order(test::pattern_of(n, entries)), request);
  };
  // Dense: a level for each column, but few blocks of a tail.
  LuStrategyChoice choice = choose(600);
  CHECK(choice.strategy == LuStrategy::dense_columns);
  CHECK(choice.levels_us < choice.dataflow_us);
  CHECK_THAT(choice.reason, Contains("us predicted") && Contains("of dataflow"));
  request.nvrtc = false; // nobody to compile the kernels
  choice = choose(600);
  CHECK(choice.strategy == LuStrategy::dataflow);
  CHECK(choice.levels_us == 0);
  request.nvrtc = true;
  choice = choose(60);
  CHECK(choice.strategy == LuStrategy::dataflow);
  CHECK(choice.dataflow_us <= choice.levels_us);
  CHECK_THAT(choice.reason, Contains("its tables fit") && Contains("of columns by levels"));
}

TEST_CASE("right-looking: small stages share a launch") {
  Random random(test::test_seed(20261206));
  const LuTables tables = test::tables_in_order(test::random_grid(random, 20, 3, 0.2));
  const LuRightLooking apart =
      make_right_looking(tables, options_with(LuWorkColumns::compressed, LuStageFusion::none));
  CHECK(apart.runs.size() == apart.stages());
  const LuRightLooking fused =
      make_right_looking(tables, options_with(LuWorkColumns::compressed, LuStageFusion::automatic));
  REQUIRE(fused.runs.size() == 1);
  CHECK(fused.runs.front().blocks == 1);
  CHECK(fused.update == apart.update);
  const LuRightLooking together =
      make_right_looking(tables, options_with(LuWorkColumns::compressed, LuStageFusion::all));
  REQUIRE(together.runs.size() == 1);
  CHECK(together.runs.front().blocks == 2);
}

TEST_CASE("right-looking: whichever call of the driver fails, all is given back") {
  Random random(test::test_seed(20261207));
  const Pattern pattern = test::random_square(random, 20, 2);
  const LuTables tables = test::tables_in_order(pattern);
  const std::vector<double> a = test::dominant_values(pattern, random);
  uint64_t failures = 0;
  for (uint64_t number = 1;; ++number) {
    Device device;
    const auto alive = device.fake.alive();
    device.fake.fail_call(number, cuda::Result::CUDA_ERROR_ILLEGAL_ADDRESS);
    std::string message;
    try {
      RightLookingOnDevice<double> factors(*device.context, test::lu_right_looking_image(), tables,
                                           options_with(LuWorkColumns::dense, LuStageFusion::all));
      factors.refactor(a);
    } catch (const RuntimeError& error) {
      message = error.what();
    }
    const std::string failed = device.fake.failed_call();
    if (failed.empty())
      break;
    ++failures;
    INFO("call " << number << ", " << failed << ": " << message);
    if (failed == "cuMemFree" || failed == "cuStreamDestroy" || failed == "cuModuleUnload") {
      CHECK(message.empty());
    } else {
      CHECK_THAT(message, Contains(failed + " failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
      CHECK(device.fake.alive() == alive);
    }
  }
  CHECK(failures > 20);
}

TEST_CASE("right-looking: NVRTC takes the kernels") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc)
    return;
  for (const char* const number : {"f32", "f64", "c64", "c128"})
    CHECK_FALSE(kernels::compile_lu_right_looking(*nvrtc, 90, number).empty());
  CHECK_FALSE(kernels::compile_lu_right_looking(*nvrtc, 80, "c128").empty());
}

} // namespace sparsertc
