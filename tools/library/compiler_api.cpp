// The compiler behind functions of plain C.
#include "tools/library/sparsertc_compiler.h"

#include "compiler/manifest.h"
#include "runtime/plan/c_guard.h"
#include "tools/library/caller_matrix.h"
#include "tools/library/layer_compiler.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

using namespace sparsertc;

struct sparsertc_compiler {
  LayerCompiler compiler;
  std::string assembler;
};

namespace {

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
    auto made = std::make_unique<sparsertc_compiler>(sparsertc_compiler{
        LayerCompiler(to_matrix(given, MatrixNumbers::real), words ? words : ""), {}});
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
    hand_out(
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
      hand_out(layer.compiler.compile(tile, wanted.jobs, nullptr), *compiled);
      return;
    }
    const StopWatch watch(wanted);
    hand_out(layer.compiler.compile(tile, wanted.jobs, &watch.stop()), *compiled);
  });
  if (result != SPARSERTC_OK && compiled && compiled->struct_size >= sizeof(sparsertc_compiled))
    compiled->message = last_error();
  return result;
}
