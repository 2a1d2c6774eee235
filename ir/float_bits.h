// Conversions between float64 and the narrower floating-point types, as bits. Rounding is always to
// nearest, ties to even, once, directly from float64.
#pragma once

#include <cstdint>

namespace sparsertc {

/// IEEE binary16. Values of magnitude 65520 and more become infinity, those below 2^-25 and the tie
/// 2^-25 itself a zero of the same sign; a NaN stays one, quiet, with its sign and the upper bits
/// of its payload.
uint16_t to_f16(double value);
/// bfloat16: the upper half of a binary32. Subnormals are kept.
uint16_t to_bf16(double value);
/// IEEE binary32.
uint32_t to_f32(double value);

/// All three are exact; a signalling NaN comes back quiet.
double from_f16(uint16_t bits);
double from_bf16(uint16_t bits);
double from_f32(uint32_t bits);

} // namespace sparsertc
