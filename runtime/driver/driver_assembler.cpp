#include "runtime/driver/driver_assembler.h"

#include "compiler/assemble/outcome.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <fstream>
#include <sstream>

namespace sparsertc {
namespace {

using cuda::JitOption;
using cuda::Result;

constexpr const char* kName = "driver";

/// "580.82.07"; empty where the system does not say.
std::string module_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line, word;
  std::getline(file, line);
  std::istringstream words(line);
  while (words >> word)
    if (word.find_first_not_of("0123456789.") == std::string::npos &&
        word.find('.') != std::string::npos)
      return word;
  return {};
}

/// "sm_90a" as CUjit_target. Throws RuntimeError for what is no such name.
uint32_t jit_target(const std::string& target) {
  constexpr std::string_view kPrefix = "sm_";
  uint32_t number = 0;
  std::string_view rest = target;
  if (rest.starts_with(kPrefix)) {
    rest.remove_prefix(kPrefix.size());
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    if (error == std::errc() && rest.empty())
      return number;
    if (error == std::errc() && rest == "a")
      return number + cuda::kAcceleratedTarget;
  }
  throw RuntimeError("assembling PTX by the driver",
                     fmt::format("it has no target of the name {}", target));
}

/// One link. The driver keeps the addresses of logs and options, and perhaps of names, until it is
/// destroyed.
class Link {
public:
  Link(const cuda::DriverTable& api, const AssembleRequest& request)
      : api_(api), info_(kLogBytes + kLogBytesOfUnit * request.units.size()), error_(kLogBytes) {
    add(JitOption::target, jit_target(request.target));
    add(JitOption::optimization_level, request.optimisation_level);
    if (request.max_registers != 0)
      add(JitOption::max_registers, request.max_registers);
    add(JitOption::log_verbose, 1);
    add(JitOption::info_log_buffer, reinterpret_cast<uintptr_t>(info_.data()));
    add(JitOption::info_log_buffer_bytes, info_.size());
    add(JitOption::error_log_buffer, reinterpret_cast<uintptr_t>(error_.data()));
    add(JitOption::error_log_buffer_bytes, error_.size());
    cuda::check(api_.cuLinkCreate(static_cast<uint32_t>(options_.size()), options_.data(),
                                  values_.data(), &handle_),
                "cuLinkCreate",
                [&] { return fmt::format("assembling PTX for {} ({})", request.target, kName); });
  }
  ~Link() { api_.cuLinkDestroy(handle_); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Result add_ptx(const std::string& text, std::string name) {
    names_.push_back(std::move(name));
    // The NUL counts. The driver only reads.
    return api_.cuLinkAddData(handle_, cuda::JitInput::ptx, const_cast<char*>(text.c_str()),
                              text.size() + 1, names_.back().c_str(), 0, nullptr, nullptr);
  }
  /// Fills in `cubin`.
  Result complete(std::vector<uint8_t>& cubin) {
    void* data = nullptr;
    size_t bytes = 0;
    const Result result = api_.cuLinkComplete(handle_, &data, &bytes);
    if (result == Result::CUDA_SUCCESS && data)
      cubin.assign(static_cast<uint8_t*>(data), static_cast<uint8_t*>(data) + bytes);
    return result;
  }
  std::string info_log() const { return text_in(info_); }
  std::string error_log() const { return text_in(error_); }

private:
  static constexpr size_t kLogBytes = 16 * 1024;
  static constexpr size_t kLogBytesOfUnit = 1024;

  void add(JitOption option, uintptr_t value) {
    options_.push_back(option);
    values_.push_back(reinterpret_cast<void*>(value));
  }
  /// A full log may lack its NUL.
  static std::string text_in(const std::vector<char>& log) {
    return {log.begin(), std::find(log.begin(), log.end(), '\0')};
  }

  const cuda::DriverTable& api_;
  std::vector<char> info_, error_;
  std::deque<std::string> names_;
  std::vector<JitOption> options_;
  std::vector<void*> values_;
  cuda::LinkHandle handle_ = nullptr;
};

/// The same calls again, for whoever looks into a failure: there is no command for them.
Reproduction reproduction(const AssembleRequest& request, const std::string& log) {
  std::string script =
      fmt::format(R"(#!/usr/bin/env python3
# Gives the PTX beside this file to the GPU's driver as sparsertc did.
import ctypes, os

os.chdir(os.path.dirname(os.path.abspath(__file__)))
cuda = ctypes.CDLL(os.environ.get("SPARSERTC_LIBCUDA", "libcuda.so.1"))
log = ctypes.create_string_buffer({0})
options = {{{1}: {2}, {3}: {4}, {5}: ctypes.addressof(log), {6}: {0}}}
if {7} != 0:
    options[{8}] = {7}
)",
                  16 * 1024, static_cast<uint32_t>(JitOption::target), jit_target(request.target),
                  static_cast<uint32_t>(JitOption::optimization_level), request.optimisation_level,
                  static_cast<uint32_t>(JitOption::error_log_buffer),
                  static_cast<uint32_t>(JitOption::error_log_buffer_bytes), request.max_registers,
                  static_cast<uint32_t>(JitOption::max_registers));
  script += R"(keys = (ctypes.c_int * len(options))(*options)
values = (ctypes.c_void_p * len(options))(*options.values())
device, context, link = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
print("cuInit:", cuda.cuInit(0))
cuda.cuDeviceGet(ctypes.byref(device), 0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
cuda.cuCtxSetCurrent(context)
print("cuLinkCreate:", cuda.cuLinkCreate_v2(len(options), keys, values, ctypes.byref(link)))
for name in sorted(name for name in os.listdir(".") if name.endswith(".ptx")):
    text = open(name, "rb").read() + b"\0"
    print(name, "cuLinkAddData:", cuda.cuLinkAddData_v2(
        link, 1, text, ctypes.c_size_t(len(text)), name.encode(), 0, None, None))
cubin, size = ctypes.c_void_p(), ctypes.c_size_t()
print("cuLinkComplete:", cuda.cuLinkComplete(link, ctypes.byref(cubin), ctypes.byref(size)))
print(log.value.decode(errors="replace"))
)";
  return {"reproduce.py", script, log};
}

} // namespace

std::unique_ptr<DriverAssembler> DriverAssembler::find(std::vector<std::string>& refused) {
  try {
    return std::make_unique<DriverAssembler>(
        std::make_unique<const cuda::Context>(cuda::Driver::open()));
  } catch (const NoGpuError& error) {
    refused.push_back(as_reason(kName, error));
  } catch (const RuntimeError& error) {
    refused.push_back(as_reason(kName, error));
  }
  return nullptr;
}

DriverAssembler::DriverAssembler(std::unique_ptr<const cuda::Context> context)
    : context_(std::move(context)) {
  const int version = context_->driver().version();
  identity_ = fmt::format("{} {}.{}", kName, version / 1000, version % 1000 / 10);
  if (const std::string module = module_version(); !module.empty())
    identity_ += ", " + module;
}

Assembled DriverAssembler::assemble(const AssembleRequest& request) const {
  if (request.units.empty())
    throw InternalError("nothing to assemble");
  const JobLimit::Job job(request.limit);
  context_->make_current();
  Link link(context_->api(), request);
  for (size_t unit = 0; unit < request.units.size(); ++unit) {
    throw_if_stopped(request);
    const Result result = link.add_ptx(request.units[unit], unit_name(unit, "ptx"));
    if (result == Result::CUDA_SUCCESS)
      continue;
    const std::string log = link.error_log();
    throw_unit_failure(request, kName, unit, first_error(log), describe(result, "cuLinkAddData"),
                       reproduction(request, log));
  }
  throw_if_stopped(request);
  Assembled assembled;
  assembled.assembler = identity();
  if (const Result result = link.complete(assembled.cubin); result != Result::CUDA_SUCCESS) {
    const std::string log = link.error_log();
    throw_link_failure(request, kName, first_error(log), describe(result, "cuLinkComplete"),
                       reproduction(request, log));
  }
  assembled.log = link.info_log();
  if (const std::string wrong = read_functions(request, assembled); !wrong.empty())
    throw_wrong_result(request, kName, wrong, reproduction(request, assembled.log));
  add_resources(assembled.log, assembled.functions);
  return assembled;
}

} // namespace sparsertc
