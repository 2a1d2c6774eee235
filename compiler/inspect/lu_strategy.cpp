#include "compiler/inspect/lu_strategy.h"

#include "compiler/inspect/lu_schedule.h"
#include "compiler/inspect/lu_time.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace sparsertc {
namespace {

/// Entries of L+U that dataflow can number.
constexpr uint64_t kMostSlots = uint64_t{1} << 31;

/// What is left for dense vectors beside the values, the pattern and the tables of the solve.
uint64_t room_for_columns(const LuTables& tables, const LuStrategyRequest& request) {
  const uint64_t values = 2 * tables.nnz() * request.number_bytes;
  const uint64_t pattern = 4 * tables.nnz() * sizeof(uint32_t);
  const uint64_t input = tables.input_nnz * (3 * sizeof(uint32_t) + 2 * sizeof(double));
  const uint64_t taken = values + pattern + input;
  const uint64_t left = request.memory_bytes - std::min(request.memory_bytes, taken);
  return left - left / 16;
}

} // namespace

LuStrategyChoice choose_lu_strategy(const LuTables& tables, const LuStrategyRequest& request) {
  LuStrategyChoice choice;
  const uint64_t products = multiply_adds(tables);
  choice.dataflow_bytes = gather_bytes(tables.nnz(), products);
  const uint64_t most = request.gather_bytes > 0 ? request.gather_bytes : request.memory_bytes / 2;
  const bool dataflow_fits = tables.nnz() < kMostSlots && choice.dataflow_bytes <= most;

  LuRightLookingOptions& options = choice.right_looking;
  options.multiprocessors = request.multiprocessors;
  options.number_bytes = request.number_bytes;
  options.complex = request.complex;
  options.free_bytes = room_for_columns(tables, request);
  options.fusion = request.fusion;
  options.atomics = request.atomics;
  options.tail_columns = request.tail_columns;
  choice.columns = lu_column_memory(tables.size, options);

  const auto too_large = fmt::format("the tables of {} multiply-adds take {} bytes, {} may be used",
                                     products, choice.dataflow_bytes, most);
  if (request.strategy == LuStrategy::emitted) {
    // Its tables are those of the dataflow without the columns in straight-line code.
    if (!dataflow_fits)
      throw UserError(too_large, "--strategy=right-looking needs none");
    choice.strategy = LuStrategy::emitted;
    choice.emitted.most_multiply_adds = request.budget;
    choice.emitted.number_bytes = request.number_bytes;
    choice.reason =
        fmt::format("asked for; at most {} multiply-adds in straight-line code", request.budget);
    return choice;
  }
  const bool automatic = request.strategy == LuStrategy::automatic;
  if (automatic && dataflow_fits && request.nvrtc) {
    choice.dataflow_us = dataflow_us(tables, request.complex);
    choice.levels_us = choose_tail(tables, right_looking_levels(tables), options).us;
  }
  const bool by_levels = automatic ? !dataflow_fits || choice.levels_us < choice.dataflow_us
                                   : request.strategy != LuStrategy::dataflow;
  if (!by_levels) {
    if (!dataflow_fits)
      throw UserError(fmt::format("the tables of {} multiply-adds do not fit into {} bytes of the "
                                  "GPU's memory",
                                  products, most),
                      "--strategy=right-looking needs none, --device=cpu factorizes it on the CPU");
    choice.strategy = LuStrategy::dataflow;
    choice.reason =
        request.strategy == LuStrategy::dataflow
            ? "asked for"
            : fmt::format("its tables fit: {} bytes, {} may be used", choice.dataflow_bytes, most);
    if (choice.levels_us > 0)
      choice.reason += fmt::format("; {:.0f} us predicted, {:.0f} of columns by levels",
                                   choice.dataflow_us, choice.levels_us);
    return choice;
  }
  const auto formula = fmt::format(
      "{} bytes free / ({} rows x {} bytes) = {} dense columns, {} in flight", options.free_bytes,
      tables.size, request.number_bytes, choice.columns.fitting(), choice.columns.in_flight);
  switch (request.strategy) {
  case LuStrategy::dense_columns:
    options.columns = LuWorkColumns::dense;
    choice.reason = "asked for; " + formula;
    break;
  case LuStrategy::compressed_columns:
    options.columns = LuWorkColumns::compressed;
    choice.reason = "asked for";
    break;
  default:
    options.columns = choice.columns.dense() ? LuWorkColumns::automatic : LuWorkColumns::compressed;
    if (automatic)
      choice.reason = (dataflow_fits ? fmt::format("{:.0f} us predicted, {:.0f} of dataflow",
                                                   choice.levels_us, choice.dataflow_us)
                                     : too_large) +
                      "; ";
    choice.reason += formula;
  }
  choice.strategy = options.columns == LuWorkColumns::compressed ? LuStrategy::compressed_columns
                                                                 : LuStrategy::dense_columns;
  return choice;
}

} // namespace sparsertc
