// The figures by which arrays and sequential work are placed, all in one place. Nanoseconds and
// bytes. They choose between programs that compute the same; nothing depends on them being exact.
#pragma once

#include <cstdint>

namespace sparsertc::placement_costs {

// ---- measured (tests/performance/bench_placement_gpu, README.md of this folder) -----------------
/// A copy between host and device that the host waits for, however small.
constexpr int64_t kCopyNs = 10000;
/// What large copies add, from and to pageable host memory.
constexpr int64_t kBytesPerNs = 10;
/// A launch of a kernel of one thread.
constexpr int64_t kLaunchNs = 6000;
/// An operation, and an access to memory, of a single thread of the device.
constexpr int64_t kDeviceOpNs = 10;
constexpr int64_t kDeviceAccessNs = 500;
/// The same on the host, where caches and several operations a clock make both cheap.
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
