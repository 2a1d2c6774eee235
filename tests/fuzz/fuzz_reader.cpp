// One libFuzzer target for each reader: the build says which, by SPARSERTC_FUZZ_FORMAT. The first
// byte of an input chooses the options.
#include "tests/fuzz/reader_fuzz.h"

#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0)
    return 0;
  const auto fault =
      sparsertc::testing::try_readers({data + 1, size - 1}, SPARSERTC_FUZZ_FORMAT, data[0]);
  if (fault) {
    std::fprintf(stderr, "%s\n", fault->c_str());
    std::abort();
  }
  return 0;
}
