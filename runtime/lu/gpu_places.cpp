#include "runtime/lu/gpu_places.h"

#include "ir/error.h"

#include <algorithm>

namespace sparsertc::lu {
namespace {

constexpr uint32_t kLanes = LuDataflow::kLanes;
constexpr uint32_t kProducts = LuDataflow::kProducts;
constexpr uint32_t kSectorBytes = 32;
constexpr uint64_t kMostOnGpu = uint64_t{1} << 31;

/// Sectors, where those of neighbouring lanes lie side by side. What is no slot means nothing.
uint32_t sectors(const uint32_t* operands, const std::vector<uint32_t>& place,
                 uint32_t values_in_sector) {
  uint32_t count = 0, last = kNoWord;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t slot = operands[uint64_t{lane} * kProducts];
    if (slot >= place.size())
      continue;
    const uint32_t sector = place[slot] / values_in_sector;
    count += sector != last;
    last = sector;
  }
  return count;
}

} // namespace

GpuPlaces make_gpu_places(const LuTables& tables, uint32_t value_bytes) {
  if (2 * tables.nnz() + kSectorBytes >= kMostOnGpu)
    throw UserError("the factorization is too large for the GPU's tables",
                    "--device=cpu factorizes it on the CPU");
  GpuPlaces places;
  places.by_column.resize(tables.nnz());
  places.by_row.resize(tables.nnz());
  uint32_t next = 0;
  const auto begin_sector = [&] {
    const uint32_t in_sector = std::max(kSectorBytes / value_bytes, 1u);
    next = (next + in_sector - 1) / in_sector * in_sector;
  };
  for (const uint64_t slot : tables.diagonal)
    places.by_column[slot] = places.by_row[slot] = next++;
  begin_sector();
  for (uint32_t j = 0; j < tables.size; ++j)
    for (uint64_t slot = tables.column_offset[j]; slot < tables.column_offset[j + 1]; ++slot)
      if (slot != tables.diagonal[j])
        places.by_column[slot] = next++;
  begin_sector();
  for (uint32_t i = 0; i < tables.size; ++i)
    for (uint64_t p = tables.row_offset[i]; p < tables.row_offset[i + 1]; ++p)
      if (p != tables.row_diagonal[i])
        places.by_row[tables.row_slot[p]] = next++;
  begin_sector();
  places.end = next;
  return places;
}

LuDataflow place_factor(LuDataflow flow, const GpuPlaces& places, uint32_t value_bytes) {
  const auto slots = static_cast<uint32_t>(places.by_row.size());
  const auto sums = static_cast<uint32_t>(places.end);
  if (places.end + flow.partial_sums >= kMostOnGpu)
    throw UserError("the factorization is too large for the GPU's tables",
                    "--device=cpu factorizes it on the CPU");
  const uint32_t in_sector = std::max(kSectorBytes / value_bytes, 1u);
  const uint64_t of_word = uint64_t{kLanes} * kProducts;
  for (uint64_t word = 0; word < flow.operands.size(); word += of_word)
    for (uint32_t product = 0; product < kProducts; ++product) {
      uint32_t* const operands = flow.operands.data() + word + product;
      const bool rows = sectors(operands, places.by_row, in_sector) <=
                        sectors(operands, places.by_column, in_sector);
      const std::vector<uint32_t>& place = rows ? places.by_row : places.by_column;
      for (uint32_t lane = 0; lane < kLanes; ++lane)
        if (uint32_t& slot = operands[uint64_t{lane} * kProducts]; slot < slots)
          slot = place[slot];
    }
  for (uint64_t at = 0; at < flow.task.size(); at += flow.task_words) {
    uint32_t* const task = &flow.task[at];
    if (task[0] == kNoWord)
      continue;
    const uint32_t result = task[0];
    const bool is_sum = task[3] != 0;
    task[0] = is_sum ? sums + (result - slots) : places.by_column[result];
    task[3] = is_sum ? kNoWord : places.by_row[result];
    if (task[2] < kMostOnGpu) // a partial sum, not the complement of a slot
      task[2] = sums + (task[2] - slots);
  }
  for (uint32_t& gate : flow.gate)
    if (gate != kNoWord)
      gate = places.by_column[gate];
  return flow;
}

LuDataflow place_solve(LuDataflow flow, const GpuPlaces& places) {
  const uint64_t of_word = uint64_t{kLanes} * kProducts;
  for (uint64_t at = 0; at < flow.operands.size(); ++at)
    if (uint32_t& slot = flow.operands[at];
        at / of_word % flow.operand_words == 0 && slot < places.by_row.size())
      slot = places.by_row[slot];
  for (uint64_t at = 0; at < flow.task.size(); at += flow.task_words)
    if (flow.task[at] != kNoWord)
      flow.task[at + 2] = places.by_row[flow.task[at + 2]];
  return flow;
}

} // namespace sparsertc::lu
