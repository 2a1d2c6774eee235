// Batches of sparse LU on the CPU, bit by bit against the same sums one after the other.
#include "compiler/inspect/lu_batch_loop.h"
#include "runtime/lu/host_batch.h"
#include "tests/support/lu_batch.h"
#include "tests/support/lu_dataflow.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace sparsertc {
namespace {

using test::Random;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

/// rows[s][i] as [i][s], and back.
template <class T>
std::vector<T> interleaved(const std::vector<std::vector<T>>& rows, uint64_t count) {
  std::vector<T> result(count * rows.size());
  for (size_t s = 0; s < rows.size(); ++s)
    for (uint64_t i = 0; i < count; ++i)
      result[i * rows.size() + s] = rows[s][i];
  return result;
}

template <class T>
using Batch = std::vector<std::vector<T>>;

template <class T>
struct Outcome {
  Batch<T> x;
  std::vector<uint32_t> status;
};

template <class T>
Outcome<T> solve(const LuTables& tables, const std::string& instructions, const Batch<T>& values,
                 const Batch<T>& b, double threshold, TaskPool* pool = nullptr) {
  const LuBatchLoop loop = make_lu_batch_loop(tables);
  const lu::HostBatch<T> batch(loop, instructions);
  const uint64_t count = values.size(), bytes = batch.bytes(count);
  const std::unique_ptr<void, Free> memory(
      std::aligned_alloc(batch.kAlignment, std::max(bytes, batch.kAlignment)));
  std::memset(memory.get(), 0xFF, bytes);
  Outcome<T> outcome;
  outcome.status.assign(count, 12345);
  const std::vector<T> all = interleaved(values, tables.input_nnz);
  std::vector<T> x = interleaved(b, tables.size);
  batch.factor(all.data(), count, threshold, memory.get(), outcome.status.data(), pool);
  batch.solve(x.data(), x.data(), count, memory.get(), pool); // in place
  outcome.x.assign(count, std::vector<T>(tables.size));
  for (uint64_t s = 0; s < count; ++s)
    for (uint32_t i = 0; i < tables.size; ++i)
      outcome.x[s][i] = x[i * count + s];
  return outcome;
}

template <class T>
T random_number(Random& random) {
  const auto re = static_cast<lu::Real<T>>(random.symmetric());
  if constexpr (lu::ScalarTraits<T>::kComplex)
    return {re, static_cast<lu::Real<T>>(random.symmetric())};
  else
    return re;
}

template <class T>
Batch<T> dominant(const Pattern& pattern, Random& random, uint64_t instances) {
  Batch<T> batch;
  for (uint64_t s = 0; s < instances; ++s) {
    batch.emplace_back();
    for (const lu::Wide<T> value : test::dominant_values<lu::Wide<T>>(pattern, random))
      batch.back().push_back(lu::to_scalar<T>(value));
  }
  return batch;
}

template <class T>
bool all_finite(const std::vector<T>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(),
                     [](T number) { return std::isfinite(lu::magnitude(number)); });
}

/// All sets of instructions that there are, one thread and two.
template <class T>
void check(const LuTables& tables, const Batch<T>& values, Random& random, double threshold = 0) {
  Batch<T> b(values.size(), std::vector<T>(tables.size));
  for (std::vector<T>& one : b)
    for (T& number : one)
      number = random_number<T>(random);
  const double used = threshold > 0 ? threshold : std::sqrt(double{lu::unit_roundoff<T>()});
  std::vector<test::BatchReference<T>> expected;
  for (size_t s = 0; s < values.size(); ++s)
    expected.push_back(
        test::solve_in_order<T>(tables, values[s], b[s], static_cast<lu::Real<T>>(used)));
  TaskPool pool(2);
  for (const std::string& instructions : lu::instruction_sets())
    for (TaskPool* const threads : {static_cast<TaskPool*>(nullptr), &pool}) {
      INFO(instructions << ", threads " << (threads != nullptr ? 2 : 1));
      const Outcome<T> found = solve(tables, instructions, values, b, threshold, threads);
      for (size_t s = 0; s < values.size(); ++s) {
        INFO("instance " << s);
        const bool finite = all_finite(values[s]) && all_finite(expected[s].factors);
        CHECK(((found.status[s] & lu::kBatchNotFinite) == 0) == finite);
        if (!finite)
          continue;
        CHECK(found.status[s] == expected[s].replaced);
        CHECK(found.x[s] == expected[s].x); // of complex zeros the sign may differ
      }
    }
}

template <class T>
void check_patterns(uint64_t seed) {
  Random random(test::test_seed(seed));
  for (const test::NamedPattern& named : test::hostile_squares(20)) {
    INFO(named.name);
    const LuTables tables = test::tables_in_order(named.pattern);
    check<T>(tables, dominant<T>(named.pattern, random, 3), random);
  }
  const Pattern pattern = test::random_square(random, 40, 4);
  const LuTables tables = test::tables_in_order(pattern, &random);
  // Less than a group, whole ones, and some that are left over.
  for (const uint64_t instances : {1, 8, 16, 37})
    check<T>(tables, dominant<T>(pattern, random, instances), random);
  for (const double threshold : {0.5, 0.99})
    check<T>(tables, dominant<T>(pattern, random, 5), random, threshold);
}

} // namespace

TEST_CASE("host batch: every type, hostile shapes", "[lu_host_batch]") {
  check_patterns<double>(50);
  check_patterns<float>(51);
  check_patterns<std::complex<double>>(52);
  check_patterns<std::complex<float>>(53);
}

TEST_CASE("host batch: no instances", "[lu_host_batch]") {
  Random random(test::test_seed(54));
  const Pattern pattern = test::random_square(random, 5, 2);
  check<double>(test::tables_in_order(pattern), {}, random);
}

TEST_CASE("host batch: what goes wrong in one instance reaches no other", "[lu_host_batch]") {
  Random random(test::test_seed(55));
  const Pattern pattern = test::random_square(random, 20, 3);
  const LuTables tables = test::tables_in_order(pattern);
  Batch<double> values = dominant<double>(pattern, random, 11);
  values[1][4] = std::numeric_limits<double>::quiet_NaN();
  values[9][0] = std::numeric_limits<double>::infinity();
  for (uint64_t p = 0; p < pattern.nnz(); ++p)
    if (pattern.column_index[p] == 3)
      values[4][p] = 0; // a column of zeros
  check<double>(tables, values, random);
  const Outcome<double> found =
      solve<double>(tables, "baseline", values, Batch<double>(11, std::vector<double>(20, 1.0)), 0);
  for (size_t s = 0; s < 11; ++s)
    CHECK(((found.status[s] & lu::kBatchNotFinite) != 0) == (s == 1 || s == 4 || s == 9));

  Batch<std::complex<double>> complex = dominant<std::complex<double>>(pattern, random, 3);
  complex[1][2] = {0, std::numeric_limits<double>::infinity()};
  check<std::complex<double>>(tables, complex, random);
}

} // namespace sparsertc
