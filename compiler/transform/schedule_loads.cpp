// schedule-loads: in straight-line code, the i-th read-only load moves up to the place of the
// (i - distance)-th, so that `distance` loads are in flight while sums are formed. A load takes the
// address computation made for it alone along, and never passes the definition of what it needs.
#include "compiler/transform/pass.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc {
namespace {

using ir::Effect;
using ir::Function;
using ir::Op;
using ir::Opcode;

constexpr uint32_t kBeforeSegment = UINT32_MAX;

bool ends_segment(const Op& op) {
  const Effect effect = ir::info(op.code).effect;
  return effect != Effect::pure && effect != Effect::read;
}

bool is_readonly_load(const Op& op) {
  return op.code == Opcode::load && op.type.space() == ir::Space::device &&
         op.detail == static_cast<uint8_t>(ir::Cache::readonly);
}

/// A load with the address operation that moves with it, as a range of positions.
struct MovableLoad {
  uint32_t begin, end;
  uint32_t earliest; ///< first position that does not pass a definition
};

class LoadScheduler {
public:
  LoadScheduler(Function& function, unsigned distance)
      : function_(function), distance_(distance), uses_(function.register_type.size(), 0),
        definitions_(function.register_type.size(), 0),
        last_definition_(function.register_type.size(), kBeforeSegment) {
    for (const Op& op : function.ops)
      count(op);
  }

  void run() {
    std::vector<Op> scheduled;
    scheduled.reserve(function_.ops.size());
    const auto size = static_cast<uint32_t>(function_.ops.size());
    for (uint32_t begin = 0; begin < size;) {
      uint32_t end = begin;
      while (end < size && !ends_segment(function_.ops[end]))
        ++end;
      schedule_segment(begin, end, scheduled);
      if (end < size)
        scheduled.push_back(function_.ops[end++]);
      begin = end;
    }
    function_.ops = std::move(scheduled);
  }

private:
  void count(const Op& op) {
    // Operand slots of control and memory operations hold other numbers too; counting those as uses
    // only keeps an address operation where it is.
    for (uint32_t operand : op.operand)
      if (operand < uses_.size())
        ++uses_[operand];
    for (uint32_t i = 0; op.result.valid() && i < op.width; ++i)
      if (op.result.id + i < definitions_.size())
        ++definitions_[op.result.id + i];
  }

  /// Whether `op` computes an address for the load after it and nothing else.
  bool belongs_to(const Op& op, const Op& load) const {
    return (op.code == Opcode::index || op.code == Opcode::offset) &&
           op.result.id == load.operand[0] && uses_[op.result.id] == 1 &&
           definitions_[op.result.id] == 1;
  }

  bool defined_once(const Op& load) const {
    for (uint32_t i = 0; i < load.width; ++i)
      if (definitions_[load.result.id + i] != 1)
        return false;
    return true;
  }

  uint32_t after_operands(const Op& op, uint32_t segment_begin) const {
    uint32_t earliest = segment_begin;
    for (uint32_t operand : op.operand)
      if (operand < last_definition_.size() && last_definition_[operand] != kBeforeSegment)
        earliest = std::max(earliest, last_definition_[operand] + 1);
    return earliest;
  }

  std::vector<MovableLoad> find_loads(uint32_t begin, uint32_t end) {
    std::vector<MovableLoad> loads;
    for (uint32_t i = begin; i < end; ++i) {
      const Op& op = function_.ops[i];
      if (is_readonly_load(op) && defined_once(op)) {
        const bool pair = i > begin && belongs_to(function_.ops[i - 1], op);
        const Op& needs = pair ? function_.ops[i - 1] : op;
        loads.push_back({pair ? i - 1 : i, i + 1, after_operands(needs, begin)});
      }
      for (uint32_t r = 0; op.result.valid() && r < op.width; ++r)
        last_definition_[op.result.id + r] = i;
    }
    for (uint32_t i = begin; i < end; ++i) {
      const Op& op = function_.ops[i];
      for (uint32_t r = 0; op.result.valid() && r < op.width; ++r)
        last_definition_[op.result.id + r] = kBeforeSegment;
    }
    return loads;
  }

  void schedule_segment(uint32_t begin, uint32_t end, std::vector<Op>& out) {
    const std::vector<MovableLoad> loads = find_loads(begin, end);
    // (target position, load): stable by target, so that loads keep their order.
    std::vector<std::pair<uint32_t, uint32_t>> targets;
    targets.reserve(loads.size());
    for (uint32_t i = 0; i < loads.size(); ++i) {
      const uint32_t wanted = i < distance_ ? begin : loads[i - distance_].begin;
      targets.emplace_back(std::max(wanted, loads[i].earliest), i);
    }
    std::stable_sort(targets.begin(), targets.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    size_t next_target = 0, next_load = 0;
    for (uint32_t i = begin; i < end;) {
      for (; next_target < targets.size() && targets[next_target].first <= i; ++next_target) {
        const MovableLoad& load = loads[targets[next_target].second];
        out.insert(out.end(), function_.ops.begin() + load.begin, function_.ops.begin() + load.end);
      }
      if (next_load < loads.size() && loads[next_load].begin == i)
        i = loads[next_load++].end;
      else
        out.push_back(function_.ops[i++]);
    }
  }

  Function& function_;
  unsigned distance_;
  std::vector<uint32_t> uses_, definitions_, last_definition_;
};

} // namespace

Pass schedule_loads_pass(unsigned distance) {
  return {fmt::format("schedule-loads={}", distance), [distance](ir::Module& module) {
            if (distance == 0)
              return;
            for (Function& function : module.functions)
              if (function.kind != ir::FunctionKind::host)
                LoadScheduler(function, distance).run();
          }};
}

} // namespace sparsertc
