#include "tools/compile_lu.h"

#include "compiler/input/bytes.h"
#include "compiler/input/read.h"
#include "ir/counted.h"
#include "ir/error.h"
#include "runtime/plan/lu_manifest.h"
#include "tools/gpu_device.h"
#include "tools/lu_compile.h"
#include "tools/lu_gpu_analysis.h"
#include "tools/option_checks.h"
#include "tools/session.h"
#include "tools/words.h"

#include <fmt/format.h>

#include <memory>

namespace sparsertc {
namespace {

void print_decisions(const Matrix& matrix, const Bundle& bundle) {
  for (const std::string& remark : matrix.remarks)
    fmt::print(stderr, "remark: {}\n", remark);
  const LuManifest manifest = parse_lu_manifest(bundle.manifest, "the bundle");
  fmt::print(stderr, "remark: rows are {}: {}\n", manifest.matched ? "matched" : "not matched",
             manifest.matching_reason);
  fmt::print(stderr, "remark: order {}; L has {}, U {}, in {}\n", manifest.order,
             counted(manifest.nnz_l, "entry", "entries"), manifest.nnz_u,
             counted(manifest.levels, "level"));
  if (manifest.kernels)
    fmt::print(stderr, "remark: tables for {}; code by {}\n",
               counted(manifest.kernels->multiprocessors, "multiprocessor"),
               manifest.assembler.empty() ? "the driver, when it is loaded" : manifest.assembler);
  for (const Bundle::Section& section : bundle.sections)
    fmt::print(stderr, "remark: section {}: {}\n", section.name,
               counted(section.bytes.size(), "byte"));
}

} // namespace

void declare(CLI::App& parser, CompileLuOptions& options) {
  declare(parser, options.lu);
  parser
      .add_option("--numbers", options.numbers,
                  "f64, f32, or mixed: factors in f32; complex where the matrix is")
      ->capture_default_str()
      ->group("Sparse LU");
  parser
      .add_option("--pivot-threshold", options.pivot_threshold,
                  "Replace pivots below this times the largest of their column when the matrix is "
                  "tried (default: the root of the unit roundoff)")
      ->group("Sparse LU");
  parser
      .add_option("--multiprocessors", options.multiprocessors,
                  "Deal the work to so many, of which the GPU must not have fewer; 0: those of the "
                  "GPU with --target=native, else sm_80 108, sm_86 72, sm_89 58, sm_90 132, sm_100 "
                  "148, sm_120 84")
      ->check(CLI::Range(0u, 4096u))
      ->capture_default_str()
      ->group("Sparse LU");
  parser
      .add_flag("--no-transposed", options.no_transposed,
                "Leave out the tables for solves with the transposed matrix")
      ->group("Sparse LU");
  CLI::Option* const batch =
      parser
          .add_flag("--batch", options.batch,
                    "Add code that factorizes and solves many matrices of the pattern at once")
          ->group("Sparse LU");
  parser
      .add_option("--batch-budget", options.batch_budget,
                  "Unroll that code up to so many multiply-adds; above it loops over tables")
      ->needs(batch)
      ->capture_default_str()
      ->group("Sparse LU");
}

void check_lu_options(const CLI::App& parser) {
  refuse_given(
      parser,
      {"--network",      "--conv",       "--columns",    "--dtype",      "--layout",
       "--ldb",          "--ldc",        "--bias",       "--residual",   "--activation",
       "--half-terms",   "--tile",       "--budget",     "--tuning",     "--tuning-mismatch",
       "--bindable",     "--road",       "--annotate",   "--stop-after", "--dump-ir-after",
       "--strategy",     "--atomics",    "--dense-tail", "--precision",  "--nonfinite",
       "--print-timing", "--verify-each"},
      "not for --op=lu", "leave it out");
}

void check_no_lu_options(const CLI::App& parser) {
  refuse_given(parser,
               {"--matching", "--order", "--blocks", "--placement", "--symbolic", "--memory-limit",
                "--verify", "--strategy", "--atomics", "--dense-tail", "--numbers",
                "--pivot-threshold", "--multiprocessors", "--no-transposed", "--batch",
                "--batch-budget"},
               "only for --op=lu", "say --op=lu, or leave it out");
}

int compile_lu_file(const CompileLuRequest& request) {
  refuse_overwriting(request.output, {request.input.path, request.lu.lu.placement});
  TaskPool pool(request.jobs.jobs);
  Progress progress;
  const auto show = [&progress](const std::string& step) {
    stop_if_interrupted();
    progress.show("sparsertc: " + step + " ...");
  };
  LuCompileOptions options;
  options.precision = static_cast<LuPrecision>(
      choose_word("--numbers", request.lu.numbers, {"f64", "f32", "mixed"}));
  if (!(request.lu.pivot_threshold >= 0 && request.lu.pivot_threshold < 1))
    throw UsageError("--pivot-threshold: expected a number from 0, less than 1");
  options.pivot_threshold = request.lu.pivot_threshold;
  options.transposed = !request.lu.no_transposed;
  options.batch = request.lu.batch;
  options.batch_budget = request.lu.batch_budget;
  options.target = resolve_target(request.target.empty() ? "sm_90" : request.target);
  options.multiprocessors = request.lu.multiprocessors;
  if (request.target == "native" && options.multiprocessors == 0)
    options.multiprocessors = require_gpu()->properties().multiprocessors;
  options.assembler = options.target.is_host ? nullptr : request.assembler;
  options.pool = &pool;
  options.jobs = request.jobs.jobs;
  options.stop = &interrupt_flag();
  options.before_step = show;
  options.analysis = to_analysis_options(request.lu.lu);
  options.analysis.pool = &pool;
  options.analysis.before_step = [&show](std::string_view step) { show(std::string(step)); };
  LuPatternFinder finder(request.lu.lu.symbolic, request.cache, &pool);
  options.finders = finder.finders();

  show("reading");
  const Matrix matrix = read_matrix(request.input.path, to_read_options(request.input));
  const Bundle bundle = compile_lu(matrix, options);
  progress.clear();
  if (has_no_values(matrix))
    fmt::print(stderr, "remark: the file has no values; pivots were chosen by the pattern alone\n");
  if (request.verbose)
    print_decisions(matrix, bundle);
  write_bytes(request.output, serialize(bundle));
  return 0;
}

} // namespace sparsertc
