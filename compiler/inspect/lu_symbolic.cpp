#include "compiler/inspect/lu_symbolic.h"

#include "compiler/inspect/elimination_tree.h"
#include "compiler/pattern/permutation.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <numeric>

namespace sparsertc {
namespace {

constexpr uint32_t kNever = UINT32_MAX;

void check_square(const Pattern& a) {
  if (a.rows != a.columns)
    throw UserError(fmt::format("a matrix of {} rows and {} columns has no LU factorization",
                                a.rows, a.columns),
                    "the matrix must be square");
}

/// A set of numbers below `size` that is walked through in ascending order: a bit each, and a bit
/// for each word that is not zero.
class OrderedSet {
public:
  explicit OrderedSet(uint32_t size)
      : words_((size + 63) / 64), summary_((words_.size() + 63) / 64) {}

  void insert(uint32_t value) {
    words_[value / 64] |= uint64_t{1} << (value % 64);
    summary_[value / 4096] |= uint64_t{1} << (value / 64 % 64);
  }
  /// The least member that is at least `from`, or kNever.
  uint32_t next(uint32_t from) const {
    size_t word = from / 64;
    if (word >= words_.size())
      return kNever;
    if (const uint64_t rest = words_[word] >> (from % 64))
      return from + static_cast<uint32_t>(std::countr_zero(rest));
    ++word;
    for (size_t group = word / 64; group < summary_.size(); ++group) {
      const uint64_t mask = group == word / 64 ? ~uint64_t{0} << (word % 64) : ~uint64_t{0};
      if (const uint64_t rest = summary_[group] & mask) {
        const size_t found = group * 64 + static_cast<size_t>(std::countr_zero(rest));
        return static_cast<uint32_t>(found * 64 +
                                     static_cast<size_t>(std::countr_zero(words_[found])));
      }
    }
    return kNever;
  }
  /// Appends all members in ascending order and leaves the set empty.
  void move_to(std::vector<uint32_t>& out) {
    for (size_t group = 0; group < summary_.size(); ++group) {
      for (uint64_t used = summary_[group]; used != 0; used &= used - 1) {
        const size_t word = group * 64 + static_cast<size_t>(std::countr_zero(used));
        for (uint64_t rest = words_[word]; rest != 0; rest &= rest - 1)
          out.push_back(
              static_cast<uint32_t>(word * 64 + static_cast<size_t>(std::countr_zero(rest))));
        words_[word] = 0;
      }
      summary_[group] = 0;
    }
  }

private:
  std::vector<uint64_t> words_;
  std::vector<uint64_t> summary_;
};

/// Where a row stands while rows are made in any order.
struct RowPlace {
  const std::vector<uint32_t>* store = nullptr;
  uint64_t begin = 0;
  uint64_t diagonal = 0;
  uint64_t pruned_end = 0; ///< what later rows still have to look at ends here
  uint64_t end = 0;
};

/// What a thread needs to make rows by reach.
struct ReachWorkspace {
  explicit ReachWorkspace(uint32_t size) : mark(size, kNever), members(size) {}
  std::vector<uint32_t> mark;
  std::vector<uint32_t> stack;
  std::vector<uint32_t> found;
  OrderedSet members;
};

/// Sorts `found` and appends it to `store`: by comparisons where it is short, else through bits.
void append_sorted(ReachWorkspace& work, uint32_t size, std::vector<uint32_t>& store) {
  const size_t length = work.found.size();
  if (length < 32 || length * 4096 < size) {
    std::sort(work.found.begin(), work.found.end());
    store.insert(store.end(), work.found.begin(), work.found.end());
    return;
  }
  for (const uint32_t value : work.found)
    work.members.insert(value);
  work.members.move_to(store);
}

/// Makes row i, whose smaller neighbours' rows are made, at the end of `store`, and prunes them.
void make_row(const Pattern& a, uint32_t i, std::vector<RowPlace>& place, ReachWorkspace& work,
              std::vector<uint32_t>& store) {
  work.found.assign(1, i);
  work.mark[i] = i;
  const auto visit = [&](uint32_t w) {
    if (work.mark[w] == i)
      return;
    work.mark[w] = i;
    work.found.push_back(w);
    if (w < i)
      work.stack.push_back(w);
  };
  for (const uint32_t w : a.row(i))
    visit(w);
  while (!work.stack.empty()) {
    const uint32_t k = work.stack.back();
    work.stack.pop_back();
    const RowPlace& row = place[k];
    const uint32_t* const entries = row.store->data();
    for (uint64_t p = row.diagonal + 1; p < row.pruned_end; ++p)
      visit(entries[p]);
  }
  RowPlace& own = place[i];
  own.store = &store;
  own.begin = store.size();
  append_sorted(work, a.rows, store);
  own.end = store.size();
  own.pruned_end = own.end;
  uint64_t p = own.begin;
  for (; store[p] != i; ++p) {
    // L(i,k) != 0. If U(k,i) != 0, then what stands behind it in row k stands in row i, too.
    RowPlace& row = place[store[p]];
    if (row.pruned_end != row.end || row.diagonal + 1 == row.end)
      continue;
    const uint32_t* const entries = row.store->data();
    const uint32_t* const found =
        std::lower_bound(entries + row.diagonal + 1, entries + row.end, i);
    if (found != entries + row.end && *found == i && found + 1 != entries + row.end)
      row.pruned_end = static_cast<uint64_t>(found - entries) + 1;
  }
  own.diagonal = p;
}

/// The rows from where they stand, in one array.
LuPattern collect(uint32_t size, const std::vector<RowPlace>& place, TaskPool* pool) {
  LuPattern result;
  result.rows.rows = result.rows.columns = size;
  result.rows.row_offset.resize(uint64_t{size} + 1);
  result.diagonal.resize(size);
  uint64_t total = 0;
  for (uint32_t i = 0; i < size; ++i) {
    result.rows.row_offset[i] = total;
    result.diagonal[i] = total + (place[i].diagonal - place[i].begin);
    total += place[i].end - place[i].begin;
  }
  result.rows.row_offset[size] = total;
  result.rows.column_index.resize(total);
  const uint32_t chunks = pool == nullptr ? 1 : std::min(size, 8 * pool->threads());
  const auto copy = [&](uint64_t chunk) {
    const uint32_t first = static_cast<uint32_t>(uint64_t{size} * chunk / chunks);
    const uint32_t last = static_cast<uint32_t>(uint64_t{size} * (chunk + 1) / chunks);
    for (uint32_t i = first; i < last; ++i)
      std::copy(place[i].store->data() + place[i].begin, place[i].store->data() + place[i].end,
                result.rows.column_index.data() + result.rows.row_offset[i]);
  };
  if (pool == nullptr)
    copy(0);
  else
    pool->run(chunks, copy);
  return result;
}

/// Workspaces that tasks borrow: as many as threads work at once.
template <class Workspace>
class WorkspaceShelf {
public:
  explicit WorkspaceShelf(uint32_t size) : size_(size) {}
  std::unique_ptr<Workspace> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!shelf_.empty()) {
        std::unique_ptr<Workspace> taken = std::move(shelf_.back());
        shelf_.pop_back();
        return taken;
      }
    }
    return std::make_unique<Workspace>(size_);
  }
  void give_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    shelf_.push_back(std::move(workspace));
  }

private:
  uint32_t size_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> shelf_;
};

/// What a thread needs for fill2.
struct Fill2Workspace {
  explicit Fill2Workspace(uint32_t size) : mark(size, kNever), entries(size) {}
  std::vector<uint32_t> mark;
  std::vector<uint32_t> frontier;
  OrderedSet entries;
};

/// Row `source` of L+U, appended to `out`. The threshold is the largest inner vertex of the paths
/// that are followed; thresholds come in ascending order, so that each vertex is first met on a
/// path whose largest inner vertex is least. (A search that takes vertices in any other order
/// misses fill.)
void fill2_row(const Pattern& a, uint32_t source, Fill2Workspace& work,
               std::vector<uint32_t>& out) {
  work.mark[source] = source;
  work.entries.insert(source);
  for (const uint32_t w : a.row(source)) {
    work.mark[w] = source;
    work.entries.insert(w);
  }
  for (uint32_t threshold = work.entries.next(0); threshold < source;
       threshold = work.entries.next(threshold + 1)) {
    work.frontier.assign(1, threshold);
    while (!work.frontier.empty()) {
      const uint32_t u = work.frontier.back();
      work.frontier.pop_back();
      for (const uint32_t w : a.row(u)) {
        if (work.mark[w] == source)
          continue;
        work.mark[w] = source;
        if (w > threshold)
          work.entries.insert(w);
        else
          work.frontier.push_back(w);
      }
    }
  }
  work.entries.move_to(out);
}

} // namespace

LuColumns by_columns(const LuPattern& pattern) {
  LuColumns result;
  result.columns = transpose(pattern.rows, &result.place_in_rows);
  result.diagonal.resize(pattern.rows.rows);
  for (uint32_t j = 0; j < pattern.rows.rows; ++j) {
    const auto column = result.columns.row(j);
    result.diagonal[j] =
        result.columns.row_offset[j] +
        static_cast<uint64_t>(std::lower_bound(column.begin(), column.end(), j) - column.begin());
  }
  return result;
}

LuPattern symbolic_lu(const Pattern& a, TaskPool* pool) {
  check_square(a);
  const uint32_t size = a.rows;
  TreeParts cut;
  if (pool == nullptr || pool->threads() == 1) {
    cut.top.resize(size);
    std::iota(cut.top.begin(), cut.top.end(), 0);
  } else {
    std::vector<uint64_t> weight(size);
    for (uint32_t i = 0; i < size; ++i)
      weight[i] = a.row_length(i) + 1;
    cut = cut_tree(elimination_tree(a), weight, 4 * uint64_t{pool->threads()});
  }
  std::vector<RowPlace> place(size);
  std::vector<std::vector<uint32_t>> stores(cut.parts.size() + 1);
  WorkspaceShelf<ReachWorkspace> shelf(size);
  const auto make_part = [&](const std::vector<uint32_t>& vertices, std::vector<uint32_t>& store) {
    std::unique_ptr<ReachWorkspace> work = shelf.take();
    for (const uint32_t i : vertices)
      make_row(a, i, place, *work, store);
    shelf.give_back(std::move(work));
  };
  if (pool != nullptr)
    pool->run(cut.parts.size(), [&](uint64_t p) { make_part(cut.parts[p], stores[p]); });
  make_part(cut.top, stores.back());
  return collect(size, place, pool);
}

LuPattern symbolic_lu_fill2(const Pattern& a, TaskPool* pool) {
  check_square(a);
  const uint32_t size = a.rows;
  // Late rows take longest: small chunks, the last ones first.
  const uint32_t chunks = pool == nullptr ? 1 : std::min(size, 64 * pool->threads());
  std::vector<RowPlace> place(size);
  std::vector<std::vector<uint32_t>> stores(std::max<uint32_t>(chunks, 1));
  WorkspaceShelf<Fill2Workspace> shelf(size);
  const auto make_chunk = [&](uint64_t task) {
    const uint64_t chunk = chunks - 1 - task;
    std::unique_ptr<Fill2Workspace> work = shelf.take();
    std::vector<uint32_t>& store = stores[chunk];
    const uint32_t first = static_cast<uint32_t>(uint64_t{size} * chunk / chunks);
    const uint32_t last = static_cast<uint32_t>(uint64_t{size} * (chunk + 1) / chunks);
    for (uint32_t i = first; i < last; ++i) {
      RowPlace& own = place[i];
      own.store = &store;
      own.begin = store.size();
      fill2_row(a, i, *work, store);
      own.end = store.size();
      own.diagonal = static_cast<uint64_t>(
          std::lower_bound(store.begin() + static_cast<ptrdiff_t>(own.begin), store.end(), i) -
          store.begin());
    }
    shelf.give_back(std::move(work));
  };
  if (pool == nullptr)
    make_chunk(0);
  else
    pool->run(chunks, make_chunk);
  return collect(size, place, pool);
}

} // namespace sparsertc
