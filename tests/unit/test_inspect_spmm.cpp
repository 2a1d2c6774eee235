// Schedules of SpMM: the words of --tile, the choice of strategy and tile, the rows of the tiles.
#include "compiler/inspect/spmm_schedule.h"
#include "ir/error.h"
#include "tests/support/scattered_matrix.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

using namespace sparsertc;

namespace {

SpmmSchedule schedule(const Matrix& matrix, const char* target, std::optional<uint32_t> columns,
                      const char* tile = "", uint64_t budget = 0) {
  SpmmProblem problem;
  problem.columns = columns;
  return schedule_spmm(matrix, problem, find_target(target), parse_tile_choice(tile), budget);
}

/// The message of the UsageError that `call` throws.
template <class Call>
std::string usage_error(Call call) {
  try {
    call();
  } catch (const UsageError& error) {
    CHECK(error.exit_code() == 2);
    return error.what();
  }
  FAIL("no UsageError");
  return {};
}

} // namespace

TEST_CASE("tile words parse, print and parse back") {
  const SpmmTileChoice choice = parse_tile_choice("rows=64,vec=2,stage=smem,weights=const");
  CHECK(choice.rows == 64u);
  CHECK(choice.vec == 2u);
  CHECK(choice.stage == Stage::smem);
  CHECK(choice.weights == WeightOperand::constant_bank);
  CHECK(!choice.warps);

  SpmmTile tile;
  tile.strategy = Strategy::streamed;
  tile.rows = 7;
  tile.splitk = 3;
  tile.cluster = 4;
  tile.weights = WeightOperand::constant_bank;
  CHECK(to_string(tile).find("border") == std::string::npos); // not of a product of matrices
  CHECK(to_string(tile).find("order=") == std::string::npos); // of unrolled code alone
  tile.border = BorderCode::shared;
  tile.order = RowOrder::similar;
  const SpmmTileChoice back = parse_tile_choice(to_string(tile));
  CHECK(back.strategy == Strategy::streamed);
  CHECK(back.rows == 7u);
  CHECK(back.splitk == 3u);
  CHECK(back.cluster == 4u);
  CHECK(back.weights == WeightOperand::constant_bank);
  CHECK(back.border == BorderCode::shared);
  CHECK(back.order == RowOrder::similar);
  CHECK(parse_tile_choice("").rows == std::nullopt);
}

TEST_CASE("tile words that are wrong name the word and the known ones") {
  for (const char* text :
       {"rows", "order=length", "rows=", "rows=0", "rows=257", "rows=2x", "colour=red",
        "strategy=denser", "stage=l2", "weights=x", "border=no", "vec=9", "=3"}) {
    INFO(text);
    const std::string message = usage_error([&] { parse_tile_choice(text); });
    CHECK(message.find(std::string("'") + text + "'") != std::string::npos);
    CHECK(message.find("known words: strategy=") != std::string::npos);
  }
}

TEST_CASE("a tile word given twice is refused") {
  const std::string message = usage_error([] { parse_tile_choice("rows=4,vec=1,rows=8"); });
  CHECK(message.find("'rows=8': the word is given twice") != std::string::npos);
}

TEST_CASE("each row is in exactly one tile and tiles have nearly the same work") {
  const Matrix matrix = scattered_matrix(203, 97, 5);
  for (const char* tile : {"rows=1", "rows=8", "rows=13", "rows=256", "strategy=streamed,rows=4"}) {
    INFO(tile);
    const SpmmSchedule s = schedule(matrix, "sm_90", 64, tile);
    std::vector<uint32_t> rows = s.row_order;
    std::sort(rows.begin(), rows.end());
    std::vector<uint32_t> all(matrix.pattern.rows);
    std::iota(all.begin(), all.end(), 0u);
    CHECK(rows == all);
    REQUIRE(s.tile_begin.front() == 0);
    REQUIRE(s.tile_begin.back() == matrix.pattern.rows);
    for (uint32_t t = 0; t < s.tile_count(); ++t) {
      const uint32_t count = s.tile_begin[t + 1] - s.tile_begin[t];
      CHECK(count >= 1);
      CHECK(count <= s.tile.rows);
      CHECK(std::is_sorted(s.row_order.begin() + s.tile_begin[t],
                           s.row_order.begin() + s.tile_begin[t + 1]));
    }
  }
}

TEST_CASE("long rows are spread over the tiles") {
  // Rows 0 to 7 are full, the rest have one entry: eight tiles of eight rows get one full row each.
  Matrix matrix;
  matrix.pattern.rows = 64;
  matrix.pattern.columns = 64;
  for (uint32_t row = 0; row < 64; ++row) {
    for (uint32_t column = 0; column < (row < 8 ? 64u : 1u); ++column)
      matrix.pattern.column_index.push_back(column);
    matrix.pattern.row_offset.push_back(matrix.pattern.column_index.size());
  }
  matrix.values.assign(matrix.pattern.nnz(), 1.0);
  const SpmmSchedule s = schedule(matrix, "sm_90", 64, "rows=8");
  CHECK(s.tile_count() == 8);
  CHECK(s.prediction.balance == 1.0);
}

TEST_CASE("over the budget the streamed strategy is taken, with a remark") {
  const Matrix matrix = scattered_matrix(40, 40, 4);
  const uint64_t nnz = matrix.pattern.nnz();
  CHECK(schedule(matrix, "sm_90", 64, "", nnz).tile.strategy == Strategy::unrolled);
  const SpmmSchedule over = schedule(matrix, "sm_90", 64, "", nnz - 1);
  CHECK(over.tile.strategy == Strategy::streamed);
  REQUIRE(over.remarks.size() == 1);
  CHECK(over.remarks[0].find("budget") != std::string::npos);
  CHECK(schedule(matrix, "sm_90", 64, "strategy=unrolled", 1).tile.strategy == Strategy::unrolled);
}

TEST_CASE("the budget counts the columns of a thread that are chosen, not only those given") {
  const Matrix matrix = scattered_matrix(40, 40, 4);
  const uint64_t nnz = matrix.pattern.nnz();
  SpmmProblem problem;
  problem.type = DataType::f16;
  problem.columns = 64;
  const Target target = find_target("sm_90");
  const SpmmSchedule within = schedule_spmm(matrix, problem, target, {}, 2 * nnz);
  CHECK(within.tile.strategy == Strategy::unrolled);
  CHECK(within.prediction.multiply_adds == 2 * nnz);
  CHECK(schedule_spmm(matrix, problem, target, {}, 2 * nnz - 1).tile.strategy ==
        Strategy::streamed);
}

TEST_CASE("many rows are over the budget, too, empty or not") {
  const Matrix matrix = scattered_matrix(100, 10, 1000);
  const SpmmSchedule over = schedule(matrix, "host", 64, "", 99);
  CHECK(over.tile.strategy == Strategy::streamed);
  REQUIRE(over.remarks.size() == 1);
  CHECK(over.remarks[0].find("100 elements") != std::string::npos);
  CHECK(schedule(matrix, "host", 64, "", 100).tile.strategy == Strategy::unrolled);
}

TEST_CASE("emulated sums are not unrolled on the host unless asked for") {
  const Matrix matrix = scattered_matrix(40, 40, 4);
  SpmmProblem problem;
  problem.type = DataType::bf16;
  problem.half_terms = 4;
  problem.columns = 64;
  const SpmmSchedule host = schedule_spmm(matrix, problem, find_target("host"));
  CHECK(host.tile.strategy == Strategy::streamed);
  REQUIRE(host.remarks.size() == 1);
  CHECK(host.remarks[0].find("--tile=strategy=unrolled") != std::string::npos);
  CHECK(schedule_spmm(matrix, problem, find_target("host"), parse_tile_choice("strategy=unrolled"))
            .tile.strategy == Strategy::unrolled);
  CHECK(schedule_spmm(matrix, problem, find_target("sm_90")).tile.strategy == Strategy::unrolled);
}

TEST_CASE("words that are left open give way to the limits of the target") {
  const Matrix matrix = scattered_matrix(128, 256, 4);
  for (const char* tile :
       {"rows=64", "rows=256", "rows=64,vec=8", "vec=8", "warps=32", "warps=32,vec=8", "groups=32",
        "groups=2", "groups=15", "splitk=32", "stage=smem", "stage=smem,warps=8",
        "stage=smem,vec=2", "stage=smem,vec=4", "stage=smem,chunk=128", "stage=smem,warps=32",
        "stage=smem,prefetch=32", "strategy=streamed,groups=32", "strategy=streamed,rows=64"})
    for (DataType type : {DataType::f32, DataType::f16, DataType::f64})
      for (const char* target : {"sm_80", "sm_86", "sm_90"}) {
        INFO(tile << " " << target << " " << name_of(type));
        SpmmProblem problem;
        problem.type = type;
        problem.columns = 256;
        SpmmSchedule made;
        REQUIRE_NOTHROW(
            made = schedule_spmm(matrix, problem, find_target(target), parse_tile_choice(tile)));
        CHECK(made.threads_x == 32 * made.tile.warps);
        CHECK(made.threads_x * made.tile.groups * made.tile.splitk <= 1024);
        CHECK(shared_bytes(made) <= made.target.shared_bytes_per_block);
        CHECK(made.guarded == (256 % made.columns_per_block() != 0));
      }
}

TEST_CASE("neighbouring columns only where every row is aligned to the vector") {
  const Matrix matrix = scattered_matrix(16, 16, 3);
  CHECK(schedule(matrix, "sm_90", 64, "vec=4").neighbouring_columns);
  CHECK_FALSE(schedule(matrix, "sm_90", 66, "vec=4").neighbouring_columns);
  CHECK_FALSE(schedule(matrix, "sm_90", std::nullopt, "vec=4").neighbouring_columns);
  CHECK_FALSE(schedule(matrix, "sm_90", 66, "vec=3").neighbouring_columns);
  CHECK_FALSE(schedule(matrix, "host", 64, "vec=4").neighbouring_columns);
}

TEST_CASE("guards only where a block reaches beyond the columns") {
  const Matrix matrix = scattered_matrix(16, 16, 3);
  CHECK_FALSE(schedule(matrix, "sm_90", 128, "warps=4,vec=1").guarded);
  CHECK(schedule(matrix, "sm_90", 129, "warps=4,vec=1").guarded);
  CHECK(schedule(matrix, "sm_90", std::nullopt, "warps=4,vec=1").guarded);
}

TEST_CASE("leading dimensions are settled and checked") {
  const Matrix matrix = scattered_matrix(16, 24, 3);
  const Target target = find_target("sm_90");
  SpmmProblem problem;
  problem.columns = 10;
  CHECK(schedule_spmm(matrix, problem, target).problem.ldb == 10);
  problem.layout = Layout::column_major;
  CHECK(schedule_spmm(matrix, problem, target).problem.ldb == 24);
  CHECK(schedule_spmm(matrix, problem, target).problem.ldc == 16);
  problem.ldb = 23;
  CHECK(usage_error([&] { schedule_spmm(matrix, problem, target); }).find("at least 24") !=
        std::string::npos);
  problem = {};
  CHECK(schedule_spmm(matrix, problem, target).leading_dimension_parameters);
  problem.ldb = 100;
  CHECK(usage_error([&] { schedule_spmm(matrix, problem, target); }).find("both") !=
        std::string::npos);
  problem.ldc = 100;
  CHECK_FALSE(schedule_spmm(matrix, problem, target).leading_dimension_parameters);
  problem.ldb = uint64_t{1} << 30;
  CHECK(usage_error([&] { schedule_spmm(matrix, problem, target); }).find("2 GiB") !=
        std::string::npos);
}

TEST_CASE("combinations that cannot be are refused with a way out") {
  const Matrix matrix = scattered_matrix(64, 64, 3);
  auto message = [&](const char* tile, std::optional<uint32_t> columns = 256) {
    return usage_error([&] { schedule(matrix, "sm_90", columns, tile); });
  };
  CHECK(message("warps=32,groups=2").find("at most 1024") != std::string::npos);
  CHECK(message("splitk=2,groups=16,warps=1").find("15 groups") != std::string::npos);
  CHECK(message("stage=smem,splitk=2").find("cannot go together") != std::string::npos);
  CHECK(message("stage=smem,cluster=2").find("cannot go together") != std::string::npos);
  CHECK(message("cluster=3").find("cluster=1, 2, 4 or 8") != std::string::npos);
  CHECK(usage_error([&] {
          schedule(matrix, "sm_89", 256, "cluster=2");
        }).find("has no clusters of blocks") != std::string::npos);
  CHECK(schedule(matrix, "sm_90", 256, "cluster=8,groups=16,warps=1").tile.cluster == 8);
  CHECK(schedule(matrix, "host", 256, "cluster=2,splitk=2").tile.parts() == 4);
  CHECK(message("stage=smem,strategy=streamed").find("strategy=unrolled") != std::string::npos);
  CHECK(message("strategy=streamed,weights=const").find("constant bank") != std::string::npos);
  CHECK(message("stage=smem,prefetch=1").find("two chunks") != std::string::npos);
  CHECK(message("stage=smem,chunk=512,warps=8,vec=4,prefetch=8").find("shared memory") !=
        std::string::npos);
  CHECK(message("rows=256,vec=8").find("at most 512") != std::string::npos);
  CHECK(usage_error([&] { schedule(matrix, "host", 256, "stage=smem"); }).find("GPU") !=
        std::string::npos);
  SpmmProblem halves; // pieces of 4 bytes are two elements of these
  halves.type = DataType::f16;
  for (std::optional<uint32_t> columns : {std::optional<uint32_t>{7}, std::optional<uint32_t>{}}) {
    halves.columns = columns;
    CHECK(usage_error([&] {
            schedule_spmm(matrix, halves, find_target("sm_90"), parse_tile_choice("stage=smem"));
          }).find("4 aligned bytes") != std::string::npos);
  }
  SpmmProblem problem;
  problem.half_terms = 8;
  CHECK(usage_error([&] {
          schedule_spmm(matrix, problem, find_target("sm_90"));
        }).find("f16 or bf16") != std::string::npos);
}

TEST_CASE("parts of K are equal ranges that cover it") {
  for (uint32_t inner : {0u, 1u, 5u, 64u, 1000u})
    for (uint32_t splitk : {1u, 2u, 3u, 8u}) {
      CHECK(split_begin(inner, splitk, 0) == 0);
      CHECK(split_begin(inner, splitk, splitk) == inner);
      for (uint32_t part = 0; part < splitk; ++part) {
        const uint32_t length =
            split_begin(inner, splitk, part + 1) - split_begin(inner, splitk, part);
        CHECK(length <= inner / splitk + 1);
      }
    }
}

TEST_CASE("nothing to compute has no tiles") {
  CHECK(schedule(scattered_matrix(0, 5, 1), "sm_90", 8).tile_count() == 0);
  CHECK(schedule(scattered_matrix(5, 0, 1), "sm_90", 8).tile_count() > 0);
  CHECK(schedule(scattered_matrix(5, 5, 1), "sm_90", 0).tile_count() == 0);
}

TEST_CASE("default tiles fit every target at every width") {
  const Matrix matrix = scattered_matrix(300, 300, 7);
  for (const std::string& target : known_targets())
    for (DataType type : {DataType::f32, DataType::f16, DataType::bf16, DataType::f64})
      for (std::optional<uint32_t> columns :
           {std::optional<uint32_t>(), std::optional<uint32_t>(1), std::optional<uint32_t>(33),
            std::optional<uint32_t>(4096)}) {
        SpmmProblem problem;
        problem.type = type;
        problem.columns = columns;
        CHECK_NOTHROW(schedule_spmm(matrix, problem, find_target(target)));
      }
}
