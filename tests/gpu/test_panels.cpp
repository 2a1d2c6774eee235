// The panels strategy on a GPU: every way in which B is staged and C is stored, and sums that tell
// good tensor cores from bad bounds.
#include "compiler/input/random_values.h"
#include "tests/gpu/gpu_spmm.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

using namespace sparsertc;

namespace {

/// What tensor cores multiply.
struct Kind {
  DataType type;
  Precision precision;
};
constexpr Kind kKinds[] = {{DataType::f16, Precision::full},
                           {DataType::bf16, Precision::full},
                           {DataType::f32, Precision::tf32},
                           {DataType::f32, Precision::full}};
constexpr Kind kSplit = kKinds[3];

GpuCase make_case(Matrix weights, const Kind& kind, uint32_t columns, std::string tile) {
  GpuCase test;
  test.weights = std::move(weights);
  test.problem.type = kind.type;
  test.problem.precision = kind.precision;
  test.problem.nonfinite = Nonfinite::dense;
  test.problem.columns = test.columns = columns;
  test.tile = std::move(tile);
  test.roads = {GpuRoad::direct};
  return test;
}

/// The largest error of an element over the sum of the magnitudes of its products.
double worst_relative_error(const PreparedCase& prepared, const std::vector<double>& result) {
  const Pattern& pattern = prepared.compiled.weights.pattern;
  const std::vector<double>& values = prepared.compiled.weights.values;
  const uint32_t columns = prepared.operands.columns;
  double worst = 0;
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (uint32_t column = 0; column < columns; ++column) {
      long double sum = 0, magnitude = 0;
      for (uint64_t i = pattern.row_offset[row]; i < pattern.row_offset[row + 1]; ++i) {
        const long double product =
            static_cast<long double>(static_cast<float>(values[i])) *
            prepared.operands.b[uint64_t{pattern.column_index[i]} * columns + column];
        sum += product;
        magnitude += fabsl(product);
      }
      if (magnitude > 0)
        worst = std::max(
            worst,
            static_cast<double>(fabsl(sum - result[uint64_t{row} * columns + column]) / magnitude));
    }
  return worst;
}

} // namespace

TEST_CASE("panels on tensor cores", "[interpret][sanitize]") {
  if (!Machine::get().can_test())
    return;
  constexpr const char* kWords[] = {
      "strategy=panels",
      "strategy=panels,rows=16,vec=4,groups=2,warps=1,prefetch=2",
      "strategy=panels,rows=32,vec=2,groups=1,warps=1,prefetch=4",
      "strategy=panels,rows=64,vec=1,groups=2,warps=1",
      "strategy=panels,rows=32,vec=2,groups=2,warps=1,splitk=2",
      "strategy=panels,rows=64,vec=1,groups=1,warps=1,splitk=4",
  };
  unsigned number = 0;
  for (const double density : {0.05, 0.4})
    for (const uint32_t columns : {1u, 33u, 136u})
      for (const Kind& kind : kKinds) {
        std::string words = kWords[(number + number / 4) % std::size(kWords)];
        // Of f32 in three parts there are always two rounds in shared memory, which has no room for
        // those of 128 columns a warp.
        if (kind.type == DataType::f32 && kind.precision == Precision::full) {
          words = words.substr(0, words.find(",prefetch"));
          if (const size_t wide = words.find("vec=4"); wide != std::string::npos)
            words.replace(wide, 5, "vec=2");
        }
        const Matrix weights = random_weights(100, 530, density, 41, number % 2 == 0);
        GpuCase test = make_case(weights, kind, columns, words);
        test.problem.layout = number % 5 == 4 ? Layout::column_major : Layout::row_major;
        test.problem.epilogue = {number % 3 == 0, number % 3 == 1,
                                 number % 7 == 0 ? Activation::silu : Activation::none};
        if (number % 6 == 0)
          test.roads.push_back(GpuRoad::llvm);
        check_case(test);
        ++number;
      }
}

TEST_CASE("panels of sums that cancel, with wide exponents") {
  if (!Machine::get().can_test())
    return;
  for (const Kind& kind : kKinds) {
    // Rows of pairs that cancel but for the last bits, beside numbers of all sizes.
    Matrix weights = random_weights(128, 1024, 0.2, 43);
    const bool is_narrow = kind.type == DataType::f16;
    for (size_t i = 0; i < weights.values.size(); ++i)
      weights.values[i] =
          std::ldexp(i % 2 == 0 ? 1.0 : -1.0 - 0x1p-9,
                     static_cast<int>(i / 2 % (is_narrow ? 12 : 60)) - (is_narrow ? 6 : 30));
    check_case(make_case(weights, kind, 64, "strategy=panels"));
  }
}

TEST_CASE("panels of f32 in three parts against adversaries") {
  if (!Machine::get().can_test())
    return;
  constexpr uint32_t kRows = 96, kInner = 700, kColumns = 64;
  constexpr const char* kNames[] = {"numbers of all sizes", "denormal numbers", "huge numbers",
                                    "all digits, rows that cancel"};
  for (uint32_t which = 0; which < std::size(kNames); ++which) {
    INFO(kNames[which]);
    Matrix weights = random_weights(kRows, kInner, 0.3, 47 + which);
    GpuCase test = make_case(weights, kSplit, kColumns, "strategy=panels");
    SplitMix64 random(which);
    const auto number = [&](int least, int largest) {
      const double fraction = 1 + static_cast<double>(random.next() >> 41) * 0x1p-23;
      const int exponent =
          least + static_cast<int>(random.next() % static_cast<uint64_t>(largest - least + 1));
      return std::ldexp(random.next() % 2 == 0 ? fraction : -fraction, exponent);
    };
    for (size_t i = 0; i < test.weights.values.size(); ++i) {
      double& value = test.weights.values[i];
      value = which == 0   ? number(-60, 60)
              : which == 1 ? number(-3, 3)
              : which == 2 ? number(-20, -12)
                           : (i % 2 == 0 ? number(0, 0) : -test.weights.values[i - 1]);
    }
    for (uint32_t i = 0; i < kInner * kColumns; ++i)
      test.b.push_back(static_cast<float>(which == 0   ? number(-40, 40)
                                          : which == 1 ? number(-140, -120)
                                          : which == 2 ? number(100, 127)
                                                       : 1 + 0x1p-12 * number(0, 0)));
    check_case(test);
  }
}

// The aim of three parts: errors like those of a chain of f32 multiply-adds, which the host has.
TEST_CASE("panels of f32 in three parts are as exact as f32") {
  if (!Machine::get().can_test())
    return;
  for (const uint32_t inner : {64u, 512u, 2048u}) {
    const PreparedCase prepared =
        prepare(make_case(random_weights(64, inner, 0.2, 53), kSplit, 64, "strategy=panels"),
                Machine::get().pool(), 0);
    run_and_check(prepared);
    if (!Machine::get().gpu())
      continue;
    const double chain = worst_relative_error(prepared, prepared.host_result);
    const double parts =
        worst_relative_error(prepared, run_on_gpu(prepared, prepared.programs.front()));
    fmt::print("columns {}: error over the sum of magnitudes {:.3g}, of a chain {:.3g}\n", inner,
               parts, chain);
    // Short chains are better than three parts by what these leave out.
    CHECK(parts <= chain + 0x1p-23);
  }
}
