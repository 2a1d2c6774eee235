// Tuning records: what won, and for which environment that holds. A record is an input of the
// compiler: the same record gives the same code.
#pragma once

#include "runtime/tune/graph_replay.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc::tune {

/// Everything a measurement depends on besides the tile. All values are compared as they are.
struct Environment {
  std::string gpu;            ///< "NVIDIA H200"
  uint32_t driver = 0;        ///< newest CUDA version the driver supports: 13000 is 13.0
  std::string target;         ///< "sm_90"
  std::string sparsertc;      ///< version
  std::string assembler;      ///< Assembler::identity()
  std::string pattern_digest; ///< in hexadecimal
  uint32_t m = 0, k = 0, n = 0;
  std::string dtype;   ///< word of --dtype
  std::string options; ///< layout, epilogue, what else changes the code, as one text
};

/// What differs, one "KEY: the record has X, here it is Y" each; empty where the record holds.
std::vector<std::string> differences(const Environment& record, const Environment& here);

struct Record {
  Environment environment;
  std::string tile; ///< `--tile` words without the cap
  uint32_t registers = 0;
  Timing warm, cold;
  double search_seconds = 0;
  uint64_t candidates_tried = 0, candidates_in_space = 0;
  bool exhausted = false;
  bool interrupted = false;
  /// The rivals that took part, cuBLAS first, in microseconds.
  struct Rival {
    std::string name;
    double time_us = 0;
  };
  std::vector<Rival> rivals;
};

/// JSON, one object, ending in a newline.
std::string to_json(const Record& record);
/// Reads what to_json() wrote; `name` is for messages. Throws UserError that says which key is
/// missing or wrong.
Record record_from_json(std::string_view text, const std::string& name);

} // namespace sparsertc::tune
