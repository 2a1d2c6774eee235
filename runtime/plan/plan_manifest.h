// What a bundle's manifest says about launching its kernels, read and checked. The keys are those
// of compiler/manifest.h and runtime/bundle/bundle.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc {

/// What a kernel takes at one place of its parameter list.
enum class OperandRole : uint8_t { b, c, bias, residual, columns, ldb, ldc };

struct PlanEntry {
  std::string name;
  std::vector<OperandRole> parameters; ///< at most kMostParameters
  /// grid.x = the sum over ranges of ceil(n * items / items_per_block), grid.y = grid_rows,
  /// grid.z = 1.
  struct Range {
    uint32_t items = 1;
    uint32_t items_per_block = 1;
  };
  std::vector<Range> ranges; ///< at least one
  uint32_t grid_rows = 0;
  uint64_t grid_x(uint64_t n) const {
    uint64_t blocks = 0;
    for (const Range& range : ranges)
      blocks += (n * range.items + range.items_per_block - 1) / range.items_per_block;
    return blocks;
  }
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  uint32_t static_shared_bytes = 0; ///< 0 where the manifest does not say
  uint32_t registers = 0;           ///< a thread; 0 where the manifest does not say
  uint32_t pointer_alignment = 1;   ///< of B, C and the residual, bytes

  uint64_t threads_per_block() const { return uint64_t{block[0]} * block[1] * block[2]; }

  static constexpr size_t kMostParameters = 8;
};

/// What a convolution's operands look like.
struct PlanImages {
  uint32_t channels = 0, height = 0, width = 0; ///< of B
  uint32_t out_height = 0, out_width = 0;       ///< of C, with m channels
  uint32_t window_height = 1, window_width = 1; ///< of a filter with its dilation
  std::string words;                            ///< the geometry as --conv has it
};

/// Of the dense strategy: A with its zeros as an array of the code.
struct PlanDense {
  bool library = false; ///< cuBLAS multiplies where it is found
  std::string array;    ///< its name
  uint64_t leading = 0; ///< elements from one column of A to the next
};

struct PlanManifest {
  std::string target; ///< "sm_90a"
  uint64_t m = 0, k = 0, nnz = 0;
  std::optional<uint64_t> n; ///< nothing: given at the launch; of a convolution images
  std::string dtype;         ///< "f32", "f16", "bf16", "f64"
  uint32_t element_bytes = 4;
  bool column_major = false;        ///< of images: NHWC instead of NCHW
  std::optional<uint64_t> ldb, ldc; ///< elements; nothing: given at the launch
  bool bias = false, residual = false;
  std::optional<PlanImages> images; ///< nothing: a product of matrices
  std::optional<PlanDense> dense;   ///< of the dense strategy
  std::string activation, strategy, tile, pattern_digest;
  // What only tuning asks for; empty or 0 where the manifest does not say.
  std::string sparsertc;            ///< version of the compiler
  std::string assembler;            ///< "ptxas 13.0.88"
  uint32_t half_terms = 0;          ///< products summed in a half type
  std::string precision, nonfinite; ///< words of the options; empty: full, exact
  uint32_t max_registers = 0;       ///< cap of a thread's registers; 0: none
  std::vector<PlanEntry> entries;   ///< in launch order; none where there is nothing to compute
};

/// Reads a manifest's JSON text. Throws UserError (with `name`, the bundle's) for what is no
/// manifest, of another schema or family, or contradicts itself.
PlanManifest parse_plan_manifest(const std::string& json, const std::string& name);

} // namespace sparsertc
