#include "tools/bench_cases.h"

#include "compiler/input/random_values.h"
#include "compiler/input/read.h"
#include "ir/error.h"
#include "tools/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace sparsertc {
namespace {

/// M x K with exactly round(M K (1 - zeros)) entries, every such pattern equally likely (Knuth, The
/// Art of Computer Programming 2, algorithm 3.4.2 S).
Matrix random_matrix(uint32_t rows, uint32_t columns, double zeros, uint64_t seed,
                     const std::string& name) {
  SplitMix64 random(seed);
  uint64_t positions = uint64_t{rows} * columns;
  uint64_t wanted =
      static_cast<uint64_t>(std::llround(static_cast<double>(positions) * (1 - zeros)));
  Matrix matrix;
  matrix.name = name;
  matrix.pattern.rows = rows;
  matrix.pattern.columns = columns;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < columns; ++column, --positions)
      if (random.next() % positions < wanted) {
        matrix.pattern.column_index.push_back(column);
        --wanted;
      }
    matrix.pattern.row_offset.push_back(matrix.pattern.column_index.size());
  }
  matrix.values = random_values(matrix.pattern.nnz(), seed + 1);
  return matrix;
}

BenchCase file_case(const std::string& path, const std::string& name, const std::string& values,
                    const ProblemOptions& problem) {
  InputOptions input;
  input.path = path;
  input.values = values;
  ReadOptions read = to_read_options(input);
  read.require_values = true;
  return {name, -1, [path, read] { return read_matrix(path, read); }, to_problem(problem),
          problem.conv};
}

/// What a field of a list asks for: a number of columns, or the words of --conv.
ProblemOptions listed_problem(const std::string& field, bool convolutions, const Place& place) {
  ProblemOptions problem;
  if (convolutions) {
    problem.op = "conv2d";
    problem.conv = field;
  } else {
    problem.columns = field;
  }
  bool fixed = false;
  std::string reason;
  try {
    fixed = to_problem(problem).columns.value_or(0) > 0;
  } catch (const UsageError& error) {
    reason = error.what();
  }
  if (fixed)
    return problem;
  if (!convolutions)
    throw UserError(place, fmt::format("\"{}\" is no number of columns", field));
  throw UserError(place, fmt::format("\"{}\" is no convolution of a number of images", field),
                  reason.empty() ? "for example \"N=1,H=28,W=28,R=3,S=3,pad=1\"" : reason);
}

} // namespace

std::vector<std::string> split_at_commas(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (char c : line)
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else if (c != '\r')
      fields.back() += c;
  return fields;
}

BenchShape parse_bench_shape(const std::string& text) {
  uint32_t sizes[3] = {};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int i = 0; i < 3; ++i) {
    const auto [rest, error] = std::from_chars(at, end, sizes[i]);
    const bool ends_well = i == 2 ? rest == end : rest != end && *rest == 'x';
    if (error != std::errc() || !ends_well || sizes[i] == 0)
      throw UsageError(fmt::format("--shapes: '{}' is no MxKxN", text), "for example 4096x4096x8");
    at = rest + 1;
  }
  return {sizes[0], sizes[1], sizes[2]};
}

std::vector<BenchCase> random_cases(std::vector<BenchShape> shapes,
                                    const std::vector<double>& levels, uint64_t seed) {
  if (shapes.empty())
    shapes = {
        {512, 512, 256}, {2048, 512, 1024}, {512, 2048, 1024}, {64, 256, 3136}, {1000, 2048, 1}};
  std::vector<BenchCase> cases;
  for (const BenchShape& shape : shapes)
    for (double level : levels) {
      const std::string name = fmt::format("random {}x{}x{}", shape.m, shape.k, shape.n);
      SpmmProblem problem;
      problem.columns = shape.n;
      cases.push_back({name,
                       level,
                       [=] { return random_matrix(shape.m, shape.k, level / 100, seed, name); },
                       problem,
                       {}});
    }
  return cases;
}

std::vector<BenchCase> file_cases(const std::vector<std::string>& paths,
                                  const ProblemOptions& problem, const std::string& values) {
  if (!to_problem(problem).columns)
    throw UsageError(problem.conv.empty() ? "--columns: a benchmark needs a number"
                                          : "--conv: a benchmark needs N, the number of images");
  std::vector<BenchCase> cases;
  for (const std::string& path : paths)
    cases.push_back(file_case(path, path, values, problem));
  return cases;
}

std::vector<BenchCase> listed_cases(const std::string& list, bool convolutions,
                                    const std::string& values) {
  const char* const maker = convolutions ? "gpu_conv_set.py" : "gpu_set.py";
  const char* const asked = convolutions ? "conv" : "n";
  std::ifstream file(list);
  if (!file)
    throw UserError(Place{list, 0, 0, {}}, "cannot be opened",
                    fmt::format("tests/performance/{} makes such a list", maker));
  const char* data = std::getenv("SPARSERTC_DATA");
  const std::filesystem::path folder =
      data && *data ? std::filesystem::path(data) : std::filesystem::path(list).parent_path();

  std::string line;
  std::getline(file, line);
  const std::vector<std::string> head = split_at_commas(line);
  const auto position = [&](const char* name) {
    return static_cast<size_t>(std::find(head.begin(), head.end(), name) - head.begin());
  };
  const size_t path = position("path"), problem = position(asked),
               nominal = position("nominal_sparsity");
  if (path == head.size() || problem == head.size())
    throw UserError(Place::text(list, 1, 1),
                    fmt::format("expected a header with the columns path and {}", asked));

  std::vector<BenchCase> cases;
  for (uint64_t number = 2; std::getline(file, line); ++number) {
    const std::vector<std::string> fields = split_at_commas(line);
    if (fields.size() == 1 && fields[0].empty())
      continue;
    if (fields.size() != head.size())
      throw UserError(Place::text(list, number, 1),
                      fmt::format("expected {} fields, found {}", head.size(), fields.size()));
    BenchCase one =
        file_case((folder / fields[path]).string(), fields[path], values,
                  listed_problem(fields[problem], convolutions, Place::text(list, number, 1)));
    if (nominal < head.size() && !fields[nominal].empty()) {
      char* rest = nullptr;
      one.nominal_percent = 100 * std::strtod(fields[nominal].c_str(), &rest);
      if (*rest != 0)
        throw UserError(Place::text(list, number, 1),
                        fmt::format("\"{}\" is no sparsity", fields[nominal]));
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

} // namespace sparsertc
