#include "runtime/lu/gpu_plan.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

namespace sparsertc::lu {
namespace {

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

/// Numbers that the inspector has bounded.
std::vector<uint32_t> narrowed(const std::vector<uint64_t>& values) {
  return {values.begin(), values.end()};
}

std::vector<double> or_ones(const std::vector<double>& scale, uint64_t count) {
  return scale.empty() ? std::vector<double>(count, 1.0) : scale;
}

/// The largest grid along y on every GPU.
constexpr uint32_t kMostGridRows = 65535;

uint32_t blocks_for(uint64_t threads, uint32_t block) {
  return static_cast<uint32_t>((threads + block - 1) / block);
}

} // namespace

uint32_t gpu_streams(uint32_t multiprocessors, uint32_t dataflow_threads) {
  return std::max(multiprocessors, 1u) * (dataflow_threads / LuDataflow::kLanes);
}

GpuPlan::GpuPlan(const cuda::Context& context, const GpuCode& code, const LuTables& tables,
                 const GpuFlows& flows)
    : context_(context), code_(code), tables_(tables), module_(context, code.image),
      input_(module_.kernel(code.input)), factor_(module_.kernel(code.factor)),
      solve_input_(module_.kernel(code.solve_input)), solve_(module_.kernel(code.solve)) {
  code_.image = {};
  if (code.block_solve != nullptr) {
    block_input_ = module_.kernel(code.block_input);
    block_solve_ = module_.kernel(code.block_solve);
    if (code.block_shared_bytes > 0)
      cuda::check(context.api().cuFuncSetAttribute(
                      block_solve_.handle, cuda::FunctionAttribute::max_dynamic_shared_bytes,
                      static_cast<int32_t>(code.block_shared_bytes)),
                  "cuFuncSetAttribute", [&] {
                    return fmt::format("asking for {} bytes of dynamic shared memory for the "
                                       "kernel {}",
                                       code.block_shared_bytes, block_solve_.name);
                  });
  }
  const cuda::Stream stream(context);
  const std::vector<double> row_scale = or_ones(tables.row_scale, tables.size);
  const std::vector<double> column_scale = or_ones(tables.column_scale, tables.size);
  row_order_ = upload(bytes_of(tables.row_order), stream);
  column_order_ = upload(bytes_of(tables.column_order), stream);
  row_scale_ = upload(bytes_of(row_scale), stream);
  column_scale_ = upload(bytes_of(column_scale), stream);
  if (flows.strategy) { // stores by slots
    strategy_ = flows.strategy;
    table_bytes_ += strategy_->table_bytes();
  } else {
    places_ = make_gpu_places(tables, code.factor_bytes);
  }
  upload_input(places_ ? &flows.factor : nullptr, stream);
  const std::vector<uint32_t> diagonal = in_places(narrowed(tables.diagonal));
  diagonal_ = upload(bytes_of(diagonal), stream);
  if (places_)
    factor_flow_ = upload(place_factor(flows.factor, *places_, code.factor_bytes), stream);
  solve_flow_ = upload(flows.solve, stream);
  if (flows.transposed)
    transposed_flow_ = upload(*flows.transposed, stream);
  stream.synchronize("copying the tables of a factorization to the GPU");
}

void GpuPlan::upload_input(const LuDataflow* factor, const cuda::Stream& stream) {
  std::vector<uint32_t> column;
  for (uint32_t j = 0; j < tables_.size; ++j)
    column.insert(column.end(), tables_.input_offset[j + 1] - tables_.input_offset[j], j);
  const std::vector<uint32_t> source = narrowed(tables_.input_source);
  const std::vector<double> scale = or_ones(tables_.input_scale, tables_.input_nnz);
  std::vector<uint32_t> slot = narrowed(tables_.input_slot), second(slot.size(), kNoWord);
  const uint64_t places =
      (places_ ? places_->end : tables_.nnz()) + (factor != nullptr ? factor->partial_sums : 0);
  std::vector<uint32_t> kept((places + 31) / 32, 0);
  if (factor != nullptr) {
    const std::vector<bool> given = given_slots(*factor, tables_.nnz());
    for (size_t entry = 0; entry < slot.size(); ++entry)
      if (const uint32_t to = slot[entry]; given[to]) {
        slot[entry] = ~places_->by_column[to];
        second[entry] = places_->by_row[to];
        for (const uint32_t place : {places_->by_column[to], places_->by_row[to]})
          kept[place / 32] |= 1u << place % 32;
      }
  }
  source_ = upload(bytes_of(source), stream);
  slot_ = upload(bytes_of(slot), stream);
  second_ = upload(bytes_of(second), stream);
  column_ = upload(bytes_of(column), stream);
  scale_ = upload(bytes_of(scale), stream);
  kept_ = upload(bytes_of(kept), stream);
  stream.synchronize("copying the tables of a factorization's input to the GPU");
}

GpuPlan::Table GpuPlan::upload(std::span<const uint8_t> bytes, const cuda::Stream& stream) {
  auto table = std::make_unique<cuda::DeviceBuffer>(context_, bytes.size());
  table->upload(bytes, stream);
  table_bytes_ += bytes.size();
  return table;
}

std::vector<uint32_t> GpuPlan::in_places(std::vector<uint32_t> slots) const {
  if (places_)
    for (uint32_t& slot : slots)
      if (slot < places_->by_column.size())
        slot = places_->by_column[slot];
  return slots;
}

GpuPlan::Flow GpuPlan::upload(const LuDataflow& flow, const cuda::Stream& stream) {
  const uint32_t warps = code_.dataflow_threads / LuDataflow::kLanes;
  // Every block must be there at once: one a multiprocessor always is.
  if (flow.streams() % warps != 0 ||
      flow.streams() > gpu_streams(context_.properties().multiprocessors, code_.dataflow_threads))
    throw InternalError(fmt::format("tables for {} warps on a GPU of {} multiprocessors",
                                    flow.streams(), context_.properties().multiprocessors));
  Flow tables;
  tables.stream = upload(bytes_of(flow.stream_offset), stream);
  std::vector<uint32_t> group;
  for (size_t packet = 0; packet < flow.group.size(); ++packet)
    group.insert(group.end(), {flow.group[packet], flow.gate[packet]});
  tables.group = upload(bytes_of(group), stream);
  tables.task = upload(bytes_of(flow.task), stream);
  tables.operands = upload(bytes_of(flow.operands), stream);
  tables.partial_sums = flow.partial_sums;
  tables.blocks = flow.streams() / warps;
  stream.synchronize("copying the packets of a factorization or a solve to the GPU");
  return tables;
}

GpuPlan::Block GpuPlan::upload(const LuBlockSolve& solve, const cuda::Stream& stream) {
  if (code_.block_solve == nullptr || solve.warps * LuBlockSolve::kLanes != code_.block_threads)
    throw InternalError(fmt::format("tables for one block of {} warps, but its kernel has {} "
                                    "threads",
                                    solve.warps, code_.block_threads));
  Block tables;
  tables.end = upload(bytes_of(solve.end), stream);
  tables.shape = upload(bytes_of(solve.shape), stream);
  tables.records = upload(bytes_of(solve.records), stream);
  const std::vector<uint32_t> slot = in_places(solve.slot), pivot = in_places(solve.pivot);
  tables.slot = upload(bytes_of(slot), stream);
  tables.pivot = upload(bytes_of(pivot), stream);
  tables.steps = solve.steps;
  tables.numbers = solve.numbers();
  stream.synchronize("copying the steps of a solve to the GPU");
  return tables;
}

uint64_t GpuPlan::block_numbers() const {
  const auto of = [](const Solve& solve) {
    const Block* const block = std::get_if<Block>(&solve);
    return block != nullptr ? block->numbers : 0;
  };
  return std::max(of(solve_flow_), transposed_flow_ ? of(*transposed_flow_) : 0);
}

uint64_t GpuPlan::right_side_numbers() const {
  const bool none = std::holds_alternative<Block>(solve_flow_) &&
                    (!transposed_flow_ || std::holds_alternative<Block>(*transposed_flow_));
  return none ? 0 : uint64_t{tables_.size} * kSolveVectors;
}

GpuPlan::Solve GpuPlan::upload(const GpuFlows::Solve& solve, const cuda::Stream& stream) {
  if (const auto* const flow = std::get_if<LuDataflow>(&solve))
    return upload(places_ ? place_solve(*flow, *places_) : *flow, stream);
  return upload(std::get<LuBlockSolve>(solve), stream);
}

void GpuPlan::launch(const cuda::Kernel& kernel, uint32_t blocks_x, uint32_t blocks_y,
                     uint32_t threads, bool together, std::span<const uint64_t> arguments,
                     const cuda::Stream& stream, uint32_t dynamic_shared_bytes) const {
  constexpr size_t kMostArguments = 15;
  void* pointers[kMostArguments];
  for (size_t i = 0; i < arguments.size(); ++i)
    pointers[i] = const_cast<uint64_t*>(&arguments[i]); // the driver only reads
  const auto doing = [&] { return fmt::format("launching the kernel {}", kernel.name); };
  // The driver refuses a cooperative launch whose blocks are not all resident at once.
  if (together)
    cuda::check(context_.api().cuLaunchCooperativeKernel(kernel.handle, blocks_x, blocks_y, 1,
                                                         threads, 1, 1, 0, stream.handle(),
                                                         pointers),
                "cuLaunchCooperativeKernel", doing);
  else
    cuda::check(context_.api().cuLaunchKernel(kernel.handle, blocks_x, blocks_y, 1, threads, 1, 1,
                                              dynamic_shared_bytes, stream.handle(), pointers,
                                              nullptr),
                "cuLaunchKernel", doing);
}

void GpuPlan::refactor(const GpuWorkspace& workspace, cuda::DeviceAddress values,
                       const cuda::Stream& stream, const FactorOptions& options) const {
  const uint64_t slots = tables_.nnz(), entries = tables_.input_nnz;
  const uint64_t input[] = {values,
                            source_->address(),
                            slot_->address(),
                            second_->address(),
                            column_->address(),
                            scale_->address(),
                            workspace.initial_.address(),
                            workspace.values_.address(),
                            kept_->address(),
                            workspace.column_max_.address(),
                            workspace.given_max_.address(),
                            workspace.status_.address(),
                            entries,
                            value_places()};
  launch(input_, std::max(blocks_for(std::max(value_places(), entries), code_.input_threads), 1u),
         1, code_.input_threads, false, input, stream);
  if (slots == 0)
    return;
  const bool wide = code_.factor_bytes == sizeof(double) * (code_.complex ? 2 : 1);
  const double threshold =
      options.pivot_threshold > 0
          ? options.pivot_threshold
          : std::sqrt(wide ? unit_roundoff<double>() : double{unit_roundoff<float>()});
  if (strategy_) {
    strategy_->enqueue({workspace.initial_.address(), workspace.values_.address(),
                        workspace.column_max_.address(), workspace.quotient_.address(),
                        workspace.status_.address(), workspace.scratch_.address()},
                       threshold, stream);
    return;
  }
  const uint64_t threshold_bits = wide ? std::bit_cast<uint64_t>(threshold)
                                       : std::bit_cast<uint32_t>(static_cast<float>(threshold));
  const uint64_t factor[] = {factor_flow_.stream->address(),
                             factor_flow_.group->address(),
                             factor_flow_.task->address(),
                             factor_flow_.operands->address(),
                             workspace.values_.address(),
                             workspace.initial_.address(),
                             workspace.column_max_.address(),
                             workspace.given_max_.address(),
                             workspace.quotient_.address(),
                             workspace.status_.address(),
                             threshold_bits};
  launch(factor_, factor_flow_.blocks, 1, code_.dataflow_threads, true, factor, stream);
}

const GpuPlan::Solve& GpuPlan::solve_tables(bool transposed) const {
  if (transposed && !transposed_flow_)
    throw UserError("the plan was made without the transposed solve");
  return transposed ? *transposed_flow_ : solve_flow_;
}

void GpuPlan::solve(const GpuWorkspace& workspace, cuda::DeviceAddress b, cuda::DeviceAddress x,
                    uint32_t right_sides, bool transposed, const cuda::Stream& stream) const {
  if (right_sides > 0)
    prepare_solve(workspace, transposed, stream);
  solve_prepared(workspace, b, x, right_sides, transposed, stream);
}

void GpuPlan::prepare_solve(const GpuWorkspace& workspace, bool transposed,
                            const cuda::Stream& stream) const {
  const Block* const block = std::get_if<Block>(&solve_tables(transposed));
  if (block == nullptr || tables_.size == 0)
    return;
  const uint64_t numbers[] = {workspace.values_.address(), block->slot->address(),
                              block->pivot->address(), workspace.numbers_.address(),
                              block->numbers};
  launch(block_input_, blocks_for(block->numbers, code_.input_threads), 1, code_.input_threads,
         false, numbers, stream);
}

void GpuPlan::solve_prepared(const GpuWorkspace& workspace, cuda::DeviceAddress b,
                             cuda::DeviceAddress x, uint32_t right_sides, bool transposed,
                             const cuda::Stream& stream, cuda::DeviceAddress active) const {
  if (right_sides > workspace.right_sides_)
    throw UserError(fmt::format("{} right-hand sides, but the workspace has room for {}",
                                right_sides, workspace.right_sides_));
  const Solve& tables = solve_tables(transposed);
  const uint64_t conditional = active == 0 ? 0 : 1;
  const uint64_t n = tables_.size;
  if (n == 0 || right_sides == 0)
    return;
  const Table& from = transposed ? column_order_ : row_order_;
  const Table& from_scale = transposed ? column_scale_ : row_scale_;
  const Table& to_scale = transposed ? row_scale_ : column_scale_;
  const Table& to = transposed ? row_order_ : column_order_;
  if (const Block* const block = std::get_if<Block>(&tables)) {
    const uint64_t arguments[] = {b,
                                  from->address(),
                                  from_scale->address(),
                                  x,
                                  to->address(),
                                  to_scale->address(),
                                  diagonal_->address(),
                                  workspace.values_.address(),
                                  workspace.numbers_.address(),
                                  block->end->address(),
                                  block->shape->address(),
                                  block->records->address(),
                                  block->steps,
                                  active,
                                  conditional};
    launch(block_solve_, right_sides, 1, code_.block_threads, false, arguments, stream,
           code_.block_shared_bytes);
    return;
  }
  const Flow& flow = std::get<Flow>(tables);
  const uint64_t input[] = {
      b, from->address(), from_scale->address(), workspace.work_.address(), n, active, conditional};
  launch(solve_input_, blocks_for(n, code_.input_threads), right_sides, code_.input_threads, false,
         input, stream);
  const uint64_t arguments[] = {flow.stream->address(),
                                flow.group->address(),
                                flow.task->address(),
                                flow.operands->address(),
                                workspace.values_.address(),
                                workspace.work_.address(),
                                x,
                                to_scale->address(),
                                n,
                                right_sides,
                                active,
                                conditional};
  launch(solve_, flow.blocks, 1, code_.dataflow_threads, true, arguments, stream);
}

void GpuPlan::download_values(const GpuWorkspace& workspace, std::span<uint8_t> values,
                              const cuda::Stream& stream) const {
  const uint64_t each = code_.factor_bytes;
  if (values.size() != tables_.nnz() * each)
    throw InternalError(fmt::format("{} bytes for {} values", values.size(), tables_.nnz()));
  if (!places_) {
    workspace.values_.download(values, stream);
    return;
  }
  std::vector<uint8_t> placed(places_->end * each);
  workspace.values_.download(placed, stream);
  for (uint64_t slot = 0; slot < tables_.nnz(); ++slot)
    std::memcpy(values.data() + slot * each, placed.data() + places_->by_column[slot] * each, each);
}

FactorStatus GpuPlan::status(const GpuWorkspace& workspace, const cuda::Stream& stream) const {
  LuStatusRecord record;
  std::vector<double> quotient(tables_.size);
  workspace.status_.download({reinterpret_cast<uint8_t*>(&record), sizeof record}, stream);
  workspace.quotient_.download(
      {reinterpret_cast<uint8_t*>(quotient.data()), quotient.size() * sizeof(double)}, stream);
  if (record.perturbed < 0)
    throw UsageError("nothing has been factorized in this workspace yet");
  FactorStatus status;
  const auto set_place = [&](int64_t j, int64_t& row, int64_t& column) {
    if (j == INT64_MAX)
      return;
    row = tables_.row_order[static_cast<size_t>(j)];
    column = tables_.column_order[static_cast<size_t>(j)];
  };
  if (record.zero_column != INT64_MAX) {
    status.outcome = FactorOutcome::singular;
    set_place(record.zero_column, status.row, status.column);
  } else if (record.nonfinite_column != INT64_MAX) {
    status.outcome = FactorOutcome::not_finite;
    set_place(record.nonfinite_column, status.row, status.column);
  }
  status.perturbed = static_cast<uint64_t>(record.perturbed);
  set_place(record.perturbed_column, status.perturbed_row, status.perturbed_column);
  double weakest = std::numeric_limits<double>::infinity();
  int64_t weakest_column = INT64_MAX;
  for (uint32_t j = 0; j < tables_.size; ++j)
    if (quotient[j] < weakest) {
      weakest = quotient[j];
      weakest_column = j;
    }
  status.weakest_pivot = weakest_column == INT64_MAX ? 0 : weakest;
  set_place(weakest_column, status.weakest_row, status.weakest_column);
  const double largest_input = std::bit_cast<double>(record.largest_input);
  if (largest_input > 0)
    status.growth = std::bit_cast<double>(record.largest) / largest_input;
  return status;
}

GpuWorkspace::GpuWorkspace(const GpuPlan& plan, uint32_t right_sides, cuda::DeviceMemory memory)
    : right_sides_(right_sides), values_(memory.take(plan.value_places() * plan.factor_bytes())),
      initial_(memory.take(plan.tables().nnz() * plan.factor_bytes())),
      column_max_(memory.take(uint64_t{plan.tables().size} * sizeof(int64_t))),
      given_max_(memory.take(uint64_t{plan.tables().size} * sizeof(int64_t))),
      quotient_(memory.take(uint64_t{plan.tables().size} * sizeof(double))),
      status_(memory.take(sizeof(LuStatusRecord))),
      numbers_(memory.take(plan.block_numbers() * plan.factor_bytes())),
      scratch_(memory.take(plan.scratch_bytes())),
      work_(memory.take(plan.right_side_numbers() * right_sides * plan.factor_bytes())),
      bytes_(memory.bytes()) {}

GpuWorkspace::GpuWorkspace(const cuda::Context& context, const GpuPlan& plan, uint32_t right_sides,
                           const cuda::Stream& stream)
    : GpuWorkspace(plan, right_sides, cuda::DeviceMemory(context)) {
  initialize(stream);
}

GpuWorkspace::GpuWorkspace(const cuda::Context& context, const GpuPlan& plan, uint32_t right_sides,
                           cuda::DeviceAddress memory)
    : GpuWorkspace(plan, right_sides, cuda::DeviceMemory(context, memory)) {}

uint64_t GpuWorkspace::bytes_for(const cuda::Context& context, const GpuPlan& plan,
                                 uint32_t right_sides) {
  return GpuWorkspace(context, plan, right_sides, cuda::DeviceAddress{0}).bytes();
}

uint32_t GpuWorkspace::right_sides_in(const cuda::Context& context, const GpuPlan& plan,
                                      uint64_t bytes) {
  const uint64_t without = bytes_for(context, plan, 0);
  if (bytes < without)
    return 0;
  const uint64_t each = plan.right_side_numbers() * plan.factor_bytes();
  const uint64_t most = kMostGridRows; // right-hand sides are along the grid's y
  return static_cast<uint32_t>(each == 0 ? most : std::min(most, (bytes - without) / each));
}

void GpuWorkspace::initialize(const cuda::Stream& stream) const {
  // Entries that fill brings start from 0, and so does the search for the largest of a column; the
  // kernels leave both as they must be for the next run.
  initial_.fill(0, stream);
  column_max_.fill(0, stream);
  given_max_.fill(0, stream);
  status_.fill(0xFF, stream); // nothing is factorized yet
}

} // namespace sparsertc::lu
