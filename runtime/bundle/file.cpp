#include "runtime/bundle/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sparsertc {
namespace {

/// Returns 0 or an errno.
int write_all(int descriptor, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return errno;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

} // namespace

int replace_file(const std::string& path, std::span<const uint8_t> bytes) {
  // Renaming would put a plain file in the place of a pipe or a device.
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  static std::atomic<uint64_t> files_written = 0;
  std::string temporary;
  int descriptor = -1;
  // A name can be taken by a file that a killed process with our number left, or by another host.
  for (int attempt = 0; attempt < 100 && descriptor < 0; ++attempt) {
    temporary = fmt::format("{}.{}-{}{}", path, ::getpid(), files_written++, kTemporarySuffix);
    descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST)
      return errno;
  }
  if (descriptor < 0)
    return EEXIST;
  int error = write_all(descriptor, bytes);
  // Some file systems report a full disk only here.
  if (::close(descriptor) != 0 && error == 0)
    error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0)
    error = errno;
  if (error != 0)
    ::unlink(temporary.c_str());
  return error;
}

std::optional<std::vector<uint8_t>> read_whole_file(const std::string& path, int& error) {
  error = 0;
  // Without O_NONBLOCK opening a pipe waits for its writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    error = errno;
    return std::nullopt;
  }
  std::vector<uint8_t> bytes;
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    error = errno;
  else if (S_ISDIR(status.st_mode))
    error = EISDIR;
  else if (!S_ISREG(status.st_mode))
    error = EINVAL;
  if (error == 0) {
    bytes.resize(static_cast<size_t>(status.st_size));
    size_t filled = 0;
    while (error == 0 && filled < bytes.size()) {
      const ssize_t count = ::read(descriptor, bytes.data() + filled, bytes.size() - filled);
      if (count > 0)
        filled += static_cast<size_t>(count);
      else if (count == 0)
        bytes.resize(filled); // shortened by somebody since
      else if (errno != EINTR)
        error = errno;
    }
  }
  ::close(descriptor);
  if (error != 0)
    return std::nullopt;
  return bytes;
}

} // namespace sparsertc
