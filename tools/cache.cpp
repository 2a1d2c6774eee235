// sparsertc cache: what the disk cache holds, is it whole, and away with it.
#include "runtime/bundle/cache.h"
#include "ir/error.h"
#include "tools/command.h"
#include "tools/options.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace sparsertc {
namespace {

struct CacheCommandOptions {
  std::string action;
  std::string directory;
};

/// The value of `fact` in a key's text, or "-".
std::string_view fact_of(std::string_view key, std::string_view fact) {
  while (!key.empty()) {
    const std::string_view line = key.substr(0, key.find('\n'));
    if (line.size() > fact.size() && line[fact.size()] == '=' && line.starts_with(fact))
      return line.substr(fact.size() + 1);
    key.remove_prefix(std::min(key.size(), line.size() + 1));
  }
  return "-";
}

std::string time_text(std::filesystem::file_time_type time) {
  const auto seconds = std::chrono::file_clock::to_sys(time);
  const std::time_t whole = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(seconds));
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(whole));
}

std::string total_of(const std::vector<Cache::Entry>& entries) {
  uint64_t bytes = 0;
  for (const Cache::Entry& entry : entries)
    bytes += entry.bytes;
  return fmt::format("{} {}, {} bytes", entries.size(), entries.size() == 1 ? "entry" : "entries",
                     bytes);
}

/// One line for each entry, the least recently used first.
int list(const Cache& cache) {
  const std::vector<Cache::Entry> entries = cache.list();
  for (const Cache::Entry& entry : entries) {
    std::string facts;
    try {
      const Bundle bundle = cache.read(entry);
      const Bundle::Section* section = bundle.find("key");
      const std::string key(section->bytes.begin(), section->bytes.end());
      facts = fmt::format("{} {}x{} n={} {} {} {}", fact_of(key, "family"), fact_of(key, "m"),
                          fact_of(key, "k"), fact_of(key, "n"), fact_of(key, "dtype"),
                          fact_of(key, "target"), fact_of(key, "tile"));
    } catch (const UserError&) {
      facts = "damaged";
    }
    fmt::print("{} {:>10} {} {}\n", entry.digest, entry.bytes, time_text(entry.last_use), facts);
  }
  fmt::print(stderr, "{}: {}\n", cache.directory(), total_of(entries));
  return 0;
}

int clear(const Cache& cache) {
  const std::vector<Cache::Entry> entries = cache.list();
  for (const Cache::Entry& entry : entries)
    cache.remove(entry);
  cache.remove_leftovers(0);
  fmt::print(stderr, "{}: removed {}\n", cache.directory(), total_of(entries));
  return 0;
}

/// Removes what is damaged; exit code 1 if something was.
int verify(const Cache& cache) {
  const std::vector<Cache::Entry> entries = cache.list();
  std::vector<Cache::Entry> damaged;
  for (const Cache::Entry& entry : entries) {
    try {
      cache.read(entry);
    } catch (const UserError& error) {
      const std::string_view text = error.what(); // its way out, a note, does not hold here
      fmt::print(stderr, "{}; removed\n", text.substr(0, text.find('\n')));
      cache.remove(entry);
      damaged.push_back(entry);
    }
  }
  fmt::print("{}: {} of {} whole, {} damaged and removed\n", cache.directory(),
             entries.size() - damaged.size(), entries.size(), damaged.size());
  return damaged.empty() ? 0 : 1;
}

int run(const CacheCommandOptions& options) {
  const size_t action = choose_word("cache: action", options.action, {"list", "clear", "verify"});
  const std::string directory = Cache::choose_directory(options.directory);
  if (directory.empty())
    throw UsageError("no folder for the cache: neither HOME nor XDG_CACHE_HOME is set",
                     "say --cache-dir=DIR or set SPARSERTC_CACHE_DIR");
  const Cache cache(directory);
  return action == 0 ? list(cache) : action == 1 ? clear(cache) : verify(cache);
}

} // namespace

Command add_cache_command(CLI::App& application) {
  auto options = std::make_shared<CacheCommandOptions>();
  CLI::App* parser =
      application.add_subcommand("cache", "Lists, verifies or clears the cache of assembled code");
  parser
      ->add_option("ACTION", options->action,
                   "list: one line an entry (key, bytes, last use, what it is). clear: remove all "
                   "entries. verify: read all, remove the damaged ones; exit code 1 if there were "
                   "any")
      ->required();
  parser->add_option("--cache-dir", options->directory,
                     "The folder; else SPARSERTC_CACHE_DIR, XDG_CACHE_HOME/sparsertc or "
                     "~/.cache/sparsertc");
  parser->footer("Examples:\n"
                 "  sparsertc cache list\n"
                 "  sparsertc cache verify --cache-dir=/tmp/cache");
  return {parser, [options] { return run(*options); }};
}

} // namespace sparsertc
