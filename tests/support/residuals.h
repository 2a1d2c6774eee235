// Residuals in CUDA C++ with patterns and Jacobians that are known otherwise.
#pragma once

#include "compiler/pattern/pattern.h"
#include "runtime/jacobian/parameters.h"
#include "runtime/jacobian/source.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sparsertc::test {

struct ResidualCase {
  std::string name;
  jacobian::ResidualSource source;
  jacobian::ParameterSet parameters;
  std::vector<double> x0;
  bool by_row = true;
  Pattern pattern;
  /// The derivative at an entry, by hand.
  std::function<double(const std::vector<double>& x, uint32_t row, uint32_t column)> derivative;
};

/// The Brusselator with diffusion on a periodic grid of side x side points, two species each,
/// interleaved; by row.
ResidualCase brusselator(uint32_t side);
/// f_i = sum over j of a(i,j) x_j^2, dense; by row.
ResidualCase dense_squares(uint32_t n);
/// A branch on the sign of an unknown: max, min and fabs; by row.
ResidualCase branches(uint32_t n);
/// f_i = x_i + the sum of w_e sin(x_i - x_j) over its edges, by sum_over; a row has 1 to some 20
/// edges; by row.
ResidualCase weighted_graph(uint32_t n);
/// f_i = c_i + (x_{i+1}, or a parameter in every third row) times a sum of w_e x_i x_j over its
/// edges, by sum_over, where some x_j are parameters, too, and some terms read no unknown but x_i;
/// parameters of 64 bits, and some that are read after the sum; by row.
ResidualCase mixed_graph(uint32_t n);
/// A chain of flows sqrt(1 + (x_i - x_{i+1})^2), each added to two residuals; whole.
ResidualCase chain_of_flows(uint32_t n);

std::vector<ResidualCase> residual_cases();

} // namespace sparsertc::test
