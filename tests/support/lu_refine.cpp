#include "tests/support/lu_refine.h"

#include "compiler/emit/ptx.h"
#include "compiler/lower/lu_refine.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <string>
#include <type_traits>

namespace sparsertc::test {
namespace {

constexpr uint32_t kSides = 3;

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::span<uint8_t> bytes_of(std::vector<T>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)};
}

/// The largest |b - A x| / (|A| |x| + |b|) of a row.
template <class V>
double componentwise_error(const lu::MatrixView<V>& a, std::span<const V> b, std::span<const V> x,
                           bool transposed) {
  std::vector<V> r(b.begin(), b.end());
  std::vector<double> scale(b.size());
  for (size_t i = 0; i < b.size(); ++i)
    scale[i] = std::abs(b[i]);
  for (uint32_t i = 0; i < a.size; ++i)
    for (uint64_t p = a.row_offset[i]; p < a.row_offset[i + 1]; ++p) {
      const uint32_t j = a.column_index[p];
      const uint32_t to = transposed ? j : i, from = transposed ? i : j;
      r[to] -= a.values[p] * x[from];
      scale[to] += std::abs(a.values[p]) * std::abs(x[from]);
    }
  double worst = 0;
  for (size_t i = 0; i < b.size(); ++i)
    if (std::abs(r[i]) > 0)
      worst = std::max(worst, std::abs(r[i]) / scale[i]);
  return worst;
}

template <class V>
V random_number(Random& random) {
  const double re = random.symmetric();
  if constexpr (lu::ScalarTraits<V>::kComplex)
    return {re, random.symmetric()};
  else
    return re;
}

} // namespace

template <class T, class X>
RefineOnDevice<T, X>::RefineOnDevice(const cuda::Context& context, const LuTables& tables,
                                     uint32_t threads, uint32_t block_threads)
    : factors_(context, tables, threads, kSides, block_threads) {
  LuRefineOptions options;
  options.complex = lu::ScalarTraits<T>::kComplex;
  options.single_solution = std::is_same_v<lu::Real<X>, float>;
  const std::string ptx = emit_ptx(make_lu_refine_kernels(options), find_target("sm_80"));
  lu::GpuRefineCode code;
  code.image = {reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()};
  code.begin = kLuRefineBegin;
  code.update = kLuRefineUpdate;
  code.residual = kLuRefineResidual;
  code.decide = kLuRefineDecide;
  code.end = kLuRefineEnd;
  code.threads = kLuRefineThreads;
  code.single_solution = options.single_solution;
  refinement_ = std::make_unique<lu::GpuRefinement>(context, code, factors_.plan());
  workspace_ = std::make_unique<lu::GpuRefineWorkspace>(context, factors_.plan(), kSides);
  factors_.vectors().fill(0xFF, factors_.stream());
}

template <class T, class X>
void RefineOnDevice<T, X>::enqueue(uint32_t right_sides, bool transposed,
                                   const lu::RefineOptions& options) {
  const cuda::DeviceAddress vectors = factors_.vectors().address();
  refinement_->solve(factors_.workspace(), *workspace_, factors_.matrix().address(), vectors,
                     vectors, right_sides, transposed, factors_.stream(), options);
}

template <class T, class X>
std::vector<lu::Wide<T>> RefineOnDevice<T, X>::solve(const std::vector<V>& values, std::vector<V> b,
                                                     uint32_t right_sides, bool transposed,
                                                     const lu::RefineOptions& options) {
  factors_.matrix().upload(bytes_of(values), factors_.stream());
  factors_.vectors().upload(bytes_of(b), factors_.stream());
  enqueue(right_sides, transposed, options);
  factors_.vectors().download(bytes_of(b), factors_.stream());
  return b;
}

template <class T, class X>
void check_refinement(const cuda::Context& context, const Pattern& pattern, Random& random,
                      bool scaled, uint32_t threads, uint32_t block_threads) {
  using V = lu::Wide<T>;
  const uint32_t n = pattern.rows;
  const LuTables tables = tables_in_order(pattern, scaled ? &random : nullptr);
  const std::vector<V> a = dominant_values<V>(pattern, random);
  std::vector<V> near = a;
  for (V& value : near)
    value *= 1 + 1e-3 * random.symmetric();
  RefineOnDevice<T, X> device(context, tables, threads, block_threads);
  lu::Factors<T> on_cpu(tables);
  const lu::FactorStatus status = on_cpu.refactor_rounded(near);
  if (status.outcome != lu::FactorOutcome::ok || status.perturbed > 0)
    return; // without a diagonal
  REQUIRE(device.refactor(near).outcome == lu::FactorOutcome::ok);

  std::vector<V> b(uint64_t{n} * kSides, V(0));
  for (uint32_t i = 0; i < 2 * n; ++i)
    b[i] = random_number<V>(random);
  uint64_t terms = 2;
  std::vector<uint64_t> column(n, 0);
  for (uint32_t i = 0; i < n; ++i) {
    terms = std::max(terms, pattern.row_offset[i + 1] - pattern.row_offset[i] + 2);
    for (uint64_t p = pattern.row_offset[i]; p < pattern.row_offset[i + 1]; ++p)
      terms = std::max(terms, ++column[pattern.column_index[p]] + 2);
  }
  const lu::MatrixView<V> view{n, pattern.row_offset, pattern.column_index, a};
  lu::RefineOptions options;
  options.maximum_steps = 8;
  // Rounding: of the residual as it is computed, twice (here and there), and of the solution.
  constexpr double kRoundoff = lu::unit_roundoff<double>();
  constexpr double kOfSolution = lu::unit_roundoff<X>();
  const double noise = (lu::ScalarTraits<V>::kComplex ? 8 : 2) * static_cast<double>(terms);
  // So that the end does not hang on how roundings fall.
  options.target = noise * kOfSolution;
  for (const bool transposed : {false, true}) {
    const std::vector<V> x = device.solve(a, b, kSides, transposed, options);
    const std::vector<lu::RefineResult> results = device.results(kSides);
    REQUIRE(results.size() == kSides);
    for (uint32_t side = 0; side < kSides; ++side) {
      INFO("transposed " << transposed << ", right-hand side " << side);
      const std::span<const V> right = std::span<const V>(b).subspan(uint64_t{side} * n, n);
      const std::span<const V> found = std::span<const V>(x).subspan(uint64_t{side} * n, n);
      std::vector<X> expected(n);
      const lu::RefineResult host =
          lu::solve_refined<T, X>(on_cpu, view, right, std::span<X>(expected), transposed, options);
      const lu::RefineResult& result = results[side];
      CHECK(result.steps <= host.steps + 1);
      CHECK(host.steps <= result.steps + 1);
      CHECK(std::abs(result.residual - lu::relative_residual<V>(view, right, found, transposed)) <=
            noise * kRoundoff);
      CHECK(std::abs(result.backward_error -
                     componentwise_error<V>(view, right, found, transposed)) <= noise * kRoundoff);
      CHECK(result.backward_error <= noise * kOfSolution);
      for (const V value : found)
        if (lu::to_scalar<V>(lu::to_scalar<X>(value)) != value)
          FAIL("a number that is not of the solution's type");
      if (side == 2) {
        CHECK(result.steps == 0);
        CHECK(std::all_of(found.begin(), found.end(), [](V value) { return value == V(0); }));
      }
    }
    // More steps than are needed change nothing.
    lu::RefineOptions more = options;
    more.maximum_steps = 20;
    CHECK(same_bits(device.solve(a, b, kSides, transposed, more), x));
  }
  // To a stand.
  options.target = 0;
  device.solve(a, b, 1, false, options);
  CHECK(device.results(1)[0].backward_error <= noise * kOfSolution);
}

#define SPARSERTC_INSTANTIATE(T, X)                                                                \
  template class RefineOnDevice<T, X>;                                                             \
  template void check_refinement<T, X>(const cuda::Context&, const Pattern&, Random&, bool,        \
                                       uint32_t, uint32_t);
SPARSERTC_INSTANTIATE(float, float)
SPARSERTC_INSTANTIATE(float, double)
SPARSERTC_INSTANTIATE(double, double)
SPARSERTC_INSTANTIATE(std::complex<float>, std::complex<float>)
SPARSERTC_INSTANTIATE(std::complex<float>, std::complex<double>)
SPARSERTC_INSTANTIATE(std::complex<double>, std::complex<double>)
#undef SPARSERTC_INSTANTIATE

} // namespace sparsertc::test
