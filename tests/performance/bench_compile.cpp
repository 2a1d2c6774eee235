// From file to PTX text: each stage of the pipeline for random patterns at 90 % zeros, the time a
// multiply-add, and the memory. The files are Matrix Market text with values, in the folder for
// temporary files. Arguments: [divisor of the sizes, 1 for the full ones].
#include "compiler/input/random_values.h"
#include "compiler/input/read.h"
#include "compiler/pipeline.h"

#include <fmt/format.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

using namespace sparsertc;

namespace {

struct Shape {
  uint32_t rows, columns;
};
constexpr Shape kShapes[] = {{512, 512}, {2048, 512}, {512, 4608}, {1024, 9216}};

/// A matrix in which each position has an entry with probability 1/10.
void write_matrix(const std::string& path, const Shape& shape) {
  SplitMix64 random(7);
  std::string entries;
  uint64_t count = 0;
  for (uint32_t row = 1; row <= shape.rows; ++row)
    for (uint32_t column = 1; column <= shape.columns; ++column) {
      const uint64_t bits = random.next();
      if (bits % 10 != 0)
        continue;
      const double value = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
      entries += fmt::format("{} {} {:.9g}\n", row, column, value);
      ++count;
    }
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file)
    std::exit(1);
  fmt::print(file, "%%MatrixMarket matrix coordinate real general\n{} {} {}\n{}", shape.rows,
             shape.columns, count, entries);
  std::fclose(file);
}

double stage_us(const PipelineResult& result, std::string_view stage) {
  double sum = 0;
  for (const StageTime& time : result.times)
    if (time.stage == stage)
      sum += time.wall_us;
  return sum;
}

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

} // namespace

int main(int count, char** arguments) {
  const auto divisor = static_cast<uint32_t>(count > 1 ? std::max(1, std::atoi(arguments[1])) : 1);
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("bench_compile_{}.mtx", getpid()))
          .string();
  fmt::print("{:>12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9}\n", "matrix", "nnz",
             "read ms", "lower ms", "passes ms", "emit ms", "all ms", "M FMA/s", "peak MiB");
  for (Shape shape : kShapes) {
    shape.rows /= divisor;
    shape.columns /= divisor;
    write_matrix(path, shape);
    PipelineOptions options;
    options.problem.columns = 256;
    options.target = find_target("sm_90");
    options.tile.strategy = Strategy::unrolled;
    options.verify_each = false;
    const auto start = std::chrono::steady_clock::now();
    const PipelineResult result = compile_spmm([&] { return read_matrix(path); }, options);
    const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - start;
    const auto nnz = static_cast<double>(result.weights.pattern.nnz());
    fmt::print("{:>12} {:>9} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>11.2f} {:>9.0f}\n",
               fmt::format("{}x{}", shape.rows, shape.columns), result.weights.pattern.nnz(),
               stage_us(result, "input") / 1e3, stage_us(result, "lower") / 1e3,
               (stage_us(result, "schedule-loads") + stage_us(result, "place-weights")) / 1e3,
               stage_us(result, "emit") / 1e3, wall.count(), nnz / wall.count() / 1e3, peak_mib());
  }
  std::filesystem::remove(path);
  return 0;
}
