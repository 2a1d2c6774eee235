// A cluster of blocks of threads under way; internal to the interpreter.
#pragma once

#include "tests/support/ptx_interpreter_memory.h"
#include "tests/support/ptx_interpreter_program.h"

#include <memory>
#include <string>
#include <vector>

namespace sparsertc::ptx {

/// What all blocks of a run share.
struct Launch {
  const DecodedProgram& program;
  const FunctionCode& entry;
  std::vector<Machine::Buffer>& buffers;
  std::vector<std::vector<uint8_t>> variables; ///< contents of .global variables
  Dim3 grid, block;
  std::span<const uint64_t> arguments;
  uint32_t dynamic_shared_bytes = 0;
  uint64_t shared_bytes = 0;
  uint64_t instruction_limit = 0;
  RunStatistics statistics;
};

class BlockRunner;

/// Blocks that run together; what they share.
class ClusterRunner {
public:
  explicit ClusterRunner(Launch& launch);
  ~ClusterRunner();
  /// The cluster whose first block this is.
  void run(uint32_t x, uint32_t y, uint32_t z);

private:
  friend class BlockRunner;
  void thread_ended();
  /// Where all threads that have not ended have arrived, the next round begins.
  void complete();

  Launch& launch_;
  std::vector<std::unique_ptr<BlockRunner>> blocks_;
  ThreadClocks clocks_;
  /// Rounds of barrier.cluster, how many threads have arrived in the present one, what those know
  /// that did, and what those of the last one knew.
  uint32_t round_ = 0, arrived_ = 0, live_ = 0;
  ThreadClocks::Knowledge open_, closed_;
};

class BlockRunner {
public:
  BlockRunner(Launch& launch, ClusterRunner& cluster, uint32_t rank);
  void begin(uint32_t x, uint32_t y, uint32_t z);
  /// Lets every thread run that can; false if none could.
  bool advance();
  bool ended() const { return done_ == thread_count_; }
  void wake_from_cluster();
  [[noreturn]] void deadlock() const;
  uint32_t threads() const { return thread_count_; }

private:
  enum class Status : uint8_t { ready, at_barrier, at_warp, at_cluster, done };
  struct CallFrame {
    uint32_t return_pc;
    uint32_t base;
    uint32_t function;
    uint32_t call_words; ///< pool index of the call
  };
  struct AsyncCopy {
    uint64_t shared;
    uint32_t group;
    uint32_t bytes;
    uint8_t data[16];
  };
  struct Thread {
    Status status = Status::ready;
    uint32_t index = 0; ///< within the block
    uint32_t pc = 0;
    uint32_t base = 0; ///< of the frame in `words`
    uint32_t function = 0;
    uint32_t open_group = 0;
    uint32_t barrier_number = 0;
    bool at_cluster_barrier = false; ///< arrived, not yet waited
    uint32_t cluster_round = 0;
    std::vector<uint64_t> words;
    std::vector<CallFrame> calls;
    std::vector<AsyncCopy> copies;
    uint64_t special[static_cast<size_t>(SpecialRegister::count)] = {};
  };
  struct Barrier {
    uint32_t expected = 0;
    std::vector<uint32_t> arrived;
  };
  struct Value {
    const uint64_t* bases[3];
    uint64_t operator()(OperandRef ref) const { return bases[ref >> 30][ref & kOperandIndex]; }
  };

  [[noreturn]] void fail(const Thread& thread, ErrorKind kind, const std::string& message) const;
  /// `thread`: among those of the cluster.
  std::string name_of(uint32_t thread) const;
  uint32_t number_of(const Thread& thread) const { return rank_ * thread_count_ + thread.index; }
  void meet(const std::vector<uint32_t>& threads);
  void start(Thread& thread, uint32_t index);
  void run_thread(Thread& thread);
  Value values_of(const Thread& thread) const;
  uint8_t* global(const Thread& thread, uint64_t address, uint32_t bytes, bool write,
                  uint8_t flags);
  uint8_t* shared(const Thread& thread, SharedMemory& memory, uint64_t address, uint32_t bytes);
  uint8_t* constant(const Thread& thread, uint64_t address, uint32_t bytes);
  void check_alignment(const Thread& thread, uint64_t address, uint32_t bytes) const;
  [[noreturn]] void shared_fault(const Thread& thread, const SharedMemory& memory) const;
  /// The block that an address of .shared::cluster is in; the address becomes one in it.
  BlockRunner& block_of(const Thread& thread, uint64_t& address);
  /// Bytes behind an address, checked and recorded.
  uint8_t* access(Thread& thread, const Instruction& instruction, uint64_t address, bool write);
  void load(Thread& thread, const Instruction& instruction);
  void store(Thread& thread, const Instruction& instruction);
  void atomic(Thread& thread, const Instruction& instruction);
  void copy_async(Thread& thread, const Instruction& instruction);
  void copy_wait(Thread& thread, const Instruction& instruction);
  uint64_t convert(const Instruction& instruction, uint64_t value) const;
  void call(Thread& thread, const Instruction& instruction);
  bool ret(Thread& thread);
  void arrive(Thread& thread, const Instruction& instruction);
  void arrive_cluster(Thread& thread);
  bool wait_cluster(Thread& thread);
  /// Waits for the other lanes of the warp; the last one does the operation for all.
  void meet_warp(Thread& thread, const Instruction& instruction);
  void warp_operation(const Instruction& instruction, const std::vector<uint32_t>& lanes);
  void matrix_multiply(const Instruction& instruction, uint32_t first_thread);
  void load_matrix(const Instruction& instruction, uint32_t first_thread);
  uint32_t line_of(const Thread& thread) const { return launch_.program.line[thread.pc]; }

  Launch& launch_;
  ClusterRunner& cluster_;
  uint32_t rank_ = 0;
  uint32_t thread_count_ = 0, done_ = 0;
  uint32_t block_[3] = {0, 0, 0};
  std::vector<Thread> threads_;
  std::vector<std::vector<uint64_t>> spare_words_;
  Barrier barriers_[16];
  SharedMemory shared_;
};

} // namespace sparsertc::ptx
