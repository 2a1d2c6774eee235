#include "tests/support/cusolver_rf_reference.h"

#include "ir/error.h"
#include "runtime/driver/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace sparsertc::test {
namespace {

using Handle = void*;

/// The functions of cusolverRf.h (CUDA 11 to 13) that are used here.
struct Api {
  int (*create)(Handle*);
  int (*destroy)(Handle);
  int (*set_matrix_format)(Handle, int format, int diagonal);
  int (*set_algorithms)(Handle, int factorization, int solve);
  int (*set_fast_mode)(Handle, int on);
  int (*setup)(int n, int nnz_a, int* row_a, int* column_a, double* value_a, int nnz_l, int* row_l,
               int* column_l, double* value_l, int nnz_u, int* row_u, int* column_u,
               double* value_u, int* p, int* q, Handle);
  int (*analyze)(Handle);
  int (*reset_values)(int n, int nnz, int* row, int* column, double* value, int* p, int* q, Handle);
  int (*refactor)(Handle);
  int (*solve)(Handle, int* p, int* q, int right_sides, double* temporary, int temporary_stride,
               double* x, int stride);

  static const Api& get() {
    static const Api api;
    return api;
  }

private:
  Api() {
    const cuda::Library library =
        cuda::Library::open({"cuSOLVER",
                             "SPARSERTC_CUSOLVER",
                             {"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so"}});
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(
          library.find(name, "cuSOLVER of CUDA 11 to 13"));
    };
    find(create, "cusolverRfCreate");
    find(destroy, "cusolverRfDestroy");
    find(set_matrix_format, "cusolverRfSetMatrixFormat");
    find(set_algorithms, "cusolverRfSetAlgs");
    find(set_fast_mode, "cusolverRfSetResetValuesFastMode");
    find(setup, "cusolverRfSetupHost");
    find(analyze, "cusolverRfAnalyze");
    find(reset_values, "cusolverRfResetValues");
    find(refactor, "cusolverRfRefactor");
    find(solve, "cusolverRfSolve");
  }
};

void require(int status, const char* call) {
  if (status != 0)
    throw RuntimeError(fmt::format("cusolverRf, {}", call), fmt::format("status {}", status),
                       "bench without --rf");
}

/// Rows of entries that are added column by column, so that each row's columns ascend.
struct Rows {
  std::vector<int> offset, column;
  std::vector<double> value;

  template <class ForEach>
  Rows(uint32_t size, const ForEach& for_each) : offset(size + 1, 0) {
    for_each([&](uint32_t row, uint32_t, double) { ++offset[row + 1]; });
    for (uint32_t i = 0; i < size; ++i)
      offset[i + 1] += offset[i];
    column.resize(static_cast<size_t>(offset[size]));
    value.resize(column.size());
    std::vector<int> next(offset.begin(), offset.end() - 1);
    for_each([&](uint32_t row, uint32_t j, double v) {
      const auto place = static_cast<size_t>(next[row]++);
      column[place] = static_cast<int>(j);
      value[place] = v;
    });
  }
  int nnz() const { return static_cast<int>(column.size()); }
};

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
T* pointer(const cuda::DeviceBuffer& buffer) {
  return reinterpret_cast<T*>(buffer.address());
}

/// Diagonals of ones in L are not stored.
constexpr int kCsr = 0, kUnitDiagonalAssumed = 2;

} // namespace

struct CusolverRfReference::Implementation {
  const cuda::Context& context;
  cuda::Stream stream; // the library works on the default one
  int size;
  Handle handle = nullptr;
  cuda::DeviceBuffer row, column, value, identity, right, temporary;
  int nnz;

  Implementation(const cuda::Context& of, int n, const Rows& b, const std::vector<int>& order)
      : context(of), stream(of, nullptr), size(n), row(of, bytes_of(b.offset).size()),
        column(of, bytes_of(b.column).size()), value(of, bytes_of(b.value).size()),
        identity(of, bytes_of(order).size()), right(of, static_cast<uint64_t>(n) * sizeof(double)),
        temporary(of, static_cast<uint64_t>(n) * sizeof(double)), nnz(b.nnz()) {
    row.upload(bytes_of(b.offset), stream);
    column.upload(bytes_of(b.column), stream);
    value.upload(bytes_of(b.value), stream);
    identity.upload(bytes_of(order), stream);
    stream.synchronize();
  }
};

CusolverRfReference::CusolverRfReference() = default;
CusolverRfReference::~CusolverRfReference() {
  if (implementation_ != nullptr && implementation_->handle != nullptr)
    Api::get().destroy(implementation_->handle);
}

std::unique_ptr<CusolverRfReference> CusolverRfReference::make(const cuda::Context& context,
                                                               const LuTables& t,
                                                               std::span<const double> values,
                                                               std::span<const double> factors,
                                                               int algorithm) {
  const Api& api = Api::get();
  Rows b(t.size, [&](const auto& add) {
    for (uint32_t j = 0; j < t.size; ++j)
      for (uint64_t p = t.input_offset[j]; p < t.input_offset[j + 1]; ++p)
        add(t.input_row[p], j,
            values[t.input_source[p]] * (t.input_scale.empty() ? 1.0 : t.input_scale[p]));
  });
  // L' D U with the reciprocal pivots in the diagonal: L = L' D.
  Rows lower(t.size, [&](const auto& add) {
    for (uint32_t j = 0; j < t.size; ++j)
      for (uint64_t p = t.diagonal[j] + 1; p < t.column_offset[j + 1]; ++p)
        add(t.row_index[p], j, factors[p] * factors[t.diagonal[j]]);
  });
  Rows upper(t.size, [&](const auto& add) {
    for (uint32_t j = 0; j < t.size; ++j)
      for (uint64_t p = t.column_offset[j]; p <= t.diagonal[j]; ++p)
        add(t.row_index[p], j, p == t.diagonal[j] ? 1 / factors[p] : factors[p]);
  });
  std::vector<int> order(t.size);
  for (uint32_t i = 0; i < t.size; ++i)
    order[i] = static_cast<int>(i);

  std::unique_ptr<CusolverRfReference> result(new CusolverRfReference);
  const int n = static_cast<int>(t.size);
  result->implementation_ = std::make_unique<Implementation>(context, n, b, order);
  Handle& handle = result->implementation_->handle;
  require(api.create(&handle), "create");
  require(api.set_matrix_format(handle, kCsr, kUnitDiagonalAssumed), "format");
  require(api.set_algorithms(handle, algorithm, 1), "algorithms");
  require(api.set_fast_mode(handle, 1), "fast mode");
  require(api.setup(n, b.nnz(), b.offset.data(), b.column.data(), b.value.data(), lower.nnz(),
                    lower.offset.data(), lower.column.data(), lower.value.data(), upper.nnz(),
                    upper.offset.data(), upper.column.data(), upper.value.data(), order.data(),
                    order.data(), handle),
          "setup");
  require(api.analyze(handle), "analysis");
  result->refactor();
  return result;
}

void CusolverRfReference::refactor() {
  const Api& api = Api::get();
  Implementation& own = *implementation_;
  require(api.reset_values(own.size, own.nnz, pointer<int>(own.row), pointer<int>(own.column),
                           pointer<double>(own.value), pointer<int>(own.identity),
                           pointer<int>(own.identity), own.handle),
          "new values");
  require(api.refactor(own.handle), "refactorization");
  own.stream.synchronize("cusolverRf");
}

void CusolverRfReference::solve(std::vector<double>& c) {
  Implementation& own = *implementation_;
  const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(c.data()), c.size() * sizeof(double));
  own.right.upload(bytes, own.stream);
  require(Api::get().solve(own.handle, pointer<int>(own.identity), pointer<int>(own.identity), 1,
                           pointer<double>(own.temporary), own.size, pointer<double>(own.right),
                           own.size),
          "solve");
  own.right.download(bytes, own.stream);
}

} // namespace sparsertc::test
