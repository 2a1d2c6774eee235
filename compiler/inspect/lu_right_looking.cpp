#include "compiler/inspect/lu_right_looking.h"

#include "compiler/inspect/lu_time.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <span>

namespace sparsertc {
namespace {

constexpr uint32_t kLanes = 32;
constexpr uint64_t kMostSlots = uint64_t{1} << 31;
/// Of a block that goes through small stages by itself, and of blocks that share a stage.
constexpr uint32_t kOneBlockWarps = 32;
constexpr uint32_t kBlockWarps = 4;
/// A stage is small if one block is through with it in about the time of a launch: so many updates
/// a warp, so many products altogether.
constexpr uint32_t kSmallUpdates = 2 * kOneBlockWarps;
constexpr uint64_t kSmallProducts = 16 * 1024;
/// The least work that is worth a warp of its own.
constexpr uint64_t kLeastShare = 1024;
/// Dense vectors of together so many bytes stay in the GPU's L2 cache.
constexpr uint64_t kCachedBytes = uint64_t{40} << 20;
/// Sources of a warp where they are dealt to several.
constexpr uint32_t kSourcesOfShare = 64;
/// Of the dense tail's kernels.
constexpr uint32_t kTailBlock = 64;

/// What is subtracted from one column in one stage.
struct Target {
  uint32_t column;
  uint64_t first_source;
  uint32_t sources;
  uint64_t products;
};

class Planner {
public:
  Planner(const LuTables& tables, const LuRightLookingOptions& options)
      : tables_(tables), options_(options), memory_(lu_column_memory(tables.size, options)),
        may_be_dense_(options.columns == LuWorkColumns::dense ||
                      (options.columns == LuWorkColumns::automatic && memory_.dense())) {}

  LuRightLooking make() {
    if (tables_.nnz() >= kMostSlots)
      throw UserError(
          fmt::format("{} entries of L + U are too many for a GPU", tables_.nnz()),
          fmt::format("at most {}; --device=cpu factorizes it on the CPU", kMostSlots - 1));
    if (options_.columns == LuWorkColumns::dense && tables_.size > 0 && memory_.fitting() == 0)
      throw UserError(fmt::format("a dense column of {} numbers does not fit into {} bytes of the "
                                  "GPU's memory",
                                  tables_.size, memory_.free_bytes),
                      "compressed columns take none");
    if (tables_.size == 0)
      return {};
    const std::vector<uint32_t> level_of = right_looking_levels(tables_);
    const uint32_t levels = *std::max_element(level_of.begin(), level_of.end()) + 1;
    plan_.tail_columns = choose_tail(tables_, level_of, options_).columns;
    first_of_tail_ = tables_.size - plan_.tail_columns;
    sort_sources(level_of, levels);
    add_columns_without_sources();
    for (uint32_t level = 0; level + 1 < level_offset_.size(); ++level)
      add_level(level);
    make_runs();
    return std::move(plan_);
  }

private:
  uint64_t below(uint32_t j) const {
    return tables_.column_offset[j + 1] - tables_.diagonal[j] - 1;
  }

  /// The slots of U by the level of their row, then by column, then by row.
  void sort_sources(const std::vector<uint32_t>& level_of, uint64_t levels) {
    last_level_.assign(tables_.size, kNone);
    level_offset_.assign(levels + 1, 0);
    const auto for_each_source = [&](const auto& f) {
      for (uint32_t k = 0; k < tables_.size; ++k)
        for (uint64_t slot = tables_.column_offset[k]; slot < tables_.diagonal[k]; ++slot)
          if (const uint32_t j = tables_.row_index[slot]; j < first_of_tail_ && below(j) > 0)
            f(slot, level_of[j], k);
    };
    for_each_source([&](uint64_t, uint32_t level, uint32_t k) {
      ++level_offset_[level + 1];
      if (last_level_[k] == kNone || last_level_[k] < level)
        last_level_[k] = level;
    });
    for (size_t level = 0; level + 1 < level_offset_.size(); ++level)
      level_offset_[level + 1] += level_offset_[level];
    std::vector<uint64_t> next(level_offset_.begin(), level_offset_.end() - 1);
    plan_.source.resize(level_offset_.back());
    column_of_source_.resize(level_offset_.back());
    for_each_source([&](uint64_t slot, uint32_t level, uint32_t k) {
      column_of_source_[next[level]] = k;
      const uint32_t j = tables_.row_index[slot];
      plan_.source[next[level]++] = {static_cast<uint32_t>(slot),
                                     static_cast<uint32_t>(tables_.diagonal[j] + 1),
                                     static_cast<uint32_t>(below(j))};
    });
  }

  void add_columns_without_sources() {
    for (uint32_t k = 0; k < first_of_tail_; ++k)
      if (last_level_[k] == kNone)
        plan_.update.push_back(finishing(k));
    end_stage(kNone);
  }

  LuUpdate finishing(uint32_t k) const {
    LuUpdate update;
    update.column = k;
    update.first_slot = static_cast<uint32_t>(tables_.column_offset[k]);
    update.end_slot = update.reached_slot = static_cast<uint32_t>(tables_.column_offset[k + 1]);
    update.flags = kLuUpdateLast;
    return update;
  }

  void add_level(uint32_t level) {
    std::vector<Target> targets;
    uint64_t products = 0;
    for (uint64_t s = level_offset_[level]; s < level_offset_[level + 1];) {
      Target target{column_of_source_[s], s, 0, 0};
      for (; s < level_offset_[level + 1] && column_of_source_[s] == target.column; ++s) {
        ++target.sources;
        target.products += plan_.source[s].length;
      }
      products += target.products;
      targets.push_back(target);
    }
    // The largest updates are divided where they would be what a stage waits for.
    const uint64_t warps =
        uint64_t{options_.multiprocessors} * std::max(options_.warps_of_multiprocessor, 1u);
    const uint64_t share = std::max(kLeastShare, products / std::max<uint64_t>(2 * warps, 1));
    std::vector<uint32_t> unfinished;
    for (const Target& target : targets) {
      const bool last = target.column < first_of_tail_ && last_level_[target.column] == level;
      const uint64_t average = target.products / target.sources;
      if (options_.atomics && average < kLanes && target.sources >= 2 * kSourcesOfShare) {
        divide_by_sources(target);
        if (last)
          unfinished.push_back(target.column);
      } else {
        divide_by_rows(target, last, share, average);
      }
    }
    end_stage(level);
    for (const uint32_t k : unfinished)
      plan_.update.push_back(finishing(k));
    end_stage(level);
  }

  LuUpdate whole(const Target& target) const {
    LuUpdate update;
    update.first_source = target.first_source;
    update.sources = target.sources;
    update.column = target.column;
    // Column j writes to rows below j.
    update.first_slot = update.reached_slot = plan_.source[target.first_source].slot + 1;
    update.end_slot = static_cast<uint32_t>(tables_.column_offset[target.column + 1]);
    return update;
  }

  void divide_by_rows(const Target& target, bool last, uint64_t share, uint64_t average) {
    LuUpdate update = whole(target);
    const uint32_t first = update.reached_slot, end = update.end_slot;
    const uint64_t most = std::min<uint64_t>(average, end - first) / kLanes;
    const uint64_t parts =
        std::max<uint64_t>(std::min((target.products + share - 1) / share, most), 1);
    if (parts > 1)
      update.flags |= kLuUpdateRows;
    if (last)
      update.flags |= kLuUpdateLast;
    if (is_dense(target.products / parts, (end - first) / parts, average / parts))
      update.flags |= kLuUpdateDense;
    for (uint64_t part = 0; part < parts; ++part) {
      const auto place = [&](uint64_t number) {
        return static_cast<uint32_t>(first + (end - first) * number / parts);
      };
      update.reached_slot = place(part);
      update.first_slot = part == 0 && last
                              ? static_cast<uint32_t>(tables_.column_offset[target.column])
                              : update.reached_slot;
      update.end_slot = place(part + 1);
      plan_.update.push_back(update);
    }
  }

  void divide_by_sources(const Target& target) {
    const LuUpdate all = whole(target);
    for (uint32_t first = 0; first < target.sources; first += kSourcesOfShare) {
      LuUpdate update = all;
      update.first_source += first;
      update.sources = std::min(kSourcesOfShare, target.sources - first);
      update.flags = kLuUpdateShared;
      if (options_.columns == LuWorkColumns::dense)
        update.flags |= kLuUpdateDense;
      plan_.update.push_back(update);
    }
  }

  /// Spreading out and back costs each slot twice; bisection so many steps for each product as the
  /// rows between those of a source have digits. Vectors that no cache holds are slow to reach.
  bool is_dense(uint64_t products, uint64_t slots, uint64_t average) const {
    if (options_.columns == LuWorkColumns::dense)
      return true;
    const uint64_t steps = std::bit_width(slots - std::min(slots, average));
    const uint64_t cost = memory_.in_flight * memory_.vector_bytes <= kCachedBytes ? 4 : 32;
    return may_be_dense_ && products * steps > cost * slots;
  }

  void end_stage(uint32_t level) {
    const auto end = static_cast<uint32_t>(plan_.update.size());
    if (end == plan_.stage_offset.back())
      return;
    plan_.stage_offset.push_back(end);
    plan_.stage_level.push_back(level);
  }

  std::span<const LuUpdate> updates(uint32_t first_stage, uint32_t end_stage) const {
    const uint32_t first = plan_.stage_offset[first_stage];
    return std::span(plan_.update).subspan(first, plan_.stage_offset[end_stage] - first);
  }

  uint64_t work(const LuUpdate& update) const {
    uint64_t sum = update.end_slot - update.first_slot;
    for (uint32_t s = 0; s < update.sources; ++s)
      sum += plan_.source[update.first_source + s].length;
    return sum;
  }

  bool is_small(uint32_t stage) const {
    const auto all = updates(stage, stage + 1);
    if (all.size() > kSmallUpdates)
      return false;
    uint64_t sum = 0;
    for (const LuUpdate& update : all)
      sum += work(update);
    return sum <= kSmallProducts;
  }

  /// Warps that may have a dense vector each.
  uint64_t dense_limit() const { return std::min(memory_.fitting(), memory_.in_flight); }

  void add_run(uint32_t first, uint32_t end, uint64_t blocks, uint32_t warps) {
    const auto all = updates(first, end);
    if (std::any_of(all.begin(), all.end(),
                    [](const LuUpdate& update) { return update.flags & kLuUpdateDense; })) {
      warps = static_cast<uint32_t>(std::min<uint64_t>(warps, dense_limit()));
      blocks = std::min<uint64_t>(blocks, dense_limit() / warps);
      plan_.dense_columns = std::max(plan_.dense_columns, static_cast<uint32_t>(blocks) * warps);
    }
    plan_.runs.push_back({first, end, static_cast<uint32_t>(blocks), warps});
  }

  void make_runs() {
    const uint32_t stages = plan_.stages();
    if (stages == 0)
      return; // all columns are in the tail
    if (options_.fusion == LuStageFusion::all) {
      add_run(0, stages, options_.multiprocessors, options_.warps_of_multiprocessor);
      return;
    }
    for (uint32_t stage = 0; stage < stages;) {
      uint32_t end = stage;
      if (options_.fusion == LuStageFusion::automatic)
        while (end < stages && is_small(end))
          ++end;
      if (end > stage + 1) {
        add_run(stage, end, 1, kOneBlockWarps);
        stage = end;
        continue;
      }
      const uint64_t count = updates(stage, stage + 1).size();
      add_run(stage, stage + 1, (count + kBlockWarps - 1) / kBlockWarps, kBlockWarps);
      ++stage;
    }
  }

  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  const LuTables& tables_;
  const LuRightLookingOptions& options_;
  const LuColumnMemory memory_;
  const bool may_be_dense_;
  LuRightLooking plan_;
  uint32_t first_of_tail_ = 0;
  std::vector<uint32_t> last_level_;   ///< of what is subtracted from a column, or kNone
  std::vector<uint64_t> level_offset_; ///< levels + 1 places in plan_.source
  std::vector<uint32_t> column_of_source_;
};

} // namespace

LuColumnMemory lu_column_memory(uint32_t size, const LuRightLookingOptions& options) {
  LuColumnMemory memory;
  memory.free_bytes = options.free_bytes;
  memory.vector_bytes = uint64_t{size} * options.number_bytes;
  memory.in_flight = uint64_t{options.multiprocessors} * options.warps_of_multiprocessor;
  return memory;
}

LuRightLooking make_right_looking(const LuTables& tables, const LuRightLookingOptions& options) {
  return Planner(tables, options).make();
}

uint64_t dense_tail_numbers(uint32_t columns) {
  const uint64_t side = (uint64_t{columns} + kTailBlock - 1) / kTailBlock * kTailBlock;
  return side * (side + kTailBlock);
}

uint64_t right_looking_bytes(const LuTables& tables, const LuRightLooking& plan,
                             uint32_t number_bytes) {
  const uint64_t n = tables.size;
  return plan.update.size() * sizeof(LuUpdate) + plan.source.size() * sizeof(LuSource) +
         (plan.stage_offset.size() + tables.nnz() + 2 * n + 1) * sizeof(uint32_t) +
         std::max(plan.dense_columns * n, dense_tail_numbers(plan.tail_columns)) * number_bytes;
}

} // namespace sparsertc
