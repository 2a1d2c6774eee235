#include "compiler/pattern/fill_order.h"

#include "ir/error.h"

#include <amd.h>
#include <colamd.h>
#include <metis.h>

#include <fmt/format.h>

#include <limits>
#include <mutex>
#include <new>

namespace sparsertc {
namespace {

static_assert(sizeof(idx_t) == 4 && sizeof(SuiteSparse_long) == 8);

std::vector<SuiteSparse_long> long_offsets(const Pattern& pattern) {
  return {pattern.row_offset.begin(), pattern.row_offset.end()};
}

Permutation from_long(const std::vector<SuiteSparse_long>& order, uint32_t size) {
  return {order.begin(), order.begin() + size};
}

/// The libraries report a lack of memory and faults of the input, of which there are none.
void throw_failure(const char* library, int64_t status, bool out_of_memory) {
  if (out_of_memory)
    throw std::bad_alloc();
  throw InternalError(fmt::format("{} refuses a pattern: status {}", library, status));
}

Permutation amd(const Pattern& square) {
  // Rows stand for columns: A + A^T is the same.
  const std::vector<SuiteSparse_long> offset = long_offsets(square);
  const std::vector<SuiteSparse_long> index(square.column_index.begin(), square.column_index.end());
  std::vector<SuiteSparse_long> order(square.rows);
  const SuiteSparse_long status =
      amd_l_order(square.rows, offset.data(), index.data(), order.data(), nullptr, nullptr);
  if (status != AMD_OK && status != AMD_OK_BUT_JUMBLED)
    throw_failure("AMD", status, status == AMD_OUT_OF_MEMORY);
  return from_long(order, square.rows);
}

Permutation colamd(const Pattern& square) {
  const Pattern columns = transpose(square);
  const size_t room = colamd_l_recommended(static_cast<SuiteSparse_long>(columns.nnz()),
                                           columns.rows, columns.rows);
  std::vector<SuiteSparse_long> index(room);
  std::copy(columns.column_index.begin(), columns.column_index.end(), index.begin());
  std::vector<SuiteSparse_long> offset = long_offsets(columns);
  SuiteSparse_long statistics[COLAMD_STATS];
  if (!colamd_l(columns.rows, columns.rows, static_cast<SuiteSparse_long>(room), index.data(),
                offset.data(), nullptr, statistics))
    throw_failure("COLAMD", statistics[COLAMD_STATUS],
                  statistics[COLAMD_STATUS] == COLAMD_ERROR_out_of_memory);
  return from_long(offset, columns.rows);
}

Permutation nested_dissection(const Pattern& square, uint32_t seed) {
  const Pattern graph = symmetrized_without_diagonal(square);
  if (graph.nnz() == 0)
    return identity_permutation(square.rows);
  if (graph.nnz() > static_cast<uint64_t>(std::numeric_limits<idx_t>::max()))
    throw UserError(
        fmt::format("nested dissection is limited to 2^31 entries of A + A^T, which has "
                    "{}",
                    graph.nnz()),
        "choose another order: amd, colamd, natural");
  idx_t vertices = static_cast<idx_t>(graph.rows);
  std::vector<idx_t> offset(graph.row_offset.begin(), graph.row_offset.end());
  std::vector<idx_t> index(graph.column_index.begin(), graph.column_index.end());
  std::vector<idx_t> order(graph.rows), place(graph.rows);
  idx_t options[METIS_NOPTIONS];
  METIS_SetDefaultOptions(options);
  options[METIS_OPTION_SEED] = static_cast<idx_t>(seed);
  options[METIS_OPTION_NUMBERING] = 0;
  // METIS draws from the C library's generator, which all threads share.
  static std::mutex generator;
  const std::lock_guard<std::mutex> lock(generator);
  const int status = METIS_NodeND(&vertices, offset.data(), index.data(), nullptr, options,
                                  order.data(), place.data());
  if (status != METIS_OK)
    throw_failure("METIS", status, status == METIS_ERROR_MEMORY);
  return {order.begin(), order.end()};
}

} // namespace

std::string_view name_of(FillOrder order) {
  switch (order) {
  case FillOrder::natural:
    return "natural";
  case FillOrder::amd:
    return "amd";
  case FillOrder::colamd:
    return "colamd";
  case FillOrder::nested_dissection:
    return "nd";
  }
  return "";
}

Permutation fill_reducing_order(const Pattern& square, FillOrder order, uint32_t seed) {
  if (square.rows != square.columns)
    throw InternalError("a fill-reducing order needs a square pattern");
  if (square.nnz() == 0)
    return identity_permutation(square.rows); // the libraries would have null pointers
  switch (order) {
  case FillOrder::natural:
    break;
  case FillOrder::amd:
    return amd(square);
  case FillOrder::colamd:
    return colamd(square);
  case FillOrder::nested_dissection:
    return nested_dissection(square, seed);
  }
  return identity_permutation(square.rows);
}

} // namespace sparsertc
