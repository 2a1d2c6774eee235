// What the manifest of a bundle with several layers says: which layer reads whose output, and where
// everything that they share lies in one piece of device memory, the workspace. The bundle's
// README.md has the keys.
//
//   workspace   | status record | biases      | outputs of all layers but the last      |
//               0               256           constant_bytes             + activation_bytes
//
// Two outputs may lie in the same place when no layer that reads the one runs after the layer that
// writes the other has begun.
#pragma once

#include "runtime/bundle/bundle.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc {

/// A part of the workspace, in bytes.
struct NetworkSlice {
  uint64_t offset = 0, bytes = 0;
};

struct NetworkLayer {
  /// In place of a layer's number: what the caller gives to the network, and nothing.
  static constexpr int32_t kNetworkInput = -1, kNothing = -2;

  std::string name;
  int32_t input = kNetworkInput; ///< the earlier layer whose output it reads
  int32_t residual = kNothing;   ///< the earlier layer whose output it adds
  std::optional<NetworkSlice> bias;
  /// From the end of the constants on; nothing for the last layer, which writes what the caller
  /// gets.
  std::optional<NetworkSlice> output;
};

struct NetworkManifest {
  std::string name;
  std::string sparsertc; ///< version of the compiler
  /// n (columns, or images) is given at each execution, the same for all layers. Then everything
  /// of a size that depends on it, all but `bias` and `constant_bytes`, is said for n = 1.
  bool dynamic = false;
  uint64_t input_bytes = 0, output_bytes = 0;
  uint64_t constant_bytes = 0;
  uint64_t activation_bytes = 0;
  std::vector<NetworkLayer> layers; ///< in the order of execution; at least one

  /// The number of the layer of this name, or nothing.
  std::optional<uint32_t> find(std::string_view layer) const;
};

/// Where every part of a workspace begins.
inline constexpr uint64_t kNetworkAlignment = 256;
inline constexpr uint32_t kMostNetworkLayers = 1000;
/// The section with what a workspace holds from kNetworkAlignment to the end of the constants.
inline constexpr const char* kBiasSection = "biases";
/// The section with the bundle of a layer, a whole one.
std::string plan_section(size_t layer);
/// Rounded up to kNetworkAlignment.
uint64_t network_aligned(uint64_t bytes);

/// Gives every output that has a size its place, and sets `activation_bytes`: largest first, each
/// as low as it can be beside those that are needed at the same time (Pisarchyk and Lee, Efficient
/// Memory Management for Deep Neural Net Inference, 2020: greedy by size).
void place_activations(NetworkManifest& manifest);

/// JSON text; the same manifest gives the same bytes.
std::string network_manifest_json(const NetworkManifest& manifest);
/// Reads it back. Throws UserError (with `name`, the bundle's) for what is no manifest of a
/// network, of another schema, or lets a layer overwrite what another one still needs.
NetworkManifest parse_network_manifest(const std::string& json, const std::string& name);
/// Whether the manifest is that of a network.
bool is_network(const Bundle& bundle);

} // namespace sparsertc
