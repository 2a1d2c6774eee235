#include "ir/verifier.h"

#include "ir/function_verifier.h"
#include "ir/operands.h"
#include "ir/printer.h"
#include "ir/uniformity.h"
#include "ir/verify_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <unordered_set>

namespace sparsertc::ir {
namespace {

constexpr uint64_t kMostConstantBytes = 64 * 1024;
constexpr uint32_t kMostAlignment = 1 << 16;

class ModuleVerifier {
public:
  ModuleVerifier(const Module& module, const SourceMap* map) : module_(module), map_(map) {}

  std::vector<Violation> run();

private:
  void symbols();
  void names();
  std::optional<std::vector<uint32_t>> callers_first();
  void add(uint32_t function, uint32_t op, std::string message);
  void add_symbol(uint32_t symbol, std::string message);

  const Module& module_;
  const SourceMap* map_;
  struct Entry {
    uint32_t function;
    uint32_t op;
    Violation violation;
  };
  std::vector<Violation> of_symbols_;
  std::vector<Entry> of_functions_;
};

void ModuleVerifier::add_symbol(uint32_t symbol, std::string message) {
  Violation violation;
  if (map_ != nullptr && symbol < map_->symbols.size())
    violation.place = map_->place(map_->symbols[symbol]);
  violation.message = std::move(message);
  of_symbols_.push_back(std::move(violation));
}

void ModuleVerifier::add(uint32_t function, uint32_t op, std::string message) {
  Violation violation;
  violation.function = module_.functions[function].name;
  violation.op_index = op;
  violation.message = std::move(message);
  if (map_ != nullptr && function < map_->functions.size()) {
    const std::vector<TextPosition>& ops = map_->ops[function];
    violation.place = map_->place(op < ops.size() ? ops[op] : map_->functions[function]);
  }
  // kNoOp + 1 is 0: what concerns the head comes first.
  of_functions_.push_back({function, op + 1, std::move(violation)});
}

void ModuleVerifier::symbols() {
  uint64_t constant_bytes = 0;
  for (uint32_t i = 0; i < module_.symbols.size(); ++i) {
    const Symbol& symbol = module_.symbols[i];
    const Space space = symbol.type.space();
    const uint64_t size = size_in_bytes(symbol.type.element());
    if (space != Space::constant && space != Space::shared && space != Space::device)
      add_symbol(i, fmt::format("@{} is in no memory that a symbol can be in", symbol.name));
    if (size == 0) {
      add_symbol(i, fmt::format("@{}: {} has no form in memory", symbol.name,
                                name_of(symbol.type.element())));
      continue;
    }
    if (symbol.count == 0)
      add_symbol(i, fmt::format("@{} has no elements", symbol.name));
    if (!std::has_single_bit(symbol.alignment) || symbol.alignment > kMostAlignment ||
        symbol.alignment < size)
      add_symbol(i, fmt::format("@{}: an alignment is a power of two from the element's size {} to "
                                "{}, not {}",
                                symbol.name, size, kMostAlignment, symbol.alignment));
    const uint64_t expected = space == Space::shared ? 0 : symbol.count * size;
    if (symbol.bytes.size() != expected || symbol.count > (uint64_t{1} << 48))
      add_symbol(i, fmt::format("@{} has {} initial bytes, but its type needs {}", symbol.name,
                                symbol.bytes.size(), expected));
    if (space == Space::constant) {
      const bool fitted = constant_bytes <= kMostConstantBytes;
      constant_bytes += symbol.bytes.size();
      if (fitted && constant_bytes > kMostConstantBytes)
        add_symbol(i, fmt::format("the constant symbols up to @{} take {} bytes, more than {}",
                                  symbol.name, constant_bytes, kMostConstantBytes));
    }
  }
}

void ModuleVerifier::names() {
  const auto legal = [](std::string_view name) {
    const auto letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '$';
    };
    return !name.empty() && letter(name.front()) &&
           std::all_of(name.begin(), name.end(),
                       [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
  };
  std::unordered_set<std::string_view> taken; // asked only
  for (uint32_t i = 0; i < module_.symbols.size(); ++i) {
    const std::string& name = module_.symbols[i].name;
    if (!legal(name))
      add_symbol(i, fmt::format("'{}' is no name for a symbol", name));
    if (!taken.insert(name).second)
      add_symbol(i, fmt::format("a second symbol is called @{}", name));
  }
  taken.clear();
  for (uint32_t i = 0; i < module_.functions.size(); ++i) {
    const std::string& name = module_.functions[i].name;
    if (!legal(name))
      add(i, kNoOp, fmt::format("'{}' is no name for a function", name));
    if (!taken.insert(name).second)
      add(i, kNoOp, fmt::format("a second function is called @{}", name));
  }
}

/// All functions, callers before callees; nothing if a function calls itself, which is reported.
std::optional<std::vector<uint32_t>> ModuleVerifier::callers_first() {
  enum class Mark : uint8_t { unseen, open, done };
  struct Visit {
    uint32_t function;
    uint32_t op;
    uint32_t callee;
  };
  std::vector<Mark> marks(module_.functions.size(), Mark::unseen);
  std::vector<uint32_t> order;
  bool recursive = false;
  for (uint32_t root = 0; root < module_.functions.size(); ++root) {
    if (marks[root] != Mark::unseen)
      continue;
    std::vector<Visit> stack{{root, 0, 0}};
    marks[root] = Mark::open;
    while (!stack.empty()) {
      Visit& top = stack.back();
      const Function& function = module_.functions[top.function];
      if (top.op == function.ops.size()) {
        marks[top.function] = Mark::done;
        order.push_back(top.function);
        stack.pop_back();
        continue;
      }
      const std::span<const uint32_t> list = callees(function, function.ops[top.op]);
      if (top.callee >= list.size()) {
        ++top.op;
        top.callee = 0;
        continue;
      }
      const uint32_t callee = list[top.callee++];
      if (marks[callee] == Mark::open) {
        recursive = true;
        add(top.function, top.op,
            fmt::format("recursion: @{} is called while it runs", module_.functions[callee].name));
      } else if (marks[callee] == Mark::unseen) {
        marks[callee] = Mark::open;
        stack.push_back({callee, 0, 0});
      }
    }
  }
  if (recursive)
    return std::nullopt;
  std::reverse(order.begin(), order.end());
  return order;
}

std::vector<Violation> ModuleVerifier::run() {
  symbols();
  names();
  bool sound = true;
  for (uint32_t i = 0; i < module_.functions.size(); ++i) {
    FunctionVerifier verifier(module_, module_.functions[i], [&, i](uint32_t op, std::string text) {
      add(i, op, std::move(text));
    });
    if (verifier.structure())
      verifier.semantics();
    else
      sound = false;
  }
  if (sound) {
    const std::optional<std::vector<uint32_t>> order = callers_first();
    if (order) {
      const auto report = [&](uint32_t function, uint32_t op, std::string text) {
        add(function, op, std::move(text));
      };
      check_uniformity(module_, *order, report);
      check_clusters(module_, *order, report);
    }
  }
  std::stable_sort(of_functions_.begin(), of_functions_.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.function, a.op) < std::pair(b.function, b.op);
  });
  std::vector<Violation> all = std::move(of_symbols_);
  for (Entry& entry : of_functions_)
    all.push_back(std::move(entry.violation));
  return all;
}

} // namespace

std::vector<Violation> verify(const Module& module, const SourceMap* map) {
  return ModuleVerifier(module, map).run();
}

void require_placed(const Module& module) {
  for (const Function& function : module.functions)
    for (uint32_t i = 0; function.kind == FunctionKind::host && i < function.register_type.size();
         ++i)
      if (const Type type = function.register_type[i]; type.space() == Space::any)
        throw UserError(fmt::format("{} of @{} has type {}: a buffer without a place, for which no "
                                    "code can be made",
                                    print_register(function, Reg{i}), function.name,
                                    to_string(type)),
                        "run the pass 'place' first (--pass=place), or write host or device "
                        "instead of any");
}

void verify_or_throw(const Module& module, std::string_view stage, const SourceMap* map) {
  const std::vector<Violation> violations = verify(module, map);
  if (violations.empty())
    return;
  constexpr size_t kShown = 20;
  std::string text;
  for (size_t i = 0; i < violations.size() && i < kShown; ++i) {
    const Violation& violation = violations[i];
    if (map != nullptr) {
      if (i != 0)
        text += fmt::format("\n{}: error: ", violation.place.describe());
      text += violation.message;
      continue;
    }
    text += "\n  ";
    const uint32_t index = module.find_function(violation.function);
    if (index != UINT32_MAX)
      text += fmt::format("@{}: ", violation.function);
    if (index != UINT32_MAX && violation.op_index < module.functions[index].ops.size()) {
      const Function& function = module.functions[index];
      text += fmt::format("operation {} `{}`: ", violation.op_index,
                          print_op(module, function, function.ops[violation.op_index]));
    }
    text += violation.message;
  }
  if (violations.size() > kShown)
    text += fmt::format("\n... and {} more", violations.size() - kShown);
  if (map != nullptr)
    throw UserError(violations.front().place, text);
  throw InternalError(fmt::format("the IR is not well formed after {}:{}", stage, text));
}

} // namespace sparsertc::ir
