// What threads of a GPU's block do together.
#include "compiler/emit/llvm_body.h"

#include "ir/error.h"

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <fmt/format.h>

namespace sparsertc {

using ir::Opcode;
using ir::Scalar;
using llvm::Value;
namespace intrinsic = llvm::Intrinsic;

void LlvmBody::gpu_operation(const ir::Op& op) {
  switch (op.code) {
  case Opcode::barrier:
    return gpu_barrier(op);
  case Opcode::cluster_barrier:
    builder_.CreateIntrinsic(intrinsic::nvvm_barrier_cluster_arrive, {});
    builder_.CreateIntrinsic(intrinsic::nvvm_barrier_cluster_wait, {});
    return;
  case Opcode::warp_barrier:
    builder_.CreateIntrinsic(intrinsic::nvvm_bar_warp_sync, {builder_.getInt32(UINT32_MAX)});
    return;
  case Opcode::peer:
    registers_[op.result.id] = builder_.CreateIntrinsic(
        intrinsic::nvvm_mapa_shared_cluster, {raw(op.operand[0]), operand(op, 1, false)});
    return;
  case Opcode::copy_async:
    return gpu_copy_async(op);
  case Opcode::copy_commit:
    builder_.CreateIntrinsic(intrinsic::nvvm_cp_async_commit_group, {});
    return;
  case Opcode::copy_wait:
    builder_.CreateIntrinsic(intrinsic::nvvm_cp_async_wait_group,
                             {builder_.getInt32(static_cast<uint32_t>(op.immediate))});
    return;
  case Opcode::ballot:
    registers_[op.result.id] = builder_.CreateIntrinsic(
        intrinsic::nvvm_vote_ballot_sync, {builder_.getInt32(0xffffffff), raw(op.operand[0])});
    return;
  case Opcode::shuffle: {
    const bool is_float = op.type.element() == Scalar::f32;
    static constexpr intrinsic::ID kIntegers[] = {
        intrinsic::nvvm_shfl_sync_idx_i32, intrinsic::nvvm_shfl_sync_up_i32,
        intrinsic::nvvm_shfl_sync_down_i32, intrinsic::nvvm_shfl_sync_bfly_i32};
    static constexpr intrinsic::ID kFloats[] = {
        intrinsic::nvvm_shfl_sync_idx_f32, intrinsic::nvvm_shfl_sync_up_f32,
        intrinsic::nvvm_shfl_sync_down_f32, intrinsic::nvvm_shfl_sync_bfly_f32};
    // The clamp of `up` is the warp's first lane, of the others the last one.
    const uint32_t clamp = static_cast<ir::Shuffle>(op.detail) == ir::Shuffle::up ? 0 : 31;
    registers_[op.result.id] =
        builder_.CreateIntrinsic((is_float ? kFloats : kIntegers)[op.detail],
                                 {builder_.getInt32(0xffffffff), raw(op.operand[0]),
                                  operand(op, 1, false), builder_.getInt32(clamp)});
    return;
  }
  case Opcode::load_matrix:
    return gpu_load_matrix(op);
  default:
    return gpu_matrix(op);
  }
}

void LlvmBody::gpu_barrier(const ir::Op& op) {
  if (op.operand[0] == ir::kNoOperand) {
    builder_.CreateIntrinsic(intrinsic::nvvm_barrier_cta_sync_all, {builder_.getInt32(0)});
    return;
  }
  const auto bits = static_cast<uint64_t>(op.immediate);
  Value* number = op.operand[0] == ir::kImmediate ? builder_.getInt32(static_cast<uint32_t>(bits))
                                                  : raw(op.operand[0]);
  builder_.CreateIntrinsic(intrinsic::nvvm_barrier_cta_sync_count,
                           {number, builder_.getInt32(static_cast<uint32_t>(bits >> 32))});
}

void LlvmBody::gpu_copy_async(const ir::Op& op) {
  const auto bits = static_cast<uint64_t>(op.immediate);
  auto at = [&](unsigned slot, int32_t bytes) {
    return builder_.CreateGEP(builder_.getInt8Ty(), raw(op.operand[slot]),
                              builder_.getInt64(static_cast<uint64_t>(int64_t{bytes})));
  };
  llvm::SmallVector<Value*, 3> arguments = {at(0, static_cast<int32_t>(bits)),
                                            at(1, static_cast<int32_t>(bits >> 32))};
  const bool partial = op.operand[2] != ir::kNoOperand;
  if (partial)
    arguments.push_back(raw(op.operand[2]));
  intrinsic::ID id = intrinsic::not_intrinsic;
  switch (op.width) {
  case 4:
    id = partial ? intrinsic::nvvm_cp_async_ca_shared_global_4_s
                 : intrinsic::nvvm_cp_async_ca_shared_global_4;
    break;
  case 8:
    id = partial ? intrinsic::nvvm_cp_async_ca_shared_global_8_s
                 : intrinsic::nvvm_cp_async_ca_shared_global_8;
    break;
  default:
    id = partial ? intrinsic::nvvm_cp_async_cg_shared_global_16_s
                 : intrinsic::nvvm_cp_async_cg_shared_global_16;
    break;
  }
  builder_.CreateIntrinsic(id, arguments);
}

void LlvmBody::gpu_load_matrix(const ir::Op& op) {
  Value* address = builder_.CreateGEP(builder_.getInt8Ty(), raw(op.operand[0]),
                                      builder_.getInt64(static_cast<uint64_t>(op.immediate)));
  Value* words = builder_.CreateIntrinsic(intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16,
                                          {address->getType()}, {address});
  llvm::Type* pair = values_.scalar_type(op.type.element());
  for (unsigned i = 0; i < op.width; ++i)
    registers_[op.result.id + i] =
        builder_.CreateBitCast(builder_.CreateExtractValue(words, i), pair);
}

void LlvmBody::gpu_matrix(const ir::Op& op) {
  struct Shape {
    const char* text;
    unsigned a, b; // 32-bit registers
  };
  static constexpr Shape kShapes[] = {
      {"m16n8k16.row.col.f32.f16.f16.f32", 4, 2},   {"m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2},
      {"m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2},  {"m16n8k32.row.col.f32.f16.f16.f32", 4, 4},
      {"m16n8k32.row.col.f32.bf16.bf16.f32", 4, 4}, {"m16n8k16.row.col.f32.tf32.tf32.f32", 4, 4}};
  const Shape& shape = kShapes[op.detail];
  const bool sparse = op.code == Opcode::mma_sparse;
  llvm::Type* i32 = builder_.getInt32Ty();
  llvm::Type* f32 = builder_.getFloatTy();

  llvm::SmallVector<Value*, 16> arguments;
  llvm::SmallVector<llvm::Type*, 16> types;
  std::string constraints = "=f,=f,=f,=f";
  unsigned number = 4;
  auto tuple = [&](uint32_t first, unsigned count, bool is_sum) {
    std::string text = "{";
    for (unsigned i = 0; i < count; ++i) {
      Value* value = raw(first + i);
      if (!is_sum)
        value = builder_.CreateBitCast(value, i32);
      arguments.push_back(value);
      types.push_back(is_sum ? f32 : i32);
      constraints += is_sum ? ",f" : ",r";
      text += fmt::format("{}${}", i == 0 ? "" : ",", number++);
    }
    return text + "}";
  };
  const std::string a = tuple(op.operand[0], shape.a, false);
  const std::string b = tuple(op.operand[1], shape.b, false);
  const std::string c = tuple(op.operand[2], 4, true);
  std::string text;
  if (sparse) {
    const auto bits = static_cast<uint64_t>(op.immediate);
    arguments.push_back(raw(static_cast<uint32_t>(bits)));
    types.push_back(i32);
    constraints += ",r";
    text = fmt::format("mma.sp{}.sync.aligned.{} {{$0,$1,$2,$3}}, {}, {}, {}, ${}, {};",
                       emitter_.settings().ordered_metadata ? "::ordered_metadata" : "", shape.text,
                       a, b, c, number, bits >> 32);
  } else {
    text = fmt::format("mma.sync.aligned.{} {{$0,$1,$2,$3}}, {}, {}, {};", shape.text, a, b, c);
  }
  auto* result = llvm::StructType::get(builder_.getContext(), {f32, f32, f32, f32});
  llvm::CallInst* made = builder_.CreateCall(
      llvm::InlineAsm::get(llvm::FunctionType::get(result, types, false), text, constraints, true),
      arguments);
  made->setConvergent();
  for (unsigned i = 0; i < 4; ++i)
    registers_[op.result.id + i] = builder_.CreateExtractValue(made, i);
}

} // namespace sparsertc
