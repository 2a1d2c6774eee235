#include "runtime/bundle/bundle.h"

#include "ir/error.h"
#include "ir/sha256.h"
#include "runtime/bundle/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

namespace sparsertc {
namespace {

// The format: README.md has the table.
constexpr std::array<uint8_t, 8> kMagic = {0x89, 'S', 'R', 'T', 'C', '\r', '\n', 0x1A};
constexpr uint32_t kFormatVersion = 1;
constexpr size_t kVersionAt = 8;
constexpr size_t kSectionCountAt = 12;
constexpr size_t kMakerAt = 16;
constexpr size_t kMakerBytes = 16;
constexpr size_t kFileBytesAt = 32;
constexpr size_t kManifestBytesAt = 40;
constexpr size_t kHeaderBytes = 48;
constexpr size_t kNameBytes = 24;
constexpr size_t kTableEntryBytes = kNameBytes + 8;
constexpr uint32_t kMostSections = 1024;
constexpr size_t kDigestBytes = 32;

constexpr const char* kCompileAgain = "compile it again: sparsertc compile IN -o OUT.srtc";

uint64_t read_integer(std::span<const uint8_t> bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;)
    value = value << 8 | bytes[at + i];
  return value;
}

void append_integer(std::vector<uint8_t>& bytes, uint64_t value, size_t count) {
  for (size_t i = 0; i < count; ++i)
    bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

/// The text and zeros up to `width`.
void append_padded(std::vector<uint8_t>& bytes, std::string_view text, size_t width) {
  bytes.insert(bytes.end(), text.begin(), text.end());
  bytes.insert(bytes.end(), width - text.size(), 0);
}

/// Up to the first zero; what is not printable becomes '?'.
std::string read_padded(std::span<const uint8_t> bytes, size_t at, size_t width) {
  std::string text;
  for (size_t i = 0; i < width && bytes[at + i] != 0; ++i)
    text += bytes[at + i] > ' ' && bytes[at + i] < 0x7F ? static_cast<char>(bytes[at + i]) : '?';
  return text;
}

std::array<uint8_t, kDigestBytes> digest_of(std::span<const uint8_t> bytes) {
  Sha256 digest;
  digest.add(bytes.data(), bytes.size());
  return digest.finish();
}

[[noreturn]] void fail(const std::string& name, uint64_t byte, const std::string& message,
                       const std::string& way_out = kCompileAgain) {
  throw UserError(Place::binary(name, byte), message, way_out);
}

/// Everything that can be said without the table: what it is, of which version, and whether it is
/// all there, unchanged.
void check_outside(std::span<const uint8_t> bytes, const std::string& name) {
  const size_t magic_bytes = std::min(bytes.size(), kMagic.size());
  const auto mismatch = std::mismatch(
      bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(magic_bytes), kMagic.begin());
  if (bytes.empty() || mismatch.second != kMagic.begin() + static_cast<ptrdiff_t>(magic_bytes))
    fail(name, static_cast<uint64_t>(mismatch.second - kMagic.begin()),
         bytes.empty() ? "the file is empty; expected a bundle" : "not a bundle",
         "bundles are made by: sparsertc compile IN -o OUT.srtc");
  if (bytes.size() < kHeaderBytes)
    fail(name, bytes.size(),
         fmt::format("cut short: the header takes {} bytes, the file has {}", kHeaderBytes,
                     bytes.size()));
  const uint64_t version = read_integer(bytes, kVersionAt, 4);
  if (version != kFormatVersion)
    fail(name, kVersionAt,
         fmt::format("bundle format {}, made by sparsertc {}; this is sparsertc {}, which reads "
                     "format {}",
                     version, read_padded(bytes, kMakerAt, kMakerBytes), SPARSERTC_VERSION,
                     kFormatVersion),
         "compile it again with this version, or run it with the one that made it");
  const uint64_t said = read_integer(bytes, kFileBytesAt, 8);
  if (said < kHeaderBytes + kDigestBytes)
    fail(name, kFileBytesAt, fmt::format("damaged: a length of {} bytes is too small", said));
  if (said > bytes.size())
    fail(name, bytes.size(),
         fmt::format("cut short: the bundle has {} bytes, the file has {}", said, bytes.size()));
  if (said < bytes.size())
    fail(name, said,
         fmt::format("{} foreign {} after the end of the bundle", bytes.size() - said,
                     bytes.size() - said == 1 ? "byte" : "bytes"));
  const size_t body = bytes.size() - kDigestBytes;
  const std::array<uint8_t, kDigestBytes> digest = digest_of(bytes.first(body));
  if (!std::equal(digest.begin(), digest.end(), bytes.begin() + static_cast<ptrdiff_t>(body)))
    fail(name, body, "damaged: the digest does not fit the bytes before it");
}

bool is_name(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_.-";
  return !name.empty() && name.size() <= kNameBytes &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

} // namespace

const Bundle::Section* Bundle::find(std::string_view name) const {
  for (const Section& section : sections)
    if (section.name == name)
      return &section;
  return nullptr;
}

Bundle::Section* Bundle::find(std::string_view name) {
  return const_cast<Section*>(std::as_const(*this).find(name));
}

std::vector<uint8_t> serialize(const Bundle& bundle) {
  constexpr std::string_view kMaker = SPARSERTC_VERSION;
  static_assert(kMaker.size() <= kMakerBytes);
  if (bundle.sections.size() > kMostSections)
    throw InternalError(fmt::format("a bundle of {} sections", bundle.sections.size()));
  std::set<std::string_view> names;
  uint64_t total =
      kHeaderBytes + bundle.sections.size() * kTableEntryBytes + bundle.manifest.size();
  for (const Bundle::Section& section : bundle.sections) {
    if (!is_name(section.name) || !names.insert(section.name).second)
      throw InternalError(fmt::format("a bundle section named \"{}\"", section.name));
    total += section.bytes.size();
  }
  total += kDigestBytes;

  std::vector<uint8_t> bytes;
  bytes.reserve(total);
  bytes.insert(bytes.end(), kMagic.begin(), kMagic.end());
  append_integer(bytes, kFormatVersion, 4);
  append_integer(bytes, bundle.sections.size(), 4);
  append_padded(bytes, kMaker, kMakerBytes);
  append_integer(bytes, total, 8);
  append_integer(bytes, bundle.manifest.size(), 8);
  for (const Bundle::Section& section : bundle.sections) {
    append_padded(bytes, section.name, kNameBytes);
    append_integer(bytes, section.bytes.size(), 8);
  }
  bytes.insert(bytes.end(), bundle.manifest.begin(), bundle.manifest.end());
  for (const Bundle::Section& section : bundle.sections)
    bytes.insert(bytes.end(), section.bytes.begin(), section.bytes.end());
  const std::array<uint8_t, kDigestBytes> digest = digest_of(bytes);
  bytes.insert(bytes.end(), digest.begin(), digest.end());
  return bytes;
}

Bundle parse_bundle(std::span<const uint8_t> bytes, const std::string& name) {
  check_outside(bytes, name);

  // The digest fits, so a fault below was made on purpose; the lengths are still not believed.
  const uint64_t count = read_integer(bytes, kSectionCountAt, 4);
  uint64_t left = bytes.size() - kHeaderBytes - kDigestBytes;
  if (count > kMostSections || count * kTableEntryBytes > left)
    fail(name, kSectionCountAt, fmt::format("damaged: {} sections do not fit", count));
  left -= count * kTableEntryBytes;

  const auto take = [&](uint64_t length, size_t place) {
    if (length > left)
      fail(name, place,
           fmt::format("damaged: a length of {} bytes where {} are left", length, left));
    left -= length;
    return static_cast<size_t>(length);
  };
  const size_t manifest_bytes = take(read_integer(bytes, kManifestBytesAt, 8), kManifestBytesAt);
  std::vector<size_t> lengths;
  Bundle bundle;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = kHeaderBytes + i * kTableEntryBytes;
    Bundle::Section section;
    section.name = read_padded(bytes, at, kNameBytes);
    if (!is_name(section.name) || bundle.find(section.name) != nullptr ||
        std::any_of(&bytes[at] + section.name.size(), &bytes[at] + kNameBytes,
                    [](uint8_t byte) { return byte != 0; }))
      fail(name, at, "damaged: a section's name is not a word, or stands twice");
    lengths.push_back(take(read_integer(bytes, at + kNameBytes, 8), at + kNameBytes));
    bundle.sections.push_back(std::move(section));
  }
  if (left != 0)
    fail(name, bytes.size() - kDigestBytes - left,
         fmt::format("damaged: {} bytes belong to no section", left));

  const uint8_t* next = bytes.data() + kHeaderBytes + count * kTableEntryBytes;
  bundle.manifest.assign(reinterpret_cast<const char*>(next), manifest_bytes);
  next += manifest_bytes;
  for (size_t i = 0; i < count; ++i) {
    bundle.sections[i].bytes.assign(next, next + lengths[i]);
    next += lengths[i];
  }
  return bundle;
}

Bundle read_bundle(const std::string& path) {
  int error = 0;
  const std::optional<std::vector<uint8_t>> bytes = read_whole_file(path, error);
  if (!bytes)
    throw UserError(Place{path, 0, 0, std::nullopt},
                    fmt::format("cannot read the bundle: {}",
                                error == EINVAL ? "not a regular file"
                                                : std::generic_category().message(error)),
                    "check the path; bundles are made by: sparsertc compile IN -o OUT.srtc");
  return parse_bundle(*bytes, path);
}

void write_bundle(const std::string& path, const Bundle& bundle) {
  if (const int error = replace_file(path, serialize(bundle)); error != 0)
    throw RuntimeError("writing " + path, std::generic_category().message(error));
}

} // namespace sparsertc
