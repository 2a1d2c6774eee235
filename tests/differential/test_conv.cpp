// Random and edge-shaped convolutions: geometry, groups, layouts, types, strategies, epilogues.
#include "tests/differential/spmm_roads.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <limits>

using namespace sparsertc;
using namespace sparsertc::test;

namespace {

constexpr uint64_t kSeed = 20240301;
constexpr DataType kTypes[] = {DataType::f32, DataType::f16, DataType::bf16, DataType::f64};
constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,
                                       Activation::silu};
constexpr const char* kTargets[] = {"sm_80", "sm_90", "sm_120"};

const char* const kTiles[] = {
    "",
    "strategy=unrolled",
    "strategy=unrolled,rows=1,vec=1,warps=1,groups=1",
    "strategy=unrolled,rows=5,vec=2,warps=2,groups=2",
    "strategy=unrolled,rows=7,vec=3,warps=1,prefetch=3",
    "strategy=unrolled,rows=6,vec=2,warps=1,groups=3,splitk=3",
    "strategy=unrolled,rows=8,warps=1,weights=const",
    "strategy=streamed",
    "strategy=streamed,rows=4,vec=2,warps=1,groups=2,prefetch=4",
    "strategy=streamed,rows=3,vec=1,warps=1,groups=2,splitk=4",
};

struct Filter {
  uint32_t height, width;
};
constexpr Filter kFilters[] = {{1, 1}, {3, 3}, {3, 3}, {5, 5}, {7, 7}, {1, 5}, {3, 1}, {2, 4}};

Convolution random_convolution(Random& random) {
  Convolution c;
  const Filter filter = random.pick(kFilters);
  c.filter_height = filter.height;
  c.filter_width = filter.width;
  c.height = 1 + random.below(12);
  c.width = 1 + random.below(12);
  const auto one_or = [&](uint32_t other) {
    return random.chance(0.6) ? 1 : 1 + random.below(other);
  };
  c.stride_h = one_or(3);
  c.stride_w = random.chance(0.7) ? c.stride_h : one_or(3);
  c.dilation_h = one_or(3);
  c.dilation_w = random.chance(0.7) ? c.dilation_h : one_or(3);
  if (random.chance(0.7)) { // as networks pad
    c.pad_top = c.pad_bottom = c.window_height() / 2;
    c.pad_left = c.pad_right = c.window_width() / 2;
  } else {
    c.pad_top = random.below(5);
    c.pad_bottom = random.below(5);
    c.pad_left = random.below(5);
    c.pad_right = random.below(5);
  }
  // The window fits into the padded image.
  c.height = std::max(c.height, c.window_height() -
                                    std::min(c.window_height() - 1, c.pad_top + c.pad_bottom));
  c.width = std::max(c.width,
                     c.window_width() - std::min(c.window_width() - 1, c.pad_left + c.pad_right));
  c.taps = random.chance(0.5) ? TapOrder::crs : TapOrder::rsc;
  return c;
}

Matrix random_filters(Random& random, uint32_t filters, uint32_t group_channels,
                      const Convolution& c, DataType type, RowShape shape, ValueShape values) {
  const ptx::FloatFormat format = format_of(type);
  return random_sparse(random, filters, group_channels * c.filter_height * c.filter_width, shape,
                       values, format.minimum, format.maximum);
}

SpmmCase random_case(Random& random) {
  SpmmProblem problem;
  Convolution c = random_convolution(random);
  c.groups = random.chance(0.6) ? 1 : 1 + random.below(4);
  const bool depthwise = c.groups > 1 && random.chance(0.5);
  const uint32_t group_channels = depthwise ? 1 : 1 + random.below(6);
  const uint32_t filters = c.groups * (1 + random.below(depthwise ? 2 : 8));
  problem.convolution = c;
  problem.type = random.pick(kTypes);
  problem.layout = random.chance(0.6) ? Layout::row_major : Layout::column_major;
  constexpr uint32_t kImages[] = {1, 1, 1, 2, 3, 0};
  const uint32_t images = random.pick(kImages);
  if (random.chance(0.6))
    problem.columns = images;
  problem.epilogue = {random.chance(0.4), random.chance(0.3), random.pick(kActivations)};
  const ValueShape values = random.pick(kValueShapes);
  SpmmCase test = make_case(random,
                            random_filters(random, filters, group_channels, c, problem.type,
                                           random.pick(kRowShapes), values),
                            problem, images, values, random.chance(0.3) ? 1 + random.below(9) : 0);
  test.edge = random.chance(0.5) ? Edge::begin : Edge::end;
  return test;
}

void report(const RoadCounts& counts) {
  fmt::print("{} convolutions, {} refused tiles, {:.1f} million PTX instructions\n", counts.run,
             counts.refused, static_cast<double>(counts.instructions) * 1e-6);
}

} // namespace

TEST_CASE("random convolutions by all roads") {
  Random random(test_seed(kSeed));
  RoadCounts counts;
  for (uint32_t number = 0; number < 120; ++number) {
    CAPTURE(number);
    const SpmmCase test = random_case(random);
    check_roads(test, random.pick(kTiles), random.pick(kTargets),
                {random.chance(0.2), random.chance(0.25)}, counts);
  }
  report(counts);
  CHECK(counts.run > 100);
}
