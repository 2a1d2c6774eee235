// SpMM and convolution in higher precision with the error that a right answer may have, and buffers
// that show what was touched. Independent of the compiler: types and rounding come from the PTX
// interpreter.
#pragma once

#include "compiler/input/matrix.h"
#include "compiler/inspect/spmm_problem.h"
#include "tests/support/ptx_interpreter_float.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc::test {

ptx::FloatFormat format_of(DataType type);
/// The value rounded to the type, to nearest even.
double rounded(double value, DataType type);
/// The matrix with its values rounded; what overflows becomes the largest finite number.
Matrix rounded(Matrix matrix, DataType type);

/// Which end of a buffer lies at a page that may not be touched.
enum class Edge : uint8_t { none, begin, end };

/// Memory between two guard zones, with an inaccessible page beyond each. Contents and guards start
/// as bytes 0xff, which is NaN in every floating-point type. The contents begin at a multiple of 64
/// bytes, or touch one of the pages: there even a read of one byte too many ends the program.
class GuardedBuffer {
public:
  explicit GuardedBuffer(size_t bytes, Edge edge = Edge::none);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;
  uint8_t* data() { return zone_ + begin_; }
  const uint8_t* data() const { return zone_ + begin_; }
  size_t bytes() const { return bytes_; }
  bool guards_intact() const;

private:
  uint8_t* zone_ = nullptr; ///< what may be touched, between the two pages
  size_t zone_bytes_ = 0;
  size_t begin_ = 0;
  size_t bytes_ = 0;
};

/// One product or convolution: everything a kernel is given, as numbers. Of a convolution, whose
/// geometry is complete, the weights are the flattened filters, `columns` is the number of output
/// pixels of all images, and B has a row for each channel and a column for each input pixel.
struct SpmmCase {
  Matrix weights; ///< values rounded to the problem's type
  SpmmProblem problem;
  uint32_t columns = 0;
  uint64_t ldb = 0, ldc = 0;    ///< at least tight
  std::vector<double> b;        ///< b_rows x b_columns, row-major and tight
  std::vector<double> bias;     ///< M, where the epilogue has one
  std::vector<double> residual; ///< M x columns, row-major and tight, where the epilogue has one
  Edge edge = Edge::none;       ///< of every buffer

  uint32_t rows() const { return weights.pattern.rows; }
  uint32_t inner() const { return weights.pattern.columns; }
  /// N, or the number of images.
  uint32_t n() const;
  uint32_t b_rows() const;
  uint32_t b_columns() const;
  size_t b_bytes() const;
  size_t c_bytes() const;
};

/// Numbers laid out as the problem says into a buffer: B with ldb, the residual with ldc, the bias
/// without gaps.
GuardedBuffer lay_out_b(const SpmmCase& test);
GuardedBuffer lay_out_bias(const SpmmCase& test);
GuardedBuffer lay_out_residual(const SpmmCase& test);
/// The M x columns bit patterns of C, row-major and tight.
std::vector<uint64_t> read_c(const SpmmCase& test, const GuardedBuffer& c);
/// True if all bytes of C that belong to no element are still 0xff.
bool gaps_intact(const SpmmCase& test, const GuardedBuffer& c);

/// Checks bit patterns of C (read_c) against float64 (f64: long double); of a convolution against
/// the sum over channels, rows and columns of the filter for each image, filter, row and column of
/// the output. For each element the bound
/// is g(t) * sum |a b| over all terms, bias and residual included, with g(t) = t u / (1 - t u), t
/// the number of terms plus `parts` plus 2 and u the unit roundoff of the accumulating type; times
/// the activation's greatest slope, plus 16 u |x| for evaluating it, plus underflow and the
/// rounding of the output. With half-precision sums of h terms, u is the half type's for h of the
/// additions. NaN and infinities must be where they are in the reference; elements whose sums may
/// overflow are left out. Returns the worst violation in words, or nothing.
/// `on_tensor_cores`: by the panels strategy, whose sums are cut (compiler/inspect/README.md).
std::string compare_with_reference(const SpmmCase& test, const std::vector<uint64_t>& c,
                                   uint32_t parts, bool on_tensor_cores = false);

/// The first element in which two results differ, any NaN equal to any other; or nothing.
std::string first_difference(const SpmmCase& test, const std::vector<uint64_t>& a,
                             const std::vector<uint64_t>& b);

} // namespace sparsertc::test
