// How Jacobians are evaluated: every entry is found by exactly one tangent.
#include "compiler/inspect/jacobian_schedule.h"
#include "ir/error.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

using namespace sparsertc;
using Catch::Contains;
using test::Random;

namespace {

using Entry = std::pair<uint32_t, uint32_t>;

/// By place, which entry the tasks store there; fails where two do.
std::map<uint32_t, Entry> stored(const Pattern& pattern, const JacobianTables& tables) {
  std::map<uint32_t, Entry> entries;
  for (const LocalTasks& tasks : tables.local) {
    REQUIRE(tasks.columns.size() == tasks.width * tasks.count());
    REQUIRE(tasks.places.size() == tasks.width * tasks.count());
    for (uint64_t k = 0; k < tasks.columns.size(); ++k)
      if (tasks.columns[k] != kNoTangent)
        CHECK(entries.emplace(tasks.places[k], Entry{tasks.row[k / tasks.width], tasks.columns[k]})
                  .second);
  }
  const TermTasks& terms = tables.terms;
  REQUIRE(terms.columns.size() == terms.outer * terms.count());
  REQUIRE(terms.first.size() == terms.count() + 1);
  REQUIRE(terms.term_columns.size() == uint64_t{terms.inner} * terms.first.back());
  const auto add = [&](uint32_t row, const std::vector<uint32_t>& columns,
                       const std::vector<uint32_t>& places, uint64_t begin, uint64_t end) {
    for (uint64_t k = begin; k < end; ++k)
      if (columns[k] != kNoTangent)
        CHECK(entries.emplace(places[k], Entry{row, columns[k]}).second);
  };
  for (uint64_t t = 0; t < terms.count(); ++t) {
    add(terms.row[t], terms.columns, terms.places, terms.outer * t, terms.outer * (t + 1));
    add(terms.row[t], terms.term_columns, terms.term_places, uint64_t{terms.inner} * terms.first[t],
        uint64_t{terms.inner} * terms.first[t + 1]);
  }
  const ColouredTasks& coloured = tables.coloured;
  for (uint64_t t = 0; t < coloured.count(); ++t)
    for (uint64_t e = coloured.offset[t]; e < coloured.offset[t + 1]; ++e) {
      // The one column of the row with this colour.
      const uint64_t colour = t * coloured.width + coloured.tangent[e];
      std::vector<uint32_t> columns;
      for (const uint32_t j : pattern.row(coloured.row[e]))
        if (coloured.colour[j] == colour)
          columns.push_back(j);
      REQUIRE(columns.size() == 1);
      CHECK(entries.emplace(coloured.places[e], Entry{coloured.row[e], columns[0]}).second);
    }
  return entries;
}

void check_tables(const Pattern& pattern, const JacobianTables& tables,
                  const std::vector<uint32_t>& places) {
  const std::map<uint32_t, Entry> entries = stored(pattern, tables);
  CHECK(entries.size() == pattern.nnz());
  for (uint32_t i = 0; i < pattern.rows; ++i)
    for (uint64_t k = pattern.row_offset[i]; k < pattern.row_offset[i + 1]; ++k) {
      const auto found = entries.find(places.empty() ? static_cast<uint32_t>(k) : places[k]);
      REQUIRE(found != entries.end());
      CHECK(found->second == Entry{i, pattern.column_index[k]});
    }
}

/// Each task has the least power of two of lanes with at most `share` entries each, up to 32.
void check_lanes(const Pattern& pattern, const std::vector<uint32_t>& row, const TaskLanes& lanes,
                 uint32_t share) {
  REQUIRE(lanes.task_end.back() == row.size());
  size_t group = 0;
  for (uint32_t t = 0; t < row.size(); ++t) {
    while (t >= lanes.task_end[group])
      ++group;
    const uint32_t own = 32u >> group;
    const uint64_t entries = pattern.row_length(row[t]);
    CHECK((own == 32 || uint64_t{own} * share >= entries));
    CHECK((own == 1 || uint64_t{own} / 2 * share < entries));
  }
}

} // namespace

TEST_CASE("jacobian schedule: every entry by one tangent, in every way") {
  const uint64_t seed = 61;
  CAPTURE(seed);
  Random random(seed);
  for (int round = 0; round < 12; ++round) {
    const Pattern pattern = test::random_square(random, 1 + 5 * static_cast<uint32_t>(round), 4);
    std::vector<uint32_t> places(pattern.nnz());
    std::iota(places.begin(), places.end(), 0u);
    std::reverse(places.begin(), places.end());
    for (const uint32_t width : {0u, 1u, 2u, 4u, 8u})
      for (const bool local : {true, false})
        for (const bool moved : {true, false}) {
          JacobianScheduleOptions options;
          options.width = width;
          options.compression = local ? JacobianCompression::local : JacobianCompression::coloured;
          if (moved)
            options.places = places;
          const JacobianSchedule schedule = schedule_jacobian(pattern, options);
          CHECK(schedule.chosen.compression == *options.compression);
          CHECK(schedule.tables.pattern == to_jacobian_pattern(pattern));
          check_tables(pattern, schedule.tables, moved ? places : std::vector<uint32_t>());
          uint64_t tasks = schedule.tables.coloured.count();
          for (const LocalTasks& one : schedule.tables.local)
            tasks += one.count();
          CHECK(tasks == schedule.chosen.tasks);
        }
  }
}

TEST_CASE("jacobian schedule: rows by themselves where the residual allows") {
  Random random(5);
  const Pattern pattern = test::random_square(random, 40, 4);
  JacobianScheduleOptions options;
  const JacobianSchedule by_row = schedule_jacobian(pattern, options);
  CHECK(by_row.chosen.compression == JacobianCompression::local);
  CHECK(by_row.candidates.size() == 9);
  CHECK(to_pattern(by_row.tables.pattern) == pattern);
  options.by_row = false;
  const JacobianSchedule whole = schedule_jacobian(pattern, options);
  CHECK(whole.chosen.compression == JacobianCompression::coloured);
  CHECK(whole.candidates.size() == 4);
  CHECK(whole.colours >= whole.colours_lower_bound);
  options.compression = JacobianCompression::local;
  CHECK_THROWS_WITH(schedule_jacobian(pattern, options), Contains("all rows at once"));
}

TEST_CASE("jacobian schedule: the width follows the machine") {
  // A long row among short ones: alone it would take all the time of a wide machine.
  Pattern pattern;
  pattern.rows = pattern.columns = 2000;
  pattern.row_offset = {0};
  for (uint32_t i = 0; i < pattern.rows; ++i) {
    for (uint32_t j = 0; j < (i == 0 ? 1000u : 1u); ++j)
      pattern.column_index.push_back(i == 0 ? j : i);
    pattern.row_offset.push_back(pattern.column_index.size());
  }
  JacobianScheduleOptions options;
  const auto of = [&](const JacobianMachine& machine) {
    options.machine = machine;
    return schedule_jacobian(pattern, options).chosen;
  };
  CHECK(of(JacobianMachine::cpu()).width == 0);
  CHECK(of({1e9, 650, 2000, 1}).width == 1);
  // Kernels cost, too.
  CHECK(of({1, 0, 1e12, 1}).kernels == 1);
}

TEST_CASE("jacobian schedule: threads share tasks where there are sums and threads") {
  Random random(6);
  const Pattern pattern = test::random_square(random, 50, 30);
  JacobianScheduleOptions options;
  options.machine = JacobianMachine::gpu(132, 1);
  const auto tables = [&] { return schedule_jacobian(pattern, options).tables; };
  CHECK_FALSE(tables().rows.lanes.shared());
  CHECK(tables().rows.row.empty());
  options.has_sums = true;
  CHECK(tables().rows.lanes.shared());
  for (const uint32_t share : {1u, 2u, 4u, 16u}) {
    CAPTURE(share);
    options.entries_per_lane = share;
    const JacobianTables made = tables();
    check_tables(pattern, made, {});
    check_lanes(pattern, made.rows.row, made.rows.lanes, 2);
    for (const LocalTasks& tasks : made.local)
      check_lanes(pattern, tasks.row, tasks.lanes, share);
  }
  options.entries_per_lane = 0;
  CHECK_FALSE(tables().rows.lanes.shared());
  options.entries_per_lane.reset();
  options.machine = JacobianMachine::gpu(132, 1000);
  CHECK_FALSE(tables().rows.lanes.shared());
  options.machine = JacobianMachine::cpu();
  CHECK_FALSE(tables().rows.lanes.shared());
}

TEST_CASE("jacobian schedule: patterns at the edge") {
  Pattern empty;
  CHECK(schedule_jacobian(empty, {}).tables.local.empty());
  Pattern no_entries;
  no_entries.rows = no_entries.columns = 3;
  no_entries.row_offset = {0, 0, 0, 0};
  JacobianScheduleOptions coloured;
  coloured.compression = JacobianCompression::coloured;
  CHECK(schedule_jacobian(no_entries, coloured).tables.coloured.count() == 0);
  Pattern wide;
  wide.rows = 1;
  wide.columns = 2;
  wide.row_offset = {0, 0};
  CHECK_THROWS_WITH(schedule_jacobian(wide, {}), Contains("1 x 2"));
}

TEST_CASE("jacobian schedule: rows by the terms of their sums") {
  const uint64_t seed = 62;
  CAPTURE(seed);
  Random random(seed);
  // Row i reads x[i] beside its sum, two unknowns in each term, one of them sometimes in two terms;
  // every seventh row has two sums, every fifth none.
  const uint32_t n = 40;
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  RowTerms terms;
  const auto read = [&](uint32_t term, uint32_t column) {
    terms.term.push_back(term);
    terms.column.push_back(column);
  };
  for (uint32_t i = 0; i < n; ++i) {
    read(0, i);
    entries.emplace_back(i, i);
    for (uint32_t t = 0; t < i % 9 && i % 5 != 0; ++t) {
      read(t + 1, (i + 1 + 2 * t) % n);
      read(t + 1, (i + (i % 3 == 0 ? 1 : 2 + 2 * t)) % n);
      entries.emplace_back(i, (i + 1 + 2 * t) % n);
      entries.emplace_back(i, (i + (i % 3 == 0 ? 1 : 2 + 2 * t)) % n);
    }
    terms.offset.push_back(terms.column.size());
    terms.sums.push_back(i % 5 == 0 ? 0 : i % 7 == 0 ? 2 : 1);
    terms.lengths.push_back(i % 5 == 0 ? 0 : i % 9);
  }
  const Pattern pattern = test::pattern_of(n, entries);
  for (const bool gpu : {false, true}) {
    CAPTURE(gpu);
    JacobianScheduleOptions options;
    options.terms = &terms;
    options.has_sums = true;
    options.compression = JacobianCompression::terms;
    if (gpu)
      options.machine = JacobianMachine::gpu(100, 1);
    for (const std::optional<uint32_t> share :
         {std::optional<uint32_t>(), std::optional<uint32_t>(0), std::optional<uint32_t>(2)}) {
      options.entries_per_lane = share;
      const JacobianSchedule schedule = schedule_jacobian(pattern, options);
      CHECK(schedule.chosen.compression == JacobianCompression::terms);
      check_tables(pattern, schedule.tables, {});
      const TermTasks& tasks = schedule.tables.terms;
      CHECK(tasks.count() == schedule.chosen.term_tasks);
      CHECK(tasks.count() > 0);
      CHECK(tasks.most_terms * tasks.inner <= options.machine.kept_numbers);
      for (const uint32_t i : tasks.row)
        CHECK(terms.sums[i] == 1);
      for (const uint32_t i : {5u, 7u}) // no sum, two sums
        CHECK(std::find(tasks.row.begin(), tasks.row.end(), i) == tasks.row.end());
      uint64_t all = tasks.count();
      for (const LocalTasks& one : schedule.tables.local)
        all += one.count();
      CHECK(all == schedule.chosen.tasks);
    }
  }
  // Less is predicted than by rows; without such rows it is refused.
  JacobianScheduleOptions options;
  options.terms = &terms;
  CHECK(schedule_jacobian(pattern, options).chosen.compression == JacobianCompression::terms);
  terms.sums.assign(n, 2);
  CHECK(schedule_jacobian(pattern, options).chosen.compression == JacobianCompression::local);
  options.compression = JacobianCompression::terms;
  CHECK_THROWS_WITH(schedule_jacobian(pattern, options), Contains("one sum"));
  options.terms = nullptr;
  CHECK_THROWS_AS(schedule_jacobian(pattern, options), UserError);
}
