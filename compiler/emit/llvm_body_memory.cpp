// Loads, stores and ordered accesses.
#include "compiler/emit/llvm_body.h"

#include "ir/error.h"

#include <numeric>

namespace sparsertc {

using ir::Opcode;
using ir::Scalar;
using llvm::Value;

namespace {

llvm::AtomicOrdering ordering_of(ir::Order order, bool is_load) {
  switch (order) {
  case ir::Order::relaxed_block:
  case ir::Order::relaxed_device:
  case ir::Order::relaxed_system:
    return llvm::AtomicOrdering::Monotonic;
  case ir::Order::acquire_block:
  case ir::Order::acquire_device:
  case ir::Order::acquire_system:
    return llvm::AtomicOrdering::Acquire;
  default:
    return is_load ? llvm::AtomicOrdering::Acquire : llvm::AtomicOrdering::Release;
  }
}

const char* scope_of(ir::Order order) {
  static constexpr const char* kScopes[] = {"block", "device", ""};
  return kScopes[static_cast<unsigned>(order) % 3];
}

} // namespace

Value* LlvmBody::address(const ir::Op& op, Value* pointer, int64_t more) {
  const int64_t bytes = op.immediate + more;
  if (bytes == 0)
    return pointer;
  return builder_.CreateGEP(builder_.getInt8Ty(), pointer,
                            builder_.getInt64(static_cast<uint64_t>(bytes)));
}

void LlvmBody::annotate(llvm::Instruction* instruction, const ir::Op& op) {
  if (static_cast<ir::Cache>(op.detail) == ir::Cache::readonly)
    instruction->setMetadata(llvm::LLVMContext::MD_invariant_load,
                             llvm::MDNode::get(builder_.getContext(), {}));
  else if (gpu_ && static_cast<ir::Cache>(op.detail) == ir::Cache::streaming)
    instruction->setMetadata(
        llvm::LLVMContext::MD_nontemporal,
        llvm::MDNode::get(builder_.getContext(),
                          {llvm::ConstantAsMetadata::get(builder_.getInt32(1))}));
}

// ---- host: one element a lane ----

void LlvmBody::load(const ir::Op& op) {
  const LaneShape from = shape(op.operand[0]);
  Value* pointer = raw(op.operand[0]);
  const Scalar element = op.type.element();
  const uint32_t size = ir::size_in_bytes(element);
  const llvm::Align align(size);
  llvm::Type* scalar = values_.scalar_type(element);
  llvm::Type* all = lanes_ == 1 ? scalar : llvm::FixedVectorType::get(scalar, lanes_);
  const uint32_t width = op.width;

  if (from.is_affine() && width > 1 && from.stride == int64_t{size} * width) {
    // The tuples of all lanes follow one another: load them together, then take them apart.
    llvm::Type* together = llvm::FixedVectorType::get(scalar, lanes_ * width);
    llvm::LoadInst* loaded = builder_.CreateAlignedLoad(together, address(op, pointer), align);
    annotate(loaded, op);
    for (uint32_t i = 0; i < width; ++i) {
      llvm::SmallVector<int, 64> picks;
      for (uint32_t lane = 0; lane < lanes_; ++lane)
        picks.push_back(static_cast<int>(lane * width + i));
      set(op.result.id + i, builder_.CreateShuffleVector(loaded, picks), LaneShape::make_varying());
    }
    return;
  }
  for (uint32_t i = 0; i < width; ++i) {
    const int64_t more = int64_t{size} * i;
    if (from.is_uniform()) {
      llvm::LoadInst* loaded =
          builder_.CreateAlignedLoad(scalar, address(op, pointer, more), align);
      annotate(loaded, op);
      set(op.result.id + i, loaded, LaneShape::make_uniform());
    } else if (from.is_affine() && from.stride == size) {
      llvm::LoadInst* loaded = builder_.CreateAlignedLoad(all, address(op, pointer, more), align);
      annotate(loaded, op);
      set(op.result.id + i, loaded, LaneShape::make_varying());
    } else {
      Value* gathered =
          builder_.CreateMaskedGather(all, address(op, spread(pointer, from), more), align);
      set(op.result.id + i, gathered, LaneShape::make_varying());
    }
  }
}

void LlvmBody::store(const ir::Op& op) {
  const LaneShape from = shape(op.operand[0]);
  Value* pointer = raw(op.operand[0]);
  const Scalar element = op.type.element();
  const uint32_t size = ir::size_in_bytes(element);
  const llvm::Align align(size);
  const uint32_t width = op.width;

  if (from.is_affine() && width > 1 && from.stride == int64_t{size} * width) {
    llvm::SmallVector<Value*, 8> parts;
    for (uint32_t i = 0; i < width; ++i)
      parts.push_back(vector(op.operand[1] + i));
    // width is a power of two: join pairs, then put the elements in order.
    while (parts.size() > 1) {
      const auto half = parts.size() / 2;
      llvm::SmallVector<Value*, 8> joined;
      for (size_t i = 0; i < half; ++i) {
        const auto length =
            llvm::cast<llvm::FixedVectorType>(parts[0]->getType())->getNumElements();
        llvm::SmallVector<int, 64> all(2 * length);
        std::iota(all.begin(), all.end(), 0);
        joined.push_back(builder_.CreateShuffleVector(parts[2 * i], parts[2 * i + 1], all));
      }
      parts = std::move(joined);
    }
    llvm::SmallVector<int, 64> order;
    for (uint32_t lane = 0; lane < lanes_; ++lane)
      for (uint32_t i = 0; i < width; ++i)
        order.push_back(static_cast<int>(i * lanes_ + lane));
    builder_.CreateAlignedStore(builder_.CreateShuffleVector(parts[0], order), address(op, pointer),
                                align);
    return;
  }
  for (uint32_t i = 0; i < width; ++i) {
    const uint32_t reg = op.operand[1] + i;
    const int64_t more = int64_t{size} * i;
    if (from.is_uniform()) // all lanes write one element: the last one's value stays
      builder_.CreateAlignedStore(extract(raw(reg), shape(reg), lanes_ - 1),
                                  address(op, pointer, more), align);
    else if (from.is_affine() && from.stride == size)
      builder_.CreateAlignedStore(vector(reg), address(op, pointer, more), align);
    else
      builder_.CreateMaskedScatter(vector(reg), address(op, spread(pointer, from), more), align);
  }
}

// ---- GPU: one thread ----

void LlvmBody::gpu_load(const ir::Op& op) {
  const Scalar element = op.type.element();
  llvm::Type* scalar = values_.scalar_type(element);
  const uint32_t size = ir::size_in_bytes(element);
  llvm::Type* type = op.width == 1 ? scalar : llvm::FixedVectorType::get(scalar, op.width);
  llvm::LoadInst* loaded = builder_.CreateAlignedLoad(type, address(op, raw(op.operand[0])),
                                                      llvm::Align(uint64_t{size} * op.width));
  annotate(loaded, op);
  if (op.width == 1)
    registers_[op.result.id] = loaded;
  else
    for (uint32_t i = 0; i < op.width; ++i)
      registers_[op.result.id + i] = builder_.CreateExtractElement(loaded, uint64_t{i});
}

void LlvmBody::gpu_store(const ir::Op& op) {
  const Scalar element = op.type.element();
  const uint32_t size = ir::size_in_bytes(element);
  Value* value = raw(op.operand[1]);
  if (op.width > 1) {
    Value* tuple =
        llvm::PoisonValue::get(llvm::FixedVectorType::get(values_.scalar_type(element), op.width));
    for (uint32_t i = 0; i < op.width; ++i)
      tuple = builder_.CreateInsertElement(tuple, raw(op.operand[1] + i), uint64_t{i});
    value = tuple;
  }
  annotate(builder_.CreateAlignedStore(value, address(op, raw(op.operand[0])),
                                       llvm::Align(uint64_t{size} * op.width)),
           op);
}

// ---- memory order ----

void LlvmBody::ordered(const ir::Op& op) {
  llvm::LLVMContext& context = builder_.getContext();
  if (op.code == Opcode::fence) {
    const auto order = static_cast<ir::Order>(op.detail);
    const llvm::AtomicOrdering ordering = ordering_of(order, false);
    llvm::SyncScope::ID scope = llvm::SyncScope::System;
    if (gpu_)
      scope = context.getOrInsertSyncScopeID(scope_of(order));
    if (ordering != llvm::AtomicOrdering::Monotonic) // a relaxed fence orders nothing
      builder_.CreateFence(llvm::AtomicOrdering::AcquireRelease, scope);
    return;
  }
  if (op.width != 1)
    refuse(op, "ordered accesses of more than one element have no LLVM form",
           "use width 1, or emit PTX directly");
  if (op.code == Opcode::atomic || op.code == Opcode::compare_swap) {
    const Scalar element = op.type.element();
    if (ir::size_in_bytes(element) < 4 || ir::Type(element).is_pair())
      refuse(op, "atomics of 16-bit elements and pairs have no LLVM form here",
             "use i32, i64, f32 or f64, or emit PTX directly");
  }
  const bool reads = op.code != Opcode::store_ordered;
  if (gpu_ || lanes_ == 1) {
    Value* value = op.operand[1] == ir::kNoOperand ? nullptr : raw(op.operand[1]);
    Value* other = op.code == Opcode::compare_swap ? raw(op.operand[2]) : nullptr;
    Value* result = ordered_lane(op, address(op, raw(op.operand[0])), value, other);
    if (reads)
      registers_[op.result.id] = result;
    return;
  }
  // One lane after the other, in order.
  Value* results = nullptr;
  if (reads)
    results = llvm::PoisonValue::get(
        emitter_.register_type(op.type.element(), LaneShape::make_varying()));
  Value* pointers = address(op, spread(raw(op.operand[0]), shape(op.operand[0])));
  for (uint32_t lane = 0; lane < lanes_; ++lane) {
    auto of_lane = [&](unsigned slot) {
      const uint32_t reg = op.operand[slot];
      return extract(raw(reg), shape(reg), lane);
    };
    Value* value = op.operand[1] == ir::kNoOperand ? nullptr : of_lane(1);
    Value* other = op.code == Opcode::compare_swap ? of_lane(2) : nullptr;
    Value* result =
        ordered_lane(op, builder_.CreateExtractElement(pointers, uint64_t{lane}), value, other);
    if (reads)
      results = builder_.CreateInsertElement(results, result, uint64_t{lane});
  }
  if (reads)
    set(op.result.id, results, LaneShape::make_varying());
}

Value* LlvmBody::ordered_lane(const ir::Op& op, Value* pointer, Value* value, Value* replacement) {
  const Scalar element = op.type.element();
  llvm::Type* type = values_.scalar_type(element);
  const llvm::Align align(ir::size_in_bytes(element));
  llvm::LLVMContext& context = builder_.getContext();
  auto scope = [&](const char* name) {
    return gpu_ ? context.getOrInsertSyncScopeID(name)
                : static_cast<llvm::SyncScope::ID>(llvm::SyncScope::System);
  };
  const auto order = static_cast<ir::Order>(op.detail);
  switch (op.code) {
  case Opcode::load_ordered: {
    llvm::LoadInst* loaded = builder_.CreateAlignedLoad(type, pointer, align);
    loaded->setAtomic(ordering_of(order, true), scope(scope_of(order)));
    return loaded;
  }
  case Opcode::store_ordered: {
    llvm::StoreInst* stored = builder_.CreateAlignedStore(value, pointer, align);
    llvm::AtomicOrdering ordering = ordering_of(order, false);
    if (ordering == llvm::AtomicOrdering::Acquire)
      throw InternalError("LLVM emitter: a store with acquire order in @" + function_.name);
    stored->setAtomic(ordering, scope(scope_of(order)));
    return nullptr;
  }
  case Opcode::compare_swap: {
    llvm::Type* bits = builder_.getIntNTy(type->getScalarSizeInBits());
    const llvm::AtomicOrdering success = ordering_of(order, false);
    const llvm::AtomicOrdering failure = success == llvm::AtomicOrdering::Acquire
                                             ? llvm::AtomicOrdering::Acquire
                                             : llvm::AtomicOrdering::Monotonic;
    Value* both = builder_.CreateAtomicCmpXchg(pointer, builder_.CreateBitCast(value, bits),
                                               builder_.CreateBitCast(replacement, bits), align,
                                               success, failure, scope(scope_of(order)));
    return builder_.CreateBitCast(builder_.CreateExtractValue(both, 0), type);
  }
  default:
    break;
  }
  using B = llvm::AtomicRMWInst::BinOp;
  const bool is_float = ir::Type(element).is_float();
  B operation = B::Xchg;
  switch (static_cast<ir::Atomic>(op.detail)) {
  case ir::Atomic::add:
    operation = is_float ? B::FAdd : B::Add;
    break;
  case ir::Atomic::min:
    operation = B::Min;
    break;
  case ir::Atomic::max:
    operation = B::Max;
    break;
  case ir::Atomic::bit_and:
    operation = B::And;
    break;
  case ir::Atomic::bit_or:
    operation = B::Or;
    break;
  case ir::Atomic::exchange:
    break;
  }
  if (is_float && operation != B::FAdd && operation != B::Xchg)
    refuse(op, "only add and exchange work on floating-point elements", "use an integer type");
  return builder_.CreateAtomicRMW(operation, pointer, value, align, llvm::AtomicOrdering::Monotonic,
                                  scope("device"));
}

} // namespace sparsertc
