// The cache in front of an assembler: what it gives is what the assembler gave, and everything that
// the result depends on is in the key.
#include "ir/error.h"
#include "tests/support/temporary_folder.h"
#include "tools/caching_assembler.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <thread>

using namespace sparsertc;
using sparsertc::testing::TemporaryFolder;

namespace {

/// Counts its calls; its result tells which units it was given.
class CountingAssembler : public Assembler {
public:
  std::string identity() const override { return name; }
  Assembled assemble(const AssembleRequest& request) const override {
    ++calls;
    if (fails)
      throw RuntimeError("assembling", "told to fail");
    Assembled result;
    for (const std::string& unit : request.units)
      result.cubin.insert(result.cubin.end(), unit.begin(), unit.end());
    result.assembler = identity();
    result.log = "said \"something\"\nand \xFF, which is no UTF-8";
    result.functions.push_back({"sparsertc_spmm", true, 32, 1, 8, 16, 24, 4096, 123456789012});
    result.functions.push_back({"tile_0", false, 30, 0, 0, 0, 0, 0, 1});
    return result;
  }
  std::string name = "counting 1.2.3";
  mutable std::atomic<int> calls = 0;
  bool fails = false;
};

void check_same(const Assembled& a, const Assembled& b) {
  CHECK(a.cubin == b.cubin);
  CHECK(a.assembler == b.assembler);
  REQUIRE(a.functions.size() == b.functions.size());
  for (size_t i = 0; i < a.functions.size(); ++i) {
    CHECK(a.functions[i].name == b.functions[i].name);
    CHECK(a.functions[i].is_kernel == b.functions[i].is_kernel);
    CHECK(a.functions[i].registers == b.functions[i].registers);
    CHECK(a.functions[i].barriers == b.functions[i].barriers);
    CHECK(a.functions[i].stack_bytes == b.functions[i].stack_bytes);
    CHECK(a.functions[i].spill_store_bytes == b.functions[i].spill_store_bytes);
    CHECK(a.functions[i].spill_load_bytes == b.functions[i].spill_load_bytes);
    CHECK(a.functions[i].shared_bytes == b.functions[i].shared_bytes);
    CHECK(a.functions[i].code_bytes == b.functions[i].code_bytes);
  }
}

} // namespace

TEST_CASE("a second request is not assembled again") {
  const TemporaryFolder folder;
  const CountingAssembler assembler;
  Cache cache(folder.path());
  std::vector<std::string> told;
  const CachingAssembler caching(
      assembler, cache, [&](const std::string& text) { told.push_back(text); },
      [](const std::string& text) { FAIL(text); });
  CHECK(caching.identity() == assembler.identity());

  const std::vector<std::string> units = {"unit 0", "unit 1"};
  AssembleRequest request;
  request.units = units;
  request.target = "sm_90";
  const Assembled first = caching.assemble(request);
  const Assembled second = caching.assemble(request);
  CHECK(assembler.calls == 1);
  check_same(first, second);
  CHECK(second.log.find("said \"something\"\nand ") == 0);
  REQUIRE(told.size() == 2);
  CHECK(told[0].find("miss ") == 0);
  CHECK(told[1].find("hit ") == 0);

  // What makes no difference to the code makes none to the key.
  request.jobs = 7;
  request.reproduce_directory = "/somewhere";
  caching.assemble(request);
  CHECK(assembler.calls == 1);
}

TEST_CASE("everything that the code depends on is in the key") {
  const std::vector<std::string> units = {"unit 0", "unit 1"}, changed = {"unit 0", "unit 2"},
                                 merged = {"unit 0unit 1"}, moved = {"unit 0u", "nit 1"};
  AssembleRequest base;
  base.units = units;
  base.target = "sm_90";
  base.kernels = {"sparsertc_spmm"};
  base.provenance = "pattern=1\n";
  std::vector<AssembleRequest> requests(9, base);
  requests[1].units = changed;
  requests[2].units = merged;
  requests[3].units = moved;
  requests[4].target = "sm_90a";
  requests[5].kernels = {};
  requests[6].provenance = "pattern=2\n";
  requests[7].optimisation_level = 1;
  requests[8].max_registers = 64;
  std::set<std::string> digests;
  for (const AssembleRequest& request : requests)
    digests.insert(cache_key(request, "ptxas 13.0.88").digest());
  digests.insert(cache_key(base, "ptxas 13.0.89").digest());
  CHECK(digests.size() == requests.size() + 1);
}

TEST_CASE("a failing assembler leaves no entry, and a bundle of another kind is a miss") {
  const TemporaryFolder folder;
  CountingAssembler assembler;
  Cache cache(folder.path());
  const CachingAssembler caching(assembler, cache, {}, {});
  const std::vector<std::string> units = {"unit"};
  AssembleRequest request;
  request.units = units;
  assembler.fails = true;
  CHECK_THROWS_AS(caching.assemble(request), RuntimeError);
  CHECK(cache.list().empty());

  assembler.fails = false;
  const CacheKey key = cache_key(request, assembler.identity());
  Bundle whole = to_bundle(assembler.assemble(request), request);
  for (const char* manifest :
       {"", "{}", "[]", "not JSON", "{\"schema\": 1, \"artefact\": \"bundle\"}",
        "{\"schema\": 1, \"artefact\": \"assembled\", \"assembler\": \"x\", \"log\": 3}"}) {
    CAPTURE(manifest);
    Bundle other = whole;
    other.manifest = manifest;
    cache.store(key, other);
    const int before = assembler.calls;
    CHECK(caching.assemble(request).cubin == whole.sections[0].bytes);
    CHECK(assembler.calls == before + 1);
  }
  whole.sections.clear();
  CHECK_FALSE(from_bundle(whole));
}

TEST_CASE("threads may assemble at once, and a cache that cannot be written is remarked once") {
  const CountingAssembler assembler;
  const TemporaryFolder folder;
  Cache good(folder.path()), bad("/dev/null/cache");
  for (Cache* cache : {&good, &bad}) {
    std::atomic<int> remarks = 0;
    const CachingAssembler caching(assembler, *cache, {}, [&](const std::string&) { ++remarks; });
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread)
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          const std::vector<std::string> units = {"unit " + std::to_string(i % 5)};
          AssembleRequest request;
          request.units = units;
          const Assembled assembled = caching.assemble(request);
          wrong += std::string(assembled.cubin.begin(), assembled.cubin.end()) != units[0];
        }
      });
    for (std::thread& thread : threads)
      thread.join();
    CHECK(wrong == 0);
    CHECK(remarks == (cache == &bad ? 1 : 0));
  }
  CHECK(good.list().size() == 5);
}
