// Contexts of the C API in which bundles of sparse LU are tried without a GPU, and handles of such
// bundles.
#pragma once

#include "compiler/lower/lu_batch.h"
#include "compiler/lower/lu_dataflow.h"
#include "compiler/lower/lu_refine.h"
#include "runtime/plan/c_api.h"
#include "tests/support/fake_context.h"
#include "tests/support/interpreting_driver.h"
#include "tests/support/lu_session.h"

#include <catch2/catch.hpp>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace sparsertc::test {

/// A context on the interpreter.
class InterpretedContext : public FakeContext {
public:
  InterpretedContext()
      : FakeContext([](cuda::FakeCudaDriver& driver) {
          interpret_launches(driver);
          driver.kernels = {kLuInputKernel,     kLuFactorKernel,     kLuSolveInputKernel,
                            kLuSolveKernel,     kLuBlockInputKernel, kLuBlockSolveKernel,
                            kLuRefineBegin,     kLuRefineUpdate,     kLuRefineResidual,
                            kLuRefineDecide,    kLuRefineEnd,        kLuBatchFactorKernel,
                            kLuBatchSolveKernel};
          driver.attributes[cuda::DeviceAttribute::multiprocessor_count] =
              1; // blocks run one by one
          driver.function_attributes[cuda::FunctionAttribute::shared_bytes] = 0;
        }) {}
};

class HostContext {
public:
  HostContext() { require_ok(sparsertc_context_create(-1, &context)); }
  ~HostContext() { sparsertc_context_destroy(context); }
  HostContext(const HostContext&) = delete;
  HostContext& operator=(const HostContext&) = delete;
  sparsertc_context* context = nullptr;
};

struct DestroyLu {
  void operator()(sparsertc_lu* lu) const { sparsertc_lu_destroy(lu); }
};
using LuHandle = std::unique_ptr<sparsertc_lu, DestroyLu>;

inline sparsertc_result try_load(const sparsertc_context* context, const Bundle& bundle,
                                 sparsertc_lu** lu) {
  const std::vector<uint8_t> bytes = serialize(bundle);
  return sparsertc_lu_create(context, bytes.data(), bytes.size(), lu);
}

inline LuHandle load(const sparsertc_context* context, const Bundle& bundle) {
  sparsertc_lu* lu = nullptr;
  require_ok(try_load(context, bundle, &lu));
  return LuHandle(lu);
}

inline void check_refused(sparsertc_result result, sparsertc_result expected, const char* text) {
  CHECK(sparsertc_result_name(result) == std::string(sparsertc_result_name(expected)));
  CHECK_THAT(sparsertc_last_error(), Catch::Contains(text));
}

/// Does `work` with the driver's first call failing, then with its second, and so on until all
/// have: each must be an error that names the call, leave nothing behind, and `check` must pass
/// afterwards. How often that was. Giving back fails in silence, and what was not given back stays.
template <class Work, class Check>
uint64_t fail_at_every_call(FakeContext& there, const Work& work, const Check& check) {
  auto at_rest = there.fake.alive();
  uint64_t failures = 0;
  for (uint64_t call = 1;; ++call) {
    there.fake.fail_call(call);
    bool failed = false;
    try {
      work();
    } catch (const std::runtime_error& error) {
      failed = true;
      CHECK_THAT(error.what(), Catch::Contains("SPARSERTC_ERROR_MACHINE"));
      CHECK_THAT(error.what(), Catch::Contains(there.fake.failed_call()));
    }
    const std::string name = there.fake.failed_call();
    there.fake.fail_call(0);
    CAPTURE(call, name);
    if (name.empty()) {
      CHECK(!failed);
      return failures;
    }
    if (!failed) {
      REQUIRE((name == "cuModuleUnload" || name == "cuMemFree" || name == "cuStreamDestroy" ||
               name == "cuCtxSetCurrent"));
      at_rest = there.fake.alive();
      continue;
    }
    CHECK(there.fake.alive() == at_rest);
    ++failures;
    check();
  }
}

} // namespace sparsertc::test
