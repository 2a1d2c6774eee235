#include "compiler/input/matpower.h"

#include "compiler/input/matpower_text.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace sparsertc {
namespace {

/// The numbers of a table's rows, checked.
class TableReader {
public:
  TableReader(const TextCursor& cursor, const CaseTable& table, uint64_t least_columns)
      : cursor_(cursor), table_(table) {
    if (table.rows > 0 && table.columns < least_columns)
      cursor.fail(table.where, fmt::format("{} has {} columns, expected at least {}", table.field,
                                           table.columns, least_columns));
    if (table.rows > UINT32_MAX)
      cursor.fail(table.where, fmt::format("{} has {} rows", table.field, table.rows));
  }

  double finite(uint64_t row, uint64_t column, const char* what) const {
    const double value = table_.value(row, column);
    if (!std::isfinite(value))
      fail(row, column, fmt::format("{} is {}, expected a finite number", what, value));
    return value;
  }
  uint64_t number(uint64_t row, uint64_t column, const char* what) const {
    const double value = table_.value(row, column);
    if (!(value >= 1) || value > 0x1p53 || value != std::floor(value))
      fail(row, column, fmt::format("{} is {}, expected a whole number from 1 on", what, value));
    return static_cast<uint64_t>(value);
  }
  [[noreturn]] void fail(uint64_t row, uint64_t column, const std::string& message,
                         const std::string& way_out = {}) const {
    cursor_.fail(table_.place(row, column),
                 fmt::format("{}, row {}: {}", table_.field, row + 1, message), way_out);
  }

private:
  const TextCursor& cursor_;
  const CaseTable& table_;
};

/// The line of each row, by one walk over the text.
std::vector<uint64_t> lines_of(const CaseTable& table, const char* begin) {
  std::vector<uint64_t> lines;
  uint64_t line = 1;
  const char* at = begin;
  for (uint64_t row = 0; row < table.rows; ++row) {
    const char* const here = table.place(row, 0);
    line += static_cast<uint64_t>(std::count(at, here, '\n'));
    at = here;
    lines.push_back(line);
  }
  return lines;
}

/// Bus numbers to indices.
class BusNumbers {
public:
  BusNumbers(const TableReader& reader, const std::vector<PowerBus>& buses) {
    for (uint32_t i = 0; i < buses.size(); ++i)
      sorted_.emplace_back(buses[i].number, i);
    std::sort(sorted_.begin(), sorted_.end());
    for (size_t i = 1; i < sorted_.size(); ++i)
      if (sorted_[i].first == sorted_[i - 1].first)
        reader.fail(sorted_[i].second, 0,
                    fmt::format("the number {} has been given to the bus of row {}",
                                sorted_[i].first, sorted_[i - 1].second + 1));
  }
  uint32_t index(const TableReader& reader, uint64_t row, uint64_t column) const {
    const uint64_t number = reader.number(row, column, "the number of a bus");
    const auto found =
        std::lower_bound(sorted_.begin(), sorted_.end(), std::pair<uint64_t, uint32_t>(number, 0));
    if (found == sorted_.end() || found->first != number)
      reader.fail(row, column, fmt::format("there is no bus {}", number));
    return found->second;
  }

private:
  std::vector<std::pair<uint64_t, uint32_t>> sorted_;
};

std::vector<PowerBus> buses_of(const TableReader& read, const CaseTable& table,
                               const std::vector<uint64_t>& lines) {
  std::vector<PowerBus> buses(table.rows);
  for (uint64_t i = 0; i < table.rows; ++i) {
    PowerBus& bus = buses[i];
    bus.number = read.number(i, 0, "the number of the bus");
    const uint64_t type = read.number(i, 1, "the type of the bus");
    if (type > 4)
      read.fail(i, 1, fmt::format("the type of the bus is {}", type),
                "1 is PQ, 2 PV, 3 the reference, 4 isolated");
    bus.type = static_cast<BusType>(type);
    bus.load_mw = read.finite(i, 2, "the load");
    bus.load_mvar = read.finite(i, 3, "the reactive load");
    bus.shunt_mw = read.finite(i, 4, "the shunt conductance");
    bus.shunt_mvar = read.finite(i, 5, "the shunt susceptance");
    bus.voltage_pu = read.finite(i, 7, "the voltage");
    bus.angle_degrees = read.finite(i, 8, "the angle");
    bus.line = lines[i];
  }
  return buses;
}

std::vector<PowerGenerator> generators_of(const TableReader& read, const CaseTable& table,
                                          const BusNumbers& numbers,
                                          const std::vector<uint64_t>& lines) {
  std::vector<PowerGenerator> generators(table.rows);
  for (uint64_t i = 0; i < table.rows; ++i) {
    PowerGenerator& generator = generators[i];
    generator.bus = numbers.index(read, i, 0);
    generator.in_service = read.finite(i, 7, "the status") > 0;
    generator.power_mw = read.finite(i, 1, "the power");
    generator.power_mvar = read.finite(i, 2, "the reactive power");
    generator.voltage_pu = read.finite(i, 5, "the voltage to be held");
    if (generator.in_service && !(generator.voltage_pu > 0))
      read.fail(i, 5,
                fmt::format("the voltage to be held is {} p.u., expected more than 0",
                            generator.voltage_pu));
    generator.line = lines[i];
  }
  return generators;
}

std::vector<PowerBranch> branches_of(const TableReader& read, const CaseTable& table,
                                     const BusNumbers& numbers,
                                     const std::vector<uint64_t>& lines) {
  std::vector<PowerBranch> branches(table.rows);
  for (uint64_t i = 0; i < table.rows; ++i) {
    PowerBranch& branch = branches[i];
    branch.from = numbers.index(read, i, 0);
    branch.to = numbers.index(read, i, 1);
    if (branch.from == branch.to)
      read.fail(i, 1, "the branch ends where it begins");
    branch.in_service = read.finite(i, 10, "the status") != 0;
    branch.resistance_pu = read.finite(i, 2, "the resistance");
    branch.reactance_pu = read.finite(i, 3, "the reactance");
    branch.charging_pu = read.finite(i, 4, "the charging susceptance");
    const double ratio = read.finite(i, 8, "the tap ratio");
    branch.tap_ratio = ratio == 0 ? 1 : ratio;
    branch.shift_degrees = read.finite(i, 9, "the phase shift");
    if (branch.in_service && branch.resistance_pu == 0 && branch.reactance_pu == 0)
      read.fail(i, 2, "a branch in service has no impedance",
                "join its buses, or give it a small reactance");
    branch.line = lines[i];
  }
  return branches;
}

} // namespace

PowerCase read_power_case_from_bytes(std::span<const uint8_t> bytes, const std::string& name,
                                     uint64_t maximum_bytes) {
  std::vector<uint8_t> plain;
  if (is_gzip(bytes)) {
    plain = decompress_gzip(bytes, name, maximum_bytes);
    bytes = plain;
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  CaseText reader(text, name);
  reader.read();
  const auto lines = [&](const CaseTable& table) { return lines_of(table, text.data()); };
  const CaseTable& bus = *reader.table(0);
  const CaseTable& generator = *reader.table(1);
  const CaseTable& branch = *reader.table(2);
  PowerCase grid;
  grid.name = name;
  grid.base_mva = reader.base_mva();
  const TableReader read_bus(reader.cursor(), bus, 13);
  grid.buses = buses_of(read_bus, bus, lines(bus));
  const BusNumbers numbers(read_bus, grid.buses);
  grid.generators = generators_of(TableReader(reader.cursor(), generator, 10), generator, numbers,
                                  lines(generator));
  grid.branches =
      branches_of(TableReader(reader.cursor(), branch, 11), branch, numbers, lines(branch));
  return grid;
}

PowerCase read_power_case(const std::string& path, uint64_t maximum_bytes) {
  return read_power_case_from_bytes(read_bytes(path, maximum_bytes),
                                    path == "-" ? kStandardInputName : path, maximum_bytes);
}

} // namespace sparsertc
