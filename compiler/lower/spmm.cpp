// The kernel of an SpMM:
//
//   columns of the thread -> clamped pointers into B, C, residual; predicates "inside N"
//   number of the tile (and part of K)
//   unrolled: switch to the tile's function        streamed: the loop over the tile's rows
#include "compiler/lower/spmm.h"

#include "compiler/lower/spmm_tile.h"
#include "ir/error.h"

#include <fmt/format.h>

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

/// An integer known at compile time or held in a register.
class Extent {
public:
  Extent(uint32_t value) : value_(value) {} // NOLINT: a number is an extent
  Extent(Reg reg) : reg_(reg) {}            // NOLINT: a register is an extent
  Operand operand() const { return reg_.valid() ? Operand(reg_) : Operand::integer(value_); }
  Extent minus(Builder& builder, uint32_t amount) const {
    if (reg_.valid())
      return builder.sub(Scalar::i32, reg_, Operand::integer(amount));
    return value_ - amount;
  }

private:
  uint32_t value_ = 0;
  Reg reg_;
};

/// The registers of the kernel before any tile's code.
class KernelWriter {
public:
  KernelWriter(LoweredSpmm& lowered, const SpmmSchedule& schedule, uint32_t shared_symbol)
      : schedule_(schedule), tile_(schedule.tile), manifest_(lowered.kernels.back()),
        builder_(lowered.module, lowered.module.functions.back()), shared_symbol_(shared_symbol) {}

  Builder& builder() { return builder_; }
  TileArguments& arguments() { return arguments_; }

  void write_prologue() {
    declare_parameters();
    write_columns();
    write_guards();
    write_pointers();
    if (parts_are_threads(schedule_))
      write_partial_pointer();
    if (tile_.stage == Stage::smem)
      write_staging_pointers();
  }

  Reg first_column_inside() const { return inside_[0]; }
  /// Number of this thread's tile: block_y * groups + thread_y.
  Reg tile_number() {
    const Reg block_y = builder_.special(Special::block_y);
    if (tile_.groups == 1)
      return block_y;
    const Reg first = builder_.mul(Scalar::i32, block_y, Operand::integer(tile_.groups));
    return builder_.add(Scalar::i32, first, group());
  }
  /// This thread's part of K, where parts are threads.
  Reg part() {
    if (!part_.valid() && parts_are_threads(schedule_))
      part_ = builder_.special(Special::thread_z);
    return part_;
  }

private:
  Reg parameter(const char* name, Type type, ParameterRole role) {
    manifest_.parameters.push_back({name, type, role});
    return builder_.parameter(type, name);
  }

  void declare_parameters() {
    const SpmmProblem& problem = schedule_.problem;
    const Type element = Type::pointer(Space::device, element_scalar(problem.type));
    b_ = parameter("B", element, ParameterRole::b);
    c_ = parameter("C", element, ParameterRole::c);
    if (problem.epilogue.bias)
      arguments_.bias = parameter("bias", element, ParameterRole::bias);
    if (problem.epilogue.residual)
      residual_ = parameter("residual", element, ParameterRole::residual);
    if (!problem.columns)
      columns_ = parameter("columns", Scalar::i32, ParameterRole::columns);
    else
      columns_ = *problem.columns;
    if (schedule_.leading_dimension_parameters) {
      const Reg ldb = parameter("ldb", Scalar::i32, ParameterRole::ldb);
      const Reg ldc = parameter("ldc", Scalar::i32, ParameterRole::ldc);
      const Operand size = Operand::integer(element_bytes(problem.type));
      arguments_.b_stride = builder_.mul(Scalar::i32, ldb, size);
      arguments_.c_stride = builder_.mul(Scalar::i32, ldc, size);
    }
  }

  Reg thread_x() {
    if (!thread_x_.valid())
      thread_x_ = builder_.special(Special::thread_x);
    return thread_x_;
  }
  Reg group() {
    if (!group_.valid())
      group_ = builder_.special(Special::thread_y);
    return group_;
  }

  /// First column of the thread for each pointer; clamped so that every load is inside B.
  void write_columns() {
    const uint32_t width = schedule_.neighbouring_columns ? tile_.vec : 1;
    const Reg block_x = builder_.special(Special::block_x);
    block_column_ =
        builder_.mul(Scalar::i32, block_x, Operand::integer(schedule_.columns_per_block()));
    Reg first;
    if (width == 1)
      first = builder_.add(Scalar::i32, block_column_, thread_x());
    else
      first = builder_.add(Scalar::i32, block_column_,
                           builder_.mul(Scalar::i32, thread_x(), Operand::integer(width)));
    const Extent last = columns_.minus(builder_, width);
    for (uint32_t v = 0; v < tile_.vec; v += width) {
      Reg column =
          v == 0 ? first
                 : builder_.add(Scalar::i32, first, Operand::integer(v * schedule_.threads_x));
      if (schedule_.guarded) {
        inside_.push_back(
            builder_.compare(Comparison::lt, Scalar::i32, column, columns_.operand()));
        column = builder_.value(Opcode::min, Scalar::i32, {column, last.operand()});
      }
      thread_columns_.push_back(column);
    }
  }

  /// A thread that leaves early leaves the store of its only pointer unguarded.
  void write_guards() {
    if (!leaves_early(schedule_) || inside_.size() > 1)
      arguments_.inside = inside_;
  }

  void write_pointers() {
    const SpmmProblem& problem = schedule_.problem;
    const int64_t size = element_bytes(problem.type);
    const bool row_major = problem.layout == Layout::row_major;
    const Operand b_step =
        Operand::integer(row_major ? size : static_cast<int64_t>(problem.ldb) * size);
    const Operand c_step =
        Operand::integer(row_major ? size : static_cast<int64_t>(problem.ldc) * size);
    for (Reg column : thread_columns_) {
      if (tile_.stage == Stage::global)
        arguments_.b.push_back(builder_.index(b_, column, b_step));
      arguments_.c.push_back(builder_.index(c_, column, c_step));
      if (problem.epilogue.residual)
        arguments_.residual.push_back(builder_.index(residual_, column, c_step));
    }
  }

  /// Shared memory holds [group][part][row][column of the thread][thread].
  void write_partial_pointer() {
    const int64_t size = ir::size_in_bytes(accumulator_scalar(schedule_.problem.type));
    const int64_t group_bytes = size * tile_.splitk * tile_.rows * schedule_.columns_per_block();
    Reg pointer = builder_.address(shared_symbol_);
    if (tile_.groups > 1)
      pointer = builder_.index(pointer, group(), Operand::integer(group_bytes));
    arguments_.partial = builder_.index(pointer, thread_x(), Operand::integer(size));
    // Barrier 0 is the whole block's.
    arguments_.barrier = tile_.groups > 1 ? builder_.add(Scalar::i32, group(), Operand::integer(1))
                                          : builder_.constant(Scalar::i32, Operand::integer(1));
  }

  /// Thread q of the block copies pieces q, q + threads, ... of a chunk; a row of the chunk has
  /// `pieces` of them.
  void write_staging_pointers() {
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
    const Reg stage = builder_.address(shared_symbol_);
    arguments_.staged_columns = builder_.index(stage, thread_x(), Operand::integer(width * size));
    const Reg row_start = builder_.index(stage, arguments_.copy_row, Operand::integer(row_bytes));
    arguments_.staged_copies = builder_.index(row_start, in_row, Operand::integer(piece));
    // Pieces beyond N copy the last piece of the row: nobody uses what they hold.
    Reg column = builder_.add(Scalar::i32, block_column_,
                              builder_.mul(Scalar::i32, in_row, Operand::integer(piece / size)));
    if (schedule_.guarded)
      column = builder_.value(Opcode::min, Scalar::i32,
                              {column, columns_.minus(builder_, piece / size).operand()});
    const Operand stride = arguments_.b_stride.valid() ? Operand(arguments_.b_stride)
                                                       : Operand::integer(b_row_bytes(schedule_));
    const Reg row_of_b = builder_.index(b_, arguments_.copy_row, stride);
    arguments_.copy_source = builder_.index(row_of_b, column, Operand::integer(size));
  }

  const SpmmSchedule& schedule_;
  const SpmmTile& tile_;
  KernelManifest& manifest_;
  Builder builder_;
  uint32_t shared_symbol_;
  TileArguments arguments_;
  Extent columns_ = 0u;
  Reg b_, c_, residual_;
  Reg thread_x_, group_, part_, block_column_;
  std::vector<Reg> thread_columns_, inside_;
};

void add_attributes(ir::Module& module, const Matrix& weights, const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  const Epilogue& epilogue = problem.epilogue;
  auto add = [&](const char* key, std::string value) {
    module.attributes.emplace_back(key, std::move(value));
  };
  add("operation", "C = epilogue(A * B)");
  add("A",
      fmt::format("{} x {}, {} non-zeros", schedule.rows, schedule.inner, weights.pattern.nnz()));
  add("pattern", pattern_digest(weights.pattern));
  add("type", std::string(name_of(problem.type)));
  add("columns", problem.columns ? std::to_string(*problem.columns) : "dynamic");
  add("layout", std::string(name_of(problem.layout)));
  if (!schedule.leading_dimension_parameters) {
    add("ldb", std::to_string(problem.ldb));
    add("ldc", std::to_string(problem.ldc));
  }
  add("epilogue", fmt::format("{}{}{}", epilogue.bias ? "bias, " : "",
                              epilogue.residual ? "residual, " : "", name_of(epilogue.activation)));
  if (problem.half_terms != 0)
    add("half_terms", std::to_string(problem.half_terms));
  add("tile", to_string(schedule.tile));
}

/// Shared memory for partial sums or staged rows of B; UINT32_MAX where none is used.
uint32_t add_shared_symbol(ir::Module& module, const SpmmSchedule& schedule) {
  const uint64_t bytes = shared_bytes(schedule);
  if (bytes == 0)
    return UINT32_MAX;
  const bool stage = schedule.tile.stage == Stage::smem;
  const Scalar element =
      stage ? element_scalar(schedule.problem.type) : accumulator_scalar(schedule.problem.type);
  ir::Symbol symbol;
  symbol.name = stage ? "stage" : "partial";
  symbol.type = Type::pointer(Space::shared, element);
  symbol.count = bytes / ir::size_in_bytes(element);
  module.symbols.push_back(std::move(symbol));
  return static_cast<uint32_t>(module.symbols.size() - 1);
}

/// One device function for each tile and part, in the order tile * parts + part.
std::vector<uint32_t> add_tile_functions(ir::Module& module, const SpmmSchedule& schedule,
                                         const Pattern& pattern,
                                         const std::vector<double>& weights) {
  const uint32_t parts = parts_are_threads(schedule) ? schedule.tile.splitk : 1;
  // Staged tiles meet in every chunk: a block that has fewer tiles than groups needs empty ones.
  const uint32_t tiles = schedule.tile.stage == Stage::smem
                             ? schedule.grid_rows() * schedule.tile.groups
                             : schedule.tile_count();
  SpmmSchedule padded = schedule;
  padded.tile_begin.resize(tiles + 1, schedule.rows);
  std::vector<uint32_t> functions;
  module.origins.reserve(pattern.nnz() * 2);
  for (uint32_t tile = 0; tile < tiles; ++tile)
    for (uint32_t part = 0; part < parts; ++part) {
      functions.push_back(static_cast<uint32_t>(module.functions.size()));
      ir::Function& function = module.functions.emplace_back();
      function.name =
          parts == 1 ? fmt::format("tile_{}", tile) : fmt::format("tile_{}_part_{}", tile, part);
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
  manifest.columns_per_block = schedule.columns_per_block();
  manifest.grid_rows = schedule.grid_rows();
  const uint64_t shared = shared_bytes(schedule);
  manifest.dynamic_shared_bytes = shared > kStaticSharedBytes ? static_cast<uint32_t>(shared) : 0;
  const uint32_t element = element_bytes(schedule.problem.type);
  manifest.pointer_alignment = schedule.neighbouring_columns ? element * tile.vec : element;
  if (tile.stage == Stage::smem)
    manifest.pointer_alignment =
        std::max(manifest.pointer_alignment, staging_piece_bytes(schedule));
}

} // namespace

std::string_view name_of(ParameterRole role) {
  constexpr std::string_view kNames[] = {"b", "c", "bias", "residual", "columns", "ldb", "ldc"};
  return kNames[static_cast<unsigned>(role)];
}

LoweredSpmm lower_spmm(const Matrix& weights, const SpmmSchedule& schedule) {
  if (!weights.has_values())
    throw InternalError("lower_spmm: the weights have no values");
  LoweredSpmm lowered;
  ir::Module& module = lowered.module;
  add_attributes(module, weights, schedule);
  if (schedule.tile_count() == 0)
    return lowered;
  const std::vector<double> rounded = rounded_weights(weights, schedule.problem.type);
  const uint32_t shared_symbol = add_shared_symbol(module, schedule);
  const bool streamed = schedule.tile.strategy == Strategy::streamed;
  StreamSymbols symbols{};
  std::vector<uint32_t> functions;
  if (streamed)
    symbols = add_stream_symbols(module, schedule, weights.pattern, rounded);
  else
    functions = add_tile_functions(module, schedule, weights.pattern, rounded);

  KernelManifest& manifest = lowered.kernels.emplace_back();
  fill_manifest(manifest, schedule);
  ir::Function& kernel = module.functions.emplace_back();
  kernel.name = kEntry;
  kernel.kind = ir::FunctionKind::kernel;
  std::copy(std::begin(manifest.block), std::end(manifest.block), std::begin(kernel.block));

  KernelWriter writer(lowered, schedule, shared_symbol);
  writer.write_prologue();
  Builder& builder = writer.builder();
  Reg tile = writer.tile_number();
  const Reg part = writer.part();
  const bool leave_early = leaves_early(schedule);
  if (leave_early)
    builder.if_begin(writer.first_column_inside());
  if (streamed) {
    write_streamed_tile(builder, schedule, symbols, writer.arguments(), tile, part);
  } else {
    if (part.valid())
      tile =
          builder.add(Scalar::i32,
                      builder.mul(Scalar::i32, tile, Operand::integer(schedule.tile.splitk)), part);
    // Every thread of a staged block must reach the barriers of some tile; saying so costs one
    // instruction and lets the verifier see it.
    if (schedule.tile.stage == Stage::smem && schedule.tile.groups > 1)
      tile = builder.value(Opcode::minu, Scalar::i32,
                           {tile, Operand::integer(static_cast<int64_t>(functions.size()) - 1)});
    builder.switch_call(tile, functions, writer.arguments().list(schedule));
  }
  if (leave_early)
    builder.end();
  builder.return_void();
  return lowered;
}

} // namespace sparsertc
