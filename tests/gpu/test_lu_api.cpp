// Sparse LU through the C API on the GPU: residuals against float64, memory poisoned by NaN first,
// captured into graphs, on several streams at once.
#include "compiler/input/read.h"
#include "runtime/plan/c_api.h"
#include "tests/gpu/gpu_spmm.h"
#include "tests/support/lu_patterns.h"
#include "tests/support/lu_session.h"
#include "tools/gpu_device.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace sparsertc;
using namespace sparsertc::test;

namespace {

bool has_gpu() {
  return Machine::get().gpu_or_skip("unit_lu_api") != nullptr;
}

class GpuContext {
public:
  GpuContext() { require_ok(sparsertc_context_create(0, &context)); }
  ~GpuContext() { sparsertc_context_destroy(context); }
  GpuContext(const GpuContext&) = delete;
  GpuContext& operator=(const GpuContext&) = delete;
  sparsertc_context* context = nullptr;
};

LuBundleChoice native_choice() {
  const cuda::Context& gpu = *Machine::get().gpu();
  LuBundleChoice choice;
  choice.target = target_of(gpu);
  choice.multiprocessors = gpu.properties().multiprocessors;
  return choice;
}

struct DestroyLu {
  void operator()(sparsertc_lu* lu) const { sparsertc_lu_destroy(lu); }
};
using LuHandle = std::unique_ptr<sparsertc_lu, DestroyLu>;

LuHandle load(const GpuContext& there, const Bundle& bundle) {
  const std::vector<uint8_t> bytes = serialize(bundle);
  sparsertc_lu* lu = nullptr;
  require_ok(sparsertc_lu_create(there.context, bytes.data(), bytes.size(), &lu));
  return LuHandle(lu);
}

/// What a solve without refinement may leave of matrices with heavy diagonals.
double residual_bound(const sparsertc_lu_info& info) {
  const bool single =
      info.factor_dtype == std::string("f32") || info.factor_dtype == std::string("c64");
  return 4 * (static_cast<double>(info.n) + 4) * (single ? 0x1p-24 : 0x1p-53);
}

void check_solves(LuSession& session, Matrix a, Random& random, int64_t most_sides) {
  const uint64_t n = a.pattern.rows, parts = a.imaginary.empty() ? 1 : 2;
  for (int round = 0; round < 2; ++round) {
    if (round > 0)
      replace_values(a, random);
    session.refactor(a);
    CHECK(session.status().outcome == SPARSERTC_OUTCOME_OK);
    for (const int64_t sides : {int64_t{1}, most_sides})
      for (const bool transposed : {false, true})
        for (const bool in_place : {false, true}) {
          const std::vector<double> b =
              random_parts(random, n * static_cast<uint64_t>(sides) * parts);
          const std::vector<double> x = session.solve(b, sides, transposed, in_place);
          CHECK(largest_residual(a, session.unpacked(session.packed(b)), x, transposed) <=
                residual_bound(session.info()));
        }
  }
}

} // namespace

TEST_CASE("lu api: every type, many right-hand sides, transposed, in place", "[sanitize]") {
  if (!has_gpu())
    return;
  Random random(test_seed(71));
  const GpuContext there;
  for (const LuGpuSolve solve : {LuGpuSolve::dataflow, LuGpuSolve::block})
    for (const bool complex : {false, true})
      for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::f32, LuPrecision::mixed}) {
        CAPTURE(static_cast<int>(solve), complex, static_cast<int>(precision));
        const Matrix a = safe_matrix(random_square(random, 150, 3), random, complex);
        LuBundleChoice choice = native_choice();
        choice.precision = precision;
        choice.solve = solve;
        const LuHandle lu = load(there, lu_bundle(a, choice));
        LuSession session(there.context, false, lu.get(), 4);
        check_solves(session, a, random, 11);
      }
}

TEST_CASE("lu api: captured into a graph and replayed with other numbers") {
  if (!has_gpu())
    return;
  Random random(test_seed(72));
  const GpuContext there;
  Matrix a = safe_matrix(random_square(random, 900, 3), random);
  for (const LuGpuSolve solve : {LuGpuSolve::dataflow, LuGpuSolve::block}) {
    LuBundleChoice choice = native_choice();
    choice.solve = solve;
    const LuHandle lu = load(there, lu_bundle(a, choice));
    LuSession session(there.context, false, lu.get(), 2);
    const uint64_t count = 2 * 900;
    const LuMemory values(there.context, false, a.pattern.nnz() * sizeof(double));
    const LuMemory b(there.context, false, count * sizeof(double));
    const LuMemory x(there.context, false, count * sizeof(double));
    const sparsertc_lu_matrix matrix = {sizeof matrix, values.address, 0};
    const sparsertc_lu_system system = {sizeof system, b.address, x.address, 2, 0, 0};

    const cuda::Context& gpu = *Machine::get().gpu();
    const cuda::DriverTable& api = gpu.api();
    const cuda::Stream stream(gpu);
    const auto ok = [](cuda::Result result) { REQUIRE(result == cuda::Result::CUDA_SUCCESS); };
    // These are the bundle's first executions.
    ok(api.cuStreamBeginCapture(stream.handle(), cuda::kCaptureModeThreadLocal));
    require_ok(sparsertc_lu_refactor(lu.get(), &matrix, &session.workspace(), stream.handle()));
    require_ok(sparsertc_lu_solve(lu.get(), &system, &session.workspace(), stream.handle()));
    cuda::GraphHandle graph = nullptr;
    ok(api.cuStreamEndCapture(stream.handle(), &graph));
    cuda::GraphExecHandle executable = nullptr;
    ok(api.cuGraphInstantiateWithFlags(&executable, graph, 0));
    ok(api.cuGraphDestroy(graph));
    for (int round = 0; round < 3; ++round) {
      replace_values(a, random);
      const std::vector<double> right = random_parts(random, count);
      values.write(session.packed(parts_of(a)));
      b.write(session.packed(right));
      x.write(std::vector<uint8_t>(count * sizeof(double), 0xFF));
      ok(api.cuGraphLaunch(executable, stream.handle()));
      CHECK(session.status(stream.handle()).outcome == SPARSERTC_OUTCOME_OK);
      CHECK(largest_residual(a, right, session.unpacked(x.read()), false) <=
            residual_bound(session.info()));
    }
    ok(api.cuGraphExecDestroy(executable));
  }
}

TEST_CASE("lu api: refined with factors of another matrix, captured", "[sanitize]") {
  if (!has_gpu())
    return;
  Random random(test_seed(75));
  const GpuContext there;
  for (const LuGpuSolve solve : {LuGpuSolve::dataflow, LuGpuSolve::block})
    for (const bool complex : {false, true})
      for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::mixed, LuPrecision::f32}) {
        CAPTURE(static_cast<int>(solve), complex, static_cast<int>(precision));
        const bool single = precision == LuPrecision::f32;
        const auto as_given = [&](std::vector<double> values) {
          for (double& value : values)
            value = single ? static_cast<float>(value) : value;
          return values;
        };
        Matrix a = safe_matrix(random_square(random, 150, 3), random, complex);
        a.values = as_given(a.values);
        a.imaginary = as_given(a.imaginary);
        LuBundleChoice choice = native_choice();
        choice.precision = precision;
        choice.solve = solve;
        const LuHandle lu = load(there, lu_bundle(a, choice));
        LuSession session(there.context, false, lu.get(), 2);
        Matrix near = a;
        for (double& value : near.values)
          value *= 1 + 1e-3 * random.symmetric();
        session.refactor(near);
        const double target = single ? 2 * 0x1p-24 : 256 * 0x1p-53;
        const uint64_t parts = complex ? 2 : 1;
        for (const bool transposed : {false, true}) {
          // Right-hand sides go in turns, as the workspace has room for two.
          const std::vector<double> b = as_given(random_parts(random, 150 * 5 * parts));
          const std::vector<double> x =
              session.solve_refined(a, b, 5, transposed, transposed, 12, target);
          double worst = 0;
          for (const LuSession::Refined& one : session.refined()) {
            CHECK(one.backward_error <= target);
            CHECK(one.steps > 0);
            worst = std::max(worst, one.residual);
          }
          CHECK(largest_residual(a, b, x, transposed) <= worst + 256 * 0x1p-53);
          CHECK(session.solve_refined(a, b, 5, transposed, !transposed, 20, target) == x);
        }
      }
}

TEST_CASE("lu api: batches, the bits of the host", "[sanitize]") {
  if (!has_gpu())
    return;
  Random random(test_seed(76));
  const GpuContext there;
  sparsertc_context* host = nullptr;
  require_ok(sparsertc_context_create(-1, &host));
  constexpr uint64_t kInstances = 75; // not a whole number of groups
  constexpr uint64_t kRows = 60, kBad = 7;
  for (const uint64_t budget : {uint64_t{300000}, uint64_t{0}})
    for (const LuPrecision precision : {LuPrecision::f64, LuPrecision::f32}) {
      CAPTURE(budget, static_cast<int>(precision));
      Matrix a = safe_matrix(random_square(random, kRows, 3), random);
      LuBundleChoice choice = native_choice();
      choice.precision = precision;
      choice.batch = true;
      choice.batch_budget = budget;
      const std::vector<uint8_t> bundle = serialize(lu_bundle(a, choice));
      const bool single = precision == LuPrecision::f32;
      const uint32_t element = single ? sizeof(float) : sizeof(double);
      const auto put = [&](std::vector<uint8_t>& to, uint64_t place, double value) {
        const float narrow = static_cast<float>(value);
        std::memcpy(to.data() + place * element,
                    single ? static_cast<const void*>(&narrow) : static_cast<const void*>(&value),
                    element);
      };
      std::vector<uint8_t> values(a.pattern.nnz() * kInstances * element),
          right(kRows * kInstances * element);
      for (uint64_t s = 0; s < kInstances; ++s) {
        replace_values(a, random);
        for (uint64_t p = 0; p < a.pattern.nnz(); ++p)
          put(values, p * kInstances + s, s == kBad && p == 3 ? std::nan("") : a.values[p]);
        for (uint64_t i = 0; i < kRows; ++i)
          put(right, i * kInstances + s, random.symmetric());
      }
      std::vector<uint8_t> found[2];
      for (const bool on_host : {true, false}) {
        const sparsertc_context* const context = on_host ? host : there.context;
        sparsertc_lu* made = nullptr;
        require_ok(sparsertc_lu_create(context, bundle.data(), bundle.size(), &made));
        const LuHandle lu(made);
        uint64_t bytes = 0;
        require_ok(sparsertc_lu_batch_size(lu.get(), kInstances, &bytes));
        const LuMemory memory(context, on_host, bytes), given(context, on_host, values.size()),
            b(context, on_host, right.size()), x(context, on_host, right.size());
        given.write(values);
        b.write(right);
        const sparsertc_lu_workspace workspace = {sizeof workspace, memory.address, bytes};
        const sparsertc_lu_batch_matrices matrices = {sizeof matrices, kInstances, given.address,
                                                      0};
        const sparsertc_lu_batch_systems systems = {sizeof systems, kInstances, b.address,
                                                    x.address};
        require_ok(sparsertc_lu_batch_refactor(lu.get(), &matrices, &workspace, nullptr));
        require_ok(sparsertc_lu_batch_solve(lu.get(), &systems, &workspace, nullptr));
        std::vector<uint32_t> outcomes(kInstances, 99);
        require_ok(sparsertc_lu_batch_status(lu.get(), &workspace, nullptr, kInstances,
                                             outcomes.data(), nullptr));
        for (uint64_t s = 0; s < kInstances; ++s)
          CHECK(outcomes[s] == (s == kBad ? SPARSERTC_OUTCOME_NOT_FINITE : SPARSERTC_OUTCOME_OK));
        std::vector<uint8_t>& result = found[on_host ? 0 : 1];
        result = x.read();
        for (uint64_t i = 0; i < kRows; ++i) // which NaN it is may differ
          put(result, i * kInstances + kBad, 0);
      }
      CHECK(found[0] == found[1]);
    }
  sparsertc_context_destroy(host);
}

TEST_CASE("lu api: streams and threads with workspaces of their own") {
  if (!has_gpu())
    return;
  constexpr unsigned kThreads = 4;
  constexpr int kRounds = 20;
  Random random(test_seed(73));
  const GpuContext there;
  const Matrix pattern = safe_matrix(random_square(random, 700, 3), random);
  const LuHandle lu = load(there, lu_bundle(pattern, native_choice()));
  std::vector<std::unique_ptr<LuSession>> sessions;
  std::vector<std::unique_ptr<cuda::Stream>> streams;
  std::vector<Matrix> matrices(kThreads, pattern);
  std::vector<std::vector<double>> b, first(kThreads);
  std::vector<unsigned> different(kThreads);
  for (unsigned i = 0; i < kThreads; ++i) {
    sessions.push_back(std::make_unique<LuSession>(there.context, false, lu.get(), 2));
    streams.push_back(std::make_unique<cuda::Stream>(*Machine::get().gpu()));
    replace_values(matrices[i], random);
    b.push_back(random_parts(random, 2 * 700));
  }
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      if (sparsertc_context_make_current(there.context) != SPARSERTC_OK)
        return;
      void* const stream = streams[i]->handle();
      for (int round = 0; round < kRounds; ++round) {
        sessions[i]->refactor(matrices[i], stream);
        const std::vector<double> x = sessions[i]->solve(b[i], 2, false, round % 2 == 0, stream);
        if (round == 0)
          first[i] = x;
        different[i] += x != first[i];
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  for (unsigned i = 0; i < kThreads; ++i) {
    CHECK(different[i] == 0); // the same bits, whatever runs beside
    REQUIRE(first[i].size() == b[i].size());
    CHECK(largest_residual(matrices[i], b[i], first[i], false) <=
          residual_bound(sessions[i]->info()));
  }
}

TEST_CASE("lu api: matrices of circuits and power grids") {
  if (!has_gpu())
    return;
  const char* const data = std::getenv("SPARSERTC_DATA");
  if (data == nullptr || !std::filesystem::is_directory(std::string(data) + "/lu")) {
    WARN("SKIPPED: SPARSERTC_DATA has no folder lu");
    return;
  }
  Random random(test_seed(74));
  const GpuContext there;
  for (const char* name : {"memplus", "pf_ACTIVSg2000_it0", "orsreg_1"}) {
    const std::string path = fmt::format("{}/lu/{}.mtx.gz", data, name);
    if (!std::filesystem::exists(path)) {
      WARN("SKIPPED: there is no " << path);
      continue;
    }
    INFO(name);
    const Matrix a = read_matrix(path, {});
    const LuHandle lu = load(there, lu_bundle(a, native_choice()));
    LuSession session(there.context, false, lu.get(), 1);
    session.refactor(a);
    const sparsertc_lu_factor_status status = session.status();
    CHECK(status.outcome == SPARSERTC_OUTCOME_OK);
    CHECK(status.growth == Approx(session.info().chosen_growth).epsilon(1e-6));
    for (const bool transposed : {false, true}) {
      const std::vector<double> b = random_parts(random, a.pattern.rows);
      const std::vector<double> x = session.solve(b, 1, transposed, false);
      const double residual = largest_residual(a, b, x, transposed);
      fmt::print("{}{}: residual {:.2g} without refinement, growth {:.2g}\n", name,
                 transposed ? " transposed" : "", residual, status.growth);
      CHECK(residual <= 1e-10);
    }
  }
}
