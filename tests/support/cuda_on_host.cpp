#include "tests/support/cuda_on_host.h"

#include <ucontext.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace sparsertc::test::cuda_on_host {
namespace {

constexpr size_t kStackBytes = 64 * 1024;
constexpr unsigned kBlocksAtOnce = 3;

/// Threads that wait for one another.
struct Barrier {
  uint32_t waiting = 0;
  uint32_t members = 0; ///< that have not ended
  uint32_t generation = 0;

  void release_if_all() {
    if (waiting == members) {
      waiting = 0;
      ++generation;
    }
  }
};

struct Warp {
  Barrier barrier;
  /// Of two exchanges that follow one another: a slow lane may still read the first.
  uint64_t values[2][32] = {};
};

/// A place that was left and is returned to. (swapcontext would ask the system each time.)
using Place = void* [5];

struct Thread {
  ucontext_t beginning;
  Place place;
  std::unique_ptr<char[]> stack;
  bool begun = false;
  bool ended = false;
  uint32_t exchanges = 0;
  /// What it waits for: until the barrier's generation is another one.
  const Barrier* barrier = nullptr;
  uint32_t generation = 0;

  bool can_run() const {
    return !ended && (barrier == nullptr || barrier->generation != generation);
  }
};

struct Block {
  Place scheduler;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Barrier barrier;
  const std::function<void()>* kernel = nullptr;

  Thread& running() { return threads[thread_index().x]; }
  Warp& warp() { return warps[thread_index().x / 32]; }
};

thread_local Block* current = nullptr;

/// Apart from where the place is taken: GCC drops the way back where both are in one function.
/// (noipa, here and below: no caller may count on registers that it sees unused here.)
[[gnu::noipa]] void go_to(Place& place) {
  __builtin_longjmp(place, 1);
}

/// Lets other threads of the block run.
[[gnu::noipa]] void yield() {
  Block& block = *current;
  if (__builtin_setjmp(block.running().place) == 0)
    go_to(block.scheduler);
}

/// Runs a thread of the block until it yields or ends.
[[gnu::noipa]] void resume(Block& block, Thread& thread) {
  if (__builtin_setjmp(block.scheduler) != 0)
    return;
  if (thread.begun)
    go_to(thread.place);
  thread.begun = true;
  setcontext(&thread.beginning);
}

void wait(Barrier& barrier) {
  Thread& thread = current->running();
  thread.barrier = &barrier;
  thread.generation = barrier.generation;
  ++barrier.waiting;
  barrier.release_if_all();
  while (barrier.generation == thread.generation)
    yield();
  thread.barrier = nullptr;
}

void leave(Barrier& barrier) {
  --barrier.members;
  if (barrier.members > 0)
    barrier.release_if_all();
}

/// The beginning and end of a thread of the block.
void thread_main() {
  Block& block = *current;
  (*block.kernel)();
  Warp& warp = block.warp();
  block.running().ended = true;
  leave(warp.barrier);
  leave(block.barrier);
  yield();
}

void run_block(uint32_t number, uint32_t blocks, uint32_t threads,
               const std::function<void()>& kernel) {
  Block block;
  current = &block;
  block.kernel = &kernel;
  block_index().x = number;
  block_size().x = threads;
  grid_size().x = blocks;
  block.threads = std::vector<Thread>(threads);
  block.warps = std::vector<Warp>((threads + 31) / 32);
  block.barrier.members = threads;
  for (uint32_t t = 0; t < threads; ++t) {
    ++block.warps[t / 32].barrier.members;
    Thread& thread = block.threads[t];
    thread.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
    getcontext(&thread.beginning);
    thread.beginning.uc_stack.ss_sp = thread.stack.get();
    thread.beginning.uc_stack.ss_size = kStackBytes;
    thread.beginning.uc_link = nullptr;
    makecontext(&thread.beginning, thread_main, 0);
  }
  for (bool any = true; any;) {
    any = false;
    for (uint32_t t = 0; t < threads; ++t) {
      any = any || !block.threads[t].ended;
      if (!block.threads[t].can_run())
        continue;
      thread_index().x = t;
      resume(block, block.threads[t]);
    }
  }
  current = nullptr;
}

} // namespace

Index& thread_index() {
  static thread_local Index index;
  return index;
}
Index& block_index() {
  static thread_local Index index;
  return index;
}
Index& block_size() {
  static thread_local Index size;
  return size;
}
Index& grid_size() {
  static thread_local Index size;
  return size;
}

void spin() {
  std::this_thread::yield();
  yield();
}

void sync_block() {
  wait(current->barrier);
}

void sync_warp() {
  wait(current->warp().barrier);
}

const uint64_t* exchange(uint64_t value) {
  Warp& warp = current->warp();
  uint64_t* const values = warp.values[current->running().exchanges++ % 2];
  values[lane()] = value;
  // Lanes that have ended give 0. (Their last value may still be read, from the other array.)
  const uint32_t first = thread_index().x / 32 * 32;
  for (uint32_t l = 0; warp.barrier.members < 32 && l < 32; ++l)
    if (first + l >= current->threads.size() || current->threads[first + l].ended)
      values[l] = 0;
  wait(warp.barrier);
  return values;
}

void run(uint32_t blocks, uint32_t threads, bool together, const std::function<void()>& kernel) {
  if (blocks == 0 || threads == 0 || threads % 32 != 0)
    throw std::invalid_argument("a launch of no threads, or of a part of a warp");
  std::atomic<uint32_t> next = 0;
  const auto work = [&] {
    for (uint32_t block = next++; block < blocks; block = next++)
      run_block(block, blocks, threads, kernel);
  };
  std::vector<std::thread> workers;
  const uint32_t count = together ? blocks : std::min(blocks, kBlocksAtOnce);
  for (uint32_t worker = 1; worker < count; ++worker)
    workers.emplace_back(work);
  work();
  for (std::thread& worker : workers)
    worker.join();
}

} // namespace sparsertc::test::cuda_on_host
