// The compiler of sparse LU behind a function of plain C.
#include "ir/error.h"
#include "runtime/plan/c_guard.h"
#include "tools/assemblers.h"
#include "tools/library/caller_matrix.h"
#include "tools/lu_compile.h"
#include "tools/lu_options.h"
#include "tools/words.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <memory>

using namespace sparsertc;

namespace {

struct LuWords {
  LuOptions lu;
  AssemblerOptions assembler;
  std::string numbers = "f64";
  std::string target = "sm_90";
  uint32_t multiprocessors = 0;
  double pivot_threshold = 0;
  bool transposed = true;
  bool batch = false;
  uint64_t batch_budget = LuCompileOptions().batch_budget;
  unsigned jobs = 0;
};

uint32_t parse_number_32(const std::string& name, const std::string& text) {
  const uint64_t number = parse_number(name, text);
  if (number > std::numeric_limits<uint32_t>::max())
    throw UsageError(fmt::format("{}: {} is too large", name, number));
  return static_cast<uint32_t>(number);
}

double parse_threshold(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(number >= 0 && number < 1))
    throw UsageError(
        fmt::format("pivot-threshold: \"{}\": expected a number from 0, less than 1", text));
  return number;
}

LuWords parse_lu_words(const char* text) {
  const std::vector<std::string> known = {
      "numbers",         "matching", "order",     "blocks",        "target", "multiprocessors",
      "pivot-threshold", "jobs",     "assembler", "no-transposed", "batch",  "batch-budget"};
  LuWords words;
  for (const auto& [name, given] : split_words(text ? text : "")) {
    choose_word("words", name, known);
    const bool is_flag = name == "no-transposed" || name == "batch";
    if (is_flag == given.has_value())
      throw UsageError(is_flag ? fmt::format("{}: a flag has no value", name)
                               : fmt::format("{}: a value is missing", name));
    const std::string value = given.value_or("");
    if (name == "no-transposed")
      words.transposed = false;
    else if (name == "batch")
      words.batch = true;
    else if (name == "batch-budget")
      words.batch_budget = parse_number(name, value);
    else if (name == "numbers")
      words.numbers = value;
    else if (name == "matching")
      words.lu.matching = value;
    else if (name == "order")
      words.lu.order = value;
    else if (name == "blocks")
      words.lu.blocks = value;
    else if (name == "target")
      words.target = value;
    else if (name == "multiprocessors")
      words.multiprocessors = parse_number_32(name, value);
    else if (name == "pivot-threshold")
      words.pivot_threshold = parse_threshold(value);
    else if (name == "jobs")
      words.jobs = parse_number_32(name, value);
    else
      words.assembler.choice = value;
  }
  return words;
}

std::optional<Permutation> to_permutation(const uint32_t* order, uint32_t size) {
  if (order == nullptr)
    return std::nullopt;
  return Permutation(order, order + size);
}

} // namespace

sparsertc_result sparsertc_compiler_lu(const sparsertc_matrix* matrix,
                                       const sparsertc_lu_choices* choices,
                                       sparsertc_compiled* compiled) {
  return guarded(
      [&] {
        check_size(required(compiled, "compiled"), "sparsertc_compiled");
        clear_keeping_size(*compiled);
        const Matrix a = to_matrix(required_struct(matrix, "matrix", "sparsertc_matrix"),
                                   MatrixNumbers::real_or_complex_or_none);
        const sparsertc_lu_choices none = {sizeof none, nullptr, nullptr, nullptr};
        const sparsertc_lu_choices& chosen =
            choices ? required_struct(choices, "choices", "sparsertc_lu_choices") : none;
        const LuWords words = parse_lu_words(chosen.words);
        LuCompileOptions options;
        options.precision = static_cast<LuPrecision>(
            choose_word("numbers", words.numbers, {"f64", "f32", "mixed"}));
        choose_word("target", words.target, known_targets());
        options.target = find_target(words.target);
        options.multiprocessors = words.multiprocessors;
        options.pivot_threshold = words.pivot_threshold;
        options.transposed = words.transposed;
        options.batch = words.batch;
        options.batch_budget = words.batch_budget;
        options.analysis = to_analysis_options(words.lu);
        options.analysis.rows = to_permutation(chosen.rows, a.pattern.rows);
        options.analysis.columns = to_permutation(chosen.columns, a.pattern.columns);
        TaskPool pool(words.jobs);
        options.pool = options.analysis.pool = &pool;
        options.jobs = words.jobs;
        std::unique_ptr<Assembler> assembler;
        if (!options.target.is_host && words.assembler.choice != "none") {
          std::vector<std::string> refused; // no assembler is no error: the driver has one
          assembler = find_assembler(words.assembler, refused);
        }
        options.assembler = assembler.get();
        hand_out(serialize(compile_lu(a, options)), *compiled);
      },
      SPARSERTC_ERROR_INVALID_ARGUMENT);
}
