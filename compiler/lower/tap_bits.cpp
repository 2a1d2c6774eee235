#include "compiler/lower/tap_bits.h"

namespace sparsertc {

using ir::Comparison;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

std::vector<uint32_t> TapBits::asked(const TapClass& tap, uint32_t r, uint32_t s) const {
  std::vector<uint32_t> masks(words(), 0);
  const auto set = [&](uint32_t bit) { masks[bit / 32] |= 1u << bit % 32; };
  if (tap.asks_row)
    set(row(r));
  if (tap.asks_column)
    set(column(s));
  return masks;
}

Reg write_tap_question(ir::Builder& builder, const std::vector<Reg>& words,
                       const std::vector<uint32_t>& asked) {
  Reg all;
  for (size_t i = 0; i < words.size(); ++i) {
    if (asked[i] == 0)
      continue;
    const Operand mask = Operand::integer(static_cast<int32_t>(asked[i]));
    const Reg found = builder.value(Opcode::bit_and, Scalar::i32, {words[i], mask});
    const Reg inside = builder.compare(Comparison::eq, Scalar::i32, found, mask);
    all = all.valid() ? builder.value(Opcode::bit_and, Scalar::pred, {all, inside}) : inside;
  }
  return all;
}

} // namespace sparsertc
