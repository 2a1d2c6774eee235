#include "compiler/emit/llvm_values.h"

#include "ir/error.h"

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Intrinsics.h>

namespace sparsertc {

using ir::Comparison;
using ir::Conversion;
using ir::Opcode;
using ir::Scalar;
using llvm::Constant;
using llvm::Value;
using llvm::Intrinsic::ID;
namespace intrinsic = llvm::Intrinsic;

namespace {

bool is_float(Scalar scalar) {
  return ir::Type(scalar).is_float();
}

unsigned integer_bits(Value* value) {
  return value->getType()->getScalarSizeInBits();
}

[[noreturn]] void no_such(Opcode code) {
  throw InternalError("LLVM emitter: no lowering of '" + std::string(ir::info(code).text) +
                      "' for this type");
}

} // namespace

llvm::Type* LlvmValues::scalar_type(Scalar scalar) const {
  switch (scalar) {
  case Scalar::pred:
    return builder_.getInt1Ty();
  case Scalar::i32:
  case Scalar::f16x2:
  case Scalar::bf16x2:
    return builder_.getInt32Ty();
  case Scalar::i64:
    return builder_.getInt64Ty();
  case Scalar::f16:
    return builder_.getHalfTy();
  case Scalar::bf16:
    return builder_.getInt16Ty();
  case Scalar::f32:
    return builder_.getFloatTy();
  case Scalar::f64:
    return builder_.getDoubleTy();
  case Scalar::none:
    break;
  }
  throw InternalError("LLVM emitter: a register without a type");
}

Constant* LlvmValues::immediate(Scalar scalar, int64_t bits) const {
  const auto raw = static_cast<uint64_t>(bits);
  llvm::Type* type = scalar_type(scalar);
  switch (scalar) {
  case Scalar::f16:
    return llvm::ConstantFP::get(
        type, llvm::APFloat(llvm::APFloat::IEEEhalf(), llvm::APInt(16, raw & 0xffff)));
  case Scalar::f32:
    return llvm::ConstantFP::get(
        type, llvm::APFloat(llvm::APFloat::IEEEsingle(), llvm::APInt(32, raw & 0xffffffff)));
  case Scalar::f64:
    return llvm::ConstantFP::get(type,
                                 llvm::APFloat(llvm::APFloat::IEEEdouble(), llvm::APInt(64, raw)));
  default: {
    const unsigned width = type->getIntegerBitWidth();
    const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
    return llvm::ConstantInt::get(type, raw & mask);
  }
  }
}

llvm::Type* LlvmValues::like(Value* shape, llvm::Type* element) const {
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(shape->getType()))
    return llvm::FixedVectorType::get(element, vector->getNumElements());
  return element;
}

Value* LlvmValues::splat(Value* shape, Constant* scalar) const {
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(shape->getType()))
    return llvm::ConstantVector::getSplat(vector->getElementCount(), scalar);
  return scalar;
}

Value* LlvmValues::int_like(Value* shape, llvm::Type* element, uint64_t value) const {
  return splat(shape, llvm::ConstantInt::get(element, value));
}

Value* LlvmValues::unary(unsigned id, Value* operand) {
  return builder_.CreateUnaryIntrinsic(static_cast<ID>(id), operand);
}

Value* LlvmValues::value(const ir::Op& op, llvm::ArrayRef<Value*> operands, Scalar source) {
  const Scalar scalar = op.type.element();
  switch (op.code) {
  case Opcode::constant:
  case Opcode::move:
    return operands[0];
  case Opcode::select:
    return builder_.CreateSelect(operands[0], operands[1], operands[2]);
  case Opcode::compare:
    return compare(static_cast<Comparison>(op.detail), scalar, operands[0], operands[1]);
  case Opcode::convert:
    return convert(static_cast<Conversion>(op.detail), scalar, source, operands[0]);
  case Opcode::bitcast:
    return builder_.CreateBitCast(operands[0], like(operands[0], scalar_type(scalar)));
  case Opcode::pack:
  case Opcode::low:
  case Opcode::high:
    return pair(op.code, scalar, operands);
  default:
    return arithmetic(op.code, scalar, operands);
  }
}

Value* LlvmValues::arithmetic(Opcode code, Scalar scalar, llvm::ArrayRef<Value*> operands) {
  switch (scalar) {
  case Scalar::f32:
  case Scalar::f64:
    return floating(code, operands);
  case Scalar::f16:
    return half(code, operands);
  case Scalar::bf16:
    return bfloat(code, operands);
  case Scalar::f16x2:
  case Scalar::bf16x2:
    return pair(code, scalar, operands);
  default:
    return integer(code, operands);
  }
}

// ---- integers -----------------------------------------------------------------------------------

Value* LlvmValues::integer(Opcode code, llvm::ArrayRef<Value*> operands) {
  Value* a = operands[0];
  Value* b = operands.size() > 1 ? operands[1] : nullptr;
  llvm::Type* i32 = builder_.getInt32Ty();
  switch (code) {
  case Opcode::add:
    return builder_.CreateAdd(a, b);
  case Opcode::sub:
    return builder_.CreateSub(a, b);
  case Opcode::mul:
    return builder_.CreateMul(a, b);
  case Opcode::divu:
  case Opcode::remu: {
    // The IR leaves division by zero undefined, but it must not trap in lanes whose result nobody
    // takes; NVIDIA's hardware gives all ones and the dividend.
    Value* zero = llvm::Constant::getNullValue(b->getType());
    Value* by_zero = builder_.CreateICmpEQ(b, zero);
    Value* divisor =
        builder_.CreateSelect(by_zero, int_like(b, b->getType()->getScalarType(), 1), b);
    if (code == Opcode::remu)
      return builder_.CreateSelect(by_zero, a, builder_.CreateURem(a, divisor));
    return builder_.CreateSelect(by_zero, llvm::Constant::getAllOnesValue(b->getType()),
                                 builder_.CreateUDiv(a, divisor));
  }
  case Opcode::neg:
    return builder_.CreateNeg(a);
  case Opcode::abs:
    return builder_.CreateBinaryIntrinsic(intrinsic::abs, a, builder_.getFalse());
  case Opcode::min:
    return builder_.CreateBinaryIntrinsic(intrinsic::smin, a, b);
  case Opcode::max:
    return builder_.CreateBinaryIntrinsic(intrinsic::smax, a, b);
  case Opcode::minu:
    return builder_.CreateBinaryIntrinsic(intrinsic::umin, a, b);
  case Opcode::maxu:
    return builder_.CreateBinaryIntrinsic(intrinsic::umax, a, b);
  case Opcode::bit_and:
    return builder_.CreateAnd(a, b);
  case Opcode::bit_or:
    return builder_.CreateOr(a, b);
  case Opcode::bit_xor:
    return builder_.CreateXor(a, b);
  case Opcode::bit_not:
    return builder_.CreateNot(a);
  case Opcode::shl:
  case Opcode::shr:
  case Opcode::sar:
    return shift(code, a, b);
  case Opcode::popc:
    return builder_.CreateZExtOrTrunc(unary(intrinsic::ctpop, a), like(a, i32));
  case Opcode::clz:
    return builder_.CreateZExtOrTrunc(
        builder_.CreateBinaryIntrinsic(intrinsic::ctlz, a, builder_.getFalse()), like(a, i32));
  case Opcode::brev:
    return unary(intrinsic::bitreverse, a);
  default:
    no_such(code);
  }
}

// The amount is an unsigned i32; amounts of the width or more move every bit out, as in PTX.
Value* LlvmValues::shift(Opcode code, Value* value, Value* amount) {
  const unsigned width = integer_bits(value);
  llvm::Type* element = value->getType()->getScalarType();
  Value* in_range = builder_.CreateICmpULT(amount, int_like(amount, builder_.getInt32Ty(), width));
  Value* wide = builder_.CreateZExtOrTrunc(amount, value->getType());
  if (code == Opcode::sar)
    return builder_.CreateAShr(
        value, builder_.CreateSelect(in_range, wide, int_like(value, element, width - 1)));
  Value* shifted =
      code == Opcode::shl ? builder_.CreateShl(value, wide) : builder_.CreateLShr(value, wide);
  return builder_.CreateSelect(in_range, shifted, Constant::getNullValue(value->getType()));
}

// ---- floating point ----

Value* LlvmValues::floating(Opcode code, llvm::ArrayRef<Value*> operands) {
  Value* a = operands[0];
  switch (code) {
  case Opcode::add:
    return builder_.CreateFAdd(a, operands[1]);
  case Opcode::sub:
    return builder_.CreateFSub(a, operands[1]);
  case Opcode::mul:
    return builder_.CreateFMul(a, operands[1]);
  case Opcode::div:
    return builder_.CreateFDiv(a, operands[1]);
  case Opcode::sqrt:
    return unary(intrinsic::sqrt, a);
  case Opcode::fma:
    return builder_.CreateIntrinsic(intrinsic::fma, {a->getType()}, {a, operands[1], operands[2]});
  case Opcode::neg:
    return builder_.CreateFNeg(a);
  case Opcode::abs:
    return unary(intrinsic::fabs, a);
  default:
    no_such(code);
  }
}

// Without half-precision hardware LLVM computes add, sub and mul in f32 and rounds again; that is
// exact because f32 has more than 2*11 + 1 bits (Figueroa, "When is double rounding innocuous?",
// 1995). Its fma would round twice, so that is done in f64: the product of two halves has 22 bits,
// and wherever the f64 sum is inexact one term is so small that it cannot reach the nearest
// rounding boundary of f16 (exponents of halves span 2^-24 to 2^15).
Value* LlvmValues::half(Opcode code, llvm::ArrayRef<Value*> operands) {
  if (code != Opcode::fma || gpu_ || native_f16_)
    return floating(code, operands);
  Value* wide[3];
  for (unsigned i = 0; i < 3; ++i)
    wide[i] = widen(operands[i], Scalar::f16, Scalar::f64);
  return narrow_nearest(floating(Opcode::fma, wide), Scalar::f64, Scalar::f16);
}

Value* LlvmValues::bfloat(Opcode code, llvm::ArrayRef<Value*> operands) {
  Value* a = operands[0];
  llvm::Type* i16 = builder_.getInt16Ty();
  if (code == Opcode::neg)
    return builder_.CreateXor(a, int_like(a, i16, 0x8000));
  if (code == Opcode::abs)
    return builder_.CreateAnd(a, int_like(a, i16, 0x7fff));
  if (code == Opcode::fma)
    return bfloat_fma(a, operands[1], operands[2]);
  Value* b = operands[1];
  if (gpu_) {
    // sm_80 has only the fma; 1 * a + b, and a * b - 0, which keeps the product's sign of zero.
    Value* one = int_like(a, i16, code == Opcode::sub ? 0xbf80 : 0x3f80);
    if (code == Opcode::mul)
      return bfloat_fma(a, b, int_like(a, i16, 0x8000));
    return bfloat_fma(b, one, a);
  }
  // Sums: f32 has more than 2*8 + 1 bits and the same exponents, so rounding twice is innocuous.
  // Products can fall below f32's range, in f64 they are exact.
  const Scalar wide = code == Opcode::mul ? Scalar::f64 : Scalar::f32;
  Value* result = floating(code, {widen(a, Scalar::bf16, wide), widen(b, Scalar::bf16, wide)});
  return narrow_nearest(result, wide, Scalar::bf16);
}

// On the CPU: the product of two bf16 has 16 bits and is exact in f64. The sum is rounded to odd:
// the f64 sum s, its exact error by two-sum (Knuth, TAOCP 2, 4.2.2), and where that is not zero and
// s is even, the neighbour of s on the error's side. A number rounded to odd with at least two
// spare bits rounds on like the exact one (Boldo and Melquiond, 2008), so the result is that of one
// rounding. No overflow: |product| < 2^256.
Value* LlvmValues::bfloat_fma(Value* a, Value* b, Value* c) {
  if (gpu_)
    return builder_.CreateCall(
        llvm::InlineAsm::get(llvm::FunctionType::get(builder_.getInt16Ty(),
                                                     {builder_.getInt16Ty(), builder_.getInt16Ty(),
                                                      builder_.getInt16Ty()},
                                                     false),
                             "fma.rn.bf16 $0, $1, $2, $3;", "=h,h,h,h", false),
        {a, b, c});
  Value* product =
      builder_.CreateFMul(widen(a, Scalar::bf16, Scalar::f64), widen(b, Scalar::bf16, Scalar::f64));
  Value* addend = widen(c, Scalar::bf16, Scalar::f64);
  Value* sum = builder_.CreateFAdd(product, addend);
  Value* of_addend = builder_.CreateFSub(sum, product);
  Value* of_product = builder_.CreateFSub(sum, of_addend);
  Value* error = builder_.CreateFAdd(builder_.CreateFSub(product, of_product),
                                     builder_.CreateFSub(addend, of_addend));
  // Not for NaN and infinity: `one` is false for a NaN error.
  Value* zero = Constant::getNullValue(error->getType());
  Value* inexact = builder_.CreateFCmpONE(error, zero);
  llvm::Type* i64 = builder_.getInt64Ty();
  Value* bits = builder_.CreateBitCast(sum, like(sum, i64));
  Value* even =
      builder_.CreateICmpEQ(builder_.CreateAnd(bits, int_like(sum, i64, 1)), int_like(sum, i64, 0));
  Value* moves = builder_.CreateAnd(inexact, even);
  Value* outward =
      builder_.CreateICmpEQ(builder_.CreateFCmpOLT(sum, zero), builder_.CreateFCmpOLT(error, zero));
  Value* odd = step(sum, builder_.CreateAnd(moves, outward),
                    builder_.CreateAnd(moves, builder_.CreateNot(outward)));
  return narrow_nearest(odd, Scalar::f64, Scalar::bf16);
}

// ---- pairs --------------------------------------------------------------------------------------

// A pair is an i32; arithmetic sees the vector of halves, two elements a lane.
Value* LlvmValues::pair(Opcode code, Scalar scalar, llvm::ArrayRef<Value*> operands) {
  const Scalar element = ir::half_of_pair(scalar);
  llvm::Type* i16 = builder_.getInt16Ty();
  llvm::Type* i32 = builder_.getInt32Ty();
  if (code == Opcode::pack) {
    Value* words[2];
    for (unsigned i = 0; i < 2; ++i)
      words[i] = builder_.CreateZExt(builder_.CreateBitCast(operands[i], like(operands[i], i16)),
                                     like(operands[i], i32));
    return builder_.CreateOr(words[0], builder_.CreateShl(words[1], int_like(words[1], i32, 16)));
  }
  if (code == Opcode::low || code == Opcode::high) {
    Value* word = operands[0];
    if (code == Opcode::high)
      word = builder_.CreateLShr(word, int_like(word, i32, 16));
    Value* bits = builder_.CreateTrunc(word, like(word, i16));
    return builder_.CreateBitCast(bits, like(bits, scalar_type(element)));
  }
  if (gpu_ && element == Scalar::bf16 && code != Opcode::neg && code != Opcode::abs) {
    auto constant = [&](uint32_t bits) { return llvm::ConstantInt::get(i32, bits); };
    auto fma = [&](Value* a, Value* b, Value* c) {
      return builder_.CreateCall(
          llvm::InlineAsm::get(llvm::FunctionType::get(i32, {i32, i32, i32}, false),
                               "fma.rn.bf16x2 $0, $1, $2, $3;", "=r,r,r,r", false),
          {a, b, c});
    };
    switch (code) {
    case Opcode::fma:
      return fma(operands[0], operands[1], operands[2]);
    case Opcode::add:
      return fma(operands[1], constant(0x3f803f80), operands[0]);
    case Opcode::sub:
      return fma(operands[1], constant(0xbf80bf80), operands[0]);
    case Opcode::mul:
      return fma(operands[0], operands[1], constant(0x80008000));
    default:
      no_such(code);
    }
  }
  unsigned lanes = 1;
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(operands[0]->getType()))
    lanes = vector->getNumElements();
  llvm::Type* halves = llvm::FixedVectorType::get(scalar_type(element), 2 * lanes);
  llvm::SmallVector<Value*, 3> split;
  for (Value* operand : operands)
    split.push_back(builder_.CreateBitCast(operand, halves));
  if (code == Opcode::constant || code == Opcode::move)
    return operands[0];
  return builder_.CreateBitCast(arithmetic(code, element, split), operands[0]->getType());
}

// ---- comparisons and conversions ----

Value* LlvmValues::compare(Comparison comparison, Scalar scalar, Value* a, Value* b) {
  using P = llvm::CmpInst::Predicate;
  if (is_float(scalar)) {
    static constexpr P kPredicates[] = {P::FCMP_OEQ, P::FCMP_UNE, P::FCMP_OLT,
                                        P::FCMP_OLE, P::FCMP_OGT, P::FCMP_OGE};
    if (comparison > Comparison::ge)
      throw InternalError("LLVM emitter: unsigned comparison of floats");
    if (scalar == Scalar::bf16) {
      a = widen(a, scalar, Scalar::f32);
      b = widen(b, scalar, Scalar::f32);
    }
    return builder_.CreateFCmp(kPredicates[static_cast<unsigned>(comparison)], a, b);
  }
  static constexpr P kPredicates[] = {P::ICMP_EQ,  P::ICMP_NE,  P::ICMP_SLT, P::ICMP_SLE,
                                      P::ICMP_SGT, P::ICMP_SGE, P::ICMP_ULT, P::ICMP_ULE,
                                      P::ICMP_UGT, P::ICMP_UGE};
  return builder_.CreateICmp(kPredicates[static_cast<unsigned>(comparison)], a, b);
}

// Which conversions exist is the verifier's business: floats narrow to nearest only, and no integer
// becomes a half.
Value* LlvmValues::convert(Conversion conversion, Scalar to, Scalar from, Value* source) {
  const bool to_float = is_float(to);
  const bool from_float = is_float(from);
  llvm::Type* type = like(source, scalar_type(to));
  if (to_float && from_float)
    return ir::size_in_bytes(from) < ir::size_in_bytes(to) ? widen(source, from, to)
                                                           : narrow_nearest(source, from, to);
  if (to_float)
    return builder_.CreateSIToFP(source, type);
  if (from_float)
    return float_to_integer(conversion, to, source);
  if (conversion == Conversion::sign)
    return builder_.CreateSExt(source, type);
  return builder_.CreateZExtOrTrunc(source, type);
}

// Saturating, NaN gives 0.
Value* LlvmValues::float_to_integer(Conversion conversion, Scalar to, Value* source) {
  if (source->getType()->getScalarType()->isHalfTy())
    source = widen(source, Scalar::f16, Scalar::f32);
  switch (conversion) {
  case Conversion::nearest:
    source = unary(intrinsic::roundeven, source);
    break;
  case Conversion::floor:
    source = unary(intrinsic::floor, source);
    break;
  case Conversion::ceil:
    source = unary(intrinsic::ceil, source);
    break;
  default:
    break;
  }
  llvm::Type* type = like(source, scalar_type(to));
  return builder_.CreateIntrinsic(intrinsic::fptosi_sat, {type, source->getType()}, {source});
}

// Exact: to a type that has every value of `from`.
Value* LlvmValues::widen(Value* source, Scalar from, Scalar to) {
  if (from == to)
    return source;
  if (from == Scalar::bf16) {
    llvm::Type* i32 = builder_.getInt32Ty();
    Value* bits = builder_.CreateShl(builder_.CreateZExt(source, like(source, i32)),
                                     int_like(source, i32, 16));
    source = builder_.CreateBitCast(bits, like(bits, builder_.getFloatTy()));
    if (to == Scalar::f32)
      return source;
  }
  return builder_.CreateFPExt(source, like(source, scalar_type(to)));
}

/// One rounding to nearest even.
Value* LlvmValues::narrow_nearest(Value* source, Scalar from, Scalar to) {
  if (to == Scalar::bf16)
    return bfloat_nearest(from == Scalar::f64 ? f32_round_to_odd(source) : source);
  // Without the instruction LLVM would call a library for f64 to f16.
  if (from == Scalar::f64 && to == Scalar::f16 && !gpu_)
    source = f32_round_to_odd(source);
  return builder_.CreateFPTrunc(source, like(source, scalar_type(to)));
}

Value* LlvmValues::f32_round_to_odd(Value* f64) {
  Value* nearest = builder_.CreateFPTrunc(f64, like(f64, builder_.getFloatTy()));
  Value* back = builder_.CreateFPExt(nearest, f64->getType());
  llvm::Type* i32 = builder_.getInt32Ty();
  Value* bits = builder_.CreateBitCast(nearest, like(nearest, i32));
  Value* even = builder_.CreateICmpEQ(builder_.CreateAnd(bits, int_like(bits, i32, 1)),
                                      int_like(bits, i32, 0));
  Value* back_size = unary(intrinsic::fabs, back);
  Value* size = unary(intrinsic::fabs, f64);
  Value* outward = builder_.CreateAnd(even, builder_.CreateFCmpOLT(back_size, size));
  Value* inward = builder_.CreateAnd(even, builder_.CreateFCmpOGT(back_size, size));
  return step(nearest, outward, inward);
}

Value* LlvmValues::bfloat_nearest(Value* f32) {
  llvm::Type* i16 = builder_.getInt16Ty();
  llvm::Type* i32 = builder_.getInt32Ty();
  if (gpu_)
    return builder_.CreateCall(
        llvm::InlineAsm::get(llvm::FunctionType::get(i16, {builder_.getFloatTy()}, false),
                             "cvt.rn.bf16.f32 $0, $1;", "=h,f", false),
        {f32});
  Value* bits = builder_.CreateBitCast(f32, like(f32, i32));
  Value* high = builder_.CreateLShr(bits, int_like(bits, i32, 16));
  Value* lowest = builder_.CreateAnd(high, int_like(bits, i32, 1));
  Value* rounded = builder_.CreateLShr(
      builder_.CreateAdd(builder_.CreateAdd(bits, int_like(bits, i32, 0x7fff)), lowest),
      int_like(bits, i32, 16));
  Value* quiet = builder_.CreateOr(high, int_like(bits, i32, 0x40));
  Value* is_nan = builder_.CreateFCmpUNO(f32, f32);
  return builder_.CreateTrunc(builder_.CreateSelect(is_nan, quiet, rounded), like(f32, i16));
}

/// The next number away from zero, or toward it, where the predicates say so.
Value* LlvmValues::step(Value* number, Value* away_from_zero, Value* toward_zero) {
  llvm::Type* bits_type = like(number, builder_.getIntNTy(integer_bits(number)));
  Value* bits = builder_.CreateBitCast(number, bits_type);
  // true is -1 when sign-extended
  bits = builder_.CreateSub(bits, builder_.CreateSExt(away_from_zero, bits_type));
  bits = builder_.CreateAdd(bits, builder_.CreateSExt(toward_zero, bits_type));
  return builder_.CreateBitCast(bits, number->getType());
}

} // namespace sparsertc
