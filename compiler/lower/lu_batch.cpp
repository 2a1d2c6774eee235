#include "compiler/lower/lu_batch.h"

#include "compiler/inspect/lu_batch_shares.h"
#include "compiler/inspect/lu_schedule.h"
#include "ir/builder.h"
#include "ir/error.h"
#include "ir/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sparsertc {
namespace {

using ir::Cache;
using ir::Comparison;
using ir::Conversion;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

/// So that every offset fits in 31 bits.
constexpr uint64_t kMostNumbers = uint64_t{1} << 22;
/// Number kInput + p: entry p of the matrix as it is given.
constexpr uint64_t kInput = uint64_t{1} << 32;

ir::Type pointer_to(Scalar element) {
  return ir::Type::pointer(ir::Space::device, element);
}

uint32_t bytes_of(Scalar type) {
  return type == Scalar::f64 ? 8 : 4;
}

/// Device functions that are called one after the other with the same arguments, each begun where
/// the one before got too long. Loads come from a list of all operands of a share of the columns,
/// some of them ahead.
class SequenceWriter {
public:
  struct Parameter {
    ir::Type type;
    const char* name;
  };

  SequenceWriter(ir::Module& module, const LuBatchOptions& options, std::string name,
                 std::vector<Parameter> parameters, uint64_t constant_numbers, uint32_t size)
      : type_(options.type), bytes_(bytes_of(options.type)), module_(module), options_(options),
        name_(std::move(name)), parameters_(std::move(parameters)),
        constant_numbers_(constant_numbers), place_in_share_(size, kElsewhere) {}
  virtual ~SequenceWriter() = default;
  SequenceWriter(const SequenceWriter&) = delete;
  SequenceWriter& operator=(const SequenceWriter&) = delete;

  /// Functions that do warp `warp`'s share.
  std::vector<uint32_t> write(const std::vector<uint32_t>& share, uint32_t warp) {
    functions_.clear();
    if (share.empty())
      return {};
    warp_ = warp;
    done_ = 0;
    used_ = fetched_ = 0;
    items_.clear();
    for (uint32_t k = 0; k < share.size(); ++k)
      place_in_share_[share[k]] = k;
    write_share(share);
    for (const uint32_t column : share)
      place_in_share_[column] = kElsewhere;
    return functions_;
  }

protected:
  virtual void write_share(const std::vector<uint32_t>& share) = 0;

  /// An operand in the order of use; it may be loaded when so many columns (rows) are done.
  struct Item {
    uint64_t number;
    uint32_t ready_at;
  };

  ir::Builder& b() { return *builder_; }
  Reg argument(uint32_t number) const { return arguments_[number]; }
  bool is_full() const { return function_.ops.size() >= options_.operations_of_function; }

  void begin_function() {
    function_ = {};
    function_.name = fmt::format("{}_{}", name_, count_++);
    builder_.emplace(module_, function_);
    arguments_.clear();
    for (const Parameter& parameter : parameters_)
      arguments_.push_back(b().parameter(parameter.type, parameter.name));
    window_.clear();
    fetched_ = used_;
    on_begin();
  }
  void end_function() {
    on_end();
    b().return_void();
    functions_.push_back(static_cast<uint32_t>(module_.functions.size()));
    module_.functions.push_back(std::move(function_));
  }
  void cut() {
    end_function();
    begin_function();
  }

  virtual void on_begin() {}
  virtual void on_end() {}

  /// When what column (row) k gives may be loaded: what is not of this share is there.
  uint32_t ready_after(uint32_t k) const {
    return place_in_share_[k] == kElsewhere ? 0 : place_in_share_[k] + 1;
  }
  uint32_t warp() const { return warp_; }

  /// The next operand of the list, which is `number`.
  Reg next(uint64_t number) {
    for (; fetched_ < items_.size() && fetched_ < used_ + options_.ahead; ++fetched_)
      if (items_[fetched_].ready_at <= done_)
        read(items_[fetched_].number);
    ++used_;
    fetched_ = std::max(fetched_, used_);
    return read(number);
  }

  /// A number, from its register or from memory.
  Reg read(uint64_t number) {
    for (Entry& entry : window_)
      if (entry.number == number) {
        entry.stamp = ++stamp_;
        return entry.value;
      }
    const Reg value = load(number);
    remember(number, value);
    return value;
  }
  virtual Reg load(uint64_t number) {
    return b().load(factors(), offset_of(number), 1,
                    number < constant_numbers_ ? Cache::readonly : Cache::normal);
  }
  /// Its register is not asked for any more.
  void forget(uint64_t number) {
    std::erase_if(window_, [&](const Entry& entry) { return entry.number == number; });
  }
  /// Stores what does not change any more.
  void finish(uint64_t number, Reg value) {
    store(number, value);
    remember(number, value);
  }
  void store(uint64_t number, Reg value) { b().store(factors(), offset_of(number), value); }

  /// vector[row * instances] of this lane.
  Reg place_of(Reg vector, Scalar element, Reg instances, uint64_t row) {
    return b().index(vector, instances,
                     Operand::integer(static_cast<int64_t>(row * bytes_of(element))));
  }
  /// Rounded once to `to`.
  Reg scaled(Reg value, Scalar from, double factor, Scalar to) {
    if (factor == 1 && from == to)
      return value;
    const Reg exact =
        from == Scalar::f64 ? value : b().convert(Scalar::f64, value, Conversion::exact);
    const Reg product = factor == 1 ? exact : b().mul(Scalar::f64, exact, Operand::f64(factor));
    return to == Scalar::f64 ? product : b().convert(to, product, Conversion::nearest);
  }
  Operand real(double value) const {
    return type_ == Scalar::f64 ? Operand::f64(value) : Operand::f32(static_cast<float>(value));
  }

  virtual Reg factors() const = 0;

  const Scalar type_;
  const uint32_t bytes_;
  std::vector<Item> items_;
  uint32_t done_ = 0; ///< columns (rows)

private:
  static constexpr uint32_t kElsewhere = UINT32_MAX;
  struct Entry {
    uint64_t number;
    Reg value;
    uint64_t stamp;
  };

  int64_t offset_of(uint64_t number) const {
    return static_cast<int64_t>(number * kLuBatchLanes * bytes_);
  }

  void remember(uint64_t number, Reg value) {
    Entry* place = nullptr;
    for (Entry& entry : window_)
      if (entry.number == number)
        place = &entry;
    if (place == nullptr && window_.size() < options_.window)
      place = &window_.emplace_back();
    if (place == nullptr)
      place = &*std::min_element(window_.begin(), window_.end(),
                                 [](const Entry& x, const Entry& y) { return x.stamp < y.stamp; });
    *place = {number, value, ++stamp_};
  }

  ir::Module& module_;
  const LuBatchOptions& options_;
  std::string name_;
  std::vector<Parameter> parameters_;
  const uint64_t constant_numbers_;      ///< the first ones, which no function of the kernel writes
  std::vector<uint32_t> place_in_share_; ///< by column
  uint32_t warp_ = 0, count_ = 0;
  std::vector<uint32_t> functions_;
  ir::Function function_;
  std::optional<ir::Builder> builder_;
  std::vector<Reg> arguments_;
  std::vector<Entry> window_;
  uint64_t stamp_ = 0;
  size_t used_ = 0, fetched_ = 0; ///< of items_
};

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

/// Calls the functions for the lanes that have an instance, each warp of a block its own, with a
/// barrier between stages.
class KernelWriter {
public:
  /// functions[s][w]: of warp w in stage s.
  using Functions = std::vector<std::vector<std::vector<uint32_t>>>;

  KernelWriter(ir::Module& module, const char* name, uint32_t bytes, uint32_t warps)
      : module_(module), bytes_(bytes), warps_(warps), b_(module, function_) {
    function_.name = name;
    function_.kind = ir::FunctionKind::kernel;
    function_.block[0] = kLuBatchLanes * warps;
  }
  KernelWriter(const KernelWriter&) = delete;
  KernelWriter& operator=(const KernelWriter&) = delete;

  Reg parameter(ir::Type type, const char* name) { return b_.parameter(type, name); }
  void begin(Reg instances) {
    group_ = b_.special(ir::Special::block_x);
    const Reg thread = b_.special(ir::Special::thread_x);
    lane_ = b_.value(Opcode::bit_and, Scalar::i32, {thread, Operand::integer(kLuBatchLanes - 1)});
    warp_ = b_.value(Opcode::shr, Scalar::i32, {thread, Operand::integer(5)});
    const Reg before = b_.mul(Scalar::i32, group_, Operand::integer(kLuBatchLanes));
    instance_ = b_.add(Scalar::i32, before, lane_);
    has_instance_ = b_.compare(Comparison::lt, Scalar::i32, instance_, instances);
  }
  Reg of_instance(Reg pointer, uint32_t bytes) {
    return b_.index(pointer, instance_, Operand::integer(bytes));
  }
  Reg of_lane(Reg factors, uint64_t numbers) {
    const Reg group = b_.index(
        factors, group_, Operand::integer(static_cast<int64_t>(numbers * kLuBatchLanes * bytes_)));
    return b_.index(group, lane_, Operand::integer(bytes_));
  }
  void clear(Reg word) {
    begin_warp(0);
    b_.store(word, 0, b_.constant(Scalar::i32, Operand::integer(0)));
    end_warp();
    meet();
  }
  void finish(const Functions& functions, const std::vector<Reg>& arguments) {
    for (size_t stage = 0; stage < functions.size(); ++stage) {
      if (stage > 0)
        meet();
      for (uint32_t warp = 0; warp < functions[stage].size(); ++warp) {
        if (functions[stage][warp].empty())
          continue;
        begin_warp(warp);
        for (const uint32_t function : functions[stage][warp])
          b_.call(function, arguments);
        end_warp();
      }
    }
    b_.return_void();
    module_.functions.push_back(std::move(function_));
  }

private:
  void begin_warp(uint32_t warp) {
    b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, warp_, Operand::integer(warp)));
    b_.if_begin(has_instance_);
  }
  void end_warp() {
    b_.end();
    b_.end();
  }
  void meet() {
    if (warps_ > 1)
      b_.barrier();
  }

  ir::Module& module_;
  const uint32_t bytes_, warps_;
  ir::Function function_;
  ir::Builder b_;
  Reg group_, lane_, warp_, instance_, has_instance_;
};

/// As many warps as have something to do.
uint32_t busy_warps(const LuBatchShares& shares) {
  uint32_t busy = 1;
  for (const auto& stage : shares.stages)
    for (uint32_t warp = 0; warp < stage.size(); ++warp)
      if (!stage[warp].empty())
        busy = std::max(busy, warp + 1);
  return busy;
}

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

} // namespace

Scalar lu_batch_vector_type(const LuBatchOptions& options) {
  return options.wide_vectors ? Scalar::f64 : options.type;
}

uint64_t lu_batch_numbers(const LuTables& tables) {
  return tables.nnz() + kLuBatchMostWarps + tables.size;
}

bool is_unrolled(const LuTables& tables, const LuBatchOptions& options) {
  return !options.complex && multiply_adds(tables) <= options.most_multiply_adds &&
         lu_batch_numbers(tables) <= kMostNumbers;
}

ir::Module make_lu_batch(const LuTables& tables, const LuBatchOptions& options) {
  const uint64_t work = multiply_adds(tables), numbers = lu_batch_numbers(tables);
  if (!is_unrolled(tables, options))
    throw UserError(
        fmt::format("unrolled code for a batch is made for at most {} multiply-adds and "
                    "{} numbers; this pattern has {} and {}",
                    options.most_multiply_adds, kMostNumbers, work, numbers),
        "larger ones are worked through by tables");
  if (options.warps == 0 || options.warps > kLuBatchMostWarps)
    throw InternalError(fmt::format("a batch by {} warps a block", options.warps));
  ir::Module module;
  write_factor(module, tables, options);
  write_solve(module, tables, options);
  ir::verify_or_throw(module, "lowering a batch of sparse LU");
  return module;
}

uint32_t lu_batch_threads(const ir::Module& module, std::string_view kernel) {
  for (const ir::Function& function : module.functions)
    if (function.name == kernel)
      return function.block[0];
  throw InternalError(fmt::format("a batch without the kernel {}", kernel));
}

} // namespace sparsertc
