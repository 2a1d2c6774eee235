#include "tools/peers.h"

#include <dlfcn.h>

#if SPARSERTC_HAVE_EIGEN
#include <Eigen/Core>
#include <Eigen/SparseCore>
#endif

#include <vector>

namespace sparsertc {
namespace {

// The C interface of BLAS (cblas.h), as OpenBLAS exports it with 32-bit integers.
constexpr int kRowMajor = 101;
constexpr int kNoTranspose = 111;
using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                       float alpha, const float* a, int lda, const float* b, int ldb, float beta,
                       float* c, int ldc);
using Sgemv = void (*)(int order, int transpose, int m, int n, float alpha, const float* a, int lda,
                       const float* x, int step_x, float beta, float* y, int step_y);
using SetThreads = void (*)(int threads);

struct OpenBlasFunctions {
  Sgemm sgemm = nullptr;
  Sgemv sgemv = nullptr;
  SetThreads set_threads = nullptr;
  bool complete() const { return sgemm != nullptr && sgemv != nullptr && set_threads != nullptr; }
};

OpenBlasFunctions open_openblas() {
  OpenBlasFunctions functions;
  // Stays open: its threads outlive every use.
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return functions;
  functions.sgemm = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
  functions.sgemv = reinterpret_cast<Sgemv>(dlsym(library, "cblas_sgemv"));
  functions.set_threads = reinterpret_cast<SetThreads>(dlsym(library, "openblas_set_num_threads"));
  return functions;
}

class OpenBlas : public Peer {
public:
  OpenBlas(const OpenBlasFunctions& functions, const Matrix& weights, unsigned threads)
      : functions_(functions), rows_(weights.pattern.rows), inner_(weights.pattern.columns),
        dense_(size_t{rows_} * inner_, 0.0f) {
    functions_.set_threads(static_cast<int>(threads));
    for (uint32_t row = 0; row < rows_; ++row)
      for (uint64_t entry = weights.pattern.row_offset[row];
           entry < weights.pattern.row_offset[row + 1]; ++entry)
        dense_[size_t{row} * inner_ + weights.pattern.column_index[entry]] =
            static_cast<float>(weights.values[entry]);
  }

  void multiply(const float* b, float* c, uint32_t columns) override {
    const int m = static_cast<int>(rows_), k = static_cast<int>(inner_);
    const int n = static_cast<int>(columns);
    if (n == 1)
      functions_.sgemv(kRowMajor, kNoTranspose, m, k, 1.0f, dense_.data(), k, b, 1, 0.0f, c, 1);
    else
      functions_.sgemm(kRowMajor, kNoTranspose, kNoTranspose, m, n, k, 1.0f, dense_.data(), k, b, n,
                       0.0f, c, n);
  }
  bool leaves_threads_spinning() const override { return true; }

private:
  OpenBlasFunctions functions_;
  uint32_t rows_, inner_;
  std::vector<float> dense_;
};

#if SPARSERTC_HAVE_EIGEN
class EigenSparse : public Peer {
public:
  using Sparse = Eigen::SparseMatrix<float, Eigen::RowMajor>;
  using Dense = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  EigenSparse(const Matrix& weights, TaskPool& pool) : pool_(pool) {
    const Pattern& pattern = weights.pattern;
    const uint64_t parts = pool.threads();
    first_row_.push_back(0);
    uint32_t row = 0;
    for (uint64_t part = 0; part < parts; ++part) {
      const uint32_t begin = row;
      while (row < pattern.rows &&
             (part + 1 == parts || pattern.row_offset[row] * parts < pattern.nnz() * (part + 1)))
        ++row;
      parts_.push_back(rows_of(weights, begin, row));
      first_row_.push_back(row);
    }
  }

  void multiply(const float* b, float* c, uint32_t columns) override {
    pool_.run(parts_.size(), [&](uint64_t part) {
      const Sparse& a = parts_[part];
      float* target = c + size_t{first_row_[part]} * columns;
      if (columns == 1) {
        const Eigen::Map<const Eigen::VectorXf> x(b, a.cols());
        Eigen::Map<Eigen::VectorXf> y(target, a.rows());
        y.noalias() = a * x;
        return;
      }
      const Eigen::Map<const Dense> x(b, a.cols(), columns);
      Eigen::Map<Dense> y(target, a.rows(), columns);
      y.noalias() = a * x;
    });
  }

private:
  static Sparse rows_of(const Matrix& weights, uint32_t begin, uint32_t end) {
    std::vector<Eigen::Triplet<float>> entries;
    for (uint32_t row = begin; row < end; ++row)
      for (uint64_t entry = weights.pattern.row_offset[row];
           entry < weights.pattern.row_offset[row + 1]; ++entry)
        entries.emplace_back(static_cast<int>(row - begin),
                             static_cast<int>(weights.pattern.column_index[entry]),
                             static_cast<float>(weights.values[entry]));
    Sparse matrix(end - begin, weights.pattern.columns);
    matrix.setFromTriplets(entries.begin(), entries.end());
    return matrix;
  }

  TaskPool& pool_;
  std::vector<Sparse> parts_;
  std::vector<uint32_t> first_row_;
};
#endif

class Unfolded : public Peer {
public:
  Unfolded(std::unique_ptr<Peer> product, const Convolution& convolution, uint32_t filters,
           TaskPool& pool)
      : product_(std::move(product)), convolution_(convolution), filters_(filters), pool_(pool) {
    if (!convolution.is_pointwise())
      unfolded_.resize(size_t{convolution.channels} * convolution.filter_height *
                       convolution.filter_width * convolution.out_pixels());
  }

  void multiply(const float* b, float* c, uint32_t images) override {
    const uint64_t pixels = convolution_.out_pixels();
    for (uint32_t image = 0; image < images; ++image) {
      const float* from = b + image * convolution_.channels * convolution_.in_pixels();
      if (!unfolded_.empty()) {
        unfold(from);
        from = unfolded_.data();
      }
      product_->multiply(from, c + image * filters_ * pixels, static_cast<uint32_t>(pixels));
    }
  }
  bool leaves_threads_spinning() const override { return product_->leaves_threads_spinning(); }

private:
  void unfold(const float* image) {
    const Convolution& conv = convolution_;
    const uint32_t taps = conv.filter_height * conv.filter_width;
    pool_.run(conv.channels, [&](uint64_t channel) {
      const float* plane = image + channel * conv.in_pixels();
      float* to = unfolded_.data() + channel * taps * conv.out_pixels();
      for (uint32_t r = 0; r < conv.filter_height; ++r)
        for (uint32_t s = 0; s < conv.filter_width; ++s)
          for (uint32_t row = 0; row < conv.out_height(); ++row) {
            const int64_t y = int64_t{row} * conv.stride_h + r * conv.dilation_h - conv.pad_top;
            for (uint32_t column = 0; column < conv.out_width(); ++column) {
              const int64_t x =
                  int64_t{column} * conv.stride_w + s * conv.dilation_w - conv.pad_left;
              const bool inside = y >= 0 && y < conv.height && x >= 0 && x < conv.width;
              *to++ = inside ? plane[y * conv.width + x] : 0.0f;
            }
          }
    });
  }

  std::unique_ptr<Peer> product_;
  Convolution convolution_;
  uint32_t filters_;
  TaskPool& pool_;
  std::vector<float> unfolded_;
};

} // namespace

std::unique_ptr<Peer> make_unfolded(std::unique_ptr<Peer> product, const Convolution& convolution,
                                    uint32_t filters, TaskPool& pool) {
  return std::make_unique<Unfolded>(std::move(product), convolution, filters, pool);
}

std::unique_ptr<Peer> make_openblas(const Matrix& weights, unsigned threads) {
  static const OpenBlasFunctions functions = open_openblas();
  if (!functions.complete())
    return nullptr;
  return std::make_unique<OpenBlas>(functions, weights, threads);
}

#if SPARSERTC_HAVE_EIGEN
std::unique_ptr<Peer> make_eigen(const Matrix& weights, TaskPool& pool) {
  return std::make_unique<EigenSparse>(weights, pool);
}
#else
std::unique_ptr<Peer> make_eigen(const Matrix&, TaskPool&) {
  return nullptr;
}
#endif

} // namespace sparsertc
