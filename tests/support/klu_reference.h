// KLU (Davis and Palamadai Natarajan, Algorithm 907, ACM Trans. Math. Softw. 37, 2010) as a
// reference for tests and benchmarks, where its library is.
#pragma once

#include "compiler/input/matrix.h"

#include <memory>
#include <span>
#include <vector>

namespace sparsertc::test {

class KluReference {
public:
  /// Orders and factorizes with the library's own choices. Null where the library is absent or the
  /// matrix is singular for it.
  static std::unique_ptr<KluReference> make(const Matrix& a);
  static bool available();
  ~KluReference();
  KluReference(const KluReference&) = delete;
  KluReference& operator=(const KluReference&) = delete;

  /// klu_refactor with the values of `make` (or klu_z_refactor); false where it fails.
  bool refactor();
  /// The same with other values, real ones, in the order of A.
  bool refactor(std::span<const double> values);
  /// Solves in place for one right-hand side: n numbers, or n pairs of real and imaginary part.
  void solve(std::vector<double>& b);

private:
  KluReference();
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

} // namespace sparsertc::test
