#include "runtime/host/task_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sparsertc {
namespace {

// Some 100 microseconds of looking before a thread sleeps: runs that follow one another closely
// then cost no system call, and an idle pool costs no processor time.
constexpr unsigned kSpins = 2000;
constexpr size_t kCacheLine = 64;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

/// Waits until `value` is no longer `old`: looks for a while, then sleeps.
void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  for (unsigned spins = 0; spins < kSpins; ++spins) {
    if (value.load(std::memory_order_acquire) != old)
      return;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
}

unsigned usable_cores() {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    const int cores = CPU_COUNT(&set);
    if (cores > 0)
      return static_cast<unsigned>(cores);
  }
#endif
  const unsigned cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : cores;
}

} // namespace

// Each thread has a slice of the tasks in a cache line of its own, takes from it, and takes from
// the others' slices when its own is empty. A slice says which run it belongs to, in the upper bits
// of `next`, and tasks are taken by compare-and-swap: a thread that wakes late can never take one
// of another run, and a run ends when its tasks are done, whether or not every thread has come.
struct TaskPool::Implementation {
  static constexpr unsigned kIndexBits = 40;
  static constexpr uint64_t kIndexMask = (uint64_t{1} << kIndexBits) - 1;

  struct alignas(kCacheLine) Slice {
    std::atomic<uint64_t> next{kIndexMask}; ///< run << kIndexBits | next task
    std::atomic<uint64_t> end{0};
  };

  std::vector<Slice> slices;
  alignas(kCacheLine) std::atomic<uint32_t> run_number{0}; ///< of the last run; workers wait for it
  std::atomic<uint32_t> open_number{0};                    ///< the same, set before tasks are open
  std::atomic<const std::function<void(uint64_t)>*> task{nullptr};
  std::atomic<uint64_t> count{0};
  std::atomic<bool> stop{false};
  alignas(kCacheLine) std::atomic<uint64_t> finished{0};
  std::atomic<uint32_t> done_number{0}; ///< of the run that has ended
  std::atomic<bool> failed{false};

  std::mutex mutex;
  std::exception_ptr failure; // guarded by mutex
  std::mutex one_run;         // run() may be called by several threads; one at a time works
  std::vector<std::thread> workers;

  explicit Implementation(unsigned threads) : slices(threads) {}

  /// Takes one task of the slice and does it; false where none is left.
  bool take(Slice& slice) {
    uint64_t seen = slice.next.load(std::memory_order_acquire);
    do {
      if ((seen & kIndexMask) >= slice.end.load(std::memory_order_acquire))
        return false;
    } while (!slice.next.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel));
    // From here on the run cannot end before this task is counted as finished.
    if (failed.load(std::memory_order_relaxed))
      return true;
    try {
      (*task.load(std::memory_order_acquire))(seen & kIndexMask);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!failure)
        failure = std::current_exception();
      failed.store(true, std::memory_order_relaxed);
    }
    return true;
  }

  /// Works on the run that has begun until no task is left to take, own slice first.
  void work(size_t own) {
    uint64_t mine = 0;
    for (size_t i = 0; i < slices.size(); ++i)
      while (take(slices[(own + i) % slices.size()]))
        ++mine;
    if (mine == 0)
      return;
    // The run is this one until its last task is counted.
    const uint32_t number = open_number.load(std::memory_order_acquire);
    const uint64_t tasks = count.load(std::memory_order_acquire);
    if (finished.fetch_add(mine, std::memory_order_acq_rel) + mine == tasks) {
      done_number.store(number, std::memory_order_release);
      done_number.notify_one();
    }
  }

  void worker(size_t own) {
    uint32_t seen = 0;
    for (;;) {
      wait_for_change(run_number, seen);
      seen = run_number.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire))
        return;
      work(own);
    }
  }
};

TaskPool::TaskPool(unsigned threads) {
  if (threads == 0)
    threads = usable_cores();
  implementation_ = std::make_unique<Implementation>(threads);
  Implementation& pool = *implementation_;
  pool.workers.reserve(threads - 1);
  try {
    for (unsigned i = 1; i < threads; ++i)
      pool.workers.emplace_back([&pool, i] { pool.worker(i); });
  } catch (const std::system_error&) {
    // The system gives no more threads: those there are do the work.
  }
}

TaskPool::~TaskPool() {
  Implementation& pool = *implementation_;
  pool.stop.store(true, std::memory_order_release);
  pool.run_number.fetch_add(1, std::memory_order_acq_rel);
  pool.run_number.notify_all();
  for (std::thread& thread : pool.workers)
    thread.join();
}

unsigned TaskPool::threads() const {
  return static_cast<unsigned>(implementation_->workers.size()) + 1;
}

void TaskPool::run(uint64_t count, const std::function<void(uint64_t)>& task) {
  if (count == 0)
    return;
  Implementation& pool = *implementation_;
  if (count == 1 || pool.workers.empty()) {
    for (uint64_t i = 0; i < count; ++i)
      task(i);
    return;
  }
  std::lock_guard one_run(pool.one_run);
  const uint32_t number = pool.run_number.load(std::memory_order_relaxed) + 1;
  const uint64_t tag = uint64_t{number} << Implementation::kIndexBits;
  // All slices of the last run are empty. They are closed before the new ends are written, so that
  // no end is read together with another run's next task.
  for (auto& slice : pool.slices)
    slice.next.store(tag | Implementation::kIndexMask, std::memory_order_release);
  pool.failed.store(false, std::memory_order_relaxed);
  pool.finished.store(0, std::memory_order_relaxed);
  pool.task.store(&task, std::memory_order_release);
  pool.count.store(count, std::memory_order_release);
  const uint64_t threads = pool.slices.size();
  for (uint64_t i = 0; i < threads; ++i)
    pool.slices[i].end.store(count * (i + 1) / threads, std::memory_order_release);
  pool.open_number.store(number, std::memory_order_release);
  for (uint64_t i = 0; i < threads; ++i)
    pool.slices[i].next.store(tag | (count * i / threads), std::memory_order_release);
  pool.run_number.store(number, std::memory_order_release);
  pool.run_number.notify_all();

  pool.work(0);
  for (uint32_t done = pool.done_number.load(std::memory_order_acquire); done != number;
       done = pool.done_number.load(std::memory_order_acquire))
    wait_for_change(pool.done_number, done);
  std::lock_guard lock(pool.mutex);
  if (pool.failure) {
    std::exception_ptr failure = pool.failure;
    pool.failure = nullptr;
    std::rethrow_exception(failure);
  }
}

} // namespace sparsertc
