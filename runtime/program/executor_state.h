// What the executor keeps of functions and regions while it runs. Internal to it.
#pragma once

#include "ir/operands.h"
#include "runtime/program/executor.h"

#include <array>
#include <string>

namespace sparsertc::program {

struct Executor::Frame {
  uint32_t function;
  const ir::Function& code;
  FunctionState& state;
  std::vector<Bits> registers;
  /// What it has allocated and not freed: register's space and address.
  std::vector<std::pair<ir::Space, uint64_t>> allocated;
};

/// A region with what was recorded of it.
struct Executor::RegionState {
  Region region;
  std::vector<uint64_t> shadows; ///< device memory of the mirrors
  std::vector<uint64_t> shadow_bytes;
  /// Mirrors of which a copy leaves a part as it was: they arrive, too.
  std::vector<bool> partly_written;
  std::vector<uint64_t> key; ///< the words that were recorded
  std::unique_ptr<Recording> recording;
  unsigned misses = 0; ///< recordings that were made anew
};

struct Executor::FunctionState {
  FunctionState(const ir::Module& module, const ir::Function& function, Records records)
      : blocks(function) {
    for (Region& region : find_regions(module, function, blocks, records)) {
      auto state = std::make_unique<RegionState>();
      state->region = std::move(region);
      const uint32_t begin = state->region.begin;
      regions.emplace(begin, std::move(state));
    }
  }
  Blocks blocks;
  std::map<uint32_t, std::unique_ptr<RegionState>> regions; ///< by first operation
};

inline Bits operand(const ir::Op& op, unsigned slot, const std::vector<Bits>& registers) {
  if (op.operand[slot] == ir::kImmediate)
    return static_cast<Bits>(op.immediate);
  return op.operand[slot] == ir::kNoOperand ? 0 : registers[op.operand[slot]];
}

inline std::array<Bits, 3> operands(const ir::Op& op, const std::vector<Bits>& registers) {
  return {operand(op, 0, registers), operand(op, 1, registers), operand(op, 2, registers)};
}

inline std::vector<Bits> arguments_of(const ir::Function& function, const ir::Op& op,
                                      const std::vector<Bits>& registers) {
  std::vector<Bits> list;
  for (const uint32_t reg : ir::arguments(function, op))
    list.push_back(registers[reg]);
  return list;
}

/// "@f, operation 3, `copy %a, %b, 4`".
std::string place(const ir::Module& module, const ir::Function& function, uint32_t at);

} // namespace sparsertc::program
