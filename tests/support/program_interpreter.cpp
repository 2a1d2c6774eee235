#include "tests/support/program_interpreter.h"

#include "ir/operands.h"
#include "ir/printer.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc::test {

using ir::Form;
using ir::Function;
using ir::FunctionKind;
using ir::Op;
using ir::Opcode;
using ir::Scalar;
using ir::Space;

namespace {

constexpr uint64_t kMostSteps = 20'000'000;

/// Where the block that opens at `at` ends: its closing operation, and its `else` or the same.
std::pair<uint32_t, uint32_t> block_end(const Function& f, uint32_t at) {
  unsigned depth = 0;
  uint32_t otherwise = 0;
  for (uint32_t i = at;; ++i) {
    const Form form = ir::info(f.ops[i].code).form;
    if (form == Form::open || form == Form::for_loop || form == Form::if_begin)
      ++depth;
    else if (form == Form::else_mark && depth == 1)
      otherwise = i;
    else if ((form == Form::close || form == Form::while_end) && --depth == 0)
      return {i, otherwise == 0 ? i : otherwise};
  }
}

int64_t wrap(Scalar type, int64_t value) {
  return type == Scalar::i32 ? static_cast<int32_t>(value) : value;
}

} // namespace

int64_t ProgramInterpreter::give(Space space, std::vector<Element> elements) {
  arrays_.push_back({separate_ ? space : Space::none, std::move(elements), false, true});
  return static_cast<int64_t>(arrays_.size() - 1) << 32;
}

unsigned ProgramInterpreter::leaks() const {
  return static_cast<unsigned>(std::count_if(arrays_.begin(), arrays_.end(),
                                             [](const Array& a) { return !a.given && !a.freed; }));
}

void ProgramInterpreter::run(const std::string& name, const std::vector<int64_t>& arguments) {
  const uint32_t index = module_.find_function(name);
  if (index == UINT32_MAX)
    throw ProgramError("no function @" + name);
  function(index, Registers(arguments.begin(), arguments.end()), {});
}

void ProgramInterpreter::function(uint32_t index, const Registers& arguments,
                                  const Thread& thread) {
  const Function& f = module_.functions[index];
  Registers registers = arguments;
  registers.resize(f.register_type.size());
  block(f, 0, static_cast<uint32_t>(f.ops.size()), registers, thread);
}

bool ProgramInterpreter::decide(Element condition) {
  if (!condition)
    throw UndefinedCondition("an undefined condition");
  return *condition != 0;
}

bool ProgramInterpreter::block(const Function& f, uint32_t begin, uint32_t end, Registers& r,
                               const Thread& t) {
  for (uint32_t at = begin; at < end; ++at) {
    const Op& op = f.ops[at];
    if (++steps_ > kMostSteps)
      throw ProgramError("the program runs too long");
    switch (op.code) {
    case Opcode::return_void:
      return true;
    case Opcode::for_loop: {
      const uint32_t last = block_end(f, at).first;
      const Element limit = op.operand[0] == ir::kImmediate
                                ? static_cast<int32_t>(ir::low_half(op.immediate))
                                : r[op.operand[0]];
      if (!limit)
        throw UndefinedCondition("an undefined number of rounds");
      for (int64_t i = 0; i < *limit; i += ir::high_half(op.immediate)) {
        r[op.result.id] = i;
        if (block(f, at + 1, last, r, t))
          return true;
      }
      at = last;
      break;
    }
    case Opcode::loop: {
      const uint32_t last = block_end(f, at).first;
      do {
        if (block(f, at + 1, last, r, t))
          return true;
      } while (decide(r[f.ops[last].operand[0]]));
      at = last;
      break;
    }
    case Opcode::if_begin: {
      const auto [last, otherwise] = block_end(f, at);
      const bool taken = decide(r[op.operand[0]]);
      if (taken ? block(f, at + 1, otherwise, r, t)
                : otherwise != last && block(f, otherwise + 1, last, r, t))
        return true;
      at = last;
      break;
    }
    default:
      operation(f, op, r, t);
      break;
    }
  }
  return false;
}

/// The array that a pointer leads to, if this function's code may touch it.
ProgramInterpreter::Array& ProgramInterpreter::reach(const Function& f, Element pointer) {
  if (!pointer)
    throw ProgramError(fmt::format("@{} uses a pointer that nothing has set", f.name));
  Array& array = arrays_.at(static_cast<size_t>(*pointer >> 32));
  if (array.freed)
    throw ProgramError(fmt::format("@{} uses an array that was freed", f.name));
  return array;
}

ProgramInterpreter::Element& ProgramInterpreter::element(const Function& f, const Op& op,
                                                         const Registers& r) {
  Array& array = reach(f, r[op.operand[0]]);
  const Space here = f.kind == FunctionKind::host ? Space::host : Space::device;
  if (array.space != Space::none && array.space != here)
    throw ProgramError(
        fmt::format("@{} reaches {} memory from the other side", f.name, name_of(array.space)));
  const int64_t size = size_in_bytes(op.type.element());
  const int64_t at = (*r[op.operand[0]] & 0xFFFFFFFF) + op.immediate;
  if (op.width != 1 || at % size != 0 || at < 0 ||
      at / size >= static_cast<int64_t>(array.elements.size()))
    throw ProgramError(
        fmt::format("@{} accesses byte {} of {} elements", f.name, at, array.elements.size()));
  return array.elements[static_cast<size_t>(at / size)];
}

void ProgramInterpreter::copy(const Function& f, const Op& op, const Registers& r) {
  Array& to = reach(f, r[op.operand[0]]);
  const Array& from = reach(f, r[op.operand[1]]);
  const Element count = op.operand[2] == ir::kImmediate ? op.immediate : r[op.operand[2]];
  if (!count || *count > static_cast<int64_t>(std::min(to.elements.size(), from.elements.size())))
    throw ProgramError(fmt::format("@{} copies more than there is", f.name));
  copies_.push_back({from.space, to.space, *count,
                     to.elements.size() == from.elements.size() &&
                         *count == static_cast<int64_t>(to.elements.size())});
  std::copy_n(from.elements.begin(), *count, to.elements.begin());
}

void ProgramInterpreter::launch(const Function& f, const Op& op, const Registers& r) {
  const Function& kernel = module_.functions[op.operand[0]];
  Registers arguments;
  for (uint32_t argument : ir::arguments(f, op))
    arguments.push_back(r[argument]);
  ++launches_;
  uint32_t grid[3];
  for (unsigned i = 0; i < 3; ++i)
    grid[i] = static_cast<uint32_t>(r[f.pool[op.operand[1] + i]].value());
  for (uint32_t block = 0; block < grid[0] * grid[1] * grid[2]; ++block)
    for (uint32_t thread = 0; thread < kernel.block[0]; ++thread) {
      Thread t;
      t.thread[0] = thread;
      t.block[0] = block;
      function(op.operand[0], arguments, t);
    }
}

void ProgramInterpreter::operation(const Function& f, const Op& op, Registers& r, const Thread& t) {
  switch (ir::info(op.code).form) {
  case Form::load:
    r[op.result.id] = element(f, op, r);
    break;
  case Form::store:
    element(f, op, r) = r[op.operand[1]];
    break;
  case Form::alloc: {
    const Element count = op.operand[0] == ir::kImmediate ? op.immediate : r[op.operand[0]];
    Array array;
    array.space = separate_ ? op.type.space() : Space::none;
    array.elements.resize(static_cast<size_t>(count.value()));
    Memory& memory = memory_[index(op.type.space())];
    memory.now += *count * size_in_bytes(op.type.element());
    memory.peak = std::max(memory.peak, memory.now);
    arrays_.push_back(std::move(array));
    r[op.result.id] = static_cast<int64_t>(arrays_.size() - 1) << 32;
    break;
  }
  case Form::value_none: {
    Array& array = reach(f, r[op.operand[0]]);
    array.freed = true;
    memory_[index(op.type.space())].now -=
        static_cast<int64_t>(array.elements.size() * size_in_bytes(op.type.element()));
    break;
  }
  case Form::copy:
    copy(f, op, r);
    break;
  case Form::call: {
    Registers arguments;
    for (uint32_t argument : ir::arguments(f, op))
      arguments.push_back(r[argument]);
    function(op.operand[0], arguments, t);
    break;
  }
  case Form::launch:
    launch(f, op, r);
    break;
  case Form::value:
    value(f, op, r, t);
    break;
  default:
    throw ProgramError("cannot interpret " + ir::print_op(module_, f, op));
  }
}

void ProgramInterpreter::value(const Function& f, const Op& op, Registers& r, const Thread& t) {
  Element operand[3];
  bool defined = true;
  for (size_t i = 0; i < ir::info(op.code).operands.size(); ++i) {
    operand[i] = op.operand[i] == ir::kImmediate ? Element(op.immediate) : r[op.operand[i]];
    defined = defined && operand[i].has_value();
  }
  Element& result = r[op.result.id];
  if (!defined) {
    result.reset();
    return;
  }
  const int64_t a = operand[0].value_or(0), b = operand[1].value_or(0), c = operand[2].value_or(0);
  const auto unsigned_of = [](int64_t x) { return static_cast<uint64_t>(x); };
  int64_t v = 0;
  switch (op.code) {
  case Opcode::constant:
  case Opcode::move:
    v = a;
    break;
  case Opcode::special:
    if (op.detail > static_cast<uint8_t>(ir::Special::block_z))
      throw ProgramError("cannot interpret " + ir::print_op(module_, f, op));
    v = op.detail < 3 ? t.thread[op.detail] : t.block[op.detail - 3];
    break;
  case Opcode::add:
  case Opcode::offset:
    v = static_cast<int64_t>(unsigned_of(a) + unsigned_of(b));
    break;
  case Opcode::index:
    v = a + b * c;
    break;
  case Opcode::sub:
    v = static_cast<int64_t>(unsigned_of(a) - unsigned_of(b));
    break;
  case Opcode::mul:
    v = static_cast<int64_t>(unsigned_of(a) * unsigned_of(b));
    break;
  case Opcode::bit_and:
    v = a & b;
    break;
  case Opcode::bit_xor:
    v = a ^ b;
    break;
  case Opcode::compare:
    switch (static_cast<ir::Comparison>(op.detail)) {
    case ir::Comparison::eq:
      v = a == b;
      break;
    case ir::Comparison::ne:
      v = a != b;
      break;
    case ir::Comparison::lt:
      v = a < b;
      break;
    case ir::Comparison::gt:
      v = a > b;
      break;
    default:
      throw ProgramError("cannot interpret " + ir::print_op(module_, f, op));
    }
    break;
  default:
    throw ProgramError("cannot interpret " + ir::print_op(module_, f, op));
  }
  result =
      wrap(op.type.is_pointer() || op.code == Opcode::compare ? Scalar::i64 : op.type.element(), v);
}

} // namespace sparsertc::test
