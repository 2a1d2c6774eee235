// Sparse LU through the C API: bundles of random matrices, and one matrix's workspace with room for
// right-hand sides, on a GPU, on the interpreter, or in host memory.
#pragma once

#include "compiler/input/matrix.h"
#include "runtime/bundle/bundle.h"
#include "runtime/include/sparsertc.h"
#include "tests/support/random_sparse.h"
#include "tools/lu_compile.h"

#include <complex>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sparsertc::test {

/// The pattern with random values that are safe to factorize: a diagonal heavier than its row.
Matrix safe_matrix(const Pattern& pattern, Random& random, bool complex = false);
/// Other values at the same places.
void replace_values(Matrix& matrix, Random& random);

struct LuBundleChoice {
  LuPrecision precision = LuPrecision::f64;
  std::string target = "host";
  uint32_t multiprocessors = 1;
  LuGpuSolve solve = LuGpuSolve::automatic;
  bool transposed = true;
  bool batch = false;
  uint64_t batch_budget = 300000;
};
Bundle lu_bundle(const Matrix& matrix, const LuBundleChoice& choice = {});

/// Memory of a context: device memory, or host memory where it has no GPU. Filled with ones at
/// first: NaN, whatever the type.
class LuMemory {
public:
  LuMemory(const sparsertc_context* context, bool on_host, uint64_t bytes);
  ~LuMemory();
  LuMemory(const LuMemory&) = delete;
  LuMemory& operator=(const LuMemory&) = delete;

  void write(const std::vector<uint8_t>& bytes) const;
  std::vector<uint8_t> read() const;

  void* address = nullptr;

private:
  void give_back();

  const sparsertc_context* context_;
  bool on_host_;
  uint64_t bytes_;
  struct FreeAligned {
    void operator()(uint8_t* memory) const;
  };
  std::unique_ptr<uint8_t, FreeAligned> host_;
};

/// Throws std::runtime_error with the API's message where a call fails.
void require_ok(sparsertc_result result);

/// The numbers of one matrix.
class LuSession {
public:
  /// `lu` must outlive it. `sides_at_once`: what the workspace has room for.
  LuSession(const sparsertc_context* context, bool on_host, const sparsertc_lu* lu,
            int64_t sides_at_once = 1);

  void refactor(const Matrix& a, void* stream = nullptr);
  /// Solutions of A X = B, b in double precision: n numbers (complex ones: pairs) for each.
  std::vector<double> solve(const std::vector<double>& b, int64_t right_sides, bool transposed,
                            bool in_place, void* stream = nullptr);
  /// The same, refined, with factors of a matrix near `a`, which is given here. What was achieved
  /// is in refined().
  std::vector<double> solve_refined(const Matrix& a, const std::vector<double>& b,
                                    int64_t right_sides, bool transposed, bool in_place,
                                    uint32_t maximum_steps, double target = 0,
                                    void* stream = nullptr);
  struct Refined {
    double backward_error = 0, residual = 0;
    int64_t steps = 0;
  };
  const std::vector<Refined>& refined() const { return refined_; }
  sparsertc_lu_factor_status status(void* stream = nullptr) const;

  const sparsertc_lu_workspace& workspace() const { return workspace_; }
  const void* values() const { return values_.address; }
  const sparsertc_lu_info& info() const { return info_; }
  /// Numbers of the bundle's type, from double precision and back.
  std::vector<uint8_t> packed(const std::vector<double>& parts) const;
  std::vector<double> unpacked(const std::vector<uint8_t>& bytes) const;

private:
  const sparsertc_context* context_;
  bool on_host_;
  const sparsertc_lu* lu_;
  sparsertc_lu_info info_;
  LuMemory memory_, values_;
  sparsertc_lu_workspace workspace_;
  std::vector<Refined> refined_;
};

/// Values of a matrix, complex ones as pairs.
std::vector<double> parts_of(const Matrix& a);
/// Random numbers for right-hand sides.
std::vector<double> random_parts(Random& random, uint64_t count);
/// The largest norm(b - A x) / (norm(A) norm(x) + norm(b)) of the columns, in double precision.
double largest_residual(const Matrix& a, const std::vector<double>& b, const std::vector<double>& x,
                        bool transposed);

} // namespace sparsertc::test
