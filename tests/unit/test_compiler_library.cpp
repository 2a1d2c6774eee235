// The C API of the compiler: what it refuses, and that it makes what the pipeline makes.
#include "compiler/assemble/ptxas.h"
#include "runtime/bundle/bundle.h"
#include "tests/support/scattered_matrix.h"
#include "tools/library/sparsertc_compiler.h"
#include "tools/lu_compile.h"
#include "tools/make_bundle.h"
#include "tools/words.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

using namespace sparsertc;
using Catch::Contains;

extern "C" {
size_t c_size_of_matrix(void);
size_t c_size_of_lu_choices(void);
}

namespace {

/// 3 x 4 with 5 entries.
struct Csr {
  std::vector<int32_t> offsets = {0, 2, 2, 5};
  std::vector<int32_t> columns = {0, 3, 1, 2, 3};
  std::vector<float> values = {1.5f, -2, 0.25f, 3, -0.5f};

  sparsertc_matrix view() const {
    return {sizeof(sparsertc_matrix),
            3,
            4,
            static_cast<int64_t>(columns.size()),
            offsets.data(),
            columns.data(),
            values.data(),
            SPARSERTC_INDEX_I32,
            SPARSERTC_VALUE_F32};
  }
};

void check_refused(const sparsertc_matrix* matrix, const char* words, const char* text) {
  auto* compiler = reinterpret_cast<sparsertc_compiler*>(8);
  CHECK(sparsertc_compiler_create(matrix, words, &compiler) == SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK(compiler == nullptr);
  CHECK_THAT(sparsertc_compiler_last_error(), Contains(text));
}

class Handle {
public:
  Handle(const sparsertc_matrix& matrix, const char* words) {
    const sparsertc_result result = sparsertc_compiler_create(&matrix, words, &compiler);
    INFO(sparsertc_compiler_last_error());
    REQUIRE(result == SPARSERTC_OK);
  }
  ~Handle() { sparsertc_compiler_destroy(compiler); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  std::vector<uint8_t> compile(const char* tile = nullptr) const {
    sparsertc_compiled compiled = {sizeof compiled, nullptr, 0, nullptr};
    const sparsertc_result result = sparsertc_compiler_compile(compiler, tile, &compiled);
    INFO(sparsertc_compiler_last_error());
    REQUIRE(result == SPARSERTC_OK);
    const auto* bytes = static_cast<const uint8_t*>(compiled.bundle);
    std::vector<uint8_t> copy(bytes, bytes + compiled.bytes);
    sparsertc_compiler_release(compiler, &compiled);
    return copy;
  }
  sparsertc_compiler* compiler = nullptr;
};

/// What the command does.
std::vector<uint8_t> by_pipeline(const Matrix& matrix, const PipelineOptions& options) {
  return serialize(make_bundle(compile_spmm([&] { return matrix; }, options), options));
}

} // namespace

TEST_CASE("matrices that are none are refused with the place") {
  const auto refused = [](const char* text, auto change) {
    Csr csr;
    sparsertc_matrix matrix = csr.view();
    change(csr, matrix);
    check_refused(&matrix, "", text);
  };
  check_refused(nullptr, "", "matrix is a null");
  refused("struct_size is 3", [](Csr&, auto& m) { m.struct_size = 3; });
  refused("row_offsets is a null", [](Csr&, auto& m) { m.row_offsets = nullptr; });
  refused("column_indices is a null", [](Csr&, auto& m) { m.column_indices = nullptr; });
  refused("values is a null", [](Csr&, auto& m) { m.values = nullptr; });
  refused("m is -1", [](Csr&, auto& m) { m.m = -1; });
  refused("k is 2147483648", [](Csr&, auto& m) { m.k = int64_t{1} << 31; });
  refused("nnz is -5", [](Csr&, auto& m) { m.nnz = -5; });
  refused("row_offsets[3] is 5, and nnz is 4", [](Csr&, auto& m) { m.nnz = 4; });
  refused("index_type is 2", [](Csr&, auto& m) { m.index_type = 2; });
  refused("value_type is 9", [](Csr&, auto& m) { m.value_type = 9; });
  refused("row_offsets[0] is 1", [](Csr& c, auto&) { c.offsets[0] = 1; });
  refused("row_offsets[2] is 1, less than the 2", [](Csr& c, auto&) { c.offsets[2] = 1; });
  refused("row_offsets[3] is 4, and nnz is 5", [](Csr& c, auto&) { c.offsets[3] = 4; });
  refused("row 0: column 4 is out of range", [](Csr& c, auto&) { c.columns[1] = 4; });
  refused("row 0: column -1 is out of range", [](Csr& c, auto&) { c.columns[0] = -1; });
  refused("row 2: column 2 comes twice", [](Csr& c, auto&) { c.columns[4] = 2; });
  refused("row 2: column 1 comes after a larger", [](Csr& c, auto&) { c.columns[4] = 1; });
  Csr csr;
  const sparsertc_matrix good = csr.view();
  CHECK(sparsertc_compiler_create(&good, "", nullptr) == SPARSERTC_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("words that are none are refused by name") {
  Csr csr;
  const sparsertc_matrix matrix = csr.view();
  check_refused(&matrix, "colums=4", "did you mean columns?");
  check_refused(&matrix, "columns=4 columns=5", "columns: given twice");
  check_refused(&matrix, "columns=x", "whole number");
  check_refused(&matrix, "columns", "a value is missing");
  check_refused(&matrix, "bias=1", "bias: a flag has no value");
  check_refused(&matrix, "dtype=f23", "unknown word");
  check_refused(&matrix, "layout=diagonal", "unknown word");
  check_refused(&matrix, "activation=rele", "did you mean relu?");
  check_refused(&matrix, "target=native", "unknown word");
  check_refused(&matrix, "target=host", "no bundles for the CPU");
  check_refused(&matrix, "tile=rows=0", "rows");
  check_refused(&matrix, "tile=row=2", "did you mean rows?");
  check_refused(&matrix, "tile=registers=3", "registers=3");
  check_refused(&matrix, "budget=-1", "whole number");
  check_refused(&matrix, "jobs=99999999999", "too large");
  check_refused(&matrix, "assembler=gas", "unknown word");
}

TEST_CASE("what cannot be compiled is refused, and the next compilation works") {
  Csr csr;
  const Handle handle(csr.view(), "columns=32 assembler=none");
  sparsertc_compiled compiled = {sizeof compiled, "x", 1, "y"};
  CHECK(sparsertc_compiler_compile(handle.compiler, "rows=x", &compiled) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK(compiled.bundle == nullptr);
  CHECK(sparsertc_compiler_compile(handle.compiler, "warps=32,groups=32", &compiled) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK(sparsertc_compiler_compile(nullptr, nullptr, &compiled) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK(sparsertc_compiler_compile(handle.compiler, nullptr, nullptr) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  compiled.struct_size = 8;
  CHECK(sparsertc_compiler_compile(handle.compiler, nullptr, &compiled) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK_FALSE(handle.compile().empty());
  sparsertc_compiler_release(nullptr, nullptr);
  sparsertc_compiler_destroy(nullptr);

  csr.values[1] = 1e30f; // infinite in f16
  const Handle overflowing(csr.view(), "columns=32 dtype=f16 assembler=none");
  compiled.struct_size = sizeof compiled;
  CHECK(sparsertc_compiler_compile(overflowing.compiler, nullptr, &compiled) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK_THAT(sparsertc_compiler_last_error(), Contains("the matrix in memory"));
  csr.values[1] = std::nanf(""); // no more than in a file
  const Handle with_nan(csr.view(), "columns=32 assembler=none");
  CHECK(sparsertc_compiler_compile(with_nan.compiler, nullptr, &compiled) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK_THAT(sparsertc_compiler_last_error(),
             Contains("weight nan at row 0, column 3 is not finite"));
}

TEST_CASE("bundles are those of the pipeline, byte by byte") {
  const Matrix matrix = scattered_matrix(40, 56, 5);
  const Pattern& pattern = matrix.pattern;
  const std::vector<int64_t> offsets(pattern.row_offset.begin(), pattern.row_offset.end());
  const std::vector<int64_t> columns(pattern.column_index.begin(), pattern.column_index.end());
  const sparsertc_matrix given = {sizeof given,
                                  40,
                                  56,
                                  static_cast<int64_t>(pattern.nnz()),
                                  offsets.data(),
                                  columns.data(),
                                  matrix.values.data(),
                                  SPARSERTC_INDEX_I64,
                                  SPARSERTC_VALUE_F64};
  PipelineOptions options;
  options.artefact = Artefact::bundle;
  options.target = find_target("sm_90");
  SECTION("defaults") {
    CHECK(Handle(given, "assembler=none").compile() == by_pipeline(matrix, options));
    CHECK(Handle(given, " assembler=none  ").compile("") == by_pipeline(matrix, options));
  }
  SECTION("every word") {
    options.problem.columns = 96;
    options.problem.type = DataType::f16;
    options.problem.ldb = 104;
    options.problem.ldc = 112;
    options.problem.epilogue = {true, true, Activation::gelu};
    options.problem.half_terms = 4;
    options.target = find_target("sm_80");
    options.budget = 100000;
    options.tile = parse_tile_choice("rows=4,warps=2");
    options.max_registers = 64;
    const Handle handle(given, "columns=96 dtype=f16 layout=row ldb=104 ldc=112 bias residual "
                               "activation=gelu half-terms=4 target=sm_80 budget=100000 jobs=2 "
                               "assembler=none tile=rows=4,warps=2,registers=64");
    CHECK(handle.compile() == by_pipeline(matrix, options));
    // Another tile for the same layer.
    options.tile = parse_tile_choice("rows=8");
    options.max_registers = 0;
    CHECK(handle.compile("rows=8") == by_pipeline(matrix, options));
  }
  SECTION("narrow indices and values") {
    const std::vector<int32_t> narrow_offsets(offsets.begin(), offsets.end());
    const std::vector<int32_t> narrow_columns(columns.begin(), columns.end());
    const std::vector<float> narrow_values(matrix.values.begin(), matrix.values.end());
    sparsertc_matrix narrow = given;
    narrow.row_offsets = narrow_offsets.data();
    narrow.column_indices = narrow_columns.data();
    narrow.values = narrow_values.data();
    narrow.index_type = SPARSERTC_INDEX_I32;
    narrow.value_type = SPARSERTC_VALUE_F32;
    CHECK(Handle(narrow, "assembler=none").compile() == by_pipeline(matrix, options));
  }
  SECTION("machine code") {
    std::vector<std::string> reasons;
    const auto ptxas = Ptxas::find(reasons);
    if (!ptxas) {
      WARN("SKIPPED: no ptxas");
      return;
    }
    options.assembler = ptxas.get();
    options.problem.columns = 64;
    const Handle handle(given, "columns=64");
    CHECK(handle.compile() == by_pipeline(matrix, options));
    CHECK(sparsertc_compiler_assembler(handle.compiler) == ptxas->identity());
  }
}

TEST_CASE("layers without rows, columns or entries") {
  const int32_t zeros[4] = {};
  const sparsertc_matrix no_entries = {
      sizeof no_entries,  3, 4, 0, zeros, nullptr, nullptr, SPARSERTC_INDEX_I32,
      SPARSERTC_VALUE_F32};
  CHECK_FALSE(Handle(no_entries, "columns=8 assembler=none").compile().empty());
  sparsertc_matrix nothing = no_entries;
  nothing.m = nothing.k = 0;
  CHECK_FALSE(Handle(nothing, "assembler=none").compile().empty());
}

TEST_CASE("candidates are compiled by several threads, and stopped") {
  const Csr csr;
  const Handle handle(csr.view(), "columns=64 assembler=none");
  std::vector<std::vector<uint8_t>> made(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < made.size(); ++i)
    threads.emplace_back([&, i] {
      const sparsertc_candidate candidate = {
          sizeof candidate,
          "rows=2,registers=128",
          1,
          0,
          [](const sparsertc_candidate*) -> int32_t { return 0; },
          nullptr};
      sparsertc_compiled compiled = {sizeof compiled, nullptr, 0, nullptr};
      if (sparsertc_compiler_candidate(handle.compiler, &candidate, &compiled) == SPARSERTC_OK) {
        const auto* bytes = static_cast<const uint8_t*>(compiled.bundle);
        made[i].assign(bytes, bytes + compiled.bytes);
        sparsertc_compiler_release(handle.compiler, &compiled);
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  const std::vector<uint8_t> expected = handle.compile("rows=2,registers=128");
  for (const std::vector<uint8_t>& one : made)
    CHECK(one == expected);

  sparsertc_compiled compiled = {sizeof compiled, nullptr, 0, nullptr};
  sparsertc_candidate candidate = {sizeof candidate, "rows=", 1, 0, nullptr, nullptr};
  CHECK(sparsertc_compiler_candidate(handle.compiler, &candidate, &compiled) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  REQUIRE(compiled.message != nullptr);
  CHECK_THAT(compiled.message, Contains("rows"));
  candidate.tile = nullptr;
  CHECK(sparsertc_compiler_candidate(handle.compiler, &candidate, &compiled) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK(sparsertc_compiler_candidate(nullptr, &candidate, &compiled) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK(sparsertc_compiler_candidate(handle.compiler, nullptr, &compiled) ==
        SPARSERTC_ERROR_INVALID_ARGUMENT);

  // A large layer that nobody waits for.
  const Matrix large = scattered_matrix(1500, 1500, 5);
  const std::vector<int64_t> offsets(large.pattern.row_offset.begin(),
                                     large.pattern.row_offset.end());
  const std::vector<int64_t> columns(large.pattern.column_index.begin(),
                                     large.pattern.column_index.end());
  const sparsertc_matrix given = {sizeof given,
                                  1500,
                                  1500,
                                  static_cast<int64_t>(large.pattern.nnz()),
                                  offsets.data(),
                                  columns.data(),
                                  large.values.data(),
                                  SPARSERTC_INDEX_I64,
                                  SPARSERTC_VALUE_F64};
  const Handle unwanted(given, "columns=64 assembler=none budget=1000000000");
  candidate.tile = "strategy=unrolled";
  candidate.stopped = [](const sparsertc_candidate*) -> int32_t { return 1; };
  CHECK(sparsertc_compiler_candidate(unwanted.compiler, &candidate, &compiled) ==
        SPARSERTC_ERROR_MACHINE);
  CHECK_THAT(compiled.message, Contains("stopped"));
}

TEST_CASE("the compiler's header is C99, and its struct is the same in C and C++") {
  CHECK(c_size_of_matrix() == sizeof(sparsertc_matrix));
  CHECK(std::string(sparsertc_compiler_version()).find('.') != std::string::npos);
  CHECK(sparsertc_compiler_assembler(nullptr) == std::string());
}

namespace {

/// 3 x 3, its largest entries beside the diagonal.
struct SmallSystem {
  std::vector<int64_t> offsets = {0, 2, 4, 6};
  std::vector<int64_t> columns = {0, 1, 1, 2, 0, 2};
  std::vector<double> values = {1e-3, 4, 1e-3, 5, 3, 1e-3};

  sparsertc_matrix view() const {
    return {sizeof(sparsertc_matrix),
            3,
            3,
            6,
            offsets.data(),
            columns.data(),
            values.data(),
            SPARSERTC_INDEX_I64,
            SPARSERTC_VALUE_F64};
  }
  Matrix matrix() const {
    Matrix a;
    a.name = "the matrix in memory";
    a.pattern = {3, 3, {0, 2, 4, 6}, {0, 1, 1, 2, 0, 2}};
    a.values = values;
    a.stored = StoredType::f64;
    return a;
  }
};

std::vector<uint8_t> compile_system(const sparsertc_matrix& matrix,
                                    const sparsertc_lu_choices* choices) {
  sparsertc_compiled compiled = {sizeof compiled, nullptr, 0, nullptr};
  const sparsertc_result result = sparsertc_compiler_lu(&matrix, choices, &compiled);
  INFO(sparsertc_compiler_last_error());
  REQUIRE(result == SPARSERTC_OK);
  const auto* bytes = static_cast<const uint8_t*>(compiled.bundle);
  std::vector<uint8_t> copy(bytes, bytes + compiled.bytes);
  sparsertc_compiler_release(nullptr, &compiled);
  return copy;
}

void check_system_refused(const sparsertc_matrix& matrix, const sparsertc_lu_choices* choices,
                          const char* text) {
  sparsertc_compiled compiled = {sizeof compiled, nullptr, 0, nullptr};
  CHECK(sparsertc_compiler_lu(&matrix, choices, &compiled) == SPARSERTC_ERROR_INVALID_ARGUMENT);
  CHECK_THAT(sparsertc_compiler_last_error(), Contains(text));
  CHECK(compiled.bundle == nullptr);
}

} // namespace

TEST_CASE("sparse LU: the library makes what the command makes") {
  CHECK(c_size_of_lu_choices() == sizeof(sparsertc_lu_choices));
  const SmallSystem system;
  TaskPool pool(1);
  LuCompileOptions options;
  options.pool = options.analysis.pool = &pool;
  options.target = find_target("host");
  sparsertc_lu_choices choices = {sizeof choices, "target=host", nullptr, nullptr};
  CHECK(compile_system(system.view(), &choices) == serialize(compile_lu(system.matrix(), options)));

  choices.words = "target=sm_80 multiprocessors=3 numbers=mixed order=amd no-transposed "
                  "assembler=none jobs=1";
  options.target = find_target("sm_80");
  options.multiprocessors = 3;
  options.precision = LuPrecision::mixed;
  options.analysis.order = FillOrder::amd;
  options.transposed = false;
  CHECK(compile_system(system.view(), &choices) == serialize(compile_lu(system.matrix(), options)));

  // The caller's own permutations.
  const uint32_t rows[] = {2, 0, 1}, columns[] = {0, 1, 2};
  choices = {sizeof choices, "target=host", rows, columns};
  LuCompileOptions placed;
  placed.pool = placed.analysis.pool = &pool;
  placed.target = find_target("host");
  placed.analysis.rows = Permutation(rows, rows + 3);
  placed.analysis.columns = Permutation(columns, columns + 3);
  CHECK(compile_system(system.view(), &choices) == serialize(compile_lu(system.matrix(), placed)));

  // The pattern alone.
  sparsertc_matrix pattern = system.view();
  pattern.values = nullptr;
  choices = {sizeof choices, "target=host", nullptr, nullptr};
  const std::vector<uint8_t> bytes = compile_system(pattern, &choices);
  CHECK_THAT(parse_bundle(bytes, "pattern").manifest, Contains("\"chosen\": null"));
}

TEST_CASE("sparse LU: what the library refuses") {
  const SmallSystem system;
  const auto words_refused = [&](const char* words, const char* text) {
    const sparsertc_lu_choices choices = {sizeof choices, words, nullptr, nullptr};
    check_system_refused(system.view(), &choices, text);
  };
  words_refused("tile=rows=2", "tile");
  words_refused("numbers=f16", "numbers");
  words_refused("target=native", "target");
  words_refused("order=best", "--order");
  words_refused("matching", "a value is missing");
  words_refused("no-transposed=1", "a flag has no value");
  words_refused("jobs=1 jobs=2", "given twice");
  words_refused("pivot-threshold=2", "less than 1");
  const uint32_t twice[] = {0, 0, 1};
  const sparsertc_lu_choices wrong = {sizeof wrong, "target=host", nullptr, twice};
  check_system_refused(system.view(), &wrong, "permutation");
  sparsertc_matrix matrix = system.view();
  matrix.k = 4;
  check_system_refused(matrix, nullptr, "square");
  matrix = system.view();
  matrix.value_type = 4;
  check_system_refused(matrix, nullptr, "value_type is 4");
  SmallSystem singular;
  singular.values = {1, 2, 0, 0, 3, 4};
  check_system_refused(singular.view(), nullptr, "singular");
}
