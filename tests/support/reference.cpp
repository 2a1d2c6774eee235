#include "tests/support/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace sparsertc::test {
namespace {

constexpr size_t kGuard = 256;

void put(uint8_t* to, double value, DataType type) {
  const uint64_t bits = ptx::round_to_format(value, format_of(type), ptx::Rounding::nearest);
  std::memcpy(to, &bits, element_bytes(type));
}

uint64_t place(const SpmmCase& test, uint64_t row, uint64_t column, uint64_t leading) {
  return test.problem.layout == Layout::row_major ? row * leading + column : column * leading + row;
}

size_t matrix_bytes(const SpmmCase& test, uint64_t rows, uint64_t columns, uint64_t leading) {
  const bool row_major = test.problem.layout == Layout::row_major;
  const uint64_t lines = row_major ? rows : columns, length = row_major ? columns : rows;
  // The last line ends with its last element: nothing behind it may be touched.
  return lines == 0 || length == 0
             ? 0
             : ((lines - 1) * leading + length) * element_bytes(test.problem.type);
}

GuardedBuffer lay_out(const SpmmCase& test, const std::vector<double>& values, uint64_t rows,
                      uint64_t leading) {
  GuardedBuffer buffer(matrix_bytes(test, rows, test.columns, leading));
  const size_t size = element_bytes(test.problem.type);
  for (uint64_t row = 0; row < rows; ++row)
    for (uint64_t column = 0; column < test.columns; ++column)
      put(buffer.data() + place(test, row, column, leading) * size,
          values[row * test.columns + column], test.problem.type);
  return buffer;
}

struct TypeFacts {
  double unit_roundoff;
  double half_least; ///< half the least subnormal: the error of an underflow
  double largest;
};
TypeFacts facts_of(ptx::FloatFormat format) {
  return {std::ldexp(1.0, -format.precision),
          std::ldexp(1.0, std::max(format.minimum - format.precision, -1074)),
          std::ldexp(2.0 - std::ldexp(1.0, 1 - format.precision), format.maximum)};
}

long double activate(long double x, Activation activation) {
  if (activation != Activation::none && std::isinf(x) && x < 0)
    return -0.0L; // the limit
  switch (activation) {
  case Activation::none:
    return x;
  case Activation::relu:
    return x < 0 ? 0 : x;
  case Activation::gelu:
    return 0.5L * x * erfcl(-x / sqrtl(2));
  case Activation::silu:
    return x / (1 + expl(-x));
  }
  return x;
}

/// The greatest slope of the activation.
double slope(Activation activation) {
  return activation == Activation::gelu ? 1.13 : activation == Activation::silu ? 1.1 : 1.0;
}

} // namespace

ptx::FloatFormat format_of(DataType type) {
  switch (type) {
  case DataType::f16:
    return ptx::kF16;
  case DataType::bf16:
    return ptx::kBf16;
  case DataType::f32:
    return ptx::kF32;
  case DataType::f64:
    return ptx::kF64;
  }
  return ptx::kF64;
}

double rounded(double value, DataType type) {
  return ptx::decode(ptx::round_to_format(value, format_of(type), ptx::Rounding::nearest),
                     format_of(type));
}

Matrix rounded(Matrix matrix, DataType type) {
  const double largest = facts_of(format_of(type)).largest;
  for (double& value : matrix.values)
    value = std::clamp(rounded(value, type), -largest, largest);
  return matrix;
}

GuardedBuffer::GuardedBuffer(size_t bytes)
    : storage_(bytes + 2 * kGuard + 64, 0xff), bytes_(bytes) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(storage_.data()) + kGuard;
  begin_ = kGuard + (64 - address % 64) % 64;
}

bool GuardedBuffer::guards_intact() const {
  const auto poisoned = [](uint8_t byte) { return byte == 0xff; };
  const auto begin = storage_.begin() + static_cast<ptrdiff_t>(begin_);
  return std::all_of(storage_.begin(), begin, poisoned) &&
         std::all_of(begin + static_cast<ptrdiff_t>(bytes_), storage_.end(), poisoned);
}

size_t SpmmCase::b_bytes() const {
  return matrix_bytes(*this, inner(), columns, ldb);
}
size_t SpmmCase::c_bytes() const {
  return matrix_bytes(*this, rows(), columns, ldc);
}

GuardedBuffer lay_out_b(const SpmmCase& test) {
  return lay_out(test, test.b, test.inner(), test.ldb);
}
GuardedBuffer lay_out_residual(const SpmmCase& test) {
  return test.residual.empty() ? GuardedBuffer(0)
                               : lay_out(test, test.residual, test.rows(), test.ldc);
}
GuardedBuffer lay_out_bias(const SpmmCase& test) {
  const size_t size = element_bytes(test.problem.type);
  GuardedBuffer buffer(test.bias.size() * size);
  for (size_t i = 0; i < test.bias.size(); ++i)
    put(buffer.data() + i * size, test.bias[i], test.problem.type);
  return buffer;
}

std::vector<uint64_t> read_c(const SpmmCase& test, const GuardedBuffer& c) {
  const size_t size = element_bytes(test.problem.type);
  std::vector<uint64_t> bits;
  bits.reserve(size_t{test.rows()} * test.columns);
  for (uint64_t row = 0; row < test.rows(); ++row)
    for (uint64_t column = 0; column < test.columns; ++column) {
      uint64_t element = 0;
      std::memcpy(&element, c.data() + place(test, row, column, test.ldc) * size, size);
      bits.push_back(element);
    }
  return bits;
}

bool gaps_intact(const SpmmCase& test, const GuardedBuffer& c) {
  const bool row_major = test.problem.layout == Layout::row_major;
  const size_t size = element_bytes(test.problem.type);
  const uint64_t lines = row_major ? test.rows() : test.columns;
  const uint64_t length = row_major ? test.columns : test.rows();
  if (c.bytes() == 0)
    return true;
  for (uint64_t line = 0; line + 1 < lines; ++line)
    for (uint64_t byte = (line * test.ldc + length) * size; byte < (line + 1) * test.ldc * size;
         ++byte)
      if (c.data()[byte] != 0xff)
        return false;
  return true;
}

std::string compare_with_reference(const SpmmCase& test, const std::vector<uint64_t>& c,
                                   uint32_t parts) {
  const SpmmProblem& problem = test.problem;
  const ptx::FloatFormat format = format_of(problem.type);
  const TypeFacts output = facts_of(format);
  const TypeFacts sum_type = facts_of(problem.type == DataType::f64 ? ptx::kF64 : ptx::kF32);
  const Pattern& pattern = test.weights.pattern;
  const uint32_t h = problem.half_terms;
  std::string worst;
  double worst_ratio = 1;
  for (uint32_t row = 0; row < test.rows(); ++row) {
    const double terms = static_cast<double>(pattern.row_length(row)) + parts + 2 +
                         (problem.epilogue.bias ? 1 : 0) + (problem.epilogue.residual ? 1 : 0);
    const double product = terms * sum_type.unit_roundoff;
    const double half_product = h * output.unit_roundoff;
    const double growth = product / (1 - product) + half_product / (1 - half_product);
    // Products and sums in the half type may underflow and overflow there.
    const double underflow = terms * (h ? output.half_least : sum_type.half_least);
    const double largest = h ? output.largest : sum_type.largest;
    for (uint32_t column = 0; column < test.columns; ++column) {
      long double sum = 0;
      long double magnitude = 0;
      bool finite = true;
      const auto add = [&](long double term) {
        sum += term;
        magnitude += fabsl(term);
        finite = finite && std::isfinite(term);
      };
      for (uint64_t entry = pattern.row_offset[row]; entry < pattern.row_offset[row + 1]; ++entry)
        add(static_cast<long double>(test.weights.values[entry]) *
            test.b[size_t{pattern.column_index[entry]} * test.columns + column]);
      if (problem.epilogue.bias)
        add(test.bias[row]);
      if (problem.epilogue.residual)
        add(test.residual[size_t{row} * test.columns + column]);
      if (finite && magnitude * (1 + growth) >= largest)
        continue; // partial sums may overflow
      const long double expected = activate(sum, problem.epilogue.activation);
      const double found = ptx::decode(c[size_t{row} * test.columns + column], format);
      double ratio = 0;
      double bound = 0;
      if (!std::isfinite(expected) || !std::isfinite(found)) {
        const bool same =
            std::isnan(expected) ? std::isnan(found) : static_cast<double>(expected) == found;
        const bool rounds_away = std::isinf(found) && fabsl(expected) > output.largest * 0.999 &&
                                 std::signbit(found) == std::signbit(expected);
        ratio = same || rounds_away ? 0 : std::numeric_limits<double>::infinity();
      } else {
        bound = slope(problem.epilogue.activation) *
                (growth * static_cast<double>(magnitude) + underflow);
        if (problem.epilogue.activation == Activation::gelu ||
            problem.epilogue.activation == Activation::silu)
          bound += 16 * sum_type.unit_roundoff * static_cast<double>(fabsl(sum)) +
                   4 * sum_type.half_least;
        bound += output.unit_roundoff * (static_cast<double>(fabsl(expected)) + bound) +
                 output.half_least;
        ratio = static_cast<double>(fabsl(expected - found)) / bound;
      }
      if (!(ratio <= worst_ratio)) {
        worst_ratio = ratio;
        worst = fmt::format("element ({}, {}): found {}, expected {}, bound {}", row, column, found,
                            static_cast<double>(expected), bound);
      }
    }
  }
  return worst;
}

std::string first_difference(const SpmmCase& test, const std::vector<uint64_t>& a,
                             const std::vector<uint64_t>& b) {
  const ptx::FloatFormat format = format_of(test.problem.type);
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = ptx::decode(a[i], format), y = ptx::decode(b[i], format);
    if (a[i] != b[i] && !(std::isnan(x) && std::isnan(y)))
      return fmt::format("element ({}, {}): {:#x} ({}) and {:#x} ({})", i / test.columns,
                         i % test.columns, a[i], x, b[i], y);
  }
  return {};
}

} // namespace sparsertc::test
