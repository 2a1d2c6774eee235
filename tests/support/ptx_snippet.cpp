#include "tests/support/ptx_snippet.h"

#include <fmt/format.h>

namespace sparsertc::test {

Snippet::Snippet(std::string_view text)
    : program(ptx::parse(fmt::format(".version 8.0\n.target sm_90\n.address_size 64\n{}", text))) {}

ptx::RunStatistics Snippet::run(std::string_view entry, ptx::Dim3 grid, ptx::Dim3 block,
                                uint32_t dynamic_shared_bytes) {
  return machine.run(program, entry, grid, block, arguments, dynamic_shared_bytes);
}

uint64_t evaluate(const std::string& line, uint32_t result_bits, uint32_t operand_bits,
                  const std::array<uint64_t, 3>& operands) {
  Snippet snippet(fmt::format(R"(.visible .entry sparsertc_evaluate(.param .u64 in, .param .u64 out)
{{
  .reg .pred %p, %q; .reg .b16 %ha, %hx; .reg .b64 %rd<3>;
  .reg .b{0} %d; .reg .b{1} %a, %b, %c;
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
  ld.global.b{1} %a, [%rd1]; ld.global.b{1} %b, [%rd1+8]; ld.global.b{1} %c, [%rd1+16];
  ld.global.b16 %ha, [%rd1];
  setp.ne.u64 %q, %rd1, %rd1;
  {2}
  st.global.b{0} [%rd2], %d;
  ret;
}}
)",
                              result_bits, operand_bits, line));
  uint64_t result = 0;
  snippet.argument(snippet.machine.register_buffer(operands.data(), sizeof operands));
  snippet.argument(snippet.machine.register_buffer(&result, sizeof result, true));
  snippet.run("sparsertc_evaluate", {}, {});
  return result;
}

} // namespace sparsertc::test
