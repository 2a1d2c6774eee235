#include "runtime/program/region.h"

#include "ir/operands.h"

#include <algorithm>
#include <optional>

namespace sparsertc::program {
namespace {

using ir::Form;
using ir::Function;
using ir::FunctionKind;
using ir::Op;
using ir::Opcode;
using ir::Space;

constexpr uint32_t kNone = UINT32_MAX;

bool opens(const Op& op) {
  const Form form = ir::info(op.code).form;
  return form == Form::open || form == Form::for_loop || form == Form::if_begin;
}

class Finder {
public:
  Finder(const ir::Module& module, const Function& function, const Blocks& blocks, Records records)
      : module_(module), function_(function), blocks_(blocks), records_(records),
        assignments_(function.register_type.size()), definition_(assignments_.size(), kNone),
        allocated_(assignments_.size(), true), reads_(assignments_.size()) {
    for (uint32_t at = 0; at < function.ops.size(); ++at) {
      const Op& op = function.ops[at];
      const uint32_t results = ir::result_count(op);
      for (uint32_t i = 0; i < results; ++i) {
        ++assignments_[op.result.id + i];
        definition_[op.result.id + i] = at;
        if (op.code != Opcode::alloc)
          allocated_[op.result.id + i] = false;
      }
      ir::visit_reads(function, op, [&](ir::Reg first, uint32_t count) {
        for (uint32_t i = 0; i < count; ++i)
          reads_[first.id + i].push_back(at);
      });
    }
  }

  std::vector<Region> run() {
    if (records_ != Records::nothing)
      block(0, static_cast<uint32_t>(function_.ops.size()), false);
    return std::move(found_);
  }

private:
  /// What a region knows of a register that it assigns.
  enum class Value : uint8_t {
    fixed,   ///< the same whenever the operation runs
    element, ///< loaded from a mirror
    decision ///< an element compared with a fixed value
  };
  struct Draft {
    Region region;
    std::map<uint32_t, Value> values; ///< by register
    uint32_t device_ops = 0;
    bool control = false;
  };

  uint32_t statement_end(uint32_t at) const {
    return opens(function_.ops[at]) ? blocks_.close(at) + 1 : at + 1;
  }

  /// Finds the regions among the statements [begin, end) of one block.
  void block(uint32_t begin, uint32_t end, bool repeated) {
    Draft draft;
    draft.region.begin = draft.region.end = begin;
    for (uint32_t at = begin; at < end;) {
      const uint32_t next = statement_end(at);
      Draft longer = draft;
      if (statement(at, longer, false)) {
        longer.region.end = next;
        draft = std::move(longer);
      } else {
        finish(draft, repeated);
        draft = {};
        draft.region.begin = draft.region.end = next;
        Draft alone;
        alone.region.begin = at;
        if (statement(at, alone, false)) {
          alone.region.end = next;
          draft = std::move(alone);
        } else {
          inside(at, repeated);
        }
      }
      at = next;
    }
    finish(draft, repeated);
  }

  /// Looks for regions in the blocks of a statement.
  void inside(uint32_t at, bool repeated) {
    const Op& op = function_.ops[at];
    if (!opens(op))
      return;
    const uint32_t close = blocks_.close(at), otherwise = blocks_.otherwise(at);
    const bool loop = op.code != Opcode::if_begin;
    block(at + 1, otherwise, repeated || loop);
    if (otherwise != close)
      block(otherwise + 1, close, repeated);
  }

  void finish(Draft& draft, bool repeated) {
    const Region& region = draft.region;
    const bool worth = draft.control || (repeated && draft.device_ops > 1);
    if (worth && stays_inside(draft)) {
      found_.push_back(std::move(draft.region));
      return;
    }
    if (draft.control) // what is inside may do
      for (uint32_t at = region.begin; at < region.end; at = statement_end(at))
        inside(at, repeated);
  }

  /// What the host would have to know is not read behind the region.
  bool stays_inside(const Draft& draft) const {
    for (const auto& [reg, value] : draft.values)
      if (value != Value::fixed)
        for (const uint32_t at : reads_[reg])
          if (at < draft.region.begin || at >= draft.region.end)
            return false;
    return true;
  }

  bool is_fixed(uint32_t reg, const Draft& draft) const {
    if (const auto found = draft.values.find(reg); found != draft.values.end())
      return found->second == Value::fixed;
    return reg < function_.parameter_count ? assignments_[reg] == 0 : assignments_[reg] == 1;
  }
  bool operand_fixed(const Op& op, unsigned slot, const Draft& draft) const {
    return op.operand[slot] == ir::kImmediate || op.operand[slot] == ir::kNoOperand ||
           is_fixed(op.operand[slot], draft);
  }
  bool all_fixed(const Op& op, const Draft& draft) const {
    bool fixed = true;
    ir::visit_reads(function_, op, [&](ir::Reg first, uint32_t count) {
      for (uint32_t i = 0; i < count; ++i)
        fixed = fixed && is_fixed(first.id + i, draft);
    });
    return fixed;
  }

  /// Adds a statement to the draft; false, and then the draft is spoilt, where it cannot be.
  bool statement(uint32_t at, Draft& draft, bool maybe) {
    const Op& op = function_.ops[at];
    switch (ir::info(op.code).form) {
    case Form::launch:
      ++draft.device_ops;
      return all_fixed(op, draft);
    case Form::call:
      ++draft.device_ops;
      return module_.functions[op.operand[0]].external && all_fixed(op, draft);
    case Form::copy:
      return copy(at, draft, maybe);
    case Form::value:
      return value(at, draft);
    case Form::load:
      return load(at, draft);
    case Form::open:
      return control(draft) && statements(at + 1, blocks_.close(at), draft, maybe) &&
             decides(blocks_.close(at), at, draft);
    case Form::if_begin:
      return control(draft) && decides(at, blocks_.around(at), draft) &&
             statements(at + 1, blocks_.otherwise(at), draft, true) &&
             (blocks_.otherwise(at) == blocks_.close(at) ||
              statements(blocks_.otherwise(at) + 1, blocks_.close(at), draft, true));
    default:
      return false;
    }
  }

  bool statements(uint32_t begin, uint32_t end, Draft& draft, bool maybe) {
    for (uint32_t at = begin; at < end; at = statement_end(at))
      if (!statement(at, draft, maybe))
        return false;
    return true;
  }

  bool control(Draft& draft) const {
    draft.control = true;
    return records_ == Records::control;
  }

  bool value(uint32_t at, Draft& draft) {
    const Op& op = function_.ops[at];
    const uint32_t result = op.result.id;
    if (assignments_[result] != 1 || op.type.is_pair())
      return false;
    if (all_fixed(op, draft)) {
      draft.values[result] = Value::fixed;
      return true;
    }
    const auto left = draft.values.find(op.operand[0]);
    if (op.code != Opcode::compare || left == draft.values.end() ||
        left->second != Value::element || !operand_fixed(op, 1, draft))
      return false;
    draft.values[result] = Value::decision;
    return true;
  }

  /// A buffer that may become a mirror: allocated here, under one name. (Allocations end regions.)
  bool is_own_host_buffer(uint32_t reg) const {
    return reg >= function_.parameter_count && allocated_[reg] &&
           function_.register_type[reg].space() == Space::host;
  }

  bool copy(uint32_t at, Draft& draft, bool maybe) {
    const Op& op = function_.ops[at];
    const Space to = function_.register_type[op.operand[0]].space();
    const Space from = function_.register_type[op.operand[1]].space();
    if (from != Space::device || !is_fixed(op.operand[1], draft) || !operand_fixed(op, 2, draft))
      return false;
    if (to == Space::device) {
      ++draft.device_ops;
      return is_fixed(op.operand[0], draft);
    }
    if (records_ != Records::control || !is_own_host_buffer(op.operand[0]))
      return false;
    Mirror& copied = mirror(op.operand[0], maybe, draft);
    copied.copy = std::min(copied.copy, at);
    return true;
  }

  bool load(uint32_t at, Draft& draft) {
    const Op& op = function_.ops[at];
    const ir::Scalar type = op.type.element();
    const bool compared = type == ir::Scalar::i32 || type == ir::Scalar::i64 ||
                          type == ir::Scalar::f32 || type == ir::Scalar::f64;
    if (records_ != Records::control || op.code != Opcode::load || op.width != 1 || !compared ||
        assignments_[op.result.id] != 1 || !is_own_host_buffer(op.operand[0]))
      return false;
    mirror(op.operand[0], true, draft);
    draft.values[op.result.id] = Value::element;
    return true;
  }

  /// `maybe`: it is read here, or may not be written.
  static Mirror& mirror(uint32_t buffer, bool maybe, Draft& draft) {
    if (draft.region.mirror_of(buffer) == kNone)
      draft.region.mirrors.push_back({buffer, Mirror::kNever, maybe});
    return draft.region.mirrors[draft.region.mirror_of(buffer)];
  }

  /// Whether the operation `at` decides by an element that was loaded in the block `around`, and
  /// whose buffer nothing has changed since.
  bool decides(uint32_t at, uint32_t around, Draft& draft) {
    const uint32_t condition = function_.ops[at].operand[0];
    const auto found = draft.values.find(condition);
    if (found == draft.values.end() || found->second != Value::decision)
      return false;
    Decision decision;
    decision.compare = definition_[condition];
    decision.load = definition_[function_.ops[decision.compare].operand[0]];
    const uint32_t buffer = function_.ops[decision.load].operand[0];
    decision.mirror = draft.region.mirror_of(buffer);
    if (blocks_.around(decision.load) != around)
      return false;
    for (uint32_t between = decision.load; between < at; ++between)
      if (const Op& op = function_.ops[between]; op.code == Opcode::copy && op.operand[0] == buffer)
        return false;
    draft.region.decisions[at] = decision;
    return true;
  }

  const ir::Module& module_;
  const Function& function_;
  const Blocks& blocks_;
  Records records_;
  std::vector<uint32_t> assignments_, definition_;
  std::vector<bool> allocated_; ///< by `alloc` alone
  std::vector<std::vector<uint32_t>> reads_;
  std::vector<Region> found_;
};

} // namespace

uint32_t Region::mirror_of(uint32_t buffer) const {
  for (uint32_t i = 0; i < mirrors.size(); ++i)
    if (mirrors[i].buffer == buffer)
      return i;
  return kNone;
}

Blocks::Blocks(const Function& function)
    : close_(function.ops.size()), otherwise_(function.ops.size()),
      around_(function.ops.size(), kBody) {
  struct Open {
    uint32_t first;   ///< the `if` or loop
    uint32_t present; ///< the same, or the `else`
  };
  std::vector<Open> open;
  for (uint32_t at = 0; at < function.ops.size(); ++at) {
    const Form form = ir::info(function.ops[at].code).form;
    const bool ends = form == Form::close || form == Form::while_end;
    if (ends) {
      close_[open.back().first] = at;
      if (otherwise_[open.back().first] == 0)
        otherwise_[open.back().first] = at;
      open.pop_back();
    }
    if (form == Form::else_mark) {
      otherwise_[open.back().first] = at;
      around_[at] = open.size() > 1 ? open[open.size() - 2].present : kBody;
      open.back().present = at;
      continue;
    }
    around_[at] = open.empty() ? kBody : open.back().present;
    if (opens(function.ops[at]))
      open.push_back({at, at});
  }
}

std::vector<Region> find_regions(const ir::Module& module, const Function& function,
                                 const Blocks& blocks, Records records) {
  return Finder(module, function, blocks, records).run();
}

} // namespace sparsertc::program
