#include "ir/printer.h"

#include "ir/literal.h"
#include "ir/operands.h"
#include "ir/register_names.h"

#include <algorithm>
#include <unordered_set>

namespace sparsertc::ir {
namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '$';
}

void append_type(std::string& text, Type type) {
  if (type.is_pointer()) {
    text += name_of(type.space());
    text += '.';
  }
  text += name_of(type.element());
}

void append_string(std::string& text, std::string_view value) {
  text += '"';
  for (char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      text += "\\x";
      text += "0123456789ABCDEF"[byte >> 4];
      text += "0123456789ABCDEF"[byte & 15];
    } else {
      text += c;
    }
  }
  text += '"';
}

/// Prints the operations of one function into a growing string.
class OpPrinter {
public:
  OpPrinter(std::string& text, const Module& module, const Function& function,
            const RegisterNames& names)
      : text_(text), module_(module), function_(function), names_(names) {}

  void print(const Op& op);

private:
  void reg(uint32_t id) { names_.append(text_, id); }
  void tuple(uint32_t id, uint32_t count) {
    reg(id);
    if (count > 1) {
      text_ += ':';
      append_unsigned(text_, count);
    }
  }
  void comma() { text_ += ", "; }
  void operand(const Op& op, unsigned slot, Scalar immediate) {
    if (op.operand[slot] == kImmediate)
      append_literal(text_, immediate, op.immediate);
    else
      reg(op.operand[slot]);
  }
  void address(uint32_t pointer, int64_t offset) {
    reg(pointer);
    text_ += offset < 0 ? " - " : " + ";
    append_unsigned(text_, offset < 0 ? uint64_t{0} - static_cast<uint64_t>(offset)
                                      : static_cast<uint64_t>(offset));
  }
  void word(const OpInfo& row, const Op& op);
  void detail(const OpInfo& row, const Op& op);
  void symbol(int64_t index);
  void function_name(uint32_t index);
  void value_operands(const OpInfo& row, const Op& op);
  void register_list(size_t begin, size_t count);
  void call_list(const Op& op);
  uint32_t pool(size_t index) const {
    return index < function_.pool.size() ? function_.pool[index] : 0;
  }

  std::string& text_;
  const Module& module_;
  const Function& function_;
  const RegisterNames& names_;
};

void OpPrinter::detail(const OpInfo& row, const Op& op) {
  if (row.detail == DetailKind::none || (row.detail == DetailKind::cache && op.detail == 0))
    return;
  const WordList words = words_of(row.detail);
  text_ += '.';
  text_ += op.detail < words.size ? words[op.detail] : std::string_view("?");
}

/// The operation's word with its suffixes: comparison and special index come before the type, other
/// details after it, the width last.
void OpPrinter::word(const OpInfo& row, const Op& op) {
  text_ += row.text;
  const bool detail_first =
      row.detail == DetailKind::comparison || row.detail == DetailKind::special;
  if (detail_first)
    detail(row, op);
  if (!op.type.is_none() && op.code != Opcode::special) {
    text_ += '.';
    append_type(text_, op.type);
  }
  if (op.code == Opcode::convert || op.code == Opcode::bitcast) {
    text_ += '.';
    append_type(text_, op.operand[0] < function_.register_type.size()
                           ? function_.register_type[op.operand[0]]
                           : Type());
  }
  if (!detail_first)
    detail(row, op);
  if ((row.form == Form::load || row.form == Form::store) && op.width != 1) {
    text_ += ".v";
    append_unsigned(text_, op.width);
  }
  if (row.form == Form::copy_async) {
    text_ += '.';
    append_unsigned(text_, op.width);
  }
}

void OpPrinter::symbol(int64_t index) {
  text_ += '@';
  if (index >= 0 && static_cast<uint64_t>(index) < module_.symbols.size())
    text_ += module_.symbols[static_cast<size_t>(index)].name;
  else
    text_ += '?';
}

void OpPrinter::function_name(uint32_t index) {
  text_ += '@';
  if (index < module_.functions.size())
    text_ += module_.functions[index].name;
  else
    text_ += '?';
}

void OpPrinter::value_operands(const OpInfo& row, const Op& op) {
  for (unsigned i = 0; i < row.operands.size(); ++i) {
    text_ += i == 0 ? " " : ", ";
    Scalar immediate = op.type.element();
    switch (row.operands[i]) {
    case 'I':
      immediate = Scalar::i32;
      break;
    case 'L':
      immediate = Scalar::i64;
      break;
    case 'P':
      immediate = Scalar::pred;
      break;
    default:
      if (op.type.is_pointer())
        immediate = Scalar::i64;
      break;
    }
    operand(op, i, immediate);
  }
}

void OpPrinter::register_list(size_t begin, size_t count) {
  text_ += '(';
  count = std::min(count, function_.pool.size() - std::min(begin, function_.pool.size()));
  for (size_t i = 0; i < count; ++i) {
    if (i != 0)
      comma();
    reg(function_.pool[begin + i]);
  }
  text_ += ')';
}

void OpPrinter::call_list(const Op& op) {
  const size_t begin = op.operand[1];
  switch (op.code) {
  case Opcode::call:
    text_ += ' ';
    function_name(op.operand[0]);
    register_list(begin, op.operand[2]);
    break;
  case Opcode::switch_call: {
    text_ += ' ';
    reg(op.operand[0]);
    const size_t count = std::min<size_t>(pool(begin), function_.pool.size());
    for (size_t i = 0; i < count; ++i) {
      comma();
      function_name(pool(begin + 1 + i));
    }
    text_ += ' ';
    register_list(begin + 2 + count, pool(begin + 1 + count));
    break;
  }
  default:
    text_ += ' ';
    function_name(op.operand[0]);
    text_ += " grid";
    register_list(begin, 3);
    text_ += ' ';
    register_list(begin + 4, pool(begin + 3));
    break;
  }
}

void OpPrinter::print(const Op& op) {
  const OpInfo& row = info(op.code);
  const uint32_t results = row.form == Form::for_loop ? 0 : result_count(op);
  if (results != 0) {
    tuple(op.result.id, results);
    text_ += " = ";
  }
  const auto half_operand = [&] {
    if (op.operand[0] == kImmediate)
      append_integer(text_, static_cast<int32_t>(low_half(op.immediate)));
    else
      reg(op.operand[0]);
  };
  switch (row.form) {
  case Form::value:
  case Form::value_none:
    word(row, op);
    value_operands(row, op);
    break;
  case Form::alloc:
    word(row, op);
    text_ += ' ';
    operand(op, 0, Scalar::i64);
    break;
  case Form::symbol:
    word(row, op);
    text_ += ' ';
    symbol(op.immediate);
    break;
  case Form::load:
  case Form::store:
  case Form::atomic:
    word(row, op);
    text_ += ' ';
    address(op.operand[0], op.immediate);
    for (unsigned i = 1; i < row.operands.size(); ++i) {
      comma();
      tuple(op.operand[i], row.form == Form::store ? op.width : 1);
    }
    break;
  case Form::copy_async:
    word(row, op);
    text_ += ' ';
    address(op.operand[0], static_cast<int32_t>(low_half(op.immediate)));
    comma();
    address(op.operand[1], static_cast<int32_t>(high_half(op.immediate)));
    if (op.operand[2] != kNoOperand) {
      comma();
      reg(op.operand[2]);
    }
    break;
  case Form::plain:
    word(row, op);
    break;
  case Form::plain_number:
    word(row, op);
    text_ += ' ';
    append_integer(text_, op.immediate);
    break;
  case Form::barrier:
    word(row, op);
    if (op.operand[0] != kNoOperand) {
      text_ += ' ';
      half_operand();
      comma();
      append_unsigned(text_, high_half(op.immediate));
    }
    break;
  case Form::mma: {
    const FragmentShape shape = shape_of(static_cast<Fragment>(op.detail));
    word(row, op);
    text_ += ' ';
    tuple(op.operand[0], shape.a);
    comma();
    tuple(op.operand[1], shape.b);
    comma();
    tuple(op.operand[2], kFragmentResults);
    if (op.code == Opcode::mma_sparse) {
      comma();
      reg(low_half(op.immediate));
      comma();
      append_unsigned(text_, high_half(op.immediate));
    }
    break;
  }
  case Form::for_loop:
    text_ += "for ";
    reg(op.result.id);
    text_ += " = 0 to ";
    half_operand();
    text_ += " step ";
    append_unsigned(text_, high_half(op.immediate));
    text_ += " {";
    break;
  case Form::open:
    text_ += row.text;
    text_ += " {";
    break;
  case Form::while_end:
    text_ += "} while ";
    reg(op.operand[0]);
    break;
  case Form::if_begin:
    text_ += "if ";
    reg(op.operand[0]);
    text_ += " {";
    break;
  case Form::else_mark:
    text_ += "} else {";
    break;
  case Form::close:
    text_ += '}';
    break;
  case Form::call:
  case Form::switch_call:
  case Form::launch:
    text_ += row.text;
    call_list(op);
    break;
  case Form::copy:
    text_ += row.text;
    text_ += ' ';
    reg(op.operand[0]);
    comma();
    reg(op.operand[1]);
    comma();
    operand(op, 2, Scalar::i64);
    break;
  }
  if (op.origin != 0 && op.origin <= module_.origins.size()) {
    const Origin origin = module_.origins[op.origin - 1];
    text_ += "  !";
    append_unsigned(text_, origin.row);
    text_ += ',';
    append_unsigned(text_, origin.column);
  }
}

constexpr uint64_t kElementsALine = 16;

void append_elements(std::string& text, const Symbol& symbol) {
  const Scalar scalar = symbol.type.element();
  const size_t size = size_in_bytes(scalar);
  const uint64_t count = size == 0 ? 0 : symbol.bytes.size() / size;
  const bool lines = count > kElementsALine;
  text += " = [";
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t bits = 0;
    for (size_t k = 0; k < size; ++k)
      bits |= uint64_t{symbol.bytes[i * size + k]} << (8 * k);
    const int64_t value = scalar == Scalar::i32 ? static_cast<int32_t>(static_cast<uint32_t>(bits))
                                                : static_cast<int64_t>(bits);
    if (i != 0)
      text += ',';
    if (lines && i % kElementsALine == 0)
      text += "\n  ";
    else if (i != 0)
      text += ' ';
    append_literal(text, scalar, value);
  }
  text += lines ? "\n]" : "]";
}

void append_symbol(std::string& text, const Symbol& symbol) {
  text += name_of(symbol.type.space());
  text += " @";
  text += symbol.name;
  text += " : ";
  text += name_of(symbol.type.element());
  text += '[';
  append_unsigned(text, symbol.count);
  text += "] align ";
  append_unsigned(text, symbol.alignment);
  if (symbol.type.space() != Space::shared)
    append_elements(text, symbol);
  text += '\n';
}

/// `register` lines for what the parser cannot infer: registers that nothing assigns, and names
/// that do not appear in the order of their numbers.
void append_declarations(std::string& text, const Function& function, const RegisterNames& names) {
  const uint32_t count = static_cast<uint32_t>(function.register_type.size());
  std::vector<uint8_t> seen(count);
  std::vector<uint8_t> declared(count);
  uint32_t next = function.parameter_count;
  std::fill_n(seen.begin(), std::min(next, count), uint8_t{1});
  for (const Op& op : function.ops) {
    const uint32_t results = result_count(op);
    for (uint32_t i = 0; i < results; ++i) {
      const uint32_t id = op.result.id + i;
      if (id >= count)
        break;
      if (seen[id] == 0 && !names.name(id).empty() && (i != 0 || id != next))
        declared[id] = 1;
      seen[id] = 1;
    }
    if (results != 0)
      next = std::max(next, op.result.id + results);
  }
  for (uint32_t id = 0; id < count; ++id) {
    if (declared[id] == 0 && (seen[id] != 0 || function.register_type[id].is_none()))
      continue;
    text += "  register ";
    names.append(text, id);
    if (!names.name(id).empty()) {
      text += " = ";
      append_unsigned(text, id);
    }
    text += " : ";
    append_type(text, function.register_type[id]);
    text += '\n';
  }
}

void append_head(std::string& text, const Function& function, const RegisterNames& names) {
  switch (function.kind) {
  case FunctionKind::device:
    text += "func @";
    break;
  case FunctionKind::kernel:
    text += "kernel @";
    break;
  case FunctionKind::host:
    text += function.cpu ? "host cpu @" : "host @";
    break;
  }
  text += function.name;
  text += '(';
  for (uint32_t i = 0; i < function.parameter_count; ++i) {
    if (i != 0)
      text += ", ";
    names.append(text, i);
    text += ": ";
    append_type(text, function.register_type[i]);
  }
  text += ')';
  if (function.kind == FunctionKind::kernel) {
    text += " block(";
    append_unsigned(text, function.block[0]);
    text += ", ";
    append_unsigned(text, function.block[1]);
    text += ", ";
    append_unsigned(text, function.block[2]);
    text += ')';
    if (function.has_cluster()) {
      text += " cluster(";
      for (unsigned i = 0; i < 3; ++i) {
        if (i != 0)
          text += ", ";
        append_unsigned(text, function.cluster[i]);
      }
      text += ')';
    }
    if (function.max_registers != 0) {
      text += " registers(";
      append_unsigned(text, function.max_registers);
      text += ')';
    }
  }
  text += function.external ? " external\n" : " {\n";
}

void append_function(std::string& text, const Module& module, const Function& function) {
  const RegisterNames names(function);
  append_head(text, function, names);
  if (function.external)
    return;
  append_declarations(text, function, names);
  OpPrinter printer(text, module, function, names);
  size_t depth = 1;
  for (const Op& op : function.ops) {
    const Form form = info(op.code).form;
    const bool closes = form == Form::close || form == Form::while_end || form == Form::else_mark;
    if (closes && depth > 1)
      --depth;
    text.append(2 * depth, ' ');
    printer.print(op);
    text += '\n';
    if (form == Form::open || form == Form::for_loop || form == Form::if_begin ||
        form == Form::else_mark)
      ++depth;
  }
  text += "}\n";
}

} // namespace

RegisterNames::RegisterNames(const Function& function) {
  if (function.register_name.empty())
    return;
  names_.resize(function.register_type.size());
  std::unordered_set<std::string_view> taken; // asked only, never listed
  for (const auto& [id, given] : function.register_name) {
    if (id >= names_.size() || given.empty())
      continue;
    std::string_view name = given;
    const bool legal = std::all_of(name.begin(), name.end(), is_name_character) &&
                       !(name.front() >= '0' && name.front() <= '9');
    if (!legal || taken.contains(name)) {
      std::string changed(given);
      std::replace_if(
          changed.begin(), changed.end(), [](char c) { return !is_name_character(c); }, '_');
      if (changed.front() >= '0' && changed.front() <= '9')
        changed.insert(changed.begin(), '_');
      while (taken.contains(changed)) {
        changed += '_';
        append_unsigned(changed, id);
      }
      name = changed_.emplace_back(std::move(changed));
    }
    taken.insert(name);
    names_[id] = name;
  }
}

void RegisterNames::append(std::string& text, uint32_t id) const {
  text += '%';
  const std::string_view given = name(id);
  if (given.empty())
    append_unsigned(text, id);
  else
    text += given;
}

std::string print(const Module& module) {
  std::string text;
  for (const auto& [key, value] : module.attributes) {
    text += "attribute ";
    append_string(text, key);
    text += ' ';
    append_string(text, value);
    text += '\n';
  }
  for (const Symbol& symbol : module.symbols)
    append_symbol(text, symbol);
  for (const Function& function : module.functions) {
    if (!text.empty())
      text += '\n';
    append_function(text, module, function);
  }
  return text;
}

std::string print_op(const Module& module, const Function& function, const Op& op) {
  std::string text;
  const RegisterNames names(function);
  OpPrinter(text, module, function, names).print(op);
  return text;
}

std::string print_register(const Function& function, Reg reg) {
  std::string text;
  RegisterNames(function).append(text, reg.id);
  return text;
}

} // namespace sparsertc::ir
