// Value operations, the indices of the executing threads, and what lanes must agree on.
#include "compiler/emit/llvm_body.h"

#include "ir/error.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

namespace sparsertc {

using ir::Opcode;
using ir::Scalar;
using llvm::Value;

namespace {

/// The element type of an operand that may be an immediate, by its letter in ops.def.
Scalar immediate_type(const ir::Op& op, unsigned slot) {
  switch (ir::info(op.code).operands[slot]) {
  case 'I':
    return Scalar::i32;
  case 'L':
    return Scalar::i64;
  default:
    return op.type.element();
  }
}

} // namespace

Value* LlvmBody::operand(const ir::Op& op, unsigned slot, bool as_vector) {
  const uint32_t reg = op.operand[slot];
  if (reg != ir::kImmediate)
    return as_vector ? vector(reg) : raw(reg);
  llvm::Constant* constant = values_.immediate(immediate_type(op, slot), op.immediate);
  return as_vector ? spread(constant, LaneShape::make_uniform()) : constant;
}

void LlvmBody::value_operation(uint32_t at) {
  const ir::Op& op = function_.ops[at];
  const LaneShape made = gpu_ ? LaneShape::make_uniform() : emitter_.lanes().of_op(index_, at);
  if (op.code == Opcode::special)
    return set(op.result.id, special(static_cast<ir::Special>(op.detail)), made);
  const bool as_vector = made.is_varying();
  if (!gpu_ && lanes_ > 1 && !as_vector)
    speculate(at);
  Value* result = nullptr;
  if (op.code == Opcode::index || op.code == Opcode::offset) {
    result = pointer_operation(op, as_vector);
  } else {
    const auto count = static_cast<unsigned>(ir::info(op.code).operands.size());
    llvm::SmallVector<Value*, 3> operands;
    for (unsigned i = 0; i < count; ++i)
      operands.push_back(operand(op, i, as_vector));
    Scalar source = Scalar::none;
    if (op.code == Opcode::convert || op.code == Opcode::bitcast)
      source = scalar_of(op.operand[0]);
    result = values_.value(op, operands, source);
  }
  // A check has compared lane 0's value; of min and max the affine side is what all lanes take.
  set(op.result.id, result, made);
}

Value* LlvmBody::pointer_operation(const ir::Op& op, bool as_vector) {
  Value* pointer = operand(op, 0, as_vector);
  llvm::Type* i64 = builder_.getInt64Ty();
  if (as_vector)
    i64 = llvm::FixedVectorType::get(i64, lanes_);
  Value* bytes = operand(op, 1, as_vector);
  if (op.code == Opcode::index)
    bytes = builder_.CreateMul(builder_.CreateSExt(bytes, i64),
                               builder_.CreateSExt(operand(op, 2, as_vector), i64));
  return builder_.CreateGEP(builder_.getInt8Ty(), pointer, bytes);
}

Value* LlvmBody::special(ir::Special which) {
  if (gpu_)
    return gpu_special(which);
  switch (which) {
  case ir::Special::block_x:
    return indices_[0];
  case ir::Special::block_y:
    return indices_[1];
  case ir::Special::block_z:
    return indices_[2];
  case ir::Special::thread_x:
    return indices_[3];
  case ir::Special::thread_y:
    return indices_[4];
  case ir::Special::thread_z:
    return indices_[5];
  case ir::Special::lane:
    break;
  }
  // The warp's lane is the thread's number in the block modulo 32; device functions do not know
  // their kernel's block, so only a block that is one row of threads has lanes here.
  for (const ir::Function& kernel : module_.functions)
    if (kernel.is_kernel() && (kernel.block[1] != 1 || kernel.block[2] != 1))
      throw UserError("function @" + function_.name +
                          ": `special.lane` on the host needs kernels whose blocks are one "
                          "thread deep along y and z",
                      "compute the lane from thread_x, thread_y and thread_z");
  Value* first = builder_.CreateAnd(indices_[3], builder_.getInt32(31));
  // Lanes that do not divide 32 can wrap inside the vector.
  if (lanes_ == 1 || 32 % lanes_ == 0)
    return first;
  Value* all = spread(first, LaneShape::make_affine(1, true));
  return builder_.CreateAnd(all, builder_.CreateVectorSplat(lanes_, builder_.getInt32(31)));
}

Value* LlvmBody::gpu_special(ir::Special which) {
  static constexpr llvm::Intrinsic::ID kRegisters[] = {
      llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x,   llvm::Intrinsic::nvvm_read_ptx_sreg_tid_y,
      llvm::Intrinsic::nvvm_read_ptx_sreg_tid_z,   llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x,
      llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y, llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_z,
      llvm::Intrinsic::nvvm_read_ptx_sreg_laneid};
  return builder_.CreateIntrinsic(kRegisters[static_cast<unsigned>(which)], {});
}

// ---- speculation ----

void LlvmBody::check(Value* agreed) {
  if (give_up_ == nullptr) {
    llvm::IRBuilderBase::InsertPointGuard guard(builder_);
    give_up_ = block("give_up");
    builder_.SetInsertPoint(give_up_);
    builder_.CreateRet(builder_.getInt32(1));
  }
  llvm::BasicBlock* go_on = block("agreed");
  builder_.CreateCondBr(agreed, go_on, give_up_);
  builder_.SetInsertPoint(go_on);
}

Value* LlvmBody::last_lane(Value* first, LaneShape from) {
  const auto step = static_cast<uint64_t>(from.stride) * (lanes_ - 1);
  return builder_.CreateAdd(
      first,
      llvm::ConstantInt::get(first->getType(), llvm::APInt(first->getType()->getIntegerBitWidth(),
                                                           step, false, true)));
}

/// True where the lanes' values go up (or down) without passing the end of the type.
Value* LlvmBody::stays_ordered(Value* first, LaneShape from, bool as_unsigned) {
  const unsigned bits = first->getType()->getIntegerBitWidth();
  const auto magnitude = static_cast<uint64_t>(std::abs(from.stride));
  const uint64_t most = bits == 32 ? uint64_t{INT32_MAX} : uint64_t{INT64_MAX};
  if (magnitude > most / (lanes_ - 1))
    return builder_.getFalse();
  Value* last = last_lane(first, from);
  Value* low = from.stride > 0 ? first : last;
  Value* high = from.stride > 0 ? last : first;
  return as_unsigned ? builder_.CreateICmpULE(low, high) : builder_.CreateICmpSLE(low, high);
}

/// Before an operation whose result is taken to be uniform or affine though lanes could disagree:
/// the block is given up unless they agree.
void LlvmBody::speculate(uint32_t at) {
  const ir::Op& op = function_.ops[at];
  auto shape_of = [&](unsigned slot) {
    return op.operand[slot] >= ir::kImmediate ? LaneShape::make_uniform() : shape(op.operand[slot]);
  };
  switch (op.code) {
  case Opcode::index:
  case Opcode::convert: {
    const unsigned slot = op.code == Opcode::index ? 1 : 0;
    if (shape_of(slot).is_affine() && !shape_of(slot).no_wrap)
      check(stays_ordered(raw(op.operand[slot]), shape_of(slot), false));
    return;
  }
  case Opcode::compare:
  case Opcode::min:
  case Opcode::max:
    break;
  default:
    return;
  }
  const LaneShape a = shape_of(0);
  const LaneShape b = shape_of(1);
  if (a.is_affine() == b.is_affine())
    return;
  const unsigned affine_slot = a.is_affine() ? 0 : 1;
  const LaneShape affine = a.is_affine() ? a : b;
  Value* first = raw(op.operand[affine_slot]);
  Value* last = last_lane(first, affine);
  Value* other = operand(op, 1 - affine_slot, false);
  bool as_unsigned = false;
  Value* agreed = nullptr;
  if (op.code == Opcode::compare) {
    as_unsigned = static_cast<ir::Comparison>(op.detail) >= ir::Comparison::ltu;
    Value* of_first[2] = {first, other};
    Value* of_last[2] = {last, other};
    if (affine_slot == 1) {
      std::swap(of_first[0], of_first[1]);
      std::swap(of_last[0], of_last[1]);
    }
    agreed = builder_.CreateICmpEQ(values_.value(op, of_first, Scalar::none),
                                   values_.value(op, of_last, Scalar::none));
  } else if (op.code == Opcode::min) {
    agreed = builder_.CreateAnd(builder_.CreateICmpSLE(first, other),
                                builder_.CreateICmpSLE(last, other));
  } else {
    agreed = builder_.CreateAnd(builder_.CreateICmpSGE(first, other),
                                builder_.CreateICmpSGE(last, other));
  }
  if (as_unsigned || !affine.no_wrap)
    agreed = builder_.CreateAnd(agreed, stays_ordered(first, affine, as_unsigned));
  check(agreed);
}

} // namespace sparsertc
