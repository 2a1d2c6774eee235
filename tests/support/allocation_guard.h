// Counts what operator new hands out in this program, so that a test can assert that a lying file
// takes no memory.
#pragma once

#include <cstddef>

namespace sparsertc::testing {

/// While it lives, a single request of more than `limit` bytes throws std::bad_alloc, and the
/// largest request is remembered. One at a time.
class AllocationGuard {
public:
  explicit AllocationGuard(size_t limit);
  AllocationGuard(const AllocationGuard&) = delete;
  AllocationGuard& operator=(const AllocationGuard&) = delete;
  ~AllocationGuard();

  size_t largest() const;
};

} // namespace sparsertc::testing
