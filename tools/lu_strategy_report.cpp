#include "tools/lu_strategy_report.h"

#include "tools/gpu_device.h"
#include "tools/lu_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

LuLevelRange range_of(const LuEmitted& plan, const LuEmittedLaunch& launch) {
  LuLevelRange range;
  range.first = launch.first_level;
  range.last = launch.end_level - 1;
  range.stages = launch.end_level - launch.first_level;
  range.blocks = launch.blocks;
  range.warps = launch.warps;
  for (uint32_t number = launch.first_level; number < launch.end_level; ++number) {
    const LuEmittedLevel& level = plan.levels[number];
    range.strips += level.strips();
    range.entries += level.end_task - level.first_task;
    range.multiply_adds += level.multiply_adds;
    range.unrolled += level.unrolled;
  }
  return range;
}

/// What the two columns before the multiply-adds hold.
std::pair<uint64_t, uint64_t> counts_of(const LuLevelRange& range, LuStrategy strategy) {
  if (strategy == LuStrategy::emitted)
    return {range.strips, range.entries};
  return {range.updates, range.dense_updates};
}

std::string who_works(bool alone, LuStrategy strategy) {
  if (alone)
    return "one block, a barrier of its warps between levels";
  return strategy == LuStrategy::emitted
             ? "a warp a strip, a long entry or 32 short ones, a launch "
               "a level"
             : "a warp an update, a launch a level";
}

} // namespace

LuStrategyReport report_strategy(const LuTables& tables, LuStrategyRequest request) {
  LuStrategyReport report;
  const std::unique_ptr<cuda::Context> gpu = find_gpu();
  report.device = gpu ? gpu->properties().name : fmt::format("as if on one {}", kOtherDevice);
  request.multiprocessors = gpu ? gpu->properties().multiprocessors : kOtherMultiprocessors;
  if (request.memory_bytes == 0)
    request.memory_bytes = gpu ? gpu->free_memory() : kOtherMemory;
  request.nvrtc = gpu == nullptr || has_nvrtc();
  report.choice = choose_lu_strategy(tables, request);
  report.bytes = report.choice.dataflow_bytes;
  if (report.choice.strategy == LuStrategy::dataflow)
    return report;
  if (report.choice.strategy == LuStrategy::emitted) {
    const LuEmitted plan = make_lu_emitted(tables, report.choice.emitted);
    report.bytes = plan.table_bytes();
    for (const LuEmittedLaunch& launch : plan.launches)
      report.ranges.push_back(range_of(plan, launch));
    return report;
  }
  const LuRightLooking plan = make_right_looking(tables, report.choice.right_looking);
  report.bytes = right_looking_bytes(tables, plan, request.number_bytes);
  report.tail_columns = plan.tail_columns;
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
               {"predicted_us_dataflow", report.choice.dataflow_us},
               {"predicted_us_levels", report.choice.levels_us},
               {"dense_columns_fitting", report.choice.columns.fitting()},
               {"columns_in_flight", report.choice.columns.in_flight},
               {"tail_columns", report.tail_columns},
               {"ranges", Json::array()}};
  const bool emitted = report.choice.strategy == LuStrategy::emitted;
  for (const LuLevelRange& range : report.ranges) {
    Json one = {{"first_level", range.first}, {"last_level", range.last}};
    const auto [first, second] = counts_of(range, report.choice.strategy);
    one[emitted ? "strips" : "updates"] = first;
    one[emitted ? "entries_by_tables" : "dense_updates"] = second;
    one["multiply_adds"] = range.multiply_adds;
    if (emitted)
      one["multiply_adds_unrolled"] = range.unrolled;
    one["blocks"] = range.blocks;
    one["warps"] = range.warps;
    json["ranges"].push_back(one);
  }
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
  const LuStrategy strategy = report.choice.strategy;
  const bool emitted = strategy == LuStrategy::emitted;
  text += fmt::format("\n{:>15} {:>9} {:>10} {:>10} {:>14}{}  {}\n", "levels", "launches",
                      emitted ? "strips" : "updates", emitted ? "entries" : "dense",
                      "multiply-adds", emitted ? fmt::format(" {:>14}", "unrolled") : "", "who");
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
      sum.strips += next.strips;
      sum.entries += next.entries;
      sum.multiply_adds += next.multiply_adds;
      sum.unrolled += next.unrolled;
    }
    const auto [left, right] = counts_of(sum, strategy);
    text += fmt::format("{:>15} {:>9} {:>10} {:>10} {:>14}{}  {}\n",
                        sum.first == sum.last ? std::to_string(sum.first)
                                              : fmt::format("{} - {}", sum.first, sum.last),
                        end - first, left, right, sum.multiply_adds,
                        emitted ? fmt::format(" {:>14}", sum.unrolled) : "",
                        who_works(alone, strategy));
    first = end;
  }
  if (report.tail_columns > 0)
    text +=
        fmt::format("{:>15}  the last {} columns as a dense matrix\n", "then", report.tail_columns);
  return text;
}

} // namespace sparsertc
