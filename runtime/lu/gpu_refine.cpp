#include "runtime/lu/gpu_refine.h"

#include "ir/error.h"
#include "ir/lu_refine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace sparsertc::lu {
namespace {

/// Of one right-hand side.
constexpr uint64_t kUpdatePartsBytes =
    uint64_t{kLuRefineUpdateParts} * kLuRefineUpdateNumbers * sizeof(double);
constexpr uint64_t kResidualPartsBytes =
    uint64_t{kLuRefineResidualParts} * kLuRefineResidualNumbers * sizeof(double);

/// Of a number of the vectors that are kept in double precision.
uint64_t wide_bytes(const GpuPlan& plan) {
  return (plan.is_complex() ? 2 : 1) * sizeof(double);
}

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

} // namespace

GpuRefinement::GpuRefinement(const cuda::Context& context, const GpuRefineCode& code,
                             const GpuPlan& plan)
    : context_(context), code_(code), plan_(plan), module_(context, code.image),
      begin_(module_.kernel(code.begin)), update_(module_.kernel(code.update)),
      residual_(module_.kernel(code.residual)), decide_(module_.kernel(code.decide)),
      end_(module_.kernel(code.end)) {
  code_.image = {};
  if (plan.given_bytes() != wide_bytes(plan) / (code.given_single ? 2 : 1))
    throw InternalError(fmt::format("refinement of numbers of {} bytes", plan.given_bytes()));
  const MatrixPattern pattern = pattern_of(plan.tables());
  const uint32_t n = plan.tables().size;
  const std::vector<uint32_t> offset(pattern.row_offset.begin(), pattern.row_offset.end());
  std::vector<uint32_t> source(pattern.column_index.size());
  std::iota(source.begin(), source.end(), 0u);
  const cuda::Stream stream(context);
  rows_ = upload(offset, pattern.column_index, source, stream);

  std::vector<uint32_t> column_offset(uint64_t{n} + 1, 0), row(source.size());
  for (const uint32_t j : pattern.column_index)
    ++column_offset[j + 1];
  std::partial_sum(column_offset.begin(), column_offset.end(), column_offset.begin());
  std::vector<uint32_t> next(column_offset.begin(), column_offset.end() - 1);
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t p = offset[i]; p < offset[i + 1]; ++p) {
      const uint32_t to = next[pattern.column_index[p]]++;
      row[to] = i;
      source[to] = p;
    }
  columns_ = upload(column_offset, row, source, stream);
}

GpuRefinement::Rows GpuRefinement::upload(const std::vector<uint32_t>& offset,
                                          const std::vector<uint32_t>& index,
                                          const std::vector<uint32_t>& source,
                                          const cuda::Stream& stream) const {
  const auto table = [&](const std::vector<uint32_t>& numbers) {
    auto buffer = std::make_unique<cuda::DeviceBuffer>(context_, numbers.size() * sizeof(uint32_t));
    buffer->upload(bytes_of(numbers), stream);
    return buffer;
  };
  Rows rows{table(offset), table(index), table(source)};
  stream.synchronize("copying the pattern of a matrix to the GPU");
  return rows;
}

void GpuRefinement::launch(const cuda::Kernel& kernel, uint64_t blocks, uint32_t right_sides,
                           std::span<const uint64_t> arguments, const cuda::Stream& stream) const {
  std::array<void*, 12> pointers{};
  for (size_t i = 0; i < arguments.size(); ++i)
    pointers[i] = const_cast<uint64_t*>(&arguments[i]); // the driver only reads
  cuda::check(context_.api().cuLaunchKernel(kernel.handle, static_cast<uint32_t>(blocks),
                                            right_sides, 1, code_.threads, 1, 1, 0, stream.handle(),
                                            pointers.data(), nullptr),
              "cuLaunchKernel",
              [&] { return fmt::format("launching the kernel {}", kernel.name); });
}

void GpuRefinement::solve(const GpuWorkspace& factors, const GpuRefineWorkspace& workspace,
                          cuda::DeviceAddress values, cuda::DeviceAddress b, cuda::DeviceAddress x,
                          uint32_t right_sides, bool transposed, const cuda::Stream& stream,
                          const RefineOptions& options) const {
  if (right_sides > workspace.right_sides_)
    throw UserError(fmt::format("{} right-hand sides, but the workspace of the refinement has room "
                                "for {}",
                                right_sides, workspace.right_sides_));
  const uint64_t n = plan_.tables().size;
  if (n == 0 || right_sides == 0)
    return;
  if (factors.right_sides() == 0)
    throw UserError("the workspace of the factors has no room for a right-hand side");
  plan_.prepare_solve(factors, transposed, stream);
  for (uint32_t first = 0; first < right_sides; first += factors.right_sides())
    solve_some(factors, workspace, values, b, x, first,
               std::min(factors.right_sides(), right_sides - first), transposed, stream, options);
}

void GpuRefinement::solve_some(const GpuWorkspace& factors, const GpuRefineWorkspace& workspace,
                               cuda::DeviceAddress values, cuda::DeviceAddress all_b,
                               cuda::DeviceAddress all_x, uint32_t first, uint32_t right_sides,
                               bool transposed, const cuda::Stream& stream,
                               const RefineOptions& options) const {
  const uint64_t n = plan_.tables().size;
  const uint64_t before = first * n * plan_.given_bytes(), wide = first * n * wide_bytes(plan_);
  const auto from = [first](const cuda::DeviceBuffer& array, uint64_t bytes_of_side) {
    return array.address() + first * bytes_of_side;
  };
  const cuda::DeviceAddress b = all_b + before, x = all_x + before;
  const cuda::DeviceAddress kept = workspace.kept_.address() + wide,
                            r = workspace.r_.address() + before,
                            newest = workspace.x_.address() + wide,
                            best = workspace.best_.address() + wide;
  const cuda::DeviceAddress records = from(workspace.records_, sizeof(LuRefineRecord)),
                            active = from(workspace.active_, sizeof(int32_t)),
                            update_parts = from(workspace.update_parts_, kUpdatePartsBytes),
                            parts = from(workspace.parts_, kResidualPartsBytes);
  const uint64_t row_blocks = (n + code_.threads - 1) / code_.threads;
  const uint64_t update_blocks = std::min<uint64_t>(row_blocks, kLuRefineUpdateParts);
  const uint64_t warps = code_.threads / LuDataflow::kLanes;
  const uint64_t residual_blocks =
      std::min<uint64_t>((n + warps - 1) / warps, kLuRefineResidualParts / warps);
  const Rows& rows = transposed ? columns_ : rows_;
  const double roundoff =
      code_.single_solution ? double{unit_roundoff<float>()} : unit_roundoff<double>();
  const double target = options.target > 0 ? options.target : roundoff;

  const uint64_t begin[] = {b, kept, r, newest, best, records, active, n};
  const uint64_t update[] = {r,       newest, best,         plan_.unknown_scale(transposed),
                             records, active, update_parts, n};
  const uint64_t residual[] = {rows.offset->address(),
                               rows.index->address(),
                               rows.source->address(),
                               values,
                               kept,
                               r,
                               newest,
                               active,
                               update_parts,
                               update_blocks,
                               parts,
                               n};
  const uint64_t decide[] = {records,
                             active,
                             update_parts,
                             update_blocks,
                             parts,
                             residual_blocks * warps,
                             std::bit_cast<uint64_t>(target),
                             std::bit_cast<uint64_t>(options.slowest)};
  const uint64_t end[] = {newest, best, x, records, n};
  launch(begin_, row_blocks, right_sides, begin, stream);
  for (unsigned step = 0; step <= options.maximum_steps; ++step) {
    plan_.solve_prepared(factors, r, r, right_sides, transposed, stream, active);
    launch(update_, update_blocks, right_sides, update, stream);
    launch(residual_, residual_blocks, right_sides, residual, stream);
    launch(decide_, 1, right_sides, decide, stream);
  }
  launch(end_, row_blocks, right_sides, end, stream);
}

std::vector<RefineResult> GpuRefinement::results(const GpuRefineWorkspace& workspace,
                                                 uint32_t right_sides,
                                                 const cuda::Stream& stream) const {
  if (plan_.tables().size == 0)
    return std::vector<RefineResult>(right_sides);
  std::vector<LuRefineRecord> records(right_sides);
  workspace.records_.download(
      {reinterpret_cast<uint8_t*>(records.data()), records.size() * sizeof(LuRefineRecord)},
      stream);
  std::vector<RefineResult> results;
  for (const LuRefineRecord& record : records) {
    RefineResult result;
    result.steps = static_cast<unsigned>(record.steps);
    result.backward_error = record.backward_error;
    result.residual = std::isfinite(record.backward_error)
                          ? record.residual
                          : std::numeric_limits<double>::quiet_NaN();
    results.push_back(result);
  }
  return results;
}

GpuRefineWorkspace::GpuRefineWorkspace(const GpuPlan& plan, uint32_t right_sides,
                                       cuda::DeviceMemory memory)
    : right_sides_(right_sides), records_(memory.take(right_sides * sizeof(LuRefineRecord))),
      kept_(memory.take(uint64_t{plan.tables().size} * right_sides * wide_bytes(plan))),
      r_(memory.take(uint64_t{plan.tables().size} * right_sides * plan.given_bytes())),
      x_(memory.take(kept_.bytes())), best_(memory.take(kept_.bytes())),
      active_(memory.take(right_sides * sizeof(int32_t))),
      update_parts_(memory.take(right_sides * kUpdatePartsBytes)),
      parts_(memory.take(right_sides * kResidualPartsBytes)), bytes_(memory.bytes()) {}

GpuRefineWorkspace::GpuRefineWorkspace(const cuda::Context& context, const GpuPlan& plan,
                                       uint32_t right_sides)
    : GpuRefineWorkspace(plan, right_sides, cuda::DeviceMemory(context)) {}

GpuRefineWorkspace::GpuRefineWorkspace(const cuda::Context& context, const GpuPlan& plan,
                                       uint32_t right_sides, cuda::DeviceAddress memory)
    : GpuRefineWorkspace(plan, right_sides, cuda::DeviceMemory(context, memory)) {}

uint64_t GpuRefineWorkspace::bytes_for(const cuda::Context& context, const GpuPlan& plan,
                                       uint32_t right_sides) {
  return GpuRefineWorkspace(context, plan, right_sides, cuda::DeviceAddress{0}).bytes_;
}

} // namespace sparsertc::lu
