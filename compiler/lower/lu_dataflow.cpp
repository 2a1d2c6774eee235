#include "compiler/lower/lu_dataflow.h"

#include "compiler/lower/lu_kernel_writer.h"
#include "ir/lu_dataflow.h"
#include "ir/verifier.h"

#include <array>
#include <cstddef>
#include <vector>

namespace sparsertc {
namespace {

using ir::Atomic;
using ir::Cache;
using ir::Comparison;
using ir::Conversion;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Special;

constexpr uint32_t kLanes = LuDataflow::kLanes;
constexpr uint32_t kProducts = LuDataflow::kProducts;
constexpr uint32_t kWord = sizeof(uint32_t);

/// The loop over the packets of a stream. The next packet is read while this one waits.
class DataflowWriter : protected LuKernelWriter {
public:
  DataflowWriter(ir::Module& module, const LuKernelOptions& options, const char* name,
                 uint32_t operands, uint32_t task_words)
      : LuKernelWriter(module, options, name, options.threads), operands_(operands),
        task_words_(task_words) {}
  virtual ~DataflowWriter() = default;

protected:
  void declare_tables() {
    stream_ = pointer("stream", Scalar::i32);
    group_ = pointer("group", Scalar::i32);
    task_ = pointer("task", Scalar::i32);
    operand_table_ = pointer("operands", Scalar::i32);
  }

  /// Before the loop over streams.
  void find_stream() {
    const Reg lane = b_.special(Special::lane);
    const Reg in_block =
        b_.value(Opcode::shr, Scalar::i32, {b_.special(Special::thread_x), Operand::integer(5)});
    const Reg before = b_.mul(Scalar::i32, b_.special(Special::block_x),
                              Operand::integer(options_.threads / kLanes));
    const Reg warp = b_.add(Scalar::i32, before, in_block);
    const Reg bounds = element(stream_, warp, kWord);
    begin_ = b_.load(bounds, 0, 1, Cache::readonly);
    end_ = b_.load(bounds, kWord, 1, Cache::readonly);
    lane_task_ = element(task_, lane, task_words_ * kWord);
    lane_operands_ = element(operand_table_, lane, kProducts * kWord);
  }

  void write_stream() {
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, begin_, end_));
    const Packet now = declare_packet();
    const Reg packet = b_.move(begin_);
    const LuNumber sum = zero();
    read_packet(packet, now);
    begin_stream();
    b_.loop();
    const Packet next = declare_packet();
    b_.add(Scalar::i32, packet, Operand::integer(1), packet);
    read_packet(packet, next);

    const Reg has_task = b_.compare(Comparison::ge, Scalar::i32, now.task, Operand::integer(0));
    const Reg is_short = b_.compare(Comparison::eq, Scalar::i32, now.group, Operand::integer(1));
    const Reg ends_alone = b_.value(Opcode::bit_and, Scalar::pred, {is_short, has_task});
    prepare_task(now, has_task);
    wait_and_add(now, sum, ends_alone);

    const Reg ends = b_.compare(Comparison::ne, Scalar::i32, now.group, Operand::integer(0));
    b_.if_begin(ends);
    const Reg is_long = b_.compare(Comparison::gt, Scalar::i32, now.group, Operand::integer(1));
    b_.if_begin(is_long);
    add_lanes(sum, now.group);
    b_.if_begin(has_task);
    publish_result(now, sum);
    b_.end();
    b_.end();
    b_.if_begin(has_task);
    take_notes(now);
    b_.end();
    clear(sum);
    b_.end();

    for (uint32_t i = 0; i < 2; ++i)
      b_.move(next.group[i], now.group[i]);
    for (uint32_t i = 0; i < task_words_; ++i)
      b_.move(next.task[i], now.task[i]);
    for (uint32_t i = 0; i < operands_ * kProducts; ++i)
      b_.move(next.operands[i], now.operands[i]);
    b_.while_end(b_.compare(Comparison::lt, Scalar::i32, packet, end_));
    end_stream();
    b_.end();
  }

  struct Packet {
    Reg group;    ///< and the gate
    Reg task;     ///< task_words_ registers
    Reg operands; ///< of operand word w and product p: register w * kProducts + p
  };

  /// Assigned before the first packet.
  virtual void begin_stream() {}
  /// Loads that the task needs at its end.
  virtual void prepare_task(const Packet& packet, Reg has_task) = 0;
  /// Loads the number at the packet's gate; a writer whose packets have none says so.
  virtual bool has_gates() const { return false; }
  virtual void load_gate(const Packet&, Reg) {}
  /// A pair's operands into registers. They are 0 where there is no pair.
  virtual void load_early(const Packet& packet) = 0;
  /// Loads what product p waits for.
  virtual void load_late(const Packet& packet, uint32_t product) = 0;
  /// The pieces that load_late fills for product p.
  virtual std::vector<Reg> late(uint32_t product) = 0;
  /// Adds product p to the sum.
  virtual void add_product(uint32_t product, LuNumber sum) = 0;
  /// Also waited for; may be empty.
  virtual void load_base() {}
  virtual std::vector<Reg> base() { return {}; }
  /// Writes the same code twice, into the same registers: for tasks of one lane and for longer
  /// ones.
  virtual void publish_result(const Packet& packet, LuNumber sum) = 0;
  /// What nobody waits for.
  virtual void take_notes(const Packet& packet) = 0;
  virtual void end_stream() {}

  Reg is_unready(const std::vector<Reg>& numbers) {
    Reg upper;
    for (const Reg pieces : numbers)
      for (uint32_t i = 0; i < pieces_; ++i) {
        const Reg bits = upper_bits(pieces[i]);
        upper = upper.valid() ? b_.value(Opcode::maxu, Scalar::i32, {upper, bits}) : bits;
      }
    return b_.compare(Comparison::eq, Scalar::i32, upper, Operand::integer(kLuNotReady));
  }

  uint32_t operands_, task_words_;
  Reg stream_, group_, task_, operand_table_;
  Reg begin_, end_, lane_task_, lane_operands_;
  Reg base_waits_; ///< whether this lane waits for base()

private:
  Packet declare_packet() {
    Packet packet;
    packet.group = b_.fresh_tuple(Scalar::i32, 2);
    packet.task = b_.fresh_tuple(Scalar::i32, task_words_);
    packet.operands = b_.fresh_tuple(Scalar::i32, operands_ * kProducts);
    return packet;
  }

  void read_packet(Reg number, const Packet& packet) {
    const uint32_t row = kLanes * kProducts * kWord;
    const Reg operands = element(lane_operands_, number, operands_ * row);
    for (uint32_t word = 0; word < operands_; ++word)
      b_.load(operands, int64_t{word} * row, kProducts, Cache::readonly,
              packet.operands[word * kProducts]);
    b_.load(element(group_, number, 2 * kWord), 0, 2, Cache::readonly, packet.group);
    b_.load(element(lane_task_, number, kLanes * task_words_ * kWord), 0, task_words_,
            Cache::readonly, packet.task);
  }

  /// A task of one lane does not wait for its neighbours' operands: its result is stored as soon as
  /// its own are there.
  void wait_and_add(const Packet& packet, LuNumber sum, Reg ends_alone) {
    std::array<Reg, kProducts> waits;
    for (uint32_t p = 0; p < kProducts; ++p)
      waits[p] = b_.compare(Comparison::ge, Scalar::i32, packet.operands[p], Operand::integer(0));
    load_early(packet);
    const Reg done = b_.constant(Scalar::pred, Operand::integer(0));
    const Reg gate = zero_pieces();
    if (has_gates()) {
      b_.if_begin(b_.compare(Comparison::ge, Scalar::i32, packet.group[1], Operand::integer(0)));
      load_gate(packet, gate);
      b_.end();
    }
    b_.loop();
    // All loads before the first look at one, so that they are on their way together.
    for (uint32_t p = 0; p < kProducts; ++p) {
      b_.if_begin(waits[p]);
      load_late(packet, p);
      b_.end();
    }
    const std::vector<Reg> start = base();
    if (!start.empty()) {
      b_.if_begin(base_waits_);
      load_base();
      b_.end();
    }
    Reg any;
    for (uint32_t p = 0; p < kProducts; ++p) {
      const Reg unready = is_unready(late(p));
      b_.move(unready, waits[p]);
      any = any.valid() ? b_.value(Opcode::bit_or, Scalar::pred, {any, unready}) : unready;
    }
    if (!start.empty()) {
      const Reg unready = is_unready(start);
      b_.move(unready, base_waits_);
      any = b_.value(Opcode::bit_or, Scalar::pred, {any, unready});
    }
    b_.if_begin(b_.value(Opcode::bit_not, Scalar::pred, {any}));
    b_.if_begin(b_.value(Opcode::bit_not, Scalar::pred, {done}));
    for (uint32_t p = 0; p < kProducts; ++p)
      add_product(p, sum);
    b_.if_begin(ends_alone);
    publish_result(packet, sum);
    b_.end();
    b_.constant(Scalar::pred, Operand::integer(1), done);
    b_.end();
    b_.end();
    // The lanes stay together, so that those that are done cannot be kept from storing.
    const Reg lanes_done = b_.value(Opcode::ballot, {}, {done});
    const Reg goes_on = b_.compare(Comparison::ne, Scalar::i32, lanes_done, Operand::integer(-1));
    if (has_gates()) {
      b_.if_begin(b_.value(Opcode::bit_and, Scalar::pred, {goes_on, is_unready({gate})}));
      b_.loop();
      load_gate(packet, gate);
      b_.while_end(is_unready({gate}));
      b_.end();
    }
    b_.while_end(goes_on);
  }
};

class FactorWriter : DataflowWriter {
public:
  FactorWriter(ir::Module& module, const LuKernelOptions& options)
      : DataflowWriter(module, options, kLuFactorKernel, 3, 4) {}

  void write() {
    declare_tables();
    values_ = number_pointer("values");
    initial_ = number_pointer("initial");
    column_max_ = pointer("column_max", Scalar::i64);
    given_max_ = pointer("given_max", Scalar::i64);
    quotient_ = pointer("quotient", Scalar::f64);
    status_ = pointer("status", Scalar::i64);
    threshold_ = number("threshold", options_.type);
    find_stream();
    write_stream();
    b_.return_void();
  }

private:
  void begin_stream() override {
    largest_ = real_constant(0);
    largest_input_ = b_.constant(Scalar::i64, Operand::integer(0));
  }

  /// The entry of B, and the largest of its column where this is a pivot.
  void prepare_task(const Packet& packet, Reg has_task) override {
    start_ = zero_pieces();
    column_largest_ = b_.constant(Scalar::i64, Operand::integer(0));
    given_largest_ = b_.constant(Scalar::i64, Operand::integer(0));
    const Operand nothing = Operand::integer(0);
    const auto of_task = [&](Reg condition) {
      return b_.value(Opcode::bit_and, Scalar::pred, {condition, has_task});
    };
    const Reg column = packet.task[1], from = packet.task[2];
    is_sum_ = of_task(b_.compare(Comparison::lt, Scalar::i32, packet.task[3], nothing));
    is_pivot_ = of_task(b_.compare(Comparison::lt, Scalar::i32, column, nothing));
    column_ =
        b_.select(Scalar::i32, is_pivot_,
                  b_.value(Opcode::bit_xor, Scalar::i32, {column, Operand::integer(-1)}), column);
    // The pivot itself is the entry's task.
    is_pivot_ = b_.value(Opcode::bit_and, Scalar::pred,
                         {is_pivot_, b_.value(Opcode::bit_not, Scalar::pred, {is_sum_})});
    base_waits_ = of_task(b_.compare(Comparison::ge, Scalar::i32, from, nothing));
    start_place_ = element(values_, from, bytes_);
    b_.if_begin(of_task(b_.compare(Comparison::lt, Scalar::i32, from, nothing)));
    const Reg slot = b_.value(Opcode::bit_xor, Scalar::i32, {from, Operand::integer(-1)});
    load_pieces(element(initial_, slot, bytes_), Cache::readonly, start_);
    b_.end();
    b_.if_begin(is_pivot_);
    b_.load(element(column_max_, column_, sizeof(int64_t)), 0, 1, Cache::normal, column_largest_);
    b_.load(element(given_max_, column_, sizeof(int64_t)), 0, 1, Cache::normal, given_largest_);
    b_.end();
    value_ = zero();
    result_ = zero();
    least_ = real_constant(0);
  }

  bool has_gates() const override { return true; }
  void load_gate(const Packet& packet, Reg gate) override {
    load_published(element(values_, packet.group[1], bytes_), gate);
  }
  void load_early(const Packet& packet) override {
    for (uint32_t i = 0; i < 3 * kProducts; ++i) {
      operand_[i] = zero_pieces();
      place_[i] = element(values_, packet.operands[i], bytes_);
    }
  }
  void load_late(const Packet&, uint32_t product) override {
    for (uint32_t word = 0; word < 3; ++word) {
      const uint32_t i = word * kProducts + product;
      load_published(place_[i], operand_[i]);
    }
  }
  std::vector<Reg> late(uint32_t product) override {
    return {operand_[product], operand_[kProducts + product], operand_[2 * kProducts + product]};
  }
  void add_product(uint32_t product, LuNumber sum) override {
    const LuNumber right =
        mul(unpack(operand_[kProducts + product]), unpack(operand_[2 * kProducts + product]));
    fma(unpack(operand_[product]), right, sum, sum);
  }

  void load_base() override { load_published(start_place_, start_); }
  std::vector<Reg> base() override { return {start_}; }

  /// A pivot that is too small is replaced, with its sign or phase kept, and its reciprocal is what
  /// is published.
  void publish_result(const Packet& packet, LuNumber sum) override {
    move(sub(unpack(start_), sum), value_);
    move(value_, result_);
    b_.if_begin(is_pivot_);
    const Reg column_largest = b_.bitcast(Scalar::f64, column_largest_);
    b_.mul(type_, threshold_, from_f64(column_largest), least_);
    const Reg small = b_.compare(Comparison::lt, type_, magnitude(value_), least_);
    move(reciprocal(select(small, with_phase(value_, least_), value_)), result_);
    b_.end();
    publish(element(values_, packet.task[0], bytes_), result_);
    b_.if_begin(b_.value(Opcode::bit_not, Scalar::pred, {is_sum_}));
    publish(element(values_, packet.task[3], bytes_), result_);
    b_.end();
  }

  void take_notes(const Packet&) override {
    const Reg size = magnitude(value_);
    b_.if_begin(b_.value(Opcode::bit_not, Scalar::pred, {is_sum_}));
    note_largest(size);
    b_.end();
    const Reg bad =
        b_.value(Opcode::bit_or, Scalar::pred, {is_not_finite(value_), is_not_finite(result_)});
    b_.if_begin(bad);
    note_column(offsetof(LuStatusRecord, nonfinite_column), column_);
    b_.end();
    b_.if_begin(is_pivot_);
    note_pivot(size);
    b_.end();
  }

  void note_largest(Reg size) {
    const Reg larger = b_.compare(Comparison::gt, type_, size, largest_);
    b_.select(type_, larger, size, largest_, largest_);
  }

  /// Also of the column's given entries, which have no task.
  void note_pivot(Reg size) {
    const Reg column_largest = b_.bitcast(Scalar::f64, column_largest_);
    const Reg nothing = b_.constant(Scalar::i64, Operand::integer(0));
    b_.store(element(column_max_, column_, sizeof(int64_t)), 0, nothing);
    b_.store(element(given_max_, column_, sizeof(int64_t)), 0, nothing);
    note_largest(from_f64(b_.bitcast(Scalar::f64, given_largest_)));
    constexpr int64_t kInfinity = 0x7FF0'0000'0000'0000;
    b_.if_begin(b_.compare(Comparison::ge, Scalar::i64, given_largest_,
                           b_.constant(Scalar::i64, Operand::integer(kInfinity))));
    note_column(offsetof(LuStatusRecord, nonfinite_column), column_);
    b_.end();
    b_.store(element(quotient_, column_, sizeof(double)), 0,
             b_.value(Opcode::div, Scalar::f64, {to_f64(size), column_largest}));
    b_.value(Opcode::max, Scalar::i64, {largest_input_, column_largest_}, largest_input_);
    b_.if_begin(b_.compare(Comparison::lt, type_, size, least_));
    b_.atomic(Atomic::add, status_, offsetof(LuStatusRecord, perturbed),
              b_.constant(Scalar::i64, Operand::integer(1)));
    note_column(offsetof(LuStatusRecord, perturbed_column), column_);
    b_.end();
    const Reg empty = b_.compare(Comparison::eq, Scalar::i64, column_largest_, Operand::integer(0));
    b_.if_begin(empty);
    note_column(offsetof(LuStatusRecord, zero_column), column_);
    b_.end();
  }

  void note_column(size_t offset, Reg column) {
    b_.atomic(Atomic::min, status_, static_cast<int64_t>(offset),
              b_.convert(Scalar::i64, column, Conversion::sign));
  }

  /// A lane for all: thousands of atomic operations at one address keep those waiting that ask for
  /// their operands.
  void end_stream() override {
    const Reg largest = largest_of_warp(ordered_bits(largest_));
    const Reg largest_input = largest_of_warp(largest_input_);
    b_.if_begin(
        b_.compare(Comparison::eq, Scalar::i32, b_.special(Special::lane), Operand::integer(0)));
    note_maximum(offsetof(LuStatusRecord, largest), largest);
    note_maximum(offsetof(LuStatusRecord, largest_input), largest_input);
    b_.end();
  }

  /// Most warps find that another had a larger one.
  void note_maximum(size_t offset, Reg bits) {
    const Reg known = b_.load_ordered(ir::Order::relaxed_device, status_, int64_t(offset));
    b_.if_begin(b_.compare(Comparison::gt, Scalar::i64, bits, known));
    b_.atomic(Atomic::max, status_, int64_t(offset), bits);
    b_.end();
  }

  Reg largest_of_warp(Reg bits) {
    const Reg largest = b_.move(bits);
    for (uint32_t distance = kLanes / 2; distance > 0; distance /= 2) {
      const auto other = [&](Reg half) {
        return b_.shuffle(ir::Shuffle::butterfly, half, Operand::integer(distance));
      };
      const Reg low = other(b_.convert(Scalar::i32, largest, Conversion::exact));
      b_.value(Opcode::max, Scalar::i64, {largest, join(low, other(upper_bits(largest)))}, largest);
    }
    return largest;
  }

  Reg values_, initial_, column_max_, given_max_, quotient_, status_, threshold_;
  Reg largest_, largest_input_;
  Reg start_, start_place_, column_largest_, given_largest_, is_pivot_, is_sum_, column_, least_;
  LuNumber value_, result_;
  std::array<Reg, 3 * kProducts> operand_, place_;
};

class SolveWriter : DataflowWriter {
public:
  SolveWriter(ir::Module& module, const LuKernelOptions& options)
      : DataflowWriter(module, options, kLuSolveKernel, 2, 4) {}

  void write() {
    declare_tables();
    values_ = number_pointer("values");
    const Reg work = number_pointer("work"), x = given_pointer("x");
    scale_ = pointer("scale", Scalar::f64);
    n_ = number("n");
    const Reg right_sides = number("right_sides");
    declare_active();
    find_stream();
    const Reg work_stride = b_.mul(Scalar::i32, n_, Operand::integer(kSolveVectors * bytes_));
    const Reg x_stride = b_.mul(Scalar::i32, n_, Operand::integer(given_bytes()));
    const Reg side = b_.for_loop(right_sides, 1);
    if_active(side);
    work_ = b_.index(work, side, work_stride);
    x_ = b_.index(x, side, x_stride);
    write_stream();
    b_.end();
    b_.end();
    b_.return_void();
  }

private:
  void prepare_task(const Packet& packet, Reg has_task) override {
    pivot_ = zero_pieces();
    factor_ = b_.constant(Scalar::f64, Operand::f64(0));
    start_ = zero_pieces();
    base_waits_ = b_.move(has_task);
    start_place_ = element(work_, b_.sub(Scalar::i32, packet.task[0], n_), bytes_);
    b_.if_begin(has_task);
    load_pieces(element(values_, packet.task[2], bytes_), Cache::readonly, pivot_);
    b_.end();
    is_unknown_ = b_.compare(Comparison::ge, Scalar::i32, packet.task[1], Operand::integer(0));
    b_.if_begin(is_unknown_);
    b_.load(element(scale_, packet.task[1], sizeof(double)), 0, 1, Cache::readonly, factor_);
    b_.end();
    result_ = zero();
  }

  void load_early(const Packet& packet) override {
    for (uint32_t p = 0; p < kProducts; ++p) {
      entry_[p] = zero_pieces();
      operand_[p] = zero_pieces();
      place_[p] = element(work_, packet.operands[kProducts + p], bytes_);
      b_.if_begin(b_.compare(Comparison::ge, Scalar::i32, packet.operands[p], Operand::integer(0)));
      load_pieces(element(values_, packet.operands[p], bytes_), Cache::readonly, entry_[p]);
      b_.end();
    }
  }
  void load_late(const Packet&, uint32_t product) override {
    load_published(place_[product], operand_[product]);
  }
  std::vector<Reg> late(uint32_t product) override { return {operand_[product]}; }
  void add_product(uint32_t product, LuNumber sum) override {
    fma(unpack(entry_[product]), unpack(operand_[product]), sum, sum);
  }
  void load_base() override { load_published(start_place_, start_); }
  std::vector<Reg> base() override { return {start_}; }

  /// z = d (b - sum), x = z - d sum.
  void publish_result(const Packet& packet, LuNumber sum) override {
    const LuNumber start = unpack(start_), pivot = unpack(pivot_);
    const LuNumber forward = mul(sub(start, sum), pivot);
    const LuNumber backward = fma(negated(sum), pivot, start);
    move(select(is_unknown_, backward, forward), result_);
    publish(element(work_, packet.task[0], bytes_), result_);
  }
  void take_notes(const Packet& packet) override {
    b_.if_begin(is_unknown_);
    store_scaled(element(x_, packet.task[1], given_bytes()), result_, factor_);
    b_.end();
  }

  Reg values_, work_, x_, scale_, n_;
  Reg pivot_, factor_, start_, start_place_, is_unknown_;
  LuNumber result_;
  std::array<Reg, kProducts> entry_, operand_, place_;
};

} // namespace

ir::Module make_lu_kernels(const LuKernelOptions& options) {
  ir::Module module;
  module.functions.reserve(6); // the writers hold references
  write_lu_input(module, options);
  FactorWriter(module, options).write();
  write_lu_solve_input(module, options);
  SolveWriter(module, options).write();
  if (options.block_rows > 0)
    write_lu_block_solve(module, options);
  ir::verify_or_throw(module, "lowering sparse LU");
  return module;
}

} // namespace sparsertc
