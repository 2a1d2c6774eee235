#include "compiler/inspect/lu_dataflow.h"

#include "compiler/inspect/lu_partial_sums.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <compare>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

namespace sparsertc {
namespace {

constexpr uint32_t kLanes = LuDataflow::kLanes;
constexpr uint32_t kProducts = LuDataflow::kProducts;
/// Numbers of slots, rows and packets are signed on the GPU.
constexpr uint64_t kMost = uint64_t{1} << 31;

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

/// What is to be waited for before an operand is asked for a second time; the latest operand's
/// counts.
struct Gate {
  uint64_t time = 0;
  uint32_t slot = kNoWord;

  auto operator<=>(const Gate&) const = default;
};

/// Deals the records of one level after the other to the streams: each goes to the stream with the
/// fewest packets so far.
class Dealer {
public:
  explicit Dealer(const LuDataflowOptions& options) : streams_(std::max(options.warps, 1u)) {
    for (uint32_t s = 0; s < streams_.size(); ++s)
      if (s % options.block_warps < options.busy_warps)
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

  /// `task_words(id)` and `operand_words(id, product)` are arrays of the sizes given,
  /// `product_gate(id, product)` a Gate.
  template <class TaskWords, class OperandWords, class ProductGate>
  LuDataflow finish(uint32_t task_size, uint32_t operand_size, const TaskWords& task_words,
                    const OperandWords& operand_words, const ProductGate& product_gate) const {
    if (packets_ * kLanes >= kMost)
      throw UserError("the factorization is too large for the GPU's tables",
                      "--device=cpu factorizes it on the CPU");
    LuDataflow flow;
    flow.task_words = task_size;
    flow.operand_words = operand_size;
    flow.group.assign(packets_ + 1, 0);
    flow.gate.assign(packets_ + 1, kNoWord);
    flow.task.assign((packets_ + 1) * kLanes * task_size, kNoWord);
    flow.operands.assign((packets_ + 1) * kLanes * kProducts * operand_size, kNoWord);
    uint64_t packet = 0;
    std::vector<Gate> gates;
    for (const std::vector<Record>& stream : streams_) {
      for (const Record& record : stream) {
        const uint32_t lanes = record.tasks.front().lanes;
        gates.assign(record.packets, {});
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
            Gate& gate = gates[at - packet];
            gate = std::max(gate, product_gate(task.id, product));
            for (uint32_t word = 0; word < operand_size; ++word)
              flow.operands[((at * operand_size + word) * kLanes + lane + inside % lanes) *
                                kProducts +
                            inside / lanes] = given[word];
          }
        }
        for (const Gate& gate : gates)
          flow.gate[packet++] = gate.slot;
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

  const LuFlowTasks cut = split_gather(tables, gather, options.products_of_lane);
  if (tables.nnz() + cut.partial_sums >= kMost)
    throw UserError("the factorization is too large for the GPU's tables",
                    "--device=cpu factorizes it on the CPU");

  // By the time at which their products are there. None waits for another that comes within a hop.
  std::vector<uint64_t> order(cut.tasks.size());
  std::iota(order.begin(), order.end(), uint64_t{0});
  const auto hop_of = [&](uint64_t id) { return cut.tasks[id].ready / kHopClocks; };
  std::stable_sort(order.begin(), order.end(),
                   [&](uint64_t a, uint64_t b) { return hop_of(a) < hop_of(b); });
  Dealer dealer(options);
  std::vector<Task> together;
  for (size_t first = 0; first < order.size();) {
    const uint64_t hop = hop_of(order[first]);
    together.clear();
    for (; first < order.size() && hop_of(order[first]) == hop; ++first) {
      const LuFlowTask& task = cut.tasks[order[first]];
      together.push_back({order[first], task.count, task.lanes});
    }
    dealer.add_level(together);
  }

  const auto slots = static_cast<uint32_t>(tables.nnz());
  std::vector<uint64_t> pairs;
  LuDataflow flow = dealer.finish(
      4, 3,
      [&](uint64_t id) {
        const LuFlowTask& task = cut.tasks[id];
        const auto slot = static_cast<uint32_t>(gather.task_slot[task.gather]);
        const uint32_t place = slots + task.partial_sum;
        const bool from_sum = !task.is_partial && task.partial_sum != kNoPartialSum;
        return std::array{task.is_partial ? place : slot, column_of[slot], from_sum ? place : ~slot,
                          uint32_t{task.is_partial}};
      },
      [&](uint64_t id, uint64_t product) {
        const LuFlowTask& task = cut.tasks[id];
        if (product == 0)
          cut.order_products(gather, task.gather, pairs);
        const uint64_t pair = pairs[task.first + product];
        return std::array{gather.pair_left[pair], gather.pair_right[pair], gather.pair_pivot[pair]};
      },
      [&](uint64_t id, uint64_t product) {
        const uint32_t operand = cut.latest_operand(gather, pairs[cut.tasks[id].first + product]);
        return Gate{cut.published[operand] + 1, cut.latest[operand]};
      });
  flow.partial_sums = cut.partial_sums;
  return flow;
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

  Dealer dealer(options);
  std::vector<Task> tasks;
  const auto add_levels = [&](const LuLevels& levels, bool forward) {
    for (uint64_t level = 0; level < levels.count(); ++level) {
      tasks.clear();
      for (uint64_t m = levels.offset[level]; m < levels.offset[level + 1]; ++m) {
        const uint32_t i = levels.member[m];
        const uint64_t products =
            forward ? diagonal[i] - offset[i] : offset[i + 1] - diagonal[i] - 1;
        tasks.push_back({forward ? i : uint64_t{n} + i, products,
                         lanes_for(products, options.products_of_lane)});
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
      },
      [](uint64_t, uint64_t) { return Gate{}; });
}

uint64_t dataflow_bytes(const LuDataflow& dataflow) {
  return sizeof(uint32_t) *
         (dataflow.stream_offset.size() + dataflow.group.size() + dataflow.gate.size() +
          dataflow.task.size() + dataflow.operands.size());
}

} // namespace sparsertc
