#include "runtime/jacobian/shared_terms.h"

namespace sparsertc::jacobian {

SharedTerms shared_terms(const TermTasks& tasks) {
  const std::vector<TaskPart> parts = parts_of(tasks.lanes);
  const uint32_t outer = tasks.outer, inner = tasks.inner;
  SharedTerms made;
  const uint64_t all = made.threads = parts.size();
  made.most_terms = tasks.most_terms;
  made.kept_numbers = tasks.most_terms * inner + outer;
  made.head.resize((2 + outer) * all);
  made.columns.assign(uint64_t{tasks.most_terms} * inner * all, kNoTangent);
  WarpStores stores(all);
  for (uint64_t warp = 0; warp < all; warp += kWarpThreads) {
    const auto add = [&](uint32_t column, uint32_t place, uint32_t number, uint64_t lane) {
      if (column != kNoTangent)
        stores.add(place, number, static_cast<uint32_t>(lane));
    };
    for (uint64_t t = warp; t < warp + kWarpThreads; ++t) {
      const TaskPart& part = parts[t];
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
    const uint32_t rounds = stores.finish_warp(warp);
    for (uint64_t t = warp; t < warp + kWarpThreads; ++t)
      made.head[all + t] |= rounds << 16;
  }
  made.stores = stores.take();
  return made;
}

} // namespace sparsertc::jacobian
