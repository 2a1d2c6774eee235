#include "tools/gpu_peers.h"

#include "compiler/input/convert.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <span>

namespace sparsertc {
namespace {

// ---- the few calls of cuBLAS (cublas_v2.h) -----------------------------------------------------

using BlasHandle = struct BlasOpaque*;
using cuda::StreamHandle;

constexpr int kBlasNoTranspose = 0;       // CUBLAS_OP_N
constexpr int kBlasDefaultAlgorithm = -1; // CUBLAS_GEMM_DEFAULT
constexpr int kBlasCompute32 = 68;        // CUBLAS_COMPUTE_32F
constexpr int kBlasComputeTf32 = 77;      // CUBLAS_COMPUTE_32F_FAST_TF32
constexpr int kTypeF32 = 0;               // CUDA_R_32F
constexpr int kTypeF16 = 2;               // CUDA_R_16F

#define SPARSERTC_CUBLAS_FUNCTIONS(X)                                                              \
  X(cublasCreate_v2, (BlasHandle * handle))                                                        \
  X(cublasDestroy_v2, (BlasHandle handle))                                                         \
  X(cublasGetVersion_v2, (BlasHandle handle, int* version))                                        \
  X(cublasSetStream_v2, (BlasHandle handle, StreamHandle stream))                                  \
  X(cublasSetWorkspace_v2, (BlasHandle handle, void* workspace, size_t bytes))                     \
  X(cublasGemmEx,                                                                                  \
    (BlasHandle handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha,  \
     const void* a, int a_type, int lda, const void* b, int b_type, int ldb, const void* beta,     \
     void* c, int c_type, int ldc, int compute_type, int algorithm))

// ---- the few calls of cuSPARSE (cusparse.h, from CUDA 12) --------------------------------------

using SparseHandle = struct SparseOpaque*;
using SparseMatrix = struct SparseMatrixOpaque*;
using DenseMatrix = struct DenseMatrixOpaque*;

constexpr int kSparseNoTranspose = 0; // CUSPARSE_OPERATION_NON_TRANSPOSE
constexpr int kSparseIndex32 = 2;     // CUSPARSE_INDEX_32I
constexpr int kSparseBaseZero = 0;    // CUSPARSE_INDEX_BASE_ZERO
constexpr int kSparseRowOrder = 2;    // CUSPARSE_ORDER_ROW
/// CUSPARSE_SPMM_CSR_ALG1 to 3.
constexpr int kSparseAlgorithms[] = {4, 6, 12};

#define SPARSERTC_CUSPARSE_FUNCTIONS(X)                                                            \
  X(cusparseCreate, (SparseHandle * handle))                                                       \
  X(cusparseDestroy, (SparseHandle handle))                                                        \
  X(cusparseGetVersion, (SparseHandle handle, int* version))                                       \
  X(cusparseSetStream, (SparseHandle handle, StreamHandle stream))                                 \
  X(cusparseCreateCsr,                                                                             \
    (SparseMatrix * matrix, int64_t rows, int64_t columns, int64_t nnz, void* row_offsets,         \
     void* column_index, void* values, int offset_type, int index_type, int base, int value_type)) \
  X(cusparseDestroySpMat, (SparseMatrix matrix))                                                   \
  X(cusparseCreateDnMat, (DenseMatrix * matrix, int64_t rows, int64_t columns, int64_t leading,    \
                          void* values, int type, int order))                                      \
  X(cusparseDestroyDnMat, (DenseMatrix matrix))                                                    \
  X(cusparseSpMM_bufferSize, (SparseHandle handle, int operation_a, int operation_b,               \
                              const void* alpha, SparseMatrix a, DenseMatrix b, const void* beta,  \
                              DenseMatrix c, int compute_type, int algorithm, size_t* bytes))      \
  X(cusparseSpMM_preprocess, (SparseHandle handle, int operation_a, int operation_b,               \
                              const void* alpha, SparseMatrix a, DenseMatrix b, const void* beta,  \
                              DenseMatrix c, int compute_type, int algorithm, void* buffer))       \
  X(cusparseSpMM, (SparseHandle handle, int operation_a, int operation_b, const void* alpha,       \
                   SparseMatrix a, DenseMatrix b, const void* beta, DenseMatrix c,                 \
                   int compute_type, int algorithm, void* buffer))

struct BlasFunctions {
#define X(name, parameters) int(*name) parameters = nullptr;
  SPARSERTC_CUBLAS_FUNCTIONS(X)
#undef X
};
struct SparseFunctions {
#define X(name, parameters) int(*name) parameters = nullptr;
  SPARSERTC_CUSPARSE_FUNCTIONS(X)
#undef X
};

/// cublasStatus_t and cusparseStatus_t are 0 on success.
void require(int status, const char* call, const std::string& doing) {
  if (status != 0)
    throw RuntimeError(doing, fmt::format("{} failed with status {}", call, status));
}

// ---- opening -----------------------------------------------------------------------------------

/// Opens the first of: what the variable names; each soname by the loader's own search
/// (LD_LIBRARY_PATH, ld.so.cache); each in the toolkit's folders. Null: `reason` says why.
void* open_library(const char* variable, std::initializer_list<const char*> sonames,
                   std::string& opened, std::string& reason) {
  std::vector<std::string> paths;
  if (const char* chosen = std::getenv(variable); chosen && *chosen) {
    paths.push_back(chosen);
  } else {
    for (const char* soname : sonames)
      paths.push_back(soname);
    for (const char* folder : {"/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib",
                               "/usr/lib/x86_64-linux-gnu"})
      for (const char* soname : sonames)
        paths.push_back(fmt::format("{}/{}", folder, soname));
  }
  for (const std::string& path : paths) {
    // Never closed: its threads and exit handlers do not survive it.
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      struct link_map* map = nullptr;
      opened =
          dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && *map->l_name ? map->l_name : path;
      return handle;
    }
    const char* error = dlerror();
    // The first reason says most; that of a file which exists says more.
    if (reason.empty() || (error && !std::string(error).ends_with("No such file or directory")))
      reason = error ? error : "unknown error";
  }
  reason += fmt::format(" ({} names the library where it is in an unusual place)", variable);
  return nullptr;
}

/// Fills the table; false where a function is missing.
template <class Function>
bool resolve(void* library, const char* name, Function& function, std::string& reason) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function)
    reason = fmt::format("it has no {}", name);
  return function != nullptr;
}

void* pointer(const cuda::DeviceBuffer& buffer) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(buffer.address()));
}

template <class Element>
std::span<const uint8_t> bytes_of(const std::vector<Element>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(Element)};
}

template <class Element>
std::unique_ptr<cuda::DeviceBuffer> upload(const cuda::Context& gpu, const cuda::Stream& stream,
                                           const std::vector<Element>& values) {
  auto buffer = std::make_unique<cuda::DeviceBuffer>(gpu, values.size() * sizeof(Element));
  buffer->upload(bytes_of(values), stream);
  stream.synchronize("copying an operand to the GPU");
  return buffer;
}

/// What is not written stays NaN and misses the check.
std::unique_ptr<cuda::DeviceBuffer> make_result(const cuda::Context& gpu,
                                                const cuda::Stream& stream, uint64_t bytes) {
  auto buffer = std::make_unique<cuda::DeviceBuffer>(gpu, bytes);
  buffer->fill(0xff, stream);
  return buffer;
}

std::vector<float> narrowed(const std::vector<double>& values) {
  return std::vector<float>(values.begin(), values.end());
}

std::vector<double> dense_of(const Matrix& weights) {
  const Pattern& pattern = weights.pattern;
  std::vector<double> dense(size_t{pattern.rows} * pattern.columns, 0.0);
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (uint64_t entry = pattern.row_offset[row]; entry < pattern.row_offset[row + 1]; ++entry)
      dense[size_t{row} * pattern.columns + pattern.column_index[entry]] = weights.values[entry];
  return dense;
}

// ---- cuBLAS ------------------------------------------------------------------------------------

/// Operands that several peers of a layer share.
using SharedBuffer = std::shared_ptr<const cuda::DeviceBuffer>;

struct BlasMode {
  const char* name;
  int type;
  int compute;
  PeerPrecision precision;
};
constexpr BlasMode kBlasModes[] = {
    {"cublas_fp32", kTypeF32, kBlasCompute32, {}},
    // The hardware may cut the low 13 bits off.
    {"cublas_tf32", kTypeF32, kBlasComputeTf32, {0x1p-10, 0x1p-22, 0x1p-24, false}},
    {"cublas_fp16", kTypeF16, kBlasCompute32, {0x1p-11, 0x1p-22, 0x1p-11, true}},
};

class BlasPeer : public GpuPeer {
public:
  BlasPeer(const cuda::Context& gpu, const cuda::Stream& stream, const BlasFunctions& functions,
           BlasHandle handle, const BlasMode& mode, SharedBuffer a, SharedBuffer b,
           const SpmmOperands& shape)
      : stream_(stream), functions_(functions), handle_(handle), mode_(mode), a_(std::move(a)),
        b_(std::move(b)), m_(static_cast<int>(shape.rows)), k_(static_cast<int>(shape.inner)),
        n_(static_cast<int>(shape.columns)),
        c_(make_result(gpu, stream, uint64_t{shape.rows} * shape.columns * element_bytes())) {}

  std::string name() const override { return mode_.name; }
  PeerPrecision precision() const override { return mode_.precision; }

  /// cuBLAS is column-major, where our row-major arrays are their transposes: C' = B' A'.
  void enqueue() override {
    const float one = 1, zero = 0;
    require(functions_.cublasGemmEx(handle_, kBlasNoTranspose, kBlasNoTranspose, n_, m_, k_, &one,
                                    pointer(*b_), mode_.type, n_, pointer(*a_), mode_.type, k_,
                                    &zero, pointer(*c_), mode_.type, n_, mode_.compute,
                                    kBlasDefaultAlgorithm),
            "cublasGemmEx", mode_.name);
  }

  std::vector<double> result() override {
    std::vector<uint8_t> bytes(c_->bytes());
    c_->download(bytes, stream_);
    std::vector<double> values(bytes.size() / element_bytes());
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t bits = 0;
      std::copy_n(&bytes[i * element_bytes()], element_bytes(), reinterpret_cast<uint8_t*>(&bits));
      values[i] = mode_.precision.half ? from_f16(static_cast<uint16_t>(bits)) : from_f32(bits);
    }
    return values;
  }

private:
  size_t element_bytes() const { return mode_.precision.half ? 2 : 4; }

  const cuda::Stream& stream_;
  const BlasFunctions& functions_;
  BlasHandle handle_;
  const BlasMode& mode_;
  SharedBuffer a_, b_;
  int m_, k_, n_;
  std::unique_ptr<cuda::DeviceBuffer> c_;
};

// ---- cuSPARSE ----------------------------------------------------------------------------------

class SparsePeer : public GpuPeer {
public:
  SparsePeer(const cuda::Context& gpu, const cuda::Stream& stream, const SparseFunctions& functions,
             SparseHandle handle, unsigned algorithm, const Matrix& weights, SharedBuffer b,
             const SpmmOperands& shape)
      : stream_(stream), functions_(functions), handle_(handle), algorithm_(algorithm),
        b_(std::move(b)), count_(size_t{shape.rows} * shape.columns),
        c_(make_result(gpu, stream, count_ * sizeof(float))) {
    const Pattern& pattern = weights.pattern;
    offsets_ = upload(gpu, stream,
                      std::vector<int32_t>(pattern.row_offset.begin(), pattern.row_offset.end()));
    index_ = upload(gpu, stream,
                    std::vector<int32_t>(pattern.column_index.begin(), pattern.column_index.end()));
    values_ = upload(gpu, stream, narrowed(weights.values));
    try {
      require(functions.cusparseCreateCsr(&matrix_, pattern.rows, pattern.columns,
                                          static_cast<int64_t>(pattern.nnz()), pointer(*offsets_),
                                          pointer(*index_), pointer(*values_), kSparseIndex32,
                                          kSparseIndex32, kSparseBaseZero, kTypeF32),
              "cusparseCreateCsr", name());
      require(functions.cusparseCreateDnMat(&dense_b_, shape.inner, shape.columns, shape.columns,
                                            pointer(*b_), kTypeF32, kSparseRowOrder),
              "cusparseCreateDnMat", name());
      require(functions.cusparseCreateDnMat(&dense_c_, shape.rows, shape.columns, shape.columns,
                                            pointer(*c_), kTypeF32, kSparseRowOrder),
              "cusparseCreateDnMat", name());
      size_t bytes = 0;
      require(functions.cusparseSpMM_bufferSize(handle_, kSparseNoTranspose, kSparseNoTranspose,
                                                &one_, matrix_, dense_b_, &zero_, dense_c_,
                                                kTypeF32, kSparseAlgorithms[algorithm_], &bytes),
              "cusparseSpMM_bufferSize", name());
      buffer_ = std::make_unique<cuda::DeviceBuffer>(gpu, std::max<size_t>(bytes, 16));
      require(functions.cusparseSpMM_preprocess(
                  handle_, kSparseNoTranspose, kSparseNoTranspose, &one_, matrix_, dense_b_, &zero_,
                  dense_c_, kTypeF32, kSparseAlgorithms[algorithm_], pointer(*buffer_)),
              "cusparseSpMM_preprocess", name());
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~SparsePeer() override { destroy(); }

  std::string name() const override { return fmt::format("cusparse_alg{}", algorithm_ + 1); }
  PeerPrecision precision() const override { return {}; }

  void enqueue() override {
    require(functions_.cusparseSpMM(handle_, kSparseNoTranspose, kSparseNoTranspose, &one_, matrix_,
                                    dense_b_, &zero_, dense_c_, kTypeF32,
                                    kSparseAlgorithms[algorithm_], pointer(*buffer_)),
            "cusparseSpMM", name());
  }

  std::vector<double> result() override {
    std::vector<float> values(count_);
    c_->download({reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(float)},
                 stream_);
    return std::vector<double>(values.begin(), values.end());
  }

private:
  void destroy() {
    if (dense_c_)
      functions_.cusparseDestroyDnMat(dense_c_);
    if (dense_b_)
      functions_.cusparseDestroyDnMat(dense_b_);
    if (matrix_)
      functions_.cusparseDestroySpMat(matrix_);
  }

  const cuda::Stream& stream_;
  const SparseFunctions& functions_;
  SparseHandle handle_;
  unsigned algorithm_;
  const float one_ = 1, zero_ = 0;
  SharedBuffer b_;
  size_t count_;
  std::unique_ptr<cuda::DeviceBuffer> c_, offsets_, index_, values_, buffer_;
  SparseMatrix matrix_ = nullptr;
  DenseMatrix dense_b_ = nullptr, dense_c_ = nullptr;
};

} // namespace

// ---- the libraries -----------------------------------------------------------------------------

struct GpuPeerLibraries::Libraries {
  const cuda::Context& gpu;
  const cuda::Stream& stream;
  BlasFunctions blas;
  SparseFunctions sparse;
  BlasHandle blas_handle = nullptr;
  SparseHandle sparse_handle = nullptr;
  /// cuBLAS's own workspace must not be taken while a graph is recorded.
  std::unique_ptr<cuda::DeviceBuffer> blas_workspace;

  void open_blas(std::string& found) {
    std::string path, reason;
    void* library =
        open_library("SPARSERTC_LIBCUBLAS", {"libcublas.so.13", "libcublas.so.12"}, path, reason);
    if (!library)
      throw RuntimeError("opening cuBLAS", reason);
#define X(name, parameters)                                                                        \
  if (!resolve(library, #name, blas.name, reason))                                                 \
    throw RuntimeError("opening cuBLAS", reason);
    SPARSERTC_CUBLAS_FUNCTIONS(X)
#undef X
    const std::string doing = "starting cuBLAS";
    require(blas.cublasCreate_v2(&blas_handle), "cublasCreate", doing);
    require(blas.cublasSetStream_v2(blas_handle, stream.handle()), "cublasSetStream", doing);
    constexpr size_t bytes = size_t{32} << 20; // what NVIDIA recommends for sm_90
    blas_workspace = std::make_unique<cuda::DeviceBuffer>(gpu, bytes);
    require(blas.cublasSetWorkspace_v2(blas_handle, pointer(*blas_workspace), bytes),
            "cublasSetWorkspace", doing);
    int version = 0;
    require(blas.cublasGetVersion_v2(blas_handle, &version), "cublasGetVersion", doing);
    found = fmt::format("cuBLAS {} ({})", version, path);
  }

  void open_sparse(std::string& found) {
    std::string path, reason;
    void* library = open_library("SPARSERTC_LIBCUSPARSE",
                                 {"libcusparse.so.12", "libcusparse.so.13"}, path, reason);
    if (!library)
      throw RuntimeError("opening cuSPARSE", reason);
#define X(name, parameters)                                                                        \
  if (!resolve(library, #name, sparse.name, reason))                                               \
    throw RuntimeError("opening cuSPARSE", reason);
    SPARSERTC_CUSPARSE_FUNCTIONS(X)
#undef X
    const std::string doing = "starting cuSPARSE";
    require(sparse.cusparseCreate(&sparse_handle), "cusparseCreate", doing);
    require(sparse.cusparseSetStream(sparse_handle, stream.handle()), "cusparseSetStream", doing);
    int version = 0;
    require(sparse.cusparseGetVersion(sparse_handle, &version), "cusparseGetVersion", doing);
    found = fmt::format("cuSPARSE {} ({})", version, path);
  }

  ~Libraries() {
    if (blas_handle)
      blas.cublasDestroy_v2(blas_handle);
    if (sparse_handle)
      sparse.cusparseDestroy(sparse_handle);
  }
};

GpuPeerLibraries::GpuPeerLibraries(const cuda::Context& gpu, const cuda::Stream& stream)
    : libraries_(new Libraries{gpu, stream, {}, {}, nullptr, nullptr, nullptr}) {
  const auto open = [&](void (Libraries::*one)(std::string&)) {
    try {
      std::string found;
      (*libraries_.*one)(found);
      found_.push_back(found);
    } catch (const RuntimeError& error) {
      missing_.push_back(error.what());
    }
  };
  open(&Libraries::open_blas);
  if (found_.empty() && libraries_->blas_handle) {
    libraries_->blas.cublasDestroy_v2(libraries_->blas_handle);
    libraries_->blas_handle = nullptr;
  }
  const size_t before = missing_.size();
  open(&Libraries::open_sparse);
  if (missing_.size() > before && libraries_->sparse_handle) {
    libraries_->sparse.cusparseDestroy(libraries_->sparse_handle);
    libraries_->sparse_handle = nullptr;
  }
}

GpuPeerLibraries::~GpuPeerLibraries() = default;

std::vector<std::unique_ptr<GpuPeer>>
GpuPeerLibraries::prepare(const Matrix& weights, const SpmmOperands& operands,
                          std::vector<std::string>& refused) const {
  const Libraries& own = *libraries_;
  std::vector<std::unique_ptr<GpuPeer>> peers;
  const auto add = [&](auto&& make) {
    try {
      peers.push_back(make());
    } catch (const RuntimeError& error) {
      refused.push_back(error.what());
    }
  };
  const SharedBuffer b = upload(own.gpu, own.stream, narrowed(operands.b));
  if (own.blas_handle) {
    const std::vector<double> dense = dense_of(weights);
    const SharedBuffer a = upload(own.gpu, own.stream, narrowed(dense));
    const auto halves = [&](const std::vector<double>& values) -> SharedBuffer {
      std::vector<uint16_t> bits(values.size());
      std::transform(values.begin(), values.end(), bits.begin(), to_f16);
      return upload(own.gpu, own.stream, bits);
    };
    const SharedBuffer half_a = halves(dense), half_b = halves(operands.b);
    for (const BlasMode& mode : kBlasModes)
      add([&] {
        const bool half = mode.precision.half;
        return std::make_unique<BlasPeer>(own.gpu, own.stream, own.blas, own.blas_handle, mode,
                                          half ? half_a : a, half ? half_b : b, operands);
      });
  }
  if (own.sparse_handle)
    for (unsigned algorithm = 0; algorithm < std::size(kSparseAlgorithms); ++algorithm)
      add([&] {
        return std::make_unique<SparsePeer>(own.gpu, own.stream, own.sparse, own.sparse_handle,
                                            algorithm, weights, b, operands);
      });
  return peers;
}

// ---- checking ----------------------------------------------------------------------------------

DenseReference multiply_in_f64(const Matrix& weights, const SpmmOperands& operands,
                               TaskPool& pool) {
  const Pattern& pattern = weights.pattern;
  const size_t columns = operands.columns;
  DenseReference reference;
  reference.product.assign(size_t{pattern.rows} * columns, 0.0);
  reference.magnitude.assign(reference.product.size(), 0.0);
  pool.run(pattern.rows, [&](uint64_t row) {
    double* product = &reference.product[row * columns];
    double* magnitude = &reference.magnitude[row * columns];
    for (uint64_t entry = pattern.row_offset[row]; entry < pattern.row_offset[row + 1]; ++entry) {
      const double weight = static_cast<float>(weights.values[entry]);
      const double* b = &operands.b[size_t{pattern.column_index[entry]} * columns];
      for (size_t column = 0; column < columns; ++column) {
        product[column] += weight * b[column];
        magnitude[column] += std::abs(weight * b[column]);
      }
    }
  });
  return reference;
}

std::string check_peer(const GpuPeer& peer, const std::vector<double>& result,
                       const Matrix& weights, const SpmmOperands& operands,
                       const DenseReference& reference) {
  const PeerPrecision precision = peer.precision();
  const double from_inputs = 2 * precision.input + precision.input * precision.input;
  for (uint32_t row = 0; row < operands.rows; ++row) {
    const double terms = weights.pattern.row_length(row) + 2.0;
    const double from_sums = 2 * terms * precision.sum / (1 - terms * precision.sum);
    const double absolute = precision.half ? terms * 0x1p-24 : terms * 0x1p-149;
    for (uint32_t column = 0; column < operands.columns; ++column) {
      const size_t i = size_t{row} * operands.columns + column;
      const double expected = reference.product[i];
      double bound = (from_inputs + from_sums) * reference.magnitude[i] + absolute;
      bound += precision.output * (std::abs(expected) + bound);
      if (!(std::abs(result[i] - expected) <= bound))
        return fmt::format("{}: element ({}, {}): expected {:.9g}, found {:.9g}, bound {:.3g}",
                           peer.name(), row, column, expected, result[i], bound);
    }
  }
  return {};
}

} // namespace sparsertc
