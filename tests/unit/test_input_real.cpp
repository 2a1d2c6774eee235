// Every real file under SPARSERTC_DATA is read, and the counts agree with the tables beside them.
#include "compiler/input/read.h"
#include "compiler/pattern/pattern.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include <catch2/catch.hpp>

namespace sparsertc {
namespace {

namespace fs = std::filesystem;

/// The folder, or nothing after saying so.
std::string data_folder() {
  const char* const folder = std::getenv("SPARSERTC_DATA");
  if (folder != nullptr && fs::is_directory(folder))
    return folder;
  WARN("SKIPPED: SPARSERTC_DATA names no folder");
  return {};
}

using Row = std::map<std::string, std::string>;

/// A table with a header line; cells in double quotes may hold commas.
std::vector<Row> read_table(const std::string& path) {
  std::ifstream file(path);
  const auto split = [](const std::string& text) {
    std::vector<std::string> cells(1);
    bool quoted = false;
    for (const char c : text) {
      if (c == '"')
        quoted = !quoted;
      else if (c == ',' && !quoted)
        cells.emplace_back();
      else if (c != '\r')
        cells.back() += c;
    }
    return cells;
  };
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> names = split(line);
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = split(line);
    Row row;
    for (size_t i = 0; i < std::min(cells.size(), names.size()); ++i)
      row[names[i]] = cells[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

} // namespace

TEST_CASE("Real .smtx files have the counts of dlmc.csv") {
  const std::string folder = data_folder();
  if (folder.empty())
    return;
  size_t count = 0;
  for (const Row& row : read_table(folder + "/dlmc.csv")) {
    INFO(row.at("path"));
    const Matrix matrix = read_matrix(folder + "/dlmc/" + row.at("path"));
    CHECK_FALSE(find_fault(matrix));
    const PatternStatistics s = statistics_of(matrix.pattern);
    CHECK(s.rows == std::stoull(row.at("M")));
    CHECK(s.columns == std::stoull(row.at("K")));
    CHECK(s.nnz == std::stoull(row.at("nnz")));
    CHECK(s.empty_rows == std::stoull(row.at("empty_rows")));
    CHECK(s.maximum_row_length == std::stoull(row.at("max_row_nnz")));
    CHECK(s.sparsity == Approx(std::stod(row.at("sparsity"))).margin(1e-4));
    ++count;
  }
  CHECK(count > 100);
}

TEST_CASE("Real weights and biases are read") {
  const std::string folder = data_folder();
  if (folder.empty())
    return;
  size_t weights = 0;
  for (const std::string& file : files_in(folder + "/weights")) {
    INFO(file);
    if (file.find("_bias") != std::string::npos) {
      const DenseTensor bias = read_dense(file);
      CHECK(bias.shape.size() == 1);
      CHECK(bias.values.size() == bias.shape[0]);
      continue;
    }
    const Matrix matrix = read_matrix(file);
    CHECK_FALSE(find_fault(matrix));
    const DenseTensor dense = read_dense(file);
    const auto zeros = std::count(dense.values.begin(), dense.values.end(), 0.0);
    CHECK(matrix.pattern.nnz() == dense.values.size() - static_cast<size_t>(zeros));
    const PatternStatistics s = statistics_of(matrix.pattern);
    CHECK(s.sparsity > 0.5);
    CHECK(s.sparsity < 1);
    ++weights;
  }
  CHECK(weights > 10);
}

TEST_CASE("Real .mtx files have the counts of lu.csv") {
  const std::string folder = data_folder();
  if (folder.empty())
    return;
  std::map<std::string, Row> table;
  for (const Row& row : read_table(folder + "/lu.csv"))
    table[row.at("name")] = row;
  size_t count = 0;
  for (const std::string& file : files_in(folder + "/lu")) {
    INFO(file);
    const Matrix matrix = read_matrix(file);
    CHECK_FALSE(find_fault(matrix));
    std::string name = fs::path(file).filename();
    name.resize(name.size() - std::string(".mtx.gz").size());
    REQUIRE(table.count(name) == 1);
    const Row& row = table.at(name);
    CHECK(matrix.pattern.rows == std::stoull(row.at("n")));
    CHECK(matrix.pattern.columns == std::stoull(row.at("n")));
    CHECK(matrix.pattern.nnz() == std::stoull(row.at("nnz")));
    if (matrix.imaginary.empty())
      CHECK(static_cast<size_t>(std::count(matrix.values.begin(), matrix.values.end(), 0.0)) ==
            std::stoull(row.at("explicit_zeros")));
    ++count;
  }
  CHECK(count > 60);
  for (const std::string& file : files_in(folder + "/patterns"))
    if (file.ends_with(".mtx.gz")) {
      INFO(file);
      CHECK_FALSE(find_fault(read_matrix(file)));
    }
}

} // namespace sparsertc
