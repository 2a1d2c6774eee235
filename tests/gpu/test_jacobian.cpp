// Residuals on the GPU: patterns, values, Jacobians and products against what is known by hand, and
// what happens where the user's code goes wrong.
#include "ir/error.h"
#include "runtime/driver/graph.h"
#include "tests/support/residuals.h"
#include "tools/gpu_device.h"
#include "tools/jacobian_system.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

using namespace sparsertc;
using Catch::Contains;
using test::ResidualCase;

namespace {

/// Null, said aloud, where there is no GPU or no NVRTC.
const cuda::Context* gpu_or_skip() {
  static std::string reason;
  static const std::unique_ptr<cuda::Context> gpu = [] {
    std::unique_ptr<cuda::Context> found;
    try {
      cuda::Nvrtc::open();
      found = require_gpu();
    } catch (const Error& error) {
      reason = error.what();
    }
    return found;
  }();
  if (!gpu)
    WARN("SKIPPED: " << reason);
  else
    gpu->make_current();
  return gpu.get();
}

JacobianRequest request_of(const ResidualCase& one) {
  JacobianRequest request;
  request.source = one.source;
  request.parameters = one.parameters;
  request.x0 = one.x0;
  request.points = 1; // what is known is the pattern at x0
  return request;
}

/// Numbers on the GPU, in the system's type.
class Numbers {
public:
  Numbers(const cuda::Context& context, const cuda::Stream& stream,
          const std::vector<double>& values, bool f32)
      : stream_(stream), count_(values.size()), f32_(f32),
        buffer_(context, values.size() * (f32 ? sizeof(float) : sizeof(double))) {
    const std::vector<float> narrow(values.begin(), values.end());
    buffer_.upload(f32 ? jacobian::as_bytes(narrow) : jacobian::as_bytes(values), stream);
    stream.synchronize();
  }
  cuda::DeviceAddress address() const { return buffer_.address(); }
  std::vector<double> get() const {
    std::vector<double> values(count_);
    std::vector<float> narrow(count_);
    buffer_.download(
        f32_ ? jacobian::as_writable_bytes(narrow) : jacobian::as_writable_bytes(values), stream_);
    if (f32_)
      values.assign(narrow.begin(), narrow.end());
    return values;
  }

private:
  const cuda::Stream& stream_;
  uint64_t count_;
  bool f32_;
  cuda::DeviceBuffer buffer_;
};

/// Each number once for each instance.
std::vector<double> spread(const std::vector<double>& values, uint64_t instances) {
  std::vector<double> all;
  for (const double value : values)
    all.insert(all.end(), instances, value);
  return all;
}

/// Evaluates and compares with the derivatives by hand, for all instances; by launches and by
/// replaying a graph of them.
void check_values(const cuda::Context& gpu, const ResidualCase& one, JacobianRequest request) {
  JacobianFacts facts;
  const auto system = make_gpu_system(gpu, request, facts);
  REQUIRE(facts.by_row == one.by_row);
  REQUIRE(facts.pattern == one.pattern);
  const cuda::Stream stream(gpu);
  const uint64_t n = one.x0.size(), m = request.instances, nnz = one.pattern.nnz();
  std::vector<double> direction(n);
  for (uint64_t j = 0; j < n; ++j)
    direction[j] = std::cos(static_cast<double>(j));
  uint64_t places = nnz;
  for (const uint32_t place : request.places)
    places = std::max<uint64_t>(places, place + uint64_t{1});
  const Numbers x(gpu, stream, spread(one.x0, m), request.f32),
      v(gpu, stream, spread(direction, m), request.f32),
      values(gpu, stream, std::vector<double>(places * m, -7), request.f32),
      y(gpu, stream, std::vector<double>(n * m, -7), request.f32),
      f(gpu, stream, std::vector<double>(n * m, -7), request.f32);
  const cuda::Graph graph(gpu, stream, [&] {
    system->residual(x.address(), f.address(), stream);
    system->jacobian(x.address(), values.address(), stream);
    system->product(x.address(), v.address(), y.address(), stream);
  });
  graph.launch();
  graph.launch();
  system->check(stream);
  const double tolerance = request.f32 ? 2e-5 : 1e-12;
  const std::vector<double> got = values.get(), product = y.get(), residual = f.get();
  std::vector<double> expected_product(n, 0.0), scale(n, 1.0);
  double worst = 0, worst_product = 0, differ = 0;
  for (uint32_t i = 0; i < n; ++i)
    for (uint64_t k = one.pattern.row_offset[i]; k < one.pattern.row_offset[i + 1]; ++k) {
      const uint32_t j = one.pattern.column_index[k];
      const double expected = one.derivative(one.x0, i, j);
      expected_product[i] += expected * direction[j];
      scale[i] += std::abs(expected * direction[j]);
      const uint64_t place = request.places.empty() ? k : request.places[k];
      for (uint64_t s = 0; s < m; ++s)
        worst = std::max(worst, std::abs(got[place * m + s] - expected) / (1 + std::abs(expected)));
    }
  for (uint32_t i = 0; i < n; ++i)
    for (uint64_t s = 0; s < m; ++s) {
      worst_product =
          std::max(worst_product, std::abs(product[i * m + s] - expected_product[i]) / scale[i]);
      differ = std::max(differ, std::abs(residual[i * m + s] - residual[i * m]));
    }
  CHECK(worst < tolerance);
  CHECK(worst_product < tolerance);
  CHECK(differ == 0);
  // What lies between the places is not touched.
  if (!request.places.empty())
    CHECK(got[m] == -7);
}

std::string error_of(const cuda::Context& gpu, const JacobianRequest& request) {
  try {
    JacobianFacts facts;
    make_gpu_system(gpu, request, facts);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

JacobianRequest request_of(const std::string& body, uint64_t n) {
  JacobianRequest request;
  request.source = {"F.cu",
                    "template <class T>\n__device__ void residual(Row i, Unknowns<T> x, const "
                    "Parameters& p, T& f) {\n" +
                        body + "\n}\n"};
  request.x0.assign(n, 1.0);
  return request;
}

} // namespace

TEST_CASE("jacobian: known residuals on the GPU", "[sanitize]") {
  const cuda::Context* const gpu = gpu_or_skip();
  if (gpu == nullptr)
    return;
  for (const ResidualCase& one : test::residual_cases()) {
    CAPTURE(one.name);
    check_values(*gpu, one, request_of(one));
  }
}

TEST_CASE("jacobian: batches, widths, lanes, f32 and other places on the GPU") {
  const cuda::Context* const gpu = gpu_or_skip();
  if (gpu == nullptr)
    return;
  for (const ResidualCase& one : {test::brusselator(4), test::weighted_graph(60)}) {
    CAPTURE(one.name);
    for (const uint32_t width : {1u, 2u, 4u, 8u}) {
      CAPTURE(width);
      JacobianRequest request = request_of(one);
      request.width = width;
      check_values(*gpu, one, request);
      request.instances = 75;
      check_values(*gpu, one, request);
      request.f32 = true;
      check_values(*gpu, one, request);
      request.compression = JacobianCompression::coloured;
      check_values(*gpu, one, request);
    }
    for (const uint32_t share : {1u, 4u, 16u}) {
      CAPTURE(share);
      JacobianRequest request = request_of(one);
      request.entries_per_lane = share;
      check_values(*gpu, one, request);
      for (uint64_t k = 0; k < one.pattern.nnz(); ++k)
        request.places.push_back(static_cast<uint32_t>(2 * (one.pattern.nnz() - 1 - k)));
      request.f32 = true;
      check_values(*gpu, one, request);
    }
  }
  JacobianRequest whole = request_of(test::chain_of_flows(40));
  whole.instances = 33;
  check_values(*gpu, test::chain_of_flows(40), whole);
}

TEST_CASE("jacobian: by the terms of sums on the GPU", "[sanitize]") {
  const cuda::Context* const gpu = gpu_or_skip();
  if (gpu == nullptr)
    return;
  const ResidualCase graph = test::weighted_graph(60);
  JacobianRequest request = request_of(graph);
  request.compression = JacobianCompression::terms;
  for (const uint32_t share : {0u, 2u, 16u}) {
    CAPTURE(share);
    request.entries_per_lane = share;
    check_values(*gpu, graph, request);
  }
  request.instances = 75;
  check_values(*gpu, graph, request);
  request.f32 = true;
  check_values(*gpu, graph, request);
}

TEST_CASE("jacobian: reads that are known beforehand on the GPU", "[sanitize]") {
  const cuda::Context* const gpu = gpu_or_skip();
  if (gpu == nullptr)
    return;
  // Some rows read one integer more than others: which comes next is not known to the compiler.
  ResidualCase uneven = test::mixed_graph(50);
  const std::string even = "next < 0 ? T(p.factor[i]) : x[next]";
  const size_t where = uneven.source.text.find(even);
  REQUIRE(where != std::string::npos);
  uneven.source.text.replace(where, even.size(), "next < 0 ? T(p.factor[i]) : x[p.next[i]]");
  for (const ResidualCase& one :
       {test::mixed_graph(50), uneven, test::mixed_graph(7), test::weighted_graph(60)}) {
    CAPTURE(one.name);
    JacobianRequest request = request_of(one);
    request.compression = JacobianCompression::terms;
    for (const uint32_t share : {1u, 2u, 4u}) {
      CAPTURE(share);
      request.entries_per_lane = share;
      request.f32 = request.f32_values = false;
      request.places.clear();
      JacobianFacts facts;
      make_gpu_system(*gpu, request, facts);
      CHECK(facts.reads_ahead);
      check_values(*gpu, one, request);
      for (uint64_t k = 0; k < one.pattern.nnz(); ++k)
        request.places.push_back(static_cast<uint32_t>(2 * (one.pattern.nnz() - 1 - k)));
      check_values(*gpu, one, request);
      request.f32 = true;
      check_values(*gpu, one, request);
    }
  }
  // Where rows decide by values, and where a thread would have to keep too much, nothing is.
  ResidualCase decides = test::mixed_graph(50);
  const std::string text = "x[next];";
  const size_t at = decides.source.text.find(text);
  REQUIRE(at != std::string::npos);
  decides.source.text.insert(at + text.size(), "\n  if (factor > 1e9)\n    return;");
  for (const auto& [one, share] :
       {std::pair(decides, 2u), std::pair(test::weighted_graph(60), 16u)}) {
    JacobianRequest request = request_of(one);
    request.compression = JacobianCompression::terms;
    request.entries_per_lane = share;
    JacobianFacts facts;
    make_gpu_system(*gpu, request, facts);
    CHECK_FALSE(facts.reads_ahead);
    check_values(*gpu, one, request);
  }
}

TEST_CASE("jacobian: instances with parameters of their own on the GPU", "[sanitize]") {
  const cuda::Context* const gpu = gpu_or_skip();
  if (gpu == nullptr)
    return;
  constexpr uint64_t kInstances = 70, kUnknowns = 3;
  JacobianRequest request = request_of("  f = p.a[i] * x[i] * x[i] + p.b[0];", kUnknowns);
  request.instances = request.parameters.instances = kInstances;
  std::vector<double> a(kUnknowns * kInstances);
  std::iota(a.begin(), a.end(), 1.0);
  request.parameters.arrays.push_back({"a", a, true});
  request.parameters.arrays.push_back({"b", std::vector<double>{0.5}, false});
  JacobianFacts facts;
  const auto system = make_gpu_system(*gpu, request, facts);
  const cuda::Stream stream(*gpu);
  std::vector<double> start(kUnknowns * kInstances);
  for (uint64_t k = 0; k < start.size(); ++k)
    start[k] = 1 + static_cast<double>(k % 5);
  const Numbers x(*gpu, stream, start, false), f(*gpu, stream, start, false),
      values(*gpu, stream, start, false);
  system->residual(x.address(), f.address(), stream);
  system->jacobian(x.address(), values.address(), stream);
  system->check(stream);
  const std::vector<double> residual = f.get(), got = values.get();
  for (uint64_t k = 0; k < start.size(); ++k) {
    CHECK(residual[k] == a[k] * start[k] * start[k] + 0.5);
    CHECK(got[k] == 2 * a[k] * start[k]);
  }
}

TEST_CASE("jacobian: mistakes and endless loops on the GPU", "[sanitize]") {
  const cuda::Context* const gpu = gpu_or_skip();
  if (gpu == nullptr)
    return;
  JacobianRequest request = request_of("  f = x[i];\n  while (f > 0) {\n  }", 100);
  request.loop_limit = 5000;
  CHECK_THAT(error_of(*gpu, request),
             Contains("F.cu:4:1: error: the loop took more than 5000 iterations"));
  CHECK_THAT(error_of(*gpu, request_of("  f = x[i + 1];", 100)),
             Contains("unknown x[100] was read, but there are 100 unknowns"));
  CHECK_THAT(error_of(*gpu, request_of("  f = x[i] + nothing;", 3)),
             Contains("F.cu:3:1: error: identifier \"nothing\" is undefined"));
  CHECK_THAT(error_of(*gpu, request_of("  f = sum_over(0, 2, [&](long long k) {\n    return "
                                       "sum_over(0, 2, [&](long long) { return x[k]; });\n  });",
                                       3)),
             Contains("F.cu:4:1: error: sum_over stands inside of another one"));
  // A loop that goes wrong later, at other unknowns, ends too; and then all is well again.
  request = request_of("  f = x[i];\n  for (T y = x[i]; y > 1; y = y + 0) {\n  }", 100);
  request.loop_limit = 5000;
  request.points = 1;
  JacobianFacts facts;
  const auto system = make_gpu_system(*gpu, request, facts);
  const cuda::Stream stream(*gpu);
  const Numbers good(*gpu, stream, std::vector<double>(100, 1.0), false),
      bad(*gpu, stream, std::vector<double>(100, 2.0), false),
      values(*gpu, stream, std::vector<double>(100, 0.0), false);
  system->jacobian(bad.address(), values.address(), stream);
  CHECK_THROWS_WITH(system->check(stream), Contains("F.cu:4:1: error: the loop took more than"));
  system->jacobian(good.address(), values.address(), stream);
  system->check(stream);
  CHECK(values.get() == std::vector<double>(100, 1.0));
}

TEST_CASE("jacobian: a pattern that is too small is found on the GPU") {
  const cuda::Context* const gpu = gpu_or_skip();
  if (gpu == nullptr)
    return;
  const ResidualCase one = test::brusselator(4);
  JacobianRequest request = request_of(one);
  Pattern small;
  small.rows = small.columns = one.pattern.rows;
  for (uint32_t i = 0; i < small.rows; ++i) {
    for (const uint32_t j : one.pattern.row(i))
      if (i != 5 || j != 7)
        small.column_index.push_back(j);
    small.row_offset.push_back(small.column_index.size());
  }
  request.pattern = small;
  CHECK_THAT(error_of(*gpu, request), Contains("residual 5 depends on unknown 7, with the "
                                               "derivative 0.8"));
  request.compare_patterns = true;
  CHECK_THAT(error_of(*gpu, request), Contains("residual 5 depends on unknown 7\n"));
}
