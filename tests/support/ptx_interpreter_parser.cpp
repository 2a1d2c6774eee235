#include "tests/support/ptx_interpreter_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace sparsertc::ptx {
std::string DecodedProgram::describe_line(uint32_t line_and_unit) const {
  const uint32_t unit = line_and_unit >> 24;
  const uint32_t number = line_and_unit & 0xffffff;
  if (number == 0 || unit >= texts.size() || number > line_starts[unit].size())
    return "end of text";
  const std::string& text = texts[unit];
  size_t begin = line_starts[unit][number - 1];
  size_t end = text.find('\n', begin);
  end = end == std::string::npos ? text.size() : end;
  while (begin < end && (text[begin] == ' ' || text[begin] == '\t'))
    ++begin;
  std::string result = texts.size() > 1 ? fmt::format("unit {} ", unit) : std::string();
  return fmt::format("{}line {}: `{}`", result, number,
                     std::string_view(text).substr(begin, std::min<size_t>(end - begin, 160)));
}

// ---- tokens ------------------------------------------------------------------------------------

void Parser::fail_at(uint32_t line, const std::string& message, ErrorKind kind) {
  throw Error(kind, line & 0xffffff,
              fmt::format("{}: {}: {}", program_.describe_line(line), to_string(kind), message));
}

void Parser::fail(const std::string& message, ErrorKind kind) {
  fail_at(line_ | unit_ << 24, message, kind);
}

bool Parser::accept(std::string_view text) {
  if (!at(text) || lexer_->peek().kind == TokenKind::string)
    return false;
  lexer_->take();
  return true;
}

Token Parser::expect(std::string_view text) {
  if (!at(text)) {
    line_ = lexer_->peek().line;
    fail(fmt::format("`{}` expected, found `{}`", text, lexer_->peek().text));
  }
  return lexer_->take();
}

std::string_view Parser::identifier(const char* what) {
  const Token token = lexer_->take();
  if (token.kind != TokenKind::identifier) {
    line_ = token.line;
    fail(fmt::format("{} expected, found `{}`", what, token.text));
  }
  return token.text;
}

int64_t Parser::parse_integer(const Token& token) {
  std::string_view text = token.text;
  if (!text.empty() && (text.back() == 'U' || text.back() == 'u'))
    text.remove_suffix(1);
  int base = 10;
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.size() > 2 && text[0] == '0' && (text[1] == 'b' || text[1] == 'B')) {
    base = 2;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text[0] == '0') {
    base = 8;
    text.remove_prefix(1);
  }
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (token.kind != TokenKind::number || code != std::errc() || end != text.data() + text.size())
    fail_at(token.line | unit_ << 24, fmt::format("integer expected, found `{}`", token.text));
  return static_cast<int64_t>(value);
}

int64_t Parser::integer() {
  const bool negative = accept("-");
  const int64_t value = parse_integer(lexer_->take());
  return negative ? static_cast<int64_t>(0 - static_cast<uint64_t>(value)) : value;
}

// ---- module level ------------------------------------------------------------------------------

void Parser::parse_unit(std::string_view text, uint32_t unit) {
  if (unit > 255)
    fail("more than 256 units", ErrorKind::unsupported);
  Lexer lexer(text);
  lexer_ = &lexer;
  unit_ = unit;
  templates_.clear();
  counts_.clear();
  while (lexer.peek().kind != TokenKind::end)
    directive();
  for (const auto& [known, count] : counts_)
    program_.opcode_counts[known->text] += count;
  if (program_.version.empty() || program_.target.empty())
    fail(".version and .target are missing");
}

void Parser::directive() {
  bool is_extern = false;
  for (;;) {
    const Token token = lexer_->take();
    line_ = token.line;
    const std::string_view word = token.text;
    if (word == ".extern") {
      is_extern = true;
    } else if (word == ".visible" || word == ".weak" || word == ".common") {
      continue;
    } else if (word == ".version") {
      program_.version = lexer_->take().text;
      return;
    } else if (word == ".target") {
      program_.target = lexer_->take().text;
      while (accept(","))
        lexer_->take();
      return;
    } else if (word == ".address_size") {
      if (integer() != 64)
        fail("only 64-bit addresses", ErrorKind::unsupported);
      return;
    } else if (word == ".file") {
      lexer_->take();
      lexer_->take();
      while (accept(","))
        lexer_->take();
      return;
    } else if (word == ".pragma") {
      lexer_->take();
      expect(";");
      return;
    } else if (word == ".global") {
      variable(Space::global, is_extern);
      return;
    } else if (word == ".const") {
      variable(Space::constant, is_extern);
      return;
    } else if (word == ".shared") {
      variable(Space::shared, is_extern);
      return;
    } else if (word == ".entry" || word == ".func") {
      function(word == ".entry");
      return;
    } else {
      fail(fmt::format("unknown directive `{}`", word), ErrorKind::unsupported);
    }
  }
}

void Parser::variable(Space space, bool is_extern) {
  Variable made;
  made.space = space;
  const TypeInfo* type = nullptr;
  uint64_t vector = 1;
  for (;;) {
    const std::string_view word = lexer_->peek().text;
    if (word == ".align") {
      lexer_->take();
      made.alignment = static_cast<uint32_t>(integer());
    } else if (word == ".v2" || word == ".v4") {
      lexer_->take();
      vector = word == ".v2" ? 2 : 4;
    } else if (!word.empty() && word[0] == '.') {
      type = find_type(word.substr(1));
      if (!type || type->bits < 8)
        fail(fmt::format("variable type expected, found `{}`", word));
      lexer_->take();
    } else {
      break;
    }
  }
  if (!type)
    fail("a variable without type");
  made.name = identifier("variable name");
  uint64_t elements = vector;
  bool open = false;
  while (accept("[")) {
    if (accept("]")) {
      open = true;
      continue;
    }
    elements *= static_cast<uint64_t>(integer());
    expect("]");
  }
  const uint64_t element_bytes = type->bits / 8;
  made.alignment =
      std::max<uint32_t>(made.alignment, static_cast<uint32_t>(element_bytes * vector));
  made.bytes = open ? 0 : elements * element_bytes;
  made.writable = space != Space::constant;
  if (space == Space::shared && open && is_extern)
    made.external_shared = true;
  else if (is_extern)
    made.defined = false;
  if (accept("=")) {
    if (space == Space::shared)
      fail("shared variables cannot be initialised");
    initialiser(made, *type);
    if (open)
      made.bytes = made.initial.size();
    if (made.initial.size() > made.bytes)
      fail(fmt::format("`{}` has {} bytes but {} in its initialiser", made.name, made.bytes,
                       made.initial.size()));
    made.initial.resize(made.bytes);
  }
  expect(";");
  if (made.alignment == 0 || (made.alignment & (made.alignment - 1)) != 0)
    fail("alignment is no power of two");
  const auto found = variable_index_.find(made.name);
  if (found == variable_index_.end()) {
    variable_index_[made.name] = static_cast<uint32_t>(program_.variables.size());
    program_.variables.push_back(std::move(made));
    Variable& placed = program_.variables.back();
    if (placed.space == Space::global) {
      placed.address =
          ((kVariableRegion + program_.variables.size()) << kRegionBits) + kBufferOffset;
    } else if (placed.space == Space::shared && !placed.external_shared) {
      program_.shared_bytes =
          (program_.shared_bytes + placed.alignment - 1) / placed.alignment * placed.alignment;
      placed.address = program_.shared_bytes;
      program_.shared_bytes += placed.bytes;
    } else if (placed.space == Space::constant) {
      program_.constant_bytes =
          (program_.constant_bytes + placed.alignment - 1) / placed.alignment * placed.alignment;
      placed.address = program_.constant_bytes;
      program_.constant_bytes += placed.bytes;
    }
    return;
  }
  Variable& known = program_.variables[found->second];
  if (!known.defined && made.defined && known.space == made.space && known.bytes == made.bytes) {
    // The declaration has placed it already; only the contents come now.
    known.initial = std::move(made.initial);
    known.defined = true;
  } else if (known.defined && made.defined && !known.external_shared) {
    fail(fmt::format("`{}` is defined twice", made.name));
  }
}

void Parser::initialiser(Variable& variable, const TypeInfo& type) {
  const size_t bytes = type.bits / 8;
  const auto element = [&] {
    uint64_t value = 0;
    const Token token = lexer_->peek();
    const std::string_view text = token.text;
    if (text.size() == 10 && (text[1] == 'f' || text[1] == 'F') && text[0] == '0') {
      lexer_->take();
      const uint32_t bits =
          static_cast<uint32_t>(std::stoul(std::string(text.substr(2)), nullptr, 16));
      value = type.bits == 64 ? std::bit_cast<uint64_t>(double{std::bit_cast<float>(bits)}) : bits;
    } else if (text.size() == 18 && (text[1] == 'd' || text[1] == 'D') && text[0] == '0') {
      lexer_->take();
      value = std::stoull(std::string(text.substr(2)), nullptr, 16);
      if (type.bits == 32)
        value = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(value)));
    } else {
      value = static_cast<uint64_t>(integer());
    }
    for (size_t i = 0; i < bytes; ++i)
      variable.initial.push_back(static_cast<uint8_t>(value >> (8 * i)));
  };
  if (!accept("{")) {
    element();
    return;
  }
  while (!accept("}")) {
    element();
    if (!at("}"))
      expect(",");
  }
}

Parameter Parser::formal(FunctionCode& function) {
  Parameter made;
  const Token kind = lexer_->take();
  if (kind.text != ".param" && kind.text != ".reg")
    fail(fmt::format("`.param` or `.reg` expected, found `{}`", kind.text));
  made.is_register = kind.text == ".reg";
  const TypeInfo* type = nullptr;
  for (;;) {
    const std::string_view word = lexer_->peek().text;
    if (word == ".align") {
      lexer_->take();
      integer();
    } else if (word == ".ptr" || word == ".global" || word == ".const" || word == ".shared" ||
               word == ".local") {
      lexer_->take();
    } else if (!word.empty() && word[0] == '.') {
      type = find_type(word.substr(1));
      if (!type)
        fail(fmt::format("parameter type expected, found `{}`", word));
      lexer_->take();
    } else {
      break;
    }
  }
  if (!type)
    fail("a parameter without type");
  const std::string_view name = identifier("parameter name");
  made.name = name;
  made.bytes = std::max(type->bits / 8, 1u);
  if (accept("[")) {
    made.bytes *= static_cast<uint32_t>(integer());
    expect("]");
  }
  if (type->bits == 1 && !made.is_register)
    fail("predicates cannot be .param");
  made.slot = function.frame_words;
  function.frame_words += (made.bytes + 7) / 8;
  if (made.is_register)
    scopes_.back().names[name] = {made.slot, 1, type->bits};
  else
    scopes_.back().parameters[name] = made;
  return made;
}

void Parser::function(bool is_entry) {
  FunctionCode made;
  made.is_entry = is_entry;
  scopes_.clear();
  scopes_.emplace_back();
  scope_parent_ = {0};
  labels_.clear();
  patches_.clear();
  if (!is_entry && accept("(")) {
    while (!accept(")")) {
      made.results.push_back(formal(made));
      accept(",");
    }
  }
  made.name = identifier("function name");
  if (accept("(")) {
    while (!accept(")")) {
      made.parameters.push_back(formal(made));
      if (!at(")"))
        expect(",");
    }
  }
  for (;;) {
    const std::string_view word = lexer_->peek().text;
    if (word == ".reqntid" || word == ".maxntid") {
      lexer_->take();
      uint32_t size[3] = {1, 1, 1};
      int dimension = 0;
      do {
        size[dimension++ % 3] = static_cast<uint32_t>(integer());
      } while (accept(","));
      if (word == ".reqntid")
        std::copy(size, size + 3, made.required_threads);
      else
        made.maximum_threads = size[0] * size[1] * size[2];
    } else if (word == ".reqnctapercluster") {
      lexer_->take();
      int dimension = 0;
      do {
        made.cluster[dimension++ % 3] = static_cast<uint32_t>(integer());
      } while (accept(","));
    } else if (word == ".explicitcluster") {
      lexer_->take();
    } else if (word == ".minnctapersm" || word == ".maxnctapersm" || word == ".maxnreg") {
      lexer_->take();
      integer();
    } else if (word == ".noreturn") {
      lexer_->take();
    } else if (word == ".pragma") {
      lexer_->take();
      lexer_->take();
      expect(";");
    } else {
      break;
    }
  }
  const std::string name = made.name;
  auto found = function_index_.find(name);
  if (found == function_index_.end()) {
    found = function_index_.emplace(name, static_cast<uint32_t>(program_.functions.size())).first;
    program_.functions.push_back(std::move(made));
  } else {
    FunctionCode& known = program_.functions[found->second];
    const auto same = [](const std::vector<Parameter>& a, const std::vector<Parameter>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                        [](const Parameter& x, const Parameter& y) { return x.bytes == y.bytes; });
    };
    if (!same(known.parameters, made.parameters) || !same(known.results, made.results))
      fail(fmt::format("`{}` is declared with other parameters before", name));
    if (known.defined && at("{"))
      fail(fmt::format("`{}` is defined twice", name));
    if (at("{"))
      known = std::move(made);
  }
  if (accept(";"))
    return;
  body(program_.functions[found->second]);
}

// ---- bodies ------------------------------------------------------------------------------------

uint32_t Parser::new_slots(uint32_t words) {
  const uint32_t first = function_->frame_words;
  function_->frame_words += words;
  return first;
}

void Parser::body(FunctionCode& function) {
  expect("{");
  function_ = &function;
  function.defined = true;
  function.first = static_cast<uint32_t>(program_.code.size());
  size_t depth = 1;
  while (depth > 0) {
    if (lexer_->peek().kind == TokenKind::end)
      fail(fmt::format("`}}` of `{}` is missing", function.name));
    if (accept("{")) {
      ++depth;
      scopes_.emplace_back();
      scopes_.back().id = static_cast<uint32_t>(scope_parent_.size());
      scope_parent_.push_back(scopes_[scopes_.size() - 2].id);
    } else if (accept("}")) {
      --depth;
      if (depth > 0)
        scopes_.pop_back();
    } else {
      statement();
    }
  }
  // Falling off the end returns.
  guard_ = kNone;
  Instruction last;
  last.code = Code::ret;
  emit(last);
  resolve_labels();
  function_ = nullptr;
}

void Parser::statement() {
  const Token token = lexer_->peek();
  line_ = token.line;
  if (token.text == "@") {
    lexer_->take();
    const bool negated = accept("!");
    Operand predicate;
    const std::string_view name = identifier("predicate");
    if (!find_register(name, predicate) || predicate.bits != 1)
      fail(fmt::format("`{}` is no predicate", name));
    instruction(predicate.ref * 2 + (negated ? 1 : 0));
    return;
  }
  if (token.kind != TokenKind::identifier)
    fail(fmt::format("instruction expected, found `{}`", token.text));
  if (token.text[0] == '.') {
    lexer_->take();
    local_directive(token.text);
    return;
  }
  instruction(kNone);
}

void Parser::local_directive(std::string_view word) {
  if (word == ".reg") {
    register_declaration();
  } else if (word == ".param") {
    parameter_declaration();
  } else if (word == ".shared") {
    variable(Space::shared, false);
  } else if (word == ".pragma") {
    lexer_->take();
    expect(";");
  } else if (word == ".loc") {
    while (lexer_->peek().line == line_ && lexer_->peek().kind != TokenKind::end)
      lexer_->take();
  } else {
    fail(fmt::format("unknown directive `{}`", word), ErrorKind::unsupported);
  }
}

void Parser::register_declaration() {
  const std::string_view word = identifier("register type");
  const TypeInfo* type = find_type(word.substr(1));
  if (!type || type->bits > 64)
    fail(fmt::format("register type expected, found `{}`", word), ErrorKind::unsupported);
  do {
    const std::string_view name = identifier("register name");
    if (accept("<")) {
      const uint32_t count = static_cast<uint32_t>(integer());
      expect(">");
      scopes_.back().ranges[name] = {new_slots(count), count, type->bits};
    } else if (!scopes_.back().names.emplace(name, Register{new_slots(1), 1, type->bits}).second) {
      fail(fmt::format("`{}` is declared twice", name));
    }
  } while (accept(","));
  expect(";");
}

void Parser::parameter_declaration() {
  Parameter made;
  const TypeInfo* type = nullptr;
  for (;;) {
    const std::string_view word = lexer_->peek().text;
    if (word == ".align") {
      lexer_->take();
      integer();
    } else if (!word.empty() && word[0] == '.') {
      type = find_type(word.substr(1));
      if (!type || type->bits < 8)
        fail(fmt::format("parameter type expected, found `{}`", word));
      lexer_->take();
    } else {
      break;
    }
  }
  if (!type)
    fail("a parameter without type");
  do {
    const std::string_view name = identifier("parameter name");
    made.name = name;
    made.bytes = type->bits / 8;
    if (accept("[")) {
      made.bytes *= static_cast<uint32_t>(integer());
      expect("]");
    }
    made.slot = new_slots((made.bytes + 7) / 8);
    scopes_.back().parameters[name] = made;
  } while (accept(","));
  expect(";");
}

void Parser::resolve_labels() {
  for (const Patch& patch : patches_) {
    uint32_t scope = patch.scope;
    auto found = labels_.find({scope, patch.label});
    while (found == labels_.end() && scope != 0) {
      scope = scope_parent_[scope];
      found = labels_.find({scope, patch.label});
    }
    if (found == labels_.end())
      fail_at(patch.line, fmt::format("no label `{}`", patch.label));
    if (patch.in_pool)
      program_.pool[patch.index] = found->second;
    else
      program_.code[patch.index].immediate = found->second;
  }
}

bool Parser::find_register(std::string_view name, Operand& operand) {
  size_t digits = 0;
  while (digits < name.size() && name[name.size() - 1 - digits] >= '0' &&
         name[name.size() - 1 - digits] <= '9')
    ++digits;
  for (size_t i = scopes_.size(); i-- > 0;) {
    const Scope& scope = scopes_[i];
    if (digits > 0 && digits < 10) {
      const auto found = scope.ranges.find(name.substr(0, name.size() - digits));
      if (found != scope.ranges.end()) {
        uint32_t number = 0;
        std::from_chars(name.data() + name.size() - digits, name.data() + name.size(), number);
        if (number < found->second.count) {
          operand.kind = Operand::reg;
          operand.ref = kFrameBase | (found->second.slot + number);
          operand.bits = found->second.bits;
          return true;
        }
      }
    }
    const auto found = scope.names.find(name);
    if (found != scope.names.end()) {
      operand.kind = Operand::reg;
      operand.ref = kFrameBase | found->second.slot;
      operand.bits = found->second.bits;
      return true;
    }
  }
  return false;
}

const Parameter* Parser::find_parameter(std::string_view name) const {
  for (size_t i = scopes_.size(); i-- > 0;) {
    const auto found = scopes_[i].parameters.find(name);
    if (found != scopes_[i].parameters.end())
      return &found->second;
  }
  return nullptr;
}

const Variable* Parser::find_variable(std::string_view name) const {
  const auto found = variable_index_.find(name);
  return found == variable_index_.end() ? nullptr : &program_.variables[found->second];
}

void Parser::emit(const Instruction& made) {
  program_.code.push_back(made);
  program_.code.back().guard = guard_;
  program_.line.push_back(line_ | unit_ << 24);
}

void Parser::finish() {
  for (const FunctionCode& function : program_.functions) {
    if (function.is_entry && !function.defined)
      throw Error(ErrorKind::syntax, 0, fmt::format("entry `{}` has no body", function.name));
  }
  program_.constant_memory.assign(program_.constant_bytes, 0);
  for (Variable& variable : program_.variables) {
    if (!variable.defined)
      throw Error(ErrorKind::syntax, 0,
                  fmt::format("`{}` is declared .extern but nowhere defined", variable.name));
    if (variable.space == Space::constant)
      std::copy(variable.initial.begin(), variable.initial.end(),
                program_.constant_memory.begin() + static_cast<ptrdiff_t>(variable.address));
    // Dynamic shared memory begins behind the static variables.
    if (variable.external_shared)
      program_.shared_bytes = (program_.shared_bytes + variable.alignment - 1) /
                              variable.alignment * variable.alignment;
  }
  // Addresses of dynamic shared memory are only known now: its symbol constants were recorded with
  // the address 0 and are corrected here.
  for (uint32_t index : program_.extern_shared_constants)
    program_.constants[index] += program_.shared_bytes;
}

Program parse(std::string_view text) {
  const std::string copy(text);
  return parse_units({&copy, 1});
}

Program parse_units(std::span<const std::string> texts) {
  auto program = std::make_shared<DecodedProgram>();
  Parser parser(*program);
  program->texts.assign(texts.begin(), texts.end());
  for (uint32_t unit = 0; unit < texts.size(); ++unit) {
    std::vector<uint32_t> starts = {0};
    const std::string& text = program->texts[unit];
    for (size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n')
        starts.push_back(static_cast<uint32_t>(i + 1));
    program->line_starts.push_back(std::move(starts));
  }
  for (uint32_t unit = 0; unit < texts.size(); ++unit)
    parser.parse_unit(program->texts[unit], unit);
  parser.finish();
  return Program(std::move(program));
}

const std::map<std::string, uint64_t>& Program::opcode_counts() const {
  return decoded_->opcode_counts;
}
uint64_t Program::count(std::string_view prefix) const {
  uint64_t sum = 0;
  for (const auto& [opcode, count] : decoded_->opcode_counts)
    if (std::string_view(opcode).substr(0, prefix.size()) == prefix)
      sum += count;
  return sum;
}
std::vector<std::string> Program::entries() const {
  std::vector<std::string> names;
  for (const FunctionCode& function : decoded_->functions)
    if (function.is_entry)
      names.push_back(function.name);
  return names;
}
const std::string& Program::target() const {
  return decoded_->target;
}
const std::string& Program::version() const {
  return decoded_->version;
}

std::string_view to_string(ErrorKind kind) {
  constexpr std::string_view kNames[] = {"syntax",
                                         "unsupported",
                                         "launch",
                                         "out of bounds",
                                         "misaligned",
                                         "read-only memory",
                                         "uninitialised shared memory",
                                         "race",
                                         "stale copy",
                                         "deadlock",
                                         "divergence",
                                         "trap",
                                         "instruction limit"};
  return kNames[static_cast<size_t>(kind)];
}

} // namespace sparsertc::ptx
