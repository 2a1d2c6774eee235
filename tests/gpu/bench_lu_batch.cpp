// Times of sparse LU in batches on the GPU, nanoseconds an instance, beside KLU on one core of the
// same machine, where libklu.so.1 is beside this program or where the loader finds it.
//
//   bench_lu_batch_gpu [--instances N] [--repeat N] [--operations N] [--window N] [--ahead N]
//                      [--warps N] [--registers N] [--budget N] [--single 1] MATRIX...
//
// --operations, --window, --ahead, --warps, --registers   as LuBatchOptions has them
// --budget N                        multiply-adds up to which code is unrolled, else it loops
// --single 1                        in f32
//
// Times of the GPU are medians of replays of a CUDA graph of one launch, between two events. The
// order is AMD; the residual is the largest of 64 instances, without refinement.
#include "compiler/input/read.h"
#include "compiler/inspect/lu_analysis.h"
#include "compiler/inspect/lu_schedule.h"
#include "ir/error.h"
#include "tests/support/klu_reference.h"
#include "tests/support/median_time.h"
#include "tools/assemblers.h"
#include "tools/gpu_device.h"
#include "tools/lu_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {
namespace {

void bench(const std::string& path, const cuda::Context& gpu, const Assembler& assembler,
           const LuBatchRequest& request, TaskPool& pool) {
  ReadOptions read;
  read.require_values = true;
  const Matrix a = read_matrix(path, read);
  const std::string file = path.substr(path.rfind('/') + 1);
  LuAnalysisOptions options;
  options.order = FillOrder::amd;
  options.pool = &pool;
  const LuAnalysis analysis = analyse_lu(a, options);
  const LuTables tables = make_lu_tables(
      a.pattern, {analysis.rows, analysis.columns, analysis.row_scale, analysis.column_scale},
      &pool);
  const LuBatchReport report = run_gpu_batch(gpu, assembler, a, tables, request, pool);
  std::string line =
      fmt::format("{:18} {:8} {:6} {:8} {:9} {:9.1f} {:9.1f} {:9.1e} {:9.0f} {:9}",
                  file.substr(0, file.find('.')), report.strategy, a.pattern.rows, tables.nnz(),
                  report.multiply_adds, report.factor_ns, report.solve_ns, report.residual,
                  report.assemble_ms, report.code_bytes);
  if (const auto klu = test::KluReference::make(a)) {
    const double refactor = 1000 * test::median_us(request.repeat, [&] { klu->refactor(); });
    const std::vector<double> ones(a.pattern.rows, 1.0);
    std::vector<double> right;
    const double solve = 1000 * test::median_us(request.repeat, [&] {
                           right = ones;
                           klu->solve(right);
                         });
    line += fmt::format(" {:10.0f} {:9.0f} {:8.0f} {:8.0f}", refactor, solve,
                        refactor / report.factor_ns, solve / report.solve_ns);
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

int run(int count, char** words) {
  LuBatchRequest request;
  uint32_t instances = 16384, repeat = 20, single = 0;
  uint32_t budget = static_cast<uint32_t>(request.code.most_multiply_adds);
  std::vector<std::string> paths;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    uint32_t* const number = word == "--instances"    ? &instances
                             : word == "--repeat"     ? &repeat
                             : word == "--operations" ? &request.code.operations_of_function
                             : word == "--window"     ? &request.code.window
                             : word == "--ahead"      ? &request.code.ahead
                             : word == "--warps"      ? &request.code.warps
                             : word == "--registers"  ? &request.code.registers
                             : word == "--budget"     ? &budget
                             : word == "--single"     ? &single
                                                      : nullptr;
    if (number != nullptr && i + 1 < count) {
      const std::string_view digits = words[++i];
      std::from_chars(digits.data(), digits.data() + digits.size(), *number);
    } else {
      paths.emplace_back(word);
    }
  }
  if (paths.empty() || request.code.operations_of_function == 0 || request.code.window == 0) {
    fmt::print(stderr, "usage: bench_lu_batch_gpu [--instances N] [--repeat N] [--operations N] "
                       "[--window N] [--ahead N] [--warps N] [--registers N] [--budget N] "
                       "[--single 1] MATRIX...\n");
    return 2;
  }
  request.instances = instances;
  request.repeat = std::max(repeat, 1u);
  request.code.most_multiply_adds = budget;
  if (single != 0)
    request.code.type = ir::Scalar::f32;
  const std::unique_ptr<cuda::Context> gpu = require_gpu();
  const std::unique_ptr<Assembler> assembler = require_assembler();
  fmt::print("{}, {}, {} instances, ns an instance\n", gpu->properties().name,
             assembler->identity(), instances);
  if (!test::KluReference::available())
    fmt::print("no libklu.so.1: times of the GPU alone\n");
  fmt::print(
      "{:18} {:8} {:>6} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>8} {:>8}\n",
      "matrix", "code", "n", "nnz(L+U)", "mul-adds", "factor", "solve", "residual", "asm ms",
      "bytes", "KLU", "KLU solve", "x", "x solve");
  TaskPool pool;
  int failed = 0;
  for (const std::string& path : paths)
    try {
      bench(path, *gpu, *assembler, request, pool);
    } catch (const std::exception& error) {
      fmt::print("{}: {}\n", path, error.what());
      failed = 1;
    }
  return failed;
}

} // namespace
} // namespace sparsertc

int main(int count, char** words) {
  try {
    return sparsertc::run(count, words);
  } catch (const sparsertc::NoGpuError& error) {
    fmt::print("SKIPPED: {}\n", error.what());
    return 3;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_lu_batch_gpu: {}\n", error.what());
    return 1;
  }
}
