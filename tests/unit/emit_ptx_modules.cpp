#include "tests/unit/emit_ptx_modules.h"

#include "ir/builder.h"
#include "ir/operands.h"

#include <utility>
#include <vector>

namespace sparsertc::testing {

using namespace sparsertc::ir;

namespace {

const Type kDeviceF32 = Type::pointer(Space::device, Scalar::f32);
const Type kSharedF32 = Type::pointer(Space::shared, Scalar::f32);

/// Writes every_operation() family by family.
class EveryOperation {
public:
  EveryOperation(Module& module, Function& kernel) : builder_(module, kernel) {}
  void write();

private:
  Reg zero(Scalar type) { return builder_.constant(type, Operand::integer(0)); }
  Reg zeros(Scalar type, uint32_t count) {
    const Reg tuple = builder_.fresh_tuple(type, count);
    for (uint32_t i = 0; i < count; ++i)
      builder_.constant(type, Operand::integer(0), tuple[i]);
    return tuple;
  }
  void append(Opcode code, Type type, uint8_t detail, Reg result, std::initializer_list<Reg> reads,
              int64_t immediate = 0);
  void integers(Scalar type);
  void predicates();
  void floats(Scalar type);
  void conversions();
  void addresses(Reg pointer);
  void accesses(Reg pointer);
  void atomics(Reg pointer);
  void copies(Reg device, Reg shared);
  void warps();
  void fragments();
  void control(Reg device, Reg shared);

  Builder builder_;
  Reg p_;
  Reg i_;
};

void EveryOperation::append(Opcode code, Type type, uint8_t detail, Reg result,
                            std::initializer_list<Reg> reads, int64_t immediate) {
  Op op;
  op.code = code;
  op.type = type;
  op.detail = detail;
  op.result = result;
  unsigned slot = 0;
  for (Reg reg : reads)
    op.operand[slot++] = reg.id;
  op.immediate = immediate;
  builder_.append(op);
}

void EveryOperation::integers(Scalar type) {
  const Reg a =
      builder_.constant(type, Operand::integer(type == Scalar::i32 ? INT32_MIN : INT64_MIN));
  builder_.move(a);
  for (Opcode code :
       {Opcode::add, Opcode::sub, Opcode::mul, Opcode::divu, Opcode::remu, Opcode::min, Opcode::max,
        Opcode::minu, Opcode::maxu, Opcode::bit_and, Opcode::bit_or, Opcode::bit_xor}) {
    builder_.value(code, type, {a, a});
    builder_.value(code, type, {a, Operand::integer(-5)});
  }
  for (Opcode code : {Opcode::shl, Opcode::shr, Opcode::sar}) {
    builder_.value(code, type, {a, i_});
    builder_.value(code, type, {a, Operand::integer(-1)});
  }
  for (Opcode code :
       {Opcode::neg, Opcode::abs, Opcode::bit_not, Opcode::popc, Opcode::clz, Opcode::brev})
    builder_.value(code, type, {a});
  for (uint8_t which = 0; which < 10; ++which) {
    builder_.compare(static_cast<Comparison>(which), type, a, a);
    builder_.compare(static_cast<Comparison>(which), type, a, Operand::integer(-7));
  }
  builder_.select(type, p_, a, a);
  builder_.select(type, p_, a, Operand::integer(-9));
}

void EveryOperation::predicates() {
  builder_.move(p_);
  for (Opcode code : {Opcode::bit_and, Opcode::bit_or, Opcode::bit_xor}) {
    builder_.value(code, Scalar::pred, {p_, p_});
    builder_.value(code, Scalar::pred, {p_, Operand::integer(1)});
  }
  builder_.value(Opcode::bit_not, Scalar::pred, {p_});
}

void EveryOperation::floats(Scalar type) {
  const Reg a = zero(type);
  const bool pair = Type(type).is_pair();
  const Operand one = type == Scalar::f64   ? Operand::f64(1)
                      : type == Scalar::f32 ? Operand::f32(1)
                                            : Operand::bits(pair ? 0x3C003C00 : 0x3C00);
  builder_.constant(type, one);
  builder_.move(a);
  for (Opcode code : {Opcode::add, Opcode::sub, Opcode::mul}) {
    builder_.value(code, type, {a, a});
    builder_.value(code, type, {a, one});
  }
  builder_.fma(type, a, a, a);
  builder_.fma(type, a, one, a);
  builder_.value(Opcode::neg, type, {a});
  builder_.value(Opcode::abs, type, {a});
  if (pair) {
    const Reg half = zero(half_of_pair(type));
    builder_.value(Opcode::pack, type, {half, half});
    builder_.value(Opcode::low, type, {a});
    builder_.value(Opcode::high, type, {a});
    return;
  }
  for (uint8_t which = 0; which < 6; ++which) {
    builder_.compare(static_cast<Comparison>(which), type, a, a);
    builder_.compare(static_cast<Comparison>(which), type, a, one);
  }
  builder_.select(type, p_, a, a);
  builder_.select(type, p_, a, one);
  if (size_in_bytes(type) >= 4) {
    builder_.value(Opcode::div, type, {a, a});
    builder_.value(Opcode::div, type, {a, one});
    builder_.value(Opcode::sqrt, type, {a});
  }
}

void EveryOperation::conversions() {
  using enum Scalar;
  for (auto [from, to] : {std::pair(f16, f32),
                          {f16, f64},
                          {bf16, f32},
                          {bf16, f64},
                          {f32, f64},
                          {i32, f64},
                          {i64, i32}})
    builder_.convert(to, zero(from), Conversion::exact);
  builder_.convert(i64, i_, Conversion::sign);
  builder_.convert(i64, i_, Conversion::zero);
  for (auto [from, to] : {std::pair(f64, f32),
                          {f64, f16},
                          {f32, f16},
                          {f32, bf16},
                          {i32, f32},
                          {i64, f32},
                          {i64, f64}})
    builder_.convert(to, zero(from), Conversion::nearest);
  for (Scalar from : {f16, f32, f64})
    for (Scalar to : {i32, i64})
      for (Conversion rounding :
           {Conversion::nearest, Conversion::truncate, Conversion::floor, Conversion::ceil})
        builder_.convert(to, zero(from), rounding);
  for (auto [from, to] : {std::pair(f32, i32),
                          {i32, f32},
                          {f64, i64},
                          {i64, f64},
                          {f16x2, i32},
                          {f32, bf16x2},
                          {bf16, f16},
                          {i32, i32}})
    builder_.bitcast(to, zero(from));
}

void EveryOperation::addresses(Reg pointer) {
  builder_.offset(pointer, Operand::integer(-16));
  builder_.offset(pointer, zero(Scalar::i64));
  builder_.index(pointer, i_, Operand::integer(-4));
  builder_.index(pointer, i_, i_);
  builder_.select(builder_.function().type_of(pointer), p_, pointer, pointer);
  builder_.move(pointer);
}

void EveryOperation::accesses(Reg pointer) {
  const Type type = builder_.function().type_of(pointer);
  const Scalar element = type.element();
  const bool device = type.space() == Space::device;
  if (type.space() == Space::shared && (element == Scalar::f16x2 || element == Scalar::bf16x2))
    builder_.load_matrix(pointer, 32);
  for (uint32_t width = 1; width <= 8 && width * size_in_bytes(element) <= 16; width *= 2)
    for (Cache cache : {Cache::normal, Cache::readonly, Cache::streaming}) {
      if (cache != Cache::normal && !device)
        continue;
      const Reg values = builder_.load(pointer, 64, width, cache);
      if (cache != Cache::readonly)
        builder_.store(pointer, 128, values, width, cache);
    }
}

void EveryOperation::atomics(Reg pointer) {
  const Type type = builder_.function().type_of(pointer);
  const Scalar element = type.element();
  const bool integer = Type(element).is_integer();
  const Reg value = zero(element);
  for (uint8_t order = 0; order < 9; ++order) {
    if (order < 6)
      append(Opcode::load_ordered, type, order, builder_.fresh(element), {pointer}, 16);
    if (order < 3 || order >= 6)
      append(Opcode::store_ordered, type, order, {}, {pointer, value}, 16);
    if (integer)
      append(Opcode::compare_swap, type, order, builder_.fresh(element), {pointer, value, value},
             8);
  }
  for (Atomic which :
       {Atomic::add, Atomic::min, Atomic::max, Atomic::bit_and, Atomic::bit_or, Atomic::exchange})
    if (integer || which == Atomic::add || which == Atomic::exchange)
      append(Opcode::atomic, type, static_cast<uint8_t>(which), builder_.fresh(element),
             {pointer, value}, 8);
}

void EveryOperation::copies(Reg device, Reg shared) {
  for (uint32_t bytes : {4u, 8u, 16u}) {
    builder_.copy_async(shared, 16, device, -32, bytes);
    builder_.copy_async(shared, 0, device, 0, bytes, i_);
  }
  builder_.copy_commit();
  builder_.copy_wait(1);
  for (uint8_t order = 3; order < 9; ++order)
    append(Opcode::fence, {}, order, {}, {});
}

void EveryOperation::warps() {
  builder_.barrier();
  builder_.barrier(Operand::integer(3), 64);
  builder_.barrier(i_, 64);
  builder_.warp_barrier();
  for (uint8_t which = 0; which < 7; ++which)
    builder_.special(static_cast<Special>(which));
  for (uint8_t mode = 0; mode < 4; ++mode)
    for (Scalar type : {Scalar::i32, Scalar::f32}) {
      builder_.value(Opcode::shuffle, type, {zero(type), i_}, {}, mode);
      builder_.value(Opcode::shuffle, type, {zero(type), Operand::integer(3)}, {}, mode);
    }
  builder_.value(Opcode::ballot, {}, {p_});
}

void EveryOperation::fragments() {
  for (uint8_t fragment = 0; fragment < 6; ++fragment) {
    const FragmentShape shape = shape_of(static_cast<Fragment>(fragment));
    append(shape.sparse ? Opcode::mma_sparse : Opcode::mma, {}, fragment,
           builder_.fresh_tuple(Scalar::f32, 4),
           {zeros(shape.input, shape.a), zeros(shape.input, shape.b), zeros(Scalar::f32, 4)},
           two_halves(i_.id, 1));
  }
}

void EveryOperation::control(Reg device, Reg shared) {
  for (Operand limit : {Operand(i_), Operand::integer(40), Operand::integer(0)}) {
    builder_.for_loop(limit, 3);
    builder_.loop();
    builder_.if_begin(p_);
    builder_.return_void();
    builder_.else_mark();
    builder_.move(i_);
    builder_.end();
    builder_.while_end(p_);
    builder_.end();
  }
  const Reg arguments[] = {p_,
                           i_,
                           zero(Scalar::i64),
                           zero(Scalar::f16),
                           zero(Scalar::f16x2),
                           zero(Scalar::bf16),
                           zero(Scalar::bf16x2),
                           zero(Scalar::f32),
                           zero(Scalar::f64),
                           device,
                           shared};
  builder_.call(0, arguments);
  const uint32_t functions[] = {0, 0, 0};
  builder_.switch_call(i_, functions, arguments);
}

constexpr Scalar kElements[] = {Scalar::f32,   Scalar::f64,    Scalar::f16, Scalar::bf16,
                                Scalar::f16x2, Scalar::bf16x2, Scalar::i32, Scalar::i64};

void EveryOperation::write() {
  std::vector<Reg> pointers;
  for (Scalar element : kElements)
    pointers.push_back(builder_.parameter(Type::pointer(Space::device, element),
                                          "p_" + std::string(name_of(element))));
  for (Scalar scalar : {Scalar::i32, Scalar::i64, Scalar::f32, Scalar::f64})
    builder_.parameter(scalar, std::string(name_of(scalar)));
  p_ = builder_.constant(Scalar::pred, Operand::integer(1));
  i_ = builder_.constant(Scalar::i32, Operand::integer(3));
  const Reg device = pointers[0];
  // Symbols 0 to 7 are the shared ones.
  const Reg shared = builder_.address(0);
  for (uint32_t symbol = 0; symbol < 8; ++symbol)
    pointers.push_back(symbol == 0 ? shared : builder_.address(symbol));

  integers(Scalar::i32);
  integers(Scalar::i64);
  predicates();
  for (Scalar type :
       {Scalar::f16, Scalar::bf16, Scalar::f32, Scalar::f64, Scalar::f16x2, Scalar::bf16x2})
    floats(type);
  conversions();
  for (Reg pointer : pointers) {
    addresses(pointer);
    accesses(pointer);
    const Scalar element = builder_.function().type_of(pointer).element();
    if (size_in_bytes(element) >= 4 && !Type(element).is_pair())
      atomics(pointer);
  }
  builder_.load(device, int64_t{1} << 33);
  for (uint32_t width : {1u, 2u})
    builder_.load(builder_.address(8), 16, width);
  for (uint32_t width : {1u, 2u, 4u, 8u})
    builder_.load(builder_.address(9), 0, width);
  builder_.load(builder_.address(10), 8);
  builder_.load(builder_.address(11), 8);
  copies(device, shared);
  warps();
  fragments();
  control(device, shared);
}

} // namespace

Function& add_function(Module& module, const std::string& name, FunctionKind kind) {
  Function& function = module.functions.emplace_back();
  function.name = name;
  function.kind = kind;
  return function;
}

void add_symbol(Module& module, const std::string& name, Scalar element, uint64_t count,
                Space space) {
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

Module spmm_shaped(uint32_t tiles, uint32_t terms) {
  Module module;
  module.attributes.emplace_back("op", "spmm");
  add_symbol(module, "indices", Scalar::i32, 7);
  add_symbol(module, "values", Scalar::f32, 5);
  add_symbol(module, "bias", Scalar::f32, 3, Space::constant);
  add_symbol(module, "partial", Scalar::f32, 64, Space::shared);
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

Module every_operation() {
  Module module;
  for (Scalar element : kElements)
    add_symbol(module, "tile_" + std::string(name_of(element)), element, 128, Space::shared);
  add_symbol(module, "constants", Scalar::f64, 4, Space::constant);
  add_symbol(module, "half_constants", Scalar::f16, 9, Space::constant);
  add_symbol(module, "pairs", Scalar::bf16x2, 3);
  add_symbol(module, "wide", Scalar::i64, 3);
  {
    Function& callee = add_function(module, "callee", FunctionKind::device);
    Builder builder(module, callee);
    for (Scalar scalar : {Scalar::pred, Scalar::i32, Scalar::i64, Scalar::f16, Scalar::f16x2,
                          Scalar::bf16, Scalar::bf16x2, Scalar::f32, Scalar::f64})
      builder.parameter(scalar, std::string(name_of(scalar)));
    builder.parameter(kDeviceF32, "p");
    builder.parameter(kSharedF32, "s");
    builder.return_void();
  }
  Function& kernel = add_function(module, "sparsertc_all", FunctionKind::kernel);
  kernel.block[0] = 128;
  EveryOperation(module, kernel).write();
  return module;
}

} // namespace sparsertc::testing
