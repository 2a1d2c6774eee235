// MATPOWER case files (.m, version 2): the grid of an AC power flow, as numbers with units.
#pragma once

#include "compiler/input/bytes.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sparsertc {

/// What is given at a bus, by the format's numbers.
enum class BusType : uint8_t { pq = 1, pv = 2, reference = 3, isolated = 4 };

/// Powers are in MW and MVAr, consumed ones positive.
struct PowerBus {
  uint64_t number = 0; ///< its name in the file; no two are the same
  BusType type = BusType::pq;
  double load_mw = 0;
  double load_mvar = 0;
  double shunt_mw = 0;   ///< consumed at 1 p.u.
  double shunt_mvar = 0; ///< fed in at 1 p.u.
  double voltage_pu = 1;
  double angle_degrees = 0;
  uint64_t line = 0; ///< of the file
};

struct PowerGenerator {
  uint32_t bus = 0; ///< index into the buses
  double power_mw = 0;
  double power_mvar = 0;
  double voltage_pu = 1; ///< that it holds
  bool in_service = true;
  uint64_t line = 0;
};

/// A line or transformer: series impedance with half of the charging at either end, behind an ideal
/// transformer at the `from` end.
struct PowerBranch {
  uint32_t from = 0, to = 0; ///< indices into the buses
  double resistance_pu = 0;
  double reactance_pu = 0;
  double charging_pu = 0;
  double tap_ratio = 1; ///< a line's 0 in the file is 1 here
  double shift_degrees = 0;
  bool in_service = true;
  uint64_t line = 0;
};

struct PowerCase {
  std::string name; ///< of the file, for messages
  double base_mva = 0;
  std::vector<PowerBus> buses;
  std::vector<PowerGenerator> generators;
  std::vector<PowerBranch> branches;
};

/// Reads the file, gzipped or not; "-" is standard input. The file is no program here: fields of
/// the struct are assigned literals, and anything that MATLAB would have to compute is refused.
/// UserError with file:line:column for that, for what is malformed or missing, for buses that are
/// named and not there, and for numbers that no grid has.
PowerCase read_power_case(const std::string& path, uint64_t maximum_bytes = kDefaultMaximumBytes);

/// The same from memory. `name` stands for the file in messages.
PowerCase read_power_case_from_bytes(std::span<const uint8_t> bytes, const std::string& name,
                                     uint64_t maximum_bytes = kDefaultMaximumBytes);

} // namespace sparsertc
