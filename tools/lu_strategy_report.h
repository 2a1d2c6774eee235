// How a GPU would factorize a pattern, level by level, and why: for `inspect`.
#pragma once

#include "compiler/inspect/lu_strategy.h"
#include "ir/lu_tables.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc {

/// Neighbouring levels that one launch works through.
struct LuLevelRange {
  uint32_t first = 0;
  uint32_t last = 0;
  uint32_t stages = 0;        ///< one behind the other in the launch
  uint64_t updates = 0;       ///< of columns by columns of these levels, as warps share them
  uint64_t dense_updates = 0; ///< by way of dense vectors
  uint64_t strips = 0;        ///< of straight-line code, of kernels made for the pattern
  uint64_t entries = 0;       ///< of L + U that these gather by tables
  uint64_t multiply_adds = 0; ///< of all
  uint64_t unrolled = 0;      ///< of those, in straight-line code
  uint32_t blocks = 0;
  uint32_t warps = 0; ///< of a block
};

struct LuStrategyReport {
  std::string refusal; ///< why no GPU takes it; the rest then says nothing
  std::string device;  ///< its name, with "as if on" where there is none
  LuStrategyChoice choice;
  uint64_t bytes = 0; ///< of tables, and of dense vectors, in device memory
  /// Of columns by levels; empty for dataflow, whose tasks wait for entries and not for levels.
  std::vector<LuLevelRange> ranges;
  uint32_t tail_columns = 0; ///< of columns by levels: that are a dense matrix at the end
};

/// For the GPU of this machine, or else as if for an H200. Of `request` the strategy, the data type
/// and, where it is not 0, the memory are taken. UserError as choose_lu_strategy.
LuStrategyReport report_strategy(const LuTables& tables, LuStrategyRequest request);

nlohmann::ordered_json to_json(const LuStrategyReport& report);
std::string to_text(const LuStrategyReport& report, uint64_t levels);

} // namespace sparsertc
