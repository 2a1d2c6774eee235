// Convolutions before code: words of --conv, filters as a matrix, interior and border of the
// output, taps, ranges of blocks and counts.
#include "compiler/emit/target.h"
#include "compiler/inspect/spmm_schedule.h"
#include "compiler/inspect/staged_region.h"
#include "compiler/lower/spmm.h"
#include "compiler/lower/spmm_tile.h"
#include "ir/error.h"
#include "ir/verifier.h"
#include "tests/support/scattered_matrix.h"

#include <catch2/catch.hpp>

#include <functional>
#include <map>
#include <set>
#include <utility>

using namespace sparsertc;

namespace {

Convolution parsed(const std::string& words) {
  return parse_convolution(words).convolution;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// A convolution over images of `words`, with filters that have an entry at every place.
SpmmSchedule schedule(const std::string& words, const char* target, const char* tile = "",
                      Layout layout = Layout::row_major, uint32_t filters = 4,
                      uint32_t period = 1) {
  const ConvolutionWords conv = parse_convolution(words);
  SpmmProblem problem;
  problem.convolution = conv.convolution;
  problem.columns = conv.images;
  problem.layout = layout;
  const uint32_t columns = conv.convolution.channels / conv.convolution.groups *
                           conv.convolution.filter_height * conv.convolution.filter_width;
  const Matrix matrix =
      filters_as_matrix(scattered_matrix(filters, columns, period), *problem.convolution);
  return schedule_spmm(matrix, problem, find_target(target), parse_tile_choice(tile));
}

/// All pixels of sets, as (row, column); fails where one occurs twice.
std::set<std::pair<uint32_t, uint32_t>> pixels_of(const std::vector<PixelSet>& sets) {
  std::set<std::pair<uint32_t, uint32_t>> found;
  for (const PixelSet& set : sets)
    for (uint32_t i = 0; i < set.rows.count; ++i)
      for (uint32_t j = 0; j < set.columns.count; ++j)
        CHECK(found.emplace(set.rows.at(i), set.columns.at(j)).second);
  return found;
}

bool is_inside(const Convolution& c, uint32_t oh, uint32_t ow, uint32_t r, uint32_t s) {
  const int64_t y = int64_t{oh} * c.stride_h + int64_t{r} * c.dilation_h - c.pad_top;
  const int64_t x = int64_t{ow} * c.stride_w + int64_t{s} * c.dilation_w - c.pad_left;
  return y >= 0 && y < c.height && x >= 0 && x < c.width;
}

uint64_t count(const ir::Module& module, const std::string& prefix, ir::Opcode opcode) {
  uint64_t found = 0;
  for (const ir::Function& function : module.functions)
    if (function.name.rfind(prefix, 0) == 0)
      for (const ir::Op& op : function.ops)
        found += op.code == opcode ? 1 : 0;
  return found;
}

const char* const kGeometries[] = {
    "H=4,W=4,C=1,R=3,S=3,pad=1",
    "H=1,W=1,C=1,R=3,S=3,pad=1",
    "H=14,W=9,C=1,R=3,S=3,pad=1",
    "H=14,W=14,C=1,R=3,S=3,pad=1,stride=2",
    "H=20,W=17,C=1,R=5,S=5,pad=2x1",
    "H=20,W=17,C=1,R=7,S=7,pad=3,stride=2,dilation=1",
    "H=13,W=30,C=1,R=3,S=3,dilation=3x2,pad_top=2,pad_right=5",
    "H=9,W=12,C=1,R=1,S=5,pad=0x2",
    "H=9,W=12,C=1,R=4,S=1,pad=2x0",
    "H=2,W=2,C=1,R=3,S=3,pad=6",
    "H=8,W=8,C=1,R=3,S=3",
    "H=8,W=8,C=1,R=1,S=1,stride=3,pad=1",
};

} // namespace

TEST_CASE("words of --conv parse, and print so that they parse back") {
  const ConvolutionWords words = parse_convolution(
      "N=3,H=28,W=30,pad=1x2,stride=2,dilation=1x3,groups=4,R=3,S=5,taps=rsc,C=8");
  const Convolution& c = words.convolution;
  CHECK(words.images == 3u);
  CHECK(c.height == 28);
  CHECK(c.width == 30);
  CHECK(c.pad_top == 1);
  CHECK(c.pad_bottom == 1);
  CHECK(c.pad_left == 2);
  CHECK(c.pad_right == 2);
  CHECK(c.stride_h == 2);
  CHECK(c.stride_w == 2);
  CHECK(c.dilation_h == 1);
  CHECK(c.dilation_w == 3);
  CHECK(c.groups == 4);
  CHECK(c.taps == TapOrder::rsc);
  CHECK(c.out_height() == (28 + 2 - 3) / 2 + 1);
  CHECK(c.out_width() == (30 + 4 - 13) / 2 + 1);
  CHECK(parsed(to_string(c)) == c);
  CHECK(!parse_convolution("H=1,W=1,N=dynamic").images);
  CHECK(parse_convolution("H=1,W=1,N=dynamic").images_given);
  CHECK(!parse_convolution("H=1,W=1").images_given);
  const Convolution sides = parsed("H=5,W=5,pad_top=1,pad_bottom=2,pad_left=3,pad_right=4");
  CHECK(sides.pad_top == 1);
  CHECK(sides.pad_bottom == 2);
  CHECK(sides.pad_left == 3);
  CHECK(sides.pad_right == 4);
}

TEST_CASE("words of --conv that are wrong name the word") {
  for (const char* words :
       {"H=4", "W=4", "H=0,W=4", "H=4,W=4,stride=0", "H=4,W=4,dilation=0x1", "H=4,W=4,pad=1x",
        "H=4,W=4,pad=x1", "H=4,W=4,groups=0", "H=4,W=4,R=0", "H=4,W=4,taps=scr", "H=4,W=4,N=-1",
        "H=4,W=4,N=1x1", "H=4,W=4,H=5", "H=4,W=4,pad=1,pad_left=1", "H=4,W=4,pad_left=1,pad=1",
        "H=4,W=4,x=1", "H=4,W=4,stride", "H=99999999,W=1"}) {
    CAPTURE(words);
    CHECK_THROWS_AS(parse_convolution(words), UsageError);
  }
}

TEST_CASE("filters become a matrix over the channels of the whole input") {
  Matrix filters; // two groups of two filters over two channels, 1 x 2 taps
  filters.pattern.rows = 4;
  filters.pattern.columns = 4;
  filters.pattern.row_offset = {0, 4, 5, 5, 7};
  filters.pattern.column_index = {0, 1, 2, 3, 1, 0, 3};
  filters.values = {1, 2, 3, 4, 5, 6, 7};
  Convolution c = parsed("H=4,W=4,R=1,S=2,groups=2");
  const Matrix crs = filters_as_matrix(filters, c);
  CHECK(c.channels == 4);
  CHECK(crs.pattern.columns == 8);
  CHECK(crs.pattern.column_index == std::vector<uint32_t>{0, 1, 2, 3, 1, 4, 7});
  CHECK(crs.values == filters.values);
  // Taps outside, channels inside: column 1 is tap 0 of channel 1.
  c = parsed("H=4,W=4,R=1,S=2,groups=2,taps=rsc");
  const Matrix rsc = filters_as_matrix(filters, c);
  CHECK(rsc.pattern.column_index == std::vector<uint32_t>{0, 1, 2, 3, 2, 4, 7});
  CHECK(rsc.values == std::vector<double>{1, 3, 2, 4, 5, 6, 7});
  CHECK(!find_fault(rsc));

  // The shape of the file says R and S.
  filters.source_shape = {4, 2, 1, 2};
  c = parsed("H=4,W=4,groups=2");
  CHECK(filters_as_matrix(filters, c).pattern == crs.pattern);
  CHECK(c.filter_height == 1);
  CHECK(c.filter_width == 2);
  filters.source_shape = {4, 1, 2, 2};
  c = parsed("H=4,W=4,groups=2,taps=rsc");
  CHECK(filters_as_matrix(filters, c).pattern == rsc.pattern);
  c = parsed("H=4,W=4,R=3,taps=rsc");
  CHECK_THAT(message_of([&] { filters_as_matrix(filters, c); }),
             Catch::Contains("so R is 1, not 3"));
  filters.source_shape = {4, 2, 2};
  CHECK_THAT(message_of([&] { filters_as_matrix(filters, c); }),
             Catch::Contains("not those of a two-dimensional convolution"));
}

TEST_CASE("interior and border part the output, and say rightly which taps are inside") {
  for (const char* words : kGeometries)
    for (const bool split : {true, false}) {
      CAPTURE(words, split);
      const Convolution c = parsed(words);
      check_convolution(c);
      const OutputPixels pixels = output_pixels(c, split);
      const auto interior = pixels_of(pixels.interior), border = pixels_of(pixels.border);
      CHECK(border == pixels_of(pixels.border_lines));
      CHECK(interior.size() == pixels.interior_count());
      CHECK(border.size() == pixels.border_count());
      CHECK(interior.size() + border.size() == c.out_pixels());
      for (const auto& pixel : interior)
        CHECK(border.count(pixel) == 0);

      const auto all_taps = [&](uint32_t oh, uint32_t ow) {
        bool all = true;
        for (uint32_t r = 0; r < c.filter_height; ++r)
          for (uint32_t s = 0; s < c.filter_width; ++s)
            all = all && is_inside(c, oh, ow, r, s);
        return all;
      };
      bool border_needs_questions = false;
      for (const auto& [oh, ow] : interior)
        CHECK(all_taps(oh, ow));
      for (const auto& [oh, ow] : border) {
        CHECK(oh < c.out_height());
        CHECK(ow < c.out_width());
        border_needs_questions = border_needs_questions || !all_taps(oh, ow);
        if (split && !interior.empty())
          CHECK(!all_taps(oh, ow));
      }
      CHECK(border_needs_questions == !border.empty());

      // A question that is left out has the answer yes for every pixel; a tap that is left out is
      // inside for none.
      const std::vector<TapClass> classes = tap_classes(c, pixels.border);
      for (uint32_t r = 0; r < c.filter_height; ++r)
        for (uint32_t s = 0; s < c.filter_width; ++s) {
          const TapClass& tap = classes[r * c.filter_width + s];
          bool some = false, all_rows = true, all_columns = true;
          for (const auto& [oh, ow] : border) {
            some = some || is_inside(c, oh, ow, r, s);
            const int64_t y = int64_t{oh} * c.stride_h + int64_t{r} * c.dilation_h - c.pad_top;
            const int64_t x = int64_t{ow} * c.stride_w + int64_t{s} * c.dilation_w - c.pad_left;
            all_rows = all_rows && y >= 0 && y < c.height;
            all_columns = all_columns && x >= 0 && x < c.width;
          }
          CHECK(tap.possible == some);
          CHECK(tap.asks_row == !all_rows);
          CHECK(tap.asks_column == !all_columns);
        }
      // Lines with the same taps have them.
      for (const PixelSet& set : pixels.border_lines) {
        if (!set.same_taps)
          continue;
        for (uint32_t line = 0; line < set.line().count; ++line)
          for (uint32_t i = 1; i < set.along().count; ++i)
            for (uint32_t r = 0; r < c.filter_height; ++r)
              for (uint32_t s = 0; s < c.filter_width; ++s) {
                const bool down = set.lines_are_columns;
                const uint32_t at = set.line().at(line);
                const uint32_t here = set.along().at(i), first = set.along().at(0);
                CHECK(is_inside(c, down ? here : at, down ? at : here, r, s) ==
                      is_inside(c, down ? first : at, down ? at : first, r, s));
              }
      }
    }
}

TEST_CASE("rows of the virtual B lie where the image has them") {
  SpmmSchedule made = schedule("N=1,H=10,W=7,C=3,R=3,S=3,dilation=1x2", "sm_90");
  const RowMap nchw = b_rows(made);
  CHECK(nchw.bytes(0) == 0);
  CHECK(nchw.bytes(1) == 2 * 4);              // dilated by two pixels
  CHECK(nchw.bytes(3) == 7 * 4);              // one row down
  CHECK(nchw.bytes(9) == 70 * 4);             // next channel
  CHECK(nchw.bytes(17) == (70 + 14 + 4) * 4); // channel 1, tap (2, 2)
  CHECK(c_rows(made).bytes(2) == 2 * 8 * 3 * 4);
  CHECK(made.problem.ldb == 210);
  CHECK(made.problem.ldc == 4 * 24);

  made = schedule("N=1,H=10,W=7,C=3,R=3,S=3,dilation=1x2", "sm_90", "", Layout::column_major);
  const RowMap nhwc = b_rows(made);
  CHECK(nhwc.bytes(1) == 2 * 3 * 4);
  CHECK(nhwc.bytes(3) == 7 * 3 * 4);
  CHECK(nhwc.bytes(9) == 4);
  CHECK(c_rows(made).bytes(2) == 2 * 4);
}

namespace {

constexpr const char* kUnrolledTiles[] = {
    "strategy=unrolled",
    "strategy=unrolled,vec=1",
    "strategy=unrolled,vec=2,rows=3",
    "strategy=unrolled,border=own",
    "strategy=unrolled,vec=3,rows=3,border=own",
    "strategy=unrolled,vec=1,border=own",
    "strategy=unrolled,border=shared",
};

} // namespace

TEST_CASE("code of the interior has a multiply-add for each weight and column, all code less than "
          "twice that") {
  for (const char* target : {"sm_90", "host"})
    for (const char* words : kGeometries)
      for (const std::string tile : kUnrolledTiles) {
        CAPTURE(target, words, tile);
        const ConvolutionWords conv = parse_convolution(words);
        SpmmProblem problem;
        problem.convolution = conv.convolution;
        problem.columns = 1;
        const Convolution& c = conv.convolution;
        const Matrix matrix = filters_as_matrix(
            scattered_matrix(7, c.filter_height * c.filter_width, 2), *problem.convolution);
        const SpmmSchedule made =
            schedule_spmm(matrix, problem, find_target(target), parse_tile_choice(tile));
        const LoweredSpmm lowered = lower_spmm(matrix, made);
        ir::verify_or_throw(lowered.module, "test");
        const uint64_t interior = count(lowered.module, "tile_", ir::Opcode::fma);
        const uint64_t border = count(lowered.module, "border_", ir::Opcode::fma);
        CHECK(interior ==
              (made.pixels.interior.empty() ? 0 : matrix.pattern.nnz() * made.tile.vec));
        CHECK(border == made.prediction.border_multiply_adds);
        CHECK(interior + border == made.prediction.multiply_adds);
        CHECK(border <= matrix.pattern.nnz());
        const uint64_t least = matrix.pattern.nnz() * made.tile.vec;
        CHECK(made.prediction.multiply_adds_ratio == Approx(double(interior + border) / least));
        // One column a thread and code of the border's own: only where both were asked for.
        const bool asked = tile.find("border=own") != std::string::npos && made.tile.vec == 1;
        if (!asked)
          CHECK(interior + border < 2 * least);
        const bool both =
            !output_pixels(c, true).interior.empty() && !output_pixels(c, true).border.empty();
        CHECK(made.tile.border.has_value() == both);
        if (both) {
          CHECK(made.pixels.interior.empty() == (made.tile.border == BorderCode::shared));
          CHECK((made.tile.border == BorderCode::shared || made.tile.vec > 1 ||
                 tile.find("border=own") != std::string::npos));
        }
        if (tile.find("border=shared") != std::string::npos && both) {
          CHECK(interior == 0);
          CHECK(made.tile.vec == 1);
        }
        if (made.tile.vec == 1) // else one store of several may be beyond the last pixel
          CHECK(count(lowered.module, "tile_", ir::Opcode::if_begin) == 0);
        CHECK(count(lowered.module, "tile_", ir::Opcode::load) +
                  count(lowered.module, "border_", ir::Opcode::load) ==
              made.prediction.loads);
      }
}

TEST_CASE("the staged region of a block holds what its windows read") {
  const auto region = [](const std::string& words, const char* tile) {
    return staged_region(schedule(words, "sm_90", tile));
  };
  StagedRegion found = region("N=8,H=7,W=7,C=4,R=3,S=3,pad=1", "stage=smem,warps=14");
  CHECK(found.pitch == 8); // left and right padding are the same zeros
  CHECK(found.line == 8);
  CHECK(found.image_rows == 8);
  CHECK(found.rows == 8 * 8 + 1); // all images, and the zeros below the last
  CHECK(found.channel == 65 * 8 + 1);
  CHECK(found.passes == 2);
  CHECK(found.last_pass_threads == 521 - 448);

  found = region("N=1,H=56,W=56,C=4,R=3,S=3,pad=1", "stage=smem,warps=1,groups=16,chunk=8");
  CHECK(found.line == 57);
  CHECK(found.rows == 2 + 2); // a block of 32 begins in one line and ends in the next
  CHECK(found.channels_a_pass == 2);
  CHECK(found.passes == 1);

  // A block's pixels for pairs: rows of pairs, first tap between two of them for odd padding.
  found = region("N=2,H=14,W=14,C=4,R=3,S=3,pad=1", "stage=smem,warps=2,vec=2");
  CHECK(found.wide);
  CHECK(found.pitch == 16);
  CHECK(found.channel % 2 == 0);

  // NHWC: sectors of 8 channels a pixel, channels 4 banks apart; 4 where there would be many
  // passes.
  const auto transposed = [](const char* words, const char* tile) {
    return staged_region(schedule(words, "sm_90", tile, Layout::column_major));
  };
  found = transposed("N=8,H=7,W=7,C=16,R=3,S=3,pad=1", "stage=smem,warps=16,chunk=16");
  CHECK(found.copied == 65 * 8 + 1);
  CHECK(found.channel == 17 * 32 + 8);
  CHECK(found.channels_a_pass == 4);
  CHECK(found.pieces_a_pass == 128);
  CHECK(found.passes == 5);
  CHECK(found.last_pass_threads == 4 * (521 - 4 * 128));

  // Every window of every block lies in the region, for strides and paddings of all sides.
  for (const char* words :
       {"N=3,H=9,W=10,C=2,R=3,S=3,pad=1,stride=2", "N=2,H=6,W=4,C=2,R=3,S=2,pad_left=5",
        "N=5,H=4,W=3,C=2,R=5,S=5,pad=2", "N=2,H=13,W=8,C=2,R=3,S=3,dilation=2,pad_bottom=3"})
    for (const char* tile : {"stage=smem,warps=1", "stage=smem,warps=1,vec=3"}) {
      INFO(words << " " << tile);
      const SpmmSchedule made = schedule(words, "sm_90", tile);
      const Convolution& c = *made.problem.convolution;
      found = staged_region(made);
      REQUIRE(made.ranges.size() == 1);
      const uint32_t positions = *made.problem.columns * c.out_height() * found.line;
      CHECK(made.ranges[0].grid.blocks(*made.problem.columns) ==
            (positions + made.columns_per_block() - 1) / made.columns_per_block());
      const auto row_of = [&](uint32_t position) {
        const uint32_t line = position / found.line;
        return line / c.out_height() * found.image_rows + line % c.out_height() * c.stride_h;
      };
      for (uint32_t block = 0; block < positions; block += made.columns_per_block()) {
        const uint32_t last = std::min(block + made.columns_per_block(), positions) - 1;
        CHECK(row_of(last) + c.window_height() - row_of(block) <= found.rows);
      }
    }
}

TEST_CASE("staged images that do not fit are refused") {
  const auto refusal = [](const char* words, const char* tile, Layout layout) {
    return message_of([&] { schedule(words, "sm_90", tile, layout); });
  };
  CHECK_THAT(message_of([] {
               const ConvolutionWords conv = parse_convolution("N=1,H=8,W=8,C=4,R=3,S=3,pad=1");
               SpmmProblem problem;
               problem.convolution = conv.convolution;
               problem.columns = conv.images;
               problem.layout = Layout::column_major;
               problem.type = DataType::f16;
               schedule_spmm(filters_as_matrix(scattered_matrix(4, 36, 2), *problem.convolution),
                             problem, find_target("sm_90"), parse_tile_choice("stage=smem"));
             }),
             Catch::Contains("needs images in NCHW"));
  CHECK_THAT(refusal("N=1,H=8,W=1000,C=8,R=3,S=3,pad=1", "stage=smem,warps=16,chunk=8,prefetch=3",
                     Layout::row_major),
             Catch::Contains("of shared memory"));
  CHECK_THAT(refusal("N=1,H=8,W=2000,C=4,R=3,S=3,pad=1", "stage=smem,warps=1,chunk=1,prefetch=2",
                     Layout::row_major),
             Catch::Contains("32 threads would copy"));
  CHECK_THAT(refusal("N=1,H=8,W=8,C=4,R=3,S=3,pad=1", "stage=smem,cluster=2", Layout::row_major),
             Catch::Contains("cannot go together"));
  CHECK_THAT(message_of([] { schedule("N=1,H=8,W=8,C=4,R=3,S=3,pad=1", "host", "stage=smem"); }),
             Catch::Contains("for GPUs"));
}

TEST_CASE("images in NHWC are staged where nobody says a word") {
  const auto stage = [](const char* words, const char* target, const char* tile, Layout layout) {
    return schedule(words, target, tile, layout).tile.stage;
  };
  const char* const words = "N=2,H=14,W=14,C=8,R=3,S=3,pad=1";
  CHECK(stage(words, "sm_90", "", Layout::column_major) == Stage::smem);
  CHECK(stage(words, "sm_90", "", Layout::row_major) == Stage::global);
  CHECK(stage(words, "host", "", Layout::column_major) == Stage::global);
  for (const char* tile : {"rows=4", "stage=global", "strategy=unrolled", "border=own"})
    CHECK(stage(words, "sm_90", tile, Layout::column_major) == Stage::global);
  // Where it is not possible: a block's part of such an image would take too many copies.
  const char* const wide = "N=1,H=8,W=4000,C=8,R=3,S=3,pad=1";
  CHECK(stage(wide, "sm_90", "", Layout::column_major) == Stage::global);
  CHECK_THAT(message_of([&] { schedule(wide, "sm_90", "stage=smem", Layout::column_major); }),
             Catch::Contains("threads would copy"));
  // Nor is what would be streamed, for its length.
  const ConvolutionWords conv = parse_convolution(words);
  SpmmProblem problem;
  problem.convolution = conv.convolution;
  problem.columns = conv.images;
  problem.layout = Layout::column_major;
  const Matrix matrix = filters_as_matrix(scattered_matrix(4, 72, 1), *problem.convolution);
  const auto within = [&](uint64_t budget) {
    return schedule_spmm(matrix, problem, find_target("sm_90"), {}, budget).tile;
  };
  CHECK(within(288).stage == Stage::smem);
  CHECK(within(287).strategy == Strategy::streamed);
  CHECK(within(287).stage == Stage::global);
}

TEST_CASE("one tap with stride 1 is a product of matrices") {
  SpmmSchedule made = schedule("N=1,H=10,W=12,C=8,R=1,S=1,groups=2", "sm_90", "stage=smem");
  CHECK(!made.problem.convolution);
  CHECK(made.request.convolution);
  CHECK(made.problem.columns == 120u);
  CHECK(made.problem.ldb == 120);
  CHECK(made.request.ldb == 960);
  CHECK(made.ranges.size() == 1);
  CHECK(made.ranges[0].grid.blocks(1) ==
        (120 + made.columns_per_block() - 1) / made.columns_per_block());
  made = schedule("N=dynamic,H=10,W=12,C=8,R=1,S=1", "sm_90", "", Layout::column_major);
  CHECK(!made.problem.convolution);
  CHECK(!made.problem.columns);
  CHECK(made.columns_per_n == 120);
  CHECK(made.problem.ldb == 8);
  // Of several images in NCHW the pixels do not follow one another.
  made = schedule("N=2,H=10,W=12,C=8,R=1,S=1", "sm_90");
  CHECK(made.problem.convolution);
  CHECK(made.pixels.border.empty());
  made = schedule("N=1,H=10,W=12,C=8,R=1,S=1,stride=2", "sm_90");
  CHECK(made.problem.convolution);
  CHECK(made.pixels.border.empty());
}

TEST_CASE("blocks cover interior and border") {
  const char* const words = "N=2,H=14,W=14,C=2,R=3,S=3,pad=1";
  SpmmSchedule made = schedule(words, "sm_90", "warps=1,vec=1,border=own");
  REQUIRE(made.ranges.size() == 2);
  CHECK(!made.ranges[0].border);
  CHECK(made.ranges[0].grid.items == 144);
  CHECK(made.ranges[0].grid.blocks(2) == 9);
  CHECK(made.ranges[1].border);
  CHECK(made.ranges[1].grid.items == 52);
  CHECK(made.ranges[1].grid.blocks(2) == 4);
  CHECK(made.ranges[1].grid.blocks(0) == 0);
  // With one column a thread all pixels share the border's code.
  made = schedule(words, "sm_90", "warps=1,vec=1");
  REQUIRE(made.ranges.size() == 1);
  CHECK(made.ranges[0].border);
  CHECK(made.ranges[0].grid.items == 196);
  CHECK(made.ranges[0].grid.blocks(2) == 13);
  CHECK(schedule(words, "sm_90", "vec=2").ranges.size() == 2);
  // So they do where the interior would need as many warps as all pixels.
  const char* const small = "N=1,H=7,W=7,C=2,R=3,S=3,pad=1";
  made = schedule(small, "sm_90", "vec=4");
  CHECK(made.pixels.interior.empty());
  CHECK(made.tile.vec == 1);
  REQUIRE(made.remarks.size() == 1);
  CHECK_THAT(made.remarks[0], Catch::Contains("takes them singly"));
  CHECK(schedule(small, "sm_90", "vec=4,border=own").tile.vec == 4);
  // Streamed code does not grow with the weights.
  CHECK(schedule(small, "sm_90", "strategy=streamed").tile.border == BorderCode::shared);
  CHECK(schedule("N=1,H=56,W=56,C=2,R=3,S=3,pad=1", "sm_90", "strategy=streamed").tile.border ==
        BorderCode::own);
  CHECK_THAT(message_of([] {
               SpmmProblem product;
               product.columns = 4;
               schedule_spmm(scattered_matrix(4, 4, 2), product, find_target("sm_90"),
                             parse_tile_choice("border=own"));
             }),
             Catch::Contains("border= is for convolutions"));
  CHECK_THAT(message_of([&] { schedule(words, "sm_90", "stage=smem,border=own"); }),
             Catch::Contains("border= is for images that are not staged"));
}

TEST_CASE("what cannot be addressed is refused") {
  const auto refusal = [](const std::string& words, uint64_t ldb, uint64_t ldc) {
    return message_of([&] {
      const ConvolutionWords conv = parse_convolution(words);
      SpmmProblem problem;
      problem.convolution = conv.convolution;
      problem.columns = conv.images;
      problem.ldb = ldb;
      problem.ldc = ldc;
      const Matrix matrix = filters_as_matrix(scattered_matrix(4, 9 * conv.convolution.channels, 2),
                                              *problem.convolution);
      schedule_spmm(matrix, problem, find_target("sm_90"), {});
    });
  };
  CHECK(refusal("N=1,H=8,W=8,C=2,R=3,S=3", 0, 0) == "no error");
  CHECK_THAT(refusal("N=1,H=8,W=8,C=2,R=3,S=3", 127, 0), Catch::Contains("ldb is 127"));
  CHECK_THAT(refusal("N=1,H=8,W=8,C=2,R=3,S=3", 0, 143), Catch::Contains("ldc is 143"));
  CHECK_THAT(refusal("N=1,H=8,W=8,C=2,R=3,S=3", uint64_t{1} << 60, 0), Catch::Contains("2 GiB"));
  CHECK_THAT(refusal("N=1,H=20000,W=20000,C=2,R=3,S=3", 0, 0), Catch::Contains("2 GiB"));
  CHECK_THAT(refusal("N=1,H=100000,W=100000,C=2,R=3,S=3", 0, 0), Catch::Contains("too large"));
  CHECK_THAT(refusal("N=16000000,H=20,W=20,C=1,R=3,S=3", 0, 0), Catch::Contains("too many"));
  CHECK_THAT(refusal("N=1,H=2,W=8,C=2,R=3,S=3", 0, 0), Catch::Contains("larger than the padded"));
}
