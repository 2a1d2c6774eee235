// Plans of the dense strategy over a fake driver: a library multiplies where it is found, the
// plan's own kernel where it is not, or refuses.
#include "tests/support/fake_context.h"

#include "runtime/bundle/bundle.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

using namespace sparsertc;
using namespace sparsertc::cuda;
using Catch::Contains;
using Json = nlohmann::ordered_json;

namespace {

constexpr uint32_t kM = 3, kK = 4, kN = 2, kLeading = 8;

Json manifest_of(const char* layout) {
  const bool row = std::string(layout) == "row";
  Json json = Json::parse(R"json({
    "schema": 1, "family": "spmm", "target": "sm_90", "m": 3, "k": 4, "n": 2, "nnz": 5,
    "dtype": "f32", "epilogue": {"bias": false, "residual": true, "activation": "relu"},
    "nonfinite": "dense", "strategy": "dense", "tile": "strategy=dense", "pattern_digest": "4cd2",
    "dense": {"code": "library", "array": "sparsertc_weights", "leading": 8},
    "entries": [{
      "name": "sparsertc_spmm",
      "parameters": [{"role": "b", "bytes": 8}, {"role": "c", "bytes": 8},
                     {"role": "residual", "bytes": 8}],
      "ranges": [{"code": "columns", "items": 1, "items_per_block": 32}],
      "grid": {"x": 1, "y": 1, "z": 1},
      "block": [32, 1, 1], "dynamic_shared_bytes": 0, "pointer_alignment_bytes": 4,
      "registers": 40, "static_shared_bytes": 0}]})json");
  json["layout"] = layout;
  json["ldb"] = row ? kN + 1 : kK;
  json["ldc"] = row ? kN : kM + 2;
  return json;
}

/// For the time of a test.
class Variable {
public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name))
      before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

private:
  const char* name_;
  std::optional<std::string> before_;
};

class Session : public test::FakeContext {
public:
  Session() : FakeContext([](FakeCudaDriver& driver) { driver.kernels = {"sparsertc_spmm"}; }) {
    weights.assign(kLeading * kK, 0);
    for (uint32_t row = 0; row < kM; ++row)
      for (uint32_t k = 0; k < kK; ++k)
        weights[k * kLeading + row] = a(row, k);
    fake.arrays["sparsertc_weights"] = {reinterpret_cast<DeviceAddress>(weights.data()),
                                        weights.size() * sizeof(float)};
  }
  ~Session() { sparsertc_plan_destroy(plan); }

  static float a(uint32_t row, uint32_t k) {
    return (row + k) % 2 == 0 ? static_cast<float>(row) - static_cast<float>(k) / 2 : 0.0f;
  }

  sparsertc_result load(const Json& manifest) {
    Bundle bundle;
    bundle.manifest = manifest.dump();
    bundle.sections.push_back({"cubin", {0x7f, 'E', 'L', 'F', 1}});
    const std::vector<uint8_t> bytes = serialize(bundle);
    return sparsertc_plan_create(context, bytes.data(), bytes.size(), &plan);
  }
  uint64_t workspace_bytes() const {
    sparsertc_plan_info info{};
    info.struct_size = sizeof info;
    REQUIRE(sparsertc_plan_query(plan, &info) == SPARSERTC_OK);
    return info.workspace_size;
  }

  std::vector<float> weights;
  sparsertc_plan* plan = nullptr;
};

/// Executes, and returns C.
std::vector<float> execute(Session& session, const Json& manifest, const std::vector<float>& b,
                           const std::vector<float>& residual) {
  void *device_b = nullptr, *device_c = nullptr, *device_r = nullptr, *workspace = nullptr;
  for (void** address : {&device_b, &device_c, &device_r})
    REQUIRE(sparsertc_memory_allocate(session.context, 4096, address) == SPARSERTC_OK);
  REQUIRE(sparsertc_memory_allocate(session.context, session.workspace_bytes(), &workspace) ==
          SPARSERTC_OK);
  REQUIRE(sparsertc_workspace_initialize(session.plan, workspace, nullptr) == SPARSERTC_OK);
  // The fake device's memory is the host's.
  std::memcpy(device_b, b.data(), b.size() * sizeof(float));
  std::memcpy(device_r, residual.data(), residual.size() * sizeof(float));
  const sparsertc_arguments arguments = {
      sizeof(sparsertc_arguments), device_b, device_c, nullptr, device_r, kN, 0, 0};
  REQUIRE(sparsertc_plan_execute(session.plan, &arguments, workspace, nullptr) == SPARSERTC_OK);
  std::vector<float> c(manifest["layout"] == "row" ? kM * kN : kN * (kM + 2));
  std::memcpy(c.data(), device_c, c.size() * sizeof(float));
  for (void* address : {device_b, device_c, device_r, workspace})
    sparsertc_memory_free(session.context, address);
  return c;
}

} // namespace

TEST_CASE("a dense plan is multiplied by the library that is there") {
  const Variable library("SPARSERTC_LIBCUBLASLT", SPARSERTC_FAKE_LIBCUBLASLT);
  for (const char* layout : {"row", "column"}) {
    INFO(layout);
    const bool row_major = std::string(layout) == "row";
    const Json manifest = manifest_of(layout);
    Session session;
    REQUIRE(session.load(manifest) == SPARSERTC_OK);
    CHECK(session.workspace_bytes() == 64 + 256 + 512);
    const uint32_t ldb = manifest["ldb"], ldc = manifest["ldc"];
    std::vector<float> b(16), residual(16);
    for (size_t i = 0; i < b.size(); ++i) {
      b[i] = static_cast<float>(i) / 4;
      residual[i] = static_cast<float>(i % 5) - 2;
    }
    const std::vector<float> c = execute(session, manifest, b, residual);
    CHECK(session.fake.count("cuLaunchKernel") == 0);
    for (uint32_t row = 0; row < kM; ++row)
      for (uint32_t column = 0; column < kN; ++column) {
        const size_t place = row_major ? row * ldc + column : row + column * ldc;
        float sum = residual[place];
        for (uint32_t k = 0; k < kK; ++k)
          sum += Session::a(row, k) * b[row_major ? k * ldb + column : k + column * ldb];
        CHECK(c[place] == (sum < 0 ? 0 : sum));
      }
  }
}

TEST_CASE("without a library, or where it refuses, the plan's own kernel runs") {
  const auto runs_its_kernel = [] {
    const Json manifest = manifest_of("row");
    Session session;
    REQUIRE(session.load(manifest) == SPARSERTC_OK);
    CHECK(session.workspace_bytes() == 64);
    execute(session, manifest, std::vector<float>(16), std::vector<float>(16));
    CHECK(session.fake.count("cuLaunchKernel") == 1);
  };
  {
    const Variable none("SPARSERTC_LIBCUBLASLT", "/no/such/libcublasLt.so");
    runs_its_kernel();
  }
  const Variable library("SPARSERTC_LIBCUBLASLT", SPARSERTC_FAKE_LIBCUBLASLT);
  for (const char* call : {"cublasLtCreate", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"}) {
    INFO(call);
    const Variable fails("SPARSERTC_FAKE_CUBLASLT_FAILS", call);
    runs_its_kernel();
  }
}

TEST_CASE("a plan that asks for its own kernel opens no library") {
  const Variable library("SPARSERTC_LIBCUBLASLT", SPARSERTC_FAKE_LIBCUBLASLT);
  Json manifest = manifest_of("row");
  manifest["dense"]["code"] = "own";
  Session session;
  REQUIRE(session.load(manifest) == SPARSERTC_OK);
  execute(session, manifest, std::vector<float>(16), std::vector<float>(16));
  CHECK(session.fake.count("cuLaunchKernel") == 1);
}

TEST_CASE("dense manifests that contradict themselves, or their code, are refused") {
  const Variable library("SPARSERTC_LIBCUBLASLT", SPARSERTC_FAKE_LIBCUBLASLT);
  const auto refused = [](const Json& manifest, const char* text) {
    Session session;
    CHECK(session.load(manifest) == SPARSERTC_ERROR_INVALID_BUNDLE);
    CHECK_THAT(sparsertc_last_error(), Contains(text));
  };
  Json manifest = manifest_of("row");
  manifest["dense"]["leading"] = kM - 1;
  refused(manifest, "leading");
  manifest["dense"]["leading"] = 1000;
  refused(manifest, "smaller than the manifest says");
  manifest["dense"]["leading"] = kLeading;
  manifest["dense"]["code"] = "other";
  refused(manifest, "code");
  manifest["dense"]["code"] = "library";
  manifest["epilogue"]["bias"] = true;
  refused(manifest, "adds no bias");
}
