// Operands, and instructions in their decoded form.
#include "tests/support/ptx_interpreter_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace sparsertc::ptx {
namespace {

constexpr std::pair<std::string_view, SpecialRegister> kSpecials[] = {
    {"%tid.x", SpecialRegister::tid_x},
    {"%tid.y", SpecialRegister::tid_y},
    {"%tid.z", SpecialRegister::tid_z},
    {"%ntid.x", SpecialRegister::ntid_x},
    {"%ntid.y", SpecialRegister::ntid_y},
    {"%ntid.z", SpecialRegister::ntid_z},
    {"%ctaid.x", SpecialRegister::ctaid_x},
    {"%ctaid.y", SpecialRegister::ctaid_y},
    {"%ctaid.z", SpecialRegister::ctaid_z},
    {"%nctaid.x", SpecialRegister::nctaid_x},
    {"%nctaid.y", SpecialRegister::nctaid_y},
    {"%nctaid.z", SpecialRegister::nctaid_z},
    {"%laneid", SpecialRegister::laneid},
    {"%warpid", SpecialRegister::warpid},
    {"%lanemask_eq", SpecialRegister::lanemask_eq},
    {"%lanemask_lt", SpecialRegister::lanemask_lt},
    {"%lanemask_le", SpecialRegister::lanemask_le},
    {"%lanemask_gt", SpecialRegister::lanemask_gt},
    {"%lanemask_ge", SpecialRegister::lanemask_ge},
    {"%dynamic_smem_size", SpecialRegister::dynamic_smem_size},
    {"%total_smem_size", SpecialRegister::total_smem_size},
};

} // namespace

// ---- operands ----------------------------------------------------------------------------------

OperandRef Parser::constant(uint64_t value) {
  const uint32_t index = static_cast<uint32_t>(program_.constants.size());
  program_.constants.push_back(value);
  return kConstantBase | index;
}

Operand Parser::read_simple() {
  Operand operand;
  const Token token = lexer_->take();
  operand.text = token.text;
  if (token.text == "-") {
    const Token number = lexer_->take();
    operand.kind = Operand::integer;
    operand.value = static_cast<int64_t>(0 - static_cast<uint64_t>(parse_integer(number)));
    return operand;
  }
  if (token.kind == TokenKind::number) {
    const std::string_view text = token.text;
    if (text.size() == 10 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F')) {
      operand.kind = Operand::real;
      operand.single = true;
      operand.value =
          static_cast<int64_t>(std::strtoull(std::string(text.substr(2)).c_str(), nullptr, 16));
    } else if (text.size() == 18 && text[0] == '0' && (text[1] == 'd' || text[1] == 'D')) {
      operand.kind = Operand::real;
      operand.value =
          static_cast<int64_t>(std::strtoull(std::string(text.substr(2)).c_str(), nullptr, 16));
    } else if (text.find('.') != std::string_view::npos) {
      operand.kind = Operand::real;
      operand.value = std::bit_cast<int64_t>(std::strtod(std::string(text).c_str(), nullptr));
    } else {
      operand.kind = Operand::integer;
      operand.value = parse_integer(token);
    }
    return operand;
  }
  if (token.kind != TokenKind::identifier)
    fail(fmt::format("operand expected, found `{}`", token.text));
  if (token.text == "_") {
    operand.kind = Operand::sink;
    return operand;
  }
  if (find_register(token.text, operand))
    return operand;
  if (token.text[0] == '%') {
    for (const auto& [name, special] : kSpecials) {
      if (name == token.text) {
        operand.kind = Operand::reg;
        operand.is_special = true;
        operand.ref = kSpecialBase | static_cast<uint32_t>(special);
        operand.bits = 32;
        return operand;
      }
    }
    fail(fmt::format("`{}` is not declared", token.text));
  }
  if (const Parameter* parameter = find_parameter(token.text)) {
    operand.kind = Operand::name;
    operand.parameter = parameter;
    return operand;
  }
  if (const Variable* variable = find_variable(token.text)) {
    operand.kind = Operand::symbol;
    operand.variable = variable;
    if (accept("+"))
      operand.value = integer();
    return operand;
  }
  operand.kind = Operand::name; // a label, a function
  return operand;
}

Operand Parser::read_operand() {
  if (accept("!")) {
    Operand operand = read_simple();
    operand.negated = true;
    return operand;
  }
  if (accept("{")) {
    Operand operand;
    operand.kind = Operand::vector;
    operand.first = static_cast<uint32_t>(elements_.size());
    while (!accept("}")) {
      elements_.push_back(read_simple());
      ++operand.count;
      if (!at("}"))
        expect(",");
    }
    return operand;
  }
  if (accept("[")) {
    Operand base = read_simple();
    Operand operand = base;
    operand.kind = Operand::address;
    if (base.kind == Operand::integer) {
      operand.value = base.value;
      operand.ref = kNone;
    } else if (base.kind == Operand::reg) {
      operand.value = 0;
    } else if (!base.variable && !base.parameter) {
      fail(fmt::format("`{}` is not declared", base.text));
    }
    if (accept("+"))
      operand.value += integer();
    else if (at("-"))
      operand.value += integer();
    expect("]");
    return operand;
  }
  Operand operand = read_simple();
  if (operand.kind == Operand::reg && operand.bits == 1 && accept("|")) {
    const Operand other = read_simple();
    if (other.kind != Operand::reg || other.bits != 1)
      fail("predicate expected after |");
    operand.second = other.ref;
  } else if (operand.kind == Operand::reg && accept("|")) {
    const Operand other = read_simple();
    if (other.kind != Operand::reg || other.bits != 1)
      fail("predicate expected after |");
    operand.second = other.ref;
  }
  return operand;
}

void Parser::read_operands() {
  operands_.clear();
  elements_.clear();
  if (accept(";"))
    return;
  do {
    operands_.push_back(read_operand());
  } while (accept(","));
  expect(";");
}

void Parser::need(size_t least, size_t most) {
  if (operands_.size() < least || operands_.size() > most)
    fail(fmt::format("{} operands, {} expected", operands_.size(),
                     least == most ? fmt::format("{}", least)
                                   : fmt::format("{} to {}", least, most)));
}

OperandRef Parser::source(const Operand& operand, uint32_t bits, bool wider) {
  const uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  switch (operand.kind) {
  case Operand::reg:
    if (operand.is_special && bits == 64)
      return operand.ref;
    if (operand.bits != bits && !(wider && operand.bits > bits))
      fail(fmt::format("`{}` has {} bits, {} expected", operand.text, operand.bits, bits));
    return operand.ref;
  case Operand::integer:
    if (bits == 1)
      return constant(operand.value != 0);
    return constant(static_cast<uint64_t>(operand.value) & mask);
  case Operand::real: {
    const uint64_t value = static_cast<uint64_t>(operand.value);
    if (bits == 32)
      return constant(operand.single ? value
                                     : std::bit_cast<uint32_t>(
                                           static_cast<float>(std::bit_cast<double>(value))));
    if (bits == 64)
      return constant(operand.single ? std::bit_cast<uint64_t>(double{
                                           std::bit_cast<float>(static_cast<uint32_t>(value))})
                                     : value);
    fail(fmt::format("a float constant of {} bits", bits));
  }
  case Operand::symbol: {
    if (bits != 64 && !(bits == 32 && operand.variable->space != Space::global))
      fail(fmt::format("the address of `{}` does not fit {} bits", operand.text, bits));
    const OperandRef ref =
        constant(operand.variable->address + static_cast<uint64_t>(operand.value));
    if (operand.variable->external_shared)
      program_.extern_shared_constants.push_back(ref & kOperandIndex);
    return ref;
  }
  default:
    fail(fmt::format("`{}` is no value here", operand.text));
  }
}

OperandRef Parser::destination(const Operand& operand, uint32_t bits, bool wider) {
  if (operand.kind == Operand::sink)
    return kFrameBase | new_slots(1);
  if (operand.kind != Operand::reg || operand.is_special)
    fail(fmt::format("`{}` is no register", operand.text));
  if (operand.bits != bits && !(wider && operand.bits > bits))
    fail(fmt::format("`{}` has {} bits, {} expected", operand.text, operand.bits, bits));
  return operand.ref;
}

void Parser::address(Instruction& made, const Operand& operand) {
  if (operand.kind != Operand::address)
    fail("address in brackets expected");
  made.immediate = operand.value;
  if (operand.parameter) {
    const int64_t last = operand.value + int64_t{made.size} * made.width;
    if (made.space != Space::param)
      fail(fmt::format("`{}` is in .param space", operand.text));
    if (operand.value < 0 || last > operand.parameter->bytes)
      fail(fmt::format("bytes {} to {} of `{}`, which has {}", operand.value, last, operand.text,
                       operand.parameter->bytes));
    if (operand.value % (made.size * made.width) != 0)
      fail("misaligned parameter access");
    made.a = kNone;
    made.immediate += int64_t{operand.parameter->slot} * 8;
    return;
  }
  if (made.space == Space::param)
    fail("parameters are addressed by name");
  if (operand.variable) {
    Space space = operand.variable->space;
    if (made.space != space)
      fail(fmt::format("`{}` is in another space", operand.text));
    made.a = constant(operand.variable->address);
    if (operand.variable->external_shared)
      program_.extern_shared_constants.push_back(made.a & kOperandIndex);
    return;
  }
  if (operand.ref == kNone) {
    made.a = constant(0);
    return;
  }
  const bool is_shared = made.space == Space::shared || made.space == Space::cluster;
  if (operand.bits != 64 && !(operand.bits == 32 && is_shared))
    fail(fmt::format("`{}` has {} bits and cannot be an address here", operand.text, operand.bits));
  made.a = operand.ref;
}

// ---- instructions ------------------------------------------------------------------------------

void Parser::instruction(uint32_t guard) {
  const Token token = lexer_->take();
  if (token.kind != TokenKind::identifier)
    fail(fmt::format("instruction expected, found `{}`", token.text));
  if (guard == kNone && accept(":")) {
    if (accept(".branchtargets")) {
      std::vector<std::string_view>& list = scopes_.back().target_lists[token.text];
      do {
        list.push_back(identifier("label"));
      } while (accept(","));
      expect(";");
      return;
    }
    if (!labels_
             .emplace(std::make_pair(scopes_.back().id, token.text),
                      static_cast<uint32_t>(program_.code.size()))
             .second)
      fail(fmt::format("label `{}` is defined twice", token.text));
    return;
  }
  guard_ = guard;
  const OpcodeTemplate& known = opcode(token);
  if (known.form == OperandForm::call) {
    emit_call();
    return;
  }
  read_operands();
  Instruction made = known.instruction;
  switch (known.form) {
  case OperandForm::move:
    need(2, 2);
    if (operands_[0].kind == Operand::vector || operands_[1].kind == Operand::vector) {
      const bool pack = operands_[1].kind == Operand::vector;
      const Operand& list = operands_[pack ? 1 : 0];
      if (list.count != 2 && list.count != 4)
        fail("vectors of two or four elements");
      const uint32_t part = known.bits[0] / list.count;
      if (part < 8)
        fail("too many elements");
      made.code = pack ? Code::mov_pack : Code::mov_unpack;
      made.size = static_cast<uint8_t>(part / 8);
      made.width = static_cast<uint8_t>(list.count);
      std::vector<uint32_t> refs;
      for (uint32_t i = 0; i < list.count; ++i)
        refs.push_back(pack ? source(elements_[list.first + i], part)
                            : destination(elements_[list.first + i], part));
      made.extra = pool_start();
      program_.pool.insert(program_.pool.end(), refs.begin(), refs.end());
      if (pack)
        made.d = destination(operands_[0], known.bits[0]);
      else
        made.a = source(operands_[1], known.bits[1]);
      emit(made);
      return;
    }
    [[fallthrough]];
  case OperandForm::value: {
    need(known.arity + 1, known.arity + 1);
    made.d = destination(operands_[0], known.bits[0]);
    made.a = source(operands_[1], known.bits[1]);
    if (known.arity > 1)
      made.b = source(operands_[2], known.bits[2]);
    if (known.arity > 2)
      made.c = source(operands_[3], known.bits[3]);
    for (size_t i = 1; i < operands_.size(); ++i)
      if (operands_[i].negated)
        fail("a negated operand");
    emit(made);
    if (operands_[0].second != kNone) {
      if (known.text.substr(0, 5) != "setp.")
        fail("two destinations");
      Instruction inverse;
      inverse.code = Code::not_pred;
      inverse.d = operands_[0].second;
      inverse.a = made.d;
      emit(inverse);
    }
    return;
  }
  case OperandForm::compare_combined: {
    need(4, 4);
    if (operands_[0].second != kNone)
      fail("setp with .and, .or, .xor and two destinations", ErrorKind::unsupported);
    const OperandRef d = destination(operands_[0], 1);
    OperandRef third = source(operands_[3], 1);
    made.a = source(operands_[1], known.bits[1]);
    made.b = source(operands_[2], known.bits[2]);
    if (operands_[3].negated) {
      Instruction inverse;
      inverse.code = Code::not_pred;
      inverse.a = third;
      third = inverse.d = kFrameBase | new_slots(1);
      emit(inverse);
    }
    made.d = kFrameBase | new_slots(1);
    emit(made);
    Instruction combine;
    combine.code = known.combine;
    combine.d = d;
    combine.a = made.d;
    combine.b = third;
    emit(combine);
    return;
  }
  case OperandForm::convert:
    need(2, 2);
    made.d = destination(operands_[0], known.bits[0], true);
    made.a = source(operands_[1], known.bits[1], true);
    // Wider destinations are extended to the register's width.
    made.size = static_cast<uint8_t>(operands_[0].kind == Operand::reg ? operands_[0].bits / 8
                                                                       : known.bits[0] / 8);
    made.extra = pool_start();
    program_.pool.insert(program_.pool.end(), known.pool, known.pool + 4);
    emit(made);
    return;
  case OperandForm::load:
  case OperandForm::store:
  case OperandForm::atomic:
  case OperandForm::reduction:
  case OperandForm::copy_async:
    emit_memory(known);
    return;
  case OperandForm::plain:
    need(0, 8);
    emit(made);
    return;
  case OperandForm::skip:
    return;
  case OperandForm::copy_wait:
    need(1, 1);
    if (operands_[0].kind != Operand::integer)
      fail("a number of groups expected");
    made.immediate = operands_[0].value;
    emit(made);
    return;
  case OperandForm::barrier:
  case OperandForm::map_shared:
  case OperandForm::barrier_warp:
  case OperandForm::shuffle:
  case OperandForm::vote:
  case OperandForm::active_mask:
  case OperandForm::match_any:
  case OperandForm::reduce_warp:
    emit_warp(known);
    return;
  case OperandForm::mma:
    emit_mma(known);
    return;
  case OperandForm::branch:
    need(1, 1);
    patches_.push_back({false, static_cast<uint32_t>(program_.code.size()), scopes_.back().id,
                        operands_[0].text, line_ | unit_ << 24});
    emit(made);
    return;
  case OperandForm::branch_table: {
    need(2, 2);
    made.a = source(operands_[0], 32);
    const std::vector<std::string_view>* list = nullptr;
    for (size_t i = scopes_.size(); i-- > 0 && !list;) {
      const auto found = scopes_[i].target_lists.find(operands_[1].text);
      if (found != scopes_[i].target_lists.end())
        list = &found->second;
    }
    if (!list)
      fail(fmt::format("no .branchtargets `{}`", operands_[1].text));
    made.extra = pool_start();
    program_.pool.push_back(static_cast<uint32_t>(list->size()));
    for (const std::string_view label : *list) {
      patches_.push_back({true, pool_start(), scopes_.back().id, label, line_ | unit_ << 24});
      program_.pool.push_back(0);
    }
    emit(made);
    return;
  }
  case OperandForm::call:
    return;
  }
}

void Parser::emit_memory(const OpcodeTemplate& known) {
  Instruction made = known.instruction;
  const uint32_t bits = known.bits[0];
  if (known.form == OperandForm::copy_async) {
    need(3, 5);
    if (operands_[2].kind != Operand::integer ||
        (operands_[2].value != 4 && operands_[2].value != 8 && operands_[2].value != 16))
      fail("cp.async copies 4, 8 or 16 bytes");
    if (made.rule && operands_[2].value != 16)
      fail("cp.async.cg copies 16 bytes");
    made.size = static_cast<uint8_t>(operands_[2].value);
    Instruction from = made;
    from.space = Space::global;
    address(from, operands_[1]);
    made.space = Space::shared;
    address(made, operands_[0]);
    made.d = made.a;
    made.a = from.a;
    made.extra = static_cast<uint32_t>(constant(static_cast<uint64_t>(from.immediate)));
    if (operands_.size() > 3) {
      if (operands_[3].bits == 1)
        fail("cp.async with an ignore-src predicate", ErrorKind::unsupported);
      made.b = source(operands_[3], 32);
    }
    if (operands_.size() > 4)
      fail("cp.async with a cache policy", ErrorKind::unsupported);
    emit(made);
    return;
  }
  const bool load = known.form == OperandForm::load;
  if (load || known.form == OperandForm::store) {
    need(2, 2);
    const Operand& value = operands_[load ? 0 : 1];
    address(made, operands_[load ? 1 : 0]);
    if (!load && (made.space == Space::constant || (made.flags & kNonCoherent) != 0))
      fail("no store to this space");
    if (!load && made.space == Space::cluster)
      fail("a store to another block's memory", ErrorKind::unsupported);
    if (made.width > 1) {
      if (value.kind != Operand::vector || value.count != made.width)
        fail(fmt::format("a vector of {} registers expected", made.width));
      std::vector<uint32_t> refs;
      for (uint32_t i = 0; i < value.count; ++i)
        refs.push_back(load ? destination(elements_[value.first + i], bits, true)
                            : source(elements_[value.first + i], bits, true));
      made.extra = pool_start();
      program_.pool.insert(program_.pool.end(), refs.begin(), refs.end());
    } else if (load) {
      made.d = destination(value, bits, true);
    } else {
      made.b = source(value, bits, true);
    }
    emit(made);
    return;
  }
  const bool has_result = known.form == OperandForm::atomic;
  const size_t base = has_result ? 1 : 0;
  const bool swap = made.rule == static_cast<uint8_t>(AtomicRule::cas);
  need(base + (swap ? 3 : 2), base + (swap ? 3 : 2));
  made.d = has_result ? destination(operands_[0], bits) : kFrameBase | new_slots(1);
  address(made, operands_[base]);
  made.b = source(operands_[base + 1], bits);
  if (swap)
    made.c = source(operands_[base + 2], bits);
  made.extra = pool_start();
  program_.pool.push_back(known.pool[0]);
  emit(made);
}

void Parser::emit_warp(const OpcodeTemplate& known) {
  Instruction made = known.instruction;
  switch (known.form) {
  case OperandForm::barrier:
    need(1, 2);
    made.a = source(operands_[0], 32);
    if (operands_.size() > 1)
      made.b = source(operands_[1], 32);
    break;
  case OperandForm::map_shared:
    need(3, 3);
    made.d = destination(operands_[0], known.bits[0]);
    made.a = source(operands_[1], known.bits[1]);
    made.b = source(operands_[2], 32);
    break;
  case OperandForm::barrier_warp:
    need(1, 1);
    made.a = source(operands_[0], 32);
    break;
  case OperandForm::shuffle: {
    need(5, 5);
    made.d = destination(operands_[0], 32);
    made.a = source(operands_[1], 32);
    made.b = source(operands_[2], 32);
    made.c = source(operands_[3], 32);
    const OperandRef mask = source(operands_[4], 32);
    made.extra = pool_start();
    program_.pool.push_back(operands_[0].second);
    program_.pool.push_back(mask);
    break;
  }
  case OperandForm::vote:
    need(3, 3);
    made.d = destination(operands_[0], known.bits[0]);
    made.a = source(operands_[1], 1);
    if (operands_[1].negated)
      made.flags |= kNegated;
    made.b = source(operands_[2], 32);
    break;
  case OperandForm::active_mask:
    need(1, 1);
    made.d = destination(operands_[0], 32);
    break;
  default:
    need(3, 3);
    made.d = destination(operands_[0], 32);
    made.a = source(operands_[1], 32);
    made.b = source(operands_[2], 32);
    break;
  }
  emit(made);
}

void Parser::emit_mma(const OpcodeTemplate& known) {
  Instruction made = known.instruction;
  const bool sparse = known.pool[2] != 0;
  need(sparse ? 6 : 4, sparse ? 6 : 4);
  const bool tf32 = known.pool[0] == static_cast<uint32_t>(ScalarType::tf32);
  const uint32_t k = known.pool[1];
  const uint32_t a_elements = 16 * (sparse ? k / 2 : k) / 32, b_elements = 8 * k / 32;
  const uint32_t expected[4] = {4, tf32 ? a_elements : a_elements / 2,
                                tf32 ? b_elements : b_elements / 2, 4};
  std::vector<uint32_t> words(known.pool, known.pool + 3);
  for (int i = 0; i < 4; ++i) {
    const Operand& list = operands_[static_cast<size_t>(i)];
    if (list.kind != Operand::vector || list.count != expected[i])
      fail(fmt::format("operand {} must be a vector of {} registers", i, expected[i]));
    words.push_back(list.count);
    for (uint32_t e = 0; e < list.count; ++e)
      words.push_back(i == 0 ? destination(elements_[list.first + e], 32)
                             : source(elements_[list.first + e], 32));
  }
  if (sparse) {
    words.push_back(source(operands_[4], 32));
    if (operands_[5].kind != Operand::integer)
      fail("the sparsity selector is a constant");
    words.push_back(static_cast<uint32_t>(operands_[5].value));
  }
  made.extra = pool_start();
  program_.pool.insert(program_.pool.end(), words.begin(), words.end());
  emit(made);
}

void Parser::emit_call() {
  // call (results), function, (arguments);
  std::vector<Operand> results, arguments;
  elements_.clear();
  const auto list = [&](std::vector<Operand>& into) {
    while (!accept(")")) {
      into.push_back(read_simple());
      if (!at(")"))
        expect(",");
    }
  };
  if (accept("(")) {
    list(results);
    expect(",");
  }
  const std::string_view name = identifier("function name");
  if (accept(",")) {
    expect("(");
    list(arguments);
  }
  expect(";");
  const auto found = function_index_.find(name);
  if (found == function_index_.end())
    fail(fmt::format("`{}` is not declared", name), ErrorKind::unsupported);
  const FunctionCode& callee = program_.functions[found->second];
  if (callee.is_entry)
    fail("entries cannot be called");
  if (callee.parameters.size() != arguments.size() || callee.results.size() != results.size())
    fail(fmt::format("`{}` takes {} arguments and returns {}", name, callee.parameters.size(),
                     callee.results.size()));
  // Functions of other units get their slots when they are defined: parameters come first and in
  // order in every frame, so the declaration's slots are already right.
  std::vector<uint32_t> words = {found->second, static_cast<uint32_t>(arguments.size())};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Parameter& formal = callee.parameters[i];
    const Operand& actual = arguments[i];
    words.push_back(formal.slot);
    if (actual.parameter) {
      if (actual.parameter->bytes != formal.bytes)
        fail(fmt::format("argument {} has {} bytes, {} expected", i, actual.parameter->bytes,
                         formal.bytes));
      words.push_back((formal.bytes + 7) / 8);
      words.push_back(kFrameBase | actual.parameter->slot);
    } else {
      words.push_back(1);
      words.push_back(actual.bits == 1 ? actual.ref : source(actual, formal.bytes * 8));
    }
  }
  words.push_back(static_cast<uint32_t>(results.size()));
  for (size_t i = 0; i < results.size(); ++i) {
    const Parameter& formal = callee.results[i];
    const Operand& actual = results[i];
    if (actual.parameter) {
      if (actual.parameter->bytes != formal.bytes)
        fail(fmt::format("result {} has {} bytes, {} expected", i, actual.parameter->bytes,
                         formal.bytes));
      words.push_back(actual.parameter->slot);
    } else {
      words.push_back(destination(actual, formal.bytes * 8) & kOperandIndex);
    }
    words.push_back(formal.slot);
    words.push_back((formal.bytes + 7) / 8);
  }
  Instruction made;
  made.code = Code::call;
  made.extra = pool_start();
  program_.pool.insert(program_.pool.end(), words.begin(), words.end());
  emit(made);
}

} // namespace sparsertc::ptx
