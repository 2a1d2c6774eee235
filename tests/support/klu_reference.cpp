#include "tests/support/klu_reference.h"

#include "compiler/input/permute.h"

#include <array>
#include <cstddef>
#include <dlfcn.h>
#include <string>
#include <unistd.h>

namespace sparsertc::test {
namespace {

/// klu_common, of which only the library looks inside; it has some 200 bytes.
struct alignas(std::max_align_t) Common {
  std::array<std::byte, 4096> bytes{};
};

/// The functions of one kind of number.
struct Functions {
  void* (*factor)(int*, int*, double*, void*, Common*) = nullptr;
  int (*refactor)(int*, int*, double*, void*, void*, Common*) = nullptr;
  int (*solve)(void*, void*, int, int, double*, Common*) = nullptr;
  int (*free_numeric)(void**, Common*) = nullptr;
};

/// The library, opened when it is first asked for: it is under the LGPL and never linked in.
struct Library {
  int (*defaults)(Common*) = nullptr;
  void* (*analyze)(int, int*, int*, Common*) = nullptr;
  int (*free_symbolic)(void**, Common*) = nullptr;
  Functions real, complex;
  bool found = false;

  static const Library& get() {
    static const Library library;
    return library;
  }

private:
  Library() {
    void* const handle = open();
    if (handle == nullptr)
      return;
    found = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
      found = found && function != nullptr;
    };
    find(defaults, "klu_defaults");
    find(analyze, "klu_analyze");
    find(free_symbolic, "klu_free_symbolic");
    find(real.factor, "klu_factor");
    find(real.refactor, "klu_refactor");
    find(real.solve, "klu_solve");
    find(real.free_numeric, "klu_free_numeric");
    find(complex.factor, "klu_z_factor");
    find(complex.refactor, "klu_z_refactor");
    find(complex.solve, "klu_z_solve");
    find(complex.free_numeric, "klu_z_free_numeric");
  }

  /// From the program's own folder, with what it needs, else from where the loader looks.
  static void* open() {
    std::string folder(4096, '\0');
    const ssize_t length = readlink("/proc/self/exe", folder.data(), folder.size());
    if (length > 0) {
      folder.resize(static_cast<size_t>(length));
      folder.resize(folder.rfind('/') + 1);
      void* last = nullptr;
      for (const char* name : {"libsuitesparseconfig.so.5", "libamd.so.2", "libcolamd.so.2",
                               "libbtf.so.1", "libklu.so.1"})
        last = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_GLOBAL);
      if (last != nullptr)
        return last;
    }
    return dlopen("libklu.so.1", RTLD_NOW);
  }
};

} // namespace

struct KluReference::Implementation {
  const Library& library = Library::get();
  Common common;
  void* symbolic = nullptr;
  void* numeric = nullptr;
  std::vector<int> offset, index;
  std::vector<size_t> entry;  ///< of A in the caller's order, by entry of the columns
  std::vector<double> values; ///< pairs where complex
  bool complex = false;
  int size = 0;

  const Functions& functions() const { return complex ? library.complex : library.real; }

  ~Implementation() {
    if (numeric != nullptr)
      functions().free_numeric(&numeric, &common);
    if (symbolic != nullptr)
      library.free_symbolic(&symbolic, &common);
  }
};

KluReference::KluReference() : implementation_(std::make_unique<Implementation>()) {}
KluReference::~KluReference() = default;

bool KluReference::available() {
  return Library::get().found;
}

std::unique_ptr<KluReference> KluReference::make(const Matrix& a) {
  if (!available())
    return nullptr;
  std::unique_ptr<KluReference> reference(new KluReference);
  Implementation& klu = *reference->implementation_;
  klu.library.defaults(&klu.common);
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
  Matrix numbered = a;
  numbered.imaginary.clear();
  numbered.values.resize(a.pattern.nnz());
  for (size_t i = 0; i < numbered.values.size(); ++i)
    numbered.values[i] = static_cast<double>(i);
  for (const double number : transpose(numbered).values)
    klu.entry.push_back(static_cast<size_t>(number));
  klu.size = static_cast<int>(pattern.rows);
  klu.symbolic = klu.library.analyze(klu.size, klu.offset.data(), klu.index.data(), &klu.common);
  if (klu.symbolic == nullptr)
    return nullptr;
  // As it is set at first, the library gives nothing for a singular matrix.
  klu.numeric = klu.functions().factor(klu.offset.data(), klu.index.data(), klu.values.data(),
                                       klu.symbolic, &klu.common);
  return klu.numeric == nullptr ? nullptr : std::move(reference);
}

bool KluReference::refactor() {
  Implementation& klu = *implementation_;
  return klu.functions().refactor(klu.offset.data(), klu.index.data(), klu.values.data(),
                                  klu.symbolic, klu.numeric, &klu.common) != 0;
}

bool KluReference::refactor(std::span<const double> values) {
  Implementation& klu = *implementation_;
  for (size_t i = 0; i < klu.values.size(); ++i)
    klu.values[i] = values[klu.entry[i]];
  return refactor();
}

void KluReference::solve(std::vector<double>& b) {
  Implementation& klu = *implementation_;
  klu.functions().solve(klu.symbolic, klu.numeric, klu.size, 1, b.data(), &klu.common);
}

} // namespace sparsertc::test
