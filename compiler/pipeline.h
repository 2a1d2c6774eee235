// The whole road from a matrix to code, and what can be watched and stopped on the way.
#pragma once

#include "compiler/assemble/assembler.h"
#include "compiler/emit/llvm_road.h"
#include "compiler/emit/target.h"
#include "compiler/input/matrix.h"
#include "compiler/inspect/spmm_schedule.h"
#include "compiler/lower/spmm.h"
#include "ir/value_places.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

/// What the pipeline makes.
enum class Artefact : uint8_t {
  ir,          ///< IR text (.sir)
  llvm,        ///< LLVM IR text (.ll)
  ptx,         ///< PTX text (.ptx)
  cubin,       ///< machine code of the target (.cubin), through PipelineOptions::assembler
  bundle,      ///< PTX and, where there is an assembler, a cubin; the container is runtime/bundle's
  host_object, ///< a relocatable ELF object for this machine's CPU (.o)
  none,        ///< nothing is emitted: the caller runs the IR itself (HostProgram)
};
/// "ir", "llvm", "ptx", "cubin", "bundle", "host", "none".
std::string_view name_of(Artefact artefact);

/// How IR becomes PTX.
enum class Road : uint8_t { direct, llvm };

struct StageTime {
  std::string stage;
  double wall_us = 0;
};

/// What the stages have made so far; filled from top to bottom.
struct PipelineResult {
  Matrix weights;
  std::string pattern_digest;
  SpmmSchedule schedule;
  LoweredSpmm lowered;
  /// PTX to be assembled (cubin and bundle).
  std::vector<std::string> units;
  /// What the assembler made of it.
  Assembled assembled;
  /// PipelineOptions::bindable: where the weights stand in the cubin, or why nobody knows. Both are
  /// empty where it was not asked for.
  std::optional<ValuePlaces> places;
  std::string not_bindable;
  /// The bytes of the artefact; of a bundle the PTX of the whole program.
  std::string artefact;
  /// In the order in which they ran; `verify` once for each run of the verifier.
  std::vector<StageTime> times;
};

struct PipelineOptions {
  SpmmProblem problem;
  Target target;
  SpmmTileChoice tile;
  /// Most multiply-adds of unrolled code; 0: the target's default.
  uint64_t budget = 0;
  /// Most registers a thread of a kernel; 0: as many as its block allows.
  uint32_t max_registers = 0;
  Artefact artefact = Artefact::ptx;
  Road road = Road::direct;
  /// Origins of operations as comments in PTX.
  bool annotate = false;
  /// Needed for Road::llvm and the artefacts llvm and host_object; must outlive the run.
  const LlvmRoad* llvm = nullptr;
  /// Makes cubins; must outlive the run. A bundle without one holds PTX only.
  const Assembler* assembler = nullptr;
  /// Of bundles: find the places of the weights in the cubin, by assembling it twice.
  bool bindable = false;
  /// Assembler processes at once; 0: one for each core.
  unsigned jobs = 0;
  /// Shared with other runs of the pipeline: AssembleRequest::limit. May be null.
  JobLimit* limit = nullptr;
  /// Set by somebody else to stop the assembler.
  const std::atomic<bool>* stop = nullptr;
  /// The last stage that runs (a word of pipeline_stages()); empty: all.
  std::string stop_after;
  /// Verify the IR after every stage that makes or changes it.
#ifdef NDEBUG
  bool verify_each = false;
#else
  bool verify_each = true;
#endif
  /// Called before a stage runs; an exception thrown here stops the pipeline.
  std::function<void(std::string_view stage)> before_stage;
  /// Called after a stage with what there is by then (to dump it).
  std::function<void(std::string_view stage, const PipelineResult& result)> after_stage;
};

/// The words of the stages in their order: input, pattern, inspect, lower, the passes, emit,
/// assemble.
std::vector<std::string> pipeline_stages();
/// Whether the module exists when this stage has run.
bool stage_has_ir(std::string_view stage);

/// Runs the pipeline. `read_weights` is the stage `input`: it reads or makes the matrix.
/// Errors are those of the stages.
PipelineResult compile_spmm(const std::function<Matrix()>& read_weights,
                            const PipelineOptions& options);

} // namespace sparsertc
