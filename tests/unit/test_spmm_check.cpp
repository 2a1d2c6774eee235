// The checker behind `run --check` passes what is right and finds what is wrong.
#include "tools/spmm_check.h"

#include "compiler/input/convert.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

namespace sparsertc {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// 2 x 3 times 3 x 9: row 0 is (1, 0, -2), row 1 is empty.
struct Example {
  Matrix weights;
  SpmmProblem problem;
  SpmmTile tile;
  SpmmOperands operands;
  std::vector<double> result = std::vector<double>(18, 0.0);
  TaskPool pool{2};

  Example() {
    weights.pattern = {2, 3, {0, 2, 2}, {0, 2}};
    weights.values = {1, -2};
    operands.rows = 2;
    operands.inner = 3;
    operands.columns = 9;
    operands.b.resize(27);
    for (size_t i = 0; i < 27; ++i)
      operands.b[i] = 0.125 * static_cast<double>(i) - 1;
    for (size_t j = 0; j < 9; ++j)
      result[j] = operands.b[j] - 2 * operands.b[18 + j];
  }
  CheckResult check() { return check_spmm(weights, problem, tile, operands, result, pool); }
};

} // namespace

TEST_CASE("a right result passes") {
  Example example;
  const CheckResult check = example.check();
  CHECK(check.passed);
  CHECK(check.max_error_over_bound == 0);
}

TEST_CASE("a wrong element is found, with its place") {
  Example example;
  example.result[7] += 1e-4;
  const CheckResult check = example.check();
  CHECK_FALSE(check.passed);
  CHECK(check.row == 0);
  CHECK(check.column == 7);
  CHECK(check.max_error_over_bound > 1);
}

TEST_CASE("an element that must be zero may not be anything else") {
  Example example;
  example.result[17] = 1e-30;
  CHECK_FALSE(example.check().passed);
}

TEST_CASE("NaN and infinity must be where they are due, and nowhere else") {
  Example example;
  example.result[3] = std::nan("");
  CHECK_FALSE(example.check().passed);
  example.operands.b[3] = std::nan("");
  CHECK(example.check().passed);
  example.operands.b[18 + 4] = kInfinity;
  CHECK_FALSE(example.check().passed);
  example.result[4] = kInfinity; // -2 * inf has the other sign
  CHECK_FALSE(example.check().passed);
  example.result[4] = -kInfinity;
  CHECK(example.check().passed);
}

TEST_CASE("the bound of a narrow type admits its rounding and no more") {
  Example example;
  example.problem.type = DataType::f16;
  example.operands.b[0] = 0x1.004p-3; // exact in f16; the sum is not
  const double sum = example.operands.b[0] - 2 * example.operands.b[18];
  example.result[0] = from_f16(to_f16(sum));
  CHECK(example.check().passed);
  example.result[0] = from_f16(static_cast<uint16_t>(to_f16(sum) + 2));
  CHECK_FALSE(example.check().passed);
}

TEST_CASE("sums on tensor cores may be cut, and no more") {
  Example example;
  example.tile.strategy = Strategy::panels;
  example.problem.type = DataType::f16;
  example.operands.b_columns = 9;
  // Element (0, 4): 8 additions, each less than 2^-23 of a sum of magnitudes of 4.
  example.operands.b[4] = -1;
  example.operands.b[18 + 4] = 1.5;
  const double rounded = 0x1p-11 * 4, cut = 8 * 0x1p-23 * 4;
  example.result[4] = -4 + rounded + cut;
  CHECK(example.check().passed);
  example.result[4] = -4 + rounded + 3 * cut;
  CHECK_FALSE(example.check().passed);
  // f32 in three parts: 2 + 7 * 2 + 4 roundings, and products that are left out.
  example.problem.type = DataType::f32;
  const double in_parts = (20 * 0x1p-24 + 0x1p-22) * 4;
  example.result[4] = -4 + in_parts;
  CHECK(example.check().passed);
  example.result[4] = -4 + 1.1 * in_parts;
  CHECK_FALSE(example.check().passed);
  // f32 goes in with 10 bits of the fraction.
  example.problem.precision = Precision::tf32;
  example.result[4] = -4 + 1.5 * 0x1p-10 * 4;
  CHECK(example.check().passed);
  example.result[4] = -4 + 1.6 * 0x1p-10 * 4;
  CHECK_FALSE(example.check().passed);
}

TEST_CASE("panels let NaN reach all of its column of C, and no other") {
  Example example;
  example.tile.strategy = Strategy::panels;
  example.operands.b_columns = 9;
  example.operands.b[9 + 5] = std::nan(""); // no row has an entry in column 1
  example.result[9 + 5] = std::nan("");
  CHECK(example.check().passed);
  example.result[9 + 6] = std::nan("");
  CHECK_FALSE(example.check().passed);
}

TEST_CASE("a sum beyond the largest f16 is infinite") {
  Example example;
  example.problem.type = DataType::f16;
  example.operands.b[0] = 60000;
  example.operands.b[18] = -60000;
  example.result[0] = kInfinity;
  CHECK(example.check().passed);
  example.result[0] = -kInfinity;
  CHECK_FALSE(example.check().passed);
}

TEST_CASE("finite terms that overflow may meet an infinite one") {
  Example example;
  const double largest = std::numeric_limits<float>::max();
  example.weights.pattern = {2, 3, {0, 3, 3}, {0, 1, 2}};
  example.weights.values = {largest, largest, 1};
  for (size_t j = 0; j < 9; ++j) {
    example.operands.b[j] = example.operands.b[9 + j] = 1;
    example.operands.b[18 + j] = -kInfinity;
    example.result[j] = -kInfinity;
  }
  CHECK(example.check().passed);
  // inf - inf on the way
  example.result[3] = std::numeric_limits<double>::quiet_NaN();
  CHECK(example.check().passed);
  // without overflow there is no way to it
  example.weights.values = {1, 1, 1};
  CHECK_FALSE(example.check().passed);
}

} // namespace sparsertc
