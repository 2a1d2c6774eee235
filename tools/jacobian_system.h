// From a residual's text to a system that can be evaluated: compiled, its pattern found or checked,
// its evaluation scheduled; on the CPU or on the GPU.
#pragma once

#include "compiler/inspect/jacobian_schedule.h"
#include "compiler/pattern/pattern.h"
#include "runtime/bundle/cache.h"
#include "runtime/driver/cuda_objects.h"
#include "runtime/jacobian/compiled_gpu_system.h"
#include "runtime/jacobian/detection.h"
#include "runtime/jacobian/host_system.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace sparsertc {

struct JacobianRequest {
  jacobian::ResidualSource source;
  jacobian::ParameterSet parameters;
  std::vector<double> x0; ///< n
  /// Systems of a batch on the GPU; that of the parameters where one varies.
  uint64_t instances = 1;
  bool f32 = false;
  /// Derivatives in float32 though the rest is float64; on the GPU.
  bool f32_values = false;
  uint32_t loop_limit = jacobian::kDefaultLoopLimit;

  /// Instead of finding it; nothing: it is found.
  std::optional<Pattern> pattern;
  /// The given pattern is compared with what is found.
  bool compare_patterns = false;
  /// Points where the pattern is looked for: x0, and others around it.
  uint32_t points = 3;
  uint64_t seed = 1;

  std::optional<JacobianCompression> compression;
  uint32_t width = 0; ///< 0: chosen
  /// Of a row, for each thread of the GPU that shares its sums; 0: it has one. Nothing: chosen.
  std::optional<uint32_t> entries_per_lane;
  ColouringOrder order = ColouringOrder::smallest_last;
  /// Where the values are stored; empty: in the order of the pattern.
  std::vector<uint32_t> places;
  /// Also compiles an entry that only writes the values, to compare times with.
  bool with_write_entry = false;

  Cache* cache = nullptr;
  /// Works on each evaluation on the CPU; null: the calling thread does alone.
  TaskPool* pool = nullptr;
  /// Called before each step with what it does.
  std::function<void(std::string_view)> before_step;
};

/// What was found on the way.
struct JacobianFacts {
  bool by_row = false;
  Pattern pattern;
  JacobianSchedule schedule; ///< without its tables
  /// Of the comparison of a given pattern: entries of it that were not found.
  uint64_t unused_entries = 0;
  /// On the GPU: what the tasks by terms read is known beforehand (runtime/jacobian/read_ahead.h).
  bool reads_ahead = false;
  double inspection_compile_ms = 0;
  double detection_ms = 0; ///< the second run, where there are two (a GPU loads code in the first)
  double schedule_ms = 0;
  double evaluation_compile_ms = 0;
};

/// Which C++ compiler, run through the compiler room's processes.
jacobian::HostCompiler host_compiler(Cache* cache);

/// UserError where the user's code is wrong, or an entry is missing from the given pattern (found
/// by looking, or by comparing J v with and without it at x0); RuntimeError where there is no
/// compiler.
std::unique_ptr<jacobian::HostSystem> make_host_system(const JacobianRequest& request,
                                                       JacobianFacts& facts);
/// The same on the GPU, by NVRTC.
std::unique_ptr<jacobian::CompiledGpuSystem>
make_gpu_system(const cuda::Context& context, const JacobianRequest& request, JacobianFacts& facts);

} // namespace sparsertc
