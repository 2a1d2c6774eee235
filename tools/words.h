// The words in which a user says what is to be computed and how, shared by the command's options
// and the library of the compiler. Unknown words are usage errors that suggest the nearest known
// one.
#pragma once

#include "compiler/inspect/spmm_schedule.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

/// What is to be computed.
struct ProblemOptions {
  std::string op = "spmm";
  std::string conv; ///< the words of --conv, for op conv2d
  std::string columns = "dynamic";
  std::string type = "f32";
  std::string layout; ///< empty: row, and for conv2d nchw
  uint64_t ldb = 0;
  uint64_t ldc = 0;
  bool bias = false;
  bool residual = false;
  std::string activation = "none";
  uint32_t half_terms = 0;
  std::string precision = "full";
  std::string nonfinite = "exact";
};
SpmmProblem to_problem(const ProblemOptions& options);

/// How it is to be computed: what the user fixes of the schedule.
struct ScheduleOptions {
  std::string tile;
  uint64_t budget = 0;
};
SpmmTileChoice to_tile_choice(const ScheduleOptions& options);

/// A whole number in decimal; else a UsageError that begins with `what`.
uint64_t parse_number(const std::string& what, std::string_view text);

/// The position of `word` among `known`; else a UsageError that says what `what` may be and
/// suggests the nearest.
size_t choose_word(const std::string& what, const std::string& word,
                   const std::vector<std::string>& known);
/// The known word that a misspelt one most likely means: at most a third of its letters differ.
std::optional<std::string> nearest_word(const std::string& word,
                                        const std::vector<std::string>& known);

} // namespace sparsertc
