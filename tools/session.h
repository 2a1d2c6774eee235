// What a subcommand does around the pipeline: progress on a terminal, Ctrl-C, output files, remarks
// and timing on standard error.
#pragma once

#include "compiler/pipeline.h"
#include "tools/options.h"

#include <atomic>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

/// The exit code of a command that was stopped by Ctrl-C.
inline constexpr int kInterruptedExit = 130;

/// Thrown where the user has pressed Ctrl-C; main turns it into exit code 130.
struct Interrupted {};

/// From now on the first Ctrl-C only asks the work to stop, a second one ends the process.
void catch_interrupts();
/// Set when the user has asked to stop.
const std::atomic<bool>& interrupt_flag();
/// Throws Interrupted when the user has asked to stop. Cheap; called between stages and tiles.
void stop_if_interrupted();

/// While it lives, Ctrl-C ends the process on the spot: around long work of others (LLVM) that does
/// not look up and has nothing to clean up. Not nested.
class StopAtOnce {
public:
  StopAtOnce();
  ~StopAtOnce();
  StopAtOnce(const StopAtOnce&) = delete;
  StopAtOnce& operator=(const StopAtOnce&) = delete;
};

/// One line on the terminal that is overwritten as work goes on; silent unless standard error is a
/// terminal and the work has lasted for half a second.
class Progress {
public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(std::string_view what);
  /// Removes the line, so that something else can be printed.
  void clear();

private:
  bool terminal_ = false;
  bool visible_ = false;
  double start_seconds_ = 0;
};

/// Hangs progress, interrupts, IR dumps and the words of `watch` into the pipeline's options.
/// `progress` must outlive the pipeline's run.
void watch_pipeline(PipelineOptions& pipeline, const WatchOptions& watch, Progress& progress);
/// Prints what `watch` asks for when the pipeline has run: timing, remarks, decisions.
void print_watched(const PipelineResult& result, const WatchOptions& watch);

/// UsageError where `output` is one of the input files: writing it would destroy what was read.
/// Names may be empty or "-". Called before long work.
void refuse_overwriting(const std::string& output, std::initializer_list<std::string> inputs);
/// Writes a text whole or not at all; "-" is standard output.
void write_text(const std::string& path, std::string_view text);

} // namespace sparsertc
