#include "tests/support/lu_right_looking_on_host.h"

#include "tests/support/cuda_on_host.h"

#include "runtime/kernels/lu_right_looking.cu"

#include <functional>
#include <map>
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

template <class T>
void run(const cuda::FakeCudaDriver::Launch& launch, void (*kernel)(DenseTailArguments<T>)) {
  const auto arguments = *static_cast<const DenseTailArguments<T>*>(launch.parameters[0]);
  cuda_on_host::run(launch.grid[0], launch.block[0], false, [&] { kernel(arguments); });
}

} // namespace

void run_lu_right_looking_on_host(cuda::FakeCudaDriver& driver) {
  static const std::map<std::string, std::function<void(const cuda::FakeCudaDriver::Launch&)>>
      kernels = [] {
        std::map<std::string, std::function<void(const cuda::FakeCudaDriver::Launch&)>> all;
        const auto add = [&](const char* name, auto kernel) {
          all[name] = [kernel](const cuda::FakeCudaDriver::Launch& launch) { run(launch, kernel); };
        };
#define ADD(part)                                                                                  \
  add("sparsertc_lu_" #part "_f32", sparsertc_lu_##part##_f32);                                    \
  add("sparsertc_lu_" #part "_f64", sparsertc_lu_##part##_f64);                                    \
  add("sparsertc_lu_" #part "_c64", sparsertc_lu_##part##_c64);                                    \
  add("sparsertc_lu_" #part "_c128", sparsertc_lu_##part##_c128)
        ADD(right_begin);
        ADD(right_stages);
        ADD(tail_load);
        ADD(tail_diagonal);
        ADD(tail_panels);
        ADD(tail_update);
        ADD(tail_store);
#undef ADD
        return all;
      }();
  for (const auto& [name, kernel] : kernels)
    driver.kernels.insert(name);
  driver.attributes[cuda::DeviceAttribute::multiprocessor_count] = 2;
  driver.on_launch = [before = driver.on_launch](const cuda::FakeCudaDriver::Launch& launch) {
    if (const auto found = kernels.find(launch.kernel); found != kernels.end())
      found->second(launch);
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
