// Symbolic factorization and levels as on the GPU: the host side with a driver without a GPU, the
// kernels as host code, against the methods of the compiler. And the kernels' text through NVRTC.
#include "compiler/inspect/lu_levels.h"
#include "compiler/inspect/lu_symbolic.h"
#include "ir/error.h"
#include "runtime/driver/nvrtc.h"
#include "runtime/kernels/compile.h"
#include "runtime/lu/gpu_levels.h"
#include "runtime/lu/gpu_symbolic.h"
#include "tests/support/lu_analysis_on_host.h"
#include "tests/support/lu_patterns.h"
#include "tests/support/temporary_folder.h"

#include <catch2/catch.hpp>

#include <memory>
#include <optional>
#include <string>

namespace sparsertc {
namespace {

using Catch::Contains;
using test::Random;

/// A device that computes on the host, with the kernels loaded.
struct Device {
  explicit Device(int32_t threads = 64) {
    test::run_lu_analysis_on_host(fake, threads);
    context.emplace(std::make_shared<const cuda::Driver>(fake.table()));
    kernels.emplace(*context, test::lu_analysis_image());
  }
  cuda::FakeCudaDriver fake;
  std::optional<cuda::Context> context;
  std::optional<lu::GpuAnalysisKernels> kernels;
};

LuPattern to_pattern(lu::HostRows rows) {
  LuPattern pattern;
  pattern.rows.rows = pattern.rows.columns = static_cast<uint32_t>(rows.diagonal.size());
  pattern.rows.row_offset = std::move(rows.row_offset);
  pattern.rows.column_index = std::move(rows.columns);
  pattern.diagonal = std::move(rows.diagonal);
  return pattern;
}

LuPattern symbolic(const Device& device, const Pattern& a, const lu::GpuSymbolicOptions& options,
                   lu::GpuSymbolicReport* report = nullptr) {
  lu::GpuSymbolic result =
      lu::gpu_symbolic_lu(*device.kernels, a.row_offset, a.column_index, options);
  if (report != nullptr)
    *report = result.report;
  CHECK(result.report.on_device == (result.device != nullptr));
  return to_pattern(result.take_host_rows(*device.context));
}

lu::HostRowsView view_of(const LuPattern& pattern) {
  return {pattern.rows.row_offset, pattern.diagonal, pattern.rows.column_index};
}

/// Both rules, from host memory and from device memory.
void check_levels(const Device& device, const Pattern& a, const LuPattern& expected) {
  const LuColumns columns = by_columns(expected);
  const lu::GpuSymbolic on_device =
      lu::gpu_symbolic_lu(*device.kernels, a.row_offset, a.column_index);
  REQUIRE(on_device.device != nullptr);
  for (const bool right_looking : {false, true}) {
    INFO((right_looking ? "right-looking" : "gather"));
    lu::GpuLevelsOptions options;
    options.right_looking = right_looking;
    const LuLevels levels = factor_levels(
        expected, columns, right_looking ? LevelRule::right_looking : LevelRule::gather);
    CHECK(lu::gpu_levels(*device.kernels, view_of(expected), options) == levels);
    CHECK(lu::gpu_levels(*device.kernels, *on_device.device, options) == levels);
  }
}

/// On the device, through the host, searched twice.
void check_symbolic(const Device& device, const Pattern& a, const LuPattern& expected) {
  CHECK(symbolic(device, a, {}) == expected);
  lu::GpuSymbolicOptions options;
  options.to_host = true;
  CHECK(symbolic(device, a, options) == expected);
  options.keep_entries = false;
  lu::GpuSymbolicReport report;
  CHECK(symbolic(device, a, options, &report) == expected);
  CHECK(report.groups_kept == 0);
}

} // namespace

TEST_CASE("GPU analysis: hostile shapes and random ones give what the CPU gives") {
  const Device device;
  for (const test::NamedPattern& shape : test::hostile_squares(130)) {
    INFO(shape.name);
    const LuPattern expected = symbolic_lu(shape.pattern);
    check_symbolic(device, shape.pattern, expected);
    check_levels(device, shape.pattern, expected);
  }
  Random random(test::test_seed(20261201));
  for (int round = 0; round < 8; ++round) {
    const uint32_t size = 1 + random.below(150);
    const double per_row = 0.5 + 3 * random.unit();
    const Pattern a = test::random_square(random, size, per_row, random.unit());
    INFO("round " << round << ", n " << size << ", " << per_row << " entries a row");
    const LuPattern expected = symbolic_lu(a);
    check_symbolic(device, a, expected);
    check_levels(device, a, expected);
  }
}

TEST_CASE("GPU analysis: wide frontiers and far entries, with one warp and with four") {
  Random random(test::test_seed(20261201));
  const Pattern grid = test::random_grid(random, 30, 12, 0.3);
  // More than 32 words of 32 words of bits; entries far from one another.
  const Pattern sparse = test::random_square(random, 34'000, 0.4);
  for (const int32_t threads : {32, 128}) {
    const Device device(threads);
    CHECK(symbolic(device, grid, {}) == symbolic_lu(grid));
    check_levels(device, grid, symbolic_lu(grid));
    CHECK(symbolic(device, sparse, {}) == symbolic_lu(sparse));
  }
}

TEST_CASE("GPU analysis: little memory makes chunks and parts, and the same result") {
  const Device device;
  Random random(test::test_seed(20261201));
  const Pattern a = test::random_grid(random, 26, 26, 0.25);
  const LuPattern expected = symbolic_lu(a);

  lu::GpuSymbolicOptions options;
  options.memory_limit = 95'000;
  lu::GpuSymbolicReport report;
  CHECK(symbolic(device, a, options, &report) == expected);
  CHECK(report.chunks >= 10);
  CHECK(!report.on_device);
  CHECK(report.groups_kept < report.groups);
  CHECK(report.peak_bytes <= options.memory_limit);
  CHECK(report.split_row > 0);
  CHECK(report.entries == expected.rows.nnz());
  options.keep_entries = false;
  CHECK(symbolic(device, a, options, &report) == expected);
  CHECK(report.peak_bytes <= options.memory_limit);
  CHECK(report.early_rows_in_flight > 0);
  CHECK(report.late_rows_in_flight > 0);

  const LuColumns columns = by_columns(expected);
  for (const bool right_looking : {false, true}) {
    lu::GpuLevelsOptions levels;
    levels.right_looking = right_looking;
    levels.memory_limit = 56'000;
    lu::GpuLevelsReport seen;
    CHECK(lu::gpu_levels(*device.kernels, view_of(expected), levels, &seen) ==
          factor_levels(expected, columns,
                        right_looking ? LevelRule::right_looking : LevelRule::gather));
    CHECK(seen.parts >= 5);
    CHECK(seen.peak_bytes <= levels.memory_limit);
  }
}

TEST_CASE("GPU analysis: too little memory is said with the amount, and what is too large") {
  const Device device;
  Random random(test::test_seed(20261201));
  const Pattern a = test::random_grid(random, 20, 20, 0.25);
  lu::GpuSymbolicOptions options;
  options.memory_limit = 20'000;
  CHECK_THROWS_WITH(symbolic(device, a, options),
                    Contains("out of memory: one group of rows needs") && Contains("20000") &&
                        Contains("--memory-limit"));
  // A dense last row of L+U that no chunk holds.
  const Pattern dense = test::random_square(random, 200, 8);
  for (options.memory_limit = 14'000;; options.memory_limit += 500)
    try {
      symbolic(device, dense, options);
      break;
    } catch (const RuntimeError& error) {
      CHECK_THAT(error.what(), Contains("out of memory: one"));
      REQUIRE(options.memory_limit < 100'000);
    }
  lu::GpuLevelsOptions levels;
  levels.memory_limit = 5'000;
  const LuPattern filled = symbolic_lu(a);
  CHECK_THROWS_WITH(lu::gpu_levels(*device.kernels, view_of(filled), levels),
                    Contains("out of memory: one row needs"));
  std::vector<uint64_t> offsets(lu::kLargestGpuAnalysis + 2, 0);
  CHECK_THROWS_AS(lu::gpu_symbolic_lu(*device.kernels, offsets, {}), UserError);
}

TEST_CASE(
    "GPU analysis: whichever call of the driver fails, all is given back and the next works") {
  Random random(test::test_seed(20261201));
  const Pattern a = test::random_square(random, 66, 1);
  const LuPattern expected = symbolic_lu(a);
  const auto work = [&](const Device& device) {
    symbolic(device, a, {});
    lu::GpuSymbolicOptions options;
    options.to_host = true;
    options.keep_entries = false;
    symbolic(device, a, options);
    lu::GpuLevelsOptions levels;
    levels.right_looking = true;
    lu::gpu_levels(*device.kernels, view_of(expected), levels);
  };
  uint64_t calls = 0;
  for (uint64_t number = 1;; ++number) {
    Device device(32);
    const auto alive = device.fake.alive();
    device.fake.fail_call(number, cuda::Result::CUDA_ERROR_ILLEGAL_ADDRESS);
    std::string message;
    try {
      work(device);
    } catch (const RuntimeError& error) {
      message = error.what();
    }
    const std::string failed = device.fake.failed_call();
    if (failed.empty())
      break;
    ++calls;
    INFO("call " << number << ", " << failed << ": " << message);
    if (failed == "cuMemFree" || failed == "cuStreamDestroy") {
      // What could not be given back is all that is left, and nobody is bothered with it.
      CHECK(message.empty());
      CHECK(device.fake.alive() != alive);
    } else {
      CHECK_THAT(message, Contains(failed + " failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
      CHECK(device.fake.alive() == alive);
    }
    device.fake.fail_call(0);
    if (number % 8 == 0)
      CHECK(symbolic(device, a, {}) == expected);
  }
  CHECK(calls > 100);
}

TEST_CASE("GPU analysis: NVRTC takes the kernels, and the cache keeps them") {
  std::shared_ptr<const cuda::Nvrtc> nvrtc;
  try {
    nvrtc = cuda::Nvrtc::open();
  } catch (const RuntimeError& error) {
    WARN("SKIPPED: " << error.what());
    return;
  }
  const testing::TemporaryFolder folder;
  Cache cache(folder.path());
  const std::vector<uint8_t> cubin = kernels::compile_lu_analysis(*nvrtc, 80, &cache);
  CHECK(cache.list().size() == 1);
  CHECK(kernels::compile_lu_analysis(*nvrtc, 80, &cache) == cubin);
  CHECK(cache.list().size() == 1);
  CHECK(kernels::compile_lu_analysis(*nvrtc, 90, &cache) != cubin);
  CHECK(cache.list().size() == 2);
  CHECK_THROWS_AS(kernels::compile_lu_analysis(*nvrtc, 1, &cache), RuntimeError);
}

} // namespace sparsertc
