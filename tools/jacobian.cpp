// sparsertc jacobian: a residual in CUDA C++ -> its sparsity pattern, how its Jacobian is
// evaluated, and the Jacobian at a point.
#include "compiler/pattern/pattern.h"
#include "ir/error.h"
#include "runtime/driver/graph.h"
#include "tools/command.h"
#include "tools/gpu_device.h"
#include "tools/jacobian_check.h"
#include "tools/jacobian_options.h"
#include "tools/newton.h"
#include "tools/options.h"
#include "tools/session.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

struct JacobianCommandOptions {
  JacobianOptions jacobian;
  NewtonOptions newton;
  ReportOptions report;
  CacheOptions cache;
  std::string device = "auto";
  std::string output;
  bool check = false;
  unsigned repeat = 0;
};

/// Medians, in microseconds.
struct Times {
  double residual_us = 0;
  double jacobian_us = 0;
  double product_us = 0;
  double write_us = 0; ///< a kernel that only writes the values; GPU alone
};

struct Evaluated {
  std::vector<double> values; ///< of instance 0, by entry
  std::optional<Times> times;
  std::vector<cuda::Kernel> kernels;
  std::string device;
};

template <typename Work>
double median_us(unsigned repeat, const Work& work) {
  std::vector<double> times;
  work();
  for (unsigned k = 0; k < repeat; ++k) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

Evaluated evaluate_on_host(const JacobianRequest& request, unsigned repeat, JacobianFacts& facts) {
  Evaluated evaluated;
  evaluated.device = "cpu";
  const std::unique_ptr<jacobian::HostSystem> system = make_host_system(request, facts);
  evaluated.values.resize(facts.pattern.nnz());
  system->jacobian(request.x0, evaluated.values);
  if (repeat > 0) {
    std::vector<double> f(request.x0.size());
    Times times;
    times.residual_us = median_us(repeat, [&] { system->residual(request.x0, f); });
    times.jacobian_us = median_us(repeat, [&] { system->jacobian(request.x0, evaluated.values); });
    times.product_us = median_us(repeat, [&] { system->product(request.x0, request.x0, f); });
    evaluated.times = times;
  }
  return evaluated;
}

std::vector<uint8_t> stored(const std::vector<double>& values, uint64_t instances, bool f32) {
  std::vector<uint8_t> bytes;
  for (const double value : values)
    for (uint64_t s = 0; s < instances; ++s) {
      const float narrow = static_cast<float>(value);
      const auto* const from = f32 ? reinterpret_cast<const uint8_t*>(&narrow)
                                   : reinterpret_cast<const uint8_t*>(&value);
      bytes.insert(bytes.end(), from, from + (f32 ? sizeof(float) : sizeof(double)));
    }
  return bytes;
}

Evaluated evaluate_on_gpu(const cuda::Context& context, const JacobianRequest& request,
                          unsigned repeat, JacobianFacts& facts) {
  constexpr unsigned kParts = 20; // of a graph
  Evaluated evaluated;
  evaluated.device = "gpu";
  const std::unique_ptr<jacobian::CompiledGpuSystem> system =
      make_gpu_system(context, request, facts);
  const uint64_t n = request.x0.size(), m = request.instances, nnz = facts.pattern.nnz();
  const uint64_t number = system->number_bytes();
  const cuda::Stream stream(context);
  const cuda::DeviceBuffer x(context, n * m * number), f(context, n * m * number),
      values(context, nnz * m * number);
  x.upload(stored(request.x0, m, request.f32), stream);
  system->jacobian(x.address(), values.address(), stream);
  system->check(stream);
  std::vector<uint8_t> bytes(nnz * m * number);
  values.download(bytes, stream);
  for (uint64_t k = 0; k < nnz; ++k) {
    const uint8_t* const at = bytes.data() + k * m * number;
    evaluated.values.push_back(request.f32 ? *reinterpret_cast<const float*>(at)
                                           : *reinterpret_cast<const double*>(at));
  }
  evaluated.kernels = system->jacobian_kernels();
  if (repeat > 0) {
    const auto time = [&](const auto& enqueue) {
      const cuda::Graph graph(context, stream, [&] {
        for (unsigned k = 0; k < kParts; ++k)
          enqueue();
      });
      return graph.time(repeat, kParts).median_us;
    };
    Times times;
    times.residual_us = time([&] { system->residual(x.address(), f.address(), stream); });
    times.jacobian_us = time([&] { system->jacobian(x.address(), values.address(), stream); });
    times.product_us =
        time([&] { system->product(x.address(), x.address(), f.address(), stream); });
    times.write_us = time([&] { system->write_values(values.address(), stream); });
    system->check(stream);
    evaluated.times = times;
  }
  return evaluated;
}

void write_jacobian(const std::string& path, const Pattern& pattern,
                    const std::vector<double>& values) {
  std::string text = fmt::format("%%MatrixMarket matrix coordinate real general\n{} {} {}\n",
                                 pattern.rows, pattern.columns, pattern.nnz());
  for (uint32_t i = 0; i < pattern.rows; ++i)
    for (uint64_t k = pattern.row_offset[i]; k < pattern.row_offset[i + 1]; ++k)
      fmt::format_to(std::back_inserter(text), "{} {} {}\n", i + 1, pattern.column_index[k] + 1,
                     values[k]);
  write_text(path, text);
}

Json to_json(const JacobianCandidate& candidate) {
  return {{"compression", to_string(candidate.compression)},
          {"width", candidate.width == 0 ? Json("own")
                    : candidate.outer == 0
                        ? Json(candidate.width)
                        : Json(fmt::format("{}+{}", candidate.outer, candidate.inner))},
          {"entries_per_lane", candidate.entries_per_lane},
          {"tasks", candidate.tasks},
          {"kernels", candidate.kernels},
          {"predicted_work", candidate.work},
          {"predicted_time", candidate.time}};
}

Json make_report(const JacobianRequest& request, const JacobianFacts& facts,
                 const Evaluated& evaluated, const std::optional<JacobianCheck>& check) {
  const PatternStatistics statistics = statistics_of(facts.pattern);
  Json json;
  json["residual"] = request.source.name;
  json["n"] = facts.pattern.rows;
  json["form"] = facts.by_row ? "row" : "whole";
  json["dtype"] = request.f32 ? "f32" : "f64";
  json["device"] = evaluated.device;
  json["instances"] = request.instances;
  json["nnz"] = facts.pattern.nnz();
  json["pattern"] = request.pattern ? "given" : "detected";
  if (request.compare_patterns)
    json["unused_entries"] = facts.unused_entries;
  json["row_length_mean"] = statistics.mean_row_length;
  json["row_length_maximum"] = statistics.maximum_row_length;
  json["bandwidth"] = statistics.bandwidth;
  json["pattern_digest"] = pattern_digest(facts.pattern);
  json["colours"] = facts.schedule.colours;
  json["colours_lower_bound"] = facts.schedule.colours_lower_bound;
  json["chosen"] = to_json(facts.schedule.chosen);
  json["candidates"] = Json::array();
  for (const JacobianCandidate& candidate : facts.schedule.candidates)
    json["candidates"].push_back(to_json(candidate));
  json["inspection_compile_ms"] = facts.inspection_compile_ms;
  json["detection_ms"] = facts.detection_ms;
  json["schedule_ms"] = facts.schedule_ms;
  json["evaluation_compile_ms"] = facts.evaluation_compile_ms;
  if (evaluated.times) {
    json["residual_us"] = evaluated.times->residual_us;
    json["jacobian_us"] = evaluated.times->jacobian_us;
    json["product_us"] = evaluated.times->product_us;
    if (evaluated.device == "gpu")
      json["write_us"] = evaluated.times->write_us;
  }
  if (!evaluated.kernels.empty()) {
    json["kernels"] = Json::array();
    for (const cuda::Kernel& kernel : evaluated.kernels)
      json["kernels"].push_back({{"name", kernel.name},
                                 {"registers", kernel.registers},
                                 {"local_bytes", kernel.local_bytes}});
  }
  if (check)
    json["check"] = {{"columns", check->columns},
                     {"duals", check->duals},
                     {"differences", check->differences},
                     {"passed", check->passed()}};
  return json;
}

std::string to_text(const Json& json) {
  const auto number = [&](const char* key) { return json[key].get<double>(); };
  std::string text =
      fmt::format("{}: {} unknowns, {} form, {} on {}\n"
                  "pattern ({}): {} entries, {:.3g} a row, at most {}, bandwidth {}\n"
                  "{} colours (at least {})\n",
                  json["residual"].get<std::string>(), json["n"].get<uint64_t>(),
                  json["form"].get<std::string>(), json["dtype"].get<std::string>(),
                  json["device"].get<std::string>(), json["pattern"].get<std::string>(),
                  json["nnz"].get<uint64_t>(), number("row_length_mean"),
                  json["row_length_maximum"].get<uint64_t>(), json["bandwidth"].get<uint64_t>(),
                  json["colours"].get<uint64_t>(), json["colours_lower_bound"].get<uint64_t>());
  for (const Json& candidate : json["candidates"])
    text += fmt::format("{} {}, width {}: {} tasks in {} kernels, predicted work {:.4g}, time "
                        "{:.4g}\n",
                        candidate == json["chosen"] ? "*" : " ",
                        candidate["compression"].get<std::string>(), candidate["width"].dump(),
                        candidate["tasks"].get<uint64_t>(), candidate["kernels"].get<uint64_t>(),
                        candidate["predicted_work"].get<double>(),
                        candidate["predicted_time"].get<double>());
  text += fmt::format("compiled in {:.0f} + {:.0f} ms, pattern found in {:.2f} ms\n",
                      number("inspection_compile_ms"), number("evaluation_compile_ms"),
                      number("detection_ms"));
  if (json.contains("jacobian_us"))
    text += fmt::format("residual {:.2f} us, Jacobian {:.2f} us, J v {:.2f} us{}\n",
                        number("residual_us"), number("jacobian_us"), number("product_us"),
                        json.contains("write_us")
                            ? fmt::format("; only writing {:.2f} us", number("write_us"))
                            : "");
  if (json.contains("check"))
    text +=
        fmt::format("check of {} columns: {:.2g} of the bound by duals, {:.2g} by differences\n",
                    json["check"]["columns"].get<uint64_t>(), json["check"]["duals"].get<double>(),
                    json["check"]["differences"].get<double>());
  return text;
}

JacobianCheck check(const JacobianRequest& request, const Pattern& pattern,
                    const std::vector<double>& values) {
  JacobianRequest reference = request;
  reference.f32 = false;
  reference.with_write_entry = false;
  reference.pattern = pattern;
  reference.compare_patterns = false;
  JacobianFacts facts;
  const auto system = make_host_system(reference, facts);
  return check_jacobian(pattern, values, *system, request.x0, 0, request.f32, request.seed);
}

int run(const JacobianCommandOptions& options) {
  const bool json_report = wants_json(options.report);
  const size_t device = choose_word("--device", options.device, {"auto", "cpu", "gpu"});
  const std::unique_ptr<cuda::Context> gpu =
      device == 2 ? require_gpu() : (device == 0 ? find_gpu() : nullptr);
  const JacobianOptions& about = options.jacobian;
  refuse_overwriting(options.output, {about.residual, about.x0, about.parameters, about.pattern});
  JacobianRequest request = to_request(about);
  request.with_write_entry = options.repeat > 0;
  std::optional<Cache> cache;
  if (!options.cache.off) {
    cache.emplace(Cache::choose_directory(options.cache.directory), options.cache.limit_mib << 20);
    request.cache = &*cache;
  }
  Progress progress;
  request.before_step = [&](std::string_view step) {
    stop_if_interrupted();
    progress.show(fmt::format("sparsertc: {} ...", step));
  };
  if (options.newton.newton) {
    if (!options.output.empty() || options.check)
      throw UsageError("--newton: reports no Jacobian", "leave out --output and --check");
    refuse_overwriting(options.newton.solution,
                       {about.residual, about.x0, about.parameters, about.pattern});
    NewtonCommand command;
    command.gpu = gpu.get();
    command.cache = options.cache;
    command.json = json_report;
    command.repeat = options.repeat;
    command.progress = &progress;
    request.with_write_entry = false;
    command.jacobian = std::move(request);
    return run_newton(options.newton, std::move(command));
  }
  JacobianFacts facts;
  const Evaluated evaluated = gpu ? evaluate_on_gpu(*gpu, request, options.repeat, facts)
                                  : evaluate_on_host(request, options.repeat, facts);
  std::optional<JacobianCheck> checked;
  if (options.check)
    checked = check(request, facts.pattern, evaluated.values);
  progress.clear();
  if (cache && !cache->remark().empty())
    fmt::print(stderr, "remark: {}\n", cache->remark());
  if (!options.output.empty())
    write_jacobian(options.output, facts.pattern, evaluated.values);
  const Json json = make_report(request, facts, evaluated, checked);
  fmt::print(options.output == "-" ? stderr : stdout, "{}",
             json_report ? json.dump(2) + "\n" : to_text(json));
  if (checked && !checked->passed()) {
    fmt::print(stderr, "sparsertc: {}: check failed: {}\n", request.source.name, checked->worst);
    return 1;
  }
  return 0;
}

} // namespace

Command add_jacobian_command(CLI::App& application) {
  auto options = std::make_shared<JacobianCommandOptions>();
  CLI::App* parser = application.add_subcommand(
      "jacobian", "Finds a residual's sparsity and evaluates its Jacobian");
  declare(*parser, options->jacobian);
  parser->add_option("--output", options->output,
                     "Write the Jacobian at the start as Matrix Market; of instance 0");
  parser->add_flag("--check", options->check,
                   "Compare with duals in float64, a column at a time on the CPU, and with finite "
                   "differences");
  parser
      ->add_option("--repeat", options->repeat,
                   "Time so many evaluations of each; the median counts")
      ->check(CLI::Range(0u, 1000000u));
  parser->add_option("--device", options->device, "auto, cpu or gpu: where to look and to evaluate")
      ->capture_default_str();
  declare(*parser, options->newton);
  declare(*parser, options->report);
  declare(*parser, options->cache);
  parser->footer(
      "The residual is a template in CUDA C++, compiled by NVRTC for the GPU and by $CXX, else\n"
      "c++, for the CPU:\n"
      "  template <class T> __device__\n"
      "  void residual(Row i, Unknowns<T> x, const Parameters& p, T& f) { f = p.a[i] * sin(x[i]); "
      "}\n"
      "Examples:\n"
      "  sparsertc jacobian F.cu -n 1000 --parameters P.npz --output J.mtx\n"
      "  sparsertc jacobian F.cu --x0 x.npy --check --report=json\n"
      "  sparsertc jacobian F.cu --x0 x.npy --parameters P.npz --newton --solution x1.npy");
  return {parser, [options] { return run(*options); }};
}

} // namespace sparsertc
