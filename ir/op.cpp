#include "ir/op.h"

#include <array>

namespace sparsertc::ir {
namespace {

constexpr OpInfo kOps[] = {
#define SIR_OP(code, text, form, result, operands, types, effect, detail)                          \
  {text, Form::form, ResultRule::result, operands, types, Effect::effect, DetailKind::detail},
#include "ir/ops.def"
};
static_assert(std::size(kOps) == kOpcodeCount);

constexpr std::string_view kSpecial[] = {"thread_x", "thread_y", "thread_z", "block_x",
                                         "block_y",  "block_z",  "lane"};
constexpr std::string_view kComparison[] = {"eq", "ne",  "lt",  "le",  "gt",
                                            "ge", "ltu", "leu", "gtu", "geu"};
constexpr std::string_view kConversion[] = {"exact",    "sign",  "zero", "nearest",
                                            "truncate", "floor", "ceil"};
constexpr std::string_view kCache[] = {"normal", "readonly", "streaming"};
constexpr std::string_view kOrder[] = {"relaxed_block", "relaxed_device", "relaxed_system",
                                       "acquire_block", "acquire_device", "acquire_system",
                                       "release_block", "release_device", "release_system"};
constexpr std::string_view kAtomic[] = {"add", "min", "max", "and", "or", "exchange"};
constexpr std::string_view kShuffle[] = {"index", "up", "down", "butterfly"};
constexpr std::string_view kFragment[] = {"m16n8k16_f16", "m16n8k16_bf16", "m16n8k8_tf32",
                                          "m16n8k32_f16", "m16n8k32_bf16", "m16n8k16_tf32"};

template <size_t N>
constexpr WordList list(const std::string_view (&words)[N]) {
  return {words, unsigned{N}};
}

} // namespace

const OpInfo& info(Opcode code) {
  return kOps[static_cast<unsigned>(code)];
}

WordList words_of(DetailKind kind) {
  switch (kind) {
  case DetailKind::none:
    break;
  case DetailKind::special:
    return list(kSpecial);
  case DetailKind::comparison:
    return list(kComparison);
  case DetailKind::conversion:
    return list(kConversion);
  case DetailKind::cache:
    return list(kCache);
  case DetailKind::order:
    return list(kOrder);
  case DetailKind::atomic:
    return list(kAtomic);
  case DetailKind::shuffle:
    return list(kShuffle);
  case DetailKind::fragment:
    return list(kFragment);
  }
  return {nullptr, 0};
}

bool type_allowed(std::string_view types, Type type) {
  for (char letter : types) {
    const Scalar scalar = type.element();
    if (letter == '-' && type.is_none())
      return true;
    if (letter == 'P' && type.is_pointer())
      return true;
    if (type.is_pointer() || type.is_none())
      continue;
    switch (letter) {
    case 'I':
      if (scalar == Scalar::i32 || scalar == Scalar::i64)
        return true;
      break;
    case 'F':
      if (type.is_float() && !type.is_pair())
        return true;
      break;
    case 'H':
      if (scalar == Scalar::f16 || scalar == Scalar::bf16)
        return true;
      break;
    case 'W':
      if (scalar == Scalar::f32 || scalar == Scalar::f64)
        return true;
      break;
    case '2':
      if (type.is_pair())
        return true;
      break;
    case 'p':
      if (scalar == Scalar::pred)
        return true;
      break;
    case '4':
      if (scalar == Scalar::i32)
        return true;
      break;
    case 'S':
      if (scalar == Scalar::f32)
        return true;
      break;
    default:
      break;
    }
  }
  return false;
}

} // namespace sparsertc::ir
