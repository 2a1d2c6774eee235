#include "tests/support/ptx_interpreter_machine.h"

#include "tests/support/ptx_interpreter_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace sparsertc::ptx {
namespace {

using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;

u64 high_product(u64 a, u64 b) {
  const u64 a_low = static_cast<u32>(a), a_high = a >> 32;
  const u64 b_low = static_cast<u32>(b), b_high = b >> 32;
  const u64 middle = a_high * b_low + (a_low * b_low >> 32);
  const u64 other = a_low * b_high + static_cast<u32>(middle);
  return a_high * b_high + (middle >> 32) + (other >> 32);
}
s64 high_product(s64 a, s64 b) {
  u64 high = high_product(static_cast<u64>(a), static_cast<u64>(b));
  high -= a < 0 ? static_cast<u64>(b) : 0;
  high -= b < 0 ? static_cast<u64>(a) : 0;
  return static_cast<s64>(high);
}
s64 signed_quotient(s64 a, s64 b) {
  if (b == 0)
    return -1;
  if (b == -1)
    return static_cast<s64>(0 - static_cast<u64>(a));
  return a / b;
}
s64 signed_remainder(s64 a, s64 b) {
  if (b == 0)
    return a;
  return b == -1 ? 0 : a % b;
}
u64 reversed_bits(u64 value, int bits) {
  u64 result = 0;
  for (int i = 0; i < bits; ++i)
    result |= (value >> i & 1) << (bits - 1 - i);
  return result;
}
u64 extracted_bits(u64 value, u32 position, u32 length, u32 bits) {
  position &= 0xff;
  length &= 0xff;
  if (position >= bits || length == 0)
    return 0;
  value >>= position;
  return length >= 64 ? value : value & ((u64{1} << length) - 1);
}
u32 permuted_bytes(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64{b} << 32 | a;
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 choice = selector >> (4 * i) & 0xf;
    u32 byte = static_cast<u32>(bytes >> (8 * (choice & 7))) & 0xff;
    if (choice & 8)
      byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}
u16 half_minimum(u16 a, u16 b) {
  return static_cast<u16>(
      round_to_format(minimum_number(half_to_float(a), half_to_float(b)), kF16, Rounding::nearest));
}
u16 half_maximum(u16 a, u16 b) {
  return static_cast<u16>(
      round_to_format(maximum_number(half_to_float(a), half_to_float(b)), kF16, Rounding::nearest));
}
u16 bfloat_minimum(u16 a, u16 b) {
  return static_cast<u16>(round_to_format(minimum_number(bfloat_to_float(a), bfloat_to_float(b)),
                                          kBf16, Rounding::nearest));
}
u16 bfloat_maximum(u16 a, u16 b) {
  return static_cast<u16>(round_to_format(maximum_number(bfloat_to_float(a), bfloat_to_float(b)),
                                          kBf16, Rounding::nearest));
}
/// Threads run this many instructions before the next one has its turn (threads that spin on memory
/// let the others go on).
constexpr uint64_t kSlice = 1 << 18;
/// What registers hold before their first assignment.
constexpr uint64_t kUnassigned = 0x7ff7dead7fb7deadu;

} // namespace

BlockRunner::BlockRunner(Launch& launch, ClusterRunner& cluster, uint32_t rank)
    : launch_(launch), cluster_(cluster), rank_(rank) {
  thread_count_ = launch.block.x * launch.block.y * launch.block.z;
  threads_.resize(thread_count_);
}

std::string BlockRunner::name_of(uint32_t thread) const {
  const Dim3& block = launch_.block;
  const uint32_t* place = cluster_.blocks_[thread / thread_count_]->block_;
  thread %= thread_count_;
  return fmt::format("thread ({},{},{}) of block ({},{},{})", thread % block.x,
                     thread / block.x % block.y, thread / (block.x * block.y), place[0], place[1],
                     place[2]);
}

void BlockRunner::fail(const Thread& thread, ErrorKind kind, const std::string& message) const {
  const uint32_t line = line_of(thread);
  throw Error(kind, line & 0xffffff,
              fmt::format("{}: {}: {}: {}", launch_.program.describe_line(line),
                          name_of(number_of(thread)), to_string(kind), message));
}

BlockRunner::Value BlockRunner::values_of(const Thread& thread) const {
  return {{thread.words.data() + thread.base, launch_.program.constants.data(), thread.special}};
}

void BlockRunner::start(Thread& thread, uint32_t index) {
  thread.status = Status::ready;
  thread.index = index;
  thread.pc = launch_.entry.first;
  thread.base = 0;
  thread.function = static_cast<uint32_t>(&launch_.entry - launch_.program.functions.data());
  thread.open_group = 0;
  thread.at_cluster_barrier = false;
  thread.calls.clear();
  thread.copies.clear();
  thread.words.clear();
  const Dim3& size = launch_.block;
  const Dim3& grid = launch_.grid;
  const uint32_t lane = index % 32;
  const uint64_t values[] = {index % size.x,
                             index / size.x % size.y,
                             index / (size.x * size.y),
                             size.x,
                             size.y,
                             size.z,
                             block_[0],
                             block_[1],
                             block_[2],
                             grid.x,
                             grid.y,
                             grid.z,
                             lane,
                             index / 32,
                             uint64_t{1} << lane,
                             (uint64_t{1} << lane) - 1,
                             (uint64_t{2} << lane) - 1,
                             0xffffffffu & ~((uint64_t{2} << lane) - 1),
                             0xffffffffu & ~((uint64_t{1} << lane) - 1),
                             launch_.dynamic_shared_bytes,
                             launch_.shared_bytes};
  static_assert(std::size(values) == static_cast<size_t>(SpecialRegister::count));
  std::copy(std::begin(values), std::end(values), thread.special);
}

void BlockRunner::begin(uint32_t x, uint32_t y, uint32_t z) {
  block_[0] = x;
  block_[1] = y;
  block_[2] = z;
  shared_.reset(launch_.shared_bytes, &cluster_.clocks_);
  for (Barrier& barrier : barriers_)
    barrier = Barrier();
  for (uint32_t i = 0; i < thread_count_; ++i)
    start(threads_[i], i);
  done_ = 0;
}

bool BlockRunner::advance() {
  bool progress = false;
  for (Thread& thread : threads_) {
    if (thread.status != Status::ready)
      continue;
    progress = true;
    run_thread(thread);
    if (thread.status == Status::done) {
      ++done_;
      cluster_.thread_ended();
    }
  }
  return progress;
}

void BlockRunner::wake_from_cluster() {
  for (Thread& thread : threads_)
    if (thread.status == Status::at_cluster)
      thread.status = Status::ready;
}

ClusterRunner::ClusterRunner(Launch& launch) : launch_(launch) {
  const uint32_t* size = launch.entry.cluster;
  for (uint32_t rank = 0; rank < size[0] * size[1] * size[2]; ++rank)
    blocks_.push_back(std::make_unique<BlockRunner>(launch, *this, rank));
}

ClusterRunner::~ClusterRunner() = default;

void ClusterRunner::run(uint32_t x, uint32_t y, uint32_t z) {
  const uint32_t* size = launch_.entry.cluster;
  live_ = static_cast<uint32_t>(blocks_.size()) * blocks_.front()->threads();
  clocks_.reset(live_);
  arrived_ = 0;
  open_.clear();
  for (uint32_t rank = 0; rank < blocks_.size(); ++rank)
    blocks_[rank]->begin(x + rank % size[0], y + rank / size[0] % size[1],
                         z + rank / (size[0] * size[1]));
  while (live_ > 0) {
    bool progress = false;
    for (const std::unique_ptr<BlockRunner>& block : blocks_)
      progress = block->advance() || progress;
    if (!progress)
      for (const std::unique_ptr<BlockRunner>& block : blocks_)
        if (!block->ended())
          block->deadlock();
    if (launch_.statistics.instructions > launch_.instruction_limit)
      throw Error(ErrorKind::limit, 0,
                  fmt::format("{}: more than {} instructions", to_string(ErrorKind::limit),
                              launch_.instruction_limit));
  }
}

void ClusterRunner::thread_ended() {
  --live_;
  complete();
}

void ClusterRunner::complete() {
  if (arrived_ == 0 || arrived_ < live_)
    return;
  ++round_;
  arrived_ = 0;
  closed_ = std::move(open_);
  open_.clear();
  for (const std::unique_ptr<BlockRunner>& block : blocks_)
    block->wake_from_cluster();
}

void BlockRunner::deadlock() const {
  uint32_t waiting = 0, done = 0;
  const Thread* first = nullptr;
  for (const Thread& thread : threads_) {
    done += thread.status == Status::done;
    if (thread.status != Status::done) {
      ++waiting;
      if (!first)
        first = &thread;
    }
  }
  std::string detail = fmt::format("{} threads wait for ever, {} have ended", waiting, done);
  if (first->status == Status::at_barrier) {
    const Barrier& barrier = barriers_[first->barrier_number];
    detail = fmt::format("barrier {} has {} of {} threads; {}", first->barrier_number,
                         barrier.arrived.size(), barrier.expected, detail);
  }
  if (first->status == Status::at_cluster)
    detail = fmt::format("the barrier of the cluster has {} of {} threads; {}", cluster_.arrived_,
                         cluster_.live_, detail);
  fail(*first, ErrorKind::deadlock, detail);
}

void BlockRunner::run_thread(Thread& thread) {
  const DecodedProgram& program = launch_.program;
  const Instruction* const code = program.code.data();
  if (thread.words.empty()) {
    if (!spare_words_.empty()) {
      thread.words = std::move(spare_words_.back());
      spare_words_.pop_back();
    }
    const FunctionCode& entry = launch_.entry;
    thread.words.assign(std::max<size_t>(entry.frame_words, 1), kUnassigned);
    for (size_t i = 0; i < entry.parameters.size(); ++i)
      thread.words[entry.parameters[i].slot] = launch_.arguments[i];
  }
  uint32_t pc = thread.pc;
  uint64_t* words = thread.words.data() + thread.base;
  Value value = values_of(thread);
  uint64_t executed = 0;
  const auto leave = [&] {
    thread.pc = pc;
    launch_.statistics.instructions += executed;
  };
  for (;;) {
    const Instruction& in = code[pc];
    ++executed;
    if (in.guard != kNone && (words[in.guard >> 1] & 1) == (in.guard & 1)) {
      ++pc;
      continue;
    }
    switch (in.code) {
#define PTX_VALUE1(name, opcodes, R, A, ...)                                                       \
  case Code::name: {                                                                               \
    const A a = from_word<A>(value(in.a));                                                         \
    words[in.d] = to_word<R>(static_cast<R>(__VA_ARGS__));                                         \
    ++pc;                                                                                          \
    continue;                                                                                      \
  }
#define PTX_VALUE2(name, opcodes, R, A, B, ...)                                                    \
  case Code::name: {                                                                               \
    const A a = from_word<A>(value(in.a));                                                         \
    const B b = from_word<B>(value(in.b));                                                         \
    words[in.d] = to_word<R>(static_cast<R>(__VA_ARGS__));                                         \
    ++pc;                                                                                          \
    continue;                                                                                      \
  }
#define PTX_VALUE3(name, opcodes, R, A, B, C, ...)                                                 \
  case Code::name: {                                                                               \
    const A a = from_word<A>(value(in.a));                                                         \
    const B b = from_word<B>(value(in.b));                                                         \
    const C c = from_word<C>(value(in.c));                                                         \
    words[in.d] = to_word<R>(static_cast<R>(__VA_ARGS__));                                         \
    ++pc;                                                                                          \
    continue;                                                                                      \
  }
#include "tests/support/ptx_interpreter_ops.def"
    case Code::convert:
      words[in.d] = convert(in, value(in.a));
      ++pc;
      continue;
    case Code::mov_pack: {
      uint64_t packed = 0;
      const unsigned bits = in.size * 8u;
      for (uint32_t i = 0; i < in.width; ++i)
        packed |= (value(program.pool[in.extra + i]) & ((uint64_t{1} << bits) - 1)) << (bits * i);
      words[in.d] = packed;
      ++pc;
      continue;
    }
    case Code::mov_unpack: {
      const uint64_t packed = value(in.a);
      const unsigned bits = in.size * 8u;
      for (uint32_t i = 0; i < in.width; ++i)
        words[program.pool[in.extra + i]] = packed >> (bits * i) & ((uint64_t{1} << bits) - 1);
      ++pc;
      continue;
    }
    case Code::load:
      thread.pc = pc;
      load(thread, in);
      ++pc;
      continue;
    case Code::store:
      thread.pc = pc;
      store(thread, in);
      ++pc;
      continue;
    case Code::atomic:
      thread.pc = pc;
      atomic(thread, in);
      ++pc;
      continue;
    case Code::copy_async:
      thread.pc = pc;
      copy_async(thread, in);
      ++pc;
      continue;
    case Code::copy_commit:
      ++thread.open_group;
      ++pc;
      continue;
    case Code::copy_wait:
      thread.pc = pc;
      copy_wait(thread, in);
      ++pc;
      continue;
    case Code::active_mask: {
      // The interpreter runs threads apart: only this one is active.
      words[in.d] = uint64_t{1} << (thread.index % 32);
      ++pc;
      continue;
    }
    case Code::fence:
    case Code::nop:
      ++pc;
      continue;
    case Code::barrier:
      leave();
      arrive(thread, in);
      if (thread.status != Status::ready)
        return;
      executed = 0;
      pc = thread.pc;
      continue;
    case Code::cluster_arrive:
      thread.pc = pc;
      arrive_cluster(thread);
      ++pc;
      continue;
    case Code::cluster_wait:
      leave();
      if (!wait_cluster(thread))
        return;
      executed = 0;
      ++pc;
      continue;
    case Code::map_shared: {
      const uint64_t rank = value(in.b);
      thread.pc = pc;
      if (rank >= cluster_.blocks_.size())
        fail(thread, ErrorKind::out_of_bounds,
             fmt::format("block {} of a cluster of {}", rank, cluster_.blocks_.size()));
      words[in.d] = (rank + 1) << kRankShift | value(in.a);
      ++pc;
      continue;
    }
    case Code::barrier_warp:
    case Code::shuffle:
    case Code::vote:
    case Code::match_any:
    case Code::reduce_warp:
    case Code::mma:
    case Code::load_matrix:
      leave();
      meet_warp(thread, in);
      if (thread.status != Status::ready)
        return;
      executed = 0;
      pc = thread.pc;
      continue;
    case Code::branch: {
      const uint32_t target = static_cast<uint32_t>(in.immediate);
      const bool backward = target <= pc;
      pc = target;
      if (backward && executed > kSlice) {
        leave();
        return;
      }
      continue;
    }
    case Code::branch_table: {
      const uint32_t index = static_cast<uint32_t>(value(in.a));
      if (index >= program.pool[in.extra]) {
        thread.pc = pc;
        fail(thread, ErrorKind::trap,
             fmt::format("branch {} of {}", index, program.pool[in.extra]));
      }
      pc = program.pool[in.extra + 1 + index];
      continue;
    }
    case Code::call:
      thread.pc = pc;
      call(thread, in);
      pc = thread.pc;
      words = thread.words.data() + thread.base;
      value = values_of(thread);
      continue;
    case Code::ret:
      thread.pc = pc;
      if (ret(thread)) {
        pc = thread.pc;
        words = thread.words.data() + thread.base;
        value = values_of(thread);
        continue;
      }
      [[fallthrough]];
    case Code::exit:
      leave();
      thread.status = Status::done;
      // Copies that nobody waited for land when the thread ends.
      for (const AsyncCopy& copy : thread.copies) {
        std::memcpy(shared_.data() + copy.shared, copy.data, copy.bytes);
        shared_.end_copy(number_of(thread), copy.shared, copy.bytes, line_of(thread));
      }
      thread.copies.clear();
      spare_words_.push_back(std::move(thread.words));
      thread.words.clear();
      return;
    case Code::trap:
      thread.pc = pc;
      fail(thread, ErrorKind::trap, "trap executed");
    }
  }
}

void BlockRunner::call(Thread& thread, const Instruction& in) {
  const DecodedProgram& program = launch_.program;
  const uint32_t* words = program.pool.data() + in.extra;
  const FunctionCode& callee = program.functions[words[0]];
  if (!callee.defined)
    fail(thread, ErrorKind::trap, fmt::format("`{}` has no body", callee.name));
  if (thread.calls.size() > 64)
    fail(thread, ErrorKind::trap, "calls nest more than 64 deep");
  const uint32_t base = thread.base + program.functions[thread.function].frame_words;
  if (thread.words.size() < size_t{base} + callee.frame_words)
    thread.words.resize(size_t{base} + callee.frame_words);
  std::fill_n(thread.words.begin() + base, callee.frame_words, kUnassigned);
  const Value value = values_of(thread);
  const uint32_t arguments = words[1];
  const uint32_t* word = words + 2;
  for (uint32_t i = 0; i < arguments; ++i, word += 3)
    for (uint32_t w = 0; w < word[1]; ++w)
      thread.words[base + word[0] + w] = value(word[2] + w);
  thread.calls.push_back({thread.pc + 1, thread.base, thread.function, in.extra});
  thread.base = base;
  thread.function = words[0];
  thread.pc = callee.first;
}

bool BlockRunner::ret(Thread& thread) {
  if (thread.calls.empty())
    return false;
  const CallFrame frame = thread.calls.back();
  thread.calls.pop_back();
  const uint32_t* words = launch_.program.pool.data() + frame.call_words;
  const uint32_t* word = words + 2 + 3 * words[1];
  const uint32_t results = *word++;
  for (uint32_t i = 0; i < results; ++i, word += 3)
    for (uint32_t w = 0; w < word[2]; ++w)
      thread.words[frame.base + word[0] + w] = thread.words[thread.base + word[1] + w];
  thread.base = frame.base;
  thread.function = frame.function;
  thread.pc = frame.return_pc;
  return true;
}

// ---- the machine -------------------------------------------------------------------------------

uint64_t Machine::register_buffer(void* host, size_t bytes, bool writable, std::string name) {
  Buffer buffer;
  buffer.host = static_cast<uint8_t*>(host);
  buffer.bytes = bytes;
  buffer.writable = writable;
  buffer.name = name.empty() ? fmt::format("buffer {}", buffers_.size()) : std::move(name);
  buffer.address = (uint64_t{buffers_.size() + 1} << kRegionBits) + kBufferOffset +
                   (reinterpret_cast<uintptr_t>(host) & 15);
  buffers_.push_back(std::move(buffer));
  return buffers_.back().address;
}

uint64_t Machine::register_buffer(const void* host, size_t bytes, std::string name) {
  return register_buffer(const_cast<void*>(host), bytes, false, std::move(name));
}

void Machine::clear() {
  buffers_.clear();
}

RunStatistics Machine::run(const Program& program, std::string_view entry, Dim3 grid, Dim3 block,
                           std::span<const uint64_t> arguments, uint32_t dynamic_shared_bytes) {
  const DecodedProgram& decoded = program.decoded();
  const auto launch_error = [](const std::string& message) {
    throw Error(ErrorKind::launch, 0, fmt::format("launch: {}", message));
  };
  const auto found =
      std::find_if(decoded.functions.begin(), decoded.functions.end(),
                   [&](const FunctionCode& f) { return f.is_entry && f.name == entry; });
  if (found == decoded.functions.end())
    launch_error(fmt::format("no entry `{}`", entry));
  if (found->parameters.size() != arguments.size())
    launch_error(fmt::format("`{}` has {} parameters, {} arguments given", entry,
                             found->parameters.size(), arguments.size()));
  for (const Parameter& parameter : found->parameters)
    if (parameter.bytes > 8)
      launch_error(fmt::format("parameter `{}` has {} bytes", parameter.name, parameter.bytes));
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64)
    launch_error(fmt::format("a block of {} threads", threads));
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 ||
      grid.x > 0x7fffffffu)
    launch_error(fmt::format("a grid of {}x{}x{} blocks", grid.x, grid.y, grid.z));
  if (found->required_threads[0] != 0 &&
      (found->required_threads[0] != block.x || found->required_threads[1] != block.y ||
       found->required_threads[2] != block.z))
    launch_error(fmt::format("`{}` requires blocks of {}x{}x{}", entry, found->required_threads[0],
                             found->required_threads[1], found->required_threads[2]));
  if (found->maximum_threads != 0 && threads > found->maximum_threads)
    launch_error(fmt::format("`{}` allows {} threads a block", entry, found->maximum_threads));
  const uint32_t(&cluster)[3] = found->cluster;
  const uint64_t blocks = uint64_t{cluster[0]} * cluster[1] * cluster[2];
  if (blocks == 0 || blocks > 8)
    launch_error(fmt::format("a cluster of {} blocks", blocks));
  if (grid.x % cluster[0] != 0 || grid.y % cluster[1] != 0 || grid.z % cluster[2] != 0)
    launch_error(fmt::format("a grid of {}x{}x{} blocks in clusters of {}x{}x{}", grid.x, grid.y,
                             grid.z, cluster[0], cluster[1], cluster[2]));
  Launch launch{decoded, *found, buffers_, {}, grid, block, arguments, 0, 0, 0, {}};
  launch.dynamic_shared_bytes = dynamic_shared_bytes;
  launch.shared_bytes = decoded.shared_bytes + dynamic_shared_bytes;
  if (launch.shared_bytes > 232448)
    launch_error(fmt::format("{} bytes of shared memory", launch.shared_bytes));
  launch.instruction_limit = instruction_limit_;
  for (const Variable& variable : decoded.variables) {
    launch.variables.emplace_back();
    if (variable.space == Space::global) {
      launch.variables.back() = variable.initial;
      launch.variables.back().resize(variable.bytes);
    }
  }
  for (Buffer& buffer : buffers_)
    buffer.written.assign(buffer.writable ? buffer.bytes : 0, 0);
  ClusterRunner runner(launch);
  for (uint32_t z = 0; z < grid.z; z += cluster[2])
    for (uint32_t y = 0; y < grid.y; y += cluster[1])
      for (uint32_t x = 0; x < grid.x; x += cluster[0])
        runner.run(x, y, z);
  return launch.statistics;
}

} // namespace sparsertc::ptx
