// What `bench` measures: files, lists of files, and random matrices of built-in shapes.
#pragma once

#include "compiler/input/matrix.h"
#include "tools/words.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sparsertc {

/// A matrix, or the filters of a convolution, and what it is multiplied with.
struct BenchCase {
  std::string name;
  double nominal_percent = -1;     ///< of zeros; negative where only the file knows
  std::function<Matrix()> weights; ///< as they are read
  SpmmProblem problem;             ///< with its columns
  std::string conv;                ///< the words of --conv, empty for products of matrices
};

/// M x K of A, N columns of B.
struct BenchShape {
  uint32_t m = 0, k = 0, n = 0;
};
/// "4096x4096x8"; throws UsageError.
BenchShape parse_bench_shape(const std::string& text);

/// Random matrices (every pattern of exactly that many entries equally likely, as magnitude pruning
/// of normally distributed weights gives; values in [-1, 1)) of these shapes, each with these
/// percentages of zeros. Without shapes those of some layers are taken.
std::vector<BenchCase> random_cases(std::vector<BenchShape> shapes,
                                    const std::vector<double>& levels, uint64_t seed);

/// `values` as for --values; the problem must fix the number of columns, or of images. Throws
/// UsageError.
std::vector<BenchCase> file_cases(const std::vector<std::string>& paths,
                                  const ProblemOptions& problem, const std::string& values);

/// The cases of a CSV file with a header that has the columns `path` and `n`, for convolutions
/// `path` and `conv` (words of --conv, quoted), and perhaps `nominal_sparsity` (0 to 1). Paths are
/// relative to SPARSERTC_DATA, or where that is not set to the list's own folder. Throws UserError.
std::vector<BenchCase> listed_cases(const std::string& list, bool convolutions,
                                    const std::string& values);

/// The fields of a line of CSV; between quotation marks commas belong to the field.
std::vector<std::string> split_at_commas(const std::string& line);

} // namespace sparsertc
