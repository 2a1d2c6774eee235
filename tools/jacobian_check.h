// A Jacobian against two others: one column at a time by duals in float64 on the CPU, and finite
// differences.
#pragma once

#include "compiler/pattern/pattern.h"
#include "runtime/jacobian/host_system.h"

#include <cstdint>
#include <span>
#include <string>

namespace sparsertc {

struct JacobianCheck {
  uint64_t columns = 0; ///< that were looked at
  /// The largest |J - D| over its bound, D by duals: bound = tolerance (|D(i,j)| + the largest of
  /// row i), tolerance 1e-10 for float64 and 1e-3 for float32. Entries outside the pattern count
  /// with J = 0.
  double duals = 0;
  /// The same with central differences of step 6e-6 (1 + |x_j|) and the tolerance 1e-5 (1e-3), of
  /// 1 + the largest of row i + |F_i|: for residuals without kinks near x.
  double differences = 0;
  std::string worst; ///< the entry with the largest of both, for messages

  bool passed() const { return duals <= 1 && differences <= 1; }
};

/// `reference`: the residual in float64. Where a million columns times rows are passed, 256 columns
/// drawn by `seed` are looked at.
JacobianCheck check_jacobian(const Pattern& pattern, std::span<const double> values,
                             const jacobian::HostSystem& reference, std::span<const double> x,
                             uint64_t instance, bool f32, uint64_t seed);

} // namespace sparsertc
