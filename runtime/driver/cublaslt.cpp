#include "runtime/driver/cublaslt.h"

#include "ir/error.h"
#include "runtime/driver/library.h"

#include <fmt/format.h>

namespace sparsertc::cuda {
namespace {

constexpr uint32_t kOwnAlignment = 256; ///< of the array of A

void check(BlasStatus status, const char* call) {
  if (status != 0)
    throw RuntimeError("a dense product by cuBLASLt",
                       fmt::format("{} failed with status {}", call, status));
}

void* pointer(DeviceAddress address) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

int32_t type_of(DenseShape::Type type) {
  switch (type) {
  case DenseShape::Type::f32:
    return kBlasF32;
  case DenseShape::Type::f16:
    return kBlasF16;
  case DenseShape::Type::bf16:
    return kBlasBf16;
  case DenseShape::Type::f64:
    break;
  }
  return kBlasF64;
}

} // namespace

std::shared_ptr<const CublasLt> CublasLt::open() {
  const Library library = Library::open(
      {"cuBLASLt", "SPARSERTC_LIBCUBLASLT", {"libcublasLt.so.13", "libcublasLt.so.12"}});
  const std::string needed = "cuBLASLt of CUDA 12.0 or newer";
  CublasLtTable table;
#define X(name, parameters)                                                                        \
  table.name = reinterpret_cast<name##_function>(library.find(#name, needed));
  SPARSERTC_CUBLASLT_FUNCTIONS(X)
#undef X
  table.cublasLtGetVersion = reinterpret_cast<decltype(table.cublasLtGetVersion)>(
      library.find("cublasLtGetVersion", needed));
  return std::make_shared<const CublasLt>(table);
}

CublasLt::CublasLt(const CublasLtTable& table) : table_(table) {}

std::string CublasLt::identity() const {
  // 130100 is 13.1.0; up to 12 it was 120304.
  const size_t version = table_.cublasLtGetVersion();
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

DenseProduct::DenseProduct(std::shared_ptr<const CublasLt> library, const DenseShape& shape,
                           uint64_t most_workspace)
    : library_(std::move(library)), shape_(shape) {
  try {
    make(most_workspace);
  } catch (...) {
    destroy();
    throw;
  }
}

DenseProduct::~DenseProduct() {
  destroy();
}

/// The library is column-major. Row-major arrays are the transposes of such: D' = B' A'.
void DenseProduct::make(uint64_t most_workspace) {
  const CublasLtTable& api = library_->api();
  const bool swapped = !shape_.column_major;
  const int32_t type = type_of(shape_.type);
  const bool wide = shape_.type == DenseShape::Type::f64;
  check(api.cublasLtCreate(&handle_), "cublasLtCreate");
  check(api.cublasLtMatmulDescCreate(&matmul_,
                                     wide          ? kBlasCompute64
                                     : shape_.tf32 ? kBlasComputeTf32
                                                   : kBlasCompute32,
                                     wide ? kBlasF64 : kBlasF32),
        "cublasLtMatmulDescCreate");
  const auto set = [&](int32_t attribute, int32_t value) {
    check(api.cublasLtMatmulDescSetAttribute(matmul_, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  };
  if (swapped) // the array of A is column-major
    set(kBlasTransposeB, kBlasTranspose);
  if (shape_.relu)
    set(kBlasEpilogue, kBlasEpilogueRelu);

  const auto layout = [&](BlasLayout& made, uint64_t rows, uint64_t columns, uint64_t leading) {
    check(api.cublasLtMatrixLayoutCreate(&made, type, rows, columns, static_cast<int64_t>(leading)),
          "cublasLtMatrixLayoutCreate");
  };
  layout(swapped ? second_ : first_, shape_.m, shape_.k, shape_.lda);
  layout(swapped ? first_ : second_, swapped ? shape_.n : shape_.k, swapped ? shape_.k : shape_.n,
         shape_.ldb);
  layout(out_, swapped ? shape_.n : shape_.m, swapped ? shape_.m : shape_.n, shape_.ldc);

  check(api.cublasLtMatmulPreferenceCreate(&preference_), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](int32_t attribute, const auto& value) {
    check(api.cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(kBlasMostWorkspace, most_workspace);
  // Parts of K of f32 and f64 are added up in the sums' type wherever that is done.
  const bool narrow = shape_.type == DenseShape::Type::f16 || shape_.type == DenseShape::Type::bf16;
  prefer(kBlasReductions,
         static_cast<uint32_t>(narrow ? kBlasReduceInSumsType : kBlasReduceAnyhow));
  prefer(swapped ? kBlasAlignmentB : kBlasAlignmentA, kOwnAlignment);
  prefer(swapped ? kBlasAlignmentA : kBlasAlignmentB, shape_.alignment);
  prefer(kBlasAlignmentC, shape_.alignment);
  prefer(kBlasAlignmentD, shape_.alignment);
  int32_t found = 0;
  check(api.cublasLtMatmulAlgoGetHeuristic(handle_, matmul_, first_, second_, out_, out_,
                                           preference_, 1, &chosen_, &found),
        "cublasLtMatmulAlgoGetHeuristic");
  if (found < 1 || chosen_.status != 0)
    throw RuntimeError("a dense product by cuBLASLt", "it has no algorithm for this shape");
}

void DenseProduct::destroy() {
  const CublasLtTable& api = library_->api();
  if (preference_)
    api.cublasLtMatmulPreferenceDestroy(preference_);
  for (BlasLayout layout : {first_, second_, out_})
    if (layout)
      api.cublasLtMatrixLayoutDestroy(layout);
  if (matmul_)
    api.cublasLtMatmulDescDestroy(matmul_);
  if (handle_)
    api.cublasLtDestroy(handle_);
}

void DenseProduct::enqueue(DeviceAddress a, DeviceAddress b, DeviceAddress c, DeviceAddress d,
                           DeviceAddress workspace, StreamHandle stream) const {
  const bool swapped = !shape_.column_major;
  const bool wide = shape_.type == DenseShape::Type::f64;
  const float one = 1, added = shape_.adds ? 1 : 0;
  const double wide_one = 1, wide_added = added;
  check(library_->api().cublasLtMatmul(
            handle_, matmul_, wide ? static_cast<const void*>(&wide_one) : &one,
            pointer(swapped ? b : a), first_, pointer(swapped ? a : b), second_,
            wide ? static_cast<const void*>(&wide_added) : &added, pointer(shape_.adds ? c : d),
            out_, pointer(d), out_, &chosen_.algorithm, pointer(workspace), chosen_.workspace_bytes,
            stream),
        "cublasLtMatmul");
}

} // namespace sparsertc::cuda
