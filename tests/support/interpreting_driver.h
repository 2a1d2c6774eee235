// The fake driver with the PTX interpreter in it: launches really compute.
#pragma once

#include "tests/support/fake_cuda_driver.h"

namespace sparsertc {

/// Makes the fake driver run the PTX of the kernel's module on the memory it has handed out. The
/// kernel's arguments must be given as 8 bytes each.
void interpret_launches(cuda::FakeCudaDriver& fake);

/// Besides, graphs run when they are launched, with their loops and choices.
void interpret_graphs(cuda::FakeCudaDriver& fake);

} // namespace sparsertc
