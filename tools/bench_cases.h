// What `bench` measures: files, lists of files, and random matrices of built-in shapes.
#pragma once

#include "compiler/input/matrix.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sparsertc {

/// A matrix and the number of columns of B.
struct BenchCase {
  std::string name;
  double nominal_percent = -1; ///< of zeros; negative where only the file knows
  std::function<Matrix()> weights;
  uint32_t columns = 0;
};

/// Random matrices (every pattern of exactly that many entries equally likely, values in [-1, 1))
/// of some layers' shapes, each with these percentages of zeros.
std::vector<BenchCase> built_in_cases(const std::vector<double>& levels, uint64_t seed);

/// `values` as for --values; `columns` as for --columns, a number.
std::vector<BenchCase> file_cases(const std::vector<std::string>& paths, const std::string& columns,
                                  const std::string& values);

/// The cases of a CSV file with a header that has the columns `path` and `n`, and perhaps
/// `nominal_sparsity` (0 to 1). Paths are relative to SPARSERTC_DATA, or where that is not set to
/// the list's own folder. Throws UserError.
std::vector<BenchCase> listed_cases(const std::string& list, const std::string& values);

} // namespace sparsertc
