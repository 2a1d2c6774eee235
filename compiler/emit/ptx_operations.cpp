// The table's operations, one line each where PTX has an instruction for them.
#include "compiler/emit/ptx_function.h"

namespace sparsertc {

using ir::Opcode;
using ir::Scalar;

void PtxFunctionPrinter::operation(const Op& op) {
  constexpr std::string_view kSpecials[] = {"%tid.x",   "%tid.y",   "%tid.z", "%ctaid.x",
                                            "%ctaid.y", "%ctaid.z", "%laneid"};
  switch (op.code) {
  case Opcode::constant:
    line({"mov", type_word(class_of(op.type))}, reg(op.result), literal(op.type, op.immediate));
    break;
  case Opcode::move:
    line({"mov", type_word(class_of(op.type))}, reg(op.result), reg(op.operand[0]));
    break;
  case Opcode::special:
    line({"mov.u32"}, reg(op.result), kSpecials[op.detail]);
    break;
  case Opcode::add:
    arithmetic(op, "add.", true);
    break;
  case Opcode::sub:
    arithmetic(op, "sub.", true);
    break;
  case Opcode::mul:
    arithmetic(op, op.type.is_integer() ? "mul.lo." : "mul.", true);
    break;
  case Opcode::fma:
    line({"fma.rn.", suffix_of(op.type)}, reg(op.result), reg(op.operand[0]),
         value_operand(op, 1, op.type), reg(op.operand[2]));
    break;
  case Opcode::div:
    line({"div.rn.", suffix_of(op.type)}, reg(op.result), reg(op.operand[0]),
         operand(op, 1, op.type));
    break;
  case Opcode::sqrt:
    line({"sqrt.rn.", suffix_of(op.type)}, reg(op.result), reg(op.operand[0]));
    break;
  case Opcode::divu:
    line({"div.u", suffix_of(op.type).substr(1)}, reg(op.result), reg(op.operand[0]),
         unsigned_operand(op, 1, op.type));
    break;
  case Opcode::remu:
    line({"rem.u", suffix_of(op.type).substr(1)}, reg(op.result), reg(op.operand[0]),
         unsigned_operand(op, 1, op.type));
    break;
  case Opcode::neg:
    line({"neg.", suffix_of(op.type)}, reg(op.result), reg(op.operand[0]));
    break;
  case Opcode::abs:
    line({"abs.", suffix_of(op.type)}, reg(op.result), reg(op.operand[0]));
    break;
  case Opcode::min:
    arithmetic(op, "min.", false);
    break;
  case Opcode::max:
    arithmetic(op, "max.", false);
    break;
  case Opcode::minu:
    line({"min.u", suffix_of(op.type).substr(1)}, reg(op.result), reg(op.operand[0]),
         unsigned_operand(op, 1, op.type));
    break;
  case Opcode::maxu:
    line({"max.u", suffix_of(op.type).substr(1)}, reg(op.result), reg(op.operand[0]),
         unsigned_operand(op, 1, op.type));
    break;
  case Opcode::bit_and:
    bitwise(op, "and.");
    break;
  case Opcode::bit_or:
    bitwise(op, "or.");
    break;
  case Opcode::bit_xor:
    bitwise(op, "xor.");
    break;
  case Opcode::bit_not:
    bitwise(op, "not.");
    break;
  case Opcode::shl:
    line({"shl", bits_of(class_of(op.type))}, reg(op.result), reg(op.operand[0]),
         unsigned_operand(op, 1, Scalar::i32));
    break;
  case Opcode::shr:
    line({"shr.u", suffix_of(op.type).substr(1)}, reg(op.result), reg(op.operand[0]),
         unsigned_operand(op, 1, Scalar::i32));
    break;
  case Opcode::sar:
    line({"shr.", suffix_of(op.type)}, reg(op.result), reg(op.operand[0]),
         unsigned_operand(op, 1, Scalar::i32));
    break;
  case Opcode::popc:
    line({"popc", bits_of(class_of(op.type))}, reg(op.result), reg(op.operand[0]));
    break;
  case Opcode::clz:
    line({"clz", bits_of(class_of(op.type))}, reg(op.result), reg(op.operand[0]));
    break;
  case Opcode::brev:
    line({"brev", bits_of(class_of(op.type))}, reg(op.result), reg(op.operand[0]));
    break;
  case Opcode::compare:
    compare(op);
    break;
  case Opcode::select:
    select(op);
    break;
  case Opcode::convert:
    convert(op);
    break;
  case Opcode::bitcast:
    bitcast(op);
    break;
  case Opcode::pack:
    begin({"mov.b32 "});
    body_.put(reg(op.result));
    body_.put(std::string_view(", {"));
    body_.put(reg(op.operand[0]));
    body_.put(std::string_view(", "));
    body_.put(reg(op.operand[1]));
    body_.put('}');
    end_line();
    break;
  case Opcode::low:
    begin({"mov.b32 {"});
    body_.put(reg(op.result));
    body_.put(std::string_view(", _}, "));
    body_.put(reg(op.operand[0]));
    end_line();
    break;
  case Opcode::high:
    begin({"mov.b32 {_, "});
    body_.put(reg(op.result));
    body_.put(std::string_view("}, "));
    body_.put(reg(op.operand[0]));
    end_line();
    break;

  case Opcode::address:
    line({"mov", bits_of(class_of(op.type))}, reg(op.result),
         std::string_view(context_.symbol_address[static_cast<size_t>(op.immediate)]));
    break;
  case Opcode::offset:
    pointer_offset(op);
    break;
  case Opcode::index:
    pointer_index(op);
    break;
  case Opcode::peer:
    line({"mapa.shared::cluster.u32"}, reg(op.result), reg(op.operand[0]),
         unsigned_operand(op, 1, Scalar::i32));
    break;

  case Opcode::load:
  case Opcode::load_ordered:
  case Opcode::store:
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
  case Opcode::shuffle:
  case Opcode::ballot:
  case Opcode::load_matrix:
  case Opcode::mma:
  case Opcode::mma_sparse:
    memory_operation(op);
    break;

  case Opcode::for_loop:
    for_loop(op);
    break;
  case Opcode::loop:
    regions_.push_back({Opcode::loop, next_label_++, 0, false, &op});
    place_label(regions_.back().label);
    break;
  case Opcode::while_end: {
    if (regions_.empty() || regions_.back().kind != Opcode::loop)
      malformed(op, "it closes no loop");
    const PtxText condition = reg(op.operand[0]);
    branch(&condition, false, regions_.back().label);
    regions_.pop_back();
    break;
  }
  case Opcode::if_begin: {
    regions_.push_back({Opcode::if_begin, next_label_++, 0, false, &op});
    const PtxText condition = reg(op.operand[0]);
    branch(&condition, true, regions_.back().label);
    break;
  }
  case Opcode::else_mark: {
    if (regions_.empty() || regions_.back().kind != Opcode::if_begin || regions_.back().end_used)
      malformed(op, "it belongs to no 'if'");
    Region& region = regions_.back();
    region.end_label = next_label_++;
    region.end_used = true;
    branch(nullptr, false, region.end_label);
    place_label(region.label);
    break;
  }
  case Opcode::end:
    end(op);
    break;
  case Opcode::call:
    call(op);
    break;
  case Opcode::switch_call:
    switch_call(op);
    break;
  case Opcode::return_void:
    line({"ret"});
    break;

  case Opcode::alloc:
  case Opcode::free:
  case Opcode::copy:
  case Opcode::launch:
    malformed(op, "it belongs to host functions");
  }
}

} // namespace sparsertc
