#include "compiler/pattern/scaled_matching.h"

#include "ir/error.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace sparsertc {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// A diagonal entry this much smaller than another in its row or column is weak.
constexpr double kStrong = 0.1;
/// Scaling factors stay within exp(+-kLargestExponent), so that products with them stay finite.
constexpr double kLargestExponent = 700;

/// The assignment problem: minimise the sum of costs c_ij = log(largest of row i) - log|a_ij| over
/// the perfect matchings. Duals u, v: u_i + v_j <= c_ij, with equality where matched.
class Assignment {
public:
  Assignment(const Pattern& square, std::span<const double> magnitudes) {
    graph_.rows = square.rows;
    graph_.columns = square.columns;
    graph_.row_offset.assign(size_t{square.rows} + 1, 0);
    graph_.column_index.reserve(square.nnz());
    cost_.reserve(square.nnz());
    magnitude_.reserve(square.nnz());
    log_of_largest_.assign(square.rows, 0);
    for (uint32_t row = 0; row < square.rows; ++row) {
      double largest = 0;
      for (uint64_t k = square.row_offset[row]; k < square.row_offset[row + 1]; ++k)
        largest = std::max(largest, magnitudes[k]);
      if (largest > 0)
        log_of_largest_[row] = std::log(largest);
      for (uint64_t k = square.row_offset[row]; k < square.row_offset[row + 1]; ++k)
        if (magnitudes[k] > 0) {
          graph_.column_index.push_back(square.column_index[k]);
          cost_.push_back(log_of_largest_[row] - std::log(magnitudes[k]));
          magnitude_.push_back(magnitudes[k]);
        }
      graph_.row_offset[row + 1] = graph_.column_index.size();
    }
  }

  ScaledMatching run() {
    start_duals();
    start_matching();
    distance_.assign(graph_.columns, kInfinity);
    parent_.assign(graph_.columns, 0);
    parent_row_of_.assign(graph_.columns, 0);
    taken_.assign(graph_.columns, false);
    for (uint32_t row = 0; row < graph_.rows; ++row)
      if (matching_.column_of_row[row] == kUnmatched)
        search_from(row);

    ScaledMatching result;
    result.search_steps = search_steps_;
    result.matching = std::move(matching_);
    result.row_scale.assign(graph_.rows, 1);
    result.column_scale.assign(graph_.columns, 1);
    if (result.is_perfect())
      scale(result);
    return result;
  }

private:
  double reduced_cost(uint32_t row, uint64_t k) const {
    return cost_[k] - v_[graph_.column_index[k]] - u_[row];
  }

  void start_duals() {
    v_.assign(graph_.columns, kInfinity);
    for (uint64_t k = 0; k < graph_.nnz(); ++k)
      v_[graph_.column_index[k]] = std::min(v_[graph_.column_index[k]], cost_[k]);
    u_.assign(graph_.rows, kInfinity);
    for (uint32_t row = 0; row < graph_.rows; ++row)
      for (uint64_t k = graph_.row_offset[row]; k < graph_.row_offset[row + 1]; ++k)
        u_[row] = std::min(u_[row], cost_[k] - v_[graph_.column_index[k]]);
  }

  /// The cheap assignment: as many pairs as the entries allow that cost nothing more.
  void start_matching() {
    Pattern tight;
    tight.rows = graph_.rows;
    tight.columns = graph_.columns;
    tight.row_offset.assign(size_t{graph_.rows} + 1, 0);
    std::vector<uint64_t> entry;
    for (uint32_t row = 0; row < graph_.rows; ++row) {
      for (uint64_t k = graph_.row_offset[row]; k < graph_.row_offset[row + 1]; ++k)
        if (reduced_cost(row, k) <= 0) {
          tight.column_index.push_back(graph_.column_index[k]);
          entry.push_back(k);
        }
      tight.row_offset[row + 1] = tight.column_index.size();
    }
    matching_ = maximum_matching(tight);
    entry_of_row_.assign(graph_.rows, 0);
    for (uint32_t row = 0; row < graph_.rows; ++row)
      for (uint64_t t = tight.row_offset[row]; t < tight.row_offset[row + 1]; ++t)
        if (tight.column_index[t] == matching_.column_of_row[row])
          entry_of_row_[row] = entry[t];
  }

  /// Dijkstra's algorithm over alternating paths from an unmatched row to the nearest unmatched
  /// column, in reduced costs. Paths that are no shorter than the best complete one are dropped.
  void search_from(uint32_t start) {
    double shortest = kInfinity;
    uint32_t end = kUnmatched;
    uint32_t row = start;
    double length = 0;
    for (;;) {
      for (uint64_t k = graph_.row_offset[row]; k < graph_.row_offset[row + 1]; ++k) {
        const uint32_t column = graph_.column_index[k];
        if (taken_[column])
          continue;
        const double through = length + std::max(0.0, reduced_cost(row, k));
        if (through >= shortest || through >= distance_[column])
          continue;
        if (distance_[column] == kInfinity)
          touched_.push_back(column);
        distance_[column] = through;
        parent_[column] = k;
        parent_row_of_[column] = row;
        if (matching_.row_of_column[column] == kUnmatched) {
          shortest = through;
          end = column;
        } else if (through <= length) {
          near_.push_back(column);
        } else {
          far_.emplace_back(through, column);
          std::push_heap(far_.begin(), far_.end(), std::greater<>());
        }
      }
      const uint32_t next = nearest(length, shortest);
      if (next == kUnmatched)
        break;
      taken_[next] = true;
      ++search_steps_;
      length = distance_[next];
      row = matching_.row_of_column[next];
    }
    if (end != kUnmatched)
      augment(start, end, shortest);
    for (uint32_t column : touched_) {
      distance_[column] = kInfinity;
      taken_[column] = false;
    }
    touched_.clear();
    near_.clear();
    far_.clear();
  }

  /// The nearest column not yet taken and nearer than `shortest`, or kUnmatched.
  uint32_t nearest(double length, double shortest) {
    if (length >= shortest)
      return kUnmatched;
    while (!near_.empty()) {
      const uint32_t column = near_.back();
      near_.pop_back();
      if (!taken_[column])
        return column;
    }
    while (!far_.empty()) {
      const auto [distance, column] = far_.front();
      if (distance >= shortest)
        return kUnmatched;
      std::pop_heap(far_.begin(), far_.end(), std::greater<>());
      far_.pop_back();
      if (!taken_[column] && distance == distance_[column])
        return column;
    }
    return kUnmatched;
  }

  void augment(uint32_t start, uint32_t end, double shortest) {
    for (uint32_t column : touched_)
      if (taken_[column]) {
        v_[column] += distance_[column] - shortest;
        const uint32_t row = matching_.row_of_column[column];
        u_[row] = cost_[entry_of_row_[row]] - v_[column];
      }
    uint32_t column = end;
    for (;;) {
      const uint32_t row = parent_row_of_[column];
      const uint32_t left = matching_.column_of_row[row];
      matching_.column_of_row[row] = column;
      matching_.row_of_column[column] = row;
      entry_of_row_[row] = parent_[column];
      u_[row] = cost_[parent_[column]] - v_[column];
      if (row == start)
        break;
      column = left;
    }
    ++matching_.size;
  }

  void scale(ScaledMatching& result) const {
    const std::vector<uint32_t> part = connected_parts(result.matching);
    // In each part any constant may move from the columns to the rows: the one that keeps the
    // factors near 1. Each row stands for its column, too.
    std::vector<double> largest(graph_.rows, -kInfinity), smallest(graph_.rows, -kInfinity);
    for (uint32_t row = 0; row < graph_.rows; ++row) {
      const double of_row = u_[row] - log_of_largest_[row];
      const double of_column = v_[result.matching.column_of_row[row]];
      largest[part[row]] = std::max({largest[part[row]], of_row, -of_column});
      smallest[part[row]] = std::max({smallest[part[row]], -of_row, of_column});
    }
    for (uint32_t row = 0; row < graph_.rows; ++row) {
      const uint32_t column = result.matching.column_of_row[row];
      const double shift = (smallest[part[row]] - largest[part[row]]) / 2;
      const double exponent = v_[column] - shift;
      result.column_scale[column] =
          std::exp(std::clamp(exponent, -kLargestExponent, kLargestExponent));
      const double row_exponent = u_[row] - log_of_largest_[row] + shift;
      // From the entry itself, so that its scaled value is 1 without the rounding of logarithms.
      result.row_scale[row] =
          std::abs(row_exponent) > kLargestExponent
              ? std::exp(std::clamp(row_exponent, -kLargestExponent, kLargestExponent))
              : 1 / result.column_scale[column] / magnitude_[entry_of_row_[row]];
    }
  }

  /// The rows of one part are connected by entries; each part is named by one of its rows.
  std::vector<uint32_t> connected_parts(const Matching& matching) const {
    std::vector<uint32_t> part = identity_permutation(graph_.rows);
    const auto find = [&](uint32_t row) {
      while (part[row] != row) {
        part[row] = part[part[row]];
        row = part[row];
      }
      return row;
    };
    for (uint32_t row = 0; row < graph_.rows; ++row)
      for (uint32_t column : graph_.row(row)) {
        const uint32_t one = find(row), other = find(matching.row_of_column[column]);
        part[std::max(one, other)] = std::min(one, other);
      }
    for (uint32_t row = 0; row < graph_.rows; ++row)
      part[row] = find(row);
    return part;
  }

  /// Without the zeros.
  Pattern graph_;
  std::vector<double> cost_, magnitude_, log_of_largest_;
  std::vector<double> u_, v_;
  Matching matching_;
  /// The entry by which a row is matched.
  std::vector<uint64_t> entry_of_row_;

  // The state of a search; reset after each, where touched.
  std::vector<double> distance_;
  std::vector<uint64_t> parent_;
  std::vector<uint32_t> parent_row_of_;
  std::vector<bool> taken_;
  std::vector<uint32_t> touched_;
  std::vector<uint32_t> near_;
  std::vector<std::pair<double, uint32_t>> far_;
  uint64_t search_steps_ = 0;
};

void check(const Pattern& square, std::span<const double> magnitudes) {
  if (square.rows != square.columns || magnitudes.size() != square.nnz())
    throw InternalError("a matching needs a square pattern and a magnitude for each entry");
}

} // namespace

ScaledMatching maximum_product_matching(const Pattern& square, std::span<const double> magnitudes) {
  check(square, magnitudes);
  return Assignment(square, magnitudes).run();
}

bool has_strong_diagonal(const Pattern& square, std::span<const double> magnitudes) {
  check(square, magnitudes);
  std::vector<double> diagonal(square.rows, 0), largest(square.rows, 0);
  for (uint32_t row = 0; row < square.rows; ++row)
    for (uint64_t k = square.row_offset[row]; k < square.row_offset[row + 1]; ++k) {
      const uint32_t column = square.column_index[k];
      if (row == column)
        diagonal[row] = magnitudes[k];
      largest[row] = std::max(largest[row], magnitudes[k]);
      largest[column] = std::max(largest[column], magnitudes[k]);
    }
  for (uint32_t row = 0; row < square.rows; ++row)
    if (diagonal[row] <= 0 || diagonal[row] < kStrong * largest[row])
      return false;
  return true;
}

} // namespace sparsertc
