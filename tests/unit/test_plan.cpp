// Plans and the C API over a fake driver: what is called, what is refused before the driver sees
// it, what is said when a call fails, and that nothing is left behind.
#include "runtime/plan/c_api.h"
#include "runtime/plan/device_check.h"
#include "tests/support/cuda_programs.h"
#include "tests/support/fake_context.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

using namespace sparsertc;
using namespace sparsertc::cuda;
using Catch::Contains;
using Json = nlohmann::ordered_json;

extern "C" {
size_t c_size_of_plan_info(void);
size_t c_size_of_arguments(void);
size_t c_size_of_execution_status(void);
size_t c_size_of_values(void);
}

namespace {

constexpr const char* kEntry = "sparsertc_spmm";

/// A layer with bias, row-major, N given at the launch.
Json demo_manifest() {
  return Json::parse(R"json({
    "schema": 1, "family": "spmm", "target": "sm_90", "m": 128, "k": 256, "n": null, "nnz": 3277,
    "dtype": "f32", "layout": "row", "ldb": null, "ldc": null,
    "epilogue": {"bias": true, "residual": false, "activation": "relu"},
    "strategy": "unrolled", "tile": "rows=8", "pattern_digest": "4cd2",
    "entries": [{
      "name": "sparsertc_spmm",
      "parameters": [
        {"name": "B", "role": "b", "type": "device.f32", "bytes": 8},
        {"name": "C", "role": "c", "type": "device.f32", "bytes": 8},
        {"name": "bias", "role": "bias", "type": "device.f32", "bytes": 8},
        {"name": "columns", "role": "columns", "type": "i32", "bytes": 4},
        {"name": "ldb", "role": "ldb", "type": "i32", "bytes": 4},
        {"name": "ldc", "role": "ldc", "type": "i32", "bytes": 4}],
      "ranges": [{"code": "columns", "items": 1, "items_per_block": 256}],
      "grid": {"rule": "x = sum over ranges of ceil(n * items / items_per_block)",
               "x": null, "y": 16, "z": 1},
      "block": [256, 1, 4], "dynamic_shared_bytes": 0, "pointer_alignment_bytes": 4,
      "registers": 40, "static_shared_bytes": 32768}]})json");
}

/// The same with N = 64 compiled in, and a residual.
Json fixed_manifest() {
  Json json = demo_manifest();
  json["n"] = 64;
  json["ldb"] = 64;
  json["ldc"] = 72;
  json["epilogue"] = {{"bias", false}, {"residual", true}, {"activation", "none"}};
  Json& entry = json["entries"][0];
  entry["parameters"] = Json::array({{{"role", "b"}, {"bytes", 8}},
                                     {{"role", "c"}, {"bytes", 8}},
                                     {{"role", "residual"}, {"bytes", 8}}});
  entry["pointer_alignment_bytes"] = 16;
  return json;
}

constexpr bool kWithPtx = true;
constexpr bool kCubinOnly = false;

Bundle bundle_of(const Json& manifest, bool ptx = kWithPtx, bool cubin = true) {
  Bundle bundle;
  bundle.manifest = manifest.dump();
  if (cubin)
    bundle.sections.push_back({"cubin", {0x7f, 'E', 'L', 'F', 1}});
  if (ptx)
    bundle.sections.push_back({"ptx", {'p', 't', 'x'}});
  return bundle;
}

/// A C API context on a fake driver.
class Session : public test::FakeContext {
public:
  Session()
      : FakeContext([](FakeCudaDriver& driver) {
          driver.kernels = {kEntry};
          driver.function_attributes[FunctionAttribute::shared_bytes] = 32768;
        }) {}

  sparsertc_result load(const Bundle& bundle, sparsertc_plan** plan) const {
    const std::vector<uint8_t> bytes = serialize(bundle);
    return sparsertc_plan_create(context, bytes.data(), bytes.size(), plan);
  }
};

/// A plan with device memory for everything.
class LoadedPlan {
public:
  LoadedPlan(Session& session, const Json& manifest) : session_(session) {
    REQUIRE(session.load(bundle_of(manifest), &plan) == SPARSERTC_OK);
    for (void** address : {&b, &c, &bias, &residual, &workspace})
      REQUIRE(sparsertc_memory_allocate(session.context, 4096, address) == SPARSERTC_OK);
    REQUIRE(sparsertc_workspace_initialize(plan, workspace, nullptr) == SPARSERTC_OK);
  }
  ~LoadedPlan() {
    sparsertc_plan_destroy(plan);
    for (void* address : {b, c, bias, residual, workspace})
      sparsertc_memory_free(session_.context, address);
  }
  LoadedPlan(const LoadedPlan&) = delete;
  LoadedPlan& operator=(const LoadedPlan&) = delete;

  sparsertc_arguments arguments(int64_t n) const {
    return {sizeof(sparsertc_arguments), b, c, bias, residual, n, 0, 0};
  }
  sparsertc_result execute(const sparsertc_arguments& arguments) const {
    return sparsertc_plan_execute(plan, &arguments, workspace, nullptr);
  }

  sparsertc_plan* plan = nullptr;
  void *b = nullptr, *c = nullptr, *bias = nullptr, *residual = nullptr, *workspace = nullptr;

private:
  Session& session_;
};

void check_refused(sparsertc_result result, sparsertc_result expected, const char* text) {
  CHECK(sparsertc_result_name(result) == std::string(sparsertc_result_name(expected)));
  CHECK_THAT(sparsertc_last_error(), Contains(text));
}

template <typename T>
T parameter(const FakeCudaDriver::Launch& launch, size_t index) {
  T value;
  std::memcpy(&value, launch.parameters[index], sizeof value);
  return value;
}

} // namespace

TEST_CASE("the header is C99, and its structs are the same in C and C++") {
  CHECK(c_size_of_plan_info() == sizeof(sparsertc_plan_info));
  CHECK(c_size_of_arguments() == sizeof(sparsertc_arguments));
  CHECK(c_size_of_execution_status() == sizeof(sparsertc_execution_status));
  CHECK(c_size_of_values() == sizeof(sparsertc_values));
  CHECK(std::string(sparsertc_version()).find('.') != std::string::npos);
  CHECK(sparsertc_result_name(SPARSERTC_OK) == std::string("SPARSERTC_OK"));
  CHECK(sparsertc_result_name(static_cast<sparsertc_result>(99)) ==
        std::string("SPARSERTC_ERROR_UNKNOWN"));
}

TEST_CASE("an execution is one launch and no other call of the driver") {
  Session session;
  FakeCudaDriver& fake = session.fake;
  LoadedPlan loaded(session, demo_manifest());
  const size_t before = fake.calls().size();
  FakeCudaDriver::Launch seen;
  fake.on_launch = [&](const FakeCudaDriver::Launch& launch) {
    CHECK(parameter<const void*>(launch, 0) == loaded.b);
    CHECK(parameter<const void*>(launch, 1) == loaded.c);
    CHECK(parameter<const void*>(launch, 2) == loaded.bias);
    CHECK(parameter<int32_t>(launch, 3) == 300);
    CHECK(parameter<int32_t>(launch, 4) == 320);
    CHECK(parameter<int32_t>(launch, 5) == 300);
    seen = launch;
  };
  sparsertc_arguments arguments = loaded.arguments(300);
  arguments.ldb = 320;
  const auto stream = reinterpret_cast<void*>(0x77);
  REQUIRE(sparsertc_plan_execute(loaded.plan, &arguments, loaded.workspace, stream) ==
          SPARSERTC_OK);
  const std::vector<std::string> calls = fake.calls();
  REQUIRE(calls.size() == before + 1);
  CHECK(calls.back() == "cuLaunchKernel");
  CHECK(seen.kernel == kEntry);
  CHECK(seen.grid == std::array<uint32_t, 3>{2, 16, 1});
  CHECK(seen.block == std::array<uint32_t, 3>{256, 1, 4});
  CHECK(seen.shared_bytes == 0);
  CHECK(reinterpret_cast<void*>(seen.stream) == stream);

  // Nothing to compute is no launch.
  CHECK(loaded.execute(loaded.arguments(0)) == SPARSERTC_OK);
  CHECK(fake.calls().size() == before + 1);

  sparsertc_execution_status status = {sizeof status, 7, 7, 7};
  CHECK(sparsertc_plan_status(loaded.plan, loaded.workspace, nullptr, &status) == SPARSERTC_OK);
  CHECK(status.outcome == SPARSERTC_OUTCOME_OK);
  CHECK(status.index == -1);
}

TEST_CASE("a plan says what it computes and needs") {
  Session session;
  session.fake.function_attributes[FunctionAttribute::local_bytes] = 24;
  LoadedPlan loaded(session, demo_manifest());
  sparsertc_plan_info info;
  info.struct_size = sizeof info;
  REQUIRE(sparsertc_plan_query(loaded.plan, &info) == SPARSERTC_OK);
  CHECK(info.struct_size == sizeof info);
  CHECK(info.m == 128);
  CHECK(info.k == 256);
  CHECK(info.n == -1);
  CHECK(info.nnz == 3277);
  CHECK(info.dtype == std::string("f32"));
  CHECK(info.layout == SPARSERTC_ROW_MAJOR);
  CHECK(info.element_size == 4);
  CHECK(info.ldb == -1);
  CHECK(info.has_bias == 1);
  CHECK(info.has_residual == 0);
  CHECK(info.activation == std::string("relu"));
  CHECK(info.workspace_size >= 64);
  CHECK(info.operand_alignment == 4);
  CHECK(info.target == std::string("sm_90"));
  CHECK(info.manifest == demo_manifest().dump());
  CHECK(info.code == SPARSERTC_CODE_CUBIN);
  CHECK(info.registers == 32);
  CHECK(info.local_size == 24);
  CHECK(info.shared_size == 32768);
  CHECK(info.block_threads == 1024);
}

TEST_CASE("arguments that a kernel cannot take are refused, and nothing is launched") {
  Session session;
  const auto invalid = [](sparsertc_result result, const char* text) {
    check_refused(result, SPARSERTC_ERROR_INVALID_ARGUMENT, text);
  };
  const auto behind = [](void* address, size_t bytes) {
    return static_cast<void*>(static_cast<char*>(address) + bytes);
  };
  {
    LoadedPlan loaded(session, demo_manifest());
    const auto refused = [&](const char* text, auto change) {
      sparsertc_arguments arguments = loaded.arguments(40);
      change(arguments);
      invalid(loaded.execute(arguments), text);
    };
    refused("b is a null", [](auto& a) { a.b = nullptr; });
    refused("c is a null", [](auto& a) { a.c = nullptr; });
    refused("bias is a null", [](auto& a) { a.bias = nullptr; });
    refused("b is not aligned to 4", [&](auto& a) { a.b = behind(loaded.b, 2); });
    refused("c is not aligned to 4", [&](auto& a) { a.c = behind(loaded.c, 1); });
    refused("bias is not aligned to 4", [&](auto& a) { a.bias = behind(loaded.bias, 3); });
    refused("same memory", [&](auto& a) { a.b = a.c; });
    refused("n is -1", [](auto& a) { a.n = -1; });
    refused("n is 4294967296", [](auto& a) { a.n = int64_t{1} << 32; });
    refused("n is 2147483647, possible are 0 to 2147483391", [](auto& a) { a.n = 2147483647; });
    refused("ldb is 1000000000", [](auto& a) { a.n = 1000000000; });
    refused("ldb is 39, possible are 40", [](auto& a) { a.ldb = 39; });
    refused("ldc is -40", [](auto& a) { a.ldc = -40; });
    refused("ldc is 536870912", [](auto& a) { a.ldc = 536870912; });
    refused("struct_size is 8", [](auto& a) { a.struct_size = 8; });

    const sparsertc_arguments good = loaded.arguments(40);
    invalid(sparsertc_plan_execute(nullptr, &good, loaded.workspace, nullptr), "plan is a null");
    invalid(sparsertc_plan_execute(loaded.plan, nullptr, loaded.workspace, nullptr),
            "arguments is a null");
    invalid(sparsertc_plan_execute(loaded.plan, &good, nullptr, nullptr), "workspace is a null");
    invalid(sparsertc_plan_execute(loaded.plan, &good, behind(loaded.workspace, 32), nullptr),
            "aligned to 64");
    CHECK(session.fake.launches.empty());
    CHECK(loaded.execute(good) == SPARSERTC_OK);
    // A bias that is there and a residual that is not used.
    sparsertc_arguments unused = good;
    unused.residual = behind(nullptr, 3);
    CHECK(loaded.execute(unused) == SPARSERTC_OK);
    CHECK(session.fake.launches.size() == 2);
  }
  {
    LoadedPlan loaded(session, fixed_manifest());
    const auto refused = [&](const char* text, auto change) {
      sparsertc_arguments arguments = loaded.arguments(64);
      change(arguments);
      invalid(loaded.execute(arguments), text);
    };
    refused("n is 63, the plan was compiled for 64", [](auto& a) { a.n = 63; });
    refused("n is 65, the plan was compiled for 64", [](auto& a) { a.n = 65; });
    refused("n is 0", [](auto& a) { a.n = 0; });
    refused("ldc is 64, the plan was compiled for 72", [](auto& a) { a.ldc = 64; });
    refused("b is not aligned to 16", [&](auto& a) { a.b = behind(loaded.b, 4); });
    refused("residual is a null", [](auto& a) { a.residual = nullptr; });
    refused("residual is not aligned to 16",
            [&](auto& a) { a.residual = behind(loaded.residual, 8); });
    CHECK(session.fake.launches.size() == 2);
    sparsertc_arguments in_place = loaded.arguments(64);
    in_place.residual = in_place.c;
    in_place.ldb = 64;
    in_place.ldc = 72;
    CHECK(loaded.execute(in_place) == SPARSERTC_OK);
    CHECK(session.fake.launches.back().grid == std::array<uint32_t, 3>{1, 16, 1});
  }
}

TEST_CASE("layers without rows or columns of A") {
  Session session;
  Json manifest = demo_manifest();
  SECTION("no rows: no kernel, no code, no launch") {
    manifest["m"] = 0;
    manifest["entries"] = Json::array();
    sparsertc_plan* plan = nullptr;
    REQUIRE(session.load(bundle_of(manifest, false, false), &plan) == SPARSERTC_OK);
    const sparsertc_arguments arguments = {sizeof arguments, nullptr, nullptr, nullptr,
                                           nullptr,          5,       0,       0};
    alignas(64) static char workspace[64];
    CHECK(sparsertc_plan_execute(plan, &arguments, workspace, nullptr) == SPARSERTC_OK);
    CHECK(session.fake.launches.empty());
    sparsertc_plan_destroy(plan);
  }
  SECTION("no columns: B may be null") {
    manifest["k"] = 0;
    LoadedPlan loaded(session, manifest);
    sparsertc_arguments arguments = loaded.arguments(5);
    arguments.b = nullptr;
    CHECK(loaded.execute(arguments) == SPARSERTC_OK);
    CHECK(session.fake.launches.size() == 1);
  }
}

TEST_CASE("structs of other sizes") {
  Session session;
  LoadedPlan loaded(session, demo_manifest());
  struct {
    sparsertc_plan_info info;
    uint64_t later;
  } longer;
  longer.info.struct_size = sizeof longer;
  longer.later = 5;
  REQUIRE(sparsertc_plan_query(loaded.plan, &longer.info) == SPARSERTC_OK);
  CHECK(longer.info.m == 128);
  CHECK(longer.later == 0);
  longer.info.struct_size = sizeof(sparsertc_plan_info) - 1;
  longer.info.m = 3;
  check_refused(sparsertc_plan_query(loaded.plan, &longer.info), SPARSERTC_ERROR_INVALID_ARGUMENT,
                "sparsertc_plan_info: struct_size");
  CHECK(longer.info.m == 3);
  check_refused(sparsertc_plan_query(loaded.plan, nullptr), SPARSERTC_ERROR_INVALID_ARGUMENT,
                "info is a null");

  struct {
    sparsertc_arguments arguments;
    uint64_t later;
  } wish = {loaded.arguments(4), 0};
  wish.arguments.struct_size = sizeof wish;
  CHECK(loaded.execute(wish.arguments) == SPARSERTC_OK);
  wish.later = uint64_t{1} << 40;
  check_refused(loaded.execute(wish.arguments), SPARSERTC_ERROR_INVALID_ARGUMENT, "is set");

  sparsertc_execution_status status = {4, 0, 0, 0};
  check_refused(sparsertc_plan_status(loaded.plan, loaded.workspace, nullptr, &status),
                SPARSERTC_ERROR_INVALID_ARGUMENT, "sparsertc_execution_status: struct_size is 4");
}

TEST_CASE("a workspace without a status record is told so") {
  Session session;
  LoadedPlan loaded(session, demo_manifest());
  REQUIRE(sparsertc_memory_write(session.context, loaded.workspace, "\0\0\0\0", 4, nullptr) ==
          SPARSERTC_OK);
  sparsertc_execution_status status = {sizeof status, 0, 0, 0};
  check_refused(sparsertc_plan_status(loaded.plan, loaded.workspace, nullptr, &status),
                SPARSERTC_ERROR_INVALID_ARGUMENT, "holds no status record");
}

TEST_CASE("a kernel's fault is reported by who waits for it") {
  Session session;
  LoadedPlan loaded(session, demo_manifest());
  CHECK(loaded.execute(loaded.arguments(3)) == SPARSERTC_OK);
  session.fake.fail_every("cuStreamSynchronize", Result::CUDA_ERROR_ILLEGAL_ADDRESS);
  sparsertc_execution_status status = {sizeof status, 0, 0, 0};
  check_refused(sparsertc_plan_status(loaded.plan, loaded.workspace, nullptr, &status),
                SPARSERTC_ERROR_MACHINE,
                "waiting for an execution: cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS");
}

// ---- devices ----

TEST_CASE("which device runs which code") {
  CHECK(runs_machine_code("sm_80", 80));
  CHECK(runs_machine_code("sm_80", 86));
  CHECK(!runs_machine_code("sm_86", 80));
  CHECK(!runs_machine_code("sm_80", 90));
  CHECK(runs_machine_code("sm_90a", 90));
  CHECK(!runs_machine_code("sm_90a", 100));
  CHECK(!runs_machine_code("sm_100a", 103));
  CHECK(runs_machine_code("sm_100f", 103));
  CHECK(runs_ptx("sm_80", 90));
  CHECK(runs_ptx("sm_90", 120));
  CHECK(!runs_ptx("sm_100", 90));
  CHECK(runs_ptx("sm_90a", 90));
  CHECK(!runs_ptx("sm_90a", 100));
  CHECK(runs_ptx("sm_100f", 103));
  CHECK(!runs_ptx("sm_100f", 120));
  for (const char* name : {"host", "sm_", "sm_90b", "sm_90aa", "sm_99999999999", ""})
    CHECK_THROWS_AS(runs_ptx(name, 90), UserError);
}

TEST_CASE("the cubin is taken where it fits, else the PTX") {
  Session session;
  const auto code_of = [&](const char* target, bool ptx) {
    Json manifest = demo_manifest();
    manifest["target"] = target;
    sparsertc_plan* plan = nullptr;
    sparsertc_plan_info info;
    info.struct_size = sizeof info;
    REQUIRE(session.load(bundle_of(manifest, ptx), &plan) == SPARSERTC_OK);
    CHECK(sparsertc_plan_query(plan, &info) == SPARSERTC_OK);
    sparsertc_plan_destroy(plan);
    return info.code;
  };
  CHECK(code_of("sm_90", kWithPtx) == SPARSERTC_CODE_CUBIN);
  CHECK(session.fake.last_image.empty());
  CHECK(code_of("sm_90a", kCubinOnly) == SPARSERTC_CODE_CUBIN);
  CHECK(code_of("sm_80", kWithPtx) == SPARSERTC_CODE_PTX);
  CHECK(session.fake.last_image == std::vector<uint8_t>{'p', 't', 'x', 0});
}

TEST_CASE("new weights for the same pattern") {
  Session session;
  Json manifest = demo_manifest();
  manifest["nnz"] = 2;
  manifest["values_digest"] = "old";
  Bundle bundle = bundle_of(manifest);
  bundle.sections.front().bytes.resize(32);
  const float weights[] = {1.5f, -2};
  const sparsertc_values good = {sizeof good, weights, 2, SPARSERTC_VALUE_F32, 0};
  sparsertc_plan* plan = nullptr;
  REQUIRE(session.load(bundle, &plan) == SPARSERTC_OK);
  check_refused(sparsertc_plan_bind_values(plan, &good), SPARSERTC_ERROR_NOT_BINDABLE,
                "compiled without --bindable");
  sparsertc_plan_destroy(plan);

  ValuePlaces places;
  places.values = 2;
  places.offset = {4, 20};
  places.element = {1, 0};
  bundle.sections.push_back({kBindingSection, serialize_binding(places)});
  REQUIRE(session.load(bundle, &plan) == SPARSERTC_OK);
  const auto refused = [&](const char* text, auto change) {
    sparsertc_values values = good;
    change(values);
    check_refused(sparsertc_plan_bind_values(plan, &values), SPARSERTC_ERROR_INVALID_ARGUMENT,
                  text);
  };
  refused("values->values is a null", [](auto& v) { v.values = nullptr; });
  refused("3 values for a pattern with 2", [](auto& v) { v.count = 3; });
  refused("type 2", [](auto& v) { v.type = 2; });
  refused("reserved is not 0", [](auto& v) { v.reserved = 1; });
  refused("struct_size is 8", [](auto& v) { v.struct_size = 8; });
  const double infinite[] = {1, INFINITY};
  refused("entry 1 is no weight", [&](auto& v) {
    v.values = infinite;
    v.type = SPARSERTC_VALUE_F64;
  });
  check_refused(sparsertc_plan_bind_values(plan, nullptr), SPARSERTC_ERROR_INVALID_ARGUMENT,
                "values is a null");
  check_refused(sparsertc_plan_bind_values(nullptr, &good), SPARSERTC_ERROR_INVALID_ARGUMENT,
                "plan is a null");
  CHECK(session.fake.count("cuModuleLoadDataEx") + session.fake.count("cuModuleLoadData") == 2);

  REQUIRE(sparsertc_plan_bind_values(plan, &good) == SPARSERTC_OK);
  CHECK(session.fake.count("cuModuleLoadDataEx") + session.fake.count("cuModuleLoadData") == 3);
  sparsertc_plan_info info;
  info.struct_size = sizeof info;
  REQUIRE(sparsertc_plan_query(plan, &info) == SPARSERTC_OK);
  CHECK_THAT(info.manifest, !Contains("\"old\""));
  CHECK(info.code == SPARSERTC_CODE_CUBIN);
  sparsertc_plan_destroy(plan);
  CHECK(session.fake.alive()["module"] == 0);
}

TEST_CASE("each limit of the device is checked before the driver sees the code") {
  Session session;
  FakeCudaDriver& fake = session.fake;
  const auto refused_bundle = [&](const Bundle& bundle, sparsertc_result expected,
                                  const char* text) {
    const uint64_t loads = fake.count("cuModuleLoadDataEx");
    sparsertc_plan* plan = reinterpret_cast<sparsertc_plan*>(8);
    check_refused(session.load(bundle, &plan), expected, text);
    CHECK(plan == nullptr);
    CHECK(fake.count("cuModuleLoadDataEx") == loads);
  };
  const auto refused = [&](const char* text, auto change) {
    Json manifest = demo_manifest();
    change(manifest, manifest["entries"][0]);
    refused_bundle(bundle_of(manifest, kCubinOnly), SPARSERTC_ERROR_UNSUPPORTED_DEVICE, text);
  };
  refused("the code is for sm_80, the device has compute capability 9.0, and the bundle carries no "
          "PTX",
          [](Json& m, Json&) { m["target"] = "sm_80"; });
  refused("the code is for sm_100a", [](Json& m, Json&) { m["target"] = "sm_100a"; });
  refused("a block has 1280 threads, the device allows 1024", [](Json&, Json& e) {
    e["block"] = {256, 1, 5};
  });
  refused("a block has 128 threads along z, at most 64 are possible", [](Json&, Json& e) {
    e["block"] = {8, 1, 128};
  });
  refused("the grid has 65536 blocks along y, the device allows 65535",
          [](Json&, Json& e) { e["grid"]["y"] = 65536; });
  refused("a block needs 232449 bytes of shared memory, the device has 232448",
          [](Json&, Json& e) { e["dynamic_shared_bytes"] = 232449 - 32768; });
  refused("a thread needs 256 registers", [](Json&, Json& e) { e["registers"] = 256; });
  refused("a block of 1024 threads with 65 registers needs 73728 registers, the device has 65536",
          [](Json&, Json& e) { e["registers"] = 65; });

  Json newer = demo_manifest();
  newer["target"] = "sm_100";
  refused_bundle(bundle_of(newer), SPARSERTC_ERROR_UNSUPPORTED_DEVICE,
                 "the code is for sm_100, the device has compute capability 9.0\n");
  refused_bundle(bundle_of(demo_manifest(), false, false), SPARSERTC_ERROR_INVALID_BUNDLE,
                 "neither a cubin nor PTX");

  // Registers of PTX are known only when the driver has assembled it.
  Json manifest = demo_manifest();
  manifest["entries"][0]["registers"] = 200;
  manifest["target"] = "sm_80";
  sparsertc_plan* plan = nullptr;
  REQUIRE(session.load(bundle_of(manifest), &plan) == SPARSERTC_OK);
  sparsertc_plan_destroy(plan);
  fake.function_attributes[FunctionAttribute::registers] = 200;
  fake.function_attributes[FunctionAttribute::max_threads_per_block] = 256;
  check_refused(session.load(bundle_of(manifest), &plan), SPARSERTC_ERROR_UNSUPPORTED_DEVICE,
                "a block has 1024 threads, 200 registers a thread allow 256");
  CHECK(fake.alive().count("module") == 0);
}

TEST_CASE("more than 48 KB of shared memory is asked for once, at loading") {
  Session session;
  Json manifest = demo_manifest();
  manifest["entries"][0]["dynamic_shared_bytes"] = 100000;
  LoadedPlan loaded(session, manifest);
  CHECK(session.fake.function_attributes[FunctionAttribute::max_dynamic_shared_bytes] == 100000);
  CHECK(loaded.execute(loaded.arguments(1)) == SPARSERTC_OK);
  CHECK(session.fake.launches.back().shared_bytes == 100000);
  CHECK(session.fake.count("cuFuncSetAttribute") == 1);
}

// ---- bundles ----

TEST_CASE("manifests that are wrong are refused with the key") {
  Session session;
  const auto refused = [&](const char* text, auto change) {
    Json manifest = demo_manifest();
    change(manifest, manifest["entries"][0]);
    sparsertc_plan* plan = nullptr;
    check_refused(session.load(bundle_of(manifest), &plan), SPARSERTC_ERROR_INVALID_BUNDLE, text);
  };
  refused("key schema: expected 1, found 2", [](Json& m, Json&) { m["schema"] = 2; });
  refused("this bundle holds sparse LU, not a layer", [](Json& m, Json&) { m["family"] = "lu"; });
  refused("key family: expected one of spmm, conv2d, found \"qr\"",
          [](Json& m, Json&) { m["family"] = "qr"; });
  refused("key m: expected a number from 0 to 2147483647, found nothing",
          [](Json& m, Json&) { m.erase("m"); });
  refused("key k: ", [](Json& m, Json&) { m["k"] = -1; });
  refused("key n: ", [](Json& m, Json&) { m["n"] = 1e300; });
  refused("key dtype: ", [](Json& m, Json&) { m["dtype"] = "f8"; });
  refused("key layout: ", [](Json& m, Json&) { m["layout"] = 3; });
  refused("key layout: ", [](Json& m, Json&) { m["layout"] = "diagonal"; });
  refused("key ldb: ", [](Json& m, Json&) { m["layout"] = "column"; });
  refused("key ldb: ", [](Json& m, Json&) { m["ldb"] = uint64_t{1} << 40; });
  refused("key ldb: ", [](Json& m, Json&) { m["n"] = 64, m["ldb"] = 63; });
  refused("manifest's epilogue. is not a JSON object",
          [](Json& m, Json&) { m["epilogue"] = "none"; });
  refused("key epilogue.bias: ", [](Json& m, Json&) { m["epilogue"]["bias"] = 1; });
  refused("key entries: expected an array", [](Json& m, Json&) { m["entries"] = 5; });
  refused("key entries[0].name: ", [](Json&, Json& e) { e["name"] = "exit"; });
  refused("key entries[0].block: ", [](Json&, Json& e) { e["block"] = {1, 1}; });
  refused("key entries[0].block: ", [](Json&, Json& e) { e["block"] = {0, 1, 1}; });
  refused("key layout: ", [](Json& m, Json&) { m["family"] = "conv2d"; });
  refused("key convolution: ",
          [](Json& m, Json&) { m["family"] = "conv2d", m["layout"] = "nchw"; });
  refused("key entries[0].ranges: ", [](Json&, Json& e) { e["ranges"] = Json::array(); });
  refused("key entries[0].ranges[0].items: ", [](Json&, Json& e) { e["ranges"][0]["items"] = 0; });
  refused("key entries[0].ranges[0].items_per_block: ",
          [](Json&, Json& e) { e["ranges"][0]["items_per_block"] = 0; });
  refused("key entries[0].pointer_alignment_bytes: ",
          [](Json&, Json& e) { e["pointer_alignment_bytes"] = 12; });
  refused("key entries[0].grid.y: ", [](Json&, Json& e) { e["grid"].erase("y"); });
  refused("key entries[0].grid.cluster_y: ", [](Json&, Json& e) { e["grid"]["cluster_y"] = 0; });
  refused("key entries[0].grid.cluster_y: ", [](Json&, Json& e) { e["grid"]["cluster_y"] = 3; });
  refused("key entries[0].grid.cluster_y: ", [](Json&, Json& e) { e["grid"]["cluster_y"] = 16; });
  refused("key entries[0].parameters[0].role: ",
          [](Json&, Json& e) { e["parameters"][0]["role"] = "a"; });
  refused("key entries[0].parameters[0].role: ",
          [](Json&, Json& e) { e["parameters"][0]["role"] = "residual"; });
  refused("key entries[0].parameters[3].bytes: expected 4",
          [](Json&, Json& e) { e["parameters"][3]["bytes"] = 8; });
  refused("key entries[0].parameters: expected at most 8", [](Json&, Json& e) {
    for (int i = 0; i < 3; ++i)
      e["parameters"].push_back(e["parameters"][0]);
  });

  Bundle bundle = bundle_of(demo_manifest());
  bundle.manifest = "{\"schema\": 1";
  sparsertc_plan* plan = nullptr;
  check_refused(session.load(bundle, &plan), SPARSERTC_ERROR_INVALID_BUNDLE, "not JSON");
  bundle.manifest = "[]";
  check_refused(session.load(bundle, &plan), SPARSERTC_ERROR_INVALID_BUNDLE, "not a JSON object");
}

TEST_CASE("bytes and files that are no bundle are refused; what was loaded can be saved") {
  Session session;
  testing::TemporaryFolder folder;
  sparsertc_plan* plan = nullptr;
  const std::string missing = folder.file("missing.srtc");
  check_refused(sparsertc_plan_load(session.context, missing.c_str(), &plan),
                SPARSERTC_ERROR_INVALID_BUNDLE, "missing.srtc");
  const std::string text = folder.write("text.srtc", "hello");
  check_refused(sparsertc_plan_load(session.context, text.c_str(), &plan),
                SPARSERTC_ERROR_INVALID_BUNDLE, "text.srtc");
  std::vector<uint8_t> bytes = serialize(bundle_of(demo_manifest()));
  bytes[bytes.size() / 2] ^= 1;
  check_refused(sparsertc_plan_create(session.context, bytes.data(), bytes.size(), &plan),
                SPARSERTC_ERROR_INVALID_BUNDLE, "bundle in memory");
  bytes[bytes.size() / 2] ^= 1;
  check_refused(sparsertc_plan_create(session.context, bytes.data(), bytes.size() - 1, &plan),
                SPARSERTC_ERROR_INVALID_BUNDLE, "bundle in memory");
  check_refused(sparsertc_plan_create(session.context, nullptr, 5, &plan),
                SPARSERTC_ERROR_INVALID_ARGUMENT, "bundle is a null");
  check_refused(sparsertc_plan_create(nullptr, bytes.data(), bytes.size(), &plan),
                SPARSERTC_ERROR_INVALID_ARGUMENT, "context is a null");
  check_refused(sparsertc_plan_load(session.context, nullptr, &plan),
                SPARSERTC_ERROR_INVALID_ARGUMENT, "path is a null");

  REQUIRE(sparsertc_plan_create(session.context, bytes.data(), bytes.size(), &plan) ==
          SPARSERTC_OK);
  const std::string saved = folder.file("saved.srtc");
  REQUIRE(sparsertc_plan_save(plan, saved.c_str()) == SPARSERTC_OK);
  check_refused(sparsertc_plan_save(plan, folder.file("no/such/folder").c_str()),
                SPARSERTC_ERROR_MACHINE, "no/such/folder");
  sparsertc_plan_destroy(plan);
  REQUIRE(sparsertc_plan_load(session.context, saved.c_str(), &plan) == SPARSERTC_OK);
  CHECK(serialize(plan->plan->bundle()) == bytes);
  sparsertc_plan_destroy(plan);
}

TEST_CASE("without a GPU plans are loaded, queried and saved, and not executed") {
  sparsertc_context* context = nullptr;
  REQUIRE(sparsertc_context_create(-1, &context) == SPARSERTC_OK);
  const std::vector<uint8_t> bytes = serialize(bundle_of(demo_manifest()));
  sparsertc_plan* plan = nullptr;
  REQUIRE(sparsertc_plan_create(context, bytes.data(), bytes.size(), &plan) == SPARSERTC_OK);
  sparsertc_plan_info info;
  info.struct_size = sizeof info;
  REQUIRE(sparsertc_plan_query(plan, &info) == SPARSERTC_OK);
  CHECK(info.m == 128);
  CHECK(info.code == SPARSERTC_CODE_NONE);
  CHECK(info.registers == 0);
  alignas(64) static char memory[256];
  const sparsertc_arguments arguments = {sizeof arguments, memory, memory + 64, memory,
                                         nullptr,          1,      0,           0};
  constexpr sparsertc_result kNoGpu = SPARSERTC_ERROR_NO_GPU;
  check_refused(sparsertc_plan_execute(plan, &arguments, memory, nullptr), kNoGpu,
                "executing a plan needs a GPU");
  check_refused(sparsertc_workspace_initialize(plan, memory, nullptr), kNoGpu, "needs a GPU");
  sparsertc_execution_status status = {sizeof status, 0, 0, 0};
  check_refused(sparsertc_plan_status(plan, memory, nullptr, &status), kNoGpu, "needs a GPU");
  check_refused(sparsertc_context_make_current(context), kNoGpu, "needs a GPU");
  void* address = nullptr;
  check_refused(sparsertc_memory_allocate(context, 8, &address), kNoGpu, "needs a GPU");
  sparsertc_plan_destroy(plan);
  sparsertc_context_destroy(context);
  sparsertc_plan_destroy(nullptr);
  sparsertc_context_destroy(nullptr);
  check_refused(sparsertc_context_create(-2, &context), SPARSERTC_ERROR_INVALID_ARGUMENT,
                "-2 is no device number");
  CHECK(context == nullptr);
  check_refused(sparsertc_context_create(-1, nullptr), SPARSERTC_ERROR_INVALID_ARGUMENT,
                "context is a null");
}

// ---- failures ----

namespace {

/// Everything the C API does, once; the first result that is not OK. `used` says how far it came.
sparsertc_result whole_session(FakeCudaDriver& fake, const std::vector<uint8_t>& bundle) {
  sparsertc_context* context = nullptr;
  sparsertc_plan* plan = nullptr;
  void* buffers[4] = {};
  sparsertc_result first = create_context(
      0, [&] { return std::make_shared<const Driver>(fake.table()); }, &context);
  const auto then = [&](auto call) {
    if (first == SPARSERTC_OK)
      first = call();
  };
  then([&] { return sparsertc_plan_create(context, bundle.data(), bundle.size(), &plan); });
  for (void*& buffer : buffers)
    then([&] { return sparsertc_memory_allocate(context, 1024, &buffer); });
  void* workspace = buffers[3];
  const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  then([&] { return sparsertc_memory_write(context, buffers[0], ones, sizeof ones, nullptr); });
  then([&] { return sparsertc_workspace_initialize(plan, workspace, nullptr); });
  sparsertc_arguments arguments = {sizeof arguments, buffers[0], buffers[1], buffers[2],
                                   nullptr,          2,          0,          0};
  then([&] { return sparsertc_plan_execute(plan, &arguments, workspace, nullptr); });
  sparsertc_execution_status status = {sizeof status, 0, 0, 0};
  then([&] { return sparsertc_plan_status(plan, workspace, nullptr, &status); });
  float result[8];
  then([&] { return sparsertc_memory_read(context, result, buffers[1], sizeof result, nullptr); });
  sparsertc_plan_destroy(plan);
  for (void* buffer : buffers) {
    const sparsertc_result freed = sparsertc_memory_free(context, buffer);
    if (first == SPARSERTC_OK)
      first = freed;
  }
  sparsertc_context_destroy(context);
  return first;
}

} // namespace

TEST_CASE("each call of the driver that fails is named, and nothing is left behind") {
  Json manifest = demo_manifest();
  manifest["entries"][0]["dynamic_shared_bytes"] = 60000;
  const std::vector<uint8_t> bundle = serialize(bundle_of(manifest));
  uint64_t calls = 0;
  {
    FakeCudaDriver fake;
    fake.kernels = {kEntry};
    REQUIRE(whole_session(fake, bundle) == SPARSERTC_OK);
    CHECK(fake.alive().empty());
    calls = fake.calls().size();
  }
  REQUIRE(calls > 40);
  for (uint64_t number = 1; number <= calls; ++number) {
    FakeCudaDriver fake;
    fake.kernels = {kEntry};
    fake.fail_call(number, Result::CUDA_ERROR_ILLEGAL_STATE);
    const sparsertc_result result = whole_session(fake, bundle);
    const std::string call = fake.failed_call();
    INFO("call " << number << " of " << calls << ": " << call << ": " << sparsertc_last_error());
    REQUIRE(!call.empty());
    if (result == SPARSERTC_OK) {
      // Destructors have nobody to tell: the one thing whose release was refused stays.
      CHECK((call == "cuModuleUnload" || call == "cuDevicePrimaryCtxRelease" ||
             call == "cuCtxSetCurrent"));
      CHECK(fake.alive().size() == (call == "cuCtxSetCurrent" ? 0 : 1));
    } else {
      CHECK(result == (call == "cuInit" ? SPARSERTC_ERROR_NO_GPU : SPARSERTC_ERROR_MACHINE));
      CHECK_THAT(sparsertc_last_error(),
                 Contains(call + " failed: CUDA_ERROR_ILLEGAL_STATE (401)"));
      // A buffer stays only where freeing it was what failed.
      const auto left = fake.alive();
      if (call == "cuMemFree")
        CHECK(left == std::map<std::string, uint64_t>{{"memory", 1}});
      else if (call != "cuCtxSetCurrent" || left.count("memory") == 0)
        CHECK(left.empty());
    }
    const auto left = fake.alive();
    CHECK(whole_session(fake, bundle) == SPARSERTC_OK);
    CHECK(fake.alive() == left);
  }
}

TEST_CASE("plans outlive their context's handle") {
  FakeCudaDriver fake;
  fake.kernels = {kEntry};
  sparsertc_context* context = nullptr;
  REQUIRE(create_context(
              0, [&] { return std::make_shared<const Driver>(fake.table()); }, &context) ==
          SPARSERTC_OK);
  const std::vector<uint8_t> bytes = serialize(bundle_of(demo_manifest()));
  sparsertc_plan* plan = nullptr;
  REQUIRE(sparsertc_plan_create(context, bytes.data(), bytes.size(), &plan) == SPARSERTC_OK);
  sparsertc_context_destroy(context);
  CHECK(fake.alive().count("context") == 1);
  alignas(64) static char memory[256];
  const sparsertc_arguments arguments = {sizeof arguments, memory, memory + 64, memory,
                                         nullptr,          1,      0,           0};
  CHECK(sparsertc_plan_execute(plan, &arguments, memory, nullptr) == SPARSERTC_OK);
  // From a thread that has not touched the device: unloading sees to its context itself.
  std::thread([&] { sparsertc_plan_destroy(plan); }).join();
  CHECK(fake.alive().empty());
}

// ---- threads ----

TEST_CASE("one plan is executed by several threads on several streams") {
  constexpr unsigned kThreads = 8;
  constexpr unsigned kLaunches = 200;
  Session session;
  FakeCudaDriver& fake = session.fake;
  LoadedPlan loaded(session, demo_manifest());
  // Each thread has operands of its own; a launch must hold those of one thread and no others.
  std::vector<uint64_t> mixed(kThreads + 1);
  std::vector<uint64_t> launched(kThreads + 1);
  fake.on_launch = [&](const FakeCudaDriver::Launch& launch) {
    const auto thread = reinterpret_cast<uintptr_t>(launch.stream);
    ++launched[thread];
    if (parameter<uint64_t>(launch, 0) != 0x10000 * thread ||
        parameter<uint64_t>(launch, 1) != 0x10000 * thread + 0x1000 ||
        parameter<int32_t>(launch, 3) != static_cast<int32_t>(thread) * 10 || launch.grid[0] != 1 ||
        launch.captured)
      ++mixed[thread];
  };
  std::vector<uint64_t> failures(kThreads + 1);
  std::vector<std::string> messages(kThreads + 1);
  std::vector<std::thread> threads;
  for (uintptr_t number = 1; number <= kThreads; ++number)
    threads.emplace_back([&, number] {
      failures[number] += sparsertc_context_make_current(session.context) != SPARSERTC_OK;
      const auto at = [&](uintptr_t offset) {
        return reinterpret_cast<void*>(0x10000 * number + offset);
      };
      sparsertc_arguments arguments = {sizeof arguments,
                                       at(0),
                                       at(0x1000),
                                       at(0x2000),
                                       nullptr,
                                       static_cast<int64_t>(number) * 10,
                                       0,
                                       0};
      for (unsigned i = 0; i < kLaunches; ++i)
        failures[number] += sparsertc_plan_execute(loaded.plan, &arguments, at(0x3000),
                                                   reinterpret_cast<void*>(number)) != SPARSERTC_OK;
      // Messages belong to their thread.
      arguments.n = -static_cast<int64_t>(number);
      sparsertc_plan_execute(loaded.plan, &arguments, at(0x3000), nullptr);
      messages[number] = sparsertc_last_error();
    });
  for (std::thread& thread : threads)
    thread.join();
  for (unsigned number = 1; number <= kThreads; ++number) {
    CHECK(failures[number] == 0);
    CHECK(mixed[number] == 0);
    CHECK(launched[number] == kLaunches);
    CHECK_THAT(messages[number], Contains("n is -" + std::to_string(number) + ","));
  }
}

TEST_CASE("a thread without the context is told so by the driver") {
  Session session;
  LoadedPlan loaded(session, demo_manifest());
  std::thread([&] {
    const sparsertc_arguments arguments = loaded.arguments(1);
    check_refused(sparsertc_plan_execute(loaded.plan, &arguments, loaded.workspace, nullptr),
                  SPARSERTC_ERROR_MACHINE, "cuLaunchKernel failed: CUDA_ERROR_INVALID_CONTEXT");
    // All other calls see to it themselves.
    sparsertc_execution_status status = {sizeof status, 0, 0, 0};
    CHECK(sparsertc_plan_status(loaded.plan, loaded.workspace, nullptr, &status) == SPARSERTC_OK);
    CHECK(loaded.execute(arguments) == SPARSERTC_OK);
  }).join();
}
