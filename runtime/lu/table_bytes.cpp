#include "runtime/lu/table_bytes.h"

#include "ir/counted.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <type_traits>
#include <variant>

namespace sparsertc::lu {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are stored as they are in memory");

constexpr uint32_t kVersion = 2;
/// What a section holds.
enum class Kind : uint32_t { tables = 1, dataflow = 2, block_solve = 3, batch_loop = 4 };

// They call archive(member) for every member, in the order of the file.
constexpr auto visit_tables = [](auto& archive, auto& t) {
  archive(t.size);
  archive(t.input_nnz);
  archive(t.row_order);
  archive(t.column_order);
  archive(t.row_scale);
  archive(t.column_scale);
  archive(t.column_offset);
  archive(t.row_index);
  archive(t.diagonal);
  archive(t.row_offset);
  archive(t.column_index);
  archive(t.row_slot);
  archive(t.row_diagonal);
  archive(t.input_offset);
  archive(t.input_row);
  archive(t.input_slot);
  archive(t.input_source);
  archive(t.input_scale);
  for (auto* levels : {&t.factor_levels, &t.forward_levels, &t.backward_levels,
                       &t.transposed_forward_levels, &t.transposed_backward_levels}) {
    archive(levels->offset);
    archive(levels->member);
  }
};

constexpr auto visit_dataflow = [](auto& archive, auto& flow) {
  archive(flow.operand_words);
  archive(flow.task_words);
  archive(flow.partial_sums);
  archive(flow.stream_offset);
  archive(flow.group);
  archive(flow.gate);
  archive(flow.task);
  archive(flow.operands);
};

constexpr auto visit_block_solve = [](auto& archive, auto& solve) {
  archive(solve.warps);
  archive(solve.steps);
  archive(solve.end);
  archive(solve.shape);
  archive(solve.records);
  archive(solve.slot);
  archive(solve.pivot);
};

constexpr auto visit_batch_loop = [](auto& archive, auto& loop) {
  archive(loop.numbers);
  archive(loop.entry_source);
  archive(loop.entry_slot);
  archive(loop.entry_end);
  archive(loop.entry_scale);
  archive(loop.factor);
  archive(loop.forward);
  archive(loop.backward);
  archive(loop.row);
  archive(loop.column);
  archive(loop.row_scale);
  archive(loop.column_scale);
};

/// Numbers take 8 bytes; arrays their length in 8 bytes, then their elements.
class Writer {
public:
  explicit Writer(Kind kind) {
    (*this)(kVersion);
    (*this)(static_cast<uint32_t>(kind));
  }
  template <class T>
  void operator()(const T& number) requires std::is_integral_v<T> {
    const uint64_t wide = number;
    append(&wide, sizeof wide);
  }
  template <class T>
  void operator()(const std::vector<T>& array) {
    (*this)(array.size());
    append(array.data(), array.size() * sizeof(T));
  }
  std::vector<uint8_t> finish() { return std::move(bytes_); }

private:
  void append(const void* data, size_t count) {
    // GCC 12 warns of an insertion at the end, inlined with a known size.
    const size_t end = bytes_.size();
    bytes_.resize(end + count);
    if (count > 0)
      std::memcpy(bytes_.data() + end, data, count);
  }

  std::vector<uint8_t> bytes_;
};

class Reader {
public:
  Reader(std::span<const uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {
    if (const uint64_t version = number(); version != kVersion)
      fail(fmt::format("version {} of the tables, this program reads {}", version, kVersion));
    kind_ = static_cast<Kind>(number());
  }
  Kind kind() const { return kind_; }

  template <class T>
  void operator()(T& value) requires std::is_integral_v<T> {
    const uint64_t wide = number();
    value = static_cast<T>(wide);
    if (value != wide)
      fail(fmt::format("{} is too large", wide));
  }
  template <class T>
  void operator()(std::vector<T>& array) {
    const uint64_t count = number();
    if (count > (bytes_.size() - at_) / sizeof(T))
      fail(fmt::format("an array of {} numbers does not fit into the rest", count));
    array.resize(count);
    if (count != 0)
      std::memcpy(array.data(), bytes_.data() + at_, count * sizeof(T));
    at_ += count * sizeof(T);
  }
  void finish() const {
    if (at_ != bytes_.size())
      fail(counted(bytes_.size() - at_, "byte") + " more than expected");
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(Place::binary(name_, at_), "damaged: " + what,
                    "compile it again: sparsertc compile IN --op=lu -o OUT.srtc");
  }

private:
  uint64_t number() {
    uint64_t value = 0;
    if (bytes_.size() - at_ < sizeof value)
      fail("cut short");
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::span<const uint8_t> bytes_;
  const std::string& name_;
  size_t at_ = 0;
  Kind kind_ = Kind::tables;
};

template <class Table, class Visit>
std::vector<uint8_t> write(Kind kind, const Table& table, const Visit& visit) {
  Writer writer(kind);
  visit(writer, table);
  return writer.finish();
}

/// `otherwise`: what it is where it holds something else.
template <class Table, class Visit>
Table parse(std::span<const uint8_t> bytes, const std::string& name, Kind kind,
            const char* otherwise, const Visit& visit) {
  Reader reader(bytes, name);
  if (reader.kind() != kind)
    reader.fail(otherwise);
  Table table;
  visit(reader, table);
  reader.finish();
  return table;
}

} // namespace

std::vector<uint8_t> to_bytes(const LuTables& tables) {
  return write(Kind::tables, tables, visit_tables);
}

std::vector<uint8_t> to_bytes(const LuDataflow& flow) {
  return write(Kind::dataflow, flow, visit_dataflow);
}

std::vector<uint8_t> to_bytes(const GpuFlows::Solve& solve) {
  if (const auto* const flow = std::get_if<LuDataflow>(&solve))
    return to_bytes(*flow);
  return write(Kind::block_solve, std::get<LuBlockSolve>(solve), visit_block_solve);
}

std::vector<uint8_t> to_bytes(const LuBatchLoop& loop) {
  return write(Kind::batch_loop, loop, visit_batch_loop);
}

LuTables parse_tables(std::span<const uint8_t> bytes, const std::string& name) {
  return parse<LuTables>(bytes, name, Kind::tables, "not the tables of a factorization",
                         visit_tables);
}

LuDataflow parse_dataflow(std::span<const uint8_t> bytes, const std::string& name) {
  return parse<LuDataflow>(bytes, name, Kind::dataflow, "not a table of packets", visit_dataflow);
}

GpuFlows::Solve parse_solve(std::span<const uint8_t> bytes, const std::string& name) {
  if (Reader(bytes, name).kind() == Kind::dataflow)
    return parse_dataflow(bytes, name);
  return parse<LuBlockSolve>(bytes, name, Kind::block_solve, "not a table of packets, nor of steps",
                             visit_block_solve);
}

LuBatchLoop parse_batch_loop(std::span<const uint8_t> bytes, const std::string& name) {
  return parse<LuBatchLoop>(bytes, name, Kind::batch_loop, "not the tables of a batch",
                            visit_batch_loop);
}

} // namespace sparsertc::lu
