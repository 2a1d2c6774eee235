#include "tools/program_data.h"

#include "compiler/input/bytes.h"
#include "compiler/input/npy.h"
#include "compiler/input/read.h"
#include "ir/error.h"
#include "ir/literal.h"
#include "tools/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace sparsertc {
namespace {

std::string name_of(const ir::Function& function, uint32_t parameter) {
  const auto found = function.register_name.find(parameter);
  return found != function.register_name.end() ? found->second : std::to_string(parameter);
}

std::pair<uint32_t, std::string> split(const ir::Function& function, const char* option,
                                       const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == word.size())
    throw UsageError(fmt::format("{}={}: expected NAME=...", option, word));
  std::string name = word.substr(0, equals);
  if (name.front() == '%')
    name.erase(0, 1);
  std::vector<std::string> names;
  for (uint32_t i = 0; i < function.parameter_count; ++i)
    names.push_back(name_of(function, i));
  if (names.empty())
    throw UsageError(fmt::format("{}={}: @{} has no parameters", option, word, function.name));
  return {static_cast<uint32_t>(
              choose_word(fmt::format("{} of @{}", option, function.name), name, names)),
          word.substr(equals + 1)};
}

StoredType stored_type(ir::Scalar type) {
  switch (type) {
  case ir::Scalar::i32:
    return StoredType::i32;
  case ir::Scalar::i64:
    return StoredType::i64;
  case ir::Scalar::f16:
    return StoredType::f16;
  case ir::Scalar::f32:
    return StoredType::f32;
  case ir::Scalar::f64:
    return StoredType::f64;
  default:
    return StoredType::none;
  }
}

ProgramArray read_array(const ir::Function& function, uint32_t parameter,
                        const std::string& source) {
  const ir::Scalar type = function.register_type[parameter].element();
  ProgramArray array;
  array.parameter = parameter;
  if (const std::string zeros = "zeros:"; source.starts_with(zeros)) {
    constexpr uint64_t kMostElements = uint64_t{1} << 36;
    const uint64_t count = parse_number("--buffer=" + name_of(function, parameter) + "=zeros",
                                        source.substr(zeros.size()));
    if (count > kMostElements)
      throw UsageError(fmt::format("--buffer: {} elements are more than {}", count, kMostElements));
    array.bytes.resize(count * ir::size_in_bytes(type));
    array.shape = {count};
    return array;
  }
  const std::vector<uint8_t> file = read_bytes(source);
  const DenseArray dense = parse_npy(file, source);
  if (dense.type != stored_type(type) || dense.boolean || dense.big_endian)
    throw UserError(fmt::format("{}: its elements are {}{}, but %{} of @{} is an array of {}",
                                source, dense.big_endian ? "big-endian " : "",
                                to_string(dense.type), name_of(function, parameter), function.name,
                                ir::name_of(type)),
                    dense.big_endian && dense.type == stored_type(type)
                        ? "store it in little-endian order (numpy.ascontiguousarray(a, "
                          "a.dtype.newbyteorder('<')))"
                        : fmt::format("store it as {}", ir::name_of(type)));
  if (dense.fortran_order && dense.shape.size() > 1)
    throw UserError(fmt::format("{}: its elements are in column-major order", source),
                    "store it in C order (numpy.ascontiguousarray)");
  array.bytes.assign(dense.bytes.begin(), dense.bytes.end());
  array.shape = dense.shape;
  return array;
}

} // namespace

ProgramData read_program_data(const ir::Function& function, const std::vector<std::string>& buffers,
                              const std::vector<std::string>& values) {
  ProgramData data;
  data.arguments.resize(function.parameter_count);
  std::vector<bool> given(function.parameter_count);
  const auto take = [&](uint32_t parameter, const char* option) {
    if (given[parameter])
      throw UsageError(fmt::format("{}: %{} is given twice", option, name_of(function, parameter)));
    given[parameter] = true;
  };
  for (const std::string& word : buffers) {
    const auto [parameter, source] = split(function, "--buffer", word);
    if (!function.register_type[parameter].is_pointer())
      throw UsageError(
          fmt::format("--buffer={}: %{} is a number", word, name_of(function, parameter)),
          "give it by --value");
    take(parameter, "--buffer");
    data.arrays.push_back(read_array(function, parameter, source));
  }
  for (const std::string& word : values) {
    const auto [parameter, number] = split(function, "--value", word);
    const ir::Type type = function.register_type[parameter];
    if (type.is_pointer())
      throw UsageError(
          fmt::format("--value={}: %{} is an array", word, name_of(function, parameter)),
          "give it by --buffer");
    const ir::Literal literal = ir::parse_literal(number, type.element());
    if (!literal.error.empty())
      throw UsageError(fmt::format("--value={}: expected {}", word, literal.error));
    take(parameter, "--value");
    data.arguments[parameter] = static_cast<program::Bits>(literal.bits);
  }
  for (uint32_t i = 0; i < function.parameter_count; ++i)
    if (!given[i])
      throw UsageError(fmt::format("%{} of @{} is not given", name_of(function, i), function.name),
                       function.register_type[i].is_pointer()
                           ? fmt::format("--buffer={0}=FILE.npy or --buffer={0}=zeros:ELEMENTS",
                                         name_of(function, i))
                           : fmt::format("--value={}=NUMBER", name_of(function, i)));
  return data;
}

std::pair<uint32_t, std::string> program_output(const ir::Function& function,
                                                const std::string& word) {
  auto [parameter, path] = split(function, "--output", word);
  if (!function.register_type[parameter].is_pointer())
    throw UsageError(
        fmt::format("--output={}: %{} is a number", word, name_of(function, parameter)));
  if (stored_type(function.register_type[parameter].element()) == StoredType::none)
    throw UsageError(fmt::format("--output={}: .npy has no elements of type {}", word,
                                 ir::name_of(function.register_type[parameter].element())));
  return {parameter, path};
}

void write_program_array(const ir::Function& function, const ProgramArray& array,
                         const std::string& path) {
  write_npy_elements(path, array.shape,
                     stored_type(function.register_type[array.parameter].element()), array.bytes);
}

} // namespace sparsertc
