#include "runtime/bundle/cache.h"

#include "ir/error.h"
#include "ir/sha256.h"
#include "runtime/bundle/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>

namespace sparsertc {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".srtc";
constexpr size_t kDigestLetters = 64;
constexpr const char* kKeySection = "key";
/// No write takes an hour; a temporary file of that age has lost its process.
constexpr uint64_t kLeftoverSeconds = 3600;

bool is_digest(std::string_view text) {
  return text.size() == kDigestLetters &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_entry_name(std::string_view name) {
  return name.size() == kDigestLetters + kSuffix.size() && name.ends_with(kSuffix) &&
         is_digest(name.substr(0, kDigestLetters));
}

/// As replace_file names them: DIGEST.srtc.PROCESS-COUNT.tmp
bool is_leftover_name(std::string_view name) {
  return name.size() > kDigestLetters + kSuffix.size() && name.ends_with(kTemporarySuffix) &&
         is_entry_name(name.substr(0, kDigestLetters + kSuffix.size()));
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool holds_key(const Bundle& bundle, std::string_view digest) {
  const Bundle::Section* key = bundle.find(kKeySection);
  if (key == nullptr)
    return false;
  return CacheKey{std::string(key->bytes.begin(), key->bytes.end())}.digest() == digest;
}

/// Makes the folder and those above it, private as the XDG specification wants. Returns an errno.
int make_directories(const fs::path& directory) {
  std::error_code error;
  if (fs::is_directory(directory, error))
    return 0;
  if (directory.has_parent_path() && directory.parent_path() != directory)
    if (const int above = make_directories(directory.parent_path()); above != 0)
      return above;
  if (::mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST)
    return fs::is_directory(directory, error) ? 0 : ENOTDIR;
  return errno;
}

} // namespace

std::string CacheKey::digest() const {
  Sha256 digest;
  digest.add(text);
  return digest.hex();
}

std::string Cache::choose_directory(const std::string& chosen) {
  if (!chosen.empty())
    return chosen;
  if (const std::string ours = environment("SPARSERTC_CACHE_DIR"); !ours.empty())
    return ours;
  // The XDG specification: a relative path there is to be ignored.
  if (const std::string all = environment("XDG_CACHE_HOME"); !all.empty() && all[0] == '/')
    return all + "/sparsertc";
  if (const std::string home = environment("HOME"); !home.empty())
    return home + "/.cache/sparsertc";
  return {};
}

Cache::Cache(std::string directory, uint64_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

std::string Cache::path_of(std::string_view digest) const {
  return fmt::format("{}/{}{}", directory_, digest, kSuffix);
}

std::optional<Bundle> Cache::find(const CacheKey& key) const {
  if (directory_.empty())
    return std::nullopt;
  const std::string path = path_of(key.digest());
  int error = 0;
  const std::optional<std::vector<uint8_t>> bytes = read_whole_file(path, error);
  if (!bytes)
    return std::nullopt;
  try {
    Bundle bundle = parse_bundle(*bytes, path);
    const Bundle::Section* stored = bundle.find(kKeySection);
    if (stored == nullptr ||
        !std::equal(stored->bytes.begin(), stored->bytes.end(), key.text.begin(), key.text.end(),
                    [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); }))
      return std::nullopt;
    std::erase_if(bundle.sections,
                  [](const Bundle::Section& section) { return section.name == kKeySection; });
    // The time of the last change is the time of the last use. Where it cannot be set, the entry
    // only grows old sooner.
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
    return bundle;
  } catch (const UserError&) {
    return std::nullopt; // damaged or foreign: replaced by the next store
  }
}

void Cache::store(const CacheKey& key, const Bundle& bundle) {
  if (directory_.empty() || !remark_.empty())
    return;
  Bundle kept = bundle;
  kept.sections.push_back({kKeySection, {key.text.begin(), key.text.end()}});
  const std::vector<uint8_t> bytes = serialize(kept);
  if (bytes.size() > limit_bytes_)
    return;
  const std::string digest = key.digest();
  int error = make_directories(fs::path(directory_));
  if (error == 0) {
    remove_leftovers(kLeftoverSeconds);
    error = replace_file(path_of(digest), bytes);
  }
  if (error != 0) {
    remark_ = fmt::format("the cache {} cannot be written ({}); going on without it", directory_,
                          std::generic_category().message(error));
    return;
  }
  make_room(digest);
}

std::vector<Cache::Entry> Cache::list() const {
  std::vector<Entry> entries;
  std::error_code error;
  // An iterator that fails becomes the end; files that vanish meanwhile are left out.
  for (fs::directory_iterator item(directory_, error), end; !error && item != end;
       item.increment(error)) {
    const std::string name = item->path().filename().string();
    std::error_code gone;
    if (!is_entry_name(name) || !item->is_regular_file(gone))
      continue;
    Entry entry;
    entry.digest = name.substr(0, kDigestLetters);
    entry.bytes = item->file_size(gone);
    if (!gone)
      entry.last_use = item->last_write_time(gone);
    if (!gone)
      entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.last_use != b.last_use ? a.last_use < b.last_use : a.digest < b.digest;
  });
  return entries;
}

void Cache::make_room(std::string_view newest) const {
  const std::vector<Entry> entries = list();
  uint64_t total = 0;
  for (const Entry& entry : entries)
    total += entry.bytes;
  for (const Entry& entry : entries) {
    if (total <= limit_bytes_)
      return;
    if (entry.digest == newest)
      continue;
    std::error_code error;
    fs::remove(path_of(entry.digest), error); // another process may have been faster
    total -= entry.bytes;
  }
}

Bundle Cache::read(const Entry& entry) const {
  const std::string path = path_of(entry.digest);
  Bundle bundle = read_bundle(path);
  if (!holds_key(bundle, entry.digest))
    throw UserError(Place{path, 0, 0, std::nullopt}, "a bundle, but not the one of this name",
                    "remove it: sparsertc cache verify");
  return bundle;
}

void Cache::remove(const Entry& entry) const {
  std::error_code error;
  fs::remove(path_of(entry.digest), error);
  if (error)
    throw RuntimeError("removing " + path_of(entry.digest), error.message());
}

void Cache::remove_leftovers(uint64_t seconds) const {
  const fs::file_time_type latest =
      fs::file_time_type::clock::now() - std::chrono::seconds(seconds);
  std::error_code error;
  for (fs::directory_iterator item(directory_, error), end; !error && item != end;
       item.increment(error)) {
    std::error_code gone;
    if (is_leftover_name(item->path().filename().string()) &&
        item->last_write_time(gone) <= latest && !gone)
      fs::remove(item->path(), gone);
  }
}

} // namespace sparsertc
