#include "tests/gpu/gpu_spmm.h"

#include "compiler/emit/host_program.h"
#include "compiler/emit/llvm.h"
#include "compiler/emit/ptx.h"
#include "compiler/input/convert.h"
#include "compiler/input/random_values.h"
#include "compiler/inspect/staged_region.h"
#include "ir/error.h"
#include "tests/support/interpreting_driver.h"
#include "tools/gpu.h"
#include "tools/spmm_check.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

namespace sparsertc {
namespace {

/// Bytes before and after every buffer on the device; keeps the alignment of an allocation.
constexpr uint64_t kGuardBytes = 256;
constexpr uint8_t kPoison = 0xff; // NaN in every floating-point type

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Device memory with a poisoned guard on both sides.
class GuardedBuffer {
public:
  GuardedBuffer(const cuda::Context& context, const cuda::Stream& stream, const AlignedBytes& bytes)
      : stream_(stream), size_(bytes.size()), buffer_(context, size_ + 2 * kGuardBytes) {
    std::vector<uint8_t> staging(buffer_.bytes(), kPoison);
    std::memcpy(staging.data() + kGuardBytes, bytes.data(), size_);
    buffer_.upload(staging, stream_);
    stream_.synchronize();
  }
  cuda::DeviceAddress address() const { return buffer_.address() + kGuardBytes; }

  /// Copies the contents out; false where a guard was written.
  bool download(const AlignedBytes& into) const {
    std::vector<uint8_t> staging(buffer_.bytes());
    buffer_.download(staging, stream_);
    std::memcpy(into.data(), staging.data() + kGuardBytes, size_);
    const auto poisoned = [](uint8_t byte) { return byte == kPoison; };
    return std::all_of(staging.begin(), staging.begin() + kGuardBytes, poisoned) &&
           std::all_of(staging.end() - kGuardBytes, staging.end(), poisoned);
  }

private:
  const cuda::Stream& stream_;
  uint64_t size_;
  cuda::DeviceBuffer buffer_;
};

/// The operands as the kernel will find them.
SpmmBuffers buffers_of(const PreparedCase& prepared) {
  SpmmProblem problem = prepared.problem();
  problem.ldb = std::max(problem.ldb, prepared.test.launch_ldb);
  problem.ldc = std::max(problem.ldc, prepared.test.launch_ldc);
  return lay_out(prepared.operands, problem);
}

/// The operands of a prepared case on the device, and how its kernel is launched on them.
class DeviceOperands {
public:
  DeviceOperands(const cuda::Context& gpu, const PreparedCase& prepared)
      : buffers_(buffers_of(prepared)), stream_(gpu), b_(gpu, stream_, buffers_.b),
        c_(gpu, stream_, buffers_.c), bias_(gpu, stream_, buffers_.bias),
        residual_(gpu, stream_, buffers_.residual) {
    const KernelManifest& kernel = prepared.compiled.lowered.kernels.front();
    const auto pointer = [](const GuardedBuffer& buffer) {
      return reinterpret_cast<void*>(static_cast<uintptr_t>(buffer.address()));
    };
    const OperandAddresses addresses = {pointer(b_), pointer(c_), pointer(bias_),
                                        pointer(residual_)};
    for (const KernelArgument& argument :
         arguments_of(kernel, addresses, prepared.operands.n, buffers_.ldb, buffers_.ldc))
      arguments_.push_back(std::bit_cast<uint64_t>(argument));
    shape_.grid[0] = static_cast<uint32_t>(kernel.grid_x(prepared.operands.n));
    shape_.grid[1] = kernel.grid_rows;
    std::copy(std::begin(kernel.block), std::end(kernel.block), shape_.block);
    shape_.dynamic_shared_bytes = kernel.dynamic_shared_bytes;
  }

  const cuda::Stream& stream() const { return stream_; }
  const std::vector<uint64_t>& arguments() const { return arguments_; }
  const cuda::LaunchShape& shape() const { return shape_; }

  /// C with the bytes that do not belong to it; checks the guards of all buffers.
  const SpmmBuffers& download() {
    CHECK(c_.download(buffers_.c));
    const AlignedBytes scratch(
        std::max({buffers_.b.size(), buffers_.bias.size(), buffers_.residual.size()}));
    CHECK(b_.download(scratch));
    CHECK(bias_.download(scratch));
    CHECK(residual_.download(scratch));
    return buffers_;
  }

private:
  SpmmBuffers buffers_;
  cuda::Stream stream_;
  GuardedBuffer b_, c_, bias_, residual_;
  std::vector<uint64_t> arguments_;
  cuda::LaunchShape shape_;
};

/// Bytes of C between its rows (or columns), where the leading dimension is not tight, must still
/// be poison.
bool padding_is_untouched(const SpmmBuffers& buffers, const SpmmOperands& operands,
                          const SpmmProblem& problem) {
  const uint64_t size = element_bytes(problem.type);
  std::vector<bool> is_element(buffers.c.size() / size, false);
  for (uint64_t row = 0; row < operands.rows; ++row)
    for (uint64_t column = 0; column < operands.columns; ++column)
      is_element[c_position(problem, row, column, buffers.ldc)] = true;
  for (uint64_t byte = 0; byte < buffers.c.size(); ++byte)
    if (!is_element[byte / size] && buffers.c.data()[byte] != std::byte{kPoison})
      return false;
  return true;
}

/// "element (3, 5): 1.5 and 1.25", the first that differs; empty where all are the same bits, any
/// NaN being like any other.
std::string first_difference(const std::vector<double>& a, const std::vector<double>& b,
                             uint32_t columns) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<uint64_t>(a[i]) != std::bit_cast<uint64_t>(b[i]) &&
        !(std::isnan(a[i]) && std::isnan(b[i])))
      return fmt::format("element ({}, {}): host {} and GPU {}", i / columns, i % columns, a[i],
                         b[i]);
  return {};
}

void check_against_float64(const PreparedCase& prepared, const std::vector<double>& result,
                           const SpmmTile& tile) {
  const CheckResult check = check_spmm(prepared.compiled.weights, prepared.problem(), tile,
                                       prepared.operands, result, Machine::get().pool());
  INFO(fmt::format("worst element ({}, {}): expected {}, found {}, bound {}", check.row,
                   check.column, check.expected, check.found, check.bound));
  CHECK(check.passed);
}

GpuProgram make_program(GpuRoad road, const LoweredSpmm& lowered, const Target& target,
                        const Ptxas* ptxas, unsigned jobs) {
  if (road == GpuRoad::assembled)
    return assemble_units(lowered, target, *ptxas, 0, jobs);
  const auto start = std::chrono::steady_clock::now();
  GpuProgram program;
  program.road = road;
  const std::string text = road == GpuRoad::direct ? emit_ptx(lowered.module, target)
                                                   : emit_ptx_through_llvm(lowered.module, target);
  program.image.assign(text.begin(), text.end());
  // Where nothing will be launched, ptxas stands in for the driver.
  const bool driver_assembles = Machine::get().gpu() && road == GpuRoad::direct;
  if (ptxas && !driver_assembles) {
    AssembleRequest request;
    const std::string units[] = {text};
    request.units = units;
    request.target = target.name;
    request.kernels = {lowered.kernels.front().entry};
    program.image = ptxas->assemble(request).cubin;
  }
  program.seconds = seconds_since(start);
  return program;
}

void run_on_host_only(PreparedCase& prepared, TaskPool& pool) {
  PipelineOptions options;
  options.problem = prepared.test.problem;
  options.target = find_target("host");
  options.artefact = Artefact::none;
  // Sums depend on the parts of K and, of convolutions, on whether the border has code of its own;
  // half-precision ones on the strategy too.
  if (prepared.compiled.schedule.tile.strategy != Strategy::compressed &&
      prepared.compiled.schedule.tile.strategy != Strategy::bitmap)
    options.tile.splitk = prepared.compiled.schedule.tile.parts();
  options.tile.border = prepared.compiled.schedule.tile.border;
  if (prepared.test.problem.half_terms != 0)
    options.tile.strategy = prepared.compiled.schedule.tile.strategy;
  const PipelineResult compiled = compile_spmm([&] { return prepared.test.weights; }, options);
  prepared.host_tile = compiled.schedule.tile;
  const SpmmBuffers buffers = buffers_of(prepared);
  if (!compiled.lowered.kernels.empty()) {
    const HostProgram program = HostProgram::compile(compiled.lowered.module);
    run_on_host(program, compiled.lowered.kernels, buffers, prepared.operands.n, pool);
  }
  prepared.host_result = read_back(buffers, prepared.operands, prepared.problem());
}

} // namespace

std::string_view name_of(GpuRoad road) {
  switch (road) {
  case GpuRoad::direct:
    return "direct PTX, assembled by the driver";
  case GpuRoad::llvm:
    return "PTX from LLVM";
  case GpuRoad::assembled:
    return "direct PTX in units, assembled by ptxas";
  }
  return {};
}

// ---- machine ----

Machine& Machine::get() {
  static Machine machine;
  return machine;
}

Machine::Machine() {
  try {
    gpu_ = require_gpu();
  } catch (const NoGpuError& error) {
    no_gpu_ = error.what();
    no_gpu_.resize(std::min(no_gpu_.size(), no_gpu_.find('\n')));
  }
  const char* without = std::getenv("SPARSERTC_GPU_TESTS_WITHOUT");
  without_gpu_ = without ? without : "";
  if (!gpu_ && without_gpu_ == "interpret") {
    interpreter_ = std::make_unique<cuda::FakeCudaDriver>();
    gpu_ = std::make_unique<cuda::Context>(
        std::make_shared<const cuda::Driver>(interpreter_->table()));
  }
  target_ = find_target(gpu_ ? target_of(*gpu_) : "sm_90");
  std::vector<std::string> refused;
  ptxas_ = Ptxas::find(refused);
  if (!ptxas_)
    fmt::print("no ptxas, the road through it is left out: {}\n", refused.front());
}

bool Machine::can_test() const {
  if (gpu_)
    return true;
  const bool assemble = without_gpu_ == "assemble" && ptxas_;
  WARN("SKIPPED: " << (assemble ? "the launches: " : "") << no_gpu_);
  return assemble;
}

const cuda::Context* Machine::gpu_or_skip(const char* instead) const {
  if (!can_test())
    return nullptr;
  if (interpreter_ || !gpu_) {
    WARN("SKIPPED: needs a GPU"
         << (instead ? fmt::format("; the interpreter has a test of its own ({})", instead)
                     : std::string()));
    return nullptr;
  }
  gpu_->make_current();
  return gpu_.get();
}

std::string carried_file(const std::string& path) {
  const std::filesystem::path own = std::filesystem::path(SPARSERTC_SOURCE_DIR) / path;
  if (std::filesystem::exists(own))
    return own.string();
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / own.filename()).string();
}

// ---- cases ----

std::string GpuCase::describe() const {
  const Epilogue& epilogue = problem.epilogue;
  return fmt::format(
      "{}{}: {} x {}, {} non-zeros, N {} ({}), {}, {}, ldb {}, ldc {}, epilogue {}{}{}, "
      "half terms {}, tile {}, seed {}{}",
      weights.name,
      problem.convolution ? " (" + to_string(*problem.convolution) + ")" : std::string(),
      weights.pattern.rows, weights.pattern.columns, weights.pattern.nnz(), columns,
      problem.columns ? "fixed" : "dynamic", name_of(problem.type), layout_word(problem),
      problem.ldb, problem.ldc, epilogue.bias ? "bias " : "", epilogue.residual ? "residual " : "",
      name_of(epilogue.activation), problem.half_terms, tile.empty() ? "auto" : tile, seed,
      nonfinite ? ", NaN and infinities in B" : "");
}

GpuProgram assemble_units(const LoweredSpmm& lowered, const Target& target, const Ptxas& ptxas,
                          uint32_t max_registers, unsigned jobs) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> units = emit_ptx_units(lowered.module, target);
  const KernelManifest& kernel = lowered.kernels.front();
  AssembleRequest request;
  request.units = units;
  request.target = target.name;
  request.kernels = {kernel.entry};
  const uint64_t threads = uint64_t{kernel.block[0]} * kernel.block[1] * kernel.block[2];
  request.max_registers = register_limit(threads);
  if (max_registers != 0)
    request.max_registers = std::min(request.max_registers, max_registers);
  request.jobs = jobs;
  Assembled assembled = ptxas.assemble(request);
  GpuProgram program;
  program.road = GpuRoad::assembled;
  program.image = std::move(assembled.cubin);
  program.seconds = seconds_since(start);
  for (const FunctionResources& function : assembled.functions)
    if (function.is_kernel)
      program.registers = function.registers;
  return program;
}

SpmmProblem PreparedCase::problem() const {
  return test.problem.convolution ? compiled.schedule.request : test.problem;
}

PreparedCase prepare(const GpuCase& test, TaskPool& pool, unsigned jobs) {
  Machine& machine = Machine::get();
  PreparedCase prepared;
  prepared.test = test;
  PipelineOptions options;
  options.problem = test.problem;
  options.target = machine.target();
  options.tile = parse_tile_choice(test.tile);
  options.artefact = Artefact::none;
  options.verify_each = true;
  prepared.compiled = compile_spmm([&] { return test.weights; }, options);

  OperandSources sources;
  sources.seed = test.seed;
  SpmmProblem with_columns = prepared.problem();
  with_columns.columns = test.columns;
  prepared.operands = make_operands(prepared.compiled.weights, with_columns, sources, test.columns);
  if (!test.b.empty())
    prepared.operands.b = test.b;
  if (test.nonfinite) {
    constexpr double special[] = {std::numeric_limits<double>::quiet_NaN(),
                                  std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity()};
    SplitMix64 random(test.seed + 17);
    for (uint32_t i = 0; !prepared.operands.b.empty() && i < 6; ++i)
      prepared.operands.b[random.next() % prepared.operands.b.size()] = special[i % 3];
  }
  run_on_host_only(prepared, pool);
  if (!prepared.compiled.lowered.kernels.empty())
    for (const GpuRoad road : test.roads)
      if (machine.interpreter() ? road == GpuRoad::direct
                                : road != GpuRoad::assembled || machine.ptxas())
        prepared.programs.push_back(
            make_program(road, prepared.compiled.lowered, machine.target(), machine.ptxas(), jobs));
  return prepared;
}

std::vector<double> run_on_gpu(const PreparedCase& prepared, const GpuProgram& program) {
  const cuda::Context& gpu = *Machine::get().gpu();
  DeviceOperands operands(gpu, prepared);
  if (cuda::FakeCudaDriver* interpreter = Machine::get().interpreter())
    interpret_launches(*interpreter);
  const cuda::Launcher launcher(gpu, program.image, prepared.compiled.lowered.kernels.front().entry,
                                operands.shape());
  launcher.launch(operands.arguments(), operands.stream());
  operands.stream().synchronize("running the kernel");
  const SpmmBuffers& buffers = operands.download();
  CHECK(padding_is_untouched(buffers, prepared.operands, prepared.problem()));
  return read_back(buffers, prepared.operands, prepared.problem());
}

void run_and_check(const PreparedCase& prepared) {
  INFO(prepared.test.describe());
  INFO("chosen tile: " << to_string(prepared.compiled.schedule.tile));
  {
    INFO("on the host");
    check_against_float64(prepared, prepared.host_result, prepared.host_tile);
  }
  if (!Machine::get().gpu())
    return;
  for (const GpuProgram& program : prepared.programs) {
    INFO(name_of(program.road));
    const std::vector<double> result = run_on_gpu(prepared, program);
    check_against_float64(prepared, result, prepared.compiled.schedule.tile);
    // Three strategies and the border of staged images have orders of their own.
    if (prepared.compiled.schedule.tile.strategy != Strategy::compressed &&
        prepared.compiled.schedule.tile.strategy != Strategy::panels &&
        prepared.compiled.schedule.tile.strategy != Strategy::bitmap &&
        prepared.compiled.schedule.tile.strategy != Strategy::dense &&
        !stages_images(prepared.compiled.schedule))
      CHECK(first_difference(prepared.host_result, result, prepared.operands.columns) == "");
  }
}

void check_case(const GpuCase& test) {
  INFO(test.describe());
  run_and_check(prepare(test, Machine::get().pool(), 0));
}

cuda::LaunchTiming time_on_gpu(const PreparedCase& prepared, const GpuProgram& program) {
  const cuda::Context& gpu = *Machine::get().gpu();
  const DeviceOperands operands(gpu, prepared);
  const cuda::Launcher launcher(gpu, program.image, prepared.compiled.lowered.kernels.front().entry,
                                operands.shape());
  return launcher.time_by_graph(operands.arguments(), operands.stream());
}

Matrix random_weights(uint32_t rows, uint32_t columns, double density, uint64_t seed, bool holes) {
  Matrix matrix;
  matrix.name = fmt::format("random, seed {}", seed);
  matrix.pattern.rows = rows;
  matrix.pattern.columns = columns;
  SplitMix64 random(seed);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < columns; ++column) {
      const double draw = static_cast<double>(random.next() >> 11) * 0x1p-53;
      const bool hole = holes && (row % 3 == 2 || column % 4 == 1);
      if (draw < density && !hole)
        matrix.pattern.column_index.push_back(column);
    }
    matrix.pattern.row_offset.push_back(matrix.pattern.column_index.size());
  }
  matrix.values = random_values(matrix.pattern.nnz(), seed + 1);
  matrix.stored = StoredType::f32;
  return matrix;
}

} // namespace sparsertc
