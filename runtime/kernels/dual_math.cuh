// The functions of <cmath> that can be differentiated, for dual numbers (dual.cuh), under their own
// names: unqualified calls find them. Where a function has a kink the convention is
//
//   fabs, abs            derivative 0 at 0
//   fmax, fmin, max, min that of the first argument where both are equal; that of the number where
//                        the other is NaN
//   hypot                derivative 0 at (0, 0)
//   copysign             that of |x| with y's sign; 0 at x = 0
//   fdim                 0 where both are equal
//   floor, ceil, round, trunc, rint, nearbyint   derivative 0 everywhere
//   fmod, remainder      of x: 1; of y: minus the whole number that was subtracted
//
// Where the derivative is infinite (sqrt and cbrt at 0, say) it is so in the directions in which
// the argument moves, and 0 in the others.

namespace sparsertc {

/// name(x) = value with the derivative `slope`, made from x and value.
#define SPARSERTC_FUNCTION(name, value_of_x, slope_of_x, rule)                                     \
  template <AnyDual N>                                                                             \
  __device__ N name(const N& a) {                                                                  \
    using R = typename N::Real;                                                                    \
    const R x = a.v;                                                                               \
    const R value = value_of_x;                                                                    \
    const R slope = slope_of_x;                                                                    \
    return {value, rule(slope, a.t)};                                                              \
  }
#define SPARSERTC_SMOOTH(name, slope_of_x) SPARSERTC_FUNCTION(name, ::name(x), slope_of_x, scaled)
#define SPARSERTC_SINGULAR(name, slope_of_x)                                                       \
  SPARSERTC_FUNCTION(name, ::name(x), slope_of_x, scaled_singular)
#define SPARSERTC_STEP(name)                                                                       \
  template <AnyDual N>                                                                             \
  __device__ N name(const N& a) {                                                                  \
    return N(::name(a.v));                                                                         \
  }

SPARSERTC_SMOOTH(tan, R(1) + value * value)
SPARSERTC_SINGULAR(asin, R(1) / ::sqrt((R(1) - x) * (R(1) + x)))
SPARSERTC_SINGULAR(acos, R(-1) / ::sqrt((R(1) - x) * (R(1) + x)))
SPARSERTC_SMOOTH(atan, R(1) / (R(1) + x * x))
SPARSERTC_SMOOTH(sinh, ::cosh(x))
SPARSERTC_SMOOTH(cosh, ::sinh(x))
SPARSERTC_SMOOTH(tanh, R(1) / (::cosh(x) * ::cosh(x)))
SPARSERTC_SMOOTH(asinh, R(1) / ::hypot(x, R(1)))
SPARSERTC_SINGULAR(acosh, R(1) / ::sqrt((x - R(1)) * (x + R(1))))
SPARSERTC_SINGULAR(atanh, R(1) / ((R(1) - x) * (R(1) + x)))
SPARSERTC_SMOOTH(exp, value)
SPARSERTC_SMOOTH(exp2, value* R(0.6931471805599453094))
SPARSERTC_SMOOTH(expm1, ::exp(x))
SPARSERTC_SINGULAR(log, R(1) / x)
SPARSERTC_SINGULAR(log2, R(1.4426950408889634074) / x)
SPARSERTC_SINGULAR(log10, R(0.4342944819032518277) / x)
SPARSERTC_SINGULAR(log1p, R(1) / (R(1) + x))
SPARSERTC_SINGULAR(sqrt, R(0.5) / value)
SPARSERTC_SINGULAR(cbrt, R(1) / (R(3) * value * value))
SPARSERTC_SMOOTH(erf, R(1.1283791670955125739) * ::exp(-x * x))
SPARSERTC_SMOOTH(erfc, R(-1.1283791670955125739) * ::exp(-x * x))
SPARSERTC_SMOOTH(fabs, x > R(0) ? R(1) : x < R(0) ? R(-1) : x == R(0) ? R(0) : x)
SPARSERTC_STEP(floor)
SPARSERTC_STEP(ceil)
SPARSERTC_STEP(round)
SPARSERTC_STEP(trunc)
SPARSERTC_STEP(rint)
SPARSERTC_STEP(nearbyint)
#undef SPARSERTC_STEP
#undef SPARSERTC_SINGULAR
#undef SPARSERTC_SMOOTH
#undef SPARSERTC_FUNCTION

template <AnyDual N>
__device__ N abs(const N& a) {
  return fabs(a);
}

/// Both with one evaluation: cheaper than sin() and cos() of the same argument.
template <AnyDual N>
__device__ void sincos(const N& a, N* sine, N* cosine) {
  typename N::Real s, c;
  ::sincos(a.v, &s, &c);
  const typename N::Tangent t = a.t; // *sine may be a
  *sine = {s, scaled(c, t)};
  *cosine = {c, scaled(-s, t)};
}
template <AnyDual N>
__device__ N sin(const N& a) {
  typename N::Real s, c;
  ::sincos(a.v, &s, &c);
  return {s, scaled(c, a.t)};
}
template <AnyDual N>
__device__ N cos(const N& a) {
  typename N::Real s, c;
  ::sincos(a.v, &s, &c);
  return {c, scaled(-s, a.t)};
}

// ---- of two arguments ----

template <AnyDual N>
__device__ N atan2(const N& y, const N& x) {
  using R = typename N::Real;
  const R square = x.v * x.v + y.v * y.v;
  return {::atan2(y.v, x.v), linear(x.v / square, y.t, -y.v / square, x.t)};
}

template <AnyDual N>
__device__ N hypot(const N& x, const N& y) {
  using R = typename N::Real;
  const R length = ::hypot(x.v, y.v);
  const bool zero = length == R(0);
  return {length, linear(zero ? R(0) : x.v / length, x.t, zero ? R(0) : y.v / length, y.t)};
}

/// A constant exponent: c x^(c - 1), which is 0 for c = 0.
template <AnyDual N, Arithmetic A>
__device__ N pow(const N& x, A exponent) {
  using R = typename N::Real;
  const R c = static_cast<R>(exponent);
  const R slope = c == R(0) ? R(0) : c * ::pow(x.v, c - R(1));
  return {::pow(x.v, c), scaled_singular(slope, x.t)};
}
/// x^y log(x) by the exponent, 0 where the power is 0.
template <class R>
__device__ R slope_of_exponent(R x, R power) {
  return power == R(0) ? R(0) : power * ::log(x);
}
template <AnyDual N, Arithmetic A>
__device__ N pow(A base, const N& y) {
  using R = typename N::Real;
  const R power = ::pow(static_cast<R>(base), y.v);
  return {power, scaled_singular(slope_of_exponent(static_cast<R>(base), power), y.t)};
}
template <AnyDual N>
__device__ N pow(const N& x, const N& y) {
  using R = typename N::Real;
  const N by_base = pow(x, y.v);
  return {by_base.v,
          linear(R(1), by_base.t, R(1), scaled_singular(slope_of_exponent(x.v, by_base.v), y.t))};
}

template <AnyDual N>
__device__ N fmax(const N& a, const N& b) {
  const bool first = a.v >= b.v || ::isnan(b.v);
  return {first ? a.v : b.v, chosen(first, a.t, b.t)};
}
template <AnyDual N>
__device__ N fmin(const N& a, const N& b) {
  const bool first = a.v <= b.v || ::isnan(b.v);
  return {first ? a.v : b.v, chosen(first, a.t, b.t)};
}
template <AnyDual N>
__device__ N max(const N& a, const N& b) {
  return fmax(a, b);
}
template <AnyDual N>
__device__ N min(const N& a, const N& b) {
  return fmin(a, b);
}

/// max(a - b, 0); derivative 0 where both are equal.
template <AnyDual N>
__device__ N fdim(const N& a, const N& b) {
  const N difference = a - b;
  const bool nothing = difference.v <= typename N::Real(0);
  return {nothing ? typename N::Real(0) : difference.v,
          chosen(nothing, N::Tangent::zero(), difference.t)};
}

template <AnyDual N>
__device__ N copysign(const N& x, const N& y) {
  using R = typename N::Real;
  const R sign = ::copysign(R(1), x.v) * ::copysign(R(1), y.v);
  return {::copysign(x.v, y.v), scaled(x.v == R(0) ? R(0) : sign, x.t)};
}

template <AnyDual N>
__device__ N fmod(const N& x, const N& y) {
  using R = typename N::Real;
  const R rest = ::fmod(x.v, y.v);
  return {rest, linear(R(1), x.t, -::round((x.v - rest) / y.v), y.t)};
}
template <AnyDual N>
__device__ N remainder(const N& x, const N& y) {
  using R = typename N::Real;
  const R rest = ::remainder(x.v, y.v);
  return {rest, linear(R(1), x.t, -::round((x.v - rest) / y.v), y.t)};
}

// With a number and a dual: the number is a constant.
#define SPARSERTC_MIXED(name)                                                                      \
  template <AnyDual N, Arithmetic A>                                                               \
  __device__ N name(const N& a, A b) {                                                             \
    return name(a, N(b));                                                                          \
  }                                                                                                \
  template <AnyDual N, Arithmetic A>                                                               \
  __device__ N name(A a, const N& b) {                                                             \
    return name(N(a), b);                                                                          \
  }
SPARSERTC_MIXED(atan2)
SPARSERTC_MIXED(hypot)
SPARSERTC_MIXED(fmax)
SPARSERTC_MIXED(fmin)
SPARSERTC_MIXED(max)
SPARSERTC_MIXED(min)
SPARSERTC_MIXED(fdim)
SPARSERTC_MIXED(copysign)
SPARSERTC_MIXED(fmod)
SPARSERTC_MIXED(remainder)
#undef SPARSERTC_MIXED

template <AnyDual N>
__device__ N fma(const N& a, const N& b, const N& c) {
  using R = typename N::Real;
  return {::fma(a.v, b.v, c.v), linear(R(1), linear(b.v, a.t, a.v, b.t), R(1), c.t)};
}
template <AnyDual N, Arithmetic A>
__device__ N fma(A a, const N& b, const N& c) {
  using R = typename N::Real;
  return {::fma(static_cast<R>(a), b.v, c.v), linear(static_cast<R>(a), b.t, R(1), c.t)};
}
template <AnyDual N, Arithmetic A>
__device__ N fma(const N& a, A b, const N& c) {
  return fma(b, a, c);
}
template <AnyDual N, Arithmetic A>
__device__ N fma(const N& a, const N& b, A c) {
  using R = typename N::Real;
  return {::fma(a.v, b.v, static_cast<R>(c)), linear(b.v, a.t, a.v, b.t)};
}
template <AnyDual N, Arithmetic A, Arithmetic B>
__device__ N fma(A a, B b, const N& c) {
  using R = typename N::Real;
  return {::fma(static_cast<R>(a), static_cast<R>(b), c.v), c.t};
}
template <AnyDual N, Arithmetic A, Arithmetic B>
__device__ N fma(A a, const N& b, B c) {
  using R = typename N::Real;
  return {::fma(static_cast<R>(a), b.v, static_cast<R>(c)), scaled(static_cast<R>(a), b.t)};
}
template <AnyDual N, Arithmetic A, Arithmetic B>
__device__ N fma(const N& a, A b, B c) {
  return fma(b, a, c);
}

} // namespace sparsertc
