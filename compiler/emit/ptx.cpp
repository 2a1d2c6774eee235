#include "compiler/emit/ptx.h"

#include "compiler/emit/clusters.h"
#include "compiler/emit/ptx_function.h"
#include "compiler/emit/ptx_symbols.h"
#include "ir/error.h"
#include "ir/operands.h"
#include "ir/verifier.h"

#include <algorithm>
#include <fmt/format.h>
#include <unordered_set>

namespace sparsertc {

using ir::FunctionKind;
using ir::Opcode;
using ir::Space;

namespace {

constexpr uint32_t kNobody = UINT32_MAX;
constexpr uint32_t kSeveral = UINT32_MAX - 1;

/// Names of the IR that PTX would not take, or would take for something else.
void require_names(const ir::Module& module) {
  std::unordered_set<std::string_view> taken; // asked only
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto require = [&](std::string_view what, const std::string& name) {
    // [A-Za-z_][A-Za-z0-9_$]*; the words that PTX, or this printer, has for other things.
    const bool identifier = !name.empty() && letter(name[0]) &&
                            std::all_of(name.begin(), name.end(),
                                        [&](char c) { return letter(c) || digit(c) || c == '$'; });
    const size_t number = std::min(name.rfind("_param_"), name.size());
    const bool parameter =
        std::all_of(name.begin() + static_cast<std::ptrdiff_t>(std::min(number + 7, name.size())),
                    name.end(), digit) &&
        number + 7 < name.size();
    if (!identifier || parameter || name == "_" || name == "WARP_SZ" || name == kDynamicShared)
      throw UserError(fmt::format("{} '@{}' has a name that PTX does not take", what, name),
                      "use letters, digits, '_' and '$', begin with a letter or '_', and do not "
                      "end in _param_NUMBER");
    if (!taken.insert(name).second)
      throw UserError(fmt::format("a symbol and a function are both called '@{}'", name),
                      "PTX has one set of names for both; rename one");
  };
  for (const ir::Symbol& symbol : module.symbols)
    require("symbol", symbol.name);
  for (const ir::Function& function : module.functions)
    if (function.kind != FunctionKind::host && !function.external)
      require("function", function.name);
}

/// What the module's text is made from, found in one pass over the operations.
class ModulePlan {
public:
  ModulePlan(const ir::Module& module, const Target& target);

  /// Device functions and kernels, callees before callers, else in the module's order.
  std::vector<uint32_t> order;
  /// Of every function, without repetition, in order of appearance.
  std::vector<std::vector<uint32_t>> callees;
  std::vector<std::vector<uint32_t>> symbols;
  bool sparse_fragments = false;

private:
  void scan(uint32_t index);
  void visit(uint32_t index);

  const ir::Module& module_;
  enum class State : uint8_t { fresh, open, done };
  std::vector<State> state_;
};

ModulePlan::ModulePlan(const ir::Module& module, const Target& target)
    : callees(module.functions.size()), symbols(module.functions.size()), module_(module),
      state_(module.functions.size(), State::fresh) {
  if (target.is_host)
    throw UserError("PTX is for GPUs, but the target is 'host'",
                    "choose a GPU as target (sm_90, ...), or emit LLVM IR or host code");
  ir::require_placed(module);
  require_clusters(module, target);
  require_names(module);
  for (uint32_t i = 0; i < module.functions.size(); ++i)
    if (module.functions[i].kind != FunctionKind::host && !module.functions[i].external)
      scan(i);
  for (uint32_t i = 0; i < module.functions.size(); ++i)
    if (module.functions[i].kind != FunctionKind::host && !module.functions[i].external)
      visit(i);
}

void ModulePlan::scan(uint32_t index) {
  const ir::Function& function = module_.functions[index];
  std::vector<bool> called(module_.functions.size());
  std::vector<bool> used(module_.symbols.size());
  for (const ir::Op& op : function.ops) {
    if (op.code == Opcode::address) {
      const auto symbol = static_cast<uint32_t>(op.immediate);
      if (!used[symbol])
        symbols[index].push_back(symbol);
      used[symbol] = true;
    } else if (op.code == Opcode::mma_sparse) {
      sparse_fragments = true;
    } else {
      for (uint32_t callee : ir::callees(function, op)) {
        if (!called[callee])
          callees[index].push_back(callee);
        called[callee] = true;
      }
    }
  }
}

void ModulePlan::visit(uint32_t index) {
  if (state_[index] == State::done)
    return;
  if (state_[index] == State::open)
    throw InternalError(fmt::format("PTX: function '@{}' calls itself; was the module verified?",
                                    module_.functions[index].name));
  state_[index] = State::open;
  for (uint32_t callee : callees[index])
    visit(callee);
  state_[index] = State::done;
  order.push_back(index);
}

unsigned version_number(std::string_view version) {
  return static_cast<unsigned>((version[0] - '0') * 10 + (version[2] - '0'));
}

/// The printer of one module: names, header, and the pieces that files are put together from.
class ModulePrinter {
public:
  ModulePrinter(const ir::Module& module, const Target& target, const PtxOptions& options)
      : plan_(module, target), layout_(shared_layout(module)),
        context_{module, target, options, version_number(target.ptx_version), {}} {
    // mma.sp came with PTX ISA 7.1.
    if (plan_.sparse_fragments)
      context_.ptx_version = std::max(context_.ptx_version, 71u);
    if (layout_.bytes > target.shared_bytes_per_block)
      throw UserError(fmt::format("a block needs {} bytes of shared memory, {} has {}",
                                  layout_.bytes, target.name, target.shared_bytes_per_block),
                      "use smaller tiles, or do not stage through shared memory");
    for (uint32_t i = 0; i < module.symbols.size(); ++i)
      context_.symbol_address.push_back(
          in_dynamic_memory(i) ? fmt::format("{}+{}", kDynamicShared, layout_.offset[i])
                               : module.symbols[i].name);
  }

  std::string whole() {
    PtxBuffer out;
    out.reserve(expected_bytes());
    put_header(out, true);
    if (layout_.is_dynamic)
      put_dynamic_shared(out);
    for (uint32_t i = 0; i < module().symbols.size(); ++i)
      if (!in_dynamic_memory(i))
        put_symbol(out, module().symbols[i], SymbolLinkage::local);
    PtxFunctionPrinter printer(context_);
    for (uint32_t index : plan_.order) {
      out.put('\n');
      printer.print(out, module().functions[index],
                    is_kernel(index) ? std::string_view(".visible ") : std::string_view());
    }
    return out.take();
  }

  std::vector<std::string> units() {
    find_owners();
    std::vector<std::string> texts;
    PtxFunctionPrinter printer(context_);
    PtxBuffer out;
    put_entries_unit(out, printer);
    texts.emplace_back(out.view());
    for (const std::vector<uint32_t>& group : function_groups()) {
      out.clear();
      put_functions_unit(out, printer, group);
      texts.emplace_back(out.view());
    }
    return texts;
  }

private:
  const ir::Module& module() const { return context_.module; }
  bool is_kernel(uint32_t function) const {
    return module().functions[function].kind == FunctionKind::kernel;
  }
  bool in_dynamic_memory(uint32_t symbol) const {
    return layout_.is_dynamic && module().symbols[symbol].type.space() == Space::shared;
  }

  /// A guess, so that long texts are not moved while they grow.
  size_t expected_bytes() const {
    size_t operations = 0;
    size_t elements = 0;
    for (const ir::Function& function : module().functions)
      operations += function.ops.size();
    for (const ir::Symbol& symbol : module().symbols)
      elements += symbol.bytes.size() / size_in_bytes(symbol.type.element());
    return operations * (context_.options.annotate ? 72 : 44) + elements * 11 + 4096;
  }

  /// Attributes are facts about the whole module: the entries' unit has them, the others do not.
  void put_header(PtxBuffer& out, bool attributes) const {
    out.put(std::string_view("// sparsertc\n"));
    if (attributes)
      for (const auto& [key, value] : module().attributes) {
        std::string line = fmt::format("// {}: {}", key, value);
        for (char& character : line) // one line, whatever stands in it
          if (static_cast<unsigned char>(character) < ' ')
            character = ' ';
        out.put(line);
        out.put('\n');
      }
    out.put(fmt::format("\n.version {}.{}\n.target {}\n.address_size 64\n\n",
                        context_.ptx_version / 10, context_.ptx_version % 10,
                        context_.target.name));
  }

  void put_dynamic_shared(PtxBuffer& out) const {
    out.put(
        fmt::format(".extern .shared .align {} .b8 {}[];\n", layout_.alignment, kDynamicShared));
  }

  /// owner_[symbol]: the one device function that uses it, kSeveral where kernels or several
  /// functions do.
  void find_owners() {
    owner_.assign(module().symbols.size(), kNobody);
    for (uint32_t index : plan_.order)
      for (uint32_t symbol : plan_.symbols[index])
        owner_[symbol] = owner_[symbol] == kNobody && !is_kernel(index) ? index : kSeveral;
  }

  void put_extern_functions(PtxBuffer& out, const std::vector<uint32_t>& functions) const {
    for (uint32_t index : functions) {
      out.put(std::string_view(".extern .func "));
      out.put(std::string_view(module().functions[index].name));
      put_parameters(out, module().functions[index]);
      out.put(std::string_view(";\n"));
    }
  }

  void put_entries_unit(PtxBuffer& out, PtxFunctionPrinter& printer) const {
    put_header(out, true);
    std::vector<bool> declared(module().functions.size());
    std::vector<uint32_t> called;
    bool dynamic = false;
    for (uint32_t index : plan_.order)
      if (is_kernel(index)) {
        for (uint32_t callee : plan_.callees[index])
          if (!declared[callee]) {
            declared[callee] = true;
            called.push_back(callee);
          }
        for (uint32_t symbol : plan_.symbols[index])
          dynamic = dynamic || in_dynamic_memory(symbol);
      }
    if (dynamic)
      put_dynamic_shared(out);
    for (uint32_t i = 0; i < module().symbols.size(); ++i)
      if (!in_dynamic_memory(i) && (owner_[i] == kSeveral || owner_[i] == kNobody))
        put_symbol(out, module().symbols[i], SymbolLinkage::visible);
    put_extern_functions(out, called);
    for (uint32_t index : plan_.order)
      if (is_kernel(index)) {
        out.put('\n');
        printer.print(out, module().functions[index], ".visible ");
      }
  }

  /// Device functions in order, short ones together: starting the assembler costs as much as a
  /// thousand operations, and functions side by side take it no longer than apart.
  std::vector<std::vector<uint32_t>> function_groups() const {
    std::vector<std::vector<uint32_t>> groups;
    const size_t most = context_.options.operations_of_unit;
    size_t operations = 0;
    for (uint32_t index : plan_.order) {
      if (is_kernel(index))
        continue;
      const size_t more = module().functions[index].ops.size();
      if (groups.empty() || operations + more > most) {
        groups.emplace_back();
        operations = 0;
      }
      groups.back().push_back(index);
      operations += more;
    }
    return groups;
  }

  void put_functions_unit(PtxBuffer& out, PtxFunctionPrinter& printer,
                          const std::vector<uint32_t>& group) const {
    put_header(out, false);
    const auto once = [&](const std::vector<std::vector<uint32_t>>& used) {
      std::vector<uint32_t> all;
      for (uint32_t index : group)
        for (uint32_t one : used[index])
          if (std::find(all.begin(), all.end(), one) == all.end())
            all.push_back(one);
      return all;
    };
    bool dynamic = false;
    for (uint32_t symbol : once(plan_.symbols)) {
      const bool own = std::find(group.begin(), group.end(), owner_[symbol]) != group.end();
      if (in_dynamic_memory(symbol))
        dynamic = true;
      else
        put_symbol(out, module().symbols[symbol],
                   own ? SymbolLinkage::local : SymbolLinkage::external);
    }
    if (dynamic)
      put_dynamic_shared(out);
    std::vector<uint32_t> elsewhere = once(plan_.callees);
    std::erase_if(elsewhere, [&](uint32_t callee) {
      return std::find(group.begin(), group.end(), callee) != group.end();
    });
    put_extern_functions(out, elsewhere);
    for (uint32_t index : group) {
      out.put('\n');
      printer.print(out, module().functions[index], ".visible ");
    }
  }

  ModulePlan plan_;
  SharedLayout layout_;
  PtxModule context_;
  std::vector<uint32_t> owner_;
};

} // namespace

std::string emit_ptx(const ir::Module& module, const Target& target, const PtxOptions& options) {
  return ModulePrinter(module, target, options).whole();
}

std::vector<std::string> emit_ptx_units(const ir::Module& module, const Target& target,
                                        const PtxOptions& options) {
  return ModulePrinter(module, target, options).units();
}

uint32_t ptx_dynamic_shared_bytes(const ir::Module& module) {
  const SharedLayout layout = shared_layout(module);
  return layout.is_dynamic ? static_cast<uint32_t>(layout.bytes) : 0;
}

} // namespace sparsertc
