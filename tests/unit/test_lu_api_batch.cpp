// Batches of sparse LU through the C API: in host memory, and on a device whose kernels are
// interpreted, bit by bit beside one another.
#include "tests/support/lu_contexts.h"
#include "tests/support/lu_patterns.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using namespace sparsertc;
using namespace sparsertc::test;
using Catch::Contains;

extern "C" {
size_t c_size_of_lu_batch_matrices(void);
size_t c_size_of_lu_batch_systems(void);
}

namespace {

constexpr uint64_t kSeed = 20280;

sparsertc_lu_info info_of(const LuHandle& lu) {
  sparsertc_lu_info info;
  info.struct_size = sizeof info;
  require_ok(sparsertc_lu_query(lu.get(), &info));
  return info;
}

/// Numbers of a type, from double precision and back.
std::vector<uint8_t> packed(const std::vector<double>& parts, bool single) {
  std::vector<uint8_t> bytes(parts.size() * (single ? sizeof(float) : sizeof(double)));
  const std::vector<float> narrow(parts.begin(), parts.end());
  if (!bytes.empty())
    std::memcpy(bytes.data(),
                single ? static_cast<const void*>(narrow.data())
                       : static_cast<const void*>(parts.data()),
                bytes.size());
  return bytes;
}
std::vector<double> unpacked(const std::vector<uint8_t>& bytes, bool single) {
  if (single) {
    std::vector<float> narrow(bytes.size() / sizeof(float));
    std::memcpy(narrow.data(), bytes.data(), bytes.size());
    return {narrow.begin(), narrow.end()};
  }
  std::vector<double> parts(bytes.size() / sizeof(double));
  std::memcpy(parts.data(), bytes.data(), bytes.size());
  return parts;
}

/// rows[s] of `count` numbers of `parts` parts each, as [number][s][part].
std::vector<double> interleaved(const std::vector<std::vector<double>>& rows, uint64_t count,
                                uint64_t parts) {
  std::vector<double> result;
  for (uint64_t i = 0; i < count; ++i)
    for (const std::vector<double>& row : rows)
      for (uint64_t c = 0; c < parts; ++c)
        result.push_back(row[i * parts + c]);
  return result;
}

struct Solved {
  std::vector<std::vector<double>> x;
  std::vector<uint32_t> outcomes;
  std::vector<int64_t> perturbations;
};

/// Memory, factorization, solve and status of a batch; b of all ones.
Solved solve_batch(const sparsertc_context* context, bool on_host, const LuHandle& lu,
                   const std::vector<Matrix>& matrices, double threshold = 0) {
  const sparsertc_lu_info info = info_of(lu);
  const std::string type = info.dtype;
  const bool single = type == "f32" || type == "c64";
  const uint64_t parts = type[0] == 'c' ? 2 : 1, n = static_cast<uint64_t>(info.n),
                 nnz = static_cast<uint64_t>(info.nnz), count = matrices.size();
  std::vector<std::vector<double>> values;
  for (const Matrix& a : matrices)
    values.push_back(parts_of(a));
  uint64_t bytes = 0;
  require_ok(sparsertc_lu_batch_size(lu.get(), static_cast<int64_t>(count), &bytes));
  const LuMemory memory(context, on_host, bytes),
      given(context, on_host, nnz * count * info.element_size),
      b(context, on_host, n * count * info.element_size),
      x(context, on_host, n * count * info.element_size);
  given.write(packed(interleaved(values, nnz, parts), single));
  b.write(packed(std::vector<double>(n * count * parts, 1.0), single));
  const sparsertc_lu_workspace workspace = {sizeof workspace, memory.address, bytes};
  const sparsertc_lu_batch_matrices a = {sizeof a, static_cast<int64_t>(count), given.address,
                                         threshold};
  const sparsertc_lu_batch_systems systems = {sizeof systems, static_cast<int64_t>(count),
                                              b.address, x.address};
  require_ok(sparsertc_lu_batch_refactor(lu.get(), &a, &workspace, nullptr));
  require_ok(sparsertc_lu_batch_solve(lu.get(), &systems, &workspace, nullptr));
  Solved solved;
  solved.outcomes.assign(count, 99);
  solved.perturbations.assign(count, -1);
  require_ok(sparsertc_lu_batch_status(lu.get(), &workspace, nullptr, static_cast<int64_t>(count),
                                       solved.outcomes.data(), solved.perturbations.data()));
  const std::vector<double> all = unpacked(x.read(), single);
  for (uint64_t s = 0; s < count; ++s) {
    solved.x.emplace_back();
    for (uint64_t i = 0; i < n; ++i)
      for (uint64_t c = 0; c < parts; ++c)
        solved.x[s].push_back(all[(i * count + s) * parts + c]);
  }
  return solved;
}

std::vector<Matrix> like(Matrix a, Random& random, size_t count) {
  std::vector<Matrix> matrices;
  for (size_t s = 0; s < count; ++s) {
    replace_values(a, random);
    matrices.push_back(a);
  }
  return matrices;
}

/// Pivots are dominant, so nothing grows.
void check_solved(const std::vector<Matrix>& matrices, const Solved& solved, bool single) {
  for (size_t s = 0; s < matrices.size(); ++s) {
    CAPTURE(s);
    CHECK(solved.outcomes[s] == SPARSERTC_OUTCOME_OK);
    CHECK(solved.perturbations[s] == 0);
    const Matrix& a = matrices[s];
    const uint64_t parts = a.imaginary.empty() ? 1 : 2;
    const double unit = single ? 0x1p-24 : 0x1p-53;
    // Values were rounded on their way in.
    CHECK(largest_residual(a, std::vector<double>(a.pattern.rows * parts, 1.0), solved.x[s],
                           false) <= (4 * (a.pattern.rows + 4) + 2) * unit);
  }
}

LuBundleChoice batch_choice(const char* target, LuPrecision precision = LuPrecision::f64) {
  LuBundleChoice choice;
  choice.target = target;
  choice.precision = precision;
  choice.batch = true;
  return choice;
}

} // namespace

TEST_CASE("lu batch api: the structs are the same in C and C++", "[lu_api]") {
  CHECK(c_size_of_lu_batch_matrices() == sizeof(sparsertc_lu_batch_matrices));
  CHECK(c_size_of_lu_batch_systems() == sizeof(sparsertc_lu_batch_systems));
}

TEST_CASE("lu batch api: in host memory, every type", "[lu_api]") {
  Random random(test_seed(kSeed));
  const HostContext host;
  for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::f32})
    for (const bool complex : {false, true})
      for (const size_t count : {size_t{1}, size_t{35}}) {
        CAPTURE(static_cast<int>(precision), complex, count);
        const Matrix a = safe_matrix(random_square(random, 41, 3), random, complex);
        const LuHandle lu = load(host.context, lu_bundle(a, batch_choice("host", precision)));
        CHECK(info_of(lu).has_batch == 1);
        const std::vector<Matrix> matrices = like(a, random, count);
        const Solved solved = solve_batch(host.context, true, lu, matrices);
        check_solved(matrices, solved, precision == LuPrecision::f32);
      }
}

TEST_CASE("lu batch api: interpreted, unrolled and by tables, the bits of the host", "[lu_api]") {
  Random random(test_seed(kSeed + 1));
  const HostContext host;
  InterpretedContext there;
  for (const uint64_t budget : {uint64_t{300000}, uint64_t{0}})
    for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::f32}) {
      CAPTURE(budget, static_cast<int>(precision));
      const Matrix a = safe_matrix(random_square(random, 14, 3), random);
      LuBundleChoice choice = batch_choice("sm_80", precision);
      choice.batch_budget = budget;
      const Bundle bundle = lu_bundle(a, choice);
      const LuHandle lu = load(there.context, bundle), same = load(host.context, bundle);
      CHECK_THAT(info_of(lu).manifest,
                 Contains(budget == 0 ? "\"strategy\": \"looped\"" : "\"strategy\": \"unrolled\""));
      const std::vector<Matrix> matrices = like(a, random, 37);
      const Solved solved = solve_batch(there.context, false, lu, matrices);
      check_solved(matrices, solved, precision == LuPrecision::f32);
      CHECK(solve_batch(host.context, true, same, matrices).x == solved.x);
    }
}

TEST_CASE("lu batch api: complex matrices, interpreted", "[lu_api]") {
  Random random(test_seed(kSeed + 8));
  const HostContext host;
  InterpretedContext there;
  for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::f32}) {
    CAPTURE(static_cast<int>(precision));
    const Matrix a = safe_matrix(random_square(random, 11, 2), random, true);
    const Bundle bundle = lu_bundle(a, batch_choice("sm_80", precision));
    const LuHandle lu = load(there.context, bundle), same = load(host.context, bundle);
    const std::vector<Matrix> matrices = like(a, random, 34);
    const Solved solved = solve_batch(there.context, false, lu, matrices);
    check_solved(matrices, solved, precision == LuPrecision::f32);
    CHECK(solve_batch(host.context, true, same, matrices).x == solved.x);
  }
}

TEST_CASE("lu batch api: an empty matrix, no instances", "[lu_api]") {
  Random random(test_seed(kSeed + 2));
  const HostContext host;
  InterpretedContext there;
  for (const uint32_t n : {0u, 1u, 5u}) {
    std::vector<std::pair<uint32_t, uint32_t>> diagonal;
    for (uint32_t i = 0; i < n; ++i)
      diagonal.emplace_back(i, i);
    const Matrix a = safe_matrix(pattern_of(n, diagonal), random);
    const Bundle bundle = lu_bundle(a, batch_choice("sm_80"));
    for (const bool on_host : {true, false}) {
      CAPTURE(n, on_host);
      const sparsertc_context* const context = on_host ? host.context : there.context;
      const LuHandle lu = load(context, bundle);
      const std::vector<Matrix> matrices = like(a, random, 3);
      check_solved(matrices, solve_batch(context, on_host, lu, matrices), false);
      const size_t launches = there.fake.launches.size();
      CHECK(solve_batch(context, on_host, lu, {}).x.empty());
      CHECK(there.fake.launches.size() == launches);
    }
  }
}

TEST_CASE("lu batch api: each instance has its own status", "[lu_api]") {
  Random random(test_seed(kSeed + 3));
  const HostContext host;
  InterpretedContext there;
  const Matrix a = safe_matrix(random_square(random, 12, 3), random);
  const Bundle bundle = lu_bundle(a, batch_choice("sm_80"));
  std::vector<Matrix> matrices = like(a, random, 6);
  matrices[1].values[3] = std::numeric_limits<double>::quiet_NaN();
  for (uint64_t p = 0; p < a.pattern.nnz(); ++p)
    if (a.pattern.column_index[p] == 5)
      matrices[2].values[p] = 0;
  for (uint32_t i = 0; i < a.pattern.rows; ++i)
    for (uint64_t p = a.pattern.row_offset[i]; p < a.pattern.row_offset[i + 1]; ++p)
      if (a.pattern.column_index[p] == i)
        matrices[4].values[p] *= 1e-14;
  for (const bool on_host : {true, false}) {
    CAPTURE(on_host);
    const sparsertc_context* const context = on_host ? host.context : there.context;
    const LuHandle lu = load(context, bundle);
    const Solved solved = solve_batch(context, on_host, lu, matrices);
    CHECK(solved.outcomes ==
          std::vector<uint32_t>{SPARSERTC_OUTCOME_OK, SPARSERTC_OUTCOME_NOT_FINITE,
                                SPARSERTC_OUTCOME_NOT_FINITE, SPARSERTC_OUTCOME_OK,
                                SPARSERTC_OUTCOME_STALE, SPARSERTC_OUTCOME_OK});
    CHECK(solved.perturbations[0] == 0);
    CHECK(solved.perturbations[4] > 0);
    for (const size_t s : {size_t{0}, size_t{3}, size_t{5}})
      CHECK(largest_residual(matrices[s], std::vector<double>(12, 1.0), solved.x[s], false) <=
            1e-14);
    // The threshold is the caller's.
    const Solved replaced = solve_batch(context, on_host, lu, {matrices[0]}, 0.9999);
    CHECK(replaced.perturbations[0] > 0);
    CHECK(replaced.outcomes[0] == SPARSERTC_OUTCOME_STALE);
  }
}

TEST_CASE("lu batch api: a launch each, and no other call of the driver", "[lu_api]") {
  Random random(test_seed(kSeed + 4));
  InterpretedContext there;
  const Matrix a = safe_matrix(random_square(random, 10, 2), random);
  const LuHandle lu = load(there.context, lu_bundle(a, batch_choice("sm_80")));
  uint64_t bytes = 0;
  require_ok(sparsertc_lu_batch_size(lu.get(), 40, &bytes));
  const LuMemory memory(there.context, false, bytes),
      values(there.context, false, 40 * a.pattern.nnz() * sizeof(double)),
      vectors(there.context, false, 2 * 40 * 10 * sizeof(double));
  const sparsertc_lu_workspace workspace = {sizeof workspace, memory.address, bytes};
  const sparsertc_lu_batch_matrices matrices = {sizeof matrices, 40, values.address, 0};
  const sparsertc_lu_batch_systems systems = {sizeof systems, 40, vectors.address,
                                              static_cast<char*>(vectors.address) +
                                                  40 * 10 * sizeof(double)};
  const size_t before = there.fake.calls().size();
  const auto stream = reinterpret_cast<void*>(0x77);
  require_ok(sparsertc_lu_batch_refactor(lu.get(), &matrices, &workspace, stream));
  require_ok(sparsertc_lu_batch_solve(lu.get(), &systems, &workspace, stream));
  const std::vector<std::string> calls = there.fake.calls();
  REQUIRE(calls.size() == before + 2);
  for (size_t i = before; i < calls.size(); ++i)
    CHECK_THAT(calls[i], Contains("Launch"));
  CHECK(reinterpret_cast<void*>(there.fake.launches.back().stream) == stream);

  const size_t launches = there.fake.launches.size();
  const auto behind = [](const void* address, size_t distance) {
    return static_cast<void*>(const_cast<char*>(static_cast<const char*>(address)) + distance);
  };
  const auto refuse_matrices = [&](const char* text, auto change) {
    sparsertc_lu_batch_matrices given = matrices;
    sparsertc_lu_workspace space = workspace;
    change(given, space);
    check_refused(sparsertc_lu_batch_refactor(lu.get(), &given, &space, nullptr),
                  SPARSERTC_ERROR_INVALID_ARGUMENT, text);
  };
  refuse_matrices("values is a null", [](auto& m, auto&) { m.values = nullptr; });
  refuse_matrices("values is not aligned", [&](auto& m, auto&) { m.values = behind(m.values, 4); });
  refuse_matrices("pivot threshold of 1", [](auto& m, auto&) { m.pivot_threshold = 1; });
  refuse_matrices("instances is -1", [](auto& m, auto&) { m.instances = -1; });
  refuse_matrices("instances is 21", [](auto& m, auto&) { m.instances = int64_t{1} << 31; });
  refuse_matrices("struct_size is 8", [](auto& m, auto&) { m.struct_size = 8; });
  refuse_matrices("workspace is a null", [](auto&, auto& w) { w.memory = nullptr; });
  refuse_matrices("not aligned to 256", [&](auto&, auto& w) { w.memory = behind(w.memory, 64); });
  refuse_matrices("40 instances need", [](auto&, auto& w) { --w.bytes; });
  const auto refuse_systems = [&](const char* text, auto change) {
    sparsertc_lu_batch_systems given = systems;
    change(given);
    check_refused(sparsertc_lu_batch_solve(lu.get(), &given, &workspace, nullptr),
                  SPARSERTC_ERROR_INVALID_ARGUMENT, text);
  };
  refuse_systems("b is a null", [](auto& s) { s.b = nullptr; });
  refuse_systems("x is not aligned", [&](auto& s) { s.x = behind(s.x, 4); });
  refuse_systems("overlap", [&](auto& s) { s.x = behind(s.b, 80); });
  refuse_systems("overlap", [&](auto& s) { s.x = const_cast<void*>(s.b); });
  refuse_systems("x lies in the workspace", [&](auto& s) { s.x = workspace.memory; });
  CHECK(there.fake.launches.size() == launches);
  check_refused(sparsertc_lu_batch_status(lu.get(), &workspace, nullptr, 1000, nullptr, nullptr),
                SPARSERTC_ERROR_INVALID_ARGUMENT, "1000 instances need");
  check_refused(sparsertc_lu_batch_size(lu.get(), -1, &bytes), SPARSERTC_ERROR_INVALID_ARGUMENT,
                "instances is -1");
}

TEST_CASE("lu batch api: a failure at every call of the driver", "[lu_api]") {
  Random random(test_seed(kSeed + 5));
  const Matrix a = safe_matrix(random_square(random, 8, 2), random);
  const std::vector<Matrix> matrices = like(a, random, 3);
  for (const uint64_t budget : {uint64_t{300000}, uint64_t{0}}) {
    InterpretedContext there;
    LuBundleChoice choice = batch_choice("sm_80");
    choice.batch_budget = budget;
    const Bundle bundle = lu_bundle(a, choice);
    CAPTURE(budget);
    CHECK(fail_at_every_call(
              there, [&] { load(there.context, bundle); }, [] {}) > 10);
    const LuHandle lu = load(there.context, bundle);
    const auto solve = [&] { return solve_batch(there.context, false, lu, matrices); };
    const uint64_t failures =
        fail_at_every_call(there, solve, [&] { check_solved(matrices, solve(), false); });
    CHECK(failures > 10);
  }
}

TEST_CASE("lu batch api: bundles without batches, and what cannot be one", "[lu_api]") {
  Random random(test_seed(kSeed + 6));
  const HostContext host;
  const Matrix a = safe_matrix(random_square(random, 8, 2), random);
  const LuHandle lu = load(host.context, lu_bundle(a));
  CHECK(info_of(lu).has_batch == 0);
  uint64_t bytes = 0;
  check_refused(sparsertc_lu_batch_size(lu.get(), 1, &bytes), SPARSERTC_ERROR_INVALID_ARGUMENT,
                "compiled without batches");
  CHECK_THROWS_WITH(lu_bundle(a, batch_choice("host", LuPrecision::mixed)),
                    Contains("factors of the matrix's own type"));
}

TEST_CASE("lu batch bundle: damaged tables are refused or harmless", "[lu_bundle]") {
  const uint64_t seed = test_seed(kSeed + 7);
  Random random(seed);
  const HostContext host;
  uint64_t refused = 0, accepted = 0;
  for (int round = 0; round < 300; ++round) {
    CAPTURE(seed, round);
    const Matrix a = safe_matrix(random_square(random, 1 + random.below(10), 2), random);
    Bundle bundle = lu_bundle(a, batch_choice("host"));
    std::vector<uint8_t>& bytes = bundle.find("lu.batch")->bytes;
    const size_t at = random.below(static_cast<uint32_t>(bytes.size() / 4)) * 4;
    uint32_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    const uint32_t kind = random.below(4);
    word = kind == 0   ? word + 1
           : kind == 1 ? word - 1
           : kind == 2 ? UINT32_MAX
                       : static_cast<uint32_t>(random.bits());
    std::memcpy(bytes.data() + at, &word, sizeof word);
    sparsertc_lu* damaged = nullptr;
    const sparsertc_result result = try_load(host.context, bundle, &damaged);
    const LuHandle lu(damaged);
    if (result != SPARSERTC_OK) {
      CHECK(result == SPARSERTC_ERROR_INVALID_BUNDLE);
      ++refused;
      continue;
    }
    ++accepted; // other numbers are added: nothing may be touched that is not there
    solve_batch(host.context, true, lu, {a, a, a});
  }
  CHECK(refused > 50);
  CHECK(accepted > 10);
  // Cut short, and longer than it says.
  const Matrix a = safe_matrix(random_square(random, 5, 2), random);
  for (const int change : {-1, 1}) {
    Bundle bundle = lu_bundle(a, batch_choice("host"));
    std::vector<uint8_t>& bytes = bundle.find("lu.batch")->bytes;
    bytes.resize(bytes.size() + static_cast<size_t>(change));
    sparsertc_lu* lu = nullptr;
    check_refused(try_load(host.context, bundle, &lu), SPARSERTC_ERROR_INVALID_BUNDLE,
                  "lu.batch: ");
  }
  Bundle bundle = lu_bundle(a, batch_choice("host"));
  std::erase_if(bundle.sections, [](const Bundle::Section& s) { return s.name == "lu.batch"; });
  sparsertc_lu* lu = nullptr;
  check_refused(try_load(host.context, bundle, &lu), SPARSERTC_ERROR_INVALID_BUNDLE,
                "no section lu.batch");
}
