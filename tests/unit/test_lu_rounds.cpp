// The factorization and solve in rounds (compiler/inspect/lu_rounds.h): its tables, and its kernel
// as host code, bit by bit against the sums of a batch one after the other.
#include "tests/support/cuda_on_host.h"

#define SPARSERTC_LU_GROUP 4
#define SPARSERTC_LU_THREADS 32
#include "runtime/kernels/lu_rounds.cu"

#include "compiler/inspect/lu_rounds.h"
#include "ir/error.h"
#include "runtime/lu/gpu_rounds.h"
#include "tests/support/fake_cuda_driver.h"
#include "tests/support/lu_batch.h"
#include "tests/support/lu_dataflow.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <vector>

namespace sparsertc {
namespace {

using test::Random;
using Vector = std::vector<double>;

constexpr lu::GpuRoundsShape kShape{SPARSERTC_LU_GROUP, SPARSERTC_LU_THREADS};

/// A driver whose only kernel runs as host code.
struct Scene {
  cuda::FakeCudaDriver fake;
  std::unique_ptr<cuda::Context> context;

  Scene() {
    fake.kernels = {lu::kLuRoundsKernel};
    fake.attributes[cuda::DeviceAttribute::multiprocessor_count] = 3;
    fake.on_launch = [](const cuda::FakeCudaDriver::Launch& launch) {
      kernels::LuRoundsCall call;
      std::memcpy(&call, launch.parameters[0], sizeof call);
      test::cuda_on_host::run(launch.grid[0], launch.block[0], false,
                              [&] { kernels::sparsertc_lu_rounds(call); });
    };
    context = std::make_unique<cuda::Context>(std::make_shared<const cuda::Driver>(fake.table()));
  }
};

/// On a device of its own.
void check(const LuTables& tables, const std::vector<Vector>& values, Random& random,
           double threshold = 0) {
  const Scene scene;
  const std::vector<uint8_t> image = {'x'};
  test::check_rounds(*scene.context, image, kShape, tables, values, random, threshold);
}

struct TermWords {
  uint32_t left, right, pivot;
};

TEST_CASE("lu_rounds: small matrices of many shapes, bit by bit") {
  const uint32_t seed = 21;
  INFO("seed " << seed);
  Random random(seed);
  for (const test::NamedPattern& one : test::hostile_squares(12)) {
    CAPTURE(one.name);
    const LuTables tables = test::tables_in_order(one.pattern, &random);
    for (const size_t instances : {size_t{1}, size_t{4}, size_t{27}}) {
      CAPTURE(instances);
      std::vector<Vector> values;
      for (size_t s = 0; s < instances; ++s)
        values.push_back(test::dominant_values(one.pattern, random));
      check(tables, values, random);
    }
  }
}

TEST_CASE("lu_rounds: pivots that are replaced, zeros and what is not finite stay with theirs") {
  const uint32_t seed = 22;
  INFO("seed " << seed);
  Random random(seed);
  const Pattern pattern = test::random_square(random, 40, 3);
  const LuTables tables = test::tables_in_order(pattern, &random);
  std::vector<Vector> values;
  for (int s = 0; s < 9; ++s)
    values.push_back(test::dominant_values(pattern, random));
  check(tables, values, random, 0.9);
  values[2][5] = std::numeric_limits<double>::quiet_NaN();
  values[3][7] = std::numeric_limits<double>::infinity();
  std::fill(values[6].begin(), values[6].end(), 0.0);
  check(tables, values, random);
}

TEST_CASE("lu_rounds: every term once, in order, and never before its numbers") {
  const uint32_t seed = 23;
  INFO("seed " << seed);
  Random random(seed);
  const Pattern pattern = test::random_grid(random, 9, 7, 0.3);
  const LuTables tables = test::tables_in_order(pattern, &random);
  for (const uint32_t workers : {1u, 3u, 32u}) {
    CAPTURE(workers);
    const LuRounds rounds = *make_lu_rounds(tables, workers);
    const uint32_t y = rounds.first_y, lower = rounds.first_lower, n = tables.size;
    REQUIRE(rounds.numbers == y + n);
    // Which number a slot has, by what a worker brings in: then by the order of what is left.
    std::vector<uint32_t> number(tables.nnz());
    uint32_t next = lower;
    for (const bool is_lower : {true, false}) {
      for (uint32_t j = 0; j < n; ++j)
        for (uint64_t slot = tables.column_offset[j]; slot < tables.column_offset[j + 1]; ++slot)
          if (slot == tables.diagonal[j])
            number[slot] = j;
          else if ((slot > tables.diagonal[j]) == is_lower)
            number[slot] = next++;
      next = is_lower ? std::max(next, lower + n) : next;
    }
    CHECK(next == y);
    const LuGather gather = *make_lu_gather(tables, UINT64_MAX / 2);
    std::vector<uint32_t> ready(rounds.numbers, 0); // the first round that may read it
    for (uint64_t task = 0; task < gather.tasks(); ++task)
      if (gather.pair_offset[task] < gather.pair_offset[task + 1])
        ready[number[gather.task_slot[task]]] = UINT32_MAX;
    for (uint32_t i = 0; i < tables.size; ++i) {
      ready[i] = UINT32_MAX;
      if (tables.row_offset[i] < tables.row_diagonal[i])
        ready[y + i] = UINT32_MAX;
    }
    std::vector<std::vector<TermWords>> terms(rounds.numbers), solve_terms(n);
    std::vector<size_t> at(rounds.begin.begin(), rounds.begin.end());
    uint64_t longest = 0;
    for (uint32_t round = 0; round < rounds.rounds(); ++round) {
      const bool solves = round >= rounds.factor_rounds;
      if (round == rounds.factor_rounds) {
        CHECK(*std::max_element(ready.begin(), ready.end()) <= round);
        std::fill_n(ready.begin() + y, n, UINT32_MAX); // x from now on
      }
      uint64_t most = 0;
      std::set<uint32_t> touched;
      for (uint32_t w = 0; w < workers; ++w) {
        uint64_t load = 0;
        for (bool more = true; more;) {
          const uint32_t word = rounds.words[at[w]++];
          more = (word >> 24 & 1) != 0;
          const uint32_t sum = word & 0x7FF, count = word >> 11 & 0x3FF;
          const auto finish = static_cast<LuRoundsFinish>(word >> 21 & 7);
          if (finish == LuRoundsFinish::nothing)
            continue;
          std::vector<TermWords>& own = solves ? solve_terms[sum - lower] : terms[sum];
          CHECK((word >> 25 & 1) == (solves && own.empty() ? 1 : 0));
          CHECK(touched.insert(sum).second);
          load += kLuSegmentTerms + count;
          for (uint32_t t = 0; t < count; ++t) {
            const uint32_t term = rounds.words[at[w]++];
            const TermWords found{term & 0x7FF, term >> 11 & 0x7FF, term >> 22};
            for (const uint32_t read : {found.left, found.right, found.pivot})
              CHECK(ready[read] <= round);
            own.push_back(found);
          }
          const bool is_y = !solves && sum >= y;
          const bool ends =
              is_y ? own.size() == tables.row_diagonal[sum - y] - tables.row_offset[sum - y]
                   : finish != LuRoundsFinish::store;
          if (ends)
            ready[solves ? sum - lower + y : sum] = round + 1;
        }
        most = std::max(most, load);
      }
      longest += most;
    }
    CHECK(longest <= rounds.longest);
    CHECK(*std::max_element(ready.begin(), ready.end()) <= rounds.rounds());
    for (uint64_t task = 0; task < gather.tasks(); ++task) {
      const std::vector<TermWords>& found = terms[number[gather.task_slot[task]]];
      const uint64_t first = gather.pair_offset[task];
      REQUIRE(found.size() == gather.pair_offset[task + 1] - first);
      for (size_t t = 0; t < found.size(); ++t) {
        CHECK(found[t].left == number[gather.pair_left[first + t]]);
        CHECK(found[t].right == number[gather.pair_right[first + t]]);
        CHECK(found[t].pivot == number[gather.pair_pivot[first + t]]);
      }
    }
    for (uint32_t i = 0; i < tables.size; ++i) {
      CHECK(terms[y + i].size() == tables.row_diagonal[i] - tables.row_offset[i]);
      CHECK(solve_terms[i].size() == tables.row_offset[i + 1] - tables.row_diagonal[i] - 1);
    }
  }
}

TEST_CASE("lu_rounds: what does not fit") {
  Random random(24);
  const LuTables large = test::tables_in_order(test::random_square(random, 1100, 1), &random);
  CHECK_FALSE(make_lu_rounds(large, 8));
  const LuTables tables = test::tables_in_order(test::random_square(random, 20, 3), &random);
  const LuRounds rounds = *make_lu_rounds(tables, kShape.workers());
  const Scene scene;
  const std::vector<uint8_t> image = {'x'};
  const auto make = [&](const lu::GpuRoundsShape& shape, uint64_t instances) {
    return lu::GpuRounds(*scene.context, image, rounds, tables, shape, instances);
  };
  CHECK_THROWS_AS(make(kShape, 0), UserError);
  CHECK_THROWS_AS(make({kShape.group, 2 * kShape.threads}, 5), InternalError);
  const lu::GpuRounds solver = make(kShape, 5);
  const cuda::Stream stream(*scene.context);
  CHECK_THROWS_AS(solver.solve(4096, 8192, 8192 + 8, stream), UserError);
}

} // namespace
} // namespace sparsertc
