#include "compiler/transform/sequential_functions.h"

#include "compiler/transform/placement_costs.h"
#include "compiler/transform/program_shape.h"
#include "ir/operands.h"

#include <fmt/format.h>

#include <map>

namespace sparsertc {

using ir::Form;
using ir::Function;
using ir::FunctionKind;
using ir::Op;
using ir::Opcode;
using ir::Space;
using ir::Type;

namespace {

bool kernel_takes(Type type) {
  return type.is_pointer() ||
         (type.is_scalar() && !type.is_pair() && ir::size_in_bytes(type.element()) >= 4);
}

/// What a sequential function can become.
enum class SequentialForm : uint8_t { host, kernel, func };

void set_space(Function& function, SequentialForm form) {
  const Space space = form == SequentialForm::host ? Space::host : Space::device;
  const auto placed = [&](Type type) {
    return type.space() == Space::any ? Type::pointer(space, type.element()) : type;
  };
  for (Type& type : function.register_type)
    type = placed(type);
  for (Op& op : function.ops)
    op.type = placed(op.type);
  function.kind = form == SequentialForm::host     ? FunctionKind::host
                  : form == SequentialForm::kernel ? FunctionKind::kernel
                                                   : FunctionKind::device;
}

/// The places of the function numbers behind a call or switch.
std::vector<uint32_t*> callee_places(Function& function, Op& op) {
  std::vector<uint32_t*> places;
  if (ir::info(op.code).form == Form::call)
    places.push_back(&op.operand[0]);
  else if (ir::info(op.code).form == Form::switch_call)
    for (uint32_t i = 0; i < function.pool[op.operand[1]]; ++i)
      places.push_back(&function.pool[op.operand[1] + 1 + i]);
  return places;
}

class Splitter {
public:
  Splitter(ir::Module& module, const std::vector<MovedCall>& moved) : module_(module) {
    for (uint32_t i = 0; i < module.functions.size(); ++i)
      sequential_.push_back(module.functions[i].is_sequential());
    for (const MovedCall& call : moved)
      moved_.insert({call.function, call.op});
  }

  void run() {
    find_forms();
    make_functions();
    for (uint32_t f = 0; f < sequential_.size(); ++f)
      if (!sequential_[f])
        name_callees(module_.functions[f], f, SequentialForm::host);
  }

private:
  void need(uint32_t function, SequentialForm form) {
    if (!forms_[function].emplace(form, 0).second)
      return;
    const SequentialForm inner =
        form == SequentialForm::host ? SequentialForm::host : SequentialForm::func;
    const Function& body = module_.functions[function];
    for (const Op& op : body.ops)
      for (uint32_t callee : ir::callees(body, op))
        need(callee, inner);
  }

  void find_forms() {
    forms_.resize(module_.functions.size());
    for (uint32_t f = 0; f < module_.functions.size(); ++f) {
      const Function& function = module_.functions[f];
      if (function.kind != FunctionKind::host || sequential_[f])
        continue;
      for (uint32_t at = 0; at < function.ops.size(); ++at)
        for (uint32_t callee : ir::callees(function, function.ops[at]))
          if (sequential_[callee])
            need(callee, moved_.contains({f, at}) ? SequentialForm::kernel : SequentialForm::host);
    }
    for (uint32_t f = 0; f < module_.functions.size(); ++f)
      if (sequential_[f] && forms_[f].empty())
        need(f, SequentialForm::host); // nobody calls it here
  }

  std::string free_name(std::string name) const {
    while (module_.find_function(name) != UINT32_MAX)
      name += '_';
    return name;
  }

  void make_functions() {
    const auto count = static_cast<uint32_t>(sequential_.size());
    for (uint32_t f = 0; f < count; ++f) {
      bool first = true;
      for (auto& [form, index] : forms_[f]) {
        index = first ? f : static_cast<uint32_t>(module_.functions.size());
        if (!first) {
          Function copy = module_.functions[f];
          copy.name = free_name(copy.name + "_device");
          module_.functions.push_back(std::move(copy));
        }
        first = false;
      }
    }
    for (uint32_t f = 0; f < count; ++f)
      for (const auto& [form, index] : forms_[f]) {
        set_space(module_.functions[index], form);
        name_callees(module_.functions[index], kNobody, form);
      }
  }

  /// Lets calls name the form that is wanted of each callee; moved ones become launches.
  void name_callees(Function& function, uint32_t caller, SequentialForm form) {
    const SequentialForm inner =
        form == SequentialForm::host ? SequentialForm::host : SequentialForm::func;
    uint32_t one = kNobody;
    for (uint32_t at = 0; at < function.ops.size(); ++at) {
      Op& op = function.ops[at];
      const bool moves = caller != kNobody && moved_.contains({caller, at});
      for (uint32_t* callee : callee_places(function, op))
        if (*callee < sequential_.size() && sequential_[*callee])
          *callee = forms_[*callee].at(moves ? SequentialForm::kernel : inner);
      if (!moves)
        continue;
      if (one == kNobody) {
        one = static_cast<uint32_t>(function.register_type.size());
        function.register_type.push_back(ir::Scalar::i32);
      }
      launch(function, op, one);
    }
    if (one == kNobody)
      return;
    Op constant;
    constant.code = Opcode::constant;
    constant.type = ir::Scalar::i32;
    constant.result = ir::Reg{one};
    constant.operand[0] = ir::kImmediate;
    constant.immediate = 1;
    function.ops.insert(function.ops.begin(), constant);
  }

  /// The grid is one block, of one thread as the kernel says.
  static void launch(Function& function, Op& op, uint32_t one) {
    const std::span<const uint32_t> list = ir::arguments(function, op);
    const std::vector<uint32_t> arguments(list.begin(), list.end());
    op.code = Opcode::launch;
    op.operand[1] = static_cast<uint32_t>(function.pool.size());
    op.operand[2] = ir::kNoOperand;
    function.pool.insert(function.pool.end(),
                         {one, one, one, static_cast<uint32_t>(arguments.size())});
    function.pool.insert(function.pool.end(), arguments.begin(), arguments.end());
  }

  static constexpr uint32_t kNobody = UINT32_MAX;
  ir::Module& module_;
  std::vector<bool> sequential_;
  std::set<std::pair<uint32_t, uint32_t>> moved_;
  /// By sequential function: the forms that are called and where they are.
  std::vector<std::map<SequentialForm, uint32_t>> forms_;
};

} // namespace

SequentialWork sequential_work(const ir::Module& module, uint32_t index) {
  const Function& function = module.functions[index];
  const ProgramShape shape(function);
  SequentialWork work;
  for (uint32_t i = 0; i < function.parameter_count; ++i)
    if (!kernel_takes(function.register_type[i]))
      work.stays = fmt::format("@{} has a parameter of type {}", function.name,
                               ir::to_string(function.register_type[i]));
  for (uint32_t at = 0; at < function.ops.size(); ++at) {
    const Op& op = function.ops[at];
    const ProgramShape::Region& region = shape.region(shape.region_of_op(at));
    if (!region.known)
      work.stays = fmt::format("@{} has a loop without a constant number of rounds", function.name);
    int64_t host = placement_costs::kHostOpNs;
    const Form form = ir::info(op.code).form;
    int64_t device = form == Form::load || form == Form::store ? placement_costs::kDeviceAccessNs
                                                               : placement_costs::kDeviceOpNs;
    for (uint32_t callee : ir::callees(function, op)) {
      const SequentialWork inner = sequential_work(module, callee);
      host += inner.host_ns;
      device += inner.device_ns;
      if (work.stays.empty())
        work.stays = inner.stays;
    }
    work.host_ns += saturating_product(region.executions, host);
    work.device_ns += saturating_product(region.executions, device);
  }
  return work;
}

void split_sequential_functions(ir::Module& module, const std::vector<MovedCall>& moved) {
  Splitter(module, moved).run();
}

} // namespace sparsertc
