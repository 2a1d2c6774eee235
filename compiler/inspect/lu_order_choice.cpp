#include "compiler/inspect/lu_order_choice.h"

#include "compiler/inspect/elimination_tree.h"
#include "compiler/inspect/shallow_order.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace sparsertc {
namespace {

/// A pattern this symmetric is ordered by A + A^T.
constexpr double kSymmetricEnough = 0.9;
/// An order whose bound on the time is this many times that of another is not looked at further.
constexpr double kHopeless = 8;
/// From this size on time is saved: blocks are used by the size of the largest, not by trying.
constexpr uint32_t kLarge = 200'000;
/// Nested dissection's random choices decide about several per cent of the levels: smaller matrices
/// have it this many times.
constexpr uint32_t kDissections = 4;
constexpr uint32_t kSmall = 50'000;
/// In blocks up to this size every order has the same fill.
constexpr uint32_t kTrivialBlock = 2;

/// The share of entries off the diagonal whose mirror image is an entry, too; 1 where there are
/// none.
double symmetry_of(const Pattern& square) {
  const Pattern transposed = transpose(square);
  uint64_t off_diagonal = 0, mirrored = 0;
  for (uint32_t row = 0; row < square.rows; ++row) {
    const auto other = transposed.row(row);
    auto next = other.begin();
    for (uint32_t column : square.row(row)) {
      if (column == row)
        continue;
      ++off_diagonal;
      next = std::lower_bound(next, other.end(), column);
      mirrored += next != other.end() && *next == column;
    }
  }
  return off_diagonal == 0 ? 1 : static_cast<double>(mirrored) / static_cast<double>(off_diagonal);
}

OrderCandidate bounded(const Pattern& square, const Permutation& order, std::string name) {
  OrderCandidate candidate;
  candidate.name = std::move(name);
  candidate.cost = symmetric_factor_cost(permute(square, order, order));
  candidate.exact = symmetry_of(square) == 1;
  candidate.predicted_us = predicted_factor_time_us(candidate.cost);
  return candidate;
}

void rate_exactly(const Pattern& permuted, OrderCandidate& candidate) {
  const LuPattern rows = symbolic_lu(permuted);
  const LuColumns columns = by_columns(rows);
  candidate.cost = factor_cost(rows, columns, factor_levels(rows, columns, LevelRule::gather));
  candidate.exact = true;
  candidate.predicted_us = predicted_factor_time_us(candidate.cost);
}

/// Replaces bounds by the cost itself, and the order by one with fewer levels where that is better.
void refine(const Pattern& square, Permutation& order, OrderCandidate& candidate,
            bool may_reorder) {
  const Pattern permuted = permute(square, order, order);
  if (!candidate.exact)
    rate_exactly(permuted, candidate);
  if (!may_reorder)
    return;
  const Permutation shallow = shallow_order(symbolic_lu(symmetrized_without_diagonal(permuted)));
  OrderCandidate other = candidate;
  rate_exactly(permute(permuted, shallow, shallow), other);
  if (other.predicted_us >= candidate.predicted_us)
    return;
  candidate = other;
  candidate.shallow = true;
  order = compose(order, shallow);
  // Columns that work together come to lie together.
  order = compose(order, postorder(elimination_tree(permute(square, order, order))));
}

struct Trial {
  FillOrder order = FillOrder::natural;
  bool in_blocks = false;
  uint32_t seed = 1;

  /// "btf+amd", "nd", "nd#2".
  std::string name() const {
    return (in_blocks ? "btf+" : "") + std::string(name_of(order)) +
           (seed > 1 ? "#" + std::to_string(seed) : "");
  }
};

std::vector<Trial> trials(const Pattern& square, const BlockTriangularForm& blocks,
                          std::optional<FillOrder> order, Toggle use_blocks) {
  // One block is the whole matrix.
  const bool has_blocks = blocks.blocks() > 1;
  if (has_blocks && use_blocks == Toggle::automatic && square.rows >= kLarge)
    use_blocks = blocks.largest_block() > square.rows / 2 ? Toggle::off : Toggle::on;
  std::vector<Trial> result;
  for (FillOrder each : kFillOrders) {
    if (order && each != *order)
      continue;
    // COLAMD makes up for row exchanges, which static pivots do without; worth a try where A + A^T
    // says little about A.
    if (!order && each == FillOrder::colamd && symmetry_of(square) > kSymmetricEnough)
      continue;
    if (!has_blocks || use_blocks != Toggle::on)
      result.push_back({each, false});
    if (has_blocks && use_blocks != Toggle::off)
      result.push_back({each, true});
    if (!order && each == FillOrder::nested_dissection && square.rows <= kSmall &&
        (!has_blocks || use_blocks != Toggle::on))
      for (uint32_t seed = 2; seed <= kDissections; ++seed)
        result.push_back({each, false, seed});
  }
  return result;
}

} // namespace

Permutation order_in_blocks(const Pattern& square, const BlockTriangularForm& blocks,
                            FillOrder order) {
  Permutation result;
  result.reserve(square.rows);
  std::vector<uint32_t> local(square.rows, 0);
  for (uint32_t block = 0; block < blocks.blocks(); ++block) {
    const auto first = blocks.order.begin() + blocks.block_begin[block];
    const auto last = blocks.order.begin() + blocks.block_begin[block + 1];
    const uint32_t size = static_cast<uint32_t>(last - first);
    if (size <= kTrivialBlock) {
      result.insert(result.end(), first, last);
      continue;
    }
    for (uint32_t i = 0; i < size; ++i)
      local[first[i]] = i;
    Pattern inside;
    inside.rows = inside.columns = size;
    for (uint32_t i = 0; i < size; ++i) {
      // Members ascend, so that their columns do.
      for (uint32_t column : square.row(first[i]))
        if (local[column] < size && first[local[column]] == column)
          inside.column_index.push_back(local[column]);
      inside.row_offset.push_back(inside.column_index.size());
    }
    for (uint32_t i : fill_reducing_order(inside, order))
      result.push_back(first[i]);
  }
  return result;
}

OrderCandidate rate_order(const Pattern& square, const Permutation& order, std::string name) {
  OrderCandidate candidate = bounded(square, order, std::move(name));
  if (!candidate.exact && candidate.cost.entries <= kLargestRatedFactor)
    rate_exactly(permute(square, order, order), candidate);
  return candidate;
}

OrderChoice choose_order(const Pattern& square, const BlockTriangularForm& blocks,
                         std::optional<FillOrder> order, Toggle use_blocks, TaskPool* pool) {
  const std::vector<Trial> tries = trials(square, blocks, order, use_blocks);
  OrderChoice choice;
  choice.candidates.resize(tries.size());
  std::vector<Permutation> orders(tries.size());
  const auto for_each_trial = [&](const std::function<void(uint64_t)>& work) {
    if (pool != nullptr)
      return pool->run(tries.size(), work);
    for (uint64_t i = 0; i < tries.size(); ++i)
      work(i);
  };

  for_each_trial([&](uint64_t i) {
    const Trial trial = tries[i];
    orders[i] = trial.in_blocks ? order_in_blocks(square, blocks, trial.order)
                                : fill_reducing_order(square, trial.order, trial.seed);
    choice.candidates[i] = bounded(square, orders[i], trial.name());
    choice.candidates[i].in_blocks = trial.in_blocks;
  });
  double least = std::numeric_limits<double>::infinity();
  for (const OrderCandidate& candidate : choice.candidates)
    least = std::min(least, candidate.predicted_us);
  for_each_trial([&](uint64_t i) {
    OrderCandidate& candidate = choice.candidates[i];
    // Reordered all at once, blocks would not stay together.
    if (candidate.cost.entries <= kLargestRatedFactor &&
        candidate.predicted_us <= kHopeless * least)
      refine(square, orders[i], candidate,
             tries[i].order != FillOrder::natural && !tries[i].in_blocks);
  });

  const auto best = std::min_element(
      choice.candidates.begin(), choice.candidates.end(),
      [](const auto& a, const auto& b) { return a.predicted_us < b.predicted_us; });
  choice.chosen = static_cast<size_t>(best - choice.candidates.begin());
  choice.order = std::move(orders[choice.chosen]);
  return choice;
}

} // namespace sparsertc
