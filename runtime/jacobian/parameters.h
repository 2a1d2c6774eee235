// The constants of a residual: named arrays that its code reads as p.name[k].
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace sparsertc::jacobian {

struct ParameterArray {
  std::string name;
  /// In row-major order; where the array varies, entry by entry: values[entry * instances +
  /// instance].
  std::variant<std::vector<double>, std::vector<int64_t>> values;
  /// The instances of a batch have arrays of their own.
  bool varies = false;
};

struct ParameterSet {
  std::vector<ParameterArray> arrays;
  uint64_t instances = 1;

  /// Entries of one instance's array.
  uint64_t length(size_t array) const;
  bool any_varies() const;
};

/// How an array's numbers lie in memory: as the residual's own number type, or as integers, of 32
/// bits where all fit.
enum class Stored : uint8_t { real, i32, i64 };
Stored stored_as(const ParameterArray& array);

/// The array's bytes, as stored.
std::vector<uint8_t> stored_bytes(const ParameterArray& array, bool f32);

/// C++ text that declares the structs ParameterArrays and Parameters (residual_types.cuh).
/// UserError where a name is no identifier or stands twice, an array's length is no multiple of the
/// instances, or there are more than 200 arrays.
std::string parameter_types(const ParameterSet& parameters);

} // namespace sparsertc::jacobian
