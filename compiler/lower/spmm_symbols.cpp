#include "compiler/lower/spmm_symbols.h"

#include "compiler/input/convert.h"

namespace sparsertc {

void put_value(std::vector<uint8_t>& bytes, DataType type, double value) {
  switch (type) {
  case DataType::f16:
    return put_bytes(bytes, to_f16(value));
  case DataType::bf16:
    return put_bytes(bytes, to_bf16(value));
  case DataType::f32:
    return put_bytes(bytes, to_f32(value));
  case DataType::f64:
    return put_bytes(bytes, value);
  }
}

uint32_t add_device_symbol(ir::Module& module, std::string name, ir::Scalar element,
                           std::vector<uint8_t> bytes, uint32_t alignment) {
  if (bytes.empty())
    bytes.resize(ir::size_in_bytes(element));
  ir::Symbol symbol;
  symbol.name = std::move(name);
  symbol.type = ir::Type::pointer(ir::Space::device, element);
  symbol.count = bytes.size() / ir::size_in_bytes(element);
  symbol.alignment = alignment;
  symbol.bytes = std::move(bytes);
  module.symbols.push_back(std::move(symbol));
  return static_cast<uint32_t>(module.symbols.size() - 1);
}

} // namespace sparsertc
