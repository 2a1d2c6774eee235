// The equations of power flow and their derivatives by hand, on the CPU: what tests compare with,
// and what a solver without a compiler would run.
#pragma once

#include "runtime/jacobian/system.h"
#include "tools/examples/power_flow/power_flow.h"

#include <cstdint>
#include <span>
#include <vector>

namespace sparsertc::power_flow {

class HostSystem : public jacobian::NonlinearSystem {
public:
  /// `model` and `scenarios` (if given) must outlive it.
  explicit HostSystem(const Model& model, const Scenarios* scenarios = nullptr);

  uint64_t instances() const override { return scenarios_ ? scenarios_->instances : 1; }
  const JacobianPattern& pattern() const override { return pattern_; }
  void residual(std::span<const double> x, std::span<double> f,
                uint64_t instance = 0) const override;
  void jacobian(std::span<const double> x, std::span<double> values,
                uint64_t instance = 0) const override;

private:
  struct Parameters {
    std::span<const double> conductance, susceptance, active, reactive;
  };
  Parameters parameters(uint64_t instance) const;
  double angle(std::span<const double> x, size_t bus) const {
    const int64_t unknown = model_.angle_unknown[bus];
    return unknown < 0 ? model_.angle[bus] : x[static_cast<size_t>(unknown)];
  }
  double magnitude(std::span<const double> x, size_t bus) const {
    const int64_t unknown = model_.magnitude_unknown[bus];
    return unknown < 0 ? model_.magnitude[bus] : x[static_cast<size_t>(unknown)];
  }

  const Model& model_;
  const Scenarios* scenarios_;
  JacobianPattern pattern_;
  /// For each admittance, where its derivatives stand: of P and Q by angle and magnitude.
  struct Places {
    int64_t p_angle = -1, p_magnitude = -1, q_angle = -1, q_magnitude = -1;
  };
  std::vector<Places> places_;
};

} // namespace sparsertc::power_flow
