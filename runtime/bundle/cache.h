// The disk cache of assembled code: a folder of bundles, each named after what it was made from.
//
// A cache never fails: what is missing, damaged, foreign or not accessible is a miss, what cannot
// be written is not kept, and one remark says so. Processes may share a folder: files appear by
// being renamed, whole, and one that another process removes is a miss.
#pragma once

#include "runtime/bundle/bundle.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

/// What a cached bundle was made from: a text that holds everything the code depends on. The caller
/// writes it the same way each time; two texts that differ in a byte are two entries.
struct CacheKey {
  std::string text;
  /// SHA-256 of the text, 64 hexadecimal digits: the name of the entry.
  std::string digest() const;
};

class Cache {
public:
  static constexpr uint64_t kDefaultLimitBytes = uint64_t{1} << 30;

  /// The folder that `chosen` (an option's value) says, or SPARSERTC_CACHE_DIR, or
  /// XDG_CACHE_HOME/sparsertc, or HOME/.cache/sparsertc; empty where none of them is set.
  static std::string choose_directory(const std::string& chosen);

  /// Touches nothing yet; the folder is made when the first entry is stored. An empty `directory`
  /// makes a cache that misses always and keeps nothing.
  explicit Cache(std::string directory, uint64_t limit_bytes = kDefaultLimitBytes);

  const std::string& directory() const { return directory_; }

  /// The bundle stored under this key, or nothing. A hit makes the entry the youngest.
  std::optional<Bundle> find(const CacheKey& key) const;

  /// Keeps the bundle (with the key's text as its section "key"), replacing what lies under its
  /// name; then removes the entries that were used least recently until the folder is within its
  /// limit. A bundle that is larger than the limit is not kept.
  void store(const CacheKey& key, const Bundle& bundle);

  /// Why nothing can be kept, for the user: empty, or one sentence. The first failure is kept and
  /// ends all further attempts to write.
  const std::string& remark() const { return remark_; }

  struct Entry {
    std::string digest; ///< the name
    uint64_t bytes = 0;
    std::filesystem::file_time_type last_use;
  };
  /// All entries, the least recently used first (by name where times are equal). What does not have
  /// an entry's name is passed over here and everywhere else.
  std::vector<Entry> list() const;

  /// The entry's bundle, whole and under its own name; UserError as parse_bundle, or where the
  /// bundle belongs under another name.
  Bundle read(const Entry& entry) const;

  /// Removes one entry. Throws RuntimeError where the system refuses; an entry that is gone is
  /// fine.
  void remove(const Entry& entry) const;

  /// Removes files that killed processes left half written, if they have not been touched for
  /// `seconds`.
  void remove_leftovers(uint64_t seconds) const;

private:
  std::string path_of(std::string_view digest) const;
  void make_room(std::string_view newest) const;

  std::string directory_;
  uint64_t limit_bytes_;
  std::string remark_;
};

} // namespace sparsertc
