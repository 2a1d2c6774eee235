#include "compiler/assemble/ptxas.h"

#include "compiler/assemble/elf.h"
#include "compiler/assemble/process.h"
#include "compiler/assemble/ptxas_log.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>
#include <unistd.h>

namespace sparsertc {
namespace {

constexpr const char* kPathVariable = "SPARSERTC_PTXAS";
constexpr const char* kResult = "program.cubin";

void write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file)
    throw RuntimeError("writing " + path, std::strerror(errno));
}

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file)
    throw RuntimeError("reading " + path, std::strerror(errno));
  return bytes;
}

std::string unit_name(size_t unit, const char* suffix) {
  return fmt::format("unit_{:05}.{}", unit, suffix);
}

/// The line with this number, from 1; empty where there is none.
std::string_view line_of(std::string_view text, uint64_t number) {
  for (; number > 1; --number) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos)
      return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

/// Everything about one run of Ptxas::assemble that its steps share.
class Assembly {
public:
  Assembly(const AssembleRequest& request, std::string ptxas, std::string nvlink)
      : request_(request), ptxas_(std::move(ptxas)), nvlink_(std::move(nvlink)) {}

  Assembled run() {
    assemble_units();
    Assembled result;
    for (const std::string& log : logs_)
      result.log += log;
    std::string link_log;
    if (request_.units.size() > 1) {
      link_log = link();
      result.log += link_log;
    }
    result.cubin = read_file(directory_.file(kResult));
    const auto functions = read_cubin_functions(result.cubin);
    if (!functions)
      fail_wholly("verifying the assembler's result", "it is no ELF file for a GPU");
    for (const CubinFunction& function : *functions) {
      FunctionResources& resources = result.functions.emplace_back();
      resources.name = function.name;
      resources.is_kernel = function.is_kernel;
      resources.code_bytes = function.code_bytes;
    }
    std::sort(result.functions.begin(), result.functions.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    for (const std::string& kernel : request_.kernels)
      require_kernel(kernel, result.functions);
    for (const std::string& log : logs_)
      add_resources(log, result.functions);
    add_resources(link_log, result.functions);
    return result;
  }

private:
  bool stopped() const { return request_.stop && request_.stop->load(std::memory_order_relaxed); }
  void throw_if_stopped() const {
    if (stopped())
      throw RuntimeError("assembling for " + request_.target, "interrupted");
  }

  std::vector<std::string> ptxas_command(size_t unit) const {
    const bool alone = request_.units.size() == 1;
    std::vector<std::string> command = {ptxas_, "-v", "-arch=" + request_.target,
                                        fmt::format("-O{}", request_.optimisation_level)};
    if (request_.max_registers != 0)
      command.push_back(fmt::format("-maxrregcount={}", request_.max_registers));
    if (!alone)
      command.push_back("-c");
    command.push_back(unit_name(unit, "ptx"));
    command.push_back("-o");
    command.push_back(alone ? kResult : unit_name(unit, "cubin"));
    return command;
  }

  std::vector<std::string> nvlink_command() const {
    std::vector<std::string> command = {nvlink_, "-v", "-arch=" + request_.target};
    for (size_t unit = 0; unit < request_.units.size(); ++unit)
      command.push_back(unit_name(unit, "cubin"));
    command.push_back("-o");
    command.push_back(kResult);
    return command;
  }

  /// Assembles every unit, several at once. Of several failing units the first is reported: later
  /// ones are stopped when one fails, earlier ones go on.
  void assemble_units() {
    const size_t count = request_.units.size();
    std::vector<ProcessResult> results(count);
    std::vector<std::exception_ptr> errors(count);
    std::atomic<size_t> next{0};
    std::atomic<size_t> first_failed{count};
    const auto work = [&] {
      for (size_t unit = next++; unit < count && unit < first_failed; unit = next++) {
        const auto stop = [&] { return stopped() || unit > first_failed; };
        try {
          results[unit] = assemble_unit(unit, stop);
        } catch (...) {
          errors[unit] = std::current_exception();
        }
        size_t known = first_failed;
        while ((errors[unit] || !results[unit].succeeded()) && unit < known &&
               !first_failed.compare_exchange_weak(known, unit)) {
        }
      }
    };
    unsigned jobs = request_.jobs != 0 ? request_.jobs : std::thread::hardware_concurrency();
    jobs = static_cast<unsigned>(std::clamp<size_t>(jobs, 1, count));
    {
      std::vector<std::jthread> threads;
      for (unsigned i = 1; i < jobs; ++i)
        threads.emplace_back(work);
      work();
    }
    throw_if_stopped();
    if (first_failed < count) {
      if (errors[first_failed])
        std::rethrow_exception(errors[first_failed]);
      fail_unit(first_failed, results[first_failed]);
    }
    for (ProcessResult& result : results)
      logs_.push_back(std::move(result.output));
  }

  ProcessResult assemble_unit(size_t unit, const std::function<bool()>& stop) const {
    write_file(directory_.file(unit_name(unit, "ptx")), request_.units[unit]);
    return run_process(ptxas_command(unit), directory_.path(), stop);
  }

  [[noreturn]] void fail_unit(size_t unit, const ProcessResult& result) const {
    const std::string doing = fmt::format("assembling PTX for {} (ptxas)", request_.target);
    const std::string kept = keep({unit}, {ptxas_command(unit)}, result.output);
    const auto diagnostic = first_error(result.output);
    // A line of ours that it does not like is a bug of ours, except that an old ptxas does not know
    // the version; the rest is about this machine.
    if (diagnostic && diagnostic->line != 0 && !diagnostic->message.starts_with("Unsupported .ver"))
      throw InternalError(fmt::format("{}: line {}: {}\n{:>6} | {}\nnote: {}", doing,
                                      diagnostic->line, diagnostic->message, diagnostic->line,
                                      line_of(request_.units[unit], diagnostic->line), kept));
    throw RuntimeError(doing, diagnostic ? diagnostic->message : result.describe(), kept);
  }

  /// Returns what nvlink said.
  std::string link() {
    const std::vector<std::string> command = nvlink_command();
    const ProcessResult result =
        run_process(command, directory_.path(), [this] { return stopped(); });
    throw_if_stopped();
    if (result.succeeded())
      return result.output;
    const std::string doing =
        fmt::format("linking {} units for {} (nvlink)", request_.units.size(), request_.target);
    const auto diagnostic = first_error(result.output);
    if (!diagnostic)
      throw RuntimeError(doing, result.describe(), keep_all(result.output));
    throw InternalError(
        fmt::format("{}: {}\nnote: {}", doing, diagnostic->message, keep_all(result.output)));
  }

  void require_kernel(const std::string& kernel, const std::vector<FunctionResources>& functions) {
    const auto is_it = [&](const FunctionResources& one) {
      return one.is_kernel && one.code_bytes != 0 && one.name == kernel;
    };
    if (std::any_of(functions.begin(), functions.end(), is_it))
      return;
    std::string found;
    for (const FunctionResources& one : functions)
      if (one.is_kernel)
        found += (found.empty() ? "" : ", ") + one.name;
    fail_wholly("verifying the assembler's result",
                fmt::format("it does not hold the kernel {}, only: {}", kernel,
                            found.empty() ? "none" : found));
  }

  [[noreturn]] void fail_wholly(const std::string& doing, const std::string& reason) {
    std::string log;
    for (const std::string& one : logs_)
      log += one;
    throw InternalError(fmt::format("{}: {}\nnote: {}", doing, reason, keep_all(log)));
  }

  std::string keep_all(const std::string& log) const {
    std::vector<size_t> units(request_.units.size());
    std::vector<std::vector<std::string>> commands;
    for (size_t unit = 0; unit < units.size(); ++unit) {
      units[unit] = unit;
      commands.push_back(ptxas_command(unit));
    }
    if (units.size() > 1)
      commands.push_back(nvlink_command());
    return keep(units, commands, log);
  }

  /// Keeps units, commands and log in a folder of their own; says where.
  std::string keep(const std::vector<size_t>& units,
                   const std::vector<std::vector<std::string>>& commands,
                   const std::string& log) const {
    try {
      TemporaryDirectory kept(request_.reproduce_directory);
      std::string script = "#!/bin/sh\ncd \"$(dirname \"$0\")\" || exit\n";
      for (const auto& command : commands)
        script += command_line(command) + "\n";
      for (const size_t unit : units)
        write_file(kept.file(unit_name(unit, "ptx")), request_.units[unit]);
      write_file(kept.file("reproduce.sh"), script);
      write_file(kept.file("log.txt"), log);
      kept.keep();
      return fmt::format("the PTX, the assembler's log and reproduce.sh are in {}", kept.path());
    } catch (const RuntimeError& error) {
      // The first failure matters more than this one.
      return fmt::format("nothing could be kept to reproduce it: {}", error.what());
    }
  }

  const AssembleRequest& request_;
  std::string ptxas_;
  std::string nvlink_;
  TemporaryDirectory directory_;
  std::vector<std::string> logs_; ///< of the units
};

/// Where ptxas may be, the best place first.
std::vector<std::string> candidates() {
  std::vector<std::string> paths;
  if (const char* path = std::getenv("PATH")) {
    std::string_view rest = path;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(':'), rest.size());
      if (end > 0)
        paths.push_back(std::string(rest.substr(0, end)) + "/ptxas");
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  if (const char* toolkit = std::getenv("CUDA_PATH"); toolkit && *toolkit)
    paths.push_back(std::string(toolkit) + "/bin/ptxas");
  paths.push_back("/usr/local/cuda/bin/ptxas");
  return paths;
}

} // namespace

uint32_t register_limit(uint64_t threads) {
  constexpr uint64_t registers = 65536;
  constexpr uint64_t unit = 8;
  constexpr uint64_t most = 255;
  return static_cast<uint32_t>(
      std::min(most, registers / std::max<uint64_t>(threads, 1) / unit * unit));
}

std::unique_ptr<Ptxas> Ptxas::find(std::vector<std::string>& refused) {
  const auto refuse = [&](std::string reason) {
    refused.push_back("ptxas: " + std::move(reason));
    return std::unique_ptr<Ptxas>();
  };
  const char* chosen = std::getenv(kPathVariable);
  std::string path;
  if (chosen && *chosen) {
    if (access(chosen, X_OK) != 0)
      return refuse(fmt::format("{} names {}: {}", kPathVariable, chosen, std::strerror(errno)));
    path = chosen;
  } else {
    for (const std::string& candidate : candidates())
      if (path.empty() && access(candidate.c_str(), X_OK) == 0)
        path = candidate;
    if (path.empty())
      return refuse(fmt::format("not in PATH, CUDA_PATH/bin or /usr/local/cuda/bin, and {} is not "
                                "set",
                                kPathVariable));
  }
  std::unique_ptr<Ptxas> ptxas(new Ptxas);
  const std::filesystem::path absolute = std::filesystem::absolute(path);
  ptxas->ptxas_ = absolute.string();
  ptxas->nvlink_ = (absolute.parent_path() / "nvlink").string();
  try {
    const ProcessResult result = run_process({ptxas->ptxas_, "--version"}, "/");
    ptxas->version_ = version_in(result.output);
    if (!result.succeeded() || ptxas->version_.empty())
      return refuse(
          fmt::format("{} --version: {}, and no version in what it says", path, result.describe()));
  } catch (const RuntimeError& error) {
    return refuse(error.what());
  }
  return ptxas;
}

Assembled Ptxas::assemble(const AssembleRequest& request) const {
  if (request.units.empty())
    throw InternalError("nothing to assemble");
  Assembled result = Assembly(request, ptxas_, nvlink_).run();
  result.assembler = identity();
  return result;
}

} // namespace sparsertc
