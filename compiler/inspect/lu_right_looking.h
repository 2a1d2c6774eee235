// The stages of a right-looking factorization (ir/lu_right_looking.h): which warp subtracts which
// columns from which, by way of dense vectors or by bisection, and what is launched together.
#pragma once

#include "ir/lu_right_looking.h"
#include "ir/lu_tables.h"

#include <cstdint>
#include <optional>

namespace sparsertc {

/// How the entries of a column are found.
enum class LuWorkColumns : uint8_t {
  automatic,  ///< dense where that is less work, unless memory does not suffice (LuColumnMemory)
  dense,      ///< always dense, for as many columns at a time as memory holds
  compressed, ///< always by bisection
};

/// Which stages share a launch.
enum class LuStageFusion : uint8_t {
  automatic, ///< neighbouring small ones, which one block works through
  none,      ///< a launch for each stage
  all,       ///< one launch, with a barrier of all blocks between stages
};

/// Xia et al.'s rule: a dense vector takes n numbers for each column in flight, so
/// M = L / (n * sizeof(number)) columns at most for L bytes of free memory. Where the device could
/// work on more than that, columns stay compressed.
struct LuColumnMemory {
  uint64_t free_bytes = 0;
  uint64_t vector_bytes = 0; ///< of one column in flight
  uint64_t in_flight = 0;    ///< columns that the device can work on at once

  uint64_t fitting() const { return vector_bytes == 0 ? in_flight : free_bytes / vector_bytes; }
  bool dense() const { return fitting() >= in_flight; }
};

struct LuRightLookingOptions {
  uint32_t multiprocessors = 1;
  /// Warps that a multiprocessor is given, each with a column.
  uint32_t warps_of_multiprocessor = 16;
  uint32_t number_bytes = 8;
  bool complex = false;
  uint64_t free_bytes = 0; ///< of device memory, for dense vectors
  LuWorkColumns columns = LuWorkColumns::automatic;
  LuStageFusion fusion = LuStageFusion::automatic;
  /// A column with many short sources is given to several warps, which add to the same entries with
  /// atomic operations: the results' last bits then differ from run to run.
  bool atomics = false;
  /// Columns of the dense tail; else as many as promise the least time. Fewer where its square does
  /// not fit into free_bytes.
  std::optional<uint32_t> tail_columns;
};

LuColumnMemory lu_column_memory(uint32_t size, const LuRightLookingOptions& options);

/// UserError where the factors have 2^31 entries or more, or where dense vectors are demanded and
/// not one fits.
LuRightLooking make_right_looking(const LuTables& tables, const LuRightLookingOptions& options);

/// Numbers of the square in which a dense tail of so many columns is factorized, and beside it.
uint64_t dense_tail_numbers(uint32_t columns);

/// Device memory of the arrays, of the pattern that the kernels read, and of the dense vectors.
uint64_t right_looking_bytes(const LuTables& tables, const LuRightLooking& plan,
                             uint32_t number_bytes);

} // namespace sparsertc
