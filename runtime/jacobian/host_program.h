// A residual's program compiled by the host's C++ compiler and opened as a shared object.
#pragma once

#include "runtime/bundle/cache.h"
#include "runtime/host/task_pool.h"
#include "runtime/jacobian/residual_program.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sparsertc::jacobian {

/// How a program that was started has ended.
struct ProgramOutcome {
  bool succeeded = false;
  std::string output; ///< standard output and error
  std::string how;    ///< "exit status 1"
};
/// Starts arguments[0] (an absolute path) in a folder, without a shell, and waits. Throws
/// RuntimeError where it cannot be started.
using RunProgram = std::function<ProgramOutcome(const std::vector<std::string>& arguments,
                                                const std::string& folder)>;

/// The C++ compiler of this machine.
struct HostCompiler {
  /// The program and its first arguments; empty: $CXX, cut at blanks, else c++.
  std::vector<std::string> command;
  RunProgram run;
  /// Keeps what was compiled; null: nothing does.
  Cache* cache = nullptr;

  /// The program and its first arguments.
  std::vector<std::string> words() const;
  /// What it says of itself, "c++ (Debian 12.2.0-14) 12.2.0". RuntimeError where there is no such
  /// compiler.
  std::string identity() const;
};

/// May be called by several threads at once.
class HostProgram : public ResidualProgram {
public:
  /// Compiles and opens `program` (program.h), or takes it from the cache. UserError for mistakes
  /// in the user's text; RuntimeError where there is no compiler, or it fails.
  HostProgram(const HostCompiler& compiler, const std::string& program,
              const ResidualSource& source, const ParameterSet& parameters);
  ~HostProgram() override;
  HostProgram(const HostProgram&) = delete;
  HostProgram& operator=(const HostProgram&) = delete;

  std::unique_ptr<ProgramMemory> allocate(uint64_t bytes) const override;
  void run(const std::string& entry, const ProgramCall& call) const override;

  using Function = int (*)(const uint64_t* words, uint64_t first_task, uint64_t last_task);
  /// InternalError where there is no such entry.
  Function function(const std::string& entry) const;
  /// All tasks, on the threads of the pool where that is not null.
  void run(Function function, const ProgramCall& call, TaskPool* pool = nullptr) const;
  bool was_cached() const { return was_cached_; }

private:
  void open(const std::vector<uint8_t>& object);
  [[noreturn]] void fail() const;

  ResidualSource source_;
  ParameterSet names_; ///< without values
  bool was_cached_ = false;
  void* handle_ = nullptr;
};

} // namespace sparsertc::jacobian
