// Packing into the sparse operand of tensor cores: every entry once, every promise kept.
#include "compiler/input/read.h"
#include "compiler/inspect/panel_packing.h"
#include "tests/support/random_sparse.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <utility>

using namespace sparsertc;
using namespace sparsertc::test;

namespace {

constexpr uint64_t kSeed = 20261201;

std::vector<uint32_t> shuffled_rows(Random& random, uint32_t rows) {
  std::vector<uint32_t> order(rows);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t i = rows; i > 1; --i)
    std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

/// Panels of `rows` rows; the last one may have fewer.
std::vector<uint32_t> panels_of(const std::vector<uint32_t>& order, uint32_t rows) {
  std::vector<uint32_t> begin = {0};
  while (begin.back() < order.size())
    begin.push_back(std::min(static_cast<uint32_t>(order.size()), begin.back() + rows));
  return begin;
}

PanelPacking pack(const Pattern& pattern, const std::vector<uint32_t>& order,
                  const PanelShape& shape) {
  return pack_panels(pattern, order, panels_of(order, shape.rows), shape);
}

/// What is wrong with a packing; empty where nothing is.
std::string fault_of(const PanelPacking& packing, const Pattern& pattern,
                     const std::vector<uint32_t>& order) {
  const PanelShape& shape = packing.shape;
  const size_t panels = (order.size() + shape.rows - 1) / shape.rows;
  if (packing.slots.size() != panels * packing.steps * shape.slots_of_step())
    return "the number of slots";
  std::vector<uint32_t> taken(pattern.nnz());
  uint64_t second_slots = 0, conflicts = 0;
  for (uint32_t panel = 0; panel < panels; ++panel) {
    const std::span<const PanelSlot> slots = packing.panel(panel);
    std::vector<bool> met(pattern.columns);
    for (size_t s = 0; s < slots.size(); ++s) {
      const PanelSlot& slot = slots[s];
      const std::string where = fmt::format("panel {}, slot {}: ", panel, s);
      if (slot.position >= pattern.columns)
        return where + "no such column";
      const auto round = static_cast<uint32_t>(s / shape.slots_of_round());
      if (slot.position < packing.first_position(round) ||
          slot.position >= packing.last_position(round))
        return where + "the round does not see this column";
      const uint32_t column = packing.column_at(slot.position);
      for (uint64_t rows = slot.rows; rows != 0; rows &= rows - 1) {
        const size_t at = size_t{panel} * shape.rows + std::countr_zero(rows);
        if (at >= order.size())
          return where + "a row behind the last";
        const std::span<const uint32_t> row = pattern.row(order[at]);
        const auto entry = std::lower_bound(row.begin(), row.end(), column);
        if (entry == row.end() || *entry != column)
          return where + "no such entry";
        ++taken[pattern.row_offset[order[at]] + static_cast<size_t>(entry - row.begin())];
      }
      second_slots += slot.rows != 0 && met[slot.position];
      met[slot.position] = met[slot.position] || slot.rows != 0;
    }
    for (size_t group = 0; group < slots.size() / shape.group; ++group)
      for (uint32_t row = 0; row < shape.rows; ++row) {
        uint32_t entries = 0;
        for (uint32_t i = 0; i < shape.group; ++i)
          entries += slots[group * shape.group + i].rows >> row & 1;
        if (entries > shape.kept())
          return fmt::format("panel {}, group {}: {} entries of a row", panel, group, entries);
      }
    const uint32_t banks = shape.slots_of_unit();
    for (size_t unit = 0; unit < slots.size() / banks; ++unit) {
      uint32_t residues = 0, used_residues = 0, used = 0;
      for (uint32_t i = 0; i < banks; ++i) {
        const PanelSlot& slot = slots[unit * banks + i];
        residues |= 1u << (slot.position % banks);
        used += slot.rows != 0;
        used_residues |= slot.rows != 0 ? 1u << (slot.position % banks) : 0;
      }
      const uint32_t late = used - static_cast<uint32_t>(std::popcount(used_residues));
      conflicts += late;
      // Where used slots have banks of their own, so have the others, if the window has them all.
      if (late == 0 && pattern.columns >= banks &&
          std::popcount(residues) != static_cast<int>(banks))
        return fmt::format("panel {}, unit {}: two columns in one bank", panel, unit);
    }
  }
  if (conflicts != packing.conflicts)
    return "the number of conflicts";
  if (second_slots != packing.second_slots)
    return "the number of second slots";
  return std::all_of(taken.begin(), taken.end(), [](uint32_t times) { return times == 1; })
             ? std::string()
             : "an entry is not taken once";
}

PanelShape shape_of(uint32_t rows, uint32_t group, uint32_t parts = 1,
                    uint32_t steps_of_round = PanelShape::kMostStepsOfRound) {
  return {rows, group, 64 * group, parts, steps_of_round};
}

Matrix pattern_of(Random& random, uint32_t rows, uint32_t columns, double density) {
  Matrix matrix;
  matrix.pattern.rows = rows;
  matrix.pattern.columns = columns;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < columns; ++column)
      if (random.chance(density))
        matrix.pattern.column_index.push_back(column);
    matrix.pattern.row_offset.push_back(matrix.pattern.column_index.size());
  }
  return matrix;
}

} // namespace

TEST_CASE("every entry has one slot, and every group and unit keeps its promise") {
  Random random(test_seed(kSeed));
  constexpr uint32_t kRows[] = {0, 1, 15, 16, 63, 64, 65, 130};
  constexpr uint32_t kColumns[] = {0, 1, 2, 3, 7, 8, 9, 31, 127, 128, 129, 255, 256, 257, 600};
  for (const RowShape rows_shape : kRowShapes)
    for (const uint32_t columns : kColumns)
      for (const uint32_t group : {4u, 2u})
        for (const uint32_t panel_rows : {8u, 16u, 32u, 64u}) {
          const uint32_t rows = random.pick(kRows);
          const Matrix matrix =
              random_sparse(random, rows, columns, rows_shape, ValueShape::unit, -126, 127);
          const std::vector<uint32_t> order = shuffled_rows(random, rows);
          INFO(fmt::format("{} {} x {}, groups of {}, panels of {} rows", name_of(rows_shape), rows,
                           columns, group, panel_rows));
          const PanelPacking packing = pack(matrix.pattern, order, shape_of(panel_rows, group));
          CHECK(fault_of(packing, matrix.pattern, order) == "");
          CHECK((packing.steps == 0) == (matrix.pattern.nnz() == 0));
        }
}

TEST_CASE("every density can be packed") {
  Random random(test_seed(kSeed) + 1);
  for (const double density : {0.01, 0.1, 0.3, 0.5, 0.7, 0.95})
    for (const uint32_t group : {4u, 2u}) {
      const Matrix matrix = pattern_of(random, 100, 700, density);
      const std::vector<uint32_t> order = shuffled_rows(random, 100);
      const PanelPacking packing = pack(matrix.pattern, order, shape_of(64, group));
      INFO(fmt::format("{} of the entries, groups of {}", density, group));
      CHECK(fault_of(packing, matrix.pattern, order) == "");
    }
}

TEST_CASE("parts of K have as many steps of each round") {
  Random random(test_seed(kSeed) + 5);
  for (const uint32_t columns : {1u, 40u, 127u, 300u, 611u})
    for (const uint32_t group : {4u, 2u})
      for (const auto& [parts, steps_of_round] :
           {std::pair{1u, 4u}, {2u, 4u}, {4u, 4u}, {1u, 2u}, {2u, 2u}, {1u, 1u}}) {
        INFO(fmt::format("{} columns, groups of {}, {} parts, rounds of {}", columns, group, parts,
                         steps_of_round));
        const Matrix matrix = pattern_of(random, 70, columns, 0.1);
        const std::vector<uint32_t> order = shuffled_rows(random, 70);
        const PanelPacking packing =
            pack(matrix.pattern, order, shape_of(32, group, parts, steps_of_round));
        CHECK(fault_of(packing, matrix.pattern, order) == "");
        REQUIRE(packing.steps % parts == 0);
        // A part's steps one behind the other: of each round the same share, in order.
        const uint32_t of_part = packing.steps / parts;
        std::vector<uint32_t> steps(packing.steps, packing.steps);
        for (uint32_t step = 0; step < packing.steps; ++step) {
          REQUIRE(packing.place_of_step(step) < packing.steps);
          steps[packing.place_of_step(step)] = step;
        }
        for (uint32_t i = 0; i < packing.steps; ++i) {
          REQUIRE(steps[i] < packing.steps);
          const uint32_t round = steps[i] / steps_of_round;
          CHECK(round == i % of_part / (steps_of_round / parts));
          CHECK((i % of_part == 0 || steps[i] > steps[i - 1]));
        }
      }
}

TEST_CASE("columns with many entries side by side take few more steps") {
  Random random(test_seed(kSeed) + 6);
  // A quarter of the columns has nearly all of the entries.
  constexpr uint32_t kRows = 128, kColumns = 1024;
  Matrix matrix;
  matrix.pattern.rows = kRows;
  matrix.pattern.columns = kColumns;
  for (uint32_t row = 0; row < kRows; ++row) {
    for (uint32_t column = 0; column < kColumns; ++column)
      if (random.chance(column / 256 == 1 ? 0.3 : 0.002))
        matrix.pattern.column_index.push_back(column);
    matrix.pattern.row_offset.push_back(matrix.pattern.column_index.size());
  }
  const std::vector<uint32_t> order = shuffled_rows(random, kRows);
  const PanelPacking packing = pack(matrix.pattern, order, shape_of(32, 2));
  CHECK(fault_of(packing, matrix.pattern, order) == "");
  CHECK(packing.stride > 1);
  CHECK(packing.fraction() < 0.6); // of these columns 0.4, as windows in their order would take 1.5
}

TEST_CASE("panels take little more than the columns, and fewer where columns are empty") {
  Random random(test_seed(kSeed) + 2);
  struct Expected {
    double density;
    uint32_t rows, group;
    double most;
  };
  for (const Expected& expected :
       {Expected{0.2, 64, 4, 1.07}, Expected{0.1, 64, 4, 1.04}, Expected{0.1, 64, 2, 1.07},
        Expected{0.2, 32, 2, 1.1}, Expected{0.02, 64, 4, 0.85}, Expected{0.02, 32, 4, 0.66}}) {
    const Matrix matrix = pattern_of(random, 512, 1024, expected.density);
    std::vector<uint32_t> order(512);
    std::iota(order.begin(), order.end(), 0u);
    const PanelPacking packing =
        pack(matrix.pattern, order, shape_of(expected.rows, expected.group));
    INFO(fmt::format("density {}, panels of {} rows, groups of {}", expected.density, expected.rows,
                     expected.group));
    CHECK(packing.fraction() <= expected.most);
    CHECK(fault_of(packing, matrix.pattern, order) == "");
  }
}

TEST_CASE("a layer of 4096 x 4096 is packed in seconds, the same every time") {
  Random random(test_seed(kSeed) + 3);
  const Matrix matrix = pattern_of(random, 4096, 4096, 0.2);
  std::vector<uint32_t> order(4096);
  std::iota(order.begin(), order.end(), 0u);
  const auto start = std::chrono::steady_clock::now();
  const PanelPacking packing = pack(matrix.pattern, order, shape_of(64, 4));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  WARN(fmt::format("packed in {:.2f} s: {} steps, {:.3f} of the columns", seconds, packing.steps,
                   packing.fraction()));
  CHECK(fault_of(packing, matrix.pattern, order) == "");
  CHECK(seconds < 60); // a hundred times what a release build takes
  const PanelPacking again = pack(matrix.pattern, order, shape_of(64, 4));
  CHECK(std::equal(packing.slots.begin(), packing.slots.end(), again.slots.begin(),
                   again.slots.end(), [](const PanelSlot& a, const PanelSlot& b) {
                     return a.position == b.position && a.rows == b.rows;
                   }));
}

TEST_CASE("real patterns are packed") {
  const char* data = std::getenv("SPARSERTC_DATA");
  const std::filesystem::path folder = std::filesystem::path(data ? data : "") / "dlmc";
  if (!data || !std::filesystem::exists(folder)) {
    WARN("SKIPPED: SPARSERTC_DATA does not name a folder with dlmc/");
    return;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().filename().string().find(".smtx") != std::string::npos)
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  REQUIRE(!files.empty());
  constexpr size_t kFiles = 12;
  for (size_t i = 0; i < kFiles; ++i) {
    const std::filesystem::path& file = files[i * files.size() / kFiles];
    const Matrix matrix = read_matrix(file.string(), {});
    INFO(file.string());
    std::vector<uint32_t> order(matrix.pattern.rows);
    std::iota(order.begin(), order.end(), 0u);
    for (const uint32_t group : {4u, 2u}) {
      const PanelPacking packing = pack(matrix.pattern, order, shape_of(64, group));
      CHECK(fault_of(packing, matrix.pattern, order) == "");
    }
  }
}
