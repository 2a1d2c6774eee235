#include "tools/bundle_weights.h"

#include "compiler/input/read.h"
#include "compiler/inspect/convolution.h"
#include "compiler/lower/spmm_tile.h"
#include "ir/error.h"

#include <fmt/format.h>

namespace sparsertc {

Matrix read_bundle_weights(const std::string& path, const std::string& tensor,
                           const PlanManifest& manifest, const std::string& bundle) {
  ReadOptions read;
  read.tensor = tensor;
  read.require_values = true;
  Matrix weights = read_matrix(path, read);
  if (manifest.images) {
    Convolution convolution = parse_convolution(manifest.images->words).convolution;
    weights = filters_as_matrix(std::move(weights), convolution);
  }
  check_bundle_weights(weights, path, manifest, bundle);
  return weights;
}

void check_bundle_weights(const Matrix& weights, const std::string& path,
                          const PlanManifest& manifest, const std::string& bundle) {
  const Pattern& pattern = weights.pattern;
  if (pattern_digest(pattern) != manifest.pattern_digest)
    throw UserError(fmt::format("{} is not what {} was compiled from: {} x {} with {} entries, the "
                                "bundle has {} x {} with {}{}",
                                path, bundle, pattern.rows, pattern.columns, pattern.nnz(),
                                manifest.m, manifest.k, manifest.nnz,
                                pattern.nnz() == manifest.nnz ? " at other places" : ""),
                    "in a dense file zeros are no entries: a sparse one (.mtx, .npz) keeps them");
  rounded_weights(weights, data_type_from_name(manifest.dtype)); // as compiling would refuse them
}

} // namespace sparsertc
