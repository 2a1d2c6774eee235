#include "tools/lu_gpu.h"

#include "compiler/emit/ptx.h"
#include "compiler/inspect/lu_block_solve.h"
#include "compiler/inspect/lu_dataflow.h"
#include "compiler/inspect/lu_schedule.h"
#include "compiler/lower/lu_dataflow.h"
#include "ir/error.h"
#include "runtime/driver/graph.h"
#include "runtime/lu/condition.h"
#include "tools/gpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>
#include <type_traits>

namespace sparsertc {

namespace {

/// Fewer warps look less often at what is not there yet; large factors have work for more of them.
uint32_t dataflow_threads(const LuTables& tables, const LuGpuOptions& options) {
  constexpr uint64_t kLargeFactors = 500'000;
  if (options.threads > 0)
    return options.threads;
  return tables.nnz() < kLargeFactors ? 64 : 128;
}

bool one_block_solves(const cuda::Context& context, const LuTables& tables,
                      const LuGpuOptions& options) {
  if (options.solve == LuGpuSolve::dataflow || tables.size == 0)
    return false;
  const uint64_t bytes = lu_block_solve_bytes(tables.size, options.single ? 4 : 8);
  const uint64_t most = std::min(context.properties().max_shared_bytes_per_block,
                                 find_target(target_of(context)).shared_bytes_per_block);
  if (bytes <= most && tables.size <= LuBlockSolve::kMostRows)
    return true;
  if (options.solve == LuGpuSolve::block)
    throw UserError(
        fmt::format("{} unknowns do not fit into the {} bytes of a block's shared memory",
                    tables.size, most),
        "the dataflow kernel solves with any number");
  return false;
}

} // namespace

std::unique_ptr<lu::GpuPlan> make_gpu_plan(const cuda::Context& context, const LuTables& tables,
                                           const LuGpuOptions& options, TaskPool* pool) {
  const uint64_t most =
      options.most_table_bytes > 0 ? options.most_table_bytes : context.free_memory() / 2;
  const std::optional<LuGather> gather = make_lu_gather(tables, most, pool);
  if (!gather)
    throw UserError(fmt::format("the tables of {} multiply-adds do not fit into {} bytes of the "
                                "GPU's memory",
                                multiply_adds(tables), most),
                    "--device=cpu factorizes it on the CPU");
  LuDataflowOptions deal;
  const uint32_t threads = dataflow_threads(tables, options);
  deal.warps = lu::gpu_streams(context.properties(), threads);
  deal.products_of_lane = options.products_of_lane;
  lu::GpuFlows flows;
  flows.factor = make_factor_dataflow(tables, *gather, deal);
  deal.products_of_lane = options.solve_products;
  const bool one_block = one_block_solves(context, tables, options);
  const auto make_solve = [&](bool transposed) -> lu::GpuFlows::Solve {
    if (one_block)
      return make_block_solve(tables, {options.block_threads / 32, options.solve_products},
                              transposed);
    return make_solve_dataflow(tables, deal, transposed);
  };
  flows.solve = make_solve(false);
  if (options.transposed)
    flows.transposed = make_solve(true);

  LuKernelOptions kernels;
  kernels.type = options.single ? ir::Scalar::f32 : ir::Scalar::f64;
  kernels.given = options.given_single ? ir::Scalar::f32 : ir::Scalar::f64;
  kernels.threads = threads;
  kernels.block_threads = options.block_threads;
  if (one_block)
    kernels.block_rows = tables.size;
  const ir::Module module = make_lu_kernels(kernels);
  const std::string ptx = emit_ptx(module, find_target(target_of(context)));
  lu::GpuCode code;
  code.image = {reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()};
  code.input = kLuInputKernel;
  code.factor = kLuFactorKernel;
  code.solve_input = kLuSolveInputKernel;
  code.solve = kLuSolveKernel;
  code.input_threads = kLuInputThreads;
  code.dataflow_threads = threads;
  if (one_block) {
    code.block_input = kLuBlockInputKernel;
    code.block_solve = kLuBlockSolveKernel;
    code.block_threads = options.block_threads;
    code.block_shared_bytes = ptx_dynamic_shared_bytes(module);
  }
  code.factor_bytes = options.single ? 4 : 8;
  code.given_bytes = options.given_single ? 4 : 8;
  return std::make_unique<lu::GpuPlan>(context, code, tables, flows);
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

/// T is the type of the factors, X that of the solution; numbers come and go as f64.
template <class T, class X>
class GpuBackend : public LuBackend, private lu::Solver<T> {
public:
  GpuBackend(const LuTables& tables, const Pattern& pattern, TaskPool* pool, LuGpuOptions options)
      : pattern_(pattern), gpu_(require_gpu()), stream_(*gpu_) {
    options.given_single = false;
    options.single = std::is_same_v<T, float>;
    plan_ = make_gpu_plan(*gpu_, tables, options, pool);
    values_on_gpu_ = std::make_unique<cuda::DeviceBuffer>(*gpu_, tables.input_nnz * sizeof(double));
    workspace_ = std::make_unique<lu::GpuWorkspace>(*gpu_, *plan_, kSidesAtOnce, stream_);
  }

  std::string device() const override { return "gpu"; }

  void load(const Matrix& a) override {
    values_ = a.values;
    values_on_gpu_->upload(bytes_of(std::span<const double>(values_)), stream_);
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
    std::vector<double> x = b.real;
    if (x.empty())
      return 0;
    solve_rounded(x, x, b.count, transposed);
    return cuda::Graph(*gpu_, stream_, [&] { enqueue_solve(b.count, transposed); })
        .time(repeat)
        .median_us;
  }

  LuSolution solve(const LuVectors& b, bool transposed, const lu::RefineOptions& options) override {
    const uint64_t n = pattern_.rows;
    std::vector<X> x(b.real.size());
    LuSolution solution;
    for (uint64_t c = 0; c < b.count; ++c)
      solution.results.push_back(
          lu::solve_refined<T, X>(*this, view(), std::span<const double>(b.real).subspan(c * n, n),
                                  std::span<X>(x).subspan(c * n, n), transposed, options));
    solution.x.count = b.count;
    solution.x.real.assign(x.begin(), x.end());
    return solution;
  }

  double condition() override { return lu::estimate_condition<T>(*this, view()); }

  bool is_numerically_singular(const lu::FactorStatus& status, double condition) override {
    return lu::is_numerically_singular<T>(*this, view(), status, condition);
  }

private:
  static constexpr uint32_t kSidesAtOnce = 8;

  void solve_rounded(std::span<const double> b, std::span<double> x, uint64_t right_sides,
                     bool transposed) const override {
    if (x.empty())
      return;
    if (!vectors_ || vectors_->bytes() < b.size_bytes()) {
      vectors_.reset();
      vectors_ = std::make_unique<cuda::DeviceBuffer>(*gpu_, b.size_bytes());
    }
    vectors_->upload(bytes_of(b), stream_);
    enqueue_solve(right_sides, transposed);
    vectors_->download(bytes_of(x), stream_);
  }
  const LuTables& tables() const override { return plan_->tables(); }

  void enqueue_refactor(const lu::FactorOptions& options) const {
    plan_->refactor(*workspace_, values_on_gpu_->address(), stream_, options);
  }
  /// In place, in vectors_.
  void enqueue_solve(uint64_t right_sides, bool transposed) const {
    for (uint64_t first = 0; first < right_sides; first += kSidesAtOnce) {
      const cuda::DeviceAddress place =
          vectors_->address() + first * pattern_.rows * sizeof(double);
      const uint64_t count = std::min<uint64_t>(kSidesAtOnce, right_sides - first);
      plan_->solve(*workspace_, place, place, static_cast<uint32_t>(count), transposed, stream_);
    }
  }

  lu::MatrixView<double> view() const {
    return {pattern_.rows, pattern_.row_offset, pattern_.column_index, values_};
  }

  const Pattern& pattern_;
  std::unique_ptr<cuda::Context> gpu_;
  cuda::Stream stream_;
  std::unique_ptr<lu::GpuPlan> plan_;
  std::unique_ptr<cuda::DeviceBuffer> values_on_gpu_;
  std::unique_ptr<lu::GpuWorkspace> workspace_;
  mutable std::unique_ptr<cuda::DeviceBuffer> vectors_; ///< as many as were needed so far
  std::vector<double> values_;
};

} // namespace

std::unique_ptr<LuBackend> make_gpu_backend(const LuTables& tables, const Pattern& pattern,
                                            LuPrecision precision, TaskPool* pool,
                                            const LuGpuOptions& options) {
  switch (precision) {
  case LuPrecision::f32:
    return std::make_unique<GpuBackend<float, float>>(tables, pattern, pool, options);
  case LuPrecision::mixed:
    return std::make_unique<GpuBackend<float, double>>(tables, pattern, pool, options);
  case LuPrecision::f64:
    break;
  }
  return std::make_unique<GpuBackend<double, double>>(tables, pattern, pool, options);
}

} // namespace sparsertc
