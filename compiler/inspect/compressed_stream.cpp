#include "compiler/inspect/compressed_stream.h"

#include "ir/error.h"

#include <algorithm>
#include <numeric>

namespace sparsertc {
namespace {

constexpr uint32_t kDeltaBits[] = {8, 4};

uint64_t ceil_div(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

} // namespace

uint32_t StagedRows::zero_after(uint32_t place) const {
  const uint32_t period = spacing() + 1;
  return std::min((place / period + 1) * period, count() - 1);
}

uint32_t StagedRows::hops(uint32_t from, uint32_t to) const {
  uint32_t count = 0;
  while (to - from > most_delta()) {
    from = zero_after(from);
    ++count;
  }
  return count;
}

uint64_t slots_of_row(const StagedRows& staged, std::span<const uint32_t> columns) {
  uint64_t slots = columns.size();
  for (size_t i = 1; i < columns.size(); ++i)
    slots += staged.hops(staged.place_of(columns[i - 1]), staged.place_of(columns[i]));
  return slots;
}

CompressedSize smallest_stream(const Pattern& pattern, uint32_t value_bytes) {
  CompressedSize best;
  for (const uint32_t bits : kDeltaBits) {
    const StagedRows staged{bits, pattern.columns};
    uint64_t slots = 0;
    for (uint32_t row = 0; row < pattern.rows; ++row)
      slots += slots_of_row(staged, pattern.row(row));
    const uint64_t bytes = ceil_div(slots * (8 * value_bytes + bits), 8);
    if (bits == kDeltaBits[0] || bytes < best.bytes)
      best = {bits, bytes};
  }
  return best;
}

void plan_compressed_stream(const Pattern& pattern, uint32_t value_bytes,
                            CompressedStream& stream) {
  stream.staged = {smallest_stream(pattern, value_bytes).delta_bits, pattern.columns};
  std::vector<uint64_t> slots(pattern.rows);
  for (uint32_t row = 0; row < pattern.rows; ++row)
    slots[row] = slots_of_row(stream.staged, pattern.row(row));
  stream.rows.resize(pattern.rows);
  std::iota(stream.rows.begin(), stream.rows.end(), 0u);
  std::stable_sort(stream.rows.begin(), stream.rows.end(),
                   [&](uint32_t a, uint32_t b) { return slots[a] > slots[b]; });
  stream.steps.clear();
  stream.slots = stream.bytes = 0;
  for (size_t first = 0; first < stream.rows.size(); first += stream.rows_per_warp) {
    const uint64_t steps =
        ceil_div(slots[stream.rows[first]], uint64_t{kCompressedStep} * stream.parts);
    stream.steps.push_back(static_cast<uint32_t>(steps));
    stream.slots += steps * kCompressedStep * stream.parts_of_warp();
    stream.bytes += stream.head_bytes() + steps * stream.step_bytes(value_bytes);
  }
}

std::vector<CompressedPart> compress_row(const StagedRows& staged,
                                         std::span<const uint32_t> columns, uint32_t parts,
                                         uint32_t steps) {
  const size_t room = size_t{steps} * kCompressedStep;
  std::vector<CompressedPart> all(parts);
  uint32_t entry = 0;
  for (CompressedPart& part : all) {
    part.slots.reserve(room);
    uint32_t place = 0;
    if (entry < columns.size())
      place = part.first_place = staged.place_of(columns[entry]);
    while (part.slots.size() < room && entry < columns.size()) {
      const uint32_t to = staged.place_of(columns[entry]);
      const bool is_hop = to - place > staged.most_delta();
      const uint32_t next = is_hop ? staged.zero_after(place) : to;
      part.slots.push_back({next - place, is_hop ? CompressedPart::kNoEntry : entry});
      place = next;
      entry += !is_hop;
    }
    // Place 0 is a row of zeros; so is every place that this comes to.
    while (part.slots.size() < room) {
      const bool is_zero =
          !part.slots.empty() && part.slots.back().entry == CompressedPart::kNoEntry;
      const uint32_t next = place == 0 || is_zero ? place : staged.zero_after(place);
      part.slots.push_back({next - place, CompressedPart::kNoEntry});
      place = next;
    }
  }
  if (entry < columns.size())
    throw InternalError("a row of the compressed stream has more entries than room");
  return all;
}

} // namespace sparsertc
