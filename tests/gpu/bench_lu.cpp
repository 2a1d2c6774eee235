// Times of sparse LU for one matrix with new values: the GPU beside KLU on one core of the same
// machine, where libklu.so.1 is beside this program or where the loader finds it.
//
//   bench_lu_gpu [OPTION...] MATRIX...
//
// --repeat N           samples of each time; else 20
// --threads N          of a block of the dataflow kernels, one block on each multiprocessor;
//                      else by the size of the factors
// --products N         of an entry that one lane adds up before another lane helps it; else 4
// --solve-products N   the same of a row of a solve
// --solve KIND         dataflow: all multiprocessors; block: one block; auto: the latter where
//                      it can be; both: dataflow and then auto
// --block-threads N    of the one block; else 1024
// --strategy WORDS     of the factorization, one or several with commas, each timed: auto (else),
//                      dataflow, right-looking, dense-columns, compressed-columns
// --stages KIND        of columns by levels: auto, none (a launch each), all (one launch)
// --atomics 1          of columns by levels: additions by atomic operations
//
// Times are medians in microseconds: of the GPU a replay of the CUDA graph of one factorization, or
// of one solve for one right-hand side without refinement, between two events. A matrix that does
// not work is said to, and left out of the means.
#include "compiler/input/read.h"
#include "ir/error.h"
#include "tests/support/klu_reference.h"
#include "tests/support/median_time.h"
#include "tools/lu_gpu.h"
#include "tools/lu_solver.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {
namespace {

struct Means {
  double refactor = 0, solve = 0; ///< sums of logarithms
  unsigned count = 0;
};

void bench(const std::string& path, unsigned repeat, const LuGpuOptions& gpu, TaskPool& pool,
           Means& means) {
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
  std::string line = fmt::format(
      "{:18} {:8} {:9} {:6} {:8} {:18} {:8} {:9.1f} {:9.1f} {:9.1e} {:2}", name, a.pattern.rows,
      tables.nnz(), tables.factor_levels.count(), solver.analysis().order.winner().name,
      solver.strategy(), kind, report.refactor_us, report.substitution_us, report.residual,
      report.refinement_steps);
  if (const auto klu = test::KluReference::make(a)) {
    const double refactor = test::median_us(repeat, [&] { klu->refactor(); });
    std::vector<double> right;
    const double solve = test::median_us(repeat, [&] {
      right = b.real;
      klu->solve(right);
    });
    line += fmt::format(" {:10.1f} {:9.1f} {:7.2f} {:7.2f}", refactor, solve,
                        refactor / report.refactor_us, solve / report.substitution_us);
    means.refactor += std::log(refactor / report.refactor_us);
    means.solve += std::log(solve / report.substitution_us);
    ++means.count;
  }
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
  uint32_t atomics = 0;
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
      paths.emplace_back(word);
    }
  }
  gpu.atomics = atomics != 0;
  if (strategies.empty())
    strategies = {LuStrategy::automatic};
  if (!usable || paths.empty() || gpu.threads % 32 != 0 || gpu.threads > 512 ||
      gpu.block_threads == 0 || gpu.block_threads % 32 != 0 || gpu.block_threads > 1024) {
    fmt::print(stderr, "usage: bench_lu_gpu [--repeat N] [--threads N] [--products N]\n"
                       "  [--solve-products N] [--solve auto|dataflow|block|both]\n"
                       "  [--block-threads N] [--strategy WORD,...] [--stages auto|none|all]\n"
                       "  [--atomics 1] MATRIX...\n"
                       "threads: multiples of 32, at most 512; at most 1024 of the one block\n");
    return 2;
  }
  if (!test::KluReference::available())
    fmt::print("no libklu.so.1: times of the GPU alone\n");
  fmt::print("{:18} {:>8} {:>9} {:>6} {:8} {:18} {:8} {:>9} {:>9} {:>9} {:2} {:>10} {:>9} {:>7} "
             "{:>7}\n",
             "matrix", "n", "nnz(L+U)", "levels", "order", "strategy", "solve by", "refactor",
             "solve", "residual", "it", "KLU", "KLU solve", "x", "x solve");
  TaskPool pool;
  int failed = 0;
  for (const LuStrategy strategy : strategies)
    for (const LuGpuSolve kind : kinds) {
      gpu.strategy = strategy;
      gpu.solve = kind;
      Means means;
      for (const std::string& path : paths) {
        try {
          bench(path, std::max(repeat, 1u), gpu, pool, means);
        } catch (const NoGpuError& error) {
          fmt::print("SKIPPED: {}\n", error.what());
          return 3;
        } catch (const std::exception& error) {
          fmt::print("{}: {}\n", path, error.what());
          failed = 1;
        }
      }
      if (means.count > 0)
        fmt::print("geometric mean of {}: refactor {:.2f} times as fast as KLU, solve {:.2f}\n",
                   means.count, std::exp(means.refactor / means.count),
                   std::exp(means.solve / means.count));
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
