#include "tools/lu_gpu.h"

#include "compiler/assemble/assembler.h"
#include "compiler/emit/ptx.h"
#include "compiler/lower/lu_emitted.h"
#include "compiler/lower/lu_refine.h"
#include "runtime/driver/call_error.h"
#include "runtime/driver/graph.h"
#include "runtime/driver/nvrtc.h"
#include "runtime/kernels/compile.h"
#include "runtime/lu/condition.h"
#include "runtime/lu/gpu_emitted.h"
#include "runtime/lu/gpu_right_looking.h"
#include "tools/gpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>
#include <type_traits>

namespace sparsertc {
namespace {

/// The kernels that were made for the pattern, loaded.
std::unique_ptr<lu::GpuEmitted> load_emitted(const cuda::Context& context, const Target& target,
                                             const LuTables& tables, const LuGpuProgram& program,
                                             const LuGpuOptions& options, TaskPool* pool) {
  const LuEmitted& plan = *program.emitted;
  lu::GpuEmittedCode code;
  uint32_t threads = kLuNotesThreads;
  for (uint32_t number = 0; number < plan.launches.size(); ++number) {
    code.kernels.push_back(lu_emitted_kernel(number));
    threads = std::max(threads, plan.launches[number].warps * 32);
  }
  code.notes = kLuEmittedNotes;
  code.notes_threads = kLuNotesThreads;
  code.notes_slots = kLuNotesSlots;
  code.factor_bytes = program.code.factor_bytes;
  code.wide = !options.single;
  std::vector<uint8_t> image;
  if (options.assembler != nullptr &&
      takes_cubins(context, target, options.assembler->identity())) {
    const std::vector<std::string> units = emit_ptx_units(program.emitted_module, target);
    AssembleRequest request;
    request.units = units;
    request.target = target.name;
    request.kernels = code.kernels;
    request.kernels.emplace_back(kLuEmittedNotes);
    // Functions are assembled apart from the kernels, and must fit the largest block.
    request.max_registers = register_limit(threads);
    request.provenance = "part=lu_emitted\n";
    request.jobs = pool != nullptr ? pool->threads() : 0;
    image = options.assembler->assemble(request).cubin;
  } else {
    const std::string ptx = emit_ptx(program.emitted_module, target);
    image.assign(ptx.begin(), ptx.end());
  }
  code.image = image;
  return std::make_unique<lu::GpuEmitted>(context, code, tables, plan);
}

} // namespace

bool has_nvrtc() {
  try {
    cuda::Nvrtc::open();
    return true;
  } catch (const RuntimeError&) {
    return false;
  }
}

std::unique_ptr<lu::GpuPlan> make_gpu_plan(const cuda::Context& context, const LuTables& tables,
                                           const LuGpuOptions& options, TaskPool* pool,
                                           LuStrategyChoice* choice) {
  const Target target = find_target(target_of(context));
  LuGpuProgram program = make_lu_program(
      tables,
      {target, context.properties().multiprocessors,
       context.properties().max_shared_bytes_per_block,
       options.memory_limit > 0 ? std::min(options.memory_limit, context.free_memory())
                                : context.free_memory(),
       has_nvrtc()},
      options, pool);
  if (choice != nullptr)
    *choice = program.choice;
  const std::string ptx = emit_ptx(program.module, target);
  program.code.image = {reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()};
  if (program.right_looking) {
    const std::vector<uint8_t> image = kernels::compile_lu_right_looking(
        *cuda::Nvrtc::open(), context.properties().compute_capability,
        lu::GpuRightLooking::number(options.single, options.complex), options.cache);
    program.flows.strategy = std::make_shared<lu::GpuRightLooking>(
        context, image, tables, *program.right_looking, options.single, options.complex);
  }
  if (program.emitted)
    program.flows.strategy = load_emitted(context, target, tables, program, options, pool);
  return std::make_unique<lu::GpuPlan>(context, program.code, tables, program.flows);
}

std::unique_ptr<lu::GpuRefinement>
make_gpu_refinement(const cuda::Context& context, const lu::GpuPlan& plan, bool single_solution) {
  const ir::Module module = make_lu_refine_kernels({plan.is_complex(), single_solution});
  const std::string ptx = emit_ptx(module, find_target(target_of(context)));
  lu::GpuRefineCode code;
  code.image = {reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()};
  code.begin = kLuRefineBegin;
  code.update = kLuRefineUpdate;
  code.residual = kLuRefineResidual;
  code.decide = kLuRefineDecide;
  code.end = kLuRefineEnd;
  code.threads = kLuRefineThreads;
  code.single_solution = single_solution;
  return std::make_unique<lu::GpuRefinement>(context, code, plan);
}

namespace {

template <class T>
std::span<const uint8_t> bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}
template <class T>
std::span<uint8_t> bytes_of(std::span<T> values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size_bytes()};
}

/// T is the type of the factors, X that of the solution; numbers come and go in double precision.
template <class T, class X>
class GpuBackend : public LuBackend, private lu::Solver<T> {
  using V = lu::Wide<T>;

public:
  GpuBackend(const LuTables& tables, const Pattern& pattern, TaskPool* pool, LuGpuOptions options)
      : pattern_(pattern), gpu_(require_gpu()), stream_(*gpu_) {
    options.given_single = false;
    options.single = std::is_same_v<lu::Real<T>, float>;
    options.complex = lu::ScalarTraits<T>::kComplex;
    make_plan(tables, options, pool);
    values_on_gpu_ = std::make_unique<cuda::DeviceBuffer>(*gpu_, tables.input_nnz * sizeof(V));
    if (options.strategy == LuStrategy::automatic && !driver_takes_launches()) {
      // Loops only: nobody has asked for the time that assembling takes.
      options.strategy = LuStrategy::emitted;
      options.budget = 0;
      make_plan(tables, options, pool);
      choice_.reason = "by levels: the driver cannot have all blocks of the dataflow resident at "
                       "once";
      if (!driver_takes_launches())
        throw UserError("the driver cannot have all blocks of a solve resident at once",
                        "--device=cpu factorizes and solves on the CPU");
    }
    refinement_ = make_gpu_refinement(*gpu_, *plan_, std::is_same_v<lu::Real<X>, float>);
    refine_workspace_ = std::make_unique<lu::GpuRefineWorkspace>(*gpu_, *plan_, kSidesAtOnce);
  }

  std::string device() const override { return "gpu"; }
  std::string strategy() const override { return name_of(choice_.strategy); }
  std::string strategy_reason() const override { return choice_.reason; }

  void load(const Matrix& a) override {
    values_ = packed<V>(a.values, a.imaginary);
    values_on_gpu_->upload(bytes_of(std::span<const V>(values_)), stream_);
    stream_.synchronize("copying a matrix to the GPU");
  }

  lu::FactorStatus refactor(const lu::FactorOptions& options, unsigned repeat,
                            double& time_us) override {
    enqueue_refactor(options); // loads the code, which a graph would not
    stream_.synchronize("factorizing");
    time_us =
        cuda::Graph(*gpu_, stream_, [&] { enqueue_refactor(options); }).time(repeat).median_us;
    return plan_->status(*workspace_, stream_);
  }

  double substitute_us(const LuVectors& b, bool transposed, unsigned repeat) override {
    std::vector<V> x = packed<V>(b.real, b.imaginary);
    if (x.empty())
      return 0;
    solve_rounded(x, x, b.count, transposed);
    return cuda::Graph(*gpu_, stream_, [&] { enqueue_solve(b.count, transposed); })
        .time(repeat)
        .median_us;
  }

  LuSolution solve(const LuVectors& b, bool transposed, const lu::RefineOptions& options) override {
    const uint64_t n = pattern_.rows;
    std::vector<V> x = packed<V>(b.real, b.imaginary);
    LuSolution solution;
    for (uint64_t first = 0; first < b.count; first += kSidesAtOnce) {
      const uint32_t count =
          static_cast<uint32_t>(std::min<uint64_t>(kSidesAtOnce, b.count - first));
      const std::span<V> part = std::span<V>(x).subspan(first * n, count * n);
      make_room(part.size_bytes());
      vectors_->upload(bytes_of(std::span<const V>(part)), stream_);
      refinement_->solve(*workspace_, *refine_workspace_, values_on_gpu_->address(),
                         vectors_->address(), vectors_->address(), count, transposed, stream_,
                         options);
      vectors_->download(bytes_of(part), stream_);
      const std::vector<lu::RefineResult> results =
          refinement_->results(*refine_workspace_, count, stream_);
      solution.results.insert(solution.results.end(), results.begin(), results.end());
    }
    solution.x = unpacked<V>(x, b.count);
    return solution;
  }

  double condition() override { return lu::estimate_condition<T>(*this, view()); }

  bool is_numerically_singular(const lu::FactorStatus& status, double condition) override {
    return lu::is_numerically_singular<T>(*this, view(), status, condition);
  }

private:
  static constexpr uint32_t kSidesAtOnce = 8;

  void solve_rounded(std::span<const V> b, std::span<V> x, uint64_t right_sides,
                     bool transposed) const override {
    if (x.empty())
      return;
    make_room(b.size_bytes());
    vectors_->upload(bytes_of(b), stream_);
    enqueue_solve(right_sides, transposed);
    vectors_->download(bytes_of(x), stream_);
  }
  const LuTables& tables() const override { return plan_->tables(); }

  void make_room(uint64_t bytes) const {
    if (vectors_ && vectors_->bytes() >= bytes)
      return;
    vectors_.reset();
    vectors_ = std::make_unique<cuda::DeviceBuffer>(*gpu_, bytes);
  }

  void make_plan(const LuTables& tables, const LuGpuOptions& options, TaskPool* pool) {
    workspace_.reset();
    plan_ = make_gpu_plan(*gpu_, tables, options, pool, &choice_);
    workspace_ = std::make_unique<lu::GpuWorkspace>(*gpu_, *plan_, kSidesAtOnce, stream_);
  }

  /// Tries the launches whose blocks must be resident at once, with zeros.
  bool driver_takes_launches() const {
    if (pattern_.rows == 0)
      return true;
    make_room(uint64_t{pattern_.rows} * sizeof(V));
    values_on_gpu_->fill(0, stream_);
    vectors_->fill(0, stream_);
    try {
      if (choice_.strategy == LuStrategy::dataflow)
        enqueue_refactor({});
      enqueue_solve(1, false);
    } catch (const cuda::CallError& error) {
      if (error.result() != cuda::Result::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE &&
          error.result() != cuda::Result::CUDA_ERROR_NOT_SUPPORTED)
        throw;
      stream_.synchronize("factorizing zeros");
      return false;
    }
    stream_.synchronize("factorizing zeros");
    return true;
  }

  void enqueue_refactor(const lu::FactorOptions& options) const {
    plan_->refactor(*workspace_, values_on_gpu_->address(), stream_, options);
  }
  /// In place, in vectors_.
  void enqueue_solve(uint64_t right_sides, bool transposed) const {
    for (uint64_t first = 0; first < right_sides; first += kSidesAtOnce) {
      const cuda::DeviceAddress place = vectors_->address() + first * pattern_.rows * sizeof(V);
      const uint64_t count = std::min<uint64_t>(kSidesAtOnce, right_sides - first);
      plan_->solve(*workspace_, place, place, static_cast<uint32_t>(count), transposed, stream_);
    }
  }

  lu::MatrixView<V> view() const {
    return {pattern_.rows, pattern_.row_offset, pattern_.column_index, values_};
  }

  const Pattern& pattern_;
  std::unique_ptr<cuda::Context> gpu_;
  cuda::Stream stream_;
  LuStrategyChoice choice_;
  std::unique_ptr<lu::GpuPlan> plan_;
  std::unique_ptr<cuda::DeviceBuffer> values_on_gpu_;
  std::unique_ptr<lu::GpuWorkspace> workspace_;
  std::unique_ptr<lu::GpuRefinement> refinement_;
  std::unique_ptr<lu::GpuRefineWorkspace> refine_workspace_;
  mutable std::unique_ptr<cuda::DeviceBuffer> vectors_; ///< as many as were needed so far
  std::vector<V> values_;
};

} // namespace

std::unique_ptr<LuBackend> make_gpu_backend(const LuTables& tables, const Pattern& pattern,
                                            LuPrecision precision, bool complex, TaskPool* pool,
                                            const LuGpuOptions& options) {
  return with_number_types(precision, complex, [&]<class T, class X>() {
    return std::unique_ptr<LuBackend>(
        std::make_unique<GpuBackend<T, X>>(tables, pattern, pool, options));
  });
}

} // namespace sparsertc
