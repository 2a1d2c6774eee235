// Straight-line code of a batch: device functions with the operands of a share of the columns,
// loaded ahead and remembered.
#pragma once

#include "compiler/lower/lu_batch.h"
#include "ir/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sparsertc::lu_batch {

using ir::Cache;
using ir::Comparison;
using ir::Conversion;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

/// So that every offset fits in 31 bits.
inline constexpr uint64_t kMostNumbers = uint64_t{1} << 22;
/// Number kInput + p: entry p of the matrix as it is given.
inline constexpr uint64_t kInput = uint64_t{1} << 32;

inline ir::Type pointer_to(Scalar element) {
  return ir::Type::pointer(ir::Space::device, element);
}

inline uint32_t bytes_of(Scalar type) {
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

} // namespace sparsertc::lu_batch
