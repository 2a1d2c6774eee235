#include "runtime/driver/nvjitlink_assembler.h"

#include "compiler/assemble/outcome.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <future>
#include <optional>

namespace sparsertc {
namespace {

using cuda::JitLink;
using cuda::JitLinkResult;

constexpr const char* kName = "nvJitLink";

const std::string kEmptyKernel =
    ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry empty()\n{\n  ret;\n}\n";

std::vector<std::string> options_of(const AssembleRequest& request) {
  std::vector<std::string> options = {"-arch=" + request.target, "-verbose"};
  // It takes 0 and 3 itself, and passes the others on.
  const bool own = request.optimisation_level == 0 || request.optimisation_level == 3;
  options.push_back(fmt::format("{}-O{}", own ? "" : "-Xptxas=", request.optimisation_level));
  if (request.max_registers != 0)
    options.push_back(fmt::format("-maxrregcount={}", request.max_registers));
  return options;
}

/// The same calls again, for whoever looks into a failure: there is no command for them.
Reproduction reproduction(const AssembleRequest& request, const std::string& library,
                          const std::string& log) {
  std::string options;
  for (const std::string& option : options_of(request))
    options += fmt::format("b\"{}\", ", option);
  std::string script = fmt::format(R"(#!/usr/bin/env python3
# Gives the PTX beside this file to nvJitLink as sparsertc did.
import ctypes, os

os.chdir(os.path.dirname(os.path.abspath(__file__)))
nvjitlink = ctypes.CDLL(os.environ.get("SPARSERTC_LIBNVJITLINK", "{}"))
options = [{}]
)",
                                   library, options);
  script += R"(link = ctypes.c_void_p()
array = (ctypes.c_char_p * len(options))(*options)
print("nvJitLinkCreate:", nvjitlink.nvJitLinkCreate(ctypes.byref(link), len(options), array))
for name in sorted(name for name in os.listdir(".") if name.endswith(".ptx")):
    text = open(name, "rb").read() + b"\0"
    print(name, "nvJitLinkAddData:", nvjitlink.nvJitLinkAddData(
        link, 2, text, ctypes.c_size_t(len(text)), name.encode()))
print("nvJitLinkComplete:", nvjitlink.nvJitLinkComplete(link))
size = ctypes.c_size_t()
nvjitlink.nvJitLinkGetErrorLogSize(link, ctypes.byref(size))
log = ctypes.create_string_buffer(size.value + 1)
nvjitlink.nvJitLinkGetErrorLog(link, log)
print(log.value.decode(errors="replace"))
)";
  return {"reproduce.py", script, log};
}

} // namespace

std::unique_ptr<NvJitLinkAssembler> NvJitLinkAssembler::find(std::vector<std::string>& refused) {
  try {
    return std::make_unique<NvJitLinkAssembler>(cuda::NvJitLink::open());
  } catch (const RuntimeError& error) {
    refused.push_back(as_reason(kName, error));
    return nullptr;
  }
}

NvJitLinkAssembler::NvJitLinkAssembler(std::shared_ptr<const cuda::NvJitLink> library)
    : library_(std::move(library)) {
  AssembleRequest request;
  request.units = {&kEmptyKernel, 1};
  request.target = "sm_80";
  const std::vector<uint8_t> cubin = assemble(request).cubin;
  // The library itself tells no more than the first two numbers.
  version_ = version_in({reinterpret_cast<const char*>(cubin.data()), cubin.size()});
  if (version_.empty())
    version_ = fmt::format("{}.{}", library_->major(), library_->minor());
}

Assembled NvJitLinkAssembler::assemble(const AssembleRequest& request) const {
  if (request.units.empty())
    throw InternalError("nothing to assemble");
  // On a thread of its own: where one link of a thread has met a fatal error (a PTX version that is
  // too new), the thread's next link calls an undefined reference a success (seen with 13.0).
  const JobLimit::Job job(request.limit);
  return std::async(std::launch::async, [&] { return link(request); }).get();
}

Assembled NvJitLinkAssembler::link(const AssembleRequest& request) const {
  const std::string doing = fmt::format("assembling PTX for {} ({})", request.target, kName);
  const auto again = [&](const std::string& log) {
    return reproduction(request, library_->path(), log);
  };
  JitLink link(*library_, options_of(request), doing);
  for (size_t unit = 0; unit < request.units.size(); ++unit) {
    throw_if_stopped(request);
    const JitLinkResult result = link.add_ptx(request.units[unit], unit_name(unit, "ptx"));
    if (result == JitLinkResult::NVJITLINK_SUCCESS)
      continue;
    const std::string log = link.error_log();
    throw_unit_failure(request, kName, unit, first_error(log), describe(result, "nvJitLinkAddData"),
                       again(log));
  }
  throw_if_stopped(request);
  const JitLinkResult result = link.complete();
  // Its success is no proof: the log counts, and that the kernels are there.
  const std::string errors = link.error_log();
  const std::optional<AssemblerDiagnostic> diagnostic = first_error(errors);
  if (result != JitLinkResult::NVJITLINK_SUCCESS || diagnostic)
    throw_link_failure(request, kName, diagnostic, describe(result, "nvJitLinkComplete"),
                       again(errors));
  Assembled assembled;
  assembled.assembler = identity();
  assembled.cubin = link.cubin(doing);
  assembled.log = link.info_log();
  if (const std::string wrong = read_functions(request, assembled); !wrong.empty())
    throw_wrong_result(request, kName, wrong, again(assembled.log));
  add_resources(assembled.log, assembled.functions);
  return assembled;
}

} // namespace sparsertc
