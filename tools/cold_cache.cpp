#include "tools/cold_cache.h"

#include "compiler/emit/ptx.h"
#include "ir/parser.h"

#include <fmt/format.h>

namespace sparsertc {
namespace {

/// More than twice the second-level cache of any GPU so far.
constexpr uint64_t kBytes = uint64_t{256} << 20;
constexpr uint32_t kThreads = 1024, kBlocks = 264;
constexpr unsigned kLaunches = 8;

/// Reads the whole buffer. It holds zeros, so nothing is ever written.
std::string reading_kernel() {
  constexpr uint64_t kBytesOfRound = uint64_t{16} * kThreads * kBlocks;
  constexpr uint64_t kRounds = kBytes / kBytesOfRound / 4;
  std::string text = fmt::format("kernel @sparsertc_read(%data: device.i32) block({}, 1, 1) {{\n"
                                 "  %thread = special.thread_x\n"
                                 "  %block = special.block_x\n"
                                 "  %number = mul.i32 %block, {}\n"
                                 "  %number = add.i32 %number, %thread\n"
                                 "  %at = index.device.i32 %data, %number, 16\n"
                                 "  %all = const.i32 0\n"
                                 "  for %i = 0 to {} step 1 {{\n",
                                 kThreads, kThreads, kRounds);
  for (int i = 0; i < 4; ++i)
    text += fmt::format("    %x{0}:4 = load.device.i32.v4 %at + {1}\n", i, i * kBytesOfRound);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      text += fmt::format("    %all = or.i32 %all, %x{}[{}]\n", i, j);
  text += fmt::format("    %at = offset.device.i32 %at, {}\n"
                      "  }}\n"
                      "  %found = cmp.ne.i32 %all, 0\n"
                      "  if %found {{\n"
                      "    store.device.i32 %data + 0, %all\n"
                      "  }}\n"
                      "}}\n",
                      4 * kBytesOfRound);
  return text;
}

} // namespace

CacheFlush::CacheFlush(const cuda::Context& gpu, const cuda::Stream& stream, const Target& target)
    : gpu_(gpu), stream_(stream), buffer_(gpu, kBytes) {
  buffer_.fill(0, stream);
  const std::string ptx =
      emit_ptx(ir::parse(reading_kernel(), "the kernel that fills the cache"), target);
  cuda::LaunchShape shape;
  shape.grid[0] = kBlocks;
  shape.block[0] = kThreads;
  const std::vector<uint8_t> image(ptx.begin(), ptx.end());
  launcher_ = std::make_unique<cuda::Launcher>(gpu, image, "sparsertc_read", shape);
  alone_ = std::make_unique<tune::GraphReplay>(
      gpu, stream, [this] { enqueue(); }, kLaunches);
}

void CacheFlush::enqueue() const {
  const uint64_t arguments[] = {buffer_.address()};
  launcher_->launch(arguments, stream_);
}

std::unique_ptr<tune::GraphReplay> CacheFlush::before(const std::function<void()>& work) const {
  return std::make_unique<tune::GraphReplay>(
      gpu_, stream_,
      [&] {
        enqueue();
        work();
      },
      kLaunches);
}

std::vector<tune::Timing> time_cold(const CacheFlush& flush,
                                    const std::vector<const tune::GraphReplay*>& contenders,
                                    unsigned rounds) {
  std::vector<const tune::GraphReplay*> all = contenders;
  all.push_back(&flush.alone());
  std::vector<tune::Timing> timings = tune::time_in_turns(all, rounds);
  const double alone = timings.back().median_us;
  timings.pop_back();
  for (tune::Timing& timing : timings) {
    timing.median_us -= alone;
    timing.minimum_us -= alone;
    timing.maximum_us -= alone;
  }
  return timings;
}

} // namespace sparsertc
