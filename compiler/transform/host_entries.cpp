#include "compiler/transform/host_entries.h"

#include "ir/operands.h"

#include <functional>
#include <optional>
#include <set>
#include <vector>

namespace sparsertc {

using ir::Function;
using ir::FunctionKind;
using ir::Op;
using ir::Space;
using ir::Type;

namespace {

bool is_program_op(const Op& op) {
  switch (op.code) {
  case ir::Opcode::alloc:
  case ir::Opcode::free:
  case ir::Opcode::copy:
  case ir::Opcode::launch:
    return true;
  default:
    return false;
  }
}

void call_it_device(Function& function) {
  const auto changed = [](Type type) {
    return type.space() == Space::host ? Type::pointer(Space::device, type.element()) : type;
  };
  for (Type& type : function.register_type)
    type = changed(type);
  for (Op& op : function.ops)
    op.type = changed(op.type);
  function.cpu = false;
}

} // namespace

HostEntries make_host_entries(const ir::Module& module) {
  std::vector<std::optional<bool>> known(module.functions.size());
  const std::function<bool(uint32_t)> convertible = [&](uint32_t index) {
    if (known[index])
      return *known[index];
    const Function& function = module.functions[index];
    bool result = function.kind == FunctionKind::host && !function.external;
    for (const Op& op : function.ops) {
      result = result && !is_program_op(op);
      if (!result)
        break;
      for (const uint32_t callee : ir::callees(function, op))
        result = result && convertible(callee);
    }
    known[index] = result;
    return result;
  };
  HostEntries entries;
  entries.module = module;
  std::set<std::string> taken;
  for (const Function& function : module.functions)
    taken.insert(function.name);
  for (uint32_t f = 0; f < module.functions.size(); ++f) {
    if (module.functions[f].kind != FunctionKind::host)
      continue;
    Function& function = entries.module.functions[f];
    if (!convertible(f)) { // keeps its number
      function.ops.clear();
      function.pool.clear();
      function.external = true;
      continue;
    }
    call_it_device(function);
    function.kind = FunctionKind::device;
  }
  const auto count = static_cast<uint32_t>(module.functions.size());
  for (uint32_t f = 0; f < count; ++f) {
    if (entries.module.functions[f].kind != FunctionKind::device ||
        module.functions[f].kind != FunctionKind::host)
      continue;
    Function entry = entries.module.functions[f];
    entry.kind = FunctionKind::kernel;
    entry.name += ".entry";
    while (!taken.insert(entry.name).second)
      entry.name += '_';
    entries.names[f] = entry.name;
    entries.module.functions.push_back(std::move(entry));
  }
  return entries;
}

} // namespace sparsertc
