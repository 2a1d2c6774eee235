// From the words of a manifest to types of C++.
#pragma once

#include "runtime/lu/scalar.h"
#include "runtime/plan/lu_manifest.h"

#include <complex>
#include <span>
#include <type_traits>
#include <vector>

namespace sparsertc {

/// Calls work.operator()<T, X>() with the type T of the factors and X of the caller's numbers.
template <class Work>
auto with_lu_types(const LuManifest& manifest, const Work& work) {
  using C32 = std::complex<float>;
  using C64 = std::complex<double>;
  const bool narrow = is_single(manifest.factor_type);
  switch (manifest.type) {
  case LuNumber::f32:
    return work.template operator()<float, float>();
  case LuNumber::c64:
    return work.template operator()<C32, C32>();
  case LuNumber::c128:
    return narrow ? work.template operator()<C32, C64>() : work.template operator()<C64, C64>();
  case LuNumber::f64:
    break;
  }
  return narrow ? work.template operator()<float, double>()
                : work.template operator()<double, double>();
}

/// The parts of numbers in double precision, beside one another.
template <class T>
std::vector<double> widened(std::span<const T> numbers) {
  std::vector<double> wide;
  wide.reserve(numbers.size() * (lu::ScalarTraits<T>::kComplex ? 2 : 1));
  for (const T number : numbers) {
    wide.push_back(std::real(number));
    if constexpr (lu::ScalarTraits<T>::kComplex)
      wide.push_back(std::imag(number));
  }
  return wide;
}

/// The numbers whose parts these are. (An array of complex numbers is one of their parts.)
template <class V>
std::span<const V> as_numbers(std::span<const double> parts) {
  return {reinterpret_cast<const V*>(parts.data()), parts.size() * sizeof(double) / sizeof(V)};
}

} // namespace sparsertc
