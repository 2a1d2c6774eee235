// Which way a factorization on the GPU takes, and why.
#pragma once

#include "compiler/inspect/lu_emitted.h"
#include "compiler/inspect/lu_right_looking.h"
#include "ir/lu_tables.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace sparsertc {

enum class LuStrategy : uint8_t {
  automatic,
  dataflow,      ///< entries gathered as soon as their operands are there (ir/lu_dataflow.h)
  right_looking, ///< columns by levels (ir/lu_right_looking.h); how they are found, memory says
  dense_columns, ///< the same, always through dense vectors
  compressed_columns, ///< the same, always by bisection
  emitted,            ///< by levels, kernels made for the pattern (ir/lu_emitted.h)
};
inline constexpr std::array kLuStrategyWords = {
    "auto", "dataflow", "right-looking", "dense-columns", "compressed-columns", "emitted"};
inline const char* name_of(LuStrategy strategy) {
  return kLuStrategyWords[static_cast<size_t>(strategy)];
}

/// What the choice depends on beside the pattern.
struct LuStrategyRequest {
  LuStrategy strategy = LuStrategy::automatic;
  bool complex = false;
  uint32_t number_bytes = 8;
  uint32_t multiprocessors = 1;
  uint64_t memory_bytes = 0; ///< of the device, that may be used
  uint64_t gather_bytes = 0; ///< that the dataflow's tables may take; 0: half of memory_bytes
  LuStageFusion fusion = LuStageFusion::automatic;
  bool atomics = false;
  std::optional<uint32_t> tail_columns;                    ///< LuRightLookingOptions
  uint64_t budget = LuEmittedOptions().most_multiply_adds; ///< of straight-line code
  bool nvrtc = true; ///< whether it is there to compile the kernels of columns by levels
};

struct LuStrategyChoice {
  LuStrategy strategy = LuStrategy::dataflow; ///< not automatic, nor right_looking
  std::string reason;
  double dataflow_us = 0, levels_us = 0; ///< predicted; 0 where nothing was compared
  uint64_t dataflow_bytes = 0;           ///< of the dataflow's tables
  LuColumnMemory columns;                ///< of columns by levels
  LuRightLookingOptions right_looking;
  LuEmittedOptions emitted;
};

/// Dataflow where its tables fit and columns by levels do not promise less time (lu_time.h), else
/// these. UserError where neither is possible, or not what was asked for.
LuStrategyChoice choose_lu_strategy(const LuTables& tables, const LuStrategyRequest& request);

} // namespace sparsertc
