// The part of cuBLASLt's interface that we use, so that building needs no CUDA header and running
// links no CUDA library. toolkit_api_check.cpp compares every line with cublasLt.h where that is
// present.
#pragma once

#include "runtime/driver/cuda_api.h"

#include <cstddef>
#include <cstdint>

namespace sparsertc::cuda {

using BlasStatus = int32_t; ///< cublasStatus_t; 0 is success
using BlasHandle = struct BlasOpaque*;
using BlasMatmul = struct BlasMatmulOpaque*;         ///< cublasLtMatmulDesc_t
using BlasLayout = struct BlasLayoutOpaque*;         ///< cublasLtMatrixLayout_t
using BlasPreference = struct BlasPreferenceOpaque*; ///< cublasLtMatmulPreference_t

/// cublasLtMatmulAlgo_t
struct BlasAlgorithm {
  uint64_t data[8] = {};
};
/// cublasLtMatmulHeuristicResult_t
struct BlasHeuristic {
  BlasAlgorithm algorithm;
  size_t workspace_bytes = 0;
  BlasStatus status = 0;
  float waves = 0;
  int32_t reserved[4] = {};
};

// X(our name, NVIDIA's, value)
#define SPARSERTC_CUBLASLT_CONSTANTS(X)                                                            \
  X(kBlasF32, CUDA_R_32F, 0)                                                                       \
  X(kBlasF64, CUDA_R_64F, 1)                                                                       \
  X(kBlasF16, CUDA_R_16F, 2)                                                                       \
  X(kBlasBf16, CUDA_R_16BF, 14)                                                                    \
  X(kBlasCompute32, CUBLAS_COMPUTE_32F, 68)                                                        \
  X(kBlasCompute64, CUBLAS_COMPUTE_64F, 70)                                                        \
  X(kBlasComputeTf32, CUBLAS_COMPUTE_32F_FAST_TF32, 77)                                            \
  X(kBlasTranspose, CUBLAS_OP_T, 1)                                                                \
  X(kBlasTransposeA, CUBLASLT_MATMUL_DESC_TRANSA, 3)                                               \
  X(kBlasTransposeB, CUBLASLT_MATMUL_DESC_TRANSB, 4)                                               \
  X(kBlasEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                               \
  X(kBlasEpilogueRelu, CUBLASLT_EPILOGUE_RELU, 2)                                                  \
  X(kBlasMostWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                               \
  X(kBlasReductions, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                                \
  X(kBlasReduceInSumsType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)                              \
  X(kBlasReduceAnyhow, CUBLASLT_REDUCTION_SCHEME_MASK, 7)                                          \
  X(kBlasAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                \
  X(kBlasAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                \
  X(kBlasAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                \
  X(kBlasAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

#define X(name, theirs, value) constexpr int32_t name = value;
SPARSERTC_CUBLASLT_CONSTANTS(X)
#undef X

// ---- functions: X(name, parameters) ----
#define SPARSERTC_CUBLASLT_FUNCTIONS(X)                                                            \
  X(cublasLtCreate, (BlasHandle * handle))                                                         \
  X(cublasLtDestroy, (BlasHandle handle))                                                          \
  X(cublasLtMatmulDescCreate, (BlasMatmul * matmul, int32_t compute_type, int32_t scale_type))     \
  X(cublasLtMatmulDescDestroy, (BlasMatmul matmul))                                                \
  X(cublasLtMatmulDescSetAttribute,                                                                \
    (BlasMatmul matmul, int32_t attribute, const void* value, size_t bytes))                       \
  X(cublasLtMatrixLayoutCreate,                                                                    \
    (BlasLayout * layout, int32_t type, uint64_t rows, uint64_t columns, int64_t leading))         \
  X(cublasLtMatrixLayoutDestroy, (BlasLayout layout))                                              \
  X(cublasLtMatmulPreferenceCreate, (BlasPreference * preference))                                 \
  X(cublasLtMatmulPreferenceDestroy, (BlasPreference preference))                                  \
  X(cublasLtMatmulPreferenceSetAttribute,                                                          \
    (BlasPreference preference, int32_t attribute, const void* value, size_t bytes))               \
  X(cublasLtMatmulAlgoGetHeuristic,                                                                \
    (BlasHandle handle, BlasMatmul matmul, BlasLayout a, BlasLayout b, BlasLayout c, BlasLayout d, \
     BlasPreference preference, int32_t wanted, BlasHeuristic * results, int32_t * found))         \
  X(cublasLtMatmul,                                                                                \
    (BlasHandle handle, BlasMatmul matmul, const void* alpha, const void* a, BlasLayout a_layout,  \
     const void* b, BlasLayout b_layout, const void* beta, const void* c, BlasLayout c_layout,     \
     void* d, BlasLayout d_layout, const BlasAlgorithm* algorithm, void* workspace,                \
     size_t workspace_bytes, StreamHandle stream))

#define X(name, parameters) using name##_function = BlasStatus(*) parameters;
SPARSERTC_CUBLASLT_FUNCTIONS(X)
#undef X

/// The functions of one cuBLASLt (or of a test's fake), all present.
struct CublasLtTable {
#define X(name, parameters) name##_function name = nullptr;
  SPARSERTC_CUBLASLT_FUNCTIONS(X)
#undef X
  size_t (*cublasLtGetVersion)() = nullptr;
};

} // namespace sparsertc::cuda
