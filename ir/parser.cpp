#include "ir/parser.h"

#include "ir/cursor.h"
#include "ir/function_parser.h"
#include "ir/literal.h"

#include <fmt/format.h>

namespace sparsertc::ir {
namespace {

/// Registers that a text may have beyond eight for each of its bytes.
constexpr uint64_t kFreeRegisters = 4096;

class ModuleParser {
public:
  ModuleParser(std::string_view text, const std::string& file, SourceMap& map)
      : cursor_(text, file), map_(map), budget_{kFreeRegisters + 8 * text.size()} {}

  Module parse();

private:
  void item();
  void symbol(Space space);
  void elements(Symbol& symbol);
  void function(FunctionKind kind);
  uint32_t extent(std::string_view what);
  std::string_view new_name(std::string_view what, TextPosition& position);
  void resolve(const NameUse& use);

  Cursor cursor_;
  SourceMap& map_;
  FunctionParser::Budget budget_;
  Module module_;
  std::vector<NameUse> uses_;
  std::unordered_map<std::string_view, uint32_t> functions_;
  std::unordered_map<std::string_view, uint32_t> symbols_;
};

Module ModuleParser::parse() {
  for (;;) {
    cursor_.skip_lines();
    if (cursor_.at_end())
      break;
    item();
  }
  for (const NameUse& use : uses_)
    resolve(use);
  return std::move(module_);
}

void ModuleParser::item() {
  const TextPosition position = cursor_.position();
  const std::string_view word = cursor_.take_word();
  if (word == "attribute") {
    std::string key = cursor_.take_string();
    std::string value = cursor_.take_string();
    module_.attributes.emplace_back(std::move(key), std::move(value));
    cursor_.expect_line_end();
  } else if (word == "constant") {
    symbol(Space::constant);
  } else if (word == "device") {
    symbol(Space::device);
  } else if (word == "shared") {
    symbol(Space::shared);
  } else if (word == "func") {
    function(FunctionKind::device);
  } else if (word == "kernel") {
    function(FunctionKind::kernel);
  } else if (word == "host") {
    function(FunctionKind::host);
  } else {
    constexpr std::string_view kItems = "attribute, constant, device, shared, func, kernel or host";
    if (word.empty())
      cursor_.fail_expected(kItems);
    cursor_.fail_expected(position, kItems, word);
  }
}

std::string_view ModuleParser::new_name(std::string_view what, TextPosition& position) {
  cursor_.skip_blanks();
  position = cursor_.position();
  if (!cursor_.accept('@'))
    cursor_.fail_expected(fmt::format("the {}'s name like @name", what));
  const std::string_view name = cursor_.take_name();
  if (name.empty() || (name.front() >= '0' && name.front() <= '9'))
    cursor_.fail(position, fmt::format("expected the {}'s name after '@'", what),
                 "names begin with a letter, '_', '.' or '$'");
  return name;
}

void ModuleParser::symbol(Space space) {
  TextPosition position;
  const std::string_view name = new_name("symbol", position);
  if (!symbols_.emplace(name, static_cast<uint32_t>(module_.symbols.size())).second)
    cursor_.fail(position, fmt::format("a second symbol is called @{}", name));
  map_.symbols.push_back(position);
  Symbol& symbol = module_.symbols.emplace_back();
  symbol.name = name;
  cursor_.expect(':', "before the symbol's type");
  cursor_.skip_blanks();
  const TextPosition type_position = cursor_.position();
  const std::string_view word = cursor_.take_word();
  const std::optional<Scalar> scalar = scalar_from_name(word);
  if (!scalar) {
    if (word.empty())
      cursor_.fail_expected("a type like f32");
    cursor_.fail_expected(type_position, "a type like f32", word);
  }
  if (size_in_bytes(*scalar) == 0)
    cursor_.fail(type_position, fmt::format("{} has no form in memory", word));
  symbol.type = Type::pointer(space, *scalar);
  cursor_.expect('[', "before the number of elements");
  constexpr uint64_t kMostElements = uint64_t{1} << 40;
  symbol.count = cursor_.take_unsigned("the number of elements", kMostElements);
  cursor_.expect(']', "after the number of elements");
  cursor_.expect_word("align");
  symbol.alignment = static_cast<uint32_t>(cursor_.take_unsigned("an alignment", UINT32_MAX));
  if (space != Space::shared)
    elements(symbol);
  cursor_.expect_line_end();
}

void ModuleParser::elements(Symbol& symbol) {
  cursor_.expect('=', "before the elements");
  cursor_.skip_blanks();
  const TextPosition begin = cursor_.position();
  cursor_.expect('[', "before the elements");
  const Scalar scalar = symbol.type.element();
  const uint32_t size = size_in_bytes(scalar);
  uint64_t count = 0;
  cursor_.skip_lines();
  while (!cursor_.accept(']')) {
    if (count != 0) {
      cursor_.expect(',', "or ']' after an element");
      cursor_.skip_lines();
    }
    const TextPosition position = cursor_.position();
    const std::string_view token = cursor_.take_number();
    const Literal literal = parse_literal(token, scalar);
    if (!literal.error.empty()) {
      if (token.empty())
        cursor_.fail_expected("an element");
      cursor_.fail_expected(position, literal.error, token);
    }
    const auto bits = static_cast<uint64_t>(literal.bits);
    for (uint32_t k = 0; k < size; ++k)
      symbol.bytes.push_back(static_cast<uint8_t>(bits >> (8 * k)));
    ++count;
    cursor_.skip_lines();
  }
  if (count != symbol.count)
    cursor_.fail(begin, fmt::format("@{} has {} elements by its type, but {} are listed",
                                    symbol.name, symbol.count, count));
}

uint32_t ModuleParser::extent(std::string_view what) {
  return static_cast<uint32_t>(cursor_.take_unsigned(what, UINT32_MAX));
}

void ModuleParser::function(FunctionKind kind) {
  const bool cpu = kind == FunctionKind::host && cursor_.accept_word("cpu");
  TextPosition position;
  const std::string_view name = new_name("function", position);
  const auto index = static_cast<uint32_t>(module_.functions.size());
  if (!functions_.emplace(name, index).second)
    cursor_.fail(position, fmt::format("a second function is called @{}", name));
  map_.functions.push_back(position);
  map_.ops.emplace_back();
  Function& function = module_.functions.emplace_back();
  function.name = name;
  function.kind = kind;
  function.cpu = cpu;
  FunctionParser parser(cursor_, module_, index, uses_, map_.ops.back(), budget_);
  parser.parameters();
  if (kind == FunctionKind::kernel) {
    const auto extents = [&](uint32_t(&list)[3], std::string_view what, std::string_view each) {
      cursor_.expect('(', fmt::format("before the {}'s extents", what));
      for (unsigned i = 0; i < 3; ++i) {
        if (i != 0)
          cursor_.expect(',', fmt::format("between the {}'s extents", what));
        list[i] = extent(each);
      }
      cursor_.expect(')', fmt::format("after the {}'s extents", what));
    };
    cursor_.expect_word("block");
    extents(function.block, "block", "a number of threads");
    if (cursor_.accept_word("cluster"))
      extents(function.cluster, "cluster", "a number of blocks");
    if (cursor_.accept_word("registers")) {
      cursor_.expect('(', "before the number of registers");
      function.max_registers = extent("a number of registers");
      cursor_.expect(')', "after the number of registers");
    }
  }
  if (kind != FunctionKind::device && cursor_.accept_word("external")) {
    function.external = true;
    cursor_.expect_line_end();
    return;
  }
  cursor_.expect('{', "before the function's body");
  parser.body();
}

void ModuleParser::resolve(const NameUse& use) {
  const auto& table = use.symbol ? symbols_ : functions_;
  const auto found = table.find(use.name);
  if (found == table.end())
    cursor_.fail(use.position,
                 fmt::format("there is no {} @{}", use.symbol ? "symbol" : "function", use.name));
  Function& function = module_.functions[use.function];
  if (use.pool != kInOp)
    function.pool[use.pool] = found->second;
  else if (use.symbol)
    function.ops[use.op].immediate = found->second;
  else
    function.ops[use.op].operand[0] = found->second;
}

} // namespace

Module parse(std::string_view text, const std::string& file_name, SourceMap* map) {
  SourceMap own;
  SourceMap& used = map == nullptr ? own : *map;
  used = SourceMap{};
  used.file = file_name;
  return ModuleParser(text, file_name, used).parse();
}

} // namespace sparsertc::ir
