// One function of the IR as PTX. Internal to the PTX printer: ptx_function.cpp has the frame,
// control flow and calls, ptx_operations.cpp the table, ptx_values.cpp, ptx_convert.cpp and
// ptx_memory.cpp the other operations.
#pragma once

#include "compiler/emit/ptx.h"
#include "compiler/emit/ptx_text.h"

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

/// What all functions of a module share.
struct PtxModule {
  const ir::Module& module;
  const Target& target;
  PtxOptions options;
  unsigned ptx_version = 0; ///< 80 for PTX ISA 8.0
  /// What `mov` takes to load a symbol's address: its name, or a place in dynamic shared memory.
  std::vector<std::string> symbol_address;
};

/// Register classes of the text: `.reg .f32 %f<N>;`
enum class PtxClass : uint8_t { pred, b16, b32, b64, f32, f64 };
constexpr unsigned kPtxClasses = 6;
/// Pointers to shared memory of this or another block are 32 bits wide, all others 64.
PtxClass class_of(ir::Type type);
/// "f32", "bf16x2", ...: the suffix of arithmetic on this type; "s32" and "s64" for integers.
std::string_view suffix_of(ir::Type type);
/// ".b16", ".b32" or ".b64": how a value of the class is stored and passed (predicates as 0 or 1 in
/// 32 bits).
std::string_view bits_of(PtxClass register_class);
/// ".pred", ".b16", ".b32", ".b64", ".f32" or ".f64": the class as `.reg` and `mov` say it.
std::string_view type_word(PtxClass register_class);

/// The parameter list of `function` with its parentheses; parameters are NAME_param_0, ...
void put_parameters(PtxBuffer& out, const ir::Function& function);

class PtxFunctionPrinter {
public:
  explicit PtxFunctionPrinter(const PtxModule& context) : context_(context) {}

  /// Appends the definition to `out`; `linkage` is "" or ".visible ".
  void print(PtxBuffer& out, const ir::Function& function, std::string_view linkage);

private:
  using Op = ir::Op;
  using Reg = ir::Reg;
  using Scalar = ir::Scalar;

  // ---- registers and operands ------------------------------------------------------------------
  void number_registers();
  void put_register_declarations(PtxBuffer& out) const;
  PtxText reg(Reg reg) const { return names_[reg.id]; }
  PtxText reg(uint32_t id) const { return names_[id]; }
  /// A register of one operation's own expansion, free again with the next operation.
  PtxText scratch(PtxClass register_class);
  /// Operand `slot`: a register, or the immediate as a literal of `type`. Where the instruction
  /// takes no literal of 16 bits or pairs, `value_operand` puts it into a register first.
  PtxText literal(ir::Type type, int64_t bits) const;
  PtxText operand(const Op& op, unsigned slot, ir::Type type) const;
  PtxText unsigned_operand(const Op& op, unsigned slot, ir::Type type) const;
  PtxText value_operand(const Op& op, unsigned slot, ir::Type type);
  PtxText constant_in_register(ir::Type type, int64_t bits);

  // ---- lines -----------------------------------------------------------------------------------
  struct Mnemonic {
    std::string_view first, second = {}, third = {};
  };
  template <typename... Operands>
  void line(const Mnemonic& mnemonic, const Operands&... operands) {
    begin(mnemonic);
    unsigned count = 0;
    ((count++ != 0 ? body_.put(std::string_view(", ")) : body_.put(' '), body_.put(operands)), ...);
    end_line();
  }
  void begin(const Mnemonic& mnemonic) {
    body_.put('\t');
    body_.put(mnemonic.first);
    body_.put(mnemonic.second);
    body_.put(mnemonic.third);
  }
  void end_line() { body_.put(std::string_view(";\n")); }
  /// "{%f1, %f2}" for consecutive registers.
  void put_tuple(uint32_t first, unsigned count);
  void put_label(uint32_t label);
  void place_label(uint32_t label);
  /// "@%p1 bra $L_2;", with `!` where `negated`; an empty predicate branches always.
  void branch(const PtxText* predicate, bool negated, uint32_t label);
  void annotate(const Op& op, size_t start);

  // ---- operations ------------------------------------------------------------------------------
  void load_parameters();
  void operation(const Op& op);
  void bf16_arithmetic(const Op& op);
  void arithmetic(const Op& op, std::string_view name, bool rounded);
  void bitwise(const Op& op, std::string_view name);
  void compare(const Op& op);
  void select(const Op& op);
  void pointer_offset(const Op& op);
  void pointer_index(const Op& op);
  void bitcast(const Op& op);

  void convert(const Op& op);
  void convert_float_to_integer(const Op& op, Scalar from);
  void widen_bf16(const PtxText& result, const PtxText& source);

  PtxText address_operand(const Op& op, uint32_t pointer, int64_t offset);
  std::string_view space_suffix(const Op& op, ir::Type pointer) const;
  void memory_operation(const Op& op);
  void load(const Op& op, const Mnemonic& mnemonic);
  void store(const Op& op, const Mnemonic& mnemonic);
  void put_moved(const Op& op, bool is_load, const Mnemonic& mnemonic, uint32_t first);
  void atomic(const Op& op);
  void compare_swap(const Op& op);
  void copy_async(const Op& op);
  void barrier(const Op& op);
  void shuffle(const Op& op);
  void matrix_multiply(const Op& op);
  /// "{%r1, %r2}".
  void put_registers(const std::array<PtxText, 4>& registers, unsigned count);

  void for_loop(const Op& op);
  void end(const Op& op);
  struct Argument {
    std::string_view bits;
    PtxText text;
  };
  std::vector<Argument> prepare_arguments(std::span<const uint32_t> registers);
  void put_call(const ir::Function& callee, const std::vector<Argument>& arguments);
  void call(const Op& op);
  void switch_call(const Op& op);

  [[noreturn]] void malformed(const Op& op, const std::string& reason) const;
  std::string place(const Op& op) const;

  const PtxModule& context_;
  /// The instructions; the declarations before them are known only afterwards.
  PtxBuffer body_;
  const ir::Function* function_ = nullptr;
  std::vector<PtxText> names_;
  std::array<uint32_t, kPtxClasses> numbered_{};
  std::array<uint32_t, kPtxClasses> scratch_now_{};
  std::array<uint32_t, kPtxClasses> scratch_most_{};

  struct Region {
    ir::Opcode kind;
    uint32_t label = 0;     ///< loops: their begin; if: where the condition does not hold
    uint32_t end_label = 0; ///< past the region
    bool end_used = false;
    const Op* op = nullptr;
  };
  std::vector<Region> regions_;
  uint32_t next_label_ = 0;
};

} // namespace sparsertc
