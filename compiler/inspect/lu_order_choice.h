// Which fill-reducing order to take: several are tried, and the one whose factors should be
// computed in the least time wins. Fill alone does not decide: on a GPU a factorization takes about
// as long as its longest chain of columns that wait for one another.
#pragma once

#include "compiler/inspect/factor_cost.h"
#include "compiler/pattern/block_triangular.h"
#include "compiler/pattern/fill_order.h"
#include "runtime/host/task_pool.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc {

/// "auto", "on" or "off".
enum class Toggle : uint8_t { automatic, on, off };

/// Up to this bound on the entries of L + U an order is rated by its symbolic factorization;
/// beyond, by the bound, so that choosing takes little memory and time.
inline constexpr uint64_t kLargestRatedFactor = 20'000'000;

/// An order that was tried.
struct OrderCandidate {
  /// The order's name, after "btf+" where it was made inside the blocks, before "#2", "#3" ...
  /// where it was made with another seed; or "user".
  std::string name;
  FactorCost cost;
  /// Whether `cost` is that of the factors, or a bound on it: of A + A^T instead of A.
  bool exact = false;
  double predicted_us = 0;
  /// Whether the order was replaced by one with no more fill and fewer levels (shallow_order.h).
  bool shallow = false;
  /// Whether the rows and columns of a block of the block triangular form stay together.
  bool in_blocks = false;
};

struct OrderChoice {
  /// Of rows and columns alike.
  Permutation order;
  std::vector<OrderCandidate> candidates;
  /// Which of them `order` is.
  size_t chosen = 0;

  const OrderCandidate& winner() const { return candidates[chosen]; }
};

/// The order of a square pattern within its blocks: each is ordered for itself.
Permutation order_in_blocks(const Pattern& square, const BlockTriangularForm& blocks,
                            FillOrder order);

/// Rates one order, by its symbolic factorization where that is small enough.
OrderCandidate rate_order(const Pattern& square, const Permutation& order, std::string name);

/// Tries `order`, or all that are worth trying, each inside the blocks and, where `use_blocks`
/// leaves it open, without regard to them. `square` has its pivots on the diagonal. The candidates
/// are tried in parallel on `pool`, if given; ties go to the first.
OrderChoice choose_order(const Pattern& square, const BlockTriangularForm& blocks,
                         std::optional<FillOrder> order, Toggle use_blocks,
                         TaskPool* pool = nullptr);

} // namespace sparsertc
