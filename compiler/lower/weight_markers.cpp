#include "compiler/lower/weight_markers.h"

#include "ir/float_bits.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace sparsertc {
namespace {

using ir::Scalar;

/// A one-to-one map of the numbers below 2^`bits` that leaves no order visible: multiplications by
/// odd numbers and xors with the number's upper half can be undone.
uint32_t scatter(uint64_t number, unsigned bits) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  uint64_t x = number * 0x9E3779B1u & mask;
  x ^= x >> (bits + 1) / 2;
  x = x * 0x85EBCA77u & mask;
  x ^= x >> (bits + 1) / 2;
  return static_cast<uint32_t>(x);
}

constexpr unsigned kBits32 = 29;

/// Sign, 6 bits of exponent, 22 bits of the significand, whose last bit is 1. The lists have
/// different exponents.
double marker_f32(uint64_t entry, bool second) {
  const uint32_t x = scatter(entry, kBits32);
  const uint32_t sign = x >> 28;
  const uint32_t exponent = (second ? 128 : 64) + (x >> 22 & 63);
  const uint32_t significand = (x & 0x3FFFFF) << 1 | 1;
  return from_f32(sign << 31 | exponent << 23 | significand);
}

constexpr unsigned kBits64 = 26;

/// 6 bits of exponent and 20 of the significand in the high word; a low word whose first and last
/// bit are 1, so that it is none of the high words. Positive: assemblers load negative constants
/// without their sign and subtract.
double marker_f64(uint64_t entry, bool second) {
  const uint32_t x = scatter(entry, kBits64);
  const uint32_t high = ((second ? 1023 : 959) + (x >> 20)) << 20 | (x & 0xFFFFF);
  const uint32_t low = 0x80000001u | (second ? 1u << 30 : 0) | scatter(x + 1u, kBits64 + 1) << 1;
  return std::bit_cast<double>(static_cast<uint64_t>(high) << 32 | low);
}

/// Sign, exponent and significand of a number of 16 bits; the last bit is 1.
double marker_16(uint32_t number, Scalar type) {
  const uint32_t sign = (number & 1) << 15;
  number >>= 1;
  if (type == Scalar::f16)
    return from_f16(static_cast<uint16_t>(sign | (6 + number / 512) << 10 | number % 512 << 1 | 1));
  return from_bf16(static_cast<uint16_t>(sign | (96 + number / 64) << 7 | number % 64 << 1 | 1));
}
constexpr uint64_t kMarkersF16 = 2 * 20 * 512;
constexpr uint64_t kMarkersBf16 = 2 * 64 * 64;

/// The entries in the order of their tiles, and in a tile by column.
std::vector<uint64_t> entries_by_tile(const Pattern& pattern, const SpmmSchedule& schedule) {
  std::vector<uint64_t> order;
  order.reserve(pattern.nnz());
  for (uint32_t tile = 0; tile < schedule.tile_count(); ++tile) {
    const size_t begin = order.size();
    for (uint32_t i = schedule.tile_begin[tile]; i < schedule.tile_begin[tile + 1]; ++i) {
      const uint32_t row = schedule.row_order[i];
      for (uint64_t e = pattern.row_offset[row]; e < pattern.row_offset[row + 1]; ++e)
        order.push_back(e);
    }
    std::stable_sort(
        order.begin() + static_cast<ptrdiff_t>(begin), order.end(),
        [&](uint64_t a, uint64_t b) { return pattern.column_index[a] < pattern.column_index[b]; });
  }
  return order;
}

} // namespace

Scalar stored_weight(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  const bool as_it_is = problem.half_terms != 0 || schedule.tile.strategy != Strategy::unrolled;
  return as_it_is ? element_scalar(problem.type) : accumulator_scalar(problem.type);
}

std::optional<WeightMarkers> weight_markers(const Pattern& pattern, const SpmmSchedule& schedule) {
  const uint64_t count = pattern.nnz();
  const Scalar stored = stored_weight(schedule);
  WeightMarkers markers;
  markers.first.resize(count);
  markers.second.resize(count);
  if (stored == Scalar::f32 || stored == Scalar::f64) {
    const bool wide = stored == Scalar::f64;
    if (count > uint64_t{1} << (wide ? kBits64 : kBits32))
      return std::nullopt;
    for (uint64_t e = 0; e < count; ++e) {
      markers.first[e] = wide ? marker_f64(e, false) : marker_f32(e, false);
      markers.second[e] = wide ? marker_f64(e, true) : marker_f32(e, true);
    }
    return markers;
  }
  // Number q in the order of the tiles has the markers q mod m and q mod m + q / m + 1 (mod m): the
  // pairs differ, the two of a pair differ, and neighbours differ in both lists.
  const uint64_t m = stored == Scalar::f16 ? kMarkersF16 : kMarkersBf16;
  const std::vector<uint64_t> order = entries_by_tile(pattern, schedule);
  if (order.size() > m * (m - 1))
    return std::nullopt;
  for (uint64_t q = 0; q < order.size(); ++q) {
    markers.first[order[q]] = marker_16(static_cast<uint32_t>(q % m), stored);
    markers.second[order[q]] = marker_16(static_cast<uint32_t>((q + q / m + 1) % m), stored);
  }
  return markers;
}

} // namespace sparsertc
