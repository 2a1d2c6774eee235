#include "ir/verify_cluster.h"

#include "ir/operands.h"
#include "ir/uniformity.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace sparsertc::ir {
namespace {

/// What a function asks of the kernels that call it.
struct Needs {
  uint64_t barriers = 0; ///< of the cluster, on every path
  uint32_t blocks = 0;   ///< 0: no cluster; else the least number of blocks
};

/// Blocks of a cluster take conditions apart from each other, whatever the condition: so every path
/// has the same number of cluster barriers.
class ClusterCounter {
public:
  using Report = std::function<void(uint32_t, std::string)>;
  ClusterCounter(const Module& module, const Function& function, const std::vector<Needs>& callees,
                 Report report)
      : module_(module), function_(function), callees_(callees), report_(std::move(report)) {}

  Needs count() {
    for (uint32_t at = 0; at < function_.ops.size(); ++at)
      visit(at);
    needs_.barriers = count_;
    return needs_;
  }

private:
  struct Block {
    uint32_t op;
    uint64_t before;
    uint64_t then_side;
    bool has_else;
    bool returns;
  };

  void visit(uint32_t at) {
    const Op& op = function_.ops[at];
    switch (op.code) {
    case Opcode::cluster_barrier:
      need(1);
      meet(at, 1);
      break;
    case Opcode::peer:
      need(op.operand[1] == kImmediate ? static_cast<uint32_t>(op.immediate) + 1 : 1);
      break;
    case Opcode::call:
    case Opcode::switch_call:
      call(at);
      break;
    case Opcode::for_loop:
    case Opcode::loop:
    case Opcode::if_begin:
      blocks_.push_back({at, count_, 0, false, false});
      count_ = 0;
      break;
    case Opcode::else_mark:
      blocks_.back().then_side = count_;
      blocks_.back().has_else = true;
      count_ = 0;
      break;
    case Opcode::end:
    case Opcode::while_end:
      close();
      break;
    case Opcode::return_void:
      returned_ = returned_ || !blocks_.empty();
      for (Block& block : blocks_)
        block.returns = true;
      break;
    default:
      break;
    }
  }

  void need(uint32_t blocks) { needs_.blocks = std::max(needs_.blocks, blocks); }

  void meet(uint32_t at, uint64_t barriers) {
    if (returned_ && barriers != 0)
      report_(at, "threads may have returned before this barrier of the cluster");
    count_ += barriers;
  }

  void call(uint32_t at) {
    const Op& op = function_.ops[at];
    const std::span<const uint32_t> list = callees(function_, op);
    if (list.empty())
      return;
    const uint64_t barriers = callees_[list[0]].barriers;
    bool equal = true;
    for (uint32_t callee : list) {
      need(callees_[callee].blocks);
      if (callees_[callee].barriers != barriers && equal) {
        equal = false;
        report_(at, fmt::format("blocks of a cluster part here, but @{} has {} barriers of the "
                                "cluster and @{} {}",
                                module_.functions[list[0]].name, barriers,
                                module_.functions[callee].name, callees_[callee].barriers));
      }
    }
    if (equal && barriers != 0 && op.code == Opcode::switch_call && !index_in_range(function_, op))
      report_(at, fmt::format("an index out of range calls nothing, while every function has {} "
                              "barriers of the cluster; bound the index with 'minu' by {}",
                              barriers, list.size() - 1));
    meet(at, barriers);
  }

  void close() {
    const Block block = blocks_.back();
    blocks_.pop_back();
    const Op& head = function_.ops[block.op];
    uint64_t all = count_;
    if (head.code == Opcode::if_begin) {
      const uint64_t then_side = block.has_else ? block.then_side : count_;
      const uint64_t else_side = block.has_else ? count_ : 0;
      if (then_side != else_side)
        report_(block.op,
                fmt::format("blocks of a cluster may part here, but the sides have {} and "
                            "{} barriers of the cluster",
                            then_side, else_side));
      all = then_side;
    } else if (count_ != 0) {
      if (head.code == Opcode::loop || head.operand[0] != kImmediate)
        report_(block.op, "barriers of the cluster in a loop whose number of rounds is not written "
                          "in the program");
      else if (block.returns)
        report_(block.op, "barriers of the cluster in a loop that threads may leave by a return");
      else
        all *= rounds(head);
    }
    count_ = block.before + all;
  }

  static uint64_t rounds(const Op& head) {
    const int64_t limit = static_cast<int32_t>(low_half(head.immediate));
    const int64_t step = std::max<int64_t>(high_half(head.immediate), 1);
    return limit <= 0 ? 0 : static_cast<uint64_t>((limit + step - 1) / step);
  }

  const Module& module_;
  const Function& function_;
  const std::vector<Needs>& callees_;
  Report report_;
  Needs needs_;
  uint64_t count_ = 0;
  bool returned_ = false;
  std::vector<Block> blocks_;
};

} // namespace

void check_clusters(
    const Module& module, std::span<const uint32_t> callers_first,
    const std::function<void(uint32_t function, uint32_t op, std::string message)>& report) {
  std::vector<Needs> needs(module.functions.size());
  for (size_t i = callers_first.size(); i-- > 0;) {
    const uint32_t index = callers_first[i];
    const Function& function = module.functions[index];
    if (function.kind == FunctionKind::host)
      continue;
    needs[index] = ClusterCounter(module, function, needs, [&](uint32_t op, std::string message) {
                     report(index, op, std::move(message));
                   }).count();
    if (function.kind != FunctionKind::kernel)
      continue;
    const uint32_t blocks = function.cluster[0] * function.cluster[1] * function.cluster[2];
    if (needs[index].blocks > blocks || (needs[index].blocks != 0 && !function.has_cluster()))
      report(index, UINT32_MAX,
             fmt::format("its code needs a cluster of at least {} blocks; write cluster(x, y, z) "
                         "after the block's extents",
                         std::max(needs[index].blocks, 2u)));
  }
}

} // namespace sparsertc::ir
