#include "tests/support/lu_analysis_on_host.h"

#include "tests/support/cuda_on_host.h"

#include "runtime/kernels/lu_analysis.cu"

#include <stdexcept>
#include <string>

namespace sparsertc::test {
namespace {

using namespace kernels;

template <class Arguments>
void run(const cuda::FakeCudaDriver::Launch& launch, void (*kernel)(Arguments),
         bool together = false) {
  const Arguments arguments = *static_cast<const Arguments*>(launch.parameters[0]);
  cuda_on_host::run(launch.grid[0], launch.block[0], together, [&] { kernel(arguments); });
}

void run_kernel(const cuda::FakeCudaDriver::Launch& launch) {
  const std::string& name = launch.kernel;
  if (name == "sparsertc_fill2_count")
    run(launch, sparsertc_fill2_count);
  else if (name == "sparsertc_fill2_write")
    run(launch, sparsertc_fill2_write);
  else if (name == "sparsertc_scan_sum")
    run(launch, sparsertc_scan_sum);
  else if (name == "sparsertc_scan_tiles")
    run(launch, sparsertc_scan_tiles);
  else if (name == "sparsertc_scan_offsets")
    run(launch, sparsertc_scan_offsets);
  else if (name == "sparsertc_levels_lower")
    run(launch, sparsertc_levels_lower);
  else if (name == "sparsertc_levels_count")
    run(launch, sparsertc_levels_count);
  else if (name == "sparsertc_levels_transpose")
    run(launch, sparsertc_levels_transpose);
  else if (name == "sparsertc_levels_ready")
    run(launch, sparsertc_levels_ready);
  else if (name == "sparsertc_levels_kahn")
    run(launch, sparsertc_levels_kahn, true);
  else if (name == "sparsertc_levels_maximum")
    run(launch, sparsertc_levels_maximum);
  else if (name == "sparsertc_radix_count")
    run(launch, sparsertc_radix_count);
  else if (name == "sparsertc_radix_scatter")
    run(launch, sparsertc_radix_scatter);
  else if (name == "sparsertc_levels_offset")
    run(launch, sparsertc_levels_offset);
  else
    throw std::logic_error("there is no kernel " + name);
}

} // namespace

void run_lu_analysis_on_host(cuda::FakeCudaDriver& driver, int32_t threads) {
  driver.kernels = {
      "sparsertc_fill2_count",   "sparsertc_fill2_write",      "sparsertc_scan_sum",
      "sparsertc_scan_tiles",    "sparsertc_scan_offsets",     "sparsertc_levels_lower",
      "sparsertc_levels_count",  "sparsertc_levels_transpose", "sparsertc_levels_ready",
      "sparsertc_levels_kahn",   "sparsertc_levels_maximum",   "sparsertc_radix_count",
      "sparsertc_radix_scatter", "sparsertc_levels_offset"};
  driver.attributes[cuda::DeviceAttribute::multiprocessor_count] = 2;
  driver.attributes[cuda::DeviceAttribute::max_registers_per_block] = 65536;
  driver.function_attributes[cuda::FunctionAttribute::max_threads_per_block] = threads;
  driver.function_attributes[cuda::FunctionAttribute::registers] = 512;
  driver.on_launch = run_kernel;
}

std::span<const uint8_t> lu_analysis_image() {
  static constexpr uint8_t image[] = {0x7f, 'E', 'L', 'F'};
  return image;
}

} // namespace sparsertc::test
