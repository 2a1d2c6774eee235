// One operation of the IR: 32 bytes, meaningful only within its function.
#pragma once

#include "ir/type.h"

#include <cstdint>
#include <string_view>

namespace sparsertc::ir {

enum class Opcode : uint8_t {
#define SIR_OP(code, ...) code,
#include "ir/ops.def"
};
constexpr unsigned kOpcodeCount = 0
#define SIR_OP(...) +1
#include "ir/ops.def"
    ;

// ---- the enums that Op::detail holds; their words are in ir/op.cpp, in the same order ----
/// `special`: hardware indices of the executing thread.
enum class Special : uint8_t { thread_x, thread_y, thread_z, block_x, block_y, block_z, lane };
/// `cmp`: signed or float (ordered; `ne` is true for NaN), then unsigned ones for integers.
enum class Comparison : uint8_t { eq, ne, lt, le, gt, ge, ltu, leu, gtu, geu };
/// `convert`: `exact` where every value of the source exists in the result or where integer width
/// changes (wide to narrow keeps the low bits), `sign` and `zero` extend i32 to i64; else the
/// rounding: to nearest even, toward zero, down, up. Float to integer saturates, NaN gives 0.
enum class Conversion : uint8_t { exact, sign, zero, nearest, truncate, floor, ceil };
/// `load`, `store`: how the line is cached. `readonly` promises that nothing writes it during the
/// kernel.
enum class Cache : uint8_t { normal, readonly, streaming };
/// Memory order and scope of ordered accesses and fences.
enum class Order : uint8_t {
  relaxed_block,
  relaxed_device,
  relaxed_system,
  acquire_block,
  acquire_device,
  acquire_system,
  release_block,
  release_device,
  release_system
};
/// `atomic`: relaxed, device scope; the result is the old value.
enum class Atomic : uint8_t { add, min, max, bit_and, bit_or, exchange };
enum class Shuffle : uint8_t { index, up, down, butterfly };
/// Shape and input type of a matrix-multiply fragment; accumulation is f32.
enum class Fragment : uint8_t {
  m16n8k16_f16,
  m16n8k16_bf16,
  m16n8k8_tf32, // mma
  m16n8k32_f16,
  m16n8k32_bf16,
  m16n8k16_tf32
}; // mma_sparse

/// A virtual register of a function. Registers may be assigned more than once (an accumulator is
/// updated in place); type and number are fixed. A tuple of n registers is n consecutive numbers,
/// named by the first.
struct Reg {
  uint32_t id = UINT32_MAX;
  constexpr bool valid() const { return id != UINT32_MAX; }
  /// The i-th register of the tuple that starts here.
  constexpr Reg operator[](uint32_t i) const { return Reg{id + i}; }
  friend constexpr bool operator==(Reg, Reg) = default;
};

/// Operand slot value that says: the operand is Op::immediate. (UINT32_MAX: no operand.)
constexpr uint32_t kImmediate = UINT32_MAX - 1;
constexpr uint32_t kNoOperand = UINT32_MAX;

/// Fields beyond `code` by form (see ops.def):
///   value      result, operand[], immediate (bits of the type; integers sign-extended)
///   symbol     immediate = index of the module's symbol
///   load/store width = registers moved (1, 2, 4, 8), a tuple; operand[0] address, immediate =
///   constant
///              byte offset; store: operand[1] = first register of the tuple
///   load_matrix as a load of 4 pairs
///   atomic     operand[0] address, immediate = byte offset, operand[1] value (compare_swap:
///   operand[1]
///              the value compared with, operand[2] the new value)
///   copy_async width = bytes (4, 8, 16); operand[0] shared address, operand[1] device address,
///              operand[2] i32 bytes to read, the rest is zero-filled (or kNoOperand: all);
///              immediate = shared offset (low 32 bits) and device offset (high 32 bits), in bytes
///   barrier    operand[0] = kNoOperand: the whole block; else the barrier's number (register, or
///              immediate's low 32 bits) and the immediate's high 32 bits the number of threads
///              taking part
///   mma        result tuple d (4 x f32); operand[0] a, operand[1] b, operand[2] c tuples;
///   mma_sparse:
///              immediate = metadata register (low 32 bits) and selector (high 32 bits)
///   for_loop   result = induction register (i32, from 0), operand[0] = limit (register or
///   immediate's
///              low 32 bits, signed; exclusive), immediate's high 32 bits = step (> 0)
///   call       operand[0] = function index, operand[1] = first argument in the pool, operand[2] =
///   count switch     operand[0] = index register; operand[1] = pool offset of: number of
///   functions, the
///              functions, number of arguments, the arguments. An index out of range calls nothing.
///   alloc      operand[0] = elements (i64), result pointer
///   copy       operand[0] = destination, operand[1] = source (pointers to one element type, any
///              spaces), operand[2] = elements
///   launch     operand[0] = function index, operand[1] = pool offset of: 3 grid registers (i32),
///              number of arguments, the arguments
struct Op {
  Opcode code = Opcode::constant;
  Type type;
  uint8_t width = 1;
  uint8_t detail = 0;
  Reg result;
  uint32_t operand[3] = {kNoOperand, kNoOperand, kNoOperand};
  /// 1 + index into Module::origins, 0 for none.
  uint32_t origin = 0;
  int64_t immediate = 0;
};
static_assert(sizeof(Op) == 32);

enum class Form : uint8_t {
  value,
  value_none,
  symbol,
  load,
  store,
  atomic,
  copy_async,
  plain,
  plain_number,
  barrier,
  mma,
  for_loop,
  open,
  while_end,
  if_begin,
  else_mark,
  close,
  call,
  switch_call,
  alloc,
  copy,
  launch
};
enum class ResultRule : uint8_t { none, same, pred, i32, i64, half, other };
enum class Effect : uint8_t { pure, read, write, sync, control };
enum class DetailKind : uint8_t {
  none,
  special,
  comparison,
  conversion,
  cache,
  order,
  atomic,
  shuffle,
  fragment
};

/// One row of ops.def.
struct OpInfo {
  std::string_view text;
  Form form;
  ResultRule result;
  std::string_view operands;
  std::string_view types;
  Effect effect;
  DetailKind detail;
};
const OpInfo& info(Opcode code);

/// The words of a detail enum, in enum order; empty for DetailKind::none.
struct WordList {
  const std::string_view* begin_;
  unsigned size;
  std::string_view operator[](unsigned i) const { return begin_[i]; }
};
WordList words_of(DetailKind kind);

/// True if `type` is allowed by an OpInfo::types string.
bool type_allowed(std::string_view types, Type type);

} // namespace sparsertc::ir
