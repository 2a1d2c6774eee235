// Arithmetic of the kernels of lu_right_looking.cu, of real and of complex numbers by the same
// names. Where operations are fused is written out: the program is compiled without contractions of
// its own, so that it gives the same bits as these lines on a host.
#pragma once

#include "lu_right_looking.cuh"

namespace sparsertc::kernels {

template <class R>
__device__ R minus(R x) {
  return -x;
}
template <class R>
__device__ Complex<R> minus(Complex<R> x) {
  return {-x.re, -x.im};
}

template <class R>
__device__ R times(R x, R y) {
  return x * y;
}
/// The operations of the other kernels (mul of compiler/lower/lu_kernel_writer.h), and their order.
template <class R>
__device__ Complex<R> times(Complex<R> x, Complex<R> y) {
  return {fma(-x.im, y.im, x.re * y.re), fma(x.im, y.re, x.re * y.im)};
}

/// x y + z; a complex one has two roundings for each part.
template <class R>
__device__ R times_plus(R x, R y, R z) {
  return fma(x, y, z);
}
template <class R>
__device__ Complex<R> times_plus(Complex<R> x, Complex<R> y, Complex<R> z) {
  return {fma(-x.im, y.im, fma(x.re, y.re, z.re)), fma(x.im, y.re, fma(x.re, y.im, z.im))};
}

/// |x|, or |re x| + |im x|.
template <class R>
__device__ R magnitude(R x) {
  return fabs(x);
}
template <class R>
__device__ R magnitude(Complex<R> x) {
  return fabs(x.re) + fabs(x.im);
}

template <class R>
__device__ bool is_finite(R x) {
  return x - x == R(0);
}
template <class R>
__device__ bool is_finite(Complex<R> x) {
  return is_finite(x.re) && is_finite(x.im);
}

template <class R>
__device__ R reciprocal(R x) {
  return R(1) / x;
}
/// By Smith's method (R. L. Smith, Algorithm 116, CACM 1962), as in runtime/lu/scalar.h.
template <class R>
__device__ Complex<R> reciprocal(Complex<R> x) {
  const bool steep = fabs(x.re) >= fabs(x.im);
  const R larger = steep ? x.re : x.im;
  const R smaller = steep ? x.im : x.re;
  const R ratio = smaller / larger;
  const R scale = larger + smaller * ratio;
  const R first = R(1) / scale, second = ratio / scale;
  return {steep ? first : second, -(steep ? second : first)};
}

/// `size` with the sign of x, or with its phase; a complex zero gives `size` itself.
template <class R>
__device__ R with_phase(R x, R size) {
  return copysign(size, x);
}
template <class R>
__device__ Complex<R> with_phase(Complex<R> x, R size) {
  // The larger part is made 1 first: squares of small numbers would vanish.
  const R larger = max(fabs(x.re), fabs(x.im));
  if (larger == R(0))
    return {size, R(0)};
  const R a = x.re / larger, b = x.im / larger;
  const R factor = size / sqrt(fma(a, a, b * b));
  return {a * factor, b * factor};
}

template <class R>
__device__ void atomic_add(R* number, R value) {
  atomicAdd(number, value);
}
template <class R>
__device__ void atomic_add(Complex<R>* number, Complex<R> value) {
  atomicAdd(&number->re, value.re);
  atomicAdd(&number->im, value.im);
}

/// What lane `lane` of the warp has.
template <class R>
__device__ R from_lane(R value, uint32_t lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
template <class R>
__device__ Complex<R> from_lane(Complex<R> value, uint32_t lane) {
  return {from_lane(value.re, lane), from_lane(value.im, lane)};
}

} // namespace sparsertc::kernels
