// Builds the body of one function, operation by operation.
//
// Each call appends one operation. Where a destination may be given, `Reg{}` (the default) makes a
// new register. The builder sets fields and invents registers; whether the result is well formed is
// the verifier's business.
#pragma once

#include "ir/module.h"

#include <bit>
#include <initializer_list>
#include <span>
#include <string>

namespace sparsertc::ir {

/// A register or an immediate (bits of the operation's type; integers sign-extended).
class Operand {
public:
  Operand(Reg reg) : slot_(reg.id) {} // NOLINT: a register is an operand
  static Operand bits(int64_t bits) { return Operand(kImmediate, bits); }
  static Operand integer(int64_t value) { return Operand(kImmediate, value); }
  static Operand f32(float value) {
    return Operand(kImmediate, static_cast<int64_t>(std::bit_cast<uint32_t>(value)));
  }
  static Operand f64(double value) { return Operand(kImmediate, std::bit_cast<int64_t>(value)); }

  bool is_immediate() const { return slot_ == kImmediate; }
  uint32_t slot() const { return slot_; }
  int64_t immediate() const { return immediate_; }

private:
  Operand(uint32_t slot, int64_t immediate) : slot_(slot), immediate_(immediate) {}
  uint32_t slot_;
  int64_t immediate_ = 0;
};

class Builder {
public:
  /// Appends to `function`, which must outlive the builder. `module` is for symbols and origins.
  Builder(Module& module, Function& function) : module_(module), function_(function) {}

  Function& function() { return function_; }

  // ---- registers -----------------------------------------------------------------------------
  /// Parameters come before any other register.
  Reg parameter(Type type, std::string name);
  Reg fresh(Type type, std::string name = {});
  /// `count` consecutive registers of one type.
  Reg fresh_tuple(Type type, uint32_t count);

  /// Every operation appended from now on comes from this entry of the matrix.
  void set_origin(uint32_t row, uint32_t column);
  void clear_origin() { origin_ = 0; }

  // ---- values --------------------------------------------------------------------------------
  /// Any operation of form `value`: result type by the table.
  Reg value(Opcode code, Type type, std::initializer_list<Operand> operands, Reg result = {},
            uint8_t detail = 0);
  Reg constant(Type type, Operand immediate, Reg result = {});
  Reg move(Reg source, Reg result = {});
  Reg special(Special which, Reg result = {});
  Reg add(Type type, Reg a, Operand b, Reg result = {});
  Reg sub(Type type, Reg a, Operand b, Reg result = {});
  Reg mul(Type type, Reg a, Operand b, Reg result = {});
  /// a * b + c, rounded once.
  Reg fma(Type type, Reg a, Operand b, Reg c, Reg result = {});
  Reg compare(Comparison comparison, Type type, Reg a, Operand b, Reg result = {});
  Reg select(Type type, Reg condition, Reg if_true, Operand if_false, Reg result = {});
  Reg convert(Type type, Reg source, Conversion conversion, Reg result = {});
  Reg bitcast(Type type, Reg source, Reg result = {});
  /// Another lane's value: i32 or f32.
  Reg shuffle(Shuffle which, Reg value, Operand lane, Reg result = {});

  // ---- addresses and memory --------------------------------------------------------------------
  Reg address(uint32_t symbol, Reg result = {});
  /// pointer + bytes (i64).
  Reg offset(Reg pointer, Operand bytes, Reg result = {});
  /// pointer + i * stride, the product of two signed 32-bit numbers taken in 64 bits; stride in
  /// bytes.
  Reg index(Reg pointer, Reg i, Operand stride, Reg result = {});
  /// The same place of shared memory in block `rank` of the cluster.
  Reg peer(Reg pointer, Operand rank, Reg result = {});
  /// `width` consecutive elements into a tuple.
  Reg load(Reg pointer, int64_t byte_offset, uint32_t width = 1, Cache cache = Cache::normal,
           Reg result = {});
  void store(Reg pointer, int64_t byte_offset, Reg value, uint32_t width = 1,
             Cache cache = Cache::normal);
  /// A thread's share of four matrices, for `mma`; pointer to pairs in shared memory.
  Reg load_matrix(Reg pointer, int64_t byte_offset, Reg result = {});
  /// D = A * B + C of a whole warp; `sums` are C and D. Of a sparse fragment the threads that the
  /// selector (0 or 1) names have the metadata.
  void mma(Fragment fragment, Reg a, Reg b, Reg sums);
  void mma_sparse(Fragment fragment, Reg a, Reg b, Reg sums, Reg metadata, uint32_t selector);
  /// Of one element, never torn.
  Reg load_ordered(Order order, Reg pointer, int64_t byte_offset, Reg result = {});
  void store_ordered(Order order, Reg pointer, int64_t byte_offset, Reg value);
  /// The element's old value.
  Reg atomic(Atomic what, Reg pointer, int64_t byte_offset, Reg value, Reg result = {});
  void copy_async(Reg shared, int32_t shared_offset, Reg device, int32_t device_offset,
                  uint32_t bytes, Reg bytes_read = {});
  void copy_commit();
  void copy_wait(uint32_t groups_in_flight);
  void barrier();
  /// A part of the block: `threads` threads (a multiple of 32) meet at barrier `number` (0 to 15).
  void barrier(Operand number, uint32_t threads);
  /// All threads of all blocks of the cluster.
  void cluster_barrier();
  /// All threads of the warp.
  void warp_barrier();

  // ---- control ---------------------------------------------------------------------------------
  /// for (i = 0; i < limit; i += step), i a new i32 register; close with end().
  Reg for_loop(Operand limit, uint32_t step, Reg induction = {});
  void loop();
  void while_end(Reg condition);
  void if_begin(Reg condition);
  void else_mark();
  void end();
  void call(uint32_t function, std::span<const Reg> arguments);
  void switch_call(Reg index, std::span<const uint32_t> functions, std::span<const Reg> arguments);
  void return_void();

  // ---- program level ---------------------------------------------------------------------------
  Reg alloc(Type pointer_type, Operand elements, Reg result = {});
  void free(Reg pointer);
  void copy(Reg destination, Reg source, Operand elements);
  void launch(uint32_t kernel, const Reg (&grid)[3], std::span<const Reg> arguments);

  /// Appends any operation as it is (with the current origin).
  void append(Op op);

private:
  Op& begin(Opcode code, Type type);
  void set_operand(Op& op, unsigned slot, Operand operand);
  Reg result_or_fresh(Reg result, Type type) { return result.valid() ? result : fresh(type); }

  Module& module_;
  Function& function_;
  uint32_t origin_ = 0;
};

} // namespace sparsertc::ir
