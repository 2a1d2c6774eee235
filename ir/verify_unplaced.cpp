// FunctionVerifier: buffers without a place (`any`), which the pass `place` must be able to follow.
#include "ir/function_verifier.h"
#include "ir/operands.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc::ir {
namespace {

bool is_any(Type type) {
  return type.space() == Space::any;
}

} // namespace

void FunctionVerifier::unplaced() {
  if (function_.is_sequential()) {
    at_ = kNoOperand;
    for (uint32_t i = 0; i < function_.parameter_count; ++i)
      if (type(i).is_pointer() && !is_any(type(i)))
        report(fmt::format("a function with 'any' parameters may run on either side, but {} is {}; "
                           "write 'any', or give every parameter its memory",
                           name(i), to_string(type(i))));
    for (at_ = 0; at_ < function_.ops.size(); ++at_)
      sequential_only(function_.ops[at_]);
  } else if (std::any_of(function_.register_type.begin(), function_.register_type.end(), is_any)) {
    whole_buffers();
  }
}

/// What may run on the host as well as in one thread of the device: no program-level operation.
void FunctionVerifier::sequential_only(const Op& op) {
  switch (op.code) {
  case Opcode::alloc:
  case Opcode::free:
  case Opcode::copy:
  case Opcode::launch:
    report(fmt::format("a function with 'any' parameters does sequential work only; '{}' belongs "
                       "to its caller, or give the parameters their memory",
                       info(op.code).text));
    return;
  default:
    break;
  }
  if (op.type.is_pointer() && !is_any(op.type))
    report(fmt::format("a function with 'any' parameters touches no {} memory",
                       name_of(op.type.space())));
  for (uint32_t callee : callees(function_, op))
    if (const Function& called = module_.functions[callee];
        called.kind == FunctionKind::host && !called.is_sequential())
      report(fmt::format("a function with 'any' parameters calls only such functions, and @{} is "
                         "none",
                         called.name));
}

/// In a program a buffer without a place is one register, assigned by its `alloc`, used as a whole
/// and inside the block that allocates it.
void FunctionVerifier::whole_buffers() {
  std::vector<uint8_t> made(function_.register_type.size());
  std::vector<std::vector<uint32_t>> open(1); ///< buffers that each open block allocated
  std::vector<uint8_t> visible(made.size());
  const auto close = [&] {
    for (uint32_t reg : open.back())
      visible[reg] = 0;
    open.pop_back();
  };
  for (at_ = 0; at_ < function_.ops.size(); ++at_) {
    const Op& op = function_.ops[at_];
    const Form form = info(op.code).form;
    if (form == Form::close || form == Form::while_end || form == Form::else_mark)
      close();
    if (form == Form::open || form == Form::for_loop || form == Form::if_begin ||
        form == Form::else_mark)
      open.emplace_back();
    visit_reads(function_, op, [&](Reg first, uint32_t count) {
      for (uint32_t reg = first.id; reg < first.id + count; ++reg)
        if (is_any(type(reg))) {
          buffer_use(op, reg);
          if (made[reg] != 0 && visible[reg] == 0)
            report(fmt::format("{} is used outside of the block that allocates it; allocate it "
                               "before that block",
                               name(reg)));
        }
    });
    if (op.code == Opcode::return_void && at_ + 1 != function_.ops.size())
      report("a function with buffers without a place returns at its end only, so that they can be "
             "freed");
    if (result_count(op) != 1 || !is_any(type(op.result.id)))
      continue;
    if (op.code != Opcode::alloc)
      report(fmt::format("'{}' cannot make {}: a buffer without a place is used as a whole, by the "
                         "name that 'alloc' gave it",
                         info(op.code).text, name(op.result.id)));
    else if (made[op.result.id] != 0)
      report(fmt::format("{} names two buffers without a place; give each its own name",
                         name(op.result.id)));
    made[op.result.id] = 1;
    visible[op.result.id] = 1;
    open.back().push_back(op.result.id);
  }
}

void FunctionVerifier::buffer_use(const Op& op, uint32_t reg) {
  switch (op.code) {
  case Opcode::alloc:
  case Opcode::free:
  case Opcode::copy:
  case Opcode::load:
  case Opcode::store:
  case Opcode::call:
  case Opcode::switch_call:
  case Opcode::launch:
    return;
  default:
    // What makes another such pointer is reported at its result.
    if (result_count(op) != 1 || !is_any(type(op.result.id)))
      report(fmt::format("'{}' cannot use {}, a buffer without a place", info(op.code).text,
                         name(reg)));
  }
}

} // namespace sparsertc::ir
