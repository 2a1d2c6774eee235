// Text -> decoded program: tokens, names and scopes; internal to the interpreter.
#pragma once

#include "tests/support/ptx_interpreter_program.h"

#include <string_view>
#include <unordered_map>

namespace sparsertc::ptx {

enum class TokenKind : uint8_t { end, identifier, number, string, punctuation };
struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;
  uint32_t line = 0;
};

class Lexer {
public:
  explicit Lexer(std::string_view text) : text_(text) { advance(); }
  const Token& peek() const { return token_; }
  Token take() {
    Token taken = token_;
    advance();
    return taken;
  }

private:
  void advance();
  std::string_view text_;
  size_t position_ = 0;
  uint32_t line_ = 1;
  Token token_;
};

struct TypeInfo {
  ScalarType type;
  uint32_t bits;
};
/// Looks up "f32", "b64", "pred", ...; nullptr for other words.
const TypeInfo* find_type(std::string_view word);

struct Operand {
  enum Kind : uint8_t { none, reg, integer, real, symbol, vector, address, name, sink } kind = none;
  bool negated = false;               ///< !p
  bool is_special = false;            ///< reg: a special register
  uint32_t bits = 0;                  ///< reg: width, 1 for predicates
  OperandRef ref = kNone;             ///< reg; address: its base register
  int64_t value = 0;                  ///< integer, bits of a real; address: offset; symbol: address
  bool single = false;                ///< real: written as 0f...
  uint32_t first = 0, count = 0;      ///< vector: range of Parser::elements_
  const Variable* variable = nullptr; ///< symbol, address
  const Parameter* parameter = nullptr; ///< address, name
  OperandRef second = kNone;            ///< q of p|q
  std::string_view text;
};

/// How the operands of an opcode are read.
enum class OperandForm : uint8_t {
  value,
  compare_combined,
  convert,
  move,
  load,
  store,
  atomic,
  reduction,
  copy_async,
  plain,
  copy_wait,
  barrier,
  map_shared,
  barrier_warp,
  shuffle,
  vote,
  active_mask,
  match_any,
  reduce_warp,
  mma,
  branch,
  branch_table,
  call,
  skip
};

struct OpcodeTemplate {
  OperandForm form = OperandForm::plain;
  Instruction instruction;
  uint32_t arity = 0;
  uint32_t bits[4] = {0, 0, 0, 0}; ///< of d, a, b, c
  uint32_t pool[8] = {};           ///< prefix of the instruction's pool words
  Code combine = Code::and_pred;   ///< setp with .and, .or, .xor
  std::string text;
};

class Parser {
public:
  explicit Parser(DecodedProgram& program) : program_(program) {}
  void parse_unit(std::string_view text, uint32_t unit);
  void finish();

private:
  struct Register {
    uint32_t slot = 0, count = 0, bits = 0;
  };
  struct Scope {
    uint32_t id = 0;
    std::unordered_map<std::string_view, Register> names;
    std::unordered_map<std::string_view, Register> ranges;
    std::unordered_map<std::string_view, Parameter> parameters;
    std::unordered_map<std::string_view, std::vector<std::string_view>> target_lists;
  };
  struct Patch {
    bool in_pool;
    uint32_t index;
    uint32_t scope;
    std::string_view label;
    uint32_t line;
  };

  [[noreturn]] void fail(const std::string& message, ErrorKind kind = ErrorKind::syntax);
  [[noreturn]] void fail_at(uint32_t line, const std::string& message,
                            ErrorKind kind = ErrorKind::syntax);
  // tokens
  bool at(std::string_view text) const { return lexer_->peek().text == text; }
  bool accept(std::string_view text);
  Token expect(std::string_view text);
  std::string_view identifier(const char* what);
  int64_t integer();
  int64_t parse_integer(const Token& token);
  // module level
  void directive();
  void variable(Space space, bool is_extern);
  void initialiser(Variable& variable, const TypeInfo& type);
  void function(bool is_entry);
  Parameter formal(FunctionCode& function);
  // bodies
  void body(FunctionCode& function);
  void statement();
  void local_directive(std::string_view word);
  void register_declaration();
  void parameter_declaration();
  void resolve_labels();
  uint32_t new_slots(uint32_t words);
  // instructions
  const OpcodeTemplate& opcode(const Token& token);
  OpcodeTemplate make_template(std::string_view text);
  void memory_template(OpcodeTemplate& made, const std::vector<std::string_view>& words);
  void convert_template(OpcodeTemplate& made, const std::vector<std::string_view>& words);
  void warp_template(OpcodeTemplate& made, const std::vector<std::string_view>& words);
  void mma_template(OpcodeTemplate& made, const std::vector<std::string_view>& words);
  void instruction(uint32_t guard);
  void read_operands();
  Operand read_operand();
  Operand read_simple();
  bool find_register(std::string_view name, Operand& operand);
  const Parameter* find_parameter(std::string_view name) const;
  const Variable* find_variable(std::string_view name) const;
  OperandRef constant(uint64_t value);
  OperandRef source(const Operand& operand, uint32_t bits, bool wider = false);
  OperandRef destination(const Operand& operand, uint32_t bits, bool wider = false);
  void address(Instruction& instruction, const Operand& operand);
  void need(size_t least, size_t most);
  void emit(const Instruction& instruction);
  void emit_memory(const OpcodeTemplate& known);
  void emit_warp(const OpcodeTemplate& known);
  void emit_mma(const OpcodeTemplate& known);
  void emit_call();
  uint32_t pool_start() const { return static_cast<uint32_t>(program_.pool.size()); }

  DecodedProgram& program_;
  Lexer* lexer_ = nullptr;
  uint32_t unit_ = 0;
  uint32_t line_ = 0; ///< of the statement being read
  uint32_t guard_ = kNone;
  FunctionCode* function_ = nullptr;
  std::vector<Scope> scopes_;
  std::vector<uint32_t> scope_parent_;
  std::map<std::pair<uint32_t, std::string_view>, uint32_t> labels_;
  std::vector<Patch> patches_;
  std::vector<Operand> operands_;
  std::vector<Operand> elements_;
  std::unordered_map<std::string_view, OpcodeTemplate> templates_;
  std::unordered_map<const OpcodeTemplate*, uint64_t> counts_;
  std::map<std::string, uint32_t, std::less<>> function_index_;
  std::map<std::string, uint32_t, std::less<>> variable_index_;
};

} // namespace sparsertc::ptx
