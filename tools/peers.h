// The libraries that `bench` compares with: OpenBLAS on the dense matrix and Eigen's sparse
// product. Both are optional. OpenBLAS is opened at run time, so the command runs on machines
// without it.
#pragma once

#include "compiler/input/matrix.h"
#include "compiler/inspect/convolution.h"
#include "runtime/host/task_pool.h"

#include <cstdint>
#include <memory>
#include <string>

namespace sparsertc {

/// C = A * B in f32, row-major and tight, A fixed.
class Peer {
public:
  virtual ~Peer() = default;
  /// C (M x N) is overwritten.
  virtual void multiply(const float* b, float* c, uint32_t columns) = 0;
  /// True where the library's threads go on spinning after a call, so that others' times would
  /// suffer without a pause.
  virtual bool leaves_threads_spinning() const { return false; }
};

/// sgemm, or sgemv for one column, of the dense matrix; nothing where OpenBLAS is not installed.
std::unique_ptr<Peer> make_openblas(const Matrix& weights, unsigned threads);
/// Row-major sparse times row-major dense; the rows are dealt to the pool's threads in parts of
/// about equal work, since Eigen itself uses one. Nothing where the command was built without
/// Eigen.
std::unique_ptr<Peer> make_eigen(const Matrix& weights, TaskPool& pool);

/// A convolution of NCHW images as a product: `columns` are images, each unfolded by the pool's
/// threads into a matrix of IC*R*S rows (padding is 0), which `product`, a peer of the filters,
/// multiplies. With one tap and stride 1 nothing is unfolded.
std::unique_ptr<Peer> make_unfolded(std::unique_ptr<Peer> product, const Convolution& convolution,
                                    uint32_t filters, TaskPool& pool);

} // namespace sparsertc
