// A cuBLASLt that computes, slowly, on the memory of the fake driver: a library that
// SPARSERTC_LIBCUBLASLT can name. SPARSERTC_FAKE_CUBLASLT_FAILS is a call that it refuses.
#include "runtime/driver/cublaslt_api.h"

#include <cstdlib>
#include <string_view>

using namespace sparsertc::cuda;

namespace {

struct Matmul {
  bool transpose[2] = {false, false};
  bool relu = false;
};
struct Layout {
  uint64_t rows, columns;
  int64_t leading;
};

BlasStatus refuses(std::string_view call) {
  const char* refused = std::getenv("SPARSERTC_FAKE_CUBLASLT_FAILS");
  return refused && call == refused ? 7 : 0;
}

} // namespace

namespace sparsertc::cuda {

struct BlasOpaque {};
struct BlasMatmulOpaque : Matmul {};
struct BlasLayoutOpaque : Layout {};
struct BlasPreferenceOpaque {};

extern "C" {

size_t cublasLtGetVersion();
size_t cublasLtGetVersion() {
  return 130100;
}

#define X(name, parameters) BlasStatus name parameters;
SPARSERTC_CUBLASLT_FUNCTIONS(X)
#undef X

BlasStatus cublasLtCreate(BlasHandle* handle) {
  if (refuses("cublasLtCreate") != 0)
    return 1; // not initialised, as without a GPU
  *handle = new BlasOpaque;
  return 0;
}
BlasStatus cublasLtDestroy(BlasHandle handle) {
  delete handle;
  return 0;
}
BlasStatus cublasLtMatmulDescCreate(BlasMatmul* matmul, int32_t, int32_t) {
  *matmul = new BlasMatmulOpaque;
  return 0;
}
BlasStatus cublasLtMatmulDescDestroy(BlasMatmul matmul) {
  delete matmul;
  return 0;
}
BlasStatus cublasLtMatmulDescSetAttribute(BlasMatmul matmul, int32_t attribute, const void* value,
                                          size_t bytes) {
  if (bytes != sizeof(int32_t))
    return 7;
  const int32_t number = *static_cast<const int32_t*>(value);
  if (attribute == kBlasEpilogue)
    matmul->relu = number == kBlasEpilogueRelu;
  else
    matmul->transpose[attribute == kBlasTransposeB] = number == kBlasTranspose;
  return 0;
}
BlasStatus cublasLtMatrixLayoutCreate(BlasLayout* layout, int32_t type, uint64_t rows,
                                      uint64_t columns, int64_t leading) {
  if (type != kBlasF32)
    return 15; // not supported
  *layout = new BlasLayoutOpaque{{rows, columns, leading}};
  return 0;
}
BlasStatus cublasLtMatrixLayoutDestroy(BlasLayout layout) {
  delete layout;
  return 0;
}
BlasStatus cublasLtMatmulPreferenceCreate(BlasPreference* preference) {
  *preference = new BlasPreferenceOpaque;
  return 0;
}
BlasStatus cublasLtMatmulPreferenceDestroy(BlasPreference preference) {
  delete preference;
  return 0;
}
BlasStatus cublasLtMatmulPreferenceSetAttribute(BlasPreference, int32_t, const void*, size_t) {
  return 0;
}
BlasStatus cublasLtMatmulAlgoGetHeuristic(BlasHandle, BlasMatmul, BlasLayout, BlasLayout,
                                          BlasLayout, BlasLayout, BlasPreference, int32_t,
                                          BlasHeuristic* results, int32_t* found) {
  *found = refuses("cublasLtMatmulAlgoGetHeuristic") == 0;
  results->workspace_bytes = 512;
  return 0;
}
BlasStatus cublasLtMatmul(BlasHandle, BlasMatmul matmul, const void* alpha, const void* a,
                          BlasLayout a_layout, const void* b, BlasLayout b_layout, const void* beta,
                          const void* c, BlasLayout, void* d, BlasLayout d_layout,
                          const BlasAlgorithm*, void* workspace, size_t workspace_bytes,
                          StreamHandle) {
  if (const BlasStatus status = refuses("cublasLtMatmul"); status != 0)
    return status;
  if (workspace == nullptr || workspace_bytes != 512 || *static_cast<const float*>(alpha) != 1)
    return 7;
  const auto at = [](const void* matrix, const Layout& layout, bool transposed, uint64_t row,
                     uint64_t column) {
    return static_cast<const float*>(
        matrix)[transposed ? column + row * static_cast<uint64_t>(layout.leading)
                           : row + column * static_cast<uint64_t>(layout.leading)];
  };
  const uint64_t depth = matmul->transpose[0] ? a_layout->rows : a_layout->columns;
  for (uint64_t row = 0; row < d_layout->rows; ++row)
    for (uint64_t column = 0; column < d_layout->columns; ++column) {
      const uint64_t place = row + column * static_cast<uint64_t>(d_layout->leading);
      float sum = *static_cast<const float*>(beta) == 0 ? 0 : static_cast<const float*>(c)[place];
      for (uint64_t k = 0; k < depth; ++k)
        sum += at(a, *a_layout, matmul->transpose[0], row, k) *
               at(b, *b_layout, matmul->transpose[1], k, column);
      static_cast<float*>(d)[place] = matmul->relu && sum < 0 ? 0 : sum;
    }
  return 0;
}

} // extern "C"

} // namespace sparsertc::cuda
