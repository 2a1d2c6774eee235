// Plans over a fake driver: which device runs which bundle, what is wrong with others, new weights,
// and that nothing is left behind when a call fails.
#include "runtime/plan/device_check.h"
#include "tests/support/cuda_programs.h"
#include "tests/unit/plan_session.h"

#include <cmath>
#include <fstream>
#include <memory>
#include <thread>

using namespace sparsertc;
using namespace sparsertc::cuda;
using namespace sparsertc::test;
using Catch::Contains;

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
