// How much of the machine several assemblies may take together.
#pragma once

#include <cstddef>
#include <semaphore>

namespace sparsertc {

/// Lets a fixed number of jobs run at once, whichever threads they belong to; others wait.
class JobLimit {
public:
  explicit JobLimit(unsigned jobs) : free_(static_cast<std::ptrdiff_t>(jobs)) {}
  JobLimit(const JobLimit&) = delete;
  JobLimit& operator=(const JobLimit&) = delete;

  /// One job, from its construction to its end. Who holds one must not wait for another.
  class Job {
  public:
    /// Null: nothing is limited.
    explicit Job(JobLimit* limit) : limit_(limit) {
      if (limit_ != nullptr)
        limit_->free_.acquire();
    }
    ~Job() {
      if (limit_ != nullptr)
        limit_->free_.release();
    }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

  private:
    JobLimit* limit_;
  };

private:
  std::counting_semaphore<> free_;
};

} // namespace sparsertc
