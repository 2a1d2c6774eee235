#include "compiler/input/matpower.h"
#include "ir/error.h"
#include "tests/support/input_files.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace sparsertc::testing {
namespace {

PowerCase read(std::string_view text) {
  return read_power_case_from_bytes(bytes_of_text(text), "in.m");
}

constexpr const char* kBus = "mpc.bus = [7 3 0 0 0 0 1 1 0 220 1 1.1 0.9\n"
                             "9 1 5 1 0 0 1 1 0 220 1 1.1 0.9];\n";
constexpr const char* kGenerator = "mpc.gen = [7 5 0 9 -9 1 100 1 9 0];\n";
constexpr const char* kBranch = "mpc.branch = [7 9 0.1 0.2 0 0 0 0 0 0 1];\n";
constexpr const char* kHead = "mpc.version = '2'; mpc.baseMVA = 100;\n";

/// A case with one of its parts replaced, or (by "") left out.
std::string with(const char* part, std::string_view replacement) {
  std::string text = "function mpc = small\n";
  for (const char* each : {kHead, kBus, kGenerator, kBranch})
    text += each == part ? std::string(replacement) : std::string(each);
  return text;
}

std::string message(std::string_view text) {
  try {
    read(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

} // namespace

TEST_CASE("A case with one of everything") {
  const PowerCase grid = read_power_case(std::string(SPARSERTC_TEST_DATA) + "/grid7.m");
  CHECK(grid.base_mva == 100);
  REQUIRE(grid.buses.size() == 7);
  CHECK(grid.buses[0].number == 10);
  CHECK(grid.buses[0].type == BusType::reference);
  CHECK(grid.buses[0].angle_degrees == 5);
  CHECK(grid.buses[0].line == 16);
  CHECK(grid.buses[2].load_mw == 60);
  CHECK(grid.buses[2].load_mvar == 22.5);
  CHECK(grid.buses[3].shunt_mw == 1.5);
  CHECK(grid.buses[3].shunt_mvar == 12);
  CHECK(grid.buses[4].number == 50);
  CHECK(grid.buses[5].line == 22); // the row above went over two lines
  CHECK(grid.buses[5].load_mvar == 2);
  CHECK(grid.buses[6].type == BusType::isolated);
  REQUIRE(grid.generators.size() == 5);
  CHECK(grid.generators[1].bus == 1);
  CHECK(grid.generators[1].power_mw == 80);
  CHECK(grid.generators[1].voltage_pu == 1.01);
  CHECK_FALSE(grid.generators[3].in_service);
  REQUIRE(grid.branches.size() == 11);
  CHECK(grid.branches[0].tap_ratio == 1);
  CHECK(grid.branches[3].tap_ratio == 1.02);
  CHECK(grid.branches[3].shift_degrees == -2.5);
  CHECK(grid.branches[4].charging_pu == 0.02);
  CHECK(grid.branches[4].line == 40);
  CHECK(std::count_if(grid.branches.begin(), grid.branches.end(),
                      [](const PowerBranch& branch) { return branch.in_service; }) == 10);
}

TEST_CASE("A case in every notation that is a literal") {
  CHECK(read(with(nullptr, "")).buses.size() == 2);
  CHECK(read(with(kHead, "mpc.version=2;mpc.baseMVA=1e2,")).base_mva == 100);
  CHECK(read(std::string("\xef\xbb\xbf") + with(nullptr, "") + "end\n").buses.size() == 2);
  // A script without the function line; another name; fields that nobody reads.
  CHECK(read(std::string(kHead) + kBus + kGenerator + kBranch).branches.size() == 1);
  CHECK(read(with(kGenerator, "mpc.gen = [ ...  the rest is a comment\r\n"
                              "  7, 5,0, Inf ,-inf, 1, 100, 1, 9, NaN, ; ];\r\n"))
            .generators.size() == 1);
  CHECK(read(with(kGenerator, "mpc.gen = [];")).generators.empty());
  CHECK(read(with(kBranch, std::string(kBranch) +
                               "mpc.note = 'it''s [ not % a comment'; mpc.a.b = {1, {'}'}};"))
            .branches.size() == 1);
  // Compressed.
  const Bytes packed = gzip(bytes_of_text(with(nullptr, "")));
  CHECK(read_power_case_from_bytes(packed, "in.m.gz").buses.size() == 2);
}

TEST_CASE("What is no case of version 2 is refused with its place") {
  struct Refused {
    std::string text;
    const char* message;
  };
  const std::string bus_9 = "mpc.bus = [7 3 0 0 0 0 1 1 0 220 1 1.1 0.9\n9 ";
  const Refused all[] = {
      {"", "in.m:1:1: error: there is no case"},
      {"% nothing\n", "in.m:2:1: error: there is no case"},
      {"function [baseMVA, bus, gen] = old\n", "in.m:1:10: error: a case with several results is"},
      {"baseMVA = 100;\n", "in.m:1:1: error: 'baseMVA' is no field"},
      {"function mpc = x\nmpc = loadcase('y');\n", "in.m:2:1: error: 'mpc' is assigned as a whole"},
      {with(kHead, "mpc.version = '1';"), "in.m:2:15: error: the version is '1', expected '2'"},
      {with(kHead, "mpc.version = '2';"), "error: mpc.baseMVA is not assigned"},
      {with(kHead, "mpc.baseMVA = 100;"), "error: mpc.version is not assigned"},
      {with(kHead, "mpc.version = '2'; mpc.baseMVA = -1;"), "in.m:2:34: error: the base power is"},
      {with(kHead, "mpc.version = '2'; mpc.baseMVA = 50 * 2;"),
       "in.m:2:37: error: expected the end of the statement, found '*'"},
      {with(kHead, "mpc.version = '2"), "in.m:2:15: error: this string has no end"},
      {with(kBus, ""), "error: mpc.bus is not assigned"},
      {with(kBus, "mpc.bus = zeros(2, 13);"), "in.m:3:11: error: expected '[' and the rows"},
      {with(kBus, bus_9 + "1 sqrt(2) 0];"), "in.m:4:5: error: expected a number of the matrix, "
                                            "found 'sqrt'"},
      {with(kBus, bus_9 + "1 5*2 0];"), "in.m:4:5: error: expected a number of the matrix, found "
                                        "'5*2'"},
      {with(kBus, bus_9 + "1 5 - 2 0];"), "in.m:4:7: error: expected a number of the matrix"},
      {with(kBus, bus_9 + "1 1d3 0];"), "in.m:4:5: error: expected a number of the matrix"},
      {with(kBus, bus_9 + "1 1e999 0];"), "which is too large for float64"},
      {with(kBus, bus_9 + "1 0];"), "in.m:4:6: error: row 2 of mpc.bus has 3 numbers, the rows "
                                    "above it 13"},
      {with(kBranch, "mpc.branch = [7 9 0.1"),
       "in.m:6:14: error: the matrix mpc.branch has no ']'"},
      {with(kBus, "mpc.bus = [7 3 0];"), "in.m:3:11: error: mpc.bus has 3 columns, expected at "
                                         "least 13"},
      {with(kBus, bus_9 + "5 0 0 0 0 1 1 0 220 1 1.1 0.9];"), "in.m:4:3: error: mpc.bus, row 2: "
                                                              "the type of the bus is 5"},
      {with(kBus, bus_9 + "1 NaN 0 0 0 1 1 0 220 1 1.1 0.9];"), "in.m:4:5: error: mpc.bus, row 2: "
                                                                "the load is nan"},
      {with(kBus, "mpc.bus = [7 3 0 0 0 0 1 1 0 220 1 1.1 0.9\n7 1 0 0 0 0 1 1 0 220 1 1.1 0.9];"),
       "in.m:4:1: error: mpc.bus, row 2: the number 7 has been given to the bus of row 1"},
      {with(kBus, "mpc.bus = [7.5 3 0 0 0 0 1 1 0 220 1 1.1 0.9];"),
       "the number of the bus is 7.5, expected a whole number from 1 on"},
      {with(kGenerator, "mpc.gen = [8 5 0 9 -9 1 100 1 9 0];"),
       "in.m:5:12: error: mpc.gen, row 1: there is no bus 8"},
      {with(kGenerator, "mpc.gen = [7 5 0 9 -9 0 100 1 9 0];"),
       "in.m:5:23: error: mpc.gen, row 1: the voltage to be held is 0"},
      {with(kBranch, "mpc.branch = [7 7 0.1 0.2 0 0 0 0 0 0 1];"),
       "in.m:6:17: error: mpc.branch, row 1: the branch ends where it begins"},
      {with(kBranch, "mpc.branch = [7 9 0 0 0 0 0 0 0 0 1];"),
       "in.m:6:19: error: mpc.branch, row 1: a branch in service has no impedance"},
      {with(kBranch, std::string(kBranch) + kBus), "error: mpc.bus is assigned twice"},
      {with(kBranch, std::string(kBranch) + "mpc.bus(1, 3) = 4;"),
       "in.m:7:8: error: expected '=', found '('"},
      {with(kBranch, std::string(kBranch) + "for i = 1:2\nend"),
       "in.m:7:1: error: expected an assignment to a field of 'mpc', found 'for'"},
      {with(kBranch, std::string(kBranch) + "mpc.x = {1, [2};"), "expected ']', found '}'"},
      {with(kBranch, std::string(kBranch) + "mpc.x = {1, [2"), "this bracket is not closed"},
      {with(kBranch, std::string(kBranch) + "%{\n"), "this block of comments has no end"},
  };
  for (const Refused& refused : all) {
    CAPTURE(refused.text, refused.message);
    CHECK_THAT(message(refused.text), Catch::Matchers::Contains(refused.message));
  }
  CHECK_THAT(message(with(kBus, bus_9 + "1 5*2 0];")), Catch::Matchers::Contains("savecase"));
}

TEST_CASE("Every case of the data reads") {
  const char* const data = std::getenv("SPARSERTC_DATA");
  if (data == nullptr) {
    WARN("SKIPPED: SPARSERTC_DATA names no folder with power/*.m.gz");
    return;
  }
  const std::pair<const char*, std::array<size_t, 2>> cases[] = {
      {"case9241pegase", {9241, 16049}},   {"case13659pegase", {13659, 20467}},
      {"case_ACTIVSg10k", {10000, 12706}}, {"case_ACTIVSg200", {200, 245}},
      {"case89pegase", {89, 210}},         {"pglib_opf_case118_ieee", {118, 186}},
      {"pglib_opf_case14_ieee", {14, 20}}, {"pglib_opf_case500_goc", {500, 728}}};
  for (const auto& [name, sizes] : cases) {
    CAPTURE(name);
    const PowerCase grid = read_power_case(fmt::format("{}/power/{}.m.gz", data, name));
    CHECK(grid.buses.size() == sizes[0]);
    CHECK(grid.branches.size() >= sizes[1]); // those in service are counted
  }
}

} // namespace sparsertc::testing
