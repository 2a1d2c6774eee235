// Options about a residual and its Jacobian, and what they make.
#pragma once

#include "tools/jacobian_system.h"
#include "tools/options.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc {

struct JacobianOptions {
  std::string residual;
  std::string x0;
  uint64_t n = 0;
  std::string parameters;
  std::vector<std::string> varying;
  uint64_t instances = 1;
  std::string pattern;
  bool compare_patterns = false;
  uint32_t points = 3;
  uint64_t seed = 1;
  std::string dtype = "f64";
  std::string compression = "auto";
  std::string width = "auto";
  std::string lanes = "auto";
  std::string order = "smallest-last";
  uint32_t loop_limit = jacobian::kDefaultLoopLimit;
};
void declare(CLI::App& parser, JacobianOptions& options);

/// Reads the files. Without --x0 the start is a vector of ones.
JacobianRequest to_request(const JacobianOptions& options);

} // namespace sparsertc
