#include "compiler/assemble/outcome.h"

#include "compiler/assemble/elf.h"
#include "compiler/assemble/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace sparsertc {
namespace {

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

/// "": everything that was asked for is there.
std::string missing_kernel(const AssembleRequest& request,
                           const std::vector<FunctionResources>& functions) {
  for (const std::string& kernel : request.kernels) {
    const auto is_it = [&](const FunctionResources& one) {
      return one.is_kernel && one.code_bytes != 0 && one.name == kernel;
    };
    if (std::any_of(functions.begin(), functions.end(), is_it))
      continue;
    std::string found;
    for (const FunctionResources& one : functions)
      if (one.is_kernel)
        found += (found.empty() ? "" : ", ") + one.name;
    return fmt::format("it does not hold the kernel {}, only: {}", kernel,
                       found.empty() ? "none" : found);
  }
  return {};
}

/// Writes units, script and log into a folder of their own. Returns a sentence that says where, or
/// why nothing could be kept: the first failure matters more.
std::string keep(const AssembleRequest& request, std::span<const size_t> units,
                 const Reproduction& reproduction) {
  try {
    TemporaryDirectory kept(request.reproduce_directory);
    for (const size_t unit : units)
      write_file(kept.file(unit_name(unit, "ptx")), request.units[unit]);
    write_file(kept.file(reproduction.script_name), reproduction.script);
    write_file(kept.file("log.txt"), reproduction.log);
    kept.keep();
    return fmt::format("the PTX, the assembler's log and {} are in {}", reproduction.script_name,
                       kept.path());
  } catch (const RuntimeError& error) {
    return fmt::format("nothing could be kept to reproduce it: {}", error.what());
  }
}

std::string keep_all(const AssembleRequest& request, const Reproduction& reproduction) {
  std::vector<size_t> units(request.units.size());
  std::iota(units.begin(), units.end(), size_t{0});
  return keep(request, units, reproduction);
}

} // namespace

std::string as_reason(std::string_view assembler, const Error& error, bool with_notes) {
  constexpr std::string_view kWord = "error: ";
  std::string_view text = error.what();
  if (!with_notes)
    text = text.substr(0, text.find("\nnote: "));
  if (text.starts_with(kWord))
    text.remove_prefix(kWord.size());
  std::string reason = fmt::format("{}: ", assembler);
  for (const char c : text)
    reason += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return reason;
}

std::string unit_name(size_t unit, const char* suffix) {
  return fmt::format("unit_{:05}.{}", unit, suffix);
}

void throw_if_stopped(const AssembleRequest& request) {
  if (request.stop && request.stop->load(std::memory_order_relaxed))
    throw RuntimeError("assembling for " + request.target, "interrupted");
}

std::string read_functions(const AssembleRequest& request, Assembled& result) {
  const auto functions = read_cubin_functions(result.cubin);
  if (!functions)
    return "it is no ELF file for a GPU";
  for (const CubinFunction& function : *functions) {
    FunctionResources& resources = result.functions.emplace_back();
    resources.name = function.name;
    resources.is_kernel = function.is_kernel;
    resources.code_bytes = function.code_bytes;
  }
  std::sort(result.functions.begin(), result.functions.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return missing_kernel(request, result.functions);
}

void throw_unit_failure(const AssembleRequest& request, const std::string& assembler, size_t unit,
                        const std::optional<AssemblerDiagnostic>& diagnostic,
                        const std::string& otherwise, const Reproduction& reproduction) {
  const std::string doing = fmt::format("assembling PTX for {} ({})", request.target, assembler);
  // A line of ours that it does not like is a bug of ours, except that an old one does not know the
  // version or the target; the rest is about this machine.
  if (diagnostic && (diagnostic->line == 0 || diagnostic->message.starts_with("Unsupported .")))
    throw RuntimeError(doing, diagnostic->message);
  const std::string kept = keep(request, {&unit, 1}, reproduction);
  if (!diagnostic)
    throw RuntimeError(doing, otherwise, kept);
  std::string message = fmt::format(
      "{}: {}line {}: {}\n{:>6} | {}", doing,
      request.units.size() > 1 ? fmt::format("unit {}, ", unit) : std::string(), diagnostic->line,
      diagnostic->message, diagnostic->line, line_of(request.units[unit], diagnostic->line));
  if (const std::string origin =
          request.origin_of ? request.origin_of(unit, diagnostic->line) : std::string();
      !origin.empty())
    message += fmt::format("\nnote: emitted for the entry at {}", origin);
  throw InternalError(fmt::format("{}\nnote: {}", message, kept));
}

void throw_link_failure(const AssembleRequest& request, const std::string& linker,
                        const std::optional<AssemblerDiagnostic>& diagnostic,
                        const std::string& otherwise, const Reproduction& reproduction) {
  const std::string doing =
      fmt::format("linking {} units for {} ({})", request.units.size(), request.target, linker);
  const std::string kept = keep_all(request, reproduction);
  if (!diagnostic)
    throw RuntimeError(doing, otherwise, kept);
  throw InternalError(fmt::format("{}: {}\nnote: {}", doing, diagnostic->message, kept));
}

void throw_wrong_result(const AssembleRequest& request, const std::string& assembler,
                        const std::string& reason, const Reproduction& reproduction) {
  throw InternalError(fmt::format("verifying the result of {}: {}\nnote: {}", assembler, reason,
                                  keep_all(request, reproduction)));
}

} // namespace sparsertc
