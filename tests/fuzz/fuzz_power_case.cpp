// The libFuzzer target of MATPOWER cases. As in fuzz_reader.cpp an input's first byte is no part of
// the file.
#include "tests/fuzz/reader_fuzz.h"

#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0)
    return 0;
  if (const auto fault = sparsertc::testing::try_power_case({data + 1, size - 1})) {
    std::fprintf(stderr, "%s\n", fault->c_str());
    std::abort();
  }
  return 0;
}
