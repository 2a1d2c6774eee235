#include "compiler/lower/panel_tables.h"

#include "compiler/lower/spmm_symbols.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace sparsertc {
namespace {

constexpr uint32_t kLanesOfRow = 4;
constexpr uint32_t kFragmentRows = 16, kFragmentBytes = 512;

/// To 10 bits of the fraction, nearest even; what would become infinite is cut.
float to_tf32(double value) {
  constexpr uint32_t kCut = 13, kMask = (1u << kCut) - 1;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  const uint32_t half = (1u << (kCut - 1)) - 1 + (bits >> kCut & 1);
  const float rounded = std::bit_cast<float>((bits + half) & ~kMask);
  return std::isfinite(rounded) ? rounded : std::bit_cast<float>(bits & ~kMask);
}

/// The upper half of its bits, rounded to nearest even: a number of bf16.
float to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

/// Numbers of bf16 that add up to the value.
std::vector<double> parts_of(double value, uint32_t count) {
  std::vector<double> parts;
  auto rest = static_cast<float>(value);
  for (uint32_t i = 0; i < count; ++i) {
    const float part = to_bf16(rest);
    parts.push_back(part);
    rest -= part;
  }
  return parts;
}
/// Whether they do, and none is below the least normal number.
bool are_exact(const std::vector<double>& parts, double value) {
  double sum = 0;
  for (const double part : parts) {
    if (!std::isfinite(part) || (part != 0 && std::fabs(part) < 0x1p-126))
      return false;
    sum += part;
  }
  return sum == value;
}

/// Writes one step of a panel.
class StepWriter {
public:
  StepWriter(const SpmmSchedule& schedule, const Pattern& pattern,
             const std::vector<double>& weights)
      : schedule_(schedule), pattern_(pattern), weights_(weights), step_(panel_step(schedule)),
        staging_(panel_staging(schedule)), shape_(schedule.panels.shape),
        operands_(panel_operands(schedule.problem)), size_(element_bytes(operands_.type)) {}

  /// `rows`: of the panel.
  void write(std::span<const uint32_t> rows, std::span<const PanelSlot> slots, uint8_t* to) const {
    for (uint32_t row = 0; row < shape_.rows; ++row)
      for (uint32_t group = 0; group < slots.size() / shape_.group; ++group)
        write_group(rows, row, group, slots.subspan(size_t{group} * shape_.group, shape_.group),
                    to);
    for (uint32_t slot = 0; slot < slots.size(); ++slot) {
      const uint32_t place = slots[slot].position % staging_.rows * staging_.pitch;
      // A lane of tf32 loads the places of its four slots at once.
      const uint32_t at = operands_.is_tf32() ? slot % 4 * 4 + slot / 4 : slot;
      std::memcpy(to + step_.places_offset + 4 * at, &place, 4);
    }
  }

private:
  void write_group(std::span<const uint32_t> rows, uint32_t row, uint32_t group,
                   std::span<const PanelSlot> slots, uint8_t* to) const {
    uint32_t kept[2] = {0, 1}, count = 0;
    for (uint32_t i = 0; i < slots.size(); ++i)
      if ((slots[i].rows >> row & 1) != 0)
        kept[count++] = i;
    std::vector<double> values[2] = {zeros(), zeros()};
    for (uint32_t i = 0; i < count; ++i)
      values[i] = weight(rows[row], schedule_.panels.column_at(slots[kept[i]].position));
    if (shape_.kept() == 2 && count == 1) {
      // The places of a pair ascend; the other holds zero.
      if (kept[0] == 3)
        std::swap(values[0], values[1]);
      kept[0] = std::min(kept[0], 2u);
      kept[1] = kept[0] + 1;
    }
    for (uint32_t i = 0; i < shape_.kept() && count != 0; ++i)
      for (uint32_t part = 0; part < operands_.parts; ++part)
        put_value(row, group * shape_.kept() + i, values[i][part],
                  to + part * step_.fragments * kFragmentBytes);
    put_code(row, group,
             shape_.kept() == 2 ? kept[0] | kept[1] << 2
             : kept[0] == 0     ? 0b0100
                                : 0b1110,
             to);
  }

  std::vector<double> zeros() const { return std::vector<double>(operands_.parts); }

  /// As numbers that tensor cores take.
  std::vector<double> weight(uint32_t row, uint32_t column) const {
    const std::span<const uint32_t> columns = pattern_.row(row);
    const auto at = std::lower_bound(columns.begin(), columns.end(), column);
    const double value =
        weights_[pattern_.row_offset[row] + static_cast<size_t>(at - columns.begin())];
    if (!operands_.is_split())
      return {operands_.is_tf32() ? to_tf32(value) : value};
    std::vector<double> parts = parts_of(value, operands_.parts);
    if (!are_exact(parts, value))
      throw UsageError(
          fmt::format("--tile: strategy=panels takes weights of f32 in three parts of bf16, and {} "
                      "in row {}, column {} (counted from 0) has parts outside of its range",
                      value, row, column),
          "choose strategy=unrolled");
    return parts;
  }

  /// Element `kept` of a row of A. A fragment has its columns in stripes: a stripe is 4 lanes times
  /// 4 bytes wide, and of each a lane holds rows r and r + 8.
  void put_value(uint32_t row, uint32_t kept, double value, uint8_t* to) const {
    const uint32_t run = 4 / size_; // elements of a lane's register
    const uint32_t stripe = kLanesOfRow * run;
    const uint32_t in_fragment = row % kFragmentRows;
    const uint32_t lane = in_fragment % 8 * kLanesOfRow + kept % stripe / run;
    const uint32_t reg = in_fragment / 8 + 2 * (kept / stripe);
    std::vector<uint8_t> bytes;
    sparsertc::put_value(bytes, operands_.type, value);
    std::memcpy(to + row / kFragmentRows * kFragmentBytes + 16 * lane + 4 * reg +
                    kept % run * size_,
                bytes.data(), size_);
  }

  /// Four bits for each group of a row. Of two fragments the first has its words in lanes 0 and 1
  /// of a row's four, the second in lanes 2 and 3.
  void put_code(uint32_t row, uint32_t group, uint32_t code, uint8_t* to) const {
    const uint32_t fragment = row / kFragmentRows, in_fragment = row % kFragmentRows;
    const uint32_t lane = in_fragment % 8 * kLanesOfRow + fragment % 2 * 2 + group / 4;
    const uint32_t word = fragment / 2;
    uint8_t* at = to + step_.metadata_offset + 4 * (lane * step_.metadata_words + word);
    uint32_t bits = 0;
    std::memcpy(&bits, at, 4);
    bits |= code << (16 * (in_fragment / 8) + 4 * (group % 4));
    std::memcpy(at, &bits, 4);
  }

  const SpmmSchedule& schedule_;
  const Pattern& pattern_;
  const std::vector<double>& weights_;
  PanelStep step_;
  PanelStaging staging_;
  PanelShape shape_;
  PanelOperands operands_;
  uint32_t size_;
};

} // namespace

std::vector<uint8_t> panel_stream_bytes(const SpmmSchedule& schedule, const Pattern& pattern,
                                        const std::vector<double>& weights) {
  const PanelPacking& packing = schedule.panels;
  const PanelStep step = panel_step(schedule);
  const uint64_t steps = uint64_t{schedule.tile_count()} * packing.steps;
  std::vector<uint8_t> bytes((steps + panel_steps_ahead(schedule.problem)) * step.bytes);
  const StepWriter writer(schedule, pattern, weights);
  for (uint32_t panel = 0; panel < schedule.tile_count(); ++panel) {
    const uint32_t first = schedule.tile_begin[panel];
    const std::span<const uint32_t> rows(schedule.row_order.data() + first,
                                         schedule.tile_begin[panel + 1] - first);
    uint8_t* const to = bytes.data() + uint64_t{panel} * packing.steps * step.bytes;
    for (uint32_t s = 0; s < packing.steps; ++s)
      writer.write(rows,
                   packing.panel(panel).subspan(size_t{s} * packing.shape.slots_of_step(),
                                                packing.shape.slots_of_step()),
                   to + uint64_t{packing.place_of_step(s)} * step.bytes);
  }
  return bytes;
}

std::vector<uint8_t> panel_row_bytes(const SpmmSchedule& schedule) {
  std::vector<uint8_t> bytes;
  for (uint32_t panel = 0; panel < schedule.tile_count(); ++panel)
    for (uint32_t i = 0; i < schedule.tile.rows; ++i) {
      const uint32_t at = schedule.tile_begin[panel] + i;
      put_bytes(bytes,
                at < schedule.tile_begin[panel + 1] ? schedule.row_order[at] : schedule.rows);
    }
  return bytes;
}

} // namespace sparsertc
