// What the kernels of fill2.cu and scan.cu are given; included by them and by the host's code.
//
// Rows are taken in groups of kFill2Group neighbours. Where a group is worked on there is a
// *workspace* for it: numbers for each vertex, and lists of the vertices that the search has come
// to.
#pragma once

#ifdef __CUDACC_RTC__
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
#else
#include <cstdint>
#endif

namespace sparsertc::kernels {

/// Rows of a group: a bit of a 64-bit word each.
constexpr uint32_t kFill2Group = 64;
/// Where the entries of a group did not fit into the store.
constexpr uint64_t kNotStored = ~static_cast<uint64_t>(0);

/// The workspaces, one behind the other in each array; `capacity` vertices can be in each list.
struct Fill2Workspaces {
  uint64_t* visited; ///< size: which rows of the group have come to the vertex. Zeros at first.
  uint64_t* pending; ///< size: which of them have still to go on from it. Zeros at first.
  uint32_t* entries; ///< (size + 31) / 32: a bit for each vertex that is an entry. Zeros at first.
  uint32_t* summary; ///< a bit for each word of `entries` that is not zero. Zeros at first.
  uint32_t* touched; ///< capacity: the vertices that have been visited
  uint32_t* queue;   ///< 4 capacity: vertices to go on from, now and next, some twice
  uint32_t* column;  ///< capacity: the entries of the group, ascending
  uint64_t* rows;    ///< capacity: the rows that have it
  uint64_t capacity;
};

/// Entries of many groups, in the same form as in a workspace.
struct Fill2Store {
  uint64_t* offset; ///< of each group, or kNotStored
  uint32_t* length; ///< of each group
  uint64_t* used;   ///< one number: so many entries were asked for
  uint64_t capacity;
  uint32_t* column;
  uint64_t* rows;
};

struct Fill2Arguments {
  uint32_t size; ///< n
  /// The groups of this launch, and a number that is 0 at its beginning.
  uint32_t first_group;
  uint32_t last_group;
  uint32_t* next_group;
  /// A in compressed rows: fewer than 2^32 entries.
  const uint32_t* a_offset;
  const uint32_t* a_column;
  Fill2Workspaces work;
  Fill2Store store;

  // What the search finds out.
  uint32_t* row_length; ///< size: entries of each row of L+U
  uint32_t* frontier;   ///< vertices visited by each group

  // What the second pass writes: rows first_row to last_row.
  uint32_t first_row;
  uint32_t last_row;
  const uint64_t* row_offset; ///< size + 1
  uint64_t first_entry;       ///< the place of columns[0]
  uint32_t* columns;
  uint64_t* diagonal; ///< size: the place of (i,i)
};

/// offset[i] = sum of length[k] over k < i, for i from 0 to `size`.
struct ScanArguments {
  uint32_t size;
  const uint32_t* length;
  uint64_t* offset;
  uint64_t* tile_sum; ///< a number for each kScanTile lengths
};
constexpr uint32_t kScanThreads = 256;
constexpr uint32_t kScanTile = 2048;

} // namespace sparsertc::kernels
