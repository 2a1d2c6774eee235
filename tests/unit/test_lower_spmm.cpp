// The IR of SpMM schedules: well formed for every tile, one multiply-add an entry and column.
#include "compiler/lower/spmm.h"
#include "compiler/transform/pass.h"
#include "ir/builder.h"
#include "ir/error.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "tests/support/scattered_matrix.h"

#include <catch2/catch.hpp>

using namespace sparsertc;
using namespace sparsertc::ir;

namespace {

LoweredSpmm lower(const Matrix& matrix, const SpmmProblem& problem, const char* target,
                  const char* tile, SpmmSchedule* schedule = nullptr) {
  const SpmmSchedule s =
      schedule_spmm(matrix, problem, find_target(target), parse_tile_choice(tile));
  if (schedule)
    *schedule = s;
  return lower_spmm(matrix, s);
}

uint64_t count(const Module& module, Opcode code) {
  uint64_t found = 0;
  for (const Function& function : module.functions)
    for (const Op& op : function.ops)
      found += op.code == code;
  return found;
}

void check_well_formed(const Module& module) {
  for (const Violation& violation : verify(module))
    FAIL_CHECK(violation.function << " op " << violation.op_index << ": " << violation.message);
}

constexpr const char* kTiles[] = {
    "rows=1",
    "rows=8,vec=1,warps=2",
    "rows=5,vec=3,warps=1,groups=2",
    "rows=4,vec=2,splitk=3,warps=1",
    "rows=4,vec=4,splitk=2,groups=3,warps=1",
    "rows=8,stage=smem,warps=2,chunk=8,prefetch=2",
    "rows=8,stage=smem,warps=1,groups=4,vec=2,chunk=16,prefetch=3",
    "rows=8,weights=const,prefetch=0",
    "strategy=streamed,rows=1",
    "strategy=streamed,rows=4,vec=2,groups=2,prefetch=4",
    "strategy=streamed,rows=3,splitk=4,warps=1,groups=2",
    "rows=5,vec=2,warps=1,cluster=2",
    "rows=7,warps=1,groups=3,splitk=2,cluster=4",
    "strategy=streamed,rows=3,warps=1,groups=2,splitk=2,cluster=8",
};

} // namespace

TEST_CASE("every tile of every type lowers to well-formed IR") {
  const Matrix matrix = scattered_matrix(37, 53, 3);
  for (DataType type : {DataType::f32, DataType::f16, DataType::bf16, DataType::f64})
    for (const char* tile : kTiles)
      for (std::optional<uint32_t> columns :
           {std::optional<uint32_t>(64), std::optional<uint32_t>(100), std::optional<uint32_t>()}) {
        const bool staged = std::string_view(tile).find("smem") != std::string_view::npos;
        if (staged && !columns && element_bytes(type) < 4)
          continue; // no aligned copies
        for (uint32_t half_terms : {0u, 4u}) {
          if (half_terms != 0 && element_bytes(type) != 2)
            continue;
          INFO(name_of(type) << " " << tile << " half_terms=" << half_terms
                             << " columns=" << (columns ? std::to_string(*columns) : "dynamic"));
          SpmmProblem problem;
          problem.type = type;
          problem.columns = columns;
          problem.half_terms = half_terms;
          problem.epilogue = {true, true, Activation::gelu};
          LoweredSpmm lowered = lower(matrix, problem, "sm_90", tile);
          check_well_formed(lowered.module);
          schedule_loads_pass(4).run(lowered.module);
          check_well_formed(lowered.module);
          place_weights_pass().run(lowered.module);
          check_well_formed(lowered.module);
        }
      }
}

TEST_CASE("host schedules lower to well-formed IR without shared memory or barriers") {
  const Matrix matrix = scattered_matrix(37, 53, 3);
  for (const char* tile :
       {"", "rows=3,vec=2", "splitk=3", "strategy=streamed", "strategy=streamed,splitk=2,vec=3"}) {
    INFO(tile);
    SpmmProblem problem;
    problem.epilogue = {true, true, Activation::silu};
    const LoweredSpmm lowered = lower(matrix, problem, "host", tile);
    check_well_formed(lowered.module);
    CHECK(count(lowered.module, Opcode::barrier) == 0);
    for (const Symbol& symbol : lowered.module.symbols)
      CHECK(symbol.type.space() != Space::shared);
  }
}

TEST_CASE("unrolled code has one multiply-add for each entry and column of a thread") {
  const Matrix matrix = scattered_matrix(61, 40, 4);
  for (const char* tile : {"rows=8,vec=1", "rows=8,vec=2", "rows=16,vec=3", "rows=4,splitk=4"}) {
    INFO(tile);
    SpmmProblem problem;
    problem.columns = 96;
    SpmmSchedule schedule;
    const LoweredSpmm lowered = lower(matrix, problem, "sm_90", tile, &schedule);
    CHECK(count(lowered.module, Opcode::fma) == matrix.pattern.nnz() * schedule.tile.vec);
    CHECK(schedule.prediction.multiply_adds == matrix.pattern.nnz() * schedule.tile.vec);
  }
}

TEST_CASE("predicted loads of B are those of the code") {
  const Matrix matrix = scattered_matrix(61, 40, 4);
  SpmmProblem problem;
  problem.columns = 96;
  SpmmSchedule schedule;
  for (const char* tile :
       {"rows=8,vec=1,splitk=1", "rows=8,vec=4,splitk=1", "rows=16,vec=3,splitk=1"}) {
    INFO(tile);
    const LoweredSpmm lowered = lower(matrix, problem, "sm_90", tile, &schedule);
    CHECK(count(lowered.module, Opcode::load) == schedule.prediction.loads);
  }
}

TEST_CASE("each multiply-add names its entry") {
  const Matrix matrix = scattered_matrix(20, 20, 3);
  SpmmProblem problem;
  problem.columns = 32;
  const LoweredSpmm lowered = lower(matrix, problem, "sm_90", "rows=4,vec=1,splitk=1");
  uint64_t named = 0;
  for (const Function& function : lowered.module.functions)
    for (const Op& op : function.ops)
      if (op.code == Opcode::fma) {
        REQUIRE(op.origin != 0);
        const Origin origin = lowered.module.origins[op.origin - 1];
        const auto columns = matrix.pattern.row(origin.row);
        const auto at = std::lower_bound(columns.begin(), columns.end(), origin.column);
        REQUIRE(at != columns.end());
        REQUIRE(*at == origin.column);
        const uint64_t entry =
            matrix.pattern.row_offset[origin.row] + static_cast<uint64_t>(at - columns.begin());
        CHECK(op.immediate == Operand::f32(static_cast<float>(matrix.values[entry])).immediate());
        ++named;
      }
  CHECK(named == matrix.pattern.nnz());
}

TEST_CASE("far rows of B are reached through a moved base") {
  // 3,000 rows of 4 KB: offsets beyond 2^23 bytes.
  const Matrix matrix = scattered_matrix(8, 3000, 11);
  SpmmProblem problem;
  problem.columns = 1024;
  const LoweredSpmm lowered = lower(matrix, problem, "sm_90", "rows=8,splitk=1");
  check_well_formed(lowered.module);
  CHECK(count(lowered.module, Opcode::offset) > 0);
  for (const Function& function : lowered.module.functions)
    for (const Op& op : function.ops)
      if (op.code == Opcode::load)
        CHECK(op.immediate < (1 << 23));
}

TEST_CASE("the manifest lists the parameters in order") {
  const Matrix matrix = scattered_matrix(20, 20, 3);
  SpmmProblem problem;
  problem.epilogue = {true, true, Activation::none};
  const LoweredSpmm lowered = lower(matrix, problem, "sm_90", "");
  REQUIRE(lowered.kernels.size() == 1);
  const KernelManifest& manifest = lowered.kernels[0];
  CHECK(manifest.entry == "sparsertc_spmm");
  std::vector<ParameterRole> roles;
  for (const KernelParameter& parameter : manifest.parameters)
    roles.push_back(parameter.role);
  CHECK(roles == std::vector<ParameterRole>{ParameterRole::b, ParameterRole::c, ParameterRole::bias,
                                            ParameterRole::residual, ParameterRole::columns,
                                            ParameterRole::ldb, ParameterRole::ldc});
}

TEST_CASE("the same input lowers to the same text") {
  const Matrix matrix = scattered_matrix(50, 60, 3);
  SpmmProblem problem;
  problem.columns = 64;
  CHECK(print(lower(matrix, problem, "sm_90", "").module) ==
        print(lower(matrix, problem, "sm_90", "").module));
}

TEST_CASE("a weight that overflows its type is refused with its place") {
  Matrix matrix = scattered_matrix(4, 4, 2);
  matrix.values[1] = 1e6;
  SpmmProblem problem;
  problem.type = DataType::f16;
  problem.columns = 32;
  try {
    lower(matrix, problem, "sm_90", "");
    FAIL("no error");
  } catch (const UserError& error) {
    CHECK(std::string(error.what()).find("row 0, column 2 is too large for f16") !=
          std::string::npos);
  }
}
