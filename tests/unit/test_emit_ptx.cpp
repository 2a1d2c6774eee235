// The PTX printer: the line of every operation, targets, errors, units; and ptxas takes all of it.
#include "compiler/emit/ptx.h"
#include "ir/builder.h"
#include "ir/error.h"
#include "tests/support/cuda_programs.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>

using namespace sparsertc;
using namespace sparsertc::ir;
using Catch::Matchers::Contains;

namespace {

const Type kDeviceF32 = Type::pointer(Space::device, Scalar::f32);
const Type kSharedF32 = Type::pointer(Space::shared, Scalar::f32);

Function& add_function(Module& module, const std::string& name, FunctionKind kind) {
  Function& function = module.functions.emplace_back();
  function.name = name;
  function.kind = kind;
  return function;
}

/// A module with one kernel that `write` fills.
Module kernel_of(const std::function<void(Module&, Builder&)>& write) {
  Module module;
  Function& kernel = add_function(module, "k", FunctionKind::kernel);
  kernel.block[0] = 32;
  Builder builder(module, kernel);
  write(module, builder);
  builder.return_void();
  return module;
}

/// The instructions of that kernel, without tabs.
std::string lines_of(const std::function<void(Module&, Builder&)>& write,
                     const char* target = "sm_90a", PtxOptions options = {}) {
  const std::string text = emit_ptx(kernel_of(write), find_target(target), options);
  const size_t body = text.find("\n{\n");
  std::string lines;
  for (size_t begin = body + 3; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    std::string line = text.substr(begin, end - begin);
    line.erase(0, line.find_first_not_of('\t'));
    if (line != "}" && line.rfind(".reg", 0) != 0)
      lines += line + "\n";
    begin = end + 1;
  }
  return lines;
}

/// One operation of form `value` on fresh registers.
std::string value_line(Opcode code, Type type, std::vector<Type> operand_types,
                       std::vector<Operand> immediates = {}, uint8_t detail = 0,
                       const char* target = "sm_90a") {
  return lines_of(
      [&](Module&, Builder& builder) {
        std::vector<Operand> operands;
        for (Type operand_type : operand_types)
          operands.emplace_back(builder.fresh(operand_type));
        operands.insert(operands.end(), immediates.begin(), immediates.end());
        if (operands.empty())
          builder.value(code, type, {}, {}, detail);
        else if (operands.size() == 1)
          builder.value(code, type, {operands[0]}, {}, detail);
        else if (operands.size() == 2)
          builder.value(code, type, {operands[0], operands[1]}, {}, detail);
        else
          builder.value(code, type, {operands[0], operands[1], operands[2]}, {}, detail);
      },
      target);
}

template <typename Enum>
uint8_t detail_of(Enum value) {
  return static_cast<uint8_t>(value);
}

std::string convert_line(Scalar from, Scalar to, Conversion conversion) {
  return value_line(Opcode::convert, to, {from}, {}, detail_of(conversion));
}

void add_device_symbol(Module& module, const std::string& name, Scalar element, uint64_t count,
                       Space space = Space::device) {
  Symbol& symbol = module.symbols.emplace_back();
  symbol.name = name;
  symbol.type = Type::pointer(space, element);
  symbol.count = count;
  if (space != Space::shared) {
    symbol.bytes.resize(count * size_in_bytes(element));
    for (size_t i = 0; i < symbol.bytes.size(); ++i)
      symbol.bytes[i] = static_cast<uint8_t>(i * 37 + 11);
  }
}

/// A kernel that dispatches to tile functions, in the shape of an SpMM.
Module spmm_shaped(uint32_t tiles, uint32_t terms) {
  Module module;
  module.attributes.emplace_back("op", "spmm");
  add_device_symbol(module, "indices", Scalar::i32, 7);
  add_device_symbol(module, "values", Scalar::f32, 5);
  add_device_symbol(module, "bias", Scalar::f32, 3, Space::constant);
  add_device_symbol(module, "partial", Scalar::f32, 64, Space::shared);
  module.functions.resize(tiles + 1);
  Function& kernel = module.functions[0];
  kernel.name = "sparsertc_spmm";
  kernel.kind = FunctionKind::kernel;
  kernel.block[0] = 64;
  kernel.block[1] = 2;
  kernel.max_registers = 128;
  std::vector<uint32_t> functions;
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    Function& function = module.functions[tile + 1];
    functions.push_back(tile + 1);
    function.name = "tile_" + std::to_string(tile);
    Builder builder(module, function);
    const Reg b = builder.parameter(kDeviceF32, "b");
    const Reg c = builder.parameter(kDeviceF32, "c");
    const Reg shared = builder.parameter(kSharedF32, "partial");
    const Reg inside = builder.parameter(Scalar::pred, "inside");
    const Reg scale = builder.parameter(Scalar::f16, "scale");
    const Reg sum = builder.constant(Scalar::f32, Operand::f32(0.0F));
    for (uint32_t i = 0; i < terms; ++i) {
      builder.set_origin(tile, i);
      const Reg value =
          builder.load(b, int64_t{4} * ((tile * 7 + i * 13) % 1000), 1, Cache::readonly);
      builder.fma(Scalar::f32, value, Operand::f32(0.5F + static_cast<float>(i)), sum, sum);
    }
    builder.clear_origin();
    builder.store(shared, 0, sum);
    if (tile == 1) { // the only user
      const Reg table = builder.address(1);
      builder.fma(Scalar::f32, builder.load(table, 4), builder.load(table, 8), sum, sum);
    }
    if (tile < 3) { // used by several
      const Reg constants = builder.address(2);
      builder.add(Scalar::f32, sum, builder.load(constants, 8), sum);
      builder.store(builder.address(3), 16, sum);
    }
    builder.mul(Scalar::f32, sum, builder.convert(Scalar::f32, scale, Conversion::exact), sum);
    builder.if_begin(inside);
    builder.store(c, int64_t{4} * tile, sum);
    builder.end();
    builder.return_void();
  }
  Builder builder(module, kernel);
  const Reg b = builder.parameter(kDeviceF32, "b");
  const Reg c = builder.parameter(kDeviceF32, "c");
  const Reg n = builder.parameter(Scalar::i32, "n");
  const Reg x = builder.special(Special::thread_x);
  const Reg y = builder.special(Special::block_y);
  const Reg inside = builder.compare(Comparison::lt, Scalar::i32, x, n);
  const Reg shared = builder.address(3);
  const Reg first = builder.load(builder.address(0), 4);
  const Reg row = builder.index(b, first, Operand::integer(4));
  const Reg one = builder.constant(Scalar::f16, Operand::bits(0x3C00));
  const Reg arguments[] = {row, builder.index(c, x, Operand::integer(4)), shared, inside, one};
  builder.switch_call(y, functions, arguments);
  builder.return_void();
  return module;
}

/// Every operation on every type that the target has (bf16 atomics only from sm_90).
Module every_operation(const Target& target) {
  Module module;
  add_device_symbol(module, "constants", Scalar::f64, 4, Space::constant);
  add_device_symbol(module, "half_constants", Scalar::f16, 9, Space::constant);
  add_device_symbol(module, "pairs", Scalar::bf16x2, 3);
  add_device_symbol(module, "wide", Scalar::i64, 3);
  add_device_symbol(module, "nothing", Scalar::f32, 0);
  add_device_symbol(module, "tile", Scalar::f32, 1024, Space::shared);
  // The callee is added first: adding a function moves the others.
  {
    Function& callee = add_function(module, "callee", FunctionKind::device);
    Builder builder(module, callee);
    for (Scalar scalar : {Scalar::pred, Scalar::i32, Scalar::i64, Scalar::f16, Scalar::f16x2,
                          Scalar::bf16, Scalar::bf16x2, Scalar::f32, Scalar::f64})
      builder.parameter(scalar, "x");
    builder.parameter(kDeviceF32, "p");
    builder.parameter(kSharedF32, "s");
    builder.return_void();
  }
  Function& kernel = add_function(module, "sparsertc_all", FunctionKind::kernel);
  kernel.block[0] = 128;
  Builder builder(module, kernel);
  const Reg device = builder.parameter(kDeviceF32, "p");
  builder.parameter(Scalar::i32, "n");
  builder.parameter(Scalar::i64, "m");
  builder.parameter(Scalar::f32, "f");
  builder.parameter(Scalar::f64, "d");
  builder.parameter(Scalar::f16, "h");
  const Reg p = builder.constant(Scalar::pred, Operand::integer(1));
  builder.move(p);
  const Reg i = builder.constant(Scalar::i32, Operand::integer(INT32_MIN));
  const auto reg_of = [&](Type type) { return builder.fresh(type); };

  const Scalar integers[] = {Scalar::i32, Scalar::i64};
  const Scalar floats[] = {Scalar::f16, Scalar::bf16, Scalar::f32, Scalar::f64};
  const Scalar pairs[] = {Scalar::f16x2, Scalar::bf16x2};
  for (uint8_t which = 0; which < 7; ++which)
    builder.special(static_cast<Special>(which));
  for (Scalar type : integers) {
    const Reg a = reg_of(type);
    builder.constant(type, Operand::integer(type == Scalar::i32 ? INT32_MIN : INT64_MIN));
    builder.move(a);
    for (Opcode code : {Opcode::add, Opcode::sub, Opcode::mul, Opcode::divu, Opcode::remu,
                        Opcode::min, Opcode::max, Opcode::minu, Opcode::maxu, Opcode::bit_and,
                        Opcode::bit_or, Opcode::bit_xor}) {
      builder.value(code, type, {a, a});
      builder.value(code, type, {a, Operand::integer(-5)});
    }
    for (Opcode code : {Opcode::shl, Opcode::shr, Opcode::sar}) {
      builder.value(code, type, {a, i});
      builder.value(code, type, {a, Operand::integer(-1)});
    }
    for (Opcode code :
         {Opcode::neg, Opcode::abs, Opcode::bit_not, Opcode::popc, Opcode::clz, Opcode::brev})
      builder.value(code, type, {a});
    for (uint8_t which = 0; which < 10; ++which) {
      builder.compare(static_cast<Comparison>(which), type, a, a);
      builder.compare(static_cast<Comparison>(which), type, a, Operand::integer(-7));
    }
    builder.select(type, p, a, a);
    builder.select(type, p, a, Operand::integer(-9));
  }
  for (Opcode code : {Opcode::bit_and, Opcode::bit_or, Opcode::bit_xor}) {
    builder.value(code, Scalar::pred, {p, p});
    builder.value(code, Scalar::pred, {p, Operand::integer(1)});
  }
  builder.value(Opcode::bit_not, Scalar::pred, {p});
  for (Scalar type :
       {Scalar::f16, Scalar::bf16, Scalar::f32, Scalar::f64, Scalar::f16x2, Scalar::bf16x2}) {
    const Reg a = reg_of(type);
    const Operand one = type == Scalar::f64   ? Operand::f64(1)
                        : type == Scalar::f32 ? Operand::f32(1)
                                              : Operand::bits(0x3C003C00);
    builder.constant(type, one);
    builder.move(a);
    for (Opcode code : {Opcode::add, Opcode::sub, Opcode::mul}) {
      builder.value(code, type, {a, a});
      builder.value(code, type, {a, one});
    }
    builder.fma(type, a, a, a);
    builder.fma(type, a, one, a);
    builder.value(Opcode::neg, type, {a});
    builder.value(Opcode::abs, type, {a});
  }
  for (Scalar type : {Scalar::f32, Scalar::f64}) {
    const Reg a = reg_of(type);
    builder.value(Opcode::div, type, {a, a});
    builder.value(Opcode::div, type, {a, Operand::bits(INT64_MAX)});
    builder.value(Opcode::sqrt, type, {a});
  }
  for (Scalar type : floats) {
    const Reg a = reg_of(type);
    for (uint8_t which = 0; which < 6; ++which) {
      builder.compare(static_cast<Comparison>(which), type, a, a);
      builder.compare(static_cast<Comparison>(which), type, a, Operand::bits(0x3C00));
    }
    builder.select(type, p, a, a);
    builder.select(type, p, a, Operand::bits(0x3C00));
    for (Conversion rounding :
         {Conversion::nearest, Conversion::truncate, Conversion::floor, Conversion::ceil}) {
      for (Scalar integer : integers) {
        builder.convert(integer, a, rounding);
        builder.convert(type, reg_of(integer), rounding);
      }
      for (Scalar other : floats)
        if (size_in_bytes(other) <= 4 && other != type)
          builder.convert(other, a, rounding);
    }
  }
  for (auto [from, to] : {std::pair(Scalar::f16, Scalar::f32),
                          {Scalar::f16, Scalar::f64},
                          {Scalar::bf16, Scalar::f32},
                          {Scalar::bf16, Scalar::f64},
                          {Scalar::f32, Scalar::f64},
                          {Scalar::i32, Scalar::f64},
                          {Scalar::i64, Scalar::i32},
                          {Scalar::f32, Scalar::f32}})
    builder.convert(to, reg_of(from), Conversion::exact);
  builder.convert(Scalar::i64, i, Conversion::sign);
  builder.convert(Scalar::i64, i, Conversion::zero);
  for (auto [from, to] : {std::pair(Scalar::f32, Scalar::i32),
                          {Scalar::i32, Scalar::f32},
                          {Scalar::f64, Scalar::i64},
                          {Scalar::i64, Scalar::f64},
                          {Scalar::f16x2, Scalar::i32},
                          {Scalar::f32, Scalar::bf16x2},
                          {Scalar::bf16, Scalar::f16}})
    builder.bitcast(to, reg_of(from));
  for (Scalar type : pairs) {
    const Reg half = reg_of(half_of_pair(type));
    const Reg pair = builder.value(Opcode::pack, type, {half, half});
    builder.value(Opcode::low, type, {pair});
    builder.value(Opcode::high, type, {pair});
  }

  const Reg shared = builder.address(5);
  const Reg constant = builder.address(0);
  const Reg half_constant = builder.address(1);
  for (uint32_t symbol : {2u, 3u, 4u})
    builder.load(builder.address(symbol), 0);
  for (uint32_t width : {1u, 2u, 4u}) {
    builder.load(constant, 8, width);
    builder.load(half_constant, 0, width);
  }
  builder.load(half_constant, 0, 8);
  for (Reg pointer : {device, shared}) {
    builder.offset(pointer, Operand::integer(-16));
    builder.offset(pointer, reg_of(Scalar::i64));
    builder.index(pointer, i, Operand::integer(-4));
    builder.index(pointer, i, i);
    builder.select(builder.function().type_of(pointer), p, pointer, pointer);
    builder.move(pointer);
  }
  builder.load(device, int64_t{1} << 33);
  for (Space space : {Space::device, Space::shared})
    for (Scalar element : {Scalar::i32, Scalar::i64, Scalar::f16, Scalar::bf16, Scalar::f16x2,
                           Scalar::bf16x2, Scalar::f32, Scalar::f64}) {
      const Reg pointer = reg_of(Type::pointer(space, element));
      for (uint32_t width : {1u, 2u, 4u, 8u})
        for (Cache cache : {Cache::normal, Cache::readonly, Cache::streaming}) {
          const Reg values = builder.load(pointer, 64, width, cache);
          if (cache != Cache::readonly)
            builder.store(pointer, -64, values, width, cache);
        }
      const auto ordered = [&](Opcode code, Order order, uint8_t width) {
        Op op;
        op.code = code;
        op.type = Type::pointer(space, element);
        op.width = width;
        op.detail = detail_of(order);
        op.operand[0] = pointer.id;
        op.immediate = 16;
        const Reg values = builder.fresh_tuple(element, width);
        if (code == Opcode::load_ordered)
          op.result = values;
        else
          op.operand[1] = values.id;
        builder.append(op);
      };
      for (uint8_t order = 0; order < 9; ++order) {
        const bool wide = element == Scalar::f32 && order < 3;
        if (order < 6)
          ordered(Opcode::load_ordered, static_cast<Order>(order), wide ? 4 : 1);
        if (order < 3 || order >= 6)
          ordered(Opcode::store_ordered, static_cast<Order>(order), wide ? 2 : 1);
        Op op;
        op.code = Opcode::compare_swap;
        op.type = Type::pointer(space, element);
        op.detail = order;
        op.result = reg_of(element);
        op.operand[0] = pointer.id;
        op.operand[1] = reg_of(element).id;
        op.operand[2] = reg_of(element).id;
        op.immediate = 8;
        builder.append(op);
      }
      for (uint8_t which = 0; which < 6; ++which) {
        const auto kind = static_cast<Atomic>(which);
        if (half_of_pair(element) == Scalar::bf16 && target.compute_capability < 90)
          continue;
        if (kind != Atomic::add && kind != Atomic::exchange && !Type(element).is_integer())
          continue;
        if (kind == Atomic::exchange && size_in_bytes(element) == 2)
          continue;
        Op op;
        op.code = Opcode::atomic;
        op.type = Type::pointer(space, element);
        op.detail = which;
        op.result = reg_of(element);
        op.operand[0] = pointer.id;
        op.operand[1] = reg_of(element).id;
        op.immediate = -8;
        builder.append(op);
      }
    }
  for (uint8_t order = 0; order < 9; ++order) {
    Op op;
    op.code = Opcode::fence;
    op.detail = order;
    builder.append(op);
  }
  for (uint32_t bytes : {4u, 8u, 16u}) {
    builder.copy_async(shared, 16, device, -32, bytes);
    builder.copy_async(shared, 0, device, 0, bytes, i);
  }
  builder.copy_commit();
  builder.copy_wait(1);
  builder.barrier();
  builder.barrier(Operand::integer(3), 64);
  builder.barrier(i, 64);
  for (uint8_t mode = 0; mode < 4; ++mode)
    for (Scalar type : {Scalar::i32, Scalar::f32}) {
      builder.value(Opcode::shuffle, type, {reg_of(type), i}, {}, mode);
      builder.value(Opcode::shuffle, type, {reg_of(type), Operand::integer(3)}, {}, mode);
    }
  builder.value(Opcode::ballot, {}, {p});
  const Reg metadata = reg_of(Scalar::i32);
  for (uint8_t fragment = 0; fragment < 6; ++fragment)
    for (Scalar tf32 : {Scalar::f32, Scalar::i32}) {
      const bool sparse = fragment >= 3;
      const Scalar input = fragment % 3 == 0   ? Scalar::f16x2
                           : fragment % 3 == 1 ? Scalar::bf16x2
                                               : tf32;
      Op op;
      op.code = sparse ? Opcode::mma_sparse : Opcode::mma;
      op.detail = fragment;
      op.result = builder.fresh_tuple(Scalar::f32, 4);
      op.operand[0] = builder.fresh_tuple(input, 4).id;
      op.operand[1] = builder.fresh_tuple(input, sparse ? 4 : 2).id;
      op.operand[2] = builder.fresh_tuple(Scalar::f32, 4).id;
      op.immediate = metadata.id;
      builder.append(op);
    }

  for (Operand limit : {Operand(i), Operand::integer(40), Operand::integer(0)}) {
    builder.for_loop(limit, 3);
    builder.loop();
    builder.if_begin(p);
    builder.return_void();
    builder.else_mark();
    builder.move(i);
    builder.end();
    builder.while_end(p);
    builder.end();
  }
  const Reg arguments[] = {p,
                           i,
                           reg_of(Scalar::i64),
                           reg_of(Scalar::f16),
                           reg_of(Scalar::f16x2),
                           reg_of(Scalar::bf16),
                           reg_of(Scalar::bf16x2),
                           reg_of(Scalar::f32),
                           reg_of(Scalar::f64),
                           device,
                           shared};
  builder.call(0, arguments);
  const uint32_t functions[] = {0, 0, 0};
  builder.switch_call(i, functions, arguments);
  return module;
}

/// Skips aloud where there is no toolkit.
std::string ptxas_or_skip() {
  std::string path = sparsertc::testing::find_cuda_program("ptxas");
  if (path.empty())
    WARN("SKIPPED: ptxas not found, so the PTX is not assembled");
  return path;
}

std::vector<std::string> gpu_targets() {
  std::vector<std::string> names = known_targets();
  names.pop_back(); // host
  return names;
}

void require_assembles(const std::string& ptxas, const std::string& text, const std::string& target,
                       const std::vector<std::string>& flags = {}) {
  const sparsertc::testing::TemporaryFolder folder;
  std::vector<std::string> command = {
      ptxas, "-O0", "-arch=" + target, "-o", folder.file("out"), folder.write("in.ptx", text)};
  command.insert(command.end(), flags.begin(), flags.end());
  const auto result = sparsertc::testing::run_program(command);
  INFO(target);
  INFO(result.output);
  REQUIRE(result.status == 0);
}

} // namespace

TEST_CASE("targets are found by name") {
  CHECK(find_target("sm_90a").compute_capability == 90);
  CHECK(find_target("sm_90a").ptx_version == "8.0");
  CHECK(find_target("sm_80").ptx_version == "7.0");
  CHECK(find_target("sm_80").shared_bytes_per_block == 163 * 1024);
  CHECK(find_target("host").is_host);
  CHECK(find_target("host").lanes_f32 >= 1);
  CHECK(known_targets().size() == 8);
  CHECK_THROWS_WITH(find_target("sm_9O"),
                    Contains("unknown target 'sm_9O'; did you mean 'sm_90'?") &&
                        Contains("sm_80, sm_86") && Contains("host"));
  CHECK_THROWS_WITH(find_target("pentium"), !Contains("did you mean"));
  CHECK_THROWS_AS(find_target(""), UserError);
}

TEST_CASE("arithmetic prints with explicit rounding and immediates as bits") {
  CHECK(value_line(Opcode::fma, Scalar::f32, {Scalar::f32, Scalar::f32, Scalar::f32}) ==
        "fma.rn.f32 %f3, %f0, %f1, %f2;\nret;\n");
  CHECK(value_line(Opcode::add, Scalar::f32, {Scalar::f32}, {Operand::f32(1)}) ==
        "add.rn.f32 %f1, %f0, 0f3F800000;\nret;\n");
  CHECK(value_line(Opcode::mul, Scalar::f64, {Scalar::f64}, {Operand::f64(-2)}) ==
        "mul.rn.f64 %fd1, %fd0, 0dC000000000000000;\nret;\n");
  CHECK(value_line(Opcode::mul, Scalar::f16, {Scalar::f16}, {Operand::bits(0x3C00)}) ==
        "mov.b16 %h2, 0x3C00;\nmul.rn.f16 %h1, %h0, %h2;\nret;\n");
  CHECK(value_line(Opcode::sub, Scalar::bf16x2, {Scalar::bf16x2, Scalar::bf16x2}) ==
        "sub.rn.bf16x2 %r2, %r0, %r1;\nret;\n");
  CHECK(value_line(Opcode::div, Scalar::f32, {Scalar::f32, Scalar::f32}) ==
        "div.rn.f32 %f2, %f0, %f1;\nret;\n");
  CHECK(value_line(Opcode::sqrt, Scalar::f64, {Scalar::f64}) == "sqrt.rn.f64 %fd1, %fd0;\nret;\n");
  CHECK(value_line(Opcode::mul, Scalar::i64, {Scalar::i64}, {Operand::integer(-3)}) ==
        "mul.lo.s64 %rd1, %rd0, -3;\nret;\n");
  CHECK(value_line(Opcode::divu, Scalar::i32, {Scalar::i32}, {Operand::integer(-1)}) ==
        "div.u32 %r1, %r0, 4294967295;\nret;\n");
  CHECK(value_line(Opcode::sar, Scalar::i64, {Scalar::i64}, {Operand::integer(7)}) ==
        "shr.s64 %rd1, %rd0, 7;\nret;\n");
  CHECK(value_line(Opcode::abs, Scalar::f16x2, {Scalar::f16x2}) == "abs.f16x2 %r1, %r0;\nret;\n");
  CHECK(value_line(Opcode::popc, Scalar::i64, {Scalar::i64}) == "popc.b64 %r0, %rd0;\nret;\n");
  CHECK(value_line(Opcode::bit_and, Scalar::pred, {Scalar::pred}, {Operand::integer(1)}) ==
        "and.pred %p1, %p0, 1;\nret;\n");
}

TEST_CASE("before sm_90, bf16 sums and products are fused with a neutral operand") {
  const auto line = [](Opcode code) {
    return value_line(code, Scalar::bf16, {Scalar::bf16, Scalar::bf16}, {}, 0, "sm_86");
  };
  CHECK(line(Opcode::add) == "mov.b16 %h3, 0x3F80;\nfma.rn.bf16 %h2, %h0, %h3, %h1;\nret;\n");
  CHECK(line(Opcode::sub) == "mov.b16 %h3, 0xBF80;\nfma.rn.bf16 %h2, %h1, %h3, %h0;\nret;\n");
  CHECK(line(Opcode::mul) == "mov.b16 %h3, 0x8000;\nfma.rn.bf16 %h2, %h0, %h1, %h3;\nret;\n");
  CHECK(value_line(Opcode::mul, Scalar::bf16x2, {Scalar::bf16x2}, {Operand::bits(0x40004000)}, 0,
                   "sm_80") == "mov.b32 %r2, 0x40004000;\nmov.b32 %r3, 0x80008000;\n"
                               "fma.rn.bf16x2 %r1, %r0, %r2, %r3;\nret;\n");
  CHECK(value_line(Opcode::compare, Scalar::bf16, {Scalar::bf16}, {Operand::bits(0x3F80)},
                   detail_of(Comparison::ne), "sm_89") ==
        "mov.b32 %f0, {0, %h0};\nsetp.neu.f32 %p0, %f0, 0f3F800000;\nret;\n");
}

TEST_CASE("comparisons and selections") {
  const auto line = [](Comparison comparison, Scalar type, Operand immediate) {
    return value_line(Opcode::compare, type, {type}, {immediate}, detail_of(comparison));
  };
  CHECK(line(Comparison::lt, Scalar::f32, Operand::f32(0)) ==
        "setp.lt.f32 %p0, %f0, 0f00000000;\nret;\n");
  CHECK(line(Comparison::ne, Scalar::f64, Operand::f64(0)) ==
        "setp.neu.f64 %p0, %fd0, 0d0000000000000000;\nret;\n");
  CHECK(line(Comparison::ne, Scalar::i32, Operand::integer(-1)) ==
        "setp.ne.s32 %p0, %r0, -1;\nret;\n");
  CHECK(line(Comparison::geu, Scalar::i64, Operand::integer(-1)) ==
        "setp.ge.u64 %p0, %rd0, 18446744073709551615;\nret;\n");
  CHECK(value_line(Opcode::select, Scalar::f32, {Scalar::pred, Scalar::f32}, {Operand::f32(0)}) ==
        "selp.f32 %f1, %f0, 0f00000000, %p0;\nret;\n");
  CHECK(value_line(Opcode::select, Scalar::bf16, {Scalar::pred, Scalar::bf16},
                   {Operand::bits(0x8000)}) == "selp.b16 %h1, %h0, 0x8000, %p0;\nret;\n");
}

TEST_CASE("conversions round once") {
  CHECK(convert_line(Scalar::f32, Scalar::f16, Conversion::nearest) ==
        "cvt.rn.f16.f32 %h0, %f0;\nret;\n");
  CHECK(convert_line(Scalar::f32, Scalar::bf16, Conversion::truncate) ==
        "cvt.rz.bf16.f32 %h0, %f0;\nret;\n");
  CHECK(convert_line(Scalar::f16, Scalar::f32, Conversion::exact) ==
        "cvt.f32.f16 %f0, %h0;\nret;\n");
  CHECK(convert_line(Scalar::bf16, Scalar::f32, Conversion::exact) ==
        "mov.b32 %f0, {0, %h0};\nret;\n");
  CHECK(convert_line(Scalar::bf16, Scalar::f64, Conversion::exact) ==
        "mov.b32 %f0, {0, %h0};\ncvt.f64.f32 %fd0, %f0;\nret;\n");
  CHECK(convert_line(Scalar::f64, Scalar::f16, Conversion::ceil) ==
        "cvt.rp.f16.f64 %h0, %fd0;\nret;\n");
  CHECK(convert_line(Scalar::f64, Scalar::bf16, Conversion::nearest) ==
        "cvt.rz.f32.f64 %f0, %fd0;\ncvt.f64.f32 %fd1, %f0;\nsetp.neu.f64 %p0, %fd1, %fd0;\n"
        "selp.b32 %r0, 1, 0, %p0;\nmov.b32 %r1, %f0;\nor.b32 %r1, %r1, %r0;\n"
        "mov.b32 %f0, %r1;\ncvt.rn.bf16.f32 %h0, %f0;\nret;\n");
  CHECK(convert_line(Scalar::i32, Scalar::f64, Conversion::exact) ==
        "cvt.rn.f64.s32 %fd0, %r0;\nret;\n");
  CHECK(convert_line(Scalar::f32, Scalar::i32, Conversion::floor) ==
        "cvt.rmi.s32.f32 %r0, %f0;\nret;\n");
  // NaN becomes 0 by itself only where neither side has 64 bits.
  CHECK(convert_line(Scalar::f64, Scalar::i32, Conversion::truncate) ==
        "cvt.rzi.s32.f64 %r0, %fd0;\nsetp.nan.f64 %p0, %fd0, %fd0;\n"
        "selp.b32 %r0, 0, %r0, %p0;\nret;\n");
  CHECK(convert_line(Scalar::i32, Scalar::i64, Conversion::zero) ==
        "cvt.u64.u32 %rd0, %r0;\nret;\n");
  CHECK(convert_line(Scalar::i64, Scalar::i32, Conversion::exact) ==
        "cvt.u32.u64 %r0, %rd0;\nret;\n");
}

TEST_CASE("memory operations") {
  const auto device = [](Builder& builder, Scalar element) {
    return builder.fresh(Type::pointer(Space::device, element));
  };
  CHECK(lines_of([&](Module&, Builder& b) {
          b.load(device(b, Scalar::f32), 16, 4, Cache::readonly);
        }) == "ld.global.nc.v4.b32 {%f0, %f1, %f2, %f3}, [%rd0+16];\nret;\n");
  CHECK(lines_of([&](Module&, Builder& b) {
          const Reg pointer = device(b, Scalar::f64);
          b.store(pointer, -8, b.load(pointer, 0, 4), 4, Cache::streaming);
        }) == "ld.global.v2.b64 {%fd0, %fd1}, [%rd0];\n"
              "ld.global.v2.b64 {%fd2, %fd3}, [%rd0+16];\n"
              "st.global.cs.v2.b64 [%rd0+-8], {%fd0, %fd1};\n"
              "st.global.cs.v2.b64 [%rd0+8], {%fd2, %fd3};\nret;\n");
  CHECK(lines_of([&](Module&, Builder& b) { b.load(device(b, Scalar::f16), 0, 8); }) ==
        "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd0];\n"
        "mov.b32 {%h0, %h1}, %r0;\nmov.b32 {%h2, %h3}, %r1;\n"
        "mov.b32 {%h4, %h5}, %r2;\nmov.b32 {%h6, %h7}, %r3;\nret;\n");
  CHECK(lines_of([&](Module&, Builder& b) { b.load(device(b, Scalar::f32), int64_t{1} << 40); }) ==
        "add.s64 %rd1, %rd0, 1099511627776;\nld.global.b32 %f0, [%rd1];\nret;\n");
  CHECK(lines_of([&](Module& module, Builder& b) {
          add_device_symbol(module, "tile", Scalar::f32, 8, Space::shared);
          const Reg tile = b.address(0);
          const Reg pointer = b.index(tile, b.fresh(Scalar::i32), Operand::integer(4));
          b.store(pointer, 4, b.load(pointer, 0, 1, Cache::readonly));
        }) == "mov.b32 %r0, tile;\nmad.lo.s32 %r2, %r1, 4, %r0;\n"
              "ld.shared.b32 %f0, [%r2];\nst.shared.b32 [%r2+4], %f0;\nret;\n");
  CHECK(lines_of([&](Module&, Builder& b) {
          Op op;
          op.code = Opcode::load_ordered;
          op.type = kDeviceF32;
          op.operand[0] = device(b, Scalar::f32).id;
          op.result = b.fresh(Scalar::f32);
          op.detail = detail_of(Order::acquire_system);
          b.append(op);
        }) == "ld.acquire.sys.global.b32 %f0, [%rd0];\nret;\n");
  CHECK(lines_of([&](Module&, Builder& b) {
          Op op;
          op.code = Opcode::atomic;
          op.type = kDeviceF32;
          op.operand[0] = device(b, Scalar::f32).id;
          op.operand[1] = b.fresh(Scalar::f32).id;
          op.result = b.fresh(Scalar::f32);
          op.immediate = 4;
          b.append(op);
        }) == "atom.relaxed.gpu.global.add.f32 %f1, [%rd0+4], %f0;\nret;\n");
  CHECK(lines_of([&](Module&, Builder& b) {
          const Reg to = b.fresh(kSharedF32);
          const Reg from = device(b, Scalar::f32);
          b.copy_async(to, 16, from, -32, 16, b.fresh(Scalar::i32));
          b.copy_commit();
          b.copy_wait(2);
          b.barrier(Operand::integer(1), 64);
          b.barrier();
        }) == "cp.async.cg.shared.global [%r0+16], [%rd0+-32], 16, %r1;\n"
              "cp.async.commit_group;\ncp.async.wait_group 2;\nbar.sync 1, 64;\nbar.sync 0;\n"
              "ret;\n");
}

TEST_CASE("warp operations") {
  CHECK(value_line(Opcode::shuffle, Scalar::f32, {Scalar::f32}, {Operand::integer(16)},
                   detail_of(Shuffle::butterfly)) ==
        "shfl.sync.bfly.b32 %f1, %f0, 16, 31, 0xffffffff;\nret;\n");
  CHECK(value_line(Opcode::ballot, {}, {Scalar::pred}) ==
        "vote.sync.ballot.b32 %r0, %p0, 0xffffffff;\nret;\n");
  const auto sparse = [](const char* target) {
    return lines_of(
        [](Module&, Builder& b) {
          Op op;
          op.code = Opcode::mma_sparse;
          op.detail = detail_of(Fragment::m16n8k32_f16);
          op.result = b.fresh_tuple(Scalar::f32, 4);
          op.operand[0] = b.fresh_tuple(Scalar::f16x2, 4).id;
          op.operand[1] = b.fresh_tuple(Scalar::f16x2, 4).id;
          op.operand[2] = op.result.id;
          op.immediate = static_cast<int64_t>(b.fresh(Scalar::i32).id | (uint64_t{1} << 32));
          b.append(op);
        },
        target);
  };
  const std::string operands =
      ".sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, "
      "{%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%f0, %f1, %f2, %f3}, %r8, 1;\nret;\n";
  CHECK(sparse("sm_90a") == "mma.sp" + operands);
  CHECK(sparse("sm_100") == "mma.sp::ordered_metadata" + operands);
}

TEST_CASE("control flow becomes labels and predicated branches") {
  CHECK(lines_of([](Module&, Builder& b) {
          const Reg n = b.fresh(Scalar::i32, "n");
          b.for_loop(n, 2);
          b.end();
          b.for_loop(Operand::integer(8), 1);
          b.end();
        }) == "mov.b32 %r1, 0;\nsetp.le.s32 %p0, %r0, 0;\n@%p0 bra $L_1;\n$L_0:\n"
              "add.s32 %r1, %r1, 2;\nsetp.lt.u32 %p0, %r1, %r0;\n@%p0 bra $L_0;\n$L_1:\n"
              "mov.b32 %r2, 0;\n$L_2:\nadd.s32 %r2, %r2, 1;\nsetp.lt.u32 %p0, %r2, 8;\n"
              "@%p0 bra $L_2;\nret;\n");
  CHECK(lines_of([](Module&, Builder& b) {
          const Reg p = b.fresh(Scalar::pred);
          b.loop();
          b.if_begin(p);
          b.else_mark();
          b.end();
          b.while_end(p);
        }) == "$L_0:\n@!%p0 bra $L_1;\nbra $L_2;\n$L_1:\n$L_2:\n@%p0 bra $L_0;\nret;\n");
}

TEST_CASE("a switch checks its index and calls through a table") {
  const std::string text = emit_ptx(spmm_shaped(2, 1), find_target("sm_90a"));
  CHECK_THAT(text, Contains("\tsetp.ge.u32 %p1, %r2, 2;\n\t@%p1 bra $L_1;\n"));
  CHECK_THAT(text, Contains("$L_0: .branchtargets\n\t\t$L_2, $L_3;\n\tbrx.idx %r"));
  CHECK_THAT(text, Contains("\tcall.uni tile_1, (a0, a1, a2, a3, a4);\n"));
  CHECK_THAT(text, Contains(".visible .entry sparsertc_spmm(\n\t.param .b64 .ptr .global .align 4 "
                            "sparsertc_spmm_param_0,"));
  CHECK_THAT(text, Contains(".reqntid 64, 2, 1\n.maxnreg 128\n{"));
  CHECK_THAT(text, Contains("// op: spmm\n"));
  CHECK_THAT(text, Contains(".version 8.0\n.target sm_90a\n.address_size 64\n"));
  CHECK(text.find(".func tile_0") < text.find(".entry"));
}

TEST_CASE("origins are comments on request") {
  const auto write = [](Module&, Builder& b) {
    b.set_origin(3, 17);
    b.fma(Scalar::f32, b.fresh(Scalar::f32), Operand::f32(1), b.fresh(Scalar::f32));
  };
  CHECK_THAT(lines_of(write, "sm_90a", {true}), Contains("; // row 3, column 17\n"));
  CHECK_THAT(lines_of(write), !Contains("//"));
}

TEST_CASE("shared memory beyond 48 KB is dynamic") {
  const auto build = [](uint64_t count) {
    return kernel_of([&](Module& module, Builder& b) {
      add_device_symbol(module, "first", Scalar::f16, 3, Space::shared);
      add_device_symbol(module, "second", Scalar::f32, count, Space::shared);
      b.load(b.address(1), 0);
    });
  };
  const Module small = build(12284);
  CHECK(ptx_dynamic_shared_bytes(small) == 0);
  CHECK_THAT(emit_ptx(small, find_target("sm_80")),
             Contains(".shared .align 16 .f32 second[12284];"));
  const Module large = build(20000);
  CHECK(ptx_dynamic_shared_bytes(large) == 80016);
  CHECK_THAT(emit_ptx(large, find_target("sm_80")),
             Contains(".extern .shared .align 16 .b8 sparsertc_dynamic_shared[];") &&
                 Contains("mov.b32 %r0, sparsertc_dynamic_shared+16;"));
  CHECK_THROWS_WITH(emit_ptx(build(40000), find_target("sm_86")),
                    Contains("160016 bytes of shared memory, sm_86 has 101376"));
  CHECK_NOTHROW(emit_ptx(build(40000), find_target("sm_80")));
}

TEST_CASE("what a target lacks is refused with its place") {
  const auto write = [](Module&, Builder& b) {
    b.set_origin(1, 2);
    Op op;
    op.code = Opcode::atomic;
    op.type = Type::pointer(Space::device, Scalar::bf16);
    op.operand[0] = b.fresh(op.type).id;
    op.operand[1] = b.fresh(Scalar::bf16).id;
    op.result = b.fresh(Scalar::bf16);
    b.append(op);
  };
  CHECK_THROWS_WITH(lines_of(write, "sm_86"),
                    Contains("operation 'atomic' of function '@k' (row 1, column 2)") &&
                        Contains("does not exist on sm_86"));
  CHECK_NOTHROW(lines_of(write, "sm_90"));
  CHECK_THROWS_AS(emit_ptx(Module{}, find_target("host")), UserError);
  Module module;
  add_function(module, "no.name", FunctionKind::device);
  CHECK_THROWS_WITH(emit_ptx(module, find_target("sm_90")), Contains("'@no.name'"));
  CHECK_THROWS_AS(lines_of([](Module&, Builder& b) { b.end(); }), InternalError);
  CHECK_THROWS_AS(lines_of([](Module&, Builder& b) { b.loop(); }), InternalError);
}

TEST_CASE("the same module gives the same bytes") {
  const Target target = find_target("sm_100");
  CHECK(emit_ptx(every_operation(target), target) == emit_ptx(every_operation(target), target));
}

TEST_CASE("ptxas takes every operation for every target") {
  const std::string ptxas = ptxas_or_skip();
  for (const std::string& name : gpu_targets()) {
    const Target target = find_target(name);
    const std::string text = emit_ptx(every_operation(target), target, {true});
    CHECK(text.size() > 10000);
    if (!ptxas.empty())
      require_assembles(ptxas, text, name);
  }
}

TEST_CASE("ptxas takes SpMM-shaped kernels whole and in units that link") {
  const std::string ptxas = ptxas_or_skip();
  const std::string nvlink = sparsertc::testing::find_cuda_program("nvlink");
  for (const std::string& name : gpu_targets()) {
    const Target target = find_target(name);
    for (bool dynamic : {false, true}) {
      Module module = spmm_shaped(5, 9);
      if (dynamic)
        module.symbols[3].count = 16000;
      const std::vector<std::string> units = emit_ptx_units(module, target);
      REQUIRE(units.size() == 6);
      CHECK_THAT(units[0], Contains(".entry sparsertc_spmm") && Contains(".extern .func tile_4") &&
                               Contains(".visible .const .align 16 .f32 bias[3]") &&
                               !Contains(" values["));
      CHECK_THAT(units[2], Contains(".visible .func tile_1") && Contains(".extern .const") &&
                               Contains(".global .align 16 .f32 values[5] = {"));
      CHECK_THAT(units[5], !Contains("values") && !Contains("bias"));
      if (ptxas.empty())
        continue;
      require_assembles(ptxas, emit_ptx(module, target), name);
      const sparsertc::testing::TemporaryFolder folder;
      std::vector<std::string> link = {nvlink, "-arch=" + name, "-o", folder.file("linked.cubin")};
      for (size_t i = 0; i < units.size(); ++i) {
        const std::string object = folder.file("unit" + std::to_string(i) + ".o");
        const auto result =
            sparsertc::testing::run_program({ptxas, "-c", "-O0", "-arch=" + name, "-o", object,
                                             folder.write("unit.ptx", units[i])});
        INFO(units[i]);
        INFO(result.output);
        REQUIRE(result.status == 0);
        link.push_back(object);
      }
      if (nvlink.empty()) {
        WARN("SKIPPED: nvlink not found, so the units are not linked");
        continue;
      }
      const auto result = sparsertc::testing::run_program(link);
      INFO(result.output);
      REQUIRE(result.status == 0);
    }
  }
}
