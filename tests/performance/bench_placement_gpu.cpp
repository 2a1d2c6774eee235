// What it costs to keep the arrays of sequential work in device memory: one greedy distance-2
// colouring of the columns of a pattern, (a) with its arrays in host memory and whole arrays
// copied, (b) with its arrays in device memory, where the host reads and writes one element at a
// time. The language has no way to write (b), so both are written here on the driver. Beside them
// stands what compiler/transform/placement_costs.h takes its figures from: copies and launches.
//
//   bench_placement_gpu [--accesses N] [PATTERN]
//
// --accesses N   (b) stops after so many accesses, and the rest is extrapolated (200000); 0: no
// limit PATTERN        any file that sparsertc reads; else the five-point stencil on a square of
// 100 x 100
//
// Without a GPU only the host's part runs.
#include "compiler/emit/ptx.h"
#include "compiler/input/read.h"
#include "compiler/pattern/colouring.h"
#include "ir/parser.h"
#include "ir/verifier.h"
#include "runtime/driver/launcher.h"
#include "tests/support/median_time.h"
#include "tools/gpu_device.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// The arrays that the colouring walks over, 32 bits an element.
enum Array : unsigned { row_offset, column_index, column_offset, row_index, colour, mark, kArrays };

struct Arrays {
  uint32_t columns = 0;
  std::vector<uint32_t> array[kArrays];

  uint64_t bytes(std::initializer_list<Array> which) const {
    uint64_t sum = 0;
    for (Array a : which)
      sum += array[a].size() * sizeof(uint32_t);
    return sum;
  }
};

Arrays arrays_of(const Pattern& pattern) {
  Arrays arrays;
  arrays.columns = pattern.columns;
  arrays.array[row_offset].assign(pattern.row_offset.begin(), pattern.row_offset.end());
  arrays.array[column_index] = pattern.column_index;
  std::vector<uint32_t>& offset = arrays.array[column_offset];
  offset.assign(pattern.columns + 1, 0);
  for (uint32_t column : pattern.column_index)
    ++offset[column + 1];
  std::partial_sum(offset.begin(), offset.end(), offset.begin());
  std::vector<uint32_t> next(offset.begin(), offset.end() - 1);
  arrays.array[row_index].resize(pattern.nnz());
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (uint32_t column : pattern.row(row))
      arrays.array[row_index][next[column]++] = row;
  arrays.array[colour].assign(pattern.columns, 0);
  // A mark for each colour: the last column that must not take it.
  arrays.array[mark].assign(uint64_t{pattern.columns} + 2, 0);
  return arrays;
}

/// Greedy, in natural order: each column takes the least colour that no column with a common row
/// has. Colours count from 1, 0 is none. `memory` may stop it by throwing.
template <class Memory>
void colour_columns(uint32_t columns, Memory& memory) {
  for (uint32_t column = 0; column < columns; ++column) {
    const uint32_t begin = memory.get(column_offset, column);
    const uint32_t end = memory.get(column_offset, column + 1);
    for (uint32_t entry = begin; entry < end; ++entry) {
      const uint32_t row = memory.get(row_index, entry);
      const uint32_t row_end = memory.get(row_offset, row + 1);
      for (uint32_t other = memory.get(row_offset, row); other < row_end; ++other)
        memory.set(mark, memory.get(colour, memory.get(column_index, other)), column + 1);
    }
    uint32_t chosen = 1;
    while (memory.get(mark, chosen) == column + 1)
      ++chosen;
    if (begin != end)
      memory.set(colour, column, chosen);
  }
}

struct HostMemory {
  Arrays& arrays;
  uint32_t get(Array a, uint32_t i) const { return arrays.array[a][i]; }
  void set(Array a, uint32_t i, uint32_t value) { arrays.array[a][i] = value; }
};

struct CountingMemory {
  Arrays& arrays;
  uint64_t reads = 0, writes = 0;
  uint32_t get(Array a, uint32_t i) {
    ++reads;
    return arrays.array[a][i];
  }
  void set(Array a, uint32_t i, uint32_t value) {
    ++writes;
    arrays.array[a][i] = value;
  }
};

struct LimitReached {};

/// Each access is a copy of four bytes that the host waits for.
class DeviceMemory {
public:
  DeviceMemory(const cuda::Context& gpu, const cuda::Stream& stream, const Arrays& arrays,
               uint64_t limit)
      : gpu_(gpu), stream_(stream), limit_(limit) {
    for (unsigned a = 0; a < kArrays; ++a) {
      const std::vector<uint32_t>& from = arrays.array[a];
      buffers_[a] = std::make_unique<cuda::DeviceBuffer>(gpu, from.size() * sizeof(uint32_t));
      buffers_[a]->upload({reinterpret_cast<const uint8_t*>(from.data()), buffers_[a]->bytes()},
                          stream);
    }
    stream.synchronize();
  }
  uint32_t get(Array a, uint32_t i) {
    count(reads);
    uint32_t value = 0;
    cuda::check(gpu_.api().cuMemcpyDtoHAsync(&value, at(a, i), sizeof value, stream_.handle()),
                "cuMemcpyDtoHAsync", "reading an element");
    stream_.synchronize();
    return value;
  }
  void set(Array a, uint32_t i, uint32_t value) {
    count(writes);
    cuda::check(gpu_.api().cuMemcpyHtoDAsync(at(a, i), &value, sizeof value, stream_.handle()),
                "cuMemcpyHtoDAsync", "writing an element");
    stream_.synchronize();
  }
  const cuda::DeviceBuffer& buffer(Array a) const { return *buffers_[a]; }

  uint64_t reads = 0, writes = 0;

private:
  void count(uint64_t& which) {
    if (limit_ != 0 && reads + writes == limit_)
      throw LimitReached{};
    ++which;
  }
  cuda::DeviceAddress at(Array a, uint32_t i) const {
    return buffers_[a]->address() + uint64_t{i} * sizeof(uint32_t);
  }

  const cuda::Context& gpu_;
  const cuda::Stream& stream_;
  uint64_t limit_;
  std::unique_ptr<cuda::DeviceBuffer> buffers_[kArrays];
};

Pattern grid(uint32_t side) {
  Pattern pattern;
  pattern.rows = pattern.columns = side * side;
  for (uint32_t y = 0; y < side; ++y)
    for (uint32_t x = 0; x < side; ++x) {
      const uint32_t i = y * side + x;
      if (y > 0)
        pattern.column_index.push_back(i - side);
      if (x > 0)
        pattern.column_index.push_back(i - 1);
      pattern.column_index.push_back(i);
      if (x + 1 < side)
        pattern.column_index.push_back(i + 1);
      if (y + 1 < side)
        pattern.column_index.push_back(i + side);
      pattern.row_offset.push_back(pattern.nnz());
    }
  return pattern;
}

/// Copies of several sizes from and to pageable host memory, whole microseconds with waiting.
void print_copies(const cuda::Context& gpu, const cuda::Stream& stream) {
  fmt::print("{:>12} {:>14} {:>14}\n", "bytes", "to device us", "to host us");
  for (uint64_t bytes = 4; bytes <= uint64_t{1} << 28; bytes *= 64) {
    std::vector<uint8_t> host(bytes, 1);
    const cuda::DeviceBuffer buffer(gpu, bytes);
    const double up = test::median_us(11, [&] {
      buffer.upload(host, stream);
      stream.synchronize();
    });
    const double down = test::median_us(11, [&] { buffer.download(host, stream); });
    fmt::print("{:12} {:14.2f} {:14.2f}\n", bytes, up, down);
  }
}

/// Kernels of one thread: nothing, arithmetic, dependent accesses.
constexpr std::string_view kSequentialKernels = R"(
kernel @nothing(%a: device.i32, %n: i32) block(1, 1, 1) {
}

kernel @arithmetic(%a: device.i32, %n: i32) block(1, 1, 1) {
  %x = load.device.i32 %a + 0
  for %i = 0 to %n step 1 {
    %x = mul.i32 %x, 1664525
    %x = add.i32 %x, %i
    %x = xor.i32 %x, 12345
  }
  store.device.i32 %a + 0, %x
}

kernel @chase(%a: device.i32, %n: i32) block(1, 1, 1) {
  %x = const.i32 0
  for %i = 0 to %n step 1 {
    %p = index.device.i32 %a, %x, 4
    %x = load.device.i32 %p + 0
    store.device.i32 %p + 0, %x
  }
}
)";

void print_launches(const cuda::Context& gpu, const cuda::Stream& stream) {
  const ir::Module module = ir::parse(kSequentialKernels, "sequential kernels");
  ir::verify_or_throw(module, "parsing");
  const std::string ptx = emit_ptx(module, find_target(target_of(gpu)));
  const std::span<const uint8_t> image(reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size());
  // A cycle through all elements with large strides, so that each access leaves the nearest cache.
  constexpr uint32_t kElements = 1 << 20;
  constexpr uint32_t kStride = 64037;
  std::vector<uint32_t> cycle(kElements);
  for (uint32_t i = 0; i < kElements; ++i)
    cycle[i] = (i + kStride) % kElements;
  const cuda::DeviceBuffer buffer(gpu, kElements * sizeof(uint32_t));
  buffer.upload({reinterpret_cast<const uint8_t*>(cycle.data()), buffer.bytes()}, stream);
  stream.synchronize();
  constexpr uint32_t kRounds = 10000;
  double empty_us = 0;
  for (const char* name : {"nothing", "chase", "arithmetic"}) {
    const cuda::Launcher launcher(gpu, image, name, {});
    const uint64_t arguments[] = {buffer.address(), kRounds};
    const double us = test::median_us(11, [&] {
      launcher.launch(arguments, stream);
      stream.synchronize();
    });
    if (empty_us == 0) {
      empty_us = us;
      constexpr unsigned kLaunches = 200;
      const double many_us = test::median_us(11, [&] {
        for (unsigned i = 0; i < kLaunches; ++i)
          launcher.launch(arguments, stream);
        stream.synchronize();
      });
      fmt::print("an empty kernel: {:.2f} us with waiting, {:.2f} us one of many\n", us,
                 many_us / kLaunches);
    } else
      fmt::print("one thread, a round of '{}': {:.1f} ns\n", name, 1e3 * (us - empty_us) / kRounds);
  }
}

int run(int count, char** words) {
  uint64_t limit = 200000;
  std::string path;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--accesses" && i + 1 < count) {
      const std::string_view digits = words[++i];
      std::from_chars(digits.data(), digits.data() + digits.size(), limit);
    } else if (path.empty() && !word.starts_with("--")) {
      path = word;
    } else {
      fmt::print(stderr, "usage: bench_placement_gpu [--accesses N] [PATTERN]\n");
      return 2;
    }
  }
  const Pattern pattern = path.empty() ? grid(100) : read_matrix(path).pattern;
  const Arrays fresh = arrays_of(pattern);

  Arrays arrays = fresh;
  CountingMemory counting{arrays};
  colour_columns(arrays.columns, counting);
  const uint64_t accesses = counting.reads + counting.writes;
  const Colouring known = colour_pattern(pattern, ColouringSide::column, ColouringOrder::natural);
  if (arrays.array[colour] != known.column_colour) {
    fmt::print(stderr, "the colours differ from those of colour_pattern\n");
    return 1;
  }
  const double host_us = test::median_us(11, [&] {
    arrays.array[colour] = fresh.array[colour];
    arrays.array[mark] = fresh.array[mark];
    HostMemory memory{arrays};
    colour_columns(arrays.columns, memory);
  });
  fmt::print("{} columns, {} entries, {} colours; {} reads, {} writes\n"
             "in host memory: {:.1f} us\n",
             pattern.columns, pattern.nnz(), known.column_colours, counting.reads, counting.writes,
             host_us);

  const std::unique_ptr<cuda::Context> gpu = find_gpu();
  if (!gpu) {
    fmt::print("SKIPPED: no GPU, so no device memory\n");
    return 0;
  }
  const cuda::Stream stream(*gpu);
  fmt::print("{}\n", gpu->properties().name);

  DeviceMemory memory(*gpu, stream, fresh, limit);
  // (a) with its copies: the pattern comes from the device, the colours go there.
  const double placed_us = test::median_us(11, [&] {
    for (Array a : {row_offset, column_index, column_offset, row_index})
      memory.buffer(a).download(
          {reinterpret_cast<uint8_t*>(arrays.array[a].data()), memory.buffer(a).bytes()}, stream);
    arrays.array[colour] = fresh.array[colour];
    arrays.array[mark] = fresh.array[mark];
    HostMemory host{arrays};
    colour_columns(arrays.columns, host);
    memory.buffer(colour).upload(
        {reinterpret_cast<const uint8_t*>(arrays.array[colour].data()), arrays.bytes({colour})},
        stream);
    stream.synchronize();
  });
  const bool same = arrays.array[colour] == known.column_colour;
  fmt::print("(a) in host memory, {} bytes copied in and {} out, as whole arrays: {:.1f} us{}\n",
             arrays.bytes({row_offset, column_index, column_offset, row_index}),
             arrays.bytes({colour}), placed_us, same ? "" : ", WRONG COLOURS");

  // (b)
  memory.buffer(colour).fill(0, stream);
  stream.synchronize();
  const Clock::time_point start = Clock::now();
  bool whole = true;
  try {
    colour_columns(arrays.columns, memory);
  } catch (const LimitReached&) {
    whole = false;
  }
  const double element_us = microseconds_since(start);
  const uint64_t done = memory.reads + memory.writes;
  const double each = element_us / static_cast<double>(done);
  const double all_us = each * static_cast<double>(accesses);
  fmt::print("(b) in device memory, element by element: {} of {} accesses in {:.0f} us, {:.2f} us "
             "each{}\n",
             done, accesses, element_us, each,
             whole ? std::string() : fmt::format("; the whole, extrapolated: {:.0f} us", all_us));
  if (whole) {
    std::vector<uint32_t> colours(arrays.columns);
    memory.buffer(colour).download(
        {reinterpret_cast<uint8_t*>(colours.data()), memory.buffer(colour).bytes()}, stream);
    fmt::print("    colours {}\n", colours == known.column_colour ? "agree" : "DIFFER");
  }
  fmt::print("(b) / (a): {:.0f}; (b) / in host memory without copies: {:.0f}\n", all_us / placed_us,
             all_us / host_us);
  print_copies(*gpu, stream);
  print_launches(*gpu, stream);
  return 0;
}

} // namespace
} // namespace sparsertc

int main(int count, char** words) {
  try {
    return sparsertc::run(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_placement_gpu: {}\n", error.what());
    return 1;
  }
}
