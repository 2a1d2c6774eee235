// The JSON file that describes a network: its layers with their weights, and what is to be made of
// them. The README of runtime/bundle lists the keys.
#pragma once

#include "ir/error.h"
#include "tools/options.h"
#include "tools/tuning.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sparsertc {

/// Files are as they are to be opened: relative ones have become those beside the JSON file.
struct NetworkFileLayer {
  std::string name;
  InputOptions weights;
  std::string bias;     ///< a file with a value for each row; may be empty
  int32_t input = 0;    ///< NetworkLayer::kNetworkInput, or an earlier layer
  int32_t residual = 0; ///< the same, or NetworkLayer::kNothing
  SpmmProblem problem;  ///< with the epilogue that follows from the files
  SpmmTileChoice tile;
  uint64_t budget = 0;
  std::string target; ///< empty: not said
  std::string tuning; ///< a record or a folder of them; may be empty
  TuningMismatch mismatch = TuningMismatch::refuse;
  bool bindable = false;
};

struct NetworkFile {
  std::string path;
  std::string name;
  std::vector<NetworkFileLayer> layers; ///< at least one
};

/// Throws UserError with the layer's name and the key for what is malformed, unknown, missing or
/// contradictory. Weights are not opened.
NetworkFile read_network_file(const std::string& path);

/// The message of an error without the word for its kind, and the way out.
std::pair<std::string, std::string> parts_of(const Error& error);

/// A UserError about one layer's key: "net.json: error: layer "a", key "weights": ...".
[[noreturn]] void refuse_layer(const NetworkFile& file, const NetworkFileLayer& layer,
                               const std::string& key, const std::string& message,
                               const std::string& way_out = {});

} // namespace sparsertc
