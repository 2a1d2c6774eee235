#include "compiler/lower/lu_batch.h"

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
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

/// So that every offset fits in 31 bits.
constexpr uint64_t kMostNumbers = uint64_t{1} << 22;

ir::Type pointer_to(Scalar element) {
  return ir::Type::pointer(ir::Space::device, element);
}

uint32_t bytes_of(Scalar type) {
  return type == Scalar::f64 ? 8 : 4;
}

/// Device functions that are called one after the other with the same arguments, each begun where
/// the one before got too long. Loads come from a list of all operands, some of them ahead.
class SequenceWriter {
public:
  struct Parameter {
    ir::Type type;
    const char* name;
  };

  SequenceWriter(ir::Module& module, const LuBatchOptions& options, std::string name,
                 std::vector<Parameter> parameters, uint64_t constant_numbers)
      : type_(options.type), bytes_(bytes_of(options.type)), module_(module), options_(options),
        name_(std::move(name)), parameters_(std::move(parameters)),
        constant_numbers_(constant_numbers) {}
  virtual ~SequenceWriter() = default;
  SequenceWriter(const SequenceWriter&) = delete;
  SequenceWriter& operator=(const SequenceWriter&) = delete;

  const std::vector<uint32_t>& functions() const { return functions_; }

protected:
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
    function_.name = fmt::format("{}_{}", name_, functions_.size());
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
  Reg load(uint64_t number) {
    return b().load(factors(), offset_of(number), 1,
                    number < constant_numbers_ ? Cache::readonly : Cache::normal);
  }
  /// Stores what does not change any more.
  void finish(uint64_t number, Reg value) {
    store(number, value);
    remember(number, value);
  }
  void store(uint64_t number, Reg value) { b().store(factors(), offset_of(number), value); }

  /// values[row * instances] of this lane.
  Reg place_of(Reg pointer, Reg instances, uint64_t row) {
    return b().index(pointer, instances, Operand::integer(static_cast<int64_t>(row * bytes_)));
  }
  /// Rounded once.
  Reg scaled(Reg value, double factor) {
    if (factor == 1)
      return value;
    if (type_ == Scalar::f64)
      return b().mul(type_, value, Operand::f64(factor));
    const Reg exact = b().convert(Scalar::f64, value, ir::Conversion::exact);
    return b().convert(type_, b().mul(Scalar::f64, exact, Operand::f64(factor)),
                       ir::Conversion::nearest);
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
  const uint64_t constant_numbers_; ///< the first ones, which no function of the kernel writes
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
                       0),
        tables_(tables), entry_(tables.size) {}

  void write() {
    for (uint32_t j = 0; j < tables_.size; ++j)
      for (uint64_t slot = tables_.column_offset[j]; slot < tables_.diagonal[j]; ++slot) {
        const uint32_t k = tables_.row_index[slot];
        for (uint64_t q = tables_.diagonal[k]; q < tables_.column_offset[k + 1]; ++q)
          items_.push_back({q, k + 1});
      }
    begin_function();
    for (uint32_t j = 0; j < tables_.size; ++j) {
      if (is_full())
        cut();
      write_column(j);
      done_ = j + 1;
    }
    end_function();
  }

private:
  /// Of the column at hand, by row.
  struct Entry {
    Reg value;
    uint64_t slot = 0;
    bool stored = false;           ///< what it is so far lies at its place
    std::optional<uint64_t> input; ///< number of its entry of B
  };

  Reg factors() const override { return argument(1); }

  void on_begin() override {
    zero_ = b().constant(type_, real(0));
    check_ = b().constant(type_, real(0));
    replaced_ = b().constant(Scalar::i32, Operand::integer(0));
  }
  void on_end() override {
    const Reg bad = b().compare(Comparison::ne, type_, check_, check_);
    const Reg before = b().load(argument(2), 0);
    b().add(Scalar::i32, before, replaced_, before);
    const Reg marked =
        b().value(Opcode::bit_or, Scalar::i32,
                  {before, Operand::integer(static_cast<int32_t>(kLuBatchNotFinite))});
    b().store(argument(2), 0, b().select(Scalar::i32, bad, marked, before));
  }

  void write_column(uint32_t j) {
    const uint64_t begin = tables_.column_offset[j], end = tables_.column_offset[j + 1],
                   pivot = tables_.diagonal[j];
    for (uint64_t slot = begin; slot < end; ++slot)
      entry_[tables_.row_index[slot]] = {{}, slot, false, {}};
    for (uint64_t p = tables_.input_offset[j]; p < tables_.input_offset[j + 1]; ++p)
      entry_[tables_.input_row[p]].input = p;
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
      const Reg given = b().load(place_of(argument(0), argument(3), tables_.input_source[p]), 0, 1,
                                 Cache::readonly);
      entry.value = scaled(given, tables_.input_scale.empty() ? 1 : tables_.input_scale[p]);
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
    store(tables_.nnz(), largest_);
    cut();
    largest_ = load(tables_.nnz());
  }

  const LuTables& tables_;
  std::vector<Entry> entry_;
  Reg zero_, check_, replaced_, largest_;
};

class SolveWriter : public SequenceWriter {
public:
  SolveWriter(ir::Module& module, const LuTables& tables, const LuBatchOptions& options)
      : SequenceWriter(module, options, "lu_batch_solve",
                       {{pointer_to(options.type), "b"},
                        {pointer_to(options.type), "x"},
                        {pointer_to(options.type), "factors"},
                        {Scalar::i32, "instances"}},
                       tables.nnz()),
        tables_(tables) {}

  void write() {
    const uint32_t n = tables_.size;
    for (uint32_t i = 0; i < n; ++i) {
      for (uint64_t p = tables_.row_offset[i]; p < tables_.row_diagonal[i]; ++p) {
        const uint32_t k = tables_.column_index[p];
        items_.push_back({tables_.row_slot[p], 0});
        items_.push_back({unknown(k), k + 1});
      }
      items_.push_back({tables_.diagonal[i], 0});
    }
    for (uint32_t i = n; i-- > 0;) {
      for (uint64_t p = tables_.row_offset[i + 1]; --p > tables_.row_diagonal[i];) {
        const uint32_t k = tables_.column_index[p];
        items_.push_back({tables_.row_slot[p], 0});
        items_.push_back({unknown(k), n + (n - k)});
      }
      items_.push_back({tables_.diagonal[i], 0});
      items_.push_back({unknown(i), i + 1});
    }
    begin_function();
    for (uint32_t i = 0; i < n; ++i) {
      if (is_full())
        cut();
      write_forward(i);
      ++done_;
    }
    for (uint32_t i = n; i-- > 0;) {
      if (is_full())
        cut();
      write_backward(i);
      ++done_;
    }
    end_function();
  }

private:
  Reg factors() const override { return argument(2); }
  /// The place of z(i), then of x(i).
  uint64_t unknown(uint32_t i) const { return tables_.nnz() + 1 + i; }

  void write_forward(uint32_t i) {
    const uint32_t row = tables_.row_order[i];
    const Reg given = b().load(place_of(argument(0), argument(3), row), 0, 1, Cache::readonly);
    Reg sum = scaled(given, tables_.row_scale.empty() ? 1 : tables_.row_scale[row]);
    for (uint64_t p = tables_.row_offset[i]; p < tables_.row_diagonal[i]; ++p) {
      sum = cut_where_full(sum);
      const Reg minus = b().value(Opcode::neg, type_, {next(tables_.row_slot[p])});
      sum = b().fma(type_, minus, next(unknown(tables_.column_index[p])), sum);
    }
    finish(unknown(i), b().mul(type_, sum, next(tables_.diagonal[i])));
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
    b().store(place_of(argument(1), argument(3), column), 0,
              scaled(x, tables_.column_scale.empty() ? 1 : tables_.column_scale[column]));
  }

  Reg cut_where_full(Reg sum) {
    if (!is_full())
      return sum;
    store(tables_.nnz(), sum);
    cut();
    return load(tables_.nnz());
  }

  const LuTables& tables_;
};

/// Calls the functions for the lanes that have an instance.
class KernelWriter {
public:
  KernelWriter(ir::Module& module, const char* name, uint32_t bytes)
      : module_(module), bytes_(bytes), b_(module, function_) {
    function_.name = name;
    function_.kind = ir::FunctionKind::kernel;
    function_.block[0] = kLuBatchLanes;
  }
  KernelWriter(const KernelWriter&) = delete;
  KernelWriter& operator=(const KernelWriter&) = delete;

  Reg parameter(ir::Type type, const char* name) { return b_.parameter(type, name); }
  void begin(Reg instances) {
    group_ = b_.special(ir::Special::block_x);
    lane_ = b_.special(ir::Special::thread_x);
    const Reg before = b_.mul(Scalar::i32, group_, Operand::integer(kLuBatchLanes));
    instance_ = b_.add(Scalar::i32, before, lane_);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, instance_, instances));
  }
  Reg of_instance(Reg pointer, uint32_t bytes) {
    return b_.index(pointer, instance_, Operand::integer(bytes));
  }
  Reg of_lane(Reg factors, uint64_t numbers) {
    const Reg group = b_.index(
        factors, group_, Operand::integer(static_cast<int64_t>(numbers * kLuBatchLanes * bytes_)));
    return b_.index(group, lane_, Operand::integer(bytes_));
  }
  void clear(Reg word) { b_.store(word, 0, b_.constant(Scalar::i32, Operand::integer(0))); }
  void finish(const std::vector<uint32_t>& functions, const std::vector<Reg>& arguments) {
    for (uint32_t function : functions)
      b_.call(function, arguments);
    b_.end();
    b_.return_void();
    module_.functions.push_back(std::move(function_));
  }

private:
  ir::Module& module_;
  const uint32_t bytes_;
  ir::Function function_;
  ir::Builder b_;
  Reg group_, lane_, instance_;
};

} // namespace

uint64_t lu_batch_numbers(const LuTables& tables) {
  return tables.nnz() + 1 + tables.size;
}

bool is_unrolled(const LuTables& tables, const LuBatchOptions& options) {
  return multiply_adds(tables) <= options.most_multiply_adds &&
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
  ir::Module module;
  const Scalar type = options.type;
  const uint32_t bytes = bytes_of(type);
  {
    FactorWriter functions(module, tables, options);
    functions.write();
    KernelWriter kernel(module, kLuBatchFactorKernel, bytes);
    const Reg values = kernel.parameter(pointer_to(type), "values");
    const Reg factors = kernel.parameter(pointer_to(type), "factors");
    const Reg status = kernel.parameter(pointer_to(Scalar::i32), "status");
    const Reg instances = kernel.parameter(Scalar::i32, "instances");
    const Reg threshold = kernel.parameter(type, "threshold");
    kernel.begin(instances);
    const Reg word = kernel.of_instance(status, sizeof(uint32_t));
    kernel.clear(word);
    kernel.finish(functions.functions(),
                  {kernel.of_instance(values, bytes), kernel.of_lane(factors, numbers), word,
                   instances, threshold});
  }
  SolveWriter functions(module, tables, options);
  functions.write();
  KernelWriter kernel(module, kLuBatchSolveKernel, bytes);
  const Reg b = kernel.parameter(pointer_to(type), "b");
  const Reg x = kernel.parameter(pointer_to(type), "x");
  const Reg factors = kernel.parameter(pointer_to(type), "factors");
  const Reg instances = kernel.parameter(Scalar::i32, "instances");
  kernel.begin(instances);
  const Reg b_place = kernel.of_instance(b, bytes), x_place = kernel.of_instance(x, bytes);
  kernel.finish(functions.functions(),
                {b_place, x_place, kernel.of_lane(factors, numbers), instances});
  ir::verify_or_throw(module, "lowering a batch of sparse LU");
  return module;
}

} // namespace sparsertc
