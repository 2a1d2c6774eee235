#include "tools/examples/power_flow/host_system.h"

#include <algorithm>
#include <cmath>

namespace sparsertc::power_flow {

HostSystem::HostSystem(const Model& model, const Scenarios* scenarios)
    : model_(model), scenarios_(scenarios), places_(model.neighbour.size()) {
  const auto n = static_cast<uint32_t>(model.unknowns());
  pattern_.rows = pattern_.columns = n;
  for (uint32_t i = 0; i < n; ++i) {
    const bool of_q = i >= model.angle_bus.size();
    const auto k = static_cast<size_t>(of_q ? model.magnitude_bus[i - model.angle_bus.size()]
                                            : model.angle_bus[i]);
    const auto begin = static_cast<size_t>(model.row_start[k]);
    const auto end = static_cast<size_t>(model.row_start[k + 1]);
    std::vector<uint32_t> columns;
    for (size_t e = begin; e < end; ++e)
      for (const auto* unknowns : {&model.angle_unknown, &model.magnitude_unknown})
        if (const int64_t j = (*unknowns)[static_cast<size_t>(model.neighbour[e])]; j >= 0)
          columns.push_back(static_cast<uint32_t>(j));
    std::sort(columns.begin(), columns.end());
    const auto place = [&](int64_t column) {
      if (column < 0)
        return int64_t{-1};
      const auto at = std::lower_bound(columns.begin(), columns.end(), column) - columns.begin();
      return static_cast<int64_t>(pattern_.nnz()) + at;
    };
    for (size_t e = begin; e < end; ++e) {
      const auto m = static_cast<size_t>(model.neighbour[e]);
      (of_q ? places_[e].q_angle : places_[e].p_angle) = place(model.angle_unknown[m]);
      (of_q ? places_[e].q_magnitude : places_[e].p_magnitude) = place(model.magnitude_unknown[m]);
    }
    pattern_.column_index.insert(pattern_.column_index.end(), columns.begin(), columns.end());
    pattern_.row_offset.push_back(pattern_.column_index.size());
  }
}

HostSystem::Parameters HostSystem::parameters(uint64_t instance) const {
  Parameters result{model_.conductance, model_.susceptance, model_.active, model_.reactive};
  if (scenarios_ == nullptr)
    return result;
  const auto replace = [&](std::span<const double>& one, const std::vector<double>& all) {
    if (!all.empty())
      one = std::span<const double>(all).subspan(instance * one.size(), one.size());
  };
  replace(result.conductance, scenarios_->conductance);
  replace(result.susceptance, scenarios_->susceptance);
  replace(result.active, scenarios_->active);
  replace(result.reactive, scenarios_->reactive);
  return result;
}

void HostSystem::residual(std::span<const double> x, std::span<double> f, uint64_t instance) const {
  const Parameters given = parameters(instance);
  for (size_t k = 0; k < model_.buses(); ++k) {
    if (model_.angle_unknown[k] < 0)
      continue;
    const double t = angle(x, k), v = magnitude(x, k);
    double p = 0, q = 0;
    for (auto e = static_cast<size_t>(model_.row_start[k]);
         e < static_cast<size_t>(model_.row_start[k + 1]); ++e) {
      const auto m = static_cast<size_t>(model_.neighbour[e]);
      if (m == k) {
        p += v * given.conductance[e];
        q -= v * given.susceptance[e];
        continue;
      }
      const double difference = t - angle(x, m), vm = magnitude(x, m);
      const double c = std::cos(difference), s = std::sin(difference);
      p += vm * (given.conductance[e] * c + given.susceptance[e] * s);
      q += vm * (given.conductance[e] * s - given.susceptance[e] * c);
    }
    f[static_cast<size_t>(model_.angle_unknown[k])] = v * p - given.active[k];
    if (model_.magnitude_unknown[k] >= 0)
      f[static_cast<size_t>(model_.magnitude_unknown[k])] = v * q - given.reactive[k];
  }
}

void HostSystem::jacobian(std::span<const double> x, std::span<double> values,
                          uint64_t instance) const {
  const Parameters given = parameters(instance);
  const auto store = [&](int64_t place, double value) {
    if (place >= 0)
      values[static_cast<size_t>(place)] = value;
  };
  for (size_t k = 0; k < model_.buses(); ++k) {
    if (model_.angle_unknown[k] < 0)
      continue;
    const double t = angle(x, k), v = magnitude(x, k);
    double p = 0, q = 0; // over v
    size_t own = 0;
    for (auto e = static_cast<size_t>(model_.row_start[k]);
         e < static_cast<size_t>(model_.row_start[k + 1]); ++e) {
      const auto m = static_cast<size_t>(model_.neighbour[e]);
      if (m == k) {
        own = e;
        p += v * given.conductance[e];
        q -= v * given.susceptance[e];
        continue;
      }
      const double difference = t - angle(x, m), vm = magnitude(x, m);
      const double c = std::cos(difference), s = std::sin(difference);
      const double in_phase = given.conductance[e] * c + given.susceptance[e] * s;
      const double across = given.conductance[e] * s - given.susceptance[e] * c;
      p += vm * in_phase;
      q += vm * across;
      store(places_[e].p_angle, v * vm * across);
      store(places_[e].p_magnitude, v * in_phase);
      store(places_[e].q_angle, -v * vm * in_phase);
      store(places_[e].q_magnitude, v * across);
    }
    const double g = given.conductance[own], b = given.susceptance[own];
    store(places_[own].p_angle, -v * q - b * v * v);
    store(places_[own].p_magnitude, p + g * v);
    store(places_[own].q_angle, v * p - g * v * v);
    store(places_[own].q_magnitude, q - b * v);
  }
}

} // namespace sparsertc::power_flow
