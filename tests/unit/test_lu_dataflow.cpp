// The packets of the dataflow kernels: every task once with all of its products, and an order in
// which the first unfinished task can always go on.
#include "compiler/inspect/lu_dataflow.h"
#include "compiler/inspect/lu_schedule.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

using namespace sparsertc;
using test::Random;

namespace {

constexpr uint32_t kLanes = LuDataflow::kLanes;
constexpr uint32_t kProducts = LuDataflow::kProducts;

/// What one lane group of a packet computes.
struct Found {
  uint32_t result = 0;
  std::vector<std::vector<uint32_t>> products; ///< operand words
  uint64_t packet = 0;
};

/// The tasks of a stream in order. Fails where a lane outside of all tasks has products.
std::vector<Found> tasks_of_stream(const LuDataflow& flow, uint32_t stream) {
  std::vector<Found> found;
  std::vector<std::vector<std::vector<uint32_t>>> waiting(kLanes); // by lane
  for (uint64_t packet = flow.stream_offset[stream]; packet < flow.stream_offset[stream + 1];
       ++packet) {
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      for (uint32_t p = 0; p < kProducts; ++p) {
        std::vector<uint32_t> words;
        for (uint32_t w = 0; w < flow.operand_words; ++w)
          words.push_back(
              flow.operands[((packet * flow.operand_words + w) * kLanes + lane) * kProducts + p]);
        if (words[0] != kNoWord)
          waiting[lane].push_back(words);
      }
    const uint32_t group = flow.group[packet];
    if (group == 0)
      continue;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t result = flow.task[(packet * kLanes + lane) * flow.task_words];
      if (result == kNoWord)
        continue;
      REQUIRE(lane % group == 0);
      Found task{result, {}, packet};
      for (uint32_t l = lane; l < lane + group; ++l) {
        task.products.insert(task.products.end(), waiting[l].begin(), waiting[l].end());
        waiting[l].clear();
      }
      found.push_back(std::move(task));
    }
    for (const auto& lane : waiting)
      REQUIRE(lane.empty());
  }
  return found;
}

/// Fails unless work can always go on: each stream's tasks, a packet at a time, until all are done.
/// `is_given(word, operand)` says what is there from the beginning. Of a solve with so many
/// unknowns, x(i) also starts from z(i).
template <class IsGiven>
uint64_t run_streams(const LuDataflow& flow, uint32_t results, const IsGiven& is_given,
                     uint32_t unknowns = 0) {
  std::vector<std::vector<Found>> streams;
  uint64_t left = 0;
  for (uint32_t s = 0; s < flow.streams(); ++s) {
    streams.push_back(tasks_of_stream(flow, s));
    left += streams.back().size();
  }
  std::vector<size_t> next(streams.size(), 0);
  std::vector<bool> done(results, false);
  uint64_t count = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < streams.size(); ++s) {
      const std::vector<Found>& tasks = streams[s];
      while (next[s] < tasks.size()) {
        size_t end = next[s];
        bool ready = true;
        for (; end < tasks.size() && tasks[end].packet == tasks[next[s]].packet; ++end) {
          if (unknowns > 0 && tasks[end].result >= 2 * unknowns)
            ready = ready && done[tasks[end].result - unknowns];
          for (const std::vector<uint32_t>& words : tasks[end].products)
            for (size_t w = 0; w < words.size(); ++w)
              ready = ready && (is_given(w, words[w]) || done[words[w]]);
        }
        if (!ready)
          break;
        for (; next[s] < end; ++next[s], ++count) {
          REQUIRE_FALSE(done[tasks[next[s]].result]);
          done[tasks[next[s]].result] = true;
        }
        moved = true;
      }
    }
  }
  CHECK(count == left);
  return count;
}

LuTables tables_of(const Pattern& pattern) {
  Permutation order(pattern.rows);
  std::iota(order.begin(), order.end(), 0u);
  return make_lu_tables(pattern, {order, order, {}, {}});
}

} // namespace

TEST_CASE("lu dataflow: every task once, with its products, and never stuck") {
  const uint64_t seed = 4;
  INFO("seed " << seed);
  Random random(seed);
  std::vector<test::NamedPattern> patterns = test::hostile_squares(70);
  patterns.push_back({"random", test::random_square(random, 90, 3)});
  patterns.push_back({"grid", test::random_grid(random, 9, 11, 0.2)});
  for (const test::NamedPattern& named : patterns)
    for (const LuDataflowOptions& options : {LuDataflowOptions{1, 4}, LuDataflowOptions{3, 4},
                                             LuDataflowOptions{64, 1}, LuDataflowOptions{5, 16}}) {
      INFO(named.name << ", " << options.warps << " warps");
      const LuTables tables = tables_of(named.pattern);
      const LuGather gather = *make_lu_gather(tables, uint64_t{1} << 30);
      const LuDataflow factor = make_factor_dataflow(tables, gather, options);
      CHECK(factor.streams() == options.warps);
      const auto none = [](size_t, uint32_t) { return false; };
      CHECK(run_streams(factor, static_cast<uint32_t>(tables.nnz()), none) == tables.nnz());

      std::map<uint32_t, std::vector<std::vector<uint32_t>>> expected;
      for (uint64_t task = 0; task < gather.tasks(); ++task)
        for (uint64_t p = gather.pair_offset[task]; p < gather.pair_offset[task + 1]; ++p)
          expected[static_cast<uint32_t>(gather.task_slot[task])].push_back(
              {gather.pair_left[p], gather.pair_right[p], gather.pair_pivot[p]});
      for (uint32_t s = 0; s < factor.streams(); ++s)
        for (Found& task : tasks_of_stream(factor, s)) {
          std::sort(task.products.begin(), task.products.end());
          std::sort(expected[task.result].begin(), expected[task.result].end());
          CHECK(task.products == expected[task.result]);
        }

      for (const bool transposed : {false, true}) {
        const LuDataflow solve = make_solve_dataflow(tables, options, transposed);
        // The entries are there, and z and x are to be computed.
        const auto given = [](size_t word, uint32_t) { return word == 0; };
        CHECK(run_streams(solve, kSolveVectors * tables.size, given, tables.size) ==
              2 * uint64_t{tables.size});
        uint64_t products = 0;
        for (uint32_t s = 0; s < solve.streams(); ++s)
          for (const Found& task : tasks_of_stream(solve, s))
            products += task.products.size();
        CHECK(products == tables.nnz() - tables.size);
      }
    }
}

TEST_CASE("lu dataflow: the same tables give the same packets") {
  Random random(8);
  const LuTables tables = tables_of(test::random_square(random, 50, 4));
  const LuGather gather = *make_lu_gather(tables, uint64_t{1} << 30);
  const LuDataflow once = make_factor_dataflow(tables, gather, {7, 4});
  const LuDataflow again = make_factor_dataflow(tables, gather, {7, 4});
  CHECK(once.operands == again.operands);
  CHECK(once.task == again.task);
  CHECK(once.stream_offset == again.stream_offset);
}
