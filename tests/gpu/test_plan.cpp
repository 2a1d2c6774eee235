// Plans on the GPU through the C API: results against float64, captured into graphs, from several
// threads and streams, and what an execution and a cold start cost.
#include "compiler/manifest.h"
#include "runtime/plan/c_api.h"
#include "tests/gpu/gpu_spmm.h"
#include "tests/support/cuda_programs.h"
#include "tests/support/interpreting_driver.h"
#include "tools/spmm_check.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

using namespace sparsertc;

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void require_ok(sparsertc_result result) {
  INFO(sparsertc_last_error());
  REQUIRE(std::string(sparsertc_result_name(result)) == "SPARSERTC_OK");
}

/// Context on this machine's GPU, or on the interpreter that stands in for it.
class CContext {
public:
  CContext() {
    cuda::FakeCudaDriver* interpreter = Machine::get().interpreter();
    require_ok(create_context(
        0,
        [interpreter] {
          return interpreter ? std::make_shared<const cuda::Driver>(interpreter->table())
                             : cuda::Driver::open();
        },
        &handle));
  }
  ~CContext() { sparsertc_context_destroy(handle); }
  CContext(const CContext&) = delete;
  CContext& operator=(const CContext&) = delete;
  sparsertc_context* handle = nullptr;
};

/// Device memory.
class CMemory {
public:
  CMemory(const CContext& context, uint64_t bytes) : context_(context) {
    require_ok(sparsertc_memory_allocate(context.handle, bytes, &address));
  }
  CMemory(const CContext& context, const AlignedBytes& bytes) : CMemory(context, bytes.size()) {
    write(bytes);
  }
  ~CMemory() { sparsertc_memory_free(context_.handle, address); }
  CMemory(const CMemory&) = delete;
  CMemory& operator=(const CMemory&) = delete;

  void write(const AlignedBytes& bytes) const {
    require_ok(
        sparsertc_memory_write(context_.handle, address, bytes.data(), bytes.size(), nullptr));
  }
  void read(const AlignedBytes& bytes) const {
    require_ok(
        sparsertc_memory_read(context_.handle, bytes.data(), address, bytes.size(), nullptr));
  }
  void* address = nullptr;

private:
  const CContext& context_;
};

class CPlan {
public:
  CPlan(const CContext& context, const Bundle& bundle) {
    const std::vector<uint8_t> bytes = serialize(bundle);
    require_ok(sparsertc_plan_create(context.handle, bytes.data(), bytes.size(), &handle));
  }
  ~CPlan() { sparsertc_plan_destroy(handle); }
  CPlan(const CPlan&) = delete;
  CPlan& operator=(const CPlan&) = delete;

  sparsertc_plan_info info() const {
    sparsertc_plan_info info;
    info.struct_size = sizeof info;
    require_ok(sparsertc_plan_query(handle, &info));
    return info;
  }
  sparsertc_plan* handle = nullptr;
};

Bundle bundle_of(const PreparedCase& prepared) {
  PipelineOptions options;
  options.artefact = Artefact::ptx;
  Bundle bundle;
  bundle.manifest = manifest_json(prepared.compiled, options);
  for (const GpuProgram& program : prepared.programs)
    bundle.sections.push_back(
        {program.road == GpuRoad::assembled ? "cubin" : "ptx", program.image});
  return bundle;
}

SpmmBuffers buffers_of(const PreparedCase& prepared, const SpmmOperands& operands) {
  SpmmProblem problem = prepared.test.problem;
  problem.ldb = std::max(problem.ldb, prepared.test.launch_ldb);
  problem.ldc = std::max(problem.ldc, prepared.test.launch_ldc);
  return lay_out(operands, problem);
}

/// The operands of a case in device memory, with a workspace.
class Operands {
public:
  Operands(const CContext& context, const CPlan& plan, const PreparedCase& prepared)
      : prepared_(prepared), buffers_(buffers_of(prepared, prepared.operands)),
        b_(context, buffers_.b), c_(context, buffers_.c), bias_(context, buffers_.bias),
        residual_(context, buffers_.residual), workspace_(context, plan.info().workspace_size) {
    require_ok(sparsertc_workspace_initialize(plan.handle, workspace_.address, nullptr));
    // Executions are on other streams: wait for it.
    sparsertc_execution_status status = {sizeof status, 0, 0, 0};
    require_ok(sparsertc_plan_status(plan.handle, workspace_.address, nullptr, &status));
  }

  sparsertc_arguments arguments() const {
    return {sizeof(sparsertc_arguments),
            b_.address,
            c_.address,
            bias_.address,
            residual_.address,
            prepared_.operands.columns,
            static_cast<int64_t>(buffers_.ldb),
            static_cast<int64_t>(buffers_.ldc)};
  }
  void* workspace() const { return workspace_.address; }
  const CMemory& b() const { return b_; }

  /// Fills C with NaN, so that nothing of an earlier execution is taken for a later one's.
  void poison() const { c_.write(buffers_of(prepared_, prepared_.operands).c); }
  std::vector<double> result() {
    c_.read(buffers_.c);
    return read_back(buffers_, prepared_.operands, prepared_.test.problem);
  }

private:
  const PreparedCase& prepared_;
  SpmmBuffers buffers_;
  CMemory b_, c_, bias_, residual_, workspace_;
};

void check_result(const PreparedCase& prepared, const SpmmOperands& operands,
                  const std::vector<double>& result) {
  const CheckResult check =
      check_spmm(prepared.compiled.weights, prepared.test.problem, prepared.compiled.schedule.tile,
                 operands, result, Machine::get().pool());
  INFO(fmt::format("worst element ({}, {}): expected {}, found {}, bound {}", check.row,
                   check.column, check.expected, check.found, check.bound));
  CHECK(check.passed);
}

PreparedCase prepare_case(GpuCase test) {
  test.roads = {GpuRoad::direct};
  if (Machine::get().ptxas() && !Machine::get().interpreter())
    test.roads.push_back(GpuRoad::assembled);
  PreparedCase prepared = prepare(test, Machine::get().pool(), 0);
  if (cuda::FakeCudaDriver* interpreter = Machine::get().interpreter())
    interpret_launches(*interpreter);
  return prepared;
}

/// A layer with bias and relu, N given at the launch.
PreparedCase demo_case(uint32_t rows = 96, uint32_t inner = 128, uint32_t columns = 200,
                       double density = 0.1) {
  GpuCase test;
  test.weights = random_weights(rows, inner, density, 41);
  test.problem.epilogue = {true, false, Activation::relu};
  test.columns = columns;
  return prepare_case(std::move(test));
}

} // namespace

TEST_CASE("plan: results against float64", "[interpret]") {
  if (!Machine::get().can_test() || !Machine::get().gpu())
    return;
  const CContext context;
  std::vector<GpuCase> cases(3);
  cases[0].weights = random_weights(21, 40, 0.3, 7);
  cases[0].problem.epilogue = {true, true, Activation::gelu};
  cases[0].columns = 45;
  cases[0].launch_ldb = 48;
  cases[0].launch_ldc = 50;
  cases[1].weights = random_weights(33, 29, 0.3, 8);
  cases[1].problem.type = DataType::f16;
  cases[1].problem.layout = Layout::column_major;
  cases[1].problem.epilogue = {false, true, Activation::none};
  cases[1].columns = 19;
  cases[2].weights = random_weights(17, 50, 0.4, 9, true);
  cases[2].problem.type = DataType::f64;
  cases[2].problem.columns = 32;
  cases[2].problem.epilogue = {true, false, Activation::silu};
  cases[2].columns = 32;
  cases[2].tile = "strategy=streamed,rows=2";
  for (const GpuCase& test : cases) {
    INFO(test.describe());
    const PreparedCase prepared = prepare_case(test);
    Bundle bundle = bundle_of(prepared);
    // As the device takes it, the cubin where there is one; then the PTX alone.
    while (!bundle.sections.empty()) {
      const CPlan plan(context, bundle);
      Operands operands(context, plan, prepared);
      CHECK(plan.info().code == (bundle.find("cubin") ? SPARSERTC_CODE_CUBIN : SPARSERTC_CODE_PTX));
      const sparsertc_arguments arguments = operands.arguments();
      require_ok(sparsertc_plan_execute(plan.handle, &arguments, operands.workspace(), nullptr));
      sparsertc_execution_status status = {sizeof status, 9, 9, 9};
      require_ok(sparsertc_plan_status(plan.handle, operands.workspace(), nullptr, &status));
      CHECK(status.outcome == SPARSERTC_OUTCOME_OK);
      check_result(prepared, prepared.operands, operands.result());
      bundle.sections.pop_back();
    }
  }
}

TEST_CASE("plan: captured into a graph and replayed with other data") {
  if (Machine::get().gpu_or_skip() == nullptr)
    return;
  const CContext context;
  const PreparedCase prepared = demo_case();
  const CPlan plan(context, bundle_of(prepared));
  Operands operands(context, plan, prepared);
  const cuda::Context& gpu = *Machine::get().gpu();
  const cuda::DriverTable& api = gpu.api();
  const cuda::Stream stream(gpu);
  const auto ok = [](cuda::Result result) { REQUIRE(result == cuda::Result::CUDA_SUCCESS); };

  // The plan's first execution is the captured one.
  const sparsertc_arguments arguments = operands.arguments();
  ok(api.cuStreamBeginCapture(stream.handle(), cuda::kCaptureModeThreadLocal));
  require_ok(
      sparsertc_plan_execute(plan.handle, &arguments, operands.workspace(), stream.handle()));
  cuda::GraphHandle graph = nullptr;
  ok(api.cuStreamEndCapture(stream.handle(), &graph));
  cuda::GraphExecHandle executable = nullptr;
  ok(api.cuGraphInstantiateWithFlags(&executable, graph, 0));
  ok(api.cuGraphDestroy(graph));

  for (const uint64_t seed : {1, 2, 3}) {
    SpmmOperands data = prepared.operands;
    if (seed != 1) {
      SpmmProblem problem = prepared.test.problem;
      problem.columns = prepared.test.columns;
      OperandSources sources;
      sources.seed = seed;
      const SpmmOperands other =
          make_operands(prepared.test.weights, problem, sources, prepared.test.columns);
      data.b = other.b; // the bias stays
    }
    operands.b().write(buffers_of(prepared, data).b);
    operands.poison();
    ok(api.cuGraphLaunch(executable, stream.handle()));
    sparsertc_execution_status status = {sizeof status, 0, 0, 0};
    require_ok(sparsertc_plan_status(plan.handle, operands.workspace(), stream.handle(), &status));
    check_result(prepared, data, operands.result());
  }
  ok(api.cuGraphExecDestroy(executable));
}

TEST_CASE("plan: several threads and streams at once") {
  if (Machine::get().gpu_or_skip() == nullptr)
    return;
  constexpr unsigned kThreads = 6;
  constexpr unsigned kExecutions = 100;
  const CContext context;
  const PreparedCase prepared = demo_case();
  const CPlan plan(context, bundle_of(prepared));
  std::vector<std::unique_ptr<Operands>> operands;
  std::vector<std::unique_ptr<cuda::Stream>> streams;
  for (unsigned i = 0; i < kThreads; ++i) {
    operands.push_back(std::make_unique<Operands>(context, plan, prepared));
    streams.push_back(std::make_unique<cuda::Stream>(*Machine::get().gpu()));
  }
  std::vector<unsigned> failures(kThreads);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      failures[i] += sparsertc_context_make_current(context.handle) != SPARSERTC_OK;
      const sparsertc_arguments arguments = operands[i]->arguments();
      for (unsigned execution = 0; execution < kExecutions; ++execution)
        failures[i] += sparsertc_plan_execute(plan.handle, &arguments, operands[i]->workspace(),
                                              streams[i]->handle()) != SPARSERTC_OK;
      sparsertc_execution_status status = {sizeof status, 0, 0, 0};
      failures[i] += sparsertc_plan_status(plan.handle, operands[i]->workspace(),
                                           streams[i]->handle(), &status) != SPARSERTC_OK;
    });
  for (std::thread& thread : threads)
    thread.join();
  const std::vector<double> first = operands[0]->result();
  check_result(prepared, prepared.operands, first);
  for (unsigned i = 0; i < kThreads; ++i) {
    CHECK(failures[i] == 0);
    CHECK(operands[i]->result() == first);
  }
}

// Measures: run.sh runs it alone.
TEST_CASE("plan: what an execution costs over a launch") {
  if (Machine::get().gpu_or_skip() == nullptr)
    return;
  constexpr unsigned kBatches = 200;
  constexpr unsigned kLaunches = 100; // fewer than the driver's queue holds
  const CContext context;
  const PreparedCase prepared = demo_case(8, 16, 32, 0.3);
  const CPlan plan(context, bundle_of(prepared));
  const Operands operands(context, plan, prepared);
  const cuda::Context& gpu = *Machine::get().gpu();
  const cuda::Stream stream(gpu);
  const sparsertc_arguments arguments = operands.arguments();

  const cuda::FunctionHandle function = plan.handle->plan->kernel()->handle;
  const PlanEntry& entry = plan.handle->plan->manifest().entries.front();
  const void *b = arguments.b, *c = arguments.c, *bias = arguments.bias;
  int32_t n = static_cast<int32_t>(arguments.n), ldb = n, ldc = n;
  void* parameters[] = {&b, &c, &bias, &n, &ldb, &ldc};
  unsigned failures = 0;
  std::vector<double> executes, launches;
  for (unsigned batch = 0; batch < kBatches; ++batch) {
    Clock::time_point start = Clock::now();
    for (unsigned i = 0; i < kLaunches; ++i)
      failures += sparsertc_plan_execute(plan.handle, &arguments, operands.workspace(),
                                         stream.handle()) != SPARSERTC_OK;
    executes.push_back(microseconds_since(start) / kLaunches);
    stream.synchronize();
    start = Clock::now();
    for (unsigned i = 0; i < kLaunches; ++i)
      failures +=
          gpu.api().cuLaunchKernel(function, 1, entry.grid_rows, 1, entry.block[0], entry.block[1],
                                   entry.block[2], entry.dynamic_shared_bytes, stream.handle(),
                                   parameters, nullptr) != cuda::Result::CUDA_SUCCESS;
    launches.push_back(microseconds_since(start) / kLaunches);
    stream.synchronize();
  }
  CHECK(failures == 0);
  const auto median = [](std::vector<double>& samples) {
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2];
  };
  const double execute_us = median(executes);
  const double launch_us = median(launches);
  fmt::print("time: plan_execute {:.3f} us, cuLaunchKernel {:.3f} us, difference {:.3f} us\n",
             execute_us, launch_us, execute_us - launch_us);
  CHECK(execute_us - launch_us <= 3.0);
}

// Measures: run.sh runs it alone.
TEST_CASE("plan: cold start from a bundle on disk") {
  if (Machine::get().gpu_or_skip() == nullptr)
    return;
  const CContext context;
  const PreparedCase prepared = demo_case(512, 512, 256, 0.1);
  const testing::TemporaryFolder folder;
  const std::string path = folder.file("layer.srtc");
  write_bundle(path, bundle_of(prepared));
  const SpmmBuffers buffers = buffers_of(prepared, prepared.operands);

  const Clock::time_point start = Clock::now();
  sparsertc_plan* plan = nullptr;
  require_ok(sparsertc_plan_load(context.handle, path.c_str(), &plan));
  const double load_us = microseconds_since(start);
  sparsertc_plan_info info;
  info.struct_size = sizeof info;
  require_ok(sparsertc_plan_query(plan, &info));
  {
    const CMemory workspace(context, info.workspace_size);
    const CMemory b(context, buffers.b), c(context, buffers.c), bias(context, buffers.bias);
    require_ok(sparsertc_workspace_initialize(plan, workspace.address, nullptr));
    const sparsertc_arguments arguments = {sizeof arguments, b.address, c.address, bias.address,
                                           nullptr,          256,       0,         0};
    require_ok(sparsertc_plan_execute(plan, &arguments, workspace.address, nullptr));
    c.read(buffers.c);
  }
  const double total_us = microseconds_since(start);
  const bool cubin = info.code == SPARSERTC_CODE_CUBIN;
  fmt::print("time: cold start, 512x512 at 90 % from {}: {:.2f} ms to the first result, {:.2f} of "
             "them loading\n",
             cubin ? "a cubin" : "PTX", total_us / 1000, load_us / 1000);
  sparsertc_plan_destroy(plan);
  check_result(prepared, prepared.operands,
               read_back(buffers, prepared.operands, prepared.test.problem));
  if (cubin)
    CHECK(total_us <= 50'000);
  else
    WARN("SKIPPED: the limit for a cubin: no ptxas to make one");
}
