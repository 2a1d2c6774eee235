// sparsertc solve: orders, factorizes, solves, refines, and says how well it went. With --sequence
// one analysis serves many matrices of one pattern.
#include "compiler/input/read.h"
#include "compiler/inspect/lu_schedule.h"
#include "ir/counted.h"
#include "ir/error.h"
#include "runtime/bundle/cache.h"
#include "tools/assemblers.h"
#include "tools/command.h"
#include "tools/gpu_device.h"
#include "tools/lu_batch.h"
#include "tools/lu_gpu.h"
#include "tools/lu_gpu_analysis.h"
#include "tools/lu_options.h"
#include "tools/lu_solver.h"
#include "tools/lu_vectors.h"
#include "tools/options.h"
#include "tools/session.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

struct SolveOptions {
  InputOptions input;
  LuOptions lu;
  JobOptions jobs;
  ReportOptions report;
  std::vector<std::string> sequence;
  std::string b;
  std::string output;
  std::string precision = "f64";
  std::string device = "auto";
  std::string on_stale = "repivot";
  bool transpose = false;
  double tolerance = 0;
  double pivot_threshold = 0;
  unsigned steps = 20;
  unsigned repeat = 1;
  uint64_t batch = 0;
  std::optional<uint64_t> budget;
  uint64_t seed = 1;
  AssemblerOptions assembler;
  CacheOptions cache;
};

LuSolverOptions to_solver_options(const SolveOptions& options) {
  LuSolverOptions solver;
  solver.analysis = to_analysis_options(options.lu);
  solver.precision = static_cast<LuPrecision>(
      choose_word("--precision", options.precision, {"f64", "f32", "mixed"}));
  solver.on_stale = static_cast<OnStale>(
      choose_word("--on-stale", options.on_stale, {"repivot", "error", "warn"}));
  solver.transposed = options.transpose;
  if (!(options.tolerance >= 0))
    throw UsageError("--tolerance: expected a number from 0");
  if (!(options.pivot_threshold >= 0 && options.pivot_threshold < 1))
    throw UsageError("--pivot-threshold: expected a number from 0, less than 1");
  if (options.repeat == 0)
    throw UsageError("--repeat: expected at least 1");
  solver.tolerance = options.tolerance;
  solver.factor.pivot_threshold = options.pivot_threshold;
  solver.maximum_steps = options.steps;
  solver.repeat = options.repeat;
  return solver;
}

/// With --device=cpu `auto` looks at no GPU.
LuSymbolicOptions to_symbolic_options(const SolveOptions& options, size_t device) {
  LuSymbolicOptions symbolic = options.lu.symbolic;
  if (device == 1 && symbolic.where == "auto")
    symbolic.where = "cpu";
  return symbolic;
}

LuVectors ones(uint64_t n) {
  LuVectors x;
  x.real.assign(n, 1);
  return x;
}

/// Entries of L below the diagonal and the unit diagonal, and of U: what users count.
std::pair<uint64_t, uint64_t> entries_of(const LuTables& tables) {
  uint64_t lower = tables.size, upper = 0;
  for (uint32_t j = 0; j < tables.size; ++j) {
    lower += tables.column_offset[j + 1] - tables.diagonal[j] - 1;
    upper += tables.diagonal[j] - tables.column_offset[j] + 1;
  }
  return {lower, upper};
}

Json to_json(const LuSystemReport& report) {
  Json json;
  json["input"] = report.input;
  json["refactor_us"] = report.refactor_us;
  json["substitution_us"] = report.substitution_us;
  json["solve_us"] = report.solve_us;
  json["refinement_steps"] = report.refinement_steps;
  json["residual"] = report.residual;
  json["backward_error"] = report.backward_error;
  json["perturbations"] = report.factor.perturbed;
  json["growth"] = report.factor.growth;
  json["weakest_pivot"] = {{"row", report.factor.weakest_row},
                           {"column", report.factor.weakest_column},
                           {"quotient", report.factor.weakest_pivot}};
  json["condition"] = report.condition;
  json["stale"] = report.stale.empty() ? Json(false) : Json(report.stale);
  json["repivoted"] = report.repivoted;
  return json;
}

Json to_json(const SolveOptions& options, const LuSolver& solver, const Pattern& pattern,
             bool complex, uint64_t right_sides, unsigned threads, double tolerance,
             const std::vector<LuSystemReport>& reports,
             const std::vector<LuSymbolicStep>& symbolic) {
  const LuAnalysis& analysis = solver.analysis();
  const LuTables& tables = solver.tables();
  const auto [lower, upper] = entries_of(tables);
  const FactorCost cost = analysis.order.winner().cost;
  Json json = to_json(reports.front());
  json["n"] = pattern.rows;
  json["nnz"] = pattern.nnz();
  json["complex"] = complex;
  json["precision"] = options.precision;
  json["transposed"] = options.transpose;
  json["right_sides"] = right_sides;
  json["device"] = solver.device();
  json["strategy"] = solver.strategy();
  json["strategy_reason"] = solver.strategy_reason();
  json["threads"] = threads;
  json["matched"] = analysis.matched;
  json["matching_reason"] = analysis.matching_reason;
  json["blocks"] = analysis.blocks.blocks();
  json["order"] = analysis.order.winner().name;
  json["nnz_l"] = lower;
  json["nnz_u"] = upper;
  json["flops"] = cost.flops;
  json["levels"] = tables.factor_levels.count();
  json["levels_forward"] = tables.forward_levels.count();
  json["levels_backward"] = tables.backward_levels.count();
  json["tolerance"] = tolerance;
  Json steps;
  for (const LuAnalysisStep& step : analysis.steps)
    steps[step.name + "_us"] = step.time_us;
  json["analysis"] = steps;
  json["symbolic_us"] = solver.tables_us();
  json["symbolic"] = to_json(symbolic);
  if (reports.size() > 1) {
    Json sequence = Json::array();
    double worst = 0;
    for (const LuSystemReport& report : reports) {
      sequence.push_back(to_json(report));
      worst = std::max(worst, report.residual);
    }
    json["residual"] = worst;
    json["sequence"] = sequence;
  }
  return json;
}

std::string to_text(const Json& json) {
  std::string text = fmt::format(
      "{} x {}, {}, {} {} on {} ({})\n"
      "order {}{}; L has {}, U {}; {:.3g} flops in {}\n",
      json["n"].get<uint64_t>(), json["n"].get<uint64_t>(),
      counted(json["nnz"].get<uint64_t>(), "entry", "entries"),
      json["complex"].get<bool>() ? "complex" : "real", json["precision"].get<std::string>(),
      json["device"].get<std::string>(), counted(json["threads"].get<unsigned>(), "thread"),
      json["order"].get<std::string>(), json["matched"].get<bool>() ? ", matched" : "",
      counted(json["nnz_l"].get<uint64_t>(), "entry", "entries"), json["nnz_u"].get<uint64_t>(),
      json["flops"].get<double>(), counted(json["levels"].get<uint64_t>(), "level"));
  if (const auto reason = json["strategy_reason"].get<std::string>(); !reason.empty())
    text += fmt::format("strategy {}: {}\n", json["strategy"].get<std::string>(), reason);
  const auto line = [](const Json& system) {
    return fmt::format("{}factorized in {:.1f} us, solved in {:.1f} us with {} of refinement; "
                       "residual {:.2g}, backward error {:.2g}, condition {:.2g}, growth {:.2g}, "
                       "{} replaced{}\n",
                       system.contains("n") ? "" : system["input"].get<std::string>() + ": ",
                       system["refactor_us"].get<double>(), system["solve_us"].get<double>(),
                       counted(system["refinement_steps"].get<unsigned>(), "step"),
                       system["residual"].get<double>(), system["backward_error"].get<double>(),
                       system["condition"].get<double>(), system["growth"].get<double>(),
                       counted(system["perturbations"].get<uint64_t>(), "pivot"),
                       system["repivoted"].get<bool>() ? "; pivots chosen anew" : "");
  };
  if (!json.contains("sequence"))
    return text + line(json);
  for (const Json& system : json["sequence"])
    text += line(system);
  return text;
}

Json to_json(const LuBatchReport& report, const LuBatchRequest& request, const LuTables& tables,
             const std::string& order, bool complex, double tolerance) {
  Json json;
  json["instances"] = request.instances;
  json["n"] = tables.size;
  json["nnz"] = tables.input_nnz;
  json["nnz_lu"] = tables.nnz();
  json["multiply_adds"] = report.multiply_adds;
  json["order"] = order;
  json["device"] = report.device;
  json["precision"] = request.code.type == ir::Scalar::f32 ? "f32" : "f64";
  json["complex"] = complex;
  json["strategy"] = report.strategy;
  json["factor_ns"] = report.factor_ns;
  json["solve_ns"] = report.solve_ns;
  json["perturbations"] = report.replaced;
  json["not_finite"] = report.not_finite;
  json["residual"] = report.residual;
  json["residual_checked"] = report.checked;
  json["tolerance"] = tolerance;
  if (report.device == "cpu") {
    json["threads"] = report.threads;
    json["instructions"] = report.instructions;
  } else {
    json["assembler"] = report.assembler;
    json["assemble_ms"] = report.assemble_ms;
    json["code_bytes"] = report.code_bytes;
    json["registers"] = report.registers;
  }
  return json;
}

std::string batch_text(const Json& json) {
  return fmt::format(
      "{} of {} x {}, {}, order {}, L+U has {}, {}\n"
      "{}: {:.1f} ns an instance to factorize, {:.1f} ns to solve; residual {:.2g} without "
      "refinement ({} looked at), {} replaced, {} not finite\n{}",
      counted(json["instances"].get<uint64_t>(), "instance"), json["n"].get<uint64_t>(),
      json["n"].get<uint64_t>(), counted(json["nnz"].get<uint64_t>(), "entry", "entries"),
      json["order"].get<std::string>(), counted(json["nnz_lu"].get<uint64_t>(), "entry", "entries"),
      counted(json["multiply_adds"].get<uint64_t>(), "multiply-add"),
      json["device"] == "gpu" ? "on the GPU, all at once"
                              : fmt::format("on the CPU, by {} ({})",
                                            counted(json["threads"].get<unsigned>(), "thread"),
                                            json["instructions"].get<std::string>()),
      json["factor_ns"].get<double>(), json["solve_ns"].get<double>(),
      json["residual"].get<double>(), json["residual_checked"].get<uint64_t>(),
      counted(json["perturbations"].get<uint64_t>(), "pivot"),
      counted(json["not_finite"].get<uint64_t>(), "instance"),
      json.contains("assembler")
          ? fmt::format("{}: {} bytes of code, made in {:.0f} ms by {}\n",
                        json["strategy"].get<std::string>(), json["code_bytes"].get<uint64_t>(),
                        json["assemble_ms"].get<double>(), json["assembler"].get<std::string>())
          : "");
}

/// The options that one matrix's road has and a batch has not.
void check_batch_options(const SolveOptions& options) {
  if (options.input.path.empty() || !options.sequence.empty())
    throw UsageError("--batch: expected one matrix", "sparsertc solve A.mtx --batch 1024");
  if (options.precision == "mixed" || options.transpose || !options.b.empty() ||
      !options.output.empty())
    throw UsageError(
        "--batch: works in f64 or f32, not transposed, with right-hand sides of its own",
        "leave out --precision=mixed, --transpose, --b and --output");
  if (to_strategy(options.lu) != LuStrategy::automatic || options.lu.atomics ||
      to_tail_columns(options.lu))
    throw UsageError("--batch: --strategy, --atomics and --dense-tail are for one matrix",
                     "leave them out");
}

int run_batch(const SolveOptions& options) {
  check_batch_options(options);
  const bool json_report = wants_json(options.report);
  const size_t device = choose_word("--device", options.device, {"auto", "cpu", "gpu"});
  TaskPool pool(options.jobs.jobs);
  LuSolverOptions solver = to_solver_options(options);
  solver.analysis.pool = &pool;
  // All instances advance together: what counts is the work of one, not the length of a chain.
  if (!solver.analysis.order)
    solver.analysis.order = FillOrder::amd;
  const std::unique_ptr<cuda::Context> gpu =
      device == 2 ? require_gpu() : (device == 0 ? find_gpu() : nullptr);
  ReadOptions read = to_read_options(options.input);
  read.require_values = true;
  const Matrix a = read_matrix(options.input.path, read);
  const LuAnalysis analysis = analyse_lu(a, solver.analysis);
  const LuSymbolicOptions symbolic = to_symbolic_options(options, device);
  LuPatternFinder finder(symbolic, options.cache, &pool);
  const LuTables tables = make_lu_tables(
      a.pattern, {analysis.rows, analysis.columns, analysis.row_scale, analysis.column_scale},
      &pool, finder.finders());
  LuBatchRequest request;
  request.instances = options.batch;
  request.seed = options.seed;
  request.repeat = solver.repeat;
  request.factor = solver.factor;
  request.code.most_multiply_adds = options.budget.value_or(request.code.most_multiply_adds);
  if (solver.precision == LuPrecision::f32)
    request.code.type = ir::Scalar::f32;
  LuBatchReport report;
  if (gpu) {
    const std::unique_ptr<Assembler> assembler =
        require_cached_assembler(options.assembler, options.cache);
    report = run_gpu_batch(*gpu, *assembler, a, tables, request, pool);
  } else {
    report = run_cpu_batch(a, tables, request, pool);
  }
  const double tolerance =
      solver.tolerance > 0 ? solver.tolerance : default_tolerance(solver.precision);
  const Json json = to_json(report, request, tables, analysis.order.winner().name,
                            !a.imaginary.empty(), tolerance);
  fmt::print("{}", json_report ? json.dump(2) + "\n" : batch_text(json));
  if (report.not_finite == 0 && report.residual <= tolerance)
    return 0;
  fmt::print(stderr, "sparsertc: {}: unconverged: residual {:.2g}, {} not finite\n", a.name,
             report.residual, counted(report.not_finite, "instance"));
  return 1;
}

int run(const SolveOptions& options) {
  if (options.input.list_tensors) {
    print_tensors(options.input);
    return 0;
  }
  if (options.batch > 0)
    return run_batch(options);
  const bool json_report = wants_json(options.report);
  const size_t device = choose_word("--device", options.device, {"auto", "cpu", "gpu"});
  std::vector<std::string> paths = options.sequence;
  if (!options.input.path.empty())
    paths.insert(paths.begin(), options.input.path);
  if (paths.empty())
    throw UsageError("there is no matrix", "sparsertc solve A.mtx, or --sequence A1 A2 ...");

  for (const std::string& path : paths)
    refuse_overwriting(options.output, {path, options.b, options.lu.placement});

  TaskPool pool(options.jobs.jobs);
  Progress progress;
  LuSolverOptions solver_options = to_solver_options(options);
  solver_options.pool = solver_options.analysis.pool = &pool;
  const LuSymbolicOptions symbolic = to_symbolic_options(options, device);
  LuPatternFinder finder(symbolic, options.cache, &pool);
  solver_options.finders = finder.finders();
  LuGpuOptions gpu_options;
  gpu_options.strategy = to_strategy(options.lu);
  gpu_options.atomics = options.lu.atomics;
  gpu_options.tail_columns = to_tail_columns(options.lu);
  gpu_options.memory_limit = options.lu.symbolic.memory_limit;
  const bool named = gpu_options.strategy != LuStrategy::automatic;
  if (named && device == 1)
    throw UsageError("--strategy says how a GPU factorizes", "without it --device=cpu does");
  if (options.budget && gpu_options.strategy != LuStrategy::emitted)
    throw UsageError("--budget: says what --batch or --strategy=emitted unrolls", "leave it out");
  const bool forced = device == 2 || named;
  if (forced || symbolic.where == "gpu")
    require_gpu(); // before long work
  std::optional<Cache> cache;
  std::unique_ptr<Assembler> assembler;
  if (gpu_options.strategy == LuStrategy::emitted) {
    assembler = require_cached_assembler(options.assembler, options.cache);
    gpu_options.assembler = assembler.get();
    gpu_options.budget = options.budget.value_or(gpu_options.budget);
  }
  if (!options.cache.off) {
    cache.emplace(Cache::choose_directory(options.cache.directory), options.cache.limit_mib << 20);
    gpu_options.cache = &*cache;
  }
  if (forced || (device == 0 && find_gpu() != nullptr))
    solver_options.make_gpu_backend = [&](const LuTables& tables, const Pattern& of,
                                          LuPrecision precision, bool complex,
                                          TaskPool* with) -> std::unique_ptr<LuBackend> {
      try {
        return make_gpu_backend(tables, of, precision, complex, with, gpu_options);
      } catch (const UserError&) {
        if (forced)
          throw;
        return nullptr; // too large for the GPU
      }
    };
  const auto show = [&progress](const std::string& step) {
    stop_if_interrupted();
    progress.show("sparsertc: " + step + " ...");
  };
  solver_options.before_step = show;
  solver_options.analysis.before_step = [&show](std::string_view step) { show(std::string(step)); };
  ReadOptions read = to_read_options(options.input);
  read.require_values = true;

  std::optional<LuSolver> solver;
  std::optional<LuVectors> given_b;
  Pattern pattern;
  bool complex = false;
  std::vector<LuSystemReport> reports;
  LuVectors x;
  for (const std::string& path : paths) {
    show("reading");
    const Matrix a = read_matrix(path, read);
    if (!solver) {
      pattern = a.pattern;
      complex = !a.imaginary.empty();
      solver.emplace(a, solver_options);
      if (!options.b.empty())
        given_b = read_vectors(options.b, a.pattern.rows);
    }
    const LuVectors b = given_b ? *given_b : multiply(a, ones(a.pattern.rows), options.transpose);
    LuSystemReport report;
    x = solver->solve(a, b, report);
    if (!report.stale.empty()) {
      progress.clear();
      fmt::print(stderr, "sparsertc: {}: STALE: {}{}\n", a.name, report.stale,
                 report.repivoted ? "; pivots chosen anew" : "");
    }
    reports.push_back(std::move(report));
  }
  progress.clear();
  if (!options.output.empty())
    write_vectors(options.output, x, pattern.rows);

  const double tolerance = solver_options.tolerance > 0
                               ? solver_options.tolerance
                               : default_tolerance(solver_options.precision);
  const Json json = to_json(options, *solver, pattern, complex, x.count, pool.threads(), tolerance,
                            reports, finder.steps());
  std::FILE* const out = options.output == "-" ? stderr : stdout;
  fmt::print(out, "{}", json_report ? json.dump(2) + "\n" : to_text(json));
  return 0;
}

} // namespace

Command add_solve_command(CLI::App& application) {
  auto options = std::make_shared<SolveOptions>();
  CLI::App* parser =
      application.add_subcommand("solve", "Solves A x = b by sparse LU factorization");
  declare(*parser, options->input);
  parser->get_option("IN")->required(false);
  parser->add_option("--b", options->b,
                     "Right-hand sides, a file with as many rows as A; else b = A * ones");
  parser->add_option("--output", options->output,
                     "Write x, of the last matrix, as Matrix Market array or .npy");
  parser->add_option("--sequence", options->sequence,
                     "More matrices of the same pattern, factorized one after the other");
  parser
      ->add_option("--precision", options->precision,
                   "f64, f32, or mixed: factors in f32, solution refined to f64")
      ->capture_default_str();
  parser->add_flag("--transpose", options->transpose,
                   "Solve with the transposed matrix (not conjugated)");
  parser
      ->add_option("--on-stale", options->on_stale,
                   "When pivots no longer fit the values: repivot, error or warn")
      ->capture_default_str();
  parser->add_option(
      "--tolerance", options->tolerance,
      "The largest relative residual that counts as solved (default 1e-12; f32 1e-5)");
  parser->add_option(
      "--pivot-threshold", options->pivot_threshold,
      "Replace pivots below this times the largest of their column (default: the root "
      "of the unit roundoff)");
  parser->add_option("--refine", options->steps, "At most so many steps of refinement")
      ->capture_default_str();
  parser->add_option("--repeat", options->repeat, "Timed runs of each phase; the median counts")
      ->capture_default_str();
  parser->add_option("--device", options->device, "auto, cpu or gpu: where to factorize and solve")
      ->capture_default_str();
  CLI::Option* const batch =
      parser
          ->add_option("--batch", options->batch,
                       "Instead factorize and solve so many matrices of A's pattern at once: A's "
                       "values, each times a random factor from 0.9 to 1.1, b = A * ones")
          ->check(CLI::Range(uint64_t{1}, (uint64_t{1} << 31) - 1));
  parser->add_option("--budget", options->budget,
                     "Of a batch's code, or with --strategy=emitted, unroll up to so many "
                     "multiply-adds; above it loops over tables (default 300000)");
  parser->add_option("--seed", options->seed, "Of the batch's random factors")
      ->needs(batch)
      ->capture_default_str();
  declare(*parser, options->assembler);
  declare(*parser, options->cache);
  declare(*parser, options->lu);
  declare(*parser, options->report);
  declare(*parser, options->jobs);
  parser->footer(
      "residual = norm(b - A x) / (norm(A) norm(x) + norm(b)), in the infinity norm.\n"
      "Exit code 1 with the word `singular` or `unconverged` where there is no solution.\n"
      "Examples:\n"
      "  sparsertc solve A.mtx --b b.mtx --output x.mtx\n"
      "  sparsertc solve --sequence A1.mtx A2.mtx A3.mtx --report=json\n"
      "  sparsertc solve A.mtx --batch 16384 --device=gpu --repeat=20");
  return {parser, [options] { return run(*options); }};
}

} // namespace sparsertc
