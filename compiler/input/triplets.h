// Entries in any order -> compressed rows.
#pragma once

#include "compiler/input/matrix.h"
#include "ir/error.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace sparsertc {

/// What to do with several entries at one position.
enum class Duplicates : uint8_t { sum, refuse };

/// Entries as they stood in a file: zero-based positions, values (or none), imaginary parts (or
/// none), all of one length.
struct Triplets {
  uint32_t rows = 0;
  uint32_t columns = 0;
  std::vector<uint32_t> row;
  std::vector<uint32_t> column;
  std::vector<double> value;
  std::vector<double> imaginary;
};

/// Sorts the entries by row and column, entries of one position in their given order. Several at
/// one position are added in that order, with a remark that says how many; or `on_duplicate` is
/// called with the indices of the first two (it must throw). Without values duplicates are one
/// entry. Entries whose value is zero stay.
Matrix compress(Triplets&& triplets, Duplicates duplicates,
                const std::function<void(uint64_t first, uint64_t second)>& on_duplicate);

/// UserError at `place` when so many rows or columns stand against so few bytes of file that an
/// index of them would take memory out of proportion: up to 2^20 are always allowed, then as many
/// as the file has bytes.
void check_dimension(uint64_t dimension, const char* what, uint64_t file_bytes, const Place& place);

} // namespace sparsertc
