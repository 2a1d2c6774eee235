#include "tools/newton.h"

#include "compiler/input/read.h"
#include "ir/error.h"
#include "ir/printer.h"
#include "tools/newton_program.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;
using newton::Outcome;

/// Instances of a batch whose histories are in the report, where they have not converged.
constexpr uint64_t kShown = 10;
constexpr Outcome kOutcomes[] = {Outcome::converged, Outcome::diverged,   Outcome::stalled,
                                 Outcome::singular,  Outcome::not_finite, Outcome::iteration_limit};

newton::Options to_newton_options(const NewtonOptions& options) {
  newton::Options result;
  result.tolerance = options.tolerance;
  result.maximum_iterations = options.iterations;
  result.damping = choose_word("--damping", options.damping, {"on", "off"}) == 0;
  result.maximum_halvings = options.halvings;
  result.divergence_ratio = options.divergence_ratio;
  result.refactor_every = options.refactor_every;
  result.f32_jacobian = choose_word("--factors", options.factors, {"f64", "f32"}) == 1;
  if (!(options.tolerance > 0))
    throw UsageError("--tolerance: expected a number above 0");
  if (!(options.divergence_ratio > 1))
    throw UsageError("--divergence-ratio: expected a number above 1");
  return result;
}

/// Why it ended as it did, for a person.
std::string explain(const newton::Report& report, const newton::Options& options) {
  const double last = report.history.back();
  const std::string_view exact = options.f32_jacobian ? "; --factors=f64 is more exact" : "";
  switch (report.outcome) {
  case Outcome::converged:
    return fmt::format("max |F| is {:.3g} after {} iterations", last, report.iterations);
  case Outcome::diverged:
    return fmt::format("max |F| has grown from {:.3g} to {:.3g} in {} iterations{}",
                       report.history.front(), last, report.iterations,
                       options.damping ? "" : "; --damping=on takes smaller steps");
  case Outcome::stalled:
    return fmt::format("max |F| is {:.3g} after {} iterations, and no step down to 1/{} of the "
                       "full one makes it smaller{}",
                       last, report.iterations, uint64_t{1} << options.maximum_halvings, exact);
  case Outcome::singular:
    if (report.factor.column >= 0)
      return fmt::format("the Jacobian is singular after {} iterations, in column {} (counted from "
                         "0); max |F| is {:.3g}{}",
                         report.iterations, report.factor.column, last, exact);
    return fmt::format("the Jacobian is singular after {} iterations; max |F| is {:.3g}{}",
                       report.iterations, last, exact);
  case Outcome::not_finite:
    return fmt::format("the residual or its Jacobian is not finite after {} iterations{}",
                       report.iterations, exact);
  case Outcome::iteration_limit:
    return fmt::format("max |F| is {:.3g} after {} iterations, the limit", last, report.iterations);
  case Outcome::running:
    break;
  }
  return "unknown";
}

/// JSON has no NaN and no infinity: null stands for them.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}
Json numbers(const std::vector<double>& values) {
  Json array = Json::array();
  for (const double value : values)
    array.push_back(number(value));
  return array;
}

Json to_json(const newton::Report& report) {
  return {{"status", newton::to_string(report.outcome)},
          {"iterations", report.iterations},
          {"residual", number(report.history.back())},
          {"history", numbers(report.history)},
          {"step_length", numbers(report.step_length)}};
}

Json make_report(const NewtonCommand& command, const NewtonResult& result,
                 const newton::Options& options) {
  const uint64_t instances = result.reports.size();
  Json json;
  json["residual_file"] = command.jacobian.source.name;
  json["n"] = result.facts.pattern.rows;
  json["nnz"] = result.facts.pattern.nnz();
  json["instances"] = instances;
  json["device"] = result.device;
  json["order"] = result.order;
  json["nnz_lu"] = result.nnz_lu;
  json["damping"] = options.damping;
  json["tolerance"] = options.tolerance;
  json["refactor_every"] = options.refactor_every;
  json["factors"] = options.f32_jacobian ? "f32" : "f64";
  if (instances == 1) {
    json.update(to_json(result.reports.front()));
    json["replaced_pivots"] = result.reports.front().factor.perturbed;
  } else {
    std::array<uint64_t, std::size(kOutcomes)> counts{};
    uint32_t least = UINT32_MAX, most = 0;
    double sum = 0, worst = 0;
    Json others = Json::array();
    for (uint64_t s = 0; s < instances; ++s) {
      const newton::Report& report = result.reports[s];
      ++counts[static_cast<size_t>(
          std::find(std::begin(kOutcomes), std::end(kOutcomes), report.outcome) -
          std::begin(kOutcomes))];
      least = std::min(least, report.iterations);
      most = std::max(most, report.iterations);
      sum += report.iterations;
      if (report.outcome == Outcome::converged) {
        worst = std::max(worst, report.history.back());
      } else if (others.size() < kShown) {
        Json one = {{"instance", s}};
        one.update(to_json(report));
        others.push_back(one);
      }
    }
    json["status"] = counts[0] == instances ? "converged" : "unconverged";
    for (size_t k = 0; k < std::size(kOutcomes); ++k)
      json["outcomes"][std::string(newton::to_string(kOutcomes[k]))] = counts[k];
    json["iterations_minimum"] = least;
    json["iterations_maximum"] = most;
    json["iterations_mean"] = sum / static_cast<double>(instances);
    json["residual_of_converged"] = worst;
    json["unconverged"] = others;
    json["instances_per_second"] = static_cast<double>(instances) / result.time_us * 1e6;
    if (!result.assembler.empty())
      json["assembler"] = result.assembler;
  }
  json["factorizations"] = result.factorizations;
  json["time_us"] = result.time_us;
  if (result.device == "cpu" || result.step_us)
    json["phases"] = {{"jacobian_us", result.phases.jacobian_us},
                      {"factor_us", result.phases.factor_us},
                      {"solve_us", result.phases.solve_us},
                      {"residual_us", result.phases.residual_us},
                      {"update_us", result.phases.update_us}};
  if (result.step_us)
    json["phases"]["step_us"] = *result.step_us;
  return json;
}

std::string history_text(const newton::Report& report) {
  std::string text;
  for (size_t i = 0; i < report.history.size(); ++i)
    text += fmt::format("  {:3}  {:.3e}{}\n", i, report.history[i],
                        i > 0 && report.step_length[i - 1] < 1
                            ? fmt::format("  step {:g}", report.step_length[i - 1])
                            : "");
  return text;
}

std::string to_text(const Json& json, const NewtonResult& result, const newton::Options& options) {
  const auto phase = [&](const char* key) { return json["phases"][key].get<double>(); };
  std::string text =
      fmt::format("{}: {} unknowns, {} entries, {} in L+U (order {}), on {}\n",
                  json["residual_file"].get<std::string>(), json["n"].get<uint64_t>(),
                  json["nnz"].get<uint64_t>(), result.nnz_lu, result.order, result.device);
  const uint64_t instances = result.reports.size();
  if (instances == 1) {
    const newton::Report& report = result.reports.front();
    text += history_text(report) +
            fmt::format("{}: {}\n", newton::to_string(report.outcome), explain(report, options));
  } else {
    text += fmt::format("{} instances, {} to {} iterations:", instances,
                        json["iterations_minimum"].get<uint32_t>(),
                        json["iterations_maximum"].get<uint32_t>());
    for (const auto& [outcome, count] : json["outcomes"].items())
      if (count.get<uint64_t>() > 0)
        text += fmt::format(" {} {}", count.get<uint64_t>(), outcome);
    text += fmt::format("; {:.4g} a second\n", json["instances_per_second"].get<double>());
    uint64_t shown = 0;
    for (uint64_t s = 0; s < instances && shown < kShown; ++s)
      if (const newton::Report& report = result.reports[s]; report.outcome != Outcome::converged) {
        ++shown;
        text += fmt::format("instance {}: {}: {}\n{}", s, newton::to_string(report.outcome),
                            explain(report, options), history_text(report));
      }
  }
  text += fmt::format("{:.1f} us, {} factorizations", result.time_us, result.factorizations);
  if (json.contains("phases"))
    text +=
        fmt::format("; a step: Jacobian {:.1f} us, factorization {:.1f}, solve {:.1f}, residual "
                    "{:.1f}, update {:.1f}{}",
                    phase("jacobian_us"), phase("factor_us"), phase("solve_us"),
                    phase("residual_us"), phase("update_us"),
                    result.step_us ? fmt::format("; as one graph {:.1f} us", *result.step_us) : "");
  text += "\n";
  return text;
}

} // namespace

void declare(CLI::App& parser, NewtonOptions& options) {
  CLI::Option* const newton = parser.add_flag(
      "--newton", options.newton, "Solve F(x) = 0 by damped Newton's method from the start");
  parser
      .add_option("--tolerance", options.tolerance,
                  "Newton: solved where max |F_i| is at most this")
      ->capture_default_str()
      ->needs(newton);
  parser.add_option("--iterations", options.iterations, "Newton: at most so many")
      ->capture_default_str()
      ->needs(newton);
  parser
      .add_option("--damping", options.damping,
                  "Newton: on: halve steps that do not make max |F_i| smaller; or off")
      ->capture_default_str()
      ->needs(newton);
  parser.add_option("--halvings", options.halvings, "Newton: of one step, at most")
      ->check(CLI::Range(0u, 60u))
      ->capture_default_str()
      ->needs(newton);
  parser
      .add_option("--divergence-ratio", options.divergence_ratio,
                  "Newton: diverged where max |F_i| is more than this times what it was at first")
      ->capture_default_str()
      ->needs(newton);
  parser
      .add_option("--refactor-every", options.refactor_every,
                  "Newton: a new Jacobian every so many iterations")
      ->check(CLI::Range(1u, 1000000u))
      ->capture_default_str()
      ->needs(newton);
  parser
      .add_option(
          "--factors", options.factors,
          "Newton: f64; or f32: the Jacobian and its factors in float32, with the residual, "
          "x and the test in float64")
      ->capture_default_str()
      ->needs(newton);
  parser
      .add_flag("--dump-program", options.dump_program,
                "Newton: print on standard error the program of the IR that a GPU executes")
      ->needs(newton);
  parser
      .add_option("--solution", options.solution,
                  "Newton: write x, n numbers or n x instances, as .npy")
      ->needs(newton);
  declare(parser, options.assembler);
  declare(parser, options.jobs);
}

int run_newton(const NewtonOptions& options, NewtonCommand command) {
  if (command.jacobian.f32)
    throw UsageError("--newton: works in float64", "leave out --dtype");
  NewtonRequest request;
  request.options = to_newton_options(options);
  request.repeat = command.repeat;
  TaskPool pool(options.jobs.jobs);
  request.pool = &pool;
  std::unique_ptr<Assembler> assembler;
  if (command.gpu != nullptr && command.jacobian.instances > 1) {
    assembler = require_cached_assembler(options.assembler, command.cache);
    request.assembler = assembler.get();
  }
  request.jacobian = std::move(command.jacobian);
  const NewtonResult result = command.gpu != nullptr ? run_newton_on_gpu(*command.gpu, request)
                                                     : run_newton_on_cpu(request);
  command.jacobian = std::move(request.jacobian);
  if (command.progress != nullptr)
    command.progress->clear();
  const uint64_t instances = result.reports.size();
  if (options.dump_program)
    fmt::print(
        stderr, "{}",
        ir::print(newton_program({.layout = newton::newton_layout(result.facts.pattern.columns,
                                                                  result.facts.pattern.nnz(),
                                                                  instances, request.options),
                                  .always_new = newton::always_new_jacobian(request.options),
                                  .together = result.together,
                                  .f32_jacobian = request.options.f32_jacobian})));
  if (!options.solution.empty()) {
    std::vector<uint64_t> shape = {result.x.size() / instances};
    if (instances > 1)
      shape.push_back(instances);
    write_npy(options.solution, shape, StoredType::f64, result.x);
  }
  const Json json = make_report(command, result, request.options);
  fmt::print(options.solution == "-" ? stderr : stdout, "{}",
             command.json ? json.dump(2) + "\n" : to_text(json, result, request.options));
  const auto failed =
      std::find_if(result.reports.begin(), result.reports.end(), [](const newton::Report& report) {
        return report.outcome != Outcome::converged;
      });
  if (failed == result.reports.end())
    return 0;
  const auto count =
      std::count_if(result.reports.begin(), result.reports.end(), [](const newton::Report& report) {
        return report.outcome != Outcome::converged;
      });
  fmt::print(stderr, "sparsertc: {}: {}{}: {}\n", command.jacobian.source.name,
             instances == 1
                 ? ""
                 : fmt::format("{} of {} instances unconverged, the first is {}: ", count,
                               instances, failed - result.reports.begin()),
             newton::to_string(failed->outcome), explain(*failed, request.options));
  return 1;
}

} // namespace sparsertc
