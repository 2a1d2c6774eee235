#include "ir/builder.h"

#include "ir/error.h"
#include "ir/operands.h"

namespace sparsertc::ir {
namespace {

Type result_type(const OpInfo& op, Type type) {
  switch (op.result) {
  case ResultRule::same:
    return type;
  case ResultRule::pred:
    return Scalar::pred;
  case ResultRule::i32:
    return Scalar::i32;
  case ResultRule::i64:
    return Scalar::i64;
  case ResultRule::half:
    return half_of_pair(type.element());
  case ResultRule::none:
  case ResultRule::other:
    break;
  }
  throw InternalError("builder: operation '" + std::string(op.text) +
                      "' has no result by the table");
}

} // namespace

Reg Builder::parameter(Type type, std::string name) {
  if (function_.register_type.size() != function_.parameter_count)
    throw InternalError("builder: parameter '" + name + "' after the first register");
  ++function_.parameter_count;
  return fresh(type, std::move(name));
}

Reg Builder::fresh(Type type, std::string name) {
  const Reg reg{static_cast<uint32_t>(function_.register_type.size())};
  function_.register_type.push_back(type);
  if (!name.empty())
    function_.register_name.emplace(reg.id, std::move(name));
  return reg;
}

Reg Builder::fresh_tuple(Type type, uint32_t count) {
  const Reg reg{static_cast<uint32_t>(function_.register_type.size())};
  function_.register_type.insert(function_.register_type.end(), count, type);
  return reg;
}

void Builder::set_origin(uint32_t row, uint32_t column) {
  module_.origins.push_back({row, column});
  origin_ = static_cast<uint32_t>(module_.origins.size());
}

void Builder::append(Op op) {
  op.origin = origin_;
  function_.ops.push_back(op);
}

Op& Builder::begin(Opcode code, Type type) {
  Op op;
  op.code = code;
  op.type = type;
  append(op);
  return function_.ops.back();
}

void Builder::set_operand(Op& op, unsigned slot, Operand operand) {
  op.operand[slot] = operand.slot();
  if (operand.is_immediate())
    op.immediate = operand.immediate();
}

Reg Builder::value(Opcode code, Type type, std::initializer_list<Operand> operands, Reg result,
                   uint8_t detail) {
  result = result_or_fresh(result, result_type(info(code), type));
  Op& op = begin(code, type);
  op.result = result;
  op.detail = detail;
  unsigned slot = 0;
  for (const Operand& operand : operands)
    set_operand(op, slot++, operand);
  return result;
}

Reg Builder::constant(Type type, Operand immediate, Reg result) {
  return value(Opcode::constant, type, {immediate}, result);
}

Reg Builder::move(Reg source, Reg result) {
  return value(Opcode::move, function_.type_of(source), {source}, result);
}

Reg Builder::special(Special which, Reg result) {
  return value(Opcode::special, Scalar::i32, {}, result, static_cast<uint8_t>(which));
}

Reg Builder::add(Type type, Reg a, Operand b, Reg result) {
  return value(Opcode::add, type, {a, b}, result);
}

Reg Builder::sub(Type type, Reg a, Operand b, Reg result) {
  return value(Opcode::sub, type, {a, b}, result);
}

Reg Builder::mul(Type type, Reg a, Operand b, Reg result) {
  return value(Opcode::mul, type, {a, b}, result);
}

Reg Builder::fma(Type type, Reg a, Operand b, Reg c, Reg result) {
  return value(Opcode::fma, type, {a, b, c}, result);
}

Reg Builder::compare(Comparison comparison, Type type, Reg a, Operand b, Reg result) {
  return value(Opcode::compare, type, {a, b}, result, static_cast<uint8_t>(comparison));
}

Reg Builder::select(Type type, Reg condition, Reg if_true, Operand if_false, Reg result) {
  return value(Opcode::select, type, {condition, if_true, if_false}, result);
}

Reg Builder::convert(Type type, Reg source, Conversion conversion, Reg result) {
  return value(Opcode::convert, type, {source}, result, static_cast<uint8_t>(conversion));
}

Reg Builder::bitcast(Type type, Reg source, Reg result) {
  return value(Opcode::bitcast, type, {source}, result);
}

Reg Builder::shuffle(Shuffle which, Reg value, Operand lane, Reg result) {
  return this->value(Opcode::shuffle, function_.type_of(value), {value, lane}, result,
                     static_cast<uint8_t>(which));
}

Reg Builder::address(uint32_t symbol, Reg result) {
  const Type type = module_.symbols[symbol].type;
  result = result_or_fresh(result, type);
  Op& op = begin(Opcode::address, type);
  op.result = result;
  op.immediate = symbol;
  return result;
}

Reg Builder::offset(Reg pointer, Operand bytes, Reg result) {
  return value(Opcode::offset, function_.type_of(pointer), {pointer, bytes}, result);
}

Reg Builder::index(Reg pointer, Reg i, Operand stride, Reg result) {
  return value(Opcode::index, function_.type_of(pointer), {pointer, i, stride}, result);
}

Reg Builder::peer(Reg pointer, Operand rank, Reg result) {
  const Type type = function_.type_of(pointer);
  result = result_or_fresh(result, Type::pointer(Space::cluster, type.element()));
  Op& op = begin(Opcode::peer, type);
  op.result = result;
  set_operand(op, 0, pointer);
  set_operand(op, 1, rank);
  return result;
}

Reg Builder::load(Reg pointer, int64_t byte_offset, uint32_t width, Cache cache, Reg result) {
  const Type type = function_.type_of(pointer);
  if (!result.valid())
    result = fresh_tuple(type.element(), width);
  Op& op = begin(Opcode::load, type);
  op.result = result;
  op.width = static_cast<uint8_t>(width);
  op.detail = static_cast<uint8_t>(cache);
  op.operand[0] = pointer.id;
  op.immediate = byte_offset;
  return result;
}

void Builder::store(Reg pointer, int64_t byte_offset, Reg value, uint32_t width, Cache cache) {
  Op& op = begin(Opcode::store, function_.type_of(pointer));
  op.width = static_cast<uint8_t>(width);
  op.detail = static_cast<uint8_t>(cache);
  op.operand[0] = pointer.id;
  op.operand[1] = value.id;
  op.immediate = byte_offset;
}

Reg Builder::load_matrix(Reg pointer, int64_t byte_offset, Reg result) {
  constexpr uint32_t kMatrices = 4;
  const Type type = function_.type_of(pointer);
  if (!result.valid())
    result = fresh_tuple(type.element(), kMatrices);
  Op& op = begin(Opcode::load_matrix, type);
  op.result = result;
  op.width = kMatrices;
  op.operand[0] = pointer.id;
  op.immediate = byte_offset;
  return result;
}

void Builder::mma(Fragment fragment, Reg a, Reg b, Reg sums) {
  Op& op = begin(Opcode::mma, {});
  op.detail = static_cast<uint8_t>(fragment);
  op.result = sums;
  op.operand[0] = a.id;
  op.operand[1] = b.id;
  op.operand[2] = sums.id;
}

void Builder::mma_sparse(Fragment fragment, Reg a, Reg b, Reg sums, Reg metadata,
                         uint32_t selector) {
  Op& op = begin(Opcode::mma_sparse, {});
  op.detail = static_cast<uint8_t>(fragment);
  op.result = sums;
  op.operand[0] = a.id;
  op.operand[1] = b.id;
  op.operand[2] = sums.id;
  op.immediate = two_halves(metadata.id, selector);
}

Reg Builder::load_ordered(Order order, Reg pointer, int64_t byte_offset, Reg result) {
  const Type type = function_.type_of(pointer);
  result = result_or_fresh(result, type.element());
  Op& op = begin(Opcode::load_ordered, type);
  op.result = result;
  op.detail = static_cast<uint8_t>(order);
  op.operand[0] = pointer.id;
  op.immediate = byte_offset;
  return result;
}

void Builder::store_ordered(Order order, Reg pointer, int64_t byte_offset, Reg value) {
  Op& op = begin(Opcode::store_ordered, function_.type_of(pointer));
  op.detail = static_cast<uint8_t>(order);
  op.operand[0] = pointer.id;
  op.operand[1] = value.id;
  op.immediate = byte_offset;
}

Reg Builder::atomic(Atomic what, Reg pointer, int64_t byte_offset, Reg value, Reg result) {
  const Type type = function_.type_of(pointer);
  result = result_or_fresh(result, type.element());
  Op& op = begin(Opcode::atomic, type);
  op.result = result;
  op.detail = static_cast<uint8_t>(what);
  op.operand[0] = pointer.id;
  op.operand[1] = value.id;
  op.immediate = byte_offset;
  return result;
}

void Builder::copy_async(Reg shared, int32_t shared_offset, Reg device, int32_t device_offset,
                         uint32_t bytes, Reg bytes_read) {
  Op& op = begin(Opcode::copy_async, {});
  op.width = static_cast<uint8_t>(bytes);
  op.operand[0] = shared.id;
  op.operand[1] = device.id;
  op.operand[2] = bytes_read.id;
  op.immediate =
      two_halves(static_cast<uint32_t>(shared_offset), static_cast<uint32_t>(device_offset));
}

void Builder::copy_commit() {
  begin(Opcode::copy_commit, {});
}

void Builder::copy_wait(uint32_t groups_in_flight) {
  begin(Opcode::copy_wait, {}).immediate = groups_in_flight;
}

void Builder::barrier() {
  begin(Opcode::barrier, {});
}

void Builder::barrier(Operand number, uint32_t threads) {
  Op& op = begin(Opcode::barrier, {});
  op.operand[0] = number.slot();
  op.immediate = two_halves(static_cast<uint32_t>(number.immediate()), threads);
}

void Builder::cluster_barrier() {
  begin(Opcode::cluster_barrier, {});
}

void Builder::warp_barrier() {
  begin(Opcode::warp_barrier, {});
}

Reg Builder::for_loop(Operand limit, uint32_t step, Reg induction) {
  induction = result_or_fresh(induction, Scalar::i32);
  Op& op = begin(Opcode::for_loop, {});
  op.result = induction;
  op.operand[0] = limit.slot();
  op.immediate = two_halves(static_cast<uint32_t>(limit.immediate()), step);
  return induction;
}

void Builder::loop() {
  begin(Opcode::loop, {});
}

void Builder::while_end(Reg condition) {
  begin(Opcode::while_end, {}).operand[0] = condition.id;
}

void Builder::if_begin(Reg condition) {
  begin(Opcode::if_begin, {}).operand[0] = condition.id;
}

void Builder::else_mark() {
  begin(Opcode::else_mark, {});
}

void Builder::end() {
  begin(Opcode::end, {});
}

void Builder::call(uint32_t function, std::span<const Reg> arguments) {
  Op& op = begin(Opcode::call, {});
  op.operand[0] = function;
  op.operand[1] = static_cast<uint32_t>(function_.pool.size());
  op.operand[2] = static_cast<uint32_t>(arguments.size());
  for (Reg argument : arguments)
    function_.pool.push_back(argument.id);
}

void Builder::switch_call(Reg index, std::span<const uint32_t> functions,
                          std::span<const Reg> arguments) {
  Op& op = begin(Opcode::switch_call, {});
  op.operand[0] = index.id;
  op.operand[1] = static_cast<uint32_t>(function_.pool.size());
  function_.pool.push_back(static_cast<uint32_t>(functions.size()));
  function_.pool.insert(function_.pool.end(), functions.begin(), functions.end());
  function_.pool.push_back(static_cast<uint32_t>(arguments.size()));
  for (Reg argument : arguments)
    function_.pool.push_back(argument.id);
}

void Builder::return_void() {
  begin(Opcode::return_void, {});
}

Reg Builder::alloc(Type pointer_type, Operand elements, Reg result) {
  result = result_or_fresh(result, pointer_type);
  Op& op = begin(Opcode::alloc, pointer_type);
  op.result = result;
  set_operand(op, 0, elements);
  return result;
}

void Builder::free(Reg pointer) {
  begin(Opcode::free, function_.type_of(pointer)).operand[0] = pointer.id;
}

void Builder::copy(Reg destination, Reg source, Operand elements) {
  Op& op = begin(Opcode::copy, {});
  op.operand[0] = destination.id;
  op.operand[1] = source.id;
  set_operand(op, 2, elements);
}

void Builder::launch(uint32_t kernel, const Reg (&grid)[3], std::span<const Reg> arguments) {
  Op& op = begin(Opcode::launch, {});
  op.operand[0] = kernel;
  op.operand[1] = static_cast<uint32_t>(function_.pool.size());
  for (Reg extent : grid)
    function_.pool.push_back(extent.id);
  function_.pool.push_back(static_cast<uint32_t>(arguments.size()));
  for (Reg argument : arguments)
    function_.pool.push_back(argument.id);
}

} // namespace sparsertc::ir
