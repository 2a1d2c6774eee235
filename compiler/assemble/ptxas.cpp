#include "compiler/assemble/ptxas.h"

#include "compiler/assemble/outcome.h"
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
constexpr const char* kName = "ptxas";
constexpr const char* kResult = "program.cubin";

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file)
    throw RuntimeError("reading " + path, std::strerror(errno));
  return bytes;
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
    if (const std::string wrong = read_functions(request_, result); !wrong.empty())
      throw_wrong_result(request_, kName, wrong, reproduction(all_commands(), result.log));
    for (const std::string& log : logs_)
      add_resources(log, result.functions);
    add_resources(link_log, result.functions);
    return result;
  }

private:
  bool stopped() const { return request_.stop && request_.stop->load(std::memory_order_relaxed); }

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
    throw_if_stopped(request_);
    if (first_failed < count) {
      if (errors[first_failed])
        std::rethrow_exception(errors[first_failed]);
      fail_unit(first_failed, results[first_failed]);
    }
    for (ProcessResult& result : results)
      logs_.push_back(std::move(result.output));
  }

  ProcessResult assemble_unit(size_t unit, const std::function<bool()>& stop) const {
    const JobLimit::Job job(request_.limit);
    write_file(directory_.file(unit_name(unit, "ptx")), request_.units[unit]);
    return run_process(ptxas_command(unit), directory_.path(), stop);
  }

  [[noreturn]] void fail_unit(size_t unit, const ProcessResult& result) const {
    throw_unit_failure(request_, kName, unit, first_error(result.output), result.describe(),
                       reproduction({ptxas_command(unit)}, result.output));
  }

  /// Returns what nvlink said.
  std::string link() {
    const JobLimit::Job job(request_.limit);
    const std::vector<std::string> command = nvlink_command();
    const ProcessResult result =
        run_process(command, directory_.path(), [this] { return stopped(); });
    throw_if_stopped(request_);
    if (result.succeeded())
      return result.output;
    throw_link_failure(request_, "nvlink", first_error(result.output), result.describe(),
                       reproduction(all_commands(), result.output));
  }

  std::vector<std::vector<std::string>> all_commands() const {
    std::vector<std::vector<std::string>> commands;
    for (size_t unit = 0; unit < request_.units.size(); ++unit)
      commands.push_back(ptxas_command(unit));
    if (commands.size() > 1)
      commands.push_back(nvlink_command());
    return commands;
  }

  static Reproduction reproduction(const std::vector<std::vector<std::string>>& commands,
                                   const std::string& log) {
    std::string script = "#!/bin/sh\ncd \"$(dirname \"$0\")\" || exit\n";
    for (const auto& command : commands)
      script += command_line(command) + "\n";
    return {"reproduce.sh", script, log};
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
  // A multiprocessor has four schedulers, which share the warps and have a quarter of the registers
  // each.
  constexpr uint64_t schedulers = 4, warp = 32;
  const uint64_t warps = std::max<uint64_t>(threads + warp - 1, warp) / warp;
  const uint64_t lanes = (warps + schedulers - 1) / schedulers * warp;
  return static_cast<uint32_t>(std::min(most, registers / schedulers / lanes / unit * unit));
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
