// Packing the rows of a panel into the sparse operand of tensor cores, without losing an entry.
//
// Tensor cores take a sparse A of which each row holds at most two of four neighbouring columns
// (tf32: one of two). Unstructured rows hold more here and fewer there; but which columns are
// neighbours is free: a panel is up to 64 rows that share an order of columns of their own. The
// packing gives each column a *slot*. A column whose entries do not fit with those of its
// neighbours leaves some of them for a second slot, so that every pattern can be packed.
//
//   slot      a column of A, and the rows whose entries of this column are taken here
//   group     4 slots (tf32: 2), of which each row uses at most 2 (1)
//   unit      2 groups, whose positions differ modulo the number of its slots where they can, so
//   that
//             the rows of B that are read together lie in different banks of shared memory
//   step      4 units: one instruction for each 16 rows
//   round     4 steps or less (the last one may have fewer), between which rows of B are brought
//   into
//             shared memory: round r sees the positions from r * advance on, `window` of them
//   position  of a column in the order in which all panels meet them: position p has the column
//             p * stride modulo the number of columns. A stride that leaps about brings parts of A
//             with many entries and parts with few into the same windows
//   part      of K: the steps of each round are dealt to the parts of a panel, to each as many
//
// Slots are filled unit by unit with the column that leaves the fewest entries, among equals the
// one that leaves the window soonest, then the one with most entries. All panels have the same
// number of steps, the least for which this succeeds: a few percent more than columns / slots where
// a tenth to a fifth of the entries are there, fewer where many columns of a panel are empty.
#pragma once

#include "compiler/pattern/pattern.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace sparsertc {

struct PanelShape {
  uint32_t rows = 64;                          ///< of a panel, at most 64
  uint32_t group = 4;                          ///< slots of a group: 4, of tf32 2
  uint32_t window = 256;                       ///< columns that a round sees, at least its slots
  uint32_t parts = 1;                          ///< 1, 2 or 4; the number of steps is a multiple
  uint32_t steps_of_round = kMostStepsOfRound; ///< a multiple of parts

  uint32_t slots_of_unit() const { return 2 * group; }
  uint32_t slots_of_step() const { return kUnitsOfStep * slots_of_unit(); }
  uint32_t slots_of_round() const { return steps_of_round * slots_of_step(); }
  /// Entries of a row in a group.
  uint32_t kept() const { return group / 2; }

  static constexpr uint32_t kUnitsOfStep = 4, kMostStepsOfRound = 4;
};

/// A position, and the rows of the panel (bit r: the r-th) whose entries of its column are taken
/// here; none: the slot only fills its group, and the position is any of the window.
struct PanelSlot {
  uint32_t position = 0;
  uint64_t rows = 0;
};

struct PanelPacking {
  PanelShape shape;
  uint32_t columns = 0; ///< of A
  uint32_t stride = 1;  ///< between neighbouring positions; has no divisor in common with `columns`
  uint32_t steps = 0;   ///< of every panel
  uint32_t advance = 0; ///< positions between the windows of two rounds
  /// [panel][step][slot]
  std::vector<PanelSlot> slots;
  uint64_t second_slots = 0; ///< that take up what a column has left
  uint64_t conflicts = 0;    ///< slots whose unit has their bank already

  /// Of A.
  uint32_t column_at(uint32_t position) const {
    return static_cast<uint32_t>(uint64_t{position} * stride % columns);
  }
  /// The positions that a round sees: [first, last). The last window ends with the columns.
  uint32_t first_position(uint32_t round) const {
    const uint64_t last_window = columns - std::min(columns, shape.window);
    return static_cast<uint32_t>(std::min(last_window, uint64_t{round} * advance));
  }
  uint32_t last_position(uint32_t round) const {
    return std::min(columns, first_position(round) + shape.window);
  }

  uint32_t rounds() const { return (steps + shape.steps_of_round - 1) / shape.steps_of_round; }
  /// Where a step stands if a panel's steps are ordered by parts.
  uint32_t place_of_step(uint32_t step) const {
    const uint32_t before = step / shape.steps_of_round * shape.steps_of_round;
    const uint32_t of_part = std::min(shape.steps_of_round, steps - before) / shape.parts;
    const uint32_t part = (step - before) / of_part;
    return part * (steps / shape.parts) + before / shape.parts + (step - before) % of_part;
  }
  /// Of one panel.
  std::span<const PanelSlot> panel(uint32_t number) const {
    const size_t count = size_t{steps} * shape.slots_of_step();
    return {slots.data() + number * count, count};
  }
  /// Slots of a panel over columns of A.
  double fraction() const {
    return columns == 0 ? 0 : static_cast<double>(steps) * shape.slots_of_step() / columns;
  }
};

/// Takes the stride, 1 or one that leaps, with which there are fewer steps.
/// Panel p has the rows row_order[panel_begin[p] .. panel_begin[p + 1]), at most shape.rows.
PanelPacking pack_panels(const Pattern& pattern, std::span<const uint32_t> row_order,
                         std::span<const uint32_t> panel_begin, const PanelShape& shape);

} // namespace sparsertc
