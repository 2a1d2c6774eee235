// What `sparsertc run` tells about one run, as JSON and as text.
#pragma once

#include "tools/spmm_check.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

namespace sparsertc {

struct RunReport {
  std::string input; ///< the matrix's or the bundle's name
  uint64_t m = 0, k = 0, n = 0, nnz = 0;
  std::string dtype, layout, convolution; ///< no convolution: empty
  uint64_t operations = 0;                ///< additions and multiplications of one run
  std::string device;
  unsigned threads = 0; ///< 0 on a GPU
  std::string target, strategy, tile;
  std::string code; ///< of a bundle: "cubin" or "ptx"; else empty
  /// Of making the code ready: compiling, or loading a bundle.
  double prepare_us = 0;
  unsigned repeat = 0;
  double time_us = 0; ///< median
  double time_min_us = 0, time_max_us = 0;
};

/// `check` is null where there was none.
nlohmann::ordered_json to_json(const RunReport& report, const CheckResult* check);
/// The same in three lines, without the check.
std::string to_text(const RunReport& report);
/// One line.
std::string describe(const CheckResult& check);

/// Prints the report as asked, on standard error where standard output has the result, and returns
/// the exit code: 1 where the check failed.
int print_report(const RunReport& report, const CheckResult* check, bool json, bool to_stderr);

} // namespace sparsertc
