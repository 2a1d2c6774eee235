#include "runtime/jacobian/parameters.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>

namespace sparsertc::jacobian {
namespace {

/// A kernel's arguments are at most 4 KiB; an array takes 16 bytes of them.
constexpr size_t kMostArrays = 200;

size_t count_of(const ParameterArray& array) {
  return std::visit([](const auto& values) { return values.size(); }, array.values);
}

/// Words of C++ that name nothing else.
constexpr std::string_view kKeywords[] = {"alignas",       "alignof",     "and",
                                          "and_eq",        "asm",         "auto",
                                          "bitand",        "bitor",       "bool",
                                          "break",         "case",        "catch",
                                          "char",          "char16_t",    "char32_t",
                                          "char8_t",       "class",       "compl",
                                          "concept",       "const",       "const_cast",
                                          "consteval",     "constexpr",   "constinit",
                                          "continue",      "co_await",    "co_return",
                                          "co_yield",      "decltype",    "default",
                                          "delete",        "do",          "double",
                                          "dynamic_cast",  "else",        "enum",
                                          "explicit",      "export",      "extern",
                                          "false",         "float",       "for",
                                          "friend",        "goto",        "if",
                                          "inline",        "int",         "long",
                                          "mutable",       "namespace",   "new",
                                          "noexcept",      "not",         "not_eq",
                                          "nullptr",       "operator",    "or",
                                          "or_eq",         "private",     "protected",
                                          "public",        "register",    "reinterpret_cast",
                                          "requires",      "return",      "short",
                                          "signed",        "sizeof",      "static",
                                          "static_assert", "static_cast", "struct",
                                          "switch",        "template",    "this",
                                          "thread_local",  "throw",       "true",
                                          "try",           "typedef",     "typeid",
                                          "typename",      "union",       "unsigned",
                                          "using",         "virtual",     "void",
                                          "volatile",      "wchar_t",     "while",
                                          "xor",           "xor_eq"};

bool is_identifier(const std::string& name) {
  const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0 || c == '_'; };
  return !name.empty() &&
         std::find(std::begin(kKeywords), std::end(kKeywords), name) == std::end(kKeywords) &&
         is_letter(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(),
                     [&](unsigned char c) { return is_letter(c) || std::isdigit(c) != 0; });
}

template <class To, class From>
std::vector<uint8_t> converted(const std::vector<From>& values) {
  const std::vector<To> stored(values.begin(), values.end());
  std::vector<uint8_t> bytes(stored.size() * sizeof(To));
  if (!bytes.empty())
    std::memcpy(bytes.data(), stored.data(), bytes.size());
  return bytes;
}

void check(const ParameterSet& parameters) {
  if (parameters.instances == 0)
    throw UserError("a batch of no instances");
  if (parameters.arrays.size() > kMostArrays)
    throw UserError(
        fmt::format("there are {} parameters, more than {}", parameters.arrays.size(), kMostArrays),
        "put several arrays into one");
  std::set<std::string_view> names;
  for (const ParameterArray& array : parameters.arrays) {
    if (!is_identifier(array.name) || array.name.rfind("size_", 0) == 0)
      throw UserError(
          fmt::format("the parameter \"{}\" cannot be a member of a C++ struct", array.name),
          "name it with letters, digits and _, not beginning with a digit or with size_, and not "
          "by a word of C++");
    if (!names.insert(array.name).second)
      throw UserError(fmt::format("there are two parameters called {}", array.name));
    if (array.varies && count_of(array) % parameters.instances != 0)
      throw UserError(fmt::format("the parameter {} has {} numbers, not a multiple of the {} "
                                  "instances",
                                  array.name, count_of(array), parameters.instances));
  }
}

} // namespace

uint64_t ParameterSet::length(size_t array) const {
  return count_of(arrays[array]) / (arrays[array].varies ? instances : 1);
}

bool ParameterSet::any_varies() const {
  return std::any_of(arrays.begin(), arrays.end(),
                     [](const ParameterArray& array) { return array.varies; });
}

Stored stored_as(const ParameterArray& array) {
  const auto* const integers = std::get_if<std::vector<int64_t>>(&array.values);
  if (integers == nullptr)
    return Stored::real;
  return std::all_of(integers->begin(), integers->end(),
                     [](int64_t value) {
                       return value >= std::numeric_limits<int32_t>::min() &&
                              value <= std::numeric_limits<int32_t>::max();
                     })
             ? Stored::i32
             : Stored::i64;
}

std::vector<uint8_t> stored_bytes(const ParameterArray& array, bool f32) {
  if (const auto* const reals = std::get_if<std::vector<double>>(&array.values))
    return f32 ? converted<float>(*reals) : converted<double>(*reals);
  const auto& integers = std::get<std::vector<int64_t>>(array.values);
  return stored_as(array) == Stored::i32 ? converted<int32_t>(integers)
                                         : converted<int64_t>(integers);
}

std::string parameter_types(const ParameterSet& parameters) {
  check(parameters);
  const size_t count = parameters.arrays.size();
  std::string members, makers;
  for (size_t k = 0; k < count; ++k) {
    const ParameterArray& array = parameters.arrays[k];
    const Stored stored = stored_as(array);
    members += fmt::format("  View<{}, {}, {}> {};\n  long long size_{};\n",
                           stored == Stored::real ? "Real" : "long long",
                           stored == Stored::real  ? "Real"
                           : stored == Stored::i32 ? "int"
                                                   : "long long",
                           array.varies, array.name, array.name);
    makers += fmt::format("{}{}(all.array[{}], stride, instance, {}, hook),\n"
                          "        size_{}(static_cast<long long>(all.array[{}].length))",
                          k == 0 ? " : " : ",\n        ", array.name, k, k, array.name, k);
  }
  return fmt::format("namespace sparsertc {{\n"
                     "struct ParameterArrays {{ ParameterArray array[{}]; }};\n"
                     "struct Parameters {{\n{}"
                     "  __device__ Parameters([[maybe_unused]] const ParameterArrays& all,\n"
                     "                        [[maybe_unused]] u64 stride,\n"
                     "                        [[maybe_unused]] u64 instance,\n"
                     "                        [[maybe_unused]] ReadsHook hook){} {{}}\n"
                     "}};\n"
                     "}} // namespace sparsertc\n",
                     std::max<size_t>(count, 1), members, makers);
}

} // namespace sparsertc::jacobian
