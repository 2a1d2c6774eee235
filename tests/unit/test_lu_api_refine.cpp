// Refined solves through the C API: in host memory, and on a device whose kernels are interpreted.
#include "runtime/plan/lu_manifest.h"
#include "tests/support/lu_contexts.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

using namespace sparsertc;
using namespace sparsertc::test;
using Catch::Contains;

namespace {

constexpr uint64_t kSeed = 20270;

/// The same matrix, each entry a little off.
Matrix near(Matrix a, Random& random) {
  for (double& value : a.values)
    value *= 1 + 1e-3 * random.symmetric();
  return a;
}

/// Of rows with a few entries: rounding of the residual as it is computed there and here.
constexpr double kNoise = 64 * 0x1p-53;
/// The same where solutions are in single precision: two roundings of each of them.
constexpr double kSingleNoise = 2 * 0x1p-24;

/// As numbers of a bundle in single precision hold them.
void round_to_single(std::vector<double>& values) {
  for (double& value : values)
    value = static_cast<float>(value);
}

/// Solves with factors of a matrix near A, of which a solve alone gets three digits; right-hand
/// sides go in turns where there are more than `room`, one is zero.
void check_refined(const sparsertc_context* context, bool on_host, const Bundle& bundle, Matrix a,
                   Random& random, int64_t room) {
  const LuHandle lu = load(context, bundle);
  LuSession session(context, on_host, lu.get(), room);
  REQUIRE(session.info().has_refinement == 1);
  const bool single = session.info().element_size == (a.imaginary.empty() ? 4 : 8);
  const double noise = single ? kSingleNoise : kNoise;
  if (single) {
    round_to_single(a.values);
    round_to_single(a.imaginary);
  }
  session.refactor(near(a, random));
  const uint64_t n = a.pattern.rows, parts = a.imaginary.empty() ? 1 : 2;
  for (const int64_t sides : {int64_t{1}, 2 * room + 1})
    for (const bool transposed : {false, true}) {
      CAPTURE(on_host, sides, transposed);
      std::vector<double> b = random_parts(random, n * static_cast<uint64_t>(sides) * parts);
      if (single)
        round_to_single(b);
      if (sides > 1)
        std::fill_n(b.begin(), n * parts, 0.0);
      // The first solution, as it is.
      const std::vector<double> first =
          session.solve_refined(a, b, sides, transposed, false, 0, 1e-15);
      double worst = 0;
      for (const LuSession::Refined& one : session.refined()) {
        CHECK(one.steps == 0);
        worst = std::max(worst, one.residual);
      }
      CHECK(worst == Approx(largest_residual(a, b, first, transposed)).epsilon(1e-6));
      CHECK(worst > 1e-7);

      const bool in_place = transposed;
      const std::vector<double> x =
          session.solve_refined(a, b, sides, transposed, in_place, 20, noise);
      worst = 0;
      REQUIRE(session.refined().size() == static_cast<size_t>(sides));
      for (size_t side = 0; side < session.refined().size(); ++side) {
        const LuSession::Refined& one = session.refined()[side];
        CAPTURE(side);
        CHECK(one.backward_error <= noise);
        CHECK(one.residual <= one.backward_error * 1.5);
        const bool zero = sides > 1 && side == 0;
        CHECK((one.steps == 0) == zero);
        CHECK(one.steps < 20);
        worst = std::max(worst, one.residual);
      }
      CHECK(largest_residual(a, b, x, transposed) <= worst + kNoise);
      // Without a target it is what the type of the solution allows.
      session.solve_refined(a, b, sides, transposed, false, 20);
      for (const LuSession::Refined& one : session.refined())
        CHECK(one.backward_error <= noise);
      // Same input, same bits; more steps than are needed change nothing.
      CHECK(session.solve_refined(a, b, sides, transposed, !in_place, 30, noise) == x);
    }
}

} // namespace

TEST_CASE("lu refined: in host memory, every type", "[lu_api]") {
  Random random(test_seed(kSeed));
  const HostContext host;
  for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::mixed, LuPrecision::f32})
    for (const bool complex : {false, true}) {
      CAPTURE(static_cast<int>(precision), complex);
      const Matrix a = safe_matrix(random_square(random, 41, 3), random, complex);
      LuBundleChoice choice;
      choice.precision = precision;
      check_refined(host.context, true, lu_bundle(a, choice), a, random, 2);
    }
}

TEST_CASE("lu refined: on the interpreter, every type", "[lu_api]") {
  Random random(test_seed(kSeed + 1));
  InterpretedContext there;
  for (const LuGpuSolve solve : {LuGpuSolve::dataflow, LuGpuSolve::block})
    for (const bool complex : {false, true})
      for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::mixed, LuPrecision::f32}) {
        CAPTURE(static_cast<int>(solve), static_cast<int>(precision), complex);
        const Matrix a = safe_matrix(random_square(random, 7, 2), random, complex);
        LuBundleChoice choice;
        choice.precision = precision;
        choice.target = "sm_80";
        choice.solve = solve;
        check_refined(there.context, false, lu_bundle(a, choice), a, random, 1);
      }
}

TEST_CASE("lu refined: empty and tiny matrices, no right-hand sides", "[lu_api]") {
  Random random(test_seed(kSeed + 2));
  const HostContext host;
  InterpretedContext there;
  for (const uint32_t n : {0u, 1u, 2u}) {
    std::vector<std::pair<uint32_t, uint32_t>> diagonal;
    for (uint32_t i = 0; i < n; ++i)
      diagonal.emplace_back(i, i);
    const Matrix a = safe_matrix(pattern_of(n, diagonal), random);
    LuBundleChoice choice;
    choice.target = "sm_80";
    const Bundle bundle = lu_bundle(a, choice);
    for (const bool on_host : {true, false}) {
      CAPTURE(n, on_host);
      const sparsertc_context* const context = on_host ? host.context : there.context;
      const LuHandle lu = load(context, bundle);
      LuSession session(context, on_host, lu.get(), 2);
      session.refactor(a);
      const std::vector<double> b = random_parts(random, 2 * n);
      const std::vector<double> x = session.solve_refined(a, b, 2, false, false, 3);
      CHECK(largest_residual(a, b, x, false) <= kNoise);
      for (const LuSession::Refined& one : session.refined())
        CHECK(one.backward_error <= kNoise);
      CHECK(session.solve_refined(a, {}, 0, false, false, 3).empty());
    }
  }
}

TEST_CASE("lu refined: factors that are no good are said to be", "[lu_api]") {
  Random random(test_seed(kSeed + 3));
  const HostContext host;
  InterpretedContext there;
  const Matrix a = safe_matrix(random_square(random, 9, 2), random);
  LuBundleChoice choice;
  choice.target = "sm_80";
  const Bundle bundle = lu_bundle(a, choice);
  Matrix zero = a;
  std::fill(zero.values.begin(), zero.values.end(), 0.0);
  for (const bool on_host : {true, false}) {
    CAPTURE(on_host);
    const sparsertc_context* const context = on_host ? host.context : there.context;
    const LuHandle lu = load(context, bundle);
    LuSession session(context, on_host, lu.get());
    session.refactor(zero);
    session.solve_refined(a, random_parts(random, 9), 1, false, false, 5);
    CHECK(std::isinf(session.refined()[0].backward_error));
    CHECK(std::isnan(session.refined()[0].residual));
  }
}

TEST_CASE("lu refined: launches and no other call of the driver", "[lu_api]") {
  Random random(test_seed(kSeed + 4));
  InterpretedContext there;
  const Matrix a = safe_matrix(random_square(random, 10, 2), random);
  for (const LuGpuSolve solve : {LuGpuSolve::dataflow, LuGpuSolve::block}) {
    LuBundleChoice choice;
    choice.target = "sm_80";
    choice.solve = solve;
    const LuHandle lu = load(there.context, lu_bundle(a, choice));
    LuSession session(there.context, false, lu.get(), 2);
    session.refactor(a);
    uint64_t bytes = 0;
    require_ok(sparsertc_lu_refinement_size(lu.get(), 2, &bytes));
    const LuMemory x(there.context, false, 2 * 10 * sizeof(double)),
        memory(there.context, false, bytes);
    const sparsertc_lu_matrix matrix = {sizeof matrix, session.values(), 0};
    const sparsertc_lu_system system = {sizeof system, x.address, x.address, 2, 0, 0};
    const sparsertc_lu_refinement refinement = {sizeof refinement, memory.address, bytes, 3, 0, 0};
    const size_t before = there.fake.calls().size();
    const auto stream = reinterpret_cast<void*>(0x77);
    require_ok(sparsertc_lu_solve_refined(lu.get(), &matrix, &system, &refinement,
                                          &session.workspace(), stream));
    const std::vector<std::string> calls = there.fake.calls();
    // Begin, end, the factors made ready for one block; of four solutions: the solve (two launches
    // by dataflow), update, residual, decision.
    const bool block = solve == LuGpuSolve::block;
    REQUIRE(calls.size() == before + 2 + (block ? 1 : 0) + 4 * (block ? 4 : 5));
    for (size_t i = before; i < calls.size(); ++i)
      CHECK_THAT(calls[i], Contains("Launch"));
    for (size_t i = there.fake.launches.size() - (calls.size() - before);
         i < there.fake.launches.size(); ++i)
      CHECK(reinterpret_cast<void*>(there.fake.launches[i].stream) == stream);
  }
}

TEST_CASE("lu refined: a failure at every call of the driver", "[lu_api]") {
  Random random(test_seed(kSeed + 5));
  const Matrix a = safe_matrix(random_square(random, 8, 2), random);
  InterpretedContext there;
  LuBundleChoice choice;
  choice.target = "sm_80";
  const LuHandle lu = load(there.context, lu_bundle(a, choice));
  LuSession session(there.context, false, lu.get());
  session.refactor(a);
  const std::vector<double> b = random_parts(random, 8);
  const auto solve = [&] { return session.solve_refined(a, b, 1, false, false, 2); };
  const uint64_t failures = fail_at_every_call(
      there, solve, [&] { CHECK(largest_residual(a, b, solve(), false) <= kNoise); });
  CHECK(failures > 15);
}

TEST_CASE("lu refined: what cannot be is refused", "[lu_api]") {
  Random random(test_seed(kSeed + 6));
  const HostContext host;
  InterpretedContext there;
  const Matrix a = safe_matrix(random_square(random, 10, 2), random);
  LuBundleChoice choice;
  choice.target = "sm_80";
  uint64_t bytes = 0;
  Bundle without = lu_bundle(a, choice);
  std::erase_if(without.sections, [](const Bundle::Section& section) {
    return section.name.starts_with(kLuRefinePart);
  });
  nlohmann::ordered_json manifest = nlohmann::ordered_json::parse(without.manifest);
  manifest["refinement"] = nullptr;
  without.manifest = manifest.dump();
  const LuHandle old = load(there.context, without);
  sparsertc_lu_info info;
  info.struct_size = sizeof info;
  require_ok(sparsertc_lu_query(old.get(), &info));
  CHECK(info.has_refinement == 0);
  check_refused(sparsertc_lu_refinement_size(old.get(), 1, &bytes),
                SPARSERTC_ERROR_INVALID_ARGUMENT, "the bundle was compiled without refinement");
  const LuHandle lu = load(there.context, lu_bundle(a, choice));
  LuSession session(there.context, false, lu.get());
  require_ok(sparsertc_lu_refinement_size(lu.get(), 1, &bytes));
  const LuMemory memory(there.context, false, bytes),
      vectors(there.context, false, 2 * 10 * sizeof(double));
  const sparsertc_lu_matrix matrix = {sizeof matrix, session.values(), 0};
  const sparsertc_lu_system good_system = {
      sizeof good_system, vectors.address, vectors.address, 1, 0, 0};
  const sparsertc_lu_refinement good = {sizeof good, memory.address, bytes, 3, 0, 0};
  const size_t launches = there.fake.launches.size();
  const auto refuse = [&](const char* text, auto change) {
    sparsertc_lu_system system = good_system;
    sparsertc_lu_refinement refinement = good;
    change(system, refinement);
    check_refused(sparsertc_lu_solve_refined(lu.get(), &matrix, &system, &refinement,
                                             &session.workspace(), nullptr),
                  SPARSERTC_ERROR_INVALID_ARGUMENT, text);
  };
  refuse("memory of the refinement is a null", [](auto&, auto& r) { r.memory = nullptr; });
  refuse("not aligned to 256",
         [](auto&, auto& r) { r.memory = static_cast<char*>(r.memory) + 64; });
  refuse("the refinement's memory has", [](auto&, auto& r) { --r.bytes; });
  refuse("x lies in the memory of the refinement", [](auto& s, auto& r) { s.x = r.memory; });
  refuse("2 right-hand sides need", [](auto& s, auto&) { s.right_sides = 2; });
  refuse("1001 steps", [](auto&, auto& r) { r.maximum_steps = 1001; });
  refuse("a target of -1", [](auto&, auto& r) { r.target = -1; });
  refuse("a target of nan", [](auto&, auto& r) { r.target = std::nan(""); });
  refuse("reserved", [](auto&, auto& r) { r.reserved = 1; });
  refuse("struct_size", [](auto&, auto& r) { r.struct_size = 8; });
  refuse("b is a null", [](auto& s, auto&) { s.b = nullptr; });
  CHECK(there.fake.launches.size() == launches);
  check_refused(sparsertc_lu_solve_refined(lu.get(), &matrix, &good_system, nullptr,
                                           &session.workspace(), nullptr),
                SPARSERTC_ERROR_INVALID_ARGUMENT, "refinement is a null");
  check_refused(
      sparsertc_lu_refinement_results(lu.get(), &good, nullptr, 2, nullptr, nullptr, nullptr),
      SPARSERTC_ERROR_INVALID_ARGUMENT, "2 right-hand sides need");
  check_refused(sparsertc_lu_refinement_size(lu.get(), -1, &bytes),
                SPARSERTC_ERROR_INVALID_ARGUMENT, "right_sides is -1");
}
