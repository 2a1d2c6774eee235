// Plans and the C API over a fake driver: what is called, what is refused before the driver sees
// it, and what is said.
#include "tests/unit/plan_session.h"

#include <cstring>
#include <thread>

using namespace sparsertc;
using namespace sparsertc::cuda;
using namespace sparsertc::test;
using Catch::Contains;

extern "C" {
size_t c_size_of_plan_info(void);
size_t c_size_of_arguments(void);
size_t c_size_of_execution_status(void);
size_t c_size_of_values(void);
}

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

  // Nobody set the sizes.
  std::memset(&longer, 0xee, sizeof longer);
  const auto before = longer;
  check_refused(sparsertc_plan_query(loaded.plan, &longer.info), SPARSERTC_ERROR_INVALID_ARGUMENT,
                "sparsertc_plan_info: struct_size is 17216961135462248174, expected");
  CHECK(std::memcmp(&longer, &before, sizeof longer) == 0);
  std::memset(&wish, 0xee, sizeof wish);
  check_refused(loaded.execute(wish.arguments), SPARSERTC_ERROR_INVALID_ARGUMENT, "struct_size is");

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
