#include "tests/support/interpreting_driver.h"

#include "tests/support/ptx_interpreter_program.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace sparsertc {
namespace {

/// Stands for the driver's function: the handle of a condition is the address of its word.
constexpr const char* kSetConditional = R"(.version 8.0
.target sm_80
.address_size 64
.visible .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value)
{
  .reg .b64 %rd<1>;
  .reg .b32 %r<1>;
  ld.param.u64 %rd0, [handle];
  ld.param.u32 %r0, [value];
  st.global.u32 [%rd0], %r0;
  ret;
}
)";
constexpr const char* kSetter = "sparsertc_set_condition";

ptx::Program program_of(const cuda::FakeCudaDriver::Launch& launch) {
  if (!launch.image)
    throw std::runtime_error("only PTX can be interpreted, and a cubin was loaded");
  const std::vector<uint8_t>& image = *launch.image;
  const std::string text(reinterpret_cast<const char*>(image.data()), image.size() - 1);
  if (launch.kernel != kSetter)
    return ptx::parse(text);
  const std::string units[] = {text, kSetConditional};
  return ptx::parse_units(units);
}

size_t parameter_count(const ptx::Program& program, const std::string& entry) {
  for (const ptx::FunctionCode& function : program.decoded().functions)
    if (function.is_entry && function.name == entry)
      return function.parameters.size();
  throw std::runtime_error("the PTX has no entry " + entry);
}

} // namespace

void interpret_launches(cuda::FakeCudaDriver& fake) {
  fake.kernels = {"sparsertc_spmm",           "sparsertc_lu_input", "sparsertc_lu_factor",
                  "sparsertc_lu_solve_input", "sparsertc_lu_solve", "sparsertc_lu_block_input",
                  "sparsertc_lu_block_solve"};
  fake.on_launch = [&fake](const cuda::FakeCudaDriver::Launch& launch) {
    if (launch.captured)
      return; // recorded, not run
    const ptx::Program program = program_of(launch);
    ptx::Machine machine;
    std::vector<std::pair<cuda::DeviceAddress, uint64_t>> places; // in the fake, in the machine
    for (auto& [address, block] : fake.memory)
      places.emplace_back(address, machine.register_buffer(block.data(), block.size(), true));
    std::vector<uint64_t> arguments(parameter_count(program, launch.kernel));
    for (size_t i = 0; i < arguments.size(); ++i) {
      std::memcpy(&arguments[i], launch.parameters[i], sizeof(uint64_t));
      for (const auto& [address, place] : places)
        if (arguments[i] >= address && arguments[i] - address < fake.memory[address].size()) {
          arguments[i] += place - address;
          break;
        }
    }
    if (launch.kernel == kSetter) {
      uint32_t& condition = fake.conditions.at(arguments[0]).second;
      arguments[0] = machine.register_buffer(&condition, sizeof condition, true);
    }
    machine.run(program, launch.kernel, {launch.grid[0], launch.grid[1], launch.grid[2]},
                {launch.block[0], launch.block[1], launch.block[2]}, arguments,
                launch.shared_bytes);
  };
}

void interpret_graphs(cuda::FakeCudaDriver& fake) {
  fake.argument_words = [](const cuda::FakeCudaDriver::Launch& launch) {
    return parameter_count(program_of(launch), launch.kernel);
  };
}

test::InterpretedGpu::InterpretedGpu(std::set<std::string> kernels) {
  interpret_launches(fake);
  fake.kernels = std::move(kernels);
  fake.attributes[cuda::DeviceAttribute::multiprocessor_count] = 1;
  context = std::make_unique<cuda::Context>(std::make_shared<const cuda::Driver>(fake.table()));
}

} // namespace sparsertc
