// Orders that keep the factors of a matrix sparse.
//
// All are symmetric: rows and columns of a square pattern with a zero-free diagonal go to the same
// places, so that the diagonal stays where it is. The pattern decides alone: the same pattern gives
// the same order.
#pragma once

#include "compiler/pattern/permutation.h"

#include <cstdint>
#include <string_view>

namespace sparsertc {

enum class FillOrder : uint8_t {
  natural,           ///< as it is
  amd,               ///< approximate minimum degree of A + A^T
  colamd,            ///< approximate minimum degree of the columns, for A^T A
  nested_dissection, ///< of A + A^T, by METIS: shallow elimination trees
};
inline constexpr FillOrder kFillOrders[] = {FillOrder::natural, FillOrder::amd, FillOrder::colamd,
                                            FillOrder::nested_dissection};

/// "natural", "amd", "colamd", "nd".
std::string_view name_of(FillOrder order);

/// The order of a square pattern. The libraries behind it: AMD (Amestoy, Davis and Duff, "Algorithm
/// 837", 2004), COLAMD (Davis, Gilbert, Larimore and Ng, "Algorithm 836", 2004), METIS (Karypis and
/// Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs", 1998).
/// METIS counts entries in 32 bits: UserError where A + A^T has 2^31 or more. `seed` is that of
/// nested dissection's random choices; other orders make none. METIS makes them by the C library's
/// rand(), so calls wait for each other, and the order may be another one with another C library,
/// or where another thread of the program draws or seeds meanwhile.
Permutation fill_reducing_order(const Pattern& square, FillOrder order, uint32_t seed = 1);

} // namespace sparsertc
