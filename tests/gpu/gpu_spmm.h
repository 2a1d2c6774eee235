// One SpMM or convolution compiled by every road, run on the GPU, and compared: with float64 by its
// bound, with the host program bit by bit, and with what must not have been touched.
#pragma once

#include "compiler/assemble/ptxas.h"
#include "compiler/pipeline.h"
#include "runtime/driver/launcher.h"
#include "runtime/host/task_pool.h"
#include "tests/support/fake_cuda_driver.h"
#include "tools/spmm_operands.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

/// How a module gets to the GPU.
enum class GpuRoad : uint8_t {
  direct,   ///< our PTX, assembled by the driver
  llvm,     ///< PTX from LLVM, assembled by ptxas where there is one, else by the driver
  assembled ///< our PTX in units, assembled by ptxas and linked
};
std::string_view name_of(GpuRoad road);

/// What this machine has to test with.
class Machine {
public:
  /// The one of this process, opened on first use.
  static Machine& get();

  /// Null where there is no GPU.
  const cuda::Context* gpu() const { return gpu_.get(); }
  /// Null where there is no ptxas.
  const Ptxas* ptxas() const { return ptxas_.get(); }
  /// Of the GPU; sm_90 where there is none.
  const Target& target() const { return target_; }
  TaskPool& pool() { return pool_; }

  /// Not null where there is no GPU and an interpreter takes its place.
  cuda::FakeCudaDriver* interpreter() const { return interpreter_.get(); }

  /// Whether a test case may go on. Without a GPU it says SKIPPED and why, unless the environment
  /// variable SPARSERTC_GPU_TESTS_WITHOUT says how to go on:
  ///   assemble    everything but the launches
  ///   interpret   a fake driver that interprets our PTX (the road `direct` alone)
  bool can_test() const;

  /// The GPU, made current, for what no interpreter runs here; null, said aloud, where there is
  /// none or an interpreter takes its place. `instead`: the test that the interpreter has for it.
  const cuda::Context* gpu_or_skip(const char* instead = nullptr) const;

private:
  Machine();
  std::unique_ptr<cuda::FakeCudaDriver> interpreter_;
  std::unique_ptr<cuda::Context> gpu_;
  std::string no_gpu_;      ///< why
  std::string without_gpu_; ///< SPARSERTC_GPU_TESTS_WITHOUT
  std::unique_ptr<Ptxas> ptxas_;
  Target target_;
  TaskPool pool_;
};

/// A file of the repository; on a machine without one it is beside the program (pack.sh).
std::string carried_file(const std::string& path);

struct GpuCase {
  Matrix weights;
  SpmmProblem problem;
  uint32_t columns = 0;  ///< N (of images), also where the problem leaves it to the launch
  std::string tile;      ///< the words of --tile
  uint64_t seed = 1;     ///< of the operands
  std::vector<double> b; ///< B, row-major and tight; empty: random
  /// Leading dimensions given at the launch, where they are parameters; 0: tight.
  uint64_t launch_ldb = 0, launch_ldc = 0;
  bool nonfinite = false; ///< put NaN and infinities into B
  std::vector<GpuRoad> roads = {GpuRoad::direct, GpuRoad::llvm, GpuRoad::assembled};

  std::string describe() const;
};

/// A kernel made ready for the driver.
struct GpuProgram {
  GpuRoad road = GpuRoad::direct;
  std::vector<uint8_t> image; ///< PTX text or a cubin
  double seconds = 0;         ///< of emitting and assembling
  uint64_t registers = 0;     ///< a thread; 0 where the driver assembles
};

/// A case compiled for GPU and host: everything but the launches. Safe to make on several threads.
struct PreparedCase {
  GpuCase test;
  SpmmOperands operands;
  PipelineResult compiled;
  std::vector<GpuProgram> programs;
  std::vector<double> host_result;
  SpmmTile host_tile;

  /// The case's problem, with the geometry of a convolution complete.
  SpmmProblem problem() const;
};
/// `jobs`: processes of ptxas at once.
PreparedCase prepare(const GpuCase& test, TaskPool& pool, unsigned jobs);

/// C, row-major and tight. Fails through Catch where more than C was written.
std::vector<double> run_on_gpu(const PreparedCase& prepared, const GpuProgram& program);
/// Checks the host's result, runs every program and checks its result. Fails through Catch.
void run_and_check(const PreparedCase& prepared);
/// Both in one.
void check_case(const GpuCase& test);

/// Microseconds of a launch by graph replay.
cuda::LaunchTiming time_on_gpu(const PreparedCase& prepared, const GpuProgram& program);

/// Our PTX in units through ptxas; `max_registers` of 0: what the block allows.
GpuProgram assemble_units(const LoweredSpmm& lowered, const Target& target, const Ptxas& ptxas,
                          uint32_t max_registers, unsigned jobs);

/// `density` of the positions hold a value in [-1, 1). With `holes` every third row and every
/// fourth column is empty.
Matrix random_weights(uint32_t rows, uint32_t columns, double density, uint64_t seed,
                      bool holes = false);

} // namespace sparsertc
