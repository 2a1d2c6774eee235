#include "compiler/inspect/panel_packing.h"

#include "ir/error.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <optional>

namespace sparsertc {
namespace {

constexpr uint32_t kMostUnitSlots = 8;

/// Units of a round for what columns leave that have to be taken in it.
constexpr uint32_t kSpareUnits = 2;

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}
uint32_t count(uint64_t rows) {
  return static_cast<uint32_t>(std::popcount(rows));
}

/// Positions between the windows of two rounds. The last round may have few steps: where there are
/// others it sees no more than the one before, which else would run out of columns.
uint32_t advance_of(uint32_t columns, uint32_t window, uint32_t rounds, uint32_t whole_rounds) {
  const uint32_t windows = std::max(whole_rounds, std::min(rounds, 2u));
  return columns > window && windows > 1 ? ceil_div(columns - window, windows - 1) : 0;
}

/// The rows that a group's slots have taken: each once, and twice.
struct Group {
  uint64_t once = 0, twice = 0;
  /// Rows that cannot take another entry.
  uint64_t full(uint32_t kept) const { return kept == 2 ? twice : once; }
  void take(uint64_t rows) {
    twice |= once & rows;
    once |= rows;
  }
};

/// A position with entries that have no slot yet.
struct Pending {
  uint32_t position;
  uint64_t rows;
};

/// Packs one panel.
class PanelPacker {
public:
  /// `plan` has everything but the slots.
  PanelPacker(const PanelPacking& plan, const std::vector<uint64_t>& columns)
      : plan_(plan), shape_(plan.shape), columns_(columns), residues_(shape_.slots_of_unit()) {}

  /// False where entries are left over.
  bool pack(std::span<PanelSlot> slots) {
    uint32_t seen = 0;
    for (uint32_t round = 0; round < plan_.rounds(); ++round) {
      round_ = round;
      for (; seen < plan_.last_position(round); ++seen)
        if (columns_[seen] != 0)
          pending_[seen % residues_].push_back({seen, columns_[seen]});
      // What the next round does not see has to be taken now.
      leaves_before_ =
          round + 1 == plan_.rounds() ? plan_.columns : plan_.first_position(round + 1);
      const uint32_t first_step = round * shape_.steps_of_round;
      const uint32_t units =
          PanelShape::kUnitsOfStep * std::min(shape_.steps_of_round, plan_.steps - first_step);
      for (uint32_t unit = 0; unit < units; ++unit) {
        units_left_ = units - unit;
        fill_unit(slots.subspan(
            size_t{first_step} * shape_.slots_of_step() + size_t{unit} * residues_, residues_));
      }
      if (!all_that_leave_are_taken())
        return false;
    }
    return true;
  }

private:
  struct Choice {
    uint32_t residue = 0;
    size_t index = 0;
    uint32_t left = 0; ///< entries that it leaves
    bool leaves = false;
    uint32_t entries = 0;
  };

  size_t leaving_in(const std::vector<Pending>& list) const {
    size_t leaving = 0;
    while (leaving < list.size() && list[leaving].position < leaves_before_)
      ++leaving;
    return leaving;
  }
  bool all_that_leave_are_taken() const {
    return std::all_of(pending_, pending_ + residues_,
                       [&](const std::vector<Pending>& list) { return leaving_in(list) == 0; });
  }

  /// Residues of which more columns leave than there are units behind this one.
  uint32_t overdue() const {
    uint32_t residues = 0;
    for (uint32_t residue = 0; residue < residues_; ++residue)
      if (leaving_in(pending_[residue]) >= units_left_)
        residues |= 1u << residue;
    return residues;
  }

  std::optional<Choice> best_for(const Group& group, uint32_t free_residues) const {
    const uint64_t full = group.full(shape_.kept());
    std::optional<Choice> best;
    for (uint32_t residue = 0; residue < residues_; ++residue) {
      if ((free_residues >> residue & 1) == 0)
        continue;
      const std::vector<Pending>& list = pending_[residue];
      // Lists ascend, so that what leaves the window stands first.
      const size_t leaving = leaving_in(list);
      const bool hurry = leaving != 0 && leaving + kSpareUnits > units_left_;
      for (size_t i = 0; i < (hurry ? leaving : list.size()); ++i) {
        const Choice choice = {residue, i, count(list[i].rows & full), i < leaving,
                               count(list[i].rows)};
        if (choice.left < choice.entries && (!best || is_better(choice, *best)))
          best = choice;
      }
    }
    return best;
  }
  static bool is_better(const Choice& a, const Choice& b) {
    if (a.left != b.left)
      return a.left < b.left;
    if (a.leaves != b.leaves)
      return a.leaves;
    return a.entries > b.entries;
  }

  void fill_unit(std::span<PanelSlot> slots) {
    uint32_t free_residues = (1u << residues_) - 1;
    std::vector<PanelSlot*> empty;
    for (uint32_t half = 0; half < 2; ++half) {
      Group group;
      for (uint32_t i = 0; i < shape_.group; ++i) {
        PanelSlot& slot = slots[half * shape_.group + i];
        std::optional<Choice> choice = best_for(group, free_residues | overdue());
        // A slot that is read late is better than an empty one.
        if (!choice)
          choice = best_for(group, (1u << residues_) - 1);
        if (!choice) {
          empty.push_back(&slot);
          continue;
        }
        std::vector<Pending>& list = pending_[choice->residue];
        Pending& taken = list[choice->index];
        const uint64_t full = group.full(shape_.kept());
        slot = {taken.position, taken.rows & ~full};
        group.take(slot.rows);
        taken.rows &= full;
        if (taken.rows == 0)
          list.erase(list.begin() + static_cast<ptrdiff_t>(choice->index));
        free_residues &= ~(1u << choice->residue);
      }
    }
    for (PanelSlot* slot : empty)
      *slot = filler(free_residues);
  }

  /// A position of the window with a residue that is free, where it has one.
  PanelSlot filler(uint32_t& free_residues) const {
    const uint32_t first = plan_.first_position(round_), last = plan_.last_position(round_);
    for (uint32_t column = first; column < last && column < first + residues_; ++column)
      if ((free_residues >> (column % residues_) & 1) != 0) {
        free_residues &= ~(1u << (column % residues_));
        return {column, 0};
      }
    return {first, 0};
  }

  const PanelPacking& plan_;
  const PanelShape& shape_;
  const std::vector<uint64_t>& columns_;
  uint32_t residues_, round_ = 0, leaves_before_ = 0, units_left_ = 0;
  std::vector<Pending> pending_[kMostUnitSlots];
};

/// A stride that leaps: nearly the golden section of the columns, so that the columns of a few
/// positions are spread over all of them. 1 where products with it would not fit into 32 bits.
uint32_t leaping_stride(uint32_t columns) {
  constexpr uint32_t kMostColumns = 46340;
  if (columns > kMostColumns)
    return 1;
  auto stride = static_cast<uint32_t>(0.618034 * columns);
  while (stride > 1 && std::gcd(stride, columns) != 1)
    --stride;
  return std::max(1u, stride);
}

/// Of each column its position.
std::vector<uint32_t> positions_of(const PanelPacking& packing) {
  std::vector<uint32_t> positions(packing.columns);
  for (uint32_t position = 0; position < packing.columns; ++position)
    positions[packing.column_at(position)] = position;
  return positions;
}

/// Of each position the rows of a panel that have an entry in its column.
std::vector<uint64_t> columns_of(const Pattern& pattern, std::span<const uint32_t> rows,
                                 const std::vector<uint32_t>& positions) {
  std::vector<uint64_t> columns(pattern.columns);
  for (size_t r = 0; r < rows.size(); ++r)
    for (const uint32_t column : pattern.row(rows[r]))
      columns[positions[column]] |= uint64_t{1} << r;
  return columns;
}

/// With no more than `most_steps`; else without slots.
PanelPacking pack_with_stride(const Pattern& pattern, std::span<const uint32_t> row_order,
                              std::span<const uint32_t> panel_begin, const PanelShape& shape,
                              uint32_t stride, uint32_t most_steps) {
  PanelPacking packing;
  packing.shape = shape;
  packing.columns = pattern.columns;
  packing.stride = stride;
  const std::vector<uint32_t> positions = positions_of(packing);
  const auto panels = static_cast<uint32_t>(panel_begin.size() - 1);
  const auto rows_of = [&](uint32_t panel) {
    return row_order.subspan(panel_begin[panel], panel_begin[panel + 1] - panel_begin[panel]);
  };
  const auto set_steps = [&](uint32_t at_least) {
    const uint32_t steps = ceil_div(at_least, shape.parts) * shape.parts;
    packing.steps = steps;
    packing.advance =
        advance_of(packing.columns, shape.window, packing.rounds(), steps / shape.steps_of_round);
  };
  // The fewest steps that any panel could do with.
  uint32_t least = 0;
  for (uint32_t panel = 0; panel < panels; ++panel) {
    const std::vector<uint64_t> columns = columns_of(pattern, rows_of(panel), positions);
    const auto empty = std::count(columns.begin(), columns.end(), 0);
    least = std::max(least,
                     ceil_div(columns.size() - static_cast<size_t>(empty), shape.slots_of_step()));
  }
  if (least == 0)
    return packing;
  set_steps(least);
  // Windows without a gap between them.
  while (packing.last_position(packing.rounds() - 1) < packing.columns ||
         packing.advance > shape.window)
    set_steps(packing.steps + 1);
  if (packing.steps > most_steps)
    return packing;
  // More until all succeed; what was packed into fewer is packed again.
  std::vector<std::vector<PanelSlot>> packed(panels);
  for (uint32_t done = 0, panel = 0; done < panels; panel = (panel + 1) % panels) {
    const std::vector<uint64_t> columns = columns_of(pattern, rows_of(panel), positions);
    std::vector<PanelSlot>& slots = packed[panel];
    slots.assign(size_t{packing.steps} * shape.slots_of_step(), {});
    while (!PanelPacker(packing, columns).pack(slots)) {
      set_steps(packing.steps + std::max(1u, packing.steps / 64));
      if (packing.steps > most_steps)
        return packing;
      slots.assign(size_t{packing.steps} * shape.slots_of_step(), {});
      done = 0;
    }
    ++done;
  }
  const uint32_t unit = shape.slots_of_unit();
  for (uint32_t panel = 0; panel < panels; ++panel) {
    for (size_t first = 0; first < packed[panel].size(); first += unit) {
      uint32_t used = 0, banks = 0;
      for (size_t slot = first; slot < first + unit; ++slot)
        if (packed[panel][slot].rows != 0) {
          ++used;
          banks |= 1u << (packed[panel][slot].position % unit);
        }
      packing.conflicts += used - count(banks);
    }
    packing.slots.insert(packing.slots.end(), packed[panel].begin(), packed[panel].end());
    std::vector<bool> met(pattern.columns);
    for (const PanelSlot& slot : packed[panel])
      if (slot.rows != 0) {
        packing.second_slots += met[slot.position];
        met[slot.position] = true;
      }
  }
  return packing;
}

} // namespace

PanelPacking pack_panels(const Pattern& pattern, std::span<const uint32_t> row_order,
                         std::span<const uint32_t> panel_begin, const PanelShape& shape) {
  if (shape.rows == 0 || shape.rows > 64 || (shape.group != 4 && shape.group != 2) ||
      shape.parts == 0 || shape.steps_of_round % shape.parts != 0 ||
      shape.window < shape.slots_of_round())
    throw InternalError("pack_panels: no such shape");
  PanelPacking packing = pack_with_stride(pattern, row_order, panel_begin, shape, 1, UINT32_MAX);
  const uint32_t stride = leaping_stride(pattern.columns);
  if (packing.steps == 0 || packing.advance == 0 || stride == 1)
    return packing;
  PanelPacking leaping =
      pack_with_stride(pattern, row_order, panel_begin, shape, stride, packing.steps - 1);
  return leaping.slots.empty() ? packing : leaping;
}

} // namespace sparsertc
