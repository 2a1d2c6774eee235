// Dense products on the GPU: our own kernels, and cuBLAS through a plan, against float64.
#include "runtime/plan/plan.h"
#include "tests/gpu/gpu_spmm.h"
#include "tools/make_bundle.h"
#include "tools/spmm_check.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cstdlib>
#include <span>

using namespace sparsertc;

namespace {

struct Arithmetic {
  DataType type;
  Precision precision;
};
constexpr Arithmetic kArithmetics[] = {{DataType::f32, Precision::full},
                                       {DataType::f32, Precision::tf32},
                                       {DataType::f16, Precision::full},
                                       {DataType::bf16, Precision::full},
                                       {DataType::f64, Precision::full}};

SpmmProblem dense_problem(const Arithmetic& arithmetic, Layout layout, uint32_t columns) {
  SpmmProblem problem;
  problem.type = arithmetic.type;
  problem.precision = arithmetic.precision;
  problem.nonfinite = Nonfinite::dense;
  problem.layout = layout;
  problem.columns = columns;
  return problem;
}

std::span<uint8_t> bytes_of(const AlignedBytes& bytes) {
  return {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()};
}

/// Executes the plan on NaN-filled C and compares with float64.
void check_plan(const Plan& plan, const Matrix& weights, const SpmmProblem& problem,
                const SpmmTile& tile, const SpmmOperands& operands) {
  const cuda::Context& gpu = *plan.context().gpu();
  const cuda::Stream stream(gpu);
  const SpmmBuffers buffers = lay_out(operands, problem);
  const cuda::DeviceBuffer b(gpu, buffers.b.size()), c(gpu, buffers.c.size()),
      residual(gpu, buffers.residual.size()), workspace(gpu, plan.workspace_bytes());
  b.upload(bytes_of(buffers.b), stream);
  residual.upload(bytes_of(buffers.residual), stream);
  c.fill(0xff, stream);
  plan.initialize_workspace(workspace.address(), stream.handle());
  SpmmArguments arguments;
  arguments.b = b.address();
  arguments.c = c.address();
  arguments.residual = residual.address();
  arguments.n = operands.columns;
  plan.execute(arguments, workspace.address(), stream.handle());
  plan.status(workspace.address(), stream.handle());
  c.download(bytes_of(buffers.c), stream);
  const CheckResult result =
      check_spmm(weights, problem, tile, operands, read_back(buffers, operands, problem),
                 Machine::get().pool());
  CHECK(result.max_error_over_bound <= 1);
  CHECK(result.passed);
}

} // namespace

TEST_CASE("dense products by our own kernels", "[interpret][sanitize]") {
  if (!Machine::get().can_test())
    return;
  constexpr const char* kWords[] = {
      "strategy=dense,dense=own",
      "strategy=dense,dense=own,rows=16,vec=4,groups=2,warps=1,prefetch=2,chunk=16",
      "strategy=dense,dense=own,rows=32,vec=2,groups=1,warps=2,prefetch=4,chunk=16",
      "strategy=dense,dense=own,rows=64,vec=1,groups=2,warps=1,chunk=16",
  };
  unsigned number = 0;
  for (const uint32_t columns : {1u, 33u, 64u, 136u})
    for (const Arithmetic& arithmetic : kArithmetics) {
      const Matrix weights = random_weights(100, 130, 0.3, 51, number % 2 == 0);
      GpuCase test;
      test.weights = weights;
      test.problem = dense_problem(
          arithmetic, number % 4 == 3 ? Layout::column_major : Layout::row_major, columns);
      test.problem.epilogue = {number % 3 == 0, number % 3 == 1,
                               number % 7 == 0 ? Activation::silu : Activation::none};
      test.columns = columns;
      test.tile = kWords[number % std::size(kWords)];
      test.roads = {GpuRoad::direct};
      if (number % 6 == 0)
        test.roads.push_back(GpuRoad::llvm);
      check_case(test);
      ++number;
    }
}

TEST_CASE("dense products by cuBLAS: every type, layout and epilogue that it takes") {
  const Machine& machine = Machine::get();
  if (!machine.can_test())
    return;
  if (!machine.gpu() || machine.interpreter() || !machine.ptxas()) {
    WARN("SKIPPED: needs a GPU and ptxas");
    return;
  }
  struct Shape {
    uint32_t m, k, n;
  };
  constexpr Shape kShapes[] = {{136, 512, 48}, {67, 131, 33}, {200, 96, 1}, {128, 256, 512}};
  struct Case {
    Matrix weights;
    PipelineOptions options;
    PipelineResult compiled;
    Bundle bundle;
  };
  std::vector<Case> cases;
  for (const Layout layout : {Layout::row_major, Layout::column_major})
    for (const Arithmetic& arithmetic : kArithmetics)
      for (const Shape& shape : kShapes) {
        const auto number = static_cast<unsigned>(cases.size());
        Case& one = cases.emplace_back();
        one.weights = random_weights(shape.m, shape.k, 0.2, 61 + number);
        SpmmProblem& problem = one.options.problem;
        problem = dense_problem(arithmetic, layout, shape.n);
        problem.epilogue.residual = number % 3 == 1;
        problem.epilogue.activation = number % 5 < 2 ? Activation::relu : Activation::none;
        if (number % 3 == 2) { // gaps between the lines, aligned and not
          problem.ldb = (layout == Layout::row_major ? shape.n : shape.k) + 8;
          problem.ldc = (layout == Layout::row_major ? shape.n : shape.m) + 8 - number % 2 * 5;
        }
        one.options.target = machine.target();
        one.options.tile = parse_tile_choice("strategy=dense,dense=library");
        one.options.artefact = Artefact::bundle;
        one.options.assembler = machine.ptxas();
        one.options.bindable = number % 7 == 0;
      }
  // Assembling the kernels that would do without the library is what takes long.
  Machine::get().pool().run(cases.size(), [&](uint64_t i) {
    Case& one = cases[i];
    one.compiled = compile_spmm([&] { return one.weights; }, one.options);
    one.bundle = make_bundle(one.compiled, one.options);
  });
  const auto context = std::make_shared<ExecutionContext>(0);
  size_t by_library = 0;
  for (Case& one : cases) {
    const SpmmProblem& settled = one.compiled.schedule.request;
    INFO(fmt::format("{}, {}, {} x {} x {}, residual {}, {}, ldb {}, ldc {}", name_of(settled.type),
                     name_of(settled.precision), one.weights.pattern.rows,
                     one.weights.pattern.columns, *settled.columns, settled.epilogue.residual,
                     layout_word(settled), settled.ldb, settled.ldc));
    Plan plan(context, std::move(one.bundle), "dense");
    if (plan.library())
      ++by_library;
    else
      WARN("by our own kernel: " << plan.library_refusal());
    const SpmmOperands operands =
        make_operands(one.weights, settled, OperandSources{{}, {}, {}, 7}, *settled.columns);
    check_plan(plan, one.weights, settled, one.compiled.schedule.tile, operands);
    if (one.options.bindable) {
      Matrix others = one.weights;
      for (double& value : others.values)
        value = -0.5 * value + 0.125;
      plan.bind_values(std::span<const double>(others.values));
      check_plan(plan, others, settled, one.compiled.schedule.tile, operands);
    }
  }
  if (by_library == 0)
    WARN("SKIPPED: cuBLASLt was not found; our own kernels ran");
}
