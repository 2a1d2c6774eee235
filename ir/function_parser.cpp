#include "ir/function_parser.h"

#include "ir/literal.h"
#include "ir/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace sparsertc::ir {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

const std::unordered_map<std::string_view, Opcode>& opcodes() {
  static const auto table = [] {
    std::unordered_map<std::string_view, Opcode> words;
    for (unsigned i = 0; i < kOpcodeCount; ++i)
      words.emplace(info(static_cast<Opcode>(i)).text, static_cast<Opcode>(i));
    return words;
  }();
  return table;
}

/// Levenshtein distance.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string nearest_operation(std::string_view word) {
  constexpr size_t kLongestWord = 40;
  std::string_view best;
  size_t least = std::numeric_limits<size_t>::max();
  for (unsigned i = 0; i < kOpcodeCount; ++i) {
    const std::string_view text = info(static_cast<Opcode>(i)).text;
    const size_t d = distance(word.substr(0, kLongestWord), text);
    if (d < least) {
      least = d;
      best = text;
    }
  }
  if (least <= std::max<size_t>(2, word.size() / 3))
    return fmt::format("did you mean '{}'?", best);
  return "ir/README.md lists the operations";
}

std::string list_of(WordList words) {
  std::string text;
  for (unsigned i = 0; i < words.size; ++i) {
    text += i == 0 ? "" : i + 1 == words.size ? " or " : ", ";
    text += words[i];
  }
  return text;
}

} // namespace

FunctionParser::FunctionParser(Cursor& cursor, Module& module, uint32_t index,
                               std::vector<NameUse>& uses, std::vector<TextPosition>& positions,
                               Budget& budget)
    : cursor_(cursor), module_(module), function_(module.functions[index]), index_(index),
      uses_(uses), positions_(positions), budget_(budget) {}

// ---- registers ---------------------------------------------------------------------------------

/// Makes sure that the registers exist.
void FunctionParser::reserve(uint32_t first, uint32_t count, TextPosition position) {
  const uint64_t size = uint64_t{first} + count;
  if (size <= function_.register_type.size())
    return;
  const uint64_t more = size - function_.register_type.size();
  if (more > budget_.registers)
    cursor_.fail(position,
                 fmt::format("register number {} is too large for so short a text", size - 1),
                 "number the registers of a function from 0 on without gaps");
  budget_.registers -= more;
  function_.register_type.resize(size);
  seen_.resize(size, Seen::no);
}

/// Reads a register and says how it was called. A name that is new gets the next free number.
uint32_t FunctionParser::register_at(bool& by_name, std::string_view& name) {
  cursor_.skip_blanks();
  const TextPosition position = cursor_.position();
  if (!cursor_.accept('%'))
    cursor_.fail_expected("a register like %5 or %sum");
  name = cursor_.take_name();
  if (name.empty())
    cursor_.fail_expected("a register's number or name after '%'");
  uint32_t id = 0;
  if (all_digits(name)) {
    by_name = false;
    const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (status != std::errc() || id >= kImmediate)
      cursor_.fail(position, fmt::format("register number {} is too large", name));
    reserve(id, 1, position);
    if (seen_[id] == Seen::by_name)
      cursor_.fail(position,
                   fmt::format("register {} is called %{} here; one register has one name", id,
                               function_.register_name[id]),
                   "use the name, or another number");
    seen_[id] = Seen::by_number;
  } else {
    by_name = true;
    if (name.front() >= '0' && name.front() <= '9')
      cursor_.fail(position, fmt::format("'%{}' begins with a digit but is no number", name),
                   "names begin with a letter, '_', '.' or '$'");
    const auto [entry, added] = by_name_.emplace(name, next_);
    if (added) {
      while (next_ < seen_.size() && seen_[next_] != Seen::no)
        ++next_;
      entry->second = next_;
      reserve(next_, 1, position);
      seen_[next_] = Seen::by_name;
      function_.register_name.emplace_hint(function_.register_name.end(), next_, name);
      ++next_;
    }
    id = entry->second;
  }
  if (cursor_.peek() == '[') {
    cursor_.accept('[');
    const uint64_t member = cursor_.take_unsigned("a tuple's member number", 255);
    cursor_.expect(']', "after the member's number");
    id += static_cast<uint32_t>(member);
    reserve(id, 1, position);
  }
  return id;
}

uint32_t FunctionParser::use() {
  bool by_name = false;
  std::string_view name;
  return register_at(by_name, name);
}

uint32_t FunctionParser::use_tuple(uint32_t count) {
  const uint32_t first = use();
  if (count == 1)
    return first;
  cursor_.skip_blanks();
  const TextPosition position = cursor_.position();
  if (cursor_.peek() != ':' || !cursor_.accept(':') ||
      cursor_.take_unsigned("a number of registers", 255) != count)
    cursor_.fail(position, fmt::format("this operand is a tuple of {} registers", count),
                 fmt::format("write %first:{}", count));
  reserve(first, count, position);
  for (uint32_t i = 1; i < count; ++i)
    if (seen_[first + i] == Seen::no)
      seen_[first + i] = Seen::by_number;
  return first;
}

/// A first definition gives the registers their type.
void FunctionParser::define(uint32_t first, uint32_t count, Type type, TextPosition position) {
  reserve(first, count, position);
  for (uint32_t i = 0; i < count; ++i) {
    Type& known = function_.register_type[first + i];
    if (known.is_none())
      known = type;
    if (seen_[first + i] == Seen::no)
      seen_[first + i] = Seen::by_number;
  }
  next_ = std::max(next_, first + count);
}

uint32_t FunctionParser::result_register(uint32_t& count) {
  const uint32_t first = use();
  count = 1;
  if (cursor_.peek() == ':') {
    cursor_.accept(':');
    count = static_cast<uint32_t>(cursor_.take_unsigned("a number of registers", 255));
  }
  return first;
}

void FunctionParser::parameters() {
  cursor_.expect('(', "before the parameters");
  cursor_.skip_lines();
  if (cursor_.accept(')'))
    return;
  do {
    cursor_.skip_lines();
    const TextPosition position = cursor_.position();
    bool by_name = false;
    std::string_view name;
    const uint32_t before = function_.parameter_count;
    const size_t names = by_name_.size();
    const uint32_t id = register_at(by_name, name);
    if (by_name && by_name_.size() == names)
      cursor_.fail(position, fmt::format("a second parameter is called %{}", name));
    if (id != before)
      cursor_.fail(position, fmt::format("parameter number {} is called %{}", before, name),
                   "a parameter has a name, or its own position as number");
    cursor_.expect(':', "before the parameter's type");
    cursor_.skip_blanks();
    const TextPosition type_position = cursor_.position();
    const std::string_view type_text = cursor_.take_name();
    const size_t dot = type_text.find('.');
    const std::optional<Space> space =
        dot == std::string_view::npos ? std::nullopt : space_from_name(type_text.substr(0, dot));
    const std::optional<Scalar> scalar =
        scalar_from_name(dot == std::string_view::npos ? type_text : type_text.substr(dot + 1));
    if (!scalar || (dot != std::string_view::npos && !space)) {
      if (type_text.empty())
        cursor_.fail_expected("a type like f32 or device.f32");
      cursor_.fail_expected(type_position, "a type like f32 or device.f32", type_text);
    }
    define(id, 1, space ? Type::pointer(*space, *scalar) : Type(*scalar), position);
    ++function_.parameter_count;
    cursor_.skip_lines();
  } while (cursor_.accept(','));
  cursor_.expect(')', "after the parameters");
}

/// `register %name = 17 : f32` or `register %17 : f32`, the word already taken.
void FunctionParser::declaration() {
  cursor_.skip_blanks();
  const TextPosition position = cursor_.position();
  if (!cursor_.accept('%'))
    cursor_.fail_expected("a register like %5 or %sum");
  const std::string_view name = cursor_.take_name();
  uint32_t id = 0;
  if (all_digits(name)) {
    const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (status != std::errc() || id >= kImmediate)
      cursor_.fail(position, fmt::format("register number {} is too large", name));
  } else {
    if (name.empty() || (name.front() >= '0' && name.front() <= '9'))
      cursor_.fail_expected(position, "a register's name", "%" + std::string(name));
    cursor_.expect('=', "and the register's number");
    id = static_cast<uint32_t>(cursor_.take_unsigned("a register's number", kImmediate - 1));
    if (!by_name_.emplace(name, id).second)
      cursor_.fail(position, fmt::format("%{} is declared twice", name));
  }
  reserve(id, 1, position);
  if (seen_[id] != Seen::no)
    cursor_.fail(position, fmt::format("register {} is declared twice", id));
  seen_[id] = all_digits(name) ? Seen::by_number : Seen::by_name;
  if (seen_[id] == Seen::by_name)
    function_.register_name.emplace(id, name);
  cursor_.expect(':', "before the register's type");
  cursor_.skip_blanks();
  const TextPosition type_position = cursor_.position();
  const std::string_view text = cursor_.take_name();
  const size_t dot = text.find('.');
  const std::optional<Scalar> scalar =
      scalar_from_name(dot == std::string_view::npos ? text : text.substr(dot + 1));
  const std::optional<Space> space =
      dot == std::string_view::npos ? Space::none : space_from_name(text.substr(0, dot));
  if (!scalar || !space)
    cursor_.fail_expected(type_position, "a type like f32 or device.f32",
                          text.empty() ? std::string_view("\n") : text);
  function_.register_type[id] = Type::pointer(*space, *scalar);
  cursor_.expect_line_end();
}

// ---- operations --------------------------------------------------------------------------------

void FunctionParser::body() {
  cursor_.expect_line_end();
  cursor_.skip_lines();
  while (cursor_.accept_word("register")) {
    declaration();
    cursor_.skip_lines();
  }
  for (;;) {
    cursor_.skip_lines();
    if (cursor_.peek() == '}' && blocks_.empty()) {
      cursor_.accept('}');
      cursor_.expect_line_end();
      return;
    }
    if (cursor_.at_end()) {
      if (!blocks_.empty())
        cursor_.fail(block_positions_.back(), "this block is not closed before the text ends",
                     "close it with '}'");
      cursor_.fail_expected("'}' at the end of the function");
    }
    line();
  }
}

Opcode FunctionParser::take_opcode() {
  const TextPosition position = cursor_.position();
  const std::string_view word = cursor_.take_word();
  if (word.empty())
    cursor_.fail_expected("an operation");
  const auto found = opcodes().find(word);
  if (found == opcodes().end())
    cursor_.fail(position, fmt::format("unknown operation '{}'", word), nearest_operation(word));
  return found->second;
}

void FunctionParser::finish(Op& op, TextPosition position) {
  origin(op);
  cursor_.expect_line_end();
  function_.ops.push_back(op);
  positions_.push_back(position);
}

void FunctionParser::origin(Op& op) {
  if (!cursor_.accept('!'))
    return;
  Origin place;
  place.row = static_cast<uint32_t>(cursor_.take_unsigned("the origin's row", UINT32_MAX));
  cursor_.expect(',', "between the origin's row and column");
  place.column = static_cast<uint32_t>(cursor_.take_unsigned("the origin's column", UINT32_MAX));
  const bool same = !function_.ops.empty() && function_.ops.back().origin != 0 &&
                    module_.origins[function_.ops.back().origin - 1] == place;
  if (!same)
    module_.origins.push_back(place);
  op.origin = same ? function_.ops.back().origin : static_cast<uint32_t>(module_.origins.size());
}

/// `}`, `} else {` or `} while %p` inside a block.
void FunctionParser::closing(TextPosition position) {
  cursor_.accept('}');
  Op op;
  const Block block = blocks_.back();
  if (cursor_.accept_word("else")) {
    if (block != Block::if_then)
      cursor_.fail(position, "'else' closes a block that is no 'if'");
    op.code = Opcode::else_mark;
    cursor_.expect('{', "after 'else'");
    blocks_.back() = Block::if_else;
    block_positions_.back() = position;
  } else if (cursor_.accept_word("while")) {
    if (block != Block::loop)
      cursor_.fail(position, "'while' closes a block that is no 'loop'");
    op.code = Opcode::while_end;
    op.operand[0] = use();
    blocks_.pop_back();
    block_positions_.pop_back();
  } else {
    if (block == Block::loop)
      cursor_.fail(position, "a loop needs its condition", "close it with '} while %condition'");
    op.code = Opcode::end;
    blocks_.pop_back();
    block_positions_.pop_back();
  }
  finish(op, position);
}

/// One operation on one line.
void FunctionParser::line() {
  const TextPosition position = cursor_.position();
  if (cursor_.peek() == '}') {
    closing(position);
    return;
  }
  Op op;
  uint32_t count = 0;
  if (cursor_.peek() == '%') {
    op.result.id = result_register(count);
    cursor_.expect('=', "after the result");
    cursor_.skip_blanks();
  }
  const TextPosition word_position = cursor_.position();
  op.code = take_opcode();
  const OpInfo& row = info(op.code);
  switch (row.form) {
  case Form::while_end:
  case Form::else_mark:
  case Form::close:
    cursor_.fail(word_position, fmt::format("'{}' stands after the '}}' of its block", row.text));
  default:
    break;
  }
  suffixes(op, word_position);
  const bool has_result = row.result != ResultRule::none && row.form != Form::for_loop;
  if (has_result != (count != 0))
    cursor_.fail(position,
                 has_result ? fmt::format("the result of '{}' must be assigned", row.text)
                            : fmt::format("'{}' has no result", row.text),
                 has_result ? fmt::format("write %name = {}...", row.text) : "");
  if (has_result && count != result_count(op))
    cursor_.fail(position,
                 fmt::format("this operation has {} result{}, not {}", result_count(op),
                             result_count(op) == 1 ? "" : "s", count),
                 result_count(op) == 1 ? "" : fmt::format("write %first:{}", result_count(op)));
  if (has_result)
    reserve(op.result.id, count, position);
  operands(op);
  if (has_result)
    define(op.result.id, count, result_type(op), position);
  if (row.form == Form::open || row.form == Form::if_begin || row.form == Form::for_loop) {
    cursor_.expect('{', "to open the block");
    blocks_.push_back(row.form == Form::open       ? Block::loop
                      : row.form == Form::if_begin ? Block::if_then
                                                   : Block::for_loop);
    block_positions_.push_back(position);
  }
  finish(op, position);
}

/// What follows the operation's word after dots: detail, type, source type, width.
void FunctionParser::suffixes(Op& op, TextPosition position) {
  const OpInfo& row = info(op.code);
  const WordList words = words_of(row.detail);
  const auto take_detail = [&] {
    cursor_.expect_dot(list_of(words));
    const TextPosition at = cursor_.position();
    const std::string_view word = cursor_.take_word();
    for (unsigned i = 0; i < words.size; ++i) {
      if (words[i] == word) {
        op.detail = static_cast<uint8_t>(i);
        return;
      }
    }
    cursor_.fail_expected(at, list_of(words), word.empty() ? std::string_view("\n") : word);
  };
  const auto take_type = [&]() -> Type {
    cursor_.expect_dot("a type");
    const TextPosition at = cursor_.position();
    std::string_view word = cursor_.take_word();
    const std::optional<Space> space = space_from_name(word);
    if (space) {
      cursor_.expect_dot("the type of the elements");
      word = cursor_.take_word();
    }
    const std::optional<Scalar> scalar = scalar_from_name(word);
    if (!scalar)
      cursor_.fail_expected(at, space ? "the type of the elements" : "a type",
                            word.empty() ? std::string_view("\n") : word);
    return space ? Type::pointer(*space, *scalar) : Type(*scalar);
  };

  const bool detail_first =
      row.detail == DetailKind::comparison || row.detail == DetailKind::special;
  if (detail_first)
    take_detail();
  if (op.code == Opcode::special) {
    op.type = Scalar::i32;
  } else if (row.types != "-") {
    op.type = take_type();
    if (!type_allowed(row.types, op.type))
      cursor_.fail(position,
                   fmt::format("'{}' does not exist for type {}", row.text, to_string(op.type)));
  }
  if (op.code == Opcode::convert || op.code == Opcode::bitcast) {
    // The operand's type, which the register has; checked in value_operands.
    source_type_ = take_type();
  }
  if (row.detail == DetailKind::cache) {
    if (cursor_.peek() == '.' && cursor_.next() != 'v')
      take_detail();
  } else if (row.detail != DetailKind::none && !detail_first) {
    take_detail();
  }
  if ((row.form == Form::load || row.form == Form::store) && cursor_.peek() == '.') {
    cursor_.accept('.');
    if (!cursor_.accept('v'))
      cursor_.fail_expected("a width like v4");
    op.width = static_cast<uint8_t>(cursor_.take_unsigned("a width", 8));
  }
  if (row.form == Form::copy_async) {
    cursor_.expect_dot("the number of bytes, 4, 8 or 16");
    op.width = static_cast<uint8_t>(cursor_.take_unsigned("the number of bytes", 255));
  }
}

void FunctionParser::operand(Op& op, unsigned slot, Scalar immediate) {
  cursor_.skip_blanks();
  if (cursor_.peek() == '%') {
    op.operand[slot] = use();
    return;
  }
  const TextPosition position = cursor_.position();
  const std::string_view token = cursor_.take_number();
  if (token.empty() || token == "-")
    cursor_.fail_expected("a register or a number");
  for (unsigned i = 0; i < slot; ++i)
    if (op.operand[i] == kImmediate)
      cursor_.fail(position, "an operation has at most one number as operand",
                   "put the other into a register with 'const'");
  const Literal literal = parse_literal(token, immediate);
  if (!literal.error.empty())
    cursor_.fail_expected(position, literal.error, token);
  op.operand[slot] = kImmediate;
  op.immediate = literal.bits;
}

void FunctionParser::value_operands(Op& op) {
  const OpInfo& row = info(op.code);
  for (unsigned i = 0; i < row.operands.size(); ++i) {
    if (i != 0)
      cursor_.expect(',', "before the next operand");
    const char letter = row.operands[i];
    if (letter >= 'a' && letter <= 'z') {
      cursor_.skip_blanks();
      const TextPosition position = cursor_.position();
      op.operand[i] = use();
      const Type type = function_.register_type[op.operand[i]];
      if (letter == 'x' && !type.is_none() && type != source_type_)
        cursor_.fail(position, fmt::format("this register has type {}, not {}", to_string(type),
                                           to_string(source_type_)));
      continue;
    }
    Scalar immediate = op.type.is_pointer() ? Scalar::i64 : op.type.element();
    if (letter == 'I')
      immediate = Scalar::i32;
    else if (letter == 'L')
      immediate = Scalar::i64;
    else if (letter == 'P')
      immediate = Scalar::pred;
    operand(op, i, immediate);
  }
}

/// `%pointer + 64`, `%pointer - 8` or `%pointer`.
uint32_t FunctionParser::address(int64_t& offset, int64_t lowest, int64_t highest) {
  const uint32_t pointer = use();
  offset = 0;
  if (cursor_.accept('+')) {
    offset = static_cast<int64_t>(
        cursor_.take_unsigned("a byte offset", static_cast<uint64_t>(highest)));
  } else if (cursor_.accept('-')) {
    const uint64_t magnitude =
        cursor_.take_unsigned("a byte offset", uint64_t{0} - static_cast<uint64_t>(lowest));
    offset = static_cast<int64_t>(uint64_t{0} - magnitude);
  }
  return pointer;
}

void FunctionParser::mma_operands(Op& op) {
  const FragmentShape shape = shape_of(static_cast<Fragment>(op.detail));
  op.operand[0] = use_tuple(shape.a);
  cursor_.expect(',', "before b");
  op.operand[1] = use_tuple(shape.b);
  cursor_.expect(',', "before c");
  op.operand[2] = use_tuple(kFragmentResults);
  if (op.code == Opcode::mma_sparse) {
    cursor_.expect(',', "before the metadata");
    const uint32_t metadata = use();
    cursor_.expect(',', "before the selector");
    op.immediate =
        two_halves(metadata, static_cast<uint32_t>(cursor_.take_unsigned("a selector", 3)));
  }
}

void FunctionParser::name(bool symbol, uint32_t pool) {
  cursor_.skip_blanks();
  const TextPosition position = cursor_.position();
  if (!cursor_.accept('@'))
    cursor_.fail_expected(symbol ? "a symbol like @weights" : "a function like @tile");
  const std::string_view text = cursor_.take_name();
  if (text.empty())
    cursor_.fail_expected("a name after '@'");
  uses_.push_back(
      {index_, static_cast<uint32_t>(function_.ops.size()), pool, symbol, text, position});
}

/// `(%a, %b)`: appended to the pool.
void FunctionParser::argument_list() {
  cursor_.expect('(', "before the arguments");
  if (cursor_.accept(')'))
    return;
  do
    function_.pool.push_back(use());
  while (cursor_.accept(','));
  cursor_.expect(')', "after the arguments");
}

void FunctionParser::call_operands(Op& op) {
  std::vector<uint32_t>& pool = function_.pool;
  const auto size = [&] { return static_cast<uint32_t>(pool.size()); };
  op.operand[1] = size();
  switch (op.code) {
  case Opcode::call:
    name(false, kInOp);
    argument_list();
    op.operand[2] = size() - op.operand[1];
    return;
  case Opcode::switch_call:
    op.operand[0] = use();
    pool.push_back(0);
    while (cursor_.accept(',')) {
      name(false, size());
      pool.push_back(0);
      ++pool[op.operand[1]];
    }
    break;
  default:
    name(false, kInOp);
    cursor_.expect_word("grid");
    argument_list();
    if (size() - op.operand[1] != 3)
      cursor_.fail_expected(fmt::format("3 registers in the grid, not {}", size() - op.operand[1]));
    break;
  }
  const uint32_t count = size();
  pool.push_back(0);
  argument_list();
  pool[count] = size() - count - 1;
}

void FunctionParser::operands(Op& op) {
  constexpr int64_t kLeast32 = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMost32 = std::numeric_limits<int32_t>::max();
  const OpInfo& row = info(op.code);
  switch (row.form) {
  case Form::value:
  case Form::value_none:
    value_operands(op);
    break;
  case Form::alloc:
    operand(op, 0, Scalar::i64);
    break;
  case Form::symbol:
    name(true, kInOp);
    break;
  case Form::load:
  case Form::store:
  case Form::atomic:
    op.operand[0] = address(op.immediate, std::numeric_limits<int64_t>::min(),
                            std::numeric_limits<int64_t>::max());
    for (unsigned i = 1; i < row.operands.size(); ++i) {
      cursor_.expect(',', "before the value");
      op.operand[i] = use_tuple(row.form == Form::store ? op.width : 1);
    }
    break;
  case Form::copy_async: {
    int64_t shared = 0;
    int64_t device = 0;
    op.operand[0] = address(shared, kLeast32, kMost32);
    cursor_.expect(',', "before the device address");
    op.operand[1] = address(device, kLeast32, kMost32);
    op.immediate = two_halves(static_cast<uint32_t>(shared), static_cast<uint32_t>(device));
    if (cursor_.accept(','))
      op.operand[2] = use();
    break;
  }
  case Form::plain_number:
    op.immediate = static_cast<int64_t>(cursor_.take_unsigned("a number", UINT32_MAX));
    break;
  case Form::barrier: {
    cursor_.skip_blanks();
    if (cursor_.at_line_end() || cursor_.peek() == '!')
      break;
    operand(op, 0, Scalar::i32);
    const uint32_t number = low_half(op.immediate);
    cursor_.expect(',', "before the number of threads");
    op.immediate = two_halves(
        number, static_cast<uint32_t>(cursor_.take_unsigned("a number of threads", UINT32_MAX)));
    break;
  }
  case Form::mma:
    mma_operands(op);
    break;
  case Form::for_loop: {
    const TextPosition position = cursor_.position();
    op.result.id = use();
    define(op.result.id, 1, Scalar::i32, position);
    cursor_.expect('=', "after the loop's register");
    if (cursor_.take_unsigned("0, where every loop begins", 0) != 0)
      cursor_.fail_expected("0, where every loop begins");
    cursor_.expect_word("to");
    operand(op, 0, Scalar::i32);
    const uint32_t limit = low_half(op.immediate);
    cursor_.expect_word("step");
    op.immediate =
        two_halves(limit, static_cast<uint32_t>(cursor_.take_unsigned("a step", kMost32)));
    break;
  }
  case Form::if_begin:
    op.operand[0] = use();
    break;
  case Form::call:
  case Form::switch_call:
  case Form::launch:
    call_operands(op);
    break;
  case Form::copy:
    for (unsigned i = 0; i < 2; ++i) {
      op.operand[i] = use();
      cursor_.expect(',', "before the next operand");
    }
    operand(op, 2, Scalar::i64);
    break;
  case Form::plain:
  case Form::open:
  case Form::while_end:
  case Form::else_mark:
  case Form::close:
    break;
  }
}

} // namespace sparsertc::ir
