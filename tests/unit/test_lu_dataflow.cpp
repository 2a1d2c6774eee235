// The packets of the dataflow kernels: every task once with all of its products, and an order in
// which the first unfinished task can always go on.
#include "compiler/inspect/lu_dataflow.h"
#include "compiler/inspect/lu_partial_sums.h"
#include "compiler/inspect/lu_schedule.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

using namespace sparsertc;
using test::Random;

namespace {

constexpr uint32_t kLanes = LuDataflow::kLanes;
constexpr uint32_t kProducts = LuDataflow::kProducts;

/// What one lane group of a packet computes.
struct Found {
  uint32_t result = 0;
  std::vector<uint32_t> words;                 ///< of the task
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
      const uint32_t* const words = &flow.task[(packet * kLanes + lane) * flow.task_words];
      const uint32_t result = words[0];
      if (result == kNoWord)
        continue;
      REQUIRE(lane % group == 0);
      Found task{result, {words, words + flow.task_words}, {}, packet};
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
          else if (unknowns == 0 && static_cast<int32_t>(tasks[end].words[2]) >= 0)
            ready = ready && done[tasks[end].words[2]]; // the partial sum it starts from
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
    for (const LuDataflowOptions& options :
         {LuDataflowOptions{1, 4}, LuDataflowOptions{3, 4}, LuDataflowOptions{64, 1},
          LuDataflowOptions{5, 16}, LuDataflowOptions{12, 4, 6, 2}}) {
      INFO(named.name << ", " << options.warps << " warps");
      const LuTables tables = tables_of(named.pattern);
      const LuGather gather = *make_lu_gather(tables, uint64_t{1} << 30);
      const LuDataflow factor = make_factor_dataflow(tables, gather, options);
      CHECK(factor.streams() == options.warps);
      for (uint32_t s = 0; s < options.warps; ++s)
        if (s % options.block_warps >= options.busy_warps)
          CHECK(factor.stream_offset[s] == factor.stream_offset[s + 1]);
      const auto slots = static_cast<uint32_t>(tables.nnz());
      const std::vector<bool> free = given_slots(factor, slots);
      const auto given_count = std::count(free.begin(), free.end(), true);
      const auto is_given = [&](size_t, uint32_t slot) { return free[slot]; };
      CHECK(run_streams(factor, slots + factor.partial_sums, is_given) + given_count ==
            slots + factor.partial_sums);

      std::map<uint32_t, std::vector<std::vector<uint32_t>>> expected;
      for (uint64_t task = 0; task < gather.tasks(); ++task)
        for (uint64_t p = gather.pair_offset[task]; p < gather.pair_offset[task + 1]; ++p)
          expected[static_cast<uint32_t>(gather.task_slot[task])].push_back(
              {gather.pair_left[p], gather.pair_right[p], gather.pair_pivot[p]});
      // A partial sum belongs to the entry whose b(i,j) it starts from, and that starts from it.
      std::map<uint32_t, std::vector<std::vector<uint32_t>>> found;
      std::map<uint32_t, uint32_t> sum_of, started;
      for (uint32_t s = 0; s < factor.streams(); ++s)
        for (const Found& task : tasks_of_stream(factor, s)) {
          const bool is_sum = task.words[3] != 0;
          CHECK(is_sum == (task.result >= slots));
          const uint32_t slot = is_sum ? ~task.words[2] : task.result;
          if (is_sum)
            sum_of[slot] = task.result;
          else if (task.words[2] != ~slot)
            started[slot] = task.words[2];
          auto& products = found[slot];
          products.insert(products.end(), task.products.begin(), task.products.end());
        }
      CHECK(sum_of == started);
      CHECK(sum_of.size() == factor.partial_sums);
      CHECK(found.size() + given_count == slots);
      // Free, given, are the entries of B off the diagonal that have no products.
      for (uint32_t j = 0; j < tables.size; ++j) {
        CHECK_FALSE(free[tables.diagonal[j]]);
        for (uint64_t p = tables.input_offset[j]; p < tables.input_offset[j + 1]; ++p)
          if (const uint64_t slot = tables.input_slot[p]; slot != tables.diagonal[j])
            CHECK(free[slot] == expected[static_cast<uint32_t>(slot)].empty());
      }
      for (auto& [slot, products] : found) {
        std::sort(products.begin(), products.end());
        std::sort(expected[slot].begin(), expected[slot].end());
        CHECK(products == expected[slot]);
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

TEST_CASE("lu dataflow: a partial sum has the products that come first") {
  const uint64_t seed = 5;
  INFO("seed " << seed);
  Random random(seed);
  // Full at its end, where each column waits for the one before.
  const LuTables tables = tables_of(test::random_square(random, 120, 6));
  const LuGather gather = *make_lu_gather(tables, uint64_t{1} << 30);
  const LuFlowTasks flow = split_gather(tables, gather, kProducts);
  CHECK(flow.partial_sums > tables.size);
  uint64_t products = 0;
  std::vector<uint64_t> pairs;
  std::vector<uint64_t> ready(tables.nnz() + flow.partial_sums);
  for (const LuFlowTask& task : flow.tasks) {
    products += task.count;
    const uint64_t slot = gather.task_slot[task.gather];
    const bool is_cut = task.partial_sum != kNoPartialSum;
    ready[task.is_partial ? tables.nnz() + task.partial_sum : slot] = task.ready;
    CHECK((is_cut || task.first == 0));
    if (is_cut && !task.is_partial) {
      CHECK(task.ready > ready[tables.nnz() + task.partial_sum] + kHopClocks);
      CHECK(task.count <= task.lanes * kProducts);
    }
    flow.order_products(gather, task.gather, pairs);
    uint64_t last = 0;
    for (uint32_t p = 0; p < task.first + task.count; ++p) {
      uint64_t published = 0;
      for (const uint32_t operand :
           {gather.pair_left[pairs[p]], gather.pair_right[pairs[p]], gather.pair_pivot[pairs[p]]}) {
        published = std::max(published, flow.published[operand]);
        // What it waits for is of an earlier hop.
        CHECK((p < task.first || task.ready / kHopClocks > ready[operand] / kHopClocks));
      }
      CHECK(published >= last);
      last = published;
    }
  }
  CHECK(products == gather.pairs());
}

TEST_CASE("lu dataflow: a gate is what an operand of its packet needs") {
  const uint64_t seed = 6;
  INFO("seed " << seed);
  Random random(seed);
  const LuTables tables = tables_of(test::random_square(random, 90, 4));
  const LuGather gather = *make_lu_gather(tables, uint64_t{1} << 30);
  std::vector<std::set<uint32_t>> needs(tables.nnz());
  for (uint64_t id = 0; id < gather.tasks(); ++id)
    for (uint64_t p = gather.pair_offset[id]; p < gather.pair_offset[id + 1]; ++p)
      needs[gather.task_slot[id]].insert(
          {gather.pair_left[p], gather.pair_right[p], gather.pair_pivot[p]});
  const LuDataflow flow = make_factor_dataflow(tables, gather, {3, 4});
  const uint64_t words = uint64_t{3} * kLanes * kProducts;
  uint32_t gates = 0;
  for (uint64_t packet = 0; packet < flow.packets(); ++packet) {
    bool needs_any = false, needs_gate = false;
    for (uint64_t at = packet * words; at < (packet + 1) * words; ++at)
      if (const uint32_t operand = flow.operands[at]; operand != kNoWord) {
        needs_any = needs_any || !needs[operand].empty();
        needs_gate = needs_gate || needs[operand].contains(flow.gate[packet]);
      }
    CHECK((flow.gate[packet] != kNoWord) == needs_any);
    CHECK(needs_gate == needs_any);
    gates += needs_gate;
  }
  CHECK(gates > 0);
}

TEST_CASE("lu dataflow: the same tables give the same packets") {
  Random random(8);
  const LuTables tables = tables_of(test::random_square(random, 50, 4));
  const LuGather gather = *make_lu_gather(tables, uint64_t{1} << 30);
  const LuDataflow once = make_factor_dataflow(tables, gather, {7, 4});
  const LuDataflow again = make_factor_dataflow(tables, gather, {7, 4});
  CHECK(once.operands == again.operands);
  CHECK(once.task == again.task);
  CHECK(once.gate == again.gate);
  CHECK(once.stream_offset == again.stream_offset);
}
