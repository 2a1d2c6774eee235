// Errors: the three kinds of the design (a user's mistake, a machine's failure, our bug), made here
// and passed on by C++ exceptions. Nothing else throws on purpose.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace sparsertc {

/// Where in an input something is wrong. Text inputs have a line and a column (1-based), binary
/// ones a byte offset (0-based).
struct Place {
  std::string file;
  uint64_t line = 0;
  uint64_t column = 0;
  std::optional<uint64_t> byte;

  static Place text(std::string file, uint64_t line, uint64_t column);
  static Place binary(std::string file, uint64_t byte);
  /// "file:line:column", "file: byte 12", or "file".
  std::string describe() const;
};

/// The base of all errors; what() is the whole message, ready to print after the program's name.
class Error : public std::exception {
public:
  const char* what() const noexcept override { return text_.c_str(); }
  /// The process exit code that belongs to this kind of error.
  int exit_code() const noexcept { return exit_code_; }

protected:
  Error(std::string text, int exit_code) : text_(std::move(text)), exit_code_(exit_code) {}

private:
  std::string text_;
  int exit_code_;
};

/// The input is wrong: "PLACE: error: MESSAGE", then a note with the way out. Exit code 1.
class UserError : public Error {
public:
  explicit UserError(const std::string& message, const std::string& way_out = {});
  UserError(const Place& place, const std::string& message, const std::string& way_out = {});
};

/// The command line or an API call is wrong. Exit code 2.
class UsageError : public Error {
public:
  explicit UsageError(const std::string& message, const std::string& way_out = {});
};

/// The machine refused: driver, memory, disk. `doing` says what was being done. Exit code 1.
class RuntimeError : public Error {
public:
  RuntimeError(const std::string& doing, const std::string& reason,
               const std::string& way_out = {});
};

/// A GPU is needed and none is there. Exit code 3.
class NoGpuError : public Error {
public:
  explicit NoGpuError(const std::string& message, const std::string& way_out = {});
};

/// A bug of ours; asks for a report. Exit code 70.
class InternalError : public Error {
public:
  explicit InternalError(const std::string& message);
};

} // namespace sparsertc
