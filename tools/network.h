// A network of layers, from its file to code: weights are read, the layers' shapes compared, all
// layers compiled side by side, and the result put into one bundle.
//
//   FILE.json --> NetworkFile --> SourceNetwork --> compiled layers --> bundle
//                 (words)         (matrices,        (pipeline)          (or the CPU)
//                                 shapes, places)
#pragma once

#include "compiler/pipeline.h"
#include "runtime/plan/network_manifest.h"
#include "tools/network_file.h"

#include <functional>
#include <string>
#include <vector>

namespace sparsertc {

/// A layer whose files have been read.
struct SourceLayer {
  Matrix weights;           ///< as the file has them
  Matrix matrix;            ///< of the product: of a convolution the filters over all channels
  SpmmProblem problem;      ///< of a convolution with the complete geometry
  std::vector<double> bias; ///< rounded to the layer's type, or empty
};

struct SourceNetwork {
  NetworkFile file;
  std::vector<SourceLayer> layers;
  /// Who reads what, and where it lies in the workspace.
  NetworkManifest manifest;
};

/// Reads weights and biases, and checks that each layer can read what it is given. Throws UserError
/// with the layer's name and the key.
SourceNetwork open_network(NetworkFile file, unsigned jobs);

/// What all layers have in common.
struct NetworkCompilation {
  Artefact artefact = Artefact::bundle;
  /// Replaces what the file says; empty: the file's, else the default. Tiles, budgets and tuning
  /// records are those of GPUs and take no part where it is "host".
  std::string target;
  std::string default_target = "sm_90";
  const Assembler* assembler = nullptr; ///< must outlive the call; null: none
  bool bindable = false;                ///< also where the file does not ask for it
  unsigned jobs = 0; ///< threads and assembler processes of all layers; 0: a core each
  bool verify_each = PipelineOptions{}.verify_each;
  std::string stop_after;
  /// Told how many layers are compiled, one call at a time.
  std::function<void(size_t done)> progress;
};

struct CompiledLayer {
  PipelineOptions options;
  PipelineResult result;
};

/// Compiles all layers, several at once. Errors are those of the pipeline, with the layer's name.
std::vector<CompiledLayer> compile_network(const SourceNetwork& network,
                                           const NetworkCompilation& compilation);

/// One bundle: the manifest, biases, and a bundle for each layer.
Bundle make_network_bundle(const SourceNetwork& network, const std::vector<CompiledLayer>& layers);

/// "64 x 28 x 28, 2 images (f32, nchw)", "64 x 196 (f32, row)": B (or C) of a layer.
std::string describe_input(const SourceLayer& layer);
std::string describe_output(const SourceLayer& layer);

} // namespace sparsertc
