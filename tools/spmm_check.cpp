#include "tools/spmm_check.h"

#include "compiler/input/convert.h"
#include "compiler/inspect/panel_schedule.h"
#include "compiler/lower/activation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sparsertc {
namespace {

/// Of K, whose sums a dense library adds up.
constexpr double kMostDenseParts = 32;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What the bound needs to know of a floating-point type.
struct Precision {
  double unit_roundoff;
  double eta;     ///< half the least subnormal (f64: all of it, the half is no float64)
  double largest; ///< values from here on round to infinity
};

Precision precision_of(DataType type) {
  switch (type) {
  case DataType::f16:
    return {0x1p-11, 0x1p-25, 65520.0};
  case DataType::bf16:
    return {0x1p-8, 0x1p-134, 0x1.ffp127};
  case DataType::f32:
    return {0x1p-24, 0x1p-150, 0x1.ffffffp127};
  case DataType::f64:
    return {0x1p-53, 0x1p-1074, std::numeric_limits<double>::max()};
  }
  return {};
}

double growth(double terms, double unit_roundoff) {
  const double product = terms * unit_roundoff;
  return product < 1 ? product / (1 - product) : kInfinity;
}

template <class Real>
Real activate(Real x, Activation activation) {
  if (activation != Activation::none && x == -kInfinity)
    return -Real(0); // the limit, where the formulas have infinity times zero
  switch (activation) {
  case Activation::none:
    return x;
  case Activation::relu:
    return x < 0 ? Real(0) : x; // NaN passes
  case Activation::gelu:
    return Real(0.5) * x * std::erfc(-x / std::sqrt(Real(2)));
  case Activation::silu:
    return x / (1 + std::exp(-x));
  }
  return x;
}

class Checker {
public:
  Checker(const Matrix& weights, const SpmmProblem& problem, const SpmmTile& tile,
          const SpmmOperands& operands, const std::vector<double>& result)
      : pattern_(weights.pattern), values_(weights.values), problem_(problem), tile_(tile),
        operands_(operands), result_(result), output_(precision_of(problem.type)),
        sum_(precision_of(problem.type == DataType::f64 ? DataType::f64 : DataType::f32)) {
    for (double& value : values_)
      value = round_to(value, stored_type(problem.type));
    for (uint32_t row = 0; row < pattern_.rows; ++row) {
      double largest = 0;
      for (uint64_t entry = pattern_.row_offset[row]; entry < pattern_.row_offset[row + 1]; ++entry)
        largest = std::max(largest, std::fabs(values_[entry]));
      largest_.push_back(largest);
    }
  }

  CheckResult check_row(uint32_t row) const {
    return problem_.type == DataType::f64 ? check_row_in<long double>(row)
                                          : check_row_in<double>(row);
  }

private:
  template <class Real>
  CheckResult check_row_in(uint32_t row) const {
    CheckResult worst;
    if (problem_.convolution) {
      check_pixels<Real>(row, worst);
      return worst;
    }
    uint32_t column = 0;
    // Wide blocks keep the sums in registers and cache and let the compiler use vectors.
    for (; column + 64 <= operands_.columns; column += 64)
      check_block<Real, 64>(row, column, worst);
    for (; column + 8 <= operands_.columns; column += 8)
      check_block<Real, 8>(row, column, worst);
    for (; column < operands_.columns; ++column)
      check_block<Real, 1>(row, column, worst);
    return worst;
  }

  template <class Real, unsigned Width>
  void check_block(uint32_t row, uint32_t column, CheckResult& worst) const {
    Real sum[Width] = {};
    Real magnitude[Width] = {};
    for (uint64_t entry = pattern_.row_offset[row]; entry < pattern_.row_offset[row + 1]; ++entry) {
      const Real a = values_[entry];
      const double* b =
          operands_.b.data() + uint64_t{pattern_.column_index[entry]} * operands_.columns + column;
      for (unsigned i = 0; i < Width; ++i) {
        const Real product = a * Real(b[i]);
        sum[i] += product;
        magnitude[i] += product < 0 ? -product : product;
      }
    }
    for (unsigned i = 0; i < Width; ++i)
      check_element<Real>(row, column + i, sum[i], magnitude[i], worst);
  }

  template <class Real>
  void check_pixels(uint32_t row, CheckResult& worst) const {
    for (uint32_t column = 0; column < operands_.columns; ++column) {
      Real sum = 0, magnitude = 0;
      for_each_term(row, column, [&](double weight, double b) {
        const Real product = Real(weight) * Real(b);
        sum += product;
        magnitude += product < 0 ? -product : product;
      });
      check_element<Real>(row, column, sum, magnitude, worst);
    }
  }

  /// Calls visit(weight, b) for each product of an element of C.
  template <class Visit>
  void for_each_term(uint32_t row, uint32_t column, Visit visit) const {
    const uint64_t begin = pattern_.row_offset[row], end = pattern_.row_offset[row + 1];
    if (!problem_.convolution) {
      for (uint64_t entry = begin; entry < end; ++entry)
        visit(values_[entry],
              operands_.b[uint64_t{pattern_.column_index[entry]} * operands_.columns + column]);
      return;
    }
    const Convolution& conv = *problem_.convolution;
    const uint64_t pixels = conv.out_pixels(), pixel = column % pixels;
    const uint64_t image = column / pixels * conv.in_pixels();
    const int64_t top = static_cast<int64_t>(pixel / conv.out_width()) * conv.stride_h;
    const int64_t left = static_cast<int64_t>(pixel % conv.out_width()) * conv.stride_w;
    for (uint64_t entry = begin; entry < end; ++entry) {
      const Tap tap = tap_of(conv, pattern_.column_index[entry]);
      const int64_t y = top + int64_t{tap.row} * conv.dilation_h - conv.pad_top;
      const int64_t x = left + int64_t{tap.column} * conv.dilation_w - conv.pad_left;
      if (y >= 0 && y < conv.height && x >= 0 && x < conv.width)
        visit(values_[entry],
              operands_.b[uint64_t{tap.channel} * operands_.b_columns + image +
                          static_cast<uint64_t>(y) * conv.width + static_cast<uint64_t>(x)]);
    }
  }

  template <class Real>
  void check_element(uint32_t row, uint32_t column, Real sum, Real magnitude,
                     CheckResult& worst) const {
    const uint64_t entries = pattern_.row_length(row);
    PanelError panel;
    if (on_tensor_cores())
      panel = panel_error(problem_, entries, largest_[row]);
    if (is_dense() && problem_.type == DataType::f32) // the low bits of both factors are cut off
      panel.operands = 0x1p-9 + 0x1p-20;
    double terms =
        (on_tensor_cores() ? panel.terms - 1 : static_cast<double>(entries) + 2) + tile_.parts();
    if (is_dense()) // a library may add up as many parts of K
      terms += kMostDenseParts;
    if (problem_.epilogue.bias) {
      sum += operands_.bias[row];
      magnitude += std::fabs(operands_.bias[row]);
      ++terms;
    }
    const uint64_t element = uint64_t{row} * operands_.columns + column;
    if (problem_.epilogue.residual) {
      sum += operands_.residual[element];
      magnitude += std::fabs(operands_.residual[element]);
      ++terms;
    }
    const Real expected = activate(sum, problem_.epilogue.activation);
    const double bound = error_bound(panel, terms, static_cast<double>(magnitude),
                                     static_cast<double>(sum), static_cast<double>(expected));
    const double found = result_[element];
    const double growing = 1 + growth(terms, sum_.unit_roundoff);
    const auto overflows = [&](double of) { return !(of * growing < overflow_threshold()); };
    const bool may_overflow = overflows(static_cast<double>(magnitude));

    const double error = static_cast<double>(std::fabs(Real(found) - expected));
    double ratio;
    if ((on_tensor_cores() || is_dense()) && !std::isfinite(found) && !column_is_finite(column)) {
      ratio = 0;
    } else if (std::isnan(expected) || std::isnan(found)) {
      // NaN where NaN is due. A sum of magnitudes that is infinite for finite operands, and NaN
      // from it, is overflow; infinite operands make the reference itself infinite or NaN.
      // Both at once: the finite terms alone may overflow and meet an infinite one.
      const bool both = std::isnan(expected) && std::isnan(found);
      const bool overflowed =
          may_overflow && (std::isfinite(static_cast<double>(magnitude)) ||
                           (std::isinf(expected) && overflows(finite_magnitude(row, column))));
      ratio = both || overflowed ? 0 : kInfinity;
    } else if (std::isinf(expected) || std::isinf(found)) {
      const bool same = std::isinf(expected) && found == static_cast<double>(expected);
      const bool rounds_to_infinity =
          std::isinf(found) && std::isfinite(expected) &&
          static_cast<double>(std::fabs(expected)) + bound >= output_.largest &&
          (found > 0) == (expected > 0);
      const bool overflowed = may_overflow && std::isfinite(static_cast<double>(magnitude));
      ratio = same || rounds_to_infinity || overflowed ? 0 : kInfinity;
    } else {
      ratio = error == 0 ? 0 : error / bound;
    }

    if (std::isfinite(error))
      worst.max_error = std::max(worst.max_error, error);
    if (ratio > worst.max_error_over_bound) {
      worst.max_error_over_bound = ratio;
      worst.row = row;
      worst.column = column;
      worst.expected = static_cast<double>(expected);
      worst.found = found;
      worst.bound = bound;
      worst.passed = ratio <= 1;
    }
  }

  /// The sum of magnitudes without the terms that are infinite.
  double finite_magnitude(uint32_t row, uint32_t column) const {
    double magnitude = 0;
    const auto add = [&](double term) { magnitude += std::isfinite(term) ? std::fabs(term) : 0; };
    for_each_term(row, column, [&](double weight, double b) { add(weight * b); });
    if (problem_.epilogue.bias)
      add(operands_.bias[row]);
    if (problem_.epilogue.residual)
      add(operands_.residual[uint64_t{row} * operands_.columns + column]);
    return magnitude;
  }

  /// `panel`: of the strategies on tensor cores.
  double error_bound(const PanelError& panel, double terms, double magnitude, double sum,
                     double expected) const {
    double bound = growth(terms, sum_.unit_roundoff) * magnitude + terms * sum_.eta;
    if (on_tensor_cores())
      bound = (growth(terms, panel.unit) + panel.operands) * magnitude + terms * panel.least;
    if (problem_.half_terms > 0)
      bound += growth(problem_.half_terms, output_.unit_roundoff) * magnitude + terms * output_.eta;
    if (problem_.epilogue.activation != Activation::none)
      bound *= activation_lipschitz(problem_.epilogue.activation);
    const bool evaluates = problem_.epilogue.activation == Activation::gelu ||
                           problem_.epilogue.activation == Activation::silu;
    if (evaluates)
      bound += activation_error_units(problem_.epilogue.activation) * sum_.unit_roundoff *
                   std::fabs(sum) +
               2 * sum_.eta;
    const bool rounds_output = problem_.type == DataType::f16 || problem_.type == DataType::bf16;
    if (rounds_output)
      bound += output_.unit_roundoff * (std::fabs(expected) + bound) + output_.eta;
    return bound;
  }

  /// Zeros of A are terms that lose nothing; of a chain as of a tree.
  bool is_dense() const { return tile_.strategy == Strategy::dense; }
  bool on_tensor_cores() const {
    const bool is_tf32 =
        problem_.type == DataType::f32 && problem_.precision == sparsertc::Precision::tf32;
    return tile_.strategy == Strategy::panels || tile_.strategy == Strategy::bitmap ||
           (is_dense() &&
            (is_tf32 || problem_.type == DataType::f16 || problem_.type == DataType::bf16));
  }
  /// Of B.
  bool column_is_finite(uint32_t column) const {
    for (size_t at = column; at < operands_.b.size(); at += operands_.b_columns)
      if (!std::isfinite(operands_.b[at]))
        return false;
    return true;
  }

  /// Sums of magnitudes below this cannot overflow on the way.
  double overflow_threshold() const {
    return problem_.half_terms > 0 ? std::min(output_.largest, sum_.largest) : sum_.largest;
  }

  const Pattern& pattern_;
  std::vector<double> values_;
  std::vector<double> largest_; ///< magnitude of each row
  const SpmmProblem& problem_;
  const SpmmTile& tile_;
  const SpmmOperands& operands_;
  const std::vector<double>& result_;
  Precision output_;
  Precision sum_;
};

} // namespace

CheckResult check_spmm(const Matrix& weights, const SpmmProblem& problem, const SpmmTile& tile,
                       const SpmmOperands& operands, const std::vector<double>& result,
                       TaskPool& pool) {
  const Checker checker(weights, problem, tile, operands, result);
  constexpr uint32_t kRowsPerTask = 8;
  std::vector<CheckResult> by_task((uint64_t{operands.rows} + kRowsPerTask - 1) / kRowsPerTask);
  const auto merge = [](CheckResult& into, const CheckResult& other) {
    const double max_error = std::max(into.max_error, other.max_error);
    if (other.max_error_over_bound > into.max_error_over_bound)
      into = other;
    into.max_error = max_error;
  };
  pool.run(by_task.size(), [&](uint64_t task) {
    const uint32_t first = static_cast<uint32_t>(task) * kRowsPerTask;
    const uint32_t last = std::min(operands.rows, first + kRowsPerTask);
    for (uint32_t row = first; row < last; ++row)
      merge(by_task[task], checker.check_row(row));
  });
  CheckResult all;
  for (const CheckResult& one : by_task)
    merge(all, one);
  return all;
}

} // namespace sparsertc
