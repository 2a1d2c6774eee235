// Every knob of the command, declared once: what it is called, its default and its help. Each group
// is a plain struct that a subcommand fills by `declare`, and a function that turns the words into
// the types of the compiler. Unknown words are usage errors that suggest the nearest known one.
#pragma once

#include "compiler/input/read.h"
#include "compiler/pipeline.h"
#include "tools/words.h"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc {

/// Which matrix, and how its file is read.
struct InputOptions {
  std::string path;
  std::string tensor;
  std::string duplicates = "sum";
  std::string values;
  bool list_tensors = false;
};
void declare(CLI::App& parser, InputOptions& options);
ReadOptions to_read_options(const InputOptions& options);
/// Prints name, type and shape of each tensor in the file; what `--list-tensors` does instead of
/// the subcommand's work.
void print_tensors(const InputOptions& options);

/// What is to be computed, and how: the structs and their words are in tools/words.h.
void declare(CLI::App& parser, ProblemOptions& options);
void declare(CLI::App& parser, ScheduleOptions& options);

/// What is told about the pipeline while it runs, on standard error.
struct WatchOptions {
  std::vector<std::string> dump_ir_after;
  std::string stop_after; ///< declared by `compile`, which has something to write then
  bool print_timing = false;
  bool verify_each = PipelineOptions{}.verify_each;
  bool verbose = false;
};
void declare(CLI::App& parser, WatchOptions& options);

/// Threads on the CPU.
struct JobOptions {
  unsigned jobs = 0;
};
void declare(CLI::App& parser, JobOptions& options);

/// The disk cache of assembled code.
struct CacheOptions {
  std::string directory;
  bool off = false;
  uint64_t limit_mib = 1024;
};
void declare(CLI::App& parser, CacheOptions& options);

/// `--report=text|json`.
struct ReportOptions {
  std::string report = "text";
};
void declare(CLI::App& parser, ReportOptions& options);
bool wants_json(const ReportOptions& options);

/// `--target=`, resolved; "native" asks the GPU of this machine.
Target resolve_target(const std::string& name);

} // namespace sparsertc
