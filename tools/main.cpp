// sparsertc: the command. Lists the subcommands, parses, runs the chosen one, and is the one place
// where errors are printed and become exit codes:
//
//   0    done
//   1    diagnosed: a bad input, a failed check, a machine that refused
//   2    usage: the command line is wrong
//   3    a GPU is needed and none is there
//   70   internal error, a bug
//   130  stopped by Ctrl-C
#include "compiler/emit/target.h"
#include "compiler/manifest.h"
#include "ir/error.h"
#include "tools/command.h"
#include "tools/option_checks.h"
#include "tools/options.h"
#include "tools/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>
#include <string>
#include <system_error>
#include <vector>

namespace sparsertc {
namespace {

/// A message that begins with a place is printed as it is, so that editors find the place; others
/// begin with the program's name.
void print_error(const Error& error) {
  const std::string text = error.what();
  const bool has_place = text.rfind("error: ", 0) != 0 && text.rfind("usage error: ", 0) != 0 &&
                         text.rfind("internal error: ", 0) != 0;
  fmt::print(stderr, "{}{}\n", has_place ? "" : "sparsertc: ", text);
}

/// The long names of all options that a parser knows, with their dashes.
std::vector<std::string> option_names(const CLI::App& parser) {
  std::vector<std::string> names;
  for (const CLI::Option* option : parser.get_options())
    for (const std::string& name : option->get_lnames())
      names.push_back("--" + name);
  return names;
}

/// A command line that CLI11 did not understand, as a usage error that says what was meant.
UsageError to_usage_error(const CLI::ParseError& error, const CLI::App& application) {
  const CLI::App* parser = &application;
  std::string command = "sparsertc";
  for (const CLI::App* chosen : application.get_subcommands()) {
    parser = chosen;
    command += " " + chosen->get_name();
  }
  std::string way_out = fmt::format("{} --help lists the options", command);
  const std::string text = error.what();
  const size_t dashes = text.find("--");
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && dashes != std::string::npos) {
    const std::string word = text.substr(dashes, text.find_first_of(" =", dashes) - dashes);
    if (const std::optional<std::string> nearest = nearest_word(word, option_names(*parser)))
      way_out = fmt::format("did you mean {}? {}", *nearest, way_out);
  }
  return UsageError(text, way_out);
}

/// Numbers that CLI11 would misread are errors.
void check_unsigned_options(const std::vector<Command>& commands) {
  const CLI::Validator check([](const std::string& text) { return unsigned_fault(text); }, "");
  for (const Command& command : commands)
    for (CLI::Option* option : command.parser->get_options())
      if (option->get_type_name().rfind("UINT", 0) == 0)
        option->check(check);
}

/// A first word that is no subcommand gets a suggestion.
void check_subcommand(const std::string& word, const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands)
    names.push_back(command.parser->get_name());
  if (!word.empty() && word[0] != '-')
    choose_word("subcommand", word, names);
}

int run(int argc, char** argv) {
  CLI::App application("Compiles sparsity patterns into code.", "sparsertc");
  application.require_subcommand(1);
  application.option_defaults()->always_capture_default(false);
  application.set_version_flag("--version",
                               fmt::format("sparsertc {}\ntargets: {}", sparsertc_version(),
                                           fmt::join(known_targets(), " ")));
  application.footer(
      "Examples:\n"
      "  sparsertc compile layer.npy.gz -o layer.ptx --target=sm_90\n"
      "  sparsertc inspect layer.smtx --plot=layer.svg\n"
      "  sparsertc run layer.npy.gz -n 256 --check\n"
      "  sparsertc bench\n"
      "`sparsertc SUBCOMMAND --help` has more.\n"
      "Exit codes: 0 done, 1 diagnosed, 2 usage, 3 no GPU, 70 internal, 130 stopped.");

  const std::vector<Command> commands = {
      add_compile_command(application), add_inspect_command(application),
      add_run_command(application),     add_tune_command(application),
      add_bench_command(application),   add_opt_command(application),
      add_cache_command(application),   add_bind_command(application),
      add_solve_command(application),   add_jacobian_command(application),
      add_colour_command(application),  add_execute_command(application),
  };
  check_unsigned_options(commands);
  try {
    if (argc > 1)
      check_subcommand(argv[1], commands);
    application.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return application.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return application.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return application.exit(version);
  } catch (const CLI::ParseError& error) {
    throw to_usage_error(error, application);
  }
  for (const Command& command : commands)
    if (command.parser->parsed())
      return command.run();
  throw InternalError("no subcommand ran");
}

/// What was printed is in buffers until now: a full disk shows here.
void finish_output() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (!flushed || !std::cout || std::ferror(stdout) != 0)
    throw RuntimeError("writing <stdout>", errno != 0 ? std::strerror(errno) : "not all was taken");
}

/// As `run`, and the output has arrived.
int run_to_the_end(int argc, char** argv) {
  int code = 0;
  try {
    code = run(argc, argv);
  } catch (const std::system_error&) {
    finish_output(); // a print that failed says so
    throw;
  }
  finish_output();
  return code;
}

} // namespace
} // namespace sparsertc

int main(int argc, char** argv) {
  using namespace sparsertc;
  try {
    catch_interrupts();
    return run_to_the_end(argc, argv);
  } catch (const Interrupted&) {
    fmt::print(stderr, "sparsertc: stopped\n");
    return kInterruptedExit;
  } catch (const Error& error) {
    if (interrupt_flag()) { // what was interrupted may say so in its own way
      fmt::print(stderr, "sparsertc: stopped\n");
      return kInterruptedExit;
    }
    print_error(error);
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    const RuntimeError error("allocating memory", "the system refused");
    print_error(error);
    return error.exit_code();
  } catch (const std::exception& exception) {
    const InternalError error(exception.what());
    print_error(error);
    return error.exit_code();
  }
}
