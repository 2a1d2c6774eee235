#include "compiler/inspect/lu_dataflow.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <queue>
#include <utility>
#include <vector>

namespace sparsertc {
namespace {

constexpr uint32_t kLanes = LuDataflow::kLanes;
constexpr uint32_t kProducts = LuDataflow::kProducts;
/// Numbers of slots, rows and packets are signed on the GPU.
constexpr uint64_t kMost = uint64_t{1} << 31;

uint32_t lanes_for(uint64_t products, const LuDataflowOptions& options) {
  const uint64_t of_lane = std::max(options.products_of_lane, 1u);
  const uint64_t lanes = (products + of_lane - 1) / of_lane;
  return static_cast<uint32_t>(
      std::min<uint64_t>(kLanes, std::bit_ceil(std::max<uint64_t>(lanes, 1))));
}

struct Task {
  uint64_t id = 0;
  uint64_t products = 0;
  uint32_t lanes = 1;
};

/// Tasks side by side in the same packets.
struct Record {
  std::vector<Task> tasks;
  uint32_t packets = 1;
};

/// Deals the records of one level after the other to the streams: each goes to the stream with the
/// fewest packets so far.
class Dealer {
public:
  explicit Dealer(uint32_t streams) : streams_(streams) {
    for (uint32_t s = 0; s < streams; ++s)
      shortest_.push({0, s});
  }

  /// `tasks` do not depend on one another.
  void add_level(std::vector<Task>& tasks) {
    std::sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {
      return std::pair(b.products, a.id) < std::pair(a.products, b.id);
    });
    for (size_t first = 0; first < tasks.size();) {
      const uint32_t lanes = tasks[first].lanes;
      Record record;
      record.packets = static_cast<uint32_t>(std::max<uint64_t>(
          1, (tasks[first].products + lanes * kProducts - 1) / (lanes * kProducts)));
      while (first < tasks.size() && tasks[first].lanes == lanes &&
             record.tasks.size() < kLanes / lanes)
        record.tasks.push_back(tasks[first++]);
      auto [length, stream] = shortest_.top();
      shortest_.pop();
      shortest_.push({length + record.packets, stream});
      packets_ += record.packets;
      streams_[stream].push_back(std::move(record));
    }
  }

  /// `task_words(id)` and `operand_words(id, product)` are arrays of the sizes given.
  template <class TaskWords, class OperandWords>
  LuDataflow finish(uint32_t task_size, uint32_t operand_size, const TaskWords& task_words,
                    const OperandWords& operand_words) const {
    if (packets_ * kLanes >= kMost)
      throw UserError("the factorization is too large for the GPU's tables",
                      "--device=cpu factorizes it on the CPU");
    LuDataflow flow;
    flow.task_words = task_size;
    flow.operand_words = operand_size;
    flow.group.assign(packets_ + 1, 0);
    flow.task.assign((packets_ + 1) * kLanes * task_size, kNoWord);
    flow.operands.assign((packets_ + 1) * kLanes * kProducts * operand_size, kNoWord);
    uint64_t packet = 0;
    for (const std::vector<Record>& stream : streams_) {
      for (const Record& record : stream) {
        const uint32_t lanes = record.tasks.front().lanes;
        const uint64_t end = packet + record.packets - 1;
        flow.group[end] = lanes;
        for (size_t t = 0; t < record.tasks.size(); ++t) {
          const Task& task = record.tasks[t];
          const uint64_t lane = t * lanes;
          const auto words = task_words(task.id);
          std::copy(words.begin(), words.end(),
                    flow.task.begin() + static_cast<ptrdiff_t>((end * kLanes + lane) * task_size));
          // The first products of all lanes, then the second, ...: what is ready late comes late.
          for (uint64_t product = 0; product < task.products; ++product) {
            const uint64_t at = packet + product / (lanes * kProducts);
            const uint64_t inside = product % (lanes * kProducts);
            const auto given = operand_words(task.id, product);
            for (uint32_t word = 0; word < operand_size; ++word)
              flow.operands[((at * operand_size + word) * kLanes + lane + inside % lanes) *
                                kProducts +
                            inside / lanes] = given[word];
          }
        }
        packet += record.packets;
      }
      flow.stream_offset.push_back(static_cast<uint32_t>(packet));
    }
    return flow;
  }

private:
  std::vector<std::vector<Record>> streams_;
  uint64_t packets_ = 0;
  using Length = std::pair<uint64_t, uint32_t>; ///< packets, stream
  std::priority_queue<Length, std::vector<Length>, std::greater<>> shortest_;
};

} // namespace

LuDataflow make_factor_dataflow(const LuTables& tables, const LuGather& gather,
                                const LuDataflowOptions& options) {
  if (tables.nnz() >= kMost || tables.input_nnz >= kMost)
    throw UserError(
        fmt::format("the factors have {} entries, too many for the GPU's tables", tables.nnz()),
        "--device=cpu factorizes it on the CPU");
  std::vector<uint32_t> column_of(tables.nnz());
  for (uint32_t j = 0; j < tables.size; ++j)
    for (uint64_t slot = tables.column_offset[j]; slot < tables.column_offset[j + 1]; ++slot)
      column_of[slot] = slot == tables.diagonal[j] ? ~j : j;

  Dealer dealer(std::max(options.warps, 1u));
  std::vector<Task> tasks;
  for (size_t level = 0; level + 1 < gather.level_offset.size(); ++level) {
    tasks.clear();
    for (uint64_t id = gather.level_offset[level]; id < gather.level_offset[level + 1]; ++id) {
      const uint64_t products = gather.pair_offset[id + 1] - gather.pair_offset[id];
      tasks.push_back({id, products, lanes_for(products, options)});
    }
    dealer.add_level(tasks);
  }
  return dealer.finish(
      2, 3,
      [&](uint64_t id) {
        const uint64_t slot = gather.task_slot[id];
        return std::array{static_cast<uint32_t>(slot), column_of[slot]};
      },
      [&](uint64_t id, uint64_t product) {
        const uint64_t pair = gather.pair_offset[id] + product;
        return std::array{gather.pair_left[pair], gather.pair_right[pair], gather.pair_pivot[pair]};
      });
}

LuDataflow make_solve_dataflow(const LuTables& tables, const LuDataflowOptions& options,
                               bool transposed) {
  const uint32_t n = tables.size;
  if (uint64_t{n} * kSolveVectors * sizeof(double) >= kMost || tables.nnz() >= kMost)
    throw UserError(fmt::format("{} unknowns are too many for the GPU's tables", n),
                    "--device=cpu solves on the CPU");
  // Task i computes z(i), task n + i computes x(i).
  const std::vector<uint64_t>& offset = transposed ? tables.column_offset : tables.row_offset;
  const std::vector<uint64_t>& diagonal = transposed ? tables.diagonal : tables.row_diagonal;
  const std::vector<uint32_t>& index = transposed ? tables.row_index : tables.column_index;
  const std::vector<uint32_t>& order = transposed ? tables.row_order : tables.column_order;

  Dealer dealer(std::max(options.warps, 1u));
  std::vector<Task> tasks;
  const auto add_levels = [&](const LuLevels& levels, bool forward) {
    for (uint64_t level = 0; level < levels.count(); ++level) {
      tasks.clear();
      for (uint64_t m = levels.offset[level]; m < levels.offset[level + 1]; ++m) {
        const uint32_t i = levels.member[m];
        const uint64_t products =
            forward ? diagonal[i] - offset[i] : offset[i + 1] - diagonal[i] - 1;
        tasks.push_back({forward ? i : uint64_t{n} + i, products, lanes_for(products, options)});
      }
      dealer.add_level(tasks);
    }
  };
  add_levels(transposed ? tables.transposed_forward_levels : tables.forward_levels, true);
  add_levels(transposed ? tables.transposed_backward_levels : tables.backward_levels, false);
  return dealer.finish(
      4, 2,
      [&](uint64_t id) {
        const bool forward = id < n;
        const auto i = static_cast<uint32_t>(forward ? id : id - n);
        return std::array{static_cast<uint32_t>(n + id), forward ? kNoWord : order[i],
                          static_cast<uint32_t>(tables.diagonal[i]), 0u};
      },
      [&](uint64_t id, uint64_t product) {
        const bool forward = id < n;
        const uint64_t i = forward ? id : id - n;
        const uint64_t place = forward ? offset[i] + product : diagonal[i] + 1 + product;
        return std::array{static_cast<uint32_t>(transposed ? place : tables.row_slot[place]),
                          (forward ? n : 2 * n) + index[place]};
      });
}

uint64_t dataflow_bytes(const LuDataflow& dataflow) {
  return sizeof(uint32_t) * (dataflow.stream_offset.size() + dataflow.group.size() +
                             dataflow.task.size() + dataflow.operands.size());
}

} // namespace sparsertc
