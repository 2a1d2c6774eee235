// sparsertc_plan_tune over a driver in which launches compute: who wins, who must not, what is
// refused, and that nothing is left behind whatever fails.
#include "runtime/plan/c_api.h"
#include "runtime/tune/record.h"
#include "tests/support/fake_context.h"
#include "tests/support/interpreting_driver.h"
#include "tests/support/scattered_matrix.h"
#include "tools/library/sparsertc_compiler.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

using namespace sparsertc;
using namespace sparsertc::cuda;
using Catch::Contains;

namespace {

const std::string kWords = "target=sm_80 assembler=none jobs=1 ";

/// Sets a variable of the environment for a while.
class Environment {
public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

private:
  const char* name_;
};

/// A matrix behind the C API of the compiler.
class Compiler {
public:
  Compiler(const Matrix& matrix, const std::string& words) {
    const Pattern& pattern = matrix.pattern;
    const std::vector<int64_t> offsets(pattern.row_offset.begin(), pattern.row_offset.end());
    const std::vector<int64_t> columns(pattern.column_index.begin(), pattern.column_index.end());
    const sparsertc_matrix given = {sizeof given,         pattern.rows,
                                    pattern.columns,      static_cast<int64_t>(pattern.nnz()),
                                    offsets.data(),       columns.data(),
                                    matrix.values.data(), SPARSERTC_INDEX_I64,
                                    SPARSERTC_VALUE_F64};
    const sparsertc_result result =
        sparsertc_compiler_create(&given, (kWords + words).c_str(), &handle);
    INFO(sparsertc_compiler_last_error());
    REQUIRE(result == SPARSERTC_OK);
  }
  ~Compiler() { sparsertc_compiler_destroy(handle); }
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;
  sparsertc_compiler* handle = nullptr;
};

/// The caller's compile function, which can misbehave.
struct Callback {
  explicit Callback(const Compiler& right) : compiler(right.handle) {}

  static sparsertc_result compile(void* user, const sparsertc_candidate* candidate,
                                  sparsertc_compiled* compiled) {
    auto& self = *static_cast<Callback*>(user);
    ++self.calls;
    const std::string tile = candidate->tile;
    if (!self.refused.empty() && tile.find(self.refused) != std::string::npos) {
      compiled->message = "this compiler does not like it";
      return SPARSERTC_ERROR_INVALID_ARGUMENT;
    }
    const bool other = !self.wrong.empty() && tile.find(self.wrong) != std::string::npos;
    const sparsertc_result result = sparsertc_compiler_candidate(
        other ? self.wrong_compiler : self.compiler, candidate, compiled);
    self.made += result == SPARSERTC_OK;
    return result;
  }
  static void release(void* user, const sparsertc_compiled* compiled) {
    ++static_cast<Callback*>(user)->released;
    sparsertc_compiler_release(nullptr, compiled);
  }

  sparsertc_compiler* compiler = nullptr;
  sparsertc_compiler* wrong_compiler = nullptr;
  std::string refused, wrong; ///< in the tile's words
  std::atomic<unsigned> calls{0}, made{0}, released{0};
};

/// Ends a search after some candidates.
struct Stop {
  static int32_t ask(void* user, const sparsertc_tune_progress* progress) {
    auto& self = *static_cast<Stop*>(user);
    ++self.calls;
    CHECK(progress->candidates > 0);
    CHECK(progress->untuned_us > 0);
    return progress->tried >= self.tried ||
           (progress->best_us != 0 && progress->best_us <= self.best_us);
  }
  uint64_t tried = UINT64_MAX;
  double best_us = 0;
  unsigned calls = 0;
};

class Session : public test::FakeContext {
public:
  explicit Session(bool interpret = true)
      : FakeContext([interpret](FakeCudaDriver& driver) {
          driver.attributes[DeviceAttribute::l2_cache_bytes] = 4096; // it is overwritten often
          if (interpret)
            interpret_launches(driver);
          else
            driver.kernels = {"sparsertc_spmm"};
        }) {}

  /// Milliseconds by a word of the tile that stands in the PTX's head.
  void time_by(const std::string& word, float fast, float slow) {
    fake.time_of = [word, fast, slow](const FakeCudaDriver::Launch& launch) {
      const std::string_view text(reinterpret_cast<const char*>(launch.image->data()),
                                  launch.image->size());
      return text.substr(0, 2000).find(word) == std::string_view::npos ? slow : fast;
    };
  }
};

class PlanHandle {
public:
  PlanHandle() = default;
  PlanHandle(const Session& session, const Compiler& compiler, const char* tile) {
    sparsertc_compiled compiled = {sizeof compiled, nullptr, 0, nullptr};
    REQUIRE(sparsertc_compiler_compile(compiler.handle, tile, &compiled) == SPARSERTC_OK);
    const sparsertc_result result =
        sparsertc_plan_create(session.context, compiled.bundle, compiled.bytes, &handle);
    sparsertc_compiler_release(nullptr, &compiled);
    INFO(sparsertc_last_error());
    REQUIRE(result == SPARSERTC_OK);
  }
  ~PlanHandle() { sparsertc_plan_destroy(handle); }
  PlanHandle(const PlanHandle&) = delete;
  PlanHandle& operator=(const PlanHandle&) = delete;

  std::string manifest() const {
    sparsertc_plan_info info;
    info.struct_size = sizeof info;
    REQUIRE(sparsertc_plan_query(handle, &info) == SPARSERTC_OK);
    return info.manifest;
  }
  sparsertc_plan* handle = nullptr;
};

sparsertc_tune_options options_of(Callback& callback, Stop& stop) {
  sparsertc_tune_options options = {};
  options.struct_size = sizeof options;
  options.compile = Callback::compile;
  options.release = Callback::release;
  options.compile_user = &callback;
  options.budget_seconds = 100;
  options.jobs = 1;
  options.progress = Stop::ask;
  options.progress_user = &stop;
  return options;
}

sparsertc_tune_report empty_report() {
  sparsertc_tune_report report = {};
  report.struct_size = sizeof report;
  return report;
}

constexpr const char* kUntuned = "strategy=unrolled,rows=1,warps=1,groups=1,splitk=1";

} // namespace

TEST_CASE("the fastest candidate becomes a plan, and its record makes it again") {
  Session session;
  const Compiler compiler(scattered_matrix(24, 40, 3), "columns=64");
  Callback callback(compiler);
  const PlanHandle untuned(session, compiler, kUntuned);
  session.time_by("rows=4,", 1, 2);

  Stop stop;
  stop.best_us = 50; // a thousandth of a second for 20 launches
  sparsertc_tune_options options = options_of(callback, stop);
  sparsertc_tune_report report = empty_report();
  PlanHandle tuned;
  REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &tuned.handle) == SPARSERTC_OK);
  CHECK(report.improved == 1);
  CHECK(report.untuned_us == Approx(100));
  CHECK(report.tuned_us == Approx(50));
  CHECK(report.tried >= 1);
  CHECK(report.candidates > report.tried);
  CHECK(report.refused == 0);
  CHECK(report.wrong == 0);
  CHECK(report.stopped == 1);
  CHECK(report.record_use == SPARSERTC_RECORD_NONE);
  CHECK_THAT(report.tile, Contains("rows=4,") && Contains("registers="));
  CHECK_THAT(tuned.manifest(), Contains("rows=4,"));
  CHECK(callback.made == callback.released);
  CHECK(stop.calls > 0);
  const tune::Record record = tune::record_from_json(report.record, "record");
  CHECK(record.environment.gpu == "Fake GPU");
  CHECK(record.environment.n == 64);
  CHECK(record.environment.nnz == scattered_matrix(24, 40, 3).pattern.nnz());
  CHECK(record.environment.assembler == "driver");
  CHECK(record.interrupted);

  // The same layer again: one compilation, no search.
  const std::string text = report.record;
  const unsigned before = callback.calls;
  options.record = text.c_str();
  options.budget_seconds = 0;
  PlanHandle again;
  REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &again.handle) == SPARSERTC_OK);
  CHECK(report.record_use == SPARSERTC_RECORD_HOLDS);
  CHECK(callback.calls == before + 1);
  CHECK(report.tried == 0);
  CHECK(again.manifest() == tuned.manifest());
  CHECK(report.record == text);
  CHECK(report.tuned_us == Approx(50));
}

TEST_CASE("candidates that compute something else do not win") {
  const std::string words =
      GENERATE("columns=64", "op=conv2d conv=N=2,H=5,W=6,R=2,S=2,pad=1,stride=1x2",
               "op=conv2d conv=N=dynamic,H=7,W=6,R=2,S=2,pad=1,dilation=2x1 layout=nhwc");
  INFO(words);
  Session session;
  const Matrix matrix = scattered_matrix(24, 40, 3);
  const Compiler compiler(matrix, words);
  Callback callback(compiler);
  callback.wrong = "rows=4,";
  session.time_by("rows=4,", 1, 2);
  Matrix other = matrix;
  const char* expected_remark = nullptr;
  bool is_wrong = true;
  SECTION("one weight differs in its last bit") {
    other.values[17] *= 1 + 0x1p-23;
    expected_remark = "alone, C(";
  }
  SECTION("one weight is zero") {
    other.values.back() = 0;
    expected_remark = "should be";
  }
  SECTION("one weight is missing") {
    other.values.pop_back();
    other.pattern.column_index.pop_back();
    for (uint64_t& offset : other.pattern.row_offset)
      offset = std::min(offset, other.pattern.nnz());
    expected_remark = "another pattern";
    is_wrong = false;
  }
  const Compiler wrong(other, words);
  callback.wrong_compiler = wrong.handle;
  const PlanHandle untuned(session, compiler, kUntuned);
  Stop stop;
  stop.tried = 40;
  sparsertc_tune_options options = options_of(callback, stop);
  options.n = words.find("N=dynamic") != std::string::npos ? 3 : 0;
  sparsertc_tune_report report = empty_report();
  PlanHandle tuned;
  REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &tuned.handle) == SPARSERTC_OK);
  CHECK((is_wrong ? report.wrong : report.refused) > 0);
  CHECK_THAT(report.tile, !Contains("rows=4,"));
  CHECK_THAT(report.remark, Contains(expected_remark));
  CHECK(callback.made == callback.released);
}

TEST_CASE("right candidates pass in every type, layout and epilogue") {
  const char* words[] = {"columns=64 dtype=f64 bias residual activation=silu",
                         "columns=64 dtype=f16 ldb=72 ldc=80 bias activation=gelu",
                         "columns=64 dtype=f16 half-terms=4",
                         "columns=64 dtype=bf16 residual activation=relu",
                         "columns=33 layout=column ldb=48 ldc=30 bias residual",
                         "columns=dynamic activation=relu",
                         "op=conv2d conv=N=2,H=6,W=5,R=2,S=2,pad=1 bias residual activation=relu",
                         "op=conv2d conv=N=1,H=9,W=12,R=2,S=2 activation=gelu",
                         "op=conv2d conv=N=3,H=6,W=5,R=4,S=1,stride=2,pad=1,groups=4 dtype=f16 "
                         "layout=nhwc ldb=48 ldc=26",
                         "op=conv2d conv=N=2,H=6,W=5,R=2,S=5,pad=2,dilation=2x1,taps=rsc dtype=f64",
                         "op=conv2d conv=N=2,H=6,W=5,R=1,S=1 bias"};
  for (const char* one : words) {
    INFO(one);
    Session session;
    const Compiler compiler(scattered_matrix(24, 40, 3), one);
    Callback callback(compiler);
    const PlanHandle untuned(session, compiler, "rows=2,warps=1");
    Stop stop;
    stop.tried = 5;
    sparsertc_tune_options options = options_of(callback, stop);
    options.n = std::string(one).find("dynamic") != std::string::npos ? 50 : 0;
    options.seed = 7;
    sparsertc_tune_report report = empty_report();
    PlanHandle tuned;
    REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &tuned.handle) == SPARSERTC_OK);
    INFO(report.remark);
    CHECK(report.wrong == 0);
    CHECK(report.refused < report.tried);
    const tune::Record record = tune::record_from_json(report.record, "record");
    CHECK((record.environment.options.find("columns=dynamic") != std::string::npos) ==
          (options.n != 0));
  }
}

TEST_CASE("dense products are measured in any search that may take them") {
  const Environment without_library("SPARSERTC_LIBCUBLASLT", "/nonexistent");
  const std::string words =
      GENERATE("columns=40 nonfinite=dense", "columns=40 nonfinite=dense precision=tf32",
               "columns=40 nonfinite=dense precision=tf32 activation=relu",
               "columns=40 nonfinite=dense dtype=f16");
  INFO(words);
  Session session;
  // The plan looks for the array that a library would read; the kernel has its own in the PTX.
  std::vector<uint8_t> array(1 << 16);
  session.fake.arrays["sparsertc_weights"] = {reinterpret_cast<DeviceAddress>(array.data()),
                                              array.size()};
  const Matrix matrix = scattered_matrix(24, 40, 3);
  const Compiler compiler(matrix, words);
  Callback callback(compiler);
  const PlanHandle untuned(session, compiler, kUntuned);
  session.time_by("strategy=dense", 1, 2);
  Stop stop;
  sparsertc_tune_options options = options_of(callback, stop);
  options.budget_seconds = 1e-6;
  sparsertc_tune_report report = empty_report();
  PlanHandle tuned;
  SECTION("and win where they are the fastest") {
    REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &tuned.handle) == SPARSERTC_OK);
    INFO(report.remark);
    CHECK(report.wrong == 0);
    CHECK(report.improved == 1);
    CHECK_THAT(report.tile, Contains("strategy=dense"));
    CHECK_THAT(report.strategies, Contains("dense 50.00 us (1 tried), ") &&
                                      Contains("unrolled not measured (predicted ") &&
                                      Contains("\nfastest by zeros, with as many rows"));
  }
  SECTION("but not with another weight") {
    Matrix other = matrix;
    other.values[17] *= 1.01;
    const Compiler wrong(other, words);
    callback.wrong = "strategy=dense";
    callback.wrong_compiler = wrong.handle;
    REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &tuned.handle) == SPARSERTC_OK);
    CHECK(report.wrong == 1);
    CHECK_THAT(report.remark, Contains("alone, C("));
    CHECK_THAT(report.tile, !Contains("strategy=dense"));
  }
}

TEST_CASE("a record of a convolution holds for its geometry, and says it as the command does") {
  Session session;
  const Compiler compiler(scattered_matrix(24, 40, 3),
                          "op=conv2d conv=N=2,H=6,W=5,R=2,S=2,pad=1,groups=2,taps=rsc layout=nhwc");
  const Compiler strided(
      scattered_matrix(24, 40, 3),
      "op=conv2d conv=N=2,H=6,W=5,R=2,S=2,pad=1,stride=2,groups=2,taps=rsc layout=nhwc");
  Callback callback(compiler), other(strided);
  const PlanHandle untuned(session, compiler, kUntuned), beside(session, strided, kUntuned);
  session.time_by("rows=4,", 1, 2);
  Stop stop;
  stop.best_us = 50;
  sparsertc_tune_options options = options_of(callback, stop);
  sparsertc_tune_report report = empty_report();
  PlanHandle tuned, again, refused;
  REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &tuned.handle) == SPARSERTC_OK);
  CHECK(report.improved == 1);
  const std::string text = report.record;
  const tune::Record record = tune::record_from_json(text, "record");
  CHECK(record.environment.n == 2);
  CHECK_THAT(record.environment.options,
             Contains("layout=nhwc") &&
                 Contains("conv:H=6,W=5,C=20,R=2,S=2,stride=1x1,"
                          "dilation=1x1,groups=1,pad_top=1,pad_bottom=1,"
                          "pad_left=1,pad_right=1") &&
                 !Contains("taps"));
  options.record = text.c_str();
  options.budget_seconds = 0;
  REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &again.handle) == SPARSERTC_OK);
  CHECK(report.record_use == SPARSERTC_RECORD_HOLDS);
  CHECK(again.manifest() == tuned.manifest());
  options.compile_user = &other;
  REQUIRE(sparsertc_plan_tune(beside.handle, &options, &report, &refused.handle) == SPARSERTC_OK);
  CHECK(report.record_use == SPARSERTC_RECORD_REFUSED);
  CHECK_THAT(report.remark, Contains("stride=1x1"));
}

TEST_CASE("where no candidate can be compiled the plan stays as it is") {
  Session session;
  const Compiler compiler(scattered_matrix(24, 40, 3), "columns=64");
  Callback callback(compiler);
  const PlanHandle untuned(session, compiler, kUntuned);
  Stop stop;
  sparsertc_tune_options options = options_of(callback, stop);
  sparsertc_tune_report report = empty_report();
  PlanHandle tuned;
  SECTION("every one is refused") {
    callback.refused = "rows=";
    options.budget_seconds = 0.01;
    REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &tuned.handle) == SPARSERTC_OK);
    CHECK(report.refused >= 8);
    CHECK_THAT(report.remark, Contains("this compiler does not like it"));
  }
  SECTION("the function gives nothing, or what is no bundle") {
    options.compile = [](void* user, const sparsertc_candidate*, sparsertc_compiled* compiled) {
      if (++static_cast<Callback*>(user)->calls % 2 == 0) {
        compiled->bundle = "no bundle";
        compiled->bytes = 9;
      }
      return SPARSERTC_OK;
    };
    options.release = nullptr;
    options.budget_seconds = 0.01;
    REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &tuned.handle) == SPARSERTC_OK);
    CHECK(report.refused >= 8);
  }
  SECTION("a budget of nothing") {
    options.budget_seconds = 0;
    REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &tuned.handle) == SPARSERTC_OK);
    CHECK(callback.calls == 0);
    CHECK(report.tried == 0);
  }
  SECTION("stopped at once") {
    stop.tried = 0;
    REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &tuned.handle) == SPARSERTC_OK);
    CHECK(report.stopped == 1);
  }
  if (report.improved == 0) {
    CHECK(tuned.manifest() == untuned.manifest());
    CHECK_THAT(report.tile, Contains("rows=1,"));
  }
  CHECK(callback.made == callback.released);
}

TEST_CASE("records of other layers are not used silently") {
  Session session;
  const Matrix matrix = scattered_matrix(24, 40, 3);
  Matrix other = matrix;
  // One entry moves to the free column before it.
  const uint64_t entry = other.pattern.row_offset[1];
  REQUIRE(other.pattern.column_index[entry] > 0);
  --other.pattern.column_index[entry];
  const Compiler compiler(matrix, "columns=64"), neighbour(other, "columns=64");
  Callback callback(compiler), beside(neighbour);
  session.time_by("rows=4,", 1, 2);
  Stop stop;
  stop.best_us = 50;
  sparsertc_tune_options options = options_of(beside, stop);
  sparsertc_tune_report report = empty_report();
  const PlanHandle first(session, neighbour, kUntuned);
  PlanHandle tuned;
  REQUIRE(sparsertc_plan_tune(first.handle, &options, &report, &tuned.handle) == SPARSERTC_OK);
  const std::string record = report.record;

  const PlanHandle untuned(session, compiler, kUntuned);
  options = options_of(callback, stop);
  options.record = record.c_str();
  options.budget_seconds = 0;
  PlanHandle second;
  SECTION("refused, and said so") {
    REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &second.handle) == SPARSERTC_OK);
    CHECK(report.record_use == SPARSERTC_RECORD_REFUSED);
    CHECK_THAT(report.remark, Contains("pattern_digest: the record has"));
    CHECK(callback.calls == 0);
  }
  SECTION("a similar one is taken on request") {
    options.similar = 1;
    REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &second.handle) == SPARSERTC_OK);
    CHECK(report.record_use == SPARSERTC_RECORD_SIMILAR);
    CHECK(callback.calls == 1);
    CHECK_THAT(second.manifest(), Contains("rows=4,"));
    CHECK(report.record == record);
  }
  SECTION("its candidate takes part in a search") {
    options.budget_seconds = 100;
    stop.tried = 1;
    REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &second.handle) == SPARSERTC_OK);
    CHECK(report.record_use == SPARSERTC_RECORD_REFUSED);
    CHECK_THAT(second.manifest(), Contains("rows=4,"));
  }
  SECTION("a candidate that is refused") {
    options.similar = 1;
    callback.refused = "rows=4,";
    REQUIRE(sparsertc_plan_tune(untuned.handle, &options, &report, &second.handle) == SPARSERTC_OK);
    CHECK(report.record_use == SPARSERTC_RECORD_REFUSED);
    CHECK_THAT(report.remark, Contains("does not like it"));
    CHECK(report.improved == 0);
  }
}

TEST_CASE("arguments of a tuning that cannot be") {
  Session session(false);
  const Compiler compiler(scattered_matrix(24, 40, 3), "columns=64");
  const Compiler open(scattered_matrix(24, 40, 3), "columns=dynamic");
  Callback callback(compiler);
  const PlanHandle plan(session, compiler, kUntuned), dynamic(session, open, kUntuned);
  Stop stop;
  sparsertc_tune_report report = empty_report();
  sparsertc_plan* tuned = nullptr;
  const auto refused = [&](const char* text, auto change, const sparsertc_plan* of) {
    sparsertc_tune_options options = options_of(callback, stop);
    change(options);
    tuned = reinterpret_cast<sparsertc_plan*>(8);
    CHECK(sparsertc_plan_tune(of, &options, &report, &tuned) == SPARSERTC_ERROR_INVALID_ARGUMENT);
    CHECK(tuned == nullptr);
    CHECK_THAT(sparsertc_last_error(), Contains(text));
  };
  const auto nothing = [](auto&) {};
  refused("plan is a null", nothing, nullptr);
  refused(
      "compile is a null", [](auto& o) { o.compile = nullptr; }, plan.handle);
  refused(
      "struct_size is 8", [](auto& o) { o.struct_size = 8; }, plan.handle);
  refused(
      "budget", [](auto& o) { o.budget_seconds = -1; }, plan.handle);
  refused(
      "budget", [](auto& o) { o.budget_seconds = std::nan(""); }, plan.handle);
  refused(
      "budget", [](auto& o) { o.budget_seconds = INFINITY; }, plan.handle);
  refused(
      "n is 63, the plan was compiled for 64", [](auto& o) { o.n = 63; }, plan.handle);
  refused(
      "n is -1", [](auto& o) { o.n = -1; }, plan.handle);
  refused(
      "n is 4294967296", [](auto& o) { o.n = int64_t{1} << 32; }, dynamic.handle);
  refused("needs one to measure with", nothing, dynamic.handle);
  refused(
      "no JSON", [](auto& o) { o.record = "?"; }, plan.handle);
  refused(
      "\"kind\" is missing", [](auto& o) { o.record = "{}"; }, plan.handle);

  const sparsertc_tune_options good = options_of(callback, stop);
  CHECK(sparsertc_plan_tune(plan.handle, nullptr, &report, &tuned) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK(sparsertc_plan_tune(plan.handle, &good, nullptr, &tuned) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK(sparsertc_plan_tune(plan.handle, &good, &report, nullptr) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  report.struct_size = 4;
  CHECK(sparsertc_plan_tune(plan.handle, &good, &report, &tuned) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK(callback.calls == 0);

  sparsertc_context* none = nullptr;
  REQUIRE(sparsertc_context_create(-1, &none) == SPARSERTC_OK);
  sparsertc_compiled compiled = {sizeof compiled, nullptr, 0, nullptr};
  REQUIRE(sparsertc_compiler_compile(compiler.handle, nullptr, &compiled) == SPARSERTC_OK);
  PlanHandle unloaded;
  REQUIRE(sparsertc_plan_create(none, compiled.bundle, compiled.bytes, &unloaded.handle) ==
          SPARSERTC_OK);
  sparsertc_compiler_release(nullptr, &compiled);
  report = empty_report();
  CHECK(sparsertc_plan_tune(unloaded.handle, &good, &report, &tuned) == SPARSERTC_ERROR_NO_GPU);
  sparsertc_context_destroy(none);
}

TEST_CASE("a tuning in which any call of the driver fails leaves nothing behind") {
  const Compiler compiler(scattered_matrix(6, 8, 3), "columns=32 bias residual activation=relu");
  bool reached = true;
  unsigned failures = 0;
  for (uint64_t call = 1; reached; ++call) {
    Session session(false);
    Callback callback(compiler);
    const PlanHandle untuned(session, compiler, kUntuned);
    const auto before = session.fake.alive();
    // Every later candidate is faster, so that a candidate wins.
    float time = 8;
    session.fake.time_of = [&](const FakeCudaDriver::Launch&) { return time *= 0.999f; };
    Stop stop;
    stop.tried = 2;
    const sparsertc_tune_options options = options_of(callback, stop);
    sparsertc_tune_report report = empty_report();
    sparsertc_plan* tuned = nullptr;
    session.fake.fail_call(call);
    const sparsertc_result result = sparsertc_plan_tune(untuned.handle, &options, &report, &tuned);
    const std::string failed = session.fake.failed_call();
    session.fake.fail_call(0);
    reached = !failed.empty();
    INFO("call " << call << ": " << failed);
    if (result != SPARSERTC_OK) {
      ++failures;
      CHECK(tuned == nullptr);
      CHECK(result == SPARSERTC_ERROR_MACHINE);
      CHECK_THAT(sparsertc_last_error(), Contains(failed));
    }
    sparsertc_plan_destroy(tuned);
    CHECK(callback.made == callback.released);
    // Where giving back is what fails, something stays.
    const bool giving_back = failed.find("Destroy") != std::string::npos || failed == "cuMemFree" ||
                             failed == "cuModuleUnload" || failed == "cuStreamEndCapture";
    if (!giving_back)
      CHECK(session.fake.alive() == before);
  }
  CHECK(failures > 20);
}
