// The pattern of the factors and their levels, on the CPU or on the GPU.
#pragma once

#include "compiler/inspect/lu_schedule.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/lu/gpu_analysis.h"
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

/// A GPU with the kernels of the analysis.
struct LuAnalysisGpu {
  std::unique_ptr<cuda::Context> context;
  std::optional<lu::GpuAnalysisKernels> kernels; ///< destroyed before the context
};
/// That of this machine; NoGpuError, RuntimeError without NVRTC.
std::unique_ptr<LuAnalysisGpu> open_analysis_gpu(const CacheOptions& cache);

/// Finds patterns and levels where --symbolic says. The GPU is opened when it is first needed;
/// without one `auto` takes the CPU, and `gpu` is an error.
class LuPatternFinder {
public:
  using OpenGpu = std::function<std::unique_ptr<LuAnalysisGpu>()>;

  /// On this machine's GPU. All must outlive it. UsageError for an unknown word.
  LuPatternFinder(const LuSymbolicOptions& options, const CacheOptions& cache, TaskPool* pool);
  /// On the one that `open` gives.
  LuPatternFinder(const LuSymbolicOptions& options, OpenGpu open, TaskPool* pool);

  /// With --verify InternalError where CPU and GPU differ.
  LuPattern pattern(const Pattern& placed);
  LuLevels levels(const LuPattern& rows, const LuColumns& columns, LevelRule rule);
  /// The same for make_lu_tables.
  LuFinders finders();

  const std::vector<LuSymbolicStep>& steps() const { return steps_; }

private:
  bool use_gpu(const std::function<bool()>& worthwhile);
  LuAnalysisGpu& gpu();

  const LuSymbolicOptions& options_;
  OpenGpu open_;
  TaskPool* pool_;
  bool forced_ = false, allowed_ = false;
  std::unique_ptr<LuAnalysisGpu> gpu_;
  std::vector<LuSymbolicStep> steps_;
};

/// What the steps were like: an array.
nlohmann::ordered_json to_json(const std::vector<LuSymbolicStep>& steps);
/// A line for each step on the GPU, without times.
std::string to_text(const std::vector<LuSymbolicStep>& steps);

} // namespace sparsertc
