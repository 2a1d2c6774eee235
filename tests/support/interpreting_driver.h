// The fake driver with the PTX interpreter in it: launches really compute.
#pragma once

#include "runtime/driver/cuda_objects.h"
#include "tests/support/fake_cuda_driver.h"

#include <memory>
#include <set>
#include <string>

namespace sparsertc {

/// Makes the fake driver run the PTX of the kernel's module on the memory it has handed out. The
/// kernel's arguments must be given as 8 bytes each.
void interpret_launches(cuda::FakeCudaDriver& fake);

/// Besides, graphs run when they are launched, with their loops and choices.
void interpret_graphs(cuda::FakeCudaDriver& fake);

namespace test {

/// A device of one multiprocessor on which kernels are interpreted.
struct InterpretedGpu {
  cuda::FakeCudaDriver fake;
  std::unique_ptr<cuda::Context> context;

  /// kernels: the names that its modules have.
  explicit InterpretedGpu(std::set<std::string> kernels);
};

} // namespace test

} // namespace sparsertc
