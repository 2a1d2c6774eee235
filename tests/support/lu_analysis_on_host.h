// The kernels of runtime/kernels/lu_analysis.cu on the host, behind a driver without a GPU.
#pragma once

#include "tests/support/fake_cuda_driver.h"

#include <cstdint>
#include <span>

namespace sparsertc::test {

/// Makes launches of these kernels compute. The device has 2 multiprocessors and blocks of at most
/// `threads` threads, so that small matrices take several groups in flight and wide frontiers.
void run_lu_analysis_on_host(cuda::FakeCudaDriver& driver, int32_t threads = 64);

/// What such a driver takes for the kernels' machine code.
std::span<const uint8_t> lu_analysis_image();

} // namespace sparsertc::test
