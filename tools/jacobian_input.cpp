#include "tools/jacobian_input.h"

#include "compiler/input/bytes.h"
#include "compiler/input/npy.h"
#include "compiler/input/read.h"
#include "compiler/input/zip.h"
#include "ir/error.h"
#include "tools/json_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <span>

namespace sparsertc {
namespace {

using jacobian::ParameterArray;
using Json = nlohmann::ordered_json;

bool is_integer(StoredType type) {
  return type != StoredType::none && type < StoredType::f16;
}

/// Where element `row_major` of an array lies in its bytes.
uint64_t stored_at(const DenseArray& array, uint64_t row_major) {
  if (!array.fortran_order)
    return row_major;
  uint64_t at = 0, stride = array.elements();
  for (size_t d = array.shape.size(); d-- > 0;) {
    stride /= array.shape[d];
    at += row_major % array.shape[d] * stride;
    row_major /= array.shape[d];
  }
  return at;
}

ParameterArray to_parameter(std::string name, const DenseArray& array) {
  if (array.type == StoredType::c64 || array.type == StoredType::c128)
    throw UserError(Place::binary(array.name, array.byte_offset), "parameters are real numbers");
  ParameterArray parameter;
  parameter.name = std::move(name);
  const uint64_t count = array.elements();
  if (is_integer(array.type)) {
    std::vector<int64_t> values(count);
    for (uint64_t i = 0; i < count; ++i)
      values[i] = array.integer(stored_at(array, i));
    parameter.values = std::move(values);
  } else {
    std::vector<double> values(count);
    for (uint64_t i = 0; i < count; ++i)
      values[i] = array.element(stored_at(array, i));
    parameter.values = std::move(values);
  }
  return parameter;
}

std::vector<ParameterArray> from_npz(std::span<const uint8_t> bytes, const std::string& path) {
  std::vector<ParameterArray> arrays;
  for (const ZipMember& member : list_zip(bytes, path)) {
    const std::vector<uint8_t> content = extract_zip(bytes, member, path, kDefaultMaximumBytes);
    const std::string suffix = ".npy";
    std::string name = member.name;
    if (name.size() > suffix.size() &&
        name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0)
      name.resize(name.size() - suffix.size());
    arrays.push_back(to_parameter(name, parse_npy(content, path + ":" + member.name)));
  }
  return arrays;
}

/// The lengths of nested arrays, taken from the first of each.
std::vector<size_t> shape_of(const Json& json) {
  std::vector<size_t> shape;
  for (const Json* at = &json; at->is_array(); at = &at->front()) {
    shape.push_back(at->size());
    if (at->empty())
      break;
  }
  return shape;
}

/// Appends all numbers below `json`; false where there is something else, or arrays of another
/// shape.
bool collect(const Json& json, std::span<const size_t> shape, std::vector<double>& reals,
             std::vector<int64_t>& integers) {
  if (json.is_array())
    return !shape.empty() && json.size() == shape.front() &&
           std::all_of(json.begin(), json.end(), [&](const Json& one) {
             return collect(one, shape.subspan(1), reals, integers);
           });
  if (!json.is_number() || !shape.empty())
    return false;
  reals.push_back(json.get<double>());
  if (json.is_number_integer() &&
      (!json.is_number_unsigned() ||
       json.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}))
    integers.push_back(json.get<int64_t>());
  return true;
}

std::vector<ParameterArray> from_json(std::span<const uint8_t> bytes, const std::string& path) {
  const auto first = std::find_if(bytes.begin(), bytes.end(), [](uint8_t c) {
    return c != ' ' && c != '\t' && c != '\r' && c != '\n';
  });
  if (first == bytes.end() || *first != '{')
    throw UserError(Place{path, 0, 0, {}}, "expected a JSON object",
                    "{\"name\": [numbers], ...}, or an .npz archive");
  const Json json = parse_json_text(bytes, path);
  std::vector<ParameterArray> arrays;
  for (const auto& [name, value] : json.items()) {
    std::vector<double> reals;
    std::vector<int64_t> integers;
    if (!collect(value, shape_of(value), reals, integers))
      throw UserError(Place{path, 0, 0, {}},
                      fmt::format("the parameter {} is no array of numbers", name),
                      "[1, 2], or [[1, 2], [3, 4]] with rows of one length");
    ParameterArray array;
    array.name = name;
    if (integers.size() == reals.size())
      array.values = std::move(integers);
    else
      array.values = std::move(reals);
    arrays.push_back(std::move(array));
  }
  return arrays;
}

} // namespace

jacobian::ResidualSource read_residual(const std::string& path) {
  const std::vector<uint8_t> bytes = read_bytes(path);
  if (std::find(bytes.begin(), bytes.end(), uint8_t{0}) != bytes.end())
    throw UserError(Place{path, 0, 0, {}}, "this is no text", "expected CUDA C++");
  return {path == "-" ? kStandardInputName : path, std::string(bytes.begin(), bytes.end())};
}

jacobian::ParameterSet read_parameters(const std::string& path,
                                       const std::vector<std::string>& varying,
                                       uint64_t instances) {
  jacobian::ParameterSet set;
  set.instances = instances;
  if (!path.empty()) {
    const std::vector<uint8_t> bytes = read_bytes(path);
    set.arrays =
        format_of_content(bytes) == Format::npz ? from_npz(bytes, path) : from_json(bytes, path);
  }
  for (const std::string& name : varying) {
    const auto found =
        std::find_if(set.arrays.begin(), set.arrays.end(),
                     [&](const ParameterArray& array) { return array.name == name; });
    if (found == set.arrays.end())
      throw UserError(fmt::format("there is no parameter {} that could vary", name));
    found->varies = true;
  }
  return set;
}

std::vector<double> read_start_vector(const std::string& path) {
  return read_dense(path).values;
}

} // namespace sparsertc
