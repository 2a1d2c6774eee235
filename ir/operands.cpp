#include "ir/operands.h"

namespace sparsertc::ir {

FragmentShape shape_of(Fragment fragment) {
  switch (fragment) {
  case Fragment::m16n8k16_f16:
    return {Scalar::f16x2, 4, 2, false};
  case Fragment::m16n8k16_bf16:
    return {Scalar::bf16x2, 4, 2, false};
  case Fragment::m16n8k8_tf32:
    return {Scalar::f32, 4, 2, false};
  case Fragment::m16n8k32_f16:
    return {Scalar::f16x2, 4, 4, true};
  case Fragment::m16n8k32_bf16:
    return {Scalar::bf16x2, 4, 4, true};
  case Fragment::m16n8k16_tf32:
    return {Scalar::f32, 4, 4, true};
  }
  return {Scalar::none, 0, 0, false};
}

Type result_type(const Op& op) {
  switch (info(op.code).result) {
  case ResultRule::none:
    break;
  case ResultRule::same:
    return op.type;
  case ResultRule::pred:
    return Scalar::pred;
  case ResultRule::i32:
    return Scalar::i32;
  case ResultRule::i64:
    return Scalar::i64;
  case ResultRule::half:
    return half_of_pair(op.type.element());
  case ResultRule::other:
    if (op.code == Opcode::peer)
      return Type::pointer(Space::cluster, op.type.element());
    return info(op.code).form == Form::mma ? Scalar::f32 : op.type.element();
  }
  return {};
}

uint32_t result_count(const Op& op) {
  const OpInfo& row = info(op.code);
  if (row.result == ResultRule::none)
    return 0;
  if (row.form == Form::load)
    return op.width;
  return row.form == Form::mma ? kFragmentResults : 1;
}

std::span<const uint32_t> callees(const Function& function, const Op& op) {
  switch (info(op.code).form) {
  case Form::call:
  case Form::launch:
    return {op.operand, 1};
  case Form::switch_call: {
    const uint32_t* list = function.pool.data() + op.operand[1];
    return {list + 1, *list};
  }
  default:
    return {};
  }
}

std::span<const uint32_t> arguments(const Function& function, const Op& op) {
  const uint32_t* pool = function.pool.data();
  switch (info(op.code).form) {
  case Form::call:
    return {pool + op.operand[1], op.operand[2]};
  case Form::launch:
    return {pool + op.operand[1] + 4, pool[op.operand[1] + 3]};
  case Form::switch_call: {
    const uint32_t* list = pool + op.operand[1];
    const uint32_t* count = list + 1 + *list;
    return {count + 1, *count};
  }
  default:
    return {};
  }
}

} // namespace sparsertc::ir
