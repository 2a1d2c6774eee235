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
  uint64_t nnz = 0;           ///< entries of A
  uint32_t m = 0, k = 0;
  uint32_t n = 0;      ///< that was measured, also where the code takes it at the launch
  std::string dtype;   ///< word of --dtype
  std::string options; ///< to_string(LayerOptions)
};

/// What else changes the code of a layer, as the words of the command.
struct LayerOptions {
  std::string layout = "row";
  uint64_t ldb = 0, ldc = 0; ///< elements; 0: tight, or given at the launch
  bool bias = false, residual = false;
  std::string activation = "none";
  uint32_t half_terms = 0;
  std::string precision, nonfinite; ///< empty: full, exact
  bool dynamic_columns = false;     ///< n is given at the launch
  std::string convolution;          ///< the words of --conv; empty: a product of matrices
};
/// "layout=row,ldb=0,...", with "precision=tf32", "nonfinite=dense", "columns=dynamic" and
/// "conv:..." at the end where that is so.
std::string to_string(const LayerOptions& options);

/// What differs, one "KEY: the record has X, here it is Y" each; empty where the record holds.
std::vector<std::string> differences(const Environment& record, const Environment& here);

/// Numbers of entries that are called similar: the larger is at most this many times the smaller.
constexpr double kSimilarEntries = 1.1;
/// Whether nothing but the pattern's digest and number of entries differs, and the number is
/// similar: a layer of the same shape and density.
bool is_similar(const Environment& record, const Environment& here);

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

/// The record among `records` that holds here; where there is none and `similar` is wanted, the
/// similar one whose number of entries is nearest. Of several the fastest, then the first. Null
/// where there is none.
const Record* find_record(const std::vector<Record>& records, const Environment& here,
                          bool similar);

/// JSON, one object, ending in a newline.
std::string to_json(const Record& record);
/// Reads what to_json() wrote; `name` is for messages. Throws UserError that says which key is
/// missing or wrong.
Record record_from_json(std::string_view text, const std::string& name);
/// Whether the text says of itself that it is a tuning record, of whatever version.
bool is_record(std::string_view text);

} // namespace sparsertc::tune
