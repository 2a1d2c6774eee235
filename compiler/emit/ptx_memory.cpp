// Memory, synchronisation, and what the threads of a warp do together.
#include "compiler/emit/ptx_function.h"
#include "ir/operands.h"

#include <fmt/format.h>

namespace sparsertc {

using ir::Atomic;
using ir::Cache;
using ir::Fragment;
using ir::Opcode;
using ir::Scalar;
using ir::Shuffle;
using ir::Space;
using ir::Type;

namespace {

constexpr std::string_view kOrders[] = {".relaxed.cta", ".relaxed.gpu", ".relaxed.sys",
                                        ".acquire.cta", ".acquire.gpu", ".acquire.sys",
                                        ".release.cta", ".release.gpu", ".release.sys"};

/// Shape and types as PTX writes them, by fragment.
constexpr std::string_view kFragments[] = {
    ".sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 ",
    ".sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 ",
    ".sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 ",
    ".sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 ",
    ".sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 ",
    ".sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32 ",
};

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
    load(op, {"ld", kOrders[op.detail], space_suffix(op, op.type)});
    break;
  case Opcode::store_ordered:
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
  case Opcode::cluster_barrier:
    // Releases and acquires, as the words' defaults are. Warps may meet from different code.
    line({"barrier.cluster.arrive"});
    line({"barrier.cluster.wait"});
    break;
  case Opcode::warp_barrier:
    line({"bar.warp.sync"}, std::string_view("0xffffffff"));
    break;
  case Opcode::shuffle:
    shuffle(op);
    break;
  case Opcode::ballot:
    line({"vote.sync.ballot.b32"}, reg(op.result), reg(op.operand[0]),
         std::string_view("0xffffffff"));
    break;
  case Opcode::load_matrix: {
    const PtxText address = address_operand(op, op.operand[0], op.immediate);
    begin({"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "});
    put_tuple(op.result.id, op.width);
    body_.put(std::string_view(", "));
    body_.put(address);
    end_line();
    break;
  }
  case Opcode::mma:
  case Opcode::mma_sparse:
    matrix_multiply(op);
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
  case Space::cluster:
    return ".shared::cluster";
  case Space::constant:
    return ".const";
  case Space::host:
  case Space::any:
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

/// `op.width` elements, at most 16 bytes, from or to consecutive registers. Eight elements of 16
/// bits go as four registers of 32, because vectors have at most four.
void PtxFunctionPrinter::put_moved(const Op& op, bool is_load, const Mnemonic& mnemonic,
                                   uint32_t first) {
  const bool packs = op.width == 8;
  const unsigned count = packs ? 4 : op.width;
  std::array<PtxText, 4> registers;
  for (unsigned i = 0; i < count; ++i)
    registers[i] = packs ? scratch(PtxClass::b32) : reg(first + i);
  const auto move_pairs = [&] {
    for (unsigned i = 0; i < 4; ++i) {
      begin({"mov.b32 "});
      if (!is_load) {
        body_.put(registers[i]);
        body_.put(std::string_view(", "));
      }
      put_tuple(first + 2 * i, 2);
      if (is_load) {
        body_.put(std::string_view(", "));
        body_.put(registers[i]);
      }
      end_line();
    }
  };
  if (packs && !is_load)
    move_pairs();

  const PtxText address = address_operand(op, op.operand[0], op.immediate);
  begin(mnemonic);
  body_.put(count == 4 ? std::string_view(".v4") : std::string_view(count == 2 ? ".v2" : ""));
  body_.put(packs ? std::string_view(".b32") : bits_of(class_of(op.type.element())));
  body_.put(' ');
  if (!is_load) {
    body_.put(address);
    body_.put(std::string_view(", "));
  }
  if (count == 1)
    body_.put(registers[0]);
  else
    put_registers(registers, count);
  if (is_load) {
    body_.put(std::string_view(", "));
    body_.put(address);
  }
  end_line();
  if (packs && is_load)
    move_pairs();
}

/// Relaxed, of device scope.
void PtxFunctionPrinter::atomic(const Op& op) {
  const Scalar element = op.type.element();
  const bool wide = size_in_bytes(element) == 8;
  std::string_view operation;
  switch (static_cast<Atomic>(op.detail)) {
  case Atomic::add:
    operation = element == Scalar::f32   ? ".add.f32"
                : element == Scalar::f64 ? ".add.f64"
                : wide                   ? ".add.u64"
                                         : ".add.u32";
    break;
  case Atomic::min:
    operation = wide ? ".min.s64" : ".min.s32";
    break;
  case Atomic::max:
    operation = wide ? ".max.s64" : ".max.s32";
    break;
  case Atomic::bit_and:
    operation = wide ? ".and.b64" : ".and.b32";
    break;
  case Atomic::bit_or:
    operation = wide ? ".or.b64" : ".or.b32";
    break;
  case Atomic::exchange:
    operation = wide ? ".exch.b64" : ".exch.b32";
    break;
  }
  const PtxText address = address_operand(op, op.operand[0], op.immediate);
  line({"atom.relaxed.gpu", space_suffix(op, op.type), operation}, reg(op.result), address,
       reg(op.operand[1]));
}

void PtxFunctionPrinter::compare_swap(const Op& op) {
  const PtxText address = address_operand(op, op.operand[0], op.immediate);
  begin({"atom", kOrders[op.detail], space_suffix(op, op.type)});
  body_.put(std::string_view(".cas"));
  body_.put(bits_of(class_of(op.type.element())));
  body_.put(' ');
  body_.put(reg(op.result));
  for (const PtxText& text : {address, reg(op.operand[1]), reg(op.operand[2])}) {
    body_.put(std::string_view(", "));
    body_.put(text);
  }
  end_line();
}

void PtxFunctionPrinter::copy_async(const Op& op) {
  const auto to = static_cast<int32_t>(ir::low_half(op.immediate));
  const auto from = static_cast<int32_t>(ir::high_half(op.immediate));
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
  // Warps may meet from different tiles' code; `bar.sync` promises one and the same instruction.
  if (op.operand[0] == ir::kNoOperand)
    return line({"barrier.sync"}, '0');
  line({"barrier.sync"},
       op.operand[0] == ir::kImmediate ? PtxText::unsigned_integer(ir::low_half(op.immediate))
                                       : reg(op.operand[0]),
       PtxText::unsigned_integer(ir::high_half(op.immediate)));
}

void PtxFunctionPrinter::shuffle(const Op& op) {
  constexpr std::string_view kModes[] = {"idx", "up", "down", "bfly"};
  // The last operand but one bounds the lane read: the warp's first for `up`, else its last.
  const bool up = static_cast<Shuffle>(op.detail) == Shuffle::up;
  line({"shfl.sync.", kModes[op.detail], ".b32"}, reg(op.result), reg(op.operand[0]),
       unsigned_operand(op, 1, Scalar::i32), std::string_view(up ? "0" : "31"),
       std::string_view("0xffffffff"));
}

void PtxFunctionPrinter::matrix_multiply(const Op& op) {
  const bool sparse = op.code == Opcode::mma_sparse;
  const ir::FragmentShape shape = shape_of(static_cast<Fragment>(op.detail));
  const unsigned counts[2] = {shape.a, shape.b};
  std::array<PtxText, 4> inputs[2];
  for (unsigned side = 0; side < 2; ++side)
    for (unsigned i = 0; i < counts[side]; ++i) {
      PtxText& input = inputs[side][i];
      input = reg(op.operand[side] + i);
      if (shape.input == Scalar::f32) { // tf32 comes in untyped registers
        input = scratch(PtxClass::b32);
        line({"mov.b32"}, input, reg(op.operand[side] + i));
      }
    }
  // Ordered metadata (PTX ISA 8.5) is what newer architectures are fast with.
  begin({"mma", sparse ? (context_.ptx_version >= 85 ? ".sp::ordered_metadata" : ".sp") : "",
         kFragments[op.detail]});
  put_tuple(op.result.id, ir::kFragmentResults);
  for (unsigned side = 0; side < 2; ++side) {
    body_.put(std::string_view(", "));
    put_registers(inputs[side], counts[side]);
  }
  body_.put(std::string_view(", "));
  put_tuple(op.operand[2], ir::kFragmentResults);
  if (sparse) {
    body_.put(std::string_view(", "));
    body_.put(reg(ir::low_half(op.immediate)));
    body_.put(std::string_view(", "));
    body_.put(PtxText::unsigned_integer(ir::high_half(op.immediate)));
  }
  end_line();
}

void PtxFunctionPrinter::put_registers(const std::array<PtxText, 4>& registers, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    body_.put(i == 0 ? std::string_view("{") : std::string_view(", "));
    body_.put(registers[i]);
  }
  body_.put('}');
}

} // namespace sparsertc
