// How long a kernel of sparse fragments on tensor cores (strategy=panels) takes, for the compiler's
// choice of a tile, for its cost model and for the tuner's order of candidates.
//
// A sum over what a multiprocessor does, fitted to 100 kernels of two pruned layers (2048 x 512 and
// 512 x 512, 80 to 98 % zeros, N = 1024, tf32 and f16) on an H200, of which it is off by 6 % (root
// mean square of the logarithm). With b = ceil(blocks / multiprocessors):
//
//   2.32                launch, the first rows of B
//   0.30  multiply      b panels steps products, 2 clocks for 16 rows and 8 columns
//   0.73  read          b panels steps, each 16 clocks for 32 columns of B, 4 for 16 rows of A, 3
//   more 0.0077 a KB         of B that blocks copy; of f32 in parts, which is split, 0.065 (four
//   kernels) 0.046 a KB          of C 0.0106 a KB         of sums of parts of K that meet in shared
//   memory 0.074 a step        of a warp, one after the other
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace sparsertc {

struct PanelLaunch {
  double rows = 0, inner = 0, columns = 0; ///< M, K, N
  double element_bytes = 4;                ///< of B and C
  uint32_t operand_parts = 1;              ///< of f32 in parts: 3
  /// The words of --tile.
  uint32_t panel_rows = 64, vec = 1, warps = 1, groups = 1, splitk = 1;
  double steps = 0; ///< of a panel
  double multiprocessors = 132;
};

inline double panel_us(const PanelLaunch& of) {
  constexpr double kClocksOfMicrosecond = 1755, kKilobyte = 1e3;
  // Warps that a multiprocessor has registers for, by the sums of a thread.
  constexpr double kManySums = 64, kWarpsOfManySums = 8, kWarpsOfFewSums = 16;
  const double block_rows = double(of.panel_rows) * of.groups;
  const double warp_columns = 32.0 * of.vec, block_columns = warp_columns * of.warps;
  const double blocks = std::ceil(of.rows / block_rows) * std::ceil(of.columns / block_columns);
  const double waves = std::ceil(blocks / of.multiprocessors);
  const double panel_steps = waves * of.groups * of.warps * of.steps;
  const double products = of.operand_parts == 1 ? 1 : of.operand_parts * (of.operand_parts + 1) / 2;
  const double multiply = panel_steps * products * of.panel_rows / 16 * warp_columns / 8 * 2;
  const double read = panel_steps * (of.operand_parts * (16.0 * of.vec + of.panel_rows / 4.0) + 3);
  const double of_copied = of.operand_parts == 1 ? 0.0077 : 0.065;
  const double copied = waves * of.inner * block_columns * of.element_bytes;
  const double stored = waves * block_rows * block_columns;
  const double met = of.splitk == 1 ? 0 : 4 * stored * of.splitk;
  const double warps = double(of.warps) * of.groups * of.splitk;
  const double sums = double(of.panel_rows) * of.vec;
  const double resident =
      std::max(1.0, std::floor((sums > kManySums ? kWarpsOfManySums : kWarpsOfFewSums) / warps));
  const double in_a_row = std::ceil(waves / resident) * of.steps / of.splitk;
  return 2.32 + (0.30 * multiply + 0.73 * read) / kClocksOfMicrosecond +
         (of_copied * copied + 0.046 * of.element_bytes * stored + 0.0106 * met) / kKilobyte +
         0.074 * in_a_row;
}

} // namespace sparsertc
