// The compressed stream: what is stored stands for the row, and nothing else does.
#include "compiler/inspect/compressed_schedule.h"
#include "compiler/lower/spmm.h"
#include "ir/error.h"
#include "ir/verifier.h"
#include "tests/support/scattered_matrix.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

using namespace sparsertc;

namespace {

std::vector<uint32_t> some_columns(uint32_t inner, uint32_t step, uint32_t seed) {
  std::vector<uint32_t> columns;
  uint32_t random = seed;
  for (uint32_t at = seed % step; at < inner; at += 1 + (random >> 16) % (2 * step)) {
    columns.push_back(at);
    random = random * 1664525u + 1013904223u;
  }
  return columns;
}

bool is_zero_row(const StagedRows& staged, uint32_t place) {
  return place % (staged.spacing() + 1) == 0 || place + 1 == staged.count();
}

/// The places of the entries in order, after checking that every other slot stands at zeros.
std::vector<uint32_t> decoded(const StagedRows& staged, const std::vector<CompressedPart>& parts) {
  std::vector<std::pair<uint32_t, uint32_t>> found; // entry, place
  for (const CompressedPart& part : parts) {
    uint32_t place = part.first_place;
    REQUIRE(part.slots.size() == parts.front().slots.size());
    for (const CompressedPart::Slot& slot : part.slots) {
      CHECK(slot.delta <= staged.most_delta());
      place += slot.delta;
      CHECK(place < staged.count());
      if (slot.entry == CompressedPart::kNoEntry) {
        CHECK(is_zero_row(staged, place));
        continue;
      }
      CHECK_FALSE(is_zero_row(staged, place));
      found.emplace_back(slot.entry, place);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<uint32_t> places;
  for (const auto& [entry, place] : found) {
    CHECK(entry == places.size());
    places.push_back(place);
  }
  return places;
}

SpmmProblem few_columns(uint32_t columns, DataType type = DataType::f16) {
  SpmmProblem problem;
  problem.type = type;
  problem.columns = columns;
  return problem;
}

SpmmSchedule compressed(const Matrix& matrix, const SpmmProblem& problem, const char* words = "",
                        const char* target = "sm_90") {
  return schedule_spmm(matrix, problem, find_target(target),
                       parse_tile_choice(std::string("strategy=compressed") + words));
}

} // namespace

TEST_CASE("a compressed row is the row") {
  for (const uint32_t bits : {4u, 8u})
    for (const uint32_t inner : {1u, 2u, 13u, 14u, 15u, 254u, 255u, 256u, 3000u})
      for (const uint32_t step : {1u, 3u, 17u, 400u})
        for (const uint32_t parts : {1u, 4u, 32u}) {
          CAPTURE(bits, inner, step, parts);
          CompressedStream stream;
          stream.staged = {bits, inner};
          stream.parts = parts;
          stream.parts_together = 8;
          const std::vector<uint32_t> columns = some_columns(inner, step, inner + step);
          std::vector<uint32_t> places;
          for (const uint32_t column : columns)
            places.push_back(stream.staged.place_of(column));
          for (const bool has_classes : {false, true}) {
            stream.has_classes = has_classes;
            const RankEntries all = {columns, 0, 0};
            const uint32_t steps = steps_of_row(stream, all);
            const std::vector<CompressedPart> stored = compress_row(stream, all, steps);
            REQUIRE(stored.size() == parts);
            CHECK(decoded(stream.staged, stored) == places);
            if (steps > 0)
              CHECK_THROWS_AS(compress_row(stream, all, steps - 1), InternalError);
          }
        }
}

TEST_CASE("rows of zeros are within reach of every place") {
  for (const uint32_t bits : {4u, 8u})
    for (const uint32_t inner : {0u, 1u, 14u, 15u, 700u}) {
      const StagedRows staged{bits, inner};
      uint32_t zeros = 0;
      for (uint32_t place = 0; place < staged.count(); ++place) {
        zeros += is_zero_row(staged, place);
        CHECK(is_zero_row(staged, staged.zero_after(place)));
        CHECK(staged.zero_after(place) - place <= staged.most_delta());
      }
      CHECK(zeros == staged.zero_rows());
    }
}

TEST_CASE("the width of distances follows the pattern") {
  CHECK(smallest_stream(scattered_matrix(64, 512, 2).pattern, 2).delta_bits == 4);
  CHECK(smallest_stream(scattered_matrix(64, 2048, 60).pattern, 2).delta_bits == 8);
}

TEST_CASE("the schedule of a compressed product") {
  const Matrix matrix = scattered_matrix(300, 512, 5);
  for (const uint32_t columns : {1u, 2u, 3u, 8u, 31u, 64u})
    for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16}) {
      CAPTURE(columns, name_of(type));
      const SpmmSchedule schedule = compressed(matrix, few_columns(columns, type));
      std::vector<uint32_t> rows = schedule.row_order;
      std::sort(rows.begin(), rows.end());
      REQUIRE(rows.size() == 300);
      CHECK(rows.front() == 0);
      CHECK(rows.back() == 299);
      CHECK(std::is_sorted(schedule.stream.steps.rbegin(), schedule.stream.steps.rend()));
      CHECK(schedule.stream.slots >= matrix.pattern.nnz());
      CHECK(shared_bytes(schedule) <= schedule.target.shared_bytes_per_block);
      const LoweredSpmm lowered = lower_spmm(matrix, schedule);
      for (const ir::Violation& violation : ir::verify(lowered.module))
        FAIL_CHECK(violation.function << " op " << violation.op_index << ": " << violation.message);
    }
}

TEST_CASE("warps lie at equal distances unless rows differ much") {
  Matrix matrix = scattered_matrix(300, 512, 5);
  const SpmmSchedule even = compressed(matrix, few_columns(1));
  CHECK(even.stream.has_stride);
  const ir::Module with_stride = lower_spmm(matrix, even).module;
  CHECK(with_stride.find_symbol("steps") == UINT32_MAX);
  const uint64_t warps = uint64_t{even.tile_count()} * even.tile.warps;
  CHECK(with_stride.symbols[with_stride.find_symbol("stream")].bytes.size() ==
        warps * even.stream.stride(2));
  CHECK(even.stream.bytes <= even.stream.warps() * even.stream.stride(2));

  // One row with an entry in every column.
  std::vector<uint32_t> all(512);
  std::iota(all.begin(), all.end(), 0u);
  matrix.pattern.column_index.insert(matrix.pattern.column_index.end(), all.begin(), all.end());
  matrix.pattern.row_offset.push_back(matrix.pattern.column_index.size());
  matrix.pattern.rows += 1;
  matrix.values.resize(matrix.pattern.nnz(), 1.0);
  const SpmmSchedule uneven = compressed(matrix, few_columns(1));
  CHECK(!uneven.stream.has_stride);
  const ir::Module with_table = lower_spmm(matrix, uneven).module;
  CHECK(with_table.find_symbol("steps") != UINT32_MAX);
  CHECK(with_table.symbols[with_table.find_symbol("stream")].bytes.size() == uneven.stream.bytes);
}

TEST_CASE("blocks of a cluster share the rows of B") {
  const Matrix matrix = scattered_matrix(100, 515, 5);
  const SpmmSchedule schedule = compressed(matrix, few_columns(8), ",cluster=4");
  CHECK(schedule.stream.ranks == 4);
  CHECK(schedule.stream.staged.rows == 129);
  CHECK(schedule.stream.steps.size() == 4 * schedule.stream.warps());
  uint64_t entries = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const RankEntries part = entries_of(matrix.pattern.row(7), 515, 4, rank);
    CHECK(part.first_entry == entries);
    entries += part.columns.size();
    for (const uint32_t column : part.columns)
      CHECK(column - part.first_row < schedule.stream.staged.rows);
  }
  CHECK(entries == matrix.pattern.row_length(7));
  for (const ir::Violation& violation : ir::verify(lower_spmm(matrix, schedule).module))
    FAIL_CHECK(violation.message);
}

TEST_CASE("few columns of many weights are compressed where nobody says otherwise") {
  const Matrix many = scattered_matrix(512, 1024, 2), few = scattered_matrix(64, 1024, 2);
  REQUIRE(many.pattern.nnz() >= 100000);
  REQUIRE(few.pattern.nnz() < 100000);
  const auto strategy = [](const Matrix& matrix, const SpmmProblem& problem, const char* words = "",
                           const char* target = "sm_90") {
    return schedule_spmm(matrix, problem, find_target(target), parse_tile_choice(words))
        .tile.strategy;
  };
  for (const uint32_t columns : {1u, 16u})
    CHECK(strategy(many, few_columns(columns)) == Strategy::compressed);
  CHECK(strategy(many, few_columns(17)) != Strategy::compressed);
  CHECK(strategy(many, SpmmProblem{}) != Strategy::compressed); // N given at the launch
  CHECK(strategy(few, few_columns(1)) != Strategy::compressed);
  CHECK(strategy(many, few_columns(1, DataType::f64)) != Strategy::compressed);
  CHECK(strategy(many, few_columns(1), "", "host") != Strategy::compressed);
  CHECK(strategy(many, few_columns(1), "rows=8") != Strategy::compressed);
  CHECK(strategy(many, few_columns(1), "strategy=unrolled") == Strategy::unrolled);
}

TEST_CASE("what is not compressed is refused with the reason") {
  const Matrix matrix = scattered_matrix(64, 64, 5);
  CHECK_THROWS_AS(compressed(matrix, few_columns(65)), UsageError);
  CHECK_THROWS_AS(compressed(matrix, few_columns(8, DataType::f64)), UsageError);
  CHECK_THROWS_AS(compressed(matrix, few_columns(8), "", "host"), UsageError);
  CHECK_THROWS_AS(compressed(matrix, few_columns(8), ",groups=2"), UsageError);
  CHECK_THROWS_AS(compressed(matrix, few_columns(8), ",splitk=3"), UsageError);
  CHECK_THROWS_AS(compressed(matrix, few_columns(8), ",rows=256,splitk=32"), UsageError);
  SpmmProblem dynamic;
  CHECK_THROWS_AS(compressed(matrix, dynamic), UsageError);
}
