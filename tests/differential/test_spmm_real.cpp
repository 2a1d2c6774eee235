// Real pruned layers by all roads; needs the folder of SPARSERTC_DATA.
#include "tests/differential/spmm_roads.h"

#include "compiler/input/read.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

using namespace sparsertc;
using namespace sparsertc::test;

namespace {

/// Files with a suffix below a folder, by size and name.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder,
                                               const std::string& part) {
  std::vector<std::filesystem::path> found;
  if (std::filesystem::exists(folder))
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file() &&
          entry.path().filename().string().find(part) != std::string::npos)
        found.push_back(entry.path());
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    const auto size_a = std::filesystem::file_size(a), size_b = std::filesystem::file_size(b);
    return size_a != size_b ? size_a < size_b : a < b;
  });
  return found;
}

} // namespace

TEST_CASE("real patterns by all roads") {
  const char* data = std::getenv("SPARSERTC_DATA");
  if (!data || !std::filesystem::exists(std::filesystem::path(data) / "dlmc")) {
    WARN("SKIPPED: SPARSERTC_DATA does not name a folder with dlmc/");
    return;
  }
  Random random(test_seed(20240229) + 6);
  const std::vector<std::filesystem::path> files =
      files_below(std::filesystem::path(data) / "dlmc", ".smtx");
  REQUIRE(!files.empty());
  RoadCounts counts;
  constexpr DataType kTypes[] = {DataType::f32, DataType::f16, DataType::bf16, DataType::f64};
  // The smaller half, evenly: the larger ones take too long to interpret.
  constexpr size_t kFiles = 6;
  for (size_t i = 0; i < kFiles; ++i) {
    const std::filesystem::path& file = files[i * (files.size() / 3) / kFiles];
    ReadOptions options;
    options.random_values_seed = 1;
    Matrix weights = read_matrix(file.string(), options);
    weights.name = file.filename().string();
    SpmmProblem problem;
    problem.type = kTypes[i % 4];
    problem.columns = i % 3 == 0 ? 40 : 32;
    problem.epilogue = {i % 2 == 0, i % 3 == 1, i % 2 == 0 ? Activation::relu : Activation::none};
    const SpmmCase test =
        make_case(random, std::move(weights), problem, *problem.columns, ValueShape::unit, 0);
    // Automatic choice, and the strategy it does not choose for small layers.
    check_roads(test, "", "sm_90", {}, counts);
    check_roads(test, "strategy=streamed,rows=2,warps=1", "sm_90", {}, counts);
  }
  fmt::print("{} products, {:.1f} million PTX instructions\n", counts.run,
             static_cast<double>(counts.instructions) * 1e-6);
}
