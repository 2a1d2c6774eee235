// What the tests of host programs build and call kernels with.
#pragma once

#include "compiler/emit/host_program.h"
#include "ir/builder.h"

#include <catch2/catch.hpp>

#include <cstdint>
#include <random>
#include <string>

namespace sparsertc::test {

inline ir::Type device(ir::Scalar element) {
  return ir::Type::pointer(ir::Space::device, element);
}

inline ir::Function& add_function(ir::Module& module, const std::string& name,
                                  ir::FunctionKind kind, uint32_t lanes = 1) {
  module.functions.reserve(16);
  module.functions.emplace_back();
  ir::Function& function = module.functions.back();
  function.name = name;
  function.kind = kind;
  function.block[0] = lanes;
  return function;
}

inline KernelArgument pointer(const void* p) {
  KernelArgument argument;
  argument.pointer = const_cast<void*>(p);
  return argument;
}
inline KernelArgument integer(int64_t value) {
  KernelArgument argument;
  argument.integer = value;
  return argument;
}

/// column = min(block_x * lanes + thread_x, n - 1), and whether it was inside.
struct Column {
  ir::Reg number, inside;
};
inline Column column(ir::Builder& b, ir::Reg n, uint32_t lanes) {
  const ir::Reg first =
      b.mul(ir::Scalar::i32, b.special(ir::Special::block_x), ir::Operand::integer(lanes));
  const ir::Reg raw = b.add(ir::Scalar::i32, first, b.special(ir::Special::thread_x));
  Column made;
  made.inside = b.compare(ir::Comparison::lt, ir::Scalar::i32, raw, n);
  const ir::Reg last = b.sub(ir::Scalar::i32, n, ir::Operand::integer(1));
  made.number = b.value(ir::Opcode::min, ir::Scalar::i32, {raw, last});
  return made;
}

/// Of this process's random tests; said once.
inline uint32_t seed() {
  static const uint32_t value = [] {
    const uint32_t drawn = std::random_device{}();
    WARN("seed " << drawn);
    return drawn;
  }();
  return value;
}

} // namespace sparsertc::test
