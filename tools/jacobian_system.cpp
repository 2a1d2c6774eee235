#include "tools/jacobian_system.h"

#include "compiler/assemble/process.h"
#include "ir/error.h"
#include "runtime/driver/nvrtc.h"
#include "runtime/jacobian/program.h"
#include "runtime/jacobian/read_ahead.h"
#include "runtime/jacobian/shared_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace sparsertc {
namespace {

using jacobian::DetectionPoint;
using jacobian::Inspection;
using jacobian::MissingEntry;
using Clock = std::chrono::steady_clock;

/// Instances of a batch that are looked at.
constexpr uint64_t kMostInspected = 8;
/// How far the points around x0 are from it, of 1 + |x0|.
constexpr double kAround = 0.1;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void say(const JacobianRequest& request, std::string_view step) {
  if (request.before_step)
    request.before_step(step);
}

/// Whether programs must take instances apart.
bool is_batch(const JacobianRequest& request) {
  return request.instances > 1 || request.parameters.any_varies();
}

std::vector<uint64_t> inspected_instances(const JacobianRequest& request) {
  const uint64_t instances = request.parameters.any_varies() ? request.parameters.instances : 1;
  const uint64_t count = std::min(instances, kMostInspected);
  std::vector<uint64_t> chosen;
  for (uint64_t k = 0; k < count; ++k)
    chosen.push_back(k * instances / count);
  return chosen;
}

/// x0 for each inspected instance, then points around it.
std::vector<DetectionPoint> detection_points(const JacobianRequest& request) {
  std::vector<DetectionPoint> points;
  for (const uint64_t instance : inspected_instances(request))
    points.push_back({request.x0, instance});
  std::mt19937_64 random(request.seed);
  for (uint32_t k = 1; k < request.points; ++k) {
    DetectionPoint point{request.x0, 0};
    for (double& x : point.x)
      x += kAround * (1 + std::abs(x)) * (static_cast<double>(random() >> 12) * 0x1p-51 - 1);
    points.push_back(std::move(point));
  }
  return points;
}

[[noreturn]] void fail_missing(const JacobianRequest& request, const MissingEntry& entry,
                               const std::string& how) {
  throw UserError(Place{request.source.name, 0, 0, {}},
                  fmt::format("the pattern is too small: residual {} depends on unknown {}{}",
                              entry.row, entry.column, how),
                  request.pattern
                      ? "give a pattern that has the entry, or leave out --pattern"
                      : "the pattern found from other points lacks it: look for one at more points "
                        "(--points), or give one (--pattern); a residual must be a function of its "
                        "unknowns and parameters alone");
}

jacobian::ProgramOptions program_options(const JacobianRequest& request) {
  jacobian::ProgramOptions options;
  options.f32 = request.f32;
  options.batch = is_batch(request);
  options.loop_limit = request.loop_limit;
  return options;
}

/// Whether what rows read is worth writing down: on the GPU, where lanes may share a sum's terms.
bool wants_read_log(const JacobianRequest& request) {
  return !is_batch(request) && jacobian::has_sums(request.source);
}

std::string inspection_program(const JacobianRequest& request, bool read_log) {
  jacobian::ProgramOptions options = program_options(request);
  options.checked = true;
  options.read_log = read_log;
  options.entries = jacobian::inspection_entries(read_log);
  return make_program(request.source, request.parameters, options);
}

std::string evaluation_program(const JacobianRequest& request, const JacobianTables& tables,
                               bool checked,
                               const std::optional<jacobian::ReadAheadShape>& read_ahead = {}) {
  jacobian::ProgramOptions options = program_options(request);
  options.checked = checked;
  options.shared = tables.rows.lanes.shared();
  options.f32_values = request.f32_values && !checked;
  options.read_ahead = read_ahead;
  options.entries = jacobian::evaluation_entries(tables, request.with_write_entry, read_ahead);
  return make_program(request.source, request.parameters, options);
}

/// Form and pattern; returns what the terms of sums read, nothing where there are none. `twice`:
/// what is timed is the second of two runs.
RowTerms inspect(const JacobianRequest& request, const jacobian::ResidualProgram& program,
                 bool twice, JacobianFacts& facts) {
  const Inspection inspection(program, request.parameters, request.x0.size(), request.f32);
  facts.by_row = inspection.by_row();
  say(request, "evaluating at the start");
  inspection.residual({request.x0, 0});
  const std::vector<DetectionPoint> points = detection_points(request);
  const uint64_t needed = points.size() - (request.points > 0 ? request.points - 1 : 0);
  const std::span<const DetectionPoint> all(points);
  RowTerms terms;
  if (facts.by_row && jacobian::has_sums(request.source)) {
    say(request, "looking at its sums");
    try {
      terms = inspection.terms(all);
    } catch (const UserError&) {
      terms = inspection.terms(all.first(needed));
    }
  }
  if (request.pattern && !request.compare_patterns) {
    facts.pattern = *request.pattern;
    return terms;
  }
  say(request, "finding the pattern");
  if (twice)
    inspection.pattern(all.first(1));
  const auto start = Clock::now();
  Pattern found;
  try {
    found = to_pattern(inspection.pattern(all));
  } catch (const UserError&) {
    // Around x0 the user's code may go wrong; at x0 it may not.
    found = to_pattern(inspection.pattern(all.first(needed)));
  }
  facts.detection_ms = milliseconds_since(start);
  facts.pattern = request.pattern ? *request.pattern : found;
  if (!request.pattern)
    return terms;
  const JacobianPattern given = to_jacobian_pattern(*request.pattern),
                        detected = to_jacobian_pattern(found);
  if (const auto missing = jacobian::first_not_in(given, detected))
    fail_missing(request, *missing, "");
  facts.unused_entries = given.nnz() - detected.nnz();
  return terms;
}

void check_given(const JacobianRequest& request) {
  if (!request.pattern)
    return;
  const uint64_t n = request.x0.size();
  if (request.pattern->rows != n || request.pattern->columns != n)
    throw UserError(fmt::format("the pattern is {} x {}, but there are {} unknowns",
                                request.pattern->rows, request.pattern->columns, n));
}

JacobianTables schedule(const JacobianRequest& request, const JacobianMachine& machine,
                        const RowTerms& terms, JacobianFacts& facts) {
  say(request, "scheduling");
  JacobianScheduleOptions options;
  options.by_row = facts.by_row;
  options.machine = machine;
  options.compression = request.compression;
  options.width = request.width;
  options.entries_per_lane = request.entries_per_lane;
  options.has_sums = jacobian::has_sums(request.source);
  options.terms = terms.sums.empty() ? nullptr : &terms;
  options.order = request.order;
  options.places = request.places;
  const auto start = Clock::now();
  facts.schedule = schedule_jacobian(facts.pattern, options);
  facts.schedule_ms = milliseconds_since(start);
  JacobianTables tables = std::move(facts.schedule.tables);
  facts.schedule.tables = {};
  return tables;
}

/// By place -> by entry.
std::vector<double> by_entry(const JacobianRequest& request, const std::vector<double>& stored) {
  if (request.places.empty())
    return stored;
  std::vector<double> values;
  for (const uint32_t place : request.places)
    values.push_back(stored[place]);
  return values;
}

uint64_t places_count(const JacobianRequest& request, const Pattern& pattern) {
  return request.places.empty()
             ? pattern.nnz()
             : *std::max_element(request.places.begin(), request.places.end()) + uint64_t{1};
}

void probe(const JacobianRequest& request, const JacobianPattern& pattern,
           const std::vector<double>& stored, const jacobian::Product& product) {
  if (const auto missing =
          jacobian::find_missing_entry(pattern, by_entry(request, stored), product,
                                       request.f32 || request.f32_values, request.seed))
    fail_missing(request, *missing,
                 fmt::format(", with the derivative {} at the start", missing->derivative));
}

} // namespace

jacobian::HostCompiler host_compiler(Cache* cache) {
  jacobian::HostCompiler compiler;
  compiler.cache = cache;
  compiler.run = [](const std::vector<std::string>& arguments, const std::string& folder) {
    const ProcessResult result = run_process(arguments, folder);
    return jacobian::ProgramOutcome{result.succeeded(), result.output, result.describe()};
  };
  return compiler;
}

std::unique_ptr<jacobian::HostSystem> make_host_system(const JacobianRequest& request,
                                                       JacobianFacts& facts) {
  check_given(request);
  const jacobian::HostCompiler compiler = host_compiler(request.cache);
  say(request, "compiling the residual");
  auto start = Clock::now();
  RowTerms terms;
  {
    const jacobian::HostProgram inspection(compiler, inspection_program(request, false),
                                           request.source, request.parameters);
    facts.inspection_compile_ms = milliseconds_since(start);
    terms = inspect(request, inspection, false, facts);
  }
  JacobianTables tables = schedule(request, JacobianMachine::cpu(), terms, facts);
  say(request, "compiling its derivatives");
  start = Clock::now();
  auto program = std::make_shared<jacobian::HostProgram>(
      compiler, evaluation_program(request, tables, true), request.source, request.parameters);
  facts.evaluation_compile_ms = milliseconds_since(start);
  auto system = std::make_unique<jacobian::HostSystem>(std::move(program), std::move(tables),
                                                       request.parameters, facts.by_row,
                                                       request.f32, request.pool);
  say(request, "checking the pattern");
  for (const uint64_t instance : inspected_instances(request)) {
    std::vector<double> values(places_count(request, facts.pattern));
    system->jacobian(request.x0, values, instance);
    probe(request, system->pattern(), values, [&](std::span<const double> v) {
      std::vector<double> y(v.size());
      system->product(request.x0, v, y, instance);
      return y;
    });
  }
  return system;
}

std::unique_ptr<jacobian::CompiledGpuSystem> make_gpu_system(const cuda::Context& context,
                                                             const JacobianRequest& request,
                                                             JacobianFacts& facts) {
  check_given(request);
  const std::shared_ptr<const cuda::Nvrtc> nvrtc = cuda::Nvrtc::open();
  const std::string target = jacobian::gpu_target(context);
  const bool batch = is_batch(request);
  say(request, "compiling the residual");
  auto start = Clock::now();
  RowTerms terms;
  const bool wants_log = wants_read_log(request);
  std::optional<jacobian::ReadLog> log;
  {
    const std::vector<uint8_t> image = compile_for_gpu(
        *nvrtc, target, inspection_program(request, wants_log), request.source, request.cache);
    facts.inspection_compile_ms = milliseconds_since(start);
    const jacobian::GpuProgram inspection(context, image, request.source, request.parameters,
                                          batch);
    terms = inspect(request, inspection, true, facts);
    if (wants_log && facts.by_row)
      log = Inspection(inspection, request.parameters, request.x0.size(), request.f32)
                .read_log({request.x0, 0});
  }
  JacobianMachine machine =
      JacobianMachine::gpu(context.properties().multiprocessors, request.instances);
  if (batch)
    machine.shares_tasks = false;
  JacobianTables tables = schedule(request, machine, terms, facts);
  std::optional<jacobian::ReadAhead> read_ahead;
  std::optional<jacobian::ReadAheadShape> shape;
  if (log && jacobian::by_lanes(tables.terms))
    read_ahead = jacobian::read_ahead(tables.terms, *log);
  if (read_ahead)
    shape = read_ahead->shape;
  facts.reads_ahead = read_ahead.has_value();
  say(request, "compiling its derivatives");
  start = Clock::now();
  const std::vector<uint8_t> image =
      compile_for_gpu(*nvrtc, target, evaluation_program(request, tables, false, shape),
                      request.source, request.cache);
  facts.evaluation_compile_ms = milliseconds_since(start);
  auto program = std::make_shared<jacobian::GpuProgram>(context, image, request.source,
                                                        request.parameters, batch, request.f32);
  auto system = std::make_unique<jacobian::CompiledGpuSystem>(
      program, std::move(tables), request.parameters, request.instances, facts.by_row, request.f32,
      request.f32_values, read_ahead);

  say(request, "checking the pattern");
  const uint64_t n = request.x0.size(), m = request.instances;
  const uint64_t stored = places_count(request, facts.pattern);
  const cuda::Stream stream(context);
  std::vector<double> spread(n * m);
  for (uint64_t i = 0; i < n * m; ++i)
    spread[i] = request.x0[i / m];
  const auto x = upload_reals(*program, spread, request.f32);
  const bool f32_values = request.f32 || request.f32_values;
  const auto values = upload_reals(*program, std::vector<double>(stored * m), f32_values);
  system->jacobian(x->address(), values->address(), stream);
  system->check(stream);
  const std::vector<double> all_values = download_reals(*values, stored * m, f32_values);
  const auto y = upload_reals(*program, std::vector<double>(n * m), request.f32);
  for (const uint64_t instance : inspected_instances(request)) {
    std::vector<double> own(stored);
    for (uint64_t k = 0; k < stored; ++k)
      own[k] = all_values[k * m + instance];
    probe(request, system->pattern(), own, [&](std::span<const double> direction) {
      for (uint64_t i = 0; i < n * m; ++i)
        spread[i] = direction[i / m];
      const auto v = upload_reals(*program, spread, request.f32);
      system->product(x->address(), v->address(), y->address(), stream);
      system->check(stream);
      const std::vector<double> all = download_reals(*y, n * m, request.f32);
      std::vector<double> result(n);
      for (uint64_t i = 0; i < n; ++i)
        result[i] = all[i * m + instance];
      return result;
    });
  }
  return system;
}

} // namespace sparsertc
