#include "compiler/lower/lu_emitted.h"

#include "compiler/lower/lu_kernel_writer.h"
#include "ir/lu_dataflow.h"
#include "ir/verifier.h"

#include <fmt/format.h>

#include <array>
#include <bit>
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

constexpr uint32_t kLanes = 32;
constexpr uint32_t kWord = sizeof(uint32_t);
constexpr uint32_t kAll = 0xFFFFFFFF;
/// Loads of straight-line code that are on their way together.
constexpr size_t kAhead = 8;
/// Products that a loop loads together.
constexpr uint32_t kTogether = 4;

/// What all functions that compute entries are given.
class EntryWriter : protected LuKernelWriter {
public:
  EntryWriter(ir::Module& module, const LuKernelOptions& options, const char* name,
              uint32_t threads)
      : LuKernelWriter(module, options, name, threads) {}

protected:
  /// A device function instead of a kernel.
  void become_function() {
    b_.function().kind = ir::FunctionKind::device;
    b_.function().block[0] = 1;
  }
  void declare_arrays() {
    values_ = number_pointer("values");
    initial_ = number_pointer("initial");
    column_max_ = pointer("column_max", Scalar::i64);
    pivots_ = number_pointer("pivots");
  }
  void declare_tables() {
    task_ = pointer("task", Scalar::i32);
    left_ = pointer("left", Scalar::i32);
    right_ = pointer("right", Scalar::i32);
    pivot_ = pointer("pivot", Scalar::i32);
  }
  void declare_threshold() { threshold_ = number("threshold", options_.type); }

  /// The reciprocal of a pivot, or of what replaces it if it is too small beside the largest of its
  /// column (bits of f64).
  LuNumber inverse_of(LuNumber value, Reg column_largest) {
    const Reg largest = from_f64(b_.bitcast(Scalar::f64, column_largest));
    const Reg least = b_.mul(type_, threshold_, largest);
    const Reg small = b_.compare(Comparison::lt, type_, magnitude(value), least);
    return reciprocal(select(small, with_phase(value, least), value));
  }

  Reg values_, initial_, column_max_, pivots_, task_, left_, right_, pivot_, threshold_;
};

/// The columns of a strip, one after the other.
class StripWriter : EntryWriter {
public:
  StripWriter(ir::Module& module, const LuKernelOptions& options, const LuTables& tables,
              uint32_t number)
      : EntryWriter(module, options, fmt::format("lu_strip_{}", number).c_str(), 1), t_(tables) {}

  void write(std::span<const uint32_t> columns) {
    become_function();
    declare_arrays();
    declare_threshold();
    lane_ = b_.special(Special::lane);
    const Reg one = b_.constant(Scalar::i32, Operand::integer(1));
    bit_ = b_.value(Opcode::shl, Scalar::i32, {one, lane_});
    below_ = b_.sub(Scalar::i32, bit_, Operand::integer(1));
    lane_values_ = element(values_, lane_, bytes_);
    lane_initial_ = element(initial_, lane_, bytes_);
    for (const uint32_t j : columns)
      write_column(j);
    b_.clear_origin();
    b_.return_void();
  }

private:
  /// The rows of a source that lie in one chunk.
  struct Step {
    uint32_t chunk;
    uint32_t lanes; ///< that have one of them
    uint64_t slot;  ///< of the first of them, in the source
    Reg left;
  };
  struct Source {
    uint32_t k;
    uint64_t place; ///< of v(k,j) in the column
    std::vector<Step> steps;
    LuNumber pivot;
  };

  int64_t offset_of(uint64_t slot) const { return static_cast<int64_t>(slot * bytes_); }

  /// Lanes of a chunk that have a row of the column.
  uint32_t lanes_of(uint64_t rows, uint64_t chunk) const {
    const uint64_t left = rows - chunk * kLanes;
    return left >= kLanes ? kAll : (uint32_t{1} << left) - 1;
  }
  /// Code for these lanes; whether it has to be closed.
  bool begin_lanes(uint32_t lanes) {
    if (lanes == kAll)
      return false;
    const Reg mine = b_.value(Opcode::bit_and, Scalar::i32,
                              {bit_, Operand::integer(static_cast<int32_t>(lanes))});
    b_.if_begin(b_.compare(Comparison::ne, Scalar::i32, mine, Operand::integer(0)));
    return true;
  }
  void end_lanes(bool begun) {
    if (begun)
      b_.end();
  }

  std::vector<Source> sources_of(uint32_t j) const {
    std::vector<Source> sources;
    const uint64_t begin = t_.column_offset[j];
    for (uint64_t right = begin; right < t_.diagonal[j]; ++right) {
      const uint32_t k = t_.row_index[right];
      Source source{k, right - begin, {}, {}};
      uint64_t slot = right;
      for (uint64_t left = t_.diagonal[k] + 1; left < t_.column_offset[k + 1]; ++left) {
        while (t_.row_index[slot] != t_.row_index[left])
          ++slot;
        const auto chunk = static_cast<uint32_t>((slot - begin) / kLanes);
        if (source.steps.empty() || source.steps.back().chunk != chunk)
          source.steps.push_back({chunk, 0, left, {}});
        source.steps.back().lanes |= uint32_t{1} << ((slot - begin) % kLanes);
      }
      if (!source.steps.empty())
        sources.push_back(std::move(source));
    }
    return sources;
  }

  void write_column(uint32_t j) {
    const uint64_t begin = t_.column_offset[j], rows = t_.column_offset[j + 1] - begin;
    std::vector<LuNumber> column;
    for (uint64_t chunk = 0; chunk * kLanes < rows; ++chunk) {
      b_.set_origin(t_.row_index[begin + chunk * kLanes], j);
      const Reg pieces = zero_pieces();
      const bool begun = begin_lanes(lanes_of(rows, chunk));
      b_.load(lane_initial_, offset_of(begin + chunk * kLanes), pieces_, Cache::readonly, pieces);
      end_lanes(begun);
      column.push_back(unpack(pieces));
    }
    std::vector<Source> sources = sources_of(j);
    for (size_t first = 0; first < sources.size();) {
      size_t end = first, loads = 0;
      for (; end < sources.size() && (end == first || loads + sources[end].steps.size() <= kAhead);
           ++end) {
        load(sources[end], j);
        loads += sources[end].steps.size();
      }
      for (; first < end; ++first)
        subtract(sources[first], j, column);
    }
    finish(j, column);
  }

  void load(Source& source, uint32_t j) {
    b_.set_origin(source.k, j);
    const Reg pieces = b_.load(values_, offset_of(t_.diagonal[source.k]), pieces_, Cache::normal);
    source.pivot = unpack(pieces);
    for (Step& step : source.steps) {
      step.left = zero_pieces();
      Reg place = lane_values_;
      int64_t offset = offset_of(step.slot);
      const int first = std::countr_zero(step.lanes);
      const uint32_t run = step.lanes >> first;
      if ((run & (run + 1)) == 0) { // neighbours
        offset -= int64_t{first} * bytes_;
      } else {
        const Reg before = b_.value(Opcode::bit_and, Scalar::i32,
                                    {below_, Operand::integer(static_cast<int32_t>(step.lanes))});
        place = element(values_, b_.value(Opcode::popc, Scalar::i32, {before}), bytes_);
      }
      const bool begun = begin_lanes(step.lanes);
      b_.load(place, offset, pieces_, Cache::normal, step.left);
      end_lanes(begun);
    }
  }

  void subtract(const Source& source, uint32_t j, const std::vector<LuNumber>& column) {
    b_.set_origin(source.k, j);
    const LuNumber upper = from_lane(ir::Shuffle::index, column[source.place / kLanes],
                                     Operand::integer(static_cast<int64_t>(source.place % kLanes)));
    const LuNumber minus = negated(mul(upper, source.pivot));
    for (const Step& step : source.steps)
      fma(unpack(step.left), minus, column[step.chunk], column[step.chunk]);
  }

  void finish(uint32_t j, std::vector<LuNumber>& column) {
    b_.set_origin(j, j);
    const uint64_t begin = t_.column_offset[j], rows = t_.column_offset[j + 1] - begin;
    const uint64_t place = t_.diagonal[j] - begin;
    const Operand lane = Operand::integer(static_cast<int64_t>(place % kLanes));
    LuNumber& own = column[place / kLanes];
    const LuNumber value = from_lane(ir::Shuffle::index, own, lane);
    const Reg largest =
        b_.load(column_max_, static_cast<int64_t>(j * sizeof(int64_t)), 1, Cache::readonly);
    const LuNumber inverse = inverse_of(value, largest);
    const Reg is_pivot = b_.compare(Comparison::eq, Scalar::i32, lane_, lane);
    own = select(is_pivot, inverse, own);
    for (uint64_t chunk = 0; chunk < column.size(); ++chunk) {
      const Reg pieces = pack(column[chunk]);
      const bool begun = begin_lanes(lanes_of(rows, chunk));
      b_.store(lane_values_, offset_of(begin + chunk * kLanes), pieces, pieces_);
      end_lanes(begun);
    }
    b_.if_begin(is_pivot);
    b_.store(pivots_, offset_of(j), pack(value), pieces_);
    b_.end();
  }

  const LuTables& t_;
  Reg lane_, bit_, below_, lane_values_, lane_initial_;
};

/// An entry by tables: of one lane, or of all lanes of a warp.
class GatherWriter : EntryWriter {
public:
  GatherWriter(ir::Module& module, const LuKernelOptions& options, bool whole_warp)
      : EntryWriter(module, options, whole_warp ? "lu_gather_long" : "lu_gather_short", 1),
        whole_warp_(whole_warp) {}

  void write() {
    become_function();
    declare_arrays();
    declare_tables();
    declare_threshold();
    const Reg number = this->number("number");
    const Reg task = b_.load(element(task_, number, sizeof(LuEmittedTask)), 0, 4, Cache::readonly);
    const Reg slot = task[0], column = task[1], first = task[2], count = task[3];
    const LuNumber sum = zero();
    if (whole_warp_) {
      const Reg lane = b_.special(Special::lane);
      const Reg base = b_.for_loop(count, kTogether * kLanes);
      add_products(b_.add(Scalar::i32, base, lane), kLanes, first, count, sum);
      b_.end();
      add_lanes(sum, b_.constant(Scalar::i32, Operand::integer(kLanes)));
      b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, lane, Operand::integer(0)));
      finish(slot, column, sum);
      b_.end();
    } else {
      const Reg base = b_.for_loop(count, kTogether);
      add_products(base, 1, first, count, sum);
      b_.end();
      finish(slot, column, sum);
    }
    b_.return_void();
  }

private:
  /// Products number `base`, base + step, ..., as many as are loaded together and there are.
  void add_products(Reg base, uint32_t step, Reg first, Reg count, LuNumber sum) {
    std::array<Reg, kTogether> inside;
    std::array<std::array<Reg, 3>, kTogether> place;
    std::array<std::array<LuNumber, 3>, kTogether> operand;
    for (uint32_t p = 0; p < kTogether; ++p) {
      const Reg number = b_.add(Scalar::i32, base, Operand::integer(p * step));
      inside[p] = b_.compare(Comparison::lt, Scalar::i32, number, count);
      // Where there is none, the first is loaded again.
      const Reg at = b_.add(Scalar::i32, first,
                            b_.select(Scalar::i32, inside[p], number, Operand::integer(0)));
      for (uint32_t word = 0; word < 3; ++word) {
        const Reg table = word == 0 ? left_ : word == 1 ? right_ : pivot_;
        place[p][word] = b_.load(element(table, at, kWord), 0, 1, Cache::readonly);
      }
    }
    for (uint32_t p = 0; p < kTogether; ++p)
      for (uint32_t word = 0; word < 3; ++word)
        operand[p][word] = load_number(element(values_, place[p][word], bytes_));
    for (uint32_t p = 0; p < kTogether; ++p) {
      const LuNumber left = select(inside[p], operand[p][0], zero());
      const LuNumber right = select(inside[p], mul(operand[p][1], operand[p][2]), zero());
      fma(left, right, sum, sum);
    }
  }

  void finish(Reg slot, Reg column, LuNumber sum) {
    const LuNumber entry = load_number(element(initial_, slot, bytes_), Cache::readonly);
    const LuNumber value = sub(entry, sum);
    const Reg place = element(values_, slot, bytes_);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, column, Operand::integer(0)));
    const Reg j = b_.value(Opcode::bit_xor, Scalar::i32, {column, Operand::integer(-1)});
    const Reg largest = b_.load(element(column_max_, j, sizeof(int64_t)), 0, 1, Cache::readonly);
    store_number(place, inverse_of(value, largest));
    store_number(element(pivots_, j, bytes_), value);
    b_.else_mark();
    store_number(place, value);
    b_.end();
  }

  const bool whole_warp_;
};

/// The levels of a launch.
class LaunchWriter : EntryWriter {
public:
  LaunchWriter(ir::Module& module, const LuKernelOptions& options, uint32_t number,
               const LuEmittedLaunch& launch)
      : EntryWriter(module, options, lu_emitted_kernel(number).c_str(), launch.warps * kLanes),
        launch_(launch) {}

  /// `strip`: the functions of all strips.
  void write(const LuEmitted& plan, std::span<const uint32_t> strip, uint32_t long_function,
             uint32_t short_function) {
    declare_arrays();
    declare_tables();
    declare_threshold();
    const Reg in_block =
        b_.value(Opcode::shr, Scalar::i32, {b_.special(Special::thread_x), Operand::integer(5)});
    const Reg before =
        b_.mul(Scalar::i32, b_.special(Special::block_x), Operand::integer(int64_t{launch_.warps}));
    const Reg warp = b_.add(Scalar::i32, before, in_block);
    const uint32_t warps = launch_.blocks * launch_.warps;
    for (uint32_t number = launch_.first_level; number < launch_.end_level; ++number) {
      if (number > launch_.first_level)
        b_.barrier();
      const LuEmittedLevel& level = plan.levels[number];
      const auto functions = strip.subspan(level.first_strip, level.strips());
      if (level.pieces() <= warps) {
        write_piece(level, functions, warp, long_function, short_function);
        continue;
      }
      const Reg round = b_.for_loop(Operand::integer(level.pieces()), warps);
      write_piece(level, functions, b_.add(Scalar::i32, round, warp), long_function,
                  short_function);
      b_.end();
    }
    b_.return_void();
  }

private:
  /// Piece number `piece` of a level, if there is one.
  void write_piece(const LuEmittedLevel& level, std::span<const uint32_t> strips, Reg piece,
                   uint32_t long_function, uint32_t short_function) {
    if (!strips.empty())
      b_.switch_call(piece, strips,
                     std::vector<Reg>{values_, initial_, column_max_, pivots_, threshold_});
    if (level.long_tasks() > 0) {
      const Reg number = b_.sub(Scalar::i32, piece, Operand::integer(level.strips()));
      write_task(number, level.first_task, level.long_tasks(), long_function);
    }
    if (level.short_tasks() > 0) {
      const Reg group = b_.sub(Scalar::i32, piece,
                               Operand::integer(int64_t{level.strips()} + level.long_tasks()));
      const Reg first = b_.mul(Scalar::i32, group, Operand::integer(kLanes));
      const Reg number = b_.add(Scalar::i32, first, b_.special(Special::lane));
      write_task(number, level.end_long, level.short_tasks(), short_function);
    }
  }

  void write_task(Reg number, uint32_t first, uint32_t count, uint32_t function) {
    b_.if_begin(b_.compare(Comparison::ltu, Scalar::i32, number, Operand::integer(count)));
    const Reg task = b_.add(Scalar::i32, number, Operand::integer(first));
    b_.call(function, std::vector<Reg>{values_, initial_, column_max_, pivots_, task_, left_,
                                       right_, pivot_, threshold_, task});
    b_.end();
  }

  const LuEmittedLaunch& launch_;
};

class NotesWriter : LuKernelWriter {
public:
  NotesWriter(ir::Module& module, const LuKernelOptions& options)
      : LuKernelWriter(module, options, kLuEmittedNotes, kLuNotesThreads) {}

  void write() {
    values_ = number_pointer("values");
    pivots_ = number_pointer("pivots");
    slot_column_ = pointer("slot_column", Scalar::i32);
    column_max_ = pointer("column_max", Scalar::i64);
    quotient_ = pointer("quotient", Scalar::f64);
    status_ = pointer("status", Scalar::i64);
    threshold_ = number("threshold", options_.type);
    const Reg slots = number("slots");
    largest_ = real_constant(0);
    largest_input_ = real_constant(0);
    const Reg before = b_.mul(Scalar::i32, b_.special(Special::block_x),
                              Operand::integer(int64_t{kLuNotesThreads} * kLuNotesSlots));
    const Reg first = b_.add(Scalar::i32, before, b_.special(Special::thread_x));
    const Reg round =
        b_.for_loop(Operand::integer(int64_t{kLuNotesThreads} * kLuNotesSlots), kLuNotesThreads);
    const Reg slot = b_.add(Scalar::i32, first, round);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, slot, slots));
    look_at(slot);
    b_.end();
    b_.end();
    note_largest(offsetof(LuStatusRecord, largest), largest_);
    note_largest(offsetof(LuStatusRecord, largest_input), largest_input_);
    b_.return_void();
  }

private:
  void keep_larger(Reg size, Reg largest) {
    b_.select(type_, b_.compare(Comparison::gt, type_, size, largest), size, largest, largest);
  }

  void look_at(Reg slot) {
    const Reg word = b_.load(element(slot_column_, slot, kWord), 0, 1, Cache::readonly);
    const LuNumber value = load_number(element(values_, slot, bytes_), Cache::readonly);
    const Reg size = magnitude(value);
    const Reg bad = is_not_finite(value);
    const Reg column = b_.move(word);
    b_.if_begin(b_.compare(Comparison::lt, Scalar::i32, word, Operand::integer(0)));
    b_.value(Opcode::bit_xor, Scalar::i32, {word, Operand::integer(-1)}, column);
    look_at_pivot(column, size, bad);
    b_.end();
    keep_larger(size, largest_);
    b_.if_begin(bad);
    note_column(offsetof(LuStatusRecord, nonfinite_column), column);
    b_.end();
  }

  /// `size` and `bad` are the reciprocal's at first.
  void look_at_pivot(Reg column, Reg size, Reg bad) {
    const LuNumber pivot = load_number(element(pivots_, column, bytes_), Cache::readonly);
    b_.move(magnitude(pivot), size);
    b_.value(Opcode::bit_or, Scalar::pred, {bad, is_not_finite(pivot)}, bad);
    const Reg place = element(column_max_, column, sizeof(int64_t));
    const Reg bits = b_.load(place, 0);
    b_.store(place, 0, b_.constant(Scalar::i64, Operand::integer(0)));
    const Reg column_largest = b_.bitcast(Scalar::f64, bits);
    b_.store(element(quotient_, column, sizeof(double)), 0,
             b_.value(Opcode::div, Scalar::f64, {to_f64(size), column_largest}));
    // Of numbers of the factors' type, so that nothing is rounded.
    const Reg input = from_f64(column_largest);
    keep_larger(input, largest_input_);
    const Reg least = b_.mul(type_, threshold_, input);
    b_.if_begin(b_.compare(Comparison::lt, type_, size, least));
    b_.atomic(Atomic::add, status_, offsetof(LuStatusRecord, perturbed),
              b_.constant(Scalar::i64, Operand::integer(1)));
    note_column(offsetof(LuStatusRecord, perturbed_column), column);
    b_.end();
    b_.if_begin(b_.compare(Comparison::eq, Scalar::i64, bits, Operand::integer(0)));
    note_column(offsetof(LuStatusRecord, zero_column), column);
    b_.end();
  }

  void note_column(size_t offset, Reg column) {
    b_.atomic(Atomic::min, status_, static_cast<int64_t>(offset),
              b_.convert(Scalar::i64, column, Conversion::sign));
  }

  /// Of a warp.
  void note_largest(size_t offset, Reg largest) {
    for (uint32_t distance = 16; distance > 0; distance /= 2)
      keep_larger(from_lane(ir::Shuffle::butterfly, largest, Operand::integer(distance)), largest);
    const Reg is_first =
        b_.compare(Comparison::eq, Scalar::i32, b_.special(Special::lane), Operand::integer(0));
    b_.if_begin(is_first);
    b_.atomic(Atomic::max, status_, static_cast<int64_t>(offset), ordered_bits(largest));
    b_.end();
  }

  Reg values_, pivots_, slot_column_, column_max_, quotient_, status_, threshold_;
  Reg largest_, largest_input_;
};

} // namespace

std::string lu_emitted_kernel(uint32_t number) {
  return fmt::format("sparsertc_lu_level_{}", number);
}

ir::Module make_lu_emitted_kernels(const LuTables& tables, const LuEmitted& plan,
                                   const LuKernelOptions& options) {
  ir::Module module;
  // The writers hold references.
  module.functions.reserve(plan.strips() + plan.launches.size() + 3);
  std::vector<uint32_t> strips;
  for (uint32_t number = 0; number < plan.strips(); ++number) {
    strips.push_back(static_cast<uint32_t>(module.functions.size()));
    StripWriter(module, options, tables, number)
        .write(std::span(plan.strip_column)
                   .subspan(plan.strip_offset[number],
                            plan.strip_offset[number + 1] - plan.strip_offset[number]));
  }
  const auto long_function = static_cast<uint32_t>(module.functions.size());
  GatherWriter(module, options, true).write();
  const auto short_function = static_cast<uint32_t>(module.functions.size());
  GatherWriter(module, options, false).write();
  for (uint32_t number = 0; number < plan.launches.size(); ++number)
    LaunchWriter(module, options, number, plan.launches[number])
        .write(plan, strips, long_function, short_function);
  NotesWriter(module, options).write();
  ir::verify_or_throw(module, "lowering a factorization by levels");
  return module;
}

} // namespace sparsertc
