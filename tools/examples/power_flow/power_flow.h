// AC power flow in polar coordinates: from the grid of a MATPOWER case to the parameters and the
// start of the residual in F.cu.
//
// At every bus k, with voltage magnitude V and angle t, of all buses m that a branch joins to it,
//
//   P_k = V_k * sum of V_m (G_km cos(t_k - t_m) + B_km sin(t_k - t_m)) - active_k
//   Q_k = V_k * sum of V_m (G_km sin(t_k - t_m) - B_km cos(t_k - t_m)) - reactive_k
//
// where G + iB is the matrix of bus admittances. P = 0 where the angle is unknown (PV and PQ
// buses), Q = 0 where the magnitude is unknown, too (PQ buses). All in per unit and radians.
#pragma once

#include "compiler/input/matpower.h"
#include "compiler/input/read.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc::power_flow {

enum class Start : uint8_t {
  file, ///< voltages as the file has them; those that generators hold where they do
  flat, ///< magnitude 1 where it is unknown, all angles that of the reference
};

/// The grid without isolated buses. Vectors have an entry for each bus unless they say otherwise.
struct Model {
  std::string name;
  double base_mva = 0;
  std::vector<uint64_t> bus_number; ///< as the file has it

  /// The bus admittances in compressed rows, neighbours ascending, the bus itself among them.
  std::vector<int64_t> row_start; ///< buses + 1
  std::vector<int64_t> neighbour;
  std::vector<double> conductance;
  std::vector<double> susceptance;

  /// Buses in the order of the unknowns: angles of PV, then of PQ buses, then magnitudes of PQ.
  std::vector<int64_t> angle_bus;
  std::vector<int64_t> magnitude_bus;
  uint64_t pv_buses = 0;
  /// The number of each bus's unknown, -1 where it is given.
  std::vector<int64_t> angle_unknown;
  std::vector<int64_t> magnitude_unknown;

  /// Voltages: given ones, and the start of the unknown ones.
  std::vector<double> angle;
  std::vector<double> magnitude;

  /// Power fed in, less what is consumed.
  std::vector<double> active;
  std::vector<double> reactive;

  /// Where each branch in service adds to the admittances, for outages.
  struct Branch {
    uint64_t file_row = 0; ///< counted from 1
    uint32_t from = 0, to = 0;
    uint64_t place[4] = {0, 0, 0, 0}; ///< from-from, from-to, to-from, to-to
    double conductance[4] = {0, 0, 0, 0};
    double susceptance[4] = {0, 0, 0, 0};
  };
  std::vector<Branch> branches;

  /// What a user should be told: isolated buses, types that changed.
  std::vector<std::string> remarks;

  uint64_t buses() const { return bus_number.size(); }
  uint64_t unknowns() const { return angle_bus.size() + magnitude_bus.size(); }
  /// The start vector.
  std::vector<double> start() const;
  /// The voltages where the unknowns are `x`: angles, then magnitudes.
  std::vector<double> voltages(const std::vector<double>& x) const;
};

/// Where no reference bus has a generator in service, the first PV bus becomes the reference, with
/// a remark. UserError where there is none of these, either, and, with its line in the file, for a
/// bus that no branch in service joins to a reference.
Model make_model(const PowerCase& grid, Start start);

/// What differs between the instances of a batch, [instance][entry].
struct Scenarios {
  uint64_t instances = 0;
  std::vector<double> active, reactive;         ///< of loads; else empty
  std::vector<double> conductance, susceptance; ///< of outages; else empty
  std::vector<uint64_t> outage;                 ///< the branch, by its row in the file
};

/// Every bus's load times a random factor of its own in [1 - spread, 1 + spread); the same for the
/// same seed. The reference takes up the difference.
Scenarios make_load_scenarios(const PowerCase& grid, const Model& model, uint64_t instances,
                              double spread, uint64_t seed);

/// One instance for every branch without which all buses are still joined, in the file's order; in
/// turn again where `instances` is more, and the first so many where it is less (0: each once).
Scenarios make_outages(const Model& model, uint64_t instances);

/// What F.cu reads, by name. What differs between instances is [entries, instances], all else has
/// one dimension.
std::vector<NamedArray> parameter_arrays(const Model& model, const Scenarios& scenarios = {});

} // namespace sparsertc::power_flow
