// Random and edge-shaped sparse matrices. The same seed gives the same matrices everywhere.
#pragma once

#include "compiler/input/matrix.h"

#include <cstdint>
#include <random>
#include <string_view>

namespace sparsertc::test {

/// The seed of a test program: SPARSERTC_SEED where that is set, else `otherwise`. Printed once.
uint64_t test_seed(uint64_t otherwise);

/// A generator whose numbers do not depend on the standard library.
class Random {
public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t bits() { return engine_(); }
  /// In [0, below); `below` > 0.
  uint32_t below(uint32_t below) { return static_cast<uint32_t>(bits() % below); }
  /// In [0, 1).
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// In [-1, 1).
  double symmetric() { return 2 * unit() - 1; }
  bool chance(double probability) { return unit() < probability; }
  template <class Range>
  const auto& pick(const Range& range) {
    return std::data(range)[below(static_cast<uint32_t>(std::size(range)))];
  }

private:
  std::mt19937_64 engine_;
};

/// How the entries are spread over the rows.
enum class RowShape : uint8_t {
  uniform,    ///< every position with the same probability
  dense,      ///< every position
  empty,      ///< none
  one_entry,  ///< one, anywhere
  heavy_rows, ///< a few full rows, the others nearly empty
  gaps,       ///< whole rows and columns without an entry
  band,       ///< near the diagonal
  one_column, ///< one full column, nothing else
};
inline constexpr RowShape kRowShapes[] = {
    RowShape::uniform,    RowShape::dense, RowShape::empty, RowShape::one_entry,
    RowShape::heavy_rows, RowShape::gaps,  RowShape::band,  RowShape::one_column};
std::string_view name_of(RowShape shape);

/// What the values are like.
enum class ValueShape : uint8_t {
  unit,     ///< [-1, 1)
  integers, ///< -4 to 4, so that every sum is exact; zeros occur
  zeros,    ///< explicit 0 and -0 among [-1, 1)
  tiny,     ///< magnitudes around the least normal and among the subnormal numbers of the type
  huge,     ///< magnitudes up to the largest number of the type
  spread,   ///< magnitudes over many powers of two
};
inline constexpr ValueShape kValueShapes[] = {ValueShape::unit,  ValueShape::integers,
                                              ValueShape::zeros, ValueShape::tiny,
                                              ValueShape::huge,  ValueShape::spread};
std::string_view name_of(ValueShape shape);

/// One value; `least` and `largest` are the exponents of the type's least normal and largest number
/// (f32: -126, 127).
double random_value(Random& random, ValueShape shape, int least, int largest);

Matrix random_sparse(Random& random, uint32_t rows, uint32_t columns, RowShape rows_shape,
                     ValueShape values, int least, int largest);

} // namespace sparsertc::test
