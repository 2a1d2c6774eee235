// Short pieces of PTX and a machine to run them on, for the interpreter's own tests.
#pragma once

#include "tests/support/ptx_interpreter.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc::test {

/// A program (the text without its header), a machine, and the arguments collected so far.
struct Snippet {
  explicit Snippet(std::string_view text);
  void argument(uint64_t word) { arguments.push_back(word); }
  ptx::RunStatistics run(std::string_view entry, ptx::Dim3 grid, ptx::Dim3 block,
                         uint32_t dynamic_shared_bytes = 0);

  ptx::Program program;
  ptx::Machine machine;
  std::vector<uint64_t> arguments;
};

/// The `result_bits` wide %d after one line of PTX that may use the `operand_bits` wide registers
/// %a, %b, %c, the predicates %p and %q (false), and the 16-bit %ha (the low bits of %a) and %hx.
uint64_t evaluate(const std::string& line, uint32_t result_bits, uint32_t operand_bits,
                  const std::array<uint64_t, 3>& operands);

} // namespace sparsertc::test
