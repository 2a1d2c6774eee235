// The compiler behind functions of plain C.
#include "tools/library/sparsertc_compiler.h"

#include "compiler/manifest.h"
#include "runtime/plan/c_guard.h"
#include "tools/library/layer_compiler.h"

#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

using namespace sparsertc;

struct sparsertc_compiler {
  LayerCompiler compiler;
  std::string assembler;
};

namespace {

/// Numbers of either width.
class Indices {
public:
  Indices(const void* numbers, uint32_t type) : numbers_(numbers), type_(type) {}
  int64_t operator[](int64_t i) const {
    return type_ == SPARSERTC_INDEX_I32 ? static_cast<const int32_t*>(numbers_)[i]
                                        : static_cast<const int64_t*>(numbers_)[i];
  }

private:
  const void* numbers_;
  uint32_t type_;
};

void check_dimension(const char* name, int64_t value) {
  if (value < 0 || static_cast<uint64_t>(value) > kMaximumDimension)
    throw UsageError(fmt::format("{} is {}, possible are 0 to {}", name, value, kMaximumDimension));
}

/// Row i of a matrix whose offsets have been checked.
void add_row(const Indices& offsets, const Indices& columns, int64_t row, Pattern& pattern) {
  int64_t before = -1;
  for (int64_t entry = offsets[row]; entry < offsets[row + 1]; ++entry) {
    const int64_t column = columns[entry];
    const auto refuse = [&](const char* what) {
      throw UsageError(fmt::format("row {}: column {} {}", row, column, what),
                       "columns of a row ascend, each at most once, from 0 to k - 1");
    };
    if (column < 0 || column >= pattern.columns)
      refuse("is out of range");
    if (column == before)
      refuse("comes twice");
    if (column < before)
      refuse("comes after a larger one");
    before = column;
    pattern.column_index.push_back(static_cast<uint32_t>(column));
  }
}

Matrix to_matrix(const sparsertc_matrix& given) {
  check_dimension("m", given.m);
  check_dimension("k", given.k);
  if (given.nnz < 0 || given.nnz > std::numeric_limits<uint32_t>::max())
    throw UsageError(fmt::format("nnz is {}, possible are 0 to {}", given.nnz,
                                 std::numeric_limits<uint32_t>::max()));
  if (given.index_type > SPARSERTC_INDEX_I64)
    throw UsageError(fmt::format("index_type is {}, which is none", given.index_type));
  if (given.value_type > SPARSERTC_VALUE_F64)
    throw UsageError(fmt::format("value_type is {}, which is none", given.value_type));
  check_not_null(given.row_offsets, "row_offsets");
  if (given.nnz > 0) {
    check_not_null(given.column_indices, "column_indices");
    check_not_null(given.values, "values");
  }
  const Indices offsets(given.row_offsets, given.index_type);
  const Indices columns(given.column_indices, given.index_type);
  if (offsets[0] != 0)
    throw UsageError(fmt::format("row_offsets[0] is {}, expected 0", offsets[0]));
  for (int64_t row = 0; row < given.m; ++row)
    if (offsets[row + 1] < offsets[row])
      throw UsageError(fmt::format("row_offsets[{}] is {}, less than the {} before it", row + 1,
                                   offsets[row + 1], offsets[row]));
  if (offsets[given.m] != given.nnz)
    throw UsageError(
        fmt::format("row_offsets[{}] is {}, and nnz is {}", given.m, offsets[given.m], given.nnz));

  Matrix matrix;
  matrix.name = "the matrix in memory";
  Pattern& pattern = matrix.pattern;
  pattern.rows = static_cast<uint32_t>(given.m);
  pattern.columns = static_cast<uint32_t>(given.k);
  pattern.row_offset.reserve(static_cast<size_t>(given.m) + 1);
  pattern.column_index.reserve(static_cast<size_t>(given.nnz));
  for (int64_t row = 0; row < given.m; ++row) {
    add_row(offsets, columns, row, pattern);
    pattern.row_offset.push_back(pattern.column_index.size());
  }
  if (given.value_type == SPARSERTC_VALUE_F32) {
    const auto* values = static_cast<const float*>(given.values);
    matrix.values.assign(values, values + given.nnz);
    matrix.stored = StoredType::f32;
  } else {
    const auto* values = static_cast<const double*>(given.values);
    matrix.values.assign(values, values + given.nnz);
    matrix.stored = StoredType::f64;
  }
  return matrix;
}

void fill_in(const std::vector<uint8_t>& bundle, sparsertc_compiled& compiled) {
  auto* bytes = new uint8_t[bundle.size()];
  std::memcpy(bytes, bundle.data(), bundle.size());
  compiled.bundle = bytes;
  compiled.bytes = bundle.size();
}

/// Sets a flag soon after the candidate is not wanted any more: the pipeline asks flags, the tuner
/// offers a function.
class StopWatch {
public:
  explicit StopWatch(const sparsertc_candidate& candidate)
      : candidate_(candidate), thread_([this](const std::stop_token& end) { watch(end); }) {}
  const std::atomic<bool>& stop() const { return stop_; }

private:
  void watch(const std::stop_token& end) {
    std::unique_lock lock(mutex_);
    while (!end.stop_requested() && !stop_) {
      stop_ = candidate_.stopped(&candidate_) != 0;
      changed_.wait_for(lock, end, std::chrono::milliseconds(20), [] { return false; });
    }
  }

  const sparsertc_candidate& candidate_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_; ///< last, so that it ends first
};

/// Errors of the matrix are the caller's arguments here.
template <typename Work>
sparsertc_result guarded_call(Work&& work) noexcept {
  return guarded(std::forward<Work>(work), SPARSERTC_ERROR_INVALID_ARGUMENT);
}

} // namespace

const char* sparsertc_compiler_version(void) {
  return sparsertc::sparsertc_version().data(); // a literal
}

const char* sparsertc_compiler_last_error(void) {
  return last_error();
}

sparsertc_result sparsertc_compiler_create(const sparsertc_matrix* matrix, const char* words,
                                           sparsertc_compiler** compiler) {
  return guarded_call([&] {
    required(compiler, "compiler") = nullptr;
    const sparsertc_matrix& given = required_struct(matrix, "matrix", "sparsertc_matrix");
    auto made = std::make_unique<sparsertc_compiler>(
        sparsertc_compiler{LayerCompiler(to_matrix(given), words ? words : ""), {}});
    made->assembler = made->compiler.assembler();
    *compiler = made.release();
  });
}

void sparsertc_compiler_destroy(sparsertc_compiler* compiler) {
  delete compiler;
}

const char* sparsertc_compiler_assembler(const sparsertc_compiler* compiler) {
  return compiler ? compiler->assembler.c_str() : "";
}

sparsertc_result sparsertc_compiler_compile(const sparsertc_compiler* compiler, const char* tile,
                                            sparsertc_compiled* compiled) {
  return guarded_call([&] {
    check_size(required(compiled, "compiled"), "sparsertc_compiled");
    clear_keeping_size(*compiled);
    fill_in(
        required(compiler, "compiler")
            .compiler.compile(tile ? std::optional<std::string>(tile) : std::nullopt, 0, nullptr),
        *compiled);
  });
}

void sparsertc_compiler_release(void*, const sparsertc_compiled* compiled) {
  if (compiled)
    delete[] static_cast<const uint8_t*>(compiled->bundle);
}

sparsertc_result sparsertc_compiler_candidate(void* compiler, const sparsertc_candidate* candidate,
                                              sparsertc_compiled* compiled) {
  const sparsertc_result result = guarded_call([&] {
    check_size(required(compiled, "compiled"), "sparsertc_compiled");
    clear_keeping_size(*compiled);
    const sparsertc_candidate& wanted =
        required_struct(candidate, "candidate", "sparsertc_candidate");
    const auto& layer = required(static_cast<const sparsertc_compiler*>(compiler), "compiler");
    const std::string tile = &required(wanted.tile, "tile");
    if (!wanted.stopped) {
      fill_in(layer.compiler.compile(tile, wanted.jobs, nullptr), *compiled);
      return;
    }
    const StopWatch watch(wanted);
    fill_in(layer.compiler.compile(tile, wanted.jobs, &watch.stop()), *compiled);
  });
  if (result != SPARSERTC_OK && compiled && compiled->struct_size >= sizeof(sparsertc_compiled))
    compiled->message = last_error();
  return result;
}
