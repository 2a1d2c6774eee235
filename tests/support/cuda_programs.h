// Runs the assembler and linker of a CUDA toolkit where one is found.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sparsertc::testing {

/// Path of "ptxas" or "nvlink" in $PATH or /usr/local/cuda/bin; empty where there is none.
std::string find_cuda_program(std::string_view name);

struct ProgramResult {
  int status = 0;     ///< exit status
  std::string output; ///< standard output and error together
};
/// Runs arguments[0] with the rest as its arguments, without a shell. Throws std::runtime_error
/// where the program cannot be started.
ProgramResult run_program(const std::vector<std::string>& arguments);

/// A folder of its own below the temporary folder, removed with everything in it.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  /// Path of a file in the folder.
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  /// Writes a file and returns its path.
  std::string write(std::string_view name, std::string_view text) const;

private:
  std::string path_;
};

} // namespace sparsertc::testing
