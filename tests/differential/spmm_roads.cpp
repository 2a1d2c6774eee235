#include "tests/differential/spmm_roads.h"

#include "compiler/emit/host_program.h"
#include "compiler/emit/llvm.h"
#include "compiler/emit/ptx.h"
#include "compiler/inspect/dense_schedule.h"
#include "compiler/inspect/staged_region.h"
#include "compiler/pipeline.h"
#include "ir/error.h"
#include "tests/support/ptx_interpreter.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace sparsertc::test {
namespace {

std::string describe(const SpmmCase& test, const std::string& tile, const std::string& target) {
  const SpmmProblem& problem = test.problem;
  return fmt::format(
      "{}{} times N={} ({}), {}, {}, ldb {}, ldc {}, epilogue {}{}{}, half terms {}, "
      "tile {}, {}",
      test.weights.name,
      problem.convolution ? ", " + to_string(*problem.convolution) : std::string(), test.n(),
      problem.columns ? "fixed" : "dynamic", name_of(problem.type), layout_word(problem), test.ldb,
      test.ldc, problem.epilogue.bias ? "bias " : "", problem.epilogue.residual ? "residual " : "",
      name_of(problem.epilogue.activation), problem.half_terms, tile, target);
}

PipelineResult compile(const SpmmCase& test, const std::string& target,
                       const SpmmTileChoice& tile) {
  PipelineOptions options;
  options.problem = test.problem;
  options.target = find_target(target);
  options.tile = tile;
  options.artefact = Artefact::none;
  options.verify_each = true;
  return compile_spmm([&] { return test.weights; }, options);
}

/// Operands in guarded memory.
struct Memory {
  explicit Memory(const SpmmCase& test)
      : b(lay_out_b(test)), c(test.c_bytes(), test.edge), bias(lay_out_bias(test)),
        residual(lay_out_residual(test)) {}
  GuardedBuffer& of(ParameterRole role) {
    return role == ParameterRole::b      ? b
           : role == ParameterRole::c    ? c
           : role == ParameterRole::bias ? bias
                                         : residual;
  }
  GuardedBuffer b, c, bias, residual;
};

uint64_t number_of(const SpmmCase& test, ParameterRole role) {
  return role == ParameterRole::columns ? test.n()
         : role == ParameterRole::ldb   ? test.ldb
                                        : test.ldc;
}

std::vector<uint64_t> finish(const SpmmCase& test, const Memory& memory, uint32_t parts,
                             bool on_tensor_cores = false) {
  CHECK(memory.c.guards_intact());
  CHECK(gaps_intact(test, memory.c));
  std::vector<uint64_t> result = read_c(test, memory.c);
  CHECK(compare_with_reference(test, result, parts, on_tensor_cores) == "");
  return result;
}

void run_kernels(const SpmmCase& test, const LoweredSpmm& lowered,
                 const std::vector<std::string>& texts, Memory& memory, RoadCounts& counts) {
  for (const KernelManifest& kernel : lowered.kernels) {
    const ptx::Program program = ptx::parse_units(texts);
    ptx::Machine machine;
    std::vector<uint64_t> arguments;
    for (const KernelParameter& parameter : kernel.parameters) {
      if (!parameter.type.is_pointer()) {
        arguments.push_back(number_of(test, parameter.role));
        continue;
      }
      GuardedBuffer& buffer = memory.of(parameter.role);
      arguments.push_back(machine.register_buffer(
          buffer.data(), buffer.bytes(), parameter.role == ParameterRole::c, parameter.name));
    }
    const auto grid = static_cast<uint32_t>(kernel.grid_x(test.n()));
    if (grid == 0)
      continue;
    counts.instructions += machine
                               .run(program, kernel.entry, {grid, kernel.grid_rows, 1},
                                    {kernel.block[0], kernel.block[1], kernel.block[2]}, arguments,
                                    kernel.dynamic_shared_bytes)
                               .instructions;
  }
}

std::vector<uint64_t> run_ptx(const SpmmCase& test, const LoweredSpmm& lowered,
                              const std::vector<std::string>& texts, uint32_t parts,
                              bool on_tensor_cores, RoadCounts& counts) {
  Memory memory(test);
  run_kernels(test, lowered, texts, memory, counts);
  return finish(test, memory, parts, on_tensor_cores);
}

std::vector<uint64_t> run_host(const SpmmCase& test, const PipelineResult& compiled,
                               uint32_t parts) {
  static TaskPool pool(2);
  Memory memory(test);
  if (!compiled.lowered.kernels.empty()) {
    const HostProgram program = HostProgram::compile(compiled.lowered.module);
    for (const KernelManifest& kernel : compiled.lowered.kernels) {
      std::vector<KernelArgument> arguments;
      for (const KernelParameter& parameter : kernel.parameters) {
        KernelArgument argument;
        if (parameter.type.is_pointer())
          argument.pointer = memory.of(parameter.role).data();
        else
          argument.integer = static_cast<int64_t>(number_of(test, parameter.role));
        arguments.push_back(argument);
      }
      const auto columns = static_cast<uint32_t>(kernel.grid_x(test.n()));
      const uint32_t grid[3] = {columns, kernel.grid_rows, 1};
      if (columns != 0)
        program.run(kernel.entry, grid, arguments, pool);
    }
  }
  CHECK(memory.b.guards_intact());
  return finish(test, memory, parts);
}

} // namespace

SpmmCase make_case(Random& random, Matrix weights, const SpmmProblem& problem, uint32_t n,
                   ValueShape values, uint32_t slack, uint32_t nonfinite) {
  SpmmCase test;
  test.weights = rounded(std::move(weights), problem.type);
  test.problem = problem;
  const bool row_major = problem.layout == Layout::row_major;
  const auto& conv = problem.convolution;
  const uint32_t in = conv ? conv->height * conv->width : 0;
  const uint32_t out = conv ? conv->out_height() * conv->out_width() : 0;
  test.columns = conv ? n * out : n;
  test.ldb = std::max(1u, !row_major ? test.b_rows() : conv ? test.b_rows() * in : n) + slack;
  test.ldc = std::max(1u, !row_major ? test.rows() : conv ? test.rows() * out : n) + slack;
  // Where the leading dimensions are not the kernel's parameters they are part of the problem.
  const bool parameters = row_major && !problem.columns && !conv;
  if (slack != 0 && !parameters) {
    test.problem.ldb = test.ldb;
    test.problem.ldc = test.ldc;
  }
  const ptx::FloatFormat format = format_of(problem.type);
  const auto fill = [&](std::vector<double>& into, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      // Products of two huge numbers only overflow: the other factor is of ordinary size.
      const double value = random_value(
          random,
          values == ValueShape::huge || values == ValueShape::tiny ? ValueShape::unit : values,
          format.minimum, format.maximum);
      into.push_back(rounded(value, problem.type));
    }
  };
  fill(test.b, size_t{test.b_rows()} * test.b_columns());
  if (problem.epilogue.bias)
    fill(test.bias, test.rows());
  if (problem.epilogue.residual)
    fill(test.residual, size_t{test.rows()} * test.columns);
  constexpr double kSpecial[] = {std::numeric_limits<double>::quiet_NaN(),
                                 std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity()};
  for (uint32_t i = 0; i < nonfinite && !test.b.empty(); ++i)
    test.b[random.bits() % test.b.size()] = kSpecial[i % 3];
  return test;
}

void check_roads(const SpmmCase& test, const std::string& tile, const std::string& target,
                 const Roads& roads, RoadCounts& counts) {
  INFO(describe(test, tile, target));
  PipelineResult compiled;
  try {
    compiled = compile(test, target, parse_tile_choice(tile));
  } catch (const UsageError&) {
    ++counts.refused;
    return;
  }
  ++counts.run;
  INFO("chosen " << to_string(compiled.schedule.tile));
  const uint32_t parts = compiled.schedule.tile.parts();

  // The order of additions depends on the parts of K, on whether the border of a convolution has
  // code of its own, and with half-precision sums on the strategy.
  SpmmTileChoice host_tile;
  host_tile.splitk = parts;
  host_tile.border = compiled.schedule.tile.border;
  host_tile.strategy = compiled.schedule.tile.strategy;
  const Strategy strategy = compiled.schedule.tile.strategy;
  const bool is_dense = strategy == Strategy::dense;
  const bool on_tensor_cores = strategy == Strategy::panels || strategy == Strategy::bitmap ||
                               (is_dense && is_dense_on_tensor_cores(compiled.schedule));
  std::optional<std::vector<uint64_t>> expected; // the first road's result
  if (compiled.schedule.tile.strategy != Strategy::compressed && !is_dense &&
      !on_tensor_cores &&                  // have none
      !stages_images(compiled.schedule)) { // nor the order of sums
    INFO("on the host");
    expected = run_host(test, compile(test, "host", host_tile), parts);
  }
  const auto check_ptx = [&](const char* road, const std::vector<std::string>& texts) {
    INFO(road);
    try {
      const std::vector<uint64_t> found =
          run_ptx(test, compiled.lowered, texts, parts, on_tensor_cores, counts);
      if (!expected)
        expected = found;
      CHECK(first_difference(test, *expected, found) == "");
    } catch (const ptx::Error& error) {
      FAIL_CHECK(error.what());
    }
  };
  const Target gpu = find_target(target);
  check_ptx("direct PTX", {emit_ptx(compiled.lowered.module, gpu)});
  if (roads.units)
    check_ptx("direct PTX in units", emit_ptx_units(compiled.lowered.module, gpu));
  if (roads.llvm)
    check_ptx("PTX through LLVM", {emit_ptx_through_llvm(compiled.lowered.module, gpu)});
}

std::string fault_of_edited(const SpmmCase& test, const std::string& tile,
                            const std::string& target,
                            const std::function<void(std::string&)>& edit) {
  const PipelineResult compiled = compile(test, target, parse_tile_choice(tile));
  std::string text = emit_ptx(compiled.lowered.module, find_target(target));
  edit(text);
  Memory memory(test);
  RoadCounts counts;
  try {
    run_kernels(test, compiled.lowered, {text}, memory, counts);
  } catch (const ptx::Error& error) {
    return error.what();
  }
  return compare_with_reference(test, read_c(test, memory.c), compiled.schedule.tile.parts());
}

void report(const char* what, const RoadCounts& counts) {
  fmt::print("{} {}, {} refused tiles, {:.1f} million PTX instructions\n", counts.run, what,
             counts.refused, static_cast<double>(counts.instructions) * 1e-6);
}

} // namespace sparsertc::test
