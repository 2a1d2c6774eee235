#include "compiler/transform/memory_effects.h"

#include "ir/operands.h"

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
  return effect;
}

} // namespace sparsertc
