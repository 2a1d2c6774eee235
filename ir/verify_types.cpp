// FunctionVerifier: types of operands, results and arguments.
#include "ir/function_verifier.h"
#include "ir/operands.h"
#include "ir/verify_cluster.h"

#include <fmt/format.h>

#include <limits>

namespace sparsertc::ir {
namespace {

std::string_view words(const Op& op) {
  const WordList list = words_of(info(op.code).detail);
  return list[op.detail];
}

/// Which conversions exist: `exact` where every value of the source exists in the result (and i64
/// to i32, which keeps the low bits); roundings where the targets have them as one rounding.
bool conversion_exists(Scalar from, Scalar to, Conversion conversion) {
  const auto pair = [&](Scalar a, Scalar b) { return from == a && to == b; };
  const bool to_integer = to == Scalar::i32 || to == Scalar::i64;
  switch (conversion) {
  case Conversion::exact:
    return pair(Scalar::f16, Scalar::f32) || pair(Scalar::f16, Scalar::f64) ||
           pair(Scalar::bf16, Scalar::f32) || pair(Scalar::bf16, Scalar::f64) ||
           pair(Scalar::f32, Scalar::f64) || pair(Scalar::i32, Scalar::f64) ||
           pair(Scalar::i64, Scalar::i32);
  case Conversion::sign:
  case Conversion::zero:
    return pair(Scalar::i32, Scalar::i64);
  case Conversion::nearest:
    if (pair(Scalar::f64, Scalar::f32) || pair(Scalar::f64, Scalar::f16) ||
        pair(Scalar::f32, Scalar::f16) || pair(Scalar::f32, Scalar::bf16) ||
        pair(Scalar::i32, Scalar::f32) || pair(Scalar::i64, Scalar::f32) ||
        pair(Scalar::i64, Scalar::f64))
      return true;
    [[fallthrough]];
  case Conversion::truncate:
  case Conversion::floor:
  case Conversion::ceil:
    return to_integer && (from == Scalar::f16 || from == Scalar::f32 || from == Scalar::f64);
  }
  return false;
}

} // namespace

void FunctionVerifier::type_of_operand(const Op& op, unsigned slot, Type expected) {
  const uint32_t operand = op.operand[slot];
  if (operand == kNoOperand || operand == kImmediate)
    return;
  const Type found = type(operand);
  if (found != expected && !found.is_none())
    report(fmt::format("operand {} of '{}' is {} of type {}, but must have type {}", slot + 1,
                       info(op.code).text, name(operand), to_string(found), to_string(expected)));
}

void FunctionVerifier::tuple_types(std::string_view what, uint32_t first, uint32_t count,
                                   Type expected) {
  for (uint32_t i = first; i < first + count; ++i) {
    if (type(i) != expected && !type(i).is_none()) {
      report(fmt::format("{} {} has type {}, but must have type {}", what, name(i),
                         to_string(type(i)), to_string(expected)));
      return;
    }
  }
}

/// The bits of a number must be those of a value of its type.
void FunctionVerifier::immediate(const Op& op, Scalar scalar) {
  int64_t most = std::numeric_limits<int64_t>::max();
  int64_t least = 0;
  switch (scalar) {
  case Scalar::i64:
  case Scalar::f64:
  case Scalar::none:
    return;
  case Scalar::pred:
    most = 1;
    break;
  case Scalar::i32:
    most = std::numeric_limits<int32_t>::max();
    least = std::numeric_limits<int32_t>::min();
    break;
  case Scalar::f16:
  case Scalar::bf16:
    most = UINT16_MAX;
    break;
  case Scalar::f32:
  case Scalar::f16x2:
  case Scalar::bf16x2:
    most = UINT32_MAX;
    break;
  }
  if (op.immediate < least || op.immediate > most)
    report(fmt::format("the number's bits 0x{:X} are none of type {}",
                       static_cast<uint64_t>(op.immediate), name_of(scalar)));
}

void FunctionVerifier::convert(const Op& op) {
  const Type from = type(op.operand[0]);
  if (from.is_none())
    return;
  const Scalar to = op.type.element();
  if (op.code == Opcode::bitcast) {
    if (!from.is_scalar() || size_in_bytes(from.element()) == 0 ||
        size_in_bytes(from.element()) != size_in_bytes(to))
      report(fmt::format("bitcast needs types of one size, not {} and {}", to_string(from),
                         to_string(op.type)));
    return;
  }
  const auto conversion = static_cast<Conversion>(op.detail);
  if (from.is_scalar() && conversion_exists(from.element(), to, conversion))
    return;
  std::string choices;
  const WordList list = words_of(DetailKind::conversion);
  for (unsigned i = 0; i < list.size && from.is_scalar(); ++i)
    if (conversion_exists(from.element(), to, static_cast<Conversion>(i)))
      choices += fmt::format("{}{}", choices.empty() ? "" : ", ", list[i]);
  report(fmt::format("there is no conversion '{}' from {} to {} ({})", words(op), to_string(from),
                     to_string(op.type),
                     choices.empty() ? std::string("none at all") : "but " + choices));
}

/// Whether a host function may hand `given` to a parameter of type `expected`: the same type, or
/// host and device memory where one of the two has no place yet.
bool FunctionVerifier::fits(Type given, Type expected) const {
  const auto placed = [](Type type) {
    return type.space() == Space::host || type.space() == Space::device;
  };
  return given == expected || (is_host() && given.element() == expected.element() &&
                               ((given.space() == Space::any && placed(expected)) ||
                                (expected.space() == Space::any && placed(given))));
}

void FunctionVerifier::argument_types(const Function& callee, std::string_view called,
                                      std::span<const uint32_t> list) {
  if (list.size() != callee.parameter_count) {
    report(fmt::format("@{} has {} parameters, but {} arguments are given", called,
                       callee.parameter_count, list.size()));
    return;
  }
  for (uint32_t i = 0; i < list.size() && i < callee.register_type.size(); ++i) {
    const Type expected = callee.register_type[i];
    if (!fits(type(list[i]), expected) && !type(list[i]).is_none())
      report(fmt::format("argument {} of @{} is {} of type {}, but must have type {}", i + 1,
                         called, name(list[i]), to_string(type(list[i])), to_string(expected)));
  }
}

void FunctionVerifier::calls(const Op& op) {
  const OpInfo& row = info(op.code);
  const std::span<const uint32_t> list = arguments(function_, op);
  if (op.code == Opcode::switch_call && callees(function_, op).empty())
    report("a 'switch' needs at least one function");
  const FunctionKind expected = row.form == Form::launch ? FunctionKind::kernel
                                : is_host()              ? FunctionKind::host
                                                         : FunctionKind::device;
  uint32_t previous = UINT32_MAX;
  for (uint32_t index : callees(function_, op)) {
    if (index == previous)
      continue;
    previous = index;
    const Function& callee = module_.functions[index];
    if (callee.kind != expected) {
      report(fmt::format("'{}' {} calls a {}, but @{} is none", row.text,
                         is_host() ? "in a host function" : "in a kernel or func",
                         expected == FunctionKind::kernel ? "kernel"
                         : expected == FunctionKind::host ? "host function"
                                                          : "func",
                         callee.name));
      continue;
    }
    if (function_.cpu && callee.external)
      report(fmt::format("a cpu function launches nothing, and @{} is external", callee.name));
    argument_types(callee, callee.name, list);
  }
  if (row.form == Form::launch)
    for (uint32_t i = 0; i < 3; ++i)
      if (const Type grid = type(function_.pool[op.operand[1] + i]);
          grid != Type(Scalar::i32) && !grid.is_none())
        report(fmt::format("the grid's extents have type i32, not {}", to_string(grid)));
}

void FunctionVerifier::synchronisation(const Op& op) {
  constexpr uint32_t kBarriers = 16;
  constexpr uint32_t kMostThreads = 1024;
  constexpr uint32_t kWarp = 32;
  if (op.code == Opcode::barrier && op.operand[0] != kNoOperand) {
    const uint32_t threads = high_half(op.immediate);
    if (op.operand[0] == kImmediate && low_half(op.immediate) >= kBarriers)
      report(fmt::format("barriers are numbered 0 to {}", kBarriers - 1));
    if (threads == 0 || threads % kWarp != 0 || threads > kMostThreads)
      report(fmt::format("a barrier's number of threads is a multiple of {} up to {}, not {}",
                         kWarp, kMostThreads, threads));
  }
  if (op.code == Opcode::fence && static_cast<Order>(op.detail) <= Order::relaxed_system)
    report("a relaxed fence orders nothing; use acquire or release");
}

void FunctionVerifier::types(const Op& op) {
  const OpInfo& row = info(op.code);
  if (!type_allowed(row.types, op.type)) {
    report(fmt::format("'{}' does not exist for type {}", row.text, to_string(op.type)));
    return;
  }
  for (unsigned i = 0; i < row.operands.size() && row.form != Form::mma; ++i) {
    Type expected = op.type;
    switch (row.operands[i]) {
    case 'p':
    case 'P':
      expected = Scalar::pred;
      break;
    case 'i':
    case 'I':
      expected = Scalar::i32;
      break;
    case 'l':
    case 'L':
      expected = Scalar::i64;
      break;
    case 'h':
      expected = half_of_pair(op.type.element());
      break;
    case 'x':
      continue;
    default:
      break;
    }
    if (op.operand[i] == kImmediate && row.form != Form::barrier && row.form != Form::for_loop) {
      if (expected.is_pointer())
        report(
            fmt::format("operand {} of '{}' is a pointer and cannot be a number", i + 1, row.text));
      else
        immediate(op, expected.element());
    }
    type_of_operand(op, i, expected);
  }
  if (const uint32_t results = result_count(op); results != 0)
    tuple_types("the result", op.result.id, results, result_type(op));
  switch (row.form) {
  case Form::value:
    if (op.code == Opcode::peer && op.type.space() != Space::shared)
      report(fmt::format("'peer' takes a pointer to shared memory, not {}", to_string(op.type)));
    if (op.code == Opcode::peer && op.operand[1] == kImmediate &&
        (op.immediate < 0 || op.immediate >= kMostClusterBlocks))
      report(fmt::format("a cluster has at most {} blocks, there is none of rank {}",
                         kMostClusterBlocks, op.immediate));
    if (op.code == Opcode::constant && op.operand[0] != kImmediate)
      report("'const' takes a number; use 'move' for a register");
    if (op.code == Opcode::convert || op.code == Opcode::bitcast)
      convert(op);
    if (op.code == Opcode::compare && static_cast<Comparison>(op.detail) >= Comparison::ltu &&
        op.type.is_float())
      report(fmt::format("'{}' compares unsigned integers, not {}", words(op), to_string(op.type)));
    break;
  case Form::store:
    tuple_types("the stored value", op.operand[1], op.width, op.type.element());
    break;
  case Form::atomic:
    tuple_types("the value", op.operand[1], 1, op.type.element());
    if (op.code == Opcode::compare_swap)
      tuple_types("the new value", op.operand[2], 1, op.type.element());
    break;
  case Form::mma: {
    const FragmentShape shape = shape_of(static_cast<Fragment>(op.detail));
    tuple_types("fragment a", op.operand[0], shape.a, shape.input);
    tuple_types("fragment b", op.operand[1], shape.b, shape.input);
    tuple_types("fragment c", op.operand[2], kFragmentResults, Scalar::f32);
    if (op.code == Opcode::mma_sparse) {
      tuple_types("the metadata", low_half(op.immediate), 1, Scalar::i32);
      if (high_half(op.immediate) > 1)
        report(fmt::format("the selector is 0 or 1, not {}", high_half(op.immediate)));
    }
    break;
  }
  case Form::symbol: {
    const Symbol& symbol = module_.symbols[static_cast<size_t>(op.immediate)];
    if (symbol.type != op.type)
      report(fmt::format("@{} has type {}, not {}", symbol.name, to_string(symbol.type),
                         to_string(op.type)));
    break;
  }
  case Form::plain_number:
    if (op.immediate < 0 || op.immediate > UINT32_MAX)
      report("the number of groups in flight is not negative");
    break;
  case Form::call:
  case Form::switch_call:
  case Form::launch:
    calls(op);
    break;
  case Form::copy:
    copies(op);
    break;
  case Form::barrier:
  case Form::plain:
    synchronisation(op);
    break;
  default:
    break;
  }
}

} // namespace sparsertc::ir
