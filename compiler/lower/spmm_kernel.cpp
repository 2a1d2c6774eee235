#include "compiler/lower/spmm_kernel.h"

namespace sparsertc {

using ir::Builder;
using ir::Comparison;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Space;
using ir::Special;
using ir::Type;

KernelOperands KernelOperands::declare(Builder& builder, const SpmmSchedule& schedule,
                                       KernelManifest& manifest) {
  const auto parameter = [&](const char* name, Type type, ParameterRole role) {
    manifest.parameters.push_back({name, type, role});
    return builder.parameter(type, name);
  };
  const SpmmProblem& problem = schedule.problem;
  const Type element = Type::pointer(Space::device, element_scalar(problem.type));
  KernelOperands operands;
  operands.b = parameter("B", element, ParameterRole::b);
  operands.c = parameter("C", element, ParameterRole::c);
  if (problem.epilogue.bias)
    operands.bias = parameter("bias", element, ParameterRole::bias);
  if (problem.epilogue.residual)
    operands.residual = parameter("residual", element, ParameterRole::residual);
  if (!problem.columns)
    operands.n = parameter("columns", Scalar::i32, ParameterRole::columns);
  else
    operands.n = *problem.columns;
  if (schedule.leading_dimension_parameters) {
    const Reg ldb = parameter("ldb", Scalar::i32, ParameterRole::ldb);
    const Reg ldc = parameter("ldc", Scalar::i32, ParameterRole::ldc);
    const Operand size = Operand::integer(element_bytes(problem.type));
    operands.b_stride = builder.mul(Scalar::i32, ldb, size);
    operands.c_stride = builder.mul(Scalar::i32, ldc, size);
  }
  return operands;
}

void RangeWriter::write_prologue() {
  arguments_.bias = operands_.bias;
  arguments_.b_stride = operands_.b_stride;
  arguments_.c_stride = operands_.c_stride;
  if (!range_.pixels.empty() && schedule_.target.is_host) {
    write_line_pointers();
  } else {
    write_columns();
    // A thread that leaves early leaves the store of its only pointer unguarded.
    if (!leaves_early(schedule_) || inside_.size() > 1)
      arguments_.inside = inside_;
    if (range_.pixels.empty())
      write_matrix_pointers();
    else if (stages_images(schedule_))
      write_image_pointers();
    else
      write_pixel_pointers();
  }
  if (parts_are_threads(schedule_))
    write_partial_pointer();
  if (stages_images(schedule_))
    write_image_staging();
  else if (tile_.stage == Stage::smem)
    write_staging_pointers();
}

Reg RangeWriter::tile_number() {
  Reg block_y = builder_.special(Special::block_y);
  if (tiles_meet_in_clusters(schedule_))
    block_y = builder_.value(Opcode::divu, Scalar::i32, {block_y, Operand::integer(tile_.cluster)});
  if (tile_.groups == 1)
    return block_y;
  const Reg first = builder_.mul(Scalar::i32, block_y, Operand::integer(tile_.groups));
  return builder_.add(Scalar::i32, first, group());
}

Reg RangeWriter::part() {
  if (part_.valid() || !parts_are_threads(schedule_))
    return part_;
  if (tile_.splitk > 1)
    part_ = builder_.special(Special::thread_z);
  if (tiles_meet_in_clusters(schedule_)) {
    const Reg rank =
        builder_.value(Opcode::remu, Scalar::i32,
                       {builder_.special(Special::block_y), Operand::integer(tile_.cluster)});
    part_ = part_.valid()
                ? builder_.add(Scalar::i32, part_,
                               builder_.mul(Scalar::i32, rank, Operand::integer(tile_.splitk)))
                : rank;
  }
  return part_;
}

Reg RangeWriter::thread_x() {
  if (!thread_x_.valid())
    thread_x_ = builder_.special(Special::thread_x);
  return thread_x_;
}

Reg RangeWriter::group() {
  if (!group_.valid())
    group_ = builder_.special(Special::thread_y);
  return group_;
}

Number RangeWriter::block_in_range() {
  return arithmetic_.sub(builder_.special(Special::block_x), first_block_);
}

/// First column of the thread for each pointer; clamped so that every load is inside B. Of
/// convolutions the columns are the output pixels of the range, image after image.
void RangeWriter::write_columns() {
  columns_ =
      range_.pixels.empty()
          ? (schedule_.problem.columns ? operands_.n
                                       : arithmetic_.mul(operands_.n, schedule_.columns_per_n))
          : arithmetic_.mul(operands_.n, static_cast<int64_t>(range_.grid.items));
  const uint32_t width = schedule_.neighbouring_columns || stages_images(schedule_) ? tile_.vec : 1;
  const Reg block = block_in_range().reg();
  block_column_ = builder_.mul(Scalar::i32, block, Operand::integer(schedule_.columns_per_block()));
  Reg first;
  if (width == 1)
    first = builder_.add(Scalar::i32, block_column_, thread_x());
  else
    first = builder_.add(Scalar::i32, block_column_,
                         builder_.mul(Scalar::i32, thread_x(), Operand::integer(width)));
  const Number last = schedule_.guarded ? arithmetic_.sub(columns_, width) : Number(0);
  for (uint32_t v = 0; v < tile_.vec; v += width) {
    Reg column = v == 0
                     ? first
                     : builder_.add(Scalar::i32, first, Operand::integer(v * schedule_.threads_x));
    if (schedule_.guarded) {
      inside_.push_back(builder_.compare(Comparison::lt, Scalar::i32, column, columns_.operand()));
      column = builder_.value(Opcode::min, Scalar::i32, {column, last.operand()});
    }
    thread_columns_.push_back(column);
  }
}

void RangeWriter::write_matrix_pointers() {
  const SpmmProblem& problem = schedule_.problem;
  const int64_t size = element_bytes(problem.type);
  const bool row_major = problem.layout == Layout::row_major;
  const Operand b_step =
      Operand::integer(row_major ? size : static_cast<int64_t>(problem.ldb) * size);
  const Operand c_step =
      Operand::integer(row_major ? size : static_cast<int64_t>(problem.ldc) * size);
  for (Reg column : thread_columns_) {
    if (tile_.stage == Stage::global)
      arguments_.b.push_back(builder_.index(operands_.b, column, b_step));
    arguments_.c.push_back(builder_.index(operands_.c, column, c_step));
    if (problem.epilogue.residual)
      arguments_.residual.push_back(builder_.index(operands_.residual, column, c_step));
  }
}

void RangeWriter::add_pixel(const PixelWriter& writer, const PixelWriter::Pixel& pixel) {
  arguments_.b.push_back(writer.input(operands_.b, pixel));
  arguments_.c.push_back(writer.output(operands_.c, pixel));
  if (schedule_.problem.epilogue.residual)
    arguments_.residual.push_back(writer.output(operands_.residual, pixel));
  if (schedule_.asks_taps)
    arguments_.taps = writer.taps(pixel);
}

void RangeWriter::write_pixel_pointers() {
  const PixelWriter writer(builder_, schedule_, range_);
  for (Reg column : thread_columns_)
    add_pixel(writer, writer.of_item(column));
}

/// Host: lanes side by side along a line of pixels.
void RangeWriter::write_line_pointers() {
  const PixelWriter writer(builder_, schedule_, range_);
  add_pixel(writer, writer.of_block(block_in_range()));
  const auto spread = [&](std::vector<Reg>& pointers, int64_t step) {
    if (pointers.empty())
      return;
    if (!writer.lanes_share_pixel())
      pointers[0] = builder_.index(pointers[0], thread_x(), Operand::integer(step));
    for (uint32_t v = 1; v < tile_.vec; ++v)
      pointers.push_back(
          writer.lanes_share_pixel()
              ? pointers[0]
              : builder_.offset(pointers[0], Operand::integer(step * v * schedule_.threads_x)));
  };
  spread(arguments_.b, writer.input_step());
  spread(arguments_.c, writer.output_step());
  spread(arguments_.residual, writer.output_step());
}

/// Shared memory holds [group][part][row][column of the thread][thread].
void RangeWriter::write_partial_pointer() {
  const int64_t size = ir::size_in_bytes(accumulator_scalar(schedule_.problem.type));
  const int64_t group_bytes = size * tile_.splitk * tile_.rows * schedule_.columns_per_block();
  Reg pointer = builder_.address(shared_.partial);
  if (tile_.groups > 1)
    pointer = builder_.index(pointer, group(), Operand::integer(group_bytes));
  arguments_.partial = builder_.index(pointer, thread_x(), Operand::integer(size));
  if (tiles_meet_in_clusters(schedule_))
    return;
  // Barrier 0 is the whole block's.
  arguments_.barrier = tile_.groups > 1 ? builder_.add(Scalar::i32, group(), Operand::integer(1))
                                        : builder_.constant(Scalar::i32, Operand::integer(1));
}

/// Thread q of the block copies pieces q, q + threads, ... of a chunk; a row of the chunk has
/// `pieces` of them.
void RangeWriter::write_staging_pointers() {
  const SpmmProblem& problem = schedule_.problem;
  const uint32_t size = element_bytes(problem.type);
  const uint32_t piece = staging_piece_bytes(schedule_);
  const uint32_t row_bytes = schedule_.columns_per_block() * size;
  const uint32_t pieces = row_bytes / piece;
  const uint32_t width = schedule_.neighbouring_columns ? tile_.vec : 1;
  Reg q = thread_x();
  if (tile_.groups > 1)
    q = builder_.add(Scalar::i32, q,
                     builder_.mul(Scalar::i32, group(), Operand::integer(schedule_.threads_x)));
  const Operand divisor = Operand::integer(pieces);
  arguments_.copy_row = builder_.value(Opcode::divu, Scalar::i32, {q, divisor});
  const Reg in_row = builder_.value(Opcode::remu, Scalar::i32, {q, divisor});
  const Reg stage = builder_.address(shared_.stage);
  arguments_.staged_columns = builder_.index(stage, thread_x(), Operand::integer(width * size));
  const Reg row_start = builder_.index(stage, arguments_.copy_row, Operand::integer(row_bytes));
  arguments_.staged_copies = builder_.index(row_start, in_row, Operand::integer(piece));
  // Pieces beyond N copy the last piece of the row: nobody uses what they hold.
  Reg column = builder_.add(Scalar::i32, block_column_,
                            builder_.mul(Scalar::i32, in_row, Operand::integer(piece / size)));
  if (schedule_.guarded)
    column = builder_.value(Opcode::min, Scalar::i32,
                            {column, arithmetic_.sub(columns_, piece / size).operand()});
  const Operand stride = arguments_.b_stride.valid() ? Operand(arguments_.b_stride)
                                                     : Operand::integer(b_row_bytes(schedule_));
  const Reg row_of_b = builder_.index(operands_.b, arguments_.copy_row, stride);
  arguments_.copy_sources = {builder_.index(row_of_b, column, Operand::integer(size))};
}

/// A thread of a block that stages images has `vec` positions of a line side by side, of which
/// those beyond the output's width are not stored.
void RangeWriter::write_image_pointers() {
  const Convolution& c = *schedule_.problem.convolution;
  const StagedRegion region = staged_region(schedule_);
  const int64_t size = element_bytes(schedule_.problem.type);
  const PixelWriter writer(builder_, schedule_, range_);
  const int64_t step = writer.output_step();
  const PixelWriter::Pixel pixel = writer.of_item(thread_columns_[0]);
  arguments_.inside.clear();
  for (uint32_t v = 0; v < tile_.vec; ++v) {
    const Number column = arithmetic_.add(pixel.column, v);
    arguments_.c.push_back(v == 0 ? writer.output(operands_.c, pixel)
                                  : builder_.offset(arguments_.c[0], Operand::integer(v * step)));
    if (schedule_.problem.epilogue.residual) // which is loaded without asking
      arguments_.residual.push_back(
          writer.output(operands_.residual,
                        {pixel.image, pixel.row, arithmetic_.min(column, c.out_width() - 1)}));
    if (!schedule_.guarded)
      continue;
    Reg inside = inside_[0];
    if (region.line != c.out_width())
      inside = builder_.value(
          Opcode::bit_and, Scalar::pred,
          {inside, builder_.compare(Comparison::lt, Scalar::i32, arithmetic_.in_register(column),
                                    Operand::integer(c.out_width()))});
    arguments_.inside.push_back(inside);
  }
  const auto row_of = [&](const PixelWriter::Pixel& of) {
    return arithmetic_.add(arithmetic_.mul(of.image, region.image_rows),
                           arithmetic_.mul(of.row, c.stride_h));
  };
  const uint32_t last = (c.out_width() - 1) / tile_.vec * tile_.vec;
  first_row_ = row_of(writer.of_item(block_column_));
  const Number place =
      arithmetic_.add(arithmetic_.mul(arithmetic_.sub(row_of(pixel), first_row_), region.pitch),
                      arithmetic_.mul(arithmetic_.min(pixel.column, last), c.stride_w));
  arguments_.staged_columns = builder_.index(
      builder_.address(shared_.stage), arithmetic_.in_register(place), Operand::integer(size));
}

/// Where a thread's pieces of a channel come from and go to (StagedRegion).
void RangeWriter::write_image_staging() {
  const SpmmProblem& problem = schedule_.problem;
  const Convolution& c = *problem.convolution;
  const StagedRegion region = staged_region(schedule_);
  const int64_t size = element_bytes(problem.type);
  const bool nchw = problem.layout == Layout::row_major;
  const auto pixels = static_cast<int64_t>(c.in_pixels());
  const auto leading = static_cast<int64_t>(problem.ldb);
  Reg q = thread_x();
  if (tile_.groups > 1)
    q = builder_.add(Scalar::i32, q,
                     builder_.mul(Scalar::i32, group(), Operand::integer(schedule_.threads_x)));
  if (parts_are_threads(schedule_))
    q = builder_.add(
        Scalar::i32, q,
        builder_.mul(Scalar::i32, part(), Operand::integer(schedule_.threads_x * tile_.groups)));
  if (region.last_pass_threads != copying_threads(schedule_))
    arguments_.copies_last = builder_.compare(Comparison::lt, Scalar::i32, q,
                                              Operand::integer(region.last_pass_threads));
  Reg to = builder_.address(shared_.stage);
  Reg source = operands_.b;
  if (region.channels_a_pass > 1) {
    const Operand divisor =
        Operand::integer(nchw ? region.copied / region.piece : region.channels_a_pass);
    const Reg quotient = builder_.value(Opcode::divu, Scalar::i32, {q, divisor});
    const Reg rest = builder_.value(Opcode::remu, Scalar::i32, {q, divisor});
    arguments_.copy_row = nchw ? quotient : rest;
    q = nchw ? rest : quotient;
    to = builder_.index(to, arguments_.copy_row, Operand::integer(region.channel * size));
    source =
        builder_.index(source, arguments_.copy_row, Operand::integer((nchw ? pixels : 1) * size));
  }
  arguments_.staged_copies = builder_.index(to, q, Operand::integer(region.piece * size));
  const bool one_image = problem.columns == 1u;
  for (uint32_t pass = 0; pass < region.passes; ++pass) {
    const Number element =
        arithmetic_.mul(arithmetic_.add(q, int64_t{pass} * region.pieces_a_pass), region.piece);
    const Number row = arithmetic_.add(first_row_, arithmetic_.div(element, region.pitch));
    const Number image = one_image ? Number(0) : arithmetic_.div(row, region.image_rows);
    const Number in_image = one_image ? row : arithmetic_.rem(row, region.image_rows);
    const Number y = arithmetic_.sub(in_image, region.pad_top);
    const Number x = arithmetic_.sub(arithmetic_.rem(element, region.pitch), region.pad_left);
    const auto below = [&](Number a, Number b) {
      return builder_.compare(Comparison::ltu, Scalar::i32, arithmetic_.in_register(a),
                              b.operand());
    };
    const auto both = [&](Reg a, Reg b) {
      return builder_.value(Opcode::bit_and, Scalar::pred, {a, b});
    };
    Reg inside = both(below(y, c.height), below(x, c.width));
    if (!one_image)
      inside = both(inside, below(image, operands_.n));
    const auto if_inside = [&](Number a) {
      return builder_.select(Scalar::i32, inside, arithmetic_.in_register(a), Operand::integer(0));
    };
    Reg from = source;
    if (!one_image)
      from = builder_.index(from, if_inside(image),
                            Operand::integer((nchw ? 1 : pixels) * leading * size));
    from = builder_.index(from, if_inside(arithmetic_.add(arithmetic_.mul(y, c.width), x)),
                          Operand::integer((nchw ? 1 : leading) * size));
    arguments_.copy_sources.push_back(from);
    arguments_.copy_bytes.push_back(if_inside(region.piece * size));
  }
}

} // namespace sparsertc
