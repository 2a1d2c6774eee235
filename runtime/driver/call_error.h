// What cuda::check throws, for those who can do something about a certain failure.
#pragma once

#include "ir/error.h"
#include "runtime/driver/cuda_api.h"

#include <string>

namespace sparsertc::cuda {

/// A call of the driver failed.
class CallError : public RuntimeError {
public:
  CallError(Result result, const std::string& doing, const std::string& reason,
            const std::string& way_out)
      : RuntimeError(doing, reason, way_out), result_(result) {}
  Result result() const noexcept { return result_; }

private:
  Result result_;
};

} // namespace sparsertc::cuda
