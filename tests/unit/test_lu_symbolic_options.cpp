// --symbolic, --memory-limit and --verify: who finds patterns and levels, by a GPU whose kernels
// run on the host, or by one that is not there.
#include "ir/error.h"
#include "tests/support/lu_analysis_on_host.h"
#include "tests/support/lu_patterns.h"
#include "tools/lu_gpu_analysis.h"

#include <catch2/catch.hpp>

#include <memory>
#include <string>

namespace sparsertc {
namespace {

using Catch::Contains;
using test::Random;

/// What a finder may open, and how often it did.
struct Machine {
  Machine() { test::run_lu_analysis_on_host(fake); }

  LuPatternFinder::OpenGpu with_gpu() {
    return [this] {
      ++opened;
      auto gpu = std::make_unique<LuAnalysisGpu>();
      gpu->context =
          std::make_unique<cuda::Context>(std::make_shared<const cuda::Driver>(fake.table()));
      gpu->kernels.emplace(*gpu->context, test::lu_analysis_image());
      return gpu;
    };
  }
  template <class Error>
  LuPatternFinder::OpenGpu without_gpu(const Error& error) {
    return [this, error]() -> std::unique_ptr<LuAnalysisGpu> {
      ++opened;
      throw error;
    };
  }

  cuda::FakeCudaDriver fake;
  unsigned opened = 0;
};

LuSymbolicOptions options_of(const std::string& where, uint64_t memory_limit = 0,
                             bool verify = false) {
  LuSymbolicOptions options;
  options.where = where;
  options.memory_limit = memory_limit;
  options.verify = verify;
  return options;
}

/// Blocks whose first vertex has all others as neighbours, so that each fills up: much to find, and
/// short ways to it.
Pattern blocks_that_fill(uint32_t blocks, uint32_t size) {
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  for (uint32_t block = 0; block < blocks; ++block)
    for (uint32_t i = 0; i < size; ++i) {
      const uint32_t first = block * size;
      entries.push_back({first + i, first + i});
      entries.push_back({first, first + i});
      entries.push_back({first + i, first});
    }
  return test::pattern_of(blocks * size, entries);
}

/// A row reaches all the way back.
Pattern chain(uint32_t size) {
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  for (uint32_t i = 0; i < size; ++i) {
    entries.push_back({i, i});
    entries.push_back({i, i == 0 ? i : i - 1});
    entries.push_back({i == 0 ? i : i - 1, i});
  }
  return test::pattern_of(size, entries);
}

} // namespace

TEST_CASE("Options: --symbolic=auto leaves small patterns and long chains to the CPU") {
  Machine machine;
  Random random(1);
  const LuSymbolicOptions options = options_of("auto");
  LuPatternFinder finder(options, machine.with_gpu(), nullptr);
  for (const Pattern& pattern : {test::random_grid(random, 30, 30, 0.2), chain(60'000)}) {
    const LuPattern found = finder.pattern(pattern);
    CHECK(found == symbolic_lu(pattern));
    finder.levels(found, by_columns(found), LevelRule::gather);
  }
  CHECK(machine.opened == 0);
  REQUIRE(finder.steps().size() == 4);
  for (const LuSymbolicStep& step : finder.steps())
    CHECK_FALSE(step.on_gpu);
}

TEST_CASE("Options: --symbolic=auto asks for a GPU where that is worth while, and once if there is "
          "none") {
  Machine machine;
  const Pattern pattern = blocks_that_fill(250, 200);
  const LuSymbolicOptions options = options_of("auto");
  const auto check = [&](LuPatternFinder::OpenGpu open) {
    machine.opened = 0;
    LuPatternFinder finder(options, std::move(open), nullptr);
    const LuPattern found = finder.pattern(pattern);
    CHECK(machine.opened == 1);
    CHECK(found.rows.nnz() == 250 * 200 * 200);
    const LuColumns columns = by_columns(found);
    CHECK(finder.levels(found, columns, LevelRule::gather) ==
          factor_levels(found, columns, LevelRule::gather));
    CHECK(machine.opened == 1);
    for (const LuSymbolicStep& step : finder.steps())
      CHECK_FALSE(step.on_gpu);
  };
  check(machine.without_gpu(NoGpuError("nothing to open")));
  check(machine.without_gpu(RuntimeError("opening", "no NVRTC", ""))); // no NVRTC, say
}

TEST_CASE("Options: --symbolic=cpu opens no GPU, --symbolic=gpu needs one") {
  Machine machine;
  const Pattern large = blocks_that_fill(250, 200);
  const LuSymbolicOptions cpu = options_of("cpu");
  LuPatternFinder(cpu, machine.with_gpu(), nullptr).pattern(large);
  CHECK(machine.opened == 0);
  const LuSymbolicOptions gpu = options_of("gpu");
  LuPatternFinder finder(gpu, machine.without_gpu(NoGpuError("nothing to open")), nullptr);
  CHECK_THROWS_AS(finder.pattern(chain(3)), NoGpuError);
  const LuSymbolicOptions wrong = options_of("tpu");
  CHECK_THROWS_WITH(LuPatternFinder(wrong, machine.with_gpu(), nullptr),
                    Contains("--symbolic") && Contains("tpu"));
}

TEST_CASE("Options: --symbolic=gpu with --memory-limit: many chunks, the same pattern; too little "
          "is said") {
  Machine machine;
  Random random(2);
  const Pattern grid = test::random_grid(random, 26, 26, 0.25);
  const LuPattern expected = symbolic_lu(grid);
  const LuColumns columns = by_columns(expected);

  const LuSymbolicOptions free = options_of("gpu");
  LuPatternFinder at_once(free, machine.with_gpu(), nullptr);
  CHECK(at_once.pattern(grid) == expected);
  CHECK(at_once.steps()[0].on_gpu);
  CHECK(at_once.steps()[0].symbolic->chunks == 1);

  const LuSymbolicOptions little = options_of("gpu", 95'000, true);
  LuPatternFinder finder(little, machine.with_gpu(), nullptr);
  CHECK(finder.pattern(grid) == expected);
  for (const LevelRule rule : {LevelRule::gather, LevelRule::right_looking})
    CHECK(finder.levels(expected, columns, rule) == factor_levels(expected, columns, rule));
  REQUIRE(finder.steps().size() == 3);
  CHECK(finder.steps()[0].symbolic->chunks >= 10);
  CHECK(finder.steps()[0].symbolic->peak_bytes <= little.memory_limit);
  CHECK(finder.steps()[1].levels->parts > 1);
  CHECK(finder.steps()[2].name == "right-looking levels");
  CHECK(machine.opened == 2); // once for each finder
  const std::string text = to_text(finder.steps());
  CHECK_THAT(text, Contains("on the GPU") && Contains("chunks") && Contains("parts"));
  CHECK(to_json(finder.steps())[0]["device"] == "gpu");

  const LuSymbolicOptions nothing = options_of("gpu", 5'000);
  LuPatternFinder starved(nothing, machine.with_gpu(), nullptr);
  CHECK_THROWS_WITH(starved.pattern(grid), Contains("out of memory") && Contains("--memory-limit"));
}

TEST_CASE("Options: --verify says where CPU and GPU differ") {
  Machine machine;
  Random random(3);
  const LuPattern pattern = symbolic_lu(test::random_grid(random, 8, 8, 0.2));
  // The CPU is shown the columns of another pattern, of which the GPU knows nothing.
  const LuColumns others = by_columns(symbolic_lu(chain(64)));
  const LuSymbolicOptions trusting = options_of("gpu");
  LuPatternFinder(trusting, machine.with_gpu(), nullptr)
      .levels(pattern, others, LevelRule::right_looking);
  const LuSymbolicOptions careful = options_of("gpu", 0, true);
  LuPatternFinder finder(careful, machine.with_gpu(), nullptr);
  CHECK_THROWS_AS(finder.levels(pattern, others, LevelRule::right_looking), InternalError);
  CHECK_THROWS_WITH(finder.levels(pattern, others, LevelRule::right_looking),
                    Contains("--verify") && Contains("levels"));
}

} // namespace sparsertc
