// Comparing our declarations of other libraries' functions with theirs, at compile time.
#pragma once

#include <type_traits>

namespace sparsertc::cuda {

/// What counts for the calling convention: pointers, integers and enums of one size, floats.
template <typename A, typename B>
constexpr bool
    same_argument = sizeof(A) == sizeof(B) &&
                    std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_floating_point_v<A> ==
                        std::is_floating_point_v<B>;

template <typename A, typename B>
constexpr bool same_function = false;
template <typename ResultA, typename... A, typename ResultB, typename... B>
requires(sizeof...(A) ==
         sizeof...(B)) constexpr bool same_function<ResultA (*)(A...), ResultB (*)(B...)> =
    same_argument<ResultA, ResultB> && (same_argument<A, B> && ...);

} // namespace sparsertc::cuda
