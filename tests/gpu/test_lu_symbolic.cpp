// Symbolic factorization and levels on the GPU against the CPU's: hostile shapes, little memory,
// real matrices.
#include "compiler/input/read.h"
#include "compiler/inspect/lu_analysis.h"
#include "compiler/inspect/lu_levels.h"
#include "compiler/inspect/lu_symbolic.h"
#include "ir/error.h"
#include "runtime/kernels/compile.h"
#include "runtime/lu/gpu_levels.h"
#include "runtime/lu/gpu_symbolic.h"
#include "tests/support/lu_grids.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc {
namespace {

using test::Random;

struct Device {
  cuda::Context context;
  lu::GpuAnalysisKernels kernels;

  Device() : context(cuda::Driver::open()), kernels(context, image(context)) {}
  static std::vector<uint8_t> image(const cuda::Context& context) {
    return kernels::compile_lu_analysis(*cuda::Nvrtc::open(),
                                        context.properties().compute_capability);
  }
};

/// Null, said aloud, where there is no GPU or no NVRTC.
std::unique_ptr<Device> find_device() {
  try {
    return std::make_unique<Device>();
  } catch (const NoGpuError& error) {
    WARN("SKIPPED: " << error.what());
  } catch (const RuntimeError& error) {
    WARN("SKIPPED: " << error.what());
  }
  return nullptr;
}

LuPattern to_pattern(lu::HostRows rows) {
  LuPattern pattern;
  pattern.rows.rows = pattern.rows.columns = static_cast<uint32_t>(rows.diagonal.size());
  pattern.rows.row_offset = std::move(rows.row_offset);
  pattern.rows.column_index = std::move(rows.columns);
  pattern.diagonal = std::move(rows.diagonal);
  return pattern;
}

/// Whether each column stands one level after the last that it waits for.
bool is_exact(const LuLevels& levels, const LuPattern& rows, const LuColumns& columns,
              LevelRule rule) {
  const uint32_t size = rows.rows.rows;
  std::vector<uint64_t> level(size), least(size, 0);
  for (uint64_t l = 0; l < levels.count(); ++l)
    for (uint64_t p = levels.offset[l]; p < levels.offset[l + 1]; ++p)
      level[levels.member[p]] = l;
  for (uint32_t i = 0; i < size; ++i)
    for (const uint32_t j : rows.rows.row(i)) {
      const uint32_t k = std::min(i, j), waits = std::max(i, j);
      const bool has_lower = columns.diagonal[k] + 1 < columns.columns.row_offset[k + 1];
      if (k != waits && has_lower && (i < j || rule == LevelRule::right_looking))
        least[waits] = std::max(least[waits], level[k] + 1);
    }
  return level == least;
}

/// The pattern by both places of the result and without what the first pass keeps; the levels by
/// both rules.
void check(const Device& device, const Pattern& a, uint64_t memory_limit = 0) {
  TaskPool pool(2);
  const LuPattern expected = symbolic_lu(a, &pool);
  const LuColumns columns = by_columns(expected);
  lu::GpuSymbolicOptions options;
  options.memory_limit = memory_limit;
  for (const bool keep : {true, false}) {
    options.keep_entries = keep;
    options.to_host = !keep;
    lu::GpuSymbolic result =
        lu::gpu_symbolic_lu(device.kernels, a.row_offset, a.column_index, options);
    CHECK(result.report.entries == expected.rows.nnz());
    CHECK((memory_limit == 0 || result.report.peak_bytes <= memory_limit));
    for (const LevelRule rule : {LevelRule::gather, LevelRule::right_looking}) {
      lu::GpuLevelsOptions how;
      how.right_looking = rule == LevelRule::right_looking;
      how.memory_limit = memory_limit;
      LuLevels levels;
      if (result.device)
        levels = lu::gpu_levels(device.kernels, *result.device, how);
      else
        levels = lu::gpu_levels(
            device.kernels, {result.host->row_offset, result.host->diagonal, result.host->columns},
            how);
      CHECK(levels == factor_levels(expected, columns, rule));
      CHECK(is_exact(levels, expected, columns, rule));
    }
    CHECK(to_pattern(result.take_host_rows(device.context)) == expected);
  }
}

} // namespace

TEST_CASE("lu analysis: small patterns", "[sanitize]") {
  const std::unique_ptr<Device> device = find_device();
  if (!device)
    return;
  for (const test::NamedPattern& shape : test::hostile_squares(200)) {
    INFO(shape.name);
    check(*device, shape.pattern);
  }
  Random random(test::test_seed(20261201));
  check(*device, test::random_square(random, 300, 2));
  check(*device, test::random_grid(random, 20, 15, 0.25));
}

TEST_CASE("lu analysis: random patterns") {
  const std::unique_ptr<Device> device = find_device();
  if (!device)
    return;
  Random random(test::test_seed(20261201));
  for (int round = 0; round < 20; ++round) {
    const uint32_t size = 1 + random.below(1500);
    const double per_row = 0.5 + 3 * random.unit();
    INFO("round " << round << ", n " << size << ", " << per_row << " entries a row");
    check(*device, test::random_square(random, size, per_row, random.unit()));
  }
}

TEST_CASE("lu analysis: a large pattern with little fill") {
  const std::unique_ptr<Device> device = find_device();
  if (!device)
    return;
  Random random(test::test_seed(20261202));
  check(*device, test::random_square(random, 200'000, 0.4));
}

TEST_CASE("lu analysis: a long chain") {
  const std::unique_ptr<Device> device = find_device();
  if (!device)
    return;
  check(*device, test::hostile_squares(30'000).back().pattern);
}

TEST_CASE("lu analysis: dissected grids") {
  const std::unique_ptr<Device> device = find_device();
  if (!device)
    return;
  check(*device, test::dissected_grid(7, 150, 140, 1, 0.25));
  check(*device, test::dissected_grid(8, 24, 25, 26, 0.25));
}

TEST_CASE("lu analysis: little memory makes chunks, and the same result") {
  const std::unique_ptr<Device> device = find_device();
  if (!device)
    return;
  const Pattern a = test::dissected_grid(9, 150, 150, 1, 0.25);
  lu::GpuSymbolicOptions options;
  options.memory_limit = 2'500'000;
  const lu::GpuSymbolic result =
      lu::gpu_symbolic_lu(device->kernels, a.row_offset, a.column_index, options);
  CHECK(result.report.chunks >= 10);
  CHECK(result.report.groups_kept < result.report.groups);
  CHECK(result.host.has_value());
  check(*device, a, options.memory_limit);
  options.memory_limit = 100'000;
  CHECK_THROWS_AS(lu::gpu_symbolic_lu(device->kernels, a.row_offset, a.column_index, options),
                  RuntimeError);
  check(*device, a);
}

TEST_CASE("lu analysis: real matrices") {
  const std::unique_ptr<Device> device = find_device();
  const char* const folder = std::getenv("SPARSERTC_DATA");
  if (folder == nullptr) {
    WARN("SKIPPED: SPARSERTC_DATA names no folder");
    return;
  }
  if (!device)
    return;
  size_t count = 0, singular = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::string(folder) + "/lu")) {
    if (file.path().extension() != ".gz")
      continue;
    Matrix a = read_matrix(file.path());
    INFO(a.name);
    ++count;
    // In the file's own order some fill up.
    if (a.pattern.rows <= 8000)
      check(*device, a.pattern);
    if (!a.has_values())
      a.values.assign(a.pattern.nnz(), 1);
    try {
      const LuAnalysis analysis = analyse_lu(a);
      check(*device, permute(a.pattern, analysis.rows, analysis.columns));
    } catch (const UserError& error) {
      CHECK_THAT(error.what(), Catch::Contains("singular"));
      ++singular;
    }
  }
  CHECK(count > 60);
  CHECK(singular < 5);
}

} // namespace sparsertc
