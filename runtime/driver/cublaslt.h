// Dense products by cuBLASLt, the part of cuBLAS whose calls name stream and workspace, so that
// several threads may use one handle: opened at run time where it is installed.
#pragma once

#include "runtime/driver/cublaslt_api.h"
#include "runtime/driver/cuda_objects.h"

#include <cstdint>
#include <memory>
#include <string>

namespace sparsertc::cuda {

class CublasLt {
public:
  /// Opens libcublasLt.so.13 or .12, or the file that SPARSERTC_LIBCUBLASLT names. Throws
  /// RuntimeError where it is not there, or lacks a function that we need.
  static std::shared_ptr<const CublasLt> open();

  /// The same for functions that come from elsewhere; all must be present.
  explicit CublasLt(const CublasLtTable& table);

  /// "cuBLASLt 13.1.0".
  std::string identity() const;
  const CublasLtTable& api() const { return table_; }

private:
  CublasLtTable table_;
};

/// D = act(A * B + C): A is M x K, B is K x N, C and D are M x N.
struct DenseShape {
  enum class Type : uint8_t { f32, f16, bf16, f64 };
  uint64_t m = 0, n = 0, k = 0;
  Type type = Type::f32;
  bool tf32 = false; ///< of f32: products of 10 bits of the fraction
  /// A as an array of k rows with `lda` elements each, row i of A at place i of all of them.
  uint64_t lda = 0;
  bool column_major = false; ///< B, C and D
  uint64_t ldb = 0, ldc = 0; ///< elements; ldc of C and D
  uint32_t alignment = 1;    ///< of B, C and D, bytes
  bool adds = false;         ///< C is added
  bool relu = false;
};

/// A product that the library has chosen an algorithm for. Sums of f16 and bf16 are kept in f32,
/// also those of parts of K.
class DenseProduct {
public:
  /// What NVIDIA recommends for Hopper.
  static constexpr uint64_t kUsualWorkspace = uint64_t{32} << 20;

  /// The context must be current. The algorithm takes at most so many bytes of workspace. Throws
  /// RuntimeError where the library refuses.
  DenseProduct(std::shared_ptr<const CublasLt> library, const DenseShape& shape,
               uint64_t most_workspace = kUsualWorkspace);
  ~DenseProduct();
  DenseProduct(const DenseProduct&) = delete;
  DenseProduct& operator=(const DenseProduct&) = delete;

  /// Device memory that every execution under way needs for itself, aligned to 256 bytes.
  uint64_t workspace_bytes() const { return chosen_.workspace_bytes; }
  /// Enqueues the product. `c` is read where it is added. Throws RuntimeError.
  void enqueue(DeviceAddress a, DeviceAddress b, DeviceAddress c, DeviceAddress d,
               DeviceAddress workspace, StreamHandle stream) const;
  const CublasLt& library() const { return *library_; }

private:
  void make(uint64_t most_workspace);
  void destroy();

  std::shared_ptr<const CublasLt> library_;
  DenseShape shape_;
  BlasHandle handle_ = nullptr;
  BlasMatmul matmul_ = nullptr;
  BlasLayout first_ = nullptr, second_ = nullptr, out_ = nullptr;
  BlasPreference preference_ = nullptr;
  BlasHeuristic chosen_;
};

} // namespace sparsertc::cuda
