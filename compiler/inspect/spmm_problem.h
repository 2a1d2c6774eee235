// What the user asks: C = epilogue(A * B), or the same with the virtual B of a convolution, before
// any decision is taken.
#pragma once

#include "compiler/inspect/convolution.h"
#include "ir/type.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace sparsertc {

/// Element type of A, B, C, bias and residual. Sums are kept in f32 for f16 and bf16, else in the
/// type.
enum class DataType : uint8_t { f32, f16, bf16, f64 };
/// Of images row_major is NCHW (a row of B and C is a channel), column_major is NHWC.
enum class Layout : uint8_t { row_major, column_major };
/// What products of f32 may be.
enum class Precision : uint8_t {
  full, ///< exact
  tf32, ///< of operands with 10 bits of the fraction, where a strategy gains by it
};
/// Where NaN and infinity in B may go.
enum class Nonfinite : uint8_t {
  exact, ///< to the outputs whose row has an entry there
  dense, ///< also to others, as if A were dense: strategies may multiply padding
};
enum class Activation : uint8_t { none, relu, gelu, silu };

/// out = activation(sum + bias[row] + residual[row][column]), in this order, in the accumulating
/// type.
struct Epilogue {
  bool bias = false;
  bool residual = false;
  Activation activation = Activation::none;
};

/// A is M x K (sparse, known), B is K x N, C and residual are M x N, bias has M elements.
struct SpmmProblem {
  DataType type = DataType::f32;
  /// N when fixed at compile time; otherwise it is a kernel parameter. Of a convolution the number
  /// of images.
  std::optional<uint32_t> columns;
  /// Of B, C and the residual.
  Layout layout = Layout::row_major;
  /// Leading dimensions in elements; 0: tight (N for row-major, K or M for column-major). With
  /// dynamic N and row-major layout a 0 means: a kernel parameter. The residual uses ldc. Of a
  /// convolution they go from image to image (NCHW) or from pixel to pixel (NHWC) and are never
  /// parameters; larger ones read a slice of the input's channels or write one of the output's.
  uint64_t ldb = 0;
  uint64_t ldc = 0;
  Epilogue epilogue;
  /// f16 and bf16 only: products are summed in the half type over this many terms before they are
  /// added to the f32 sum; 0: every product enters the f32 sum exactly.
  uint32_t half_terms = 0;
  /// f32 only. It allows; strategies that are exact stay so.
  Precision precision = Precision::full;
  Nonfinite nonfinite = Nonfinite::exact;
  /// Where B is the virtual matrix of a convolution.
  std::optional<Convolution> convolution;
};

ir::Scalar element_scalar(DataType type);
ir::Scalar accumulator_scalar(DataType type);
uint32_t element_bytes(DataType type);
std::string_view name_of(DataType type);
/// "row", "column"; of images "nchw", "nhwc".
std::string_view layout_word(const SpmmProblem& problem);
std::string_view name_of(Activation activation);
std::string_view name_of(Precision precision);
std::string_view name_of(Nonfinite nonfinite);
/// Throw UsageError with the list of words.
DataType data_type_from_name(std::string_view name);
Layout layout_from_name(std::string_view name);
Activation activation_from_name(std::string_view name);
Precision precision_from_name(std::string_view name);
Nonfinite nonfinite_from_name(std::string_view name);

} // namespace sparsertc
