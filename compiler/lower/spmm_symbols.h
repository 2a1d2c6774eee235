// Arrays of a module: their bytes, and how they are added.
#pragma once

#include "compiler/inspect/spmm_problem.h"
#include "ir/module.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc {

/// Appends the bytes of a number of four or eight bytes, or of an array of them.
template <class T>
void put_bytes(std::vector<uint8_t>& bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* from = reinterpret_cast<const uint8_t*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof value);
}
/// Appends a weight in the problem's type, to nearest even.
void put_value(std::vector<uint8_t>& bytes, DataType type, double value);

/// Adds an array in device memory; one without bytes gets an element. Returns its number.
uint32_t add_device_symbol(ir::Module& module, std::string name, ir::Scalar element,
                           std::vector<uint8_t> bytes, uint32_t alignment = 16);

} // namespace sparsertc
