// New weights in assembled code: the bytes are those of a compilation with these weights, and
// everything that cannot be known or read is refused.
#include "compiler/assemble/find_values.h"
#include "compiler/assemble/ptxas.h"
#include "compiler/lower/weight_markers.h"
#include "compiler/manifest.h"
#include "ir/float_bits.h"
#include "ir/values_digest.h"
#include "runtime/plan/plan.h"
#include "tests/support/fake_cuda_driver.h"
#include "tests/support/random_sparse.h"
#include "tools/make_bundle.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

using namespace sparsertc;
using Catch::Contains;
using ir::Scalar;
using test::Random;

namespace {

/// Null, and said aloud, where there is none.
std::unique_ptr<Ptxas> ptxas_or_skip() {
  std::vector<std::string> refused;
  auto ptxas = Ptxas::find(refused);
  if (!ptxas)
    WARN("SKIPPED: " << refused.at(0));
  return ptxas;
}

struct Layer {
  DataType type;
  const char* tile;
  uint32_t half_terms = 0;
  const char* target = "sm_90";
  const char* convolution = nullptr; ///< the words of --conv
};

Matrix layer_pattern(uint64_t seed, uint32_t columns = 60) {
  Random random(seed);
  return test::random_sparse(random, 40, columns, test::RowShape::uniform, test::ValueShape::unit,
                             -126, 127);
}

/// Values that differ from each other in every type, of magnitudes around 1. `positive`: no signs.
std::vector<double> ordinary_values(size_t count, uint64_t seed, bool positive) {
  Random random(seed);
  std::vector<double> values(count);
  for (double& value : values)
    value = (positive ? 1.5 : 3.0) * (positive ? random.unit() + 0.1 : random.symmetric());
  return values;
}

PipelineOptions options_for(const Layer& layer, const Ptxas& ptxas) {
  PipelineOptions options;
  options.problem.type = layer.type;
  options.problem.half_terms = layer.half_terms;
  options.problem.columns = 64;
  options.problem.ldb = options.problem.ldc = 64;
  if (layer.convolution != nullptr) {
    options.problem.convolution = parse_convolution(layer.convolution).convolution;
    options.problem.ldb = options.problem.ldc = 0;
    options.problem.columns = 2;
  }
  options.target = find_target(layer.target);
  options.tile = parse_tile_choice(layer.tile);
  options.artefact = Artefact::bundle;
  options.assembler = &ptxas;
  return options;
}

Bundle compile(const Layer& layer, const Ptxas& ptxas, Matrix weights,
               const std::vector<double>& values, bool bindable) {
  PipelineOptions options = options_for(layer, ptxas);
  options.bindable = bindable;
  weights.values = values;
  return make_bundle(compile_spmm([&] { return weights; }, options), options);
}

/// The bundle with other values, by a plan without a GPU.
template <typename Value>
Bundle bound(const Bundle& bundle, const std::vector<Value>& values) {
  Plan plan(std::make_shared<ExecutionContext>(ExecutionContext::kNoDevice), bundle, "layer");
  plan.bind_values(std::span<const Value>(values));
  return plan.bundle();
}

const std::vector<uint8_t>& bytes_of(const Bundle& bundle, const char* section) {
  REQUIRE(bundle.find(section) != nullptr);
  return bundle.find(section)->bytes;
}

std::string values_digest_in(const Bundle& bundle) {
  return nlohmann::json::parse(bundle.manifest).at("values_digest");
}

/// A bundle without a compiler: 16 bytes for each of three values, the second and third of which
/// have two places.
ValuePlaces small_places() {
  return {Scalar::f32, Scalar::f32, 3, {4, 20, 36, 52, 68}, {2, 0, 1, 2, 1}};
}
Bundle small_bundle(const ValuePlaces& places = small_places()) {
  Bundle bundle;
  bundle.manifest = R"json({
    "schema": 1, "family": "spmm", "target": "sm_90", "m": 2, "k": 4, "n": 32, "nnz": 3,
    "dtype": "f32", "layout": "row", "ldb": 32, "ldc": 32,
    "epilogue": {"bias": false, "residual": false, "activation": "none"},
    "strategy": "unrolled", "tile": "rows=8", "pattern_digest": "4cd2", "values_digest": "old",
    "entries": [{
      "name": "sparsertc_spmm",
      "parameters": [{"name": "B", "role": "b", "type": "device.f32", "bytes": 8},
                     {"name": "C", "role": "c", "type": "device.f32", "bytes": 8}],
      "ranges": [{"code": "columns", "items": 1, "items_per_block": 32}],
      "grid": {"x": 1, "y": 1, "z": 1},
      "block": [32, 1, 1], "dynamic_shared_bytes": 0, "pointer_alignment_bytes": 4,
      "registers": 40, "static_shared_bytes": 0}]})json";
  bundle.sections.push_back({"cubin", std::vector<uint8_t>(80, 0xEE)});
  bundle.sections.push_back({kBindingSection, serialize_binding(places)});
  bundle.sections.push_back({"ptx", {'p', 't', 'x'}});
  return bundle;
}

Plan small_plan(const Bundle& bundle) {
  return {std::make_shared<ExecutionContext>(ExecutionContext::kNoDevice), bundle, "layer.srtc"};
}

} // namespace

TEST_CASE("bound code is byte by byte that of a compilation with the new weights") {
  const auto ptxas = ptxas_or_skip();
  if (!ptxas)
    return;
  const uint64_t seed = test::test_seed(1);
  const Layer layers[] = {
      {DataType::f32, "rows=8,vec=1,splitk=1"},
      {DataType::f32, "rows=16,vec=4,splitk=2"},
      {DataType::f32, "rows=8,vec=2,weights=const"},
      {DataType::f32, "rows=8,stage=smem,chunk=16"},
      {DataType::f32, "strategy=streamed,rows=4"},
      {DataType::f32, "rows=8,vec=2", 0, "sm_80"},
      {DataType::f32, "rows=8,weights=const", 0, "sm_120"},
      {DataType::f16, "rows=8,vec=2"},
      {DataType::f16, "strategy=streamed,rows=4"},
      {DataType::f16, "rows=8,vec=2,splitk=1", 8},
      {DataType::f16, "rows=8,vec=1,splitk=1", 4},
      {DataType::bf16, "rows=8,vec=4"},
      {DataType::bf16, "rows=8,vec=2", 4},
      {DataType::bf16, "strategy=streamed,rows=8"},
      {DataType::f64, "rows=8,vec=1"},
      {DataType::f64, "rows=8,weights=const"},
      {DataType::f64, "strategy=streamed,rows=4"},
      {DataType::f32, "rows=8,vec=2", 0, "sm_90", "H=14,W=14,R=3,S=3,pad=1"},
      {DataType::f16, "rows=8,vec=2", 0, "sm_90", "H=14,W=14,R=3,S=3,pad=1"},
  };
  for (const Layer& layer : layers) {
    INFO(fmt::format("{} {} half_terms={} {}", name_of(layer.type), layer.tile, layer.half_terms,
                     layer.target));
    const Matrix pattern = layer_pattern(seed, layer.convolution ? 63 : 60);
    const size_t count = pattern.pattern.nnz();
    // Assemblers write negative constants of f64 as their opposites with a sign at the use.
    const bool positive = layer.type == DataType::f64;
    const std::vector<double> old = ordinary_values(count, seed + 1, positive);
    const std::vector<double> fresh = ordinary_values(count, seed + 2, positive);

    const Bundle bindable = compile(layer, *ptxas, pattern, old, true);
    REQUIRE(bindable.manifest.find("\"bindable\": true") != std::string::npos);
    const Bundle compiled = compile(layer, *ptxas, pattern, fresh, false);
    const Bundle result = bound(bindable, fresh);
    CHECK(bytes_of(result, "cubin") == bytes_of(compiled, "cubin"));
    CHECK(bytes_of(bindable, "cubin") != bytes_of(compiled, "cubin"));
    CHECK(result.find("ptx") == nullptr);
    CHECK(values_digest_in(result) == values_digest(fresh));
    // And back.
    CHECK(bytes_of(bound(result, old), "cubin") == bytes_of(bindable, "cubin"));
  }
}

TEST_CASE("a layer without weights can be bound to none") {
  const auto ptxas = ptxas_or_skip();
  if (!ptxas)
    return;
  Matrix pattern;
  pattern.name = "empty";
  pattern.pattern.rows = 5;
  pattern.pattern.columns = 7;
  pattern.pattern.row_offset.assign(6, 0);
  const Bundle bundle = compile({DataType::f32, "rows=4"}, *ptxas, pattern, {}, true);
  CHECK(bytes_of(bound(bundle, std::vector<double>{}), "cubin") == bytes_of(bundle, "cubin"));
  CHECK_THROWS_AS(bound(bundle, std::vector<double>{1}), UsageError);
}

TEST_CASE("weights that an assembler treats apart are written as they are") {
  const auto ptxas = ptxas_or_skip();
  if (!ptxas)
    return;
  constexpr double special[] = {0.0,   -0.0,   1.0,     -1.0,      2.0, 0.5, 0x1p-149, -0x1p-126,
                                65504, -65504, 0x1p-24, 0x1.8p-24, 3.0, 3.0, 3.0};
  for (const Layer& layer :
       {Layer{DataType::f32, "rows=8,vec=2"}, Layer{DataType::f16, "rows=8"},
        Layer{DataType::f16, "rows=8,vec=2", 8}, Layer{DataType::f64, "rows=8"}}) {
    const Matrix pattern = layer_pattern(test::test_seed(1));
    std::vector<double> values(pattern.pattern.nnz());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = special[i % std::size(special)];
    const Bundle first =
        compile(layer, *ptxas, pattern, ordinary_values(values.size(), 1, false), true);
    const Bundle result = bound(first, values);
    // The same code as where a bindable bundle is compiled with these weights.
    CHECK(bytes_of(result, "cubin") ==
          bytes_of(compile(layer, *ptxas, pattern, values, true), "cubin"));
    const ValuePlaces places = read_binding(result, "layer");
    const std::vector<double> there =
        decode_values(places.stored, read_elements(places, bytes_of(result, "cubin")));
    REQUIRE(there.size() == values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const double expected = layer.type == DataType::f64   ? values[i]
                              : layer.type == DataType::f32 ? static_cast<float>(values[i])
                                                            : from_f16(to_f16(values[i]));
      CHECK(there[i] == expected);
      CHECK(std::signbit(there[i]) == std::signbit(expected));
    }
  }
}

TEST_CASE("code whose weights cannot be found is compiled as always, and says so") {
  const auto ptxas = ptxas_or_skip();
  if (!ptxas)
    return;
  // 64-bit immediates stand across words there.
  const Layer layer = {DataType::f64, "rows=8,vec=1,weights=imm", 0, "sm_120"};
  const Matrix pattern = layer_pattern(1);
  const std::vector<double> values = ordinary_values(pattern.pattern.nnz(), 1, false);
  const Bundle bundle = compile(layer, *ptxas, pattern, values, true);
  const auto manifest = nlohmann::json::parse(bundle.manifest);
  CHECK(manifest.at("bindable") == false);
  CHECK_THAT(manifest.at("not_bindable").get<std::string>(),
             Contains("of section .text.") && Contains("depends on the weights"));
  CHECK(bytes_of(bundle, "cubin") ==
        bytes_of(compile(layer, *ptxas, pattern, values, false), "cubin"));
  CHECK_THROWS_WITH(bound(bundle, values),
                    Contains("cannot be bound") && Contains("depends on the weights"));
}

TEST_CASE("markers differ where they must") {
  Random random(test::test_seed(3));
  const Matrix matrix = test::random_sparse(random, 300, 400, test::RowShape::uniform,
                                            test::ValueShape::unit, -126, 127);
  const auto bits = [](double value) {
    uint64_t result = 0;
    std::memcpy(&result, &value, sizeof value);
    return result;
  };
  for (const DataType type : {DataType::f32, DataType::f64, DataType::f16, DataType::bf16})
    for (const uint32_t half_terms : {0u, 8u}) {
      if (half_terms != 0 && (type == DataType::f32 || type == DataType::f64))
        continue;
      SpmmProblem problem;
      problem.type = type;
      problem.half_terms = half_terms;
      const SpmmSchedule schedule =
          schedule_spmm(matrix, problem, find_target("sm_90"), parse_tile_choice("rows=32"));
      const auto markers = weight_markers(matrix.pattern, schedule);
      REQUIRE(markers);
      const Scalar stored = stored_weight(schedule);
      std::set<std::pair<uint64_t, uint64_t>> pairs;
      for (size_t i = 0; i < markers->first.size(); ++i) {
        const double first = markers->first[i], second = markers->second[i];
        REQUIRE(first != second);
        REQUIRE(std::isfinite(first));
        pairs.insert({bits(first), bits(second)});
      }
      CHECK(pairs.size() == matrix.pattern.nnz());
      // No rounding: they are numbers of the type in which they stand.
      std::vector<uint32_t> elements;
      REQUIRE_FALSE(encode_values(stored, stored, std::span(markers->first), elements));
      CHECK(decode_values(stored, elements) == markers->first);
      // In a tile no two entries of a column are alike in either list.
      for (uint32_t tile = 0; tile < schedule.tile_count(); ++tile) {
        std::set<std::pair<uint32_t, uint64_t>> first, second;
        size_t entries = 0;
        for (uint32_t i = schedule.tile_begin[tile]; i < schedule.tile_begin[tile + 1]; ++i) {
          const uint32_t row = schedule.row_order[i];
          for (uint64_t e = matrix.pattern.row_offset[row]; e < matrix.pattern.row_offset[row + 1];
               ++e, ++entries) {
            first.insert({matrix.pattern.column_index[e], bits(markers->first[e])});
            second.insert({matrix.pattern.column_index[e], bits(markers->second[e])});
          }
        }
        CHECK(first.size() == entries);
        CHECK(second.size() == entries);
      }
    }
}

TEST_CASE("places are found only where every difference is explained") {
  const std::vector<uint32_t> first = {0x11111111, 0x22222222}, second = {0x33333333, 0x44444444};
  const auto code = [](std::vector<uint32_t> words) {
    std::vector<uint8_t> bytes(words.size() * 4);
    std::memcpy(bytes.data(), words.data(), bytes.size());
    return bytes;
  };
  const auto find = [&](const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
    return find_values(a, b, Scalar::f32, Scalar::f32, first, second);
  };
  const FoundValues good = find(code({7, 0x22222222, 9, 0x11111111, 0x22222222}),
                                code({7, 0x44444444, 9, 0x33333333, 0x44444444}));
  CHECK(good.refusal.empty());
  CHECK(good.places.offset == std::vector<uint32_t>{4, 12, 16});
  CHECK(good.places.element == std::vector<uint32_t>{1, 0, 1});
  // What looks like a marker and does not change is none.
  CHECK(find(code({0x11111111, 0x11111111, 0x22222222}), code({0x11111111, 0x33333333, 0x44444444}))
            .places.offset == std::vector<uint32_t>{4, 8});

  const auto refused = [&](const std::vector<uint8_t>& a, const std::vector<uint8_t>& b,
                           const char* why) {
    const FoundValues found = find(a, b);
    CHECK_THAT(found.refusal, Contains(why));
    CHECK(found.places.offset.empty());
  };
  refused(code({0x11111111, 0x22222222}), code({0x33333333, 0x44444444, 0}), "size of the code");
  refused(code({0x11111111, 0x22222222, 5}), code({0x33333333, 0x44444444, 6}), "byte 8 depends");
  // The first marker of one, the second of another.
  refused(code({0x11111111, 0x22222222}), code({0x33333333, 0x33333333}), "byte 4 depends");
  refused(code({0x11111111, 3}), code({0x33333333, 3}), "no copy of weight 1");
  refused({1, 0, 0}, {2, 0, 0}, "the end of the code");
}

TEST_CASE("a table of places that is damaged is refused") {
  CHECK_NOTHROW(bound(small_bundle(), std::vector<double>{1, 2, 3}));
  const auto refused = [](auto change, const char* why) {
    ValuePlaces places = small_places();
    change(places);
    CHECK_THROWS_WITH(bound(small_bundle(places), std::vector<double>{1, 2, 3}),
                      Contains("section binding is damaged") && Contains(why));
  };
  refused([](auto& p) { p.offset[1] = 6; }, "do not ascend");
  refused([](auto& p) { p.offset[4] = 77; }, "outside the code");
  refused([](auto& p) { p.element[0] = 3; }, "does not exist");
  refused([](auto& p) { p.element[1] = 1; }, "has no place");
  refused([](auto& p) { p.values = uint64_t{1} << 60; }, "has no place");
  refused([](auto& p) { p.stored = Scalar::f16; }, "type of the values");
  refused([](auto& p) { p.type = Scalar::i32; }, "type of the values");
  for (const size_t bytes : {0u, 23u, 25u, 60u}) {
    Bundle cut = small_bundle();
    cut.find(kBindingSection)->bytes.resize(bytes);
    CHECK_THROWS_WITH(bound(cut, std::vector<double>{1, 2, 3}), Contains("damaged"));
  }
  Bundle later = small_bundle();
  later.find(kBindingSection)->bytes[0] = 2;
  CHECK_THROWS_WITH(bound(later, std::vector<double>{1, 2, 3}), Contains("version is not known"));
  ValuePlaces four = small_places();
  four.values = 4;
  four.element[0] = 3;
  CHECK_THROWS_WITH(bound(small_bundle(four), std::vector<double>{1, 2, 3}),
                    Contains("is for 4 values, the manifest says 3"));
}

TEST_CASE("values that do not fit are refused, and nothing changes") {
  const Bundle bundle = small_bundle();
  const auto refused = [&](const std::vector<double>& values, const char* why) {
    Plan plan = small_plan(bundle);
    CHECK_THROWS_AS(plan.bind_values(std::span(values)), UsageError);
    CHECK_THROWS_WITH(plan.bind_values(std::span(values)), Contains(why));
    CHECK(serialize(plan.bundle()) == serialize(bundle));
  };
  constexpr double infinity = std::numeric_limits<double>::infinity();
  refused({1, 2}, "2 values for a pattern with 3 entries");
  refused({1, 2, 3, 4}, "4 values for a pattern with 3 entries");
  refused({1, std::nan(""), 3}, "of entry 1 is no weight in f32");
  refused({1, 2, -infinity}, "of entry 2 is no weight in f32");
  refused({1e39, 2, 3}, "value 1e+39 of entry 0 is too large for f32");

  Bundle plain = bundle;
  plain.sections.erase(plain.sections.begin() + 1);
  CHECK_THROWS_AS(bound(plain, std::vector<double>{1, 2, 3}), NotBindableError);
  CHECK_THROWS_WITH(bound(plain, std::vector<double>{1, 2, 3}),
                    Contains("layer cannot be bound") && Contains("without --bindable"));
  plain.sections.erase(plain.sections.begin());
  CHECK_THROWS_WITH(bound(plain, std::vector<double>{1, 2, 3}), Contains("PTX only"));
}

TEST_CASE("f32 and f64 values are the same where they are equal") {
  const Bundle from_f64 = bound(small_bundle(), std::vector<double>{0.1f, -0.0, 3});
  const Bundle from_f32 = bound(small_bundle(), std::vector<float>{0.1f, -0.0f, 3});
  CHECK(serialize(from_f64) == serialize(from_f32));
  uint32_t bits = 0;
  std::memcpy(&bits, &bytes_of(from_f32, "cubin")[20], sizeof bits);
  CHECK(bits == 0x3DCCCCCD);
  std::memcpy(&bits, &bytes_of(from_f32, "cubin")[36], sizeof bits);
  CHECK(bits == 0x80000000);
}

TEST_CASE("binding loads the new code and then gives up the old; a failure leaves the old") {
  cuda::FakeCudaDriver fake;
  fake.kernels = {"sparsertc_spmm"};
  const auto context = std::make_shared<ExecutionContext>(
      0, [&] { return std::make_shared<const cuda::Driver>(fake.table()); });
  {
    Plan plan(context, small_bundle(), "layer.srtc");
    REQUIRE(plan.code() == Plan::Code::cubin);
    const std::vector<double> one = {1, 2, 3}, two = {4, 5, 6};
    plan.bind_values(std::span(one));
    CHECK(fake.alive()["module"] == 1);
    CHECK(fake.count("cuModuleUnload") == 1);
    const std::vector<uint8_t> before = serialize(plan.bundle());
    const cuda::Kernel* kernel = plan.kernel();
    REQUIRE(kernel != nullptr);
    const auto handle = kernel->handle;

    // Every call that loading makes, failing.
    for (uint64_t call = 1;; ++call) {
      fake.fail_call(call, cuda::Result::CUDA_ERROR_OUT_OF_MEMORY);
      try {
        plan.bind_values(std::span(two));
      } catch (const RuntimeError&) {
        CHECK(plan.kernel()->handle == handle);
        CHECK(serialize(plan.bundle()) == before);
        CHECK(fake.alive()["module"] == 1);
        REQUIRE(call < 50);
        continue;
      }
      break;
    }
    fake.fail_call(0);
    CHECK(bytes_of(plan.bundle(), "cubin") == bytes_of(bound(small_bundle(), two), "cubin"));
    CHECK(values_digest_in(plan.bundle()) == values_digest(two));
  }
  CHECK(fake.alive()["module"] == 0);

  // On a device that the machine code does not fit, the PTX runs.
  fake.attributes[cuda::DeviceAttribute::compute_capability_major] = 12;
  fake.attributes[cuda::DeviceAttribute::compute_capability_minor] = 0;
  const auto other = std::make_shared<ExecutionContext>(
      0, [&] { return std::make_shared<const cuda::Driver>(fake.table()); });
  Plan plan(other, small_bundle(), "layer.srtc");
  REQUIRE(plan.code() == Plan::Code::ptx);
  const std::vector<double> one = {1, 2, 3};
  CHECK_THROWS_AS(plan.bind_values(std::span(one)), NotBindableError);
  CHECK_THROWS_WITH(plan.bind_values(std::span(one)), Contains("runs from PTX"));
}
