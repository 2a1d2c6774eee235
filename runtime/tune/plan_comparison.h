// Whether one plan computes what another one does, found out on the GPU without knowing the
// weights.
//
// Unit vectors: where a column of B is s e_k (s = 1, with an activation also -1), and bias and
// residual are 0, element (i, j) of C is activation(s a_ik) and every order of summation gives the
// same bits, as all other products are 0. Each weight is seen at its place, and the sums of
// magnitudes of the rows are found:
//
//   none, relu:   |a| = max(activation(a), activation(-a)) (none: one sign suffices)
//   gelu, silu:   activation(|a|) >= |a| / 2, so |a| <= 2 max(activation(a), activation(-a))
//
// Of a convolution an image stands for e_k: in one channel ones as far apart as a window is high
// and wide, so that an output pixel sees one of them; moved through the window's places they meet
// each tap of each pixel, and i is then an output channel and pixel.
//
// Products of f32 on tensor cores have factors that are cut, rounded or split: there such an
// element may differ by what that loses, 2^-8.9 of it at most with tf32 and 2^-18.9 in three parts.
//
// Random operands: B, bias and residual are multiples of 1/128 in [-1, 1), exact in every type, and
// an element may differ by two error bounds. With S_i the row's sum of magnitudes plus 2, u the
// unit roundoff of the accumulating type, t the row's entries plus 32 (parts of K) plus 4, and g(t)
// = t u / (1 - t u)  (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., lemma 3.1),
// the bound is that of tools/spmm_check.h:
//
//   E = g(t) S + t eta;  half terms: + g_h(h) S + t eta_h
//   activation: E = 1.13 E + 8 u S + 2 eta;  f16 and bf16: E = E + u_o (|c| + E) + eta_o
//
// Rows with a NaN or an infinite weight, and those whose sums may overflow, are compared with unit
// vectors alone.
#pragma once

#include "runtime/driver/cuda_objects.h"
#include "runtime/plan/plan.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sparsertc::tune {

/// Operands for a layer in device memory, and the results of one plan.
class PlanComparison {
public:
  /// Runs `plan` with `columns` columns of B and keeps its results. `plan` and `stream` must
  /// outlive it; the plan's context must be current. Throws RuntimeError where the driver refuses.
  PlanComparison(const Plan& plan, const cuda::Stream& stream, uint32_t columns, uint64_t seed);
  ~PlanComparison();

  /// What is wrong with the results of `other`, or nothing. `other` has the shape, type, layout and
  /// epilogue of `plan`.
  std::string compare(const Plan& other) const;

  /// Enqueues one execution with the random operands, for measuring.
  void enqueue(const Plan& plan) const;

private:
  class Operands;
  std::unique_ptr<Operands> operands_;
};

} // namespace sparsertc::tune
