#include "tests/support/random_sparse.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

namespace sparsertc::test {

uint64_t test_seed(uint64_t otherwise) {
  static const uint64_t seed = [&] {
    const char* given = std::getenv("SPARSERTC_SEED");
    const uint64_t chosen = given ? std::strtoull(given, nullptr, 0) : otherwise;
    fmt::print("seed {} (SPARSERTC_SEED overrides)\n", chosen);
    return chosen;
  }();
  return seed;
}

std::string_view name_of(RowShape shape) {
  constexpr std::string_view kNames[] = {"uniform",    "dense", "empty", "one entry",
                                         "heavy rows", "gaps",  "band",  "one column"};
  return kNames[static_cast<size_t>(shape)];
}

std::string_view name_of(ValueShape shape) {
  constexpr std::string_view kNames[] = {"unit", "integers", "zeros", "tiny", "huge", "spread"};
  return kNames[static_cast<size_t>(shape)];
}

double random_value(Random& random, ValueShape shape, int least, int largest) {
  switch (shape) {
  case ValueShape::unit:
    return random.symmetric();
  case ValueShape::integers:
    return static_cast<double>(random.below(9)) - 4;
  case ValueShape::zeros:
    if (random.chance(0.4))
      return random.chance(0.5) ? 0.0 : -0.0;
    return random.symmetric();
  case ValueShape::tiny:
    return std::ldexp(random.symmetric(), least - static_cast<int>(random.below(6)) + 2);
  case ValueShape::huge:
    return std::ldexp(random.symmetric(), largest - static_cast<int>(random.below(6)));
  case ValueShape::spread:
    return std::ldexp(random.symmetric(),
                      static_cast<int>(random.below(static_cast<uint32_t>(largest))) - largest / 2);
  }
  return 0;
}

Matrix random_sparse(Random& random, uint32_t rows, uint32_t columns, RowShape rows_shape,
                     ValueShape values, int least, int largest) {
  Matrix matrix;
  matrix.name = fmt::format("{}x{} {} {}", rows, columns, name_of(rows_shape), name_of(values));
  matrix.stored = StoredType::f64;
  Pattern& pattern = matrix.pattern;
  pattern.rows = rows;
  pattern.columns = columns;
  const double density = 0.05 + 0.6 * random.unit() * random.unit();
  const uint32_t chosen_row = rows ? random.below(rows) : 0;
  const uint32_t chosen_column = columns ? random.below(columns) : 0;
  std::vector<bool> empty_column(columns);
  for (uint32_t column = 0; column < columns; ++column)
    empty_column[column] = random.chance(0.4);
  for (uint32_t row = 0; row < rows; ++row) {
    const bool heavy = random.chance(0.1) || row == chosen_row;
    const bool gap = random.chance(0.4);
    for (uint32_t column = 0; column < columns; ++column) {
      bool present = false;
      switch (rows_shape) {
      case RowShape::uniform:
        present = random.chance(density);
        break;
      case RowShape::dense:
        present = true;
        break;
      case RowShape::empty:
        break;
      case RowShape::one_entry:
        present = row == chosen_row && column == chosen_column;
        break;
      case RowShape::heavy_rows:
        present = random.chance(heavy ? 1.0 : 0.03);
        break;
      case RowShape::gaps:
        present = !gap && !empty_column[column] && random.chance(0.5);
        break;
      case RowShape::band:
        present = column + 2 >= row && column <= row + 2;
        break;
      case RowShape::one_column:
        present = column == chosen_column;
        break;
      }
      if (present) {
        pattern.column_index.push_back(column);
        matrix.values.push_back(random_value(random, values, least, largest));
      }
    }
    pattern.row_offset.push_back(pattern.column_index.size());
  }
  return matrix;
}

} // namespace sparsertc::test
