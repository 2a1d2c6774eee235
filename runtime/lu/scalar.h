// The number types of sparse LU: f32, f64 and the complex types of both, computed with written-out
// arithmetic. (The operators of std::complex look for NaN in every product.)
#pragma once

#include <cmath>
#include <complex>
#include <limits>
#include <type_traits>

namespace sparsertc::lu {

template <class T>
struct ScalarTraits {
  using Real = T;
  static constexpr bool kComplex = false;
};
template <class R>
struct ScalarTraits<std::complex<R>> {
  using Real = R;
  static constexpr bool kComplex = true;
};

/// float of float and std::complex<float>.
template <class T>
using Real = typename ScalarTraits<T>::Real;

/// The same kind of number in double precision.
template <class T>
using Wide = std::conditional_t<ScalarTraits<T>::kComplex, std::complex<double>, double>;

/// The unit roundoff: half the distance from 1 to the next number.
template <class T>
constexpr Real<T> unit_roundoff() {
  return std::numeric_limits<Real<T>>::epsilon() / 2;
}

/// |x|, or |re x| + |im x|, which is at most 1.42 times as much and cheap.
template <class T>
Real<T> magnitude(T x) {
  if constexpr (ScalarTraits<T>::kComplex)
    return std::abs(x.real()) + std::abs(x.imag());
  else
    return std::abs(x);
}

template <class T>
T times(T a, T b) {
  if constexpr (ScalarTraits<T>::kComplex)
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  else
    return a * b;
}

/// x - a b, rounded after each operation.
template <class T>
T minus_product(T x, T a, T b) {
  return x - times(a, b);
}

/// 1 / x; complex by Smith's method (R. L. Smith, Algorithm 116, CACM 1962), which does not
/// overflow where the result does not.
template <class T>
T reciprocal(T x) {
  if constexpr (ScalarTraits<T>::kComplex) {
    if (std::abs(x.real()) >= std::abs(x.imag())) {
      const Real<T> ratio = x.imag() / x.real();
      const Real<T> scale = x.real() + x.imag() * ratio;
      return {1 / scale, -ratio / scale};
    }
    const Real<T> ratio = x.real() / x.imag();
    const Real<T> scale = x.real() * ratio + x.imag();
    return {ratio / scale, -1 / scale};
  } else {
    return 1 / x;
  }
}

/// x / |x|; 1 of zero.
template <class T>
T phase(T x) {
  if constexpr (ScalarTraits<T>::kComplex) {
    const Real<T> size = std::hypot(x.real(), x.imag());
    return size == 0 ? T(1) : T(x.real() / size, x.imag() / size);
  } else {
    return std::signbit(x) ? T(-1) : T(1);
  }
}

template <class T>
T conjugate(T x) {
  if constexpr (ScalarTraits<T>::kComplex)
    return {x.real(), -x.imag()};
  else
    return x;
}

/// Rounds to T; from complex to complex, from real to real.
template <class T, class V>
T to_scalar(V x) {
  if constexpr (ScalarTraits<T>::kComplex)
    return {static_cast<Real<T>>(x.real()), static_cast<Real<T>>(x.imag())};
  else
    return static_cast<T>(x);
}

} // namespace sparsertc::lu
