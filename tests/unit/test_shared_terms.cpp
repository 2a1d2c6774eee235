// Tables of tasks by terms for lanes that share them: each derivative is stored once, by the thread
// that has the term.
#include "runtime/jacobian/shared_terms.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <map>
#include <vector>

using namespace sparsertc;
using namespace sparsertc::jacobian;

namespace {

/// A number for each derivative: of a task's own column k, or of column i of a term.
uint32_t own_number(uint32_t task, uint32_t k) {
  return 100000 + 100 * task + k;
}

/// Rows of 0 to 9 terms, by 4, 2 and 1 lanes; some columns are not used.
TermTasks tasks_of(uint32_t outer, uint32_t inner, uint32_t count, test::Random& random) {
  TermTasks tasks;
  tasks.outer = outer;
  tasks.inner = inner;
  const auto some = [&](std::vector<uint32_t>& columns, std::vector<uint32_t>& places,
                        uint32_t place) {
    columns.push_back(random.below(4) == 0 ? kNoTangent : place / 2);
    places.push_back(place);
  };
  for (uint32_t t = 0; t < count; ++t) {
    const uint32_t lanes = t < 3 ? 4 : t < 10 ? 2 : 1;
    const auto terms = static_cast<uint32_t>(random.below(10));
    tasks.row.push_back(7 * t + 1);
    for (uint32_t k = 0; k < outer; ++k)
      some(tasks.columns, tasks.places, own_number(t, k));
    for (uint32_t term = 0; term < terms; ++term)
      for (uint32_t i = 0; i < inner; ++i)
        some(tasks.term_columns, tasks.term_places, inner * (tasks.first.back() + term) + i);
    tasks.first.push_back(tasks.first.back() + terms);
    tasks.most_terms = std::max(tasks.most_terms, (terms + lanes - 1) / lanes);
  }
  tasks.lanes.task_end = {0, 0, 0, std::min(count, 3u), std::min(count, 10u), count};
  return tasks;
}

} // namespace

TEST_CASE("tables of shared terms: every derivative is stored once") {
  const uint64_t seed = 11;
  CAPTURE(seed);
  test::Random random(seed);
  for (const uint32_t outer : {1u, 2u, 4u})
    for (const uint32_t inner : {1u, 2u, 4u})
      for (const uint32_t count : {1u, 9u, 50u}) {
        CAPTURE(outer, inner, count);
        const TermTasks tasks = tasks_of(outer, inner, count, random);
        REQUIRE(by_lanes(tasks));
        const SharedTerms made = shared_terms(tasks);
        const uint64_t all = made.threads;
        CHECK(all % 32 == 0);
        CHECK(made.kept_numbers == tasks.most_terms * inner + outer);
        REQUIRE(made.head.size() == (2 + outer) * all);
        // What each thread computes, by its results' numbers.
        std::map<uint64_t, uint32_t> places; // of warp * 2^32 + result
        std::map<uint32_t, uint32_t> threads_of_row;
        for (uint64_t t = 0; t < all; ++t) {
          const uint32_t counts = made.head[all + t], lanes = counts & 63,
                         terms = counts >> 6 & 1023;
          if (lanes == 0) {
            CHECK(terms == 0);
            continue;
          }
          const uint32_t row = made.head[t], task = (row - 1) / 7, lane = threads_of_row[row]++;
          CHECK(lane == t % lanes); // lanes of a task are neighbours
          const uint64_t result = t / 32 << 32 | t % 32;
          uint32_t mine = 0;
          for (uint32_t term = tasks.first[task] + lane; term < tasks.first[task + 1];
               term += lanes, ++mine)
            for (uint32_t i = 0; i < inner; ++i) {
              const uint32_t number = mine * inner + i, from = term * inner + i;
              CHECK(made.columns[number * all + t] == tasks.term_columns[from]);
              if (tasks.term_columns[from] != kNoTangent)
                places[result + uint64_t{number} * kSharedBlockThreads] = tasks.term_places[from];
            }
          CHECK(terms == mine);
          for (uint32_t k = 0; k < outer; ++k) {
            const uint32_t from = task * outer + k;
            CHECK(made.head[(2 + k) * all + t] == tasks.columns[from]);
            if (lane == 0 && tasks.columns[from] != kNoTangent)
              places[result + uint64_t{tasks.most_terms * inner + k} * kSharedBlockThreads] =
                  tasks.places[from];
          }
        }
        CHECK(threads_of_row.size() == count);
        // What is stored.
        std::map<uint64_t, uint32_t> stored;
        for (uint64_t t = 0; t < all; ++t) {
          const uint32_t rounds = made.head[all + t] >> 16;
          uint32_t last = 0;
          for (uint64_t k = 0; k < made.stores.size() / all; ++k) {
            const ResultStore& store = made.stores[k * all + t];
            if (k >= rounds)
              CHECK(store.place == kNoTangent);
            if (store.place == kNoTangent)
              continue;
            CHECK(store.place >= last);
            last = store.place;
            CHECK(stored.emplace((t / 32 << 32) + store.result, store.place).second);
          }
        }
        CHECK(stored == places);
      }
}
