// Host code against plain C++: every value operation in vector lanes and one lane, memory shapes,
// control flow, calls, and blocks whose lanes disagree.
#include "compiler/emit/host_program.h"
#include "compiler/emit/llvm.h"
#include "ir/builder.h"
#include "ir/error.h"
#include "tests/support/ptx_interpreter_float.h"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>

using namespace sparsertc;
using ir::Builder;
using ir::Comparison;
using ir::Conversion;
using ir::FunctionKind;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Space;
using ir::Type;

namespace {

Type device(Scalar element) {
  return Type::pointer(Space::device, element);
}

ir::Function& add_function(ir::Module& module, const std::string& name, FunctionKind kind,
                           uint32_t lanes = 1) {
  module.functions.reserve(16);
  module.functions.emplace_back();
  ir::Function& function = module.functions.back();
  function.name = name;
  function.kind = kind;
  function.block[0] = lanes;
  return function;
}

KernelArgument pointer(const void* p) {
  KernelArgument argument;
  argument.pointer = const_cast<void*>(p);
  return argument;
}
KernelArgument integer(int64_t value) {
  KernelArgument argument;
  argument.integer = value;
  return argument;
}

/// column = min(block_x * lanes + thread_x, n - 1), and whether it was inside.
struct Column {
  Reg number, inside;
};
Column column(Builder& b, Reg n, uint32_t lanes) {
  Reg first = b.mul(Scalar::i32, b.special(ir::Special::block_x), Operand::integer(lanes));
  Reg raw = b.add(Scalar::i32, first, b.special(ir::Special::thread_x));
  Column made;
  made.inside = b.compare(Comparison::lt, Scalar::i32, raw, n);
  Reg last = b.sub(Scalar::i32, n, Operand::integer(1));
  made.number = b.value(Opcode::min, Scalar::i32, {raw, last});
  return made;
}

uint32_t seed() {
  static const uint32_t value = [] {
    const uint32_t drawn = std::random_device{}();
    WARN("seed " << drawn);
    return drawn;
  }();
  return value;
}

// ---- value operations ---------------------------------------------------------------------------

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

// ---- whole kernels ----

namespace {

/// A small sparse matrix: per row, (column, value).
struct Sparse {
  uint32_t columns = 0;
  std::vector<std::vector<std::pair<uint32_t, float>>> rows;
};

Sparse random_sparse(std::mt19937_64& random, uint32_t rows, uint32_t columns, double density) {
  Sparse made;
  made.columns = columns;
  made.rows.resize(rows);
  std::uniform_real_distribution<double> unit(0, 1);
  std::uniform_real_distribution<float> value(-1, 1);
  for (auto& row : made.rows)
    for (uint32_t k = 0; k < columns; ++k)
      if (unit(random) < density)
        row.emplace_back(k, value(random));
  return made;
}

/// C = A * B as the lowering of SpMM writes it: a kernel that picks a tile by block_y, unrolled
/// tiles of four rows, the odd ones streamed through arrays of indices and values.
ir::Module spmm_module(const Sparse& a, uint32_t lanes, uint32_t n_known) {
  constexpr uint32_t kRows = 4;
  const uint32_t tiles = static_cast<uint32_t>((a.rows.size() + kRows - 1) / kRows);
  ir::Module module;
  module.functions.reserve(tiles + 1);
  ir::Symbol indices{"indices", device(Scalar::i32), 0, 16, {}};
  ir::Symbol values{"values", device(Scalar::f32), 0, 16, {}};
  module.symbols = {indices, values};
  std::vector<uint32_t> functions;
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    module.functions.emplace_back();
    ir::Function& function = module.functions.back();
    function.name = "tile_" + std::to_string(tile);
    functions.push_back(tile);
    Builder b(module, function);
    Reg from = b.parameter(device(Scalar::f32), "b");
    Reg to = b.parameter(device(Scalar::f32), "c");
    Reg inside = b.parameter(Scalar::pred, "inside");
    Reg n = b.parameter(Scalar::i32, "n");
    for (uint32_t r = tile * kRows; r < std::min<size_t>(a.rows.size(), (tile + 1) * kRows); ++r) {
      Reg sum = b.constant(Scalar::f32, Operand::f32(0));
      if (tile % 2 == 0) {
        for (auto [k, value] : a.rows[r]) {
          b.set_origin(r, k);
          Reg x = b.load(from, int64_t{k} * n_known * 4, 1, ir::Cache::readonly);
          b.fma(Scalar::f32, x, Operand::f32(value), sum, sum);
        }
      } else {
        const uint64_t first = module.symbols[0].count;
        for (auto [k, value] : a.rows[r]) {
          const uint32_t words[2] = {k, std::bit_cast<uint32_t>(value)};
          for (int i = 0; i < 2; ++i) {
            const auto* bytes = reinterpret_cast<const uint8_t*>(&words[i]);
            module.symbols[i].bytes.insert(module.symbols[i].bytes.end(), bytes, bytes + 4);
            ++module.symbols[i].count;
          }
        }
        Reg index = b.address(0);
        Reg weight = b.address(1);
        Reg stride = b.value(Opcode::shl, Scalar::i32, {n, Operand::integer(2)});
        Reg i = b.for_loop(Operand::integer(static_cast<int64_t>(a.rows[r].size())), 1);
        Reg k = b.load(b.index(index, i, Operand::integer(4)), static_cast<int64_t>(first * 4));
        Reg w = b.load(b.index(weight, i, Operand::integer(4)), static_cast<int64_t>(first * 4));
        Reg x = b.load(b.value(Opcode::index, device(Scalar::f32), {from, k, stride}), 0);
        b.fma(Scalar::f32, x, w, sum, sum);
        b.end();
      }
      b.clear_origin();
      b.if_begin(inside);
      b.store(b.index(to, n, Operand::integer(int64_t{r} * 4)), 0, sum);
      b.end();
    }
  }
  module.functions.emplace_back();
  ir::Function& kernel = module.functions.back();
  kernel.name = "spmm";
  kernel.kind = FunctionKind::kernel;
  kernel.block[0] = lanes;
  Builder b(module, kernel);
  Reg from = b.parameter(device(Scalar::f32), "b");
  Reg to = b.parameter(device(Scalar::f32), "c");
  Reg n = b.parameter(Scalar::i32, "n");
  const Column at = column(b, n, lanes);
  Reg my_b = b.index(from, at.number, Operand::integer(4));
  Reg my_c = b.index(to, at.number, Operand::integer(4));
  Reg tile = b.special(ir::Special::block_y);
  const Reg arguments[] = {my_b, my_c, at.inside, n};
  b.switch_call(tile, functions, arguments);
  return module;
}

void check_spmm(uint32_t lanes, uint32_t n, std::mt19937_64& random, unsigned level) {
  const Sparse a = random_sparse(random, 13, 29, 0.3);
  const ir::Module module = spmm_module(a, lanes, n);
  const HostProgram program = HostProgram::compile(module, {level});
  TaskPool pool(2);
  std::vector<float> b(a.columns * n);
  for (float& x : b)
    x = std::uniform_real_distribution<float>(-1, 1)(random);
  std::vector<float> c(a.rows.size() * n + 1, 77);
  const KernelArgument arguments[] = {pointer(b.data()), pointer(c.data()), integer(n)};
  const uint32_t grid[3] = {(n + lanes - 1) / lanes, 4, 1};
  program.run("spmm", grid, arguments, pool);
  INFO("lanes " << lanes << ", n " << n << ", level " << level << ", seed " << seed());
  for (size_t r = 0; r < a.rows.size(); ++r)
    for (uint32_t j = 0; j < n; ++j) {
      float sum = 0;
      for (auto [k, value] : a.rows[r])
        sum = std::fma(b[k * n + j], value, sum);
      if (std::bit_cast<uint32_t>(sum) != std::bit_cast<uint32_t>(c[r * n + j]))
        FAIL("row " << r << ", column " << j << ": " << c[r * n + j] << " != " << sum);
    }
  REQUIRE(c.back() == 77);
}

} // namespace

TEST_CASE("tiles, switches and streamed loops, whole and ragged columns") {
  std::mt19937_64 random(seed());
  for (uint32_t lanes : {16u, 8u, 1u})
    for (uint32_t n : {1u, 15u, 16u, 64u, 67u})
      check_spmm(lanes, n, random, 2);
  for (unsigned level : {0u, 1u, 3u})
    check_spmm(16, 35, random, level);
}

TEST_CASE("loops and ifs carry registers") {
  // out[column] = steps of the Collatz sequence of in[block_x], plus the sum of the odd numbers
  // below a limit, all uniform; the value is spread over the lanes when it is stored.
  for (uint32_t lanes : {16u, 1u}) {
    ir::Module module;
    ir::Function& kernel = add_function(module, "collatz", FunctionKind::kernel, lanes);
    Builder b(module, kernel);
    Reg in = b.parameter(device(Scalar::i32), "in");
    Reg out = b.parameter(device(Scalar::i32), "out");
    Reg block = b.special(ir::Special::block_x);
    Reg x = b.load(b.index(in, block, Operand::integer(4)), 0);
    Reg limit = b.move(x);
    Reg steps = b.constant(Scalar::i32, Operand::integer(0));
    Reg odd_sum = b.constant(Scalar::i32, Operand::integer(0));
    b.loop();
    {
      Reg low = b.value(Opcode::bit_and, Scalar::i32, {x, Operand::integer(1)});
      Reg odd = b.compare(Comparison::ne, Scalar::i32, low, Operand::integer(0));
      b.if_begin(odd);
      b.mul(Scalar::i32, x, Operand::integer(3), x);
      b.add(Scalar::i32, x, Operand::integer(1), x);
      b.else_mark();
      b.value(Opcode::shr, Scalar::i32, {x, Operand::integer(1)}, x);
      b.end();
      b.add(Scalar::i32, steps, Operand::integer(1), steps);
    }
    b.while_end(b.compare(Comparison::gt, Scalar::i32, x, Operand::integer(1)));
    Reg i = b.for_loop(limit, 3);
    {
      Reg j = b.for_loop(Operand::integer(4), 2);
      Reg both = b.add(Scalar::i32, i, j);
      b.add(Scalar::i32, odd_sum, both, odd_sum);
      b.end();
    }
    b.end();
    b.add(Scalar::i32, steps, odd_sum, steps);
    Reg first = b.mul(Scalar::i32, block, Operand::integer(lanes));
    Reg number = b.add(Scalar::i32, first, b.special(ir::Special::thread_x));
    b.store(b.index(out, number, Operand::integer(4)), 0, steps);

    std::vector<int32_t> input = {2, 7, 27, 1, 97};
    std::vector<int32_t> output(input.size() * lanes);
    TaskPool pool(1);
    const HostProgram program = HostProgram::compile(module);
    const KernelArgument arguments[] = {pointer(input.data()), pointer(output.data())};
    program.run("collatz", {static_cast<uint32_t>(input.size()), 1, 1}, arguments, pool);
    for (size_t k = 0; k < input.size(); ++k) {
      int32_t value = input[k];
      int32_t expected = 0;
      do {
        value = value % 2 != 0 ? value * 3 + 1 : value / 2;
        ++expected;
      } while (value > 1);
      for (int32_t row = 0; row < input[k]; row += 3)
        expected += row + (row + 2);
      for (uint32_t lane = 0; lane < lanes; ++lane)
        REQUIRE(output[k * lanes + lane] == expected);
    }
  }
}

TEST_CASE("tuples, strides, gathers and blocks with more threads than lanes") {
  // Thread (x, y) of a block of 256 x 2: reads 4 elements in a row, writes them back in pairs to a
  // transposed place, and gathers in[permutation[x]].
  constexpr uint32_t kThreads = 256;
  ir::Module module;
  ir::Function& kernel = add_function(module, "mix", FunctionKind::kernel, kThreads);
  kernel.block[1] = 2;
  Builder b(module, kernel);
  Reg in = b.parameter(device(Scalar::f32), "in");
  Reg permutation = b.parameter(device(Scalar::i32), "permutation");
  Reg pairs = b.parameter(device(Scalar::f32), "pairs");
  Reg columns = b.parameter(device(Scalar::f32), "columns");
  Reg gathered = b.parameter(device(Scalar::f32), "gathered");
  Reg x = b.special(ir::Special::thread_x);
  Reg y = b.special(ir::Special::thread_y);
  Reg thread = b.add(Scalar::i32, b.mul(Scalar::i32, y, Operand::integer(kThreads)), x);
  Reg four = b.load(b.index(in, thread, Operand::integer(16)), 0, 4);
  Reg two = b.fresh_tuple(Scalar::f32, 2);
  b.add(Scalar::f32, four[0], four[1], two[0]);
  b.sub(Scalar::f32, four[2], four[3], two[1]);
  b.store(b.index(pairs, thread, Operand::integer(8)), 0, two, 2);
  // Every thread's element in a row of its own: a scatter.
  b.store(b.index(columns, thread, Operand::integer(12)), 4, four[3]);
  Reg source = b.load(b.index(permutation, thread, Operand::integer(4)), 0);
  Reg value = b.load(b.index(in, source, Operand::integer(4)), 0);
  b.store(b.index(gathered, thread, Operand::integer(4)), 0, value);

  constexpr uint32_t kCount = 2 * kThreads;
  std::vector<float> input(4 * kCount);
  std::vector<int32_t> order(kCount);
  for (uint32_t i = 0; i < input.size(); ++i)
    input[i] = static_cast<float>(i * 7 % 1001);
  for (uint32_t i = 0; i < kCount; ++i)
    order[i] = static_cast<int32_t>((i * 37 + 11) % (4 * kCount));
  std::vector<float> out_pairs(2 * kCount), out_columns(3 * kCount, -1), out_gathered(kCount);
  const HostProgram program = HostProgram::compile(module);
  TaskPool pool(1);
  const KernelArgument arguments[] = {pointer(input.data()), pointer(order.data()),
                                      pointer(out_pairs.data()), pointer(out_columns.data()),
                                      pointer(out_gathered.data())};
  program.run("mix", {1, 1, 1}, arguments, pool);
  for (uint32_t i = 0; i < kCount; ++i) {
    REQUIRE(out_pairs[2 * i] == input[4 * i] + input[4 * i + 1]);
    REQUIRE(out_pairs[2 * i + 1] == input[4 * i + 2] - input[4 * i + 3]);
    REQUIRE(out_columns[3 * i] == -1);
    REQUIRE(out_columns[3 * i + 1] == input[4 * i + 3]);
    REQUIRE(out_columns[3 * i + 2] == -1);
    REQUIRE(out_gathered[i] == input[static_cast<size_t>(order[i])]);
  }
}

TEST_CASE("a comparison that lanes disagree on only in the middle of the type gives the block up") {
  // The last columns pass 2^31: lane 0 is inside, the last lane has wrapped around to a negative
  // number and looks inside as well.
  constexpr uint32_t kLanes = 16;
  ir::Module module;
  ir::Function& kernel = add_function(module, "wrap", FunctionKind::kernel, kLanes);
  Builder b(module, kernel);
  Reg out = b.parameter(device(Scalar::i32), "out");
  Reg base = b.parameter(Scalar::i32, "base");
  Reg limit = b.parameter(Scalar::i32, "limit");
  Reg x = b.special(ir::Special::thread_x);
  Reg number = b.add(Scalar::i32, base, x);
  Reg inside = b.compare(Comparison::lt, Scalar::i32, number, limit);
  Reg word = b.select(Scalar::i32, inside, number, Operand::integer(0));
  b.store(b.index(out, x, Operand::integer(4)), 0, word);
  std::vector<int32_t> output(kLanes);
  const HostProgram program = HostProgram::compile(module);
  TaskPool pool(1);
  const int32_t kBase = INT32_MAX - 7;
  const KernelArgument arguments[] = {pointer(output.data()), integer(kBase),
                                      integer(INT32_MAX - 3)};
  program.run("wrap", {1, 1, 1}, arguments, pool);
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const auto value = static_cast<int32_t>(static_cast<uint32_t>(kBase) + lane);
    REQUIRE(output[lane] == (value < INT32_MAX - 3 ? value : 0));
  }
}

TEST_CASE("atomics count every thread") {
  constexpr uint32_t kLanes = 16;
  ir::Module module;
  ir::Function& kernel = add_function(module, "count", FunctionKind::kernel, kLanes);
  Builder b(module, kernel);
  Reg counter = b.parameter(device(Scalar::i32), "counter");
  Reg order = b.parameter(device(Scalar::i32), "order");
  Reg one = b.constant(Scalar::i32, Operand::integer(1));
  Reg old = b.fresh(Scalar::i32);
  ir::Op op;
  op.code = Opcode::atomic;
  op.type = device(Scalar::i32);
  op.detail = static_cast<uint8_t>(ir::Atomic::add);
  op.result = old;
  op.operand[0] = counter.id;
  op.operand[1] = one.id;
  b.append(op);
  b.store(b.index(order, old, Operand::integer(4)), 0, old);
  int32_t count = 0;
  std::vector<int32_t> seen(kLanes * 100, -1);
  const HostProgram program = HostProgram::compile(module);
  TaskPool pool(2);
  const KernelArgument arguments[] = {pointer(&count), pointer(seen.data())};
  program.run("count", {100, 1, 1}, arguments, pool);
  REQUIRE(count == static_cast<int32_t>(kLanes) * 100);
  for (size_t i = 0; i < seen.size(); ++i)
    REQUIRE(seen[i] == static_cast<int32_t>(i));
}

TEST_CASE("what the host has not is refused with a way out") {
  ir::Module module;
  ir::Function& kernel = add_function(module, "blocked", FunctionKind::kernel, 16);
  {
    Builder b(module, kernel);
    b.barrier();
  }
  REQUIRE_THROWS_WITH(HostProgram::compile(module),
                      Catch::Contains("barrier") && Catch::Contains("--target=host"));
  kernel.ops.clear();
  Builder b(module, kernel);
  Reg in = b.parameter(device(Scalar::i32), "in");
  Reg x = b.load(b.index(in, b.special(ir::Special::thread_x), Operand::integer(4)), 0);
  b.if_begin(b.compare(Comparison::eq, Scalar::i32, x, Operand::integer(3)));
  b.end();
  REQUIRE_THROWS_WITH(HostProgram::compile(module), Catch::Contains("lane to lane"));

  ir::Module empty;
  add_function(empty, "nothing", FunctionKind::kernel);
  const HostProgram program = HostProgram::compile(empty);
  TaskPool pool(1);
  REQUIRE_THROWS_AS(program.run("something", {1, 1, 1}, {}, pool), UsageError);
  const KernelArgument one[] = {integer(1)};
  REQUIRE_THROWS_AS(program.run("nothing", {1, 1, 1}, one, pool), UsageError);
  program.run("nothing", {0, 1, 1}, {}, pool);
  program.run("nothing", {3, 2, 1}, {}, pool);
}

TEST_CASE("compile times of straight-line code", "[.timing]") {
  for (uint32_t count : {1000u, 10000u, 50000u}) {
    for (uint32_t per_function : {1000u, count}) {
      ir::Module module;
      module.functions.reserve(count / per_function + 1);
      std::vector<uint32_t> tiles;
      for (uint32_t t = 0; t < count / per_function; ++t) {
        module.functions.emplace_back();
        ir::Function& tile = module.functions.back();
        tile.name = "tile" + std::to_string(t);
        tiles.push_back(t);
        Builder b(module, tile);
        Reg from = b.parameter(device(Scalar::f32), "b");
        Reg to = b.parameter(device(Scalar::f32), "c");
        Reg inside = b.parameter(Scalar::pred, "inside");
        Reg sums[8];
        for (Reg& sum : sums)
          sum = b.constant(Scalar::f32, Operand::f32(0));
        for (uint32_t i = 0; i < per_function;) {
          Reg x = b.load(from, int64_t{i} * 512, 1, ir::Cache::readonly);
          for (uint32_t j = 0; j < 1 + i % 3 && i < per_function; ++j, ++i) {
            Reg sum = sums[(i * 5) % 8];
            b.fma(Scalar::f32, x, Operand::f32(static_cast<float>(i) * 0.37f + 1), sum, sum);
          }
        }
        b.if_begin(inside);
        for (int r = 0; r < 8; ++r)
          b.store(to, r * 4096, sums[r]);
        b.end();
      }
      module.functions.emplace_back();
      ir::Function& kernel = module.functions.back();
      kernel.name = "k";
      kernel.kind = FunctionKind::kernel;
      kernel.block[0] = 16;
      Builder b(module, kernel);
      Reg from = b.parameter(device(Scalar::f32), "b");
      Reg to = b.parameter(device(Scalar::f32), "c");
      Reg n = b.parameter(Scalar::i32, "n");
      const Column at = column(b, n, 16);
      const Reg arguments[] = {b.index(from, at.number, Operand::integer(4)),
                               b.index(to, at.number, Operand::integer(4)), at.inside};
      b.switch_call(b.special(ir::Special::block_y), tiles, arguments);
      const std::clock_t start = std::clock();
      const HostProgram program = HostProgram::compile(module);
      const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      WARN(count << " multiply-adds in functions of " << per_function << ": " << took
                 << " s of processor time");
    }
  }
}
