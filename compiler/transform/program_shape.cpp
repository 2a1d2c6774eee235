#include "compiler/transform/program_shape.h"

#include "compiler/transform/placement_costs.h"
#include "ir/operands.h"

#include <algorithm>

namespace sparsertc {

using ir::Form;
using ir::Op;
using ir::Opcode;

int64_t saturating_product(int64_t a, int64_t b) {
  constexpr int64_t kMost = 1'000'000'000'000;
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMost : std::min(product, kMost);
}

ProgramShape::ProgramShape(const ir::Function& function)
    : constants_(function.register_type.size()), assignments_(function.register_type.size()) {
  const auto count = static_cast<uint32_t>(function.ops.size());
  std::fill_n(assignments_.begin(), function.parameter_count, uint8_t{1});
  for (const Op& op : function.ops) {
    for (uint32_t i = 0; i < ir::result_count(op); ++i)
      assignments_[op.result.id + i] =
          static_cast<uint8_t>(std::min(assignments_[op.result.id + i] + 1, 2));
  }
  for (const Op& op : function.ops)
    if (op.code == Opcode::constant && assigned_once(op.result.id))
      constants_[op.result.id] = op.immediate;

  regions_.push_back({0, count, 1, true});
  region_of_op_.resize(count);
  region_of_gap_.resize(count + 1);
  statement_begin_.resize(count);
  statement_end_.resize(count);
  for (uint32_t at = 0; at < count; ++at) {
    const Op& op = function.ops[at];
    region_of_gap_[at] = current_;
    statement_begin_[at] = at;
    statement_end_[at] = at;
    const Form form = ir::info(op.code).form;
    if (form == Form::close || form == Form::while_end || form == Form::else_mark)
      close(op, at);
    region_of_op_[at] = current_;
    if (form == Form::for_loop || form == Form::open || form == Form::if_begin ||
        form == Form::else_mark)
      open(op, at);
  }
  region_of_gap_[count] = 0;
}

/// A branch counts as taken each time.
void ProgramShape::open(const Op& op, uint32_t at) {
  Region region{current_, 0, regions_[current_].executions, regions_[current_].known};
  if (op.code == Opcode::loop || op.code == Opcode::for_loop) {
    std::optional<int64_t> limit;
    if (op.code == Opcode::for_loop)
      limit = op.operand[0] == ir::kImmediate ? static_cast<int32_t>(ir::low_half(op.immediate))
                                              : constant(op.operand[0]);
    const int64_t step = op.code == Opcode::for_loop ? ir::high_half(op.immediate) : 1;
    const int64_t trips =
        limit ? (std::max<int64_t>(*limit, 0) + step - 1) / step : placement_costs::kUnknownTrips;
    region.executions = saturating_product(region.executions, trips);
    region.known = region.known && limit;
  }
  if (op.code == Opcode::else_mark) {
    edges_.push_back({2 * open_.back().op, 2 * at + 1});
    open_.back().skips = at;
  } else {
    edges_.push_back({2 * at, 2 * at + 1});
    open_.push_back({at, op.code != Opcode::if_begin, at});
  }
  current_ = static_cast<uint32_t>(regions_.size());
  regions_.push_back(region);
}

void ProgramShape::close(const Op& op, uint32_t at) {
  regions_[current_].end = at;
  current_ = regions_[current_].parent;
  statement_begin_[at] = open_.back().op;
  if (op.code == Opcode::else_mark)
    return;
  const OpenBlock block = open_.back();
  open_.pop_back();
  statement_end_[block.op] = at;
  edges_.push_back({2 * at, 2 * at + 1});
  if (block.loops)
    edges_.push_back({2 * at, 2 * block.op + 1});
  // Past a branch that is not taken, from the end of the first of two, over a `for` without rounds.
  if (op.code != Opcode::while_end)
    edges_.push_back({2 * block.skips, 2 * at + 1});
}

} // namespace sparsertc
