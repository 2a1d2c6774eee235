// The bitmap stream: read as the kernel reads it, it is the matrix.
#include "compiler/inspect/bitmap_schedule.h"
#include "compiler/lower/bitmap_tables.h"
#include "compiler/lower/spmm.h"
#include "compiler/lower/spmm_symbols.h"
#include "ir/error.h"
#include "ir/verifier.h"
#include "tests/support/scattered_matrix.h"

#include <catch2/catch.hpp>

#include <bit>
#include <cstring>
#include <map>

using namespace sparsertc;

namespace {

/// The bits of the weights at (row, column).
using Weights = std::map<std::pair<uint32_t, uint32_t>, uint16_t>;

Matrix small_values(uint32_t rows, uint32_t inner, uint32_t period) {
  Matrix matrix = scattered_matrix(rows, inner, period);
  for (size_t i = 0; i < matrix.values.size(); ++i)
    matrix.values[i] = 0.125 * static_cast<double>(1 + i % 100);
  return matrix;
}

SpmmProblem few_columns(uint32_t columns, DataType type = DataType::f16) {
  SpmmProblem problem;
  problem.type = type;
  problem.columns = columns;
  problem.nonfinite = Nonfinite::dense;
  return problem;
}

SpmmSchedule bitmap(const Matrix& matrix, const SpmmProblem& problem, const std::string& words = "",
                    const char* target = "sm_90") {
  return schedule_spmm(matrix, problem, find_target(target),
                       parse_tile_choice("strategy=bitmap" + words));
}

template <class T>
T number_at(const std::vector<uint8_t>& bytes, uint64_t at) {
  T value{};
  if (at + sizeof value > bytes.size())
    FAIL("the stream ends before byte " << at + sizeof value);
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

Weights expected_weights(const Matrix& matrix, DataType type) {
  Weights weights;
  for (uint32_t row = 0; row < matrix.pattern.rows; ++row)
    for (uint64_t i = matrix.pattern.row_offset[row]; i < matrix.pattern.row_offset[row + 1]; ++i) {
      std::vector<uint8_t> bytes;
      put_value(bytes, type, matrix.values[i]);
      weights[{row, matrix.pattern.column_index[i]}] = number_at<uint16_t>(bytes, 0);
    }
  return weights;
}

/// Adds what is not zero in a stage to `weights`; each place only once.
void read_stage(const BitmapStream& stream, const std::vector<uint8_t>& bytes, uint64_t begin,
                const BitmapPlace& place, Weights& weights) {
  const uint64_t pairs = begin + stream.head_bytes();
  for (uint32_t tile = 0; tile < stream.chunks * BitmapStream::kTilesOfChunk; ++tile) {
    uint64_t at = pairs + number_at<uint16_t>(bytes, begin + stream.places_offset() + 2 * tile);
    for (uint32_t lane = 0; lane < 32; ++lane) {
      const auto bits =
          number_at<uint32_t>(bytes, begin + 4 * (tile / BitmapStream::kTilesOfChunk * 32 + lane));
      for (uint32_t i = 0; i < BitmapStream::kPairsOfLane; ++i) {
        const uint32_t bit = tile % BitmapStream::kTilesOfChunk * BitmapStream::kPairsOfLane + i;
        if ((bits >> bit & 1) == 0)
          continue;
        const BitmapPlace in_tile = place_in_tile(lane, i);
        for (uint32_t half = 0; half < 2; ++half) {
          const auto value = number_at<uint16_t>(bytes, at + 2 * half);
          const std::pair<uint32_t, uint32_t> key = {place.row + in_tile.row,
                                                     place.column + tile * BitmapStream::kTile +
                                                         in_tile.column + half};
          if (value != 0 && !weights.emplace(key, value).second)
            FAIL_CHECK("row " << key.first << ", column " << key.second << " twice");
        }
        at += BitmapStream::kPairBytes;
      }
    }
  }
}

/// All stages: the leading ones at their distances, each other one where a stage before it says.
Weights read_stream(const SpmmSchedule& schedule, const std::vector<uint8_t>& bytes) {
  const BitmapStream& stream = schedule.bitmap;
  Weights weights;
  for (uint32_t warp = 0; warp < stream.all_warps(); ++warp) {
    std::vector<uint64_t> begin;
    for (uint32_t stage = 0; stage < stream.stages_of_warp(); ++stage) {
      if (stage < stream.leads) {
        begin.push_back((uint64_t{warp} * stream.leads + stage) * stream.lead_stage_bytes());
      } else {
        const uint64_t teller = begin[stage - stream.leads] + stream.next_offset();
        begin.push_back(uint64_t{16} * number_at<uint32_t>(bytes, teller));
        CHECK(number_at<uint32_t>(bytes, teller + 4) <= stream.pair_bytes);
      }
      read_stage(stream, bytes, begin.back(), place_of_stage(stream, warp, stage), weights);
    }
    for (uint32_t i = 0; i < stream.leads; ++i) // nothing comes after the last ones
      CHECK(number_at<uint32_t>(bytes, begin[begin.size() - 1 - i] + stream.next_offset()) == 0);
  }
  return weights;
}

} // namespace

TEST_CASE("a bitmap stream is the matrix") {
  for (const auto& [rows, inner] : {std::pair{1u, 1u}, {16u, 128u}, {50u, 530u}, {300u, 1100u}})
    for (const uint32_t period : {1u, 3u, 40u})
      for (const char* words :
           {"", ",warps=1,groups=2,splitk=1,cluster=1,chunk=128,prefetch=2",
            ",warps=2,splitk=2,cluster=2,chunk=256", ",warps=1,splitk=1,cluster=1,prefetch=8"}) {
        CAPTURE(rows, inner, period, words);
        const DataType type = period == 3 ? DataType::bf16 : DataType::f16;
        const Matrix matrix = small_values(rows, inner, period);
        const SpmmSchedule schedule = bitmap(matrix, few_columns(8, type), words);
        const std::vector<uint8_t> bytes =
            bitmap_stream_bytes(schedule, matrix.pattern, matrix.values);
        CHECK(bytes.size() == schedule.bitmap.bytes);
        CHECK(read_stream(schedule, bytes) == expected_weights(matrix, type));
      }
}

TEST_CASE("bitmaps fit a block, or say what to do") {
  const Matrix matrix = small_values(700, 2000, 2);
  for (const uint32_t columns : {1u, 8u, 33u, 64u})
    for (const char* target : {"sm_80", "sm_86", "sm_90"}) {
      CAPTURE(columns, target);
      const SpmmSchedule schedule = bitmap(matrix, few_columns(columns), "", target);
      CHECK(bitmap_shared(schedule).all() <= schedule.target.shared_bytes_per_block);
      CHECK(schedule.bitmap.block_rows() * schedule.bitmap.row_blocks >= 700);
      CHECK(schedule.bitmap.rank_columns() * schedule.bitmap.ranks >= 2000);
      CHECK(schedule.threads_x <= 1024);
    }
  const auto says = [](const char* words) { return Catch::Contains(words); };
  CHECK_THROWS_WITH(bitmap(matrix, few_columns(65)), says("at most 64"));
  CHECK_THROWS_WITH(bitmap(matrix, few_columns(8, DataType::f32)), says("f16 or bf16"));
  CHECK_THROWS_WITH(bitmap(matrix, few_columns(8), "", "host"), says("tensor cores"));
  CHECK_THROWS_WITH(bitmap(matrix, few_columns(8), ",rows=32"), says("16 rows"));
  CHECK_THROWS_WITH(bitmap(matrix, few_columns(8), ",chunk=100"), says("chunk=128"));
  CHECK_THROWS_WITH(bitmap(matrix, few_columns(8), ",prefetch=1"), says("in flight"));
  CHECK_THROWS_WITH(bitmap(matrix, few_columns(8), ",warps=32,splitk=2"), says("warps in a block"));
  CHECK_THROWS_WITH(bitmap(matrix, few_columns(8), ",warps=32,chunk=512,prefetch=8"),
                    says("fit into"));
  SpmmProblem exact = few_columns(8);
  exact.nonfinite = Nonfinite::exact;
  CHECK_THROWS_WITH(bitmap(matrix, exact), says("multiplies zeros"));
}

TEST_CASE("bitmap kernels verify") {
  for (const uint32_t columns : {1u, 8u, 31u, 64u}) {
    const Matrix matrix = small_values(100, 700, 3);
    const SpmmSchedule schedule = bitmap(matrix, few_columns(columns));
    const LoweredSpmm lowered = lower_spmm(matrix, schedule);
    CHECK(ir::verify(lowered.module).empty());
    CHECK(lowered.kernels.front().cluster == schedule.bitmap.ranks);
    CHECK(lowered.kernels.front().grid_rows == schedule.bitmap.ranks * schedule.bitmap.row_blocks);
  }
}
