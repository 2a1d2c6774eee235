// The convention of the subcommands. Each has a file of its own, named like it, with one function
//
//   Command add_NAME_command(CLI::App& application);
//
// which declares the subcommand with its options (and `footer` with examples) and returns what to
// do when the user chose it. main.cpp has the list, parses, runs the chosen one, prints the errors
// it throws on standard error and turns them into exit codes. Standard output carries only what was
// asked for; everything else goes to standard error.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

namespace sparsertc {

struct Command {
  /// The subcommand's parser, owned by the application.
  CLI::App* parser = nullptr;
  /// Runs after parsing; returns the exit code (0, or 1 where a check failed after the result was
  /// printed). Errors are exceptions of ir/error.h.
  std::function<int()> run;
};

Command add_compile_command(CLI::App& application);
Command add_inspect_command(CLI::App& application);
Command add_run_command(CLI::App& application);
Command add_tune_command(CLI::App& application);
Command add_bench_command(CLI::App& application);
Command add_opt_command(CLI::App& application);
Command add_cache_command(CLI::App& application);
Command add_bind_command(CLI::App& application);
Command add_solve_command(CLI::App& application);
Command add_jacobian_command(CLI::App& application);
Command add_colour_command(CLI::App& application);
Command add_execute_command(CLI::App& application);

} // namespace sparsertc
