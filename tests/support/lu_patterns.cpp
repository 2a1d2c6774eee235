#include "tests/support/lu_patterns.h"

#include <algorithm>

namespace sparsertc::test {

Pattern pattern_of(uint32_t size, std::vector<std::pair<uint32_t, uint32_t>> entries) {
  std::sort(entries.begin(), entries.end());
  entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  Pattern pattern;
  pattern.rows = pattern.columns = size;
  pattern.row_offset.assign(uint64_t{size} + 1, 0);
  for (const auto& [row, column] : entries) {
    ++pattern.row_offset[row + 1];
    pattern.column_index.push_back(column);
  }
  for (uint32_t i = 0; i < size; ++i)
    pattern.row_offset[i + 1] += pattern.row_offset[i];
  return pattern;
}

Pattern random_square(Random& random, uint32_t size, double per_row, double diagonal) {
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  for (uint32_t i = 0; i < size; ++i)
    if (random.chance(diagonal))
      entries.emplace_back(i, i);
  const uint64_t others = size == 0 ? 0 : static_cast<uint64_t>(per_row * size);
  for (uint64_t e = 0; e < others; ++e) {
    const uint32_t row = random.below(size);
    entries.emplace_back(row, random.below(size));
  }
  return pattern_of(size, std::move(entries));
}

Pattern random_grid(Random& random, uint32_t width, uint32_t height, double missing,
                    uint32_t depth) {
  std::vector<std::pair<uint32_t, uint32_t>> entries;
  const auto connect = [&](uint32_t here, uint32_t next) {
    entries.emplace_back(next, here);
    if (!random.chance(missing))
      entries.emplace_back(here, next);
  };
  for (uint32_t z = 0; z < depth; ++z)
    for (uint32_t y = 0; y < height; ++y)
      for (uint32_t x = 0; x < width; ++x) {
        const uint32_t here = (z * height + y) * width + x;
        entries.emplace_back(here, here);
        if (x + 1 < width)
          connect(here, here + 1);
        if (y + 1 < height)
          connect(here, here + width);
        if (z + 1 < depth)
          connect(here, here + width * height);
      }
  return pattern_of(width * height * depth, std::move(entries));
}

std::vector<NamedPattern> hostile_squares(uint32_t chain) {
  using Entries = std::vector<std::pair<uint32_t, uint32_t>>;
  constexpr uint32_t n = 24;
  std::vector<NamedPattern> all;
  all.push_back({"n = 0", pattern_of(0, {})});
  all.push_back({"n = 1", pattern_of(1, {{0, 0}})});
  all.push_back({"n = 1, empty", pattern_of(1, {})});
  Entries diagonal, dense, arrow, arrow_back, lower, upper, path, reversed, blocks, shifted, hole;
  for (uint32_t i = 0; i < n; ++i) {
    diagonal.emplace_back(i, i);
    for (uint32_t j = 0; j < n; ++j) {
      dense.emplace_back(i, j);
      if (i == j || i == 0 || j == 0)
        arrow.emplace_back(i, j);
      if (i == j || i == n - 1 || j == n - 1)
        arrow_back.emplace_back(i, j);
      if (j <= i)
        lower.emplace_back(i, j);
      if (j >= i)
        upper.emplace_back(i, j);
      if (i / 6 == j / 6)
        blocks.emplace_back(i, j);
      if (i != n / 2 && j != n / 3)
        hole.emplace_back(i, j);
    }
    shifted.emplace_back(i, (i + 1) % n);
    shifted.emplace_back(i, (i + 5) % n);
    for (uint32_t j = 0; j <= i; ++j)
      reversed.emplace_back(i, n - 1 - j);
  }
  for (uint32_t i = 0; i < chain; ++i) {
    path.emplace_back(i, i);
    if (i + 1 < chain) {
      path.emplace_back(i, i + 1);
      path.emplace_back(i + 1, i);
    }
  }
  all.push_back({"diagonal", pattern_of(n, diagonal)});
  all.push_back({"dense", pattern_of(n, dense)});
  all.push_back({"arrow that fills", pattern_of(n, arrow)});
  all.push_back({"arrow that does not fill", pattern_of(n, arrow_back)});
  all.push_back({"lower triangle", pattern_of(n, lower)});
  all.push_back({"upper triangle", pattern_of(n, upper)});
  all.push_back({"permuted triangle", pattern_of(n, reversed)});
  all.push_back({"disconnected blocks", pattern_of(n, blocks)});
  all.push_back({"zero diagonal", pattern_of(n, shifted)});
  all.push_back({"empty row and column", pattern_of(n, hole)});
  all.push_back({"chain", pattern_of(chain, path)});
  return all;
}

} // namespace sparsertc::test
