// The PTX interpreter against hand-written PTX whose results follow from the PTX ISA.
#include "tests/support/ptx_interpreter.h"
#include "tests/support/ptx_interpreter_float.h"
#include "tests/support/ptx_snippet.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <limits>

using namespace sparsertc;
using sparsertc::test::evaluate;
using sparsertc::test::Snippet;

namespace {

uint32_t bits(float value) {
  return std::bit_cast<uint32_t>(value);
}
uint64_t bits(double value) {
  return std::bit_cast<uint64_t>(value);
}

/// One 32-bit result of an operation on two 32-bit values.
uint32_t op32(const std::string& operation, uint32_t a, uint32_t b = 0, uint32_t c = 0) {
  return static_cast<uint32_t>(evaluate(operation, 32, 32, {a, b, c}));
}
uint64_t op64(const std::string& operation, uint64_t a, uint64_t b = 0, uint64_t c = 0) {
  return evaluate(operation, 64, 64, {a, b, c});
}
uint16_t op16(const std::string& operation, uint16_t a, uint16_t b = 0, uint16_t c = 0) {
  return static_cast<uint16_t>(evaluate(operation, 16, 16, {a, b, c}));
}

} // namespace

TEST_CASE("integer arithmetic wraps, clamps and widens as the ISA says") {
  CHECK(op32("add.s32 %d, %a, %b;", 0x7fffffff, 1) == 0x80000000);
  CHECK(op32("sub.s32 %d, %a, %b;", 1, 2) == 0xffffffff);
  CHECK(op32("sub.s32 %d, %a, -5;", 1) == 6);
  CHECK(op32("mul.lo.s32 %d, %a, %b;", 0x10001, 0x10001) == 0x20001);
  CHECK(op32("mul.hi.u32 %d, %a, %b;", 0xffffffff, 0xffffffff) == 0xfffffffe);
  CHECK(op32("mul.hi.s32 %d, %a, %b;", 0xffffffff, 2) == 0xffffffff);
  CHECK(op64("mul.hi.u64 %d, %a, %b;", ~0ull, ~0ull) == ~0ull - 1);
  CHECK(op64("mul.hi.s64 %d, %a, %b;", ~0ull, 5) == ~0ull);
  CHECK(op32("mad.lo.s32 %d, %a, %b, %c;", 7, 6, 5) == 47);
  CHECK(evaluate("mul.wide.s32 %d, %a, %b;", 64, 32, {0xffffffff, 4, 0}) == ~0ull - 3);
  CHECK(evaluate("mul.wide.u32 %d, %a, %b;", 64, 32, {0xffffffff, 4, 0}) == 0x3fffffffcull);
  CHECK(op32("div.s32 %d, %a, %b;", static_cast<uint32_t>(-7), 2) == static_cast<uint32_t>(-3));
  CHECK(op32("rem.s32 %d, %a, %b;", static_cast<uint32_t>(-7), 2) == static_cast<uint32_t>(-1));
  CHECK(op32("div.u32 %d, %a, %b;", 0xfffffffe, 3) == 0x55555554);
  CHECK(op64("rem.u64 %d, %a, %b;", ~0ull, 10) == 5);
  CHECK(op32("min.s32 %d, %a, %b;", 0xffffffff, 1) == 0xffffffff);
  CHECK(op32("min.u32 %d, %a, %b;", 0xffffffff, 1) == 1);
  CHECK(op32("max.s32 %d, %a, %b;", 0xffffffff, 1) == 1);
  CHECK(op32("neg.s32 %d, %a;", 5) == static_cast<uint32_t>(-5));
  CHECK(op32("abs.s32 %d, %a;", static_cast<uint32_t>(-5)) == 5);
  CHECK(op32("and.b32 %d, %a, %b;", 0xf0f0, 0xff00) == 0xf000);
  CHECK(op32("or.b32 %d, %a, %b;", 0xf0f0, 0xff00) == 0xfff0);
  CHECK(op32("xor.b32 %d, %a, %b;", 0xf0f0, 0xff00) == 0x0ff0);
  CHECK(op32("not.b32 %d, %a;", 0) == 0xffffffff);
  CHECK(op32("shl.b32 %d, %a, %b;", 1, 31) == 0x80000000);
  CHECK(op32("shl.b32 %d, %a, %b;", 1, 32) == 0);
  CHECK(op32("shr.u32 %d, %a, %b;", 0x80000000, 35) == 0);
  CHECK(op32("shr.s32 %d, %a, %b;", 0x80000000, 35) == 0xffffffff);
  CHECK(op64("shl.b64 %d, %a, 40;", 3) == 3ull << 40);
  CHECK(op32("popc.b32 %d, %a;", 0xf00f) == 8);
  CHECK(op32("clz.b32 %d, %a;", 0) == 32);
  CHECK(op32("clz.b32 %d, %a;", 0x10000) == 15);
  CHECK(evaluate("clz.b64 %d, %a;", 32, 64, {1, 0, 0}) == 63);
  CHECK(op32("brev.b32 %d, %a;", 1) == 0x80000000);
  CHECK(op64("brev.b64 %d, %a;", 2) == 1ull << 62);
  CHECK(op32("bfe.u32 %d, %a, 8, 12;", 0x12345678) == 0x456);
  CHECK(op32("prmt.b32 %d, %a, %b, 0x5410;", 0x22221111, 0x44443333) == 0x33331111);
  CHECK(op32("shf.l.wrap.b32 %d, %a, %b, 8;", 0x11223344, 0x55667788) == 0x66778811);
}

TEST_CASE("comparisons: signed, unsigned, and ordered or not for NaN") {
  const auto compare = [](const std::string& words, uint32_t a, uint32_t b) {
    return op32(fmt::format("setp.{} %p, %a, %b; selp.b32 %d, 1, 0, %p;", words), a, b);
  };
  CHECK(compare("lt.s32", 0xffffffff, 0) == 1);
  CHECK(compare("lt.u32", 0xffffffff, 0) == 0);
  CHECK(compare("hs.u32", 0xffffffff, 0) == 1);
  CHECK(compare("ne.b32", 3, 3) == 0);
  const uint32_t nan = 0x7fc00000, one = bits(1.0f);
  for (const char* ordered : {"eq", "ne", "lt", "le", "gt", "ge", "num"})
    CHECK(compare(fmt::format("{}.f32", ordered), nan, one) == 0);
  for (const char* unordered : {"equ", "neu", "ltu", "leu", "gtu", "geu", "nan"})
    CHECK(compare(fmt::format("{}.f32", unordered), nan, one) == 1);
  CHECK(compare("eq.f32", 0, 0x80000000) == 1);
  CHECK(op32("setp.lt.and.s32 %p, %a, %b, %q; selp.b32 %d, 1, 0, %p;", 1, 2) == 0);
  CHECK(op32("setp.lt.or.s32 %p, %a, %b, !%q; selp.b32 %d, 1, 0, %p;", 3, 2) == 1);
  CHECK(op32("setp.lt.s32 %p|%q, %a, %b; selp.b32 %d, 1, 0, %q;", 3, 2) == 1);
  CHECK(op32("setp.eq.f16 %p, %ha, %ha; selp.b32 %d, 1, 0, %p;", 0x7e00) == 0);
}

TEST_CASE("f32 and f64 are rounded once") {
  CHECK(op32("add.rn.f32 %d, %a, %b;", bits(1.0f), bits(0x1p-24f)) == bits(1.0f));
  // 1 + 2^-12 squared is 1 + 2^-11 + 2^-24: only the fused operation keeps the last term.
  const float x = 1 + 0x1p-12f;
  CHECK(op32("fma.rn.f32 %d, %a, %b, %c;", bits(x), bits(x), bits(-1 - 0x1p-11f)) ==
        bits(0x1p-24f));
  CHECK(op32("mul.rn.f32 %d, %a, %b;", bits(x), bits(x)) == bits(1 + 0x1p-11f));
  CHECK(op32("div.rn.f32 %d, %a, %b;", bits(1.0f), bits(3.0f)) == bits(1.0f / 3.0f));
  CHECK(op32("sqrt.rn.f32 %d, %a;", bits(2.0f)) == bits(std::sqrt(2.0f)));
  CHECK(op32("mul.rn.f32 %d, %a, 0f40400000;", bits(2.0f)) == bits(6.0f));
  // Subnormal results stay.
  CHECK(op32("mul.rn.f32 %d, %a, %b;", bits(0x1p-100f), bits(0x1p-40f)) == bits(0x1p-140f));
  CHECK(op64("fma.rn.f64 %d, %a, %b, %c;", bits(1 + 0x1p-30), bits(1 + 0x1p-30),
             bits(-1 - 0x1p-29)) == bits(0x1p-60));
  CHECK(op64("add.rn.f64 %d, %a, 0d3FF0000000000000;", bits(2.0)) == bits(3.0));
  CHECK(op32("neg.f32 %d, %a;", 0) == 0x80000000);
  CHECK(op32("abs.f32 %d, %a;", bits(-2.5f)) == bits(2.5f));
  CHECK(op32("min.f32 %d, %a, %b;", 0x7fc00000, bits(1.0f)) == bits(1.0f));
  CHECK(op32("max.f32 %d, %a, %b;", 0x80000000, 0) == 0);
  // f32 arithmetic gives one NaN.
  CHECK(op32("add.rn.f32 %d, %a, %b;", 0x7f800000, 0xff800000) == 0x7fffffff);
  CHECK(op32("fma.rn.f32 %d, %a, %b, %c;", 0xffc12345, 0, 0) == 0x7fffffff);
}

TEST_CASE("operations that an assembler may fuse are refused") {
  for (const char* text : {"add.f32 %d, %a, %b;", "mul.f32 %d, %a, %b;"})
    CHECK_THROWS_WITH(op32(text, 0), Catch::Contains("may be fused"));
}

TEST_CASE("16-bit floats: every product and sum against exact arithmetic") {
  CHECK(op16("fma.rn.f16 %d, %a, %b, %c;", 0x3c01, 0x3c01, 0xbc02) == 0x0010); // 2^-20
  CHECK(op16("add.rn.f16 %d, %a, %b;", 0x7bff, 0x7bff) == 0x7c00);
  CHECK(op16("mul.rn.f16 %d, %a, %b;", 0x0001, 0x3800) == 0x0000); // half the least: ties to even
  CHECK(op16("mul.rn.f16 %d, %a, %b;", 0x0003, 0x3800) == 0x0002);
  CHECK(op16("sub.rn.f16 %d, %a, %b;", 0x7c00, 0x7c00) == 0x7fff);
  CHECK(op16("add.rn.bf16 %d, %a, %b;", 0x3f80, 0x3b80) == 0x3f80); // 1 + 2^-8: tie to even
  CHECK(op16("add.rn.bf16 %d, %a, %b;", 0x3f81, 0x3b80) == 0x3f82);
  CHECK(op32("fma.rn.f16x2 %d, %a, %b, %c;", 0x3c004000, 0x40003c00, 0x00003c00) == 0x40004200);
  CHECK(op32("add.rn.bf16x2 %d, %a, %b;", 0x3f804000, 0x3f803f80) == 0x40004040);
  CHECK(op16("neg.bf16 %d, %a;", 0x3f80) == 0xbf80);
  CHECK(op32("add.rn.f32.f16 %d, %ha, %b;", 0x3c00, bits(0x1p-20f)) == bits(1 + 0x1p-20f));

  // A long double holds each product and sum of f16 exactly: one rounding from there is the truth.
  uint32_t state = 1;
  const auto next = [&] {
    state = state * 1664525 + 1013904223;
    return static_cast<uint16_t>(state >> 16);
  };
  for (int i = 0; i < 200000; ++i) {
    const uint16_t a = next(), b = next(), c = next();
    const long double exact = static_cast<long double>(ptx::half_to_float(a)) *
                                  static_cast<long double>(ptx::half_to_float(b)) +
                              static_cast<long double>(ptx::half_to_float(c));
    if (!std::isfinite(static_cast<double>(exact)))
      continue;
    // The sum has at most 22 + 42 bits; where it is no double its neighbours decide by sign only.
    const double near = static_cast<double>(exact);
    uint16_t expected =
        static_cast<uint16_t>(ptx::round_to_format(near, ptx::kF16, ptx::Rounding::nearest));
    if (near != exact) {
      // Nudge the rounded double toward the exact value: it then lies on the right side of ties.
      const double nudged = std::nextafter(near, exact > near ? HUGE_VAL : -HUGE_VAL);
      expected =
          static_cast<uint16_t>(ptx::round_to_format(nudged, ptx::kF16, ptx::Rounding::nearest));
    }
    if (expected == 0x8000 && exact == 0)
      continue;
    if (ptx::half_fma(a, b, c) != expected) {
      CAPTURE(a, b, c);
      CHECK(ptx::half_fma(a, b, c) == expected);
    }
  }
  // A product far above and an addend far below a tie: rounding twice would lose the addend.
  // 256.5 in bf16 is a tie between 256 and 258 -> with any positive addend it goes up.
  CHECK(ptx::bfloat_fma(0x4381 /* 258 */, 0x3f80, 0x0001) == 0x4381);
  CHECK(ptx::bfloat_fma(0x3f81, 0x3f80 + 0x40, 0x0001) ==
        static_cast<uint16_t>(
            ptx::round_to_format(1.0078125 * 1.5 + 1e-30, ptx::kBf16, ptx::Rounding::nearest)));
}

TEST_CASE("conversions with each rounding") {
  using ptx::Rounding;
  const uint32_t value = bits(1 + 0x1p-11f); // a tie between 1 and 1 + 2^-10 in f16
  CHECK(evaluate("cvt.rn.f16.f32 %d, %a;", 16, 32, {value, 0, 0}) == 0x3c00);
  CHECK(evaluate("cvt.rz.f16.f32 %d, %a;", 16, 32, {value, 0, 0}) == 0x3c00);
  CHECK(evaluate("cvt.rp.f16.f32 %d, %a;", 16, 32, {value, 0, 0}) == 0x3c01);
  CHECK(evaluate("cvt.rm.f16.f32 %d, %a;", 16, 32, {value | 0x80000000, 0, 0}) == 0xbc01);
  CHECK(evaluate("cvt.rn.f16.f32 %d, %a;", 16, 32, {bits(65520.0f), 0, 0}) == 0x7c00);
  CHECK(evaluate("cvt.rz.f16.f32 %d, %a;", 16, 32, {bits(1e30f), 0, 0}) == 0x7bff);
  CHECK(evaluate("cvt.rn.f16.f32 %d, %a;", 16, 32, {0x7fc00000, 0, 0}) == 0x7fff);
  CHECK(evaluate("cvt.rn.f16.f32 %d, %a;", 16, 32, {bits(0x1p-25f), 0, 0}) == 0);
  CHECK(evaluate("cvt.rn.f16.f32 %d, %a;", 16, 32, {bits(0x1.8p-25f), 0, 0}) == 1);
  CHECK(evaluate("cvt.rn.bf16.f32 %d, %a;", 16, 32, {0x3f808000, 0, 0}) == 0x3f80);
  CHECK(evaluate("cvt.rn.bf16.f32 %d, %a;", 16, 32, {0x3f818000, 0, 0}) == 0x3f82);
  CHECK(evaluate("cvt.f32.f16 %d, %a;", 32, 16, {0x0001, 0, 0}) == bits(0x1p-24f));
  CHECK(evaluate("cvt.f32.bf16 %d, %a;", 32, 16, {0x3f80, 0, 0}) == bits(1.0f));
  CHECK(evaluate("cvt.rn.f32.f64 %d, %a;", 32, 64, {bits(1 + 0x1p-24), 0, 0}) == bits(1.0f));
  CHECK(evaluate("cvt.rp.f32.f64 %d, %a;", 32, 64, {bits(1 + 0x1p-50), 0, 0}) ==
        bits(1 + 0x1p-23f));
  CHECK(evaluate("cvt.rn.f32.f64 %d, %a;", 32, 64, {bits(0x1p-150), 0, 0}) == 0);
  CHECK(evaluate("cvt.f64.f32 %d, %a;", 64, 32, {bits(1.5f), 0, 0}) == bits(1.5));
  CHECK(evaluate("cvt.rn.f32.s32 %d, %a;", 32, 32, {0x01000001, 0, 0}) == bits(0x1p24f));
  CHECK(evaluate("cvt.rp.f32.u32 %d, %a;", 32, 32, {0x01000001, 0, 0}) == bits(0x1p24f + 2));
  CHECK(evaluate("cvt.rn.f32.u64 %d, %a;", 32, 64, {~0ull, 0, 0}) == bits(0x1p64f));
  CHECK(evaluate("cvt.rn.f64.s64 %d, %a;", 64, 64, {~0ull, 0, 0}) == bits(-1.0));
  const auto to_int = [](const char* words, float from) {
    return static_cast<int32_t>(
        evaluate(fmt::format("cvt.{}.s32.f32 %d, %a;", words), 32, 32, {bits(from), 0, 0}));
  };
  CHECK(to_int("rni", 2.5f) == 2);
  CHECK(to_int("rni", 3.5f) == 4);
  CHECK(to_int("rzi", -2.7f) == -2);
  CHECK(to_int("rmi", -2.1f) == -3);
  CHECK(to_int("rpi", 2.1f) == 3);
  CHECK(to_int("rzi", 1e20f) == std::numeric_limits<int32_t>::max());
  CHECK(to_int("rzi", std::nanf("")) == 0);
  CHECK(evaluate("cvt.rzi.s64.f32 %d, %a;", 64, 32, {0x7fc00000, 0, 0}) == 1ull << 63);
  CHECK(evaluate("cvt.rmi.f32.f32 %d, %a;", 32, 32, {bits(-1.5f), 0, 0}) == bits(-2.0f));
  CHECK(evaluate("cvt.s64.s32 %d, %a;", 64, 32, {0xffffffff, 0, 0}) == ~0ull);
  CHECK(evaluate("cvt.u64.u32 %d, %a;", 64, 32, {0xffffffff, 0, 0}) == 0xffffffffull);
  CHECK(evaluate("cvt.u32.u64 %d, %a;", 32, 64, {0x123456789ull, 0, 0}) == 0x23456789);
  CHECK(evaluate("cvt.sat.s8.s32 %d, %a;", 32, 32, {1000, 0, 0}) == 127);
  CHECK(evaluate("cvt.rn.f16x2.f32 %d, %a, %b;", 32, 32, {bits(1.0f), bits(2.0f), 0}) ==
        0x3c004000);
  CHECK(evaluate("cvt.rna.tf32.f32 %d, %a;", 32, 32, {0x3f801000, 0, 0}) == 0x3f802000);
  CHECK_THROWS_AS(evaluate("cvt.f16.f32 %d, %a;", 16, 32, {0, 0, 0}), ptx::Error);
}

TEST_CASE("moves pack, unpack and read special registers") {
  CHECK(evaluate("mov.b32 %d, {%a, %b};", 32, 16, {0x1111, 0x2222, 0}) == 0x22221111);
  CHECK(evaluate("mov.b32 {%hx, %d}, %a;", 16, 32, {0x22221111, 0, 0}) == 0x2222);
  CHECK(evaluate("mov.b64 %d, {%a, %b};", 64, 32, {1, 2, 0}) == 0x200000001ull);
  CHECK(evaluate("mov.b32 %d, {0, %a};", 32, 16, {0x3f80, 0, 0}) == bits(1.0f));
  CHECK(evaluate("mov.u32 %d, %ntid.x;", 32, 32, {0, 0, 0}) == 1);
}

TEST_CASE("threads know their places and write them") {
  Snippet snippet(R"(
    .visible .entry sparsertc_places(.param .u64 out, .param .u32 scale)
    {
      .reg .b32 %r<10>; .reg .b64 %rd<4>;
      ld.param.u64 %rd1, [out];
      ld.param.u32 %r9, [scale];
      cvta.to.global.u64 %rd1, %rd1;
      mov.u32 %r1, %tid.x;  mov.u32 %r2, %tid.y;  mov.u32 %r3, %ctaid.x;
      mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mov.u32 %r6, %laneid;
      mad.lo.s32 %r7, %r3, %r5, %r2;
      mad.lo.s32 %r7, %r7, %r4, %r1;
      mul.lo.s32 %r8, %r7, %r9;
      mad.lo.s32 %r8, %r6, 1000, %r8;
      mul.wide.s32 %rd2, %r7, 4;
      add.s64 %rd3, %rd1, %rd2;
      st.global.u32 [%rd3], %r8;
      ret;
    })");
  std::vector<uint32_t> out(3 * 40 * 2, 7);
  snippet.argument(snippet.machine.register_buffer(out.data(), out.size() * 4, true));
  snippet.argument(2);
  const ptx::RunStatistics statistics = snippet.run("sparsertc_places", {3, 1, 1}, {40, 2, 1});
  for (uint32_t i = 0; i < out.size(); ++i)
    CHECK(out[i] == 2 * i + 1000 * (i % 80 % 32));
  CHECK(statistics.instructions == 17 * out.size());
}

TEST_CASE("loads and stores: vectors, sizes, cache and order words, spaces") {
  Snippet snippet(R"(
    .global .align 16 .b8 table[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 255, 255, 255, 255};
    .const .align 4 .f32 weights[2] = {0f3F800000, 0fC0000000};
    .visible .entry sparsertc_memory(.param .u64 .ptr .global .align 16 in, .param .u64 out)
    {
      .reg .b32 %r<10>; .reg .b64 %rd<6>; .reg .f32 %f<4>; .reg .b16 %h<4>;
      .shared .align 16 .b8 local_words[16];
      ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
      ld.global.nc.L1::no_allocate.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
      st.global.v2.u32 [%rd2], {%r4, %r3};
      ld.global.s8 %r5, [%rd1+3];
      st.global.cs.u32 [%rd2+8], %r5;
      ld.global.u8 %r5, [%rd1+3];
      st.relaxed.gpu.global.u32 [%rd2+12], %r5;
      mov.u64 %rd3, table;
      ld.acquire.gpu.global.u32 %r6, [%rd3+12];
      st.global.u32 [%rd2+16], %r6;
      ld.const.f32 %f1, [weights+4];
      st.global.f32 [%rd2+20], %f1;
      mov.u32 %r7, local_words;
      st.shared.v2.b32 [%r7+8], {%r1, %r2};
      ld.shared.u16 %h1, [local_words+8];
      st.global.u16 [%rd2+24], %h1;
      st.global.u8 [%rd2+26], %r2;
      st.global.b8 [%rd2+27], 9;
      cvta.shared.u64 %rd4, 8;
      ld.u32 %r8, [%rd4];
      st.u32 [%rd2+28], %r8;
      ret;
    })");
  const std::vector<uint32_t> in = {0x81000011, 0x22, 0x33, 0x44};
  std::vector<uint32_t> out(8);
  snippet.argument(snippet.machine.register_buffer(in.data(), 16));
  snippet.argument(snippet.machine.register_buffer(out.data(), 32, true));
  snippet.run("sparsertc_memory", {}, {});
  CHECK(out == std::vector<uint32_t>{0x44, 0x33, 0xffffff81, 0x81, 0xffffffff, 0xc0000000,
                                     0x09220011, 0x81000011});
}

TEST_CASE("branches, predicates, tables of labels and loops") {
  Snippet snippet(R"(
    .visible .entry sparsertc_control(.param .u64 out)
    {
      .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %rd<4>;
      ld.param.u64 %rd1, [out];
      mov.u32 %r1, %tid.x;
      mov.u32 %r2, 0; mov.u32 %r3, 0;
    $loop:
      setp.ge.u32 %p1, %r3, %r1;
      @%p1 bra $done;
      add.u32 %r2, %r2, %r3;
      add.u32 %r3, %r3, 1;
      bra.uni $loop;
    $done:
      setp.lt.u32 %p2, %r1, 3;
      @!%p2 bra $store;
      targets: .branchtargets $a, $b, $c;
      brx.idx %r1, targets;
    $a: add.u32 %r2, %r2, 100; bra $store;
    $b: add.u32 %r2, %r2, 200; bra $store;
    $c: add.u32 %r2, %r2, 300;
    $store:
      mul.wide.u32 %rd2, %r1, 4;
      add.u64 %rd3, %rd1, %rd2;
      @%p2 st.global.u32 [%rd3], %r2;
      @%p2 exit;
      st.global.u32 [%rd3], %r2;
    })");
  std::vector<uint32_t> out(6);
  snippet.argument(snippet.machine.register_buffer(out.data(), out.size() * 4, true));
  snippet.run("sparsertc_control", {}, {6, 1, 1});
  CHECK(out == std::vector<uint32_t>{100, 200, 301, 3, 6, 10});
}

TEST_CASE("functions: parameters in and out, register parameters, nested calls, several units") {
  const std::vector<std::string> units = {R"(.version 7.8
.target sm_80
.address_size 64
    .extern .func (.param .b32 result) twice(.param .b32 x);
    .func (.reg .b32 %res) plus(.reg .b32 %x, .reg .b32 %y)
    {
      add.u32 %res, %x, %y;
      ret;
    }
    .visible .entry sparsertc_calls(.param .u64 out)
    {
      .reg .b32 %r<6>; .reg .b64 %rd<4>;
      ld.param.u64 %rd1, [out];
      mov.u32 %r1, 20;
      {
        .param .b32 argument; .param .b32 back;
        st.param.b32 [argument], %r1;
        call.uni (back), twice, (argument);
        ld.param.b32 %r2, [back];
      }
      call (%r3), plus, (%r2, 2);
      st.global.u32 [%rd1], %r3;
      ret;
    }
)",
                                          R"(.version 7.8
.target sm_80
.address_size 64
    .func (.param .b32 r) same(.param .b32 x)
    {
      .reg .b32 %r1;
      ld.param.b32 %r1, [x];
      st.param.b32 [r], %r1;
      ret;
    }
    .visible .func (.param .b32 result) twice(.param .b32 x)
    {
      .reg .b32 %r<3>;
      .param .b32 a; .param .b32 b;
      ld.param.b32 %r1, [x];
      st.param.b32 [a], %r1;
      call (b), same, (a);
      ld.param.b32 %r2, [b];
      add.u32 %r2, %r2, %r1;
      st.param.b32 [result], %r2;
      ret;
    }
)"};
  const ptx::Program program = ptx::parse_units(units);
  CHECK(program.entries() == std::vector<std::string>{"sparsertc_calls"});
  ptx::Machine machine;
  uint32_t out = 0;
  const uint64_t argument = machine.register_buffer(&out, 4, true);
  machine.run(program, "sparsertc_calls", {}, {}, {&argument, 1});
  CHECK(out == 42);
  CHECK(program.count("call") == 3);
  CHECK(program.count("add.u32") == 2);
}

TEST_CASE("barriers order shared memory: a reversal, and parts of a block at their own barriers") {
  Snippet snippet(R"(
    .extern .shared .align 16 .b8 dynamic[];
    .visible .entry sparsertc_reverse(.param .u64 out)
    {
      .reg .pred %p<2>; .reg .b32 %r<10>; .reg .b64 %rd<4>;
      ld.param.u64 %rd1, [out];
      mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y;
      mov.u32 %r3, dynamic;
      mad.lo.u32 %r4, %r2, 64, %r1;
      shl.b32 %r5, %r4, 2;
      add.u32 %r5, %r5, %r3;
      st.shared.u32 [%r5], %r4;
      add.u32 %r6, %r2, 1;
      bar.sync %r6, 64;
      xor.b32 %r7, %r4, 63;
      shl.b32 %r7, %r7, 2;
      add.u32 %r7, %r7, %r3;
      ld.shared.u32 %r8, [%r7];
      mul.wide.u32 %rd2, %r4, 4;
      add.u64 %rd3, %rd1, %rd2;
      st.global.u32 [%rd3], %r8;
      bar.sync 0;
      ret;
    })");
  std::vector<uint32_t> out(128);
  snippet.argument(snippet.machine.register_buffer(out.data(), out.size() * 4, true));
  const ptx::RunStatistics statistics = snippet.run("sparsertc_reverse", {}, {64, 2, 1}, 512);
  for (uint32_t i = 0; i < 128; ++i)
    CHECK(out[i] == (i ^ 63));
  CHECK(statistics.barriers == 3);
}

TEST_CASE("asynchronous copies land at the wait, and fill the rest with zeros") {
  Snippet snippet(R"(
    .visible .entry sparsertc_async(.param .u64 in, .param .u64 out)
    {
      .reg .b32 %r<6>; .reg .b64 %rd<4>;
      .shared .align 16 .b8 area[32];
      ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
      mov.u32 %r1, area;
      cp.async.cg.shared.global [%r1], [%rd1], 16;
      cp.async.commit_group;
      cp.async.ca.shared.global [%r1+16], [%rd1+16], 8, 4;
      cp.async.commit_group;
      cp.async.wait_group 1;
      ld.shared.u32 %r2, [%r1+12];
      st.global.u32 [%rd2], %r2;
      cp.async.wait_group 0;
      ld.shared.u32 %r2, [%r1+16]; ld.shared.u32 %r3, [%r1+20];
      st.global.v2.u32 [%rd2+8], {%r2, %r3};
      ret;
    })");
  const std::vector<uint32_t> in = {1, 2, 3, 4, 5, 6};
  std::vector<uint32_t> out(4, 99);
  snippet.argument(snippet.machine.register_buffer(in.data(), in.size() * 4));
  snippet.argument(snippet.machine.register_buffer(out.data(), 16, true));
  snippet.run("sparsertc_async", {}, {});
  CHECK(out == std::vector<uint32_t>{4, 99, 5, 0});
}

TEST_CASE("warps shuffle, vote and reduce") {
  Snippet snippet(R"(
    .visible .entry sparsertc_warp(.param .u64 out)
    {
      .reg .pred %p<3>; .reg .b32 %r<12>; .reg .b64 %rd<4>;
      ld.param.u64 %rd1, [out];
      mov.u32 %r1, %laneid;
      add.u32 %r2, %r1, 100;
      shfl.sync.bfly.b32 %r3, %r2, 1, 31, 0xffffffff;
      shfl.sync.up.b32 %r4|%p1, %r2, 4, 0, 0xffffffff;
      shfl.sync.down.b32 %r5, %r2, 2, 0x181f, 0xffffffff;
      shfl.sync.idx.b32 %r6, %r2, 3, 31, 0xffffffff;
      setp.lt.u32 %p2, %r1, 5;
      vote.sync.ballot.b32 %r7, !%p2, 0xffffffff;
      redux.sync.add.s32 %r8, %r1, 0xffffffff;
      selp.b32 %r9, 1, 0, %p1;
      mul.wide.u32 %rd2, %r1, 32;
      add.u64 %rd3, %rd1, %rd2;
      st.global.v4.u32 [%rd3], {%r3, %r4, %r5, %r6};
      st.global.v2.u32 [%rd3+16], {%r7, %r8};
      st.global.u32 [%rd3+24], %r9;
      ret;
    })");
  std::vector<uint32_t> out(32 * 8);
  snippet.argument(snippet.machine.register_buffer(out.data(), out.size() * 4, true));
  snippet.run("sparsertc_warp", {}, {32, 1, 1});
  for (uint32_t lane = 0; lane < 32; ++lane) {
    CAPTURE(lane);
    CHECK(out[lane * 8] == 100 + (lane ^ 1));
    CHECK(out[lane * 8 + 1] == (lane < 4 ? lane + 100 : lane + 96));
    CHECK(out[lane * 8 + 2] == (lane % 8 < 6 ? lane + 102 : lane + 100));
    CHECK(out[lane * 8 + 3] == 103);
    CHECK(out[lane * 8 + 4] == 0xffffffe0);
    CHECK(out[lane * 8 + 5] == 496);
    CHECK(out[lane * 8 + 6] == (lane < 4 ? 0 : 1));
  }
}

TEST_CASE("atomics add up and return what was there") {
  Snippet snippet(R"(
    .visible .entry sparsertc_atomics(.param .u64 out)
    {
      .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .f32 %f<3>;
      ld.param.u64 %rd1, [out];
      mov.u32 %r1, %tid.x;
      atom.relaxed.gpu.global.add.u32 %r2, [%rd1], %r1;
      atom.global.max.s32 %r3, [%rd1+4], %r1;
      mov.f32 %f1, 0f3F800000;
      atom.global.add.f32 %f2, [%rd1+8], %f1;
      atom.global.cas.b32 %r4, [%rd1+12], 0, %r1;
      red.global.or.b32 [%rd1+16], %r1;
      atom.global.exch.b64 %rd2, [%rd1+24], 5;
      ret;
    })");
  std::vector<uint32_t> out(8);
  out[1] = 0xffffffff;
  snippet.argument(snippet.machine.register_buffer(out.data(), out.size() * 4, true));
  snippet.run("sparsertc_atomics", {2, 1, 1}, {10, 1, 1});
  CHECK(out == std::vector<uint32_t>{90, 9, bits(20.0f), 1, 15, 0, 5, 0});
}

TEST_CASE("a matrix fragment multiplies") {
  Snippet snippet(R"(
    .visible .entry sparsertc_mma(.param .u64 a, .param .u64 b, .param .u64 d)
    {
      .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .f32 %f<9>;
      ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [d];
      mov.u32 %r1, %laneid;
      shr.u32 %r2, %r1, 2; and.b32 %r3, %r1, 3;
      // A is 16x16 row-major f16: lane holds columns 2t, 2t+1 (and + 8) of rows g and g + 8
      mad.lo.u32 %r4, %r2, 32, 0; mad.lo.u32 %r4, %r3, 4, %r4;
      cvt.u64.u32 %rd4, %r4; add.u64 %rd4, %rd4, %rd1;
      ld.global.b32 %r5, [%rd4]; ld.global.b32 %r6, [%rd4+256];
      ld.global.b32 %r7, [%rd4+16]; ld.global.b32 %r8, [%rd4+272];
      // B is 16x8 column-major f16
      cvt.u64.u32 %rd5, %r4; add.u64 %rd5, %rd5, %rd2;
      ld.global.b32 %r9, [%rd5]; ld.global.b32 %r10, [%rd5+16];
      mov.f32 %f1, 0f3F800000;
      mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f5, %f6, %f7, %f8},
        {%r5, %r6, %r7, %r8}, {%r9, %r10}, {%f1, %f1, %f1, %f1};
      // D is 16x8 row-major f32
      mad.lo.u32 %r11, %r2, 32, 0; mad.lo.u32 %r11, %r3, 8, %r11;
      cvt.u64.u32 %rd6, %r11; add.u64 %rd6, %rd6, %rd3;
      st.global.v2.f32 [%rd6], {%f5, %f6};
      st.global.v2.f32 [%rd6+256], {%f7, %f8};
      ret;
    })");
  const auto half = [](int value) {
    return static_cast<uint16_t>(ptx::round_to_format(value, ptx::kF16, ptx::Rounding::nearest));
  };
  std::vector<uint16_t> a(256), b(128);
  std::vector<float> d(128), expected(128, 1.0f);
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      a[static_cast<size_t>(16 * i + k)] = half((i * 7 + k * 3) % 11 - 5);
  for (int k = 0; k < 16; ++k)
    for (int j = 0; j < 8; ++j)
      b[static_cast<size_t>(16 * j + k)] = half((k * 5 + j) % 9 - 4);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j)
      for (int k = 0; k < 16; ++k)
        expected[static_cast<size_t>(8 * i + j)] +=
            static_cast<float>(((i * 7 + k * 3) % 11 - 5) * ((k * 5 + j) % 9 - 4));
  snippet.argument(snippet.machine.register_buffer(a.data(), 512));
  snippet.argument(snippet.machine.register_buffer(b.data(), 256));
  snippet.argument(snippet.machine.register_buffer(d.data(), 512, true));
  snippet.run("sparsertc_mma", {}, {32, 1, 1});
  CHECK(d == expected);
}

TEST_CASE("four matrices of shared memory are loaded transposed") {
  Snippet snippet(R"(
    .visible .entry sparsertc_matrix(.param .u64 out)
    {
      .reg .b32 %r<16>; .reg .b64 %rd<4>;
      .shared .align 16 .b8 rows[1024];
      ld.param.u64 %rd1, [out];
      mov.u32 %r1, %laneid;
      // Row l, of elements 8 l + 0, ..., 8 l + 7, lies at 16 * (31 - l).
      sub.s32 %r2, 31, %r1;
      mov.u32 %r3, rows;
      mad.lo.s32 %r4, %r2, 16, %r3;
      mul.lo.s32 %r5, %r1, 0x00080008;
      add.s32 %r6, %r5, 0x00010000; add.s32 %r7, %r5, 0x00030002;
      add.s32 %r8, %r5, 0x00050004; add.s32 %r9, %r5, 0x00070006;
      st.shared.v4.b32 [%r4], {%r6, %r7, %r8, %r9};
      bar.sync 0;
      ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r10, %r11, %r12, %r13}, [%r4+0];
      mul.wide.u32 %rd2, %r1, 16;
      add.u64 %rd3, %rd2, %rd1;
      st.global.v4.b32 [%rd3], {%r10, %r11, %r12, %r13};
      ret;
    })");
  std::vector<uint32_t> out(128);
  snippet.argument(snippet.machine.register_buffer(out.data(), 512, true));
  snippet.run("sparsertc_matrix", {}, {32, 1, 1});
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      const uint32_t row = 8 * matrix + 2 * (lane % 4);
      CHECK(out[4 * lane + matrix] == (8 * (row + 1) + lane / 4) * 65536 + 8 * row + lane / 4);
    }
}

TEST_CASE("unrolled code runs at millions of instructions a second") {
  constexpr int kCount = 30000;
  std::string text = R"(
    .visible .entry sparsertc_speed(.param .u64 in, .param .u64 out)
    {
      .reg .f32 %f<40>; .reg .b32 %r<4>; .reg .b64 %rd<6>;
      ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
      mov.u32 %r1, %tid.x;
      mul.wide.u32 %rd3, %r1, 4;
      add.u64 %rd4, %rd1, %rd3;
      add.u64 %rd5, %rd2, %rd3;
)";
  for (int i = 0; i < 32; ++i)
    text += fmt::format("mov.f32 %f{}, 0f00000000;\n", i);
  for (int i = 0; i < kCount; ++i) {
    if (i % 3 == 0)
      text += fmt::format("ld.global.nc.f32 %f{}, [%rd4+{}];\n", 32 + i / 3 % 8, i % 64 * 4);
    text += fmt::format("fma.rn.f32 %f{0}, %f{1}, 0f{2:08X}, %f{0};\n", i % 32, 32 + i / 3 % 8,
                        bits(static_cast<float>(i) * 0x1p-16f));
  }
  text += "st.global.f32 [%rd5], %f0; ret; }";
  const auto start = std::chrono::steady_clock::now();
  Snippet snippet(text);
  const auto parsed = std::chrono::steady_clock::now();
  std::vector<float> in(1024, 1.0f), out(256);
  snippet.argument(snippet.machine.register_buffer(in.data(), in.size() * 4));
  snippet.argument(snippet.machine.register_buffer(out.data(), out.size() * 4, true));
  const ptx::RunStatistics statistics = snippet.run("sparsertc_speed", {}, {256, 1, 1});
  const auto done = std::chrono::steady_clock::now();
  const double parse_seconds = std::chrono::duration<double>(parsed - start).count();
  const double run_seconds = std::chrono::duration<double>(done - parsed).count();
  const double rate = static_cast<double>(statistics.instructions) / run_seconds;
  WARN(fmt::format("parsed {} instructions in {:.1f} ms; executed {:.0f} million a second", 40048,
                   parse_seconds * 1e3, rate * 1e-6));
  CHECK(statistics.instructions == 256u * 40040u);
  CHECK(rate > 3e6); // a tenth of what a plain build reaches
}
