// Arithmetic of LU's kernels (compiler/lower/lu_kernel_writer.h) on the host, for comparisons bit
// by bit.
#pragma once

#include "runtime/lu/scalar.h"

#include <cmath>

namespace sparsertc::test {

/// x y and x y + z with the roundings of all of those kernels.
template <class T>
T rounded_product(T x, T y) {
  if constexpr (lu::ScalarTraits<T>::kComplex)
    return {std::fma(-x.imag(), y.imag(), x.real() * y.real()),
            std::fma(x.imag(), y.real(), x.real() * y.imag())};
  else
    return x * y;
}
template <class T>
T fused(T x, T y, T z) {
  if constexpr (lu::ScalarTraits<T>::kComplex)
    return {std::fma(-x.imag(), y.imag(), std::fma(x.real(), y.real(), z.real())),
            std::fma(x.imag(), y.real(), std::fma(x.real(), y.imag(), z.imag()))};
  else
    return std::fma(x, y, z);
}

} // namespace sparsertc::test
