#include "tests/support/lu_grids.h"

#include "tests/support/random_sparse.h"

#include <algorithm>
#include <array>
#include <vector>

namespace sparsertc::test {
namespace {

/// Boxes of so few points are not cut any more.
constexpr uint64_t kSmallestBox = 8;

struct Box {
  std::array<uint32_t, 3> begin;
  std::array<uint32_t, 3> end;
};

class Dissection {
public:
  Dissection(uint32_t width, uint32_t height, uint32_t depth)
      : width_(width), height_(height), box_{{0, 0, 0}, {width, height, depth}} {
    points_.reserve(uint64_t{width} * height * depth);
  }
  std::vector<uint32_t> run() {
    dissect(box_);
    return std::move(points_);
  }

private:
  void dissect(const Box& box) {
    uint64_t volume = 1;
    size_t longest = 0;
    for (size_t axis = 0; axis < 3; ++axis) {
      volume *= box.end[axis] - box.begin[axis];
      if (box.end[axis] - box.begin[axis] > box.end[longest] - box.begin[longest])
        longest = axis;
    }
    if (volume <= kSmallestBox || box.end[longest] - box.begin[longest] < 3) {
      append(box);
      return;
    }
    const uint32_t middle = (box.begin[longest] + box.end[longest]) / 2;
    Box part = box;
    part.end[longest] = middle;
    dissect(part);
    part = box;
    part.begin[longest] = middle + 1;
    dissect(part);
    part.begin[longest] = middle;
    part.end[longest] = middle + 1;
    append(part);
  }

  void append(const Box& box) {
    for (uint32_t z = box.begin[2]; z < box.end[2]; ++z)
      for (uint32_t y = box.begin[1]; y < box.end[1]; ++y)
        for (uint32_t x = box.begin[0]; x < box.end[0]; ++x)
          points_.push_back((z * height_ + y) * width_ + x);
  }

  uint32_t width_, height_;
  Box box_;
  std::vector<uint32_t> points_;
};

} // namespace

Pattern dissected_grid(uint64_t seed, uint32_t width, uint32_t height, uint32_t depth,
                       double missing) {
  const std::vector<uint32_t> points = Dissection(width, height, depth).run();
  const auto size = static_cast<uint32_t>(points.size());
  std::vector<uint32_t> place(size);
  for (uint32_t i = 0; i < size; ++i)
    place[points[i]] = i;
  Random random(seed);
  Pattern pattern;
  pattern.rows = pattern.columns = size;
  pattern.row_offset.reserve(uint64_t{size} + 1);
  pattern.column_index.reserve(7 * uint64_t{size});
  for (const uint32_t point : points) {
    const uint32_t x = point % width;
    const uint32_t y = point / width % height;
    const uint32_t z = point / width / height;
    const size_t begin = pattern.column_index.size();
    const auto add = [&](uint32_t neighbour) { pattern.column_index.push_back(place[neighbour]); };
    const auto add_ahead = [&](uint32_t neighbour) {
      if (!random.chance(missing))
        add(neighbour);
    };
    add(point);
    if (x > 0)
      add(point - 1);
    if (y > 0)
      add(point - width);
    if (z > 0)
      add(point - width * height);
    if (x + 1 < width)
      add_ahead(point + 1);
    if (y + 1 < height)
      add_ahead(point + width);
    if (z + 1 < depth)
      add_ahead(point + width * height);
    std::sort(pattern.column_index.begin() + static_cast<ptrdiff_t>(begin),
              pattern.column_index.end());
    pattern.row_offset.push_back(pattern.column_index.size());
  }
  return pattern;
}

} // namespace sparsertc::test
