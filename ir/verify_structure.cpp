// FunctionVerifier: indices, operand slots, nesting.
#include "ir/function_verifier.h"
#include "ir/operands.h"
#include "ir/verify_cluster.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc::ir {
namespace {

bool is_register(uint32_t operand) {
  return operand != kNoOperand && operand != kImmediate;
}

} // namespace

FunctionVerifier::FunctionVerifier(const Module& module, const Function& function, Report report)
    : module_(module), function_(function), report_(std::move(report)) {}

std::string FunctionVerifier::name(uint32_t reg) {
  if (!names_)
    names_.emplace(function_);
  std::string text;
  names_->append(text, reg);
  return text;
}

bool FunctionVerifier::structure() {
  check_head();
  if (function_.ops.size() >= kNoOperand) {
    at_ = kNoOperand;
    report("the function is too long");
    return false;
  }
  for (at_ = 0; at_ < function_.ops.size(); ++at_)
    check_indices(function_.ops[at_]);
  if (sound_)
    check_nesting();
  return sound_;
}

void FunctionVerifier::check_head() {
  at_ = kNoOperand;
  constexpr uint32_t kMostThreads = 1024;
  constexpr uint32_t kMostThreadsZ = 64;
  constexpr uint32_t kMostRegisters = 255;
  if (function_.parameter_count > function_.register_type.size()) {
    report("there are more parameters than registers");
    sound_ = false;
    return;
  }
  if (function_.kind == FunctionKind::kernel) {
    const uint64_t threads = uint64_t{function_.block[0]} * function_.block[1] * function_.block[2];
    if (std::max({function_.block[0], function_.block[1], function_.block[2]}) > kMostThreads ||
        threads == 0 || threads > kMostThreads || function_.block[2] > kMostThreadsZ)
      report(fmt::format("a block has 1 to {} threads, at most {} along z, not {} x {} x {}",
                         kMostThreads, kMostThreadsZ, function_.block[0], function_.block[1],
                         function_.block[2]));
    uint64_t blocks = 1;
    for (uint32_t extent : function_.cluster)
      blocks = std::min<uint64_t>(blocks * extent, kMostClusterBlocks + 1);
    if (blocks == 0 || blocks > kMostClusterBlocks)
      report(fmt::format("a cluster has 1 to {} blocks, not {} x {} x {}", kMostClusterBlocks,
                         function_.cluster[0], function_.cluster[1], function_.cluster[2]));
    if (function_.max_registers > kMostRegisters)
      report(fmt::format("a thread has at most {} registers", kMostRegisters));
  }
  if (function_.cpu && function_.kind != FunctionKind::host)
    report("only host functions can be marked cpu");
  if (function_.external && (function_.kind == FunctionKind::device || function_.cpu))
    report("only kernels and host functions that are not cpu can be external");
  if (function_.external && !function_.ops.empty())
    report("an external function has no operations");
  for (uint32_t i = 0; i < function_.parameter_count; ++i) {
    const Type parameter = type(i);
    if (function_.cpu && parameter.space() == Space::any)
      report(fmt::format("a cpu function's arrays are in host memory; write {} for {}",
                         to_string(Type::pointer(Space::host, parameter.element())), name(i)));
    const Space space = parameter.space();
    if (function_.external && parameter.is_pointer() && space != Space::device)
      report(fmt::format("an external function's arrays are in device memory, not {} ({})",
                         name_of(space), name(i)));
    bool legal = !parameter.is_none();
    switch (function_.kind) {
    case FunctionKind::device:
      legal = legal && space != Space::host && space != Space::any;
      break;
    case FunctionKind::kernel:
      legal = legal && (space == Space::device ||
                        (parameter.is_scalar() && size_in_bytes(parameter.element()) >= 4 &&
                         !parameter.is_pair()));
      break;
    case FunctionKind::host:
      legal = legal && (parameter.is_scalar() || space == Space::host || space == Space::device ||
                        space == Space::any);
      break;
    }
    if (!legal)
      report(fmt::format("a {} cannot have a parameter of type {} ({})",
                         function_.kind == FunctionKind::device   ? "func"
                         : function_.kind == FunctionKind::kernel ? "kernel"
                                                                  : "host function",
                         to_string(parameter), name(i)));
  }
}

void FunctionVerifier::check_indices(const Op& op) {
  const auto wrong = [&](std::string message) {
    report(std::move(message));
    sound_ = false;
  };
  if (static_cast<unsigned>(op.code) >= kOpcodeCount)
    return wrong(fmt::format("unknown operation code {}", static_cast<unsigned>(op.code)));
  const OpInfo& row = info(op.code);
  const WordList words = words_of(row.detail);
  if (row.detail == DetailKind::none ? op.detail != 0 : op.detail >= words.size)
    return wrong(fmt::format("unknown detail {} of '{}'", op.detail, row.text));
  if (row.form == Form::mma &&
      shape_of(static_cast<Fragment>(op.detail)).sparse != (op.code == Opcode::mma_sparse))
    return wrong(fmt::format("'{}' has no fragment {}", row.text, words[op.detail]));
  if (op.origin > module_.origins.size())
    return wrong(fmt::format("origin {} does not exist", op.origin));
  check_pool(op);
  if (sound_)
    check_slots(op);
  if (sound_ && row.form == Form::symbol &&
      (op.immediate < 0 || static_cast<uint64_t>(op.immediate) >= module_.symbols.size()))
    wrong(fmt::format("symbol {} does not exist", op.immediate));
}

/// The pool entries of calls, and the functions they name.
void FunctionVerifier::check_pool(const Op& op) {
  bool fits = true;
  const std::vector<uint32_t>& pool = function_.pool;
  const size_t begin = op.operand[1];
  switch (info(op.code).form) {
  case Form::call:
    fits = in_pool(begin, op.operand[2]);
    break;
  case Form::switch_call:
    fits = in_pool(begin, 1) && in_pool(begin + 1, pool[begin]) &&
           in_pool(begin + 1 + pool[begin], 1) &&
           in_pool(begin + 2 + pool[begin], pool[begin + 1 + pool[begin]]);
    break;
  case Form::launch:
    fits = in_pool(begin, 4) && in_pool(begin + 4, pool[begin + 3]);
    break;
  default:
    return;
  }
  if (!fits) {
    report("the operand list lies outside of the function's pool");
    sound_ = false;
    return;
  }
  for (uint32_t callee : callees(function_, op)) {
    if (callee >= module_.functions.size()) {
      report(fmt::format("function {} does not exist", callee));
      sound_ = false;
    }
  }
}

void FunctionVerifier::check_slots(const Op& op) {
  const OpInfo& row = info(op.code);
  const auto wrong = [&](std::string message) {
    report(std::move(message));
    sound_ = false;
  };
  unsigned immediates = 0;
  for (unsigned i = 0; i < row.operands.size(); ++i) {
    const uint32_t operand = op.operand[i];
    if (operand == kNoOperand && row.form != Form::barrier)
      return wrong(fmt::format("operand {} of '{}' is missing", i + 1, row.text));
    if (operand == kImmediate) {
      ++immediates;
      if (row.operands[i] >= 'a')
        return wrong(fmt::format("operand {} of '{}' cannot be a number", i + 1, row.text));
    }
  }
  if (immediates > 1)
    return wrong("an operation has at most one number as operand");
  if (row.form == Form::copy_async && op.operand[2] == kImmediate)
    return wrong("operand 3 of 'copy_async' cannot be a number");
  if (row.form == Form::value || row.form == Form::value_none)
    for (size_t i = row.operands.size(); i < 3; ++i)
      if (op.operand[i] != kNoOperand)
        return wrong(fmt::format("'{}' has {} operands", row.text, row.operands.size()));
  const size_t registers = function_.register_type.size();
  const auto exists = [&](Reg first, uint32_t count) {
    if (sound_ && (!is_register(first.id) || uint64_t{first.id} + count > registers))
      wrong(fmt::format("register {} does not exist",
                        first.id < registers ? uint64_t{first.id} + count - 1 : first.id));
  };
  visit_reads(function_, op, exists);
  if (const uint32_t results = result_count(op); results != 0)
    exists(op.result, results);
}

void FunctionVerifier::check_nesting() {
  std::vector<std::pair<Opcode, uint32_t>> open;
  const auto wrong = [&](std::string message) {
    report(std::move(message));
    sound_ = false;
  };
  for (at_ = 0; at_ < function_.ops.size() && sound_; ++at_) {
    const Opcode code = function_.ops[at_].code;
    switch (info(code).form) {
    case Form::for_loop:
    case Form::open:
    case Form::if_begin:
      open.emplace_back(code, at_);
      break;
    case Form::else_mark:
      if (open.empty() || open.back().first != Opcode::if_begin)
        wrong("'else' without its 'if'");
      else
        open.back().first = Opcode::else_mark;
      break;
    case Form::while_end:
      if (open.empty() || open.back().first != Opcode::loop)
        wrong("'while' without its 'loop'");
      else
        open.pop_back();
      break;
    case Form::close:
      if (open.empty() || open.back().first == Opcode::loop)
        wrong("'}' closes nothing that it could close");
      else
        open.pop_back();
      break;
    default:
      break;
    }
  }
  if (!open.empty() && sound_) {
    at_ = open.back().second;
    wrong("this block is not closed");
  }
}

} // namespace sparsertc::ir
