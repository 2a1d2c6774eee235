#include "tests/support/allocation_guard.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

std::atomic<size_t> limit_bytes{std::numeric_limits<size_t>::max()};
std::atomic<size_t> largest_bytes{0};

void* allocate(size_t bytes) {
  size_t seen = largest_bytes.load(std::memory_order_relaxed);
  while (bytes > seen && !largest_bytes.compare_exchange_weak(seen, bytes))
    continue;
  if (bytes > limit_bytes.load(std::memory_order_relaxed))
    throw std::bad_alloc();
  void* const memory = std::malloc(std::max<size_t>(bytes, 1));
  if (memory == nullptr)
    throw std::bad_alloc();
  return memory;
}

} // namespace

void* operator new(size_t bytes) {
  return allocate(bytes);
}
void* operator new[](size_t bytes) {
  return allocate(bytes);
}
// Those that do not throw must be replaced as well: a sanitizer's own would not fit the delete
// below.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return operator new(bytes, std::nothrow);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace sparsertc::testing {

AllocationGuard::AllocationGuard(size_t limit) {
  largest_bytes = 0;
  limit_bytes = limit;
}

AllocationGuard::~AllocationGuard() {
  limit_bytes = std::numeric_limits<size_t>::max();
}

size_t AllocationGuard::largest() const {
  return largest_bytes;
}

} // namespace sparsertc::testing
