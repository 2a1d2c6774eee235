#include "runtime/jacobian/shared_terms.h"

#include <algorithm>

namespace sparsertc::jacobian {
namespace {

constexpr uint32_t kWarp = 32;

/// The part of a task that a thread has.
struct Part {
  uint32_t task = 0;
  uint32_t lane = 0;
  uint32_t lanes = 0; ///< 0: no task
};

/// Tasks with as many lanes fill warps of their own.
std::vector<Part> parts_of(const TaskLanes& lanes) {
  std::vector<Part> parts;
  uint32_t task = 0;
  for (size_t group = 0; group < lanes.task_end.size(); ++group) {
    const uint32_t each = kWarp >> group;
    for (; task < lanes.task_end[group]; ++task)
      for (uint32_t lane = 0; lane < each; ++lane)
        parts.push_back({task, lane, each});
    while (parts.size() % kWarp != 0)
      parts.push_back({});
  }
  return parts;
}

} // namespace

SharedTerms shared_terms(const TermTasks& tasks) {
  const std::vector<Part> parts = parts_of(tasks.lanes);
  const uint32_t outer = tasks.outer, inner = tasks.inner;
  SharedTerms made;
  const uint64_t all = made.threads = parts.size();
  made.most_terms = tasks.most_terms;
  made.kept_numbers = tasks.most_terms * inner + outer;
  made.head.resize((2 + outer) * all);
  made.columns.assign(uint64_t{tasks.most_terms} * inner * all, kNoTangent);
  for (uint64_t warp = 0; warp < all; warp += kWarp) {
    std::vector<SharedTerms::Store> stores;
    const auto add = [&](uint32_t column, uint32_t place, uint32_t number, uint64_t lane) {
      if (column != kNoTangent)
        stores.push_back({place, number * kSharedBlockThreads + static_cast<uint32_t>(lane)});
    };
    for (uint64_t t = warp; t < warp + kWarp; ++t) {
      const Part& part = parts[t];
      if (part.lanes == 0)
        continue;
      const uint32_t begin = tasks.first[part.task], end = tasks.first[part.task + 1];
      uint32_t terms = 0;
      for (uint32_t term = begin + part.lane; term < end; term += part.lanes, ++terms)
        for (uint32_t i = 0; i < inner; ++i) {
          const uint64_t from = uint64_t{term} * inner + i;
          const uint32_t number = terms * inner + i;
          made.columns[number * all + t] = tasks.term_columns[from];
          add(tasks.term_columns[from], tasks.term_places[from], number, t - warp);
        }
      made.head[t] = tasks.row[part.task];
      made.head[all + t] = part.lanes | terms << 6;
      for (uint32_t k = 0; k < outer; ++k) {
        const uint64_t from = uint64_t{part.task} * outer + k;
        made.head[(2 + k) * all + t] = tasks.columns[from];
        if (part.lane == 0)
          add(tasks.columns[from], tasks.places[from], tasks.most_terms * inner + k, t - warp);
      }
    }
    std::sort(stores.begin(), stores.end(),
              [](const auto& a, const auto& b) { return a.place < b.place; });
    const uint64_t rounds = (stores.size() + kWarp - 1) / kWarp;
    if (made.stores.size() < rounds * all)
      made.stores.resize(rounds * all);
    for (uint64_t k = 0; k < stores.size(); ++k)
      made.stores[k / kWarp * all + warp + k % kWarp] = stores[k];
    for (uint64_t t = warp; t < warp + kWarp; ++t)
      made.head[all + t] |= static_cast<uint32_t>(rounds << 16);
  }
  return made;
}

} // namespace sparsertc::jacobian
