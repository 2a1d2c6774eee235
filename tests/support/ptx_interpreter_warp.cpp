// Barriers, and operations that the threads of a warp do together.
#include "tests/support/ptx_interpreter_float.h"
#include "tests/support/ptx_interpreter_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace sparsertc::ptx {

void BlockRunner::arrive(Thread& thread, const Instruction& in) {
  const Value value = values_of(thread);
  const uint32_t number = static_cast<uint32_t>(value(in.a));
  const uint32_t expected = in.b == kNone ? thread_count_ : static_cast<uint32_t>(value(in.b));
  if (number >= 16)
    fail(thread, ErrorKind::trap, fmt::format("barrier {}, there are 16", number));
  if (in.b != kNone && (expected == 0 || expected % 32 != 0))
    fail(thread, ErrorKind::trap, fmt::format("a barrier of {} threads", expected));
  Barrier& barrier = barriers_[number];
  if (barrier.arrived.empty())
    barrier.expected = expected;
  else if (barrier.expected != expected)
    fail(thread, ErrorKind::divergence,
         fmt::format("barrier {} is used with {} and with {} threads", number, barrier.expected,
                     expected));
  thread.status = Status::at_barrier;
  thread.barrier_number = number;
  barrier.arrived.push_back(thread.index);
  if (barrier.arrived.size() < barrier.expected)
    return;
  if ((in.flags & kAligned) != 0) {
    // The aligned form promises that whole warps arrive, at one instruction.
    std::vector<uint32_t> lanes((thread_count_ + 31) / 32, 0), pcs(lanes.size(), 0);
    for (const uint32_t index : barrier.arrived) {
      uint32_t& pc = pcs[index / 32];
      if (lanes[index / 32]++ == 0)
        pc = threads_[index].pc;
      else if (pc != threads_[index].pc)
        fail(thread, ErrorKind::divergence,
             fmt::format("threads of warp {} arrive at different aligned barriers", index / 32));
    }
    for (uint32_t warp = 0; warp < lanes.size(); ++warp) {
      const uint32_t all = std::min(32u, thread_count_ - 32 * warp);
      if (lanes[warp] != 0 && lanes[warp] != all)
        fail(thread, ErrorKind::divergence,
             fmt::format("{} of {} threads of warp {} arrive at an aligned barrier", lanes[warp],
                         all, warp));
    }
  }
  meet(barrier.arrived);
  for (const uint32_t index : barrier.arrived) {
    threads_[index].status = Status::ready;
    ++threads_[index].pc;
  }
  barrier.arrived.clear();
  ++launch_.statistics.barriers;
}

void BlockRunner::meet(const std::vector<uint32_t>& threads) {
  std::vector<uint32_t> numbers;
  for (const uint32_t index : threads)
    numbers.push_back(number_of(threads_[index]));
  cluster_.clocks_.meet(numbers);
}

void BlockRunner::arrive_cluster(Thread& thread) {
  if (thread.at_cluster_barrier)
    fail(thread, ErrorKind::divergence,
         "arrives a second time at the barrier of the cluster without having waited");
  thread.at_cluster_barrier = true;
  thread.cluster_round = cluster_.round_;
  cluster_.clocks_.release(number_of(thread), cluster_.open_);
  ++cluster_.arrived_;
  cluster_.complete();
}

/// Whether it is over; else the thread is woken up and asks again.
bool BlockRunner::wait_cluster(Thread& thread) {
  if (!thread.at_cluster_barrier)
    fail(thread, ErrorKind::divergence,
         "waits for the barrier of the cluster without having arrived");
  if (thread.cluster_round == cluster_.round_) {
    thread.status = Status::at_cluster;
    return false;
  }
  thread.at_cluster_barrier = false;
  cluster_.clocks_.acquire(number_of(thread), cluster_.closed_);
  if (thread.index == 0)
    ++launch_.statistics.barriers;
  return true;
}

void BlockRunner::meet_warp(Thread& thread, const Instruction& in) {
  const Value value = values_of(thread);
  const uint32_t first = thread.index / 32 * 32;
  const uint32_t lane = thread.index % 32;
  uint32_t mask = 0xffffffffu;
  switch (in.code) {
  case Code::barrier_warp:
    mask = static_cast<uint32_t>(value(in.a));
    break;
  case Code::shuffle:
    mask = static_cast<uint32_t>(value(launch_.program.pool[in.extra + 1]));
    break;
  case Code::vote:
  case Code::match_any:
  case Code::reduce_warp:
    mask = static_cast<uint32_t>(value(in.b));
    break;
  default:
    break;
  }
  if ((mask >> lane & 1) == 0)
    fail(thread, ErrorKind::divergence,
         fmt::format("lane {} is not in its mask {:#x}", lane, mask));
  thread.status = Status::at_warp;
  std::vector<uint32_t> lanes;
  for (uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0)
      continue;
    const uint32_t index = first + i;
    if (index >= thread_count_) {
      // A full mask in a warp that is not full means the lanes that exist.
      if (mask == 0xffffffffu && in.code != Code::mma && in.code != Code::load_matrix)
        continue;
      fail(thread, ErrorKind::divergence, fmt::format("lane {} does not exist", i));
    }
    const Thread& other = threads_[index];
    if (other.status == Status::done)
      fail(thread, ErrorKind::divergence,
           fmt::format("lane {} is in the mask {:#x} but has ended", i, mask));
    if (other.status != Status::at_warp || other.pc != thread.pc)
      return;
    lanes.push_back(index);
  }
  if (in.code == Code::barrier_warp)
    meet(lanes);
  else
    warp_operation(in, lanes);
  for (const uint32_t index : lanes) {
    threads_[index].status = Status::ready;
    ++threads_[index].pc;
  }
}

void BlockRunner::warp_operation(const Instruction& in, const std::vector<uint32_t>& lanes) {
  if (in.code == Code::mma) {
    matrix_multiply(in, lanes.front());
    return;
  }
  if (in.code == Code::load_matrix) {
    load_matrix(in, lanes.front());
    return;
  }
  const auto operand = [&](uint32_t index, OperandRef ref) {
    return static_cast<uint32_t>(values_of(threads_[index])(ref));
  };
  std::vector<uint32_t> sources(32), results(lanes.size());
  std::vector<bool> present(32), valid(lanes.size(), true);
  for (const uint32_t index : lanes) {
    uint32_t source = operand(index, in.a);
    if (in.code == Code::vote)
      source = (source & 1) ^ ((in.flags & kNegated) != 0 ? 1u : 0u);
    sources[index % 32] = source;
    present[index % 32] = true;
  }
  uint32_t ballot = 0;
  for (const uint32_t index : lanes)
    ballot |= (sources[index % 32] & 1) << (index % 32);
  uint32_t members = 0;
  for (const uint32_t index : lanes)
    members |= 1u << (index % 32);
  for (size_t i = 0; i < lanes.size(); ++i) {
    const uint32_t index = lanes[i];
    const uint32_t lane = index % 32;
    if (in.code == Code::shuffle) {
      const uint32_t b = operand(index, in.b) & 31, c = operand(index, in.c);
      const uint32_t segment = c >> 8 & 31, clamp = c & 31;
      const uint32_t highest = (lane & segment) | (clamp & ~segment);
      const uint32_t lowest = lane & segment;
      int64_t from = lane;
      switch (static_cast<ShuffleRule>(in.rule)) {
      case ShuffleRule::up:
        from = int64_t{lane} - b;
        valid[i] = from >= int64_t{highest};
        break;
      case ShuffleRule::down:
        from = int64_t{lane} + b;
        valid[i] = from <= int64_t{highest};
        break;
      case ShuffleRule::butterfly:
        from = lane ^ b;
        valid[i] = from <= int64_t{highest};
        break;
      case ShuffleRule::index:
        from = lowest | (b & ~segment);
        valid[i] = from <= int64_t{highest};
        break;
      }
      if (!valid[i])
        from = lane;
      if (!present[static_cast<size_t>(from)])
        fail(threads_[index], ErrorKind::divergence,
             fmt::format("lane {} reads lane {}, which takes no part", lane, from));
      results[i] = sources[static_cast<size_t>(from)];
    } else if (in.code == Code::vote) {
      switch (static_cast<VoteRule>(in.rule)) {
      case VoteRule::ballot:
        results[i] = ballot;
        break;
      case VoteRule::all:
        results[i] = ballot == members;
        break;
      case VoteRule::any:
        results[i] = ballot != 0;
        break;
      case VoteRule::uniform:
        results[i] = ballot == 0 || ballot == members;
        break;
      }
    } else if (in.code == Code::match_any) {
      for (const uint32_t other : lanes)
        if (sources[other % 32] == sources[lane])
          results[i] |= 1u << (other % 32);
    } else {
      uint32_t sum = sources[lanes.front() % 32];
      for (size_t j = 1; j < lanes.size(); ++j) {
        const uint32_t other = sources[lanes[j] % 32];
        const bool less = (in.flags & kSigned) != 0
                              ? static_cast<int32_t>(other) < static_cast<int32_t>(sum)
                              : other < sum;
        switch (in.rule) {
        case 0:
          sum += other;
          break;
        case 1:
          sum = less ? other : sum;
          break;
        case 2:
          sum = less ? sum : other;
          break;
        case 3:
          sum &= other;
          break;
        case 4:
          sum |= other;
          break;
        default:
          sum ^= other;
          break;
        }
      }
      results[i] = sum;
    }
  }
  for (size_t i = 0; i < lanes.size(); ++i) {
    Thread& thread = threads_[lanes[i]];
    thread.words[thread.base + in.d] = results[i];
    if (in.code == Code::shuffle && launch_.program.pool[in.extra] != kNone)
      thread.words[thread.base + launch_.program.pool[in.extra]] = valid[i];
  }
}

// Lane l names row l % 8 of matrix l / 8, a row of eight 16-bit elements; transposed, it gets of
// each matrix elements l / 4 of rows 2 (l % 4) and 2 (l % 4) + 1.
void BlockRunner::load_matrix(const Instruction& in, uint32_t first_thread) {
  uint16_t rows[32][8];
  for (uint32_t lane = 0; lane < 32; ++lane) {
    Thread& thread = threads_[first_thread + lane];
    const auto address = static_cast<uint32_t>(values_of(thread)(in.a));
    std::memcpy(rows[lane],
                access(thread, in, address + static_cast<uint64_t>(in.immediate), false),
                sizeof(rows[lane]));
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    Thread& thread = threads_[first_thread + lane];
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      const uint32_t row = 8 * matrix + 2 * (lane % 4);
      thread.words[thread.base + launch_.program.pool[in.extra + matrix]] =
          uint32_t{rows[row + 1][lane / 4]} << 16 | rows[row][lane / 4];
    }
  }
}

// Fragments as the PTX ISA lays them out ("Matrix Fragments for mma.m16n8k16" and its neighbours):
// lane = 4 * group + in_group. Hardware does not say in which order or precision it sums; here each
// result is the sum in float64, ascending in k, of exact products, and the addend, rounded once.
void BlockRunner::matrix_multiply(const Instruction& in, uint32_t first_thread) {
  const uint32_t* words = launch_.program.pool.data() + in.extra;
  const ScalarType type = static_cast<ScalarType>(words[0]);
  const uint32_t k_size = words[1];
  const bool sparse = words[2] != 0;
  const bool tf32 = type == ScalarType::tf32;
  const uint32_t* lists[4];
  const uint32_t* word = words + 3;
  for (auto& list : lists) {
    list = word;
    word += 1 + *word;
  }
  const auto element = [&](uint32_t lane, const uint32_t* list, uint32_t i) -> double {
    const Value value = values_of(threads_[first_thread + lane]);
    if (tf32) {
      // The low 13 bits do not count.
      const uint32_t bits = static_cast<uint32_t>(value(list[1 + i])) & 0xffffe000u;
      return std::bit_cast<float>(bits);
    }
    const uint32_t pair = static_cast<uint32_t>(value(list[1 + i / 2]));
    const uint16_t half = static_cast<uint16_t>(i % 2 ? pair >> 16 : pair);
    return type == ScalarType::f16 ? half_to_float(half) : bfloat_to_float(half);
  };
  // Columns are laid out in stripes: a stripe has 4 lanes times `run` neighbouring elements.
  const uint32_t run = tf32 ? 1 : 2;
  const uint32_t stripe = 4 * run;
  const uint32_t a_columns = sparse ? k_size / 2 : k_size;
  std::vector<double> a(16 * a_columns), b(k_size * 8);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t group = lane / 4, in_group = lane % 4;
    for (uint32_t i = 0; i < 16 * a_columns / 32; ++i) {
      const uint32_t row = group + (i / run % 2) * 8;
      const uint32_t column = in_group * run + i % run + i / (2 * run) * stripe;
      a[row * a_columns + column] = element(lane, lists[1], i);
    }
    for (uint32_t i = 0; i < k_size * 8 / 32; ++i) {
      const uint32_t row = in_group * run + i % run + i / run * stripe;
      b[row * 8 + group] = element(lane, lists[2], i);
    }
  }
  // Column of B that the i-th kept element of a row of A meets.
  const auto column_of = [&](uint32_t row, uint32_t i) -> uint32_t {
    if (!sparse)
      return i;
    const uint32_t metadata_operand = word[0], selector = word[1];
    // f16: 2 of 4, two indices of 2 bits for 4 columns; tf32: 1 of 2, 4 bits for 2 columns. Either
    // way a kept pair (element) of 4 bits covers 4 (2) columns, and 16 bits 4 of these.
    const uint32_t chunk = tf32 ? i : i / 2; // of 4 bits
    const uint32_t chunks = tf32 ? a_columns : a_columns / 2;
    const uint32_t threads = chunks / 4; // lanes of a quad that give metadata: 1 or 2
    const uint32_t lane = (row % 8) * 4 + selector * threads + chunk / 4;
    const uint32_t bits =
        static_cast<uint32_t>(values_of(threads_[first_thread + lane])(metadata_operand)) >>
        (16 * (row / 8));
    const uint32_t code = bits >> (4 * (chunk % 4)) & 0xf;
    if (tf32)
      return chunk * 2 + (code == 0b0100 ? 0 : 1);
    return chunk * 4 + (code >> (2 * (i % 2)) & 3);
  };
  std::vector<float> d(16 * 8);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t group = lane / 4, in_group = lane % 4;
    const Value value = values_of(threads_[first_thread + lane]);
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = group + i / 2 * 8, column = in_group * 2 + i % 2;
      double sum = std::bit_cast<float>(static_cast<uint32_t>(value(lists[3][1 + i])));
      for (uint32_t k = 0; k < a_columns; ++k)
        sum += a[row * a_columns + k] * b[column_of(row, k) * 8 + column];
      d[row * 8 + column] = static_cast<float>(sum);
    }
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    Thread& thread = threads_[first_thread + lane];
    for (uint32_t i = 0; i < 4; ++i) {
      const float result = d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2];
      thread.words[thread.base + lists[0][1 + i]] =
          result != result ? kCanonicalNan32 : std::bit_cast<uint32_t>(result);
    }
  }
}

} // namespace sparsertc::ptx
