#include "compiler/transform/buffer_use.h"

#include "compiler/transform/placement_costs.h"
#include "ir/operands.h"

#include <algorithm>

namespace sparsertc {

using ir::Form;
using ir::Op;
using ir::Opcode;

namespace {

constexpr uint32_t kNone = UINT32_MAX;

/// Whether an operation uses a pointer as the name of its whole buffer.
bool uses_whole_buffers(const Op& op) {
  switch (ir::info(op.code).form) {
  case Form::load:
  case Form::store:
  case Form::copy:
  case Form::call:
  case Form::switch_call:
  case Form::launch:
    return true;
  default:
    return op.code == Opcode::free;
  }
}

} // namespace

int64_t Buffer::bytes() const {
  return saturating_product(count, ir::size_in_bytes(type.element()));
}

BufferUse find_buffer_use(const ir::Function& function, const ProgramShape& shape,
                          MemoryEffects& effects) {
  std::vector<uint8_t> passed_on(function.register_type.size());
  for (const Op& op : function.ops)
    if (!uses_whole_buffers(op))
      ir::visit_reads(function, op, [&](ir::Reg first, uint32_t count) {
        std::fill_n(passed_on.begin() + first.id, count, uint8_t{1});
      });
  BufferUse use;
  std::vector<uint32_t> number(function.register_type.size(), kNone);
  for (uint32_t at = 0; at < function.ops.size(); ++at) {
    const Op& op = function.ops[at];
    if (op.code != Opcode::alloc || passed_on[op.result.id] != 0 ||
        !shape.assigned_once(op.result.id))
      continue;
    number[op.result.id] = static_cast<uint32_t>(use.buffers.size());
    const std::optional<int64_t> count =
        op.operand[0] == ir::kImmediate ? op.immediate : shape.constant(op.operand[0]);
    use.buffers.push_back({op.result.id, op.type, at, op.operand[0],
                           count.value_or(placement_costs::kUnknownElements), count.has_value()});
  }
  for (uint32_t at = 0; at < function.ops.size(); ++at) {
    const Op& op = function.ops[at];
    const size_t first = use.touches.size();
    use.first_touch.push_back(static_cast<uint32_t>(first));
    const auto touch = [&](uint32_t reg, bool reads, bool writes, bool overwrites = false) {
      if (reg >= number.size() || number[reg] == kNone)
        return;
      auto found =
          std::find_if(use.touches.begin() + static_cast<std::ptrdiff_t>(first), use.touches.end(),
                       [&](const BufferTouch& t) { return t.buffer == number[reg]; });
      if (found == use.touches.end())
        found = use.touches.insert(found, {at, number[reg], false, false, false});
      found->reads = found->reads || reads;
      found->writes = found->writes || writes;
      found->overwrites = found->overwrites || overwrites;
    };
    switch (ir::info(op.code).form) {
    case Form::load:
      touch(op.operand[0], true, false);
      break;
    case Form::store:
      touch(op.operand[0], false, true);
      break;
    case Form::copy: {
      bool whole = false;
      if (op.operand[0] < number.size() && number[op.operand[0]] != kNone) {
        const Op& alloc = function.ops[use.buffers[number[op.operand[0]]].alloc];
        const bool same_register = op.operand[2] != ir::kImmediate &&
                                   op.operand[2] == alloc.operand[0] &&
                                   shape.assigned_once(op.operand[2]);
        const Buffer& destination = use.buffers[number[op.operand[0]]];
        const std::optional<int64_t> count =
            op.operand[2] == ir::kImmediate ? op.immediate : shape.constant(op.operand[2]);
        whole = same_register || (destination.known && count && *count >= destination.count);
      }
      touch(op.operand[1], true, false);
      touch(op.operand[0], false, true, whole);
      break;
    }
    case Form::call:
    case Form::switch_call:
    case Form::launch: {
      const std::span<const uint32_t> list = ir::arguments(function, op);
      for (size_t i = 0; i < list.size(); ++i) {
        bool reads = false, writes = false;
        int64_t fills = INT64_MAX;
        for (uint32_t callee : ir::callees(function, op)) {
          const MemoryEffect effect = effects.of(callee)[i];
          reads = reads || effect.reads;
          writes = writes || effect.writes;
          fills = std::min(fills, effect.fills);
        }
        // A `switch` may call nothing.
        const bool always =
            op.code != Opcode::switch_call && list[i] < number.size() && number[list[i]] != kNone;
        const bool whole = always && use.buffers[number[list[i]]].known &&
                           fills >= use.buffers[number[list[i]]].count;
        touch(list[i], reads, writes, whole);
      }
      break;
    }
    default:
      break;
    }
    for (size_t i = first; i < use.touches.size(); ++i)
      use.touches[i].overwrites = use.touches[i].overwrites && !use.touches[i].reads;
  }
  use.first_touch.push_back(static_cast<uint32_t>(use.touches.size()));
  return use;
}

BufferPoints::BufferPoints(const ir::Function& function, const ProgramShape& shape,
                           const BufferUse& use, uint32_t buffer) {
  const auto count = static_cast<uint32_t>(function.ops.size());
  std::vector<const BufferTouch*> touch(count, nullptr);
  for (const BufferTouch& t : use.touches)
    if (t.buffer == buffer)
      touch[t.op] = &t;
  std::vector<uint32_t> before(count + 1); // touches and the allocation before each operation
  for (uint32_t at = 0; at < count; ++at)
    before[at + 1] = before[at] + (touch[at] != nullptr || use.buffers[buffer].alloc == at ? 1 : 0);
  state_.resize(2 * count + 1);
  uint32_t last = 0;
  bool concerned = false; // the operation before
  for (uint32_t at = 0; at < count; ++at) {
    const Op& op = function.ops[at];
    const Form form = ir::info(op.code).form;
    const bool block = form == Form::open || form == Form::for_loop || form == Form::if_begin ||
                       form == Form::else_mark || form == Form::close || form == Form::while_end;
    const uint32_t first = shape.statement_begin(at);
    const bool concerns =
        op.code == Opcode::return_void || before[shape.statement_end(first) + 1] != before[first];
    const bool changes =
        use.buffers[buffer].alloc == at || (touch[at] != nullptr && touch[at]->writes);
    if (at > 0 && (concerned || concerns))
      ++last;
    state_[2 * at] = last;
    if (changes || (block && concerns))
      ++last;
    state_[2 * at + 1] = last;
    concerned = concerns;
  }
  state_[2 * count] = ++last;
  defined_.assign(last + 1, 0);
  live_.assign(last + 1, 0);
  for (uint32_t at = 0; at < count; ++at)
    if (touch[at] != nullptr) {
      if (touch[at]->writes)
        defined_[state_[2 * at + 1]] = 1;
      if (touch[at]->reads)
        live_[state_[2 * at]] = 1;
    }
  for (bool changed = true; changed;) {
    changed = false;
    const auto flow = [&](uint8_t from, uint8_t& to) {
      changed = changed || (from != 0 && to == 0);
      to = static_cast<uint8_t>(to | from);
    };
    for (uint32_t at = 1; at <= count; ++at)
      flow(defined_[state_[2 * at - 1]], defined_[state_[2 * at]]);
    for (uint32_t at = count + 1; at-- > 0;) {
      if (at < count && touch[at] != nullptr && touch[at]->writes && !touch[at]->overwrites)
        flow(live_[state_[2 * at + 1]], live_[state_[2 * at]]);
      if (at > 0)
        flow(live_[state_[2 * at]], live_[state_[2 * at - 1]]);
    }
    for (const ProgramShape::Edge& edge : shape.control_edges()) {
      flow(defined_[state_[edge.from]], defined_[state_[edge.to]]);
      flow(live_[state_[edge.to]], live_[state_[edge.from]]);
    }
  }
}

} // namespace sparsertc
