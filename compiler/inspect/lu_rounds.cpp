#include "compiler/inspect/lu_rounds.h"

#include "compiler/inspect/lu_schedule.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace sparsertc {
namespace {

/// A reciprocal takes as long as so many terms.
constexpr uint32_t kPivotTerms = 6;
/// No shorter beginning of a sum is worth a segment.
constexpr uint32_t kLeastTerms = 6;
constexpr uint32_t kNever = UINT32_MAX;

struct Term {
  uint32_t left, right, pivot;
};

/// A number's sum.
struct Sum {
  uint32_t number = 0; ///< where the sum is kept
  uint32_t result = 0; ///< the number that is ready then
  LuRoundsFinish finish = LuRoundsFinish::store;
  bool begins_at_zero = false;
  std::vector<Term> terms;
  uint32_t done = 0;   ///< terms
  uint32_t height = 1; ///< sums on the longest chain from this one on
};

class RoundsMaker {
public:
  RoundsMaker(const LuTables& tables, uint32_t workers)
      : tables_(tables), n_(tables.size), lists_(workers) {
    rounds_.workers = workers;
    number_.resize(tables.nnz());
    // Lower entries, then upper ones; the diagonal first.
    rounds_.first_lower = n_ + 1;
    uint32_t next = rounds_.first_lower;
    for (const bool is_lower : {true, false}) {
      for (uint32_t j = 0; j < n_; ++j)
        for (uint64_t slot = tables.column_offset[j]; slot < tables.column_offset[j + 1]; ++slot)
          if (slot == tables.diagonal[j])
            number_[slot] = j;
          else if ((slot > tables.diagonal[j]) == is_lower)
            number_[slot] = next++;
      if (is_lower) // room for the sums of x
        next = std::max(next, rounds_.first_lower + n_);
    }
    rounds_.first_y = next;
    rounds_.numbers = next + n_;
    ready_.assign(rounds_.numbers, 0);
  }

  std::optional<LuRounds> run() {
    if (rounds_.numbers > kLuRoundsMostNumbers || n_ >= kLuRoundsMostPivots)
      return std::nullopt;
    std::vector<Sum> sums =
        factor_sums(*make_lu_gather(tables_, std::numeric_limits<uint64_t>::max() / 2));
    rounds_.factor_rounds = deal(sums);
    sums = solve_sums();
    rounds_.solve_rounds = deal(sums);
    for (const std::vector<uint32_t>& list : lists_) {
      rounds_.begin.push_back(static_cast<uint32_t>(rounds_.words.size()));
      rounds_.words.insert(rounds_.words.end(), list.begin(), list.end());
    }
    rounds_.words.insert(rounds_.words.end(), kLuRoundsAhead, 0);
    deal_input();
    return std::move(rounds_);
  }

private:
  uint32_t y(uint32_t i) const { return rounds_.first_y + i; }

  /// Of L'+U and of y, in an order in which they may be begun; what is ready as it comes in has
  /// none.
  std::vector<Sum> factor_sums(const LuGather& gather) const {
    std::vector<Sum> sums;
    for (uint64_t task = 0; task < gather.tasks(); ++task) {
      Sum sum;
      sum.number = sum.result = number_[gather.task_slot[task]];
      for (uint64_t p = gather.pair_offset[task]; p < gather.pair_offset[task + 1]; ++p)
        sum.terms.push_back({number_[gather.pair_left[p]], number_[gather.pair_right[p]],
                             number_[gather.pair_pivot[p]]});
      const bool is_pivot = sum.number < n_;
      sum.finish = is_pivot ? LuRoundsFinish::pivot : LuRoundsFinish::entry;
      if (is_pivot || !sum.terms.empty())
        sums.push_back(std::move(sum));
    }
    for (uint32_t i = 0; i < n_; ++i) {
      Sum sum;
      sum.number = sum.result = y(i);
      for (uint64_t p = tables_.row_offset[i]; p < tables_.row_diagonal[i]; ++p) {
        const uint32_t k = tables_.column_index[p];
        sum.terms.push_back({number_[tables_.row_slot[p]], y(k), k});
      }
      if (!sum.terms.empty())
        sums.push_back(std::move(sum));
    }
    return sums;
  }

  std::vector<Sum> solve_sums() const {
    std::vector<Sum> sums;
    for (uint32_t i = n_; i-- > 0;) {
      Sum sum;
      sum.number = rounds_.first_lower + i;
      sum.result = y(i);
      sum.begins_at_zero = true;
      for (uint64_t p = tables_.row_offset[i + 1]; --p > tables_.row_diagonal[i];)
        sum.terms.push_back({number_[tables_.row_slot[p]], y(tables_.column_index[p]), n_});
      sum.finish = sum.terms.empty() ? LuRoundsFinish::unknown_alone : LuRoundsFinish::unknown;
      sums.push_back(std::move(sum));
    }
    return sums;
  }

  /// Heights by going from the last sum to the first: no sum reads what a later one makes.
  void find_heights(std::vector<Sum>& sums) const {
    std::vector<uint32_t> height(ready_.size(), 0); // of the highest that reads a number
    for (size_t s = sums.size(); s-- > 0;) {
      Sum& sum = sums[s];
      sum.height = height[sum.result] + 1;
      for (const Term& term : sum.terms)
        for (const uint32_t number : {term.left, term.right, term.pivot})
          height[number] = std::max(height[number], sum.height);
    }
  }

  static uint32_t cost(const Sum& sum, uint32_t terms, bool last) {
    return kLuSegmentTerms + terms +
           (last && sum.finish == LuRoundsFinish::pivot ? kPivotTerms : 0);
  }
  uint32_t ready_terms(const Sum& sum) const {
    uint32_t count = 0;
    while (sum.done + count < sum.terms.size()) {
      const Term& term = sum.terms[sum.done + count];
      if (!is_ready(term.left) || !is_ready(term.right) || !is_ready(term.pivot))
        break;
      ++count;
    }
    return count;
  }
  bool is_ready(uint32_t number) const { return ready_[number] <= round_; }

  /// Deals the segments of all rounds that these sums take; returns how many rounds.
  uint32_t deal(std::vector<Sum>& sums) {
    // Forward sums stand behind those of the matrix, which they read.
    find_heights(sums);
    for (const Sum& sum : sums)
      ready_[sum.result] = kNever;
    std::vector<size_t> open(sums.size());
    std::iota(open.begin(), open.end(), size_t{0});
    std::stable_sort(open.begin(), open.end(),
                     [&](size_t a, size_t b) { return sums[a].height > sums[b].height; });
    uint64_t work = 0;
    for (const Sum& sum : sums)
      work += cost(sum, static_cast<uint32_t>(sum.terms.size()), true);
    const uint32_t first = round_;
    while (!open.empty()) {
      deal_round(sums, open, work);
      std::erase_if(open, [&](size_t s) { return ready_[sums[s].result] != kNever; });
      ++round_;
    }
    return round_ - first;
  }

  void deal_round(std::vector<Sum>& sums, const std::vector<size_t>& open, uint64_t& work) {
    const auto workers = static_cast<uint32_t>(lists_.size());
    const uint32_t left = sums[open.front()].height;
    // As long as the longest that must be done now, or as all rounds are on average.
    uint64_t length = (work + uint64_t{workers} * left - 1) / (uint64_t{workers} * left);
    for (const size_t s : open) {
      if (sums[s].height < left)
        break;
      length = std::max<uint64_t>(length, cost(sums[s], ready_terms(sums[s]), true));
    }
    std::vector<uint64_t> load(workers, 0);
    std::vector<std::optional<size_t>> before(workers); // a worker's last segment of the round
    for (const size_t s : open) {
      Sum& sum = sums[s];
      uint32_t terms = ready_terms(sum);
      const bool whole = sum.done + terms == sum.terms.size();
      if (terms == 0 && !whole)
        continue;
      const auto least = std::min_element(load.begin(), load.end());
      const auto w = static_cast<size_t>(least - load.begin());
      const bool must = whole && sum.height == left;
      bool last = whole;
      if (!must && *least + cost(sum, terms, last) > length) {
        last = false;
        const uint64_t room = length - std::min(length, *least);
        if (room < kLuSegmentTerms + kLeastTerms)
          continue;
        terms = std::min<uint32_t>(terms, static_cast<uint32_t>(room) - kLuSegmentTerms);
      }
      if (!last && terms < kLeastTerms)
        continue;
      if (before[w])
        lists_[w][*before[w]] |= 1u << 24;
      before[w] = lists_[w].size();
      add_segment(lists_[w], sum, terms, last);
      const uint32_t taken = cost(sum, terms, last);
      *least += taken;
      work -= std::min<uint64_t>(work, taken - (last ? 0 : kLuSegmentTerms));
    }
    for (uint32_t w = 0; w < workers; ++w)
      if (!before[w])
        lists_[w].push_back(n_ | static_cast<uint32_t>(LuRoundsFinish::nothing) << 21);
    rounds_.longest += *std::max_element(load.begin(), load.end());
  }

  void add_segment(std::vector<uint32_t>& list, Sum& sum, uint32_t terms, bool last) {
    const LuRoundsFinish finish = last ? sum.finish : LuRoundsFinish::store;
    const bool begins = sum.begins_at_zero && sum.done == 0;
    list.push_back(sum.number | terms << 11 | static_cast<uint32_t>(finish) << 21 |
                   (begins ? 1u : 0u) << 25);
    for (uint32_t t = 0; t < terms; ++t) {
      const Term& term = sum.terms[sum.done + t];
      list.push_back(term.left | term.right << 11 | term.pivot << 22);
    }
    sum.done += terms;
    if (last)
      ready_[sum.result] = round_ + 1;
  }

  /// Whole columns, about as many entries for each worker.
  void deal_input() {
    std::vector<bool> given(rounds_.numbers);
    uint32_t column = 0;
    for (uint64_t w = 0; w < lists_.size(); ++w) {
      const uint64_t end = tables_.input_nnz * (w + 1) / lists_.size();
      for (; column < n_ && tables_.input_offset[column + 1] <= end; ++column) {
        const uint64_t first = tables_.input_offset[column],
                       last = tables_.input_offset[column + 1];
        if (first == last)
          rounds_.empty_columns.push_back(column);
        for (uint64_t p = first; p < last; ++p) {
          const uint64_t number = number_[tables_.input_slot[p]];
          given[number] = true;
          rounds_.input.push_back(tables_.input_source[p] | number << 32 |
                                  uint64_t{p + 1 == last ? column + 1 : 0} << 48);
        }
      }
      rounds_.input_begin.push_back(static_cast<uint32_t>(rounds_.input.size()));
    }
    for (const uint32_t number : number_)
      if (!given[number])
        rounds_.zero.push_back(number);
  }

  const LuTables& tables_;
  const uint32_t n_;
  std::vector<uint32_t> number_; ///< by slot
  std::vector<uint32_t> ready_;  ///< by number: the first round that may read it
  uint32_t round_ = 0;
  std::vector<std::vector<uint32_t>> lists_;
  LuRounds rounds_;
};

} // namespace

std::optional<LuRounds> make_lu_rounds(const LuTables& tables, uint32_t workers) {
  if (tables.nnz() > kLuRoundsMostNumbers)
    return std::nullopt;
  return RoundsMaker(tables, workers).run();
}

} // namespace sparsertc
