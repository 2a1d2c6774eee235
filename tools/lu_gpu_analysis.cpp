#include "tools/lu_gpu_analysis.h"

#include "compiler/inspect/elimination_tree.h"
#include "compiler/inspect/factor_cost.h"
#include "ir/error.h"
#include "runtime/kernels/compile.h"
#include "tools/gpu_device.h"
#include "tools/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Whether it pays to have the GPU find the pattern for the host: an estimate of both from the
/// elimination tree of A + A^T.
bool gpu_finds_patterns_faster(const Pattern& placed) {
  // Measured on an H200 beside 16 cores: nanoseconds for an entry of L+U (on the GPU's side copied
  // to the host), a vertex that a group of rows visits, and to begin with.
  constexpr double kCpuEntry = 12, kGpuEntry = 3, kGpuVisit = 8, kGpuBegin = 50e6;
  constexpr uint32_t kGroup = 64, kLeastRows = 50'000;
  const uint32_t size = placed.rows;
  if (size < kLeastRows)
    return false;
  const std::vector<uint32_t> parent = elimination_tree(placed);
  std::vector<uint32_t> below(size, 1); // vertices of the subtree
  double visits = 0, entries = -static_cast<double>(size);
  for (uint32_t v = 0; v < size; ++v) {
    if (parent[v] != kNoVertex)
      below[parent[v]] += below[v];
  }
  for (uint32_t first = 0; first < size; first += kGroup)
    visits +=
        *std::max_element(below.begin() + first, below.begin() + std::min(first + kGroup, size));
  for (const uint32_t count : cholesky_column_counts(placed, parent))
    entries += 2.0 * count;
  return kCpuEntry * entries > kGpuEntry * entries + kGpuVisit * visits + kGpuBegin;
}

/// The height of the elimination tree: no fewer levels than a factorization has.
uint32_t height(const LuPattern& rows, const LuColumns& columns) {
  const uint32_t size = rows.rows.rows;
  std::vector<uint32_t> level(size, 0);
  uint32_t greatest = 0;
  for (uint32_t k = 0; k < size; ++k) {
    uint32_t parent = size;
    if (const uint64_t p = rows.diagonal[k] + 1; p < rows.rows.row_offset[k + 1])
      parent = rows.rows.column_index[p];
    if (const uint64_t p = columns.diagonal[k] + 1; p < columns.columns.row_offset[k + 1])
      parent = std::min(parent, columns.columns.column_index[p]);
    greatest = std::max(greatest, level[k]);
    if (parent < size)
      level[parent] = std::max(level[parent], level[k] + 1);
  }
  return greatest + 1;
}

/// Whether it pays to have the GPU find levels of a pattern in host memory.
bool gpu_finds_levels_faster(const LuPattern& rows, const LuColumns& columns) {
  // Measured on an H200 beside one core: nanoseconds for an entry, a level, and to begin with.
  constexpr double kCpuEntry = 2.4, kGpuEntry = 0.5, kGpuLevel = 4'500, kGpuBegin = 10e6;
  const auto entries = static_cast<double>(rows.rows.nnz());
  return kCpuEntry * entries > kGpuEntry * entries + kGpuLevel * height(rows, columns) + kGpuBegin;
}

[[noreturn]] void fail_verification(const char* what) {
  throw InternalError(fmt::format("--verify: the GPU found {} unlike the CPU's", what));
}

} // namespace

std::unique_ptr<LuAnalysisGpu> open_analysis_gpu(const CacheOptions& options) {
  auto gpu = std::make_unique<LuAnalysisGpu>();
  gpu->context = std::make_unique<cuda::Context>(cuda::Driver::open());
  const std::shared_ptr<const cuda::Nvrtc> nvrtc = cuda::Nvrtc::open();
  const uint32_t capability = gpu->context->properties().compute_capability;
  std::vector<uint8_t> image;
  if (options.off) {
    image = kernels::compile_lu_analysis(*nvrtc, capability);
  } else {
    Cache cache(Cache::choose_directory(options.directory), options.limit_mib << 20);
    image = kernels::compile_lu_analysis(*nvrtc, capability, &cache);
  }
  gpu->kernels.emplace(*gpu->context, image);
  return gpu;
}

LuPatternFinder::LuPatternFinder(const LuSymbolicOptions& options, const CacheOptions& cache,
                                 TaskPool* pool)
    : LuPatternFinder(
          options, [&cache] { return open_analysis_gpu(cache); }, pool) {}

LuPatternFinder::LuPatternFinder(const LuSymbolicOptions& options, OpenGpu open, TaskPool* pool)
    : options_(options), open_(std::move(open)), pool_(pool) {
  const size_t word = choose_word("--symbolic", options.where, {"auto", "cpu", "gpu"});
  forced_ = word == 2;
  allowed_ = word != 1;
}

LuAnalysisGpu& LuPatternFinder::gpu() {
  if (!gpu_)
    gpu_ = open_();
  return *gpu_;
}

bool LuPatternFinder::use_gpu(const std::function<bool()>& worthwhile) {
  if (forced_)
    return true;
  if (!allowed_ || !worthwhile())
    return false;
  try {
    gpu();
    return true;
  } catch (const NoGpuError&) {
  } catch (const RuntimeError&) {
    // No NVRTC, or it does not know the GPU.
  }
  allowed_ = false;
  return false;
}

LuPattern LuPatternFinder::pattern(const Pattern& placed) {
  LuSymbolicStep step;
  step.name = "pattern";
  const double start = now_us();
  LuPattern result;
  if (use_gpu([&] { return gpu_finds_patterns_faster(placed); })) {
    lu::GpuSymbolicOptions how;
    how.memory_limit = options_.memory_limit;
    lu::GpuSymbolic found =
        lu::gpu_symbolic_lu(*gpu().kernels, placed.row_offset, placed.column_index, how);
    lu::HostRows rows = found.take_host_rows(*gpu().context);
    result.rows.rows = result.rows.columns = placed.rows;
    result.rows.row_offset = std::move(rows.row_offset);
    result.rows.column_index = std::move(rows.columns);
    result.diagonal = std::move(rows.diagonal);
    step.on_gpu = true;
    step.symbolic = found.report;
  } else {
    result = symbolic_lu(placed, pool_);
  }
  step.time_us = now_us() - start;
  steps_.push_back(std::move(step));
  if (steps_.back().on_gpu && options_.verify && !(result == symbolic_lu(placed, pool_)))
    fail_verification("a pattern");
  return result;
}

LuLevels LuPatternFinder::levels(const LuPattern& rows, const LuColumns& columns, LevelRule rule) {
  LuSymbolicStep step;
  step.name = rule == LevelRule::gather ? "gather levels" : "right-looking levels";
  const double start = now_us();
  LuLevels result;
  if (use_gpu([&] { return gpu_finds_levels_faster(rows, columns); })) {
    lu::GpuLevelsOptions how;
    how.memory_limit = options_.memory_limit;
    how.right_looking = rule == LevelRule::right_looking;
    step.levels.emplace();
    result = lu::gpu_levels(*gpu().kernels,
                            {rows.rows.row_offset, rows.diagonal, rows.rows.column_index}, how,
                            &*step.levels);
    step.on_gpu = true;
  } else {
    result = factor_levels(rows, columns, rule);
  }
  step.time_us = now_us() - start;
  steps_.push_back(std::move(step));
  if (steps_.back().on_gpu && options_.verify && !(result == factor_levels(rows, columns, rule)))
    fail_verification("levels");
  return result;
}

LuFinders LuPatternFinder::finders() {
  return {[this](const Pattern& placed) { return pattern(placed); },
          [this](const LuPattern& rows, const LuColumns& columns, LevelRule rule) {
            return levels(rows, columns, rule);
          }};
}

Json to_json(const std::vector<LuSymbolicStep>& steps) {
  Json all = Json::array();
  for (const LuSymbolicStep& step : steps) {
    Json json = {
        {"step", step.name}, {"device", step.on_gpu ? "gpu" : "cpu"}, {"time_us", step.time_us}};
    if (step.symbolic) {
      const lu::GpuSymbolicReport& r = *step.symbolic;
      json["upload_us"] = r.upload_us;
      json["count_us"] = r.count_us;
      json["write_us"] = r.write_us;
      json["chunks"] = r.chunks;
      json["chunk_entries"] = r.chunk_entries;
      json["rows_in_flight"] = r.rows_in_flight;
      json["early_rows_in_flight"] = r.early_rows_in_flight;
      json["late_rows_in_flight"] = r.late_rows_in_flight;
      json["split_row"] = r.split_row;
      json["groups"] = r.groups;
      json["groups_kept"] = r.groups_kept;
      json["largest_frontier"] = r.largest_frontier;
      json["pattern_in"] = r.on_device ? "device" : "host";
      json["bytes_device"] = r.peak_bytes;
    }
    if (step.levels) {
      const lu::GpuLevelsReport& r = *step.levels;
      json["upload_us"] = r.upload_us;
      json["kahn_us"] = r.kahn_us;
      json["sort_us"] = r.sort_us;
      json["parts"] = r.parts;
      json["bytes_device"] = r.peak_bytes;
    }
    all.push_back(std::move(json));
  }
  return all;
}

std::string to_text(const std::vector<LuSymbolicStep>& steps) {
  std::string text;
  for (const LuSymbolicStep& step : steps) {
    if (step.symbolic)
      text += fmt::format("pattern:   on the GPU, {} rows at once, {} chunk{}, the pattern in {} "
                          "memory\n",
                          step.symbolic->rows_in_flight, step.symbolic->chunks,
                          step.symbolic->chunks == 1 ? "" : "s",
                          step.symbolic->on_device ? "device" : "host");
    if (step.levels)
      text += fmt::format("levels:    {} on the GPU, {} part{}\n", step.name, step.levels->parts,
                          step.levels->parts == 1 ? "" : "s");
  }
  return text;
}

} // namespace sparsertc
