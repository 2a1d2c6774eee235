// One SpMM by every road that needs no GPU: direct PTX and LLVM's PTX in the interpreter, and the
// host program. Each is compared with float64, all are compared with each other bit by bit.
#pragma once

#include "tests/support/random_sparse.h"
#include "tests/support/reference.h"

#include "compiler/inspect/spmm_schedule.h"

#include <functional>
#include <string>
#include <vector>

namespace sparsertc::test {

struct Roads {
  bool units = false; ///< also the direct PTX in units, linked
  bool llvm = false;  ///< also PTX through LLVM
};

/// Fills B, bias and residual, and settles the leading dimensions: `slack` elements over tight.
/// B gets `nonfinite` elements that are NaN or infinite. `n`: columns, or images.
SpmmCase make_case(Random& random, Matrix weights, const SpmmProblem& problem, uint32_t n,
                   ValueShape values, uint32_t slack, uint32_t nonfinite = 0);

/// Everything that can be wrong goes through Catch, with `tile` (words of --tile), the case and
/// `seed` in its message. A tile that the problem does not allow is counted, not run.
struct RoadCounts {
  uint64_t run = 0, refused = 0, instructions = 0;
};
void check_roads(const SpmmCase& test, const std::string& tile, const std::string& target,
                 const Roads& roads, RoadCounts& counts);
/// Prints how much was done; `what`: "products".
void report(const char* what, const RoadCounts& counts);

/// Runs direct PTX after `edit` has changed its text, and returns what the interpreter or the
/// comparison with float64 says against it; empty where nothing is wrong.
std::string fault_of_edited(const SpmmCase& test, const std::string& tile,
                            const std::string& target,
                            const std::function<void(std::string&)>& edit);

} // namespace sparsertc::test
