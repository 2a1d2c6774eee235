#include "compiler/pattern/matching.h"

#include <algorithm>

namespace sparsertc {
namespace {

/// Grows a matching by phases: in each, shortest augmenting paths that share no row.
class HopcroftKarp {
public:
  explicit HopcroftKarp(const Pattern& pattern)
      : pattern_(pattern), distance_(pattern.rows), cursor_(pattern.rows) {
    matching_.column_of_row.assign(pattern.rows, kUnmatched);
    matching_.row_of_column.assign(pattern.columns, kUnmatched);
  }

  Matching run() {
    match_cheaply();
    while (label_rows()) {
      for (uint32_t row = 0; row < pattern_.rows; ++row)
        cursor_[row] = pattern_.row_offset[row];
      for (uint32_t row = 0; row < pattern_.rows; ++row)
        if (matching_.column_of_row[row] == kUnmatched)
          augment_from(row);
    }
    return std::move(matching_);
  }

private:
  void pair(uint32_t row, uint32_t column) {
    matching_.column_of_row[row] = column;
    matching_.row_of_column[column] = row;
  }

  void match_cheaply() {
    for (uint32_t row = 0; row < std::min(pattern_.rows, pattern_.columns); ++row) {
      const auto columns = pattern_.row(row);
      if (std::binary_search(columns.begin(), columns.end(), row)) {
        pair(row, row);
        ++matching_.size;
      }
    }
    for (uint32_t row = 0; row < pattern_.rows; ++row) {
      if (matching_.column_of_row[row] != kUnmatched)
        continue;
      for (uint32_t column : pattern_.row(row))
        if (matching_.row_of_column[column] == kUnmatched) {
          pair(row, column);
          ++matching_.size;
          break;
        }
    }
  }

  /// Breadth first from the unmatched rows. Returns whether an unmatched column is reached.
  bool label_rows() {
    queue_.clear();
    for (uint32_t row = 0; row < pattern_.rows; ++row) {
      const bool free = matching_.column_of_row[row] == kUnmatched;
      distance_[row] = free ? 0 : kUnmatched;
      if (free)
        queue_.push_back(row);
    }
    bool reached = false;
    uint32_t last = kUnmatched; // rows beyond this distance lie on no shortest path
    for (size_t head = 0; head < queue_.size() && distance_[queue_[head]] < last; ++head) {
      const uint32_t row = queue_[head];
      for (uint32_t column : pattern_.row(row)) {
        const uint32_t next = matching_.row_of_column[column];
        if (next == kUnmatched) {
          reached = true;
          last = distance_[row] + 1;
        } else if (distance_[next] == kUnmatched) {
          distance_[next] = distance_[row] + 1;
          queue_.push_back(next);
        }
      }
    }
    return reached;
  }

  /// Depth first along ascending distances; each entry is looked at once a phase.
  void augment_from(uint32_t start) {
    path_.assign(1, start);
    while (!path_.empty()) {
      const uint32_t row = path_.back();
      if (cursor_[row] == pattern_.row_offset[row + 1]) {
        path_.pop_back();
        if (!path_.empty())
          ++cursor_[path_.back()];
        continue;
      }
      const uint32_t column = pattern_.column_index[cursor_[row]];
      const uint32_t next = matching_.row_of_column[column];
      if (next == kUnmatched) {
        for (uint32_t on_path : path_)
          pair(on_path, pattern_.column_index[cursor_[on_path]]);
        // A row belongs to one path a phase.
        for (uint32_t on_path : path_)
          cursor_[on_path] = pattern_.row_offset[on_path + 1];
        ++matching_.size;
        return;
      }
      if (distance_[next] == distance_[row] + 1 && cursor_[next] != pattern_.row_offset[next + 1])
        path_.push_back(next);
      else
        ++cursor_[row];
    }
  }

  const Pattern& pattern_;
  Matching matching_;
  std::vector<uint32_t> distance_;
  std::vector<uint64_t> cursor_;
  std::vector<uint32_t> queue_, path_;
};

/// Follows alternating paths from the unmatched rows; marks the rows and columns they visit.
void alternate(const Pattern& pattern, const std::vector<uint32_t>& column_of_row,
               const std::vector<uint32_t>& row_of_column, std::vector<uint32_t>& rows,
               std::vector<uint32_t>& columns) {
  std::vector<bool> seen(pattern.columns, false);
  for (uint32_t row = 0; row < pattern.rows; ++row)
    if (column_of_row[row] == kUnmatched)
      rows.push_back(row);
  for (size_t head = 0; head < rows.size(); ++head)
    for (uint32_t column : pattern.row(rows[head])) {
      if (seen[column])
        continue;
      seen[column] = true;
      columns.push_back(column);
      // In a maximum matching every column on such a path has its row.
      rows.push_back(row_of_column[column]);
    }
  std::sort(rows.begin(), rows.end());
  std::sort(columns.begin(), columns.end());
}

} // namespace

Matching maximum_matching(const Pattern& pattern) {
  return HopcroftKarp(pattern).run();
}

Permutation row_permutation(const Matching& matching) {
  return matching.row_of_column;
}

DulmageMendelsohn dulmage_mendelsohn(const Pattern& pattern, const Matching& maximum) {
  DulmageMendelsohn sets;
  alternate(pattern, maximum.column_of_row, maximum.row_of_column, sets.overdetermined_rows,
            sets.overdetermined_columns);
  alternate(transpose(pattern), maximum.row_of_column, maximum.column_of_row,
            sets.underdetermined_columns, sets.underdetermined_rows);
  return sets;
}

} // namespace sparsertc
