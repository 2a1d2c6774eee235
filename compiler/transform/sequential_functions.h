// Host functions on buffers without a place: what they cost on either side, and their two forms, a
// host function and a kernel of one thread.
#pragma once

#include "ir/module.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace sparsertc {

struct SequentialWork {
  /// One run with what it calls, by placement_costs; without the kernel's launch.
  int64_t host_ns = 0;
  int64_t device_ns = 0;
  /// Why it stays on the host; empty where it may move. A loop whose rounds are not known keeps it
  /// there: one thread of a device is far slower, and the work may be large.
  std::string stays;
};

/// Of an ir::Function::is_sequential().
SequentialWork sequential_work(const ir::Module& module, uint32_t function);

/// A call in a host function that is to become the launch of a kernel.
struct MovedCall {
  uint32_t function;
  uint32_t op;
};

/// Gives every sequential function the forms that are called: memory in its types, a host function
/// where it runs there or is not called at all, a kernel of one thread for the calls in `moved`,
/// and funcs for what such kernels call. A function that only moves becomes a kernel under its own
/// name; otherwise the kernel is a new function, @NAME_device. The calls in `moved` become
/// launches.
void split_sequential_functions(ir::Module& module, const std::vector<MovedCall>& moved);

} // namespace sparsertc
