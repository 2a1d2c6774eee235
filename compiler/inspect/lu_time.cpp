#include "compiler/inspect/lu_time.h"

#include "compiler/inspect/lu_levels.h"
#include "compiler/inspect/lu_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace sparsertc {
namespace {

// Microseconds, and products a microsecond, of real numbers in double precision.
/// Dataflow: a hop of the longest chain, and what all warps gather.
constexpr double kHopUs = 0.55, kGatheredOfUs = 75e3;
/// Columns by levels: a level, its products up to a number that keeps all warps busy, and others.
constexpr double kLevelUs = 6, kFewOfUs = 18e3, kManyOfUs = 50e3, kFewProducts = 500e3;
/// The dense tail: as a whole, a block of kTailBlock columns beside its products, and these.
constexpr double kTailUs = 20, kTailBlockUs = 58, kTailProductsOfUs = 4.5e6;
constexpr uint32_t kTailBlock = 64;
/// How many times that complex numbers take: of gathered products, of levels' products, of a block,
/// of the tail's products.
constexpr double kComplexGathered = 2.25, kComplexProducts = 1.35;
constexpr double kComplexBlock = 1.3, kComplexTailProducts = 4;

/// Of a level from which so many products come.
double level_us(double products) {
  if (products == 0)
    return 0;
  return kLevelUs + std::min(products, kFewProducts) / kFewOfUs +
         std::max(products - kFewProducts, 0.0) / kManyOfUs;
}

} // namespace

double dataflow_us(const LuTables& tables, bool complex) {
  return kHopUs * static_cast<double>(tables.factor_levels.count()) +
         static_cast<double>(multiply_adds(tables)) * (complex ? kComplexGathered : 1) /
             kGatheredOfUs;
}

std::vector<uint32_t> right_looking_levels(const LuTables& tables) {
  const LuLevels levels = factor_levels(tables, LevelRule::right_looking);
  std::vector<uint32_t> level_of(tables.size);
  for (uint32_t level = 0; level < levels.count(); ++level)
    for (uint64_t m = levels.offset[level]; m < levels.offset[level + 1]; ++m)
      level_of[levels.member[m]] = level;
  return level_of;
}

LuTailChoice choose_tail(const LuTables& tables, std::span<const uint32_t> level_of,
                         const LuRightLookingOptions& options) {
  const uint32_t n = tables.size;
  const auto fits = [&](uint32_t columns) {
    return dense_tail_numbers(columns) * options.number_bytes <= options.free_bytes;
  };
  std::optional<uint32_t> wanted = options.tail_columns;
  if (wanted) {
    *wanted = std::min(*wanted, n);
    while (*wanted > 0 && !fits(*wanted))
      *wanted -= std::min(*wanted, kTailBlock);
  }
  const double weight = options.complex ? kComplexProducts : 1;
  const auto tail_us = [&](double columns) {
    if (columns == 0)
      return 0.0;
    const double blocks = std::ceil(columns / kTailBlock),
                 products = columns * columns * columns / 3;
    return kTailUs + kTailBlockUs * (options.complex ? kComplexBlock : 1) * blocks +
           products * (options.complex ? kComplexTailProducts : 1) / kTailProductsOfUs;
  };
  LuTailChoice best{0, std::numeric_limits<double>::infinity()};
  std::vector<double> products(n, 0); // by level, of the columns before the tail
  double levels_us = 0;
  for (uint32_t first = 0; first <= n; ++first) {
    const uint32_t columns = n - first;
    const double us = levels_us + tail_us(columns);
    if ((wanted ? columns == *wanted : columns == 0 || fits(columns)) && us < best.us)
      best = {columns, us};
    if (first == n)
      break;
    const uint64_t below = tables.column_offset[first + 1] - tables.diagonal[first] - 1;
    const uint64_t beside = tables.row_offset[first + 1] - tables.row_diagonal[first] - 1;
    double& of_level = products[level_of[first]];
    levels_us -= level_us(of_level);
    of_level += weight * static_cast<double>(below * beside);
    levels_us += level_us(of_level);
  }
  return best;
}

} // namespace sparsertc
