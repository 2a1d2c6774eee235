// Values for patterns that come without: reproducible from a seed on every machine.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsertc {

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
class SplitMix64 {
public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

private:
  uint64_t state_;
};

/// `count` values in [-1, 1) without 0: multiples of 2^-23, from the upper 24 bits of successive
/// outputs (an output that gives 0 is passed over). Such a value is exact in f32, and rounding to
/// f16 or bf16 never makes it zero, so a pattern keeps its entries in every type.
std::vector<double> random_values(uint64_t count, uint64_t seed);

} // namespace sparsertc
