// Random and edge-shaped convolutions: geometry, groups, layouts, types, strategies, epilogues.
#include "tests/differential/spmm_roads.h"

#include "compiler/input/read.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

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
    "strategy=unrolled,rows=5,vec=2,warps=1,groups=2,cluster=2",
    "strategy=streamed,rows=3,vec=1,warps=1,splitk=2,cluster=2",
    "strategy=unrolled,rows=6,vec=1,warps=1,splitk=2,border=own",
    "strategy=unrolled,rows=3,warps=1,groups=2,order=similar",
    "strategy=streamed,rows=2,warps=1,border=shared",
};

/// Rounds of copies: fewer threads than elements of a channel's region, and more.
const char* const kStagedTiles[] = {
    "stage=smem",
    "stage=smem,rows=8,warps=1,chunk=1,prefetch=2",
    "stage=smem,rows=3,vec=2,warps=1,chunk=2",
    "stage=smem,rows=5,vec=4,warps=1,groups=2,chunk=3,prefetch=2",
    "stage=smem,rows=4,vec=3,warps=2,groups=3,chunk=4,prefetch=4",
    "stage=smem,rows=4,warps=3,groups=8,chunk=6,weights=const",
    "stage=smem,rows=9,warps=1,groups=2,splitk=3,chunk=4",
    "stage=smem,rows=6,vec=2,warps=2,splitk=2,prefetch=2",
    "stage=smem,rows=4,warps=2,groups=2,chunk=3,order=similar",
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

SpmmCase random_case(Random& random, bool staged = false) {
  SpmmProblem problem;
  Convolution c = random_convolution(random);
  c.groups = random.chance(0.6) ? 1 : 1 + random.below(4);
  const bool depthwise = c.groups > 1 && random.chance(0.5);
  const uint32_t group_channels = depthwise ? 1 : 1 + random.below(6);
  const uint32_t filters = c.groups * (1 + random.below(depthwise ? 2 : 8));
  problem.convolution = c;
  problem.type = random.pick(kTypes);
  const bool can_be_nhwc = !staged || element_bytes(problem.type) >= 4;
  problem.layout = !can_be_nhwc || random.chance(0.6) ? Layout::row_major : Layout::column_major;
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
  report("convolutions", counts);
  CHECK(counts.run > 100);
}

namespace {

struct Shape {
  uint32_t filters, group_channels, images;
  Convolution convolution;
};

Convolution geometry(uint32_t height, uint32_t width, uint32_t filter_height, uint32_t filter_width,
                     uint32_t pad = 0) {
  Convolution c;
  c.height = height;
  c.width = width;
  c.filter_height = filter_height;
  c.filter_width = filter_width;
  c.pad_top = c.pad_bottom = c.pad_left = c.pad_right = pad;
  return c;
}

SpmmCase case_of(Random& random, const Shape& shape, DataType type, RowShape rows,
                 Layout layout = Layout::row_major, uint32_t nonfinite = 0) {
  SpmmProblem problem;
  problem.convolution = shape.convolution;
  problem.type = type;
  problem.layout = layout;
  problem.columns = shape.images;
  SpmmCase test = make_case(random,
                            random_filters(random, shape.filters, shape.group_channels,
                                           shape.convolution, type, rows, ValueShape::unit),
                            problem, shape.images, ValueShape::unit, 0, nonfinite);
  test.edge = random.chance(0.5) ? Edge::begin : Edge::end;
  return test;
}

constexpr const char* kBothStrategies[] = {"strategy=unrolled", "strategy=streamed"};

} // namespace

TEST_CASE("every tile on an image with interior and border") {
  Random random(test_seed(kSeed) + 1);
  RoadCounts counts;
  Shape shape = {37, 5, 2, geometry(15, 13, 3, 3, 1)};
  for (const char* tile : kTiles)
    for (const DataType type : kTypes) {
      shape.convolution.taps = random.chance(0.5) ? TapOrder::crs : TapOrder::rsc;
      check_roads(case_of(random, shape, type, RowShape::gaps,
                          random.chance(0.5) ? Layout::row_major : Layout::column_major),
                  tile, "sm_90", {false, type == DataType::bf16}, counts);
    }
  report("convolutions", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("shapes at the edge") {
  Random random(test_seed(kSeed) + 2);
  RoadCounts counts;
  Convolution outside = geometry(2, 3, 2, 2, 4); // corner windows hold padding only
  outside.dilation_h = 2;
  Convolution one_side = geometry(6, 40, 3, 3);
  one_side.pad_left = 5;
  Convolution two_words = geometry(5, 40, 4, 31, 7); // more than 32 rows and columns of taps
  Convolution strided = geometry(9, 9, 3, 3, 1);
  strided.stride_h = strided.stride_w = 2;
  Convolution skipping = geometry(7, 7, 1, 1);
  skipping.stride_h = 4; // one tap, but not every pixel
  Convolution depthwise = geometry(10, 11, 3, 3, 1);
  depthwise.groups = 9;
  const Shape shapes[] = {{1, 1, 1, geometry(1, 1, 1, 1)},
                          {1, 1, 3, geometry(1, 1, 3, 3, 1)},
                          {3, 2, 1, outside},
                          {5, 2, 1, one_side},
                          {2, 1, 1, two_words},
                          {6, 3, 2, strided},
                          {4, 3, 2, skipping},
                          {18, 1, 2, depthwise},
                          {9, 1, 1, depthwise},
                          {7, 4, 1, geometry(9, 5, 1, 1)},
                          {7, 4, 3, geometry(9, 5, 1, 1)},
                          {7, 4, 0, geometry(9, 5, 3, 3, 1)},
                          {0, 4, 1, geometry(9, 5, 3, 3, 1)},
                          {7, 0, 1, geometry(9, 5, 3, 3, 1)},
                          {4, 2, 1, geometry(20, 1, 3, 1, 0)}};
  for (const Shape& shape : shapes)
    for (const char* tile : kBothStrategies)
      for (const Layout layout : {Layout::row_major, Layout::column_major})
        check_roads(case_of(random, shape, DataType::f32,
                            random.chance(0.7) ? RowShape::uniform : RowShape::empty, layout),
                    tile, "sm_90", {}, counts);
  report("convolutions", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("NaN and infinity reach the outputs whose window holds them, and no others") {
  Random random(test_seed(kSeed) + 3);
  RoadCounts counts;
  for (const char* tile : kTiles)
    for (const uint32_t size : {6u, 17u}) { // all border; both
      const Shape shape = {5, 3, 2, geometry(size, size + 1, 3, 3, 1)};
      // Where nothing else is between an output and NaN, one product with it is seen.
      check_roads(
          case_of(random, shape, random.pick(kTypes), RowShape::dense, Layout::row_major, 9), tile,
          "sm_90", {false, size == 6}, counts);
      check_roads(
          case_of(random, shape, random.pick(kTypes), RowShape::gaps, Layout::column_major, 9),
          tile, "sm_90", {}, counts);
    }
  report("convolutions", counts);
}

TEST_CASE("random convolutions with staged images") {
  Random random(test_seed(kSeed) + 7);
  RoadCounts counts;
  for (uint32_t number = 0; number < 120; ++number) {
    CAPTURE(number);
    SpmmCase test = random_case(random, true);
    check_roads(test, random.pick(kStagedTiles), random.pick(kTargets),
                {random.chance(0.2), random.chance(0.25)}, counts);
  }
  report("convolutions", counts);
  CHECK(counts.run > 60); // refused: halves with images of odd width
}

TEST_CASE("every staged tile, with NaN and infinity beside the padding") {
  Random random(test_seed(kSeed) + 8);
  RoadCounts counts;
  Convolution strided = geometry(13, 16, 3, 3, 1);
  strided.stride_h = strided.stride_w = 2;
  Convolution one_side = geometry(6, 18, 3, 3);
  one_side.pad_left = 3;
  one_side.pad_bottom = 2;
  const Shape shapes[] = {{37, 5, 2, geometry(15, 14, 3, 3, 1)},
                          {9, 20, 5, geometry(6, 6, 3, 3, 1)},
                          {7, 3, 3, geometry(1, 2, 3, 3, 1)},
                          {6, 7, 2, strided},
                          {5, 9, 1, one_side}};
  for (const Shape& shape : shapes)
    for (const char* tile : kStagedTiles)
      for (const DataType type : kTypes)
        for (const Layout layout : {Layout::row_major, Layout::column_major}) {
          if (layout == Layout::column_major && element_bytes(type) < 4)
            continue; // refused
          check_roads(case_of(random, shape, type,
                              random.chance(0.5) ? RowShape::gaps : RowShape::dense, layout,
                              random.chance(0.5) ? 0 : 9),
                      tile, "sm_90", {false, type == DataType::bf16}, counts);
        }
  report("convolutions", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("products of convolutions gathered in half precision") {
  Random random(test_seed(kSeed) + 5);
  RoadCounts counts;
  for (const DataType type : {DataType::f16, DataType::bf16})
    for (const uint32_t terms : {1u, 3u, 8u})
      for (const char* tile :
           {"strategy=unrolled,rows=8,vec=1,warps=1", "strategy=unrolled,rows=8,vec=2,warps=1",
            "strategy=streamed", "strategy=unrolled,rows=4,vec=1,warps=1,splitk=2",
            "stage=smem,rows=4,vec=2,warps=1"}) {
        SpmmProblem problem;
        problem.convolution = geometry(9, 16, 3, 3, 1);
        problem.type = type;
        problem.half_terms = terms;
        problem.columns = 2;
        const SpmmCase test = make_case(random,
                                        random_filters(random, 9, 5, *problem.convolution, type,
                                                       RowShape::uniform, ValueShape::unit),
                                        problem, 2, ValueShape::unit, 0);
        check_roads(test, tile, "sm_90", {false, terms == 3}, counts);
      }
  report("convolutions", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("output and input may be slices of larger tensors") {
  Random random(test_seed(kSeed) + 4);
  RoadCounts counts;
  for (const Layout layout : {Layout::row_major, Layout::column_major})
    for (const char* tile : {"strategy=unrolled", "strategy=streamed", "stage=smem"}) {
      SpmmProblem problem;
      problem.convolution = geometry(9, 14, 3, 3, 1);
      problem.layout = layout;
      problem.epilogue = {true, true, Activation::relu};
      const uint32_t images = 3;
      SpmmCase test = make_case(random,
                                random_filters(random, 6, 4, *problem.convolution, DataType::f32,
                                               RowShape::uniform, ValueShape::unit),
                                problem, images, ValueShape::unit, 7);
      test.edge = Edge::end; // nothing after the last channel of the last image may be touched
      check_roads(test, tile, "sm_90", {true, false}, counts);
      test.edge = Edge::begin;
      check_roads(test, tile, "sm_90", {}, counts);
    }
  report("convolutions", counts);
  CHECK(counts.refused == 0);
}

TEST_CASE("convolutions that ask wrongly for their taps are found") {
  Random random(7);
  const Shape shape = {4, 2, 1, geometry(6, 6, 3, 3, 1)};
  const SpmmCase test = case_of(random, shape, DataType::f32, RowShape::dense);
  const auto fault = [&](const std::string& what, const std::string& by) {
    bool found = false;
    const std::string result =
        fault_of_edited(test, "strategy=unrolled,warps=1", "sm_90", [&](std::string& text) {
          for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
            text.replace(at, what.size(), by);
            found = true;
          }
        });
    CHECK(found);
    return result;
  };
  CHECK(fault("setp.eq.s32", "setp.eq.s32") == "");
  CHECK(fault("setp.eq.s32", "setp.ne.s32") != "");
  CHECK(fault("setp.lt.u32", "setp.lt.s32") != ""); // rows above the image taken for inside
  CHECK(fault("selp.b32", "selp.b32") == "");
}

TEST_CASE("real filters by all roads") {
  const char* data = std::getenv("SPARSERTC_DATA");
  const std::filesystem::path folder = std::filesystem::path(data ? data : "") / "weights";
  if (!data || !std::filesystem::exists(folder)) {
    WARN("SKIPPED: SPARSERTC_DATA does not name a folder with weights/");
    return;
  }
  Random random(test_seed(kSeed) + 6);
  RoadCounts counts;
  for (const char* file : {"rn90_3x3_90/filter_bg1.npy.gz", "rn90_3x3_95/filter_bg1.npy.gz"})
    for (const char* tile : {"", "strategy=streamed,rows=2,warps=1"}) {
      SpmmProblem problem;
      problem.convolution = geometry(20, 17, 3, 3, 1);
      problem.columns = 1;
      problem.epilogue = {true, false, Activation::relu};
      const SpmmCase test = make_case(random, read_matrix((folder / file).string(), {}), problem, 1,
                                      ValueShape::unit, 0);
      check_roads(test, tile, "sm_90", {}, counts);
    }
  report("convolutions", counts);
}
