// Checks the result of an SpMM against a recomputation in wider arithmetic, with a bound for each
// element that follows from the number of terms and the precision; nothing is guessed.
//
// With S = sum_k |a_ik b_kj| + |bias_i| + |residual_ij|, u the unit roundoff of the accumulating
// type, t = (entries of row i) + (parts of K) + 2 additions in the longest chain at most, plus one
// for each of bias and residual, and g(t) = t u / (1 - t u)  (Higham, Accuracy and Stability of
// Numerical Algorithms, 2nd ed., lemma 3.1):
//
//   sum:         E = g(t) S + t eta                  (eta: half the least subnormal, for underflow)
//   panels, bitmap: E of compiler/inspect/panel_schedule.h, with a term more for each part of K
//   after
//                the first: tensor cores cut what others round
//   half terms:  E = E + g_h(h) S + t eta_h          (h products summed in the half type, u_h)
//   activation:  E = L E + c u |x| + 2 eta           (L: Lipschitz constant, c: error of the
//                                                     evaluation itself;
//                                                     compiler/lower/activation.h)
//   output:      E = E + u_o (|y| + E) + eta_o       (rounding to f16 or bf16)
//
// The reference is summed in float64, for f64 in the 64-bit significand of long double. NaN and
// infinity must be where the reference has them; only where the sums of magnitudes reach the
// largest number of the type may a result be infinite or NaN on its own account.
// Panels and bitmaps multiply zeros: there NaN and infinity in a column of B may be anywhere in
// this column of C.
#pragma once

#include "compiler/inspect/spmm_schedule.h"
#include "runtime/host/task_pool.h"
#include "tools/spmm_operands.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

struct CheckResult {
  bool passed = true;
  /// Over all elements; infinite where a bound of 0 or a NaN is missed.
  double max_error_over_bound = 0;
  double max_error = 0;
  /// The element with the largest ratio.
  uint32_t row = 0;
  uint32_t column = 0;
  double expected = 0;
  double found = 0;
  double bound = 0;
};

/// `result` is C, M x columns, row-major. Convolutions are summed directly from the images: for
/// each channel, image, row, column, and each weight of the filter whose tap is inside. `problem`
/// has their complete geometry (SpmmSchedule::request). Rows are checked in parallel; the outcome
/// does not depend on it.
CheckResult check_spmm(const Matrix& weights, const SpmmProblem& problem, const SpmmTile& tile,
                       const SpmmOperands& operands, const std::vector<double>& result,
                       TaskPool& pool);

} // namespace sparsertc
