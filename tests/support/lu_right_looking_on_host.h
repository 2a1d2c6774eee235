// The kernels of runtime/kernels/lu_right_looking.cu on the host, behind a driver without a GPU.
#pragma once

#include "tests/support/fake_cuda_driver.h"

#include <cstdint>
#include <span>

namespace sparsertc::test {

/// Makes launches of these kernels compute; others go to what was there before. The device has two
/// multiprocessors.
void run_lu_right_looking_on_host(cuda::FakeCudaDriver& driver);

/// What such a driver takes for the kernels' machine code.
std::span<const uint8_t> lu_right_looking_image();

} // namespace sparsertc::test
