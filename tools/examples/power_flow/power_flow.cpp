#include "tools/examples/power_flow/power_flow.h"

#include "compiler/input/random_values.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <optional>
#include <utility>

namespace sparsertc::power_flow {
namespace {

constexpr double kRadians = std::numbers::pi / 180;
constexpr uint32_t kNone = UINT32_MAX;

Place place_of(const PowerCase& grid, uint64_t line) {
  return Place::text(grid.name, line, 1);
}

/// Which buses a walk over the branches reaches from the seeds; branch number `without` is out.
std::vector<bool> reached(const Model& model, const std::vector<uint32_t>& seeds,
                          std::optional<size_t> without = std::nullopt) {
  std::vector<std::vector<std::pair<uint32_t, size_t>>> joined(model.buses());
  for (size_t b = 0; b < model.branches.size(); ++b) {
    joined[model.branches[b].from].emplace_back(model.branches[b].to, b);
    joined[model.branches[b].to].emplace_back(model.branches[b].from, b);
  }
  std::vector<bool> seen(model.buses(), false);
  std::vector<uint32_t> queue = seeds;
  for (const uint32_t seed : seeds)
    seen[seed] = true;
  for (size_t next = 0; next < queue.size(); ++next)
    for (const auto& [bus, branch] : joined[queue[next]])
      if (!seen[bus] && branch != without) {
        seen[bus] = true;
        queue.push_back(bus);
      }
  return seen;
}

/// Index among the buses that are not isolated, by index in the file.
std::vector<uint32_t> number_buses(const PowerCase& grid, Model& model) {
  std::vector<uint32_t> index(grid.buses.size(), kNone);
  uint64_t isolated = 0, first = 0;
  for (size_t i = 0; i < grid.buses.size(); ++i)
    if (grid.buses[i].type != BusType::isolated) {
      index[i] = static_cast<uint32_t>(model.bus_number.size());
      model.bus_number.push_back(grid.buses[i].number);
    } else if (isolated++ == 0) {
      first = grid.buses[i].number;
    }
  if (isolated > 0)
    model.remarks.push_back(
        fmt::format("{} isolated buses are left out, the first is bus {}", isolated, first));
  return index;
}

/// The pattern and the values of the admittances.
void add_admittances(const PowerCase& grid, const std::vector<uint32_t>& index, Model& model) {
  using Complex = std::complex<double>;
  std::vector<std::vector<uint32_t>> rows(model.buses());
  for (uint32_t k = 0; k < rows.size(); ++k)
    rows[k].push_back(k);
  for (size_t i = 0; i < grid.branches.size(); ++i) {
    const PowerBranch& branch = grid.branches[i];
    if (!branch.in_service || index[branch.from] == kNone || index[branch.to] == kNone)
      continue;
    Model::Branch entry;
    entry.file_row = i + 1;
    entry.from = index[branch.from];
    entry.to = index[branch.to];
    const Complex series = 1.0 / Complex(branch.resistance_pu, branch.reactance_pu);
    const Complex at_end = series + Complex(0, branch.charging_pu / 2);
    const Complex tap = std::polar(branch.tap_ratio, branch.shift_degrees * kRadians);
    const Complex values[4] = {at_end / std::norm(tap), -series / std::conj(tap), -series / tap,
                               at_end};
    for (int e = 0; e < 4; ++e) {
      entry.conductance[e] = values[e].real();
      entry.susceptance[e] = values[e].imag();
    }
    rows[entry.from].push_back(entry.to);
    rows[entry.to].push_back(entry.from);
    model.branches.push_back(entry);
  }
  model.row_start = {0};
  for (std::vector<uint32_t>& row : rows) {
    std::sort(row.begin(), row.end());
    row.erase(std::unique(row.begin(), row.end()), row.end());
    model.neighbour.insert(model.neighbour.end(), row.begin(), row.end());
    model.row_start.push_back(static_cast<int64_t>(model.neighbour.size()));
  }
  model.conductance.assign(model.neighbour.size(), 0);
  model.susceptance.assign(model.neighbour.size(), 0);
  const auto place = [&](uint32_t row, uint32_t column) {
    const auto begin = model.neighbour.begin();
    return static_cast<uint64_t>(
        std::lower_bound(begin + model.row_start[row], begin + model.row_start[row + 1], column) -
        begin);
  };
  for (Model::Branch& branch : model.branches) {
    const uint32_t ends[2] = {branch.from, branch.to};
    for (int e = 0; e < 4; ++e) {
      branch.place[e] = place(ends[e / 2], ends[e % 2]);
      model.conductance[branch.place[e]] += branch.conductance[e];
      model.susceptance[branch.place[e]] += branch.susceptance[e];
    }
  }
  for (size_t i = 0; i < grid.buses.size(); ++i)
    if (index[i] != kNone) {
      const uint64_t at = place(index[i], index[i]);
      model.conductance[at] += grid.buses[i].shunt_mw / grid.base_mva;
      model.susceptance[at] += grid.buses[i].shunt_mvar / grid.base_mva;
    }
}

NamedArray whole_numbers(std::string name, const std::vector<int64_t>& values) {
  return {std::move(name), {values.size()}, StoredType::i64, {values.begin(), values.end()}};
}
NamedArray reals(std::string name, const std::vector<double>& values) {
  return {std::move(name), {values.size()}, StoredType::f64, values};
}

/// [instance][entry] to [entry][instance], the order of the command's batches.
NamedArray by_instance(std::string name, const std::vector<double>& values, uint64_t instances) {
  const uint64_t entries = values.size() / instances;
  NamedArray array{std::move(name), {entries, instances}, StoredType::f64, {}};
  array.values.resize(values.size());
  for (uint64_t s = 0; s < instances; ++s)
    for (uint64_t e = 0; e < entries; ++e)
      array.values[e * instances + s] = values[s * entries + e];
  return array;
}

} // namespace

Model make_model(const PowerCase& grid, Start start) {
  Model model;
  model.name = grid.name;
  model.base_mva = grid.base_mva;
  const std::vector<uint32_t> index = number_buses(grid, model);
  const uint64_t buses = model.buses();
  add_admittances(grid, index, model);

  std::vector<BusType> type(buses, BusType::pq);
  std::vector<uint64_t> line(buses, 0);
  model.active.assign(buses, 0);
  model.reactive.assign(buses, 0);
  model.angle.assign(buses, 0);
  model.magnitude.assign(buses, 1);
  std::vector<double> held(buses, 0);
  for (const PowerGenerator& generator : grid.generators) {
    const uint32_t k = index[generator.bus];
    if (!generator.in_service || k == kNone)
      continue;
    held[k] = generator.voltage_pu;
    model.active[k] += generator.power_mw / grid.base_mva;
    model.reactive[k] += generator.power_mvar / grid.base_mva;
  }
  std::vector<uint32_t> references;
  uint64_t without_generator = 0, first = 0;
  for (size_t i = 0; i < grid.buses.size(); ++i) {
    const PowerBus& bus = grid.buses[i];
    const uint32_t k = index[i];
    if (k == kNone)
      continue;
    line[k] = bus.line;
    type[k] = bus.type;
    if (bus.type == BusType::pv && held[k] == 0) {
      type[k] = BusType::pq;
      if (without_generator++ == 0)
        first = bus.number;
    }
    if (type[k] == BusType::reference)
      references.push_back(k);
    model.active[k] -= bus.load_mw / grid.base_mva;
    model.reactive[k] -= bus.load_mvar / grid.base_mva;
    model.angle[k] = bus.angle_degrees * kRadians;
    model.magnitude[k] = type[k] == BusType::pq || held[k] == 0 ? bus.voltage_pu : held[k];
  }
  if (without_generator > 0)
    model.remarks.push_back(fmt::format("{} buses have no generator in service to hold their "
                                        "voltage and count as PQ, the first is bus {}",
                                        without_generator, first));
  if (references.empty()) {
    const auto pv = std::find(type.begin(), type.end(), BusType::pv);
    if (pv == type.end())
      throw UserError(Place{grid.name, 0, 0, {}},
                      "no bus is the reference (type 3), and none holds its voltage",
                      "a grid needs a bus that takes up what is left");
    *pv = BusType::reference;
    references.push_back(static_cast<uint32_t>(pv - type.begin()));
    model.remarks.push_back(fmt::format("the first PV bus, {}, is the reference",
                                        model.bus_number[references.front()]));
  }
  const std::vector<bool> joined = reached(model, references);
  const auto lost =
      static_cast<size_t>(std::find(joined.begin(), joined.end(), false) - joined.begin());
  if (lost < joined.size())
    throw UserError(place_of(grid, line[lost]),
                    fmt::format("no branch in service joins bus {} to the reference ({} such "
                                "buses)",
                                model.bus_number[lost],
                                std::count(joined.begin(), joined.end(), false)),
                    "mark what is not connected as isolated (type 4)");
  if (start == Start::flat)
    for (uint32_t k = 0; k < buses; ++k) {
      if (type[k] != BusType::reference)
        model.angle[k] = model.angle[references.front()];
      if (type[k] == BusType::pq)
        model.magnitude[k] = 1;
    }

  model.angle_unknown.assign(buses, -1);
  model.magnitude_unknown.assign(buses, -1);
  for (const BusType wanted : {BusType::pv, BusType::pq})
    for (uint32_t k = 0; k < buses; ++k)
      if (type[k] == wanted) {
        model.angle_unknown[k] = static_cast<int64_t>(model.angle_bus.size());
        model.angle_bus.push_back(k);
        model.pv_buses += wanted == BusType::pv;
      }
  for (uint32_t k = 0; k < buses; ++k)
    if (type[k] == BusType::pq) {
      model.magnitude_unknown[k] = static_cast<int64_t>(model.unknowns());
      model.magnitude_bus.push_back(k);
    }
  return model;
}

std::vector<double> Model::start() const {
  std::vector<double> x;
  for (const int64_t bus : angle_bus)
    x.push_back(angle[static_cast<size_t>(bus)]);
  for (const int64_t bus : magnitude_bus)
    x.push_back(magnitude[static_cast<size_t>(bus)]);
  return x;
}

std::vector<double> Model::voltages(const std::vector<double>& x) const {
  std::vector<double> result = angle;
  result.insert(result.end(), magnitude.begin(), magnitude.end());
  for (size_t i = 0; i < x.size(); ++i)
    if (i < angle_bus.size())
      result[static_cast<size_t>(angle_bus[i])] = x[i];
    else
      result[buses() + static_cast<size_t>(magnitude_bus[i - angle_bus.size()])] = x[i];
  return result;
}

Scenarios make_load_scenarios(const PowerCase& grid, const Model& model, uint64_t instances,
                              double spread, uint64_t seed) {
  const uint64_t buses = model.buses();
  Scenarios scenarios;
  scenarios.instances = instances;
  scenarios.active.reserve(instances * buses);
  scenarios.reactive.reserve(instances * buses);
  SplitMix64 random(seed);
  for (uint64_t s = 0; s < instances; ++s) {
    size_t k = 0;
    for (const PowerBus& bus : grid.buses) {
      if (bus.type == BusType::isolated)
        continue;
      const double unit = static_cast<double>(random.next() >> 11) * 0x1p-52 - 1;
      // `active` has the load with a minus already.
      scenarios.active.push_back(model.active[k] - spread * unit * bus.load_mw / grid.base_mva);
      scenarios.reactive.push_back(model.reactive[k] -
                                   spread * unit * bus.load_mvar / grid.base_mva);
      ++k;
    }
  }
  return scenarios;
}

Scenarios make_outages(const Model& model, uint64_t instances) {
  std::vector<size_t> possible;
  for (size_t b = 0; b < model.branches.size(); ++b) {
    const std::vector<bool> joined = reached(model, {0}, b);
    if (std::find(joined.begin(), joined.end(), false) == joined.end())
      possible.push_back(b);
  }
  if (possible.empty())
    throw UserError(Place{model.name, 0, 0, {}}, "without any of its branches the grid falls apart",
                    "outages are of grids with loops");
  Scenarios scenarios;
  scenarios.instances = instances > 0 ? instances : possible.size();
  const uint64_t entries = model.neighbour.size();
  scenarios.conductance.reserve(scenarios.instances * entries);
  scenarios.susceptance.reserve(scenarios.instances * entries);
  for (uint64_t s = 0; s < scenarios.instances; ++s) {
    const Model::Branch& out = model.branches[possible[s % possible.size()]];
    std::vector<double> conductance = model.conductance, susceptance = model.susceptance;
    for (int e = 0; e < 4; ++e) {
      conductance[out.place[e]] -= out.conductance[e];
      susceptance[out.place[e]] -= out.susceptance[e];
    }
    scenarios.conductance.insert(scenarios.conductance.end(), conductance.begin(),
                                 conductance.end());
    scenarios.susceptance.insert(scenarios.susceptance.end(), susceptance.begin(),
                                 susceptance.end());
    scenarios.outage.push_back(out.file_row);
  }
  return scenarios;
}

std::vector<NamedArray> parameter_arrays(const Model& model, const Scenarios& scenarios) {
  // Neighbours without the bus itself, and what belongs to one in one place.
  std::vector<int64_t> row_start = {0}, neighbour, neighbour_angle, neighbour_magnitude;
  std::vector<size_t> other_place, own_place;
  for (size_t k = 0; k < model.buses(); ++k) {
    for (auto e = static_cast<size_t>(model.row_start[k]);
         e < static_cast<size_t>(model.row_start[k + 1]); ++e) {
      const auto m = static_cast<size_t>(model.neighbour[e]);
      if (m == k) {
        own_place.push_back(e);
        continue;
      }
      other_place.push_back(e);
      neighbour.push_back(model.neighbour[e]);
      neighbour_angle.push_back(model.angle_unknown[m]);
      neighbour_magnitude.push_back(model.magnitude_unknown[m]);
    }
    row_start.push_back(static_cast<int64_t>(neighbour.size()));
  }
  // A number of each place from both parts of the admittances, of one grid or of each instance.
  const bool outages = !scenarios.conductance.empty();
  const std::vector<double>& real = outages ? scenarios.conductance : model.conductance;
  const std::vector<double>& imaginary = outages ? scenarios.susceptance : model.susceptance;
  const auto of_admittances = [&](const char* name, const std::vector<size_t>& places,
                                  double (*number)(double, double)) {
    std::vector<double> values;
    const uint64_t entries = model.conductance.size();
    for (uint64_t s = 0; s < (outages ? scenarios.instances : 1); ++s)
      for (const size_t e : places)
        values.push_back(number(real[s * entries + e], imaginary[s * entries + e]));
    return outages ? by_instance(name, values, scenarios.instances) : reals(name, values);
  };
  const auto powers = [&](const char* name, const std::vector<double>& one,
                          const std::vector<double>& all) {
    return all.empty() ? reals(name, one) : by_instance(name, all, scenarios.instances);
  };
  return {
      whole_numbers("row_start", row_start),
      whole_numbers("neighbour", neighbour),
      whole_numbers("neighbour_angle", neighbour_angle),
      whole_numbers("neighbour_magnitude", neighbour_magnitude),
      of_admittances("admittance", other_place,
                     [](double g, double b) { return std::hypot(g, b); }),
      of_admittances("phase", other_place, [](double g, double b) { return std::atan2(b, g); }),
      of_admittances("own_conductance", own_place, [](double g, double) { return g; }),
      of_admittances("own_susceptance", own_place, [](double, double b) { return b; }),
      whole_numbers("angle_bus", model.angle_bus),
      whole_numbers("magnitude_bus", model.magnitude_bus),
      whole_numbers("angle_unknown", model.angle_unknown),
      whole_numbers("magnitude_unknown", model.magnitude_unknown),
      reals("angle", model.angle),
      reals("magnitude", model.magnitude),
      powers("active", model.active, scenarios.active),
      powers("reactive", model.reactive, scenarios.reactive),
  };
}

} // namespace sparsertc::power_flow
