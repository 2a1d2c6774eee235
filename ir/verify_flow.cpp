// FunctionVerifier: definite assignment over the structured control flow, and code after `return`.
#include "ir/function_verifier.h"
#include "ir/operands.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc::ir {

void FunctionVerifier::semantics() {
  const size_t registers = function_.register_type.size();
  assigned_.assign(registers, 0);
  fixed_.assign(registers, 0);
  std::fill_n(assigned_.begin(), function_.parameter_count, uint8_t{1});
  const bool symbols = std::any_of(function_.ops.begin(), function_.ops.end(),
                                   [](const Op& op) { return info(op.code).form == Form::symbol; });
  if (symbols) {
    origins_.assign(registers, Origin{});
    assignments_.assign(registers, 0);
    for (const Op& op : function_.ops)
      for (uint32_t i = 0; i < result_count(op); ++i)
        assignments_[op.result.id + i] =
            static_cast<uint8_t>(std::min(assignments_[op.result.id + i] + 1, 2));
  }
  for (at_ = 0; at_ < function_.ops.size(); ++at_) {
    const Op& op = function_.ops[at_];
    flow(op);
    types(op);
    where_allowed(op);
    memory(op);
  }
  if (is_host())
    unplaced();
}

void FunctionVerifier::read(uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; ++i) {
    if (assigned_[i] != 0)
      continue;
    report(fmt::format("{} is used before it is assigned on every path to here", name(i)));
    assigned_[i] = 1; // once is enough
    assigned_order_.push_back(i);
  }
}

void FunctionVerifier::assign(const Op& op) {
  const uint32_t count = result_count(op);
  for (uint32_t i = op.result.id; i < op.result.id + count; ++i) {
    if (i < function_.parameter_count)
      report(fmt::format("the parameter {} is assigned; copy it with 'move' first", name(i)));
    else if (fixed_[i] != 0)
      report(
          fmt::format("{} is assigned inside the 'for' that counts with it or up to it", name(i)));
    if (assigned_[i] == 0) {
      assigned_[i] = 1;
      assigned_order_.push_back(i);
    }
  }
}

/// Takes back the assignments since then.
void FunctionVerifier::forget(size_t assigned_before) {
  for (size_t i = assigned_before; i < assigned_order_.size(); ++i)
    assigned_[assigned_order_[i]] = 0;
  assigned_order_.resize(assigned_before);
}

void FunctionVerifier::else_block() {
  Block& block = blocks_.back();
  block.code = Opcode::else_mark;
  block.then_assigned.assign(assigned_order_.begin() +
                                 static_cast<std::ptrdiff_t>(block.assigned_before),
                             assigned_order_.end());
  block.then_ended = ended_;
  ended_ = false;
  forget(block.assigned_before);
}

void FunctionVerifier::close_block(Opcode closing) {
  Block block = std::move(blocks_.back());
  blocks_.pop_back();
  switch (block.code) {
  case Opcode::else_mark:
    if (block.then_ended) {
      // What comes next was reached through the second branch only.
    } else if (ended_) {
      forget(block.assigned_before);
      for (uint32_t reg : block.then_assigned) {
        assigned_[reg] = 1;
        assigned_order_.push_back(reg);
      }
    } else {
      std::vector<uint32_t> both;
      for (uint32_t reg : block.then_assigned)
        if (assigned_[reg] != 0)
          both.push_back(reg);
      forget(block.assigned_before);
      for (uint32_t reg : both) {
        assigned_[reg] = 1;
        assigned_order_.push_back(reg);
      }
    }
    ended_ = ended_ && block.then_ended;
    break;
  case Opcode::loop:
    if (ended_ && closing == Opcode::while_end)
      report("the condition of this loop is never reached: its body returns");
    break;
  default: // if without else, for: the body may not run
    forget(block.assigned_before);
    ended_ = false;
    break;
  }
  if (block.code == Opcode::for_loop) {
    const Op& head = function_.ops[block.op];
    --fixed_[head.result.id];
    if (head.operand[0] != kImmediate)
      --fixed_[head.operand[0]];
  }
}

void FunctionVerifier::flow(const Op& op) {
  const Form form = info(op.code).form;
  const bool closes = form == Form::close || form == Form::else_mark || form == Form::while_end;
  if (ended_ && !closes) {
    report("this operation is never reached: the code before it returns on every path");
    ended_ = false; // once is enough
  }
  visit_reads(function_, op, [&](Reg first, uint32_t count) { read(first.id, count); });
  const size_t before = assigned_order_.size();
  switch (form) {
  case Form::for_loop:
    if (high_half(op.immediate) == 0 || static_cast<int32_t>(high_half(op.immediate)) < 0)
      report("the step of a 'for' is at least 1");
    blocks_.push_back({Opcode::for_loop, at_, before, {}, false, false});
    assign(op);
    if (op.operand[0] != kImmediate && op.operand[0] == op.result.id)
      report("a 'for' cannot count up to its own register");
    ++fixed_[op.result.id];
    if (op.operand[0] != kImmediate)
      ++fixed_[op.operand[0]];
    break;
  case Form::open:
  case Form::if_begin:
    blocks_.push_back({op.code, at_, before, {}, false, false});
    break;
  case Form::else_mark:
    else_block();
    break;
  case Form::close:
  case Form::while_end:
    close_block(op.code);
    break;
  default:
    assign(op);
    if (op.code == Opcode::return_void)
      ended_ = true;
    break;
  }
}

} // namespace sparsertc::ir
