#include "compiler/lower/compressed_tables.h"

#include "compiler/lower/spmm_symbols.h"
#include "ir/error.h"

#include <algorithm>
#include <span>

namespace sparsertc {

std::vector<uint8_t> compressed_stream_bytes(const SpmmSchedule& schedule, const Pattern& pattern,
                                             const std::vector<double>& weights) {
  const CompressedStream& stream = schedule.stream;
  const uint32_t size = element_bytes(schedule.problem.type);
  const uint32_t per_piece = std::min(kCompressedStep, 16 / size);
  const uint32_t pieces = kCompressedStep / per_piece;
  const uint32_t parts = stream.parts_of_warp();
  const uint64_t stride = stream.has_stride ? stream.stride(size) : 0;
  std::vector<uint8_t> bytes;
  bytes.reserve(std::max<uint64_t>(stream.bytes, stride * stream.steps.size()));
  std::vector<CompressedPart> of_warp(parts);
  std::vector<uint64_t> row_offset(parts);
  uint64_t read = 0;
  for (uint32_t number = 0; number < stream.steps.size(); ++number) {
    const uint32_t rank = number / stream.warps(), warp = number % stream.warps();
    const size_t begin = bytes.size();
    const uint32_t steps = stream.steps[number];
    for (uint32_t r = 0; r < stream.rows_per_warp; ++r) {
      const size_t at = size_t{warp} * stream.rows_per_warp + r;
      std::span<const uint32_t> columns;
      uint64_t offset = 0;
      if (at < stream.rows.size()) {
        columns = pattern.row(stream.rows[at]);
        offset = pattern.row_offset[stream.rows[at]];
      }
      std::vector<CompressedPart> of_row =
          compress_row(stream, entries_of(columns, schedule.inner, stream.ranks, rank), steps);
      for (uint32_t p = 0; p < stream.parts; ++p) {
        of_warp[r * stream.parts + p] = std::move(of_row[p]);
        row_offset[r * stream.parts + p] = offset;
      }
    }
    const uint32_t above = stream.has_stride ? steps << CompressedStream::kPlaceBits : 0;
    for (const CompressedPart& part : of_warp)
      put_bytes(bytes, part.first_place | above);
    bytes.resize(begin + stream.head_bytes());
    for (uint32_t step = 0; step < steps; ++step) {
      const size_t step_begin = bytes.size();
      for (uint32_t piece = 0; piece < pieces; ++piece)
        for (uint32_t p = 0; p < parts; ++p)
          for (uint32_t i = 0; i < per_piece; ++i) {
            const uint32_t entry =
                of_warp[p].slots[step * kCompressedStep + piece * per_piece + i].entry;
            put_value(bytes, schedule.problem.type,
                      entry == CompressedPart::kNoEntry ? 0.0 : weights[row_offset[p] + entry]);
          }
      for (const CompressedPart& part : of_warp) {
        uint64_t deltas = 0;
        for (uint32_t i = 0; i < kCompressedStep; ++i)
          deltas |= uint64_t{part.slots[step * kCompressedStep + i].delta}
                    << (i * stream.staged.delta_bits);
        for (uint32_t byte = 0; byte < stream.delta_bytes(); ++byte)
          bytes.push_back(static_cast<uint8_t>(deltas >> (8 * byte)));
      }
      bytes.resize(step_begin + stream.step_bytes(size));
    }
    read += bytes.size() - begin;
    if (stream.has_stride) {
      bytes.resize(begin + stride);
      if (warp + 1 == stream.warps())
        bytes.resize(bytes.size() +
                     (schedule.tile_count() * schedule.tile.warps - stream.warps()) * stride);
    }
  }
  if (read != stream.bytes)
    throw InternalError("the compressed stream has not the length that was planned");
  return bytes;
}

std::vector<uint8_t> compressed_step_table(const CompressedStream& stream, uint32_t slots) {
  std::vector<uint8_t> bytes;
  uint32_t before = 0, number = 0;
  for (uint32_t rank = 0; rank < stream.ranks; ++rank)
    for (uint32_t warp = 0; warp < slots; ++warp) {
      const bool is_there = warp < stream.warps();
      const uint32_t steps = is_there ? stream.steps[number] : 0;
      for (const uint32_t word : {steps, before, number, 0u})
        put_bytes(bytes, word);
      before += steps;
      number += is_there;
    }
  return bytes;
}

} // namespace sparsertc
