#include "tests/support/lu_right_looking_on_host.h"

#include "tests/support/cuda_on_host.h"

#include "runtime/kernels/lu_right_looking.cu"

#include <stdexcept>
#include <string>

namespace sparsertc::test {
namespace {

using namespace kernels;

template <class T>
void run(const cuda::FakeCudaDriver::Launch& launch, void (*kernel)(RightLookingArguments<T>)) {
  const auto arguments = *static_cast<const RightLookingArguments<T>*>(launch.parameters[0]);
  // Several blocks with a barrier between them must run at once.
  const bool together = launch.grid[0] > 1 && arguments.end_stage - arguments.first_stage > 1;
  cuda_on_host::run(launch.grid[0], launch.block[0], together, [&] { kernel(arguments); });
}

} // namespace

void run_lu_right_looking_on_host(cuda::FakeCudaDriver& driver) {
  driver.kernels.insert({"sparsertc_lu_right_begin_f64", "sparsertc_lu_right_begin_f32",
                         "sparsertc_lu_right_stages_f64", "sparsertc_lu_right_stages_f32"});
  driver.attributes[cuda::DeviceAttribute::multiprocessor_count] = 2;
  driver.on_launch = [before = driver.on_launch](const cuda::FakeCudaDriver::Launch& launch) {
    if (launch.kernel == "sparsertc_lu_right_begin_f64")
      run(launch, sparsertc_lu_right_begin_f64);
    else if (launch.kernel == "sparsertc_lu_right_begin_f32")
      run(launch, sparsertc_lu_right_begin_f32);
    else if (launch.kernel == "sparsertc_lu_right_stages_f64")
      run(launch, sparsertc_lu_right_stages_f64);
    else if (launch.kernel == "sparsertc_lu_right_stages_f32")
      run(launch, sparsertc_lu_right_stages_f32);
    else if (before)
      before(launch);
    else
      throw std::logic_error("there is no kernel " + launch.kernel);
  };
}

std::span<const uint8_t> lu_right_looking_image() {
  static constexpr uint8_t image[] = {0x7f, 'E', 'L', 'F'};
  return image;
}

} // namespace sparsertc::test
