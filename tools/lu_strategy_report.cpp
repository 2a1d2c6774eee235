#include "tools/lu_strategy_report.h"

#include "tools/gpu_device.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOtherDevice = "NVIDIA H200";
constexpr uint32_t kOtherMultiprocessors = 132;
constexpr uint64_t kOtherMemory = uint64_t{140} << 30;

LuLevelRange range_of(const LuRightLooking& plan, const LuStageRun& run) {
  LuLevelRange range;
  // The first stage of all finishes columns, and is counted with the first level.
  const auto level = [&](uint32_t stage) {
    return plan.stage_level[stage] == UINT32_MAX ? 0 : plan.stage_level[stage];
  };
  range.first = level(run.first_stage);
  range.last = level(run.end_stage - 1);
  range.stages = run.end_stage - run.first_stage;
  range.blocks = run.blocks;
  range.warps = run.warps;
  for (uint32_t u = plan.stage_offset[run.first_stage]; u < plan.stage_offset[run.end_stage]; ++u) {
    const LuUpdate& update = plan.update[u];
    ++range.updates;
    range.dense_updates += (update.flags & kLuUpdateDense) != 0 ? 1 : 0;
    // An update that has a part of the rows has that part of the products, nearly: the first of
    // them counts for all.
    if ((update.flags & kLuUpdateRows) != 0 && u > plan.stage_offset[run.first_stage] &&
        plan.update[u - 1].column == update.column &&
        plan.update[u - 1].first_source == update.first_source)
      continue;
    for (uint32_t s = 0; s < update.sources; ++s)
      range.multiply_adds += plan.source[update.first_source + s].length;
  }
  return range;
}

} // namespace

LuStrategyReport report_strategy(const LuTables& tables, LuStrategyRequest request) {
  LuStrategyReport report;
  const std::unique_ptr<cuda::Context> gpu = find_gpu();
  report.device = gpu ? gpu->properties().name : fmt::format("as if on one {}", kOtherDevice);
  request.multiprocessors = gpu ? gpu->properties().multiprocessors : kOtherMultiprocessors;
  if (request.memory_bytes == 0)
    request.memory_bytes = gpu ? gpu->free_memory() : kOtherMemory;
  report.choice = choose_lu_strategy(tables, request);
  report.bytes = report.choice.dataflow_bytes;
  if (report.choice.strategy == LuStrategy::dataflow)
    return report;
  const LuRightLooking plan = make_right_looking(tables, report.choice.right_looking);
  report.bytes = right_looking_bytes(tables, plan, request.number_bytes);
  for (const LuStageRun& run : plan.runs)
    report.ranges.push_back(range_of(plan, run));
  return report;
}

Json to_json(const LuStrategyReport& report) {
  if (!report.refusal.empty())
    return {{"chosen", nullptr}, {"why", report.refusal}};
  Json json = {{"chosen", name_of(report.choice.strategy)},
               {"why", report.choice.reason},
               {"device", report.device},
               {"bytes_device", report.bytes},
               {"bytes_dataflow", report.choice.dataflow_bytes},
               {"dense_columns_fitting", report.choice.columns.fitting()},
               {"columns_in_flight", report.choice.columns.in_flight},
               {"ranges", Json::array()}};
  for (const LuLevelRange& range : report.ranges)
    json["ranges"].push_back({{"first_level", range.first},
                              {"last_level", range.last},
                              {"updates", range.updates},
                              {"dense_updates", range.dense_updates},
                              {"multiply_adds", range.multiply_adds},
                              {"blocks", range.blocks},
                              {"warps", range.warps}});
  return json;
}

std::string to_text(const LuStrategyReport& report, uint64_t levels) {
  if (!report.refusal.empty())
    return fmt::format("\nstrategy:  on the CPU: {}\n", report.refusal);
  std::string text = fmt::format("\nstrategy:  {}, {}\n           {}; {} bytes of device memory\n",
                                 name_of(report.choice.strategy), report.device,
                                 report.choice.reason, report.bytes);
  if (report.choice.strategy == LuStrategy::dataflow)
    return text + fmt::format("           all {} levels: one launch, an entry starts when its "
                              "operands are there\n",
                              levels);
  // Neighbouring launches of one kind in one line.
  text += fmt::format("\n{:>15} {:>9} {:>10} {:>10} {:>14}  {}\n", "levels", "launches", "updates",
                      "dense", "multiply-adds", "who");
  for (size_t first = 0; first < report.ranges.size();) {
    LuLevelRange sum = report.ranges[first];
    size_t end = first + 1;
    const bool alone = sum.stages > 1;
    for (; end < report.ranges.size() && !alone; ++end) {
      const LuLevelRange& next = report.ranges[end];
      if (next.stages > 1)
        break;
      sum.last = next.last;
      sum.updates += next.updates;
      sum.dense_updates += next.dense_updates;
      sum.multiply_adds += next.multiply_adds;
    }
    text += fmt::format("{:>15} {:>9} {:>10} {:>10} {:>14}  {}\n",
                        sum.first == sum.last ? std::to_string(sum.first)
                                              : fmt::format("{} - {}", sum.first, sum.last),
                        end - first, sum.updates, sum.dense_updates, sum.multiply_adds,
                        alone ? "one block, a barrier of its warps between levels"
                              : "a warp an update, a launch a level");
    first = end;
  }
  return text;
}

} // namespace sparsertc
