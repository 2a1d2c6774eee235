// The PTX printer: lines of operations, targets, errors.
#include "compiler/emit/ptx.h"
#include "ir/builder.h"
#include "ir/error.h"
#include "tests/unit/emit_ptx_modules.h"

#include <catch2/catch.hpp>
#include <functional>

using namespace sparsertc;
using namespace sparsertc::ir;
using Catch::Matchers::Contains;
using sparsertc::testing::add_function;
using sparsertc::testing::add_symbol;

namespace {

const Type kDeviceF32 = Type::pointer(Space::device, Scalar::f32);
const Type kSharedF32 = Type::pointer(Space::shared, Scalar::f32);

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
  CHECK(convert_line(Scalar::f16, Scalar::f32, Conversion::exact) ==
        "cvt.f32.f16 %f0, %h0;\nret;\n");
  CHECK(convert_line(Scalar::bf16, Scalar::f32, Conversion::exact) ==
        "mov.b32 %f0, {0, %h0};\nret;\n");
  CHECK(convert_line(Scalar::bf16, Scalar::f64, Conversion::exact) ==
        "mov.b32 %f0, {0, %h0};\ncvt.f64.f32 %fd0, %f0;\nret;\n");
  CHECK(convert_line(Scalar::f64, Scalar::f16, Conversion::nearest) ==
        "cvt.rn.f16.f64 %h0, %fd0;\nret;\n");
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
          b.store(pointer, -16, b.load(pointer, 0, 2), 2, Cache::streaming);
        }) == "ld.global.v2.b64 {%fd0, %fd1}, [%rd0];\n"
              "st.global.cs.v2.b64 [%rd0+-16], {%fd0, %fd1};\nret;\n");
  CHECK(lines_of([&](Module&, Builder& b) { b.load(device(b, Scalar::f16), 0, 8); }) ==
        "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd0];\n"
        "mov.b32 {%h0, %h1}, %r0;\nmov.b32 {%h2, %h3}, %r1;\n"
        "mov.b32 {%h4, %h5}, %r2;\nmov.b32 {%h6, %h7}, %r3;\nret;\n");
  CHECK(lines_of([&](Module&, Builder& b) { b.load(device(b, Scalar::f32), int64_t{1} << 40); }) ==
        "add.s64 %rd1, %rd0, 1099511627776;\nld.global.b32 %f0, [%rd1];\nret;\n");
  CHECK(lines_of([&](Module& module, Builder& b) {
          add_symbol(module, "tile", Scalar::f32, 8, Space::shared);
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
        }) ==
        "cp.async.cg.shared.global [%r0+16], [%rd0+-32], 16, %r1;\n"
        "cp.async.commit_group;\ncp.async.wait_group 2;\nbarrier.sync 1, 64;\nbarrier.sync 0;\n"
        "ret;\n");
}

TEST_CASE("warp operations") {
  CHECK(lines_of([](Module&, Builder& b) {
          b.load_matrix(b.fresh(Type::pointer(Space::shared, Scalar::bf16x2)), 144);
        }) == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r3, %r4}, [%r0+144];\n"
              "ret;\n");
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
      add_symbol(module, "first", Scalar::f16, 3, Space::shared);
      add_symbol(module, "second", Scalar::f32, count, Space::shared);
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

TEST_CASE("what PTX cannot say is refused") {
  CHECK_THROWS_WITH(emit_ptx(Module{}, find_target("host")),
                    Contains("error: PTX is for GPUs") && Contains("note: choose a GPU"));
  const auto named = [](const std::string& name) {
    Module module;
    add_function(module, name, FunctionKind::device);
    return emit_ptx(module, find_target("sm_90"));
  };
  CHECK_NOTHROW(named("fine_param_x$1"));
  for (const char* name : {"no.name", "$L_0", "_", "WARP_SZ", "f_param_0", "0", ""})
    CHECK_THROWS_WITH(named(name), Contains("'@" + std::string(name) + "' has a name"));
  Module module;
  add_function(module, "twice", FunctionKind::device);
  add_symbol(module, "twice", Scalar::f32, 1);
  CHECK_THROWS_WITH(emit_ptx(module, find_target("sm_90")), Contains("both called '@twice'"));
}

TEST_CASE("malformed code is our error") {
  CHECK_THROWS_AS(lines_of([](Module&, Builder& b) { b.end(); }), InternalError);
  CHECK_THROWS_AS(lines_of([](Module&, Builder& b) { b.loop(); }), InternalError);
  CHECK_THROWS_AS(convert_line(Scalar::f64, Scalar::bf16, Conversion::nearest), InternalError);
  CHECK_THROWS_WITH(lines_of([](Module&, Builder& b) {
                      b.set_origin(1, 2);
                      b.while_end(b.fresh(Scalar::pred));
                    }),
                    Contains("operation 'while' of function '@k' (row 1, column 2)"));
}

TEST_CASE("arrays print their elements exactly") {
  Module module;
  const auto add = [&](const std::string& name, Scalar element, std::vector<uint8_t> bytes) {
    add_symbol(module, name, element, bytes.size() / size_in_bytes(element));
    module.symbols.back().bytes = std::move(bytes);
  };
  add("i", Scalar::i32, {0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0x80, 42, 0, 0, 0});
  add("l", Scalar::i64, {0, 0, 0, 0, 0, 0, 0, 0x80});
  add("h", Scalar::bf16, {0x80, 0x3F, 0, 0x80});
  add("f", Scalar::f32, {0, 0, 0xC0, 0x7F});
  add("d", Scalar::f64, {1, 2, 3, 4, 5, 6, 7, 8});
  add("p", Scalar::f16x2, {1, 2, 3, 4});
  const std::string text = emit_ptx(module, find_target("sm_80"));
  CHECK_THAT(text, Contains(".global .align 16 .s32 i[3] = {\n-1,-2147483648,42\n};\n"));
  CHECK_THAT(text, Contains(".s64 l[1] = {\n-9223372036854775808\n};\n"));
  CHECK_THAT(text, Contains(".b16 h[2] = {\n16256,32768\n};\n"));
  CHECK_THAT(text, Contains(".f32 f[1] = {\n0f7FC00000\n};\n"));
  CHECK_THAT(text, Contains(".f64 d[1] = {\n0d0807060504030201\n};\n"));
  CHECK_THAT(text, Contains(".b32 p[1] = {\n0x04030201\n};\n"));
}

TEST_CASE("long arrays print as words of eight bytes") {
  constexpr size_t kLong = 64 * 1024;
  const auto text_of = [](size_t bytes, uint32_t alignment) {
    Module module;
    add_symbol(module, "s", Scalar::f16, bytes / 2);
    module.symbols.back().bytes.clear();
    for (size_t i = 0; i < bytes; ++i)
      module.symbols.back().bytes.push_back(static_cast<uint8_t>(i % 251));
    module.symbols.back().alignment = alignment;
    return emit_ptx(module, find_target("sm_80"));
  };
  CHECK_THAT(text_of(kLong, 16),
             Contains(".align 16 .b64 s[8192] = {\n0x0706050403020100,0x0F0E0D0C0B0A0908,"));
  CHECK_THAT(text_of(kLong - 2, 16), Contains(".b16 s[32767] = {\n256,770,"));
  CHECK_THAT(text_of(kLong + 2, 16), Contains(".b16 s[32769]")); // not a number of words
  CHECK_THAT(text_of(kLong, 4), Contains(".align 4 .b16 s[32768]"));
}
