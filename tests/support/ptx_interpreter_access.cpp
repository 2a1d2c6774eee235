// Loads, stores, atomics and asynchronous copies of a running block, and conversions.
#include "tests/support/ptx_interpreter_machine.h"

#include "tests/support/ptx_interpreter_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sparsertc::ptx {
namespace {

uint64_t read_element(const uint8_t* bytes, uint32_t size, bool sign) {
  switch (size) {
  case 1:
    return sign ? static_cast<uint64_t>(int64_t{static_cast<int8_t>(*bytes)}) : *bytes;
  case 2: {
    uint16_t value;
    std::memcpy(&value, bytes, 2);
    return sign ? static_cast<uint64_t>(int64_t{static_cast<int16_t>(value)}) : value;
  }
  case 4: {
    uint32_t value;
    std::memcpy(&value, bytes, 4);
    return sign ? static_cast<uint64_t>(int64_t{static_cast<int32_t>(value)}) : value;
  }
  default: {
    uint64_t value;
    std::memcpy(&value, bytes, 8);
    return value;
  }
  }
}

} // namespace

// ---- memory ------------------------------------------------------------------------------------

void BlockRunner::check_alignment(const Thread& thread, uint64_t address, uint32_t bytes) const {
  if (address % bytes != 0)
    fail(thread, ErrorKind::misaligned,
         fmt::format("address {:#x} of an access of {} bytes", address, bytes));
}

uint8_t* BlockRunner::global(const Thread& thread, uint64_t address, uint32_t bytes, bool write,
                             uint8_t flags) {
  const uint64_t region = address >> kRegionBits;
  const uint64_t in_region = address & ((uint64_t{1} << kRegionBits) - 1);
  if (region >= 1 && region <= launch_.buffers.size()) {
    Machine::Buffer& buffer = launch_.buffers[region - 1];
    const uint64_t offset = address - buffer.address;
    if (address < buffer.address || offset > buffer.bytes || buffer.bytes - offset < bytes) {
      fail(thread, ErrorKind::out_of_bounds,
           fmt::format("{} {} bytes at offset {} of {}, which has {}", write ? "writes" : "reads",
                       bytes, static_cast<int64_t>(offset), buffer.name, buffer.bytes));
    }
    check_alignment(thread, address, bytes);
    if (write) {
      if (!buffer.writable)
        fail(thread, ErrorKind::read_only,
             fmt::format("writes {} bytes at offset {} of {}", bytes, offset, buffer.name));
      std::memset(buffer.written.data() + offset, 1, bytes);
    } else if ((flags & kNonCoherent) != 0 && buffer.writable) {
      const auto first = buffer.written.begin() + static_cast<ptrdiff_t>(offset);
      if (std::find(first, first + bytes, 1) != first + bytes)
        fail(thread, ErrorKind::race,
             fmt::format("a non-coherent load of bytes at offset {} of {} that the kernel wrote",
                         offset, buffer.name));
    }
    return buffer.host + offset;
  }
  if (region > kVariableRegion && region - kVariableRegion - 1 < launch_.variables.size()) {
    const size_t index = region - kVariableRegion - 1;
    const Variable& variable = launch_.program.variables[index];
    const uint64_t offset = in_region - kBufferOffset;
    if (variable.space == Space::global) {
      if (in_region < kBufferOffset || offset > variable.bytes || variable.bytes - offset < bytes)
        fail(thread, ErrorKind::out_of_bounds,
             fmt::format("{} {} bytes at offset {} of variable `{}`, which has {}",
                         write ? "writes" : "reads", bytes, static_cast<int64_t>(offset),
                         variable.name, variable.bytes));
      // Variables lie at multiples of 4096; what their declaration promises may be less.
      if (bytes > variable.alignment)
        fail(thread, ErrorKind::misaligned,
             fmt::format("{} bytes of variable `{}`, which is aligned to {}", bytes, variable.name,
                         variable.alignment));
      check_alignment(thread, address, bytes);
      return launch_.variables[index].data() + offset;
    }
  }
  fail(thread, ErrorKind::out_of_bounds,
       fmt::format("{} {} bytes at {:#x}, where no buffer is", write ? "writes" : "reads", bytes,
                   address));
}

uint8_t* BlockRunner::shared(const Thread& thread, SharedMemory& memory, uint64_t address,
                             uint32_t bytes) {
  if (address > memory.bytes() || memory.bytes() - address < bytes)
    fail(thread, ErrorKind::out_of_bounds,
         fmt::format("{} bytes at {} of shared memory, which has {}", bytes,
                     static_cast<int64_t>(address), memory.bytes()));
  check_alignment(thread, address, bytes);
  return memory.data() + address;
}

uint8_t* BlockRunner::constant(const Thread& thread, uint64_t address, uint32_t bytes) {
  const DecodedProgram& program = launch_.program;
  if (address > program.constant_bytes || program.constant_bytes - address < bytes)
    fail(thread, ErrorKind::out_of_bounds,
         fmt::format("{} bytes at {} of constant memory, which has {}", bytes,
                     static_cast<int64_t>(address), program.constant_bytes));
  check_alignment(thread, address, bytes);
  return const_cast<uint8_t*>(program.constant_memory.data()) + address;
}

BlockRunner& BlockRunner::block_of(const Thread& thread, uint64_t& address) {
  const uint64_t rank = address >> kRankShift;
  address &= (uint64_t{1} << kRankShift) - 1;
  if (rank == 0)
    return *this;
  if (rank > cluster_.blocks_.size())
    fail(thread, ErrorKind::out_of_bounds,
         fmt::format("an address in block {} of a cluster of {}", rank - 1,
                     cluster_.blocks_.size()));
  BlockRunner& block = *cluster_.blocks_[rank - 1];
  if (block.ended())
    fail(thread, ErrorKind::out_of_bounds,
         fmt::format("shared memory of block ({},{},{}), which has ended", block.block_[0],
                     block.block_[1], block.block_[2]));
  return block;
}

void BlockRunner::shared_fault(const Thread& thread, const SharedMemory& memory) const {
  const SharedMemory::Fault& fault = memory.fault();
  if (fault.kind == ErrorKind::uninitialised)
    fail(thread, fault.kind, fmt::format("byte {} was never written", fault.byte));
  if (fault.kind == ErrorKind::stale_copy)
    fail(thread, fault.kind,
         fmt::format("byte {} belongs to an asynchronous copy of {} that was not waited for, {}",
                     fault.byte, name_of(fault.other_thread),
                     launch_.program.describe_line(fault.other_line)));
  fail(thread, fault.kind,
       fmt::format("byte {} of shared memory was {} by {} without a barrier between, {}",
                   fault.byte, fault.other_wrote ? "written" : "read", name_of(fault.other_thread),
                   launch_.program.describe_line(fault.other_line)));
}

uint8_t* BlockRunner::access(Thread& thread, const Instruction& in, uint64_t address, bool write) {
  const uint32_t bytes = uint32_t{in.size} * in.width;
  Space space = in.space;
  if (space == Space::global)
    return global(thread, address, bytes, write, in.flags);
  if (space == Space::generic) {
    if (address >> kRegionBits != 0)
      return global(thread, address, bytes, write, in.flags);
    if (address >= kSharedWindow) {
      space = Space::shared;
      address -= kSharedWindow;
    } else if (address >= kConstantWindow && !write) {
      space = Space::constant;
      address -= kConstantWindow;
    } else {
      fail(thread, ErrorKind::out_of_bounds,
           fmt::format("generic address {:#x}, where nothing is", address));
    }
  }
  if (space == Space::constant)
    return constant(thread, address, bytes);
  BlockRunner& owner = space == Space::cluster ? block_of(thread, address) : *this;
  uint8_t* memory = shared(thread, owner.shared_, address, bytes);
  const bool strong = (in.flags & kStrong) != 0 || in.code == Code::atomic;
  const uint32_t line = line_of(thread);
  if (!(write ? owner.shared_.write(number_of(thread), address, bytes, strong, line)
              : owner.shared_.read(number_of(thread), address, bytes, strong, line)))
    shared_fault(thread, owner.shared_);
  return memory;
}

void BlockRunner::load(Thread& thread, const Instruction& in) {
  const Value value = values_of(thread);
  uint64_t* words = thread.words.data() + thread.base;
  const uint8_t* memory = nullptr;
  if (in.space == Space::param) {
    memory = reinterpret_cast<const uint8_t*>(words) + in.immediate;
  } else {
    uint64_t address = value(in.a);
    if (in.space == Space::shared || in.space == Space::cluster)
      address = static_cast<uint32_t>(address);
    memory = access(thread, in, address + static_cast<uint64_t>(in.immediate), false);
  }
  const bool sign = (in.flags & kSigned) != 0;
  if (in.width == 1) {
    words[in.d] = read_element(memory, in.size, sign);
    return;
  }
  for (uint32_t i = 0; i < in.width; ++i)
    words[launch_.program.pool[in.extra + i]] = read_element(memory + i * in.size, in.size, sign);
}

void BlockRunner::store(Thread& thread, const Instruction& in) {
  const Value value = values_of(thread);
  uint8_t* memory = nullptr;
  if (in.space == Space::param) {
    memory = reinterpret_cast<uint8_t*>(thread.words.data() + thread.base) + in.immediate;
  } else {
    uint64_t address = value(in.a);
    if (in.space == Space::shared)
      address = static_cast<uint32_t>(address);
    memory = access(thread, in, address + static_cast<uint64_t>(in.immediate), true);
  }
  if (in.width == 1) {
    const uint64_t word = value(in.b);
    std::memcpy(memory, &word, in.size);
    return;
  }
  for (uint32_t i = 0; i < in.width; ++i) {
    const uint64_t word = value(launch_.program.pool[in.extra + i]);
    std::memcpy(memory + i * in.size, &word, in.size);
  }
}

void BlockRunner::atomic(Thread& thread, const Instruction& in) {
  const Value value = values_of(thread);
  uint64_t address = value(in.a);
  if (in.space == Space::shared)
    address = static_cast<uint32_t>(address);
  uint8_t* memory = access(thread, in, address + static_cast<uint64_t>(in.immediate), true);
  const ScalarType type = static_cast<ScalarType>(launch_.program.pool[in.extra]);
  const bool sign = (in.flags & kSigned) != 0;
  const unsigned bits = in.size * 8u;
  const auto narrowed = [&](uint64_t word) {
    return sign && bits == 32 ? static_cast<uint64_t>(int64_t{static_cast<int32_t>(word)})
           : bits == 32       ? word & 0xffffffffu
                              : word;
  };
  const uint64_t old = read_element(memory, in.size, sign);
  const uint64_t b = narrowed(value(in.b));
  const bool less = sign ? static_cast<int64_t>(b) < static_cast<int64_t>(old) : b < old;
  uint64_t made = 0;
  switch (static_cast<AtomicRule>(in.rule)) {
  case AtomicRule::add:
    switch (type) {
    case ScalarType::f32:
      made = to_word(canonical(from_word<float>(old) + from_word<float>(b)));
      break;
    case ScalarType::f64:
      made = to_word(from_word<double>(old) + from_word<double>(b));
      break;
    case ScalarType::f16:
      made = half_add(static_cast<uint16_t>(old), static_cast<uint16_t>(b));
      break;
    case ScalarType::bf16:
      made = bfloat_add(static_cast<uint16_t>(old), static_cast<uint16_t>(b));
      break;
    case ScalarType::f16x2:
      made = by_halves(half_add, static_cast<uint32_t>(old), static_cast<uint32_t>(b));
      break;
    case ScalarType::bf16x2:
      made = by_halves(bfloat_add, static_cast<uint32_t>(old), static_cast<uint32_t>(b));
      break;
    default:
      made = old + b;
      break;
    }
    break;
  case AtomicRule::min:
    made = less ? b : old;
    break;
  case AtomicRule::max:
    made = less ? old : b;
    break;
  case AtomicRule::bit_and:
    made = old & b;
    break;
  case AtomicRule::bit_or:
    made = old | b;
    break;
  case AtomicRule::bit_xor:
    made = old ^ b;
    break;
  case AtomicRule::exchange:
    made = b;
    break;
  case AtomicRule::cas:
    made = old == b ? value(in.c) : old;
    break;
  case AtomicRule::inc:
    made = old >= b ? 0 : old + 1;
    break;
  case AtomicRule::dec:
    made = old == 0 || old > b ? b : old - 1;
    break;
  }
  std::memcpy(memory, &made, in.size);
  thread.words[thread.base + in.d] = old;
}

void BlockRunner::copy_async(Thread& thread, const Instruction& in) {
  const Value value = values_of(thread);
  AsyncCopy copy;
  copy.group = thread.open_group;
  copy.bytes = in.size;
  copy.shared = static_cast<uint32_t>(value(in.d)) + static_cast<uint64_t>(in.immediate);
  const uint64_t from = value(in.a) + value(in.extra);
  const uint32_t source_bytes = in.b == kNone ? in.size : static_cast<uint32_t>(value(in.b));
  if (source_bytes > in.size)
    fail(thread, ErrorKind::out_of_bounds,
         fmt::format("an asynchronous copy of {} bytes reads {}", in.size, source_bytes));
  std::memset(copy.data, 0, sizeof copy.data);
  check_alignment(thread, from, in.size);
  if (source_bytes > 0) {
    // Byte by byte: the part that is read need not be a power of two.
    for (uint32_t i = 0; i < source_bytes; ++i)
      copy.data[i] = *global(thread, from + i, 1, false, 0);
  }
  shared(thread, shared_, copy.shared, in.size);
  if (!shared_.begin_copy(number_of(thread), copy.shared, in.size, line_of(thread)))
    shared_fault(thread, shared_);
  thread.copies.push_back(copy);
}

void BlockRunner::copy_wait(Thread& thread, const Instruction& in) {
  const bool all = (in.flags & kStrong) != 0;
  const int64_t last = all ? int64_t{UINT32_MAX} : int64_t{thread.open_group} - in.immediate;
  size_t kept = 0;
  for (const AsyncCopy& copy : thread.copies) {
    if (int64_t{copy.group} < last) {
      std::memcpy(shared_.data() + copy.shared, copy.data, copy.bytes);
      shared_.end_copy(number_of(thread), copy.shared, copy.bytes, line_of(thread));
    } else {
      thread.copies[kept++] = copy;
    }
  }
  thread.copies.resize(kept);
}

// ---- conversions -------------------------------------------------------------------------------

namespace {

struct IntegerShape {
  unsigned bits;
  bool sign;
};
IntegerShape shape_of(ScalarType type) {
  switch (type) {
  case ScalarType::u8:
    return {8, false};
  case ScalarType::u16:
    return {16, false};
  case ScalarType::u32:
    return {32, false};
  case ScalarType::u64:
    return {64, false};
  case ScalarType::s8:
    return {8, true};
  case ScalarType::s16:
    return {16, true};
  case ScalarType::s32:
    return {32, true};
  case ScalarType::s64:
    return {64, true};
  default:
    return {0, false};
  }
}
FloatFormat format_of(ScalarType type) {
  switch (type) {
  case ScalarType::f16:
    return kF16;
  case ScalarType::bf16:
    return kBf16;
  case ScalarType::f32:
    return kF32;
  default:
    return kF64;
  }
}
uint64_t extend(uint64_t word, IntegerShape shape) {
  if (shape.bits == 64)
    return word;
  const unsigned drop = 64 - shape.bits;
  return shape.sign ? static_cast<uint64_t>(static_cast<int64_t>(word << drop) >> drop)
                    : word << drop >> drop;
}

} // namespace

uint64_t BlockRunner::convert(const Instruction& in, uint64_t word) const {
  const uint32_t* rule = launch_.program.pool.data() + in.extra;
  const ScalarType to = static_cast<ScalarType>(rule[0]);
  const ScalarType from = static_cast<ScalarType>(rule[1]);
  const Rounding rounding = static_cast<Rounding>(rule[2]);
  const bool saturate = (rule[3] & 1) != 0, to_integral = (rule[3] & 2) != 0;
  const IntegerShape to_shape = shape_of(to), from_shape = shape_of(from);
  if (from_shape.bits != 0) {
    const uint64_t source = extend(word, from_shape);
    const bool negative = from_shape.sign && static_cast<int64_t>(source) < 0;
    if (to_shape.bits == 0)
      return encode(negative, negative ? 0 - source : source, 0, false, format_of(to), rounding);
    if (saturate) {
      const uint64_t top = to_shape.bits - (to_shape.sign ? 1 : 0) == 64
                               ? ~uint64_t{0}
                               : (uint64_t{1} << (to_shape.bits - (to_shape.sign ? 1 : 0))) - 1;
      if (!negative && source > top)
        return top;
      if (negative && !to_shape.sign)
        return 0;
      if (negative && source < ~top)
        return extend(~top, to_shape);
    }
    return extend(source, to_shape);
  }
  if (to == from && !to_integral) {
    return word;
  }
  const double source =
      decode(word & (format_of(from).bits == 64 ? ~uint64_t{0}
                                                : (uint64_t{1} << format_of(from).bits) - 1),
             format_of(from));
  if (to_shape.bits == 0)
    return round_to_format(to_integral ? round_to_integral(source, rounding) : source,
                           format_of(to), rounding);
  if (std::isnan(source)) {
    // PTX ISA, "cvt": zero where neither side has 64 bits, else the integer with only its top bit.
    const bool wide = from == ScalarType::f64 || to_shape.bits == 64;
    return wide ? extend(uint64_t{1} << (to_shape.bits - 1), to_shape) : 0;
  }
  if (to_shape.sign) {
    const int64_t high = static_cast<int64_t>((uint64_t{1} << (to_shape.bits - 1)) - 1);
    return static_cast<uint64_t>(round_to_integer(source, rounding, -high - 1, high));
  }
  const uint64_t high = to_shape.bits == 64 ? ~uint64_t{0} : (uint64_t{1} << to_shape.bits) - 1;
  return round_to_unsigned(source, rounding, high);
}

} // namespace sparsertc::ptx
