#include "compiler/inspect/spmm_problem.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <iterator>

namespace sparsertc {
namespace {

constexpr std::string_view kDataTypes[] = {"f32", "f16", "bf16", "f64"};
constexpr std::string_view kLayouts[] = {"row", "column"};
constexpr std::string_view kImageLayouts[] = {"nchw", "nhwc"};
constexpr std::string_view kPrecisions[] = {"full", "tf32"};
constexpr std::string_view kNonfinite[] = {"exact", "dense"};
constexpr std::string_view kActivations[] = {"none", "relu", "gelu", "silu"};

/// The enum value named by `word`, by its position in `words`.
template <class Enum, size_t N>
Enum from_name(std::string_view what, std::string_view word, const std::string_view (&words)[N]) {
  for (size_t i = 0; i < N; ++i)
    if (words[i] == word)
      return static_cast<Enum>(i);
  throw UsageError(fmt::format("unknown {} '{}'", what, word),
                   fmt::format("known: {}", fmt::join(words, ", ")));
}

} // namespace

ir::Scalar element_scalar(DataType type) {
  switch (type) {
  case DataType::f32:
    return ir::Scalar::f32;
  case DataType::f16:
    return ir::Scalar::f16;
  case DataType::bf16:
    return ir::Scalar::bf16;
  case DataType::f64:
    return ir::Scalar::f64;
  }
  return ir::Scalar::none;
}

ir::Scalar accumulator_scalar(DataType type) {
  return type == DataType::f64 ? ir::Scalar::f64 : ir::Scalar::f32;
}

uint32_t element_bytes(DataType type) {
  return ir::size_in_bytes(element_scalar(type));
}

std::string_view name_of(DataType type) {
  return kDataTypes[static_cast<unsigned>(type)];
}
std::string_view layout_word(const SpmmProblem& problem) {
  return (problem.convolution ? kImageLayouts : kLayouts)[static_cast<unsigned>(problem.layout)];
}
std::string_view name_of(Activation activation) {
  return kActivations[static_cast<unsigned>(activation)];
}
std::string_view name_of(Precision precision) {
  return kPrecisions[static_cast<unsigned>(precision)];
}
std::string_view name_of(Nonfinite nonfinite) {
  return kNonfinite[static_cast<unsigned>(nonfinite)];
}

DataType data_type_from_name(std::string_view name) {
  return from_name<DataType>("data type", name, kDataTypes);
}
Layout layout_from_name(std::string_view name) {
  return from_name<Layout>("layout", name, kLayouts);
}
Activation activation_from_name(std::string_view name) {
  return from_name<Activation>("activation", name, kActivations);
}
Precision precision_from_name(std::string_view name) {
  return from_name<Precision>("precision", name, kPrecisions);
}
Nonfinite nonfinite_from_name(std::string_view name) {
  return from_name<Nonfinite>("treatment of NaN and infinity", name, kNonfinite);
}

} // namespace sparsertc
