#include "compiler/inspect/lu_batch_loop.h"

#include "ir/error.h"
#include "ir/lu_dataflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sparsertc {
namespace {

constexpr uint32_t kProducts = LuBatchLoop::kProducts;

using Product = std::pair<uint64_t, uint64_t>; ///< places of left and right operand

class LoopBuilder {
public:
  explicit LoopBuilder(const LuTables& tables) : t_(tables) {
    uint64_t most = 0; // multipliers of a column
    for (uint32_t j = 0; j < t_.size; ++j)
      most = std::max(most, t_.diagonal[j] - t_.column_offset[j]);
    multipliers_ = t_.nnz() + t_.size;
    loop_.numbers = multipliers_ + most + 3;
    if (loop_.numbers > INT32_MAX || t_.input_nnz > INT32_MAX - LuBatchLoop::kGroup)
      throw UserError(fmt::format("a batch of matrices with {} numbers each", loop_.numbers),
                      "without --batch the matrices are factorized one after the other");
  }

  LuBatchLoop make() && {
    add_entries();
    add_factorization();
    add_solve();
    return std::move(loop_);
  }

private:
  uint64_t unknown(uint32_t i) const { return t_.nnz() + i; }

  /// Packets of one sum.
  void add_sum(std::vector<uint32_t>& packets, uint64_t zero_left, uint64_t start, uint64_t result,
               uint64_t pivot, uint64_t side) {
    size_t done = 0;
    do {
      const size_t count = std::min<size_t>(kProducts, products_.size() - done);
      for (size_t p = 0; p < kProducts; ++p)
        put(packets, p < count ? products_[done + p].first : zero_left);
      for (size_t p = 0; p < kProducts; ++p)
        put(packets, p < count ? products_[done + p].second : loop_.plus_zero());
      put(packets, done == 0 ? start : kNoWord);
      done += count;
      const bool ends = done == products_.size();
      put(packets, ends ? result : kNoWord);
      put(packets, ends ? pivot : kNoWord);
      put(packets, ends ? side : kNoWord);
    } while (done < products_.size());
    products_.clear();
  }
  static void put(std::vector<uint32_t>& packets, uint64_t word) {
    packets.push_back(static_cast<uint32_t>(word));
  }

  void add_entries() {
    for (uint32_t j = 0; j < t_.size; ++j)
      for (uint64_t p = t_.input_offset[j]; p < t_.input_offset[j + 1]; ++p) {
        put(loop_.entry_source, t_.input_source[p]);
        put(loop_.entry_slot, t_.input_slot[p]);
        put(loop_.entry_end, p + 1 == t_.input_offset[j + 1] ? unknown(j) : kNoWord);
        loop_.entry_scale.push_back(t_.input_scale.empty() ? 1.0 : t_.input_scale[p]);
      }
    while (loop_.entry_source.size() % LuBatchLoop::kGroup != 0) {
      put(loop_.entry_source, 0);
      put(loop_.entry_slot, loop_.nowhere());
      put(loop_.entry_end, kNoWord);
      loop_.entry_scale.push_back(1);
    }
  }

  /// v(i,j) = b(i,j) + sum over k of v(i,k) times the multiplier of u(k,j), by columns.
  void add_factorization() {
    std::vector<std::vector<Product>> of_row(t_.size);
    std::vector<bool> is_entry(t_.nnz(), false);
    for (const uint64_t slot : t_.input_slot)
      is_entry[slot] = true;
    for (uint32_t j = 0; j < t_.size; ++j) {
      const uint64_t begin = t_.column_offset[j], diagonal = t_.diagonal[j];
      for (uint64_t slot = begin; slot < diagonal; ++slot) {
        const uint32_t k = t_.row_index[slot];
        for (uint64_t q = t_.diagonal[k] + 1; q < t_.column_offset[k + 1]; ++q)
          of_row[t_.row_index[q]].push_back({q, multipliers_ + (slot - begin)});
      }
      const bool empty = t_.input_offset[j] == t_.input_offset[j + 1];
      for (uint64_t slot = begin; slot < t_.column_offset[j + 1]; ++slot) {
        const uint32_t i = t_.row_index[slot];
        products_.swap(of_row[i]);
        const uint64_t start = is_entry[slot] ? slot : loop_.plus_zero();
        if (slot < diagonal)
          add_sum(loop_.factor, loop_.minus_zero(), start, slot, t_.diagonal[i],
                  multipliers_ + (slot - begin));
        else
          add_sum(loop_.factor, loop_.minus_zero(), start, slot, kNoWord,
                  slot > diagonal ? kNoWord : (empty ? loop_.plus_zero() : unknown(j)));
      }
    }
  }

  void add_solve() {
    for (uint32_t i = 0; i < t_.size; ++i) {
      for (uint64_t p = t_.row_offset[i]; p < t_.row_diagonal[i]; ++p)
        products_.push_back({t_.row_slot[p], unknown(t_.column_index[p])});
      add_sum(loop_.forward, loop_.plus_zero(), unknown(i), unknown(i), t_.diagonal[i], kNoWord);
    }
    for (uint32_t i = t_.size; i-- > 0;) {
      for (uint64_t p = t_.row_offset[i + 1]; --p > t_.row_diagonal[i];)
        products_.push_back({t_.row_slot[p], unknown(t_.column_index[p])});
      if (!products_.empty())
        add_sum(loop_.backward, loop_.minus_zero(), loop_.minus_zero(), unknown(i), t_.diagonal[i],
                kNoWord);
    }
    const auto scale = [](const std::vector<double>& scales, uint32_t number) {
      return scales.empty() ? 1.0 : scales[number];
    };
    for (uint32_t i = 0; i < t_.size; ++i) {
      put(loop_.row, t_.row_order[i]);
      loop_.row_scale.push_back(scale(t_.row_scale, t_.row_order[i]));
      put(loop_.column, t_.column_order[i]);
      loop_.column_scale.push_back(scale(t_.column_scale, t_.column_order[i]));
    }
  }

  const LuTables& t_;
  LuBatchLoop loop_;
  uint64_t multipliers_ = 0;
  std::vector<Product> products_;
};

} // namespace

LuBatchLoop make_lu_batch_loop(const LuTables& tables) {
  return LoopBuilder(tables).make();
}

} // namespace sparsertc
