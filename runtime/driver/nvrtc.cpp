#include "runtime/driver/nvrtc.h"

#include "ir/error.h"
#include "runtime/driver/library.h"

#include <fmt/format.h>

#include <cstring>

namespace sparsertc::cuda {
namespace {

void check(NvrtcResult result, std::string_view call, const std::string& doing) {
  if (result != NvrtcResult::NVRTC_SUCCESS)
    throw RuntimeError(doing, describe(result, call));
}

/// The text without white space at its end.
std::string trimmed(std::string text) {
  text.resize(text.find_last_not_of(" \t\n") + 1);
  return text;
}

class Program {
public:
  Program(const NvrtcTable& api, const CudaSource& source)
      : api_(api), doing_(fmt::format("compiling {} for {} (NVRTC)", source.name, source.target)) {
    std::vector<const char*> texts, names;
    for (const CudaSource::Header& header : source.headers) {
      texts.push_back(header.text.c_str());
      names.push_back(header.name.c_str());
    }
    check(api_.nvrtcCreateProgram(&program_, source.text.c_str(), source.name.c_str(),
                                  static_cast<int>(texts.size()), texts.data(), names.data()),
          "nvrtcCreateProgram", doing_);
  }
  ~Program() {
    // Whatever it answers: the first failure has been reported already.
    api_.nvrtcDestroyProgram(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  CudaCompiled compile(const CudaSource& source) const {
    const std::string target = "--gpu-architecture=" + source.target;
    std::vector<const char*> options = {target.c_str()};
    for (const std::string& option : source.options)
      options.push_back(option.c_str());
    const NvrtcResult result =
        api_.nvrtcCompileProgram(program_, static_cast<int>(options.size()), options.data());
    CudaCompiled compiled;
    compiled.log = log();
    if (result != NvrtcResult::NVRTC_SUCCESS)
      fail(result, source, compiled.log);
    compiled.ptx = ptx();
    if (source.want_cubin)
      compiled.cubin = cubin();
    return compiled;
  }

private:
  [[noreturn]] void fail(NvrtcResult result, const CudaSource& source,
                         const std::string& log) const {
    const std::string told = trimmed(log);
    const std::string answer = describe(result, "nvrtcCompileProgram");
    if (result != NvrtcResult::NVRTC_ERROR_COMPILATION)
      throw RuntimeError(doing_, told.empty() ? answer : answer + "\n" + told);
    if (source.from_user)
      throw UserError(fmt::format("{} does not compile:\n{}", source.name, told));
    throw InternalError(fmt::format("{}: {}\n{}", doing_, answer, told));
  }

  std::string log() const {
    size_t bytes = 0;
    if (api_.nvrtcGetProgramLogSize(program_, &bytes) != NvrtcResult::NVRTC_SUCCESS || bytes == 0)
      return {};
    std::string log(bytes + 1, '\0'); // it may come without its NUL
    if (api_.nvrtcGetProgramLog(program_, log.data()) != NvrtcResult::NVRTC_SUCCESS)
      return {};
    log.resize(std::strlen(log.c_str()));
    return log;
  }

  std::string ptx() const {
    size_t bytes = 0;
    check(api_.nvrtcGetPTXSize(program_, &bytes), "nvrtcGetPTXSize", doing_);
    std::string ptx(bytes, '\0');
    check(api_.nvrtcGetPTX(program_, ptx.data()), "nvrtcGetPTX", doing_);
    ptx.resize(std::strlen(ptx.c_str()));
    return ptx;
  }

  std::vector<uint8_t> cubin() const {
    size_t bytes = 0;
    check(api_.nvrtcGetCUBINSize(program_, &bytes), "nvrtcGetCUBINSize", doing_);
    if (bytes == 0)
      throw RuntimeError(doing_, "there is no machine code", "name a real architecture, sm_90 say");
    std::vector<uint8_t> cubin(bytes);
    check(api_.nvrtcGetCUBIN(program_, reinterpret_cast<char*>(cubin.data())), "nvrtcGetCUBIN",
          doing_);
    return cubin;
  }

  const NvrtcTable& api_;
  std::string doing_;
  NvrtcProgram program_ = nullptr;
};

} // namespace

std::string_view name_of(NvrtcResult result) {
  switch (result) {
#define X(name, value)                                                                             \
  case NvrtcResult::name:                                                                          \
    return #name;
    SPARSERTC_NVRTC_RESULTS(X)
#undef X
  }
  return "nvrtcResult";
}

std::string describe(NvrtcResult result, std::string_view call) {
  return fmt::format("{} failed: {} ({})", call, name_of(result), static_cast<uint32_t>(result));
}

std::shared_ptr<const Nvrtc> Nvrtc::open() {
  const Library library =
      Library::open({"NVRTC", "SPARSERTC_LIBNVRTC", {"libnvrtc.so.13", "libnvrtc.so.12"}});
  NvrtcTable table;
#define X(name, parameters)                                                                        \
  table.name =                                                                                     \
      reinterpret_cast<name##_function>(library.find(#name, "NVRTC of CUDA 12.0 or newer"));
  SPARSERTC_NVRTC_FUNCTIONS(X)
#undef X
  return std::make_shared<Nvrtc>(table);
}

Nvrtc::Nvrtc(const NvrtcTable& table) : table_(table) {
  check(table_.nvrtcVersion(&major_, &minor_), "nvrtcVersion", "asking for NVRTC's version");
}

std::string Nvrtc::identity() const {
  return fmt::format("NVRTC {}.{}", major_, minor_);
}

CudaCompiled Nvrtc::compile(const CudaSource& source) const {
  return Program(table_, source).compile(source);
}

} // namespace sparsertc::cuda
