// A system of nonlinear equations F(x) = 0 with a Jacobian of fixed pattern, on the CPU: what
// Newton's method asks of it.
#pragma once

#include "ir/jacobian_tables.h"

#include <cstdint>
#include <span>

namespace sparsertc::jacobian {

/// F: R^n -> R^n, or a batch of `instances` such functions of one pattern, which differ in their
/// parameters. All functions may be called by several threads at once.
class NonlinearSystem {
public:
  virtual ~NonlinearSystem() = default;

  /// n.
  uint64_t unknowns() const { return pattern().columns; }
  virtual uint64_t instances() const { return 1; }
  /// n x n, the structural non-zeros.
  virtual const JacobianPattern& pattern() const = 0;

  /// f = F(x) of one instance; x and f have n numbers. UserError where the residual's code went
  /// over a limit or out of its arrays. NaN and infinity are passed on.
  virtual void residual(std::span<const double> x, std::span<double> f,
                        uint64_t instance = 0) const = 0;
  /// values[k] = the derivative that entry k of pattern() stands for, at x; nnz numbers. Errors as
  /// residual().
  virtual void jacobian(std::span<const double> x, std::span<double> values,
                        uint64_t instance = 0) const = 0;
};

} // namespace sparsertc::jacobian
