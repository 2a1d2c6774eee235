#include "runtime/lu/gpu_symbolic.h"

#include "ir/error.h"
#include "runtime/kernels/fill2.cuh"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace sparsertc::lu {
namespace {

using kernels::Fill2Arguments;
using kernels::kFill2Group;
using kernels::kNotStored;
using Buffer = std::unique_ptr<cuda::DeviceBuffer>;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kThreads = 512;
/// Threads that a multiprocessor has room for at most.
constexpr uint32_t kThreadsOfMultiprocessor = 2048;
/// Chunks that are copied to the host need not be larger.
constexpr uint64_t kLargestChunkBytes = uint64_t{256} << 20;
/// The store's size where memory is plenty: so many entries for each entry of A and each row.
constexpr uint64_t kStorePerEntry = 16;
constexpr uint64_t kBytesOfStored = sizeof(uint32_t) + sizeof(uint64_t);

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

uint64_t words_of(uint64_t bits) {
  return (bits + 31) / 32;
}

/// Bytes of a workspace that are zeros at first.
uint64_t zeroed_bytes(uint64_t size) {
  return 2 * sizeof(uint64_t) * size +
         sizeof(uint32_t) * (words_of(size) + words_of(words_of(size)));
}
/// Of its lists.
uint64_t list_bytes(uint64_t capacity) {
  return (sizeof(uint32_t) * 6 + sizeof(uint64_t)) * capacity;
}
uint64_t workspace_bytes(uint64_t size, uint64_t capacity) {
  return zeroed_bytes(size) + list_bytes(capacity);
}

/// Workspaces in device memory.
class Workspaces {
public:
  Workspaces(const cuda::Context& context, uint64_t count, uint64_t size, uint64_t capacity,
             const cuda::Stream& stream)
      : count_(count), zeroed_(context, count * zeroed_bytes(size)),
        lists_(context, count * list_bytes(capacity)) {
    zeroed_.fill(0, stream);
    // 64-bit numbers first, so that all are aligned.
    arrays_.visited = pointer<uint64_t>(zeroed_);
    arrays_.pending = arrays_.visited + count * size;
    arrays_.entries = reinterpret_cast<uint32_t*>(arrays_.pending + count * size);
    arrays_.summary = arrays_.entries + count * words_of(size);
    arrays_.rows = pointer<uint64_t>(lists_);
    arrays_.touched = reinterpret_cast<uint32_t*>(arrays_.rows + count * capacity);
    arrays_.queue = arrays_.touched + count * capacity;
    arrays_.column = arrays_.queue + 4 * count * capacity;
    arrays_.capacity = capacity;
  }
  uint64_t count() const { return count_; }
  uint64_t bytes() const { return zeroed_.bytes() + lists_.bytes(); }
  const kernels::Fill2Workspaces& arrays() const { return arrays_; }

private:
  uint64_t count_;
  cuda::DeviceBuffer zeroed_, lists_;
  kernels::Fill2Workspaces arrays_{};
};

/// Rows that one launch of the second pass writes.
struct Chunk {
  uint32_t first_row;
  uint32_t last_row;
};

class Symbolic {
public:
  Symbolic(const GpuAnalysisKernels& kernels, std::span<const uint64_t> row_offset,
           std::span<const uint32_t> column_index, const GpuSymbolicOptions& options)
      : kernels_(kernels), context_(kernels.context()), options_(options),
        size_(static_cast<uint32_t>(row_offset.size() - 1)),
        groups_((size_ + kFill2Group - 1) / kFill2Group), a_row_offset_(row_offset),
        a_column_(column_index), stream_(context_), copies_(context_) {}

  GpuSymbolic run() {
    report_.budget_bytes = memory_budget(context_, options_.memory_limit);
    report_.groups = groups_;
    step(report_.upload_us, [&] { upload(); });
    step(report_.count_us, [&] { count(); });
    step(report_.write_us, [&] { write(); });
    result_.size = size_;
    result_.report = report_;
    return std::move(result_);
  }

private:
  template <class Work>
  void step(double& time_us, const Work& work) {
    const Clock::time_point start = Clock::now();
    work();
    time_us = microseconds_since(start);
  }

  Buffer make(uint64_t bytes) {
    fixed_bytes_ += bytes;
    return std::make_unique<cuda::DeviceBuffer>(context_, bytes);
  }
  /// Bytes held for all of the time; those of `more` are held now.
  void note_peak(uint64_t more) {
    report_.peak_bytes = std::max(report_.peak_bytes, fixed_bytes_ + more);
  }
  /// What is left of the budget.
  uint64_t rest() const {
    return report_.budget_bytes > fixed_bytes_ ? report_.budget_bytes - fixed_bytes_ : 0;
  }

  [[noreturn]] void fail_memory(const char* what, uint64_t needed) const {
    throw RuntimeError(
        "symbolic factorization on the GPU",
        fmt::format("out of memory: {} needs {} bytes of device memory, {} may be used", what,
                    needed, report_.budget_bytes),
        "raise --memory-limit where there is one, or --symbolic=cpu");
  }

  uint64_t entries_bytes(uint64_t entries) const { return entries * sizeof(uint32_t); }

  /// Groups that the device can work on at the same time.
  uint64_t resident_groups(const cuda::Kernel& kernel) const {
    const cuda::DeviceProperties& device = context_.properties();
    uint64_t blocks = kThreadsOfMultiprocessor / threads_;
    if (kernel.registers > 0)
      blocks = std::min<uint64_t>(blocks,
                                  device.max_registers_per_block / (kernel.registers * threads_));
    return std::max<uint64_t>(blocks, 1) * std::max(device.multiprocessors, 1u);
  }

  void upload() {
    threads_ = options_.threads != 0 ? options_.threads : kThreads;
    for (const cuda::Kernel* kernel : {&kernels_.fill2_count, &kernels_.fill2_write})
      if (kernel->max_threads_per_block != 0)
        threads_ = std::min(threads_, kernel->max_threads_per_block);
    const uint64_t least = fixed_need() + workspace_bytes(size_, size_);
    if (report_.budget_bytes < least)
      fail_memory("one group of rows", least);
    const std::vector<uint32_t> offset(a_row_offset_.begin(), a_row_offset_.end());
    a_offset_ = make(offset.size() * sizeof(uint32_t));
    a_columns_ = make(a_column_.size_bytes());
    a_offset_->upload(bytes_of(std::span<const uint32_t>(offset)), stream_);
    a_columns_->upload(bytes_of(a_column_), stream_);
    length_ = make(size_ * sizeof(uint32_t));
    row_offset_ = make((uint64_t{size_} + 1) * sizeof(uint64_t));
    diagonal_ = make(size_ * sizeof(uint64_t));
    tile_sums_ = make(GpuAnalysisKernels::scan_bytes(size_));
    stored_offset_ = make(groups_ * sizeof(uint64_t));
    stored_length_ = make(groups_ * sizeof(uint32_t));
    frontier_ = make(groups_ * sizeof(uint32_t));
    counters_ = make(2 * sizeof(uint64_t));
    stream_.synchronize("copying a pattern to the GPU");
  }

  /// Bytes of what upload() makes.
  uint64_t fixed_need() const {
    return (uint64_t{size_} + 1) * (sizeof(uint32_t) + sizeof(uint64_t)) + a_column_.size_bytes() +
           size_ * (sizeof(uint32_t) + sizeof(uint64_t)) + GpuAnalysisKernels::scan_bytes(size_) +
           groups_ * (sizeof(uint64_t) + 2 * sizeof(uint32_t)) + 2 * sizeof(uint64_t);
  }

  Fill2Arguments arguments() const {
    Fill2Arguments a{};
    a.size = size_;
    a.last_group = groups_;
    a.next_group = pointer<uint32_t>(*counters_);
    a.a_offset = pointer<uint32_t>(*a_offset_);
    a.a_column = pointer<uint32_t>(*a_columns_);
    a.store.offset = pointer<uint64_t>(*stored_offset_);
    a.store.length = pointer<uint32_t>(*stored_length_);
    a.store.used = pointer<uint64_t>(*counters_) + 1;
    if (store_) {
      a.store.capacity = store_->bytes() / kBytesOfStored;
      a.store.rows = pointer<uint64_t>(*store_);
      a.store.column = reinterpret_cast<uint32_t*>(a.store.rows + a.store.capacity);
    }
    a.row_length = pointer<uint32_t>(*length_);
    a.frontier = pointer<uint32_t>(*frontier_);
    a.row_offset = pointer<uint64_t>(*row_offset_);
    a.diagonal = pointer<uint64_t>(*diagonal_);
    return a;
  }

  /// The first pass.
  void count() {
    const uint64_t one = std::max<uint64_t>(workspace_bytes(size_, size_), 1);
    if (options_.keep_entries) {
      const uint64_t room = (rest() - one) / 4 / kBytesOfStored;
      const uint64_t plenty = kStorePerEntry * (a_column_.size() + size_);
      store_ = make(std::min(room, plenty) * kBytesOfStored);
    }
    const uint64_t count =
        std::min({resident_groups(kernels_.fill2_count), rest() / one, uint64_t{groups_}});
    report_.rows_in_flight = std::min<uint64_t>(count * kFill2Group, size_);
    if (groups_ > 0) {
      const Workspaces work(context_, count, size_, size_, stream_);
      note_peak(work.bytes());
      Fill2Arguments a = arguments();
      a.work = work.arrays();
      counters_->fill(0, stream_);
      kernels_.launch(kernels_.fill2_count, count, threads_, a, stream_);
      // Before the workspaces go.
      stream_.synchronize("counting the entries of L+U");
    }
    kernels_.scan(size_, length_->address(), row_offset_->address(), tile_sums_->address(),
                  stream_);
    const std::vector<uint64_t> stored = downloaded<uint64_t>(*stored_offset_, groups_, stream_);
    const std::vector<uint32_t> lengths = downloaded<uint32_t>(*stored_length_, groups_, stream_);
    frontiers_ = downloaded<uint32_t>(*frontier_, groups_, stream_);
    for (uint32_t g = 0; g < groups_; ++g) {
      report_.visits += frontiers_[g];
      report_.largest_frontier = std::max<uint64_t>(report_.largest_frontier, frontiers_[g]);
      if (stored[g] != kNotStored) {
        ++report_.groups_kept;
        report_.kept_entries += lengths[g];
      }
    }
    report_.entries = total_entries();
  }

  /// offset[n], which is behind the tiles of the scan: read alone where the rest may not be needed.
  uint64_t total_entries() {
    uint64_t total = 0;
    cuda::check(context_.api().cuMemcpyDtoHAsync(&total,
                                                 row_offset_->address() + size_ * sizeof(uint64_t),
                                                 sizeof(total), stream_.handle()),
                "cuMemcpyDtoHAsync", "reading the number of entries of L+U");
    stream_.synchronize("counting the entries of L+U");
    return total;
  }

  /// Searching rows again needs workspaces: of these sizes before and behind the split.
  struct Part {
    Chunk rows;
    uint64_t capacity = 0; ///< 0: no searches
  };

  std::vector<Part> parts() {
    if (report_.groups_kept == groups_)
      return {{{0, size_}, 0}};
    uint32_t split = 0;
    uint64_t early = 1;
    while (split < groups_ && 2 * uint64_t{frontiers_[split]} <= report_.largest_frontier)
      early = std::max<uint64_t>(early, frontiers_[split++]);
    report_.split_row = split * kFill2Group;
    return {{{0, report_.split_row}, early},
            {{report_.split_row, size_}, report_.largest_frontier}};
  }

  /// The second pass.
  void write() {
    const std::vector<Part> all = parts();
    uint64_t least = 0;
    for (const Part& part : all)
      if (part.capacity != 0)
        least = std::max(least, workspace_bytes(size_, part.capacity));
    const uint64_t whole = entries_bytes(report_.entries);
    if (!options_.to_host && whole + least <= rest())
      write_on_device(all, whole);
    else
      write_to_host(all, least);
  }

  void write_on_device(const std::vector<Part>& all, uint64_t whole) {
    Buffer columns = make(whole);
    report_.on_device = true;
    report_.chunk_entries = report_.entries;
    for (const Part& part : all) {
      if (part.rows.first_row == part.rows.last_row)
        continue;
      const std::unique_ptr<Workspaces> work = workspaces(part, rest());
      write_chunk(part.rows, *columns, 0, work.get());
      stream_.synchronize("writing the entries of L+U");
    }
    note_peak(0);
    result_.device = std::make_unique<DeviceRows>();
    result_.device->size = size_;
    result_.device->entries = report_.entries;
    result_.device->row_offset = std::move(row_offset_);
    result_.device->diagonal = std::move(diagonal_);
    result_.device->columns = std::move(columns);
  }

  void write_to_host(const std::vector<Part>& all, uint64_t least) {
    HostRows& host = result_.host.emplace();
    host.row_offset = downloaded<uint64_t>(*row_offset_, uint64_t{size_} + 1, stream_);
    uint64_t longest = 0;
    for (uint32_t i = 0; i < size_; ++i)
      longest = std::max(longest, host.row_offset[i + 1] - host.row_offset[i]);
    const uint64_t needed = least + 2 * entries_bytes(longest);
    if (rest() < needed)
      fail_memory("one row of L+U", fixed_bytes_ + needed);
    // One buffer is written while the other is copied to the host. Workspaces get up to a half.
    const uint64_t for_work =
        least == 0 ? 0 : std::max(least, std::min(rest() - needed, rest() / 2));
    const uint64_t room =
        std::min({(rest() - for_work) / 2, kLargestChunkBytes,
                  std::max(entries_bytes(longest), entries_bytes(report_.entries))});
    report_.chunk_entries = room / sizeof(uint32_t);
    const Buffer buffers[2] = {make(room), make(room)};
    host.columns.resize(report_.entries);
    for (const Part& part : all) {
      const std::vector<Chunk> chunks = chunks_of(part.rows, host.row_offset);
      if (chunks.empty())
        continue;
      const std::unique_ptr<Workspaces> work = workspaces(part, rest());
      const auto begin = [&](size_t c) {
        write_chunk(chunks[c], *buffers[c % 2], host.row_offset[chunks[c].first_row], work.get());
      };
      begin(0);
      for (size_t c = 0; c < chunks.size(); ++c) {
        stream_.synchronize("writing entries of L+U");
        if (c + 1 < chunks.size())
          begin(c + 1);
        const uint64_t first = host.row_offset[chunks[c].first_row];
        const uint64_t count = host.row_offset[chunks[c].last_row] - first;
        buffers[c % 2]->download(
            {reinterpret_cast<uint8_t*>(host.columns.data() + first), entries_bytes(count)},
            copies_);
      }
    }
    host.diagonal = downloaded<uint64_t>(*diagonal_, size_, stream_);
  }

  /// As many workspaces as the device can use and `room` bytes can hold; null where none is needed.
  std::unique_ptr<Workspaces> workspaces(const Part& part, uint64_t room) {
    if (part.capacity == 0) {
      note_peak(0);
      return nullptr;
    }
    const uint64_t groups =
        (part.rows.last_row - part.rows.first_row + kFill2Group - 1) / kFill2Group;
    const uint64_t count = std::min({resident_groups(kernels_.fill2_write), groups,
                                     room / workspace_bytes(size_, part.capacity)});
    (part.rows.first_row == 0 ? report_.early_rows_in_flight : report_.late_rows_in_flight) =
        count * kFill2Group;
    auto work = std::make_unique<Workspaces>(context_, count, size_, part.capacity, stream_);
    note_peak(work->bytes());
    return work;
  }

  /// Ranges of rows whose entries fit into a buffer, cut between groups where that is possible.
  std::vector<Chunk> chunks_of(const Chunk& rows, const std::vector<uint64_t>& row_offset) const {
    std::vector<Chunk> chunks;
    for (uint32_t first = rows.first_row; first < rows.last_row;) {
      const uint64_t end = row_offset[first] + report_.chunk_entries;
      uint32_t last = first + 1;
      while (last < rows.last_row && row_offset[last + 1] <= end)
        ++last;
      if (const uint32_t whole = last / kFill2Group * kFill2Group;
          last < rows.last_row && whole > first)
        last = whole;
      chunks.push_back({first, last});
      first = last;
    }
    return chunks;
  }

  void write_chunk(const Chunk& rows, const cuda::DeviceBuffer& columns, uint64_t first_entry,
                   const Workspaces* work) {
    Fill2Arguments a = arguments();
    a.first_group = rows.first_row / kFill2Group;
    a.last_group = (rows.last_row + kFill2Group - 1) / kFill2Group;
    a.first_row = rows.first_row;
    a.last_row = rows.last_row;
    a.first_entry = first_entry;
    a.columns = pointer<uint32_t>(columns);
    if (work != nullptr)
      a.work = work->arrays();
    counters_->fill(0, stream_);
    const uint64_t blocks = work != nullptr
                                ? work->count()
                                : std::min<uint64_t>(resident_groups(kernels_.fill2_write),
                                                     a.last_group - a.first_group);
    kernels_.launch(kernels_.fill2_write, blocks, threads_, a, stream_);
    ++report_.chunks;
  }

  const GpuAnalysisKernels& kernels_;
  const cuda::Context& context_;
  const GpuSymbolicOptions& options_;
  const uint32_t size_;
  const uint32_t groups_;
  std::span<const uint64_t> a_row_offset_;
  std::span<const uint32_t> a_column_;
  cuda::Stream stream_, copies_;
  GpuSymbolicReport report_;
  GpuSymbolic result_;
  uint32_t threads_ = kThreads;
  uint64_t fixed_bytes_ = 0;
  Buffer a_offset_, a_columns_, length_, row_offset_, diagonal_, tile_sums_;
  Buffer stored_offset_, stored_length_, frontier_, counters_, store_;
  std::vector<uint32_t> frontiers_;
};

} // namespace

HostRows GpuSymbolic::take_host_rows(const cuda::Context& context) {
  if (host)
    return std::move(*host);
  const cuda::Stream stream(context);
  HostRows rows;
  rows.row_offset = downloaded<uint64_t>(*device->row_offset, uint64_t{size} + 1, stream);
  rows.diagonal = downloaded<uint64_t>(*device->diagonal, size, stream);
  rows.columns = downloaded<uint32_t>(*device->columns, device->entries, stream);
  return rows;
}

GpuSymbolic gpu_symbolic_lu(const GpuAnalysisKernels& kernels, std::span<const uint64_t> row_offset,
                            std::span<const uint32_t> column_index,
                            const GpuSymbolicOptions& options) {
  check_analysis_size(row_offset.size() - 1);
  if (column_index.size() > UINT32_MAX)
    throw UserError(fmt::format("{} entries are too many for symbolic factorization on a GPU",
                                column_index.size()),
                    "fewer than 2^32; --symbolic=cpu takes more");
  return Symbolic(kernels, row_offset, column_index, options).run();
}

} // namespace sparsertc::lu
