// Symbolic factorization and levels of grids on the CPU: the fast method and fill2, which is what a
// GPU runs, with one thread and with all.
//
//   bench_lu_symbolic                          grids of up to a million points
//   bench_lu_symbolic WIDTH HEIGHT DEPTH       one grid, fill2 as well
//
// The grids are unsymmetric, a quarter of the entries on one side is missing, and ordered by nested
// dissection. Times are in seconds, of one run.
#include "compiler/inspect/lu_levels.h"
#include "compiler/inspect/lu_symbolic.h"
#include "compiler/pattern/fill_order.h"
#include "tests/support/lu_patterns.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>

namespace sparsertc {
namespace {

/// fill2 takes long: on larger grids only where it is asked for.
constexpr uint64_t kLargestFill2 = 100'000;

struct Grid {
  uint32_t width, height, depth;
};
constexpr Grid kGrids[] = {{300, 300, 1}, {40, 40, 40}, {1000, 1000, 1}};

template <class Work>
double seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Whether all methods gave the same.
bool bench(const Grid& grid, bool with_fill2, TaskPool& pool) {
  test::Random random(1);
  const Pattern natural = test::random_grid(random, grid.width, grid.height, 0.25, grid.depth);
  Permutation order;
  const double ordering =
      seconds([&] { order = fill_reducing_order(natural, FillOrder::nested_dissection); });
  const Pattern a = permute(natural, order, order);
  LuPattern fast, again;
  const double alone = seconds([&] { fast = symbolic_lu(a); });
  const double together = seconds([&] { again = symbolic_lu(a, &pool); });
  bool same = again == fast;
  std::string fill2 = "-";
  if (with_fill2) {
    fill2 = fmt::format("{:.3f}", seconds([&] { again = symbolic_lu_fill2(a, &pool); }));
    same = same && again == fast;
  }
  again = {};
  LuColumns columns;
  const double transposing = seconds([&] { columns = by_columns(fast); });
  LuLevels gather, safe;
  const double levels = seconds([&] { gather = factor_levels(fast, columns, LevelRule::gather); });
  const double safe_levels =
      seconds([&] { safe = factor_levels(fast, columns, LevelRule::right_looking); });
  fmt::print("{:>14} {:>8} {:>9} {:>10} {:>8.3f} {:>8.3f} {:>8.3f} {:>8} {:>8.3f} {:>8.3f} {:>7} "
             "{:>8.3f} {:>7}{}\n",
             fmt::format("{}x{}x{}", grid.width, grid.height, grid.depth), a.rows, a.nnz(),
             fast.rows.nnz(), ordering, alone, together, fill2, transposing, levels, gather.count(),
             safe_levels, safe.count(), same ? "" : "  DIFFERENT RESULTS");
  return same;
}

} // namespace
} // namespace sparsertc

int main(int argc, char** argv) {
  using namespace sparsertc;
  TaskPool pool;
  fmt::print("{:>14} {:>8} {:>9} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8} {:>7}\n",
             "grid", "n", "nnz(A)", "nnz(L+U)", "ordering", "fast",
             fmt::format("{} thr.", pool.threads()), "fill2", "columns", "levels", "number", "safe",
             "number");
  if (argc == 4) {
    const auto number = [&](int i) {
      return static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10));
    };
    return bench({number(1), number(2), number(3)}, true, pool) ? 0 : 1;
  }
  bool same = true;
  for (const Grid& grid : kGrids) {
    const uint64_t points = uint64_t{grid.width} * grid.height * grid.depth;
    same = bench(grid, points <= kLargestFill2, pool) && same;
  }
  return same ? 0 : 1;
}
