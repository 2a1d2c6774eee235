#include "compiler/transform/placement.h"

#include "compiler/transform/placement_costs.h"
#include "compiler/transform/sequential_functions.h"
#include "ir/error.h"
#include "ir/operands.h"
#include "ir/printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace sparsertc {

using ir::Form;
using ir::Function;
using ir::Op;
using ir::Space;

namespace {

constexpr SideOf kHost{Side::host, SideOf::kNone};
constexpr SideOf kDevice{Side::device, SideOf::kNone};

constexpr const char* kCopyFirst =
    "copy the array to a buffer of its own, and give the function that";

class ProblemMaker {
public:
  ProblemMaker(const ir::Module& module, const Function& function, const ProgramShape& shape,
               MemoryEffects& effects)
      : module_(module), function_(function), shape_(shape), effects_(effects),
        number_(function.register_type.size(), SideOf::kNone) {
    // Buffers that have a place already are not asked about.
    const BufferUse all = find_buffer_use(function, shape, effects);
    std::vector<uint32_t> kept(all.buffers.size(), SideOf::kNone);
    for (size_t i = 0; i < all.buffers.size(); ++i)
      if (all.buffers[i].type.space() == Space::any) {
        kept[i] = static_cast<uint32_t>(problem_.use.buffers.size());
        number_[all.buffers[i].reg] = kept[i];
        problem_.use.buffers.push_back(all.buffers[i]);
      }
    for (uint32_t at = 0; at < function.ops.size(); ++at) {
      problem_.use.first_touch.push_back(static_cast<uint32_t>(problem_.use.touches.size()));
      for (uint32_t i = all.first_touch[at]; i < all.first_touch[at + 1]; ++i)
        if (BufferTouch touch = all.touches[i]; kept[touch.buffer] != SideOf::kNone) {
          touch.buffer = kept[touch.buffer];
          problem_.use.touches.push_back(touch);
        }
    }
    problem_.use.first_touch.push_back(static_cast<uint32_t>(problem_.use.touches.size()));
    problem_.sides.resize(problem_.use.touches.size());
    problem_.call_side.resize(function.ops.size());
  }

  PlacementProblem make() {
    for (at_ = 0; at_ < function_.ops.size(); ++at_)
      operation(function_.ops[at_]);
    for (size_t i = 0; i < problem_.use.touches.size(); ++i)
      agree(problem_.use.touches[i], problem_.sides[i]);
    return std::move(problem_);
  }

private:
  bool is_any(uint32_t reg) const { return number_[reg] != SideOf::kNone; }

  void operation(const Op& op) {
    switch (ir::info(op.code).form) {
    case Form::load:
    case Form::store:
      meet(op.operand[0], kHost);
      break;
    case Form::launch:
      for (uint32_t argument : ir::arguments(function_, op))
        meet(argument, kDevice);
      break;
    case Form::copy:
      copy(op);
      break;
    case Form::call:
    case Form::switch_call:
      call(op);
      break;
    default:
      break;
    }
  }

  /// The buffer behind `reg`, if it has no place yet, is touched on this side.
  void meet(uint32_t reg, SideOf side) {
    if (!is_any(reg))
      return;
    for (uint32_t i = problem_.use.first_touch[at_]; i < problem_.use.first_touch[at_ + 1]; ++i) {
      std::vector<SideOf>& sides = problem_.sides[i];
      if (problem_.use.touches[i].buffer == number_[reg] &&
          std::find(sides.begin(), sides.end(), side) == sides.end())
        sides.push_back(side);
    }
  }

  SideOf new_choice(int64_t host_ns, int64_t device_ns) {
    problem_.choices.push_back({at_, host_ns, device_ns});
    return {Side::host, static_cast<uint32_t>(problem_.choices.size() - 1)};
  }

  /// Each end is where it is best.
  void copy(const Op& op) {
    if (!is_any(op.operand[0]) && !is_any(op.operand[1]))
      return;
    const auto end = [&](uint32_t reg) {
      if (is_any(reg)) {
        const SideOf side = new_choice(0, 0);
        meet(reg, side);
        return side;
      }
      return function_.register_type[reg].space() == Space::host ? kHost : kDevice;
    };
    const SideOf destination = end(op.operand[0]);
    const SideOf source = end(op.operand[1]);
    const int64_t count =
        op.operand[2] == ir::kImmediate
            ? op.immediate
            : shape_.constant(op.operand[2]).value_or(placement_costs::kUnknownElements);
    const int64_t bytes =
        saturating_product(std::max<int64_t>(count, 0),
                           ir::size_in_bytes(function_.register_type[op.operand[1]].element()));
    problem_.copies.push_back(
        {destination, source,
         saturating_product(shape_.executions_of_op(at_), placement_costs::copy_ns(bytes))});
  }

  void call(const Op& op) {
    const std::span<const uint32_t> list = ir::arguments(function_, op);
    const std::span<const uint32_t> functions = ir::callees(function_, op);
    // What the callee's parameters without a place are given that has one decides.
    bool sequential = false, host = false, device = false;
    for (uint32_t callee : functions) {
      const Function& called = module_.functions[callee];
      sequential = sequential || called.is_sequential();
      for (size_t i = 0; i < list.size(); ++i) {
        const Space given = function_.register_type[list[i]].space();
        const Space wanted = called.register_type[i].space();
        host = host || (wanted == Space::any && given == Space::host);
        device = device || (wanted == Space::any && given == Space::device);
        if (wanted == Space::host)
          meet(list[i], kHost);
        if (wanted == Space::device)
          meet(list[i], kDevice);
      }
    }
    for (size_t i = 0; i < list.size(); ++i)
      for (uint32_t callee : functions)
        if (is_any(list[i]) && effects_.of(callee)[i].frees)
          fail(fmt::format("@{} frees {}, which is the business of this program",
                           module_.functions[callee].name,
                           ir::print_register(function_, ir::Reg{list[i]})),
               "take the 'free' out of it");
    for (size_t i = 0; i < list.size(); ++i)
      for (uint32_t callee : functions)
        if (is_any(list[i]) && module_.functions[callee].register_type[i] !=
                                   module_.functions[functions.front()].register_type[i])
          fail(fmt::format("the functions want {} in different memories",
                           ir::print_register(function_, ir::Reg{list[i]})),
               "give them the same parameters");
    if (!sequential)
      return;
    SequentialWork work;
    if (op.code == ir::Opcode::call)
      work = sequential_work(module_, functions.front());
    else
      work.stays = "a 'switch' calls host functions";
    if (function_.cpu)
      work.stays = fmt::format("@{} is a cpu function", function_.name);
    if (device && (host || !work.stays.empty()))
      fail(fmt::format("@{} is given device memory, {}", module_.functions[functions.front()].name,
                       host ? "and host memory as well" : "but cannot run there: " + work.stays),
           kCopyFirst);
    SideOf side = device ? kDevice : kHost;
    const int64_t runs = shape_.executions_of_op(at_);
    if (!host && !device && work.stays.empty())
      side = new_choice(saturating_product(runs, work.host_ns),
                        saturating_product(runs, work.device_ns + placement_costs::kLaunchNs));
    problem_.call_side[at_] = side;
    for (uint32_t callee : functions)
      for (size_t i = 0; i < list.size(); ++i)
        if (module_.functions[callee].register_type[i].space() == Space::any)
          meet(list[i], side);
  }

  /// What is read on both sides of one operation is not written by it.
  void agree(const BufferTouch& touch, const std::vector<SideOf>& sides) {
    at_ = touch.op;
    if (sides.size() > 1 && touch.writes)
      fail(fmt::format(
               "{} is used in host and in device memory at once, and written",
               ir::print_register(function_, ir::Reg{problem_.use.buffers[touch.buffer].reg})),
           kCopyFirst);
  }

  [[noreturn]] void fail(const std::string& message, const std::string& way_out) const {
    throw UserError(fmt::format("placing the buffers of @{}, at `{}`: {}", function_.name,
                                ir::print_op(module_, function_, function_.ops[at_]), message),
                    way_out);
  }

  const ir::Module& module_;
  const Function& function_;
  const ProgramShape& shape_;
  MemoryEffects& effects_;
  PlacementProblem problem_;
  std::vector<uint32_t> number_; ///< of the buffer, by register
  uint32_t at_ = 0;
};

} // namespace

PlacementProblem make_placement_problem(const ir::Module& module, const Function& function,
                                        const ProgramShape& shape, MemoryEffects& effects) {
  return ProblemMaker(module, function, shape, effects).make();
}

} // namespace sparsertc
