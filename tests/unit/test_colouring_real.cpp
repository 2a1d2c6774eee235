// Numbers of colours of real patterns under SPARSERTC_DATA, beside those of others.
#include "compiler/input/read.h"
#include "compiler/pattern/colouring.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace sparsertc {
namespace {

namespace fs = std::filesystem;

constexpr ColouringOrder kOrders[] = {ColouringOrder::natural, ColouringOrder::largest_first,
                                      ColouringOrder::smallest_last,
                                      ColouringOrder::incidence_degree};

/// The folder, or nothing after saying so.
std::string data_folder() {
  const char* const folder = std::getenv("SPARSERTC_DATA");
  if (folder != nullptr && fs::is_directory(fs::path(folder) / "patterns"))
    return folder;
  WARN("SKIPPED: SPARSERTC_DATA names no folder with patterns in it");
  return {};
}

/// What ColPack 1.0.10 (Gebremedhin, Nguyen, Patwary and Pothen, "ColPack: Software for graph
/// coloring and related problems in scientific computing", 2013) gave for these patterns, in the
/// order of kOrders; and for rows and columns together the least of its four methods and four
/// orders, not counting the colour of those not needed.
struct Counted {
  const char* file;
  uint64_t column[4];
  uint64_t row[4];
  uint64_t star;
};
const Counted kCounted[] = {
    {"patterns/bcsstk01", {15, 17, 16, 14}, {15, 17, 16, 14}, 15},
    {"lu/bp_1200", {311, 311, 311, 311}, {22, 21, 21, 21}, 22},
    {"lu/cage5", {13, 10, 11, 12}, {13, 10, 11, 12}, 12},
    {"patterns/column-compress", {2, 2, 2, 2}, {10, 10, 10, 10}, 2},
    {"patterns/hess_pat", {12, 12, 12, 12}, {12, 12, 12, 12}, 13},
    {"patterns/jac_pat", {11, 11, 11, 11}, {6, 6, 6, 6}, 6},
    {"lu/klu_arrow", {100, 100, 100, 100}, {100, 100, 100, 100}, 3},
    {"lu/mbeacxc", {484, 484, 484, 484}, {275, 259, 257, 263}, 276},
    {"lu/memplus", {574, 574, 574, 574}, {574, 574, 574, 574}, 205},
    {"patterns/mymatrix", {4, 4, 4, 4}, {2, 2, 2, 2}, 2},
    {"patterns/pfjac_case118", {15, 15, 15, 15}, {15, 15, 15, 15}, 15},
    {"patterns/pfjac_case14", {11, 10, 10, 10}, {11, 10, 10, 10}, 11},
    {"patterns/pfjac_case2869pegase", {34, 31, 31, 31}, {34, 31, 31, 31}, 34},
    {"patterns/pfjac_case9241pegase", {85, 84, 84, 84}, {85, 84, 84, 84}, 85},
    {"patterns/pfjac_case_ACTIVSg2000", {21, 21, 21, 21}, {21, 21, 21, 21}, 21},
    {"patterns/row-compress", {10, 10, 10, 10}, {2, 2, 2, 2}, 2},
    {"patterns/syn_arrow_100", {100, 100, 100, 100}, {100, 100, 100, 100}, 3},
    {"patterns/syn_band5_1000", {5, 5, 5, 5}, {5, 5, 5, 5}, 5},
    {"patterns/syn_brusselator2d_16", {11, 11, 12, 11}, {11, 11, 12, 11}, 11},
    {"patterns/syn_brusselator2d_32", {12, 12, 12, 11}, {12, 12, 12, 11}, 12},
    {"patterns/syn_lap2d5_100x100", {7, 7, 5, 6}, {7, 7, 5, 6}, 7},
    {"patterns/syn_lap2d5_32x32", {7, 7, 5, 6}, {7, 7, 5, 6}, 7},
    {"patterns/syn_lap3d7_16", {12, 12, 12, 12}, {12, 12, 12, 12}, 12},
    {"patterns/syn_toms618_neutron_1200", {6, 7, 6, 5}, {8, 8, 6, 6}, 7},
    {"patterns/syn_toms618_neutron_300", {6, 7, 6, 5}, {8, 8, 6, 6}, 7},
    {"patterns/syn_toms618_neutron_600", {6, 7, 6, 5}, {8, 8, 6, 6}, 7},
    {"patterns/syn_tridiag_1000", {3, 3, 3, 3}, {3, 3, 3, 3}, 3},
    {"lu/west0479", {14, 13, 12, 14}, {35, 35, 35, 35}, 19},
};

uint64_t difference(uint64_t a, uint64_t b) {
  return a > b ? a - b : b - a;
}

} // namespace

TEST_CASE("Real patterns have as many colours as ColPack finds") {
  const std::string folder = data_folder();
  if (folder.empty())
    return;
  for (const Counted& counted : kCounted) {
    const Matrix matrix = read_matrix(folder + "/" + counted.file + ".mtx.gz");
    uint64_t fewest = std::numeric_limits<uint64_t>::max();
    for (size_t k = 0; k < 4; ++k) {
      CAPTURE(counted.file, to_string(kOrders[k]));
      uint64_t counts[3];
      for (const ColouringSide side :
           {ColouringSide::column, ColouringSide::row, ColouringSide::star}) {
        const Colouring colouring = colour_pattern(matrix.pattern, side, kOrders[k]);
        CHECK(find_conflict(matrix.pattern, colouring) == std::nullopt);
        counts[static_cast<size_t>(side)] = colouring.count();
      }
      // Ties are broken differently, so only natural order is determined.
      const uint64_t allowed = k == 0 ? 0 : 2;
      CHECK(difference(counts[0], counted.column[k]) <= allowed);
      CHECK(difference(counts[1], counted.row[k]) <= allowed);
      fewest = std::min(fewest, counts[2]);
    }
    CHECK(fewest <= counted.star);
  }
}

// The table was published with SparseMatrixColorings.jl: colours that ColPack finds by smallest
// last (SL), incidence degree (ID), largest first (LF) and natural order (N) for columns (2) and
// rows (1). It is compared with those of its matrices that lie beside it.
TEST_CASE("Matrices of the published table have its numbers of colours") {
  const std::string folder = data_folder();
  if (folder.empty())
    return;
  std::ifstream table(folder + "/patterns/colpack_published_colours.csv");
  std::string line, cell;
  std::getline(table, line);
  unsigned rows = 0;
  while (std::getline(table, line)) {
    std::vector<std::string> cells;
    std::istringstream stream(line);
    while (std::getline(stream, cell, ','))
      cells.push_back(cell);
    REQUIRE(cells.size() == 19);
    ++rows;
    const auto number = [&](size_t k) { return std::stoull(cells[k]); };
    const std::string file = folder + "/patterns/" + cells[3] + ".mtx.gz";
    if (!fs::exists(file)) {
      WARN("SKIPPED: " << file << " is not there");
      continue;
    }
    CAPTURE(cells[3]);
    const Pattern pattern = read_matrix(file).pattern;
    CHECK(pattern.rows == number(4));
    CHECK(pattern.columns == number(5));
    CHECK(pattern.nnz() == number(6));
    CHECK(colouring_lower_bound(pattern, ColouringSide::column) == number(7));
    CHECK(colouring_lower_bound(pattern, ColouringSide::row) == number(8));
    constexpr size_t kColumnCells[] = {13, 11, 9, 10}, kRowCells[] = {18, 16, 14, 15};
    for (size_t k = 0; k < 4; ++k) {
      const uint64_t allowed = k == 0 ? 0 : 2;
      CAPTURE(to_string(kOrders[k]));
      CHECK(difference(colour_pattern(pattern, ColouringSide::column, kOrders[k]).count(),
                       number(kColumnCells[k])) <= allowed);
      CHECK(difference(colour_pattern(pattern, ColouringSide::row, kOrders[k]).count(),
                       number(kRowCells[k])) <= allowed);
    }
  }
  CHECK(rows == 10);
}

} // namespace sparsertc
