#include "compiler/inspect/lu_schedule.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace sparsertc {
namespace {

/// The entries of A at their places in B.
void place_input(const Pattern& a, const LuPlacement& placement, LuTables& tables) {
  std::vector<uint64_t> source_in_rows;
  const Pattern b = permute(a, placement.rows, placement.columns, &source_in_rows);
  std::vector<uint64_t> source_in_columns;
  const Pattern by_column = transpose(b, &source_in_columns);
  tables.input_nnz = a.nnz();
  tables.input_offset = by_column.row_offset;
  tables.input_row = by_column.column_index;
  tables.input_slot.resize(a.nnz());
  tables.input_source.resize(a.nnz());
  const bool scaled = !placement.row_scale.empty() || !placement.column_scale.empty();
  if (scaled)
    tables.input_scale.resize(a.nnz());
  const auto scale = [](std::span<const double> scales, uint32_t index) {
    return scales.empty() ? 1.0 : scales[index];
  };
  for (uint32_t j = 0; j < tables.size; ++j) {
    uint64_t slot = tables.column_offset[j];
    for (uint64_t p = tables.input_offset[j]; p < tables.input_offset[j + 1]; ++p) {
      const uint32_t i = tables.input_row[p];
      while (tables.row_index[slot] != i) // every entry of B is one of L+U
        ++slot;
      tables.input_slot[p] = slot;
      tables.input_source[p] = source_in_rows[source_in_columns[p]];
      if (scaled)
        tables.input_scale[p] = scale(placement.row_scale, placement.rows[i]) *
                                scale(placement.column_scale, placement.columns[j]);
    }
  }
}

/// Calls f(chunk's first column, its end) on the pool, or at once for all.
void for_column_chunks(uint32_t size, TaskPool* pool,
                       const std::function<void(uint32_t, uint32_t)>& f) {
  if (pool == nullptr || pool->threads() == 1) {
    f(0, size);
    return;
  }
  const uint64_t chunks = std::min<uint64_t>(size, 16 * uint64_t{pool->threads()});
  pool->run(chunks, [&](uint64_t chunk) {
    f(static_cast<uint32_t>(size * chunk / chunks),
      static_cast<uint32_t>(size * (chunk + 1) / chunks));
  });
}

/// Calls f(slot of v(i,j), slot of v(i,k), slot of v(k,j), k) for each multiply-add of column j,
/// ascending in k. `slot_of_row` is n numbers of scratch.
template <class F>
void for_each_pair(const LuTables& tables, uint32_t j, std::vector<uint64_t>& slot_of_row,
                   const F& f) {
  const uint64_t begin = tables.column_offset[j], end = tables.column_offset[j + 1];
  for (uint64_t slot = begin; slot < end; ++slot)
    slot_of_row[tables.row_index[slot]] = slot;
  for (uint64_t right = begin; right < tables.diagonal[j]; ++right) {
    const uint32_t k = tables.row_index[right];
    for (uint64_t left = tables.diagonal[k] + 1; left < tables.column_offset[k + 1]; ++left)
      f(slot_of_row[tables.row_index[left]], left, right, k);
  }
}

/// The least level of each slot: one above all that it reads. (Finer than levels of columns.)
std::vector<uint32_t> levels_of_slots(const LuTables& tables) {
  std::vector<uint32_t> level(tables.nnz(), 0);
  std::vector<uint64_t> slot_of_row(tables.size);
  for (uint32_t j = 0; j < tables.size; ++j)
    for_each_pair(
        tables, j, slot_of_row, [&](uint64_t slot, uint64_t left, uint64_t right, uint32_t k) {
          const uint32_t read = std::max({level[left], level[right], level[tables.diagonal[k]]});
          level[slot] = std::max(level[slot], read + 1);
        });
  return level;
}

} // namespace

LuTables make_lu_tables(const Pattern& a, const LuPlacement& placement, TaskPool* pool,
                        const LuFinders& finders) {
  if (a.rows != a.columns)
    throw UserError(fmt::format("a matrix of {} rows and {} columns has no LU factorization",
                                a.rows, a.columns),
                    "the matrix must be square");
  if (!is_permutation(placement.rows, a.rows) || !is_permutation(placement.columns, a.rows))
    throw UserError(fmt::format("the order of rows or columns is no permutation of 0 to {}",
                                int64_t{a.rows} - 1));
  LuTables tables;
  tables.size = a.rows;
  tables.row_order = placement.rows;
  tables.column_order = placement.columns;
  tables.row_scale.assign(placement.row_scale.begin(), placement.row_scale.end());
  tables.column_scale.assign(placement.column_scale.begin(), placement.column_scale.end());

  const Pattern placed = permute(a, placement.rows, placement.columns);
  LuPattern rows = finders.pattern ? finders.pattern(placed) : symbolic_lu(placed, pool);
  LuColumns columns = by_columns(rows);
  tables.factor_levels = finders.levels ? finders.levels(rows, columns, LevelRule::gather)
                                        : factor_levels(rows, columns, LevelRule::gather);
  tables.forward_levels = forward_levels(columns);
  tables.backward_levels = backward_levels(columns);
  tables.transposed_forward_levels = transposed_forward_levels(rows);
  tables.transposed_backward_levels = transposed_backward_levels(rows);

  tables.row_slot.resize(rows.rows.nnz());
  for (uint64_t slot = 0; slot < columns.place_in_rows.size(); ++slot)
    tables.row_slot[columns.place_in_rows[slot]] = slot;
  tables.row_offset = std::move(rows.rows.row_offset);
  tables.column_index = std::move(rows.rows.column_index);
  tables.row_diagonal = std::move(rows.diagonal);
  tables.column_offset = std::move(columns.columns.row_offset);
  tables.row_index = std::move(columns.columns.column_index);
  tables.diagonal = std::move(columns.diagonal);
  place_input(a, placement, tables);
  return tables;
}

uint64_t multiply_adds(const LuTables& tables) {
  uint64_t sum = 0;
  for (uint32_t k = 0; k < tables.size; ++k)
    sum += (tables.column_offset[k + 1] - tables.diagonal[k] - 1) *
           (tables.row_offset[k + 1] - tables.row_diagonal[k] - 1);
  return sum;
}

uint64_t gather_bytes(uint64_t slots, uint64_t pairs) {
  return slots * (sizeof(uint64_t) + sizeof(uint64_t)) + pairs * 3 * sizeof(uint32_t);
}

std::optional<LuGather> make_lu_gather(const LuTables& tables, uint64_t maximum_bytes,
                                       TaskPool* pool) {
  const uint64_t pairs = multiply_adds(tables);
  const uint64_t slots = tables.nnz();
  if (slots >= uint64_t{1} << 32 || gather_bytes(slots, pairs) > maximum_bytes)
    return std::nullopt;

  // Tasks by level, within a level by slot: a counting sort.
  const std::vector<uint32_t> level = levels_of_slots(tables);
  const uint32_t levels = slots == 0 ? 0 : *std::max_element(level.begin(), level.end()) + 1;
  LuGather gather;
  gather.level_offset.assign(uint64_t{levels} + 1, 0);
  for (const uint32_t l : level)
    ++gather.level_offset[l + 1];
  for (uint32_t l = 0; l < levels; ++l)
    gather.level_offset[l + 1] += gather.level_offset[l];
  std::vector<uint64_t> next(gather.level_offset.begin(), gather.level_offset.end() - 1);
  gather.task_slot.resize(slots);
  std::vector<uint64_t> task_of_slot(slots);
  for (uint64_t slot = 0; slot < slots; ++slot) {
    task_of_slot[slot] = next[level[slot]]++;
    gather.task_slot[task_of_slot[slot]] = slot;
  }

  // The number of pairs of each task, then their places, then the pairs. Columns write only to
  // tasks of their own.
  gather.pair_offset.assign(slots + 1, 0);
  for_column_chunks(tables.size, pool, [&](uint32_t first, uint32_t last) {
    std::vector<uint64_t> slot_of_row(tables.size);
    for (uint32_t j = first; j < last; ++j)
      for_each_pair(tables, j, slot_of_row, [&](uint64_t slot, uint64_t, uint64_t, uint32_t) {
        ++gather.pair_offset[task_of_slot[slot] + 1];
      });
  });
  for (uint64_t task = 0; task < slots; ++task)
    gather.pair_offset[task + 1] += gather.pair_offset[task];
  gather.pair_left.resize(pairs);
  gather.pair_right.resize(pairs);
  gather.pair_pivot.resize(pairs);
  next.assign(gather.pair_offset.begin(), gather.pair_offset.end() - 1);
  for_column_chunks(tables.size, pool, [&](uint32_t first, uint32_t last) {
    std::vector<uint64_t> slot_of_row(tables.size);
    for (uint32_t j = first; j < last; ++j)
      for_each_pair(tables, j, slot_of_row,
                    [&](uint64_t slot, uint64_t left, uint64_t right, uint32_t k) {
                      const uint64_t pair = next[task_of_slot[slot]]++;
                      gather.pair_left[pair] = static_cast<uint32_t>(left);
                      gather.pair_right[pair] = static_cast<uint32_t>(right);
                      gather.pair_pivot[pair] = static_cast<uint32_t>(tables.diagonal[k]);
                    });
  });
  return gather;
}

} // namespace sparsertc
