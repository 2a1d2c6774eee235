// Residuals on the CPU: compiled by the host's compiler, their patterns, Jacobians and errors.
#include "compiler/inspect/jacobian_schedule.h"
#include "ir/error.h"
#include "runtime/jacobian/program.h"
#include "tests/support/residuals.h"
#include "tests/support/temporary_folder.h"
#include "tools/jacobian_check.h"
#include "tools/jacobian_system.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

using namespace sparsertc;
using Catch::Contains;
using test::ResidualCase;

namespace {

bool have_compiler() {
  static const std::string reason = [] {
    try {
      host_compiler(nullptr).identity();
      return std::string();
    } catch (const RuntimeError& error) {
      return std::string(error.what());
    }
  }();
  if (!reason.empty())
    WARN("SKIPPED: " << reason);
  return reason.empty();
}

/// What the cases below compile is kept between them.
Cache& cache() {
  static const testing::TemporaryFolder folder;
  static Cache kept(folder.path());
  return kept;
}

JacobianRequest request_of(const ResidualCase& one) {
  JacobianRequest request;
  request.source = one.source;
  request.parameters = one.parameters;
  request.x0 = one.x0;
  request.points = 1; // what is known is the pattern at x0
  request.cache = &cache();
  return request;
}

JacobianRequest request_of(const std::string& text, uint64_t n) {
  JacobianRequest request;
  request.source = {"F.cu", text};
  request.x0.assign(n, 1.0);
  request.cache = &cache();
  return request;
}

std::string by_row(const std::string& body) {
  return "template <class T>\n__device__ void residual(Row i, Unknowns<T> x, const Parameters& p, "
         "T& "
         "f) {\n" +
         body + "\n}\n";
}

std::string error_of(const JacobianRequest& request) {
  try {
    JacobianFacts facts;
    make_host_system(request, facts);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

double largest_error(const ResidualCase& one, const JacobianFacts& facts,
                     const std::vector<double>& values) {
  double worst = 0;
  for (uint32_t i = 0; i < facts.pattern.rows; ++i)
    for (uint64_t k = facts.pattern.row_offset[i]; k < facts.pattern.row_offset[i + 1]; ++k)
      worst = std::max(
          worst, std::abs(values[k] - one.derivative(one.x0, i, facts.pattern.column_index[k])));
  return worst;
}

} // namespace

TEST_CASE("jacobian: patterns and values of known residuals") {
  if (!have_compiler())
    return;
  for (const ResidualCase& one : test::residual_cases()) {
    CAPTURE(one.name);
    JacobianFacts facts;
    const auto system = make_host_system(request_of(one), facts);
    CHECK(facts.by_row == one.by_row);
    CHECK(facts.pattern == one.pattern);
    std::vector<double> values(facts.pattern.nnz());
    system->jacobian(one.x0, values);
    CHECK(largest_error(one, facts, values) < 1e-13);
    const JacobianCheck check = check_jacobian(facts.pattern, values, *system, one.x0, 0, false, 1);
    CHECK(check.columns == one.x0.size());
    CAPTURE(check.worst);
    CHECK(check.passed());
    values[values.size() / 2] += 1;
    CHECK_FALSE(check_jacobian(facts.pattern, values, *system, one.x0, 0, false, 1).passed());
  }
}

TEST_CASE("jacobian: the same by every compression and width, in f32, and elsewhere stored") {
  if (!have_compiler())
    return;
  const ResidualCase one = test::brusselator(4);
  JacobianFacts facts;
  std::vector<double> expected(one.pattern.nnz());
  make_host_system(request_of(one), facts)->jacobian(one.x0, expected);
  struct Way {
    JacobianCompression compression;
    uint32_t width;
    bool f32, moved;
  };
  for (const Way& way : {Way{JacobianCompression::local, 1, false, true},
                         Way{JacobianCompression::local, 4, true, false},
                         Way{JacobianCompression::coloured, 4, false, false},
                         Way{JacobianCompression::coloured, 8, false, true}}) {
    CAPTURE(static_cast<int>(way.compression), way.width, way.f32, way.moved);
    JacobianRequest request = request_of(one);
    request.compression = way.compression;
    request.width = way.width;
    request.f32 = way.f32;
    const uint64_t nnz = expected.size();
    // Each second place is left free.
    for (uint64_t k = 0; way.moved && k < nnz; ++k)
      request.places.push_back(static_cast<uint32_t>(2 * (nnz - 1 - k)));
    const auto system = make_host_system(request, facts);
    CHECK(facts.schedule.chosen.compression == way.compression);
    std::vector<double> values(way.moved ? 2 * nnz - 1 : nnz, -7.0);
    system->jacobian(one.x0, values);
    for (uint64_t k = 0; k < nnz; ++k)
      CHECK(values[way.moved ? request.places[k] : k] ==
            Approx(expected[k]).epsilon(way.f32 ? 1e-5 : 1e-14).margin(way.f32 ? 1e-5 : 1e-14));
    if (way.moved)
      CHECK(values[1] == -7.0);
  }
}

TEST_CASE("jacobian: by the terms of sums, as by rows") {
  if (!have_compiler())
    return;
  // One sum within a function; a second one that uses the first in every fifth row; terms that read
  // what others read; rows without a term; sums of which nothing moves the row.
  const std::string text = by_row(R"(
  const int n = x.size();
  const T first = sum_over(0, i % 6, [&](long long k) {
    return sin(x[(i + k + 1) % n]) * x[i] + (k == 2 ? x[(i + 1) % n] : T(0));
  });
  f = x[i] * x[i] + (i % 4 == 0 ? sqrt(first * first) : exp(first));
  if (i % 5 == 0)
    f += sum_over(0, 3, [&](long long k) { return first * x[k] + cos(first); });
)");
  for (const uint64_t n : {uint64_t{9}, uint64_t{1200}}) {
    CAPTURE(n);
    JacobianRequest request = request_of(text, n);
    for (uint64_t j = 0; j < n; ++j)
      request.x0[j] = 0.2 + 0.1 * static_cast<double>(j % 7);
    JacobianFacts facts;
    request.compression = JacobianCompression::local;
    const auto rows = make_host_system(request, facts);
    std::vector<double> expected(facts.pattern.nnz()), values(expected.size(), -7);
    rows->jacobian(request.x0, expected);
    TaskPool pool(3);
    request.pool = &pool;
    request.compression = JacobianCompression::terms;
    const auto terms = make_host_system(request, facts);
    CHECK(facts.schedule.chosen.term_tasks > 0);
    CHECK(facts.schedule.chosen.term_tasks < facts.schedule.chosen.tasks);
    terms->jacobian(request.x0, values);
    double worst = 0;
    for (size_t k = 0; k < values.size(); ++k)
      worst = std::max(worst, std::abs(values[k] - expected[k]) / (1 + std::abs(expected[k])));
    CHECK(worst < 1e-14);
    // The same numbers by one thread.
    request.pool = nullptr;
    std::vector<double> again(values.size());
    make_host_system(request, facts)->jacobian(request.x0, again);
    CHECK(again == values);
  }
  // What is not asked for is chosen where it is predicted to be faster.
  const ResidualCase graph = test::weighted_graph(60);
  JacobianFacts facts;
  const auto system = make_host_system(request_of(graph), facts);
  CHECK(facts.schedule.chosen.compression == JacobianCompression::terms);
}

TEST_CASE("jacobian: a mistake on another thread is told") {
  if (!have_compiler())
    return;
  JacobianRequest request =
      request_of(by_row("f = x[i + (x[0] > 2 && i == 1900 ? 500 : 0)];"), 2000);
  TaskPool pool(3);
  request.pool = &pool;
  JacobianFacts facts;
  const auto system = make_host_system(request, facts);
  std::vector<double> x(2000, 3.0), f(2000);
  CHECK_THROWS_WITH(system->residual(x, f), Contains("unknown x[2400] was read"));
  x[0] = 1;
  system->residual(x, f);
  CHECK(f[7] == 3);
}

TEST_CASE("jacobian: instances have parameters of their own") {
  if (!have_compiler())
    return;
  JacobianRequest request = request_of(by_row("  f = p.a[i] * x[i] * x[i] + p.b[0];"), 2);
  request.parameters.instances = 3;
  request.parameters.arrays.push_back({"a", std::vector<double>{1, 2, 3, 10, 20, 30}, true});
  request.parameters.arrays.push_back({"b", std::vector<double>{0.5}, false});
  JacobianFacts facts;
  const auto system = make_host_system(request, facts);
  CHECK(system->instances() == 3);
  const std::vector<double> x = {2, 3};
  std::vector<double> f(2), values(2);
  system->residual(x, f, 1);
  CHECK(f == std::vector<double>{8.5, 180.5});
  system->jacobian(x, values, 2);
  CHECK(values == std::vector<double>{12, 180});
}

TEST_CASE("jacobian: a given pattern is checked") {
  if (!have_compiler())
    return;
  const ResidualCase one = test::brusselator(4);
  JacobianRequest request = request_of(one);
  request.pattern = one.pattern;
  CHECK(error_of(request) == "no error");
  // Larger than needed: said where it is compared.
  request.pattern = test::dense_squares(32).pattern;
  request.compare_patterns = true;
  JacobianFacts facts;
  make_host_system(request, facts);
  CHECK(facts.unused_entries == 32 * 32 - one.pattern.nnz());
  // Entry (5, 7) is missing: found by a random probe, and by comparing.
  Pattern small;
  small.rows = small.columns = 32;
  for (uint32_t i = 0; i < 32; ++i) {
    for (const uint32_t j : one.pattern.row(i))
      if (i != 5 || j != 7)
        small.column_index.push_back(j);
    small.row_offset.push_back(small.column_index.size());
  }
  REQUIRE(small.nnz() + 1 == one.pattern.nnz());
  request.pattern = small;
  CHECK_THAT(error_of(request),
             Contains("the pattern is too small: residual 5 depends on unknown 7\n"));
  request.compare_patterns = false;
  CHECK_THAT(error_of(request), Contains("the pattern is too small: residual 5 depends on unknown "
                                         "7, with the derivative 0.8 at the start"));
  request.pattern = test::dense_squares(3).pattern;
  CHECK_THAT(error_of(request), Contains("the pattern is 3 x 3, but there are 32 unknowns"));
}

TEST_CASE("jacobian: points around the start find the other side of a branch") {
  if (!have_compiler())
    return;
  JacobianRequest request =
      request_of(by_row("  f = x[i];\n  if (x[i] > 1)\n    f += x[(i + 1) % x.size()];"), 50);
  request.points = 1;
  JacobianFacts facts;
  make_host_system(request, facts);
  CHECK(facts.pattern.nnz() == 50); // at 1 itself
  request.points = 12;
  make_host_system(request, facts);
  CHECK(facts.pattern.nnz() == 100);
}

TEST_CASE("jacobian: mistakes are told with the user's line") {
  if (!have_compiler())
    return;
  CHECK_THAT(error_of(request_of("int main() { return 0; }\n", 3)),
             Contains("F.cu: error: there is no residual"));
  CHECK_THAT(
      error_of(request_of("\ntemplate <class T> __device__ void residual(int i, T x) {}\n", 3)),
      Contains("F.cu:2:1: error: `residual` cannot be called as it should be"));
  CHECK_THAT(
      error_of(request_of("template <class T> __device__ void residual(Row i, Unknowns<T> x, "
                          "const Parameters& p, T f) { f = x[i]; }\n",
                          3)),
      Contains("F.cu:1:1: error: `residual` cannot be called as it should be"));
  CHECK_THAT(error_of(request_of(by_row("  f = x[i];\n  f += nothing;"), 3)),
             Contains("F.cu:4:") && Contains("nothing"));
  CHECK_THAT(error_of(request_of(by_row("  f = tgamma(x[i]);"), 3)),
             Contains("F.cu:3:") && Contains("tgamma(Dual)") &&
                 Contains("note: Dual is a number with derivatives"));
  CHECK_THAT(error_of(request_of(by_row("  f = x[i] * p.missing[i];"), 3)),
             Contains("F.cu:3:") && Contains("missing"));
  CHECK_THAT(error_of(request_of(by_row("  int k = x[i];\n  f = x[k];"), 3)),
             Contains("F.cu:3:") && Contains("int"));
  CHECK_THAT(error_of(request_of(by_row("  f = x[i + 1];"), 3)),
             Contains("F.cu: error: unknown x[3] was read, but there are 3 unknowns"));
  JacobianRequest short_parameter = request_of(by_row("  f = x[i] * p.a[i - 1];"), 3);
  short_parameter.parameters.arrays.push_back({"a", std::vector<double>{1, 2, 3}, false});
  CHECK_THAT(error_of(short_parameter),
             Contains("F.cu: error: entry -1 of the parameter a was read, which has 3"));
  CHECK_THAT(error_of(request_of("template <class T> __device__ void residual(Unknowns<T> x, const "
                                 "Parameters& p, Residuals<T> f) { f[3] = x[0]; }\n",
                                 3)),
             Contains("F.cu: error: residual f[3] was asked for, but there are 3"));
}

TEST_CASE("jacobian: a loop without end is ended") {
  if (!have_compiler())
    return;
  JacobianRequest request = request_of(by_row("  f = x[i];\n  while (f > 0) {\n  }"), 3);
  request.loop_limit = 5000;
  CHECK_THAT(error_of(request),
             Contains("F.cu:4:1: error: the loop took more than 5000 iterations"));
  request.source.text = by_row("  f = x[i];\n  do {\n    f = f + 0;\n  } while (true);");
  CHECK_THAT(error_of(request), Contains("F.cu:4:1: error: the loop took more than 5000"));
  request.source.text = by_row("  for (;;) f = x[i];");
  CHECK_THAT(error_of(request), Contains("F.cu:3:1: error: the loop took more than 5000"));
  // As many as are allowed; none where there is no limit.
  request.source.text = by_row("  f = x[i];\n  for (int k = 0; k < 5000; ++k)\n    f += 1;");
  CHECK(error_of(request) == "no error");
  request.source.text = by_row("  f = x[i];\n  for (int k = 0; k < 5001; ++k)\n    f += 1;");
  CHECK_THAT(error_of(request), Contains("F.cu:4:1: error: the loop took more than 5000"));
  request.loop_limit = 0;
  CHECK(error_of(request) == "no error");
}

TEST_CASE("jacobian: a sum inside of a sum is refused, one after the other is not") {
  if (!have_compiler())
    return;
  const std::string inner = "sum_over(0, 2, [&](long long k) { return x[k]; })";
  JacobianRequest request = request_of(
      by_row("  f = sum_over(0, 2, [&](long long) {\n    return " + inner + ";\n  });"), 3);
  CHECK_THAT(error_of(request), Contains("F.cu:4:1: error: sum_over stands inside of another one"));
  CHECK_THAT(error_of(request), Contains("F.cu:4:1: error: sum_over stands inside of another one"));
  request.source.text = by_row("  f = " + inner + " * " + inner + ";");
  CHECK(error_of(request) == "no error");
  request.source.text = by_row("  f = sum_over(0, 5001, [&](long long) { return x[i]; });");
  request.loop_limit = 5000;
  CHECK_THAT(error_of(request), Contains("F.cu:3:1: error: the loop took more than 5000"));
  request.loop_limit = 0;
  CHECK(error_of(request) == "no error");
}

TEST_CASE("jacobian: what was compiled is kept") {
  if (!have_compiler())
    return;
  const testing::TemporaryFolder folder;
  Cache kept(folder.path());
  const jacobian::HostCompiler compiler = host_compiler(&kept);
  const jacobian::ResidualSource source{"F.cu", by_row("  f = x[i];")};
  jacobian::ProgramOptions options;
  options.entries = jacobian::inspection_entries();
  const std::string program = jacobian::make_program(source, {}, options);
  CHECK_FALSE(jacobian::HostProgram(compiler, program, source, {}).was_cached());
  CHECK(jacobian::HostProgram(compiler, program, source, {}).was_cached());
  CHECK(folder.names().size() == 1);
  options.loop_limit = 3;
  CHECK_FALSE(
      jacobian::HostProgram(compiler, jacobian::make_program(source, {}, options), source, {})
          .was_cached());
}

TEST_CASE("jacobian: without a compiler it is said which was looked for") {
  jacobian::HostCompiler compiler = host_compiler(nullptr);
  compiler.command = {"no-such-compiler-anywhere"};
  const jacobian::ResidualSource source{"F.cu", by_row("  f = x[i];")};
  jacobian::ProgramOptions options;
  options.entries = jacobian::inspection_entries();
  CHECK_THROWS_WITH(
      jacobian::HostProgram(compiler, jacobian::make_program(source, {}, options), source, {}),
      Contains("looking for a C++ compiler: `no-such-compiler-anywhere --version`") &&
          Contains("name it by CXX"));
}
