// The body of one function: registers, operations, nesting. Internal to the parser.
#pragma once

#include "ir/cursor.h"
#include "ir/module.h"

#include <string_view>
#include <unordered_map>
#include <vector>

namespace sparsertc::ir {

/// A function's or symbol's name that was used before all are known: resolved at the end.
struct NameUse {
  uint32_t function; ///< where it was used
  uint32_t op;       ///< the operation there
  uint32_t pool;     ///< index of the pool entry, or kInOp: operand[0] or the immediate
  bool symbol;       ///< a symbol's name, else a function's
  std::string_view name;
  TextPosition position;
};
constexpr uint32_t kInOp = UINT32_MAX;

class FunctionParser {
public:
  /// Registers of all functions together; a text cannot make us allocate more than it is long.
  struct Budget {
    uint64_t registers;
  };

  FunctionParser(Cursor& cursor, Module& module, uint32_t index, std::vector<NameUse>& uses,
                 std::vector<TextPosition>& positions, Budget& budget);

  void parameters();
  /// From after the opening brace to the closing one.
  void body();

private:
  enum class Block : uint8_t { if_then, if_else, for_loop, loop };

  // registers
  uint32_t register_at(bool& by_name, std::string_view& name);
  uint32_t use();
  uint32_t use_tuple(uint32_t count);
  void define(uint32_t first, uint32_t count, Type type, TextPosition position);
  void reserve(uint32_t first, uint32_t count, TextPosition position);
  uint32_t result_register(uint32_t& count);
  void declaration();

  // operations
  void line();
  void closing(TextPosition position);
  Opcode take_opcode();
  void suffixes(Op& op, TextPosition position);
  void operands(Op& op);
  void value_operands(Op& op);
  void operand(Op& op, unsigned slot, Scalar immediate);
  uint32_t address(int64_t& offset, int64_t lowest, int64_t highest);
  void mma_operands(Op& op);
  void name(bool symbol, uint32_t pool);
  void argument_list();
  void call_operands(Op& op);
  void origin(Op& op);
  void finish(Op& op, TextPosition position);

  Cursor& cursor_;
  Module& module_;
  Function& function_;
  uint32_t index_;
  std::vector<NameUse>& uses_;
  std::vector<TextPosition>& positions_;
  Budget& budget_;

  std::unordered_map<std::string_view, uint32_t> by_name_;
  enum class Seen : uint8_t { no, by_number, by_name };
  std::vector<Seen> seen_;
  Type source_type_;  ///< the operand's type that `convert` and `bitcast` name
  uint32_t next_ = 0; ///< number of the next register that has only a name
  std::vector<Block> blocks_;
  std::vector<TextPosition> block_positions_;
};

} // namespace sparsertc::ir
