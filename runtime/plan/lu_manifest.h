// What the manifest of a bundle of sparse LU says. runtime/bundle/README.md has the keys.
#pragma once

#include "runtime/lu/factors.h"

#include <cstdint>
#include <optional>
#include <string>

namespace sparsertc {

/// Sections of such a bundle.
inline constexpr const char* kLuTablesSection = "lu.tables";
inline constexpr const char* kLuFactorSection = "lu.factor";
inline constexpr const char* kLuSolveSection = "lu.solve";
inline constexpr const char* kLuTransposedSection = "lu.solve_transposed";

/// What precedes "cubin" and "ptx" in the names of the sections with the kernels of refinement.
inline constexpr const char* kLuRefinePart = "lu.refine.";

/// Tables of a batch, and what precedes the names of the sections with its kernels.
inline constexpr const char* kLuBatchSection = "lu.batch";
inline constexpr const char* kLuBatchPart = "lu.batch.";

/// The type of numbers.
enum class LuNumber : uint8_t { f32, f64, c64, c128 };
const char* name_of(LuNumber type);
uint32_t bytes_of(LuNumber type);
inline bool is_complex(LuNumber type) {
  return type >= LuNumber::c64;
}
inline bool is_single(LuNumber type) {
  return type == LuNumber::f32 || type == LuNumber::c64;
}

/// The kernels of compiler/lower/lu_dataflow.h and what they were made for.
struct LuKernels {
  std::string input, factor, solve_input, solve;
  std::string block_input, block_solve; ///< empty where no solve is by one block
  uint32_t input_threads = 0, dataflow_threads = 0, block_threads = 0;
  uint32_t block_shared_bytes = 0; ///< dynamic
  uint32_t multiprocessors = 0;    ///< blocks that must run at once
};
/// The kernels of compiler/lower/lu_refine.h.
struct LuRefineKernels {
  std::string begin, update, residual, decide, end;
  uint32_t threads = 0; ///< of a block of each
};
/// The kernels of compiler/lower/lu_batch.h, or of lu_batch_loop.h.
struct LuBatchKernels {
  std::string factor, solve;
  bool looped = false; ///< by the tables of the section; else straight-line code
  uint32_t factor_threads = 0, solve_threads = 0; ///< of a block
  uint64_t numbers = 0;                           ///< of an instance
};
/// Instances of a block.
inline constexpr uint32_t kLuBatchInstances = 32;
/// Of the manifest's kernels; grows when their parameters change, so that no others are launched.
inline constexpr uint32_t kLuKernelInterface = 2;

struct LuManifest {
  std::string sparsertc; ///< version of the compiler
  std::string target;    ///< "sm_90"; "host" where there are no kernels
  std::string assembler; ///< "ptxas 13.0.88"; empty where there is no cubin
  uint64_t n = 0, nnz = 0;
  std::string pattern_digest;
  LuNumber type = LuNumber::f64;        ///< of the matrix, right-hand sides and solutions
  LuNumber factor_type = LuNumber::f64; ///< the same, or the single-precision one
  bool transposed = true;               ///< whether the transposed matrix can be solved with
  std::string order;                    ///< "nd", "user", ...
  bool matched = false;
  std::string matching_reason;
  uint64_t blocks = 0; ///< of the block triangular form
  uint64_t nnz_l = 0;  ///< with its diagonal of ones
  uint64_t nnz_u = 0;
  double flops = 0;
  uint64_t levels = 0, levels_forward = 0, levels_backward = 0;
  /// How the factorization of the matrix went for which the pivots were chosen; nothing where only
  /// a pattern was given. Of it growth and replaced pivots are known.
  std::optional<lu::FactorStatus> chosen;
  std::optional<LuKernels> kernels;
  std::optional<LuRefineKernels> refinement; ///< only beside the others
  bool batch = false;                        ///< whether there are tables for batches
  std::optional<LuBatchKernels> batch_kernels;
};

/// JSON text; the same manifest gives the same bytes.
std::string lu_manifest_json(const LuManifest& manifest);
/// Reads it back. Throws UserError (with `name`, the bundle's) for what is no manifest of sparse
/// LU, of another schema, or contradicts itself.
LuManifest parse_lu_manifest(const std::string& json, const std::string& name);

} // namespace sparsertc
