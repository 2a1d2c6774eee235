// Sparse LU through the C API: in host memory, and on a device without a GPU whose kernels are
// interpreted. Residuals are in double precision.
#include "tests/support/lu_contexts.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

using namespace sparsertc;
using namespace sparsertc::test;
using Catch::Contains;

extern "C" {
size_t c_size_of_lu_info(void);
size_t c_size_of_lu_structure(void);
size_t c_size_of_lu_workspace(void);
size_t c_size_of_lu_matrix(void);
size_t c_size_of_lu_system(void);
size_t c_size_of_lu_factor_status(void);
size_t c_size_of_lu_assessment(void);
size_t c_size_of_lu_refinement(void);
}

namespace {

constexpr uint64_t kSeed = 20260;

/// What a solve without refinement may leave: pivots are dominant, so nothing grows.
double residual_bound(const LuSession& session) {
  const bool single = std::string(session.info().factor_dtype) == "f32" ||
                      std::string(session.info().factor_dtype) == "c64";
  const double unit = single ? 0x1p-24 : 0x1p-53;
  return 4 * (static_cast<double>(session.info().n) + 4) * unit;
}

/// Refactors with several values; all ways to solve, or, where that takes long, each once.
void check_solves(LuSession& session, Matrix a, Random& random, int64_t sides_at_once,
                  bool thorough) {
  const uint64_t n = a.pattern.rows;
  const uint64_t parts = a.imaginary.empty() ? 1 : 2;
  for (int round = 0; round < 2; ++round) {
    if (round > 0)
      replace_values(a, random);
    session.refactor(a);
    if (round == 0 && !thorough)
      continue;
    const sparsertc_lu_factor_status status = session.status();
    CHECK(status.outcome == SPARSERTC_OUTCOME_OK);
    CHECK(status.perturbations == 0);
    CHECK(std::string(status.reason).empty());
    for (const int64_t sides : {int64_t{1}, sides_at_once, 2 * sides_at_once + 1})
      for (const bool transposed : {false, true})
        for (const bool in_place : {false, true}) {
          if (!thorough && (in_place != transposed || sides == sides_at_once))
            continue;
          const std::vector<double> b =
              random_parts(random, n * static_cast<uint64_t>(sides) * parts);
          const std::vector<double> x = session.solve(b, sides, transposed, in_place);
          // The right-hand side as the library has seen it, rounded to its type.
          const std::vector<double> given = session.unpacked(session.packed(b));
          CHECK(largest_residual(a, given, x, transposed) <= residual_bound(session));
        }
  }
}

/// L U = P R A C Q, entry by entry.
void check_factors(const LuHandle& lu, const LuSession& session, const Matrix& a) {
  sparsertc_lu_structure s;
  s.struct_size = sizeof s;
  require_ok(sparsertc_lu_get_structure(lu.get(), &s));
  const uint32_t n = a.pattern.rows;
  const uint64_t count = s.column_offsets[n];
  std::vector<double> f(count);
  require_ok(sparsertc_lu_get_factors(lu.get(), &session.workspace(), nullptr, f.data(), count));
  std::vector<std::vector<double>> l(n, std::vector<double>(n)), u = l, b = l;
  for (uint32_t j = 0; j < n; ++j) {
    for (uint64_t p = s.column_offsets[j]; p < s.column_offsets[j + 1]; ++p)
      (p > s.diagonal[j] ? l : u)[s.row_indices[p]][j] = f[p];
    l[j][j] = 1;
  }
  std::vector<uint32_t> row_at(n), column_at(n);
  for (uint32_t i = 0; i < n; ++i) {
    row_at[s.rows[i]] = i;
    column_at[s.columns[i]] = i;
  }
  for (uint32_t i = 0; i < n; ++i)
    for (uint64_t p = a.pattern.row_offset[i]; p < a.pattern.row_offset[i + 1]; ++p) {
      const uint32_t j = a.pattern.column_index[p];
      b[row_at[i]][column_at[j]] = a.values[p] * (s.row_scale ? s.row_scale[i] : 1) *
                                   (s.column_scale ? s.column_scale[j] : 1);
    }
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = 0; j < n; ++j) {
      double product = 0, sum = 0;
      for (uint32_t k = 0; k <= std::min(i, j); ++k) {
        product += l[i][k] * u[k][j];
        sum += std::abs(l[i][k] * u[k][j]);
      }
      CHECK(std::abs(product - b[i][j]) <= 4 * (n + 4) * 0x1p-53 * (sum + std::abs(b[i][j])));
    }
}

} // namespace

TEST_CASE("lu: the structs are the same in C and C++", "[lu_api]") {
  CHECK(c_size_of_lu_info() == sizeof(sparsertc_lu_info));
  CHECK(c_size_of_lu_structure() == sizeof(sparsertc_lu_structure));
  CHECK(c_size_of_lu_workspace() == sizeof(sparsertc_lu_workspace));
  CHECK(c_size_of_lu_matrix() == sizeof(sparsertc_lu_matrix));
  CHECK(c_size_of_lu_system() == sizeof(sparsertc_lu_system));
  CHECK(c_size_of_lu_factor_status() == sizeof(sparsertc_lu_factor_status));
  CHECK(c_size_of_lu_assessment() == sizeof(sparsertc_lu_assessment));
  CHECK(c_size_of_lu_refinement() == sizeof(sparsertc_lu_refinement));
}

TEST_CASE("lu: in host memory, every type", "[lu_api]") {
  Random random(test_seed(kSeed));
  const HostContext host;
  for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::f32, LuPrecision::mixed})
    for (const bool complex : {false, true}) {
      CAPTURE(static_cast<int>(precision), complex);
      const Matrix a = safe_matrix(random_square(random, 41, 3), random, complex);
      LuBundleChoice choice;
      choice.precision = precision;
      const LuHandle lu = load(host.context, lu_bundle(a, choice));
      LuSession session(host.context, true, lu.get());
      CHECK(session.info().code == SPARSERTC_CODE_NONE);
      check_solves(session, a, random, 4, true);
    }
}

TEST_CASE("lu: on the interpreter, every type", "[lu_api]") {
  Random random(test_seed(kSeed + 1));
  InterpretedContext there;
  for (const LuGpuSolve solve : {LuGpuSolve::dataflow, LuGpuSolve::block})
    for (const bool complex : {false, true})
      for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::f32, LuPrecision::mixed}) {
        CAPTURE(static_cast<int>(solve), static_cast<int>(precision), complex);
        const Matrix a = safe_matrix(random_square(random, 9, 2), random, complex);
        LuBundleChoice choice;
        choice.precision = precision;
        choice.target = "sm_80";
        choice.solve = solve;
        const LuHandle lu = load(there.context, lu_bundle(a, choice));
        LuSession session(there.context, false, lu.get(), 2);
        CHECK(session.info().code == SPARSERTC_CODE_PTX);
        CHECK(session.info().table_size > 0);
        check_solves(session, a, random, 2, false);
      }
}

TEST_CASE("lu: hostile shapes, on both", "[lu_api]") {
  Random random(test_seed(kSeed + 2));
  const HostContext host;
  InterpretedContext there;
  for (const NamedPattern& shape : hostile_squares(40)) {
    // Without a diagonal nothing is dominant; an empty row has no factorization.
    bool has_diagonal = true;
    for (uint32_t i = 0; i < shape.pattern.rows; ++i) {
      const auto row = shape.pattern.row(i);
      has_diagonal = has_diagonal && std::find(row.begin(), row.end(), i) != row.end();
    }
    if (!has_diagonal)
      continue;
    CAPTURE(shape.name);
    const Matrix a = safe_matrix(shape.pattern, random);
    LuBundleChoice choice;
    choice.target = "sm_80";
    const Bundle bundle = lu_bundle(a, choice);
    for (const bool on_host : {true, false}) {
      const sparsertc_context* const context = on_host ? host.context : there.context;
      const LuHandle lu = load(context, bundle);
      LuSession session(context, on_host, lu.get());
      check_solves(session, a, random, 1, on_host);
    }
  }
}

TEST_CASE("lu: factors, structure and what is known", "[lu_api]") {
  Random random(test_seed(kSeed + 3));
  const HostContext host;
  InterpretedContext there;
  const Matrix a = safe_matrix(random_square(random, 17, 3), random);
  LuBundleChoice choice;
  choice.target = "sm_80";
  const Bundle bundle = lu_bundle(a, choice);
  for (const bool on_host : {true, false}) {
    const sparsertc_context* const context = on_host ? host.context : there.context;
    const LuHandle lu = load(context, bundle);
    LuSession session(context, on_host, lu.get());
    const sparsertc_lu_info& info = session.info();
    CHECK(info.n == 17);
    CHECK(info.nnz == static_cast<int64_t>(a.pattern.nnz()));
    CHECK(info.nnz_l + info.nnz_u - info.n >= info.nnz);
    CHECK(info.flops > 0);
    CHECK(info.levels >= 1);
    CHECK(info.levels_forward >= 1);
    CHECK(info.levels_backward >= 1);
    CHECK(info.has_chosen == 1);
    CHECK(info.chosen_growth >= 1);
    CHECK(info.chosen_perturbations == 0);
    CHECK(info.has_transposed == 1);
    CHECK(std::string(info.dtype) == "f64");
    CHECK(std::string(info.target) == "sm_80");
    CHECK(std::string(info.pattern_digest) == pattern_digest(a.pattern));
    CHECK(nlohmann::json::parse(info.manifest)["family"] == "lu");
    session.refactor(a);
    CHECK(session.status().growth == Approx(info.chosen_growth));
    check_factors(lu, session, a);

    const std::vector<double> b = random_parts(random, 17);
    const std::vector<double> x = session.solve(b, 1, false, false);
    const LuMemory b_there(context, on_host, 17 * sizeof(double)),
        x_there(context, on_host, 17 * sizeof(double));
    b_there.write(session.packed(b));
    x_there.write(session.packed(x));
    const sparsertc_lu_matrix matrix = {sizeof matrix, session.values(), 0};
    const sparsertc_lu_system system = {sizeof system, b_there.address, x_there.address, 1, 0, 0};
    sparsertc_lu_assessment assessment;
    assessment.struct_size = sizeof assessment;
    require_ok(sparsertc_lu_assess(lu.get(), &matrix, &system, &session.workspace(), nullptr,
                                   &assessment));
    CHECK(assessment.residual == largest_residual(a, b, x, false));
    CHECK(assessment.condition >= 1);
    CHECK(assessment.condition < 1e4); // diagonally dominant
    CHECK(assessment.singular == 0);
  }
}

TEST_CASE("lu: what goes wrong stays in the status", "[lu_api]") {
  Random random(test_seed(kSeed + 4));
  const HostContext host;
  InterpretedContext there;
  const Matrix good = safe_matrix(random_square(random, 12, 3), random);
  LuBundleChoice choice;
  choice.target = "sm_80";
  const Bundle bundle = lu_bundle(good, choice);
  for (const bool on_host : {true, false}) {
    const sparsertc_context* const context = on_host ? host.context : there.context;
    const LuHandle lu = load(context, bundle);
    LuSession session(context, on_host, lu.get());
    sparsertc_lu_factor_status status;
    status.struct_size = sizeof status;
    check_refused(sparsertc_lu_status(lu.get(), &session.workspace(), nullptr, &status),
                  SPARSERTC_ERROR_INVALID_ARGUMENT, "nothing has been factorized");

    Matrix zero_column = good;
    for (uint64_t p = 0; p < good.pattern.nnz(); ++p)
      if (good.pattern.column_index[p] == 5)
        zero_column.values[p] = 0;
    session.refactor(zero_column);
    status = session.status();
    CHECK(status.outcome == SPARSERTC_OUTCOME_SINGULAR);
    CHECK(status.column == 5);

    Matrix with_nan = good;
    with_nan.values[3] = std::numeric_limits<double>::quiet_NaN();
    session.refactor(with_nan);
    CHECK(session.status().outcome == SPARSERTC_OUTCOME_NOT_FINITE);

    // The diagonal that was dominant is nothing beside the rest of its column now.
    Matrix stale = good;
    for (uint32_t i = 0; i < stale.pattern.rows; ++i)
      for (uint64_t p = stale.pattern.row_offset[i]; p < stale.pattern.row_offset[i + 1]; ++p)
        if (stale.pattern.column_index[p] == i)
          stale.values[p] *= 1e-14;
    session.refactor(stale);
    status = session.status();
    CHECK(status.outcome == SPARSERTC_OUTCOME_STALE);
    CHECK(status.perturbations > 0);
    CHECK(status.perturbed_row >= 0);
    CHECK_THAT(status.reason, Contains("replaced"));

    // Nothing of that stays: the next matrix is as if it were the first.
    session.refactor(good);
    CHECK(session.status().outcome == SPARSERTC_OUTCOME_OK);
    const std::vector<double> b = random_parts(random, 12);
    CHECK(largest_residual(good, b, session.solve(b, 1, false, false), false) <=
          residual_bound(session));
  }
}

TEST_CASE("lu: stale pivots are chosen anew by compiling with the new values", "[lu_api]") {
  Random random(test_seed(kSeed + 5));
  const HostContext host;
  Matrix a = safe_matrix(random_square(random, 30, 3), random);
  LuHandle lu = load(host.context, lu_bundle(a));
  for (uint32_t i = 0; i < a.pattern.rows; ++i)
    for (uint64_t p = a.pattern.row_offset[i]; p < a.pattern.row_offset[i + 1]; ++p)
      if (a.pattern.column_index[p] == i)
        a.values[p] *= 1e-12;
  {
    LuSession session(host.context, true, lu.get());
    session.refactor(a);
    REQUIRE(session.status().outcome == SPARSERTC_OUTCOME_STALE);
  }
  lu = load(host.context, lu_bundle(a));
  LuSession session(host.context, true, lu.get());
  session.refactor(a);
  const sparsertc_lu_factor_status status = session.status();
  CHECK(status.outcome == SPARSERTC_OUTCOME_OK);
  const std::vector<double> b = random_parts(random, 30);
  CHECK(largest_residual(a, b, session.solve(b, 1, false, false), false) <= 1e-12);
}

TEST_CASE("lu: an execution is launches and no other call of the driver", "[lu_api]") {
  Random random(test_seed(kSeed + 6));
  InterpretedContext there;
  const Matrix a = safe_matrix(random_square(random, 10, 2), random);
  for (const LuGpuSolve solve : {LuGpuSolve::dataflow, LuGpuSolve::block}) {
    LuBundleChoice choice;
    choice.target = "sm_80";
    choice.solve = solve;
    const LuHandle lu = load(there.context, lu_bundle(a, choice));
    LuSession session(there.context, false, lu.get(), 3);
    session.refactor(a);
    const LuMemory x(there.context, false, 3 * 10 * sizeof(double));
    const sparsertc_lu_matrix matrix = {sizeof matrix, session.values(), 0};
    const sparsertc_lu_system system = {sizeof system, x.address, x.address, 3, 0, 0};
    const size_t before = there.fake.calls().size();
    const auto stream = reinterpret_cast<void*>(0x77);
    require_ok(sparsertc_lu_refactor(lu.get(), &matrix, &session.workspace(), stream));
    require_ok(sparsertc_lu_solve(lu.get(), &system, &session.workspace(), stream));
    const std::vector<std::string> calls = there.fake.calls();
    REQUIRE(calls.size() == before + 4);
    for (size_t i = before; i < calls.size(); ++i)
      CHECK_THAT(calls[i], Contains("Launch"));
    for (size_t i = there.fake.launches.size() - 4; i < there.fake.launches.size(); ++i)
      CHECK(reinterpret_cast<void*>(there.fake.launches[i].stream) == stream);
    // Nothing to solve is no launch.
    sparsertc_lu_system nothing = system;
    nothing.right_sides = 0;
    require_ok(sparsertc_lu_solve(lu.get(), &nothing, &session.workspace(), stream));
    CHECK(there.fake.calls().size() == before + 4);
  }
}

TEST_CASE("lu: arguments that cannot be are refused, and nothing is launched", "[lu_api]") {
  Random random(test_seed(kSeed + 7));
  InterpretedContext there;
  const Matrix a = safe_matrix(random_square(random, 10, 2), random);
  LuBundleChoice choice;
  choice.target = "sm_80";
  choice.transposed = false;
  choice.solve = LuGpuSolve::dataflow;
  const LuHandle lu = load(there.context, lu_bundle(a, choice));
  LuSession session(there.context, false, lu.get());
  const LuMemory vectors(there.context, false, 4 * 10 * sizeof(double));
  const auto behind = [](const void* address, size_t bytes) {
    return static_cast<void*>(const_cast<char*>(static_cast<const char*>(address)) + bytes);
  };
  const size_t launches = there.fake.launches.size();
  const sparsertc_lu_matrix good_matrix = {sizeof good_matrix, session.values(), 0};
  const sparsertc_lu_system good_system = {
      sizeof good_system, vectors.address, behind(vectors.address, 80), 1, 0, 0};
  const auto refuse_matrix = [&](const char* text, auto change) {
    sparsertc_lu_matrix matrix = good_matrix;
    sparsertc_lu_workspace workspace = session.workspace();
    change(matrix, workspace);
    check_refused(sparsertc_lu_refactor(lu.get(), &matrix, &workspace, nullptr),
                  SPARSERTC_ERROR_INVALID_ARGUMENT, text);
  };
  refuse_matrix("values is a null", [](auto& m, auto&) { m.values = nullptr; });
  refuse_matrix("values is not aligned to 8",
                [&](auto& m, auto&) { m.values = behind(m.values, 4); });
  refuse_matrix("pivot threshold of 1", [](auto& m, auto&) { m.pivot_threshold = 1; });
  refuse_matrix("pivot threshold of -", [](auto& m, auto&) { m.pivot_threshold = -0.5; });
  refuse_matrix("struct_size is 8", [](auto& m, auto&) { m.struct_size = 8; });
  refuse_matrix("workspace is a null", [](auto&, auto& w) { w.memory = nullptr; });
  refuse_matrix("not aligned to 256", [&](auto&, auto& w) { w.memory = behind(w.memory, 64); });
  refuse_matrix("the workspace has 100 bytes", [](auto&, auto& w) { w.bytes = 100; });
  const auto refuse_system = [&](const char* text, auto change) {
    sparsertc_lu_system system = good_system;
    sparsertc_lu_workspace workspace = session.workspace();
    change(system, workspace);
    check_refused(sparsertc_lu_solve(lu.get(), &system, &workspace, nullptr),
                  SPARSERTC_ERROR_INVALID_ARGUMENT, text);
  };
  refuse_system("b is a null", [](auto& s, auto&) { s.b = nullptr; });
  refuse_system("x is a null", [](auto& s, auto&) { s.x = nullptr; });
  refuse_system("x is not aligned", [&](auto& s, auto&) { s.x = behind(s.x, 1); });
  refuse_system("overlap", [&](auto& s, auto&) { s.x = behind(s.b, 8); });
  refuse_system("x lies in the workspace", [&](auto& s, auto& w) { s.x = behind(w.memory, 8); });
  refuse_system("right_sides is -1", [](auto& s, auto&) { s.right_sides = -1; });
  refuse_system("right-hand sides", [](auto& s, auto&) { s.right_sides = int64_t{1} << 40; });
  refuse_system("transposed is 2", [](auto& s, auto&) { s.transposed = 2; });
  refuse_system("without solves with the transposed", [](auto& s, auto&) { s.transposed = 1; });
  refuse_system("reserved", [](auto& s, auto&) { s.reserved = 1; });
  uint64_t least = 0;
  require_ok(sparsertc_lu_workspace_size(lu.get(), 0, &least));
  refuse_system("a right-hand side needs", [&](auto&, auto& w) { w.bytes = least; });
  CHECK(there.fake.launches.size() == launches);

  const auto invalid = [](sparsertc_result result, const char* text) {
    check_refused(result, SPARSERTC_ERROR_INVALID_ARGUMENT, text);
  };
  uint64_t bytes = 0;
  double number = 0;
  sparsertc_lu_info info = {};
  sparsertc_lu_factor_status status = {};
  invalid(sparsertc_lu_workspace_size(lu.get(), -1, &bytes), "right_sides is -1");
  invalid(sparsertc_lu_workspace_size(nullptr, 1, &bytes), "lu is a null");
  invalid(sparsertc_lu_query(lu.get(), &info), "struct_size is 0");
  invalid(sparsertc_lu_status(lu.get(), &session.workspace(), nullptr, &status),
          "struct_size is 0");
  invalid(sparsertc_lu_get_factors(lu.get(), &session.workspace(), nullptr, &number, 1),
          "count is 1");
  // Memory that nobody has initialised.
  const LuMemory other(there.context, false, session.workspace().bytes);
  const sparsertc_lu_workspace raw = {sizeof raw, other.address, session.workspace().bytes};
  status.struct_size = sizeof status;
  invalid(sparsertc_lu_status(lu.get(), &raw, nullptr, &status), "holds no status record");
  sparsertc_lu_destroy(nullptr);
}

TEST_CASE("lu: a failure at every call of the driver", "[lu_api]") {
  Random random(test_seed(kSeed + 8));
  const Matrix a = safe_matrix(random_square(random, 8, 2), random);
  for (const LuGpuSolve solve : {LuGpuSolve::dataflow, LuGpuSolve::block}) {
    InterpretedContext there;
    LuBundleChoice choice;
    choice.target = "sm_80";
    choice.solve = solve;
    const Bundle bundle = lu_bundle(a, choice);
    const std::vector<double> b = random_parts(random, 8);
    const auto whole_life = [&] {
      const LuHandle lu = load(there.context, bundle);
      LuSession session(there.context, false, lu.get());
      session.refactor(a);
      return session.solve(b, 1, false, false);
    };
    const uint64_t failures = fail_at_every_call(
        there, whole_life, [&] { CHECK(largest_residual(a, b, whole_life(), false) <= 1e-14); });
    CHECK(failures > 30);
  }
}

TEST_CASE("lu: nothing is left behind", "[lu_api]") {
  Random random(test_seed(kSeed + 9));
  const Matrix a = safe_matrix(random_square(random, 8, 2), random);
  LuBundleChoice choice;
  choice.target = "sm_80";
  const Bundle bundle = lu_bundle(a, choice);
  InterpretedContext there;
  auto at_rest = there.fake.alive();
  // Loading fails at each of its calls in turn, until none is left to fail.
  for (uint64_t call = 1;; ++call) {
    there.fake.fail_call(call);
    sparsertc_lu* lu = nullptr;
    const sparsertc_result result = try_load(there.context, bundle, &lu);
    const std::string name = there.fake.failed_call();
    there.fake.fail_call(0);
    CAPTURE(call, name);
    if (result == SPARSERTC_OK) {
      sparsertc_lu_destroy(lu);
      if (name == "cuStreamDestroy") { // ignored, and the stream stays
        at_rest = there.fake.alive();
        continue;
      }
      CHECK(name.empty());
      CHECK(there.fake.alive() == at_rest);
      break;
    }
    CHECK(lu == nullptr);
    REQUIRE(sparsertc_result_name(result) == std::string("SPARSERTC_ERROR_MACHINE"));
    CHECK(there.fake.alive() == at_rest);
  }
}

TEST_CASE("lu: devices that cannot run a bundle", "[lu_api]") {
  Random random(test_seed(kSeed + 10));
  const Matrix a = safe_matrix(random_square(random, 8, 2), random);
  InterpretedContext there;
  const auto refused = [&](const LuBundleChoice& choice, const char* text) {
    sparsertc_lu* lu = nullptr;
    check_refused(try_load(there.context, lu_bundle(a, choice), &lu),
                  SPARSERTC_ERROR_UNSUPPORTED_DEVICE, text);
    CHECK(lu == nullptr);
  };
  LuBundleChoice choice;
  refused(choice, "compiled for the host");
  choice.target = "sm_80";
  choice.multiprocessors = 2;
  refused(choice, "its tables are for 2 multiprocessors, the device has 1");
  choice.multiprocessors = 1;
  choice.target = "sm_120";
  refused(choice, "the code is for sm_120");
  choice.target = "sm_80";
  load(there.context, lu_bundle(a, choice));
}
