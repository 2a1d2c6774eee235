#include "tools/session.h"

#include "compiler/input/bytes.h"
#include "ir/error.h"
#include "ir/printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <unistd.h>

namespace sparsertc {
namespace {

std::atomic<bool> interrupt_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

/// While set, an interrupt ends the process on the spot.
std::atomic<bool> nothing_to_clean_up = false;
bool on_terminal = false;

void request_interrupt(int) {
  interrupt_requested = true;
  if (!nothing_to_clean_up)
    return;
  constexpr std::string_view kErase = "\r\x1b[K";
  constexpr std::string_view kStopped = "sparsertc: stopped\n";
  bool written = true;
  if (on_terminal)
    written = write(STDERR_FILENO, kErase.data(), kErase.size()) >= 0;
  written = write(STDERR_FILENO, kStopped.data(), kStopped.size()) >= 0 && written;
  static_cast<void>(written); // there is nobody to tell
  _exit(kInterruptedExit);
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace

void catch_interrupts() {
  on_terminal = isatty(STDERR_FILENO) != 0;
  struct sigaction action = {};
  action.sa_handler = request_interrupt;
  sigemptyset(&action.sa_mask);
  // A second Ctrl-C finds the default action again, should the work not look up in time.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

StopAtOnce::StopAtOnce() {
  stop_if_interrupted();
  nothing_to_clean_up = true;
}

StopAtOnce::~StopAtOnce() {
  nothing_to_clean_up = false;
}

const std::atomic<bool>& interrupt_flag() {
  return interrupt_requested;
}

void stop_if_interrupted() {
  if (interrupt_requested)
    throw Interrupted{};
}

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0), start_seconds_(now_seconds()) {}

Progress::~Progress() {
  clear();
}

void Progress::show(std::string_view what) {
  constexpr double kSilentSeconds = 0.5;
  if (!terminal_ || now_seconds() - start_seconds_ < kSilentSeconds)
    return;
  fmt::print(stderr, "\r\x1b[K{}", what);
  std::fflush(stderr);
  visible_ = true;
}

void Progress::clear() {
  if (visible_)
    fmt::print(stderr, "\r\x1b[K");
  visible_ = false;
}

void watch_pipeline(PipelineOptions& pipeline, const WatchOptions& watch, Progress& progress) {
  const std::vector<std::string> stages = pipeline_stages();
  std::vector<std::string> with_ir;
  std::copy_if(stages.begin(), stages.end(), std::back_inserter(with_ir), stage_has_ir);
  for (const std::string& stage : watch.dump_ir_after)
    choose_word("--dump-ir-after", stage, with_ir);
  if (!watch.stop_after.empty())
    choose_word("--stop-after", watch.stop_after, stages);

  pipeline.stop_after = watch.stop_after;
  pipeline.verify_each = watch.verify_each;
  pipeline.before_stage = [&progress](std::string_view stage) {
    stop_if_interrupted();
    // All stages but the assembler's, which has processes and files, leave nothing behind.
    nothing_to_clean_up = stage != "assemble";
    progress.show(fmt::format("sparsertc: {} ...", stage));
  };
  const std::vector<std::string> dumped = watch.dump_ir_after;
  pipeline.after_stage = [&progress, dumped](std::string_view stage, const PipelineResult& result) {
    nothing_to_clean_up = false;
    stop_if_interrupted();
    if (std::find(dumped.begin(), dumped.end(), stage) == dumped.end())
      return;
    progress.clear();
    fmt::print(stderr, "// IR after {}\n{}", stage, ir::print(result.lowered.module));
  };
}

void print_watched(const PipelineResult& result, const WatchOptions& watch) {
  for (const std::string& remark : result.weights.remarks)
    fmt::print(stderr, "{}: note: {}\n", result.weights.name, remark);
  for (const std::string& remark : result.schedule.remarks)
    fmt::print(stderr, "remark: {}\n", remark);
  if (watch.verbose && !result.schedule.target.name.empty()) {
    const SpmmPrediction& predicted = result.schedule.prediction;
    fmt::print(stderr,
               "tile: {}\ntiles: {}\npredicted: {} multiply-adds, {} loads, {} instructions, {} "
               "bytes of code, {} bytes of data, balance {:.3f}\n",
               to_string(result.schedule.tile), result.schedule.tile_count(),
               predicted.multiply_adds, predicted.loads, predicted.instructions,
               predicted.code_bytes, predicted.data_bytes, predicted.balance);
  }
  if (!watch.print_timing)
    return;
  double total = 0;
  for (const StageTime& time : result.times) {
    fmt::print(stderr, "{:<15} {:>12.1f} us\n", time.stage, time.wall_us);
    total += time.wall_us;
  }
  fmt::print(stderr, "{:<15} {:>12.1f} us\n", "total", total);
}

void refuse_overwriting(const std::string& output, std::initializer_list<std::string> inputs) {
  for (const std::string& input : inputs) {
    std::error_code unknown; // a file that is not there is not the same
    if (!output.empty() && std::filesystem::is_regular_file(output, unknown) &&
        std::filesystem::equivalent(output, input, unknown))
      throw UsageError(fmt::format("the output {} is the input {}", output, input),
                       "give the output another name");
  }
}

void write_text(const std::string& path, std::string_view text) {
  write_bytes(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

} // namespace sparsertc
