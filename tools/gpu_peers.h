// The GPU libraries that `bench` compares with: cuBLAS on the dense matrix, cuSPARSE on the same
// pattern. Both are opened at run time where present, through declarations of our own of the few
// calls that are made; nothing is linked.
#pragma once

#include "compiler/input/matrix.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/host/task_pool.h"
#include "tools/spmm_operands.h"

#include <memory>
#include <string>
#include <vector>

namespace sparsertc {

/// How precise a rival's arithmetic is: A and B are rounded to `input` (unit roundoff), sums are
/// kept with `sum`, C is rounded to `output`.
struct PeerPrecision {
  double input = 0;
  double sum = 0x1p-24;
  double output = 0x1p-24;
  bool half = false; ///< inputs and output are f16, with its subnormals
};

/// One way of a library to compute C = A * B for one layer.
class GpuPeer {
public:
  virtual ~GpuPeer() = default;
  /// "cublas_fp32", "cublas_tf32", "cublas_fp16", "cusparse_alg1" to 3.
  virtual std::string name() const = 0;
  virtual PeerPrecision precision() const = 0;
  /// Enqueues one product on the stream that the peers were made for. Throws RuntimeError.
  virtual void enqueue() = 0;
  /// C as float64, M x N, row-major, of the last product; waits.
  virtual std::vector<double> result() = 0;
};

/// The libraries, open. One for a process; it must outlive the peers.
class GpuPeerLibraries {
public:
  GpuPeerLibraries(const cuda::Context& gpu, const cuda::Stream& stream);
  ~GpuPeerLibraries();
  GpuPeerLibraries(const GpuPeerLibraries&) = delete;
  GpuPeerLibraries& operator=(const GpuPeerLibraries&) = delete;

  /// "cuBLAS 13.1.0 (libcublas.so.13)", one for each library found.
  const std::vector<std::string>& found() const { return found_; }
  /// Why a library does not take part.
  const std::vector<std::string>& missing() const { return missing_; }

  /// A peer for each way that the libraries offer; f32 operands. What a library refuses is left out
  /// and the reason added to `refused`.
  std::vector<std::unique_ptr<GpuPeer>> prepare(const Matrix& weights, const SpmmOperands& operands,
                                                std::vector<std::string>& refused) const;

private:
  struct Libraries;
  std::unique_ptr<Libraries> libraries_;
  std::vector<std::string> found_, missing_;
};

/// C in float64 and what bounds are made of.
struct DenseReference {
  std::vector<double> product;   ///< sum_k a_ik b_kj, M x N, row-major
  std::vector<double> magnitude; ///< sum_k |a_ik b_kj|
};
DenseReference multiply_in_f64(const Matrix& weights, const SpmmOperands& operands, TaskPool& pool);

/// Checks a peer's C. With S the magnitude, t the row's entries + 2, u_i, u_s, u_o the roundoffs of
/// inputs, sums and output, an element may differ by
///
///   E = (2 u_i + u_i^2) S + 2 g(t) S,   and with its own rounding  E + u_o (|y| + E)
///
/// (half: plus t 2^-24 for subnormal inputs and outputs). 2 g because tensor cores truncate.
/// Returns what is wrong, or nothing.
std::string check_peer(const GpuPeer& peer, const std::vector<double>& result,
                       const Matrix& weights, const SpmmOperands& operands,
                       const DenseReference& reference);

} // namespace sparsertc
