#include "compiler/pattern/block_triangular.h"

#include <algorithm>

namespace sparsertc {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

/// Tarjan's algorithm with its own stack, so that long chains cannot overflow the program's.
class Components {
public:
  explicit Components(const Pattern& pattern)
      : pattern_(pattern), number_(pattern.rows, kNone), low_(pattern.rows, 0),
        component_(pattern.rows, kNone), cursor_(pattern.rows, 0) {}

  /// The component of each vertex. A component is numbered after all that can be reached from it.
  std::vector<uint32_t> run(uint32_t& count) {
    for (uint32_t vertex = 0; vertex < pattern_.rows; ++vertex)
      if (number_[vertex] == kNone)
        search_from(vertex);
    count = components_;
    return std::move(component_);
  }

private:
  void enter(uint32_t vertex) {
    number_[vertex] = low_[vertex] = entered_++;
    cursor_[vertex] = pattern_.row_offset[vertex];
    open_.push_back(vertex);
    path_.push_back(vertex);
  }

  void search_from(uint32_t start) {
    enter(start);
    while (!path_.empty()) {
      const uint32_t vertex = path_.back();
      if (cursor_[vertex] < pattern_.row_offset[vertex + 1]) {
        const uint32_t next = pattern_.column_index[cursor_[vertex]++];
        if (number_[next] == kNone)
          enter(next);
        else if (component_[next] == kNone)
          low_[vertex] = std::min(low_[vertex], number_[next]);
        continue;
      }
      path_.pop_back();
      if (!path_.empty())
        low_[path_.back()] = std::min(low_[path_.back()], low_[vertex]);
      if (low_[vertex] == number_[vertex])
        close(vertex);
    }
  }

  /// `root` was entered first of its component: everything opened since then belongs to it.
  void close(uint32_t root) {
    uint32_t vertex;
    do {
      vertex = open_.back();
      open_.pop_back();
      component_[vertex] = components_;
    } while (vertex != root);
    ++components_;
  }

  const Pattern& pattern_;
  std::vector<uint32_t> number_, low_, component_;
  std::vector<uint64_t> cursor_;
  std::vector<uint32_t> path_, open_;
  uint32_t entered_ = 0, components_ = 0;
};

} // namespace

uint32_t BlockTriangularForm::largest_block() const {
  uint32_t largest = 0;
  for (uint32_t block = 0; block < blocks(); ++block)
    largest = std::max(largest, block_begin[block + 1] - block_begin[block]);
  return largest;
}

BlockTriangularForm block_triangular_form(const Pattern& square) {
  BlockTriangularForm form;
  uint32_t count = 0;
  const std::vector<uint32_t> component = Components(square).run(count);
  // The last numbered component comes first: entries then lead to later blocks only.
  form.block_begin.assign(size_t{count} + 1, 0);
  for (uint32_t number : component)
    ++form.block_begin[count - number];
  for (uint32_t block = 0; block < count; ++block)
    form.block_begin[block + 1] += form.block_begin[block];
  std::vector<uint32_t> next(form.block_begin.begin(), form.block_begin.end() - 1);
  form.order.resize(square.rows);
  for (uint32_t vertex = 0; vertex < square.rows; ++vertex)
    form.order[next[count - 1 - component[vertex]]++] = vertex;
  return form;
}

} // namespace sparsertc
