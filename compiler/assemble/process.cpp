#include "compiler/assemble/process.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace sparsertc {
namespace {

constexpr int kPollMilliseconds = 50;

/// Closes a file descriptor at the end of its scope.
class Descriptor {
public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  void close() {
    if (number_ >= 0)
      ::close(number_);
    number_ = -1;
  }

private:
  int number_;
};

/// Where the child starts and what its three standard files are.
class FileActions {
public:
  FileActions(const std::string& directory, int output) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addchdir_np(&actions_, directory.c_str());
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
  }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  const posix_spawn_file_actions_t* get() const { return &actions_; }

private:
  posix_spawn_file_actions_t actions_;
};

} // namespace

std::string ProcessResult::describe() const {
  if (stopped)
    return "stopped";
  if (signal != 0)
    return fmt::format("signal {}", signal);
  return fmt::format("exit status {}", exit_status);
}

ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& directory,
                          const std::function<bool()>& stop) {
  const std::string doing = "running " + arguments.at(0);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw RuntimeError(doing, std::strerror(errno));
  Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);

  std::vector<char*> pointers;
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  pid_t child = 0;
  const FileActions actions(directory, write_end.number());
  if (const int error =
          posix_spawn(&child, pointers[0], actions.get(), nullptr, pointers.data(), environ))
    throw RuntimeError(doing, std::strerror(error));
  write_end.close();

  ProcessResult result;
  // Until the child has closed its end, which it does at the latest when it ends.
  for (;;) {
    if (stop && !result.stopped && stop()) {
      kill(child, SIGKILL);
      result.stopped = true;
    }
    pollfd poll_one{read_end.number(), POLLIN, 0};
    const int ready = poll(&poll_one, 1, kPollMilliseconds);
    if (ready <= 0)
      continue; // time to look at `stop`, or a signal came
    char buffer[4096];
    const ssize_t count = read(read_end.number(), buffer, sizeof(buffer));
    if (count > 0)
      result.output.append(buffer, static_cast<size_t>(count));
    else if (count == 0 || errno != EINTR)
      break;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    result.signal = WTERMSIG(status);
  else
    result.exit_status = WEXITSTATUS(status);
  return result;
}

std::string command_line(const std::vector<std::string>& arguments) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789_-+=./,:@%";
  std::string line;
  for (const std::string& argument : arguments) {
    if (!line.empty())
      line += ' ';
    if (!argument.empty() && argument.find_first_not_of(plain) == std::string::npos) {
      line += argument;
      continue;
    }
    line += '\'';
    for (const char c : argument)
      line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

void write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file)
    throw RuntimeError("writing " + path, std::strerror(errno));
}

TemporaryDirectory::TemporaryDirectory(const std::string& parent) {
  std::string base = parent;
  if (base.empty()) {
    const char* chosen = std::getenv("TMPDIR");
    base = chosen && *chosen ? chosen : "/tmp";
  }
  std::string pattern = base + "/sparsertc-XXXXXX";
  if (!mkdtemp(pattern.data()))
    throw RuntimeError("making a folder in " + base, std::strerror(errno),
                       "TMPDIR names another folder for temporary files");
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  if (kept_)
    return;
  std::error_code ignored; // nothing can be done about it, and the result is there already
  std::filesystem::remove_all(path_, ignored);
}

} // namespace sparsertc
