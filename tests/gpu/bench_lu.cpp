// Times of sparse LU for one matrix with new values: the GPU beside KLU on one core of the same
// machine, where libklu.so.1 is beside this program or where the loader finds it.
//
//   bench_lu_gpu [OPTION...] MATRIX|FOLDER...
//
// Of a folder all matrices in it (.mtx, .mtx.gz) are taken, the smallest files first.
//
// --seconds N          begin no matrix after so many seconds; else all
// --repeat N           samples of each time; else 20
// --threads N          of a block of the dataflow kernels, one block on each multiprocessor;
//                      else by the size of the factors
// --products N         of an entry that one lane adds up before another lane helps it; else 4
// --solve-products N   the same of a row of a solve
// --solve KIND         dataflow: all multiprocessors; block: one block; auto: the latter where
//                      it can be; both: dataflow and then auto
// --block-threads N    of the one block; else 1024
// --strategy WORDS     of the factorization, one or several with commas, each timed: auto (else),
//                      dataflow, right-looking, dense-columns, compressed-columns, emitted
// --budget N           of emitted: multiply-adds in straight-line code; else 300000
// --stages KIND        of columns by levels: auto, none (a launch each), all (one launch)
// --dense-tail N       of columns by levels: columns of the dense tail; else the inspector's choice
// --atomics 1          of columns by levels: additions by atomic operations
// --rf 1               cusolverRf beside them, where libcusolver.so is: the same order and pivots,
// the
//                      fastest of its algorithms; with the largest error of its solution of ones
//
// Times are medians in microseconds: of the GPU a replay of the CUDA graph of one factorization, or
// of one solve for one right-hand side without refinement, between two events. `bound` is the time
// that the levels take if each costs 0.3 us, and the next column how many times that it was. A
// matrix that does not work is said to, and left out of the means. At the end stand the means, and
// which of those that KLU factorizes in more than 100 us were slower here.
#include "compiler/input/read.h"
#include "ir/error.h"
#include "runtime/lu/factors.h"
#include "tests/support/cusolver_rf_reference.h"
#include "tests/support/klu_reference.h"
#include "tests/support/median_time.h"
#include "tools/assemblers.h"
#include "tools/lu_gpu.h"
#include "tools/lu_solver.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sparsertc {
namespace {

/// Of a level, at least.
constexpr double kLevelUs = 0.3;
/// What KLU does faster than this is not looked at on its own.
constexpr double kShortUs = 100;
/// The goal: so many times the bound.
constexpr double kMostOfBound = 3;

struct Means {
  double refactor = 0, solve = 0; ///< sums of logarithms
  unsigned count = 0;
  double long_refactor = 0, long_solve = 0; ///< where KLU is not short
  unsigned long_count = 0;
  unsigned within_bound = 0, bounded = 0;
  std::vector<std::string> slower; ///< refactorizations
  std::vector<std::string> slower_solve;
  unsigned failed = 0, left = 0;
};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The matrices of a folder, the smallest files first; or the path itself.
std::vector<std::string> matrices_of(const std::string& path) {
  if (!std::filesystem::is_directory(path))
    return {path};
  std::vector<std::pair<uintmax_t, std::string>> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string name = entry.path().string();
    if (entry.is_regular_file() && (name.ends_with(".mtx") || name.ends_with(".mtx.gz")))
      files.emplace_back(entry.file_size(), name);
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> paths;
  for (const auto& [bytes, name] : files)
    paths.push_back(name);
  return paths;
}

void print_summary(const Means& means) {
  const auto mean = [](double sum, unsigned count) { return std::exp(sum / count); };
  if (means.count > 0)
    fmt::print("geometric mean of {}: refactor {:.2f} times as fast as KLU, solve {:.2f}\n",
               means.count, mean(means.refactor, means.count), mean(means.solve, means.count));
  if (means.long_count > 0)
    fmt::print(
        "of the {} that KLU factorizes in more than {:.0f} us: refactor {:.2f}, solve {:.2f}\n"
        "  slower than KLU: {}\n  solved more slowly: {}\n",
        means.long_count, kShortUs, mean(means.long_refactor, means.long_count),
        mean(means.long_solve, means.long_count),
        means.slower.empty() ? "none" : fmt::format("{}", fmt::join(means.slower, " ")),
        means.slower_solve.empty() ? "none"
                                   : fmt::format("{}", fmt::join(means.slower_solve, " ")));
  if (means.bounded > 0)
    fmt::print("{} of {} within {:.0f} times their levels' bound\n", means.within_bound,
               means.bounded, kMostOfBound);
  if (means.failed > 0 || means.left > 0)
    fmt::print("{} did not work, {} left out for want of time\n", means.failed, means.left);
}

/// Columns of the line: time, algorithm, how many times `own_us` that is, error.
std::string cusolver_rf(const cuda::Context& context, const Matrix& a, const LuTables& tables,
                        unsigned repeat, double own_us, TaskPool& pool) {
  lu::Factors<double> factors(tables, &pool);
  factors.refactor(a.values);
  std::vector<double> b(tables.size, 0);
  for (size_t p = 0; p < tables.input_row.size(); ++p)
    b[tables.input_row[p]] += a.values[tables.input_source[p]] *
                              (tables.input_scale.empty() ? 1.0 : tables.input_scale[p]);
  std::string columns, refusal;
  double best = 0;
  for (int algorithm = 0; algorithm < test::CusolverRfReference::kAlgorithms; ++algorithm) {
    try {
      const auto rf =
          test::CusolverRfReference::make(context, tables, a.values, factors.values(), algorithm);
      const double time = test::median_us(repeat, [&] { rf->refactor(); });
      if (best != 0 && time >= best)
        continue;
      best = time;
      std::vector<double> x = b;
      rf->solve(x);
      double error = 0;
      for (const double value : x)
        error = std::max(error, std::isnan(value) ? HUGE_VAL : std::abs(value - 1));
      columns =
          fmt::format(" {:10.1f} {:3} {:7.2f} {:8.1e}", time, algorithm, time / own_us, error);
    } catch (const RuntimeError& error) {
      refusal = error.what();
    }
  }
  return columns.empty() ? " " + refusal : columns;
}

void bench(const std::string& path, unsigned repeat, const LuGpuOptions& gpu,
           const cuda::Context* rf, TaskPool& pool, Means& means) {
  const auto* const kind = gpu.solve == LuGpuSolve::dataflow ? "dataflow"
                           : gpu.solve == LuGpuSolve::block  ? "block"
                                                             : "auto";
  ReadOptions read;
  read.require_values = true;
  const Matrix a = read_matrix(path, read);
  const std::string file = path.substr(path.rfind('/') + 1);
  const std::string name = file.substr(0, file.find('.'));

  LuSolverOptions options;
  options.pool = options.analysis.pool = &pool;
  options.repeat = repeat;
  options.make_gpu_backend = [&](const LuTables& of, const Pattern& pattern, LuPrecision precision,
                                 bool complex, TaskPool* with) {
    return make_gpu_backend(of, pattern, precision, complex, with, gpu);
  };
  LuSolver solver(a, options);
  LuVectors x;
  x.real.assign(a.pattern.rows, 1);
  const LuVectors b = multiply(a, x, false);
  LuSystemReport report;
  solver.solve(a, b, report);

  const LuTables& tables = solver.tables();
  const double bound = kLevelUs * static_cast<double>(tables.factor_levels.count());
  std::string line = fmt::format(
      "{:18} {:8} {:9} {:6} {:8} {:18} {:8} {:9.1f} {:8.1f} {:5.2f} {:9.1f} {:9.1e} {:2}", name,
      a.pattern.rows, tables.nnz(), tables.factor_levels.count(),
      solver.analysis().order.winner().name, solver.strategy(), kind, report.refactor_us, bound,
      report.refactor_us / bound, report.substitution_us, report.residual, report.refinement_steps);
  ++means.bounded;
  if (report.refactor_us <= kMostOfBound * bound)
    ++means.within_bound;
  if (const auto klu = test::KluReference::make(a)) {
    const double refactor = test::median_us(repeat, [&] { klu->refactor(); });
    std::vector<double> given = b.real, right;
    if (!a.imaginary.empty()) { // pairs
      given.clear();
      for (size_t i = 0; i < b.real.size(); ++i)
        given.insert(given.end(), {b.real[i], b.imaginary[i]});
    }
    const double solve = test::median_us(repeat, [&] {
      right = given;
      klu->solve(right);
    });
    line += fmt::format(" {:10.1f} {:9.1f} {:7.2f} {:7.2f}", refactor, solve,
                        refactor / report.refactor_us, solve / report.substitution_us);
    means.refactor += std::log(refactor / report.refactor_us);
    means.solve += std::log(solve / report.substitution_us);
    ++means.count;
    if (refactor > kShortUs) {
      means.long_refactor += std::log(refactor / report.refactor_us);
      means.long_solve += std::log(solve / report.substitution_us);
      ++means.long_count;
      if (refactor < report.refactor_us)
        means.slower.push_back(name);
      if (solve < report.substitution_us)
        means.slower_solve.push_back(name);
    }
  }
  if (rf != nullptr && a.imaginary.empty())
    line += cusolver_rf(*rf, a, tables, repeat, report.refactor_us, pool);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

/// The words of a list with commas; false where one is none.
bool add_strategies(std::string_view list, std::vector<LuStrategy>& strategies) {
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const auto word = std::find(kLuStrategyWords.begin(), kLuStrategyWords.end(),
                                list.substr(begin, end - begin));
    if (word == kLuStrategyWords.end())
      return false;
    strategies.push_back(static_cast<LuStrategy>(word - kLuStrategyWords.begin()));
    begin = end + 1;
  }
  return true;
}

int run(int count, char** words) {
  unsigned repeat = 20;
  LuGpuOptions gpu;
  std::vector<LuGpuSolve> kinds = {LuGpuSolve::automatic};
  std::vector<LuStrategy> strategies;
  uint32_t atomics = 0, rf = 0, tail = UINT32_MAX, budget = static_cast<uint32_t>(gpu.budget),
           seconds = 0;
  bool usable = true;
  std::vector<std::string> paths;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    uint32_t* const number = word == "--repeat"           ? &repeat
                             : word == "--threads"        ? &gpu.threads
                             : word == "--products"       ? &gpu.products_of_lane
                             : word == "--solve-products" ? &gpu.solve_products
                             : word == "--block-threads"  ? &gpu.block_threads
                             : word == "--atomics"        ? &atomics
                             : word == "--rf"             ? &rf
                             : word == "--budget"         ? &budget
                             : word == "--dense-tail"     ? &tail
                             : word == "--seconds"        ? &seconds
                                                          : nullptr;
    if (number != nullptr && i + 1 < count) {
      const std::string_view digits = words[++i];
      std::from_chars(digits.data(), digits.data() + digits.size(), *number);
    } else if (word == "--solve" && i + 1 < count) {
      const std::string_view kind = words[++i];
      if (kind == "both")
        kinds = {LuGpuSolve::dataflow, LuGpuSolve::automatic};
      else if (kind == "dataflow" || kind == "block")
        kinds = {kind == "block" ? LuGpuSolve::block : LuGpuSolve::dataflow};
      else
        usable = usable && kind == "auto";
    } else if (word == "--strategy" && i + 1 < count) {
      usable = usable && add_strategies(words[++i], strategies);
    } else if (word == "--stages" && i + 1 < count) {
      const std::string_view kind = words[++i];
      gpu.fusion = kind == "none"  ? LuStageFusion::none
                   : kind == "all" ? LuStageFusion::all
                                   : LuStageFusion::automatic;
      usable = usable && (kind == "auto" || gpu.fusion != LuStageFusion::automatic);
    } else {
      const std::vector<std::string> found = matrices_of(std::string(word));
      paths.insert(paths.end(), found.begin(), found.end());
    }
  }
  gpu.atomics = atomics != 0;
  gpu.budget = budget;
  if (tail != UINT32_MAX)
    gpu.tail_columns = tail;
  std::vector<std::string> refused;
  const std::unique_ptr<Assembler> assembler = find_assembler({}, refused);
  gpu.assembler = assembler.get();
  if (strategies.empty())
    strategies = {LuStrategy::automatic};
  if (!usable || paths.empty() || gpu.threads % 32 != 0 || gpu.threads > 512 ||
      gpu.block_threads == 0 || gpu.block_threads % 32 != 0 || gpu.block_threads > 1024) {
    fmt::print(
        stderr,
        "usage: bench_lu_gpu [--repeat N] [--threads N] [--products N]\n"
        "  [--solve-products N] [--solve auto|dataflow|block|both]\n"
        "  [--block-threads N] [--strategy WORD,...] [--stages auto|none|all]\n"
        "  [--atomics 1] [--budget N] [--dense-tail N] [--rf 1] [--seconds N] MATRIX|FOLDER...\n"
        "threads: multiples of 32, at most 512; at most 1024 of the one block\n");
    return 2;
  }
  if (!test::KluReference::available())
    fmt::print("no libklu.so.1: times of the GPU alone\n");
  fmt::print(
      "{:18} {:>8} {:>9} {:>6} {:8} {:18} {:8} {:>9} {:>8} {:>5} {:>9} {:>9} {:2} {:>10} {:>9} "
      "{:>7} {:>7}{}\n",
      "matrix", "n", "nnz(L+U)", "levels", "order", "strategy", "solve by", "refactor", "bound",
      "x", "solve", "residual", "it", "KLU", "KLU solve", "x", "x solve",
      rf == 0 ? "" : " cusolverRf by       x    error");
  TaskPool pool;
  std::optional<cuda::Context> context;
  if (rf != 0)
    context.emplace(cuda::Driver::open());
  int failed = 0;
  const double start = now_s();
  for (const LuStrategy strategy : strategies)
    for (const LuGpuSolve kind : kinds) {
      gpu.strategy = strategy;
      gpu.solve = kind;
      Means means;
      for (const std::string& path : paths) {
        if (seconds > 0 && now_s() - start > seconds) {
          ++means.left;
          continue;
        }
        try {
          bench(path, std::max(repeat, 1u), gpu, context ? &*context : nullptr, pool, means);
        } catch (const NoGpuError& error) {
          fmt::print("SKIPPED: {}\n", error.what());
          return 3;
        } catch (const std::exception& error) {
          fmt::print("{}: {}\n", path, error.what());
          failed = 1;
          ++means.failed;
        }
      }
      print_summary(means);
    }
  return failed;
}

} // namespace
} // namespace sparsertc

int main(int count, char** words) {
  try {
    return sparsertc::run(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_lu_gpu: {}\n", error.what());
    return 1;
  }
}
