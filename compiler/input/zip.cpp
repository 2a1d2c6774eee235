#include "compiler/input/zip.h"

#include "compiler/input/text_cursor.h"
#include "ir/error.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <zlib.h>

namespace sparsertc {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kDirectorySignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint64_t kLocalBytes = 30;
constexpr uint64_t kDirectoryBytes = 46;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kLocator64Bytes = 20;
constexpr uint16_t kEncrypted = 1;
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;
constexpr uint16_t kZip64Extra = 1;
/// Deflate's best: 258 bytes for 2 bits.
constexpr uint64_t kDeflateRatio = 1032;

/// Little-endian numbers at checked offsets.
class View {
public:
  View(std::span<const uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  uint64_t size() const { return bytes_.size(); }
  bool has(uint64_t at, uint64_t count) const {
    return at <= bytes_.size() && count <= bytes_.size() - at;
  }
  void need(uint64_t at, uint64_t count, const char* what) const {
    if (!has(at, count))
      fail(std::min<uint64_t>(at, bytes_.size()),
           fmt::format("expected {} of {} bytes, found the end of the file", what, count),
           "the archive is truncated; write or fetch it again");
  }
  uint16_t u16(uint64_t at) const { return static_cast<uint16_t>(number(at, 2)); }
  uint32_t u32(uint64_t at) const { return static_cast<uint32_t>(number(at, 4)); }
  uint64_t u64(uint64_t at) const { return number(at, 8); }
  std::string text(uint64_t at, uint64_t count) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + at, count};
  }
  [[noreturn]] void fail(uint64_t at, const std::string& message,
                         const std::string& way_out = {}) const {
    throw UserError(Place::binary(name_, at), message, way_out);
  }

private:
  uint64_t number(uint64_t at, int count) const {
    uint64_t value = 0;
    for (int i = count; i-- > 0;)
      value = value << 8 | bytes_[at + static_cast<uint64_t>(i)];
    return value;
  }

  std::span<const uint8_t> bytes_;
  const std::string& name_;
};

struct Directory {
  uint64_t offset;
  uint64_t bytes;
  uint64_t members;
};

Directory find_directory(const View& view) {
  if (view.size() == 0)
    view.fail(0, "the file is empty, expected a zip archive");
  if (!view.has(0, 4) || (view.u32(0) != kLocalSignature && view.u32(0) != kEndSignature))
    view.fail(0, "expected a zip archive, which begins with 'PK'",
              "if the file has another format, its suffix must say so");
  // The end record is the last thing in the file but for a comment of up to 64 KiB.
  constexpr uint64_t kLongestComment = 65535;
  uint64_t end = view.size();
  bool found = false;
  for (uint64_t back = kEndBytes; back <= view.size() && back <= kEndBytes + kLongestComment;
       ++back) {
    end = view.size() - back;
    if (view.u32(end) == kEndSignature && view.u16(end + 20) == back - kEndBytes) {
      found = true;
      break;
    }
  }
  if (!found)
    view.fail(view.size(), "expected the end record of a zip archive, found none",
              "the archive is truncated; write or fetch it again");
  Directory directory{view.u32(end + 16), view.u32(end + 12), view.u16(end + 10)};
  const bool saturated = directory.offset == UINT32_MAX || directory.bytes == UINT32_MAX ||
                         directory.members == UINT16_MAX;
  if (saturated && end >= kLocator64Bytes &&
      view.u32(end - kLocator64Bytes) == kLocator64Signature) {
    const uint64_t end64 = view.u64(end - kLocator64Bytes + 8);
    view.need(end64, kEnd64Bytes, "a 64-bit end record");
    if (view.u32(end64) != kEnd64Signature)
      view.fail(end64, "expected a 64-bit end record of a zip archive");
    directory = {view.u64(end64 + 48), view.u64(end64 + 40), view.u64(end64 + 32)};
  }
  if (!view.has(directory.offset, directory.bytes) || directory.offset + directory.bytes > end)
    view.fail(end,
              fmt::format("the archive's directory of {} bytes at byte {} does not fit in the "
                          "file",
                          directory.bytes, directory.offset),
              "the archive is damaged; write or fetch it again");
  return directory;
}

/// Replaces saturated 32-bit fields by those of the 64-bit extra field.
void read_zip64(const View& view, uint64_t at, uint64_t end, ZipMember& member) {
  while (at + 4 <= end) {
    const uint16_t id = view.u16(at);
    const uint64_t stop = at + 4 + view.u16(at + 2);
    if (stop > end)
      view.fail(at, "an extra field of the archive's directory is longer than its room");
    if (id == kZip64Extra) {
      uint64_t field = at + 4;
      for (uint64_t* value : {&member.bytes, &member.compressed_bytes, &member.offset}) {
        if (*value != UINT32_MAX)
          continue;
        if (field + 8 > stop)
          view.fail(at, "a 64-bit size is missing in the archive's directory");
        *value = view.u64(field);
        field += 8;
      }
      return;
    }
    at = stop;
  }
}

} // namespace

std::vector<ZipMember> list_zip(std::span<const uint8_t> archive, const std::string& name) {
  const View view(archive, name);
  const Directory directory = find_directory(view);
  std::vector<ZipMember> members;
  std::set<std::string> names;
  uint64_t at = directory.offset;
  const uint64_t directory_end = directory.offset + directory.bytes;
  for (uint64_t i = 0; i < directory.members; ++i) {
    if (at + kDirectoryBytes > directory_end || view.u32(at) != kDirectorySignature)
      view.fail(at,
                fmt::format("expected entry {} of {} in the archive's directory", i + 1,
                            directory.members),
                "the archive is damaged; write or fetch it again");
    const uint64_t name_bytes = view.u16(at + 28);
    const uint64_t extra_at = at + kDirectoryBytes + name_bytes;
    const uint64_t extra_end = extra_at + view.u16(at + 30);
    const uint64_t next = extra_end + view.u16(at + 32);
    if (next > directory_end)
      view.fail(at, "an entry is longer than the archive's directory",
                "the archive is damaged; write or fetch it again");
    ZipMember member;
    member.name = view.text(at + kDirectoryBytes, name_bytes);
    member.method = view.u16(at + 10);
    member.crc = view.u32(at + 16);
    member.compressed_bytes = view.u32(at + 20);
    member.bytes = view.u32(at + 24);
    member.offset = view.u32(at + 42);
    read_zip64(view, extra_at, extra_end, member);
    if ((view.u16(at + 8) & kEncrypted) != 0)
      view.fail(at, fmt::format("member '{}' is encrypted", printable(member.name)),
                "write the archive without a password");
    if (!names.insert(member.name).second)
      view.fail(at, fmt::format("member '{}' occurs twice", printable(member.name)));
    members.push_back(std::move(member));
    at = next;
  }
  return members;
}

std::vector<uint8_t> extract_zip(std::span<const uint8_t> archive, const ZipMember& member,
                                 const std::string& name, uint64_t maximum_bytes) {
  const View view(archive, name);
  view.need(member.offset, kLocalBytes, "a member's header");
  if (view.u32(member.offset) != kLocalSignature)
    view.fail(member.offset,
              fmt::format("expected the header of member '{}'", printable(member.name)),
              "the archive is damaged; write or fetch it again");
  const uint64_t data_at =
      member.offset + kLocalBytes + view.u16(member.offset + 26) + view.u16(member.offset + 28);
  view.need(data_at, member.compressed_bytes, "a member");
  if (member.method != kStored && member.method != kDeflated)
    view.fail(member.offset,
              fmt::format("member '{}' has compression method {}, expected 0 "
                          "(stored) or 8 (deflate)",
                          printable(member.name), member.method),
              "write it with numpy.savez or numpy.savez_compressed");
  if (member.bytes > maximum_bytes)
    view.fail(member.offset,
              fmt::format("member '{}' has {} bytes, the limit is {}", printable(member.name),
                          member.bytes, maximum_bytes),
              "the limit guards against files that promise more than they hold; split the file");
  const bool possible = member.method == kStored
                            ? member.bytes == member.compressed_bytes
                            : member.bytes / kDeflateRatio <= member.compressed_bytes;
  if (!possible)
    view.fail(member.offset,
              fmt::format("member '{}' promises {} bytes, which its {} compressed "
                          "bytes cannot hold",
                          printable(member.name), member.bytes, member.compressed_bytes),
              "the archive is damaged; write or fetch it again");

  const auto data = archive.subspan(data_at, member.compressed_bytes);
  std::vector<uint8_t> content(member.bytes);
  if (member.method == kStored) {
    std::copy(data.begin(), data.end(), content.begin());
  } else {
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
      throw RuntimeError("decompressing " + name, "zlib could not start");
    // zlib counts in 32 bits: input and output go in portions.
    constexpr uint64_t kPortion = uint64_t{1} << 30;
    uint64_t consumed = 0;
    uint64_t produced = 0;
    uint8_t nothing = 0;
    int code = Z_OK;
    while (code == Z_OK) {
      const uint64_t in = std::min(kPortion, data.size() - consumed);
      const uint64_t out = std::min(kPortion, content.size() - produced);
      stream.next_in = const_cast<Bytef*>(data.data() + consumed);
      stream.avail_in = static_cast<uInt>(in);
      stream.next_out = out > 0 ? content.data() + produced : &nothing;
      stream.avail_out = static_cast<uInt>(out);
      code = inflate(&stream, Z_NO_FLUSH);
      consumed += in - stream.avail_in;
      produced += out - stream.avail_out;
    }
    const std::string reason = stream.msg != nullptr ? stream.msg : "its sizes are wrong";
    inflateEnd(&stream);
    if (code != Z_STREAM_END || produced != content.size() || consumed != data.size())
      view.fail(data_at + consumed,
                fmt::format("member '{}' is damaged: {}", printable(member.name), reason),
                "write or fetch the archive again");
  }
  const uint32_t crc =
      static_cast<uint32_t>(crc32_z(crc32_z(0, nullptr, 0), content.data(), content.size()));
  if (crc != member.crc)
    view.fail(data_at,
              fmt::format("member '{}' is damaged: its checksum is {:08x}, expected {:08x}",
                          printable(member.name), crc, member.crc),
              "write or fetch the archive again");
  return content;
}

std::vector<uint8_t> zip_bytes(std::span<const ZipContent> members) {
  std::vector<uint8_t> archive, directory;
  const auto put = [](std::vector<uint8_t>& to, uint64_t value, int count) {
    for (int i = 0; i < count; ++i)
      to.push_back(static_cast<uint8_t>(value >> (8 * i)));
  };
  const auto put_text = [](std::vector<uint8_t>& to, const std::string& text) {
    to.insert(to.end(), text.begin(), text.end());
  };
  uint64_t total = kEndBytes;
  for (const ZipContent& member : members)
    total += kLocalBytes + kDirectoryBytes + 2 * member.name.size() + member.bytes.size();
  if (total > UINT32_MAX || members.size() > UINT16_MAX)
    throw UserError(fmt::format("an archive of {} members would take {} bytes, at most 4 GiB are "
                                "possible",
                                members.size(), total),
                    "write its arrays as files of their own");
  // Version 2.0; no flags; stored; the first day that the format knows, at midnight.
  constexpr uint64_t kVersion = 20, kTime = 0, kDate = 0x21;
  for (const ZipContent& member : members) {
    const uint64_t offset = archive.size();
    const uint64_t crc = crc32_z(crc32_z(0, nullptr, 0), member.bytes.data(), member.bytes.size());
    const auto describe = [&](std::vector<uint8_t>& to) {
      for (const uint64_t value : {kVersion, uint64_t{0}, uint64_t{kStored}, kTime, kDate})
        put(to, value, 2);
      for (const uint64_t value : {crc, member.bytes.size(), member.bytes.size()})
        put(to, value, 4);
      put(to, member.name.size(), 2);
      put(to, 0, 2); // no extra field
    };
    put(archive, kLocalSignature, 4);
    describe(archive);
    put_text(archive, member.name);
    archive.insert(archive.end(), member.bytes.begin(), member.bytes.end());
    put(directory, kDirectorySignature, 4);
    put(directory, kVersion, 2);
    describe(directory);
    for (int i = 0; i < 3; ++i) // comment, disk, internal attributes
      put(directory, 0, 2);
    put(directory, 0, 4); // external attributes
    put(directory, offset, 4);
    put_text(directory, member.name);
  }
  const uint64_t directory_at = archive.size();
  archive.insert(archive.end(), directory.begin(), directory.end());
  put(archive, kEndSignature, 4);
  put(archive, 0, 4); // of one disk
  put(archive, members.size(), 2);
  put(archive, members.size(), 2);
  put(archive, directory.size(), 4);
  put(archive, directory_at, 4);
  put(archive, 0, 2);
  return archive;
}

} // namespace sparsertc
