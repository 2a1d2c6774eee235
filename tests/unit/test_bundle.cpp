// The container: what is written is read back. What is refused is in tests/error/bundle_cases.cpp.
#include "ir/error.h"
#include "runtime/bundle/bundle.h"
#include "tests/support/temporary_folder.h"

#include <catch2/catch.hpp>

#include <csignal>
#include <cstring>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace sparsertc;
using sparsertc::testing::TemporaryFolder;

namespace {

Bundle small_bundle() {
  Bundle bundle;
  bundle.manifest = "{\"schema\": 1}\n";
  bundle.sections.push_back({"cubin", {0x7F, 'E', 'L', 'F', 0, 1, 2, 3}});
  bundle.sections.push_back({"ptx", {'.', 'v', 'e', 'r', 's', 'i', 'o', 'n'}});
  bundle.sections.push_back({"empty", {}});
  return bundle;
}

bool same(const Bundle& a, const Bundle& b) {
  if (a.manifest != b.manifest || a.sections.size() != b.sections.size())
    return false;
  for (size_t i = 0; i < a.sections.size(); ++i)
    if (a.sections[i].name != b.sections[i].name || a.sections[i].bytes != b.sections[i].bytes)
      return false;
  return true;
}

} // namespace

TEST_CASE("a bundle is read back as it was written") {
  const Bundle bundle = small_bundle();
  const std::vector<uint8_t> bytes = serialize(bundle);
  CHECK(same(parse_bundle(bytes, "x"), bundle));
  CHECK(serialize(bundle) == bytes);
  CHECK(serialize(parse_bundle(bytes, "x")) == bytes);
  // The table of README.md.
  CHECK(bytes.size() == 48 + 3 * 32 + bundle.manifest.size() + 16 + 32);

  REQUIRE(bundle.find("ptx") != nullptr);
  CHECK(bundle.find("ptx")->bytes.size() == 8);
  CHECK(bundle.find("pt") == nullptr);
  CHECK(same(parse_bundle(serialize(Bundle{}), "x"), Bundle{}));
}

TEST_CASE("names of sections are words, and differ") {
  for (const char* name : {"", "two words", "UPPER", "a_name_of_twenty-five.char"}) {
    Bundle bundle;
    bundle.sections.push_back({name, {}});
    CHECK_THROWS_AS(serialize(bundle), InternalError);
  }
  Bundle twice;
  twice.sections = {{"ptx", {}}, {"ptx", {}}};
  CHECK_THROWS_AS(serialize(twice), InternalError);
  Bundle longest;
  longest.sections.push_back({"a_name_of_24_characters.", {1}});
  CHECK(same(parse_bundle(serialize(longest), "x"), longest));
}

TEST_CASE("files: written whole, read back, and refused with a place") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/layer.srtc";
  write_bundle(path, small_bundle());
  CHECK(same(read_bundle(path), small_bundle()));
  CHECK(folder.names() == std::vector<std::string>{"layer.srtc"});

  CHECK_THROWS_WITH(read_bundle(folder.path() + "/absent.srtc"),
                    Catch::Contains("absent.srtc: error: cannot read the bundle"));
  CHECK_THROWS_AS(read_bundle(folder.path()), UserError);
  CHECK_THROWS_AS(write_bundle(folder.path() + "/no/folder.srtc", small_bundle()), RuntimeError);
  // Devices are not replaced by files, nor waited for.
  CHECK_THROWS_AS(write_bundle("/dev/null", small_bundle()), RuntimeError);
  CHECK_THROWS_AS(read_bundle("/dev/null"), UserError);
}

TEST_CASE("a full disk leaves the old bundle") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/layer.srtc";
  write_bundle(path, small_bundle());
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // The limit of a file's size stands for the end of the disk: write fails in the middle.
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Bundle large = small_bundle();
    large.sections[0].bytes.resize(100000);
    try {
      write_bundle(path, large);
    } catch (const RuntimeError& error) {
      ::_exit(std::strstr(error.what(), path.c_str()) != nullptr ? 17 : 1);
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 17));
  CHECK(same(read_bundle(path), small_bundle()));
  CHECK(folder.names() == std::vector<std::string>{"layer.srtc"});
}
