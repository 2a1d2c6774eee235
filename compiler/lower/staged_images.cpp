#include "compiler/lower/staged_images.h"

#include <algorithm>

namespace sparsertc {

using ir::Builder;
using ir::Cache;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

StagedImages::StagedImages(Builder& builder, const SpmmSchedule& schedule, TileArguments& arguments)
    : builder_(builder), schedule_(schedule), convolution_(*schedule.problem.convolution),
      tile_(schedule.tile), arguments_(arguments), region_(staged_region(schedule)),
      element_(element_bytes(schedule.problem.type)),
      source_(builder, arguments.copy_sources,
              RowMap(schedule.problem.layout == Layout::row_major
                         ? static_cast<int64_t>(convolution_.in_pixels()) * element_
                         : element_),
              {}),
      loaded_(tile_.vec), chunks_(builder, (convolution_.channels + tile_.chunk - 1) / tile_.chunk,
                                  tile_.prefetch, [this](uint32_t chunk) { copy_chunk(chunk); }) {}

const std::vector<Reg>& StagedImages::load(uint32_t k) {
  const Tap tap = tap_of(convolution_, k);
  const uint32_t chunk = tap.channel / tile_.chunk;
  chunks_.enter(chunk);
  const uint32_t channel = chunks_.slot(chunk) * tile_.chunk + tap.channel % tile_.chunk;
  const uint32_t row =
      channel * region_.channel + tap.row * convolution_.dilation_h * region_.pitch;
  const uint32_t first = region_.first_column + tap.column * convolution_.dilation_w;
  if (region_.wide) {
    if (vectors_of_ != k / convolution_.filter_width) {
      vectors_of_ = k / convolution_.filter_width;
      vectors_.clear();
    }
    for (uint32_t v = 0; v < tile_.vec; ++v)
      loaded_[v] = load_vector(row, (first + v) / tile_.vec)[(first + v) % tile_.vec];
    return loaded_;
  }
  for (uint32_t v = 0; v < tile_.vec; ++v)
    loaded_[v] = builder_.load(arguments_.staged_columns,
                               int64_t{row + first + v * convolution_.stride_w} * element_);
  return loaded_;
}

Reg StagedImages::load_vector(uint32_t first_of_row, uint32_t vector) {
  if (vectors_.size() <= vector)
    vectors_.resize(vector + 1);
  if (!vectors_[vector].valid())
    vectors_[vector] =
        builder_.load(arguments_.staged_columns,
                      int64_t{first_of_row + vector * tile_.vec} * element_, tile_.vec);
  return vectors_[vector];
}

void StagedImages::copy_chunk(uint32_t chunk) {
  for (uint32_t pass = 0; pass < region_.passes; ++pass) {
    const bool some = pass + 1 == region_.passes && arguments_.copies_last.valid();
    if (some) {
      builder_.if_begin(arguments_.copies_last);
      source_.forget_bases();
    }
    copy_pass(chunk, pass);
    if (some) {
      builder_.end();
      source_.forget_bases();
    }
  }
}

void StagedImages::copy_pass(uint32_t chunk, uint32_t pass) {
  const uint32_t piece = region_.piece * element_;
  const uint32_t begin = chunk * tile_.chunk;
  const uint32_t end = std::min(begin + tile_.chunk, convolution_.channels);
  for (uint32_t channel = begin; channel < end; channel += region_.channels_a_pass) {
    Reg bytes = arguments_.copy_bytes[pass];
    if (channel + region_.channels_a_pass > convolution_.channels) { // beyond the last: zeros
      const Reg is_channel = builder_.compare(ir::Comparison::lt, Scalar::i32, arguments_.copy_row,
                                              Operand::integer(convolution_.channels - channel));
      bytes = builder_.select(Scalar::i32, is_channel, bytes, Operand::integer(0));
    }
    const auto place = source_.at(channel, pass);
    const uint32_t to =
        (chunk % tile_.prefetch * tile_.chunk + channel - begin) * region_.channel * element_ +
        pass * region_.pieces_a_pass * piece;
    builder_.copy_async(arguments_.staged_copies, static_cast<int32_t>(to), place.pointer,
                        static_cast<int32_t>(place.offset), piece, bytes);
  }
}

} // namespace sparsertc
