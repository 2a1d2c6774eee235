#include "compiler/inspect/dense_schedule.h"

#include "compiler/inspect/tile_refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

namespace sparsertc {
namespace {

constexpr uint32_t kWarp = 32, kThreadsPerBlock = 1024;
/// Sums a thread.
constexpr uint32_t kMostSums = 128;
/// Blocks with which most multiprocessors of a large GPU have one.
constexpr uint32_t kEnoughBlocks = 96;
constexpr uint32_t kLeastInFlight = 2, kUsualInFlight = 3, kMostInFlight = 8;
constexpr uint32_t kPieceBytes = 16;
/// PTX has the array as text, at least two characters an element.
constexpr uint64_t kMostElements = uint64_t{1} << 26;

uint32_t ceil_div(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}
uint32_t round_up(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b * b);
}

void check_problem(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  if (schedule.target.is_host)
    refuse_tile("strategy=dense is for GPUs", "choose strategy=streamed or unrolled");
  if (problem.convolution)
    refuse_tile(
        "strategy=dense is for products of matrices, and for convolutions that are one (1x1, "
        "stride 1; NCHW: one image)",
        "choose strategy=streamed or unrolled");
  if (problem.half_terms != 0)
    refuse_tile("strategy=dense has sums in f32 or f64", "leave --half-terms out");
  if (problem.nonfinite != Nonfinite::dense)
    refuse_tile(
        "strategy=dense multiplies zeros, so that NaN and infinity in B also reach rows that "
        "have no entry there",
        "give --nonfinite=dense if that will do, or choose strategy=unrolled");
  if (!problem.columns)
    refuse_tile("strategy=dense needs a fixed number of columns",
                "give -n, or choose strategy=unrolled");
  if (uint64_t{schedule.rows} * schedule.inner > kMostElements)
    refuse_tile(
        fmt::format("strategy=dense writes A with its zeros, {} x {} elements, at most {} are "
                    "possible",
                    schedule.rows, schedule.inner, kMostElements),
        "choose strategy=streamed");
}

void check_words(const SpmmTileChoice& choice) {
  const auto is_one_of = [](const std::optional<uint32_t>& word, uint32_t least, uint32_t most) {
    return !word || (std::has_single_bit(*word) && *word >= least && *word <= most);
  };
  if (!is_one_of(choice.rows, 16, 64) || !is_one_of(choice.vec, 1, 4) ||
      !is_one_of(choice.warps, 1, 32) || !is_one_of(choice.groups, 1, 32) ||
      !is_one_of(choice.chunk, 16, 64))
    refuse_tile(
        "strategy=dense takes rows=16, 32 or 64, vec=1, 2 or 4, chunk=16, 32 or 64, and powers "
        "of two for warps and groups",
        "choose one of these");
  if (choice.prefetch && (*choice.prefetch < kLeastInFlight || *choice.prefetch > kMostInFlight))
    refuse_tile(fmt::format("strategy=dense has from {} to {} chunks in shared memory",
                            kLeastInFlight, kMostInFlight),
                "choose prefetch=3");
  if (choice.splitk.value_or(1) != 1 || choice.cluster.value_or(1) != 1 ||
      choice.stage.value_or(Stage::global) != Stage::global ||
      choice.weights.value_or(WeightOperand::immediate) != WeightOperand::immediate)
    refuse_tile("strategy=dense has no parts of K, no other stage, and no weights but its array",
                "leave splitk, cluster, stage and weights out");
}

/// What a dense library does in one call: sums, the residual, relu.
bool library_can(const SpmmSchedule& schedule) {
  const Epilogue& epilogue = schedule.problem.epilogue;
  return !epilogue.bias &&
         (epilogue.activation == Activation::none || epilogue.activation == Activation::relu) &&
         schedule.inner != 0;
}

/// Large blocks read A and B less often; enough of them fill the GPU.
void choose_block(const SpmmTileChoice& choice, SpmmSchedule& schedule) {
  struct Shape {
    uint32_t rows, vec, groups, warps;
  };
  constexpr Shape kTensorCores[] = {{64, 1, 2, 4}, {64, 1, 1, 4}, {32, 1, 1, 4},
                                    {32, 1, 1, 2}, {16, 1, 1, 2}, {16, 1, 1, 1}};
  constexpr Shape kMultiplyAdd[] = {{32, 2, 4, 2}, {32, 2, 2, 2}, {32, 2, 2, 1},
                                    {32, 1, 2, 1}, {16, 1, 2, 1}, {16, 1, 1, 1}};
  SpmmTile& tile = schedule.tile;
  for (const Shape& shape : is_dense_on_tensor_cores(schedule) ? kTensorCores : kMultiplyAdd) {
    tile.rows = choice.rows.value_or(shape.rows);
    tile.vec = choice.vec.value_or(shape.vec);
    tile.groups = choice.groups.value_or(shape.groups);
    tile.warps = choice.warps.value_or(shape.warps);
    if (uint64_t{ceil_div(schedule.rows, tile.rows * tile.groups)} *
            ceil_div(*schedule.problem.columns, kWarp * tile.vec * tile.warps) >=
        kEnoughBlocks)
      break;
  }
  if (tile.rows * tile.vec > kMostSums)
    refuse_tile(fmt::format("rows={} and vec={} need {} sums a thread, at most {} are possible",
                            tile.rows, tile.vec, tile.rows * tile.vec, kMostSums),
                "choose fewer rows or columns a thread");
  schedule.threads_x = kWarp * tile.warps;
  if (schedule.threads_x * tile.groups > kThreadsPerBlock)
    refuse_tile(fmt::format("warps={}, groups={} make {} threads a block, at most {} fit",
                            tile.warps, tile.groups, schedule.threads_x * tile.groups,
                            kThreadsPerBlock),
                "choose fewer warps or groups");
  tile.chunk = choice.chunk.value_or(is_dense_on_tensor_cores(schedule) ? 32 : 16);
  tile.prefetch = choice.prefetch.value_or(kUsualInFlight);
  const auto fits = [&] {
    return dense_staging(schedule).bytes <= schedule.target.shared_bytes_per_block;
  };
  while (!choice.prefetch && tile.prefetch > kLeastInFlight && !fits())
    --tile.prefetch;
  if (!fits())
    refuse_tile(fmt::format("strategy=dense would stage {} bytes, {} has {} a block",
                            dense_staging(schedule).bytes, schedule.target.name,
                            schedule.target.shared_bytes_per_block),
                "choose a smaller chunk, or fewer warps, groups or chunks in flight");
}

void choose_code(const SpmmTileChoice& choice, SpmmSchedule& schedule) {
  const bool can = library_can(schedule);
  if (choice.dense == DenseCode::library && !can)
    refuse_tile("dense=library is for products without a bias, and with no activation but relu",
                "choose dense=own");
  schedule.tile.dense = choice.dense.value_or(can ? DenseCode::library : DenseCode::own);
  if (schedule.tile.dense == DenseCode::library)
    schedule.remarks.push_back("dense=library: cuBLAS multiplies where it is found at run time, "
                               "else the code that was made here");
}

} // namespace

bool is_dense_on_tensor_cores(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  return problem.type == DataType::f16 || problem.type == DataType::bf16 ||
         (problem.type == DataType::f32 && problem.precision == Precision::tf32);
}

DenseArray dense_array(const SpmmSchedule& schedule) {
  const SpmmTile& tile = schedule.tile;
  return {round_up(schedule.rows, uint64_t{tile.rows} * tile.groups),
          round_up(schedule.inner, tile.chunk)};
}

DenseStaging dense_staging(const SpmmSchedule& schedule) {
  const SpmmTile& tile = schedule.tile;
  const uint32_t size = element_bytes(schedule.problem.type);
  // Eight rows of 16 bytes are read at once, or four of 32.
  const uint32_t apart = schedule.problem.type == DataType::f32 ? 32 : 16;
  DenseStaging staging;
  staging.a_pitch = tile.rows * tile.groups * size + apart;
  staging.b_pitch = schedule.columns_per_block() * size + apart;
  staging.b_offset = tile.chunk * staging.a_pitch;
  staging.chunk_bytes = tile.chunk * (staging.a_pitch + staging.b_pitch);
  staging.bytes = uint64_t{tile.prefetch} * staging.chunk_bytes;
  return staging;
}

bool dense_copies_pieces(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  return problem.layout == Layout::row_major &&
         problem.ldb * element_bytes(problem.type) % kPieceBytes == 0;
}

uint32_t dense_store_columns(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  const uint32_t together =
      is_dense_on_tensor_cores(schedule) ? 2 : kPieceBytes / element_bytes(problem.type);
  const bool aligned = problem.layout == Layout::row_major && *problem.columns % together == 0 &&
                       problem.ldc % together == 0;
  return aligned ? together : 1;
}

uint32_t dense_alignment(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  const uint32_t size = element_bytes(problem.type);
  const bool for_library = schedule.tile.dense == DenseCode::library &&
                           problem.ldb * size % kPieceBytes == 0 &&
                           problem.ldc * size % kPieceBytes == 0;
  if (for_library || dense_copies_pieces(schedule))
    return kPieceBytes;
  return dense_store_columns(schedule) * size;
}

SpmmPrediction predict_dense(const SpmmSchedule& schedule) {
  // Instructions of the kernel besides products, loads of their operands and stores of sums.
  constexpr uint64_t kAround = 300, kOfSum = 4;
  const SpmmTile& tile = schedule.tile;
  const uint64_t sums = uint64_t{tile.rows} * tile.vec;
  SpmmPrediction prediction;
  if (is_dense_on_tensor_cores(schedule)) {
    const uint64_t depth = schedule.problem.type == DataType::f32 ? 8 : 16;
    const uint64_t fragments = tile.rows / 16, blocks = 4ull * tile.vec, steps = tile.chunk / depth;
    prediction.multiply_adds = steps * fragments * blocks;
    prediction.loads =
        depth == 16 ? steps * (fragments + blocks / 2) : steps * (4 * fragments + 2 * blocks);
  } else {
    const uint64_t together = kPieceBytes / element_bytes(schedule.problem.type);
    prediction.multiply_adds = tile.chunk * sums;
    prediction.loads = tile.chunk * (tile.rows / 4 + 4ull * tile.vec) / together;
  }
  prediction.instructions = kAround + prediction.multiply_adds + prediction.loads + kOfSum * sums;
  prediction.code_bytes = 16 * prediction.instructions;
  prediction.data_bytes = dense_array(schedule).elements() * element_bytes(schedule.problem.type);
  return prediction;
}

void schedule_dense(const Pattern& pattern, const SpmmTileChoice& choice, SpmmSchedule& schedule) {
  check_problem(schedule);
  check_words(choice);
  choose_code(choice, schedule);
  choose_block(choice, schedule);
  const SpmmProblem& problem = schedule.problem;
  if (*problem.columns != 0 && pattern.rows != 0) {
    schedule.row_order.resize(pattern.rows);
    std::iota(schedule.row_order.begin(), schedule.row_order.end(), 0u);
    for (uint32_t end = schedule.tile.rows; schedule.tile_begin.back() < pattern.rows;
         end += schedule.tile.rows)
      schedule.tile_begin.push_back(std::min(end, pattern.rows));
  }
  schedule.ranges.push_back({{1, schedule.columns_per_block()}, false, {}});
  schedule.guarded = *problem.columns % schedule.columns_per_block() != 0;
  schedule.neighbouring_columns = dense_store_columns(schedule) > 1;
  schedule.remarks.push_back(
      "dense code multiplies zeros: NaN and infinity in B may reach rows without an entry there "
      "(--nonfinite=dense allows it)");
  if (problem.precision == Precision::tf32)
    schedule.remarks.push_back("products are of operands with 10 bits of the fraction "
                               "(--precision=tf32 allows it)");
}

} // namespace sparsertc
