// A few equations and their derivatives as functions, every entry structural.
#pragma once

#include "runtime/jacobian/system.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace sparsertc::test {

class DenseSystem : public jacobian::NonlinearSystem {
public:
  /// Of x, and of the instance's number.
  using Function = std::function<std::vector<double>(const std::vector<double>&, uint64_t)>;

  DenseSystem(uint32_t n, Function f, Function derivatives, uint64_t instances = 1)
      : f_(std::move(f)), derivatives_(std::move(derivatives)), instances_(instances) {
    pattern_.rows = pattern_.columns = n;
    for (uint32_t i = 0; i < n; ++i) {
      for (uint32_t j = 0; j < n; ++j)
        pattern_.column_index.push_back(j);
      pattern_.row_offset.push_back(pattern_.column_index.size());
    }
  }
  uint64_t instances() const override { return instances_; }
  const JacobianPattern& pattern() const override { return pattern_; }
  void residual(std::span<const double> x, std::span<double> f, uint64_t instance) const override {
    store(f_({x.begin(), x.end()}, instance), f);
  }
  void jacobian(std::span<const double> x, std::span<double> values,
                uint64_t instance) const override {
    store(derivatives_({x.begin(), x.end()}, instance), values);
  }

private:
  static void store(const std::vector<double>& from, std::span<double> to) {
    std::copy_n(from.begin(), to.size(), to.begin());
  }
  Function f_, derivatives_;
  uint64_t instances_;
  JacobianPattern pattern_;
};

} // namespace sparsertc::test
