// Copies of the program that nobody reads, and buffers that nobody touches.
#include "compiler/transform/placement.h"

#include <algorithm>

namespace sparsertc {

using ir::Function;
using ir::Op;
using ir::Opcode;

namespace {

/// The operations of the function that may go; none if there are no more.
std::vector<uint8_t> dead_operations(const Function& function, MemoryEffects& effects) {
  const ProgramShape shape(function);
  const BufferUse use = find_buffer_use(function, shape, effects);
  std::vector<uint8_t> dead(function.ops.size());
  for (uint32_t b = 0; b < use.buffers.size(); ++b) {
    const Buffer& buffer = use.buffers[b];
    const BufferPoints points(function, shape, use, b);
    bool touched = false;
    for (const BufferTouch& touch : use.touches) {
      if (touch.buffer != b)
        continue;
      touched = true;
      const Op& op = function.ops[touch.op];
      if (op.code == Opcode::copy && op.operand[0] == buffer.reg &&
          (op.operand[1] == buffer.reg || !points.live(2 * touch.op + 1)))
        dead[touch.op] = 1;
    }
    if (touched)
      continue;
    for (uint32_t at = 0; at < function.ops.size(); ++at)
      if (at == buffer.alloc ||
          (function.ops[at].code == Opcode::free && function.ops[at].operand[0] == buffer.reg))
        dead[at] = 1;
  }
  return dead;
}

} // namespace

void remove_dead_copies(ir::Module& module) {
  // Of the functions as they are now; without their dead copies they do no more than that.
  MemoryEffects effects(module);
  for (Function& function : module.functions) {
    if (function.kind != ir::FunctionKind::host)
      continue;
    for (;;) {
      const std::vector<uint8_t> dead = dead_operations(function, effects);
      std::vector<Op> kept;
      for (size_t i = 0; i < function.ops.size(); ++i)
        if (dead[i] == 0)
          kept.push_back(function.ops[i]);
      if (kept.size() == function.ops.size())
        break;
      function.ops = std::move(kept);
    }
  }
}

} // namespace sparsertc
