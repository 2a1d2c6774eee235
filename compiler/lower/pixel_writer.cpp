#include "compiler/lower/pixel_writer.h"

namespace sparsertc {

using ir::Comparison;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

Number PixelWriter::coordinate(const Coordinates& coordinates, Number i) const {
  const Number plain = arithmetic_.add(i, coordinates.first);
  if (i.is_known())
    return coordinates.at(static_cast<uint32_t>(i.value()));
  if (coordinates.is_run())
    return arithmetic_.add(plain, coordinates.split == 0 ? coordinates.skip : 0);
  const Reg before =
      builder_.compare(Comparison::lt, Scalar::i32, i.reg(), Operand::integer(coordinates.split));
  return choose(before, plain, arithmetic_.add(plain, coordinates.skip));
}

Reg PixelWriter::choose(Reg first, Number a, Number b) const {
  return builder_.select(Scalar::i32, first, arithmetic_.in_register(a), b.operand());
}

PixelWriter::Position PixelWriter::position(const PixelSet& set, Number line, Number along) const {
  return {coordinate(set.rows, set.lines_are_columns ? along : line),
          coordinate(set.columns, set.lines_are_columns ? line : along)};
}

PixelWriter::Pixel PixelWriter::of_item(Reg item) const {
  const auto items = static_cast<uint32_t>(range_.grid.items);
  const Number image = is_one_image() ? Number(0) : arithmetic_.div(item, items);
  const Number in_image = is_one_image() ? Number(item) : arithmetic_.rem(item, items);
  // What a set that is not the item's makes of the number is not used.
  Position found = {0, 0};
  uint64_t end = range_.grid.items;
  for (size_t i = range_.pixels.size(); i-- > 0;) {
    const PixelSet& set = range_.pixels[i];
    const uint64_t begin = end - set.count();
    const Number number = arithmetic_.sub(in_image, static_cast<int64_t>(begin));
    const bool one_line = set.line().count == 1;
    const Number line = one_line ? Number(0) : arithmetic_.div(number, set.along().count);
    const Number along = one_line ? number : arithmetic_.rem(number, set.along().count);
    const Position place = position(set, line, along);
    if (i + 1 == range_.pixels.size()) {
      found = place;
    } else {
      const Reg here = builder_.compare(Comparison::lt, Scalar::i32, in_image.reg(),
                                        Operand::integer(static_cast<int64_t>(end)));
      found = {choose(here, place.row, found.row), choose(here, place.column, found.column)};
    }
    end = begin;
  }
  return {image, found.row, found.column};
}

bool PixelWriter::lanes_share_pixel() const {
  return range_.pixels.front().is_taken_singly(schedule_.columns_per_block());
}

PixelWriter::Pixel PixelWriter::of_block(Number block) const {
  const PixelSet& set = range_.pixels.front();
  const auto blocks = static_cast<uint32_t>(range_.grid.items);
  const Number image = is_one_image() ? Number(0) : arithmetic_.div(block, blocks);
  const Number number = is_one_image() ? block : arithmetic_.rem(block, blocks);
  const uint32_t length = set.along().count;
  const uint32_t step = lanes_share_pixel() ? 1 : schedule_.columns_per_block();
  const uint32_t parts = (length + step - 1) / step;
  const Number line = set.line().count == 1 ? Number(0) : arithmetic_.div(number, parts);
  const Number part = set.line().count == 1 ? number : arithmetic_.rem(number, parts);
  Number along = arithmetic_.mul(part, step);
  if (length % step != 0) // the last part begins earlier, and computes some pixels again
    along = arithmetic_.min(along, int64_t{length} - step);
  const Position place = position(set, line, along);
  return {image, place.row, place.column};
}

int64_t PixelWriter::pixel_bytes(uint64_t leading) const {
  const int64_t element = element_bytes(schedule_.problem.type);
  return schedule_.problem.layout == Layout::row_major ? element
                                                       : static_cast<int64_t>(leading) * element;
}

/// The first pixel of the image.
Reg PixelWriter::in_image(Reg base, Number image, uint64_t pixels, uint64_t leading) const {
  if (image.is(0))
    return base;
  const bool nchw = schedule_.problem.layout == Layout::row_major;
  const int64_t bytes = static_cast<int64_t>(leading) * element_bytes(schedule_.problem.type) *
                        static_cast<int64_t>(nchw ? 1 : pixels);
  return builder_.index(base, arithmetic_.in_register(image), Operand::integer(bytes));
}

Reg PixelWriter::input(Reg b, const Pixel& pixel) const {
  const Convolution& c = convolution_;
  const uint64_t leading = schedule_.problem.ldb;
  const Number down = arithmetic_.mul(pixel.row, int64_t{c.stride_h} * c.width);
  const Number right = arithmetic_.mul(pixel.column, c.stride_w);
  const Number number =
      arithmetic_.sub(arithmetic_.add(down, right), int64_t{c.pad_top} * c.width + c.pad_left);
  const Reg first = in_image(b, pixel.image, c.in_pixels(), leading);
  return builder_.index(first, arithmetic_.in_register(number),
                        Operand::integer(pixel_bytes(leading)));
}

Reg PixelWriter::output(Reg c, const Pixel& pixel) const {
  const uint64_t leading = schedule_.problem.ldc;
  const Number number =
      arithmetic_.add(arithmetic_.mul(pixel.row, convolution_.out_width()), pixel.column);
  const Reg first = in_image(c, pixel.image, convolution_.out_pixels(), leading);
  return builder_.index(first, arithmetic_.in_register(number),
                        Operand::integer(pixel_bytes(leading)));
}

int64_t PixelWriter::input_step() const {
  const Convolution& c = convolution_;
  return pixel_bytes(schedule_.problem.ldb) *
         (range_.pixels.front().lines_are_columns ? int64_t{c.stride_h} * c.width : c.stride_w);
}

int64_t PixelWriter::output_step() const {
  return pixel_bytes(schedule_.problem.ldc) *
         (range_.pixels.front().lines_are_columns ? convolution_.out_width() : 1);
}

/// Sets the bits of the taps start, start + dilation, ... that lie in [0, size).
void PixelWriter::add_taps(std::vector<Number>& words, Number start, uint32_t count,
                           uint32_t dilation, uint32_t size, uint32_t first_bit,
                           const std::vector<Inside>& inside) const {
  for (uint32_t i = 0; i < count; ++i) {
    Number& word = words[(first_bit + i) / 32];
    const auto bit = static_cast<int32_t>(1u << (first_bit + i) % 32);
    if (inside[i] == Inside::never)
      continue;
    if (inside[i] == Inside::always || start.is_known()) {
      const bool set =
          inside[i] == Inside::always || (start.value() + int64_t{i} * dilation >= 0 &&
                                          start.value() + int64_t{i} * dilation < size);
      if (set && word.is_known())
        word =
            static_cast<int32_t>(static_cast<uint32_t>(word.value()) | static_cast<uint32_t>(bit));
      else if (set)
        word = builder_.value(Opcode::bit_or, Scalar::i32, {word.reg(), Operand::integer(bit)});
      continue;
    }
    const Number at = arithmetic_.add(start, int64_t{i} * dilation);
    const Reg is_inside =
        builder_.compare(Comparison::ltu, Scalar::i32, at.reg(), Operand::integer(size));
    const Reg with =
        word.is_known()
            ? builder_.constant(Scalar::i32, Operand::integer(static_cast<int32_t>(
                                                 static_cast<uint32_t>(word.value()) |
                                                 static_cast<uint32_t>(bit))))
            : builder_.value(Opcode::bit_or, Scalar::i32, {word.reg(), Operand::integer(bit)});
    word = builder_.select(Scalar::i32, is_inside, with, word.operand());
  }
}

std::vector<Reg> PixelWriter::taps(const Pixel& pixel) const {
  const Convolution& c = convolution_;
  const TapBits bits(c);
  std::vector<Number> words(bits.words(), 0);
  // Over all sets of the range: asked for this pixel only where they disagree.
  const auto over_sets = [&](uint32_t count, auto inside_of_set) {
    std::vector<Inside> all;
    for (uint32_t i = 0; i < count; ++i) {
      Inside inside = inside_of_set(range_.pixels.front(), i);
      for (const PixelSet& set : range_.pixels)
        if (inside_of_set(set, i) != inside)
          inside = Inside::sometimes;
      all.push_back(inside);
    }
    return all;
  };
  add_taps(words, arithmetic_.sub(arithmetic_.mul(pixel.row, c.stride_h), c.pad_top),
           c.filter_height, c.dilation_h, c.height, bits.row(0),
           over_sets(c.filter_height,
                     [&](const PixelSet& set, uint32_t r) { return row_inside(c, set.rows, r); }));
  add_taps(words, arithmetic_.sub(arithmetic_.mul(pixel.column, c.stride_w), c.pad_left),
           c.filter_width, c.dilation_w, c.width, bits.column(0),
           over_sets(c.filter_width, [&](const PixelSet& set, uint32_t s) {
             return column_inside(c, set.columns, s);
           }));
  std::vector<Reg> registers;
  for (const Number& word : words)
    registers.push_back(arithmetic_.in_register(word));
  return registers;
}

} // namespace sparsertc
