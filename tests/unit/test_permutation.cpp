#include "compiler/input/permute.h"
#include "compiler/pattern/permutation.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

namespace sparsertc {
namespace {

Permutation random_permutation(test::Random& random, uint32_t size) {
  Permutation p = identity_permutation(size);
  for (uint32_t i = size; i > 1; --i)
    std::swap(p[i - 1], p[random.below(i)]);
  return p;
}

Pattern random_pattern(test::Random& random) {
  const uint32_t rows = random.below(12), columns = random.below(12);
  return test::random_sparse(random, rows, columns, random.pick(test::kRowShapes),
                             test::ValueShape::unit, -126, 127)
      .pattern;
}

bool has(const Pattern& pattern, uint32_t row, uint32_t column) {
  const auto columns = pattern.row(row);
  return std::binary_search(columns.begin(), columns.end(), column);
}

} // namespace

TEST_CASE("Permutations are told from other lists") {
  CHECK(is_permutation({}, 0));
  CHECK(is_permutation({1, 0, 2}, 3));
  CHECK_FALSE(is_permutation({1, 0}, 3));
  CHECK_FALSE(is_permutation({1, 1, 2}, 3));
  CHECK_FALSE(is_permutation({1, 3, 2}, 3));
}

TEST_CASE("Inverses and compositions follow the convention p[new] = old") {
  test::Random random(test::test_seed(11));
  for (uint32_t size : {0u, 1u, 2u, 7u, 50u}) {
    const Permutation p = random_permutation(random, size), q = random_permutation(random, size);
    CHECK(compose(p, inverse(p)) == identity_permutation(size));
    CHECK(compose(inverse(p), p) == identity_permutation(size));
    // Ordered by p, then its result by q.
    std::vector<int> things(size), by_p(size), by_both(size);
    std::iota(things.begin(), things.end(), 100);
    for (uint32_t i = 0; i < size; ++i)
      by_p[i] = things[p[i]];
    for (uint32_t i = 0; i < size; ++i)
      by_both[i] = by_p[q[i]];
    const Permutation both = compose(p, q);
    for (uint32_t i = 0; i < size; ++i)
      CHECK(by_both[i] == things[both[i]]);
  }
}

TEST_CASE("Patterns and values go where permutations send them") {
  test::Random random(test::test_seed(12));
  for (int round = 0; round < 200; ++round) {
    const Pattern pattern = random_pattern(random);
    const Permutation rows = random_permutation(random, pattern.rows);
    const Permutation columns = random_permutation(random, pattern.columns);
    std::vector<uint64_t> source;
    const Pattern permuted = permute(pattern, rows, columns, &source);
    REQUIRE_FALSE(find_fault(permuted));
    REQUIRE(permuted.nnz() == pattern.nnz());
    for (uint32_t i = 0; i < permuted.rows; ++i)
      for (uint64_t k = permuted.row_offset[i]; k < permuted.row_offset[i + 1]; ++k) {
        const uint64_t old = source[k];
        CHECK(pattern.column_index[old] == columns[permuted.column_index[k]]);
        CHECK(pattern.row_offset[rows[i]] <= old);
        CHECK(old < pattern.row_offset[rows[i] + 1]);
      }
    CHECK(permute(permuted, inverse(rows), inverse(columns)) == pattern);

    const Pattern transposed = transpose(pattern, &source);
    REQUIRE_FALSE(find_fault(transposed));
    REQUIRE(transposed.nnz() == pattern.nnz());
    for (uint32_t i = 0; i < transposed.rows; ++i)
      for (uint64_t k = transposed.row_offset[i]; k < transposed.row_offset[i + 1]; ++k) {
        CHECK(pattern.column_index[source[k]] == i);
        CHECK(has(pattern, transposed.column_index[k], i));
      }
    CHECK(transpose(transposed) == pattern);
  }
}

TEST_CASE("A + A^T without the diagonal has exactly the mirrored entries") {
  test::Random random(test::test_seed(13));
  for (int round = 0; round < 100; ++round) {
    const Pattern a = test::random_square(random, random.below(10), 2, 0.5);
    const Pattern sum = symmetrized_without_diagonal(a);
    REQUIRE_FALSE(find_fault(sum));
    for (uint32_t i = 0; i < a.rows; ++i)
      for (uint32_t j = 0; j < a.rows; ++j)
        CHECK(has(sum, i, j) == (i != j && (has(a, i, j) || has(a, j, i))));
  }
}

TEST_CASE("Matrices keep values and imaginary parts with their entries") {
  Matrix a;
  a.pattern = {2, 3, {0, 2, 3}, {0, 2, 1}};
  a.values = {1, 2, 3};
  a.imaginary = {10, 20, 30};
  a.stored = StoredType::c128;
  a.name = "small.mtx";
  const Matrix b = permute(a, {1, 0}, {2, 1, 0});
  CHECK(b.pattern == Pattern{2, 3, {0, 1, 3}, {1, 0, 2}});
  CHECK(b.values == std::vector<double>{3, 2, 1});
  CHECK(b.imaginary == std::vector<double>{30, 20, 10});
  CHECK(b.stored == StoredType::c128);
  CHECK(b.name == "small.mtx");
  const Matrix t = transpose(a);
  CHECK(t.pattern == Pattern{3, 2, {0, 1, 2, 3}, {0, 1, 0}});
  CHECK(t.values == std::vector<double>{1, 3, 2});
  CHECK(t.imaginary == std::vector<double>{10, 30, 20});
  Matrix bare = a;
  bare.values.clear();
  bare.imaginary.clear();
  CHECK(transpose(bare).values.empty());
}

} // namespace sparsertc
