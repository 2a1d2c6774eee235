// Registers and control. See llvm_body_values.cpp, llvm_body_memory.cpp and llvm_body_gpu.cpp.
#include "compiler/emit/llvm_body.h"

#include "ir/error.h"

#include <algorithm>
#include <fmt/format.h>

namespace sparsertc {

using ir::Opcode;
using ir::Scalar;
using llvm::Value;

LlvmBody::LlvmBody(LlvmModuleEmitter& emitter, uint32_t function, llvm::Function* llvm_function)
    : emitter_(emitter), module_(emitter.module()), function_(module_.functions[function]),
      index_(function), out_(llvm_function), builder_(llvm_function->getContext()),
      values_(builder_, emitter.settings().gpu, emitter.settings().native_f16),
      lanes_(emitter.lanes().lanes()), gpu_(emitter.settings().gpu),
      registers_(function_.register_type.size(), nullptr) {}

llvm::BasicBlock* LlvmBody::block(const char* name) {
  in_block_ = 0;
  return llvm::BasicBlock::Create(out_->getContext(), name, out_);
}

void LlvmBody::refuse(const ir::Op& op, const std::string& why, const std::string& way_out) {
  std::string origin;
  if (op.origin != 0) {
    const ir::Origin from = module_.origins[op.origin - 1];
    origin = fmt::format(" (of the matrix's row {}, column {})", from.row, from.column);
  }
  throw UserError(fmt::format("function @{}: operation '{}'{}: {}", function_.name,
                              ir::info(op.code).text, origin, why),
                  way_out);
}

void LlvmBody::find_regions() {
  std::vector<std::pair<uint32_t, std::vector<uint32_t>>> open;
  auto assign = [&](uint32_t reg) {
    if (!open.empty())
      open.back().second.push_back(reg);
  };
  for (uint32_t at = 0; at < function_.ops.size(); ++at) {
    const ir::Op& op = function_.ops[at];
    switch (op.code) {
    case Opcode::for_loop:
    case Opcode::loop:
    case Opcode::if_begin:
      open.emplace_back(at, std::vector<uint32_t>{});
      break;
    case Opcode::while_end:
    case Opcode::end: {
      if (open.empty())
        throw InternalError("LLVM emitter: unbalanced control in @" + function_.name);
      auto [begin, regs] = std::move(open.back());
      open.pop_back();
      std::sort(regs.begin(), regs.end());
      regs.erase(std::unique(regs.begin(), regs.end()), regs.end());
      for (uint32_t reg : regs)
        assign(reg);
      assigned_.emplace(begin, std::move(regs));
      break;
    }
    default:
      if (op.result.valid()) {
        const ir::Form form = ir::info(op.code).form;
        const uint32_t count = form == ir::Form::load ? op.width : form == ir::Form::mma ? 4u : 1u;
        for (uint32_t i = 0; i < count; ++i)
          assign(op.result.id + i);
      }
    }
  }
}

void LlvmBody::emit() {
  find_regions();
  builder_.SetInsertPoint(block("entry"));
  const bool kernel = function_.kind == ir::FunctionKind::kernel;
  if (kernel && !gpu_) {
    // Each argument fills 8 bytes, in the low ones where it is smaller.
    for (uint32_t p = 0; p < function_.parameter_count; ++p) {
      const ir::Type type = function_.register_type[p];
      Value* slot =
          builder_.CreateConstGEP1_64(builder_.getInt64Ty(), out_->getArg(0), uint64_t{p});
      if (type == ir::Type(Scalar::pred)) {
        Value* byte = builder_.CreateLoad(builder_.getInt8Ty(), slot);
        set(p, builder_.CreateICmpNE(byte, builder_.getInt8(0)), LaneShape::make_uniform());
      } else {
        set(p, builder_.CreateLoad(emitter_.register_type(type, LaneShape::make_uniform()), slot),
            LaneShape::make_uniform());
      }
    }
    for (unsigned i = 0; i < 6; ++i)
      indices_[i] = out_->getArg(1 + i);
  } else {
    for (uint32_t p = 0; p < function_.parameter_count; ++p)
      registers_[p] = out_->getArg(p);
    if (!gpu_ && emitter_.uses_special(index_))
      for (unsigned i = 0; i < 6; ++i)
        indices_[i] = out_->getArg(function_.parameter_count + i);
  }
  for (uint32_t at = 0; at < function_.ops.size(); ++at)
    operation(at);
  if (!open_.empty())
    throw InternalError("LLVM emitter: unbalanced control in @" + function_.name);
  if (builder_.GetInsertBlock()->getTerminator() == nullptr) {
    if (out_->getReturnType()->isVoidTy())
      builder_.CreateRetVoid();
    else
      builder_.CreateRet(builder_.getInt32(0));
  }
}

// ---- registers ----------------------------------------------------------------------------------

LaneShape LlvmBody::shape(uint32_t reg) const {
  return emitter_.lanes().shape(index_, reg);
}

Value* LlvmBody::raw(uint32_t reg) const {
  if (registers_[reg] == nullptr)
    throw InternalError(fmt::format(
        "LLVM emitter: register %{} of @{} is read before it is assigned", reg, function_.name));
  return registers_[reg];
}

Value* LlvmBody::spread(Value* value, LaneShape from) {
  if (lanes_ == 1 || gpu_ || from.is_varying())
    return value;
  Value* splat = builder_.CreateVectorSplat(lanes_, value);
  if (!from.is_affine())
    return splat;
  const bool pointer = value->getType()->isPointerTy();
  llvm::Type* element = pointer ? builder_.getInt64Ty() : value->getType();
  llvm::SmallVector<llvm::Constant*, 64> steps;
  for (uint32_t lane = 0; lane < lanes_; ++lane)
    steps.push_back(llvm::ConstantInt::get(llvm::cast<llvm::IntegerType>(element),
                                           llvm::APInt(element->getIntegerBitWidth(),
                                                       static_cast<uint64_t>(from.stride) * lane,
                                                       false, true)));
  Value* step = llvm::ConstantVector::get(steps);
  if (pointer)
    return builder_.CreateGEP(builder_.getInt8Ty(), splat, step);
  return builder_.CreateAdd(splat, step);
}

Value* LlvmBody::vector(uint32_t reg) {
  return spread(raw(reg), shape(reg));
}

Value* LlvmBody::in_shape(Value* value, LaneShape from, LaneShape to) {
  return to.is_varying() ? spread(value, from) : value;
}

void LlvmBody::set(uint32_t reg, Value* value, LaneShape from) {
  registers_[reg] = gpu_ ? value : in_shape(value, from, shape(reg));
}

Value* LlvmBody::extract(Value* value, LaneShape from, uint32_t lane) {
  if (lanes_ == 1 || from.is_uniform())
    return value;
  return builder_.CreateExtractElement(spread(value, from), uint64_t{lane});
}

Value* LlvmBody::uniform_condition(uint32_t at) {
  const ir::Op& op = function_.ops[at];
  if (!gpu_ && shape(op.operand[0]).is_varying())
    refuse(op, "its condition can differ from lane to lane of the CPU's vectors",
           "use the predicate in `select`, or give the kernel blocks of one thread along x");
  return raw(op.operand[0]);
}

/// Instruction selection orders a block's operations in quadratic time (40 s for 10,000
/// multiply-adds), so long blocks are cut. A block whose address was taken is not joined with its
/// predecessor again by later passes.
void LlvmBody::cut_long_block() {
  constexpr uint32_t kLongest = 128;
  if (gpu_ || ++in_block_ < kLongest)
    return;
  llvm::BasicBlock* next = block("cut");
  builder_.CreateBr(next);
  llvm::BlockAddress::get(out_, next);
  builder_.SetInsertPoint(next);
  in_block_ = 0;
}

// ---- dispatch -----------------------------------------------------------------------------------

void LlvmBody::operation(uint32_t at) {
  cut_long_block();
  const ir::Op& op = function_.ops[at];
  switch (op.code) {
  case Opcode::address:
    set(op.result.id, emitter_.symbol(static_cast<uint32_t>(op.immediate)),
        LaneShape::make_uniform());
    return;
  case Opcode::load:
    return gpu_ ? gpu_load(op) : load(op);
  case Opcode::store:
    return gpu_ ? gpu_store(op) : store(op);
  case Opcode::load_ordered:
  case Opcode::store_ordered:
  case Opcode::atomic:
  case Opcode::compare_swap:
  case Opcode::fence:
    return ordered(op);
  case Opcode::copy_async:
  case Opcode::copy_commit:
  case Opcode::copy_wait:
  case Opcode::barrier:
  case Opcode::cluster_barrier:
  case Opcode::warp_barrier:
  case Opcode::peer:
  case Opcode::shuffle:
  case Opcode::ballot:
  case Opcode::load_matrix:
  case Opcode::mma:
  case Opcode::mma_sparse:
    if (!gpu_)
      refuse(op, "the host has no threads of a block that work together",
             "take a schedule for the host (--target=host), which avoids barriers, shared memory, "
             "shuffles and matrix fragments");
    return gpu_operation(op);
  case Opcode::for_loop:
    return begin_for(at);
  case Opcode::loop:
    return begin_loop(at);
  case Opcode::while_end: {
    Region region = std::move(open_.back());
    open_.pop_back();
    return end_loop(region, uniform_condition(at));
  }
  case Opcode::if_begin:
    return begin_if(at);
  case Opcode::else_mark:
    return else_mark();
  case Opcode::end:
    return close(at);
  case Opcode::call:
  case Opcode::switch_call:
    return call(op);
  case Opcode::return_void:
    return return_void();
  case Opcode::alloc:
  case Opcode::free:
  case Opcode::copy:
  case Opcode::launch:
    throw InternalError("LLVM emitter: program-level operation in @" + function_.name);
  default:
    return value_operation(at);
  }
}

// ---- control ------------------------------------------------------------------------------------

/// Starts the body of a loop: a phi for each register that the body assigns and that has a value.
void LlvmBody::open_header(Region& region) {
  builder_.SetInsertPoint(region.body);
  for (uint32_t reg : assigned_.at(region.at)) {
    Value* before = registers_[reg];
    llvm::PHINode* phi = nullptr;
    if (before != nullptr) {
      phi = builder_.CreatePHI(before->getType(), 2);
      phi->addIncoming(before, region.before);
      registers_[reg] = phi;
    }
    region.before_values.push_back(before);
    region.phis.push_back(phi);
  }
}

void LlvmBody::begin_for(uint32_t at) {
  const ir::Op& op = function_.ops[at];
  if (!gpu_ && op.operand[0] != ir::kImmediate && !shape(op.operand[0]).is_uniform())
    refuse(op, "its limit can differ from lane to lane of the CPU's vectors",
           "give the kernel blocks of one thread along x");
  Region region;
  region.at = at;
  region.limit = op.operand[0] == ir::kImmediate
                     ? builder_.getInt32(static_cast<uint32_t>(op.immediate))
                     : raw(op.operand[0]);
  region.before = builder_.GetInsertBlock();
  region.body = block("for");
  region.after = block("for.after");
  builder_.CreateCondBr(builder_.CreateICmpSGT(region.limit, builder_.getInt32(0)), region.body,
                        region.after);
  open_header(region);
  region.induction = builder_.CreatePHI(builder_.getInt32Ty(), 2);
  region.induction->addIncoming(builder_.getInt32(0), region.before);
  set(op.result.id, region.induction, LaneShape::make_uniform());
  open_.push_back(std::move(region));
}

void LlvmBody::begin_loop(uint32_t at) {
  Region region;
  region.at = at;
  region.before = builder_.GetInsertBlock();
  region.body = block("loop");
  region.after = block("loop.after");
  builder_.CreateBr(region.body);
  open_header(region);
  open_.push_back(std::move(region));
}

void LlvmBody::end_loop(Region& region, Value* again) {
  llvm::BasicBlock* latch = builder_.GetInsertBlock();
  builder_.CreateCondBr(again, region.body, region.after);
  builder_.SetInsertPoint(region.after);
  const std::vector<uint32_t>& assigned = assigned_.at(region.at);
  for (size_t i = 0; i < assigned.size(); ++i) {
    const uint32_t reg = assigned[i];
    if (region.phis[i] != nullptr)
      region.phis[i]->addIncoming(registers_[reg], latch);
    if (region.induction == nullptr)
      continue; // the body ran: its last values hold
    if (region.phis[i] == nullptr) {
      registers_[reg] = nullptr; // assigned only if the body ran
      continue;
    }
    llvm::PHINode* phi = builder_.CreatePHI(region.phis[i]->getType(), 2);
    phi->addIncoming(region.before_values[i], region.before);
    phi->addIncoming(registers_[reg], latch);
    registers_[reg] = phi;
  }
}

void LlvmBody::begin_if(uint32_t at) {
  Region region;
  region.at = at;
  Value* condition = uniform_condition(at);
  region.before = builder_.GetInsertBlock();
  region.body = block("then");
  region.other = block("else");
  region.after = block("endif");
  builder_.CreateCondBr(condition, region.body, region.other);
  for (uint32_t reg : assigned_.at(at))
    region.before_values.push_back(registers_[reg]);
  builder_.SetInsertPoint(region.body);
  open_.push_back(std::move(region));
}

void LlvmBody::else_mark() {
  Region& region = open_.back();
  region.in_else = true;
  region.then_end = builder_.GetInsertBlock();
  builder_.CreateBr(region.after);
  const std::vector<uint32_t>& assigned = assigned_.at(region.at);
  for (size_t i = 0; i < assigned.size(); ++i) {
    region.then_values.push_back(registers_[assigned[i]]);
    registers_[assigned[i]] = region.before_values[i];
  }
  builder_.SetInsertPoint(region.other);
}

void LlvmBody::close(uint32_t at) {
  if (open_.empty())
    throw InternalError(
        fmt::format("LLVM emitter: `end` number {} of @{} closes nothing", at, function_.name));
  if (open_.back().limit != nullptr) {
    Region region = std::move(open_.back());
    open_.pop_back();
    const auto step =
        static_cast<uint32_t>(static_cast<uint64_t>(function_.ops[region.at].immediate) >> 32);
    // With step 1 the sum is at most the limit, so it cannot overflow.
    Value* next =
        builder_.CreateAdd(region.induction, builder_.getInt32(step), "", false, step == 1);
    region.induction->addIncoming(next, builder_.GetInsertBlock());
    return end_loop(region, builder_.CreateICmpSLT(next, region.limit));
  }
  if (!open_.back().in_else)
    else_mark();
  Region region = std::move(open_.back());
  open_.pop_back();
  llvm::BasicBlock* else_end = builder_.GetInsertBlock();
  builder_.CreateBr(region.after);
  builder_.SetInsertPoint(region.after);
  const std::vector<uint32_t>& assigned = assigned_.at(region.at);
  for (size_t i = 0; i < assigned.size(); ++i) {
    Value* then_value = region.then_values[i];
    Value*& now = registers_[assigned[i]];
    if (then_value == nullptr || now == nullptr) {
      now = nullptr; // assigned on one side only
    } else if (then_value != now) {
      llvm::PHINode* phi = builder_.CreatePHI(now->getType(), 2);
      phi->addIncoming(then_value, region.then_end);
      phi->addIncoming(now, else_end);
      now = phi;
    }
  }
}

void LlvmBody::return_void() {
  if (out_->getReturnType()->isVoidTy())
    builder_.CreateRetVoid();
  else
    builder_.CreateRet(builder_.getInt32(0));
  builder_.SetInsertPoint(block("unreached"));
}

void LlvmBody::call_function(uint32_t callee, uint32_t first, uint32_t count) {
  llvm::Function* target = emitter_.declare(callee);
  llvm::SmallVector<Value*, 16> arguments;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t reg = function_.pool[first + i];
    Value* value = raw(reg);
    if (!gpu_)
      value = in_shape(value, shape(reg), emitter_.lanes().shape(callee, i));
    arguments.push_back(value);
  }
  if (!gpu_ && emitter_.uses_special(callee))
    arguments.append(std::begin(indices_), std::end(indices_));
  llvm::CallInst* made = builder_.CreateCall(target, arguments);
  made->setCallingConv(target->getCallingConv());
}

void LlvmBody::call(const ir::Op& op) {
  if (op.code == Opcode::call)
    return call_function(op.operand[0], op.operand[1], op.operand[2]);
  if (!gpu_ && !shape(op.operand[0]).is_uniform())
    refuse(op, "its index can differ from lane to lane of the CPU's vectors",
           "give the kernel blocks of one thread along x");
  const std::span<const uint32_t> targets = ir::callees(function_, op);
  uint32_t first = op.operand[1] + 1 + static_cast<uint32_t>(targets.size());
  const uint32_t count = function_.pool[first++];
  llvm::BasicBlock* after = block("switch.after");
  llvm::SwitchInst* choice =
      builder_.CreateSwitch(raw(op.operand[0]), after, static_cast<unsigned>(targets.size()));
  // A function named several times has one call.
  std::map<uint32_t, llvm::BasicBlock*> blocks;
  for (uint32_t i = 0; i < targets.size(); ++i) {
    llvm::BasicBlock*& made = blocks[targets[i]];
    if (made == nullptr) {
      made = block("case");
      builder_.SetInsertPoint(made);
      call_function(targets[i], first, count);
      builder_.CreateBr(after);
    }
    choice->addCase(builder_.getInt32(i), made);
  }
  builder_.SetInsertPoint(after);
}

} // namespace sparsertc
