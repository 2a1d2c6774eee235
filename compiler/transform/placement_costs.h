// The figures by which arrays and sequential work are placed, all in one place. Nanoseconds and
// bytes. They choose between programs that compute the same; nothing depends on them being exact.
#pragma once

#include <cstdint>

namespace sparsertc::placement_costs {

// ---- measured by tests/performance/bench_placement_gpu (README.md has the figures)
// ---------------
/// A copy between host and device that the host waits for, however small.
constexpr int64_t kCopyNs = 7000;
/// What large copies add, from and to pageable host memory.
constexpr int64_t kBytesPerNs = 10;
/// A launch among others that nobody waits for.
constexpr int64_t kLaunchNs = 4000;
/// An operation, and an access to memory, of a single thread of the device.
constexpr int64_t kDeviceOpNs = 2;
constexpr int64_t kDeviceAccessNs = 150;
/// Either on the host, whose caches and several operations a clock make it less.
constexpr int64_t kHostOpNs = 1;

// ---- conventions for what is not known before the program runs ----------------------------------
/// Rounds of a loop that ends by a condition, or counts to a number that is not constant.
constexpr int64_t kUnknownTrips = 10;
/// Elements of a buffer whose length is not constant.
constexpr int64_t kUnknownElements = int64_t{1} << 20;

/// The time of one copy.
constexpr int64_t copy_ns(int64_t bytes) {
  return kCopyNs + bytes / kBytesPerNs;
}

} // namespace sparsertc::placement_costs
