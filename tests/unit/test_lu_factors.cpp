// The numeric factorization of small matrices against its definition: B = L' D U entry by entry,
// and solves against the bound of their backward error.
#include "compiler/inspect/lu_schedule.h"
#include "ir/error.h"
#include "runtime/lu/condition.h"
#include "runtime/lu/monitor.h"
#include "runtime/lu/refine.h"
#include "tests/support/lu_patterns.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

#include <catch2/catch.hpp>

namespace sparsertc::lu {
namespace {

using test::Random;

template <class T>
T random_scalar(Random& random) {
  if constexpr (ScalarTraits<T>::kComplex) {
    const double re = random.symmetric(), im = random.symmetric();
    return T(static_cast<Real<T>>(re), static_cast<Real<T>>(im));
  } else {
    return static_cast<T>(random.symmetric());
  }
}

Permutation shuffled(Random& random, uint32_t size) {
  Permutation p = identity_permutation(size);
  for (uint32_t i = size; i > 1; --i)
    std::swap(p[i - 1], p[random.below(i)]);
  return p;
}

/// A pattern with values, whose diagonal (where it is there) is large enough for any order of it.
template <class T>
struct System {
  Pattern pattern;
  std::vector<T> values;

  MatrixView<Wide<T>> view(std::vector<Wide<T>>& wide) const {
    wide.clear();
    for (const T value : values)
      wide.push_back(to_scalar<Wide<T>>(value));
    return {pattern.rows, pattern.row_offset, pattern.column_index, wide};
  }
};

template <class T>
System<T> random_system(Random& random, Pattern pattern) {
  System<T> system{std::move(pattern), {}};
  for (uint32_t i = 0; i < system.pattern.rows; ++i)
    for (const uint32_t j : system.pattern.row(i)) {
      T value = random_scalar<T>(random);
      if (i == j)
        value += T(static_cast<Real<T>>(system.pattern.row_length(i)) + 1);
      system.values.push_back(value);
    }
  return system;
}

/// Patterns with a full diagonal.
std::vector<Pattern> regular_patterns(Random& random) {
  std::vector<Pattern> all;
  for (const test::NamedPattern& shape : test::hostile_squares(40)) {
    bool full = true;
    for (uint32_t i = 0; i < shape.pattern.rows; ++i) {
      const auto row = shape.pattern.row(i);
      full &= std::binary_search(row.begin(), row.end(), i);
    }
    if (full)
      all.push_back(shape.pattern);
  }
  for (int round = 0; round < 20; ++round)
    all.push_back(test::random_square(random, 1 + random.below(50), 1 + 2 * random.unit()));
  return all;
}

template <class T>
double size_of_number(T value) {
  return std::abs(to_scalar<Wide<T>>(value));
}

/// The largest |B - L' D U| over (|L'| |D| |U|) u, where that is more than 1.
template <class T>
double factor_error(const Factors<T>& factors, const System<T>& a) {
  const LuTables& t = factors.tables();
  const uint32_t n = t.size;
  using W = Wide<T>;
  std::vector<W> difference(uint64_t{n} * n, W(0));
  std::vector<double> bound(uint64_t{n} * n, 0);
  for (uint32_t j = 0; j < n; ++j)
    for (uint64_t p = t.input_offset[j]; p < t.input_offset[j + 1]; ++p) {
      W value = to_scalar<W>(a.values[t.input_source[p]]);
      if (!t.input_scale.empty())
        value *= t.input_scale[p];
      difference[uint64_t{t.input_row[p]} * n + j] = value;
      bound[uint64_t{t.input_row[p]} * n + j] = size_of_number(value); // rounded when scaled
    }
  const auto value_at = [&](uint32_t i, uint32_t j, W& value) { // of L' and U, with the pivots
    const auto first = t.row_index.begin() + static_cast<ptrdiff_t>(t.column_offset[j]);
    const auto last = t.row_index.begin() + static_cast<ptrdiff_t>(t.column_offset[j + 1]);
    const auto found = std::lower_bound(first, last, i);
    if (found == last || *found != i)
      return false;
    value = to_scalar<W>(factors.values()[static_cast<size_t>(found - t.row_index.begin())]);
    if (i == j)
      value = W(1) / value;
    return true;
  };
  double worst = 0;
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = 0; j < n; ++j) {
      uint32_t terms = 0;
      for (uint32_t k = 0; k <= std::min(i, j); ++k) {
        W l = 0, u = 0, pivot = 1;
        if (!value_at(i, k, l) || !value_at(k, j, u))
          continue;
        ++terms;
        REQUIRE(value_at(k, k, pivot));
        difference[uint64_t{i} * n + j] -= l * u / pivot;
        bound[uint64_t{i} * n + j] += std::abs(l) * std::abs(u) / std::abs(pivot);
      }
      const double allowed =
          (4 * terms + 8) * double{unit_roundoff<T>()} * bound[uint64_t{i} * n + j];
      const double error = std::abs(difference[uint64_t{i} * n + j]);
      if (error > 0)
        worst = std::max(worst, allowed > 0 ? error / allowed : 1e300);
    }
  return worst;
}

template <class T>
LuTables tables_for(Random& random, const System<T>& a, bool scaled,
                    std::vector<double> (&scale)[2]) {
  LuPlacement placement;
  placement.rows = placement.columns = shuffled(random, a.pattern.rows); // the diagonal stays
  if (scaled) {
    for (std::vector<double>& side : scale) {
      side.resize(a.pattern.rows);
      for (double& s : side)
        s = std::exp2(4 * random.symmetric());
    }
    placement.row_scale = scale[0];
    placement.column_scale = scale[1];
  }
  return make_lu_tables(a.pattern, placement);
}

} // namespace

TEMPLATE_TEST_CASE("L' D U is the permuted and scaled matrix, and solves are backward stable", "",
                   float, double, std::complex<float>, std::complex<double>) {
  using T = TestType;
  using W = Wide<T>;
  Random random(test::test_seed(20261201));
  TaskPool pool(3);
  for (const Pattern& pattern : regular_patterns(random)) {
    INFO("n " << pattern.rows << ", " << pattern.nnz() << " entries");
    const System<T> a = random_system<T>(random, pattern);
    const bool scaled = random.chance(0.5);
    std::vector<double> scale[2];
    const LuTables tables = tables_for(random, a, scaled, scale);
    Factors<T> factors(tables);
    const FactorStatus status = factors.refactor(a.values);
    REQUIRE(status.outcome == FactorOutcome::ok);
    CHECK(status.perturbed == 0);
    CHECK(factor_error(factors, a) <= 1);

    // The same bits again, with threads, and from values of the wider type.
    Factors<T> others(tables, &pool);
    others.refactor(a.values);
    std::vector<W> wide;
    const MatrixView<W> view = a.view(wide);
    CHECK(std::equal(factors.values().begin(), factors.values().end(), others.values().begin()));
    others.refactor_rounded(wide);
    CHECK(std::equal(factors.values().begin(), factors.values().end(), others.values().begin()));

    const uint32_t n = pattern.rows;
    for (const bool transposed : {false, true})
      for (const uint64_t right_sides : {1, 2, 8, 11}) {
        std::vector<T> b(n * right_sides);
        for (T& value : b)
          value = random_scalar<T>(random);
        std::vector<T> x(b.size());
        factors.solve(b, x, right_sides, transposed);
        std::vector<T> same = b; // in place, with threads
        others.solve(same, same, right_sides, transposed);
        CHECK(same == x);
        for (uint64_t c = 0; c < right_sides; ++c) {
          std::vector<W> wide_b(n), wide_x(n);
          for (uint32_t i = 0; i < n; ++i) {
            wide_b[i] = to_scalar<W>(b[c * n + i]);
            wide_x[i] = to_scalar<W>(x[c * n + i]);
          }
          CHECK(relative_residual<W>(view, wide_b, wide_x, transposed) <=
                8 * (n + 4) * double{unit_roundoff<T>()});
        }
      }
  }
}

TEMPLATE_TEST_CASE("Refinement reaches the unit roundoff, also with factors in single precision",
                   "", float, std::complex<float>) {
  using T = TestType;
  using W = Wide<T>;
  Random random(test::test_seed(20261201));
  for (int round = 0; round < 20; ++round) {
    const System<T> a =
        random_system<T>(random, test::random_square(random, 1 + random.below(80), 3));
    std::vector<double> scale[2];
    const LuTables tables = tables_for(random, a, true, scale);
    Factors<T> factors(tables);
    std::vector<W> wide;
    const MatrixView<W> view = a.view(wide);
    factors.refactor_rounded(wide);
    std::vector<W> b(a.pattern.rows);
    for (W& value : b)
      value = random_scalar<W>(random);
    for (const bool transposed : {false, true}) {
      std::vector<W> x(b.size());
      const RefineResult result =
          solve_refined<T, W>(factors, view, std::span<const W>(b), std::span<W>(x), transposed);
      CHECK(result.backward_error <= 8 * std::numeric_limits<double>::epsilon());
      CHECK(result.residual <= 4 * std::numeric_limits<double>::epsilon());
      CHECK(result.residual == relative_residual<W>(view, b, x, transposed));
      std::vector<T> narrow(b.size());
      const RefineResult in_single = solve_refined<T, T>(factors, view, std::span<const W>(b),
                                                         std::span<T>(narrow), transposed);
      CHECK(in_single.residual <= 4 * double{unit_roundoff<T>()});
      // b and x may be one memory.
      std::vector<W> same = b;
      solve_refined<T, W>(factors, view, std::span<const W>(same), std::span<W>(same), transposed);
      CHECK(same == x);
    }
  }
}

namespace {

/// The factors of a dense matrix in its own order.
struct Dense {
  Pattern pattern;
  std::vector<double> values;
  LuTables tables;

  explicit Dense(std::vector<std::vector<double>> rows) {
    const uint32_t n = static_cast<uint32_t>(rows.size());
    std::vector<std::pair<uint32_t, uint32_t>> entries;
    for (uint32_t i = 0; i < n; ++i)
      for (uint32_t j = 0; j < n; ++j) {
        entries.emplace_back(i, j);
        values.push_back(rows[i][j]);
      }
    pattern = test::pattern_of(n, entries);
    tables = make_lu_tables(pattern, {identity_permutation(n), identity_permutation(n), {}, {}});
  }
  MatrixView<double> view() const {
    return {pattern.rows, pattern.row_offset, pattern.column_index, values};
  }
};

} // namespace

TEST_CASE("A pivot that is too small is replaced with its sign, and counted") {
  for (const double sign : {1.0, -1.0}) {
    Dense a({{sign * 1e-30, 4}, {2, 1}});
    Factors<double> factors(a.tables);
    const FactorStatus status = factors.refactor(a.values);
    CHECK(status.outcome == FactorOutcome::ok);
    CHECK(status.perturbed == 1);
    CHECK(status.perturbed_row == 0);
    CHECK(status.perturbed_column == 0);
    const double size = 2 * std::sqrt(unit_roundoff<double>());
    CHECK(1 / factors.values()[a.tables.diagonal[0]] == Approx(sign * size));
    // The matrix itself is well conditioned, and refinement finds its solution.
    CHECK_FALSE(
        is_numerically_singular(factors, a.view(), status, estimate_condition(factors, a.view())));
    const std::vector<double> b = {4, 3};
    std::vector<double> x(2);
    RefineOptions options;
    options.maximum_steps = 20;
    const RefineResult result = solve_refined<double, double>(
        factors, a.view(), std::span<const double>(b), std::span<double>(x), false, options);
    CHECK(result.residual <= 4 * unit_roundoff<double>());
    CHECK(x[0] == Approx(1));
    CHECK(x[1] == Approx(1));
    // A threshold of the caller's is kept to.
    FactorOptions wild;
    wild.pivot_threshold = 0.25;
    factors.refactor(a.values, wild);
    CHECK(1 / factors.values()[a.tables.diagonal[0]] == Approx(sign * 0.5));
  }
  // The phase of a complex pivot.
  Dense shape({{0, 4}, {2, 1}});
  std::vector<std::complex<double>> values = {{0, -1e-30}, {4, 0}, {2, 0}, {1, 0}};
  Factors<std::complex<double>> factors(shape.tables);
  CHECK(factors.refactor(values).perturbed == 1);
  const std::complex<double> pivot = 1.0 / factors.values()[shape.tables.diagonal[0]];
  CHECK(std::abs(pivot.real()) < 1e-30);
  CHECK(pivot.imag() < 0);
}

TEST_CASE("What cannot be factorized is told, with its place") {
  Dense a({{1, 2, 3}, {4, 5, 6}, {7, 8, 10}});
  Factors<double> factors(a.tables);
  std::vector<double> values = a.values;
  values[1] = values[4] = values[7] = 0;
  FactorStatus status = factors.refactor(values);
  CHECK(status.outcome == FactorOutcome::singular);
  CHECK(status.column == 1);

  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    values = a.values;
    values[5] = bad; // row 1, column 2
    status = factors.refactor(values);
    CHECK(status.outcome == FactorOutcome::not_finite);
    CHECK(status.column == 2);
  }
  values = a.values;
  for (double& value : values)
    value *= 1e308;
  CHECK(factors.refactor(values).outcome == FactorOutcome::not_finite);
  // Afterwards the factors are as good as new.
  CHECK(factors.refactor(a.values).outcome == FactorOutcome::ok);
  std::vector<double> x = {6, 15, 25};
  factors.solve(x, x);
  for (const double value : x)
    CHECK(value == Approx(1));

  CHECK_THROWS_AS(factors.refactor(std::span<const double>(a.values).subspan(1)), UserError);
  CHECK_THROWS_AS(factors.solve(x, x, 2), UserError);
}

TEST_CASE("Singular matrices are recognised behind replaced pivots") {
  // Rank 2; rank 1; a null space that only rounding hides; and a regular one with a zero pivot.
  const std::vector<std::vector<std::vector<double>>> singular = {
      {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}},
      {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
      {{0.1, 0.2, 0.3}, {0.3, 0.5, 0.8}, {0.7, 0.9, 1.6}}};
  for (const auto& rows : singular) {
    Dense a(rows);
    Factors<double> factors(a.tables);
    const FactorStatus status = factors.refactor(a.values);
    CHECK(
        is_numerically_singular(factors, a.view(), status, estimate_condition(factors, a.view())));
  }
  Dense regular({{1, 1, 0}, {1, 1, 1}, {0, 1, 1}});
  Factors<double> factors(regular.tables);
  const FactorStatus status = factors.refactor(regular.values);
  CHECK(status.perturbed == 1);
  CHECK(status.weakest_pivot == 0);
  CHECK(status.weakest_row == 1);
  CHECK_FALSE(is_numerically_singular(factors, regular.view(), status,
                                      estimate_condition(factors, regular.view())));
}

TEST_CASE("The condition estimate is a bound from below and near the condition") {
  Random random(test::test_seed(20261201));
  for (int round = 0; round < 30; ++round) {
    const uint32_t n = 1 + random.below(30);
    const System<double> a = random_system<double>(random, test::random_square(random, n, 3));
    const LuTables tables =
        make_lu_tables(a.pattern, {identity_permutation(n), identity_permutation(n), {}, {}});
    Factors<double> factors(tables);
    factors.refactor(a.values);
    std::vector<double> column_sum(n, 0);
    for (uint32_t i = 0; i < n; ++i)
      for (uint64_t p = a.pattern.row_offset[i]; p < a.pattern.row_offset[i + 1]; ++p)
        column_sum[a.pattern.column_index[p]] += std::abs(a.values[p]);
    double inverse = 0;
    for (uint32_t j = 0; j < n; ++j) {
      std::vector<double> unit(n, 0);
      unit[j] = 1;
      factors.solve(unit, unit);
      double sum = 0;
      for (const double value : unit)
        sum += std::abs(value);
      inverse = std::max(inverse, sum);
    }
    const double exact = inverse * *std::max_element(column_sum.begin(), column_sum.end());
    std::vector<double> wide;
    const double estimate = estimate_condition(factors, a.view(wide));
    CHECK(estimate <= exact * (1 + 1e-10));
    CHECK(estimate >= exact / 3);
  }
}

TEST_CASE("Growth and new replacements make pivots stale") {
  Dense a({{4, 1, 0}, {1, 4, 1}, {0, 1, 4}});
  Factors<double> factors(a.tables);
  const FactorStatus chosen = factors.refactor(a.values);
  CHECK(chosen.growth == Approx(1));
  CHECK(find_staleness(chosen, chosen).empty());
  std::vector<double> values = a.values;
  values[0] = 1e-6;
  const FactorStatus grown = factors.refactor(values);
  CHECK(grown.perturbed == 0);
  CHECK(grown.growth > 1e4);
  CHECK_THAT(find_staleness(chosen, grown), Catch::Contains("times as large"));
  values[0] = 1e-12;
  CHECK_THAT(find_staleness(chosen, factors.refactor(values)),
             Catch::Contains("1 pivots were too small"));
  values[0] = values[3] = values[6] = 0;
  CHECK_THAT(find_staleness(chosen, factors.refactor(values)), Catch::Contains("is zero"));
}

TEST_CASE("A chain of 100,000 and right-hand sides of all sizes") {
  const Pattern chain = test::hostile_squares(100'000).back().pattern;
  Random random(test::test_seed(20261201));
  const System<double> a = random_system<double>(random, chain);
  TaskPool pool(2);
  const Permutation natural = identity_permutation(chain.rows);
  const LuTables tables = make_lu_tables(chain, {natural, natural, {}, {}}, &pool);
  CHECK(tables.factor_levels.count() == chain.rows);
  Factors<double> factors(tables, &pool);
  REQUIRE(factors.refactor(a.values).outcome == FactorOutcome::ok);
  std::vector<double> b(chain.rows);
  for (double& value : b)
    value = random.symmetric();
  std::vector<double> wide, x(b.size());
  const MatrixView<double> view = a.view(wide);
  for (const bool transposed : {false, true}) {
    factors.solve(b, x, 1, transposed);
    CHECK(relative_residual<double>(view, b, x, transposed) < 1e-14);
  }
  factors.solve(std::span<const double>(), std::span<double>(), 0);
}

TEST_CASE("Wide levels are shared among threads with the same bits") {
  // Independent dense blocks: enough work a level for threads to be used.
  Random random(test::test_seed(20261201));
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  constexpr uint32_t kBlocks = 64, kSize = 48;
  for (uint32_t block = 0; block < kBlocks; ++block)
    for (uint32_t i = 0; i < kSize; ++i)
      for (uint32_t j = 0; j < kSize; ++j)
        entries.emplace_back(block * kSize + i, block * kSize + j);
  const System<double> a =
      random_system<double>(random, test::pattern_of(kBlocks * kSize, entries));
  const Permutation natural = identity_permutation(a.pattern.rows);
  const LuTables tables = make_lu_tables(a.pattern, {natural, natural, {}, {}});
  CHECK(tables.factor_levels.count() == kSize);
  const std::vector<LevelStage> stages = plan_stages(tables.factor_levels, Direction::ascending, 3,
                                                     [](uint32_t) { return uint64_t{10'000}; });
  CHECK(std::any_of(stages.begin(), stages.end(), [](const auto& s) { return s.parallel(); }));
  TaskPool pool(3);
  Factors<double> alone(tables), together(tables, &pool);
  alone.refactor(a.values);
  together.refactor(a.values);
  CHECK(std::equal(alone.values().begin(), alone.values().end(), together.values().begin()));
  std::vector<double> b(a.pattern.rows, 1), x(b), y(b);
  for (const bool transposed : {false, true}) {
    alone.solve(b, x, 1, transposed);
    together.solve(b, y, 1, transposed);
    CHECK(x == y);
  }
}

} // namespace sparsertc::lu
