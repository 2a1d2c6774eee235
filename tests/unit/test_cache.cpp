// The disk cache: always the right code or none, whatever lies in the folder and whoever else uses
// it.
#include "ir/error.h"
#include "runtime/bundle/cache.h"
#include "tests/support/temporary_folder.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace sparsertc;
using sparsertc::testing::TemporaryFolder;

namespace {

CacheKey key_of(int number) {
  return {"entry " + std::to_string(number)};
}

/// The contents tell which key they belong to.
Bundle bundle_of(int number, size_t bytes = 1000) {
  Bundle bundle;
  bundle.manifest = "{\"number\": " + std::to_string(number) + "}";
  bundle.sections.push_back({"cubin", std::vector<uint8_t>(bytes, static_cast<uint8_t>(number))});
  return bundle;
}

bool holds(const std::optional<Bundle>& found, int number) {
  return found && found->manifest == bundle_of(number).manifest && found->sections.size() == 1 &&
         found->sections[0].bytes.size() >= 1000 &&
         std::all_of(found->sections[0].bytes.begin(), found->sections[0].bytes.end(),
                     [&](uint8_t byte) { return byte == static_cast<uint8_t>(number); });
}

std::string path_of(const TemporaryFolder& folder, const CacheKey& key) {
  return folder.path() + "/" + key.digest() + ".srtc";
}

/// Sets the time of the last use to so many seconds ago.
void make_older(const std::string& path, long seconds) {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec -= seconds;
  const timespec times[2] = {now, now};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

std::vector<uint8_t> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

/// Runs `work` in a process of its own; its result is the exit status.
template <typename Work>
pid_t in_child(Work work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0)
    ::_exit(work());
  return child;
}

int exit_status(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace

TEST_CASE("the folder is chosen by option, variable, XDG, home") {
  const auto set = [](const char* name, const char* value) {
    if (value == nullptr)
      ::unsetenv(name);
    else
      ::setenv(name, value, 1);
  };
  set("SPARSERTC_CACHE_DIR", "/ours");
  set("XDG_CACHE_HOME", "/xdg");
  set("HOME", "/home/somebody");
  CHECK(Cache::choose_directory("given") == "given");
  CHECK(Cache::choose_directory("") == "/ours");
  set("SPARSERTC_CACHE_DIR", "");
  CHECK(Cache::choose_directory("") == "/xdg/sparsertc");
  set("XDG_CACHE_HOME", "relative");
  CHECK(Cache::choose_directory("") == "/home/somebody/.cache/sparsertc");
  set("XDG_CACHE_HOME", nullptr);
  set("HOME", nullptr);
  CHECK(Cache::choose_directory("").empty());
}

TEST_CASE("what was stored is found again, under its key only") {
  const TemporaryFolder folder;
  Cache cache(folder.path() + "/made/when/needed");
  CHECK_FALSE(cache.find(key_of(1)));
  CHECK(folder.names().empty());
  cache.store(key_of(1), bundle_of(1));
  cache.store(key_of(2), bundle_of(2));
  CHECK(holds(cache.find(key_of(1)), 1));
  CHECK(holds(Cache(cache.directory()).find(key_of(2)), 2));
  CHECK_FALSE(cache.find(key_of(3)));
  CHECK(cache.remark().empty());
  REQUIRE(cache.list().size() == 2);
  CHECK(cache.read(cache.list()[0]).find("key") != nullptr);

  // The same bundle gives the same file.
  const std::string path = cache.directory() + "/" + key_of(1).digest() + ".srtc";
  const std::vector<uint8_t> bytes = bytes_of(path);
  cache.store(key_of(1), bundle_of(1));
  CHECK(bytes_of(path) == bytes);
}

TEST_CASE("without a folder the cache misses and keeps quiet") {
  Cache cache("");
  cache.store(key_of(1), bundle_of(1));
  CHECK_FALSE(cache.find(key_of(1)));
  CHECK(cache.remark().empty());
  CHECK(cache.list().empty());
}

TEST_CASE("damaged and foreign entries are misses and are replaced") {
  const TemporaryFolder folder;
  Cache cache(folder.path());
  cache.store(key_of(1), bundle_of(1));
  cache.store(key_of(2), bundle_of(2));
  const std::string path = path_of(folder, key_of(1));
  const std::vector<uint8_t> good = bytes_of(path);

  const auto check_replaced = [&] {
    CHECK_FALSE(cache.find(key_of(1)));
    cache.store(key_of(1), bundle_of(1));
    CHECK(holds(cache.find(key_of(1)), 1));
    CHECK(bytes_of(path) == good);
  };
  for (size_t place = 0; place < good.size(); place += 7) {
    CAPTURE(place);
    std::vector<uint8_t> flipped = good;
    flipped[place] ^= 0x10;
    write(path, flipped);
    check_replaced();
  }
  for (size_t length = 0; length < good.size(); length += 37) {
    CAPTURE(length);
    write(path, {good.begin(), good.begin() + static_cast<ptrdiff_t>(length)});
    check_replaced();
  }
  // A whole bundle, but another key's: another GPU's code, say.
  write(path, bytes_of(path_of(folder, key_of(2))));
  CHECK_THROWS_WITH(cache.read({key_of(1).digest(), 0, {}}), Catch::Contains("not the one"));
  check_replaced();
  // A bundle without a key.
  write(path, serialize(bundle_of(1)));
  check_replaced();
  // A link to nowhere.
  REQUIRE(::unlink(path.c_str()) == 0);
  REQUIRE(::symlink("/nowhere", path.c_str()) == 0);
  check_replaced();
  // Not even a file: it stays, and the cache does without.
  REQUIRE(::unlink(path.c_str()) == 0);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_FALSE(cache.find(key_of(1)));
  cache.store(key_of(1), bundle_of(1));
  CHECK_FALSE(cache.remark().empty());
  CHECK(holds(cache.find(key_of(2)), 2));
}

TEST_CASE("the least recently used entries make room") {
  const TemporaryFolder folder;
  // Room for three.
  Cache cache(folder.path(), 3500 + 3 * 300);
  for (int i = 1; i <= 3; ++i) {
    cache.store(key_of(i), bundle_of(i));
    make_older(path_of(folder, key_of(i)), 100 - i);
  }
  write(folder.path() + "/notes.txt", std::vector<uint8_t>(10000));
  CHECK(cache.list().front().digest == key_of(1).digest());
  CHECK(holds(cache.find(key_of(1)), 1)); // now the youngest
  CHECK(cache.list().front().digest == key_of(2).digest());
  CHECK(cache.list().back().digest == key_of(1).digest());

  cache.store(key_of(4), bundle_of(4));
  CHECK_FALSE(cache.find(key_of(2)));
  make_older(path_of(folder, key_of(4)), 10);
  cache.store(key_of(5), bundle_of(5));
  CHECK_FALSE(cache.find(key_of(3)));
  CHECK(holds(cache.find(key_of(1)), 1));
  CHECK(holds(cache.find(key_of(4)), 4));
  CHECK(holds(cache.find(key_of(5)), 5));

  // Too large for the limit: not kept, and nothing else goes for it.
  cache.store(key_of(6), bundle_of(6, 100000));
  CHECK_FALSE(cache.find(key_of(6)));
  CHECK(cache.list().size() == 3);
  CHECK(cache.remark().empty());
  // What is not an entry is left alone.
  CHECK(std::filesystem::exists(folder.path() + "/notes.txt"));
}

TEST_CASE("a folder that cannot be written costs one remark") {
  const TemporaryFolder folder;
  write(folder.path() + "/file", {1});
  // Permissions do not stop the superuser; a file in the place of a folder does.
  for (const std::string& directory :
       {folder.path() + "/file", folder.path() + "/file/below", std::string("/proc/no/cache")}) {
    CAPTURE(directory);
    Cache cache(directory);
    CHECK_FALSE(cache.find(key_of(1)));
    CHECK(cache.remark().empty());
    cache.store(key_of(1), bundle_of(1));
    CHECK(cache.remark().find(directory) != std::string::npos);
    CHECK(cache.list().empty());
  }
}

TEST_CASE("a folder without write permission still serves its entries") {
  const TemporaryFolder folder;
  Cache(folder.path()).store(key_of(1), bundle_of(1));
  REQUIRE(::chmod(folder.path().c_str(), 0555) == 0);
  const pid_t child = in_child([&] {
    // The superuser may write everywhere, so it becomes nobody.
    if (::geteuid() == 0 && ::setuid(65534) != 0)
      return 1;
    Cache cache(folder.path());
    cache.store(key_of(2), bundle_of(2));
    const bool right =
        !cache.remark().empty() && holds(cache.find(key_of(1)), 1) && !cache.find(key_of(2));
    return right ? 0 : 2;
  });
  CHECK(exit_status(child) == 0);
  REQUIRE(::chmod(folder.path().c_str(), 0700) == 0);
}

TEST_CASE("a full disk costs one remark and no entry") {
  const TemporaryFolder folder;
  Cache(folder.path()).store(key_of(1), bundle_of(1));
  const pid_t child = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {3000, 3000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Cache cache(folder.path());
    cache.store(key_of(2), bundle_of(2, 50000));
    const bool right =
        !cache.remark().empty() && !cache.find(key_of(2)) && holds(cache.find(key_of(1)), 1);
    return right ? 0 : 1;
  });
  CHECK(exit_status(child) == 0);
  CHECK(folder.names() == std::vector<std::string>{key_of(1).digest() + ".srtc"});
}

TEST_CASE("several processes share a folder") {
  const TemporaryFolder folder;
  constexpr int kProcesses = 4, kKeys = 5, kRounds = 150;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process)
    children.push_back(in_child([&] {
      // Too small for all keys, so that they take each other's entries away.
      Cache cache(folder.path(), 3 * 40000);
      int wrong = 0;
      for (int round = 0; round < kRounds; ++round) {
        const int number = (round * (process + 1) + process) % kKeys;
        if (const std::optional<Bundle> found = cache.find(key_of(number)))
          wrong += !holds(found, number);
        else
          cache.store(key_of(number), bundle_of(number, 30000));
      }
      return wrong == 0 && cache.remark().empty() ? 0 : 1;
    }));
  for (const pid_t child : children)
    CHECK(exit_status(child) == 0);
  const Cache cache(folder.path());
  CHECK_FALSE(cache.list().empty());
  for (const Cache::Entry& entry : cache.list())
    CHECK_NOTHROW(cache.read(entry));
}

TEST_CASE("a process killed in the middle of a write leaves no wrong entry") {
  const TemporaryFolder folder;
  const size_t large = 4 << 20;
  Cache(folder.path()).store(key_of(1), bundle_of(1));
  for (int round = 0; round < 20; ++round) {
    const pid_t child = in_child([&] {
      Cache cache(folder.path());
      for (;;)
        cache.store(key_of(1), bundle_of(1, large));
      return 0;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(3000 + 1700 * round));
    ::kill(child, SIGKILL);
    CHECK(exit_status(child) == 128 + SIGKILL);
    CHECK(holds(Cache(folder.path()).find(key_of(1)), 1));
  }
  // Leftovers are not entries; they go when they are old enough, and not before.
  const Cache cache(folder.path());
  const std::string leftover = path_of(folder, key_of(1)) + ".1-1.tmp";
  write(leftover, {1, 2, 3});
  CHECK(cache.list().size() == 1);
  cache.remove_leftovers(3600);
  CHECK(std::filesystem::exists(leftover));
  make_older(leftover, 7200);
  cache.remove_leftovers(3600);
  CHECK_FALSE(std::filesystem::exists(leftover));
  cache.remove_leftovers(0);
  CHECK(folder.names().size() == 1);
}

TEST_CASE("entries can be removed, twice too") {
  const TemporaryFolder folder;
  Cache cache(folder.path());
  cache.store(key_of(1), bundle_of(1));
  const Cache::Entry entry = cache.list().at(0);
  CHECK(entry.bytes == bytes_of(path_of(folder, key_of(1))).size());
  cache.remove(entry);
  CHECK_NOTHROW(cache.remove(entry));
  CHECK(cache.list().empty());
}
