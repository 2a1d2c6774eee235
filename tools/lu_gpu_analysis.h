// The pattern of the factors and their levels, on the CPU or on the GPU.
#pragma once

#include "compiler/inspect/lu_schedule.h"
#include "runtime/lu/gpu_levels.h"
#include "runtime/lu/gpu_symbolic.h"
#include "tools/lu_options.h"
#include "tools/options.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc {

/// What was done, one step for each pattern and each set of levels.
struct LuSymbolicStep {
  std::string name; ///< "pattern", "gather levels", "right-looking levels"
  bool on_gpu = false;
  double time_us = 0; ///< with copies to and from the GPU
  std::optional<lu::GpuSymbolicReport> symbolic;
  std::optional<lu::GpuLevelsReport> levels;
};

/// Finds patterns and levels where --symbolic says. The GPU and its kernels are made ready when
/// they are first needed; without them `auto` takes the CPU, and `gpu` is a NoGpuError or
/// RuntimeError.
class LuPatternFinder {
public:
  /// All must outlive it. UsageError for an unknown word.
  LuPatternFinder(const LuSymbolicOptions& options, const CacheOptions& cache, TaskPool* pool);
  ~LuPatternFinder();

  /// With --verify InternalError where CPU and GPU differ.
  LuPattern pattern(const Pattern& placed);
  LuLevels levels(const LuPattern& rows, const LuColumns& columns, LevelRule rule);
  /// The same for make_lu_tables.
  LuFinders finders();

  const std::vector<LuSymbolicStep>& steps() const { return steps_; }

private:
  struct Gpu;
  bool use_gpu(const std::function<bool()>& worthwhile);
  Gpu& gpu();

  const LuSymbolicOptions& options_;
  const CacheOptions& cache_;
  TaskPool* pool_;
  bool forced_ = false, allowed_ = false;
  std::unique_ptr<Gpu> gpu_;
  std::vector<LuSymbolicStep> steps_;
};

/// What the steps were like: an array.
nlohmann::ordered_json to_json(const std::vector<LuSymbolicStep>& steps);
/// A line for each step on the GPU, without times.
std::string to_text(const std::vector<LuSymbolicStep>& steps);

} // namespace sparsertc
