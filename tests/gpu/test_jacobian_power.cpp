// Jacobians of power flow on the GPU, by rows and by terms, one thread a task and shared by lanes,
// against derivatives by hand. What is written to is NaN before.
#include "tests/gpu/gpu_spmm.h"
#include "tests/support/named_parameters.h"
#include "tools/examples/power_flow/host_system.h"
#include "tools/jacobian_input.h"
#include "tools/jacobian_system.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace sparsertc;
using power_flow::Model;

namespace {

void check_case(const cuda::Context& gpu, const std::string& path, bool reversed) {
  const Model model = power_flow::make_model(read_power_case(path), power_flow::Start::file);
  const power_flow::HostSystem hand(model);
  const std::vector<double> start = model.start();
  std::vector<double> expected(hand.pattern().nnz());
  hand.jacobian(start, expected);
  const uint64_t nnz = expected.size();
  const cuda::Stream stream(gpu);
  const cuda::DeviceBuffer x(gpu, start.size() * sizeof(double)), values(gpu, nnz * sizeof(double));
  x.upload(jacobian::as_bytes(start), stream);
  using Share = std::optional<uint32_t>;
  for (const auto& [compression, share] : {std::pair(JacobianCompression::terms, Share()),
                                           {JacobianCompression::terms, Share(0)},
                                           {JacobianCompression::terms, Share(16)},
                                           {JacobianCompression::local, Share()}}) {
    CAPTURE(to_string(compression), share.value_or(UINT32_MAX));
    JacobianRequest request;
    request.source = read_residual(carried_file("tools/examples/power_flow/F.cu"));
    request.parameters = test::named_parameters(parameter_arrays(model, {}), 1);
    request.x0 = start;
    request.compression = compression;
    request.entries_per_lane = share;
    if (reversed)
      for (uint64_t k = 0; k < nnz; ++k)
        request.places.push_back(static_cast<uint32_t>(nnz - 1 - k));
    JacobianFacts facts;
    const auto system = make_gpu_system(gpu, request, facts);
    REQUIRE(facts.pattern.column_index == hand.pattern().column_index);
    std::vector<double> got(nnz, std::numeric_limits<double>::quiet_NaN());
    values.upload(jacobian::as_bytes(got), stream);
    system->jacobian(x.address(), values.address(), stream);
    system->check(stream);
    values.download(jacobian::as_writable_bytes(got), stream);
    uint64_t wrong = 0;
    for (uint64_t k = 0; k < nnz; ++k) {
      const double value = got[reversed ? nnz - 1 - k : k];
      wrong += std::abs(value - expected[k]) <= 1e-10 * (1 + std::abs(expected[k])) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

} // namespace

TEST_CASE("jacobian: power flow of a small grid on the GPU", "[sanitize]") {
  if (const cuda::Context* const gpu = Machine::get().gpu_or_skip()) {
    check_case(*gpu, carried_file("tests/data/grid7.m"), false);
    check_case(*gpu, carried_file("tests/data/grid7.m"), true);
  }
}

TEST_CASE("jacobian: power flow of large grids on the GPU") {
  const cuda::Context* const gpu = Machine::get().gpu_or_skip();
  if (gpu == nullptr)
    return;
  const char* const data = std::getenv("SPARSERTC_DATA");
  if (data == nullptr || !std::filesystem::exists(std::filesystem::path(data) / "power")) {
    WARN("SKIPPED: SPARSERTC_DATA has no folder power");
    return;
  }
  for (const char* name : {"case89pegase", "case1354pegase", "case9241pegase"}) {
    CAPTURE(name);
    check_case(*gpu, std::string(data) + "/power/" + name + ".m.gz", false);
  }
}
