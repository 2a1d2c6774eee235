// Running another program and reading what it says; files for it. No shell takes part.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

struct ProcessResult {
  int exit_status = 0; ///< meaningless if a signal ended it
  int signal = 0;      ///< 0 if none
  bool stopped = false;
  std::string output; ///< standard output and standard error together

  bool succeeded() const { return exit_status == 0 && signal == 0 && !stopped; }
  /// "exit status 255", "signal 9", "stopped".
  std::string describe() const;
};

/// Runs the program arguments[0] (an absolute path) with the arguments in `directory`, standard
/// input empty. When `stop` answers true (it is asked some 20 times a second) the process is killed
/// and the result says so. Throws RuntimeError where the process cannot be started.
ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& directory,
                          const std::function<bool()>& stop = {});

/// The arguments as one line that a POSIX shell reads back to the same.
std::string command_line(const std::vector<std::string>& arguments);

/// Throws RuntimeError where the file cannot be written whole.
void write_file(const std::string& path, std::string_view text);

/// A folder of our own below the folder for temporary files (TMPDIR, else /tmp), removed with all
/// that is in it by the destructor.
class TemporaryDirectory {
public:
  /// `parent` empty: the folder for temporary files. Throws RuntimeError.
  explicit TemporaryDirectory(const std::string& parent = {});
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// It stays, with what is in it.
  void keep() { kept_ = true; }

private:
  std::string path_;
  bool kept_ = false;
};

} // namespace sparsertc
