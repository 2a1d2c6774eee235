// FunctionVerifier: which code may touch which memory, and constant addresses.
#include "ir/function_verifier.h"
#include "ir/operands.h"

#include <fmt/format.h>

#include <bit>

namespace sparsertc::ir {
namespace {

constexpr uint32_t kMostAccessBytes = 16;

bool is_thread_op(Opcode code) {
  switch (code) {
  case Opcode::special:
  case Opcode::load_ordered:
  case Opcode::store_ordered:
  case Opcode::atomic:
  case Opcode::compare_swap:
  case Opcode::fence:
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
    return true;
  default:
    return false;
  }
}

bool is_program_op(Opcode code) {
  return code == Opcode::alloc || code == Opcode::free || code == Opcode::copy ||
         code == Opcode::launch;
}

} // namespace

void FunctionVerifier::where_allowed(const Op& op) {
  const std::string_view word = info(op.code).text;
  if (is_host() && is_thread_op(op.code)) {
    report(fmt::format("'{}' exists only in kernels and funcs", word));
    return;
  }
  if (!is_host() && is_program_op(op.code)) {
    report(fmt::format("'{}' exists only in host functions", word));
    return;
  }
  if (function_.cpu && op.code == Opcode::launch)
    report("a cpu function launches nothing");
  if (op.type.is_pointer()) {
    const Space space = op.type.space();
    const bool access = info(op.code).form == Form::load || info(op.code).form == Form::store;
    if (is_host() &&
        (space == Space::shared || space == Space::constant || space == Space::cluster))
      report(fmt::format("host functions cannot touch {} memory", name_of(space)));
    else if (is_host() && access && space == Space::device)
      report(fmt::format("host code cannot {} one element of device memory; copy the array to host "
                         "memory with 'copy'",
                         op.code == Opcode::load ? "read" : "write"));
    else if (!is_host() && space == Space::host)
      report("kernels and funcs cannot touch host memory; copy the array to device memory with "
             "'copy' in a host function");
    else if (!is_host() && space == Space::any)
      report("in kernels and funcs every pointer says its memory; 'any' is for host functions");
    else if (function_.cpu && space == Space::any)
      report("a cpu function's arrays are in host memory; write 'host' instead of 'any'");
    if (function_.cpu && op.code == Opcode::alloc && space != Space::host && space != Space::any)
      report("a cpu function allocates host memory only");
    if ((op.code == Opcode::alloc || op.code == Opcode::free) &&
        size_in_bytes(op.type.element()) == 0)
      report(fmt::format("{} has no form in memory", name_of(op.type.element())));
  }
}

/// The symbol that a pointer comes from by way of single assignments, or null.
const FunctionVerifier::Origin* FunctionVerifier::origin_of(uint32_t pointer) const {
  if (origins_.empty() || origins_[pointer].symbol == UINT32_MAX)
    return nullptr;
  return &origins_[pointer];
}

/// Learns where the result of pointer arithmetic points.
void FunctionVerifier::follow(const Op& op) {
  if (origins_.empty() || !op.type.is_pointer() || result_count(op) != 1 ||
      info(op.code).result != ResultRule::same || assignments_[op.result.id] != 1)
    return;
  Origin& result = origins_[op.result.id];
  switch (op.code) {
  case Opcode::address:
    result = {static_cast<uint32_t>(op.immediate), true, 0};
    break;
  case Opcode::move:
    result = origins_[op.operand[0]];
    break;
  case Opcode::offset:
    result = origins_[op.operand[0]];
    if (op.operand[1] != kImmediate ||
        __builtin_add_overflow(result.offset, op.immediate, &result.offset))
      result.exact = false;
    break;
  case Opcode::index:
    result = origins_[op.operand[0]];
    result.exact = false;
    break;
  default:
    break;
  }
}

/// An access of `bytes` bytes at pointer + offset.
void FunctionVerifier::address_range(Type pointer_type, uint32_t pointer, int64_t offset,
                                     uint32_t bytes) {
  const Origin* origin = origin_of(pointer);
  if (origin == nullptr || !origin->exact) {
    const uint32_t size = size_in_bytes(pointer_type.element());
    if (size != 0 && offset % static_cast<int64_t>(size) != 0)
      report(fmt::format("the offset {} is not a multiple of {}, the size of {}", offset, size,
                         name_of(pointer_type.element())));
    return;
  }
  const Symbol& symbol = module_.symbols[origin->symbol];
  const uint64_t size = symbol.count * size_in_bytes(symbol.type.element());
  int64_t at = 0;
  if (__builtin_add_overflow(origin->offset, offset, &at) || at < 0 ||
      static_cast<uint64_t>(at) > size || size - static_cast<uint64_t>(at) < bytes) {
    report(fmt::format(
        "this access of {} byte{} at @{} {} {} lies outside of the symbol's {} bytes", bytes,
        bytes == 1 ? "" : "s", symbol.name, at < 0 ? '-' : '+',
        at < 0 ? uint64_t{0} - static_cast<uint64_t>(at) : static_cast<uint64_t>(at), size));
    return;
  }
  if (at % static_cast<int64_t>(bytes) != 0)
    report(
        fmt::format("this access of {} bytes at @{} + {} is misaligned", bytes, symbol.name, at));
  else if (symbol.alignment < bytes)
    report(fmt::format("this access of {} bytes needs an alignment of {}, but @{} has {}", bytes,
                       bytes, symbol.name, symbol.alignment));
}

void FunctionVerifier::access(const Op& op) {
  const bool is_load = info(op.code).form == Form::load;
  const Space space = op.type.space();
  const uint32_t size = size_in_bytes(op.type.element());
  if (size == 0) {
    report(fmt::format("{} has no form in memory", name_of(op.type.element())));
    return;
  }
  if (!std::has_single_bit(unsigned{op.width}) || op.width * size > kMostAccessBytes) {
    report(fmt::format("an access moves 1, 2, 4 or 8 elements and at most {} bytes, not {} x {}",
                       kMostAccessBytes, op.width, name_of(op.type.element())));
    return;
  }
  if (!is_load && space == Space::constant)
    report("constant memory is read-only");
  if (!is_load && space == Space::cluster)
    report("another block's shared memory is only read; a block writes its own");
  const Origin* origin = origin_of(op.operand[0]);
  if (!is_load && space == Space::device && origin != nullptr)
    report(fmt::format("@{} is read-only, as all initialised device symbols",
                       module_.symbols[origin->symbol].name));
  if (op.code == Opcode::load || op.code == Opcode::store) {
    const auto cache = static_cast<Cache>(op.detail);
    if (cache != Cache::normal && space != Space::device)
      report(fmt::format("'{}' is for device memory only", words_of(DetailKind::cache)[op.detail]));
    if (cache == Cache::readonly && !is_load)
      report("'readonly' is for loads only");
  }
  address_range(op.type, op.operand[0], op.immediate, op.width * size);
}

void FunctionVerifier::ordered(const Op& op) {
  const bool is_load = info(op.code).form == Form::load;
  const Space space = op.type.space();
  const uint32_t size = size_in_bytes(op.type.element());
  if (op.width != 1)
    report("an ordered access moves one element");
  if (size < 4 || op.type.element() == Scalar::f16x2 || op.type.element() == Scalar::bf16x2)
    report(fmt::format("ordered accesses are for i32, i64, f32 and f64, not {}",
                       name_of(op.type.element())));
  if (space != Space::device && space != Space::shared)
    report("ordered accesses are for device and shared memory");
  const auto order = static_cast<Order>(op.detail);
  const bool acquire = order >= Order::acquire_block && order <= Order::acquire_system;
  const bool release = order >= Order::release_block;
  if (is_load ? release : acquire)
    report(is_load ? "a load cannot release" : "a store cannot acquire");
}

void FunctionVerifier::atomic(const Op& op) {
  const Scalar element = op.type.element();
  const bool integer = element == Scalar::i32 || element == Scalar::i64;
  const bool wide_float = element == Scalar::f32 || element == Scalar::f64;
  if (op.type.space() != Space::device && op.type.space() != Space::shared)
    report("atomics are for device and shared memory");
  bool legal = integer;
  if (op.code == Opcode::atomic && (op.detail == static_cast<uint8_t>(Atomic::add) ||
                                    op.detail == static_cast<uint8_t>(Atomic::exchange)))
    legal = integer || wide_float;
  if (!legal)
    report(
        fmt::format("there is no '{}' of this kind for {}", info(op.code).text, name_of(element)));
  const Origin* origin = origin_of(op.operand[0]);
  if (op.type.space() == Space::device && origin != nullptr)
    report(fmt::format("@{} is read-only, as all initialised device symbols",
                       module_.symbols[origin->symbol].name));
  if (size_in_bytes(element) != 0)
    address_range(op.type, op.operand[0], op.immediate, size_in_bytes(element));
}

/// `copy` of whole arrays in and between host and device memory.
void FunctionVerifier::copies(const Op& op) {
  const Type to = type(op.operand[0]);
  const Type from = type(op.operand[1]);
  if (to.is_none() || from.is_none())
    return;
  const auto legal = [](Type pointer) {
    return pointer.space() == Space::host || pointer.space() == Space::device ||
           pointer.space() == Space::any;
  };
  if (!legal(to) || !legal(from))
    report("'copy' takes two pointers to host or device memory");
  else if (to.element() != from.element())
    report(fmt::format("'copy' needs one element type, not {} and {}", name_of(to.element()),
                       name_of(from.element())));
  if (const Origin* origin = origin_of(op.operand[0]); origin != nullptr)
    report(fmt::format("@{} is read-only, as all initialised device symbols",
                       module_.symbols[origin->symbol].name));
  if (function_.cpu && from.space() == Space::device)
    report("a cpu function has its inputs in host memory; copy them before the call");
  if (op.operand[2] == kImmediate && op.immediate < 0)
    report("the number of elements is not negative");
}

void FunctionVerifier::memory(const Op& op) {
  switch (op.code) {
  case Opcode::load:
  case Opcode::store:
    access(op);
    break;
  case Opcode::load_matrix:
    if (op.type.space() != Space::shared || op.width != 4 ||
        (op.type.element() != Scalar::f16x2 && op.type.element() != Scalar::bf16x2))
      report(fmt::format("'load_matrix' loads .v4 of f16x2 or bf16x2 from shared memory, not .v{} "
                         "of {}",
                         op.width, to_string(op.type)));
    access(op);
    break;
  case Opcode::load_ordered:
  case Opcode::store_ordered:
    access(op);
    ordered(op);
    break;
  case Opcode::atomic:
  case Opcode::compare_swap:
    atomic(op);
    break;
  case Opcode::copy_async: {
    const Type to = type(op.operand[0]);
    const Type from = type(op.operand[1]);
    if ((to.space() != Space::shared && !to.is_none()) ||
        (from.space() != Space::device && !from.is_none()))
      report(fmt::format("'copy_async' goes from device to shared memory, not from {} to {}",
                         to_string(from), to_string(to)));
    if (op.operand[2] != kNoOperand)
      type_of_operand(op, 2, Scalar::i32);
    if (op.width != 4 && op.width != 8 && op.width != 16) {
      report(fmt::format("'copy_async' copies 4, 8 or 16 bytes, not {}", op.width));
      break;
    }
    if (to.space() == Space::shared)
      address_range(to, op.operand[0], static_cast<int32_t>(low_half(op.immediate)), op.width);
    // With a byte count the source may be shorter than what is written.
    if (from.space() == Space::device && op.operand[2] == kNoOperand)
      address_range(from, op.operand[1], static_cast<int32_t>(high_half(op.immediate)), op.width);
    break;
  }
  case Opcode::offset:
    if (op.operand[1] == kImmediate && size_in_bytes(op.type.element()) != 0 &&
        op.immediate % static_cast<int64_t>(size_in_bytes(op.type.element())) != 0)
      report(fmt::format("the offset {} is not a multiple of {}, the size of {}", op.immediate,
                         size_in_bytes(op.type.element()), name_of(op.type.element())));
    break;
  case Opcode::alloc:
    if (op.operand[0] == kImmediate && op.immediate < 0)
      report("the number of elements is not negative");
    break;
  default:
    break;
  }
  follow(op);
}

} // namespace sparsertc::ir
