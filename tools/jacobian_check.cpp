#include "tools/jacobian_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace sparsertc {
namespace {

constexpr uint64_t kAllBelow = 1'000'000;
constexpr uint64_t kSample = 256;
constexpr double kStep = 6e-6; // the cube root of the unit roundoff: central differences

std::vector<uint32_t> columns_to_check(const Pattern& pattern, uint64_t seed) {
  std::vector<uint32_t> columns(pattern.columns);
  std::iota(columns.begin(), columns.end(), 0u);
  if (uint64_t{pattern.columns} * pattern.rows <= kAllBelow)
    return columns;
  std::mt19937_64 random(seed);
  for (uint64_t k = 0; k < std::min<uint64_t>(kSample, columns.size()); ++k)
    std::swap(columns[k], columns[k + random() % (columns.size() - k)]);
  columns.resize(std::min<uint64_t>(kSample, columns.size()));
  std::sort(columns.begin(), columns.end());
  return columns;
}

/// NaN and infinity agree with themselves.
double excess(double a, double b, double bound) {
  if (std::isnan(a) && std::isnan(b))
    return 0;
  if (a == b)
    return 0;
  const double ratio = std::abs(a - b) / bound;
  return std::isnan(ratio) ? HUGE_VAL : ratio;
}

} // namespace

JacobianCheck check_jacobian(const Pattern& pattern, std::span<const double> values,
                             const jacobian::HostSystem& reference, std::span<const double> x,
                             uint64_t instance, bool f32, uint64_t seed) {
  const uint32_t n = pattern.rows;
  JacobianCheck check;
  std::vector<double> largest(n, 0.0);
  for (uint32_t i = 0; i < n; ++i)
    for (uint64_t k = pattern.row_offset[i]; k < pattern.row_offset[i + 1]; ++k)
      largest[i] = std::max(largest[i], std::abs(values[k]));
  std::vector<double> f(n), above(n), below(n), y(n), direction(n, 0.0);
  std::vector<double> moved(x.begin(), x.end());
  reference.residual(x, f, instance);
  const std::vector<uint32_t> columns = columns_to_check(pattern, seed);
  check.columns = columns.size();
  const double dual_tolerance = f32 ? 1e-3 : 1e-10, difference_tolerance = f32 ? 1e-3 : 1e-5;
  double worst = 0;
  for (const uint32_t j : columns) {
    direction[j] = 1;
    reference.product(x, direction, y, instance);
    direction[j] = 0;
    const double step = kStep * (1 + std::abs(x[j]));
    moved[j] = x[j] + step;
    const double up = moved[j];
    reference.residual(moved, above, instance);
    moved[j] = x[j] - step;
    const double width = up - moved[j];
    reference.residual(moved, below, instance);
    moved[j] = x[j];
    for (uint32_t i = 0; i < n; ++i) {
      const auto row = pattern.row(i);
      const auto at = std::lower_bound(row.begin(), row.end(), j);
      const double entry =
          at != row.end() && *at == j
              ? values[pattern.row_offset[i] + static_cast<uint64_t>(at - row.begin())]
              : 0.0;
      const double by_duals = excess(entry, y[i], dual_tolerance * (std::abs(y[i]) + largest[i]));
      const double difference = (above[i] - below[i]) / width;
      const double by_differences =
          excess(entry, difference, difference_tolerance * (1 + largest[i] + std::abs(f[i])));
      check.duals = std::max(check.duals, by_duals);
      check.differences = std::max(check.differences, by_differences);
      if (std::max(by_duals, by_differences) > worst) {
        worst = std::max(by_duals, by_differences);
        check.worst = fmt::format("entry ({}, {}) is {}, by duals {}, by differences {}", i, j,
                                  entry, y[i], difference);
      }
    }
  }
  return check;
}

} // namespace sparsertc
