// place-weights: the immediate factors of f32 and f64 multiply-adds become elements of the constant
// bank, which an instruction can name as an operand, until its 64 KB are full; the rest stay
// immediates (Wang, SparseRT, PACT 2020, section on code generation).
#include "compiler/transform/pass.h"

#include <algorithm>
#include <cstring>

namespace sparsertc {
namespace {

using ir::Function;
using ir::Module;
using ir::Op;
using ir::Opcode;
using ir::Reg;
using ir::Scalar;
using ir::Type;

constexpr uint64_t kConstantBankBytes = 64 * 1024;

bool has_weight(const Op& op, Scalar type) {
  return op.code == Opcode::fma && op.type == Type(type) && op.operand[1] == ir::kImmediate;
}

Reg fresh(Function& function, Type type) {
  function.register_type.push_back(type);
  return Reg{static_cast<uint32_t>(function.register_type.size() - 1)};
}

/// Replaces the weights of one function and type; returns the bytes taken from `room`.
uint64_t place(Module& module, uint32_t function_index, Scalar type, uint64_t room) {
  Function& function = module.functions[function_index];
  const uint32_t size = ir::size_in_bytes(type);
  const Type pointer_type = Type::pointer(ir::Space::constant, type);
  std::vector<uint8_t> bytes;
  std::vector<Op> ops;
  ops.reserve(function.ops.size() * 2);
  const Reg base = fresh(function, pointer_type);
  Op address;
  address.code = Opcode::address;
  address.type = pointer_type;
  address.result = base;
  address.immediate = static_cast<int64_t>(module.symbols.size());
  ops.push_back(address);

  Reg weight; // of the preceding multiply-add: a thread's columns share it
  for (const Op& op : function.ops) {
    if (!has_weight(op, type)) {
      weight = Reg{};
      ops.push_back(op);
      continue;
    }
    const bool shared =
        weight.valid() && std::memcmp(&bytes[bytes.size() - size], &op.immediate, size) == 0;
    if (!shared) {
      if (bytes.size() + size > room) {
        weight = Reg{};
        ops.push_back(op);
        continue;
      }
      weight = fresh(function, type);
      Op load;
      load.code = Opcode::load;
      load.type = pointer_type;
      load.result = weight;
      load.operand[0] = base.id;
      load.immediate = static_cast<int64_t>(bytes.size());
      load.origin = op.origin;
      ops.push_back(load);
      const auto* bits = reinterpret_cast<const uint8_t*>(&op.immediate);
      bytes.insert(bytes.end(), bits, bits + size);
    }
    Op replaced = op;
    replaced.operand[1] = weight.id;
    replaced.immediate = 0;
    ops.push_back(replaced);
  }
  if (bytes.empty()) {
    function.register_type.pop_back();
    return 0;
  }
  function.ops = std::move(ops);
  const uint64_t taken = bytes.size();
  ir::Symbol symbol;
  symbol.name = function.name + "_weights";
  symbol.type = pointer_type;
  symbol.count = taken / size;
  symbol.alignment = size;
  symbol.bytes = std::move(bytes);
  module.symbols.push_back(std::move(symbol));
  return taken;
}

void place_weights(Module& module) {
  uint64_t room = kConstantBankBytes;
  for (const ir::Symbol& symbol : module.symbols)
    if (symbol.type.space() == ir::Space::constant)
      room -= std::min<uint64_t>(room, symbol.bytes.size() + symbol.alignment);
  for (uint32_t i = 0; i < module.functions.size(); ++i)
    for (Scalar type : {Scalar::f32, Scalar::f64})
      if (module.functions[i].kind != ir::FunctionKind::host) {
        // Keep each symbol's start aligned for the other type.
        room &= ~uint64_t{7};
        room -= place(module, i, type, room);
      }
}

} // namespace

Pass place_weights_pass() {
  return {"place-weights", place_weights};
}

} // namespace sparsertc
