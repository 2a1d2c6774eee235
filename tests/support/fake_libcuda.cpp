// The interpreting fake driver as a library that SPARSERTC_LIBCUDA can name: programs that know
// nothing of tests run on it where there is no GPU. With the variable SPARSERTC_FAKE_GRAPHS set
// graphs do what they have recorded, else nothing. SPARSERTC_FAKE_RESIDENT_BLOCKS says how many
// blocks of a cooperative launch fit.
#include "tests/support/interpreting_driver.h"

#include <cstdlib>
#include <cstring>

using namespace sparsertc;

namespace {

const cuda::DriverTable& fake_table() {
  static cuda::FakeCudaDriver fake;
  static const cuda::DriverTable table = [] {
    interpret_launches(fake);
    if (std::getenv("SPARSERTC_FAKE_GRAPHS") !=
        nullptr) // replays are slow, and most only time them
      interpret_graphs(fake);
    if (const char* blocks = std::getenv("SPARSERTC_FAKE_RESIDENT_BLOCKS"); blocks != nullptr)
      fake.resident_blocks = static_cast<uint32_t>(std::strtoul(blocks, nullptr, 10));
    return fake.table();
  }();
  return table;
}

} // namespace

extern "C" cuda::Result cuGetProcAddress_v2(const char* symbol, void** function, int32_t, uint64_t,
                                            uint32_t* status);

extern "C" cuda::Result cuGetProcAddress_v2(const char* symbol, void** function, int32_t, uint64_t,
                                            uint32_t* status) {
  *status = 0;
  const cuda::DriverTable& table = fake_table();
#define X(name, parameters)                                                                        \
  if (std::strcmp(symbol, #name) == 0) {                                                           \
    *function = reinterpret_cast<void*>(table.name);                                               \
    return cuda::Result::CUDA_SUCCESS;                                                             \
  }
  SPARSERTC_CUDA_FUNCTIONS(X)
  SPARSERTC_CUDA_CONDITIONAL_FUNCTIONS(X)
#undef X
  return cuda::Result::CUDA_ERROR_NOT_FOUND;
}
