// The kernel of an SpMM or of a convolution:
//
//   convolution: which range of blocks (interior, border) this block is in; for each range
//     columns of the thread -> clamped pointers into B, C, residual; predicates "inside N"
//     border: which taps are inside the image
//     number of the tile (and part of K)
//     unrolled: switch to the tile's function      streamed: the loop over the tile's rows
#include "compiler/lower/spmm.h"

#include "compiler/lower/spmm_bitmap.h"
#include "compiler/lower/spmm_compressed.h"
#include "compiler/lower/spmm_dense.h"
#include "compiler/lower/spmm_kernel.h"
#include "compiler/lower/spmm_panels.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <optional>

namespace sparsertc {
namespace {

using ir::Builder;
using ir::Comparison;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Space;
using ir::Special;
using ir::Type;

constexpr const char* kEntry = "sparsertc_spmm";
/// Static shared memory goes up to here; a launch must ask for more.
constexpr uint64_t kStaticSharedBytes = 48 * 1024;

void add_attributes(ir::Module& module, const Matrix& weights, const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.request;
  const Epilogue& epilogue = problem.epilogue;
  auto add = [&](const char* key, std::string value) {
    module.attributes.emplace_back(key, std::move(value));
  };
  add("operation", problem.convolution ? "C = epilogue(A * images)" : "C = epilogue(A * B)");
  if (problem.convolution)
    add("convolution", to_string(*problem.convolution));
  add("A",
      fmt::format("{} x {}, {} non-zeros", schedule.rows, schedule.inner, weights.pattern.nnz()));
  add("pattern", pattern_digest(weights.pattern));
  add("type", std::string(name_of(problem.type)));
  add(problem.convolution ? "images" : "columns",
      problem.columns ? std::to_string(*problem.columns) : "dynamic");
  add("layout", std::string(layout_word(problem)));
  if (!schedule.leading_dimension_parameters) {
    add("ldb", std::to_string(problem.ldb));
    add("ldc", std::to_string(problem.ldc));
  }
  add("epilogue", fmt::format("{}{}{}", epilogue.bias ? "bias, " : "",
                              epilogue.residual ? "residual, " : "", name_of(epilogue.activation)));
  if (problem.half_terms != 0)
    add("half_terms", std::to_string(problem.half_terms));
  if (problem.precision != Precision::full)
    add("precision", std::string(name_of(problem.precision)));
  if (problem.nonfinite != Nonfinite::exact)
    add("nonfinite", std::string(name_of(problem.nonfinite)));
  add("tile", to_string(schedule.tile));
}

/// Shared memory for staged rows of B and for partial sums.
SharedSymbols add_shared_symbols(ir::Module& module, const SpmmSchedule& schedule) {
  const auto add = [&](const char* name, Scalar element, uint64_t bytes) {
    if (bytes == 0)
      return UINT32_MAX;
    ir::Symbol symbol;
    symbol.name = name;
    symbol.type = Type::pointer(Space::shared, element);
    symbol.count = bytes / ir::size_in_bytes(element);
    module.symbols.push_back(std::move(symbol));
    return static_cast<uint32_t>(module.symbols.size() - 1);
  };
  if (schedule.target.is_host)
    return {};
  SharedSymbols symbols;
  const DataType type = schedule.problem.type;
  symbols.stage = add("stage", element_scalar(type), staging_bytes(schedule));
  symbols.partial = add("partial", accumulator_scalar(type), exchange_bytes(schedule));
  return symbols;
}

/// One device function for each tile and part, in the order tile * parts + part. `schedule` is a
/// variant's.
std::vector<uint32_t> add_tile_functions(ir::Module& module, const SpmmSchedule& schedule,
                                         const Pattern& pattern,
                                         const std::vector<double>& weights) {
  const uint32_t parts = parts_are_threads(schedule) ? schedule.tile.parts() : 1;
  // A block that has fewer tiles than groups needs empty ones where all of its threads meet.
  const uint32_t tiles =
      tiles_meet(schedule) ? schedule.row_blocks() * schedule.tile.groups : schedule.tile_count();
  SpmmSchedule padded = schedule;
  padded.tile_begin.resize(tiles + 1, schedule.rows);
  const char* name = schedule.asks_taps ? "border" : "tile";
  std::vector<uint32_t> functions;
  module.origins.reserve(module.origins.size() + pattern.nnz() * 2);
  for (uint32_t tile = 0; tile < tiles; ++tile)
    for (uint32_t part = 0; part < parts; ++part) {
      functions.push_back(static_cast<uint32_t>(module.functions.size()));
      ir::Function& function = module.functions.emplace_back();
      function.name = parts == 1 ? fmt::format("{}_{}", name, tile)
                                 : fmt::format("{}_{}_part_{}", name, tile, part);
      function.kind = ir::FunctionKind::device;
      Builder builder(module, function);
      TileArguments arguments = TileArguments::declare(schedule, builder);
      write_unrolled_tile(builder, padded, pattern, weights, arguments, tile, part);
      builder.return_void();
    }
  return functions;
}

void fill_manifest(KernelManifest& manifest, const SpmmSchedule& schedule) {
  const SpmmTile& tile = schedule.tile;
  manifest.entry = kEntry;
  manifest.block[0] = schedule.threads_x;
  manifest.block[1] = tile.groups;
  manifest.block[2] = parts_are_threads(schedule) ? tile.splitk : 1;
  for (const BlockRange& range : schedule.ranges)
    manifest.ranges.push_back({range.grid, range.pixels.empty() ? "columns"
                                           : range.border       ? "border"
                                                                : "interior"});
  manifest.cluster = tiles_meet_in_clusters(schedule) ? tile.cluster : 1;
  manifest.grid_rows = schedule.row_blocks() * manifest.cluster;
  const uint64_t shared = shared_bytes(schedule);
  manifest.dynamic_shared_bytes = shared > kStaticSharedBytes ? static_cast<uint32_t>(shared) : 0;
  const uint32_t element = element_bytes(schedule.problem.type);
  manifest.pointer_alignment = schedule.neighbouring_columns ? element * tile.vec : element;
  if (tile.stage == Stage::smem)
    manifest.pointer_alignment =
        std::max(manifest.pointer_alignment, staging_piece_bytes(schedule));
}

/// Code for the blocks of a range: tile functions, or tables.
struct VariantCode {
  SpmmSchedule schedule;
  std::vector<uint32_t> functions;
  StreamSymbols symbols{};
};

class KernelWriter {
public:
  KernelWriter(LoweredSpmm& lowered, const Pattern& pattern, const std::vector<double>& weights,
               const SpmmSchedule& schedule)
      : lowered_(lowered), pattern_(pattern), weights_(weights), schedule_(schedule),
        streamed_(schedule.tile.strategy == Strategy::streamed) {}

  void write() {
    ir::Module& module = lowered_.module;
    shared_ = add_shared_symbols(module, schedule_);
    for (const BlockRange& range : schedule_.ranges)
      if (!code_[range.border])
        code_[range.border] = make_code(range);

    KernelManifest& manifest = lowered_.kernels.emplace_back();
    fill_manifest(manifest, schedule_);
    ir::Function& kernel = module.functions.emplace_back();
    kernel.name = kEntry;
    kernel.kind = ir::FunctionKind::kernel;
    std::copy(std::begin(manifest.block), std::end(manifest.block), std::begin(kernel.block));
    kernel.cluster[1] = manifest.cluster;
    Builder builder(module, kernel);
    write_ranges(builder, KernelOperands::declare(builder, schedule_, manifest));
    builder.return_void();
  }

private:
  VariantCode make_code(const BlockRange& range) const {
    VariantCode code{variant_of(schedule_, range), {}, {}};
    if (streamed_)
      code.symbols = add_stream_symbols(lowered_.module, code.schedule, pattern_, weights_);
    else
      code.functions = add_tile_functions(lowered_.module, code.schedule, pattern_, weights_);
    return code;
  }

  /// The number of a block says its range, the same for all threads of the block.
  void write_ranges(Builder& builder, const KernelOperands& operands) {
    const Arithmetic arithmetic(builder);
    Number first = 0;
    const size_t last = schedule_.ranges.size() - 1;
    for (size_t i = 0; i < last; ++i) {
      const GridRange& grid = schedule_.ranges[i].grid;
      const Number items = arithmetic.mul(operands.n, static_cast<int64_t>(grid.items));
      const Number blocks =
          arithmetic.div(arithmetic.add(items, grid.items_per_block - 1), grid.items_per_block);
      const Number end = arithmetic.add(first, blocks);
      builder.if_begin(builder.compare(Comparison::lt, Scalar::i32,
                                       builder.special(ir::Special::block_x), end.operand()));
      write_range(builder, schedule_.ranges[i], operands, first);
      builder.else_mark();
      first = end;
    }
    write_range(builder, schedule_.ranges[last], operands, first);
    for (size_t i = 0; i < last; ++i)
      builder.end();
  }

  void write_range(Builder& builder, const BlockRange& range, const KernelOperands& operands,
                   Number first_block) {
    const VariantCode& code = *code_[range.border];
    // Ranges with the same code differ in their guards.
    const SpmmSchedule schedule = variant_of(schedule_, range);
    RangeWriter writer(builder, schedule, range, operands, first_block, shared_);
    writer.write_prologue();
    Reg tile = writer.tile_number();
    const Reg part = writer.part();
    const bool leave_early = leaves_early(schedule);
    if (leave_early)
      builder.if_begin(writer.first_column_inside());
    if (streamed_) {
      write_streamed_tile(builder, schedule, code.symbols, writer.arguments(), tile, part);
    } else {
      if (part.valid())
        tile = builder.add(Scalar::i32,
                           builder.mul(Scalar::i32, tile, Operand::integer(schedule.tile.parts())),
                           part);
      // Every thread of the block must reach the barriers of some tile; saying so costs one
      // instruction and lets the verifier see it.
      if (tiles_meet_in_clusters(schedule) ||
          (schedule.tile.stage == Stage::smem && code.functions.size() > schedule.row_blocks()))
        tile = builder.value(
            Opcode::minu, Scalar::i32,
            {tile, Operand::integer(static_cast<int64_t>(code.functions.size()) - 1)});
      builder.switch_call(tile, code.functions, writer.arguments().list(schedule));
    }
    if (leave_early)
      builder.end();
  }

  LoweredSpmm& lowered_;
  const Pattern& pattern_;
  const std::vector<double>& weights_;
  const SpmmSchedule& schedule_;
  bool streamed_;
  SharedSymbols shared_;
  std::optional<VariantCode> code_[2]; ///< of interior (or all) and border blocks
};

} // namespace

std::string_view name_of(ParameterRole role) {
  constexpr std::string_view kNames[] = {"b", "c", "bias", "residual", "columns", "ldb", "ldc"};
  return kNames[static_cast<unsigned>(role)];
}

LoweredSpmm lower_spmm(const Matrix& weights, const SpmmSchedule& schedule,
                       WeightRounding rounding) {
  if (!weights.has_values())
    throw InternalError("lower_spmm: the weights have no values");
  LoweredSpmm lowered;
  ir::Module& module = lowered.module;
  add_attributes(module, weights, schedule);
  if (schedule.tile_count() == 0)
    return lowered;
  const std::vector<double> rounded = rounding == WeightRounding::to_type
                                          ? rounded_weights(weights, schedule.problem.type)
                                          : weights.values;
  if (schedule.tile.strategy == Strategy::compressed) {
    KernelManifest& manifest = lowered.kernels.emplace_back();
    fill_manifest(manifest, schedule);
    write_compressed_kernel(module, schedule, weights.pattern, rounded, manifest);
    return lowered;
  }
  if (schedule.tile.strategy == Strategy::panels) {
    KernelManifest& manifest = lowered.kernels.emplace_back();
    fill_manifest(manifest, schedule);
    write_panels_kernel(module, schedule, weights.pattern, rounded, manifest);
    return lowered;
  }
  if (schedule.tile.strategy == Strategy::bitmap) {
    KernelManifest& manifest = lowered.kernels.emplace_back();
    fill_manifest(manifest, schedule);
    write_bitmap_kernel(module, schedule, weights.pattern, rounded, manifest);
    return lowered;
  }
  if (schedule.tile.strategy == Strategy::dense) {
    KernelManifest& manifest = lowered.kernels.emplace_back();
    fill_manifest(manifest, schedule);
    write_dense_kernel(module, schedule, weights.pattern, rounded, manifest);
    return lowered;
  }
  KernelWriter writer(lowered, weights.pattern, rounded, schedule);
  writer.write();
  return lowered;
}

} // namespace sparsertc
