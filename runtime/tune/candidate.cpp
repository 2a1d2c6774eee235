#include "runtime/tune/candidate.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace sparsertc::tune {
namespace {

constexpr uint32_t kRegistersOfMultiprocessor = 65536;
constexpr uint32_t kLeastRegisterCap = 16;
constexpr uint32_t kMostRegisters = 255;
constexpr double kClocksPerMicrosecond = 1750;
constexpr double kInstructionBytes = 16;
constexpr double kLaunchMicroseconds = 1.5;
/// Straight-line instructions over which a candidate takes too long to assemble.
constexpr double kMostInstructions = 1.5e6;
/// Functions over which starting the assembler for each takes too long.
constexpr double kMostFunctions = 512;

double ceil_div(double a, double b) {
  return std::ceil(a / b);
}

uint32_t threads_of(const Candidate& candidate) {
  return 32 * candidate.warps * candidate.groups * candidate.splitk;
}

double used_columns(const Layer& layer, uint32_t rows) {
  const double density =
      static_cast<double>(layer.nnz) / std::max(1.0, double(layer.m) * double(layer.k));
  return layer.k * (1 - std::pow(1 - density, rows));
}

double instructions_of_part(const Layer& layer, const Candidate& candidate) {
  const double tiles = ceil_div(layer.m, candidate.rows);
  return (static_cast<double>(layer.nnz) / tiles + used_columns(layer, candidate.rows)) *
             candidate.vec / candidate.splitk +
         2.0 * candidate.rows * candidate.vec + 16;
}

/// Registers that are taken besides loads in flight: sums, addresses, what the code around needs.
uint32_t least_registers(const Candidate& candidate) {
  return candidate.rows * candidate.vec + 28;
}

bool fits(const Layer& layer, const Device& device, const Candidate& candidate) {
  const uint32_t threads = threads_of(candidate);
  if (threads < 64 || threads > device.max_threads_per_block)
    return false;
  if (candidate.registers * threads > kRegistersOfMultiprocessor ||
      candidate.registers < least_registers(candidate) + 4)
    return false;
  // Threads beyond N, rows beyond M.
  const double columns_per_block = 32.0 * candidate.warps * candidate.vec;
  const double warp_columns = 32.0 * candidate.vec;
  if (ceil_div(layer.n, columns_per_block) * columns_per_block >
      std::max(ceil_div(layer.n, warp_columns) * warp_columns, 1.35 * layer.n))
    return false;
  const double tiles = ceil_div(layer.m, candidate.rows);
  if (candidate.rows > std::max(4u, layer.m) || candidate.groups > tiles)
    return false;
  if (candidate.splitk > 1 && layer.k < 32 * candidate.splitk)
    return false;
  double shared = 0;
  if (candidate.chunk > 0)
    shared = 3.0 * candidate.chunk * columns_per_block * layer.element_bytes;
  else if (candidate.splitk > 1)
    shared = 4.0 * candidate.groups * candidate.splitk * candidate.rows * columns_per_block;
  if (shared > device.shared_bytes_per_block)
    return false;
  if (tiles * candidate.splitk > kMostFunctions)
    return false;
  return tiles * candidate.splitk * instructions_of_part(layer, candidate) <= kMostInstructions;
}

std::string words_of(const Candidate& candidate) {
  std::string words =
      fmt::format("strategy=unrolled,rows={},vec={},warps={},groups={},splitk={}", candidate.rows,
                  candidate.vec, candidate.warps, candidate.groups, candidate.splitk);
  words += candidate.chunk > 0 ? fmt::format(",chunk={},prefetch=3,stage=smem", candidate.chunk)
                               : std::string(",stage=global");
  return words;
}

double log_ratio(uint32_t a, uint32_t b) {
  return std::abs(std::log2(std::max(a, 1u)) - std::log2(std::max(b, 1u)));
}

} // namespace

std::string to_string(const Candidate& candidate) {
  if (candidate.registers == 0)
    return candidate.words;
  return fmt::format("{}{}registers={}", candidate.words, candidate.words.empty() ? "" : ",",
                     candidate.registers);
}

Candidate parse_candidate(std::string_view text) {
  constexpr std::string_view word = "registers=";
  Candidate candidate;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (!item.starts_with(word)) {
      candidate.words += (candidate.words.empty() ? "" : ",") + std::string(item);
      continue;
    }
    const std::string_view number = item.substr(word.size());
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), candidate.registers);
    if (error != std::errc() || end != number.data() + number.size() ||
        candidate.registers < kLeastRegisterCap || candidate.registers > kMostRegisters)
      throw UsageError(fmt::format("--tile: '{}': expected a whole number from {} to {}", item,
                                   kLeastRegisterCap, kMostRegisters));
  }
  return candidate;
}

double predict_us(const Layer& layer, const Device& device, const Candidate& candidate) {
  const uint32_t threads = threads_of(candidate);
  const double warps_of_block = threads / 32.0;
  const double blocks = ceil_div(layer.n, 32.0 * candidate.warps * candidate.vec) *
                        ceil_div(ceil_div(layer.m, candidate.rows), candidate.groups);
  const double blocks_of_sm = ceil_div(blocks, device.multiprocessors);
  const double resident =
      std::clamp(std::floor(double(kRegistersOfMultiprocessor) / (candidate.registers * threads)),
                 1.0, std::max(1.0, std::min(2048.0 / threads, blocks_of_sm)));
  const double part = instructions_of_part(layer, candidate);
  const double streams = candidate.groups * candidate.splitk * resident;
  const double distinct_of_block = part * candidate.groups * candidate.splitk;
  const double tile_blocks = ceil_div(ceil_div(layer.m, candidate.rows), candidate.groups);

  const double rate = std::min(1.0, 0.16 * std::sqrt(streams));
  const bool cached = tile_blocks * distinct_of_block * kInstructionBytes < 128 * 1024;
  const double fetched = cached ? std::min(blocks_of_sm, tile_blocks) : blocks_of_sm;
  const double supply = fetched * distinct_of_block / rate / kClocksPerMicrosecond;

  const double warp_instructions = blocks * warps_of_block * part;
  const double issue =
      warp_instructions / device.multiprocessors / (4 * 0.6) / kClocksPerMicrosecond;

  const double loads = used_columns(layer, candidate.rows) / candidate.splitk;
  const double from_l2 =
      candidate.chunk > 0 ? blocks * layer.k * candidate.warps : blocks * warps_of_block * loads;
  const double l2 = from_l2 * 32 * candidate.vec * layer.element_bytes / 9e6;

  const double in_flight =
      std::clamp(double(candidate.registers) - least_registers(candidate), 4.0, 96.0);
  const double waves = ceil_div(blocks_of_sm, resident);
  const bool staged = candidate.chunk > 0;
  const double latency =
      staged ? 0.0 : waves * (loads / in_flight + 1) * 1100 / kClocksPerMicrosecond;
  const double meetings =
      staged ? waves * (ceil_div(layer.k, candidate.chunk) * 300 + 1500) / kClocksPerMicrosecond
      : candidate.splitk > 1 ? 0.5
                             : 0.0;

  const double most = std::max({supply, issue, l2, latency});
  return kLaunchMicroseconds + meetings + most + (supply + issue + l2 + latency - most) / 6;
}

std::vector<Candidate> candidate_space(const Layer& layer, const Device& device) {
  std::vector<Candidate> space;
  const auto add = [&](Candidate candidate) {
    if (!fits(layer, device, candidate))
      return;
    candidate.words = words_of(candidate);
    candidate.predicted_us = predict_us(layer, device, candidate);
    space.push_back(std::move(candidate));
  };
  const bool half = layer.element_bytes == 2;
  const bool whole_pieces = uint64_t{layer.n} * layer.element_bytes % 16 == 0;
  for (uint32_t rows : {2u, 4u, 8u, 16u, 32u, 64u, 128u})
    for (uint32_t vec : {1u, 2u})
      for (uint32_t warps : {1u, 2u, 4u, 8u, 16u})
        for (uint32_t groups : {1u, 2u, 4u, 8u})
          for (uint32_t registers : {128u, 96u, 168u, 64u, 255u}) {
            // A second column a thread doubles the code; halves gain by packed accesses.
            if (vec > 1 && !(half && layer.n % 2 == 0))
              continue;
            for (uint32_t splitk : {1u, 2u, 4u, 8u})
              add({{}, registers, 0, rows, vec, warps, groups, splitk, 0});
            // Staging pays where several tiles share what was copied.
            if (whole_pieces && groups > 1 && warps > 1)
              for (uint32_t chunk : {16u, 32u, 64u})
                add({{}, registers, 0, rows, vec, warps, groups, 1, chunk});
          }
  std::stable_sort(space.begin(), space.end(), [](const Candidate& a, const Candidate& b) {
    return a.predicted_us < b.predicted_us;
  });
  return space;
}

double distance(const Candidate& a, const Candidate& b) {
  const bool staged_differs = (a.chunk > 0) != (b.chunk > 0);
  return log_ratio(a.rows, b.rows) + log_ratio(a.vec, b.vec) + log_ratio(a.warps, b.warps) +
         log_ratio(a.groups, b.groups) + log_ratio(a.splitk, b.splitk) +
         (staged_differs ? 3 : log_ratio(a.chunk, b.chunk) / 2) +
         std::abs(double(a.registers) - double(b.registers)) / 64;
}

} // namespace sparsertc::tune
