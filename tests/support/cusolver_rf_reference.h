// cusolverRf of the CUDA toolkit as a reference of benchmarks, where its library is:
// refactorization with the pattern, the order and the pivots that sparse LU here has found.
#pragma once

#include "ir/lu_tables.h"
#include "runtime/driver/cuda_objects.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sparsertc::test {

class CusolverRfReference {
public:
  /// Its algorithms for the factorization, the argument of `make`.
  static constexpr int kAlgorithms = 3;

  /// Sets up with `values` of A, in the order of A, and the factors of `tables` with them
  /// (lu::Factors::values). RuntimeError where the library is absent or refuses.
  static std::unique_ptr<CusolverRfReference> make(const cuda::Context& context,
                                                   const LuTables& tables,
                                                   std::span<const double> values,
                                                   std::span<const double> factors, int algorithm);
  ~CusolverRfReference();
  CusolverRfReference(const CusolverRfReference&) = delete;
  CusolverRfReference& operator=(const CusolverRfReference&) = delete;

  /// Takes the values, which are on the device already, and factorizes; waits for the end.
  void refactor();
  /// The solution y of B y = c in place, B the permuted and scaled matrix.
  void solve(std::vector<double>& c);

private:
  CusolverRfReference();
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

} // namespace sparsertc::test
