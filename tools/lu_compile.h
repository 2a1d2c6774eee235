// A matrix becomes a bundle of sparse LU: analysed, its pivots tried on its values, with tables and
// kernels for a GPU.
#pragma once

#include "compiler/assemble/assembler.h"
#include "compiler/input/matrix.h"
#include "runtime/bundle/bundle.h"
#include "tools/lu_program.h"
#include "tools/lu_solver.h"

#include <cstdint>
#include <functional>
#include <string>

namespace sparsertc {

struct LuCompileOptions {
  LuAnalysisOptions analysis;
  LuFinders finders;
  LuPrecision precision = LuPrecision::f64;
  bool transposed = true;
  double pivot_threshold = 0; ///< lu::FactorOptions
  /// For a GPU, or the host: then there are tables for the CPU alone.
  Target target;
  /// That the tables are dealt to; 0: multiprocessors_of(target).
  uint32_t multiprocessors = 0;
  uint64_t most_table_bytes = uint64_t{4} << 30; ///< of the GPU's
  LuGpuSolve solve = LuGpuSolve::automatic;
  /// Also for batches, by straight-line code up to so many multiply-adds, else by tables.
  bool batch = false;
  uint64_t batch_budget = 300000;
  /// Null: the bundle holds PTX only.
  const Assembler* assembler = nullptr;
  TaskPool* pool = nullptr;
  unsigned jobs = 0; ///< of the assembler
  const std::atomic<bool>* stop = nullptr;
  std::function<void(const std::string&)> before_step;
};

/// Of the GPU of this architecture that is met most in servers; others may have fewer.
uint32_t multiprocessors_of(const Target& target);

/// Of the file; none were made for it either (`--values`).
bool has_no_values(const Matrix& matrix);

/// The same input, the same bytes. UserError where the matrix is singular or cannot be solved with
/// (as LuSolver), or where tables do not fit. A matrix without values has its pivots chosen by the
/// pattern alone, and nothing is tried.
Bundle compile_lu(const Matrix& matrix, const LuCompileOptions& options);

} // namespace sparsertc
