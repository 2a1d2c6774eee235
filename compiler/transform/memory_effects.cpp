#include "compiler/transform/memory_effects.h"

#include "compiler/transform/program_shape.h"
#include "ir/operands.h"

#include <algorithm>

namespace sparsertc {

using ir::Form;
using ir::Op;
using ir::Opcode;

namespace {

/// Registers that point into what `parameter` points to.
std::vector<uint8_t> derived_from(const ir::Function& function, uint32_t parameter) {
  std::vector<uint8_t> derived(function.register_type.size());
  derived[parameter] = 1;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Op& op : function.ops) {
      if (ir::info(op.code).form != Form::value || !op.type.is_pointer() ||
          derived[op.result.id] != 0)
        continue;
      for (uint32_t operand : op.operand)
        if (operand < derived.size() && derived[operand] != 0) {
          derived[op.result.id] = 1;
          changed = true;
        }
    }
  }
  return derived;
}

/// The longest run of elements from the first on that `for %i = 0 to N step 1` stores to, by
/// `index %parameter, %i` with the size of an element, in a function that returns at its end only.
int64_t filled_elements(const ir::Function& function, uint32_t parameter) {
  const auto count = static_cast<uint32_t>(function.ops.size());
  const ProgramShape shape(function);
  const int64_t size = ir::size_in_bytes(function.register_type[parameter].element());
  int64_t most = 0;
  for (uint32_t at = 0; at < count; ++at) {
    const Op& store = function.ops[at];
    if (store.code == Opcode::return_void && at + 1 != count)
      return 0;
    const uint32_t inside = shape.region_of_op(at);
    if (store.code != Opcode::store || store.immediate != 0 || store.width != 1 ||
        !shape.assigned_once(store.operand[0]) || inside == 0 || shape.region(inside).parent != 0)
      continue;
    const uint32_t head = shape.statement_begin(shape.region(inside).end);
    const Op& loop = function.ops[head];
    if (loop.code != Opcode::for_loop || ir::high_half(loop.immediate) != 1 ||
        !shape.region(inside).known)
      continue;
    for (uint32_t i = head + 1; i < at; ++i) {
      const Op& index = function.ops[i];
      if (index.code == Opcode::index && index.result.id == store.operand[0] &&
          index.operand[0] == parameter && index.operand[1] == loop.result.id &&
          index.operand[2] == ir::kImmediate && index.immediate == size)
        most = std::max(most, shape.region(inside).executions);
    }
  }
  return most;
}

} // namespace

const std::vector<MemoryEffect>& MemoryEffects::of(uint32_t index) {
  if (!known_[index]) {
    const ir::Function& function = module_.functions[index];
    std::vector<MemoryEffect> effects(function.parameter_count);
    for (uint32_t i = 0; i < function.parameter_count; ++i)
      if (function.register_type[i].is_pointer())
        effects[i] = of_parameter(function, i);
    known_[index] = std::move(effects);
  }
  return *known_[index];
}

MemoryEffect MemoryEffects::of_parameter(const ir::Function& function, uint32_t parameter) {
  const std::vector<uint8_t> derived = derived_from(function, parameter);
  const auto points = [&](uint32_t operand) {
    return operand < derived.size() && derived[operand] != 0;
  };
  MemoryEffect effect;
  effect.reads = effect.writes = function.external; // it may
  for (const Op& op : function.ops) {
    switch (ir::info(op.code).form) {
    case Form::load:
      effect.reads = effect.reads || points(op.operand[0]);
      break;
    case Form::store:
      effect.writes = effect.writes || points(op.operand[0]);
      break;
    case Form::atomic:
      effect.reads = effect.reads || points(op.operand[0]);
      effect.writes = effect.writes || points(op.operand[0]);
      break;
    case Form::copy:
    case Form::copy_async:
      effect.writes = effect.writes || points(op.operand[0]);
      effect.reads = effect.reads || points(op.operand[1]);
      break;
    case Form::call:
    case Form::switch_call:
    case Form::launch: {
      const std::span<const uint32_t> list = ir::arguments(function, op);
      for (size_t i = 0; i < list.size(); ++i)
        if (points(list[i]))
          for (uint32_t callee : ir::callees(function, op)) {
            const MemoryEffect inner = of(callee)[i];
            effect.reads = effect.reads || inner.reads;
            effect.writes = effect.writes || inner.writes;
            effect.frees = effect.frees || inner.frees;
          }
      break;
    }
    default:
      if (op.code == Opcode::free && points(op.operand[0]))
        effect.writes = effect.frees = true; // nothing of it is left
      break;
    }
  }
  if (function.kind == ir::FunctionKind::host && effect.writes && !function.external)
    effect.fills = filled_elements(function, parameter);
  return effect;
}

} // namespace sparsertc
