#include "runtime/lu/gpu_levels.h"

#include "ir/error.h"
#include "runtime/kernels/kahn.cuh"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace sparsertc::lu {
namespace {

using kernels::kRadixDigits;
using kernels::kRadixTile;
using kernels::LevelsArguments;
using kernels::RadixArguments;
using Buffer = std::unique_ptr<cuda::DeviceBuffer>;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kThreads = 256;
constexpr uint32_t kKahnThreads = 512;
constexpr uint32_t kRadixTilesOfBlock = 4;
constexpr uint32_t kRadixThreads = 32 * kRadixTilesOfBlock;
constexpr uint32_t kRadixBits = 8;
/// Blocks of the kernels that give a warp a row at a time.
constexpr uint64_t kBlocksOfMultiprocessor = 8;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Part {
  uint32_t first_row;
  uint32_t last_row;
};

class Levels {
public:
  Levels(const GpuAnalysisKernels& kernels, uint32_t size, const GpuLevelsOptions& options)
      : kernels_(kernels), context_(kernels.context()), options_(options), size_(size),
        stream_(context_) {}

  LuLevels run(const HostRowsView* host, const DeviceRows* device, GpuLevelsReport& report) {
    LuLevels levels;
    if (size_ == 0)
      return levels;
    budget_ = memory_budget(context_, options_.memory_limit);
    Clock::time_point start = Clock::now();
    const std::vector<Part> parts = host != nullptr ? divide(*host) : std::vector<Part>{{0, size_}};
    prepare(host, device, parts);
    for (const Part& part : parts) {
      if (host != nullptr)
        load(*host, part);
      launch_rows(kernels_.levels_lower);
    }
    stream_.synchronize("looking for columns of L without entries");
    report.upload_us = microseconds_since(start);

    start = Clock::now();
    for (const Part& part : parts) {
      if (parts.size() > 1)
        load(*host, part);
      kahn(part);
    }
    report.kahn_us = microseconds_since(start);

    start = Clock::now();
    sort(levels);
    report.sort_us = microseconds_since(start);
    report.levels = levels.count();
    report.parts = static_cast<uint32_t>(parts.size());
    report.peak_bytes = peak_bytes_;
    return levels;
  }

private:
  Buffer make(uint64_t bytes) {
    held_bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, held_bytes_);
    return std::make_unique<cuda::DeviceBuffer>(context_, bytes);
  }
  void give_back(Buffer& buffer) {
    held_bytes_ -= buffer->bytes();
    buffer.reset();
  }
  Buffer zeros(uint64_t bytes) {
    Buffer buffer = make(bytes);
    buffer->fill(0, stream_);
    return buffer;
  }

  uint64_t radix_lengths() const {
    return uint64_t{kRadixDigits} * ((size_ + kRadixTile - 1) / kRadixTile);
  }
  /// What prepare() and sort() take beside the entries, at most, of a pattern on the host.
  uint64_t fixed_bytes() const {
    const uint64_t n = size_;
    const uint64_t rows = (2 * n + 1) * sizeof(uint64_t);
    const uint64_t columns = 4 * n * sizeof(uint32_t);
    const uint64_t lower = options_.right_looking ? 2 * n * sizeof(uint32_t) +
                                                        (n + 1) * sizeof(uint64_t) + scan_bytes(n)
                                                  : 0;
    const uint64_t sorting = (2 * n + 1) * sizeof(uint32_t) +
                             radix_lengths() * (sizeof(uint32_t) + sizeof(uint64_t)) +
                             scan_bytes(radix_lengths());
    return rows + columns + std::max(lower, sorting) + 64;
  }
  static uint64_t scan_bytes(uint64_t size) { return GpuAnalysisKernels::scan_bytes(size); }

  /// Ranges of rows that fit into the device's memory, with their entries of L once more where
  /// those are needed by columns.
  std::vector<Part> divide(const HostRowsView& rows) const {
    const uint64_t fixed = fixed_bytes();
    const uint64_t room = budget_ > fixed ? (budget_ - fixed) / sizeof(uint32_t) : 0;
    const auto cost = [&](uint32_t i) {
      const uint64_t lower = rows.diagonal[i] - rows.row_offset[i];
      return rows.row_offset[i + 1] - rows.row_offset[i] + (options_.right_looking ? lower : 0);
    };
    std::vector<Part> parts;
    for (uint32_t first = 0; first < size_;) {
      uint64_t sum = 0;
      uint32_t last = first;
      while (last < size_ && sum + cost(last) <= room)
        sum += cost(last++);
      if (last == first)
        throw RuntimeError("finding the levels of a factorization on the GPU",
                           fmt::format("out of memory: one row needs {} bytes of device memory, "
                                       "{} may be used",
                                       fixed + cost(first) * sizeof(uint32_t), budget_),
                           "raise --memory-limit where there is one, or --symbolic=cpu");
      parts.push_back({first, last});
      first = last;
    }
    return parts;
  }

  void prepare(const HostRowsView* host, const DeviceRows* device, const std::vector<Part>& parts) {
    if (host != nullptr) {
      uint64_t most_entries = 0;
      for (const Part& part : parts)
        most_entries = std::max(most_entries,
                                host->row_offset[part.last_row] - host->row_offset[part.first_row]);
      row_offset_ = make(host->row_offset.size_bytes());
      diagonal_ = make(host->diagonal.size_bytes());
      columns_ = make(most_entries * sizeof(uint32_t));
      row_offset_->upload(bytes_of(host->row_offset), stream_);
      diagonal_->upload(bytes_of(host->diagonal), stream_);
    }
    const uint64_t numbers = size_ * sizeof(uint32_t);
    has_lower_ = zeros(numbers);
    missing_ = zeros(numbers);
    level_ = zeros(numbers);
    queue_ = make(numbers);
    control_ = make(64);
    arguments_.size = size_;
    arguments_.last_row = size_;
    arguments_.right_looking = options_.right_looking ? 1 : 0;
    arguments_.row_offset = pointer<uint64_t>(host != nullptr ? *row_offset_ : *device->row_offset);
    arguments_.diagonal = pointer<uint64_t>(host != nullptr ? *diagonal_ : *device->diagonal);
    arguments_.columns = pointer<uint32_t>(host != nullptr ? *columns_ : *device->columns);
    arguments_.has_lower = pointer<uint32_t>(*has_lower_);
    arguments_.missing = pointer<uint32_t>(*missing_);
    arguments_.level = pointer<uint32_t>(*level_);
    arguments_.queue = pointer<uint32_t>(*queue_);
    arguments_.arrived = pointer<uint64_t>(*control_);
    arguments_.state = pointer<uint32_t>(*control_) + 2;
    arguments_.ready = arguments_.state + 2;
    arguments_.pushed = arguments_.ready + 1;
    if (options_.right_looking) {
      lower_length_ = make(numbers);
      lower_next_ = make(numbers);
      lower_offset_ = make((uint64_t{size_} + 1) * sizeof(uint64_t));
      tile_sums_ = make(scan_bytes(size_));
      arguments_.lower_length = pointer<uint32_t>(*lower_length_);
      arguments_.lower_next = pointer<uint32_t>(*lower_next_);
      arguments_.lower_offset = pointer<uint64_t>(*lower_offset_);
    }
  }

  /// Copies the rows of a part to the device.
  void load(const HostRowsView& rows, const Part& part) {
    const uint64_t first = rows.row_offset[part.first_row];
    columns_->upload(bytes_of(rows.columns.subspan(first, rows.row_offset[part.last_row] - first)),
                     stream_);
    arguments_.first_row = part.first_row;
    arguments_.last_row = part.last_row;
    arguments_.first_entry = first;
  }

  uint64_t multiprocessors() const { return std::max(context_.properties().multiprocessors, 1u); }
  uint32_t rows_of_part() const { return arguments_.last_row - arguments_.first_row; }

  /// Launches a kernel that gives a warp a row.
  void launch_rows(const cuda::Kernel& kernel) {
    const uint32_t threads = threads_of(kernel, kThreads);
    const uint64_t blocks = (uint64_t{rows_of_part()} * 32 + threads - 1) / threads;
    kernels_.launch(kernel, std::min(blocks, kBlocksOfMultiprocessor * multiprocessors()), threads,
                    arguments_, stream_);
  }

  static uint32_t threads_of(const cuda::Kernel& kernel, uint32_t wanted) {
    return kernel.max_threads_per_block == 0 ? wanted
                                             : std::min(wanted, kernel.max_threads_per_block);
  }

  void kahn(const Part& part) {
    control_->fill(0, stream_);
    Buffer lower_row;
    if (options_.right_looking) {
      lower_length_->fill(0, stream_);
      lower_next_->fill(0, stream_);
    }
    launch_rows(kernels_.levels_count);
    if (options_.right_looking) {
      kernels_.scan(rows_of_part(), lower_length_->address(), lower_offset_->address(),
                    tile_sums_->address(), stream_);
      uint64_t lower = 0;
      cuda::check(context_.api().cuMemcpyDtoHAsync(
                      &lower, lower_offset_->address() + rows_of_part() * sizeof(uint64_t),
                      sizeof(lower), stream_.handle()),
                  "cuMemcpyDtoHAsync", "reading the number of entries of L");
      stream_.synchronize("counting what the columns wait for");
      lower_row = make(lower * sizeof(uint32_t));
      arguments_.lower_row = pointer<uint32_t>(*lower_row);
      launch_rows(kernels_.levels_transpose);
    }
    launch_rows(kernels_.levels_ready);
    kernels_.launch(kernels_.levels_kahn, multiprocessors(),
                    threads_of(kernels_.levels_kahn, kKahnThreads), arguments_, stream_, true);
    const uint32_t done = downloaded<uint32_t>(*control_, 3, stream_)[2];
    if (done != part.last_row - part.first_row)
      throw InternalError(fmt::format("{} of the {} columns {} to {} got a level on the GPU", done,
                                      part.last_row - part.first_row, part.first_row,
                                      part.last_row));
    if (lower_row)
      give_back(lower_row);
  }

  void sort(LuLevels& levels) {
    for (Buffer* buffer : {&lower_length_, &lower_next_, &lower_offset_, &tile_sums_})
      if (*buffer)
        give_back(*buffer);
    const uint64_t numbers = size_ * sizeof(uint32_t);
    const uint64_t lengths = radix_lengths();
    const Buffer order[2] = {make(numbers), make(numbers + sizeof(uint32_t))};
    const Buffer length = make(lengths * sizeof(uint32_t));
    const Buffer offset = make((lengths + 1) * sizeof(uint64_t));
    const Buffer sums = make(scan_bytes(lengths));
    control_->fill(0, stream_);
    RadixArguments radix{};
    radix.size = size_;
    radix.level = pointer<uint32_t>(*level_);
    radix.length = pointer<uint32_t>(*length);
    radix.offset = pointer<uint64_t>(*offset);
    radix.maximum = pointer<uint32_t>(*control_);
    const uint64_t blocks = (uint64_t{size_} + kThreads - 1) / kThreads;
    kernels_.launch(kernels_.levels_maximum,
                    std::min(blocks, kBlocksOfMultiprocessor * multiprocessors()),
                    threads_of(kernels_.levels_maximum, kThreads), radix, stream_);
    const uint32_t greatest = downloaded<uint32_t>(*control_, 1, stream_).front();
    const uint64_t tiles = lengths / kRadixDigits;
    uint32_t from = 1;
    for (uint32_t shift = 0; shift == 0 || (shift < 32 && greatest >> shift != 0);
         shift += kRadixBits) {
      radix.shift = shift;
      radix.source = shift == 0 ? nullptr : pointer<uint32_t>(*order[from]);
      radix.target = pointer<uint32_t>(*order[1 - from]);
      const uint64_t radix_blocks = (tiles + kRadixTilesOfBlock - 1) / kRadixTilesOfBlock;
      kernels_.launch(kernels_.radix_count, radix_blocks, kRadixThreads, radix, stream_);
      kernels_.scan(static_cast<uint32_t>(lengths), length->address(), offset->address(),
                    sums->address(), stream_);
      kernels_.launch(kernels_.radix_scatter, radix_blocks, kRadixThreads, radix, stream_);
      from = 1 - from;
    }
    radix.source = pointer<uint32_t>(*order[from]);
    // What was waited for is no longer needed.
    radix.level_offset = pointer<uint32_t>(*missing_);
    const uint32_t offset_threads = threads_of(kernels_.levels_offset, kThreads);
    kernels_.launch(kernels_.levels_offset, (size_ + uint64_t{offset_threads} - 1) / offset_threads,
                    offset_threads, radix, stream_);
    levels.member = downloaded<uint32_t>(*order[from], size_, stream_);
    const std::vector<uint32_t> begins =
        downloaded<uint32_t>(*missing_, uint64_t{greatest} + 1, stream_);
    levels.offset.assign(begins.begin(), begins.end());
    levels.offset.push_back(size_);
  }

  const GpuAnalysisKernels& kernels_;
  const cuda::Context& context_;
  const GpuLevelsOptions& options_;
  const uint32_t size_;
  cuda::Stream stream_;
  uint64_t budget_ = 0;
  uint64_t held_bytes_ = 0, peak_bytes_ = 0;
  LevelsArguments arguments_{};
  Buffer row_offset_, diagonal_, columns_;
  Buffer has_lower_, missing_, level_, queue_, control_;
  Buffer lower_length_, lower_next_, lower_offset_, tile_sums_;
};

LuLevels levels_of(const GpuAnalysisKernels& kernels, uint64_t size, const HostRowsView* host,
                   const DeviceRows* device, const GpuLevelsOptions& options,
                   GpuLevelsReport* report) {
  check_analysis_size(size);
  GpuLevelsReport unread;
  return Levels(kernels, static_cast<uint32_t>(size), options)
      .run(host, device, report != nullptr ? *report : unread);
}

} // namespace

LuLevels gpu_levels(const GpuAnalysisKernels& kernels, const HostRowsView& rows,
                    const GpuLevelsOptions& options, GpuLevelsReport* report) {
  return levels_of(kernels, rows.diagonal.size(), &rows, nullptr, options, report);
}

LuLevels gpu_levels(const GpuAnalysisKernels& kernels, const DeviceRows& rows,
                    const GpuLevelsOptions& options, GpuLevelsReport* report) {
  return levels_of(kernels, rows.size, nullptr, &rows, options, report);
}

} // namespace sparsertc::lu
