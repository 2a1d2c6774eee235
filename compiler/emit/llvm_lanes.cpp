#include "compiler/emit/llvm_lanes.h"

#include "ir/error.h"

#include <algorithm>

namespace sparsertc {

using ir::Opcode;
using ir::Scalar;

LaneShape join(LaneShape a, LaneShape b) {
  if (a.kind == LaneShape::none)
    return b;
  if (b.kind == LaneShape::none)
    return a;
  if (a.kind != b.kind || a.stride != b.stride)
    return LaneShape::make_varying();
  a.no_wrap = a.no_wrap && b.no_wrap;
  return a;
}

uint32_t lanes_of_kernel(const ir::Function& kernel) {
  constexpr uint32_t kWidest = 64; // four vectors of f32 with AVX-512
  constexpr uint32_t kUsual = 16;
  const uint32_t threads = kernel.block[0];
  if (threads <= kWidest)
    return threads;
  uint32_t lanes = kUsual;
  while (threads % lanes != 0)
    --lanes;
  return lanes;
}

std::vector<bool> functions_using_special(const ir::Module& module) {
  std::vector<bool> uses(module.functions.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t f = 0; f < module.functions.size(); ++f) {
      if (uses[f])
        continue;
      for (const ir::Op& op : module.functions[f].ops) {
        bool found = op.code == Opcode::special;
        for (uint32_t callee : ir::callees(module.functions[f], op))
          found = found || uses[callee];
        if (found) {
          uses[f] = true;
          changed = true;
          break;
        }
      }
    }
  }
  return uses;
}

namespace {

/// Operations after which a block can no longer start over.
bool commits(Opcode code) {
  const ir::Effect effect = ir::info(code).effect;
  return effect == ir::Effect::write || effect == ir::Effect::sync || code == Opcode::call ||
         code == Opcode::switch_call;
}

/// Index of the first operation that may run after a write.
uint32_t first_committed(const ir::Function& function) {
  uint32_t outermost_loop = 0;
  std::vector<bool> open; // true: a loop
  unsigned loops = 0;
  for (uint32_t at = 0; at < function.ops.size(); ++at) {
    const Opcode code = function.ops[at].code;
    if (code == Opcode::for_loop || code == Opcode::loop) {
      if (loops++ == 0)
        outermost_loop = at;
      open.push_back(true);
    } else if (code == Opcode::if_begin) {
      open.push_back(false);
    } else if (code == Opcode::end || code == Opcode::while_end) {
      loops -= open.back() ? 1 : 0;
      open.pop_back();
    } else if (commits(code)) {
      return loops != 0 ? outermost_loop : at;
    }
  }
  return static_cast<uint32_t>(function.ops.size());
}

} // namespace

LaneAnalysis::LaneAnalysis(const ir::Module& module, uint32_t lanes)
    : module_(module), lanes_(lanes), reached_(module.functions.size(), false),
      shapes_(module.functions.size()), only_definition_(module.functions.size()),
      speculation_end_(module.functions.size(), 0) {
  std::vector<uint32_t> work;
  auto reach = [&](uint32_t f) {
    if (!reached_[f]) {
      reached_[f] = true;
      work.push_back(f);
    }
  };
  for (uint32_t f = 0; f < module.functions.size(); ++f)
    if (module.functions[f].is_kernel() &&
        (lanes_ == 1 || lanes_of_kernel(module.functions[f]) == lanes_))
      reach(f);
  while (!work.empty()) {
    const ir::Function& function = module.functions[work.back()];
    work.pop_back();
    for (const ir::Op& op : function.ops)
      for (uint32_t callee : ir::callees(function, op))
        reach(callee);
  }

  for (uint32_t f = 0; f < module.functions.size(); ++f) {
    if (!reached_[f])
      continue;
    const ir::Function& function = module.functions[f];
    shapes_[f].resize(function.register_type.size());
    if (lanes_ == 1) {
      std::fill(shapes_[f].begin(), shapes_[f].end(), LaneShape::make_uniform());
      continue;
    }
    only_definition_[f].resize(function.register_type.size());
    std::vector<bool> seen(function.register_type.size(), false);
    for (uint32_t at = 0; at < function.ops.size(); ++at) {
      const ir::Op& op = function.ops[at];
      if (!op.result.valid() || op.result.id >= seen.size())
        continue;
      only_definition_[f][op.result.id] = seen[op.result.id] ? 0 : at + 1;
      seen[op.result.id] = true;
    }
    if (function.kind == ir::FunctionKind::kernel) {
      speculation_end_[f] = first_committed(function);
      for (uint32_t p = 0; p < function.parameter_count; ++p)
        shapes_[f][p] = LaneShape::make_uniform();
    }
  }
  if (lanes_ == 1)
    return;
  // Shapes only widen, so this ends; two or three rounds are usual.
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t f = 0; f < module.functions.size(); ++f)
      if (reached_[f])
        changed = pass(f) || changed;
  }
}

bool LaneAnalysis::assign(uint32_t function, uint32_t reg, LaneShape shape) {
  LaneShape& old = shapes_[function][reg];
  const LaneShape joined = join(old, shape);
  if (joined == old)
    return false;
  old = joined;
  return true;
}

bool LaneAnalysis::pass(uint32_t f) {
  const ir::Function& function = module_.functions[f];
  bool changed = false;
  for (uint32_t at = 0; at < function.ops.size(); ++at) {
    const ir::Op& op = function.ops[at];
    if (op.code == Opcode::call || op.code == Opcode::switch_call) {
      uint32_t first = op.operand[1];
      uint32_t count = op.operand[2];
      if (op.code == Opcode::switch_call) {
        first += 1 + function.pool[first];
        count = function.pool[first++];
      }
      for (uint32_t callee : ir::callees(function, op))
        for (uint32_t i = 0; i < count; ++i)
          changed = assign(callee, i, shapes_[f][function.pool[first + i]]) || changed;
      continue;
    }
    if (!op.result.valid())
      continue;
    const LaneShape shape = of_op(f, at);
    const bool tuple = ir::info(op.code).form == ir::Form::load;
    for (uint32_t i = 0; i < (tuple ? op.width : 1u); ++i)
      changed = assign(f, op.result.id + i, shape) || changed;
  }
  return changed;
}

LaneShape LaneAnalysis::operand(uint32_t f, const ir::Op& op, unsigned slot) const {
  if (op.operand[slot] == ir::kImmediate || op.operand[slot] == ir::kNoOperand)
    return LaneShape::make_uniform();
  return shapes_[f][op.operand[slot]];
}

/// The value of an operand that is an immediate or a register assigned once, by a constant.
bool LaneAnalysis::constant_of(const ir::Function& function, const ir::Op& op, unsigned slot,
                               uint32_t f, int64_t& value) const {
  const uint32_t reg = op.operand[slot];
  if (reg == ir::kImmediate) {
    value = op.immediate;
    return true;
  }
  if (reg < function.parameter_count || only_definition_[f][reg] == 0)
    return false;
  const ir::Op& definition = function.ops[only_definition_[f][reg] - 1];
  if (definition.code != Opcode::constant)
    return false;
  value = definition.immediate;
  return true;
}

LaneShape LaneAnalysis::of_op(uint32_t f, uint32_t at) const {
  const ir::Function& function = module_.functions[f];
  const ir::Op& op = function.ops[at];
  if (lanes_ == 1)
    return LaneShape::make_uniform();

  // What needs no look at the operands.
  switch (op.code) {
  case Opcode::constant:
  case Opcode::address:
    return LaneShape::make_uniform();
  case Opcode::special:
    switch (static_cast<ir::Special>(op.detail)) {
    case ir::Special::thread_x:
      return LaneShape::make_affine(1, true);
    case ir::Special::lane:
      return 32 % lanes_ == 0 ? LaneShape::make_affine(1, true) : LaneShape::make_varying();
    default:
      return LaneShape::make_uniform();
    }
  case Opcode::for_loop:
    return LaneShape::make_uniform();
  case Opcode::load:
    return operand(f, op, 0).kind <= LaneShape::uniform ? operand(f, op, 0)
                                                        : LaneShape::make_varying();
  default:
    break;
  }
  if (ir::info(op.code).form == ir::Form::load || ir::info(op.code).form == ir::Form::atomic)
    return LaneShape::make_varying();

  const unsigned count = static_cast<unsigned>(ir::info(op.code).operands.size());
  LaneShape in[3];
  bool all_uniform = true;
  for (unsigned i = 0; i < count && i < 3; ++i) {
    in[i] = operand(f, op, i);
    if (in[i].kind == LaneShape::none)
      return {}; // not known yet in this round
    all_uniform = all_uniform && in[i].is_uniform();
  }
  if (all_uniform)
    return LaneShape::make_uniform();
  const LaneShape a = in[0];
  const LaneShape b = in[1];
  const bool known = !a.is_varying() && !b.is_varying();
  int64_t constant = 0;
  switch (op.code) {
  case Opcode::move:
    return a;
  case Opcode::add:
    if (op.type.is_integer() && known)
      return LaneShape::make_affine(a.stride + b.stride, false);
    break;
  case Opcode::sub:
    if (op.type.is_integer() && known)
      return LaneShape::make_affine(a.stride - b.stride, false);
    break;
  case Opcode::mul:
    if (!op.type.is_integer())
      break;
    if (a.is_affine() && constant_of(function, op, 1, f, constant) && constant <= INT32_MAX &&
        constant >= INT32_MIN && std::abs(a.stride) <= INT32_MAX)
      return LaneShape::make_affine(a.stride * constant, false);
    if (b.is_affine() && constant_of(function, op, 0, f, constant) && constant <= INT32_MAX &&
        constant >= INT32_MIN && std::abs(b.stride) <= INT32_MAX)
      return LaneShape::make_affine(b.stride * constant, false);
    break;
  case Opcode::shl:
    if (a.is_affine() && constant_of(function, op, 1, f, constant) && constant >= 0 &&
        constant < 31 && std::abs(a.stride) <= INT32_MAX)
      return LaneShape::make_affine(a.stride << constant, false);
    break;
  case Opcode::convert:
    if (a.is_affine() && op.type == ir::Type(Scalar::i64) &&
        static_cast<ir::Conversion>(op.detail) == ir::Conversion::sign &&
        (a.no_wrap || may_speculate(f, at)))
      return LaneShape::make_affine(a.stride, true);
    break;
  case Opcode::min:
  case Opcode::max:
    if (may_speculate(f, at) && a.is_affine() != b.is_affine() && known)
      return LaneShape::make_affine(a.is_affine() ? a.stride : b.stride, true);
    break;
  case Opcode::compare:
    if (may_speculate(f, at) && a.is_affine() != b.is_affine() && known && op.type.is_integer() &&
        static_cast<ir::Comparison>(op.detail) >= ir::Comparison::lt)
      return LaneShape::make_uniform();
    break;
  case Opcode::select:
    if (a.is_uniform() && (op.type.is_integer() || op.type.is_pointer()))
      return join(b, in[2]);
    break;
  case Opcode::offset:
    if (known)
      return LaneShape::make_affine(a.stride + b.stride, false);
    break;
  case Opcode::index:
    if (!known)
      break;
    if (b.is_uniform() && in[2].is_uniform())
      return a;
    if (b.is_affine() && constant_of(function, op, 2, f, constant) &&
        std::abs(b.stride) <= INT32_MAX && (b.no_wrap || may_speculate(f, at)))
      return LaneShape::make_affine(a.stride + b.stride * constant, false);
    break;
  default:
    break;
  }
  return LaneShape::make_varying();
}

} // namespace sparsertc
