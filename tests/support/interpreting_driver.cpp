#include "tests/support/interpreting_driver.h"

#include "tests/support/ptx_interpreter_program.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace sparsertc {
namespace {

size_t parameter_count(const ptx::Program& program, const std::string& entry) {
  for (const ptx::FunctionCode& function : program.decoded().functions)
    if (function.is_entry && function.name == entry)
      return function.parameters.size();
  throw std::runtime_error("the PTX has no entry " + entry);
}

} // namespace

void interpret_launches(cuda::FakeCudaDriver& fake) {
  fake.kernels = {"sparsertc_spmm"};
  fake.on_launch = [&fake](const cuda::FakeCudaDriver::Launch& launch) {
    if (launch.captured)
      return; // recorded, not run
    if (!launch.image)
      throw std::runtime_error("only PTX can be interpreted, and a cubin was loaded");
    const std::vector<uint8_t>& text = *launch.image;
    const ptx::Program program =
        ptx::parse({reinterpret_cast<const char*>(text.data()), text.size() - 1});
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
    machine.run(program, launch.kernel, {launch.grid[0], launch.grid[1], launch.grid[2]},
                {launch.block[0], launch.block[1], launch.block[2]}, arguments,
                launch.shared_bytes);
  };
}

} // namespace sparsertc
