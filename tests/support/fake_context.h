// A context of the C API on a fake driver.
#pragma once

#include "runtime/plan/c_api.h"
#include "tests/support/fake_cuda_driver.h"

#include <catch2/catch.hpp>

#include <functional>
#include <memory>

namespace sparsertc::test {

class FakeContext {
public:
  /// `prepare` may change the driver before the context is made.
  explicit FakeContext(const std::function<void(cuda::FakeCudaDriver&)>& prepare) {
    prepare(fake);
    REQUIRE(create_context(
                0, [this] { return std::make_shared<const cuda::Driver>(fake.table()); },
                &context) == SPARSERTC_OK);
  }
  ~FakeContext() { sparsertc_context_destroy(context); }
  FakeContext(const FakeContext&) = delete;
  FakeContext& operator=(const FakeContext&) = delete;

  cuda::FakeCudaDriver fake;
  sparsertc_context* context = nullptr;
};

} // namespace sparsertc::test
