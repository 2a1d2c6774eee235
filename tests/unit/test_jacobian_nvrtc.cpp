// Residuals compiled for GPUs, on machines without one.
#include "compiler/inspect/jacobian_schedule.h"
#include "ir/error.h"
#include "runtime/jacobian/gpu_program.h"
#include "runtime/jacobian/program.h"
#include "tests/support/nvrtc.h"
#include "tests/support/residuals.h"
#include "tests/support/temporary_folder.h"

#include <catch2/catch.hpp>

#include <memory>
#include <string>

using namespace sparsertc;
using namespace sparsertc::jacobian;
using Catch::Contains;

namespace {

std::string program_of(const test::ResidualCase& one, bool f32, bool batch, bool by_row) {
  JacobianScheduleOptions schedule;
  schedule.by_row = by_row;
  ProgramOptions options;
  options.f32 = f32;
  options.batch = batch;
  options.entries = evaluation_entries(schedule_jacobian(one.pattern, schedule).tables);
  return make_program(one.source, one.parameters, options);
}

std::string error_of(const cuda::Nvrtc& nvrtc, const std::string& text) {
  const ResidualSource source{"dir/F.cu", text};
  ProgramOptions options;
  options.entries = inspection_entries();
  try {
    compile_for_gpu(nvrtc, "sm_90", make_program(source, {}, options), source, nullptr);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

} // namespace

TEST_CASE("residuals are compiled by NVRTC, and the same text gives the same PTX") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc)
    return;
  for (const test::ResidualCase& one : test::residual_cases()) {
    CAPTURE(one.name);
    const std::string program =
        program_of(one, one.name == "branches", one.name == "chain", one.by_row);
    const std::string ptx = test::compile_residual(*nvrtc, program);
    CHECK_THAT(ptx, Contains(".entry sparsertc_residual(") &&
                        Contains(".entry sparsertc_product(") &&
                        Contains(".entry sparsertc_take_status("));
    CHECK_THAT(ptx, one.by_row ? Contains(".entry sparsertc_local_")
                               : Contains(".entry sparsertc_coloured_"));
    CHECK(test::compile_residual(*nvrtc, program) == ptx);
  }
}

TEST_CASE("residuals: several threads share a task's sums") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc)
    return;
  const test::ResidualCase one = test::weighted_graph(30);
  CHECK(has_sums(one.source));
  CHECK_FALSE(has_sums(test::branches(3).source));
  for (const uint32_t share : {0u, 4u}) {
    CAPTURE(share);
    JacobianScheduleOptions schedule;
    schedule.has_sums = true;
    schedule.machine = JacobianMachine::gpu(100, 1);
    schedule.entries_per_lane = share;
    const JacobianSchedule made = schedule_jacobian(one.pattern, schedule);
    CHECK(made.tables.rows.lanes.shared() == (share > 0));
    ProgramOptions options;
    options.shared = share > 0;
    options.entries = evaluation_entries(made.tables);
    const std::string ptx =
        test::compile_residual(*nvrtc, make_program(one.source, one.parameters, options));
    CHECK((ptx.find("shfl.sync.bfly") != std::string::npos) == (share > 0));
  }
}

TEST_CASE("residuals: a batch's derivatives in float32") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc)
    return;
  for (const test::ResidualCase& one : test::residual_cases()) {
    CAPTURE(one.name);
    JacobianScheduleOptions schedule;
    schedule.by_row = one.by_row;
    ProgramOptions options;
    options.batch = true;
    options.f32_values = true;
    options.entries = evaluation_entries(schedule_jacobian(one.pattern, schedule).tables);
    const std::string ptx =
        test::compile_residual(*nvrtc, make_program(one.source, one.parameters, options));
    CHECK_THAT(ptx, Contains("st.global.f32") || Contains("st.global.b32"));
  }
}

TEST_CASE("residuals: NVRTC's errors are told with the user's line") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc)
    return;
  const std::string head =
      "template <class T>\n__device__ void residual(Row i, Unknowns<T> x, const "
      "Parameters& p, T& f) {\n";
  CHECK_THAT(error_of(*nvrtc, head + "  f = x[i] + nothing;\n}\n"),
             Contains("dir/F.cu:3:1: error: identifier \"nothing\" is undefined"));
  CHECK_THAT(error_of(*nvrtc, head + "  f = tgamma(x[i]);\n}\n"),
             Contains("dir/F.cu:3:1: error: ") && Contains("tgamma") && Contains("(Dual)"));
  CHECK_THAT(error_of(*nvrtc, head + "  int k = x[i];\n  f = x[k];\n}\n"),
             Contains("dir/F.cu:3:1: error: "));
  CHECK_THAT(error_of(*nvrtc, "\ntemplate <class T> __device__ void residual(T x) {}\n"),
             Contains("dir/F.cu:2:1: error: `residual` cannot be called"));
  CHECK(error_of(*nvrtc, "int helper(int k) { return k; }\n" + head +
                             "  for (int k = 0; k < 3; ++k) f += x[helper(k)];\n}\n") ==
        "no error");
}

TEST_CASE("residuals: what NVRTC made is kept") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc)
    return;
  const testing::TemporaryFolder folder;
  Cache cache(folder.path());
  const test::ResidualCase one = test::dense_squares(4);
  const std::string program = program_of(one, false, false, true);
  const std::vector<uint8_t> first = compile_for_gpu(*nvrtc, "sm_90", program, one.source, &cache);
  CHECK(folder.names().size() == 1);
  CHECK(compile_for_gpu(*nvrtc, "sm_90", program, one.source, &cache) == first);
  CHECK(folder.names().size() == 1);
}
