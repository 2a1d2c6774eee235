#include "compiler/lower/panel_rows.h"

#include <algorithm>

namespace sparsertc {
namespace {

using ir::Cache;
using ir::Comparison;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

/// Copies a thread that stand in the code one by one, and pieces that it has in registers at once.
constexpr uint32_t kMostPasses = 48, kMostPieces = 8;
constexpr uint32_t kPieceColumns = 4; ///< of split f32

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

} // namespace

Scalar panel_staged_scalar(const SpmmProblem& problem) {
  const DataType type = panel_operands(problem).type;
  return type == DataType::f32   ? Scalar::f32
         : type == DataType::f16 ? Scalar::f16x2
                                 : Scalar::bf16x2;
}

PanelRows::PanelRows(ir::Builder& builder, const SpmmSchedule& schedule, const Place& place)
    : builder_(builder), arithmetic_(builder), schedule_(schedule), problem_(schedule.problem),
      place_(place), operands_(panel_operands(problem_)), staging_(panel_staging(schedule)),
      size_(element_bytes(problem_.type)), piece_bytes_(panel_copy_bytes(schedule)) {}

Reg PanelRows::less(Reg a, Operand b) {
  return builder_.compare(Comparison::lt, Scalar::i32, a, b);
}
Reg PanelRows::both(Reg a, Reg b) {
  return builder_.value(Opcode::bit_and, Scalar::pred, {a, b});
}
uint32_t PanelRows::passes(uint32_t rows) const {
  return ceil_div(rows, rows_at_once());
}

void PanelRows::commit() {
  if (!operands_.is_split())
    builder_.copy_commit();
}

void PanelRows::wait(uint32_t groups) {
  if (!operands_.is_split())
    builder_.copy_wait(groups);
}

void PanelRows::copy_first(uint32_t first, uint32_t end) {
  if (end > first && piece_bytes_ != 0)
    copy_pieces(front_of(first, end), end - first);
  else if (end > first)
    copy_elements(builder_.constant(Scalar::i32, Operand::integer(first)), end - first, end);
  commit();
}

void PanelRows::begin_rounds(uint32_t row) {
  if (piece_bytes_ == 0) {
    row_ = builder_.constant(Scalar::i32, Operand::integer(row));
    return;
  }
  front_ = front_of(row, schedule_.panels.columns);
  front_.most = schedule_.panels.advance;
  if (!has_shares())
    return;
  raw_place_ = builder_.index(place_.raw, place_.thread, Operand::integer(piece_bytes_));
  raw_ = front_of(row, schedule_.panels.columns);
  raw_.most = front_.most;
  for (uint32_t step = 0; step < shares(); ++step)
    copy_share(step);
  move_on(raw_);
}

void PanelRows::copy_round() {
  const PanelPacking& packing = schedule_.panels;
  if (piece_bytes_ == 0)
    copy_elements(row_, packing.advance, packing.columns);
  else if (!has_shares())
    copy_pieces(front_, packing.advance);
  commit();
}

void PanelRows::end_round() {
  if (piece_bytes_ == 0) {
    builder_.add(Scalar::i32, row_, Operand::integer(schedule_.panels.advance), row_);
    return;
  }
  move_on(front_);
  if (has_shares())
    move_on(raw_);
}

void PanelRows::move_on(Front& front) {
  const Operand advance = Operand::integer(schedule_.panels.advance);
  if (leaps())
    wrapped(add(front.row, int64_t{rows_over(schedule_.panels.advance)}), schedule_.panels.columns,
            front.row);
  else
    builder_.offset(front.source,
                    Operand::integer(int64_t{schedule_.panels.advance} *
                                     static_cast<int64_t>(problem_.ldb) * size_),
                    front.source);
  wrapped(builder_.add(Scalar::i32, front.place, advance), staging_.rows, front.place);
  builder_.sub(Scalar::i32, front.left, advance, front.left);
}

std::pair<uint32_t, uint32_t> PanelRows::share(uint32_t step) const {
  const uint32_t all = passes(schedule_.panels.advance);
  return {step * all / shares(), (step + 1) * all / shares()};
}

void PanelRows::copy_share(uint32_t step) {
  const auto [first, end] = share(step);
  for (uint32_t pass = first; pass < end; ++pass) {
    const uint32_t offset = pass * rows_at_once();
    builder_.if_begin(inside(raw_, offset));
    builder_.copy_async(raw_place_, static_cast<int32_t>(pass * threads() * piece_bytes_),
                        source_of(raw_, offset), 0, piece_bytes_, piece_filled_);
    builder_.end();
  }
  builder_.copy_commit();
}

void PanelRows::split_share(uint32_t step) {
  if (!has_shares())
    return;
  // The copies of the shares behind this one may still be on their way.
  builder_.copy_wait(shares() - 1);
  const auto [first, end] = share(step);
  for (uint32_t begin = first; begin < end; begin += kMostPieces) {
    std::vector<Piece> pieces;
    for (uint32_t pass = begin; pass < std::min(end, begin + kMostPieces); ++pass) {
      const uint32_t offset = pass * rows_at_once();
      Piece piece = piece_of(front_, offset);
      builder_.if_begin(piece.inside);
      builder_.load(raw_place_, int64_t{pass} * threads() * piece_bytes_, kPieceColumns,
                    Cache::normal, piece.values);
      builder_.end();
      pieces.push_back(piece);
    }
    for (const Piece& piece : pieces)
      store_piece(piece);
  }
  copy_share(step);
}

/// A thread has the same piece of several rows.
void PanelRows::set_piece() {
  if (piece_.valid())
    return;
  const uint32_t elements = piece_bytes_ / size_;
  piece_ = arithmetic_.in_register(arithmetic_.rem(place_.thread, pieces_of_row()));
  piece_row_ = arithmetic_.in_register(arithmetic_.div(place_.thread, pieces_of_row()));
  Reg column = add(place_.block_column, arithmetic_.mul(piece_, elements));
  if (schedule_.guarded) {
    // What is beyond N is filled with zeros.
    const Number left = arithmetic_.sub(*problem_.columns, column);
    const Reg bytes = arithmetic_.in_register(arithmetic_.mul(left, size_));
    const Reg positive = builder_.value(Opcode::max, Scalar::i32, {bytes, Operand::integer(0)});
    piece_filled_ = arithmetic_.in_register(arithmetic_.min(positive, piece_bytes_));
    column = arithmetic_.in_register(
        arithmetic_.min(column, (*problem_.columns - 1) / elements * elements));
  }
  piece_source_ = builder_.index(place_.b, column, Operand::integer(size_));
  // Of split f32 a word is a pair of elements of one part.
  const uint32_t staged =
      operands_.is_split() ? elements * element_bytes(operands_.type) : piece_bytes_;
  piece_staged_ = builder_.index(place_.staged, piece_, Operand::integer(staged));
}

PanelRows::Front PanelRows::front_of(uint32_t first, uint32_t end) {
  set_piece();
  const int64_t row_bytes = static_cast<int64_t>(problem_.ldb) * size_;
  Front front;
  if (leaps()) {
    const Reg leapt = arithmetic_.in_register(
        arithmetic_.mul(add(piece_row_, int64_t{first}), schedule_.panels.stride));
    front.row = arithmetic_.in_register(arithmetic_.rem(leapt, schedule_.panels.columns));
    front.source = piece_source_;
  } else {
    front.source =
        builder_.offset(builder_.index(piece_source_, piece_row_, Operand::integer(row_bytes)),
                        Operand::integer(row_bytes * first));
  }
  front.place =
      wrapped(builder_.add(Scalar::i32, piece_row_, Operand::integer(first % staging_.rows)),
              staging_.rows);
  front.left = arithmetic_.in_register(arithmetic_.sub(int64_t{end} - int64_t{first}, piece_row_));
  return front;
}

/// A number below twice `count`, brought below it.
Reg PanelRows::wrapped(Reg number, uint32_t count, Reg result) {
  const Reg before = builder_.sub(Scalar::i32, number, Operand::integer(count));
  return builder_.value(Opcode::minu, Scalar::i32, {number, before}, result);
}

Reg PanelRows::inside(const Front& front, Number offset) {
  const Reg exists = builder_.compare(Comparison::gt, Scalar::i32, front.left, offset.operand());
  if (front.most == UINT32_MAX ||
      (offset.is_known() && offset.value() + rows_at_once() <= front.most))
    return exists;
  return both(exists, less(add(piece_row_, offset), Operand::integer(front.most)));
}

Reg PanelRows::target_of(const Front& front, Number offset) {
  const Reg place = offset.is(0) ? front.place : wrapped(add(front.place, offset), staging_.rows);
  return builder_.index(piece_staged_, place, Operand::integer(staging_.pitch));
}

void PanelRows::copy_pieces(const Front& front, uint32_t rows) {
  const uint32_t at_once = operands_.is_split() ? kMostPieces : 1;
  // `count` passes, the first one `base` rows behind the front's.
  const auto copy = [&](Number base, uint32_t count) {
    std::vector<Piece> pieces;
    for (uint32_t i = 0; i < count; ++i) {
      const Number offset = arithmetic_.add(base, int64_t{i} * rows_at_once());
      if (operands_.is_split())
        pieces.push_back(load_piece(front, offset));
      else
        copy_piece(front, offset);
    }
    for (const Piece& piece : pieces)
      store_piece(piece);
  };
  const uint32_t all = passes(rows);
  if (all > kMostPasses) {
    copy(builder_.for_loop(Operand::integer(rows), at_once * rows_at_once()), at_once);
    builder_.end();
    return;
  }
  for (uint32_t pass = 0; pass < all; pass += at_once)
    copy(pass * rows_at_once(), std::min(at_once, all - pass));
}

/// Pointer to the row `offset` rows behind the front's.
ir::Reg PanelRows::source_of(const Front& front, Number offset) {
  const int64_t row_bytes = static_cast<int64_t>(problem_.ldb) * size_;
  if (leaps()) {
    const uint32_t columns = schedule_.panels.columns;
    Number over = 0;
    if (offset.is_known())
      over = int64_t{rows_over(static_cast<uint64_t>(offset.value()))};
    else
      over = arithmetic_.rem(arithmetic_.mul(offset, schedule_.panels.stride), columns);
    const Reg row = over.is(0) ? front.row : wrapped(add(front.row, over), columns);
    return builder_.index(front.source, row, Operand::integer(row_bytes));
  }
  if (offset.is(0))
    return front.source;
  return offset.is_known()
             ? builder_.offset(front.source, Operand::integer(offset.value() * row_bytes))
             : builder_.index(front.source, offset.reg(), Operand::integer(row_bytes));
}

void PanelRows::copy_piece(const Front& front, Number offset) {
  builder_.if_begin(inside(front, offset));
  builder_.copy_async(target_of(front, offset), 0, source_of(front, offset), 0, piece_bytes_,
                      piece_filled_);
  builder_.end();
}

/// Zeros, where it goes, and whether there is such a row.
PanelRows::Piece PanelRows::piece_of(const Front& front, Number offset) {
  Piece piece;
  piece.inside = inside(front, offset);
  piece.target = target_of(front, offset);
  piece.values = builder_.fresh_tuple(Scalar::f32, kPieceColumns);
  for (uint32_t i = 0; i < kPieceColumns; ++i)
    builder_.constant(Scalar::f32, Operand::f32(0), piece.values[i]);
  return piece;
}

PanelRows::Piece PanelRows::load_piece(const Front& front, Number offset) {
  Piece piece = piece_of(front, offset);
  builder_.if_begin(piece.inside);
  builder_.load(source_of(front, offset), 0, kPieceColumns, Cache::readonly, piece.values);
  builder_.end();
  return piece;
}

void PanelRows::store_piece(const Piece& piece) {
  constexpr uint32_t kWords = 2;
  const std::vector<Reg> low = split(piece.values[0], piece.values[1]);
  const std::vector<Reg> high = split(piece.values[2], piece.values[3]);
  builder_.if_begin(piece.inside);
  for (uint32_t part = 0; part < operands_.parts; ++part) {
    const Reg words = builder_.fresh_tuple(Scalar::bf16x2, kWords);
    builder_.move(low[part], words[0]);
    builder_.move(high[part], words[1]);
    builder_.store(piece.target, int64_t{part} * block_columns() * element_bytes(operands_.type),
                   words, kWords);
  }
  builder_.end();
}

Reg PanelRows::masked(Reg bits) {
  return builder_.value(Opcode::bit_and, Scalar::i32,
                        {bits, Operand::integer(static_cast<int32_t>(0xffff0000u))});
}

/// Pairs of bf16 that add up to two numbers of f32: the upper half of the bits, that of what is
/// left, and the rest, which has 8 bits at most.
std::vector<Reg> PanelRows::split(Reg first, Reg second) {
  std::vector<Reg> parts;
  for (uint32_t part = 0; part < operands_.parts; ++part) {
    const Reg low = builder_.bitcast(Scalar::i32, first);
    const Reg high = masked(builder_.bitcast(Scalar::i32, second));
    const Reg shifted = builder_.value(Opcode::shr, Scalar::i32, {low, Operand::integer(16)});
    parts.push_back(builder_.bitcast(Scalar::bf16x2,
                                     builder_.value(Opcode::bit_or, Scalar::i32, {shifted, high})));
    if (part + 1 == operands_.parts)
      break;
    first = builder_.sub(Scalar::f32, first, builder_.bitcast(Scalar::f32, masked(low)));
    second = builder_.sub(Scalar::f32, second, builder_.bitcast(Scalar::f32, high));
  }
  return parts;
}

/// Where B is not to be had in pieces: a word a thread, of one or two columns.
void PanelRows::copy_elements(Reg first, uint32_t most, uint32_t end) {
  constexpr uint32_t kWord = 4;
  const bool row_major = problem_.layout == Layout::row_major;
  const uint32_t together = kWord / element_bytes(operands_.type);
  const uint32_t words = block_columns() / together;
  const Reg round = builder_.for_loop(Operand::integer(most * words), threads());
  const Reg number = add(round, place_.thread);
  // Neighbouring threads have neighbours in memory.
  const uint32_t inner = row_major ? words : most;
  const Reg quotient = arithmetic_.in_register(arithmetic_.div(number, inner));
  const Reg remainder = arithmetic_.in_register(arithmetic_.rem(number, inner));
  const Reg row = add(first, row_major ? quotient : remainder);
  const Reg word = row_major ? remainder : quotient;
  builder_.if_begin(
      both(less(number, Operand::integer(most * words)), less(row, Operand::integer(end))));
  const int64_t ldb = static_cast<int64_t>(problem_.ldb) * size_;
  Reg row_of_b = row;
  if (leaps())
    row_of_b = arithmetic_.in_register(
        arithmetic_.rem(arithmetic_.mul(row, schedule_.panels.stride), schedule_.panels.columns));
  const Reg source = builder_.index(place_.b, row_of_b, Operand::integer(row_major ? ldb : size_));
  const Reg column = add(place_.block_column, arithmetic_.mul(word, together));
  std::vector<Reg> values;
  for (uint32_t i = 0; i < together; ++i) {
    const Reg mine = add(column, i);
    const Reg loaded =
        builder_.constant(element_scalar(problem_.type),
                          problem_.type == DataType::f32 ? Operand::f32(0) : Operand::bits(0));
    builder_.if_begin(less(mine, Operand::integer(*problem_.columns)));
    builder_.load(builder_.index(source, mine, Operand::integer(row_major ? size_ : ldb)), 0, 1,
                  Cache::readonly, loaded);
    builder_.end();
    values.push_back(loaded);
  }
  const Reg place = arithmetic_.in_register(arithmetic_.rem(row, staging_.rows));
  const Reg to =
      builder_.index(builder_.index(place_.staged, place, Operand::integer(staging_.pitch)), word,
                     Operand::integer(kWord));
  if (operands_.is_split()) {
    const std::vector<Reg> parts = split(values[0], values[1]);
    for (uint32_t part = 0; part < operands_.parts; ++part)
      builder_.store(to, int64_t{part} * block_columns() * element_bytes(operands_.type),
                     parts[part]);
  } else {
    const Scalar pair = panel_staged_scalar(problem_);
    builder_.store(to, 0,
                   together == 1 ? values[0]
                                 : builder_.value(Opcode::pack, pair, {values[0], values[1]}));
  }
  builder_.end();
  builder_.end();
}

} // namespace sparsertc
