// The pass `place` on random programs: the same results as one memory gives, no access from the
// wrong side, whole copies only, nothing left allocated, and no placement is cheaper.
#include "compiler/transform/describe_placement.h"
#include "compiler/transform/pass.h"
#include "compiler/transform/placement.h"
#include "compiler/transform/placement_costs.h"
#include "compiler/transform/sequential_functions.h"
#include "ir/error.h"
#include "ir/operands.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "tests/support/program_interpreter.h"
#include "tests/support/random_program.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

using namespace sparsertc;
using test::ProgramInterpreter;
using test::RandomProgram;

namespace {

struct Result {
  std::vector<std::vector<ProgramInterpreter::Element>> outputs;
  unsigned leaks = 0;
  int64_t host_peak = 0, device_peak = 0;
  std::vector<ProgramInterpreter::Copy> copies;
};

Result run(const ir::Module& module, const RandomProgram& generator, bool separate, int64_t n) {
  ProgramInterpreter interpreter(module, separate);
  std::vector<int64_t> arguments;
  for (unsigned i = 0; i < generator.outputs; ++i) {
    std::vector<ProgramInterpreter::Element> elements(static_cast<size_t>(generator.length));
    for (size_t k = 0; k < elements.size(); ++k)
      elements[k] = static_cast<int64_t>(100 * i + k % 50);
    arguments.push_back(interpreter.give(generator.output_space[i], std::move(elements)));
  }
  const std::vector<int64_t> outputs = arguments;
  arguments.push_back(n);
  interpreter.run("program", arguments);
  Result result;
  for (int64_t output : outputs)
    result.outputs.push_back(interpreter.array(output).elements);
  result.leaks = interpreter.leaks();
  result.host_peak = interpreter.peak(ir::Space::host);
  result.device_peak = interpreter.peak(ir::Space::device);
  result.copies = interpreter.copies();
  return result;
}

// ---- the cheapest placement by trying all -----------------------------------------------------

/// Where a buffer's contents are valid. What nothing has written is valid everywhere.
struct Valid {
  bool host = true, device = true;
  bool& on(Side side) { return side == Side::host ? host : device; }
  friend bool operator==(const Valid&, const Valid&) = default;
};

/// Copies of one buffer: for each gap none, to the host, to the device.
enum class GapCopy : uint8_t { none, to_host, to_device };

class AllPlacements {
public:
  AllPlacements(const ir::Function& function, const ProgramShape& shape,
                const PlacementProblem& problem)
      : function_(function), shape_(shape), problem_(problem) {
    const auto count = static_cast<uint32_t>(function.ops.size());
    next_.resize(count);
    std::vector<uint32_t> open;
    for (uint32_t at = 0; at < count; ++at) {
      using ir::Opcode;
      switch (function.ops[at].code) {
      case Opcode::loop:
      case Opcode::for_loop:
      case Opcode::if_begin:
        open.push_back(at);
        next_[at] = {at + 1};
        break;
      case Opcode::else_mark: // reached from the first branch
        next_[open.back()].push_back(at + 1);
        next_[at] = {}; // to the end, known there
        otherwise_.push_back(at);
        break;
      case Opcode::while_end:
        next_[at] = {at + 1, open.back() + 1};
        open.pop_back();
        break;
      case Opcode::end: {
        const uint32_t head = open.back();
        open.pop_back();
        next_[at] = {at + 1};
        if (function.ops[head].code == Opcode::for_loop) {
          next_[at].push_back(head + 1);
          next_[head].push_back(at + 1);
        } else if (!otherwise_.empty() && otherwise_.back() > head) {
          next_[otherwise_.back()] = {at + 1};
          otherwise_.pop_back();
        } else {
          next_[head].push_back(at + 1);
        }
        break;
      }
      default:
        next_[at] = {at + 1};
        break;
      }
    }
  }

  int64_t cheapest() {
    int64_t best = INT64_MAX;
    choice_.assign(problem_.choices.size(), Side::host);
    for (uint32_t mask = 0; mask < (1u << choice_.size()); ++mask) {
      int64_t cost = 0;
      for (size_t i = 0; i < choice_.size(); ++i) {
        choice_[i] = (mask >> i & 1) != 0 ? Side::device : Side::host;
        cost +=
            choice_[i] == Side::host ? problem_.choices[i].host_ns : problem_.choices[i].device_ns;
      }
      for (const CopyEnds& copy : problem_.copies)
        if (side(copy.destination) != side(copy.source))
          cost += copy.ns;
      for (uint32_t b = 0; b < problem_.use.buffers.size(); ++b)
        cost += cheapest_copies(b);
      best = std::min(best, cost);
    }
    return best;
  }

private:
  Side side(const SideOf& of) const { return of.fixed() ? of.side : choice_[of.choice]; }

  int64_t cheapest_copies(uint32_t buffer) {
    const int64_t once = placement_costs::copy_ns(problem_.use.buffers[buffer].bytes());
    std::vector<GapCopy> copies(function_.ops.size() + 1, GapCopy::none);
    int64_t best = INT64_MAX;
    try_gaps(buffer, problem_.use.buffers[buffer].alloc + 1, once, 0, copies, best);
    REQUIRE(best != INT64_MAX);
    return best;
  }

  void try_gaps(uint32_t buffer, uint32_t gap, int64_t once, int64_t cost,
                std::vector<GapCopy>& copies, int64_t& best) {
    if (cost >= best)
      return;
    if (gap == copies.size()) {
      if (legal(buffer, copies))
        best = cost;
      return;
    }
    // Copies after operations that leave the buffer alone can wait for the next one that does not,
    // or for the end of the block.
    const auto touches = [&](uint32_t at) {
      if (at == function_.ops.size())
        return false;
      const ir::Form form = ir::info(function_.ops[at].code).form;
      return form != ir::Form::value ||
             std::any_of(problem_.use.touches.begin(), problem_.use.touches.end(),
                         [&](const BufferTouch& t) { return t.op == at && t.buffer == buffer; });
    };
    try_gaps(buffer, gap + 1, once, cost, copies, best);
    if (touches(gap))
      for (GapCopy copy : {GapCopy::to_host, GapCopy::to_device}) {
        copies[gap] = copy;
        try_gaps(buffer, gap + 1, once, cost + once * shape_.executions_of_gap(gap), copies, best);
      }
    copies[gap] = GapCopy::none;
  }

  /// Follows what is valid along all paths until nothing changes.
  bool legal(uint32_t buffer, const std::vector<GapCopy>& copies) {
    const size_t count = function_.ops.size();
    std::vector<int> known(count + 1, 0);
    std::vector<Valid> before(count + 1);
    std::vector<uint32_t> work{0};
    known[0] = 1;
    while (!work.empty()) {
      const uint32_t at = work.back();
      work.pop_back();
      Valid valid = before[at];
      if (copies[at] != GapCopy::none) {
        const Side to = copies[at] == GapCopy::to_host ? Side::host : Side::device;
        if (!valid.on(to == Side::host ? Side::device : Side::host))
          return false;
        valid.on(to) = true;
      }
      if (at == count)
        continue;
      if (problem_.use.buffers[buffer].alloc == at)
        valid = Valid{};
      for (size_t i = 0; i < problem_.use.touches.size(); ++i) {
        const BufferTouch& touch = problem_.use.touches[i];
        if (touch.op != at || touch.buffer != buffer)
          continue;
        for (const SideOf& of : problem_.sides[i]) {
          const Side here = side(of);
          if (touch.reads && !valid.on(here))
            return false;
          if (touch.writes) {
            // A part is written: the rest must have been valid here for the whole to be.
            const bool whole = valid.on(here) || touch.overwrites;
            valid = {false, false};
            valid.on(here) = whole;
          }
        }
      }
      for (uint32_t next : next_[at]) {
        Valid merged = valid;
        if (known[next] != 0) {
          merged.host = merged.host && before[next].host;
          merged.device = merged.device && before[next].device;
          if (merged == before[next])
            continue;
        }
        known[next] = 1;
        before[next] = merged;
        work.push_back(next);
      }
    }
    return true;
  }

  const ir::Function& function_;
  const ProgramShape& shape_;
  const PlacementProblem& problem_;
  std::vector<std::vector<uint32_t>> next_;
  std::vector<uint32_t> otherwise_;
  std::vector<Side> choice_;
};

} // namespace

TEST_CASE("placed programs compute what they computed in one memory", "[placement]") {
  const unsigned seed = std::random_device{}();
  unsigned compared = 0, moved = 0, peaks_met = 0;
  for (unsigned round = 0; round < 120; ++round) {
    CAPTURE(seed, round);
    RandomProgram generator(seed + round);
    const std::string text = generator.program(1 + round % 3, 4 + round % 9, true);
    CAPTURE(text);
    const ir::Module module = ir::parse(text, "random.sir");
    ir::verify_or_throw(module, "generation");
    ir::Module placed = module;
    place_pass().run(placed);
    const std::string printed = ir::print(placed);
    CAPTURE(printed);
    ir::verify_or_throw(placed, "pass place");
    ir::require_placed(placed);
    const std::string described = describe_placement(placed);
    CAPTURE(described);
    long long host_peak = -1, device_peak = -1;
    const size_t peak = described.find("  peak: ", described.find("placement of @program"));
    REQUIRE(peak != std::string::npos);
    REQUIRE(std::sscanf(described.c_str() + peak, " peak: host %lld bytes, device %lld bytes",
                        &host_peak, &device_peak) == 2);
    // Placing what is placed changes nothing.
    ir::Module again = placed;
    place_pass().run(again);
    REQUIRE(ir::print(again) == printed);
    for (int64_t n : {0, 1, 3}) {
      CAPTURE(n);
      if (n != 1 && generator.length > 10000)
        continue; // once is enough for large ones
      const Result expected = run(module, generator, false, n);
      const Result found = run(placed, generator, true, n);
      REQUIRE(found.leaks == 0);
      REQUIRE(found.host_peak <= host_peak);
      REQUIRE(found.device_peak <= device_peak);
      peaks_met += found.host_peak == host_peak && found.device_peak == device_peak ? 1 : 0;
      for (const ProgramInterpreter::Copy& copy : found.copies)
        REQUIRE(copy.whole);
      REQUIRE(found.outputs.size() == expected.outputs.size());
      for (size_t i = 0; i < found.outputs.size(); ++i)
        for (size_t k = 0; k < found.outputs[i].size(); ++k)
          if (expected.outputs[i][k] && found.outputs[i][k] != expected.outputs[i][k])
            FAIL("output " << i << " differs at " << k);
      ++compared;
    }
    moved += printed.find("kernel @small") != std::string::npos ||
                     printed.find("kernel @helper") != std::string::npos
                 ? 1
                 : 0;
  }
  CHECK(compared > 100);
  CHECK(peaks_met > 50);
  CHECK(moved > 5);
}

TEST_CASE("no placement is cheaper than the one found", "[placement]") {
  const unsigned seed = std::random_device{}();
  unsigned tried = 0, with_copies = 0;
  for (unsigned round = 0; round < 40; ++round) {
    CAPTURE(seed, round);
    RandomProgram generator(seed + 1000 + round);
    const std::string text = generator.program(1 + round % 2, 2 + round % 3, true);
    CAPTURE(text);
    ir::Module module = ir::parse(text, "random.sir");
    remove_dead_copies(module);
    const ir::Function& function = module.functions[module.find_function("program")];
    const ProgramShape shape(function);
    MemoryEffects effects(module);
    const PlacementProblem problem = make_placement_problem(module, function, shape, effects);
    if (function.ops.size() > 16 || problem.choices.size() > 5)
      continue; // too many to try
    const Placement placement = solve_placement(function, shape, problem);
    REQUIRE(placement.cost_ns == AllPlacements(function, shape, problem).cheapest());
    ++tried;
    with_copies += placement.cost_ns > 0 ? 1 : 0;
  }
  CHECK(tried > 10);
  CHECK(with_copies > 5);
}
