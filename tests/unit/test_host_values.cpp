// Every value operation of host code against plain C++, in vector lanes and one lane.
#include "compiler/emit/host_program.h"
#include "ir/builder.h"
#include "tests/support/ptx_interpreter_float.h"
#include "tests/unit/host_kernels.h"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

using namespace sparsertc;
using namespace sparsertc::test;
using ir::Builder;
using ir::Comparison;
using ir::Conversion;
using ir::FunctionKind;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Type;

namespace {

using Bits = std::vector<uint64_t>;

struct ValueCase {
  Opcode code;
  Type type;
  uint8_t detail;
  std::vector<Scalar> sources;
  Scalar result;
  std::function<uint64_t(uint64_t, uint64_t, uint64_t)> expected;
};

float f(uint64_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits));
}
double d(uint64_t bits) {
  return std::bit_cast<double>(bits);
}
uint64_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}
uint64_t bits_of(double value) {
  return std::bit_cast<uint64_t>(value);
}
uint32_t u(uint64_t bits) {
  return static_cast<uint32_t>(bits);
}
uint16_t h(uint64_t bits) {
  return static_cast<uint16_t>(bits);
}

const ptx::FloatFormat& format_of(Scalar scalar) {
  switch (scalar) {
  case Scalar::f16:
    return ptx::kF16;
  case Scalar::bf16:
    return ptx::kBf16;
  case Scalar::f32:
    return ptx::kF32;
  default:
    return ptx::kF64;
  }
}

bool is_nan(Scalar scalar, uint64_t bits) {
  return std::isnan(ptx::decode(bits, format_of(scalar)));
}

/// Same bits, or both NaN (payloads and signs of NaN are the hardware's own).
bool same(Scalar scalar, uint64_t a, uint64_t b) {
  if (scalar == Scalar::f16x2 || scalar == Scalar::bf16x2) {
    const Scalar half = ir::half_of_pair(scalar);
    return same(half, a & 0xffff, b & 0xffff) && same(half, a >> 16, b >> 16);
  }
  if (Type(scalar).is_float() && is_nan(scalar, a) && is_nan(scalar, b))
    return true;
  return a == b;
}

uint64_t draw(std::mt19937_64& random, Scalar scalar) {
  const unsigned kind = random() % 8;
  const uint64_t any = random();
  if (scalar == Scalar::f16x2 || scalar == Scalar::bf16x2) {
    const Scalar half = ir::half_of_pair(scalar);
    return draw(random, half) | draw(random, half) << 16;
  }
  if (scalar == Scalar::i32 || scalar == Scalar::i64) {
    static constexpr int64_t kSpecial[] = {0,         1,  -1, INT32_MAX, INT32_MIN, INT64_MAX,
                                           INT64_MIN, 31, 32, 33,        63,        64};
    uint64_t value = any;
    if (kind < 3)
      value = static_cast<uint64_t>(kSpecial[any % std::size(kSpecial)]);
    else if (kind < 5)
      value = any % 100;
    return scalar == Scalar::i32 ? value & 0xffffffff : value;
  }
  const ptx::FloatFormat& format = format_of(scalar);
  const uint64_t sign = (any & 1) << (format.bits - 1);
  const int mantissa = format.precision - 1;
  const uint64_t fraction = (any >> 1) & ((uint64_t{1} << mantissa) - 1);
  const uint64_t exponents = (uint64_t{1} << (format.bits - format.precision)) - 1;
  switch (kind) {
  case 0: { // zero, infinity, NaN, one, the largest, the smallest
    const uint64_t special[] = {0,
                                exponents << mantissa,
                                (exponents << mantissa) | (uint64_t{1} << (mantissa - 1)),
                                (exponents / 2) << mantissa,
                                (exponents << mantissa) - 1,
                                1};
    return sign | special[(any >> 40) % std::size(special)];
  }
  case 1:
    return sign | fraction; // subnormal
  case 2:
  case 3:
  case 4: // near one, so that sums cancel and integers are hit
    return sign | (exponents / 2 + (any >> 60)) << mantissa | fraction;
  case 5: // few bits: ties
    return sign | ((any >> 40) % (exponents + 1)) << mantissa |
           (fraction & (uint64_t{3} << (mantissa - 2)));
  default:
    return sign | ((any >> 40) % (exponents + 1)) << mantissa | fraction;
  }
}

std::vector<uint8_t> packed(Scalar scalar, const Bits& values) {
  const uint32_t size = ir::size_in_bytes(scalar);
  std::vector<uint8_t> bytes(values.size() * size + 64);
  for (size_t i = 0; i < values.size(); ++i)
    std::memcpy(bytes.data() + i * size, &values[i], size);
  return bytes;
}

/// All cases as kernels of one module: out[column] = op(in0[column], ...); predicates are stored as
/// 0 or 1.
ir::Module value_module(const std::vector<ValueCase>& cases, uint32_t lanes) {
  ir::Module module;
  module.functions.reserve(cases.size());
  for (size_t c = 0; c < cases.size(); ++c) {
    const ValueCase& test = cases[c];
    module.functions.emplace_back();
    ir::Function& function = module.functions.back();
    function.name = "case" + std::to_string(c);
    function.kind = FunctionKind::kernel;
    function.block[0] = lanes;
    Builder b(module, function);
    std::vector<Reg> in;
    for (Scalar source : test.sources)
      in.push_back(b.parameter(device(source), "in" + std::to_string(in.size())));
    const Scalar stored = test.result == Scalar::pred ? Scalar::i32 : test.result;
    Reg out = b.parameter(device(stored), "out");
    Reg n = b.parameter(Scalar::i32, "n");
    const Column at = column(b, n, lanes);
    std::vector<Reg> values;
    for (size_t i = 0; i < in.size(); ++i)
      values.push_back(b.load(
          b.index(in[i], at.number, Operand::integer(ir::size_in_bytes(test.sources[i]))), 0));
    Reg result = b.fresh(test.result);
    ir::Op op;
    op.code = test.code;
    op.type = test.type;
    op.detail = test.detail;
    op.result = result;
    for (size_t i = 0; i < values.size(); ++i)
      op.operand[i] = values[i].id;
    b.append(op);
    if (test.result == Scalar::pred) {
      Reg one = b.constant(Scalar::i32, Operand::integer(1));
      result = b.select(Scalar::i32, result, one, Operand::integer(0));
    }
    Reg to = b.index(out, at.number, Operand::integer(ir::size_in_bytes(stored)));
    b.if_begin(at.inside);
    b.store(to, 0, result);
    b.end();
  }
  return module;
}

template <class Op>
std::function<uint64_t(uint64_t, uint64_t, uint64_t)> on_f32(Op op) {
  return [op](uint64_t a, uint64_t b, uint64_t c) { return bits_of(float(op(f(a), f(b), f(c)))); };
}
template <class Op>
std::function<uint64_t(uint64_t, uint64_t, uint64_t)> on_f64(Op op) {
  return [op](uint64_t a, uint64_t b, uint64_t c) { return bits_of(double(op(d(a), d(b), d(c)))); };
}
template <class Op>
std::function<uint64_t(uint64_t, uint64_t, uint64_t)> on_u32(Op op) {
  return [op](uint64_t a, uint64_t b, uint64_t c) { return uint64_t{u(op(u(a), u(b), u(c)))}; };
}
template <class Op>
std::function<uint64_t(uint64_t, uint64_t, uint64_t)> on_u64(Op op) {
  return [op](uint64_t a, uint64_t b, uint64_t c) { return uint64_t(op(a, b, c)); };
}
template <class Op>
std::function<uint64_t(uint64_t, uint64_t, uint64_t)> on_halves(Op op) {
  return [op](uint64_t a, uint64_t b, uint64_t c) {
    return uint64_t{op(h(a), h(b), h(c))} | uint64_t{op(h(a >> 16), h(b >> 16), h(c >> 16))} << 16;
  };
}

template <class Int, class Unsigned, class Wrap>
void integer_cases(std::vector<ValueCase>& cases, Scalar t, Wrap wrap) {
  constexpr unsigned kWidth = sizeof(Int) * 8;
  auto add = [&](Opcode code, std::vector<Scalar> sources, auto op) {
    cases.push_back({code, t, 0, std::move(sources), t, wrap(op)});
  };
  using U = Unsigned;
  add(Opcode::move, {t}, [](U a, U, U) { return a; });
  add(Opcode::add, {t, t}, [](U a, U b, U) { return a + b; });
  add(Opcode::sub, {t, t}, [](U a, U b, U) { return a - b; });
  add(Opcode::mul, {t, t}, [](U a, U b, U) { return a * b; });
  add(Opcode::divu, {t, t}, [](U a, U b, U) { return b == 0 ? ~U{0} : a / b; });
  add(Opcode::remu, {t, t}, [](U a, U b, U) { return b == 0 ? a : a % b; });
  add(Opcode::neg, {t}, [](U a, U, U) { return U{0} - a; });
  add(Opcode::abs, {t}, [](U a, U, U) { return Int(a) < 0 ? U{0} - a : a; });
  add(Opcode::min, {t, t}, [](U a, U b, U) { return U(std::min(Int(a), Int(b))); });
  add(Opcode::max, {t, t}, [](U a, U b, U) { return U(std::max(Int(a), Int(b))); });
  add(Opcode::minu, {t, t}, [](U a, U b, U) { return std::min(a, b); });
  add(Opcode::maxu, {t, t}, [](U a, U b, U) { return std::max(a, b); });
  add(Opcode::bit_and, {t, t}, [](U a, U b, U) { return a & b; });
  add(Opcode::bit_or, {t, t}, [](U a, U b, U) { return a | b; });
  add(Opcode::bit_xor, {t, t}, [](U a, U b, U) { return a ^ b; });
  add(Opcode::bit_not, {t}, [](U a, U, U) { return ~a; });
  add(Opcode::brev, {t}, [](U a, U, U) {
    U reversed = 0;
    for (unsigned i = 0; i < kWidth; ++i)
      reversed |= ((a >> i) & 1) << (kWidth - 1 - i);
    return reversed;
  });
  auto amount = [](U b) { return uint64_t{static_cast<uint32_t>(b)}; };
  add(Opcode::shl, {t, Scalar::i32},
      [=](U a, U b, U) { return amount(b) >= kWidth ? U{0} : a << amount(b); });
  add(Opcode::shr, {t, Scalar::i32},
      [=](U a, U b, U) { return amount(b) >= kWidth ? U{0} : a >> amount(b); });
  add(Opcode::sar, {t, Scalar::i32},
      [=](U a, U b, U) { return U(Int(a) >> std::min<uint64_t>(amount(b), kWidth - 1)); });
  cases.push_back({Opcode::popc, t, 0, {t}, Scalar::i32, [](uint64_t a, uint64_t, uint64_t) {
                     return uint64_t(std::popcount(U(a)));
                   }});
  cases.push_back({Opcode::clz, t, 0, {t}, Scalar::i32, [](uint64_t a, uint64_t, uint64_t) {
                     return uint64_t(std::countl_zero(U(a)));
                   }});
  auto compare = [&](Comparison which, auto op) {
    cases.push_back({Opcode::compare,
                     t,
                     static_cast<uint8_t>(which),
                     {t, t},
                     Scalar::pred,
                     [op](uint64_t a, uint64_t b, uint64_t) { return uint64_t{op(U(a), U(b))}; }});
  };
  compare(Comparison::eq, [](U a, U b) { return a == b; });
  compare(Comparison::ne, [](U a, U b) { return a != b; });
  compare(Comparison::lt, [](U a, U b) { return Int(a) < Int(b); });
  compare(Comparison::le, [](U a, U b) { return Int(a) <= Int(b); });
  compare(Comparison::gt, [](U a, U b) { return Int(a) > Int(b); });
  compare(Comparison::ge, [](U a, U b) { return Int(a) >= Int(b); });
  compare(Comparison::ltu, [](U a, U b) { return a < b; });
  compare(Comparison::leu, [](U a, U b) { return a <= b; });
  compare(Comparison::gtu, [](U a, U b) { return a > b; });
  compare(Comparison::geu, [](U a, U b) { return a >= b; });
}

void float_comparisons(std::vector<ValueCase>& cases, Scalar t) {
  auto compare = [&](Comparison which, auto op) {
    cases.push_back({Opcode::compare,
                     t,
                     static_cast<uint8_t>(which),
                     {t, t},
                     Scalar::pred,
                     [op, t](uint64_t a, uint64_t b, uint64_t) {
                       return uint64_t{
                           op(ptx::decode(a, format_of(t)), ptx::decode(b, format_of(t)))};
                     }});
  };
  compare(Comparison::eq, [](double a, double b) { return a == b; });
  compare(Comparison::ne, [](double a, double b) { return !(a == b); });
  compare(Comparison::lt, [](double a, double b) { return a < b; });
  compare(Comparison::le, [](double a, double b) { return a <= b; });
  compare(Comparison::gt, [](double a, double b) { return a > b; });
  compare(Comparison::ge, [](double a, double b) { return a >= b; });
  const uint64_t sign = uint64_t{1} << (format_of(t).bits - 1);
  cases.push_back(
      {Opcode::neg, t, 0, {t}, t, [=](uint64_t a, uint64_t, uint64_t) { return a ^ sign; }});
  cases.push_back(
      {Opcode::abs, t, 0, {t}, t, [=](uint64_t a, uint64_t, uint64_t) { return a & ~sign; }});
}

void conversion_cases(std::vector<ValueCase>& cases) {
  auto convert = [&](Scalar from, Scalar to, Conversion how, auto op) {
    cases.push_back({Opcode::convert,
                     to,
                     static_cast<uint8_t>(how),
                     {from},
                     to,
                     [op](uint64_t a, uint64_t, uint64_t) { return uint64_t(op(a)); }});
  };
  for (auto [from, to, how] : {std::tuple{Scalar::f16, Scalar::f32, Conversion::exact},
                               std::tuple{Scalar::f16, Scalar::f64, Conversion::exact},
                               std::tuple{Scalar::bf16, Scalar::f32, Conversion::exact},
                               std::tuple{Scalar::bf16, Scalar::f64, Conversion::exact},
                               std::tuple{Scalar::f32, Scalar::f64, Conversion::exact},
                               std::tuple{Scalar::f64, Scalar::f32, Conversion::nearest},
                               std::tuple{Scalar::f64, Scalar::f16, Conversion::nearest},
                               std::tuple{Scalar::f32, Scalar::f16, Conversion::nearest},
                               std::tuple{Scalar::f32, Scalar::bf16, Conversion::nearest}})
    convert(from, to, how, [from = from, to = to](uint64_t a) {
      return ptx::round_to_format(ptx::decode(a, format_of(from)), format_of(to),
                                  ptx::Rounding::nearest);
    });
  for (Scalar from : {Scalar::f16, Scalar::f32, Scalar::f64})
    for (Scalar to : {Scalar::i32, Scalar::i64})
      for (auto [how, rounding] : {std::pair{Conversion::nearest, ptx::Rounding::nearest},
                                   std::pair{Conversion::truncate, ptx::Rounding::zero},
                                   std::pair{Conversion::floor, ptx::Rounding::down},
                                   std::pair{Conversion::ceil, ptx::Rounding::up}})
        convert(from, to, how, [=, rounding = rounding](uint64_t a) {
          const bool narrow = to == Scalar::i32;
          const int64_t value =
              ptx::round_to_integer(ptx::decode(a, format_of(from)), rounding,
                                    narrow ? INT32_MIN : INT64_MIN, narrow ? INT32_MAX : INT64_MAX);
          return narrow ? uint64_t{static_cast<uint32_t>(value)} : static_cast<uint64_t>(value);
        });
  convert(Scalar::i32, Scalar::f64, Conversion::exact,
          [](uint64_t a) { return bits_of(double(int32_t(a))); });
  convert(Scalar::i32, Scalar::f32, Conversion::nearest,
          [](uint64_t a) { return bits_of(float(int32_t(a))); });
  convert(Scalar::i64, Scalar::f32, Conversion::nearest,
          [](uint64_t a) { return bits_of(float(int64_t(a))); });
  convert(Scalar::i64, Scalar::f64, Conversion::nearest,
          [](uint64_t a) { return bits_of(double(int64_t(a))); });
  convert(Scalar::i64, Scalar::i32, Conversion::exact, [](uint64_t a) { return a & 0xffffffff; });
  convert(Scalar::i32, Scalar::i64, Conversion::sign,
          [](uint64_t a) { return uint64_t(int64_t{int32_t(a)}); });
  convert(Scalar::i32, Scalar::i64, Conversion::zero, [](uint64_t a) { return a & 0xffffffff; });
}

std::vector<ValueCase> all_cases() {
  std::vector<ValueCase> cases;
  integer_cases<int32_t, uint32_t>(cases, Scalar::i32, [](auto op) { return on_u32(op); });
  integer_cases<int64_t, uint64_t>(cases, Scalar::i64, [](auto op) { return on_u64(op); });
  for (Scalar t : {Scalar::f16, Scalar::bf16, Scalar::f32, Scalar::f64})
    float_comparisons(cases, t);

  auto add = [&](Opcode code, Scalar t, std::vector<Scalar> sources, auto op) {
    cases.push_back({code, t, 0, std::move(sources), t, op});
  };
  const Scalar s = Scalar::f32;
  add(Opcode::add, s, {s, s}, on_f32([](float a, float b, float) { return a + b; }));
  add(Opcode::sub, s, {s, s}, on_f32([](float a, float b, float) { return a - b; }));
  add(Opcode::mul, s, {s, s}, on_f32([](float a, float b, float) { return a * b; }));
  add(Opcode::div, s, {s, s}, on_f32([](float a, float b, float) { return a / b; }));
  add(Opcode::sqrt, s, {s}, on_f32([](float a, float, float) { return std::sqrt(a); }));
  add(Opcode::fma, s, {s, s, s},
      on_f32([](float a, float b, float c) { return std::fma(a, b, c); }));
  const Scalar t = Scalar::f64;
  add(Opcode::add, t, {t, t}, on_f64([](double a, double b, double) { return a + b; }));
  add(Opcode::sub, t, {t, t}, on_f64([](double a, double b, double) { return a - b; }));
  add(Opcode::mul, t, {t, t}, on_f64([](double a, double b, double) { return a * b; }));
  add(Opcode::div, t, {t, t}, on_f64([](double a, double b, double) { return a / b; }));
  add(Opcode::sqrt, t, {t}, on_f64([](double a, double, double) { return std::sqrt(a); }));
  add(Opcode::fma, t, {t, t, t},
      on_f64([](double a, double b, double c) { return std::fma(a, b, c); }));

  struct Halves {
    Scalar one, two;
    uint16_t (*add)(uint16_t, uint16_t);
    uint16_t (*sub)(uint16_t, uint16_t);
    uint16_t (*mul)(uint16_t, uint16_t);
    uint16_t (*fma)(uint16_t, uint16_t, uint16_t);
  };
  for (const Halves& type : {Halves{Scalar::f16, Scalar::f16x2, ptx::half_add, ptx::half_sub,
                                    ptx::half_mul, ptx::half_fma},
                             Halves{Scalar::bf16, Scalar::bf16x2, ptx::bfloat_add, ptx::bfloat_sub,
                                    ptx::bfloat_mul, ptx::bfloat_fma}}) {
    auto both = [&](Opcode code, unsigned count, auto op) {
      cases.push_back(
          {code, type.one, 0, std::vector<Scalar>(count, type.one), type.one,
           [op](uint64_t a, uint64_t b, uint64_t c) { return uint64_t{op(h(a), h(b), h(c))}; }});
      cases.push_back(
          {code, type.two, 0, std::vector<Scalar>(count, type.two), type.two, on_halves(op)});
    };
    both(Opcode::add, 2, [k = type.add](uint16_t a, uint16_t b, uint16_t) { return k(a, b); });
    both(Opcode::sub, 2, [k = type.sub](uint16_t a, uint16_t b, uint16_t) { return k(a, b); });
    both(Opcode::mul, 2, [k = type.mul](uint16_t a, uint16_t b, uint16_t) { return k(a, b); });
    both(Opcode::fma, 3, type.fma);
    cases.push_back(
        {Opcode::neg, type.two, 0, {type.two}, type.two, [](uint64_t a, uint64_t, uint64_t) {
           return a ^ 0x80008000;
         }});
    cases.push_back(
        {Opcode::abs, type.two, 0, {type.two}, type.two, [](uint64_t a, uint64_t, uint64_t) {
           return a & 0x7fff7fff;
         }});
    cases.push_back({Opcode::pack,
                     type.two,
                     0,
                     {type.one, type.one},
                     type.two,
                     [](uint64_t a, uint64_t b, uint64_t) { return a | b << 16; }});
    cases.push_back(
        {Opcode::low, type.two, 0, {type.two}, type.one, [](uint64_t a, uint64_t, uint64_t) {
           return a & 0xffff;
         }});
    cases.push_back(
        {Opcode::high, type.two, 0, {type.two}, type.one, [](uint64_t a, uint64_t, uint64_t) {
           return a >> 16;
         }});
    cases.push_back({Opcode::bitcast,
                     Scalar::i32,
                     0,
                     {type.two},
                     Scalar::i32,
                     [](uint64_t a, uint64_t, uint64_t) { return a; }});
  }
  for (auto [from, to] : {std::pair{Scalar::f32, Scalar::i32}, std::pair{Scalar::i32, Scalar::f32},
                          std::pair{Scalar::f64, Scalar::i64}, std::pair{Scalar::i64, Scalar::f64},
                          std::pair{Scalar::f16, Scalar::bf16}})
    cases.push_back(
        {Opcode::bitcast, to, 0, {from}, to, [](uint64_t a, uint64_t, uint64_t) { return a; }});
  conversion_cases(cases);
  return cases;
}

} // namespace

TEST_CASE("value operations give IEEE's bits, in lanes and alone") {
  const std::vector<ValueCase> cases = all_cases();
  TaskPool pool(2);
  std::mt19937_64 random(seed());
  for (uint32_t lanes : {16u, 5u, 1u}) {
    const ir::Module module = value_module(cases, lanes);
    const HostProgram program = HostProgram::compile(module);
    // Not a multiple of the lanes: the last block runs lane by lane.
    const uint32_t n = lanes == 16 ? 4000 + 7 : 500 + 3;
    const uint32_t grid[3] = {(n + lanes - 1) / lanes, 1, 1};
    for (size_t c = 0; c < cases.size(); ++c) {
      const ValueCase& test = cases[c];
      std::vector<Bits> in(3, Bits(n));
      std::vector<std::vector<uint8_t>> bytes;
      std::vector<KernelArgument> arguments;
      for (size_t i = 0; i < test.sources.size(); ++i) {
        for (uint64_t& value : in[i])
          value = draw(random, test.sources[i]);
        bytes.push_back(packed(test.sources[i], in[i]));
      }
      for (const std::vector<uint8_t>& b : bytes)
        arguments.push_back(pointer(b.data()));
      const Scalar stored = test.result == Scalar::pred ? Scalar::i32 : test.result;
      const uint32_t size = ir::size_in_bytes(stored);
      std::vector<uint8_t> out(size_t{n + 1} * size, 0xa5);
      arguments.push_back(pointer(out.data()));
      arguments.push_back(integer(n));
      program.run("case" + std::to_string(c), grid, arguments, pool);
      for (uint32_t i = 0; i < n; ++i) {
        uint64_t got = 0;
        std::memcpy(&got, out.data() + size_t{i} * size, size);
        const uint64_t expected = test.expected(in[0][i], in[1][i], in[2][i]);
        if (!same(stored, got, expected)) {
          INFO("lanes " << lanes << ", " << ir::info(test.code).text << "."
                        << ir::to_string(test.type) << " detail " << int{test.detail} << std::hex
                        << " of 0x" << in[0][i] << " 0x" << in[1][i] << " 0x" << in[2][i]
                        << ": got 0x" << got << ", expected 0x" << expected << ", seed " << std::dec
                        << seed());
          FAIL();
        }
      }
      REQUIRE(out[size_t{n} * size] == 0xa5); // nothing behind the end was written
    }
  }
}
