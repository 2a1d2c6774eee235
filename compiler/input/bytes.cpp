#include "compiler/input/bytes.h"

#include "ir/error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <zlib.h>

namespace sparsertc {
namespace {

constexpr uint64_t kChunk = uint64_t{1} << 20;
/// Up to this size output is gathered as it comes; beyond, it is counted before memory is taken.
constexpr uint64_t kGathered = uint64_t{64} << 20;

class FileDescriptor {
public:
  FileDescriptor(int number, bool owned) : number_(number), owned_(owned) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (owned_ && number_ >= 0)
      ::close(number_);
  }
  int number() const { return number_; }
  /// Closes and says whether the system took everything written.
  bool close() {
    const bool good = !owned_ || ::close(number_) == 0;
    number_ = -1;
    return good;
  }

private:
  int number_;
  bool owned_;
};

std::string reason_of(int error) {
  return std::strerror(error);
}

[[noreturn]] void refuse_size(const std::string& name, uint64_t maximum_bytes, const char* what) {
  throw UserError(
      Place{name, 0, 0, std::nullopt},
      fmt::format("the {} is larger than the limit of {} bytes", what, maximum_bytes),
      "the limit guards against files that promise more than they hold; split the file");
}

size_t read_some(int descriptor, uint8_t* to, size_t count, const std::string& name) {
  for (;;) {
    const ssize_t got = ::read(descriptor, to, count);
    if (got >= 0)
      return static_cast<size_t>(got);
    if (errno != EINTR)
      throw RuntimeError("reading " + name, reason_of(errno));
  }
}

/// A gzip decoder over the whole compressed input. zlib counts in 32 bits, so input and output are
/// handed over in portions.
class GzipDecoder {
public:
  GzipDecoder(std::span<const uint8_t> compressed, const std::string& name)
      : input_(compressed), name_(name) {
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK)
      throw RuntimeError("decompressing " + name_, "zlib could not start");
  }
  GzipDecoder(const GzipDecoder&) = delete;
  GzipDecoder& operator=(const GzipDecoder&) = delete;
  ~GzipDecoder() { inflateEnd(&stream_); }

  /// Fills `to` as far as there is output; returns the number of bytes, 0 at the end.
  size_t produce(uint8_t* to, size_t count) {
    size_t produced = 0;
    while (produced < count && !finished_) {
      if (stream_.avail_in == 0) {
        const size_t portion = std::min<size_t>(input_.size() - consumed_, kChunk);
        stream_.next_in = const_cast<Bytef*>(input_.data() + consumed_);
        stream_.avail_in = static_cast<uInt>(portion);
        consumed_ += portion;
      }
      const size_t room = std::min<size_t>(count - produced, kChunk);
      stream_.next_out = to + produced;
      stream_.avail_out = static_cast<uInt>(room);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      produced += room - stream_.avail_out;
      if (code == Z_STREAM_END)
        end_member();
      else if (code == Z_BUF_ERROR || (code == Z_OK && at_end() && stream_.avail_out > 0))
        throw UserError(Place::binary(name_, position()), "the gzip data ends early",
                        "the file is truncated; fetch or compress it again");
      else if (code == Z_MEM_ERROR)
        throw RuntimeError("decompressing " + name_, "out of memory");
      else if (code != Z_OK)
        throw UserError(Place::binary(name_, position()),
                        fmt::format("damaged gzip data: {}",
                                    stream_.msg != nullptr ? stream_.msg : "unknown fault"),
                        "fetch or compress the file again");
    }
    return produced;
  }

private:
  uint64_t position() const { return consumed_ - stream_.avail_in; }
  bool at_end() const { return position() == input_.size(); }

  void end_member() {
    const auto rest = input_.subspan(position());
    if (std::all_of(rest.begin(), rest.end(), [](uint8_t byte) { return byte == 0; })) {
      finished_ = true;
      return;
    }
    if (!is_gzip(rest))
      throw UserError(
          Place::binary(name_, position()),
          fmt::format("{} bytes that are not gzip follow the compressed data", rest.size()),
          "remove what follows, or compress the file again");
    inflateReset(&stream_);
  }

  std::span<const uint8_t> input_;
  std::string name_;
  z_stream stream_{};
  uint64_t consumed_ = 0;
  bool finished_ = false;
};

std::vector<uint8_t> read_raw(const std::string& path, uint64_t maximum_bytes) {
  const bool standard = path == "-";
  const std::string name = standard ? kStandardInputName : path;
  const Place place{name, 0, 0, std::nullopt};
  FileDescriptor file(standard ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC),
                      !standard);
  if (file.number() < 0) {
    if (errno == ENOENT)
      throw UserError(place, "no such file", "check the path; '-' reads standard input");
    throw UserError(place, "cannot be opened: " + reason_of(errno));
  }
  struct stat status {};
  if (::fstat(file.number(), &status) != 0)
    throw RuntimeError("reading " + name, reason_of(errno));
  if (S_ISDIR(status.st_mode))
    throw UserError(place, "is a directory, expected a file", "name one file inside it");

  std::vector<uint8_t> bytes;
  if (S_ISREG(status.st_mode)) {
    if (static_cast<uint64_t>(status.st_size) > maximum_bytes)
      refuse_size(name, maximum_bytes, "file");
    bytes.reserve(static_cast<uint64_t>(status.st_size) + 1);
  }
  for (;;) {
    const size_t before = bytes.size();
    const size_t room = std::max<size_t>(bytes.capacity() - before, 1);
    bytes.resize(before + std::min<size_t>(room, kChunk));
    const size_t got = read_some(file.number(), bytes.data() + before, bytes.size() - before, name);
    bytes.resize(before + got);
    if (bytes.size() > maximum_bytes)
      refuse_size(name, maximum_bytes, "input");
    if (got == 0)
      return bytes;
    if (bytes.size() == bytes.capacity())
      bytes.reserve(bytes.size() + std::max<uint64_t>(bytes.size() / 2, kChunk));
  }
}

void write_all(FileDescriptor& file, std::span<const uint8_t> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      throw RuntimeError("writing " + name, reason_of(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

/// Removes the unfinished file unless told that it was renamed.
class TemporaryFile {
public:
  explicit TemporaryFile(const std::string& beside) : path_(beside + ".XXXXXX") {
    descriptor_ = ::mkstemp(path_.data());
    if (descriptor_ < 0)
      throw RuntimeError("writing " + beside, reason_of(errno),
                         "check that the folder exists and may be written to");
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!renamed_)
      ::unlink(path_.c_str());
  }
  int descriptor() const { return descriptor_; }
  void rename_to(const std::string& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0)
      throw RuntimeError("writing " + path, reason_of(errno));
    renamed_ = true;
  }

private:
  std::string path_;
  int descriptor_;
  bool renamed_ = false;
};

/// The file a symbolic link leads to, so that the link survives the renaming.
std::string link_target(const std::string& path) {
  std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : path;
}

} // namespace

bool is_gzip(std::span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

std::vector<uint8_t> decompress_gzip(std::span<const uint8_t> compressed, const std::string& name,
                                     uint64_t maximum_bytes) {
  std::vector<uint8_t> output;
  GzipDecoder decoder(compressed, name);
  const uint64_t gathered_limit = std::min(kGathered, maximum_bytes);
  for (;;) {
    const size_t before = output.size();
    const size_t wanted = static_cast<size_t>(
        std::min(std::max<uint64_t>(before, compressed.size() * 4 + 64), gathered_limit - before));
    if (wanted == 0)
      break;
    output.resize(before + wanted);
    const size_t got = decoder.produce(output.data() + before, wanted);
    output.resize(before + got);
    if (got < wanted)
      return output;
  }
  // Large, or at the limit: count the rest in a small buffer before any more memory is taken.
  uint64_t total = output.size();
  std::vector<uint8_t> scratch(kChunk);
  while (const size_t got = decoder.produce(scratch.data(), scratch.size())) {
    total += got;
    if (total > maximum_bytes)
      refuse_size(name, maximum_bytes, "decompressed content");
  }
  if (total == output.size())
    return output;
  output = std::vector<uint8_t>();
  output.resize(total);
  GzipDecoder again(compressed, name);
  again.produce(output.data(), output.size());
  return output;
}

std::vector<uint8_t> read_bytes(const std::string& path, uint64_t maximum_bytes) {
  std::vector<uint8_t> bytes = read_raw(path, maximum_bytes);
  if (!is_gzip(bytes))
    return bytes;
  return decompress_gzip(bytes, path == "-" ? kStandardInputName : path, maximum_bytes);
}

void write_bytes(const std::string& path, std::span<const uint8_t> bytes) {
  struct stat status {};
  const bool standard = path == "-";
  const bool direct = standard || (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode));
  if (direct) {
    FileDescriptor file(standard ? STDOUT_FILENO : ::open(path.c_str(), O_WRONLY | O_CLOEXEC),
                        !standard);
    if (file.number() < 0)
      throw RuntimeError("writing " + path, reason_of(errno));
    const std::string name = standard ? "<stdout>" : path;
    write_all(file, bytes, name);
    if (!file.close())
      throw RuntimeError("writing " + name, reason_of(errno));
    return;
  }
  const std::string target = link_target(path);
  TemporaryFile temporary(target);
  FileDescriptor file(temporary.descriptor(), true);
  write_all(file, bytes, path);
  // mkstemp makes private files; give this one the permissions an ordinary new file would have, or
  // those of the file that it replaces.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  const mode_t mode = status.st_mode != 0 ? (status.st_mode & 07777) : (0666 & ~mask);
  if (::fchmod(file.number(), mode) != 0 || !file.close())
    throw RuntimeError("writing " + path, reason_of(errno));
  temporary.rename_to(target);
}

} // namespace sparsertc
