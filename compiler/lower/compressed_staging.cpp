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
constexpr uint32_t kElementsInFlight = 16, kCopiesInFlight = 16;
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

/// Calls body(row of B, j) for the rows first, first + stride, ..., `in_flight` of them in a
/// round and all of a round before finish(j): `stride` rows are between a thread's. `first` <
/// stride.
template <class Body, class Finish>
void CompressedStaging::for_rows(Reg first, uint32_t stride, uint32_t in_flight, Body body,
                                 Finish finish) {
  const uint32_t rows = stream_.staged.rows;
  const auto round = [&](Reg row, uint32_t count, bool whole) {
    std::vector<Reg> inside(count);
    for (uint32_t j = 0; j < count; ++j) {
      if (!whole)
        inside[j] = less(row, Operand::integer(int64_t{rows} - int64_t{j} * stride));
      body(row, j, inside[j]);
    }
    for (uint32_t j = 0; j < count; ++j)
      finish(j, inside[j]);
  };
  const uint32_t whole = rows / (stride * in_flight);
  if (whole > 0) {
    const Reg i = builder_.for_loop(Operand::integer(int64_t{whole} * stride * in_flight),
                                    stride * in_flight);
    round(add(first, i), in_flight, true);
    builder_.end();
  }
  const uint32_t done = whole * stride * in_flight;
  if (done < rows)
    round(add(first, Operand::integer(done)), ceil_div(rows - done, stride), false);
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
  Reg from, to;
  for_rows(
      div(given_.thread, pieces), stride, kCopiesInFlight,
      [&](Reg row, uint32_t j, Reg inside) {
        const bool is_regular = stride % stream_.staged.spacing() == 0;
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
  const Reg column = one ? builder_.constant(Scalar::i32, Operand::integer(0))
                         : builder_.for_loop(Operand::integer(stream_.columns_per_block), 1);
  const Reg of_b = add(column, given_.block_column);
  const Reg is_there = less(of_b, Operand::integer(*problem_.columns));
  const Reg source = builder_.index(given_.b, of_b, Operand::integer(b_column_bytes_));
  const Reg shared =
      one ? given_.staged : builder_.index(given_.staged, column, Operand::integer(staged_size_));
  std::vector<Reg> loaded(kElementsInFlight), to(kElementsInFlight);
  for_rows(
      given_.thread, schedule_.threads_x, kElementsInFlight,
      [&](Reg row, uint32_t j, Reg inside) {
        const Reg mine = j == 0 ? row : add(row, Operand::integer(j * schedule_.threads_x));
        to[j] = builder_.index(shared, place_of(mine), Operand::integer(row_bytes_));
        loaded[j] = builder_.constant(element_,
                                      element_ == Scalar::f32 ? Operand::f32(0) : Operand::bits(0));
        builder_.if_begin(inside.valid()
                              ? builder_.value(Opcode::bit_and, Scalar::pred, {inside, is_there})
                              : is_there);
        builder_.load(builder_.index(source, mine, Operand::integer(b_row_bytes_)), 0, 1,
                      Cache::readonly, loaded[j]);
        builder_.end();
      },
      [&](uint32_t j, Reg inside) {
        if (inside.valid())
          builder_.if_begin(inside);
        builder_.store(to[j], 0,
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
  const Reg round = builder_.for_loop(Operand::integer(total), schedule_.threads_x);
  const Reg number = add(round, given_.thread);
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
  builder_.end();
}

} // namespace sparsertc
