// Threads that run numbered tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace sparsertc {

class TaskPool {
public:
  /// `threads` of 0: one for each core this process may use. The calling thread takes part in
  /// run().
  explicit TaskPool(unsigned threads = 0);
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  unsigned threads() const;

  /// Calls task(i) for every i in [0, count), in any order, on all threads; returns when all are
  /// done. The first exception of a task is rethrown here after the others have stopped.
  void run(uint64_t count, const std::function<void(uint64_t)>& task);

private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

} // namespace sparsertc
