#include "compiler/inspect/compressed_stream.h"

#include "ir/error.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace sparsertc {
namespace {

constexpr uint32_t kDeltaBits[] = {8, 4};
/// How much longer the stream may become by classes: shared memory without conflicts is then worth
/// more.
constexpr double kMostForClasses = 1.25;
/// How much longer the array may become by equal distances from warp to warp, of which what is
/// unused is never read.
constexpr double kMostForStride = 1.5;

uint64_t ceil_div(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

/// A part while it is being filled.
struct OpenPart {
  CompressedPart part;
  uint32_t place = 0;
  bool is_empty = true;
  uint32_t used = 0;

  uint32_t slots_for(const StagedRows& staged, uint32_t to) const {
    return is_empty ? 1 : staged.hops(place, to) + 1;
  }
  void add(const StagedRows& staged, uint32_t entry, uint32_t to) {
    used += slots_for(staged, to);
    if (is_empty)
      place = part.first_place = to;
    is_empty = false;
    while (to - place > staged.most_delta()) {
      const uint32_t zeros = staged.zero_after(place);
      part.slots.push_back({zeros - place, CompressedPart::kNoEntry});
      place = zeros;
    }
    part.slots.push_back({to - place, entry});
    place = to;
  }
  /// Place 0 is a row of zeros; so is every place that this comes to.
  void fill_up(const StagedRows& staged, size_t room) {
    bool is_zero = is_empty;
    while (part.slots.size() < room) {
      const uint32_t next = is_zero ? place : staged.zero_after(place);
      part.slots.push_back({next - place, CompressedPart::kNoEntry});
      place = next;
      is_zero = true;
    }
  }
};

/// Nothing where the steps are not enough.
std::optional<std::vector<OpenPart>> fill(const CompressedStream& stream,
                                          const RankEntries& entries, uint32_t steps) {
  const StagedRows& staged = stream.staged;
  const std::span<const uint32_t> columns = entries.columns;
  const uint32_t room = steps * kCompressedStep;
  std::vector<OpenPart> parts(stream.parts);
  uint32_t current = 0;
  for (uint32_t entry = 0; entry < columns.size(); ++entry) {
    const uint32_t to = staged.place_of(columns[entry] - entries.first_row);
    const auto fits = [&](uint32_t part) {
      return parts[part].used + parts[part].slots_for(staged, to) <= room;
    };
    uint32_t chosen = UINT32_MAX;
    if (!stream.has_classes) {
      while (current < stream.parts && !fits(current))
        ++current;
      if (current < stream.parts)
        chosen = current;
    } else {
      const uint32_t together = std::min(stream.parts_together, stream.parts);
      const auto least = [&](uint32_t first, uint32_t step) {
        for (uint32_t part = first; part < stream.parts; part += step)
          if (fits(part) && (chosen == UINT32_MAX || parts[part].used < parts[chosen].used))
            chosen = part;
      };
      least(to % together, together);
      if (chosen == UINT32_MAX)
        least(0, 1);
    }
    if (chosen == UINT32_MAX)
      return std::nullopt;
    parts[chosen].add(staged, entries.first_entry + entry, to);
  }
  return parts;
}

/// Slots of all rows as runs, or as classes, without those that fill up steps.
uint64_t all_slots(const Pattern& pattern, const CompressedStream& stream) {
  uint64_t slots = 0;
  for (uint32_t row = 0; row < pattern.rows; ++row) {
    const auto columns = pattern.row(row);
    if (!stream.has_classes) {
      slots += slots_of_row(stream.staged, columns);
      continue;
    }
    const auto enough = static_cast<uint32_t>(columns.size() * 64 / kCompressedStep + 1);
    for (uint32_t rank = 0; rank < stream.ranks; ++rank)
      if (const auto parts =
              fill(stream, entries_of(columns, pattern.columns, stream.ranks, rank), enough))
        for (const OpenPart& part : *parts)
          slots += part.used;
  }
  return slots;
}

uint64_t slot_bytes(uint64_t slots, uint32_t value_bytes, uint32_t delta_bits) {
  return ceil_div(slots * (8 * value_bytes + delta_bits), 8);
}

} // namespace

uint32_t CompressedStream::most_steps() const {
  return steps.empty() ? 0 : *std::max_element(steps.begin(), steps.end());
}

uint32_t CompressedStream::least_steps() const {
  return steps.empty() ? 0 : *std::min_element(steps.begin(), steps.end());
}

uint32_t StagedRows::zero_after(uint32_t place) const {
  const uint32_t period = spacing() + 1;
  // The furthest within reach, so that long distances take few.
  const uint32_t furthest = (place + most_delta()) / period * period;
  return std::min(furthest, count() - 1);
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
    CompressedStream stream;
    stream.staged = {bits, pattern.columns};
    const uint64_t bytes = slot_bytes(all_slots(pattern, stream), value_bytes, bits);
    if (bits == kDeltaBits[0] || bytes < best.bytes)
      best = {bits, bytes};
  }
  return best;
}

void choose_format(const Pattern& pattern, uint32_t value_bytes, const CompressedSize& runs,
                   CompressedStream& stream) {
  stream.staged = {runs.delta_bits, (pattern.columns + stream.ranks - 1) / stream.ranks};
  stream.has_classes = false;
  if (stream.parts_together == 1 || stream.parts == 1)
    return;
  CompressedStream classes = stream;
  classes.staged.delta_bits = 8;
  classes.has_classes = true;
  const uint64_t bytes = slot_bytes(all_slots(pattern, classes), value_bytes, 8);
  if (static_cast<double>(bytes) <= kMostForClasses * static_cast<double>(runs.bytes))
    stream = classes;
}

void deal_to_warps(const Pattern& pattern, uint32_t value_bytes, CompressedStream& stream) {
  const auto steps_in = [&](uint32_t rank, uint32_t row) {
    return steps_of_row(stream, entries_of(pattern.row(row), pattern.columns, stream.ranks, rank));
  };
  std::vector<uint32_t> steps(pattern.rows, 0);
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (uint32_t rank = 0; rank < stream.ranks; ++rank)
      steps[row] += steps_in(rank, row);
  stream.rows.resize(pattern.rows);
  std::iota(stream.rows.begin(), stream.rows.end(), 0u);
  std::stable_sort(stream.rows.begin(), stream.rows.end(),
                   [&](uint32_t a, uint32_t b) { return steps[a] > steps[b]; });
  stream.steps.clear();
  stream.slots = stream.bytes = 0;
  for (uint32_t rank = 0; rank < stream.ranks; ++rank)
    for (size_t first = 0; first < stream.rows.size(); first += stream.rows_per_warp) {
      const size_t last = std::min(first + stream.rows_per_warp, stream.rows.size());
      uint32_t of_warp = 0;
      for (size_t at = first; at < last; ++at)
        of_warp = std::max(of_warp, steps_in(rank, stream.rows[at]));
      stream.steps.push_back(of_warp);
      stream.slots += uint64_t{of_warp} * kCompressedStep * stream.parts_of_warp();
      stream.bytes += stream.head_bytes() + uint64_t{of_warp} * stream.step_bytes(value_bytes);
    }
  const double with_stride = static_cast<double>(stream.steps.size() * stream.stride(value_bytes));
  stream.has_stride = with_stride <= kMostForStride * static_cast<double>(stream.bytes) &&
                      stream.staged.count() < (1u << CompressedStream::kPlaceBits) &&
                      stream.most_steps() < (1u << (32 - CompressedStream::kPlaceBits));
}

std::vector<CompressedPart> compress_row(const CompressedStream& stream, const RankEntries& entries,
                                         uint32_t steps) {
  auto filled = fill(stream, entries, steps);
  if (!filled)
    throw InternalError("a row of the compressed stream has more entries than room");
  std::vector<CompressedPart> parts;
  for (OpenPart& part : *filled) {
    part.fill_up(stream.staged, size_t{steps} * kCompressedStep);
    parts.push_back(std::move(part.part));
  }
  return parts;
}

RankEntries entries_of(std::span<const uint32_t> columns, uint32_t inner, uint32_t ranks,
                       uint32_t rank) {
  const auto begin_of = [&](uint32_t r) {
    return static_cast<uint32_t>(uint64_t{inner} * r / ranks);
  };
  const auto first = std::lower_bound(columns.begin(), columns.end(), begin_of(rank));
  const auto last = std::lower_bound(first, columns.end(), begin_of(rank + 1));
  return {{first, last}, static_cast<uint32_t>(first - columns.begin()), begin_of(rank)};
}

uint32_t steps_of_row(const CompressedStream& stream, const RankEntries& entries) {
  auto steps = static_cast<uint32_t>(
      ceil_div(entries.columns.size(), uint64_t{kCompressedStep} * stream.parts));
  while (!fill(stream, entries, steps))
    ++steps;
  return steps;
}

} // namespace sparsertc
