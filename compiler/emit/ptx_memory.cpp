// Memory, synchronisation, and what the threads of a warp do together.
#include "compiler/emit/ptx_function.h"

#include <fmt/format.h>

namespace sparsertc {

using ir::Atomic;
using ir::Cache;
using ir::Fragment;
using ir::Opcode;
using ir::Order;
using ir::Scalar;
using ir::Shuffle;
using ir::Space;
using ir::Type;

namespace {

constexpr std::string_view kOrders[] = {".relaxed.cta", ".relaxed.gpu", ".relaxed.sys",
                                        ".acquire.cta", ".acquire.gpu", ".acquire.sys",
                                        ".release.cta", ".release.gpu", ".release.sys"};

bool is_acquire(uint8_t order) {
  return order >= static_cast<uint8_t>(Order::acquire_block) &&
         order < static_cast<uint8_t>(Order::release_block);
}
bool is_release(uint8_t order) {
  return order >= static_cast<uint8_t>(Order::release_block);
}

} // namespace

void PtxFunctionPrinter::memory_operation(const Op& op) {
  switch (op.code) {
  case Opcode::load: {
    // Only global memory has caches to choose from.
    const bool global = op.type.space() == Space::device;
    const auto cache = static_cast<Cache>(op.detail);
    load(op, {"ld", space_suffix(op, op.type),
              global && cache == Cache::readonly    ? ".nc"
              : global && cache == Cache::streaming ? ".cs"
                                                    : ""});
    break;
  }
  case Opcode::store:
    store(op, {"st", space_suffix(op, op.type),
               op.type.space() == Space::device && static_cast<Cache>(op.detail) == Cache::streaming
                   ? ".cs"
                   : ""});
    break;
  case Opcode::load_ordered:
    if (is_release(op.detail) || op.type.space() == Space::constant)
      malformed(op, "a load is relaxed or acquires, from device or shared memory");
    load(op, {"ld", kOrders[op.detail], space_suffix(op, op.type)});
    break;
  case Opcode::store_ordered:
    if (is_acquire(op.detail))
      malformed(op, "a store is relaxed or releases");
    store(op, {"st", kOrders[op.detail], space_suffix(op, op.type)});
    break;
  case Opcode::atomic:
    atomic(op);
    break;
  case Opcode::compare_swap:
    compare_swap(op);
    break;
  case Opcode::fence: {
    // There is no weaker fence on all targets.
    constexpr std::string_view kScopes[] = {"cta", "gpu", "sys"};
    line({"fence.acq_rel.", kScopes[op.detail % 3]});
    break;
  }
  case Opcode::copy_async:
    copy_async(op);
    break;
  case Opcode::copy_commit:
    line({"cp.async.commit_group"});
    break;
  case Opcode::copy_wait:
    line({"cp.async.wait_group"}, PtxText::integer(op.immediate));
    break;
  case Opcode::barrier:
    barrier(op);
    break;
  case Opcode::shuffle:
    shuffle(op);
    break;
  case Opcode::ballot:
    line({"vote.sync.ballot.b32"}, reg(op.result), reg(op.operand[0]),
         std::string_view("0xffffffff"));
    break;
  case Opcode::mma:
    matrix_multiply(op, false);
    break;
  case Opcode::mma_sparse:
    matrix_multiply(op, true);
    break;
  default:
    malformed(op, "it is no operation on memory");
  }
}

std::string_view PtxFunctionPrinter::space_suffix(const Op& op, Type pointer) const {
  switch (pointer.space()) {
  case Space::device:
    return ".global";
  case Space::shared:
    return ".shared";
  case Space::constant:
    return ".const";
  case Space::host:
  case Space::none:
    break;
  }
  malformed(op, fmt::format("a kernel does not reach {}", to_string(pointer)));
}

/// "[%rd1+16]"; offsets beyond the 32 bits of an instruction are added first.
PtxText PtxFunctionPrinter::address_operand(const Op& op, uint32_t pointer, int64_t offset) {
  if (offset == static_cast<int32_t>(offset))
    return PtxText::address(reg(pointer), offset);
  if (class_of(function_->type_of(Reg{pointer})) != PtxClass::b64)
    malformed(op, "an offset of more than 32 bits into shared memory");
  const PtxText sum = scratch(PtxClass::b64);
  line({"add.s64"}, sum, reg(pointer), PtxText::integer(offset));
  return PtxText::address(sum, 0);
}

void PtxFunctionPrinter::load(const Op& op, const Mnemonic& mnemonic) {
  put_moved(op, true, mnemonic, op.result.id);
}

void PtxFunctionPrinter::store(const Op& op, const Mnemonic& mnemonic) {
  put_moved(op, false, mnemonic, op.operand[1]);
}

/// `op.width` elements from or to consecutive registers, in vectors of at most 16 bytes and four
/// registers. Eight elements of 16 bits go as four registers of 32.
void PtxFunctionPrinter::put_moved(const Op& op, bool is_load, const Mnemonic& mnemonic,
                                   uint32_t first) {
  const Type element = op.type.element();
  const uint32_t bytes = size_in_bytes(op.type.element());
  const std::string_view bits = bits_of(class_of(element));
  const auto access = [&](unsigned vector, std::string_view vector_bits, int64_t offset,
                          auto&& put_registers) {
    const PtxText address = address_operand(op, op.operand[0], op.immediate + offset);
    begin(mnemonic);
    body_.put(vector == 4 ? std::string_view(".v4") : std::string_view(vector == 2 ? ".v2" : ""));
    body_.put(vector_bits);
    body_.put(' ');
    if (!is_load) {
      body_.put(address);
      body_.put(std::string_view(", "));
    }
    put_registers();
    if (is_load) {
      body_.put(std::string_view(", "));
      body_.put(address);
    }
    end_line();
  };

  if (bytes == 2 && op.width == 8) {
    const PtxText packed[4] = {scratch(PtxClass::b32), scratch(PtxClass::b32),
                               scratch(PtxClass::b32), scratch(PtxClass::b32)};
    const auto move_pair = [&](unsigned i) {
      begin({"mov.b32 "});
      if (!is_load) {
        body_.put(packed[i]);
        body_.put(std::string_view(", "));
      }
      put_tuple(first + 2 * i, 2);
      if (is_load) {
        body_.put(std::string_view(", "));
        body_.put(packed[i]);
      }
      end_line();
    };
    if (!is_load)
      for (unsigned i = 0; i < 4; ++i)
        move_pair(i);
    access(4, ".b32", 0, [&] {
      for (unsigned i = 0; i < 4; ++i) {
        body_.put(i == 0 ? std::string_view("{") : std::string_view(", "));
        body_.put(packed[i]);
      }
      body_.put('}');
    });
    if (is_load)
      for (unsigned i = 0; i < 4; ++i)
        move_pair(i);
    return;
  }

  const unsigned vector = bytes == 8 ? 2 : 4;
  for (unsigned done = 0; done < op.width; done += vector) {
    const unsigned count = op.width - done < vector ? op.width - done : vector;
    access(count, bits, int64_t{done} * bytes, [&] {
      if (count == 1)
        body_.put(reg(first + done));
      else
        put_tuple(first + done, count);
    });
  }
}

void PtxFunctionPrinter::atomic(const Op& op) {
  const Scalar element = op.type.element();
  const auto which = static_cast<Atomic>(op.detail);
  const bool integer = Type(element).is_integer();
  const uint32_t bytes = size_in_bytes(element);
  std::string_view operation;
  switch (which) {
  case Atomic::add:
    if (half_of_pair(element) == Scalar::bf16 && context_.target.compute_capability < 90)
      refuse(op, "atomic addition of bf16 needs sm_90", "add in f32, or compile for sm_90");
    operation = element == Scalar::i32     ? ".add.u32"
                : element == Scalar::i64   ? ".add.u64"
                : element == Scalar::f32   ? ".add.f32"
                : element == Scalar::f64   ? ".add.f64"
                : element == Scalar::f16   ? ".add.noftz.f16"
                : element == Scalar::f16x2 ? ".add.noftz.f16x2"
                : element == Scalar::bf16  ? ".add.noftz.bf16"
                                           : ".add.noftz.bf16x2";
    break;
  case Atomic::min:
    operation = element == Scalar::i32 ? ".min.s32" : ".min.s64";
    break;
  case Atomic::max:
    operation = element == Scalar::i32 ? ".max.s32" : ".max.s64";
    break;
  case Atomic::bit_and:
    operation = bytes == 4 ? ".and.b32" : ".and.b64";
    break;
  case Atomic::bit_or:
    operation = bytes == 4 ? ".or.b32" : ".or.b64";
    break;
  case Atomic::exchange:
    operation = bytes == 4 ? ".exch.b32" : ".exch.b64";
    break;
  }
  if (which != Atomic::add && which != Atomic::exchange && !integer)
    refuse(op,
           fmt::format("{} of {} is for integers only", words_of(ir::DetailKind::atomic)[op.detail],
                       name_of(element)),
           "use compare_swap");
  if (which == Atomic::exchange && bytes == 2)
    refuse(op, "16 bits cannot be exchanged", "use compare_swap, or a wider element");
  const PtxText address = address_operand(op, op.operand[0], op.immediate);
  line({"atom.relaxed.gpu", space_suffix(op, op.type), operation}, reg(op.result), address,
       reg(op.operand[1]));
}

void PtxFunctionPrinter::compare_swap(const Op& op) {
  const PtxClass element = class_of(op.type.element());
  const std::string_view bits = bits_of(element);
  const PtxText address = address_operand(op, op.operand[0], op.immediate);
  begin({"atom", kOrders[op.detail], space_suffix(op, op.type)});
  body_.put(std::string_view(".cas"));
  body_.put(bits);
  body_.put(' ');
  body_.put(reg(op.result));
  body_.put(std::string_view(", "));
  body_.put(address);
  body_.put(std::string_view(", "));
  body_.put(reg(op.operand[1]));
  body_.put(std::string_view(", "));
  body_.put(reg(op.operand[2]));
  end_line();
}

void PtxFunctionPrinter::copy_async(const Op& op) {
  const auto to = static_cast<int32_t>(static_cast<uint64_t>(op.immediate));
  const auto from = static_cast<int32_t>(static_cast<uint64_t>(op.immediate) >> 32);
  const PtxText shared = PtxText::address(reg(op.operand[0]), to);
  const PtxText device = PtxText::address(reg(op.operand[1]), from);
  // Past the first-level cache, which takes only whole 16 bytes.
  const Mnemonic copy{op.width == 16 ? "cp.async.cg.shared.global" : "cp.async.ca.shared.global"};
  const PtxText bytes = PtxText::unsigned_integer(op.width);
  if (op.operand[2] == ir::kNoOperand)
    line(copy, shared, device, bytes);
  else
    line(copy, shared, device, bytes, reg(op.operand[2]));
}

void PtxFunctionPrinter::barrier(const Op& op) {
  if (op.operand[0] == ir::kNoOperand)
    return line({"bar.sync"}, '0');
  const auto number = static_cast<uint32_t>(op.immediate);
  const auto threads = static_cast<uint32_t>(static_cast<uint64_t>(op.immediate) >> 32);
  line({"bar.sync"},
       op.operand[0] == ir::kImmediate ? PtxText::unsigned_integer(number) : reg(op.operand[0]),
       PtxText::unsigned_integer(threads));
}

void PtxFunctionPrinter::shuffle(const Op& op) {
  constexpr std::string_view kModes[] = {"idx", "up", "down", "bfly"};
  // The last operand but one bounds the lane read: the warp's first for `up`, else its last.
  const bool up = static_cast<Shuffle>(op.detail) == Shuffle::up;
  line({"shfl.sync.", kModes[op.detail], ".b32"}, reg(op.result), reg(op.operand[0]),
       unsigned_operand(op, 1, Scalar::i32), std::string_view(up ? "0" : "31"),
       std::string_view("0xffffffff"));
}

// ---- matrix multiplication ----------------------------------------------------------------------

namespace {

struct FragmentShape {
  std::string_view words; ///< shape and types in PTX
  unsigned a, b;          ///< 32-bit registers of the operands
};
constexpr FragmentShape kFragments[] = {
    {".sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 ", 4, 2},
    {".sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 ", 4, 2},
    {".sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 ", 4, 2},
    {".sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 ", 4, 4},
    {".sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 ", 4, 4},
    {".sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32 ", 4, 4},
};

} // namespace

void PtxFunctionPrinter::matrix_multiply(const Op& op, bool sparse) {
  const bool sparse_shape = op.detail >= static_cast<uint8_t>(Fragment::m16n8k32_f16);
  if (sparse != sparse_shape)
    malformed(op, "the fragment's shape belongs to the other kind");
  const FragmentShape& shape = kFragments[op.detail];
  // tf32 numbers are f32 in the IR, but PTX wants untyped registers.
  std::array<PtxText, 4> inputs[2];
  for (unsigned side = 0; side < 2; ++side) {
    const uint32_t first = op.operand[side];
    const bool moves = class_of(function_->register_type[first]) == PtxClass::f32;
    for (unsigned i = 0; i < (side == 0 ? shape.a : shape.b); ++i) {
      inputs[side][i] = reg(first + i);
      if (moves) {
        inputs[side][i] = scratch(PtxClass::b32);
        line({"mov.b32"}, inputs[side][i], reg(first + i));
      }
    }
  }
  begin({"mma", sparse ? (context_.ptx_version >= 85 ? ".sp::ordered_metadata" : ".sp") : "",
         shape.words});
  put_tuple(op.result.id, 4);
  for (unsigned side = 0; side < 2; ++side)
    put_fragment(inputs[side], side == 0 ? shape.a : shape.b);
  body_.put(std::string_view(", "));
  put_tuple(op.operand[2], 4);
  if (sparse) {
    body_.put(std::string_view(", "));
    body_.put(reg(static_cast<uint32_t>(op.immediate)));
    body_.put(std::string_view(", "));
    body_.put(PtxText::unsigned_integer(static_cast<uint64_t>(op.immediate) >> 32));
  }
  end_line();
}

void PtxFunctionPrinter::put_fragment(const std::array<PtxText, 4>& registers, unsigned count) {
  body_.put(std::string_view(", {"));
  for (unsigned i = 0; i < count; ++i) {
    if (i != 0)
      body_.put(std::string_view(", "));
    body_.put(registers[i]);
  }
  body_.put('}');
}

} // namespace sparsertc
