// Refactorization and solve of sparse LU on the CPU, beside KLU where it is.
//
//   bench_lu A.mtx ...          these matrices
//   bench_lu                    the list of the project's target, from SPARSERTC_DATA
//   bench_lu GRID               a five-point grid of GRID x GRID, and nothing else
//
// Times are the least of many runs, of one thread unless said otherwise. `gather` counts the bytes
// that the positions of all multiply-adds would take.
#include "compiler/input/read.h"
#include "compiler/inspect/lu_analysis.h"
#include "compiler/inspect/lu_schedule.h"
#include "ir/error.h"
#include "runtime/lu/factors.h"
#include "tests/support/klu_reference.h"
#include "tests/support/lu_patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sparsertc {
namespace {

constexpr const char* kList[] = {
    "memplus",       "pf_ACTIVSg2000_it0", "pf_ACTIVSg10k_it0", "pf_13659pegase_it0",
    "ibmpg1_dc_mna", "orsreg_1",           "cryg2500",          "ScaleMicrogrid_N1000_01"};

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The least time of each job; they take turns, so that a busy machine is the same for all, until
/// each has run for a fifth of a second and 5 times.
std::vector<double> least_us(const std::vector<std::function<void()>>& jobs) {
  std::vector<double> least(jobs.size(), 1e300);
  const double end = now_us() + 2e5 * static_cast<double>(jobs.size());
  for (int round = 0; round < 5 || now_us() < end; ++round)
    for (size_t job = 0; job < jobs.size(); ++job) {
      const double start = now_us();
      jobs[job]();
      least[job] = std::min(least[job], now_us() - start);
    }
  return least;
}

struct Ratios {
  double refactor = 0, solve = 0; ///< sums of logarithms
  unsigned count = 0;
};

void bench(const Matrix& a, TaskPool& pool, Ratios& ratios) {
  const double start = now_us();
  const LuAnalysis analysis = analyse_lu(a);
  const double analysed = now_us();
  const LuTables tables = make_lu_tables(
      a.pattern, {analysis.rows, analysis.columns, analysis.row_scale, analysis.column_scale});
  const double prepared = now_us();
  lu::Factors<double> alone(tables), together(tables, &pool);
  std::vector<double> x(a.pattern.rows, 1);
  const auto refill = [&x] { std::fill(x.begin(), x.end(), 1); };
  std::vector<std::function<void()>> jobs = {
      [&] { alone.refactor(a.values); },
      [&] { together.refactor(a.values); },
      [&] {
        refill();
        alone.solve(x, x);
      },
  };
  const std::unique_ptr<test::KluReference> klu = test::KluReference::make(a);
  if (klu != nullptr) {
    jobs.push_back([&] { klu->refactor(); });
    jobs.push_back([&] {
      refill();
      klu->solve(x);
    });
  }
  const std::vector<double> least = least_us(jobs);
  const uint64_t pairs = multiply_adds(tables);
  std::string name = a.name.substr(a.name.find_last_of('/') + 1);
  name = name.substr(0, name.find('.'));
  fmt::print("{:24} {:>6} {:>8} {:>9} {:>6} {:>7.1f} {:>8.1f} {:>6.1f} {:>9.1f} {:>9.1f} {:>8.1f}",
             name, tables.size, tables.nnz(), pairs, tables.factor_levels.count(),
             static_cast<double>(gather_bytes(tables.nnz(), pairs)) / (1 << 20),
             (analysed - start) * 1e-3, (prepared - analysed) * 1e-3, least[0], least[1], least[2]);
  if (klu != nullptr) {
    fmt::print(" {:>9.1f} {:>8.1f} {:>6.2f} {:>6.2f}", least[3], least[4], least[3] / least[0],
               least[4] / least[2]);
    ratios.refactor += std::log(least[3] / least[0]);
    ratios.solve += std::log(least[4] / least[2]);
    ++ratios.count;
  }
  fmt::print("\n");
}

int run(int argc, char** argv) {
  TaskPool pool;
  std::vector<Matrix> matrices;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.empty() && word.find_first_not_of("0123456789") == std::string::npos) {
      test::Random random(1);
      Matrix a;
      const uint32_t width = static_cast<uint32_t>(std::stoul(word));
      a.pattern = test::random_grid(random, width, width, 0);
      a.name = fmt::format("grid_{}x{}", width, width);
      for (uint32_t row = 0; row < a.pattern.rows; ++row)
        for (const uint32_t column : a.pattern.row(row))
          a.values.push_back(random.symmetric() + (row == column ? 4 : 0));
      matrices.push_back(std::move(a));
    } else {
      matrices.push_back(read_matrix(word));
    }
  }
  if (argc == 1) {
    const char* const folder = std::getenv("SPARSERTC_DATA");
    if (folder == nullptr) {
      fmt::print("SKIPPED: no matrix is given and SPARSERTC_DATA names no folder\n");
      return 0;
    }
    for (const char* const name : kList)
      matrices.push_back(read_matrix(fmt::format("{}/lu/{}.mtx.gz", folder, name)));
  }
  fmt::print("{:24} {:>6} {:>8} {:>9} {:>6} {:>7} {:>8} {:>6} {:>9} {:>9} {:>8}", "matrix", "n",
             "nnz(L+U)", "mult-adds", "levels", "gather", "analysis", "tables", "refactor",
             fmt::format("{} threads", pool.threads()), "solve");
  if (test::KluReference::available())
    fmt::print(" {:>9} {:>8} {:>6} {:>6}", "KLU", "KLU", "KLU/", "KLU/");
  fmt::print("\n{:24} {:>6} {:>8} {:>9} {:>6} {:>7} {:>8} {:>6} {:>9} {:>9} {:>8}", "", "", "", "",
             "", "MiB", "ms", "ms", "us", "us", "us");
  if (test::KluReference::available())
    fmt::print(" {:>9} {:>8} {:>6} {:>6}", "refactor", "solve", "ours", "ours");
  fmt::print("\n");
  Ratios ratios;
  for (const Matrix& a : matrices)
    bench(a, pool, ratios);
  if (ratios.count > 1)
    fmt::print("geometric mean of KLU's time over ours: refactor {:.2f}, solve {:.2f}\n",
               std::exp(ratios.refactor / ratios.count), std::exp(ratios.solve / ratios.count));
  return 0;
}

} // namespace
} // namespace sparsertc

int main(int argc, char** argv) {
  try {
    return sparsertc::run(argc, argv);
  } catch (const sparsertc::Error& error) {
    fmt::print(stderr, "bench_lu: {}\n", error.what());
    return error.exit_code();
  }
}
