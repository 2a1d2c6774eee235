// Threads go through the rows of B in rounds. Where a round is a whole number of the distances
// between rows of zeros, the places of a thread's rows are the same number apart, and every address
// is a constant away from its first.
#include "compiler/lower/compressed_staging.h"

#include "compiler/inspect/compressed_schedule.h"
#include "compiler/lower/spmm_tile.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace sparsertc {
namespace {

using ir::Cache;
using ir::Comparison;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

/// Elements of B that a thread has in flight while it stages them one by one; copies it starts in
/// one round.
constexpr uint32_t kElementsInFlight = 16, kCopiesInFlight = 4;
/// Bytes that an address may be away from its register.
constexpr int64_t kMostOffset = 1 << 23;

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

} // namespace

CompressedStaging::CompressedStaging(ir::Builder& builder, const SpmmSchedule& schedule,
                                     const Given& given)
    : builder_(builder), schedule_(schedule), problem_(schedule.problem), stream_(schedule.stream),
      given_(given), element_(element_scalar(problem_.type)),
      staged_element_(stream_.staged_wide ? accumulator_scalar(problem_.type) : element_),
      size_(element_bytes(problem_.type)), staged_size_(ir::size_in_bytes(staged_element_)),
      row_bytes_(stream_.columns_per_block * staged_size_),
      b_row_bytes_(problem_.layout == Layout::row_major ? static_cast<int64_t>(problem_.ldb) * size_
                                                        : size_),
      b_column_bytes_(problem_.layout == Layout::row_major
                          ? size_
                          : static_cast<int64_t>(problem_.ldb) * size_) {}

Reg CompressedStaging::add(Reg a, Operand b) {
  return builder_.add(Scalar::i32, a, b);
}
Reg CompressedStaging::mul(Reg a, int64_t b) {
  return b == 1 ? a : builder_.mul(Scalar::i32, a, Operand::integer(b));
}
Reg CompressedStaging::div(Reg a, uint32_t b) {
  return b == 1 ? a : builder_.value(Opcode::divu, Scalar::i32, {a, Operand::integer(b)});
}
Reg CompressedStaging::rem(Reg a, uint32_t b) {
  return builder_.value(Opcode::remu, Scalar::i32, {a, Operand::integer(b)});
}
Reg CompressedStaging::less(Reg a, Operand b) {
  return builder_.compare(Comparison::lt, Scalar::i32, a, b);
}

/// The place of a row of B in a register.
Reg CompressedStaging::place_of(Reg row) {
  const uint32_t shift = static_cast<uint32_t>(std::countr_zero(stream_.staged.spacing()));
  const Reg zeros = builder_.value(Opcode::shr, Scalar::i32, {row, Operand::integer(shift)});
  return add(add(row, zeros), Operand::integer(1));
}

/// Calls body(first of the round, j, inside) for the rows first, first + stride, ..., at most
/// `in_flight` of them in a round and all of a round before finish(j, inside): `stride` rows are
/// between a thread's, `first` < stride. `inside` is valid where not all threads have the row.
template <class Body, class Finish>
void CompressedStaging::for_rows(Reg first, uint32_t stride, uint32_t in_flight, Body body,
                                 Finish finish) {
  const uint32_t rows = stream_.staged.rows;
  const uint32_t of_all = rows / stride;
  // Rows of a round, and whether the last is only there for some threads.
  const auto round = [&](Reg row, uint32_t count, bool is_last_shared) {
    std::vector<Reg> inside(count);
    for (uint32_t j = 0; j < count; ++j) {
      if (is_last_shared && j + 1 == count)
        inside[j] = less(first, Operand::integer(rows - of_all * stride));
      body(row, j, inside[j]);
    }
    for (uint32_t j = 0; j < count; ++j)
      finish(j, inside[j]);
  };
  const uint32_t all = ceil_div(rows, stride);
  uint32_t done = 0;
  if (all > in_flight) {
    done = of_all / in_flight * in_flight;
    const bool in_loop = done > in_flight;
    const Reg row = in_loop ? add(first, builder_.for_loop(Operand::integer(int64_t{done} * stride),
                                                           in_flight * stride))
                            : first;
    if (done > 0)
      round(row, in_flight, false);
    if (in_loop)
      builder_.end();
  }
  if (done < all)
    round(done == 0 ? first : add(first, Operand::integer(done * stride)), all - done,
          of_all < all);
}

void CompressedStaging::copy_pieces() {
  const uint32_t bytes = row_staging_bytes(schedule_);
  const uint32_t pieces = row_bytes_ / bytes;
  const uint32_t stride = schedule_.threads_x / pieces;
  const Reg piece = pieces == 1 ? Reg{} : rem(given_.thread, pieces);
  Reg source = builder_.index(given_.b, given_.block_column, Operand::integer(size_));
  Reg read; // bytes that are inside B; all where it is not valid
  if (piece.valid()) {
    source = builder_.index(source, piece, Operand::integer(bytes));
    if (schedule_.guarded) {
      const Reg column = add(mul(piece, bytes / size_), given_.block_column);
      const Reg inside = less(column, Operand::integer(*problem_.columns));
      read = builder_.select(Scalar::i32, inside,
                             builder_.constant(Scalar::i32, Operand::integer(bytes)),
                             Operand::integer(0));
      source = builder_.select(builder_.function().type_of(source), inside, source, given_.b);
    }
  }
  const bool is_regular = stride % stream_.staged.spacing() == 0;
  Reg from, to;
  for_rows(
      div(given_.thread, pieces), stride, kCopiesInFlight,
      [&](Reg row, uint32_t j, Reg inside) {
        if (j == 0 || !is_regular) {
          const Reg mine = j == 0 ? row : add(row, Operand::integer(j * stride));
          from = builder_.index(source, mine, Operand::integer(b_row_bytes_));
          to = builder_.index(given_.staged, place_of(mine), Operand::integer(row_bytes_));
          if (piece.valid())
            to = builder_.index(to, piece, Operand::integer(bytes));
        }
        const int64_t rows = is_regular ? int64_t{j} * stride : 0;
        const int64_t places = rows + rows / stream_.staged.spacing();
        const int64_t from_offset = rows * b_row_bytes_;
        Reg far = from;
        if (from_offset >= kMostOffset)
          far = builder_.offset(from, Operand::integer(from_offset));
        if (inside.valid())
          builder_.if_begin(inside);
        builder_.copy_async(to, static_cast<int32_t>(places * row_bytes_), far,
                            from_offset >= kMostOffset ? 0 : static_cast<int32_t>(from_offset),
                            bytes, read);
        if (inside.valid())
          builder_.end();
      },
      [](uint32_t, Reg) {});
}

void CompressedStaging::copy_elements() {
  const bool one = stream_.columns_per_block == 1;
  const Reg column =
      one ? Reg{} : builder_.for_loop(Operand::integer(stream_.columns_per_block), 1);
  const Reg of_b = one ? given_.block_column : add(column, given_.block_column);
  Reg is_there; // valid where a column may not be
  if (schedule_.guarded)
    is_there = less(of_b, Operand::integer(*problem_.columns));
  const Reg source = builder_.index(given_.b, of_b, Operand::integer(b_column_bytes_));
  const Reg shared =
      one ? given_.staged : builder_.index(given_.staged, column, Operand::integer(staged_size_));
  const uint32_t stride = schedule_.threads_x;
  const bool is_regular = stride % stream_.staged.spacing() == 0;
  std::vector<Reg> loaded(kElementsInFlight), to(kElementsInFlight);
  const auto places_after = [&](uint32_t j) {
    return is_regular ? int64_t{j} * stride + j * stride / stream_.staged.spacing() : 0;
  };
  Reg from, first_to;
  for_rows(
      given_.thread, stride, kElementsInFlight,
      [&](Reg row, uint32_t j, Reg inside) {
        const int64_t offset = int64_t{j} * stride * b_row_bytes_;
        const bool is_near = is_regular && offset < kMostOffset;
        const Reg mine = j == 0 || is_near ? row : add(row, Operand::integer(j * stride));
        if (j == 0 || !is_near)
          from = builder_.index(source, mine, Operand::integer(b_row_bytes_));
        if (j == 0 || !is_regular)
          first_to = builder_.index(shared, place_of(mine), Operand::integer(row_bytes_));
        to[j] = first_to;
        Reg condition = inside.valid() ? inside : is_there;
        if (inside.valid() && is_there.valid())
          condition = builder_.value(Opcode::bit_and, Scalar::pred, {inside, is_there});
        if (condition.valid()) {
          loaded[j] = builder_.constant(element_, element_ == Scalar::f32 ? Operand::f32(0)
                                                                          : Operand::bits(0));
          builder_.if_begin(condition);
        } else {
          loaded[j] = builder_.fresh(element_);
        }
        builder_.load(from, is_near ? offset : 0, 1, Cache::readonly, loaded[j]);
        if (condition.valid())
          builder_.end();
      },
      [&](uint32_t j, Reg inside) {
        if (inside.valid())
          builder_.if_begin(inside);
        builder_.store(to[j], places_after(j) * row_bytes_,
                       staged_element_ == element_ ? loaded[j] : widen(builder_, loaded[j]));
        if (inside.valid())
          builder_.end();
      });
  if (!one)
    builder_.end();
}

void CompressedStaging::store_zeros() {
  const uint32_t width = std::min(stream_.columns_per_block, 16 / staged_size_);
  const uint32_t pieces = stream_.columns_per_block / width;
  const uint32_t total = stream_.staged.zero_rows() * pieces;
  const Reg zeros = builder_.fresh_tuple(staged_element_, width);
  for (uint32_t i = 0; i < width; ++i)
    builder_.constant(staged_element_,
                      staged_element_ == Scalar::f32 ? Operand::f32(0) : Operand::bits(0),
                      zeros[i]);
  const bool in_loop = total > schedule_.threads_x;
  const Reg number =
      in_loop ? add(builder_.for_loop(Operand::integer(total), schedule_.threads_x), given_.thread)
              : given_.thread;
  builder_.if_begin(less(number, Operand::integer(total)));
  const Reg row = div(number, pieces);
  const Reg place = builder_.value(
      Opcode::min, Scalar::i32,
      {mul(row, stream_.staged.spacing() + 1), Operand::integer(stream_.staged.count() - 1)});
  Reg at = builder_.index(given_.staged, place, Operand::integer(row_bytes_));
  if (pieces > 1)
    at = builder_.index(at, rem(number, pieces), Operand::integer(width * staged_size_));
  builder_.store(at, 0, zeros, width);
  builder_.end();
  if (in_loop)
    builder_.end();
}

} // namespace sparsertc
