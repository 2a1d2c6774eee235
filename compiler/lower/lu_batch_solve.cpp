#include "compiler/lower/lu_batch_kernel.h"

namespace sparsertc::lu_batch {
namespace {

/// Rows of the forward substitution, then those of the backward one.
class SolveWriter : public SequenceWriter {
public:
  SolveWriter(ir::Module& module, const LuTables& tables, const LuBatchOptions& options)
      : SequenceWriter(module, options, "lu_batch_solve",
                       {{pointer_to(lu_batch_vector_type(options)), "b"},
                        {pointer_to(lu_batch_vector_type(options)), "x"},
                        {pointer_to(options.type), "factors"},
                        {Scalar::i32, "instances"}},
                       tables.nnz(), tables.size),
        tables_(tables), vector_type_(lu_batch_vector_type(options)) {}

  std::vector<uint32_t> write_forward(const std::vector<uint32_t>& share, uint32_t warp) {
    backward_ = false;
    return write(share, warp);
  }
  std::vector<uint32_t> write_backward(std::vector<uint32_t> share, uint32_t warp) {
    backward_ = true;
    std::reverse(share.begin(), share.end());
    return write(share, warp);
  }

private:
  Reg factors() const override { return argument(2); }
  /// Of the warp, for what a cut inside a row carries over.
  uint64_t carried() const { return tables_.nnz() + warp(); }
  /// The place of z(i), then of x(i).
  uint64_t unknown(uint32_t i) const { return tables_.nnz() + kLuBatchMostWarps + i; }

  Reg load(uint64_t number) override {
    if (number < kInput)
      return SequenceWriter::load(number);
    return b().load(place_of(argument(0), vector_type_, argument(3), number - kInput), 0, 1,
                    Cache::readonly);
  }

  void write_share(const std::vector<uint32_t>& share) override {
    for (const uint32_t i : share)
      backward_ ? list_backward(i) : list_forward(i);
    begin_function();
    for (const uint32_t i : share) {
      if (is_full())
        cut();
      backward_ ? write_backward(i) : write_forward(i);
      ++done_;
    }
    end_function();
  }

  void list_forward(uint32_t i) {
    items_.push_back({kInput + tables_.row_order[i], 0});
    for (uint64_t p = tables_.row_offset[i]; p < tables_.row_diagonal[i]; ++p) {
      const uint32_t k = tables_.column_index[p];
      items_.push_back({tables_.row_slot[p], 0});
      items_.push_back({unknown(k), ready_after(k)});
    }
    items_.push_back({tables_.diagonal[i], 0});
  }
  void write_forward(uint32_t i) {
    const uint32_t row = tables_.row_order[i];
    const Reg given = next(kInput + row);
    forget(kInput + row);
    Reg sum =
        scaled(given, vector_type_, tables_.row_scale.empty() ? 1 : tables_.row_scale[row], type_);
    for (uint64_t p = tables_.row_offset[i]; p < tables_.row_diagonal[i]; ++p) {
      sum = cut_where_full(sum);
      const Reg minus = b().value(Opcode::neg, type_, {next(tables_.row_slot[p])});
      sum = b().fma(type_, minus, next(unknown(tables_.column_index[p])), sum);
    }
    finish(unknown(i), b().mul(type_, sum, next(tables_.diagonal[i])));
  }

  void list_backward(uint32_t i) {
    for (uint64_t p = tables_.row_offset[i + 1]; --p > tables_.row_diagonal[i];) {
      const uint32_t k = tables_.column_index[p];
      items_.push_back({tables_.row_slot[p], 0});
      items_.push_back({unknown(k), ready_after(k)});
    }
    items_.push_back({tables_.diagonal[i], 0});
    items_.push_back({unknown(i), 0});
  }
  void write_backward(uint32_t i) {
    Reg sum;
    for (uint64_t p = tables_.row_offset[i + 1]; --p > tables_.row_diagonal[i];) {
      if (sum.valid())
        sum = cut_where_full(sum);
      const Reg entry = next(tables_.row_slot[p]);
      const Reg x = next(unknown(tables_.column_index[p]));
      sum = sum.valid() ? b().fma(type_, entry, x, sum) : b().mul(type_, entry, x);
    }
    const Reg pivot = next(tables_.diagonal[i]);
    Reg x = next(unknown(i));
    if (sum.valid())
      x = b().fma(type_, b().value(Opcode::neg, type_, {sum}), pivot, x);
    finish(unknown(i), x);
    const uint32_t column = tables_.column_order[i];
    b().store(place_of(argument(1), vector_type_, argument(3), column), 0,
              scaled(x, type_, tables_.column_scale.empty() ? 1 : tables_.column_scale[column],
                     vector_type_));
  }

  Reg cut_where_full(Reg sum) {
    if (!is_full())
      return sum;
    store(carried(), sum);
    cut();
    return load(carried());
  }

  const LuTables& tables_;
  const Scalar vector_type_;
  bool backward_ = false;
};

} // namespace

void write_solve(ir::Module& module, const LuTables& tables, const LuBatchOptions& options) {
  const LuBatchShares shares =
      share_lu_batch(tables, lu_batch_solve_weights(tables), options.warps);
  SolveWriter writer(module, tables, options);
  KernelWriter::Functions functions;
  const size_t stages = shares.stages.size();
  for (size_t stage = 0; stage < 2 * stages; ++stage) {
    const bool forward = stage < stages;
    const auto& share = shares.stages[forward ? stage : 2 * stages - 1 - stage];
    functions.emplace_back();
    for (uint32_t warp = 0; warp < share.size(); ++warp)
      functions.back().push_back(forward ? writer.write_forward(share[warp], warp)
                                         : writer.write_backward(share[warp], warp));
  }
  const Scalar vectors = lu_batch_vector_type(options);
  KernelWriter kernel(module, kLuBatchSolveKernel, bytes_of(options.type), busy_warps(shares));
  const Reg b = kernel.parameter(pointer_to(vectors), "b");
  const Reg x = kernel.parameter(pointer_to(vectors), "x");
  const Reg factors = kernel.parameter(pointer_to(options.type), "factors");
  const Reg instances = kernel.parameter(Scalar::i32, "instances");
  kernel.begin(instances);
  kernel.finish(functions,
                {kernel.of_instance(b, bytes_of(vectors)), kernel.of_instance(x, bytes_of(vectors)),
                 kernel.of_lane(factors, lu_batch_numbers(tables)), instances});
}

} // namespace sparsertc::lu_batch
