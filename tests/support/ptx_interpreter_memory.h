// Shared memory of a block with the book-keeping that finds races, unwritten bytes and asynchronous
// copies that were not waited for; internal to the interpreter.
//
// Races are found by happens-before: each thread has a clock that its barriers advance, and knows
// the clocks of the threads it met. Two accesses to one byte are ordered when the later thread
// knows a clock of the earlier one that is past its access (Flanagan and Freund, "FastTrack",
// 2009). Barriers of a part of the block order the threads that take part, and only these.
#pragma once

#include "tests/support/ptx_interpreter.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace sparsertc::ptx {

class ThreadClocks {
public:
  void reset(uint32_t threads);
  uint32_t clock(uint32_t thread) const { return own_[thread]; }
  /// True if everything `other` did up to its clock `clock` happened before what `thread` does now.
  bool ordered(uint32_t thread, uint32_t other, uint32_t clock) const {
    return thread == other || (*known_[thread])[other] >= clock;
  }
  /// The threads met at a barrier.
  void meet(const std::vector<uint32_t>& threads);

  /// Everything that some threads know and did up to a point.
  using Knowledge = std::vector<uint32_t>;
  /// Adds what `thread` knows and has done; what it does from now on comes after.
  void release(uint32_t thread, Knowledge& into);
  void acquire(uint32_t thread, const Knowledge& from);

private:
  std::vector<uint32_t> own_;
  std::vector<std::shared_ptr<const std::vector<uint32_t>>> known_;
};

class SharedMemory {
public:
  struct Fault {
    ErrorKind kind;
    uint64_t byte;
    uint32_t other_thread;
    uint32_t other_line;
    bool other_wrote;
  };

  void reset(uint64_t bytes, const ThreadClocks* clocks);
  uint64_t bytes() const { return data_.size(); }
  uint8_t* data() { return data_.data(); }

  /// Checks and records an access of `bytes` bytes that lie within the memory. False: see fault().
  bool read(uint32_t thread, uint64_t offset, uint32_t bytes, bool strong, uint32_t line);
  bool write(uint32_t thread, uint64_t offset, uint32_t bytes, bool strong, uint32_t line);
  /// An asynchronous copy into these bytes begins and ends.
  bool begin_copy(uint32_t thread, uint64_t offset, uint32_t bytes, uint32_t line);
  void end_copy(uint32_t thread, uint64_t offset, uint32_t bytes, uint32_t line);
  const Fault& fault() const { return fault_; }

private:
  static constexpr uint16_t kNobody = 0xffff;
  struct Access {
    uint32_t clock = 0;
    uint32_t line = 0;
    uint16_t thread = kNobody;
    bool strong = false;
  };
  struct Cell {
    Access writer;
    Access reader;
    uint32_t more_readers = 0; ///< 1 + index into more_readers_
    uint16_t copies = 0;       ///< asynchronous copies under way
  };

  bool conflicts(const Access& earlier, uint32_t thread, bool strong) const {
    return earlier.thread != kNobody && !(earlier.strong && strong) &&
           !clocks_->ordered(thread, earlier.thread, earlier.clock);
  }
  bool fail(ErrorKind kind, uint64_t byte, const Access& other, bool other_wrote);

  const ThreadClocks* clocks_ = nullptr;
  std::vector<uint8_t> data_;
  std::vector<Cell> cells_;
  std::vector<std::vector<Access>> more_readers_;
  Fault fault_{};
};

} // namespace sparsertc::ptx
