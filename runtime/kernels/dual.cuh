// Dual numbers: a value v with a tangent t, the derivatives of v in some directions. Every
// operation and function obeys the chain rule, so that code written for numbers computes
// derivatives, too.
//
// What a tangent is, is a parameter. It has, for numbers f and g and tangents s and t,
//
//   zero()                 the tangent of a constant
//   scaled(f, t)           f t
//   linear(f, s, g, t)     f s + g t
//   scaled_singular(f, t)  f t, where f may be infinite or NaN: directions in which t is 0 stay 0
//   chosen(first, s, t)    s or t
//
// `Directions` has W derivatives (residual_tangents.cuh); `Columns`, for finding the pattern, has
// the set of the unknowns that the value depends on, whatever the numbers: scaled() keeps the set,
// linear() and chosen() unite two.
//
// Compiled by NVRTC and by the host's compiler, always as a part of a residual's program.

namespace sparsertc {

template <class A, class B>
inline constexpr bool kSame = false;
template <class A>
inline constexpr bool kSame<A, A> = true;
template <class A, class... B>
concept OneOf = (kSame<A, B> || ...);
template <class A>
concept Arithmetic =
    OneOf<A, bool, char, signed char, unsigned char, short, unsigned short, int, unsigned, long,
          unsigned long, long long, unsigned long long, float, double>;

template <class RealType, class TangentType>
struct Dual {
  using Real = RealType;
  using Tangent = TangentType;
  Real v;
  Tangent t;

  Dual() = default;
  /// A constant.
  template <Arithmetic A>
  __device__ Dual(A constant) : v(static_cast<Real>(constant)) {
    t = Tangent::zero();
  }
  __device__ Dual(Real value, const Tangent& tangent) : v(value), t(tangent) {}

  __device__ Dual& operator+=(const Dual& b) { return *this = *this + b; }
  __device__ Dual& operator-=(const Dual& b) { return *this = *this - b; }
  __device__ Dual& operator*=(const Dual& b) { return *this = *this * b; }
  __device__ Dual& operator/=(const Dual& b) { return *this = *this / b; }

  // By constants there is less to do.
  template <Arithmetic A>
  __device__ Dual& operator+=(A b) {
    return *this = *this + b;
  }
  template <Arithmetic A>
  __device__ Dual& operator-=(A b) {
    return *this = *this - b;
  }
  template <Arithmetic A>
  __device__ Dual& operator*=(A b) {
    return *this = *this * b;
  }
  template <Arithmetic A>
  __device__ Dual& operator/=(A b) {
    return *this = *this / b;
  }
};

template <class A>
inline constexpr bool kIsDual = false;
template <class R, class D>
inline constexpr bool kIsDual<Dual<R, D>> = true;
template <class A>
concept AnyDual = kIsDual<A>;

// ---- operators ----

template <AnyDual N>
__device__ N operator+(const N& a) {
  return a;
}
template <AnyDual N>
__device__ N operator-(const N& a) {
  using R = typename N::Real;
  return {-a.v, scaled(R(-1), a.t)};
}

template <AnyDual N>
__device__ N operator+(const N& a, const N& b) {
  using R = typename N::Real;
  return {a.v + b.v, linear(R(1), a.t, R(1), b.t)};
}
template <AnyDual N>
__device__ N operator-(const N& a, const N& b) {
  using R = typename N::Real;
  return {a.v - b.v, linear(R(1), a.t, R(-1), b.t)};
}
template <AnyDual N>
__device__ N operator*(const N& a, const N& b) {
  return {a.v * b.v, linear(b.v, a.t, a.v, b.t)};
}
template <AnyDual N>
__device__ N operator/(const N& a, const N& b) {
  using R = typename N::Real;
  const R quotient = a.v / b.v, inverse = R(1) / b.v;
  return {quotient, linear(inverse, a.t, -quotient * inverse, b.t)};
}

template <AnyDual N, Arithmetic A>
__device__ N operator+(const N& a, A b) {
  return {a.v + static_cast<typename N::Real>(b), a.t};
}
template <AnyDual N, Arithmetic A>
__device__ N operator+(A a, const N& b) {
  return b + a;
}
template <AnyDual N, Arithmetic A>
__device__ N operator-(const N& a, A b) {
  return {a.v - static_cast<typename N::Real>(b), a.t};
}
template <AnyDual N, Arithmetic A>
__device__ N operator-(A a, const N& b) {
  using R = typename N::Real;
  return {static_cast<R>(a) - b.v, scaled(R(-1), b.t)};
}
template <AnyDual N, Arithmetic A>
__device__ N operator*(const N& a, A b) {
  const auto factor = static_cast<typename N::Real>(b);
  return {a.v * factor, scaled(factor, a.t)};
}
template <AnyDual N, Arithmetic A>
__device__ N operator*(A a, const N& b) {
  return b * a;
}
template <AnyDual N, Arithmetic A>
__device__ N operator/(const N& a, A b) {
  using R = typename N::Real;
  const R divisor = static_cast<R>(b);
  return {a.v / divisor, scaled(R(1) / divisor, a.t)};
}
template <AnyDual N, Arithmetic A>
__device__ N operator/(A a, const N& b) {
  using R = typename N::Real;
  const R quotient = static_cast<R>(a) / b.v;
  return {quotient, scaled(-quotient / b.v, b.t)};
}

/// Says that the user's code looks at a value, where a tangent wants to know: what it does then
/// may differ elsewhere.
template <AnyDual N>
__device__ void decides() {
  if constexpr (requires { N::Tangent::Seed::decides(); })
    N::Tangent::Seed::decides();
}

// Comparisons are of values.
#define SPARSERTC_COMPARE(op)                                                                      \
  template <AnyDual N>                                                                             \
  __device__ bool operator op(const N& a, const N& b) {                                            \
    decides<N>();                                                                                  \
    return a.v op b.v;                                                                             \
  }                                                                                                \
  template <AnyDual N, Arithmetic A>                                                               \
  __device__ bool operator op(const N& a, A b) {                                                   \
    decides<N>();                                                                                  \
    return a.v op static_cast<typename N::Real>(b);                                                \
  }                                                                                                \
  template <AnyDual N, Arithmetic A>                                                               \
  __device__ bool operator op(A a, const N& b) {                                                   \
    decides<N>();                                                                                  \
    return static_cast<typename N::Real>(a) op b.v;                                                \
  }
SPARSERTC_COMPARE(<)
SPARSERTC_COMPARE(>)
SPARSERTC_COMPARE(<=)
SPARSERTC_COMPARE(>=)
SPARSERTC_COMPARE(==)
SPARSERTC_COMPARE(!=)
#undef SPARSERTC_COMPARE

/// The value without its derivatives, of a number its own: for indices and decisions.
template <AnyDual N>
__device__ typename N::Real value_of(const N& a) {
  decides<N>();
  return a.v;
}
template <Arithmetic A>
__device__ A value_of(A a) {
  return a;
}

template <AnyDual N>
__device__ bool isnan(const N& a) {
  decides<N>();
  return ::isnan(a.v);
}
template <AnyDual N>
__device__ bool isinf(const N& a) {
  decides<N>();
  return ::isinf(a.v);
}
template <AnyDual N>
__device__ bool isfinite(const N& a) {
  decides<N>();
  return ::isfinite(a.v);
}
template <AnyDual N>
__device__ bool signbit(const N& a) {
  decides<N>();
  return ::signbit(a.v);
}

} // namespace sparsertc
