#include "compiler/lower/lu_batch_kernel.h"

namespace sparsertc::lu_batch {
namespace {

/// Left-looking: column j takes the columns k of its entries u(k,j), k ascending. Entries are in
/// registers from their first use to their last, or to a cut.
class FactorWriter : public SequenceWriter {
public:
  FactorWriter(ir::Module& module, const LuTables& tables, const LuBatchOptions& options)
      : SequenceWriter(module, options, "lu_batch_factor",
                       {{pointer_to(options.type), "values"},
                        {pointer_to(options.type), "factors"},
                        {pointer_to(Scalar::i32), "status"},
                        {Scalar::i32, "instances"},
                        {options.type, "threshold"}},
                       0, tables.size),
        tables_(tables), entry_(tables.size) {}

private:
  void write_share(const std::vector<uint32_t>& share) override {
    for (const uint32_t j : share)
      list_column(j);
    begin_function();
    for (const uint32_t j : share) {
      if (is_full())
        cut();
      write_column(j);
      ++done_;
    }
    end_function();
  }

  /// Of the column at hand, by row.
  struct Entry {
    Reg value;
    uint64_t slot = 0;
    bool stored = false;           ///< what it is so far lies at its place
    std::optional<uint64_t> input; ///< number of its entry of B
  };

  Reg factors() const override { return argument(1); }
  /// Of the warp, for what a cut inside a column carries over.
  uint64_t carried() const { return tables_.nnz() + warp(); }

  Reg load(uint64_t number) override {
    if (number < kInput)
      return SequenceWriter::load(number);
    return b().load(
        place_of(argument(0), type_, argument(3), tables_.input_source[number - kInput]), 0, 1,
        Cache::readonly);
  }

  /// The operands of column j in the order in which write_column() asks for them.
  void list_column(uint32_t j) {
    note_inputs(j);
    const auto first_use = [&](uint32_t i) {
      if (entry_[i].input)
        items_.push_back({kInput + *entry_[i].input, 0});
      entry_[i].input.reset();
    };
    for (uint64_t slot = tables_.column_offset[j]; slot < tables_.diagonal[j]; ++slot) {
      const uint32_t k = tables_.row_index[slot];
      first_use(k);
      items_.push_back({tables_.diagonal[k], ready_after(k)});
      for (uint64_t q = tables_.diagonal[k] + 1; q < tables_.column_offset[k + 1]; ++q) {
        first_use(tables_.row_index[q]);
        items_.push_back({q, ready_after(k)});
      }
    }
    for (uint64_t slot = tables_.diagonal[j]; slot < tables_.column_offset[j + 1]; ++slot)
      first_use(tables_.row_index[slot]);
  }
  void note_inputs(uint32_t j) {
    for (uint64_t slot = tables_.column_offset[j]; slot < tables_.column_offset[j + 1]; ++slot)
      entry_[tables_.row_index[slot]] = {{}, slot, false, {}};
    for (uint64_t p = tables_.input_offset[j]; p < tables_.input_offset[j + 1]; ++p)
      entry_[tables_.input_row[p]].input = p;
  }

  void on_begin() override {
    zero_ = b().constant(type_, real(0));
    check_ = b().constant(type_, real(0));
    replaced_ = b().constant(Scalar::i32, Operand::integer(0));
  }
  void on_end() override {
    // Other warps have the same word.
    b().if_begin(b().compare(Comparison::ne, type_, check_, check_));
    const Reg bit =
        b().constant(Scalar::i32, Operand::integer(static_cast<int32_t>(kLuBatchNotFinite)));
    b().atomic(ir::Atomic::bit_or, argument(2), 0, bit);
    b().end();
    b().if_begin(b().compare(Comparison::ne, Scalar::i32, replaced_, Operand::integer(0)));
    b().atomic(ir::Atomic::add, argument(2), 0, replaced_);
    b().end();
  }

  void write_column(uint32_t j) {
    const uint64_t begin = tables_.column_offset[j], end = tables_.column_offset[j + 1],
                   pivot = tables_.diagonal[j];
    note_inputs(j);
    largest_ = b().constant(type_, real(0));

    for (uint64_t slot = begin; slot < pivot; ++slot) {
      cut_where_full(j);
      subtract_column(slot);
    }
    // All of B's column must have been read before its largest is known.
    for (uint64_t slot = pivot; slot < end; ++slot) {
      cut_where_full(j);
      entry(tables_.row_index[slot]);
    }
    write_pivot(pivot, j);
    for (uint64_t slot = pivot + 1; slot < end; ++slot) {
      cut_where_full(j);
      const uint32_t i = tables_.row_index[slot];
      finish(slot, watched(entry(i)));
      entry_[i].value = {};
    }
  }

  void subtract_column(uint64_t slot) {
    const uint32_t k = tables_.row_index[slot];
    const Reg u = watched(entry(k));
    finish(slot, u);
    entry_[k].value = {};
    const Reg product = b().mul(type_, u, next(tables_.diagonal[k]));
    const Reg minus = b().value(Opcode::neg, type_, {product});
    for (uint64_t q = tables_.diagonal[k] + 1; q < tables_.column_offset[k + 1]; ++q) {
      const Reg sum = entry(tables_.row_index[q]);
      b().fma(type_, next(q), minus, sum, sum);
    }
  }

  void write_pivot(uint64_t slot, uint32_t j) {
    const Reg value = watched(entry(j));
    const Reg least = b().mul(type_, argument(4), largest_);
    const Reg magnitude = b().value(Opcode::abs, type_, {value});
    const Reg small = b().compare(Comparison::lt, type_, magnitude, least);
    const Scalar bits = type_ == Scalar::f64 ? Scalar::i64 : Scalar::i32;
    const Reg negative =
        b().compare(Comparison::lt, bits, b().bitcast(bits, value), Operand::integer(0));
    const Reg minus = b().value(Opcode::neg, type_, {least});
    const Reg replacement = b().select(type_, negative, minus, least);
    const Reg one = b().constant(type_, real(1));
    const Reg divisor = b().select(type_, small, replacement, value);
    finish(slot, watched(b().value(Opcode::div, type_, {one, divisor})));
    entry_[j].value = {};
    const Reg more = b().add(Scalar::i32, replaced_, Operand::integer(1));
    b().select(Scalar::i32, small, more, replaced_, replaced_);
  }

  /// Row i of the column so far.
  Reg entry(uint32_t i) {
    Entry& entry = entry_[i];
    if (entry.value.valid())
      return entry.value;
    if (entry.stored) {
      entry.value = load(entry.slot);
    } else if (entry.input) {
      const uint64_t p = *entry.input;
      const Reg given = next(kInput + p);
      forget(kInput + p);
      entry.value =
          scaled(given, type_, tables_.input_scale.empty() ? 1 : tables_.input_scale[p], type_);
      const Reg magnitude = b().value(Opcode::abs, type_, {entry.value});
      const Reg larger = b().compare(Comparison::gt, type_, magnitude, largest_);
      b().select(type_, larger, magnitude, largest_, largest_);
    } else {
      entry.value = b().move(zero_);
    }
    return entry.value;
  }

  /// Notes whether a number is finite: 0 times another one is a NaN.
  Reg watched(Reg value) {
    b().fma(type_, value, zero_, check_, check_);
    return value;
  }

  /// Between two functions the entries of column j wait at their places.
  void cut_where_full(uint32_t j) {
    if (!is_full())
      return;
    for (uint64_t slot = tables_.column_offset[j]; slot < tables_.column_offset[j + 1]; ++slot) {
      Entry& entry = entry_[tables_.row_index[slot]];
      if (!entry.value.valid())
        continue;
      store(slot, entry.value);
      entry.stored = true;
      entry.value = {};
    }
    store(carried(), largest_);
    cut();
    largest_ = load(carried());
  }

  const LuTables& tables_;
  std::vector<Entry> entry_;
  Reg zero_, check_, replaced_, largest_;
};

} // namespace

void write_factor(ir::Module& module, const LuTables& tables, const LuBatchOptions& options) {
  const LuBatchShares shares =
      share_lu_batch(tables, lu_batch_factor_weights(tables), options.warps);
  FactorWriter writer(module, tables, options);
  KernelWriter::Functions functions;
  for (const auto& stage : shares.stages)
    for (uint32_t warp = 0; warp < stage.size(); ++warp) {
      if (warp == 0)
        functions.emplace_back();
      functions.back().push_back(writer.write(stage[warp], warp));
    }
  const Scalar type = options.type;
  const uint32_t bytes = bytes_of(type);
  KernelWriter kernel(module, kLuBatchFactorKernel, bytes, busy_warps(shares));
  const Reg values = kernel.parameter(pointer_to(type), "values");
  const Reg factors = kernel.parameter(pointer_to(type), "factors");
  const Reg status = kernel.parameter(pointer_to(Scalar::i32), "status");
  const Reg instances = kernel.parameter(Scalar::i32, "instances");
  const Reg threshold = kernel.parameter(type, "threshold");
  kernel.begin(instances);
  const Reg word = kernel.of_instance(status, sizeof(uint32_t));
  const std::vector<Reg> arguments = {kernel.of_instance(values, bytes),
                                      kernel.of_lane(factors, lu_batch_numbers(tables)), word,
                                      instances, threshold};
  kernel.clear(word);
  kernel.finish(functions, arguments);
}

} // namespace sparsertc::lu_batch
