#include "compiler/transform/compact_registers.h"

#include "ir/operands.h"

#include <algorithm>
#include <map>

namespace sparsertc {
namespace {

using ir::Form;
using ir::Op;

constexpr uint32_t kUnnumbered = UINT32_MAX;

class Compactor {
public:
  explicit Compactor(ir::Function& function)
      : function_(function), number_(function.register_type.size(), kUnnumbered) {}

  void run() {
    for (uint32_t i = 0; i < function_.parameter_count; ++i)
      number(i);
    for (const Op& op : function_.ops)
      if (ir::result_count(op) != 0)
        number(op.result.id);
    for (const Op& op : function_.ops)
      ir::visit_reads(function_, op, [&](ir::Reg reg, uint32_t) { number(reg.id); });
    for (Op& op : function_.ops)
      rewrite(op);
    function_.pool = std::move(pool_);
    function_.register_type = std::move(types_);
    std::map<uint32_t, std::string> names;
    for (auto& [reg, name] : function_.register_name)
      if (number_[reg] != kUnnumbered)
        names.emplace(number_[reg], std::move(name));
    function_.register_name = std::move(names);
  }

private:
  void number(uint32_t reg) {
    if (number_[reg] != kUnnumbered)
      return;
    number_[reg] = static_cast<uint32_t>(types_.size());
    types_.push_back(function_.register_type[reg]);
  }
  void replace(uint32_t& operand) const {
    if (operand != ir::kNoOperand && operand != ir::kImmediate)
      operand = number_[operand];
  }
  /// Moves `count` entries of the old operand list to the new one, registers or not.
  void take(uint32_t& begin, size_t count, bool registers) {
    for (size_t i = 0; i < count; ++i) {
      pool_.push_back(function_.pool[begin + i]);
      if (registers)
        replace(pool_.back());
    }
    begin += static_cast<uint32_t>(count);
  }

  void rewrite(Op& op) {
    if (ir::result_count(op) != 0)
      op.result.id = number_[op.result.id];
    const auto begin = static_cast<uint32_t>(pool_.size());
    uint32_t old = op.operand[1];
    switch (ir::info(op.code).form) {
    case Form::call:
      take(old, op.operand[2], true);
      op.operand[1] = begin;
      return;
    case Form::switch_call:
      replace(op.operand[0]);
      take(old, 1 + function_.pool[old], false);
      take(old, 1, false);
      take(old, pool_.back(), true);
      op.operand[1] = begin;
      return;
    case Form::launch:
      take(old, 3, true);
      take(old, 1, false);
      take(old, pool_.back(), true);
      op.operand[1] = begin;
      return;
    default:
      for (uint32_t& operand : op.operand)
        replace(operand);
      return;
    }
  }

  ir::Function& function_;
  std::vector<uint32_t> number_; ///< by old number
  std::vector<ir::Type> types_;
  std::vector<uint32_t> pool_;
};

} // namespace

void compact_registers(ir::Function& function) {
  if (std::none_of(function.ops.begin(), function.ops.end(),
                   [](const Op& op) { return op.width != 1; }))
    Compactor(function).run();
}

} // namespace sparsertc
