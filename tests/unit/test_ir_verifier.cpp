// What the verifier says about modules that a builder could make; tests/codegen/ir/verify has the
// rules on text.
#include "ir/builder.h"
#include "ir/error.h"
#include "ir/parser.h"
#include "ir/verifier.h"

#include <catch2/catch.hpp>

#include <string>

using namespace sparsertc;
using namespace sparsertc::ir;

namespace {

/// A func @f(%x: f32, %p: device.f32, %q: pred) with one valid operation.
Module small_module() {
  Module module;
  Function& function = module.functions.emplace_back();
  function.name = "f";
  Builder builder(module, function);
  const Reg x = builder.parameter(Scalar::f32, "x");
  builder.parameter(Type::pointer(Space::device, Scalar::f32), "p");
  builder.parameter(Scalar::pred, "q");
  builder.add(Scalar::f32, x, Operand::f32(1));
  return module;
}

std::string messages(const Module& module) {
  std::string text;
  for (const Violation& violation : verify(module))
    text += violation.message + "\n";
  return text;
}

} // namespace

TEST_CASE("a module made by the builder verifies", "[ir]") {
  CHECK(messages(small_module()) == "");
}

TEST_CASE("broken operations are reported and stop the look at their function", "[ir]") {
  struct Case {
    const char* message;
    void (*damage)(Op&);
  };
  const Case cases[] = {
      {"unknown operation code 255", [](Op& op) { op.code = static_cast<Opcode>(255); }},
      {"unknown detail 3 of 'add'", [](Op& op) { op.detail = 3; }},
      {"register 1000 does not exist", [](Op& op) { op.operand[0] = 1000; }},
      {"register 99 does not exist", [](Op& op) { op.result = Reg{99}; }},
      {"operand 1 of 'add' is missing", [](Op& op) { op.operand[0] = kNoOperand; }},
      {"operand 1 of 'add' cannot be a number", [](Op& op) { op.operand[0] = kImmediate; }},
      {"'add' has 2 operands", [](Op& op) { op.operand[2] = 0; }},
      {"origin 7 does not exist", [](Op& op) { op.origin = 7; }},
      {"symbol 3 does not exist",
       [](Op& op) {
         op = Op{};
         op.code = Opcode::address;
         op.type = Type::pointer(Space::device, Scalar::f32);
         op.result = Reg{3};
         op.immediate = 3;
       }},
      {"function 9 does not exist",
       [](Op& op) {
         op = Op{};
         op.code = Opcode::call;
         op.operand[0] = 9;
         op.operand[1] = op.operand[2] = 0;
       }},
      {"outside of the function's pool",
       [](Op& op) {
         op = Op{};
         op.code = Opcode::switch_call;
         op.operand[0] = 0;
         op.operand[1] = 5;
       }},
      {"'mma' has no fragment m16n8k32_f16",
       [](Op& op) {
         op.code = Opcode::mma;
         op.detail = static_cast<uint8_t>(Fragment::m16n8k32_f16);
       }},
      {"'}' closes nothing", [](Op& op) { op = Op{}, op.code = Opcode::end; }},
      {"'else' without its 'if'", [](Op& op) { op = Op{}, op.code = Opcode::else_mark; }},
      {"'while' without its 'loop'",
       [](Op& op) { op = Op{}, op.code = Opcode::while_end, op.operand[0] = 2; }},
      {"this block is not closed", [](Op& op) { op = Op{}, op.code = Opcode::loop; }},
      {"the number's bits 0x100000000 are none of type f32",
       [](Op& op) { op.immediate = int64_t{1} << 32; }},
      {"'add' does not exist for type pred", [](Op& op) { op.type = Scalar::pred; }},
  };
  for (const Case& c : cases) {
    Module module = small_module();
    c.damage(module.functions[0].ops[0]);
    CAPTURE(c.message);
    CHECK_THAT(messages(module), Catch::Contains(c.message));
  }
}

TEST_CASE("symbols and names are checked", "[ir]") {
  Module module = small_module();
  Symbol symbol;
  symbol.name = "s";
  symbol.type = Type::pointer(Space::constant, Scalar::f32);
  symbol.count = 2;
  symbol.bytes.resize(8);
  module.symbols.push_back(symbol);
  CHECK(messages(module) == "");
  SECTION("alignment") {
    module.symbols[0].alignment = 12;
    CHECK_THAT(messages(module), Catch::Contains("a power of two"));
  }
  SECTION("alignment below the element") {
    module.symbols[0].alignment = 2;
    CHECK_THAT(messages(module), Catch::Contains("from the element's size 4"));
  }
  SECTION("bytes") {
    module.symbols[0].bytes.pop_back();
    CHECK_THAT(messages(module), Catch::Contains("has 7 initial bytes, but its type needs 8"));
  }
  SECTION("no elements") {
    module.symbols[0].count = 0;
    module.symbols[0].bytes.clear();
    CHECK_THAT(messages(module), Catch::Contains("has no elements"));
  }
  SECTION("host space") {
    module.symbols[0].type = Type::pointer(Space::host, Scalar::f32);
    CHECK_THAT(messages(module), Catch::Contains("no memory that a symbol can be in"));
  }
  SECTION("too many constants") {
    module.symbols[0].count = 16385;
    module.symbols[0].bytes.resize(65540);
    CHECK_THAT(messages(module), Catch::Contains("take 65540 bytes, more than 65536"));
  }
  SECTION("exactly as many constants as fit") {
    module.symbols[0].count = 16384;
    module.symbols[0].bytes.resize(65536);
    CHECK(messages(module) == "");
  }
  SECTION("names") {
    module.symbols[0].name = "a b";
    module.functions[0].name = "1f";
    CHECK_THAT(messages(module), Catch::Contains("'a b' is no name for a symbol") &&
                                     Catch::Contains("'1f' is no name for a function"));
  }
  SECTION("a name twice") {
    module.functions.push_back(module.functions[0]);
    CHECK_THAT(messages(module), Catch::Contains("a second function is called @f"));
  }
}

TEST_CASE("violations of built modules are bugs, of parsed ones the user's mistakes", "[ir]") {
  Module module = small_module();
  module.functions[0].ops[0].operand[0] = 1;
  try {
    verify_or_throw(module, "lower");
    FAIL("no error");
  } catch (const InternalError& error) {
    CHECK_THAT(error.what(), Catch::Contains("not well formed after lower") &&
                                 Catch::Contains("@f: operation 0 `%3 = add.f32 %p, 1`: operand 1 "
                                                 "of 'add' is %p of type device.f32"));
  }
  SourceMap map;
  const Module parsed = parse("func @f(%p: device.f32) {\n"
                              "  %x = add.f32 %p, 1\n"
                              "  %y = add.f32 %z, 1\n"
                              "}\n",
                              "x.sir", &map);
  try {
    verify_or_throw(parsed, "parsing", &map);
    FAIL("no error");
  } catch (const UserError& error) {
    CHECK(std::string(error.what()) ==
          "x.sir:2:3: error: operand 1 of 'add' is %p of type device.f32, but must have type f32\n"
          "x.sir:3:3: error: %z is used before it is assigned on every path to here");
  }
  CHECK_NOTHROW(verify_or_throw(small_module(), "lower"));
}
