// PTX to be assembled, and a place to assemble it in that tells what was left behind.
#pragma once

#include "compiler/assemble/assembler.h"
#include "compiler/assemble/process.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace sparsertc::testing {

/// Sets an environment variable as long as it lives.
class Environment {
public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name))
      old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (old_)
      setenv(name_, old_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

private:
  const char* name_;
  std::optional<std::string> old_;
};

inline const std::string kHeader = ".version 8.0\n.target sm_90\n.address_size 64\n";
/// A program of one unit with the entry sparsertc_one.
inline const std::string kWhole = kHeader + R"(
.visible .entry sparsertc_one(.param .u64 p)
{
  .reg .b64 %rd<2>;
  .reg .f32 %f<2>;
  ld.param.u64 %rd1, [p];
  ld.global.f32 %f1, [%rd1];
  add.f32 %f1, %f1, 0f3F800000;
  st.global.f32 [%rd1], %f1;
  ret;
}
)";
/// The entry sparsertc_many of a program of `count` units, which calls a function of each of the
/// others.
inline std::string caller(unsigned count) {
  std::string text = kHeader;
  for (unsigned i = 0; i < count; ++i)
    text += ".extern .func tile_" + std::to_string(i) + "(.param .b64 p);\n";
  text += ".visible .entry sparsertc_many(.param .u64 p)\n{\n  .reg .b64 %rd<2>;\n"
          "  ld.param.u64 %rd1, [p];\n";
  for (unsigned i = 0; i < count; ++i)
    text += "  { .param .b64 q; st.param.b64 [q], %rd1; call.uni tile_" + std::to_string(i) +
            ", (q); }\n";
  return text + "  ret;\n}\n";
}
/// One of those functions; `operation` is on line 10.
inline std::string callee(unsigned number, const std::string& operation = "add.f32") {
  return kHeader + ".visible .func tile_" + std::to_string(number) +
         "(.param .b64 p)\n{\n  .reg .b64 %rd<2>;\n  .reg .f32 %f<2>;\n"
         "  ld.param.u64 %rd1, [p];\n  ld.global.f32 %f1, [%rd1];\n  " +
         operation + " %f1, %f1, 0f3F800000;\n  st.global.f32 [%rd1], %f1;\n  ret;\n}\n";
}

inline size_t entries_of(const std::string& directory) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Temporary files go to a folder that the test can look into.
struct Scene {
  TemporaryDirectory root;
  Environment temporary{"TMPDIR", root.path()};
  TemporaryDirectory kept;
  AssembleRequest request;
  std::vector<std::string> units;

  AssembleRequest& prepare(std::vector<std::string> texts, std::vector<std::string> kernels) {
    units = std::move(texts);
    request.units = units;
    request.target = "sm_90";
    request.kernels = std::move(kernels);
    request.reproduce_directory = kept.path();
    return request;
  }
  /// Only the folder for what failed is left.
  bool is_clean() const { return entries_of(root.path()) == 1; }
  /// The folder with the one failure that was kept.
  std::filesystem::path kept_failure() const {
    REQUIRE(entries_of(kept.path()) == 1);
    return std::filesystem::directory_iterator(kept.path())->path();
  }
};

template <typename Exception>
std::string message_of(const Assembler& assembler, const AssembleRequest& request) {
  try {
    assembler.assemble(request);
  } catch (const Exception& error) {
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

inline const FunctionResources& find(const Assembled& result, const std::string& name) {
  for (const FunctionResources& one : result.functions)
    if (one.name == name)
      return one;
  FAIL("no function " << name);
  return result.functions.front();
}

} // namespace sparsertc::testing
