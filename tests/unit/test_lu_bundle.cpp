// Bundles of sparse LU that are not as the compiler makes them: each is refused with a place, or
// executed to its end without touching what is not its own.
#include "compiler/inspect/lu_dataflow.h"
#include "compiler/lower/lu_dataflow.h"
#include "ir/error.h"
#include "runtime/lu/table_bytes.h"
#include "runtime/lu/table_check.h"
#include "runtime/plan/c_api.h"
#include "runtime/plan/lu_manifest.h"
#include "tests/support/fake_context.h"
#include "tests/support/lu_patterns.h"
#include "tests/support/lu_session.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstring>
#include <functional>
#include <limits>
#include <string>

using namespace sparsertc;
using namespace sparsertc::test;
using Catch::Contains;
using Json = nlohmann::ordered_json;

namespace {

constexpr uint64_t kSeed = 6600;

/// A context whose kernels do nothing.
class IdleContext : public FakeContext {
public:
  IdleContext()
      : FakeContext([](cuda::FakeCudaDriver& driver) {
          driver.kernels = {kLuInputKernel, kLuFactorKernel,     kLuSolveInputKernel,
                            kLuSolveKernel, kLuBlockInputKernel, kLuBlockSolveKernel};
          driver.attributes[cuda::DeviceAttribute::multiprocessor_count] = 2;
        }) {}
};

sparsertc_result try_load(const sparsertc_context* context, const Bundle& bundle,
                          sparsertc_lu** lu) {
  const std::vector<uint8_t> bytes = serialize(bundle);
  return sparsertc_lu_create(context, bytes.data(), bytes.size(), lu);
}

Bundle gpu_bundle(Random& random, uint32_t n, LuGpuSolve solve) {
  LuBundleChoice choice;
  choice.target = "sm_80";
  choice.multiprocessors = 2;
  choice.solve = solve;
  return lu_bundle(safe_matrix(random_square(random, n, 3), random), choice);
}

void check_invalid(const sparsertc_context* context, const Bundle& bundle, const char* text) {
  sparsertc_lu* lu = nullptr;
  const sparsertc_result result = try_load(context, bundle, &lu);
  CHECK(sparsertc_result_name(result) == std::string("SPARSERTC_ERROR_INVALID_BUNDLE"));
  CHECK_THAT(sparsertc_last_error(), Contains(text));
  CHECK(lu == nullptr);
  sparsertc_lu_destroy(lu);
}

/// The tables of a bundle, changed.
Bundle with_tables(const Bundle& bundle, const std::function<void(LuTables&)>& change) {
  Bundle changed = bundle;
  Bundle::Section* const section = changed.find(kLuTablesSection);
  LuTables tables = lu::parse_tables(section->bytes, "tables");
  change(tables);
  section->bytes = lu::to_bytes(tables);
  return changed;
}

Bundle with_flow(const Bundle& bundle, const char* which,
                 const std::function<void(LuDataflow&)>& change) {
  Bundle changed = bundle;
  Bundle::Section* const section = changed.find(which);
  LuDataflow flow = lu::parse_dataflow(section->bytes, "flow");
  change(flow);
  section->bytes = lu::to_bytes(flow);
  return changed;
}

Bundle with_steps(const Bundle& bundle, const std::function<void(LuBlockSolve&)>& change) {
  Bundle changed = bundle;
  Bundle::Section* const section = changed.find(kLuSolveSection);
  auto steps = std::get<LuBlockSolve>(lu::parse_solve(section->bytes, "steps"));
  change(steps);
  section->bytes = lu::to_bytes(lu::GpuFlows::Solve(steps));
  return changed;
}

Bundle with_manifest(const Bundle& bundle, const std::function<void(Json&)>& change) {
  Bundle changed = bundle;
  Json json = Json::parse(changed.manifest);
  change(json);
  changed.manifest = json.dump();
  return changed;
}

/// A word that means something.
size_t used_word(const std::vector<uint32_t>& words) {
  size_t i = 0;
  while (words[i] == kNoWord)
    ++i;
  return i;
}

} // namespace

TEST_CASE("lu bundle: what was written is what is read", "[lu_bundle]") {
  Random random(test_seed(kSeed));
  for (const LuGpuSolve solve : {LuGpuSolve::dataflow, LuGpuSolve::block}) {
    const Bundle bundle = gpu_bundle(random, 20, solve);
    for (const char* which :
         {kLuTablesSection, kLuFactorSection, kLuSolveSection, kLuTransposedSection}) {
      const std::vector<uint8_t>& bytes = bundle.find(which)->bytes;
      const std::vector<uint8_t> again = which == std::string(kLuTablesSection)
                                             ? lu::to_bytes(lu::parse_tables(bytes, which))
                                             : lu::to_bytes(lu::parse_solve(bytes, which));
      CHECK(again == bytes);
    }
    CHECK(lu_manifest_json(parse_lu_manifest(bundle.manifest, "m")) == bundle.manifest);
  }
  // The same matrix, the same bytes.
  Random first(5), second(5);
  CHECK(serialize(gpu_bundle(first, 20, LuGpuSolve::automatic)) ==
        serialize(gpu_bundle(second, 20, LuGpuSolve::automatic)));
}

TEST_CASE("lu bundle: tables that cannot be are refused by name", "[lu_bundle]") {
  Random random(test_seed(kSeed + 1));
  IdleContext there;
  const Bundle bundle = gpu_bundle(random, 12, LuGpuSolve::dataflow);
  const auto refused = [&](const char* text, const std::function<void(LuTables&)>& change) {
    INFO(text);
    check_invalid(there.context, with_tables(bundle, change), text);
  };
  refused("row_order", [](LuTables& t) { t.row_order[0] = t.row_order[1]; });
  refused("column_order", [](LuTables& t) { t.column_order[3] = t.size; });
  refused("row_scale", [](LuTables& t) { t.row_scale.assign(3, 1.0); });
  refused("column_scale", [](LuTables& t) {
    t.column_scale.assign(t.size, std::numeric_limits<double>::infinity());
  });
  refused("column_offset", [](LuTables& t) { t.column_offset[1] = t.nnz() + 1; });
  refused("row_index", [](LuTables& t) {
    uint32_t column = 0; // the first of two entries
    while (t.column_offset[column + 1] - t.column_offset[column] < 2)
      ++column;
    const uint64_t first = t.column_offset[column];
    std::swap(t.row_index[first], t.row_index[first + 1]);
  });
  refused("diagonal", [](LuTables& t) { t.diagonal[2] = t.nnz(); });
  refused("row_offset", [](LuTables& t) { t.row_offset.pop_back(); });
  refused("column_index", [](LuTables& t) { t.column_index.back() = t.size; });
  refused("row_slot", [](LuTables& t) { t.row_slot[0] = t.nnz(); });
  refused("row_diagonal", [](LuTables& t) { t.row_diagonal[0] = t.nnz(); });
  refused("input_offset", [](LuTables& t) { t.input_offset[0] = 1; });
  refused("input_row", [](LuTables& t) { t.input_row[0] ^= 1; });
  refused("input_slot", [](LuTables& t) { t.input_slot[0] = t.nnz(); });
  refused("input_source", [](LuTables& t) { t.input_source[0] = t.input_source[1]; });
  refused("input_source", [](LuTables& t) { std::swap(t.input_source[0], t.input_source[1]); });
  refused("input_scale", [](LuTables& t) { t.input_scale.assign(1, 1.0); });
  refused("factor_levels", [](LuTables& t) {
    t.factor_levels.offset = {0, t.size}; // all at once
    std::sort(t.factor_levels.member.begin(), t.factor_levels.member.end());
  });
  refused("forward_levels", [](LuTables& t) { t.forward_levels.member[0] = t.size; });
  refused("backward_levels", [](LuTables& t) { t.backward_levels.offset.clear(); });
  refused("transposed_forward_levels", [](LuTables& t) {
    std::reverse(t.transposed_forward_levels.member.begin(),
                 t.transposed_forward_levels.member.end());
  });
  refused("transposed_backward_levels",
          [](LuTables& t) { t.transposed_backward_levels.member.pop_back(); });
  refused("the manifest says", [](LuTables& t) { t = LuTables{}; });
}

TEST_CASE("lu bundle: packets that would read beside or wait forever are refused", "[lu_bundle]") {
  Random random(test_seed(kSeed + 2));
  IdleContext there;
  const Bundle bundle = gpu_bundle(random, 12, LuGpuSolve::dataflow);
  for (const char* which : {kLuFactorSection, kLuSolveSection, kLuTransposedSection}) {
    const auto refused = [&](const char* text, const std::function<void(LuDataflow&)>& change) {
      INFO(which << ": " << text);
      check_invalid(there.context, with_flow(bundle, which, change), text);
    };
    refused(which, [](LuDataflow& f) { f.group[0] = 3; });
    refused("operand_words", [](LuDataflow& f) { f.operand_words = 1; });
    refused("task_words", [](LuDataflow& f) { f.task_words = 3; });
    refused("stream_offset", [](LuDataflow& f) { f.stream_offset = {0}; });
    refused("the manifest says",
            [](LuDataflow& f) { f.stream_offset.insert(f.stream_offset.begin(), 0); });
    refused("group", [](LuDataflow& f) { f.group.pop_back(); });
    refused("gate", [](LuDataflow& f) { f.gate.pop_back(); });
    refused("gate", [](LuDataflow& f) { f.gate[0] = 1u << 30; });
    refused("partial_sums", [](LuDataflow& f) { f.partial_sums = 1u << 31; });
    refused("task", [](LuDataflow& f) { f.task.push_back(0); });
    refused("operands", [](LuDataflow& f) { f.operands.clear(); });
    refused("operands", [](LuDataflow& f) { f.operands[used_word(f.operands)] = 1u << 30; });
    refused("task", [](LuDataflow& f) { f.task[used_word(f.task)] = 1u << 30; });
    refused("wait for one another", [](LuDataflow& f) {
      // A task that needs itself: its product's operands are its own result.
      for (uint32_t packet = 0; packet < f.packets(); ++packet) {
        const uint32_t task = f.task[packet * 32 * f.task_words];
        if (task == kNoWord)
          continue;
        const uint64_t words = uint64_t{packet} * f.operand_words * 128;
        if (f.operand_words == 3) {
          for (uint32_t word = 0; word < 3; ++word)
            f.operands[words + word * 128] = task;
        } else {
          f.operands[words] = 0;
          f.operands[words + 128] = task;
        }
        return;
      }
    });
    refused("damaged: ", [](LuDataflow& f) {
      // A task less: it is missing, or somebody waits for it.
      for (size_t i = f.task.size(); i-- > 0;)
        if (i % f.task_words == 0 && f.task[i] != kNoWord) {
          std::fill_n(f.task.begin() + static_cast<ptrdiff_t>(i), f.task_words, kNoWord);
          return;
        }
    });
  }
  const Bundle many = with_flow(bundle, kLuFactorSection, [](LuDataflow& f) {
    f.stream_offset.insert(f.stream_offset.end(), 64, f.stream_offset.back());
  });
  check_invalid(there.context, many, "the manifest says");
}

TEST_CASE("lu bundle: steps that would read beside are refused", "[lu_bundle]") {
  Random random(test_seed(kSeed + 3));
  IdleContext there;
  const Bundle bundle = gpu_bundle(random, 12, LuGpuSolve::block);
  const auto refused = [&](const char* text, const std::function<void(LuBlockSolve&)>& change) {
    INFO(text);
    check_invalid(there.context, with_steps(bundle, change), text);
  };
  refused("warps", [](LuBlockSolve& s) { s.warps = 1; });
  refused("end", [](LuBlockSolve& s) { s.steps += 1; });
  refused("end", [](LuBlockSolve& s) { s.end.back() = 1u << 30; });
  refused("end", [](LuBlockSolve& s) { s.end[0] = 1; });
  refused("shape", [](LuBlockSolve& s) { s.shape[0] = 5; });
  refused("shape", [](LuBlockSolve& s) { s.shape[1] = 1u << 30; });
  refused("shape", [](LuBlockSolve& s) { s.shape.resize(2); });
  refused("records", [](LuBlockSolve& s) { s.records.pop_back(); });
  refused("records", [](LuBlockSolve& s) { s.records[0] = 0xFFFF; });
  refused("slot", [](LuBlockSolve& s) { s.slot[used_word(s.slot)] = 1u << 30; });
  refused("slot", [](LuBlockSolve& s) { s.pivot[used_word(s.slot)] = 1u << 30; });
  refused("slot", [](LuBlockSolve& s) { s.pivot.pop_back(); });
}

TEST_CASE("lu bundle: manifests and sections", "[lu_bundle]") {
  Random random(test_seed(kSeed + 4));
  IdleContext there;
  const Bundle bundle = gpu_bundle(random, 8, LuGpuSolve::automatic);
  const auto refused = [&](const char* text, const std::function<void(Json&)>& change) {
    INFO(text);
    check_invalid(there.context, with_manifest(bundle, change), text);
  };
  refused("schema", [](Json& j) { j["schema"] = 9; });
  refused("family is spmm, expected lu", [](Json& j) { j["family"] = "spmm"; });
  refused("load it with sparsertc_network_load", [](Json& j) { j["family"] = "network"; });
  refused("key n:", [](Json& j) { j["n"] = -1; });
  refused("the manifest says", [](Json& j) { j["n"] = 9; });
  refused("key dtype", [](Json& j) { j["dtype"] = "f16"; });
  refused("key factor_dtype", [](Json& j) { j["factor_dtype"] = "c128"; });
  refused("key factor_dtype", [](Json& j) { j["dtype"] = "f32"; });
  refused("key flops", [](Json& j) { j["flops"] = "many"; });
  refused("key chosen.growth", [](Json& j) { j["chosen"]["growth"] = nullptr; });
  refused("key kernels", [](Json& j) { j["kernels"] = nullptr; });
  refused("key kernels", [](Json& j) { j["target"] = "host"; });
  refused("key kernels.factor", [](Json& j) { j["kernels"]["factor"] = "main"; });
  refused("key kernels.dataflow_threads", [](Json& j) { j["kernels"]["dataflow_threads"] = 33; });
  refused("key kernels.multiprocessors", [](Json& j) { j["kernels"]["multiprocessors"] = 0; });
  refused("key kernels.interface", [](Json& j) { j["kernels"]["interface"] = 77; });
  refused("which is no GPU", [](Json& j) { j["target"] = "sm_x"; });
  for (const char* which :
       {kLuTablesSection, kLuFactorSection, kLuSolveSection, kLuTransposedSection, "ptx"}) {
    Bundle changed = bundle;
    std::erase_if(changed.sections, [&](const auto& section) { return section.name == which; });
    check_invalid(there.context, changed,
                  which == std::string("ptx") ? "neither a cubin nor PTX" : which);
  }
  for (const char* which : {kLuTablesSection, kLuFactorSection, kLuSolveSection}) {
    Bundle changed = bundle;
    std::vector<uint8_t>& bytes = changed.find(which)->bytes;
    bytes.pop_back();
    check_invalid(there.context, changed, "damaged");
    bytes.insert(bytes.end(), {0, 0});
    check_invalid(there.context, changed, "1 byte more than expected");
    bytes.resize(4);
    check_invalid(there.context, changed, "cut short");
    changed.find(which)->bytes.assign(16, 1);
    check_invalid(there.context, changed, "version");
  }
  sparsertc_lu* lu = nullptr;
  CHECK(sparsertc_lu_load(there.context, "/nonexistent.srtc", &lu) ==
        SPARSERTC_ERROR_INVALID_BUNDLE);
  const uint8_t nothing[] = {1, 2, 3};
  CHECK(sparsertc_lu_create(there.context, nothing, 3, &lu) == SPARSERTC_ERROR_INVALID_BUNDLE);
  // The other loaders say who can.
  const std::vector<uint8_t> bytes = serialize(bundle);
  sparsertc_plan* plan = nullptr;
  CHECK(sparsertc_plan_create(there.context, bytes.data(), bytes.size(), &plan) ==
        SPARSERTC_ERROR_INVALID_BUNDLE);
  CHECK_THAT(sparsertc_last_error(), Contains("sparsertc_lu_load"));
}

TEST_CASE("lu bundle: random damage", "[lu_bundle]") {
  const uint64_t seed = test_seed(kSeed + 5);
  Random random(seed);
  sparsertc_context* host = nullptr;
  require_ok(sparsertc_context_create(-1, &host));
  IdleContext there;
  uint64_t refused = 0, accepted = 0;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(seed, round);
    const LuGpuSolve solve = random.chance(0.5) ? LuGpuSolve::dataflow : LuGpuSolve::block;
    Bundle bundle = gpu_bundle(random, 1 + random.below(12), solve);
    std::vector<Bundle::Section*> tables; // damaged code is the driver's business
    for (Bundle::Section& each : bundle.sections)
      if (!each.name.ends_with("ptx"))
        tables.push_back(&each);
    Bundle::Section& section = *tables[random.below(static_cast<uint32_t>(tables.size()))];
    const uint32_t changes = 1 + random.below(3);
    for (uint32_t i = 0; i < changes; ++i) {
      // A word, to a number that is near, large, or random.
      const size_t at = random.below(static_cast<uint32_t>(section.bytes.size() / 4)) * 4;
      uint32_t word;
      std::memcpy(&word, section.bytes.data() + at, sizeof word);
      const uint32_t kind = random.below(4);
      word = kind == 0   ? word + 1
             : kind == 1 ? word - 1
             : kind == 2 ? kNoWord
                         : static_cast<uint32_t>(random.bits());
      std::memcpy(section.bytes.data() + at, &word, sizeof word);
    }
    for (const bool on_host : {true, false}) {
      const sparsertc_context* const context = on_host ? host : there.context;
      sparsertc_lu* lu = nullptr;
      const sparsertc_result result = try_load(context, bundle, &lu);
      if (result != SPARSERTC_OK) {
        CHECK(result == SPARSERTC_ERROR_INVALID_BUNDLE);
        ++refused;
        continue;
      }
      ++accepted;
      if (on_host) {
        // Numbers may be anything; nothing may be touched that is not there.
        sparsertc_lu_info info;
        info.struct_size = sizeof info;
        require_ok(sparsertc_lu_query(lu, &info));
        LuSession session(context, true, lu);
        const std::vector<double> b(static_cast<size_t>(info.n), 1.0);
        const LuMemory values(context, true, static_cast<uint64_t>(info.nnz) * 8);
        const sparsertc_lu_matrix matrix = {sizeof matrix, values.address, 0};
        require_ok(sparsertc_lu_refactor(lu, &matrix, &session.workspace(), nullptr));
        for (const bool transposed : {false, true})
          session.solve(b, 1, transposed, false);
      }
      sparsertc_lu_destroy(lu);
    }
  }
  CHECK(refused > 200);
  CHECK(accepted > 0); // a scale, or a section that the host does not read
  sparsertc_context_destroy(host);
}
