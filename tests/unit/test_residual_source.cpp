// A residual's text before it is compiled: limits on loops, parameters' types, compilers' logs.
#include "ir/error.h"
#include "runtime/jacobian/compiler_log.h"
#include "runtime/jacobian/parameters.h"
#include "runtime/jacobian/source.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

using namespace sparsertc;
using namespace sparsertc::jacobian;
using Catch::Contains;

namespace {

std::string limited(const std::string& text) {
  return limit_loops({"F.cu", text});
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++found;
  return found;
}

std::string error_of(const std::string& log, const ResidualSource& source) {
  try {
    throw_compile_error(log, source);
  } catch (const UserError& error) {
    return error.what();
  }
}

} // namespace

TEST_CASE("loops: each kind counts its iterations, lines stay") {
  const std::string text = "void f() {\n"
                           "  for (int i = 0; i < 3; ++i)\n"
                           "    g(i);\n"
                           "  while (h()) { g(1); }\n"
                           "  do { g(2); while (k()) {} } while (h() || k());\n"
                           "  for (auto a : b) g(a);\n"
                           "}\n";
  const std::string made = limited(text);
  CHECK(count(made, "\n") == count(text, "\n"));
  CHECK(count(made, "LoopLimit sparsertc_loop(") == 5);
  CHECK(count(made, "sparsertc_loop.step()") == 5);
  CHECK_THAT(made, Contains("if (::sparsertc::LoopLimit sparsertc_loop(2); false) {} else for (int "
                            "i = 0; i < 3; ++i) if (sparsertc_loop.step(); false) {} else \n"));
  CHECK_THAT(made, Contains("while (sparsertc_loop.step() && ( h() || k()));") ||
                       Contains("while (sparsertc_loop.step() && (h() || k()));"));
}

TEST_CASE("loops: what only looks like one is left alone") {
  const std::string text =
      "// for (;;)\n/* while (1) */ int format(int); const char* s = \"for (\";"
      "\nconst char* r = R\"x(while (1))x\"; char c = '\\''; int whiles = 1'0;\n";
  CHECK(limited(text) == text);
}

TEST_CASE("loops: a pragma stays before its loop, and macros are limited, too") {
  const std::string made = limited("int a;\n#pragma unroll 4\nfor (;;) b();\n"
                                   "#define EACH(i) for (int i = 0; i < 4; ++i)\n");
  const size_t counter = made.find("LoopLimit"), pragma = made.find("#pragma");
  CHECK(counter < pragma);
  CHECK(count(made, "LoopLimit") == 2);
  CHECK(made.find("#pragma unroll 4\nfor (;;)") != std::string::npos);
}

TEST_CASE("loops: what cannot be limited is refused with its place") {
  CHECK_THROWS_WITH(limited("void f() {\nagain:\n  goto again;\n}"),
                    Contains("F.cu:3:3: error: goto"));
  CHECK_THROWS_WITH(limited("void f() { do g(); while (1); }"),
                    Contains("F.cu:1:12: error: a `do` whose body has no braces"));
}

TEST_CASE("residual: the name is looked for") {
  CHECK(line_of_residual({"F.cu", "// residual(\n\nvoid residual (int);\n"}) == 3);
  CHECK_THROWS_WITH(line_of_residual({"F.cu", "void residuals(int); // residual()\n"}),
                    Contains("F.cu: error: there is no residual"));
}

TEST_CASE("parameters: types by their values") {
  ParameterSet set;
  set.arrays.push_back({"a", std::vector<double>{1, 2}, false});
  set.arrays.push_back({"k", std::vector<int64_t>{1, 2, 3, 4, 5, 6}, true});
  set.arrays.push_back({"wide", std::vector<int64_t>{int64_t{1} << 40}, false});
  set.instances = 3;
  const std::string text = parameter_types(set);
  CHECK_THAT(text, Contains("View<Real, Real, false> a;") &&
                       Contains("View<long long, int, true> k;") &&
                       Contains("View<long long, long long, false> wide;") &&
                       Contains("long long size_k;"));
  CHECK(set.length(1) == 2);
  CHECK(stored_bytes(set.arrays[0], true).size() == 8);
  CHECK(stored_bytes(set.arrays[0], false).size() == 16);
  CHECK(stored_bytes(set.arrays[1], false).size() == 24);
  CHECK(stored_bytes(set.arrays[2], false).size() == 8);
  set.instances = 4;
  CHECK_THROWS_WITH(parameter_types(set), Contains("the parameter k has 6 numbers"));
  set.instances = 3;
  set.arrays.push_back({"a", std::vector<double>{1}, false});
  CHECK_THROWS_WITH(parameter_types(set), Contains("two parameters called a"));
  for (const char* name : {"", "2a", "a-b", "size_a", "x y", "for", "xor_eq"}) {
    set.arrays.back().name = name;
    CHECK_THROWS_WITH(parameter_types(set), Contains("cannot be a member"));
  }
}

TEST_CASE("logs: errors are shown at the user's lines, each once") {
  const ResidualSource source{"dir/F.cu", "\nvoid residual(int);\n"};
  const std::string nvrtc =
      "dir/F.cu(2): error: no instance of overloaded function \"tgamma\" matches the argument "
      "list\n"
      "            argument types are: (sparsertc::Dual<sparsertc::Real, sparsertc::Directions<1, "
      "sparsertc::SeedColumns<1>>>)\n    f = tgamma(x);\n        ^\n          detected during:\n"
      "            instantiation of \"void residual()\" at line 83 of sparsertc/kernels.cuh\n\n"
      "dir/F.cu(2): error: no instance of overloaded function \"tgamma\" matches the argument "
      "list\n"
      "            argument types are: (sparsertc::Dual<sparsertc::Real, sparsertc::Directions<2, "
      "sparsertc::SeedColumns<2>>>)\n\n"
      "sparsertc/dual.cuh(12): error: cannot divide\n          detected during:\n"
      "            instantiation of \"f\" at line 7 of dir/F.cu\n\n"
      "3 errors detected in the compilation of \"residual\".\n";
  const std::string from_nvrtc = error_of(nvrtc, source);
  CHECK_THAT(from_nvrtc, Contains("dir/F.cu:2:1: error: no instance of overloaded function "
                                  "\"tgamma\" matches the argument list; argument types are: "
                                  "(Dual)\n") &&
                             Contains("dir/F.cu:7:1: error: cannot divide"));
  CHECK(count(from_nvrtc, "tgamma") == 1);
  const std::string gcc = "dir/F.cu: In function 'f':\n"
                          "dir/F.cu:4:14: error: 'y' was not declared in this scope\n"
                          "    4 |   f = y;\n      |       ^\n"
                          "sparsertc/dual.cuh: In instantiation of 'x':\n"
                          "dir/F.cu:9:3:   required from here\n"
                          "sparsertc/dual.cuh:30:2: error: no type\n";
  CHECK(error_of(gcc, source) == "dir/F.cu:4:14: error: 'y' was not declared in this scope\n"
                                 "dir/F.cu:9:3: error: no type");
  CHECK_THAT(
      error_of("x(13): error: static assertion failed with \"SPARSERTC_NO_SIGNATURE\"", source),
      Contains("dir/F.cu:2:1: error: `residual` cannot be called as it should be"));
  CHECK_THROWS_AS(throw_compile_error("sparsertc/dual.cuh(3): error: no", source), InternalError);
  const std::string behind = "sparsertc/kernels.cuh(3): error: no namespace here";
  CHECK_THAT(error_of(behind, {"F.cu", "#define OPEN {\nvoid residual() {\n  a[1]; // }\n"}),
             Contains("F.cu:2:17: error: nothing closes what is opened here"));
  CHECK_THAT(error_of(behind, {"F.cu", "void residual() {\n  f(a[1);\n}"}),
             Contains("F.cu:1:17: error: nothing closes"));
}
