#include "ir/type.h"

#include <iterator>

namespace sparsertc::ir {
namespace {

constexpr std::string_view kScalarNames[] = {"none",  "pred", "i32",    "i64", "f16",
                                             "f16x2", "bf16", "bf16x2", "f32", "f64"};
constexpr std::string_view kSpaceNames[] = {"none",     "host", "device", "shared",
                                            "constant", "any",  "cluster"};

} // namespace

std::string_view name_of(Scalar scalar) {
  return kScalarNames[static_cast<unsigned>(scalar)];
}

std::string_view name_of(Space space) {
  return kSpaceNames[static_cast<unsigned>(space)];
}

std::string to_string(Type type) {
  std::string text;
  if (type.is_pointer()) {
    text += name_of(type.space());
    text += '.';
  }
  text += name_of(type.element());
  return text;
}

std::optional<Scalar> scalar_from_name(std::string_view name) {
  for (unsigned i = 1; i < std::size(kScalarNames); ++i)
    if (kScalarNames[i] == name)
      return static_cast<Scalar>(i);
  return std::nullopt;
}

std::optional<Space> space_from_name(std::string_view name) {
  for (unsigned i = 1; i < std::size(kSpaceNames); ++i)
    if (kSpaceNames[i] == name)
      return static_cast<Space>(i);
  return std::nullopt;
}

} // namespace sparsertc::ir
