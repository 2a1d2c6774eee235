#include "runtime/host/task_pool.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace sparsertc;

TEST_CASE("every task runs exactly once") {
  for (unsigned threads : {0u, 1u, 2u, 5u}) {
    TaskPool pool(threads);
    REQUIRE(pool.threads() >= 1);
    if (threads != 0)
      REQUIRE(pool.threads() == threads);
    for (uint64_t count :
         {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{1000}, uint64_t{100003}}) {
      std::vector<std::atomic<int>> calls(count);
      pool.run(count, [&](uint64_t i) { calls[i].fetch_add(1); });
      for (uint64_t i = 0; i < count; ++i)
        if (calls[i].load() != 1)
          FAIL("task " << i << " of " << count << " ran " << calls[i].load() << " times");
    }
  }
}

TEST_CASE("many short runs follow one another, also after the threads fell asleep") {
  TaskPool pool(3);
  std::atomic<uint64_t> sum{0};
  for (int run = 0; run < 2000; ++run) {
    pool.run(2, [&](uint64_t i) { sum.fetch_add(i + 1); });
    if (run % 500 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  REQUIRE(sum.load() == 2000 * 3);
}

TEST_CASE("the first exception of a task reaches the caller and the pool lives on") {
  for (unsigned threads : {1u, 4u}) {
    TaskPool pool(threads);
    std::atomic<uint64_t> calls{0};
    REQUIRE_THROWS_AS(pool.run(1000000,
                               [&](uint64_t i) {
                                 calls.fetch_add(1);
                                 if (i == 5)
                                   throw std::runtime_error("five");
                               }),
                      std::runtime_error);
    REQUIRE(calls.load() < 1000000);
    std::atomic<uint64_t> again{0};
    pool.run(100, [&](uint64_t) { again.fetch_add(1); });
    REQUIRE(again.load() == 100);
  }
}

TEST_CASE("several threads may share a pool") {
  TaskPool pool(2);
  std::atomic<uint64_t> calls{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int run = 0; run < 50; ++run)
        pool.run(20, [&](uint64_t) { calls.fetch_add(1); });
    });
  for (std::thread& caller : callers)
    caller.join();
  REQUIRE(calls.load() == 4 * 50 * 20);
}

TEST_CASE("a run of two short tasks costs microseconds", "[.timing]") {
  TaskPool pool(2);
  std::atomic<uint64_t> sum{0};
  constexpr int kRuns = 20000;
  const auto start = std::chrono::steady_clock::now();
  for (int run = 0; run < kRuns; ++run)
    pool.run(2, [&](uint64_t i) { sum.fetch_add(i); });
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  WARN("a run of two tasks: " << took.count() / kRuns << " us");
  REQUIRE(sum.load() == kRuns);
}
