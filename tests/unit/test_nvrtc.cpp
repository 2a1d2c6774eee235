// NVRTC: with functions that fail on demand, and with the real one where it is.
#include "compiler/assemble/elf.h"
#include "ir/error.h"
#include "runtime/driver/nvrtc.h"
#include "tests/support/assemble_scene.h"
#include "tests/support/nvrtc.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <string>

using namespace sparsertc;
using namespace sparsertc::testing;
using Catch::Contains;
using cuda::CudaCompiled;
using cuda::CudaSource;
using cuda::Nvrtc;
using cuda::NvrtcProgram;
using cuda::NvrtcResult;

namespace {

/// NVRTC without a toolkit.
struct Fake {
  int countdown = 0; ///< calls until one fails; 0: none
  std::string failed;
  int alive = 0;
  NvrtcResult answer = NvrtcResult::NVRTC_SUCCESS; ///< of compiling
  std::string log;
  std::vector<std::string> options, headers;
};
Fake fake;

bool fails(const char* name) {
  if (fake.countdown == 0 || --fake.countdown != 0)
    return false;
  fake.failed = name;
  return true;
}
#define FAIL_IF_TOLD(name)                                                                         \
  if (fails(#name))                                                                                \
  return NvrtcResult::NVRTC_ERROR_INTERNAL_ERROR

constexpr char kPtx[] = "// PTX";
NvrtcResult give(const char* name, size_t* bytes, size_t count) {
  if (fails(name))
    return NvrtcResult::NVRTC_ERROR_INTERNAL_ERROR;
  *bytes = count;
  return NvrtcResult::NVRTC_SUCCESS;
}

cuda::NvrtcTable fake_table() {
  cuda::NvrtcTable table;
  table.nvrtcVersion = [](int* major, int* minor) {
    FAIL_IF_TOLD(nvrtcVersion);
    *major = 13;
    *minor = 0;
    return NvrtcResult::NVRTC_SUCCESS;
  };
  table.nvrtcCreateProgram = [](NvrtcProgram* program, const char*, const char*, int count,
                                const char* const*, const char* const* names) {
    FAIL_IF_TOLD(nvrtcCreateProgram);
    fake.headers.assign(names, names + count);
    ++fake.alive;
    *program = reinterpret_cast<NvrtcProgram>(uintptr_t{1});
    return NvrtcResult::NVRTC_SUCCESS;
  };
  table.nvrtcDestroyProgram = [](NvrtcProgram* program) {
    --fake.alive;
    *program = nullptr;
    FAIL_IF_TOLD(nvrtcDestroyProgram);
    return NvrtcResult::NVRTC_SUCCESS;
  };
  table.nvrtcCompileProgram = [](NvrtcProgram, int count, const char* const* options) {
    FAIL_IF_TOLD(nvrtcCompileProgram);
    fake.options.assign(options, options + count);
    return fake.answer;
  };
  table.nvrtcGetPTXSize = [](NvrtcProgram, size_t* bytes) {
    return give("nvrtcGetPTXSize", bytes, sizeof kPtx);
  };
  table.nvrtcGetPTX = [](NvrtcProgram, char* ptx) {
    FAIL_IF_TOLD(nvrtcGetPTX);
    std::memcpy(ptx, kPtx, sizeof kPtx);
    return NvrtcResult::NVRTC_SUCCESS;
  };
  table.nvrtcGetCUBINSize = [](NvrtcProgram, size_t* bytes) {
    return give("nvrtcGetCUBINSize", bytes, 2);
  };
  table.nvrtcGetCUBIN = [](NvrtcProgram, char* cubin) {
    FAIL_IF_TOLD(nvrtcGetCUBIN);
    cubin[0] = cubin[1] = 7;
    return NvrtcResult::NVRTC_SUCCESS;
  };
  table.nvrtcGetProgramLogSize = [](NvrtcProgram, size_t* bytes) {
    return give("nvrtcGetProgramLogSize", bytes, fake.log.size());
  };
  table.nvrtcGetProgramLog = [](NvrtcProgram, char* log) {
    FAIL_IF_TOLD(nvrtcGetProgramLog);
    std::memcpy(log, fake.log.data(), fake.log.size());
    return NvrtcResult::NVRTC_SUCCESS;
  };
  return table;
}

CudaSource small_source() {
  CudaSource source;
  source.name = "scale.cu";
  source.text = "#include \"factor.h\"\n"
                "extern \"C\" __global__ void scale(float* x) { x[threadIdx.x] *= kFactor; }\n";
  source.headers = {{"factor.h", "constexpr float kFactor = FACTOR;\n"}};
  source.target = "sm_90";
  source.options = {"-DFACTOR=3.0f", "-std=c++17"};
  source.want_cubin = true;
  return source;
}

template <typename Exception>
std::string message_of(const Nvrtc& nvrtc, const CudaSource& source) {
  try {
    nvrtc.compile(source);
  } catch (const Exception& error) {
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

} // namespace

TEST_CASE("NVRTC: headers and options arrive, the log comes back") {
  fake = {};
  fake.log = "scale.cu(3): warning: hm";
  const Nvrtc nvrtc(fake_table());
  CHECK(nvrtc.identity() == "NVRTC 13.0");
  const CudaCompiled compiled = nvrtc.compile(small_source());
  CHECK(compiled.ptx == kPtx);
  CHECK(compiled.cubin == std::vector<uint8_t>{7, 7});
  CHECK(compiled.log == fake.log);
  CHECK(fake.headers == std::vector<std::string>{"factor.h"});
  CHECK(fake.options ==
        std::vector<std::string>{"--gpu-architecture=sm_90", "-DFACTOR=3.0f", "-std=c++17"});
  CHECK(fake.alive == 0);
}

TEST_CASE("NVRTC: each call may fail, and nothing leaks") {
  fake = {};
  fake.log = "a word";
  const Nvrtc nvrtc(fake_table());
  int failures = 0;
  for (int number = 1;; ++number) {
    fake.countdown = number;
    fake.failed.clear();
    std::string message;
    try {
      nvrtc.compile(small_source());
    } catch (const RuntimeError& error) {
      message = error.what();
    }
    fake.countdown = 0;
    CHECK(fake.alive == 0);
    if (fake.failed.empty())
      break;
    CAPTURE(number, fake.failed, message);
    const bool harmless =
        fake.failed.find("ProgramLog") != std::string::npos || fake.failed == "nvrtcDestroyProgram";
    CHECK(message.empty() == harmless);
    if (!harmless) {
      CHECK_THAT(message, Contains("compiling scale.cu for sm_90 (NVRTC): ") &&
                              Contains(fake.failed + " failed: NVRTC_ERROR_INTERNAL_ERROR (11)"));
      ++failures;
    }
  }
  CHECK(failures == 6); // create, compile, size and text of PTX, size and bytes of the cubin
  fake.countdown = 1;
  CHECK_THROWS_WITH(Nvrtc(fake_table()), Contains("nvrtcVersion failed"));
}

TEST_CASE("NVRTC: whose mistake it is") {
  fake = {};
  fake.log = "scale.cu(2): error: no\n";
  fake.answer = NvrtcResult::NVRTC_ERROR_COMPILATION;
  const Nvrtc nvrtc(fake_table());
  CudaSource source = small_source();
  CHECK_THAT(message_of<InternalError>(nvrtc, source), Contains("scale.cu(2): error: no"));
  source.from_user = true;
  CHECK(message_of<UserError>(nvrtc, source) ==
        "error: scale.cu does not compile:\nscale.cu(2): error: no");
  fake.answer = static_cast<NvrtcResult>(99);
  CHECK_THAT(message_of<RuntimeError>(nvrtc, source), Contains("nvrtcResult (99)"));
  CHECK(fake.alive == 0);
}

TEST_CASE("NVRTC: where it was looked for") {
  const Environment environment("SPARSERTC_LIBNVRTC", "/nonexistent.so");
  CHECK_THROWS_WITH(Nvrtc::open(), Contains("opening NVRTC: SPARSERTC_LIBNVRTC names "
                                            "/nonexistent.so: "));
}

TEST_CASE("the real NVRTC compiles, with a header in memory") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc)
    return;
  CudaSource source = small_source();
  const CudaCompiled compiled = nvrtc->compile(source);
  CHECK_THAT(compiled.ptx, Contains(".entry scale(") && Contains(".target sm_90"));
  CHECK(compiled.ptx.back() != '\0');
  const auto functions = read_cubin_functions(compiled.cubin);
  REQUIRE(functions);
  REQUIRE(functions->size() == 1);
  CHECK(functions->front().name == "scale");

  source.target = "compute_90";
  source.want_cubin = false;
  CHECK(nvrtc->compile(source).cubin.empty());
  source.want_cubin = true;
  CHECK_THAT(message_of<RuntimeError>(*nvrtc, source), Contains("no machine code"));
}

TEST_CASE("the real NVRTC: mistakes are shown with their lines") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc)
    return;
  CudaSource source = small_source();
  source.text += "this is no C++;\n";
  CHECK_THAT(message_of<InternalError>(*nvrtc, source), Contains("scale.cu(3): error: "));
  source.from_user = true;
  CHECK_THAT(message_of<UserError>(*nvrtc, source), Contains("scale.cu(3): error: "));
  source = small_source();
  source.headers.clear();
  CHECK_THAT(message_of<InternalError>(*nvrtc, source), Contains("factor.h"));
  source = small_source();
  source.options.push_back("--no-such-option");
  CHECK_THAT(message_of<RuntimeError>(*nvrtc, source), Contains("no-such-option"));
  source = small_source();
  source.target = "sm_20";
  CHECK_THAT(message_of<RuntimeError>(*nvrtc, source), Contains("sm_20"));
}
