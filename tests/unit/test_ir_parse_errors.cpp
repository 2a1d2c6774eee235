// What the parser says about wrong text, and where.
#include "ir/error.h"
#include "ir/parser.h"

#include <catch2/catch.hpp>

#include <string>

using namespace sparsertc;
using namespace sparsertc::ir;

namespace {

/// The whole message for a text.
std::string error_of(const std::string& text) {
  try {
    parse(text, "x.sir");
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

struct Case {
  const char* text;
  const char* error;
};

/// Operations, put into a function with the parameters %a: f32, %i: i32, %p: device.f32, %q: pred
/// on line 1; the operation stands on line 2.
const Case kOperations[] = {
    {"%x = fam.f32 %a, %a, %a",
     "x.sir:2:6: error: unknown operation 'fam'\nnote: did you mean 'fma'?"},
    {"zzzzzzzz", "x.sir:2:1: error: unknown operation 'zzzzzzzz'\nnote: ir/README.md lists"},
    {"%x = add.f33 %a, %a", "x.sir:2:10: error: expected a type, found 'f33'"},
    {"%x = add.device.f33 %a, %a",
     "x.sir:2:10: error: expected the type of the elements, found 'f33'"},
    {"%x = add %a, %a", "x.sir:2:9: error: expected '.' and a type, found ' '"},
    {"%x = add.pred %q, %q", "x.sir:2:6: error: 'add' does not exist for type pred"},
    {"%x = add.f32 %a %a", "x.sir:2:17: error: expected ',' before the next operand, found '%'"},
    {"%x = add.f32 %a, 0.1",
     "x.sir:2:18: error: expected a number that is exact in f32; the nearest one is written "
     "0f3DCCCCCD, found '0.1'"},
    {"%x = add.f32 2, %a", "x.sir:2:14: error: expected a register like %5 or %sum, found '2'"},
    {"%x = add.i32 %i, 1 2", "x.sir:2:20: error: expected the end of the line, found '2'"},
    {"add.f32 %a, %a", "x.sir:2:1: error: the result of 'add' must be assigned"},
    {"%x = barrier", "x.sir:2:1: error: 'barrier' has no result"},
    {"%x:2 = add.f32 %a, %a", "x.sir:2:1: error: this operation has 1 result, not 2"},
    {"%x = load.device.f32.v4 %p + 0",
     "x.sir:2:1: error: this operation has 4 results, not 1\nnote: write %first:4"},
    {"store.device.f32.v2 %p + 0, %a", "x.sir:2:31: error: this operand is a tuple of 2 registers"},
    {"%x = load.device.f32.cached %p + 0",
     "x.sir:2:22: error: expected normal, readonly or streaming, found 'cached'"},
    {"%x = cmp.less.f32 %a, %a",
     "x.sir:2:10: error: expected eq, ne, lt, le, gt, ge, ltu, leu, gtu or geu, found 'less'"},
    {"%x = convert.f64.f16.exact %a", "x.sir:2:28: error: this register has type f32, not f16"},
    {"%x = shuffle.f32.up %a, 99999999999",
     "x.sir:2:25: error: expected an integer that fits i32, found '99999999999'"},
    {"%x = select.f32 %q, %a, ",
     "x.sir:2:25: error: expected a register or a number, found the end of the line"},
    {"%x = address.device.f32 @nowhere", "x.sir:2:25: error: there is no symbol @nowhere"},
    {"call @nobody()", "x.sir:2:6: error: there is no function @nobody"},
    {"call f()", "x.sir:2:6: error: expected a function like @tile, found 'f'"},
    {"launch @f grid(%i, %i) ()", "x.sir:2:23: error: expected 3 registers in the grid, not 2"},
    {"%0 = const.f32 1",
     "x.sir:2:1: error: register 0 is called %a here; one register has one name"},
    {"%2x = const.f32 1", "x.sir:2:1: error: '%2x' begins with a digit but is no number"},
    {"%4000000000 = const.f32 1",
     "x.sir:2:1: error: register number 4000000000 is too large for so short a text"},
    {"%99999999999 = const.f32 1", "x.sir:2:1: error: register number 99999999999 is too large"},
    {"% = const.f32 1", "x.sir:2:2: error: expected a register's number or name after '%'"},
    {"} else {", "x.sir:2:3: error: expected the end of the line, found 'else'"},
    {"else {", "x.sir:2:1: error: 'else' stands after the '}' of its block"},
    {"loop {\n}", "x.sir:3:1: error: a loop needs its condition"},
    {"loop {\n} else {", "x.sir:3:1: error: 'else' closes a block that is no 'if'"},
    {"if %q {\n} while %q", "x.sir:3:1: error: 'while' closes a block that is no 'loop'"},
    {"if %q {\n} else {\n} else {", "x.sir:4:1: error: 'else' closes a block that is no 'if'"},
    {"if %q", "x.sir:2:6: error: expected '{' to open the block, found the end of the line"},
    {"for %k = 1 to 8 step 1 {", "x.sir:2:10: error: 0, where every loop begins is at most 0"},
    {"for %k = 0 to 8 {", "x.sir:2:17: error: expected 'step', found '{'"},
    {"barrier 1",
     "x.sir:2:10: error: expected ',' before the number of threads, found the end of the line"},
    {"%x = add.f32 %a, %a !3",
     "x.sir:2:23: error: expected ',' between the origin's row and column"},
    {"copy_async %p, %p",
     "x.sir:2:11: error: expected '.' and the number of bytes, 4, 8 or 16, found ' '"},
};

const Case kModules[] = {
    {"fun @f() {\n}", "x.sir:1:1: error: expected attribute, constant, device, shared, func, "
                      "kernel or host, found 'fun'"},
    {"\n  %", "x.sir:2:3: error: expected attribute, constant, device, shared, func, kernel or "
              "host, found '%'"},
    {"func f() {\n}", "x.sir:1:6: error: expected the function's name like @name, found 'f'"},
    {"func @f() {\n",
     "x.sir:2:1: error: expected '}' at the end of the function, found the end of the text"},
    {"func @f(%q: pred) {\n  if %q {\n",
     "x.sir:2:3: error: this block is not closed before the text ends"},
    {"func @f() {\n}\nfunc @f() {\n}", "x.sir:3:6: error: a second function is called @f"},
    {"func @f(%a: f33) {\n}",
     "x.sir:1:13: error: expected a type like f32 or device.f32, found 'f33'"},
    {"func @f(%a: moon.f32) {\n}",
     "x.sir:1:13: error: expected a type like f32 or device.f32, found 'moon.f32'"},
    {"func @f(%a: f32, %a: f32) {\n}", "x.sir:1:18: error: a second parameter is called %a"},
    {"func @f(%7: f32) {\n}", "x.sir:1:9: error: parameter number 0 is called %7"},
    {"kernel @k() {\n}", "x.sir:1:13: error: expected 'block', found '{'"},
    {"kernel @k() block(1, 1) {\n}",
     "x.sir:1:23: error: expected ',' between the block's extents, found ')'"},
    {"attribute \"a", "x.sir:1:11: error: this string is not closed on its line"},
    {"attribute \"a\" \"\\n\"", "x.sir:1:16: error: unknown escape in a string"},
    {"attribute \"a\" b", "x.sir:1:15: error: expected a quoted string, found 'b'"},
    {"device @d : f32[2] align 4 = [1]",
     "x.sir:1:30: error: @d has 2 elements by its type, but 1 are listed"},
    {"device @d : pred[2] align 4 = [true]", "x.sir:1:13: error: pred has no form in memory"},
    {"device @d : i32[2] align 4 = [1,\n 2.5]",
     "x.sir:2:2: error: expected an integer of type i32, found '2.5'"},
    {"device @d : i32[2] align 4 = [1 2]",
     "x.sir:1:33: error: expected ',' or ']' after an element, found '2'"},
    {"device @d : i32[2] align 4 = [1,",
     "x.sir:1:33: error: expected an element, found the end of the text"},
    {"device @d : i32[2] align 4", "x.sir:1:27: error: expected '=' before the elements"},
    {"shared @d : i32[99999999999999999999] align 4",
     "x.sir:1:17: error: the number of elements is at most 1099511627776"},
    {"shared @d : i32[1] align 4\nshared @d : i32[1] align 4",
     "x.sir:2:8: error: a second symbol is called @d"},
    {"func @f() {\n  register %x : f32\n}",
     "x.sir:2:15: error: expected '=' and the register's number, found ':'"},
    {"func @f() {\n  register %x = 1 : f32\n  register %1 : f32\n}",
     "x.sir:3:12: error: register 1 is declared twice"},
    {"func @f() {\n  \x01\n}", "x.sir:2:3: error: expected an operation, found the byte 0x01"},
};

} // namespace

TEST_CASE("wrong operations are found at their place", "[ir]") {
  for (const Case& c : kOperations) {
    const std::string text =
        std::string("func @f(%a: f32, %i: i32, %p: device.f32, %q: pred) {\n") + c.text + "\n}\n";
    CAPTURE(c.text);
    CHECK_THAT(error_of(text), Catch::StartsWith(c.error));
  }
}

TEST_CASE("wrong modules are found at their place", "[ir]") {
  for (const Case& c : kModules) {
    CAPTURE(c.text);
    CHECK_THAT(error_of(c.text), Catch::StartsWith(c.error));
  }
}

TEST_CASE("blanks, comments and line ends of other systems are accepted", "[ir]") {
  CHECK(error_of("// only a comment") == "no error");
  CHECK(error_of("func @f(%a: f32,   // first\r\n  %b: f32) {\r\n\treturn // done\r\n}\r\n") ==
        "no error");
  CHECK(error_of("") == "no error");
}
