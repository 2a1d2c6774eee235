#include "ir/uniformity.h"

#include "ir/operands.h"
#include "ir/printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace sparsertc::ir {
namespace {

constexpr uint32_t kWarp = 32;
constexpr unsigned kSpecials = 7;
/// Number of barriers where it is not the same on every path.
constexpr int64_t kVaries = -1;

int64_t plus(int64_t a, int64_t b) {
  int64_t sum = 0;
  return a == kVaries || b == kVaries || __builtin_add_overflow(a, b, &sum) ? kVaries : sum;
}

std::string describe(int64_t barriers) {
  return barriers == kVaries ? std::string("a number not known here") : std::to_string(barriers);
}

/// What is known of a function from its callers.
struct State {
  Uniformity context = Uniformity::block; ///< who comes together at its first operation
  std::vector<Uniformity> parameters;
  std::array<Uniformity, kSpecials> special{};
  bool whole_warps_along_x = true; ///< block.x is a multiple of a warp in every kernel above
  bool called = false;
  int64_t barriers = 0; ///< of the whole block, on every path
};

/// Barriers of the two sides of an `if`, by its operation; only where there are any.
using Sides = std::map<uint32_t, std::pair<int64_t, int64_t>>;

class Analysis {
public:
  using Report = std::function<void(uint32_t, uint32_t, std::string)>;
  Analysis(const Module& module, std::span<const uint32_t> order, const Report& report)
      : module_(module), order_(order), report_(report), states_(module.functions.size()),
        sides_(module.functions.size()) {}

  void run() {
    for (size_t i = order_.size(); i-- > 0;)
      count_barriers(order_[i]);
    for (uint32_t index : order_)
      walk(index);
  }

private:
  void count_barriers(uint32_t index);
  int64_t switch_barriers(const Function& function, const Op& op) const;

  void enter(uint32_t index);
  void walk(uint32_t index);
  bool propagate();
  void judge(uint32_t index);
  void judge_early_return(uint32_t index);
  Uniformity result(const Op& op, Uniformity context) const;
  void call(const Op& op, Uniformity context);
  void judge_op(uint32_t at, Uniformity context);
  void judge_branch(uint32_t at, Uniformity condition);

  /// Calls visit(op index, context at the operation, level of the condition of a block that it
  /// opens).
  template <class Visit>
  void each(Visit&& visit);
  Uniformity level_of(uint32_t reg) const { return level_[reg]; }

  const Module& module_;
  std::span<const uint32_t> order_;
  const Report& report_;
  std::vector<State> states_;
  std::vector<Sides> sides_;

  // of the function being walked
  uint32_t index_ = 0;
  const Function* function_ = nullptr;
  std::vector<Uniformity> level_;
  std::vector<uint8_t> thread_x_;  ///< registers that hold exactly thread_x: 1
  std::vector<uint32_t> loop_end_; ///< by operation: the `while` of a `loop`
  uint32_t returned_from_[3] = {}; ///< from which operation on threads may be gone, by level
};

// ---- how many barriers -------------------------------------------------------------------------

int64_t Analysis::switch_barriers(const Function& function, const Op& op) const {
  const std::span<const uint32_t> list = callees(function, op);
  int64_t barriers = list.empty() ? 0 : states_[list[0]].barriers;
  for (uint32_t callee : list)
    if (states_[callee].barriers != barriers)
      return kVaries;
  return barriers == 0 || index_in_range(function, op) ? barriers : kVaries;
}

/// Barriers of a whole `for` whose body has `body` of them.
int64_t loop_barriers(const Op& head, int64_t body) {
  if (body == 0)
    return 0;
  if (body == kVaries || head.operand[0] != kImmediate)
    return kVaries;
  const int64_t limit = static_cast<int32_t>(low_half(head.immediate));
  const int64_t step = std::max<int64_t>(high_half(head.immediate), 1);
  int64_t product = 0;
  const int64_t trips = limit <= 0 ? 0 : (limit + step - 1) / step;
  return __builtin_mul_overflow(body, trips, &product) ? kVaries : product;
}

void Analysis::count_barriers(uint32_t index) {
  const Function& function = module_.functions[index];
  struct Block {
    uint32_t op;
    int64_t before;
    int64_t then_side;
    bool has_else;
  };
  std::vector<Block> blocks;
  int64_t count = 0;
  // A barrier that comes after a return in a block is not executed on every path.
  bool returned = false;
  bool returned_in_loop = false;
  bool missed = false;
  const auto meet = [&](int64_t barriers) {
    count = plus(count, barriers);
    missed = missed || (returned && barriers != 0);
  };
  for (uint32_t at = 0; at < function.ops.size(); ++at) {
    const Op& op = function.ops[at];
    switch (op.code) {
    case Opcode::barrier:
      if (op.operand[0] == kNoOperand)
        meet(1);
      break;
    case Opcode::call:
      meet(states_[op.operand[0]].barriers);
      break;
    case Opcode::switch_call:
      meet(switch_barriers(function, op));
      break;
    case Opcode::for_loop:
    case Opcode::loop:
    case Opcode::if_begin:
      blocks.push_back({at, count, 0, false});
      count = 0;
      break;
    case Opcode::else_mark:
      blocks.back().then_side = count;
      blocks.back().has_else = true;
      count = 0;
      break;
    case Opcode::while_end:
      count = plus(blocks.back().before, count == 0 ? 0 : kVaries);
      blocks.pop_back();
      break;
    case Opcode::end: {
      const Block block = blocks.back();
      blocks.pop_back();
      if (function.ops[block.op].code == Opcode::for_loop) {
        count = plus(block.before, loop_barriers(function.ops[block.op], count));
        break;
      }
      const int64_t then_side = block.has_else ? block.then_side : count;
      const int64_t else_side = block.has_else ? count : 0;
      if (then_side != 0 || else_side != 0)
        sides_[index].emplace(block.op, std::pair(then_side, else_side));
      count = plus(block.before, then_side == else_side ? then_side : kVaries);
      break;
    }
    case Opcode::return_void:
      returned = returned || !blocks.empty();
      for (const Block& block : blocks)
        returned_in_loop = returned_in_loop || function.ops[block.op].code != Opcode::if_begin;
      break;
    default:
      break;
    }
  }
  states_[index].barriers = missed || (returned_in_loop && count != 0) ? kVaries : count;
}

// ---- who agrees about what ---------------------------------------------------------------------

/// Prepares the walk over one function.
void Analysis::enter(uint32_t index) {
  index_ = index;
  function_ = &module_.functions[index];
  State& state = states_[index];
  state.parameters.resize(function_->parameter_count, Uniformity::block);
  if (function_->kind == FunctionKind::kernel) {
    const uint32_t* block = function_->block;
    const uint32_t threads = block[0] * block[1] * block[2];
    const auto index_level = [&](uint32_t extent, uint32_t faster) {
      return extent == 1           ? Uniformity::block
             : faster % kWarp == 0 ? Uniformity::warp
                                   : Uniformity::none;
    };
    state.special = {index_level(block[0], 1),
                     index_level(block[1], block[0]),
                     index_level(block[2], block[0] * block[1]),
                     Uniformity::block,
                     Uniformity::block,
                     Uniformity::block,
                     threads == 1 ? Uniformity::block : Uniformity::none};
    state.whole_warps_along_x = block[0] % kWarp == 0;
  } else if (!state.called) {
    state.special = {Uniformity::none,  Uniformity::warp,  Uniformity::warp, Uniformity::block,
                     Uniformity::block, Uniformity::block, Uniformity::none};
  }
  level_.assign(function_->register_type.size(), Uniformity::block);
  std::copy(state.parameters.begin(), state.parameters.end(), level_.begin());
  thread_x_.assign(function_->register_type.size(), 0);
  loop_end_.assign(function_->ops.size(), 0);
  std::vector<uint32_t> loops;
  for (uint32_t at = 0; at < function_->ops.size(); ++at) {
    const Op& op = function_->ops[at];
    const bool exact =
        op.code == Opcode::special && op.detail == static_cast<uint8_t>(Special::thread_x);
    for (uint32_t i = 0; i < result_count(op); ++i)
      thread_x_[op.result.id + i] |= exact ? 1 : 2;
    if (op.code == Opcode::loop) {
      loops.push_back(at);
    } else if (op.code == Opcode::while_end) {
      loop_end_[loops.back()] = at;
      loops.pop_back();
    }
  }
  std::fill(std::begin(returned_from_), std::end(returned_from_), kNoOperand);
}

template <class Visit>
void Analysis::each(Visit&& visit) {
  const State& state = states_[index_];
  struct Block {
    Uniformity before;
    uint32_t op;
    bool loop;
  };
  std::vector<Block> blocks;
  Uniformity context = state.context;
  for (uint32_t at = 0; at < function_->ops.size(); ++at) {
    const Op& op = function_->ops[at];
    if (op.code == Opcode::end || op.code == Opcode::while_end) {
      // The condition of a `while` is asked inside of its loop.
      if (op.code == Opcode::while_end)
        visit(at, context, Uniformity::block);
      context = blocks.back().before;
      blocks.pop_back();
    }
    for (Uniformity level : {Uniformity::warp, Uniformity::none})
      if (at >= returned_from_[static_cast<unsigned>(level)])
        context = std::max(context, level);
    Uniformity condition = Uniformity::block;
    switch (op.code) {
    case Opcode::if_begin:
      condition = level_of(op.operand[0]);
      break;
    case Opcode::for_loop:
      condition = op.operand[0] == kImmediate ? Uniformity::block : level_of(op.operand[0]);
      break;
    case Opcode::loop:
      condition = level_of(function_->ops[loop_end_[at]].operand[0]);
      break;
    case Opcode::return_void: {
      // Threads that have gone are missing from here on, and in a loop from its next round on.
      if (blocks.empty())
        break;
      uint32_t from = at;
      for (size_t i = blocks.size(); i-- > 0;)
        if (blocks[i].loop)
          from = blocks[i].op;
      uint32_t& gone = returned_from_[static_cast<unsigned>(context)];
      gone = std::min(gone, from);
      break;
    }
    default:
      break;
    }
    if (op.code != Opcode::while_end)
      visit(at, context, condition);
    if (op.code == Opcode::if_begin || op.code == Opcode::for_loop || op.code == Opcode::loop) {
      blocks.push_back({context, at, op.code != Opcode::if_begin});
      context = std::max(context, condition);
    }
  }
}

Uniformity Analysis::result(const Op& op, Uniformity context) const {
  Uniformity level = context;
  visit_reads(*function_, op, [&](Reg first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i)
      level = std::max(level, level_of(first.id + i));
  });
  const auto along_x = [&](bool whole_warps) {
    return whole_warps && states_[index_].whole_warps_along_x && thread_x_[op.operand[0]] == 1 &&
                   op.operand[1] == kImmediate
               ? std::max(context, Uniformity::warp)
               : level;
  };
  switch (op.code) {
  case Opcode::special:
    return std::max(context, states_[index_].special[op.detail]);
  case Opcode::shr:
  case Opcode::sar:
    return along_x(op.immediate >= 5); // 2^5 threads are a warp
  case Opcode::divu:
    return along_x(op.immediate > 0 && op.immediate % kWarp == 0);
  case Opcode::load_ordered: // another thread may write between two threads' reads
  case Opcode::atomic:
  case Opcode::compare_swap:
  case Opcode::load_matrix:
  case Opcode::mma:
  case Opcode::mma_sparse:
    return Uniformity::none;
  case Opcode::ballot:
    return std::max(context, Uniformity::warp);
  case Opcode::shuffle:
    if (level_of(op.operand[0]) <= Uniformity::warp)
      return std::max(context, level_of(op.operand[0]));
    if (static_cast<Shuffle>(op.detail) == Shuffle::index &&
        (op.operand[1] == kImmediate || level_of(op.operand[1]) <= Uniformity::warp))
      return std::max(context, Uniformity::warp);
    return Uniformity::none;
  default:
    return level;
  }
}

/// One pass; true if a register's level rose.
bool Analysis::propagate() {
  bool changed = false;
  uint32_t before[3];
  std::copy(std::begin(returned_from_), std::end(returned_from_), before);
  each([&](uint32_t at, Uniformity context, Uniformity condition) {
    const Op& op = function_->ops[at];
    const uint32_t count = result_count(op);
    if (count == 0)
      return;
    const Uniformity level =
        op.code == Opcode::for_loop ? std::max(context, condition) : result(op, context);
    for (uint32_t i = 0; i < count; ++i) {
      Uniformity& known = level_[op.result.id + i];
      changed = changed || level > known;
      known = std::max(known, level);
    }
  });
  return changed || !std::equal(std::begin(before), std::end(before), returned_from_);
}

void Analysis::walk(uint32_t index) {
  if (module_.functions[index].kind == FunctionKind::host)
    return;
  enter(index);
  while (propagate()) {
  }
  judge(index);
}

// ---- what follows ------------------------------------------------------------------------------

/// Tells the called functions what their callers know.
void Analysis::call(const Op& op, Uniformity context) {
  if (op.code == Opcode::switch_call)
    context = std::max(context, level_of(op.operand[0]));
  const std::span<const uint32_t> list = arguments(*function_, op);
  const State& here = states_[index_];
  for (uint32_t callee : callees(*function_, op)) {
    State& state = states_[callee];
    state.called = true;
    state.context = std::max(state.context, context);
    state.whole_warps_along_x = state.whole_warps_along_x && here.whole_warps_along_x;
    state.parameters.resize(list.size(), Uniformity::block);
    for (size_t i = 0; i < list.size(); ++i)
      state.parameters[i] = std::max(state.parameters[i], level_of(list[i]));
    for (unsigned i = 0; i < kSpecials; ++i)
      state.special[i] = std::max(state.special[i], here.special[i]);
  }
}

void Analysis::judge_op(uint32_t at, Uniformity context) {
  const Op& op = function_->ops[at];
  const bool together = op.code == Opcode::barrier || op.code == Opcode::cluster_barrier ||
                        op.code == Opcode::warp_barrier || op.code == Opcode::shuffle ||
                        op.code == Opcode::ballot || op.code == Opcode::load_matrix ||
                        info(op.code).form == Form::mma;
  if (!together)
    return;
  if (context == Uniformity::none) {
    const std::string why =
        states_[index_].context == Uniformity::none
            ? fmt::format("@{} is called where the threads of a warp may have parted",
                          function_->name)
            : std::string("the threads of a warp may have parted here, by a condition or a return");
    report_(index_, at, fmt::format("'{}' in divergent code: {}", info(op.code).text, why));
  } else if (op.code == Opcode::barrier && op.operand[0] != kNoOperand &&
             op.operand[0] != kImmediate && level_of(op.operand[0]) == Uniformity::none) {
    report_(index_, at, "the barrier's number may differ between the threads of a warp");
  }
}

/// Where whole warps part, they must meet the same number of barriers of the whole block.
void Analysis::judge_branch(uint32_t at, Uniformity condition) {
  if (condition != Uniformity::warp)
    return;
  const Op& op = function_->ops[at];
  switch (op.code) {
  case Opcode::if_begin: {
    const auto found = sides_[index_].find(at);
    if (found == sides_[index_].end())
      return;
    const auto [then_side, else_side] = found->second;
    if (then_side == kVaries || then_side != else_side)
      report_(index_, at,
              fmt::format("the warps of a block part here, but the sides execute {} and {} "
                          "barriers of the whole block",
                          describe(then_side), describe(else_side)));
    return;
  }
  case Opcode::switch_call: {
    const std::span<const uint32_t> list = callees(*function_, op);
    if (switch_barriers(*function_, op) != kVaries)
      return;
    std::string counts;
    constexpr size_t kListed = 8;
    bool equal = true;
    for (size_t i = 0; i < list.size(); ++i) {
      const int64_t barriers = states_[list[i]].barriers;
      equal = equal && barriers != kVaries && barriers == states_[list[0]].barriers;
      if (i < kListed)
        counts += fmt::format("{}@{} {}", i == 0 ? "" : ", ", module_.functions[list[i]].name,
                              describe(barriers));
      else if (i == kListed)
        counts += ", ...";
    }
    report_(index_, at,
            equal ? fmt::format("the warps of a block part here, and an index out of range calls "
                                "nothing, while every function executes {} barriers of the whole "
                                "block; bound the index with 'minu' by {}",
                                describe(states_[list[0]].barriers), list.size() - 1)
                  : fmt::format("the warps of a block part here, but the functions execute "
                                "different numbers of barriers of the whole block: {}",
                                counts));
    return;
  }
  default:
    return;
  }
}

void Analysis::judge(uint32_t index) {
  // Barriers in loops that warps may leave at different times.
  struct Loop {
    uint32_t op;
    Uniformity condition;
  };
  std::vector<Loop> blocks;
  each([&](uint32_t at, Uniformity context, Uniformity condition) {
    const Op& op = function_->ops[at];
    judge_op(at, context);
    switch (op.code) {
    case Opcode::if_begin:
    case Opcode::for_loop:
    case Opcode::loop:
      if (context != Uniformity::none && op.code == Opcode::if_begin)
        judge_branch(at, condition);
      blocks.push_back({at, op.code == Opcode::if_begin ? Uniformity::block : condition});
      break;
    case Opcode::end:
    case Opcode::while_end:
      blocks.pop_back();
      break;
    case Opcode::call:
    case Opcode::switch_call:
      if (op.code == Opcode::switch_call && context != Uniformity::none)
        judge_branch(at, level_of(op.operand[0]));
      call(op, context);
      [[fallthrough]];
    case Opcode::barrier: {
      const bool whole =
          op.code == Opcode::barrier
              ? op.operand[0] == kNoOperand
              : std::any_of(callees(*function_, op).begin(), callees(*function_, op).end(),
                            [&](uint32_t callee) { return states_[callee].barriers != 0; });
      const bool in_warp_loop = std::any_of(blocks.begin(), blocks.end(), [](const Loop& loop) {
        return loop.condition == Uniformity::warp;
      });
      if (whole && in_warp_loop && context != Uniformity::none)
        report_(index, at,
                "a barrier of the whole block in a loop that its warps may leave at different "
                "times");
      break;
    }
    default:
      break;
    }
  });
  if (returned_from_[static_cast<unsigned>(Uniformity::warp)] != kNoOperand &&
      states_[index].context != Uniformity::none)
    judge_early_return(index);
}

/// A warp that returns early misses the barriers that come after.
void Analysis::judge_early_return(uint32_t index) {
  const uint32_t from = returned_from_[static_cast<unsigned>(Uniformity::warp)];
  for (uint32_t at = from; at < function_->ops.size(); ++at) {
    const Op& op = function_->ops[at];
    const std::span<const uint32_t> list = callees(*function_, op);
    if ((op.code == Opcode::barrier && op.operand[0] == kNoOperand) ||
        std::any_of(list.begin(), list.end(),
                    [&](uint32_t callee) { return states_[callee].barriers != 0; })) {
      report_(index, at, "whole warps may have returned before this barrier of the whole block");
      return;
    }
  }
}

} // namespace

bool index_in_range(const Function& function, const Op& op) {
  const auto count = static_cast<int64_t>(callees(function, op).size());
  const Op* definition = nullptr;
  for (const Op& other : function.ops) {
    const uint32_t results = result_count(other);
    if (results == 0 || op.operand[0] < other.result.id ||
        op.operand[0] >= other.result.id + results)
      continue;
    if (definition != nullptr)
      return false;
    definition = &other;
  }
  if (definition == nullptr)
    return false;
  const bool number = definition->operand[1] == kImmediate && definition->immediate >= 0;
  switch (definition->code) {
  case Opcode::constant:
    return definition->immediate >= 0 && definition->immediate < count;
  case Opcode::minu:
  case Opcode::bit_and:
    return number && definition->immediate < count;
  case Opcode::remu:
    return number && definition->immediate > 0 && definition->immediate <= count;
  case Opcode::special: {
    const auto which = static_cast<Special>(definition->detail);
    return function.kind == FunctionKind::kernel && which <= Special::thread_z &&
           function.block[static_cast<unsigned>(which)] <= count;
  }
  default:
    return false;
  }
}

void check_uniformity(
    const Module& module, std::span<const uint32_t> callers_first,
    const std::function<void(uint32_t function, uint32_t op, std::string message)>& report) {
  const auto together = [](const Op& op) {
    return op.code == Opcode::barrier || op.code == Opcode::cluster_barrier ||
           op.code == Opcode::warp_barrier || op.code == Opcode::shuffle ||
           op.code == Opcode::ballot || op.code == Opcode::load_matrix ||
           info(op.code).form == Form::mma;
  };
  const bool any =
      std::any_of(module.functions.begin(), module.functions.end(), [&](const Function& function) {
        return std::any_of(function.ops.begin(), function.ops.end(), together);
      });
  if (any)
    Analysis(module, callers_first, report).run();
}

} // namespace sparsertc::ir
