// Value operations of the IR as LLVM instructions, the same code for scalars and for vectors of
// lanes. Internal to the LLVM road.
//
// How registers are represented (each also as a vector with an element a lane):
//   pred i1; i32, i64; f16 half; f32 float; f64 double; pointers ptr
//   bf16 i16 and the pairs i32: LLVM's own bfloat operations round differently on some processors
//   (they flush subnormals or round twice), so rounding is spelled out here in integers.
#pragma once

#include "ir/op.h"

#include <llvm/ADT/ArrayRef.h>
#include <llvm/IR/IRBuilder.h>

namespace sparsertc {

class LlvmValues {
public:
  /// `gpu`: NVPTX, where the hardware has the half-precision operations. `native_f16`: the CPU
  /// computes in half precision itself (one rounding an operation).
  LlvmValues(llvm::IRBuilder<>& builder, bool gpu, bool native_f16)
      : builder_(builder), gpu_(gpu), native_f16_(native_f16) {}

  llvm::Type* scalar_type(ir::Scalar scalar) const;
  /// The constant with these bits, a scalar.
  llvm::Constant* immediate(ir::Scalar scalar, int64_t bits) const;

  /// Any pure operation of form `value` except special, address arithmetic and pointers' select and
  /// move. All operands scalars, or all vectors of one length. `source`: the type of the operand of
  /// convert and bitcast.
  llvm::Value* value(const ir::Op& op, llvm::ArrayRef<llvm::Value*> operands, ir::Scalar source);

private:
  using Value = llvm::Value;

  llvm::Type* like(Value* shape, llvm::Type* element) const;
  Value* splat(Value* shape, llvm::Constant* scalar) const;
  Value* int_like(Value* shape, llvm::Type* element, uint64_t value) const;

  Value* arithmetic(ir::Opcode code, ir::Scalar scalar, llvm::ArrayRef<Value*> operands);
  Value* integer(ir::Opcode code, llvm::ArrayRef<Value*> operands);
  Value* shift(ir::Opcode code, Value* value, Value* amount);
  Value* floating(ir::Opcode code, llvm::ArrayRef<Value*> operands);
  Value* half(ir::Opcode code, llvm::ArrayRef<Value*> operands);
  Value* bfloat(ir::Opcode code, llvm::ArrayRef<Value*> operands);
  Value* bfloat_fma(Value* a, Value* b, Value* c);
  Value* pair(ir::Opcode code, ir::Scalar scalar, llvm::ArrayRef<Value*> operands);
  Value* compare(ir::Comparison comparison, ir::Scalar scalar, Value* a, Value* b);
  Value* convert(ir::Conversion conversion, ir::Scalar to, ir::Scalar from, Value* source);
  Value* float_to_integer(ir::Conversion conversion, ir::Scalar to, Value* source);

  Value* widen(Value* source, ir::Scalar from, ir::Scalar to);
  Value* narrow_nearest(Value* source, ir::Scalar from, ir::Scalar to);
  Value* f32_round_to_odd(Value* f64);
  Value* bfloat_nearest(Value* f32);
  Value* step(Value* number, Value* away_from_zero, Value* toward_zero);
  Value* unary(unsigned intrinsic, Value* operand);

  llvm::IRBuilder<>& builder_;
  bool gpu_;
  bool native_f16_;
};

} // namespace sparsertc
