// print and parse are inverse: random modules with every operation, the README's examples, names,
// large arrays, damaged text.
#include "ir/builder.h"
#include "ir/error.h"
#include "ir/operands.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

using namespace sparsertc;
using namespace sparsertc::ir;

namespace {

/// Makes modules that have any operation with any operands of the right types, though no meaning.
class Generator {
public:
  explicit Generator(unsigned seed) : random_(seed) {}

  Module module();

private:
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  bool chance(uint32_t percent) { return below(100) < percent; }
  Type scalar() { return static_cast<Scalar>(1 + below(9)); }
  Type pointer() {
    return Type::pointer(static_cast<Space>(1 + below(6)), static_cast<Scalar>(2 + below(8)));
  }
  Type type_for(std::string_view types);
  Reg reg(Type type, uint32_t count = 1);
  int64_t literal(Type type);
  std::string register_name();
  void symbols();
  void function(uint32_t index);
  void operation();
  void value(Op& op);
  void open_block();
  void close_block();
  void list(uint32_t count);

  std::mt19937_64 random_;
  Module module_;
  Function* function_ = nullptr;
  Builder* builder_ = nullptr;
  std::vector<Opcode> open_;
};

Type Generator::type_for(std::string_view types) {
  for (;;) {
    const Type type = types == "-" ? Type() : chance(30) ? pointer() : scalar();
    if (type_allowed(types, type))
      return type;
  }
}

std::string Generator::register_name() {
  static const char* const names[] = {"sum", "x", "a.b", "$", "7up", "bad name", "12", ""};
  return names[below(8)];
}

Reg Generator::reg(Type type, uint32_t count) {
  for (int attempt = 0; attempt < 4; ++attempt) {
    const uint32_t size = static_cast<uint32_t>(function_->register_type.size());
    if (size < count)
      break;
    const uint32_t first = below(size - count + 1);
    bool fits = true;
    for (uint32_t i = 0; i < count; ++i)
      fits = fits && function_->register_type[first + i] == type;
    if (fits)
      return Reg{first};
  }
  if (count > 1)
    return builder_->fresh_tuple(type, count);
  return builder_->fresh(type, register_name());
}

int64_t Generator::literal(Type type) {
  const uint64_t bits = chance(30) ? below(16) : random_();
  switch (type.element()) {
  case Scalar::pred:
    return static_cast<int64_t>(bits & 1);
  case Scalar::i32:
    return static_cast<int32_t>(bits);
  case Scalar::f16:
  case Scalar::bf16:
    return static_cast<int64_t>(bits & 0xFFFF);
  case Scalar::i64:
  case Scalar::f64:
    return static_cast<int64_t>(bits);
  default:
    return static_cast<int64_t>(bits & UINT32_MAX);
  }
}

void Generator::symbols() {
  for (uint32_t i = 0; i < 4; ++i) {
    Symbol symbol;
    symbol.name = "symbol" + std::to_string(i);
    const Space spaces[] = {Space::constant, Space::device, Space::shared};
    symbol.type = Type::pointer(spaces[i % 3], static_cast<Scalar>(2 + below(8)));
    symbol.count = 1 + below(40);
    symbol.alignment = 16;
    if (symbol.type.space() != Space::shared) {
      symbol.bytes.resize(symbol.count * size_in_bytes(symbol.type.element()));
      for (uint8_t& byte : symbol.bytes)
        byte = static_cast<uint8_t>(random_());
    }
    module_.symbols.push_back(std::move(symbol));
  }
}

void Generator::value(Op& op) {
  const OpInfo& row = info(op.code);
  bool has_literal = false;
  for (unsigned i = 0; i < row.operands.size(); ++i) {
    const char letter = row.operands[i];
    Type type = op.type;
    switch (letter) {
    case 'p':
    case 'P':
      type = Scalar::pred;
      break;
    case 'i':
    case 'I':
      type = Scalar::i32;
      break;
    case 'l':
    case 'L':
      type = Scalar::i64;
      break;
    case 'h':
      type = half_of_pair(op.type.element());
      break;
    case 'x':
      type = scalar();
      break;
    default:
      break;
    }
    if (letter < 'a' && !has_literal && !type.is_pointer() && chance(50)) {
      has_literal = true;
      op.operand[i] = kImmediate;
      op.immediate = literal(type);
    } else {
      op.operand[i] = reg(type).id;
    }
  }
}

void Generator::list(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    function_->pool.push_back(reg(scalar()).id);
}

void Generator::open_block() {
  const Opcode codes[] = {Opcode::for_loop, Opcode::loop, Opcode::if_begin};
  Op op;
  op.code = codes[below(3)];
  if (op.code == Opcode::for_loop) {
    const bool number = chance(50);
    op.operand[0] = number ? kImmediate : reg(Scalar::i32).id;
    op.immediate = two_halves(number ? static_cast<uint32_t>(random_()) : 0, 1 + below(9));
    op.result = reg(Scalar::i32);
  } else if (op.code == Opcode::if_begin) {
    op.operand[0] = reg(Scalar::pred).id;
  }
  builder_->append(op);
  open_.push_back(op.code);
}

void Generator::close_block() {
  Op op;
  op.code = Opcode::end;
  if (open_.back() == Opcode::loop) {
    op.code = Opcode::while_end;
    op.operand[0] = reg(Scalar::pred).id;
  } else if (open_.back() == Opcode::if_begin && chance(50)) {
    op.code = Opcode::else_mark;
    open_.back() = Opcode::else_mark;
    builder_->append(op);
    return;
  }
  open_.pop_back();
  builder_->append(op);
}

void Generator::operation() {
  Op op;
  op.code = static_cast<Opcode>(below(kOpcodeCount));
  const OpInfo& row = info(op.code);
  if (chance(20))
    builder_->set_origin(below(1000), below(1000));
  else if (chance(20))
    builder_->clear_origin();
  if (row.detail != DetailKind::none)
    op.detail = static_cast<uint8_t>(below(words_of(row.detail).size));
  op.type = op.code == Opcode::special ? Type(Scalar::i32) : type_for(row.types);
  switch (row.form) {
  case Form::value:
  case Form::value_none:
  case Form::alloc:
    value(op);
    break;
  case Form::symbol:
    op.immediate = below(4);
    break;
  case Form::load:
  case Form::store:
    op.width = static_cast<uint8_t>(1u << below(4));
    op.operand[0] = reg(op.type).id;
    op.immediate = chance(10) ? INT64_MIN : static_cast<int64_t>(random_()) >> below(64);
    if (row.form == Form::store)
      op.operand[1] = reg(op.type.element(), op.width).id;
    break;
  case Form::atomic:
    op.operand[0] = reg(op.type).id;
    op.immediate = static_cast<int64_t>(below(64)) - 32;
    for (unsigned i = 1; i < row.operands.size(); ++i)
      op.operand[i] = reg(op.type.element()).id;
    break;
  case Form::copy_async:
    op.width = 16;
    op.operand[0] = reg(Type::pointer(Space::shared, Scalar::f32)).id;
    op.operand[1] = reg(Type::pointer(Space::device, Scalar::f32)).id;
    if (chance(50))
      op.operand[2] = reg(Scalar::i32).id;
    op.immediate = static_cast<int64_t>(random_());
    break;
  case Form::plain_number:
    op.immediate = below(8);
    break;
  case Form::barrier:
    if (chance(60)) {
      const bool number = chance(50);
      op.operand[0] = number ? kImmediate : reg(Scalar::i32).id;
      op.immediate = two_halves(number ? below(16) : 0, 32 * (1 + below(4)));
    }
    break;
  case Form::mma: {
    op.detail = static_cast<uint8_t>(below(3) + (op.code == Opcode::mma_sparse ? 3 : 0));
    const FragmentShape shape = shape_of(static_cast<Fragment>(op.detail));
    op.operand[0] = reg(shape.input, shape.a).id;
    op.operand[1] = reg(shape.input, shape.b).id;
    op.operand[2] = reg(Scalar::f32, kFragmentResults).id;
    if (op.code == Opcode::mma_sparse)
      op.immediate = two_halves(reg(Scalar::i32).id, below(2));
    break;
  }
  case Form::for_loop:
  case Form::open:
  case Form::if_begin:
    open_block();
    return;
  case Form::while_end:
  case Form::else_mark:
  case Form::close:
    if (!open_.empty())
      close_block();
    return;
  case Form::call:
    op.operand[0] = below(3);
    op.operand[1] = static_cast<uint32_t>(function_->pool.size());
    op.operand[2] = below(4);
    list(op.operand[2]);
    break;
  case Form::switch_call: {
    op.operand[0] = reg(Scalar::i32).id;
    op.operand[1] = static_cast<uint32_t>(function_->pool.size());
    const uint32_t count = 1 + below(3);
    function_->pool.push_back(count);
    for (uint32_t i = 0; i < count; ++i)
      function_->pool.push_back(below(3));
    const uint32_t arguments = below(4);
    function_->pool.push_back(arguments);
    list(arguments);
    break;
  }
  case Form::launch: {
    op.operand[0] = below(3);
    op.operand[1] = static_cast<uint32_t>(function_->pool.size());
    list(3);
    const uint32_t arguments = below(4);
    function_->pool.push_back(arguments);
    list(arguments);
    break;
  }
  case Form::copy:
    op.operand[0] = reg(pointer()).id;
    op.operand[1] = reg(pointer()).id;
    op.operand[2] = kImmediate;
    op.immediate = below(1000);
    break;
  case Form::plain:
    break;
  }
  if (const uint32_t count = result_count(op); count != 0)
    op.result = reg(result_type(op), count);
  builder_->append(op);
}

void Generator::function(uint32_t index) {
  function_ = &module_.functions[index];
  function_->name = "function" + std::to_string(index);
  function_->kind = static_cast<FunctionKind>(index);
  if (function_->kind == FunctionKind::kernel) {
    function_->block[0] = 1 + below(1024);
    function_->cluster[1] = 1 + below(2);
    function_->max_registers = below(2) * 96;
  }
  function_->cpu = function_->kind == FunctionKind::host && chance(50);
  Builder builder(module_, *function_);
  builder_ = &builder;
  for (uint32_t i = 0, count = below(5); i < count; ++i)
    builder.parameter(chance(50) ? pointer() : scalar(), register_name());
  for (uint32_t i = 0, count = below(200); i < count; ++i)
    operation();
  while (!open_.empty())
    close_block();
}

Module Generator::module() {
  module_ = {};
  module_.attributes = {{"key", "a \"quoted\" \\ value\n\x01"}, {"", ""}};
  symbols();
  module_.functions.resize(3);
  for (uint32_t i = 0; i < 3; ++i)
    function(i);
  return std::move(module_);
}

Origin origin_of(const Module& module, const Op& op) {
  return op.origin == 0 ? Origin{UINT32_MAX, UINT32_MAX} : module.origins[op.origin - 1];
}

void check_same(const Module& a, const Module& b) {
  REQUIRE(a.attributes == b.attributes);
  REQUIRE(a.symbols.size() == b.symbols.size());
  for (size_t i = 0; i < a.symbols.size(); ++i) {
    REQUIRE(a.symbols[i].name == b.symbols[i].name);
    REQUIRE(a.symbols[i].type == b.symbols[i].type);
    REQUIRE(a.symbols[i].count == b.symbols[i].count);
    REQUIRE(a.symbols[i].alignment == b.symbols[i].alignment);
    REQUIRE(a.symbols[i].bytes == b.symbols[i].bytes);
  }
  REQUIRE(a.functions.size() == b.functions.size());
  for (size_t f = 0; f < a.functions.size(); ++f) {
    const Function& x = a.functions[f];
    const Function& y = b.functions[f];
    REQUIRE(x.name == y.name);
    REQUIRE(x.kind == y.kind);
    REQUIRE(x.cpu == y.cpu);
    REQUIRE(std::equal(x.block, x.block + 3, y.block));
    REQUIRE(x.max_registers == y.max_registers);
    REQUIRE(x.parameter_count == y.parameter_count);
    REQUIRE(x.register_type == y.register_type);
    REQUIRE(x.pool == y.pool);
    REQUIRE(x.ops.size() == y.ops.size());
    for (size_t i = 0; i < x.ops.size(); ++i) {
      Op left = x.ops[i];
      Op right = y.ops[i];
      const bool same_origin = origin_of(a, left) == origin_of(b, right);
      left.origin = right.origin = 0;
      const bool same = left.code == right.code && left.type == right.type &&
                        left.width == right.width && left.detail == right.detail &&
                        left.result == right.result &&
                        std::equal(left.operand, left.operand + 3, right.operand) &&
                        left.immediate == right.immediate;
      if (!same || !same_origin) {
        CAPTURE(print_op(a, x, x.ops[i]), print_op(b, y, y.ops[i]));
        FAIL("an operation does not come back");
      }
    }
  }
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The ```sir blocks of the language reference.
std::vector<std::string> readme_examples() {
  const std::string text = read_file(std::string(SPARSERTC_SOURCE_DIR) + "/ir/README.md");
  std::vector<std::string> examples;
  const std::string open = "```sir\n";
  for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
    at += open.size();
    const size_t end = text.find("```", at);
    REQUIRE(end != std::string::npos);
    examples.push_back(text.substr(at, end - at));
    at = end + 3;
  }
  return examples;
}

} // namespace

TEST_CASE("random modules with every operation come back from their text", "[ir]") {
  const unsigned seed = std::random_device{}();
  std::set<Opcode> seen;
  for (unsigned i = 0; i < 60; ++i) {
    CAPTURE(seed, i);
    const Module module = Generator(seed + i).module();
    const std::string text = print(module);
    CAPTURE(text);
    const Module again = parse(text, "random.sir");
    check_same(module, again);
    REQUIRE(print(again) == text);
    for (const Function& function : module.functions)
      for (const Op& op : function.ops)
        seen.insert(op.code);
    verify(module); // has much to say, and must not crash
  }
  CHECK(seen.size() == kOpcodeCount);
}

TEST_CASE("the examples of the language reference parse, verify and round-trip", "[ir]") {
  std::set<Opcode> seen;
  for (const std::string& example : readme_examples()) {
    CAPTURE(example);
    SourceMap map;
    const Module module = parse(example, "README.md", &map);
    REQUIRE_NOTHROW(verify_or_throw(module, "parsing", &map));
    const std::string text = print(module);
    const Module again = parse(text, "again.sir");
    check_same(module, again);
    CHECK(print(again) == text);
    for (const Function& function : module.functions)
      for (const Op& op : function.ops)
        seen.insert(op.code);
  }
  for (unsigned i = 0; i < kOpcodeCount; ++i) {
    CAPTURE(info(static_cast<Opcode>(i)).text);
    CHECK(seen.contains(static_cast<Opcode>(i)));
  }
}

TEST_CASE("damaged text gives an error with a place or a module that can be verified", "[ir]") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const std::vector<std::string> examples = readme_examples();
  const std::string letters = "%@{}()[],:=.+-!\"/ \n0x1fabcv_\xFF";
  for (int i = 0; i < 4000; ++i) {
    std::string text = examples[random() % examples.size()];
    for (int k = 0; k < 1 + static_cast<int>(random() % 3); ++k) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
      case 0:
        text[at] = letters[random() % letters.size()];
        break;
      case 1:
        text.erase(at, 1 + random() % 5);
        break;
      case 2:
        text.insert(at, 1, letters[random() % letters.size()]);
        break;
      default: {
        const size_t length = std::min<size_t>(random() % 40, text.size() - at);
        text.insert(random() % text.size(), text.substr(at, length));
        break;
      }
      }
      if (text.empty())
        text = " ";
    }
    CAPTURE(text);
    try {
      SourceMap map;
      const Module module = parse(text, "damaged.sir", &map);
      const std::vector<Violation> violations = verify(module, &map);
      for (const Violation& violation : violations)
        REQUIRE(violation.place.line != 0);
      const std::string printed = print(module);
      if (violations.empty())
        REQUIRE(print(parse(printed, "printed.sir")) == printed);
    } catch (const UserError& error) {
      REQUIRE_THAT(error.what(), Catch::StartsWith("damaged.sir:"));
    }
  }
}

TEST_CASE("names are made unique in a fixed way", "[ir]") {
  Module module;
  Function& function = module.functions.emplace_back();
  function.name = "f";
  Builder builder(module, function);
  builder.parameter(Scalar::f32, "x");
  builder.parameter(Scalar::f32, "x");
  builder.parameter(Scalar::f32, "3");
  builder.parameter(Scalar::f32, "a b");
  builder.parameter(Scalar::f32, "");
  const Reg sum = builder.fresh(Scalar::f32, "sum");
  const Reg later = builder.fresh(Scalar::f32, "later");
  builder.constant(Scalar::f32, Operand::f32(0), later);
  builder.constant(Scalar::f32, Operand::f32(0), sum);
  builder.fresh(Scalar::i64);
  CHECK(print(module) == "func @f(%x: f32, %x_1: f32, %_3: f32, %a_b: f32, %4: f32) {\n"
                         "  register %sum = 5 : f32\n"
                         "  register %later = 6 : f32\n"
                         "  register %7 : i64\n"
                         "  %later = const.f32 0\n"
                         "  %sum = const.f32 0\n"
                         "}\n");
  check_same(module, parse(print(module), "names.sir"));
}

TEST_CASE("a large array comes back", "[ir]") {
  Module module;
  Symbol& symbol = module.symbols.emplace_back();
  symbol.name = "stream";
  symbol.type = Type::pointer(Space::device, Scalar::f32);
  symbol.count = 100000;
  symbol.bytes.resize(400000);
  std::mt19937 random(1);
  for (uint8_t& byte : symbol.bytes)
    byte = static_cast<uint8_t>(random());
  check_same(module, parse(print(module), "large.sir"));
}

TEST_CASE("one operation prints on one line", "[ir]") {
  Module module;
  Function& function = module.functions.emplace_back();
  function.name = "f";
  Builder builder(module, function);
  const Reg x = builder.parameter(Scalar::f32, "x");
  builder.set_origin(3, 17);
  builder.fma(Scalar::f32, x, Operand::f32(0.5f), x);
  CHECK(print_op(module, function, function.ops[0]) == "%1 = fma.f32 %x, 0.5, %x  !3,17");
  CHECK(print_register(function, x) == "%x");
}
