// sparsertc run of a network: compiled from its file for this machine, or a bundle of several
// layers.
#pragma once

#include "tools/assemblers.h"
#include "tools/options.h"
#include "tools/spmm_operands.h"

#include <string>

namespace sparsertc {

struct NetworkRun {
  std::string file;   ///< FILE.json; of a bundle what it was compiled from, for the check, or empty
  std::string bundle; ///< .srtc, or empty
  std::string device = "auto";
  OperandSources sources;          ///< b: the network's input, and the seed
  std::string columns = "dynamic"; ///< where the network leaves n open
  std::string output;              ///< the network's output as .npy; may be empty
  bool check = false;
  unsigned repeat = 10;
  bool json = false;
  JobOptions jobs;
  CacheOptions cache;
  AssemblerOptions assembler;
  WatchOptions watch;
};

/// Runs all layers in their order, each checked against float64 on request with what the layers
/// before it have computed; prints the report and returns the exit code: 1 where a check failed.
int run_network(const NetworkRun& run);

} // namespace sparsertc
