#include "runtime/tune/candidate.h"

#include "ir/error.h"
#include "runtime/tune/bitmap_candidates.h"
#include "runtime/tune/compressed_candidates.h"
#include "runtime/tune/dense_candidates.h"
#include "runtime/tune/panel_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <initializer_list>

namespace sparsertc::tune {
namespace {

constexpr uint32_t kRegistersOfMultiprocessor = 65536;
constexpr uint32_t kLeastRegisterCap = 16;
constexpr uint32_t kMostRegisters = 255;
constexpr double kClocksPerMicrosecond = 1755;
constexpr double kInstructionBytes = 16;
/// Straight-line instructions over which a candidate takes too long to assemble.
constexpr double kMostInstructions = 1.5e6;
/// Functions over which the assembler takes too long for the kernel that chooses among them.
constexpr double kMostFunctions = 2048;
/// Rows of all unrolled candidates; the search tries the other order for its best.
constexpr std::string_view kNaturalOrder = ",order=natural", kSimilarOrder = ",order=similar";

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

constexpr uint64_t kEntriesWithoutSample = 32768;
/// Chunks of channels in flight: three were not faster.
constexpr uint32_t kImageChunks = 2;

/// How a convolution's staged images lie (StagedRegion of the compiler), about.
struct Staged {
  double columns = 0; ///< positions of threads in all images
  double region = 0;  ///< elements of a channel that a block copies
};
Staged staged_images(const Layer& layer, const Candidate& candidate) {
  const LayerImages& images = *layer.images;
  const double pitch = images.width + (images.window_width - 1) / 2;
  const double line =
      images.stride == 1 ? std::max<double>(images.out_width, pitch) : images.out_width;
  const double lines = ceil_div(32.0 * candidate.warps * candidate.vec, line) + 1;
  return {images.count * images.out_height * line,
          (lines * images.stride + images.window_height - 1) * pitch};
}
bool stages_images(const Layer& layer, const Candidate& candidate) {
  return layer.images && candidate.chunk > 0;
}
/// Columns that threads take.
double columns_of(const Layer& layer, const Candidate& candidate) {
  return stages_images(layer, candidate) ? staged_images(layer, candidate).columns : layer.n;
}
double chunks_of(const Layer& layer, const Candidate& candidate) {
  return candidate.chunk == 0
             ? 0
             : ceil_div(layer.images ? layer.images->channels : layer.k, candidate.chunk);
}
/// Copies of an element each that a thread starts for a channel of the images.
double copies_of_channel(const Layer& layer, const Candidate& candidate) {
  const double ratio = staged_images(layer, candidate).region / threads_of(candidate);
  return ratio > 1 ? std::ceil(ratio) : 1 / std::floor(1 / ratio);
}

double instructions_of_part(const Layer& layer, const Candidate& candidate) {
  const double tiles = ceil_div(layer.m, candidate.rows);
  const double sums = candidate.rows * candidate.vec;
  const double copies = stages_images(layer, candidate)
                            ? layer.images->channels * copies_of_channel(layer, candidate)
                            : 0;
  return copies +
         (static_cast<double>(layer.nnz) / tiles + used_columns(layer, candidate.rows)) *
             candidate.vec / candidate.parts() +
         (candidate.parts() > 1 ? 4 : 2) * sums + 6 * chunks_of(layer, candidate) + 16;
}

/// Of a thread, as many as a block of so many has: each of four schedulers has a quarter of them.
uint32_t most_registers(uint32_t threads) {
  const uint32_t lanes = 32 * ((threads + 127) / 128);
  return std::min(kMostRegisters, kRegistersOfMultiprocessor / 4 / lanes / 8 * 8);
}

/// Registers that are taken besides loads in flight: sums, addresses, what the code around needs.
uint32_t least_registers(const Candidate& candidate) {
  return candidate.is_streamed ? 24 : candidate.rows * candidate.vec + 20;
}

/// Of a block: staged chunks of B, or partial sums.
double shared_bytes(const Layer& layer, const Candidate& candidate) {
  const double columns = 32.0 * candidate.warps * candidate.vec;
  const double partial = candidate.parts() > 1
                             ? 4 * candidate.groups * candidate.splitk * candidate.rows * columns
                             : 0;
  if (stages_images(layer, candidate))
    return partial + kImageChunks * candidate.chunk * staged_images(layer, candidate).region *
                         layer.element_bytes;
  return candidate.chunk > 0 ? 3 * candidate.chunk * columns * layer.element_bytes : partial;
}

/// Clusters let tall tiles spread over more multiprocessors: tried where K is long and without them
/// most multiprocessors have no block. With more blocks they were not faster (README.md).
bool cluster_pays(const Layer& layer, const Device& device, const Candidate& candidate) {
  constexpr uint32_t kLeastRows = 16, kLeastColumnsOfPart = 64;
  const double tiles = ceil_div(layer.m, candidate.rows);
  const double blocks = tiles * ceil_div(layer.n, 32.0 * candidate.warps * candidate.vec);
  return device.has_clusters && candidate.groups == 1 && candidate.rows >= kLeastRows &&
         layer.k >= kLeastColumnsOfPart * candidate.parts() && 4 * blocks <= device.multiprocessors;
}

bool fits(const Layer& layer, const Device& device, const Candidate& candidate) {
  const uint32_t threads = threads_of(candidate);
  if (threads < 64 || threads > device.max_threads_per_block)
    return false;
  if (candidate.registers * threads > kRegistersOfMultiprocessor ||
      candidate.registers < least_registers(candidate) + 4)
    return false;
  // Few registers pay only where a block has no room for more.
  constexpr uint32_t kUsualRegisters = 96;
  if (!candidate.is_streamed && candidate.registers < kUsualRegisters &&
      kUsualRegisters * threads <= kRegistersOfMultiprocessor)
    return false;
  // Threads beyond N, rows beyond M.
  const double columns_per_block = 32.0 * candidate.warps * candidate.vec;
  const double warp_columns = 32.0 * candidate.vec;
  const double n = columns_of(layer, candidate);
  if (ceil_div(n, columns_per_block) * columns_per_block >
      std::max(ceil_div(n, warp_columns) * warp_columns, 1.35 * n))
    return false;
  const double tiles = ceil_div(layer.m, candidate.rows);
  if (candidate.rows > std::max(4u, layer.m) || candidate.groups > tiles)
    return false;
  if (candidate.parts() > 1 && layer.k < 32 * candidate.parts())
    return false;
  if (candidate.cluster > 1 && !cluster_pays(layer, device, candidate))
    return false;
  if (shared_bytes(layer, candidate) > device.shared_bytes_per_block)
    return false;
  if (candidate.is_streamed)
    return true;
  if (tiles * candidate.parts() > kMostFunctions)
    return false;
  return tiles * candidate.parts() * instructions_of_part(layer, candidate) <= kMostInstructions;
}

std::string words_of(const Candidate& candidate, uint32_t prefetch) {
  if (candidate.is_streamed)
    return fmt::format("strategy=streamed,rows={},vec={},warps={},groups={},splitk={},prefetch=8",
                       candidate.rows, candidate.vec, candidate.warps, candidate.groups,
                       candidate.splitk);
  std::string words =
      fmt::format("strategy=unrolled,rows={},vec={},warps={},groups={},splitk={}", candidate.rows,
                  candidate.vec, candidate.warps, candidate.groups, candidate.splitk);
  words += candidate.chunk > 0
               ? fmt::format(",chunk={},prefetch={},stage=smem", candidate.chunk, prefetch)
               : fmt::format(",cluster={},stage=global", candidate.cluster);
  return words + std::string(kNaturalOrder);
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
  Candidate candidate;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = std::min(item.find('='), item.size());
    const std::string_view word = item.substr(0, equals);
    const std::string_view digits = item.substr(std::min(equals + 1, item.size()));
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool is_number = error == std::errc() && end == digits.data() + digits.size();
    if (word == "registers") {
      if (!is_number || number < kLeastRegisterCap || number > kMostRegisters)
        throw UsageError(fmt::format("--tile: '{}': expected a whole number from {} to {}", item,
                                     kLeastRegisterCap, kMostRegisters));
      candidate.registers = number;
      continue;
    }
    candidate.words += (candidate.words.empty() ? "" : ",") + std::string(item);
    if (is_number && word == "rows")
      candidate.rows = number;
    else if (is_number && word == "groups")
      candidate.groups = number;
  }
  return candidate;
}

namespace {

/// How blocks lie on the GPU.
struct Occupancy {
  double blocks = 0;
  double blocks_of_sm = 0; ///< the busiest multiprocessor's
  double waves = 0;        ///< one after the other, of as many as fit at once
  double warps = 0;        ///< a block
};

Occupancy occupancy_of(const Layer& layer, const Device& device, const Candidate& candidate) {
  const uint32_t threads = threads_of(candidate);
  const double columns = 32.0 * candidate.warps * candidate.vec;
  Occupancy occupancy;
  occupancy.warps = threads / 32.0;
  occupancy.blocks = candidate.cluster * ceil_div(columns_of(layer, candidate), columns) *
                     ceil_div(ceil_div(layer.m, candidate.rows), candidate.groups);
  occupancy.blocks_of_sm = ceil_div(occupancy.blocks, device.multiprocessors);
  // What code for staged images takes does not grow with what it may take.
  const double registers = stages_images(layer, candidate)
                               ? least_registers(candidate) + 16.0
                               : std::max<double>(candidate.registers, least_registers(candidate));
  double resident = std::min(std::floor(kRegistersOfMultiprocessor / (registers * threads)),
                             std::floor(2048.0 / threads));
  if (const double shared = shared_bytes(layer, candidate); shared > 0)
    resident = std::min(resident, std::floor(device.shared_bytes_per_block / shared));
  resident = std::clamp(resident, 1.0, occupancy.blocks_of_sm);
  occupancy.waves = ceil_div(occupancy.blocks_of_sm, resident);
  return occupancy;
}

/// (sum of x^power)^(1/power): nearly the largest, and more where several are large.
double together(std::initializer_list<double> terms, double power) {
  double sum = 0;
  for (const double term : terms)
    sum += std::pow(term, power);
  return std::pow(sum, 1 / power);
}

double predict_unrolled(const Layer& layer, const Device& device, const Candidate& candidate) {
  const Occupancy on = occupancy_of(layer, device, candidate);
  const double part = instructions_of_part(layer, candidate);
  const double parts_of_block = candidate.groups * candidate.splitk;
  const double tiles = ceil_div(layer.m, candidate.rows);
  const double loads = used_columns(layer, candidate.rows) / candidate.parts();
  const bool staged = candidate.chunk > 0;

  const double code = tiles * candidate.parts() * part * kInstructionBytes / 0.4e6;
  const double supply = on.blocks_of_sm * parts_of_block * part * 1.9 / kClocksPerMicrosecond;
  const double issue = on.blocks_of_sm * on.warps * part / (4 * 0.45) / kClocksPerMicrosecond;
  const double load_slots = on.blocks_of_sm * on.warps * loads * 1.3 / kClocksPerMicrosecond;
  const double loads_from_l2 =
      staged ? on.blocks * layer.k * candidate.warps : on.blocks * on.warps * loads;
  const double l2 = loads_from_l2 * 32 * candidate.vec * layer.element_bytes / 16e6;
  const double in_flight =
      std::clamp(double(candidate.registers) - least_registers(candidate), 4.0, 13.0);
  const double latency =
      on.waves * (staged ? chunks_of(layer, candidate) * 330 : (loads / in_flight + 1) * 240) /
      kClocksPerMicrosecond;
  const double meetings = candidate.cluster > 1 ? 4.4 : candidate.splitk > 1 ? 0.27 : 0.0;
  // Rows of small images begin anywhere, and most of their pixels ask for taps.
  const double rows_of_images = layer.images ? 0.75 + 9.0 / layer.images->out_width : 1.0;
  const double factor = rows_of_images * (staged ? 1.7 : 1.0) * (0.95 + 8.5 / candidate.registers);
  return 1.1 + meetings + factor * together({code, supply, issue, load_slots, l2, latency}, 2.9);
}

double predict_staged_images(const Layer& layer, const Device& device, const Candidate& candidate) {
  const Occupancy on = occupancy_of(layer, device, candidate);
  const double part = instructions_of_part(layer, candidate);
  const double tiles = ceil_div(layer.m, candidate.rows);
  const double parts = candidate.parts();
  const double loads = used_columns(layer, candidate.rows) * candidate.vec / parts +
                       layer.images->channels * copies_of_channel(layer, candidate);
  const double warps = on.blocks_of_sm * on.warps;

  const double code = tiles * parts * part * kInstructionBytes / 0.4e6;
  const double supply =
      on.blocks_of_sm * candidate.groups * parts * part * 2.8 / kClocksPerMicrosecond;
  const double issue = warps * part / 4 / kClocksPerMicrosecond;
  const double load_slots = warps * loads * 1.3 / kClocksPerMicrosecond;
  const double l2 = on.blocks * layer.images->channels * staged_images(layer, candidate).region *
                    layer.element_bytes / 9e6;
  const double latency =
      on.waves * (chunks_of(layer, candidate) * 120 + part * 4) / kClocksPerMicrosecond;
  const double meetings = candidate.splitk > 1 ? 0.27 : 0.0;
  const double first_chunk = l2 / chunks_of(layer, candidate);
  return 1.1 + meetings + first_chunk +
         1.2 * together({code, supply, issue, load_slots, l2, latency}, 3.7);
}

double predict_streamed(const Layer& layer, const Device& device, const Candidate& candidate) {
  constexpr double kEntriesOfStep = 8;
  const Occupancy on = occupancy_of(layer, device, candidate);
  const double entries = static_cast<double>(layer.nnz) / std::max(1u, layer.m) / candidate.splitk;
  const double rows = on.blocks * on.warps * candidate.rows; // of all warps
  const double latency = on.waves * candidate.rows * (ceil_div(entries, kEntriesOfStep) + 4) * 270 /
                         kClocksPerMicrosecond;
  const double issue =
      rows * (3.6 * entries + 20) / device.multiprocessors / (4 * 0.44) / kClocksPerMicrosecond;
  const double l2 = rows * entries * (32 * candidate.vec * layer.element_bytes + 8) / 10.5e6;
  return 3.0 + together({latency, issue, l2}, 2);
}

} // namespace

bool is_possible(const Layer& layer, const Device& device, const Candidate& candidate) {
  return fits(layer, device, candidate);
}

double predict_us(const Layer& layer, const Device& device, const Candidate& candidate) {
  return candidate.is_streamed             ? predict_streamed(layer, device, candidate)
         : stages_images(layer, candidate) ? predict_staged_images(layer, device, candidate)
                                           : predict_unrolled(layer, device, candidate);
}

double sample_correction(const Candidate& candidate, uint32_t step) {
  if (candidate.is_streamed || candidate.warps == 0)
    return 1;
  return std::pow(double(step), 0.35 / candidate.warps);
}

std::vector<Candidate> candidate_space(const Layer& layer, const Device& device) {
  std::vector<Candidate> space;
  const auto add = [&](Candidate candidate) {
    if (!fits(layer, device, candidate))
      return;
    candidate.words = words_of(candidate, stages_images(layer, candidate) ? kImageChunks : 3);
    candidate.predicted_us = predict_us(layer, device, candidate);
    space.push_back(std::move(candidate));
  };
  const bool half = layer.element_bytes == 2;
  const bool whole_pieces = uint64_t{layer.n} * layer.element_bytes % 16 == 0;
  // A second column a thread doubles the code; halves gain by packed accesses.
  const uint32_t most_vec = half && layer.n % 2 == 0 ? 2 : 1;
  for (uint32_t rows : {2u, 4u, 8u, 16u, 32u, 64u, 128u})
    for (uint32_t vec = 1; vec <= most_vec; ++vec)
      for (uint32_t warps : {1u, 2u, 4u, 8u, 16u, 32u})
        for (uint32_t groups : {1u, 2u, 4u, 8u})
          for (uint32_t registers : {255u, 168u, 128u, 96u, 64u}) {
            for (uint32_t splitk : {1u, 2u, 4u, 8u, 16u})
              for (uint32_t cluster : {1u, 2u, 4u, 8u})
                add({{}, registers, 0, rows, vec, warps, groups, splitk, 0, false, cluster});
            // Staging pays where several tiles share what was copied.
            if (!layer.images && whole_pieces && groups > 1 && warps > 1)
              for (uint32_t chunk : {16u, 32u, 64u})
                add({{}, registers, 0, rows, vec, warps, groups, 1, chunk, false});
          }
  // Staged images pay for each tap that reads them again; blocks may have any number of warps.
  if (layer.images && layer.images->can_be_staged)
    for (uint32_t rows : {4u, 8u, 12u, 16u, 24u, 32u, 48u, 64u})
      for (uint32_t groups = 1; groups <= 4; ++groups) {
        // Of large layers the search makes samples, with a power of two of rows.
        const bool can_be_sampled = std::has_single_bit(rows * groups);
        if (layer.nnz > kEntriesWithoutSample && !can_be_sampled)
          continue;
        for (uint32_t warps = 2; warps <= 16; ++warps)
          for (uint32_t splitk : {1u, 2u, 4u})
            for (uint32_t chunk : {8u, 16u, 32u})
              add({{},
                   most_registers(32 * warps * groups * splitk),
                   0,
                   rows,
                   1,
                   warps,
                   groups,
                   splitk,
                   chunk,
                   false});
      }
  for (uint32_t rows : {1u, 2u, 4u})
    for (uint32_t warps : {1u, 2u, 4u, 8u})
      for (uint32_t groups : {1u, 2u, 4u, 8u})
        for (uint32_t splitk : {1u, 2u, 4u, 8u, 16u})
          for (uint32_t registers : {32u, 40u, 64u})
            add({{}, registers, 0, rows, 1, warps, groups, splitk, 0, true});
  if (!layer.images)
    add_compressed_candidates(layer, device, space);
  add_panel_candidates(layer, device, space);
  if (!layer.images)
    add_bitmap_candidates(layer, device, space);
  add_dense_candidates(layer, space);
  std::stable_sort(space.begin(), space.end(), [](const Candidate& a, const Candidate& b) {
    return a.predicted_us < b.predicted_us;
  });
  return space;
}

std::optional<Candidate> in_other_row_order(const Candidate& candidate) {
  Candidate other = candidate;
  for (const auto& [from, to] :
       {std::pair(kNaturalOrder, kSimilarOrder), std::pair(kSimilarOrder, kNaturalOrder)})
    if (const size_t at = candidate.words.find(from); at != std::string::npos) {
      other.words.replace(at, from.size(), to);
      return other;
    }
  return std::nullopt;
}

double distance(const Candidate& a, const Candidate& b) {
  const bool staged_differs = (a.chunk > 0) != (b.chunk > 0);
  constexpr double kOtherStrategy = 6;
  return log_ratio(a.rows, b.rows) + log_ratio(a.vec, b.vec) + log_ratio(a.warps, b.warps) +
         log_ratio(a.groups, b.groups) + log_ratio(a.splitk, b.splitk) +
         log_ratio(a.cluster, b.cluster) + (staged_differs ? 3 : log_ratio(a.chunk, b.chunk) / 2) +
         std::abs(double(a.registers) - double(b.registers)) / 64 +
         (a.is_streamed != b.is_streamed ? kOtherStrategy : 0) +
         (a.is_compressed != b.is_compressed ? kOtherStrategy : 0) +
         (a.is_bitmap != b.is_bitmap ? kOtherStrategy : 0) +
         (a.is_dense != b.is_dense ? kOtherStrategy : 0) +
         ((a.panel_rows == 0) != (b.panel_rows == 0) ? kOtherStrategy
                                                     : log_ratio(a.panel_rows, b.panel_rows));
}

} // namespace sparsertc::tune
