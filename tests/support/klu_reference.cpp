#include "tests/support/klu_reference.h"

#ifdef SPARSERTC_HAVE_KLU
#include "compiler/input/permute.h"

#include <klu.h>
#endif

namespace sparsertc::test {

#ifdef SPARSERTC_HAVE_KLU

struct KluReference::Implementation {
  klu_common common;
  klu_symbolic* symbolic = nullptr;
  klu_numeric* numeric = nullptr;
  std::vector<int> offset, index;
  std::vector<double> values; ///< pairs where complex
  bool complex = false;

  ~Implementation() {
    if (numeric != nullptr && complex)
      klu_z_free_numeric(&numeric, &common);
    else if (numeric != nullptr)
      klu_free_numeric(&numeric, &common);
    if (symbolic != nullptr)
      klu_free_symbolic(&symbolic, &common);
  }
};

KluReference::KluReference() : implementation_(std::make_unique<Implementation>()) {}
KluReference::~KluReference() = default;

bool KluReference::available() {
  return true;
}

std::unique_ptr<KluReference> KluReference::make(const Matrix& a) {
  std::unique_ptr<KluReference> reference(new KluReference);
  Implementation& klu = *reference->implementation_;
  klu_defaults(&klu.common);
  const Matrix by_columns = transpose(a); // its rows are the columns of A
  const Pattern& pattern = by_columns.pattern;
  klu.offset.assign(pattern.row_offset.begin(), pattern.row_offset.end());
  klu.index.assign(pattern.column_index.begin(), pattern.column_index.end());
  klu.complex = !a.imaginary.empty();
  for (size_t i = 0; i < by_columns.values.size(); ++i) {
    klu.values.push_back(by_columns.values[i]);
    if (klu.complex)
      klu.values.push_back(by_columns.imaginary[i]);
  }
  const int n = static_cast<int>(pattern.rows);
  klu.symbolic = klu_analyze(n, klu.offset.data(), klu.index.data(), &klu.common);
  if (klu.symbolic == nullptr)
    return nullptr;
  klu.numeric = klu.complex ? klu_z_factor(klu.offset.data(), klu.index.data(), klu.values.data(),
                                           klu.symbolic, &klu.common)
                            : klu_factor(klu.offset.data(), klu.index.data(), klu.values.data(),
                                         klu.symbolic, &klu.common);
  if (klu.numeric == nullptr || klu.common.status != KLU_OK)
    return nullptr;
  return reference;
}

bool KluReference::refactor() {
  Implementation& klu = *implementation_;
  const auto refactor = klu.complex ? klu_z_refactor : klu_refactor;
  return refactor(klu.offset.data(), klu.index.data(), klu.values.data(), klu.symbolic, klu.numeric,
                  &klu.common) != 0;
}

void KluReference::solve(std::vector<double>& b) {
  Implementation& klu = *implementation_;
  const auto solve = klu.complex ? klu_z_solve : klu_solve;
  solve(klu.symbolic, klu.numeric, klu.symbolic->n, 1, b.data(), &klu.common);
}

#else

struct KluReference::Implementation {};
KluReference::KluReference() = default;
KluReference::~KluReference() = default;
bool KluReference::available() {
  return false;
}
std::unique_ptr<KluReference> KluReference::make(const Matrix&) {
  return nullptr;
}
bool KluReference::refactor() {
  return false;
}
void KluReference::solve(std::vector<double>&) {}

#endif

} // namespace sparsertc::test
