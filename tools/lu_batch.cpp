#include "tools/lu_batch.h"

#include "compiler/emit/ptx.h"
#include "compiler/inspect/lu_batch_loop.h"
#include "compiler/inspect/lu_schedule.h"
#include "compiler/lower/lu_batch_loop.h"
#include "ir/error.h"
#include "runtime/driver/graph.h"
#include "runtime/lu/gpu_batch.h"
#include "runtime/lu/host_batch.h"
#include "runtime/lu/refine.h"
#include "tools/gpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sparsertc {
namespace {

/// Instances whose residual is computed.
constexpr uint64_t kChecked = 64;
/// Instances whose numbers are made together: they are neighbours in memory.
constexpr uint64_t kChunk = 256;
/// Of instances that the CPU factorizes and solves before it goes on to the next ones: what caches
/// hold.
constexpr uint64_t kCpuBytes = uint64_t{8} << 20;

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

/// Entry p of A in double precision; V is real or complex.
template <class V>
V entry_of(const Matrix& a, uint64_t p) {
  if constexpr (lu::ScalarTraits<V>::kComplex)
    return {a.values[p], a.imaginary[p]};
  else
    return a.values[p];
}

/// Entry p of an instance. A hash of seed and place (the finaliser of SplitMix64, Steele, Lea and
/// Flood, OOPSLA 2014), so that any instance can be made alone.
template <class V>
V value_of(const Matrix& a, const LuBatchRequest& request, uint64_t instance, uint64_t p) {
  uint64_t bits = (request.seed * request.instances + instance) * a.pattern.nnz() + p;
  bits = (bits + 1) * 0x9E3779B97F4A7C15u;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
  bits ^= bits >> 31;
  const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
  return entry_of<V>(a, p) * (0.9 + 0.2 * unit);
}

template <class V>
struct Instance {
  std::vector<V> values, b;
};

template <class V>
Instance<V> make_instance(const Matrix& a, const LuBatchRequest& request, uint64_t instance) {
  Instance<V> result{std::vector<V>(a.pattern.nnz()), std::vector<V>(a.pattern.rows)};
  for (uint32_t i = 0; i < a.pattern.rows; ++i)
    for (uint64_t p = a.pattern.row_offset[i]; p < a.pattern.row_offset[i + 1]; ++p) {
      result.values[p] = value_of<V>(a, request, instance, p);
      result.b[i] += result.values[p];
    }
  return result;
}

/// Instances first to first + count as values[entry * count + number] and b[row * count + number],
/// rounded to T; b is zeros beforehand.
template <class T>
void fill_instances(const Matrix& a, const LuBatchRequest& request, uint64_t first, uint64_t count,
                    std::vector<T>& values, std::vector<T>& b, TaskPool& pool) {
  pool.run((count + kChunk - 1) / kChunk, [&](uint64_t chunk) {
    const uint64_t begin = chunk * kChunk, end = std::min(count, begin + kChunk);
    for (uint32_t i = 0; i < a.pattern.rows; ++i)
      for (uint64_t p = a.pattern.row_offset[i]; p < a.pattern.row_offset[i + 1]; ++p)
        for (uint64_t s = begin; s < end; ++s) {
          values[p * count + s] = lu::to_scalar<T>(value_of<lu::Wide<T>>(a, request, first + s, p));
          b[i * count + s] += values[p * count + s];
        }
  });
}

/// The larger one; NaN where either is.
double worse(double x, double y) {
  return x >= y || std::isnan(x) ? x : y;
}

template <class V>
double residual_of(const Matrix& a, const Instance<V>& instance, const std::vector<V>& x) {
  const lu::MatrixView<V> view{a.pattern.rows, a.pattern.row_offset, a.pattern.column_index,
                               instance.values};
  return lu::relative_residual<V>(view, instance.b, x, false);
}

/// Which instance is the c-th of `checked` that are looked at.
uint64_t checked_instance(uint64_t c, uint64_t checked, uint64_t count) {
  return c * count / checked;
}

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

} // namespace

LuBatchCode make_lu_batch_code(const cuda::Context& gpu, const Assembler& assembler,
                               const LuTables& tables, const LuBatchOptions& options,
                               TaskPool& pool) {
  LuBatchCode code;
  const double begin = now_us();
  const Target target = find_target(target_of(gpu));
  const auto bytes_of = [&options](ir::Scalar type) -> uint32_t {
    return (type == ir::Scalar::f32 ? sizeof(float) : sizeof(double)) * (options.complex ? 2 : 1);
  };
  code.complex = options.complex;
  code.number_bytes = bytes_of(options.type);
  code.vector_bytes = bytes_of(lu_batch_vector_type(options));
  if (!is_unrolled(tables, options))
    code.loop = make_lu_batch_loop(tables);
  code.numbers = code.loop ? code.loop->numbers : lu_batch_numbers(tables);
  const ir::Module module =
      code.loop ? make_lu_batch_loop_kernels(options) : make_lu_batch(tables, options);
  code.factor_threads = lu_batch_threads(module, kLuBatchFactorKernel);
  code.solve_threads = lu_batch_threads(module, kLuBatchSolveKernel);
  if (takes_cubins(gpu, target, assembler.identity())) {
    const std::vector<std::string> units = emit_ptx_units(module, target);
    AssembleRequest request;
    request.units = units;
    request.target = target.name;
    request.kernels = {kLuBatchFactorKernel, kLuBatchSolveKernel};
    request.max_registers =
        options.registers != 0
            ? options.registers
            : register_limit(4 * std::max(code.factor_threads, code.solve_threads));
    request.provenance = "part=lu_batch\n";
    request.jobs = pool.threads();
    Assembled assembled = assembler.assemble(request);
    code.assembler = assembled.assembler;
    code.image = std::move(assembled.cubin);
  } else {
    const std::string ptx = emit_ptx(module, target);
    code.assembler = "driver";
    code.image.assign(ptx.begin(), ptx.end());
  }
  code.assemble_ms = (now_us() - begin) / 1000;
  return code;
}

std::unique_ptr<lu::GpuBatch> load_lu_batch(const cuda::Context& gpu, const LuBatchCode& code,
                                            const LuTables& tables, uint64_t instances) {
  lu::GpuBatchCode kernels;
  kernels.image = code.image;
  kernels.factor = kLuBatchFactorKernel;
  kernels.solve = kLuBatchSolveKernel;
  kernels.lanes = kLuBatchLanes;
  kernels.factor_threads = code.factor_threads;
  kernels.solve_threads = code.solve_threads;
  kernels.numbers = code.numbers;
  kernels.complex = code.complex;
  kernels.number_bytes = code.number_bytes;
  kernels.vector_bytes = code.vector_bytes;
  kernels.not_finite_bit = kLuBatchNotFinite;
  return std::make_unique<lu::GpuBatch>(gpu, kernels, tables, instances,
                                        code.loop ? &*code.loop : nullptr);
}

namespace {

/// Calls work.operator()<T>() with the type of the batch's numbers.
template <class Work>
LuBatchReport with_batch_type(const Matrix& a, const LuBatchRequest& request, const Work& work) {
  const bool single = request.code.type == ir::Scalar::f32;
  if (a.imaginary.empty())
    return single ? work.template operator()<float>() : work.template operator()<double>();
  return single ? work.template operator()<std::complex<float>>()
                : work.template operator()<std::complex<double>>();
}

/// T is the type of the code's numbers.
template <class T>
LuBatchReport run_gpu_batch_of(const cuda::Context& gpu, const Assembler& assembler,
                               const Matrix& a, const LuTables& tables,
                               const LuBatchRequest& request, TaskPool& pool) {
  using V = lu::Wide<T>;
  LuBatchReport report;
  report.device = "gpu";
  report.multiply_adds = multiply_adds(tables);
  const uint64_t count = request.instances, n = tables.size, nnz = tables.input_nnz;
  const LuBatchCode code = make_lu_batch_code(gpu, assembler, tables, request.code, pool);
  const uint64_t need = (code.numbers + nnz + 2 * n) * count * sizeof(T);
  if (need > gpu.free_memory())
    throw UserError(fmt::format("a batch of {} matrices takes {} bytes of the GPU's memory, of "
                                "which {} are free",
                                count, need, gpu.free_memory()),
                    "a smaller --batch");

  report.strategy = code.loop ? "looped" : "unrolled";
  report.assembler = code.assembler;
  report.assemble_ms = code.assemble_ms;
  report.code_bytes = code.image.size();

  std::vector<T> values(nnz * count), b(n * count);
  fill_instances(a, request, 0, count, values, b, pool);

  const cuda::Stream stream(gpu);
  const std::unique_ptr<lu::GpuBatch> loaded = load_lu_batch(gpu, code, tables, count);
  const lu::GpuBatch& batch = *loaded;
  report.registers = batch.factor_kernel().registers;
  const cuda::DeviceBuffer values_on_gpu(gpu, nnz * count * sizeof(T));
  const cuda::DeviceBuffer b_on_gpu(gpu, n * count * sizeof(T));
  const cuda::DeviceBuffer x_on_gpu(gpu, n * count * sizeof(T));
  values_on_gpu.upload(bytes_of(values), stream);
  b_on_gpu.upload(bytes_of(b), stream);
  const auto factor = [&] { batch.factor(values_on_gpu.address(), stream, request.factor); };
  const auto solve = [&] { batch.solve(b_on_gpu.address(), x_on_gpu.address(), stream); };
  factor(); // loads the code, which a graph would not
  solve();
  stream.synchronize("factorizing and solving a batch");
  report.factor_ns = cuda::Graph(gpu, stream, factor).time(request.repeat).median_us * 1000 /
                     static_cast<double>(count);
  report.solve_ns = cuda::Graph(gpu, stream, solve).time(request.repeat).median_us * 1000 /
                    static_cast<double>(count);

  for (const lu::BatchStatus& status : batch.status(stream)) {
    report.replaced += status.replaced;
    report.not_finite += status.finite ? 0 : 1;
  }
  std::vector<T>& all = b; // it has the size, and is not needed any more
  x_on_gpu.download({reinterpret_cast<uint8_t*>(all.data()), all.size() * sizeof(T)}, stream);
  report.checked = std::min(count, kChecked);
  std::vector<V> x(n);
  for (uint64_t c = 0; c < report.checked; ++c) {
    const uint64_t s = checked_instance(c, report.checked, count);
    for (uint64_t i = 0; i < n; ++i)
      x[i] = lu::to_scalar<V>(all[i * count + s]);
    report.residual = worse(report.residual, residual_of<V>(a, make_instance<V>(a, request, s), x));
  }
  return report;
}

} // namespace

LuBatchReport run_gpu_batch(const cuda::Context& gpu, const Assembler& assembler, const Matrix& a,
                            const LuTables& tables, const LuBatchRequest& request, TaskPool& pool) {
  return with_batch_type(a, request, [&]<class T>() {
    LuBatchRequest of_type = request;
    of_type.code.complex = lu::ScalarTraits<T>::kComplex;
    return run_gpu_batch_of<T>(gpu, assembler, a, tables, of_type, pool);
  });
}

namespace {

/// In parts, so that memory does not grow with the batch.
template <class T>
LuBatchReport run_cpu_batch_of(const Matrix& a, const LuTables& tables,
                               const LuBatchRequest& request, TaskPool& pool) {
  using V = lu::Wide<T>;
  using Batch = lu::HostBatch<T>;
  LuBatchReport report;
  report.device = "cpu";
  report.threads = pool.threads();
  report.instructions = lu::instruction_sets().back();
  report.strategy = "looped";
  report.multiply_adds = multiply_adds(tables);
  const uint64_t count = request.instances, n = tables.size, nnz = tables.input_nnz;
  report.checked = std::min(count, kChecked);
  const LuBatchLoop loop = make_lu_batch_loop(tables);
  const Batch batch(loop);
  const uint64_t of_instance = (loop.numbers + nnz + 2 * n) * sizeof(T);
  const uint64_t groups =
      std::max<uint64_t>(pool.threads(), kCpuBytes / (of_instance * Batch::kLanes));
  const uint64_t most = std::min(count, groups * Batch::kLanes);
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(Batch::kAlignment, std::max(batch.bytes(most), Batch::kAlignment)),
      &std::free);
  if (!memory)
    throw std::bad_alloc();
  std::vector<double> factor_us(request.repeat, 0.0), solve_us(request.repeat, 0.0);
  std::vector<uint32_t> status(most);
  uint64_t looked_at = 0;
  for (uint64_t first = 0; first < count; first += most) {
    const uint64_t here = std::min(most, count - first);
    std::vector<T> values(nnz * here), b(n * here), x(n * here);
    fill_instances(a, request, first, here, values, b, pool);
    for (unsigned round = 0; round < request.repeat; ++round) {
      const double begin = now_us();
      batch.factor(values.data(), here, request.factor.pivot_threshold, memory.get(), status.data(),
                   &pool);
      const double middle = now_us();
      batch.solve(b.data(), x.data(), here, memory.get(), &pool);
      solve_us[round] += now_us() - middle;
      factor_us[round] += middle - begin;
    }
    for (uint64_t s = 0; s < here; ++s) {
      report.replaced += status[s] & ~lu::kBatchNotFinite;
      report.not_finite += (status[s] & lu::kBatchNotFinite) != 0 ? 1 : 0;
    }
    std::vector<V> one(n);
    for (; looked_at < report.checked; ++looked_at) {
      const uint64_t s = checked_instance(looked_at, report.checked, count);
      if (s >= first + here)
        break;
      for (uint64_t i = 0; i < n; ++i)
        one[i] = lu::to_scalar<V>(x[i * here + s - first]);
      report.residual =
          worse(report.residual, residual_of<V>(a, make_instance<V>(a, request, s), one));
    }
  }
  report.factor_ns = median(factor_us) * 1000 / static_cast<double>(count);
  report.solve_ns = median(solve_us) * 1000 / static_cast<double>(count);
  return report;
}

} // namespace

LuBatchReport run_cpu_batch(const Matrix& a, const LuTables& tables, const LuBatchRequest& request,
                            TaskPool& pool) {
  return with_batch_type(a, request,
                         [&]<class T>() { return run_cpu_batch_of<T>(a, tables, request, pool); });
}

} // namespace sparsertc
