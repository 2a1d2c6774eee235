#include "runtime/host/task_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
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

// About 20 microseconds of looking before a thread sleeps: runs that follow one another closely
// then cost no system call, and an idle pool costs no processor time.
constexpr unsigned kSpins = 2000;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
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

// A run is published in `claim`: its generation in the upper bits, the next task in the lower ones.
// Tasks are taken by compare-and-swap, so a thread that wakes late can never take one of another
// run, and a run ends when its tasks are done, whether or not every thread has come.
struct TaskPool::Implementation {
  static constexpr unsigned kIndexBits = 40;
  static constexpr uint64_t kIndexMask = (uint64_t{1} << kIndexBits) - 1;

  std::atomic<uint64_t> claim{kIndexMask};
  std::atomic<const std::function<void(uint64_t)>*> task{nullptr};
  std::atomic<uint64_t> count{0};
  std::atomic<uint64_t> chunk{1};
  std::atomic<uint64_t> finished{0};
  std::atomic<bool> failed{false};
  std::atomic<bool> stop{false};
  std::atomic<unsigned> sleepers{0};

  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::exception_ptr failure; // guarded by mutex
  std::mutex one_run;         // run() may be called by several threads; one at a time works
  std::vector<std::thread> workers;

  bool has_work() const {
    return (claim.load() & kIndexMask) < count.load();
  }

  /// Works on the present run until no task is left to take.
  void work() {
    uint64_t seen = claim.load(std::memory_order_acquire);
    for (;;) {
      const uint64_t tasks = count.load(std::memory_order_acquire);
      const uint64_t first = seen & kIndexMask;
      if (first >= tasks)
        return;
      const uint64_t step = std::min(chunk.load(std::memory_order_acquire), tasks - first);
      if (!claim.compare_exchange_weak(seen, seen + step, std::memory_order_acq_rel))
        continue;
      // From here on the run cannot end before these tasks are counted below.
      const std::function<void(uint64_t)>& call = *task.load(std::memory_order_acquire);
      try {
        for (uint64_t i = first; i < first + step && !failed.load(std::memory_order_relaxed); ++i)
          call(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!failure)
          failure = std::current_exception();
        failed.store(true, std::memory_order_relaxed);
      }
      if (finished.fetch_add(step, std::memory_order_acq_rel) + step == tasks) {
        std::lock_guard lock(mutex); // so that the caller cannot miss it between look and sleep
        done.notify_one();
      }
      seen = claim.load(std::memory_order_acquire);
    }
  }

  void worker() {
    unsigned spins = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      if (has_work()) {
        work();
        spins = 0;
      } else if (++spins < kSpins) {
        pause();
      } else {
        std::unique_lock lock(mutex);
        sleepers.fetch_add(1);
        wake.wait(lock, [&] { return has_work() || stop.load(std::memory_order_relaxed); });
        sleepers.fetch_sub(1);
        spins = 0;
      }
    }
  }
};

TaskPool::TaskPool(unsigned threads) : implementation_(std::make_unique<Implementation>()) {
  if (threads == 0)
    threads = usable_cores();
  Implementation& pool = *implementation_;
  pool.workers.reserve(threads - 1);
  try {
    for (unsigned i = 1; i < threads; ++i)
      pool.workers.emplace_back([&pool] { pool.worker(); });
  } catch (const std::system_error&) {
    // The system gives no more threads: those there are do the work.
  }
}

TaskPool::~TaskPool() {
  Implementation& pool = *implementation_;
  {
    std::lock_guard lock(pool.mutex);
    pool.stop.store(true);
  }
  pool.wake.notify_all();
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
  const uint64_t generation = (pool.claim.load() >> Implementation::kIndexBits) + 1;
  // No task can be taken between these stores: the old index is at or beyond every count.
  pool.claim.store(generation << Implementation::kIndexBits | Implementation::kIndexMask);
  pool.failed.store(false);
  pool.finished.store(0);
  pool.task.store(&task);
  pool.count.store(count);
  // Small chunks balance, large ones save visits to the counter: about 64 chunks a thread.
  pool.chunk.store(std::max<uint64_t>(1, count / (uint64_t{64} * threads())));
  pool.claim.store(generation << Implementation::kIndexBits);
  if (pool.sleepers.load() != 0) {
    { std::lock_guard lock(pool.mutex); }
    pool.wake.notify_all();
  }
  pool.work();
  for (unsigned spins = 0; pool.finished.load(std::memory_order_acquire) != count;) {
    if (++spins < kSpins) {
      pause();
      continue;
    }
    std::unique_lock lock(pool.mutex);
    pool.done.wait(lock, [&] { return pool.finished.load(std::memory_order_acquire) == count; });
  }
  // The last thread may still hold the mutex for its notification.
  std::lock_guard lock(pool.mutex);
  if (pool.failure) {
    std::exception_ptr failure = pool.failure;
    pool.failure = nullptr;
    std::rethrow_exception(failure);
  }
}

} // namespace sparsertc
