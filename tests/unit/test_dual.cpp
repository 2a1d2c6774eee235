// Dual numbers, compiled by this program's own compiler: every function against differences of long
// double, and what is promised where there is a kink.
#define SPARSERTC_REAL double
#define SPARSERTC_VALUE double
#define SPARSERTC_BATCH 0
#define SPARSERTC_CHECKED 1
#define SPARSERTC_LOOP_LIMIT 1000u
#define SPARSERTC_SHARED 0
#define SPARSERTC_READS 0
#define SPARSERTC_KEPT 8
#include "runtime/kernels/residual_prelude.cuh"

#include "runtime/kernels/dual.cuh"
#include "runtime/kernels/dual_math.cuh"
#include "runtime/kernels/residual_numbers.cuh"

#include "runtime/kernels/residual_tangents.cuh"

#include "runtime/kernels/residual_reads.cuh"
#include "runtime/kernels/residual_sums.cuh"
#include "runtime/kernels/residual_types.cuh"

#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

using namespace sparsertc;

namespace {

using Two = Directions<2, SeedColumns<2>>;
using D = Dual<double, Two>;
using Set = Dual<double, Columns<SeedChunk>>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

D variable(double value, int direction) {
  D x(value);
  x.t.d[direction] = 1;
  return x;
}

/// The derivative by Richardson's extrapolation of central differences; its error is around 1e-14
/// of the function's values near x.
long double derivative(const std::function<long double(long double)>& f, long double x) {
  const auto central = [&](long double h) { return (f(x + h) - f(x - h)) / (2 * h); };
  const long double h = 1e-3L * (1 + std::abs(x));
  const long double a = central(h), b = central(h / 2), c = central(h / 4);
  const long double ab = (4 * b - a) / 3, bc = (4 * c - b) / 3;
  return (16 * bc - ab) / 15;
}

struct Function {
  std::string name;
  std::function<D(const D&)> dual;
  std::function<Set(const Set&)> set;
  std::function<long double(long double)> reference;
  std::vector<double> at;
};

// Each name once: as it is called with dual numbers, with sets, and with long double.
#define FUNCTION(name, ...)                                                                         \
  Function {                                                                                        \
#name,                                                                                          \
        [](const D&                                                                                 \
               x) { return name(x); },                                                              \
                                    [](const Set&                                                   \
                                           x) { return name(x); },                                  \
                                                                [](long double                      \
                                                                       x) { return std::name(x); }, \
    {                                                                                               \
      __VA_ARGS__                                                                                   \
    }                                                                                               \
  }

std::vector<Function> smooth_functions() {
  return {
      FUNCTION(sin, -2.5, 0.0, 0.3, 4.0),
      FUNCTION(cos, -2.5, 0.0, 0.3, 4.0),
      FUNCTION(tan, -1.1, 0.0, 0.7),
      FUNCTION(asin, -0.9, 0.0, 0.5),
      FUNCTION(acos, -0.9, 0.0, 0.5),
      FUNCTION(atan, -30.0, -1.0, 0.0, 2.0),
      FUNCTION(sinh, -3.0, 0.0, 1.5),
      FUNCTION(cosh, -3.0, 0.0, 1.5),
      FUNCTION(tanh, -3.0, 0.0, 1.5, 8.0),
      FUNCTION(asinh, -5.0, 0.0, 0.5),
      FUNCTION(acosh, 1.2, 3.0),
      FUNCTION(atanh, -0.8, 0.0, 0.4),
      FUNCTION(exp, -4.0, 0.0, 2.0),
      FUNCTION(exp2, -4.0, 0.0, 2.0),
      FUNCTION(expm1, -2.0, 1e-9, 1.0),
      FUNCTION(log, 0.1, 1.0, 30.0),
      FUNCTION(log2, 0.1, 1.0, 30.0),
      FUNCTION(log10, 0.1, 1.0, 30.0),
      FUNCTION(log1p, -0.5, 1e-9, 3.0),
      FUNCTION(sqrt, 0.2, 1.0, 9.0),
      FUNCTION(cbrt, -8.0, 0.5, 27.0),
      FUNCTION(erf, -1.5, 0.0, 0.4, 2.5),
      FUNCTION(erfc, -1.5, 0.0, 0.4, 2.5),
      FUNCTION(fabs, -2.0, 3.0),
      FUNCTION(abs, -2.0, 3.0),
  };
}

} // namespace

TEST_CASE("dual: smooth functions against differences in long double") {
  for (const Function& function : smooth_functions())
    for (const double at : function.at) {
      CAPTURE(function.name, at);
      const D y = function.dual(variable(at, 1));
      CHECK(y.v ==
            Approx(static_cast<double>(function.reference(at))).epsilon(1e-14).margin(1e-14));
      CHECK(y.t.d[0] == 0);
      CHECK(y.t.d[1] == Approx(static_cast<double>(derivative(function.reference, at)))
                            .epsilon(2e-10)
                            .margin(1e-11));
      Set s(at);
      s.t.set = 0b101;
      CHECK(function.set(s).t.set == 0b101);
      CHECK(function.set(Set(at)).t.set == 0);
    }
}

TEST_CASE("dual: functions of two arguments") {
  using Binary = std::function<long double(long double, long double)>;
  struct Case {
    std::string name;
    std::function<D(const D&, const D&)> dual;
    std::function<Set(const Set&, const Set&)> set;
    Binary reference;
    std::vector<std::pair<double, double>> at;
  };
#define BINARY(name, ...)                                                                          \
  Case {                                                                                           \
#name, [](const D& x, const D& y) { return name(x, y); },                                      \
        [](const Set& x, const Set& y) { return name(x, y); },                                     \
        [](long double x, long double y) { return std::name(x, y); }, {   \
      __VA_ARGS__                                                                                  \
    }                                                                                              \
  }
  const std::vector<Case> cases = {
      BINARY(atan2, {1.0, 2.0}, {-1.0, -2.0}, {0.5, -0.1}),
      BINARY(hypot, {3.0, 4.0}, {-0.2, 1e-3}),
      BINARY(pow, {2.0, 3.0}, {0.5, -1.5}, {7.0, 0.0}),
      BINARY(fmax, {1.0, 2.0}, {2.0, 1.0}),
      BINARY(fmin, {1.0, 2.0}, {2.0, 1.0}),
      BINARY(fdim, {3.0, 1.0}, {1.0, 3.0}),
      BINARY(fmod, {7.5, 2.0}, {-7.5, 2.0}),
      BINARY(remainder, {7.3, 2.0}, {-7.3, 3.0}),
  };
  for (const Case& one : cases)
    for (const auto& [x, y] : one.at) {
      CAPTURE(one.name, x, y);
      const D z = one.dual(variable(x, 0), variable(y, 1));
      CHECK(z.v == Approx(static_cast<double>(one.reference(x, y))).epsilon(1e-14));
      const long double fixed_x = x, fixed_y = y;
      CHECK(z.t.d[0] ==
            Approx(static_cast<double>(derivative(
                       [&](long double t) { return one.reference(t, fixed_y); }, fixed_x)))
                .epsilon(1e-9)
                .margin(1e-11));
      CHECK(z.t.d[1] ==
            Approx(static_cast<double>(derivative(
                       [&](long double t) { return one.reference(fixed_x, t); }, fixed_y)))
                .epsilon(1e-9)
                .margin(1e-11));
      Set s(x), t(y);
      s.t.set = 1;
      t.t.set = 2;
      CHECK(one.set(s, t).t.set == 3);
    }
  // One of them a number.
  const D x = variable(2.0, 0);
  CHECK(pow(x, 3).t.d[0] == 12);
  CHECK(pow(3.0, x).t.d[0] == Approx(9 * std::log(3.0)));
  CHECK(atan2(x, 1).t.d[0] == Approx(0.2));
  CHECK(max(x, 5).t.d[0] == 0);
  CHECK(max(1.0f, x).t.d[0] == 1);
  CHECK(min(x, 5).t.d[0] == 1);
}

TEST_CASE("dual: operators with duals and numbers") {
  const D x = variable(3, 0), y = variable(2, 1);
  const auto is = [](const D& a, double v, double first, double second) {
    return a.v == v && a.t.d[0] == first && a.t.d[1] == second;
  };
  CHECK(is(x + y, 5, 1, 1));
  CHECK(is(x - y, 1, 1, -1));
  CHECK(is(x * y, 6, 2, 3));
  CHECK(is(x / y, 1.5, 0.5, -0.75));
  CHECK(is(-x, -3, -1, 0));
  CHECK(is(+x, 3, 1, 0));
  CHECK(is(x + 1, 4, 1, 0));
  CHECK(is(1 - x, -2, -1, 0));
  CHECK(is(x - 1, 2, 1, 0));
  CHECK(is(2 * x, 6, 2, 0));
  CHECK(is(x / 2, 1.5, 0.5, 0));
  CHECK(is(6 / y, 3, 0, -1.5));
  D z = x;
  z += y;
  z *= 2;
  z -= 1;
  z /= y;
  CHECK(is(z, 4.5, 1, 1 - 2.25));
  CHECK((x > y && y < x && x >= 3 && 3 <= x && x == 3 && y != 3.0f));
  CHECK(value_of(x) == 3);
  CHECK(value_of(7) == 7);
  D sine, cosine;
  sincos(x, &sine, &cosine);
  CHECK(is(sine, std::sin(3.0), std::cos(3.0), 0));
  CHECK(is(cosine, std::cos(3.0), -std::sin(3.0), 0));
  const D a = variable(3, 0), b = variable(2, 1);
  CHECK(is(fma(a, b, 1.0), 7, 2, 3));
  CHECK(is(fma(a, b, a), 9, 3, 3));
  CHECK(is(fma(2.0, a, b), 8, 2, 1));
  CHECK(is(fma(a, 2.0, b), 8, 2, 1));
  CHECK(is(fma(2.0, 3.0, b), 8, 0, 1));
  CHECK(is(fma(2.0, a, 1.0), 7, 2, 0));
  CHECK(is(fma(a, 2.0, 1.0), 7, 2, 0));
}

TEST_CASE("dual: what is promised at kinks and poles") {
  const D zero = variable(0, 0);
  CHECK(fabs(zero).t.d[0] == 0);
  CHECK(hypot(zero, variable(0, 1)).t.d[0] == 0);
  CHECK(copysign(zero, 1.0).t.d[0] == 0);
  CHECK(copysign(variable(2, 0), -3.0).t.d[0] == -1);
  CHECK(copysign(variable(-2, 0), variable(-3, 1)).t.d[0] == 1);
  CHECK(copysign(variable(-2, 0), variable(-3, 1)).t.d[1] == 0);
  // Of equal arguments the first.
  CHECK(max(variable(1, 0), variable(1, 1)).t.d[0] == 1);
  CHECK(max(variable(1, 0), variable(1, 1)).t.d[1] == 0);
  CHECK(min(variable(1, 1), variable(1, 0)).t.d[1] == 1);
  CHECK(fdim(variable(1, 0), 1.0).t.d[0] == 0);
  // The number, where the other is none.
  CHECK(fmax(D(kNan), variable(1, 0)).t.d[0] == 1);
  CHECK(fmin(variable(1, 0), D(kNan)).t.d[0] == 1);
  CHECK(std::isnan(fdim(D(kNan), variable(1, 0)).v));
  // Infinite slopes stay where the argument moves.
  const D root = sqrt(zero);
  CHECK(root.t.d[0] == kInfinity);
  CHECK(root.t.d[1] == 0);
  CHECK(cbrt(zero).t.d[0] == kInfinity);
  CHECK(cbrt(zero).t.d[1] == 0);
  CHECK(log(zero).t.d[1] == 0);
  CHECK(asin(variable(1, 0)).t.d[1] == 0);
  CHECK(pow(zero, 0.5).t.d[1] == 0);
  CHECK(pow(zero, 0).t.d[0] == 0);
  CHECK(pow(zero, 1).t.d[0] == 1);
  CHECK(pow(zero, variable(2, 1)).t.d[1] == 0);
  CHECK(pow(variable(-2, 0), D(2)).t.d[0] == -4);
  CHECK(std::isnan(fabs(variable(kNan, 0)).t.d[0]));
  for (const D& step :
       {floor(variable(1.5, 0)), ceil(variable(1.5, 0)), round(variable(1.5, 0)),
        trunc(variable(1.5, 0)), rint(variable(1.4, 0)), nearbyint(variable(1.4, 0))}) {
    CHECK(step.t.d[0] == 0);
    CHECK((step.v == 1 || step.v == 2));
  }
  Set s(1.5);
  s.t.set = 1;
  CHECK(floor(s).t.set == 0);
  CHECK((isnan(D(kNan)) && isinf(D(kInfinity)) && isfinite(zero) && signbit(-variable(1, 0))));
}

namespace {

/// Counts how often code looks at values.
struct SeedLooks {
  using Tangent = Columns<SeedLooks>;
  static inline int looks = 0;
  static void decides() { ++looks; }
};

} // namespace

TEST_CASE("duals: each way of looking at a value is told to tangents that want to know") {
  using Looked = Dual<double, SeedLooks::Tangent>;
  const Looked a(1.5), b(2.5);
  int expected = 0;
  for (const bool look : {a<b, a<1, 1 < a, a <= b, a> b, a >= b, a == b, a != b, a != 1.5, isnan(a),
                            isinf(a), isfinite(a), signbit(a), value_of(a)> 1}) {
    static_cast<void>(look);
    ++expected;
  }
  CHECK(SeedLooks::looks == expected);
  // What computes does not decide.
  static_cast<void>(max(a, b) + fabs(a * b) - sqrt(a) / floor(b) + pow(a, 2));
  CHECK(SeedLooks::looks == expected);
}
