#include "compiler/lower/newton_program.h"

#include "ir/error.h"
#include "ir/parser.h"
#include "ir/verifier.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace sparsertc {
namespace {

constexpr std::string_view kHead = R"(attribute "program" "{}"

kernel @sparsertc_newton_norm(%f: device.f64, %n: i64, %instances: i64, %log_lanes: i64, %chunk: i64,
    %partial: device.f64) block(256, 1, 1) external
kernel @sparsertc_newton_start(%partial: device.f64, %chunks: i64, %instances: i64,
    %states: device.i64, %history: device.f64, %control: device.i64) block(256, 1, 1) external
kernel @sparsertc_newton_step(%x: device.f64, %base: device.f64, %direction: device.f64, %n: i64,
    %instances: i64, %log_lanes: i64, %chunk: i64, %states: device.i64, %record: device.i64,
    %words: device.i32, %failed_bit: i64, %control: device.i64) block(256, 1, 1) external
kernel @sparsertc_newton_judge(%partial: device.f64, %chunks: i64, %instances: i64,
    %states: device.i64, %record: device.i64, %words: device.i32, %failed_bit: i64,
    %history: device.f64, %control: device.i64) block(256, 1, 1) external
kernel @sparsertc_newton_decide(%control: device.i64, %flags: device.i32) block(1, 1, 1) external
kernel @sparsertc_newton_classify(%partial: device.f64, %chunks: i64, %instances: i64,
    %states: device.i64) block(256, 1, 1) external
)";

constexpr std::string_view kNormF32 = R"(kernel @sparsertc_newton_norm_f32(%f: device.f32, %n: i64,
    %instances: i64, %log_lanes: i64, %chunk: i64, %partial: device.f64) block(256, 1, 1) external
)";

/// Of the Jacobian's values.
std::string_view element(const NewtonProgramOptions& options) {
  return options.f32_jacobian ? "device.f32" : "device.f64";
}

std::string external_work(const NewtonProgramOptions& options) {
  std::string text = options.f32_jacobian ? std::string(kNormF32) : "";
  text += fmt::format(fmt::runtime(options.together ? R"(
host @evaluate(%x: device.f64, %f: device.f64, %values: {0}) external
)"
                                                    : R"(
host @residual(%x: device.f64, %f: device.f64) external
host @jacobian(%x: device.f64, %values: {0}) external
)"),
                      element(options));
  text += fmt::format(
      "host @factor_and_solve(%values: {}, %f: device.f64, %direction: device.f64) external\n",
      element(options));
  if (!options.always_new)
    text += "host @solve(%f: device.f64, %direction: device.f64) external\n";
  return text;
}

/// Of @start, @step and @update; with the type of the values.
constexpr std::string_view kParameters = R"(%x: device.f64, %base: device.f64, %f: device.f64,
    %direction: device.f64, %values: {}, %partial: device.f64, %states: device.i64,
    %history: device.f64, %control: device.i64, %flags: device.i32, %record: device.i64,
    %words: device.i32, %failed_bit: i64)";

std::string constants(const NewtonLayout& layout) {
  const uint64_t lanes = uint64_t{1} << layout.log_lanes();
  return fmt::format(R"(  %n = const.i64 {}
  %instances = const.i64 {}
  %log_lanes = const.i64 {}
  %chunk = const.i64 {}
  %chunks = const.i64 {}
  %one = const.i32 1
  %groups = const.i32 {}
  %parts = const.i32 {}
  %threads = const.i32 {}
)",
                     layout.unknowns, layout.instances, layout.log_lanes(), layout.chunk(),
                     layout.chunks(layout.unknowns), (layout.instances + lanes - 1) / lanes,
                     std::max<uint64_t>(layout.chunks(layout.unknowns), 1),
                     (layout.instances + layout.kThreads - 1) / layout.kThreads);
}

constexpr std::string_view kStart =
    R"(launch @sparsertc_newton_norm grid(%groups, %parts, %one) (%f, %n, %instances, %log_lanes, %chunk, %partial)
launch @sparsertc_newton_start grid(%threads, %one, %one) (%partial, %chunks, %instances, %states, %history, %control)
launch @sparsertc_newton_decide grid(%one, %one, %one) (%control, %flags)
)";

constexpr std::string_view kMove =
    R"(launch @sparsertc_newton_step grid(%groups, %parts, %one) (%x, %base, %direction, %n, %instances, %log_lanes, %chunk, %states, %record, %words, %failed_bit, %control)
)";

constexpr std::string_view kJudge =
    R"(launch @sparsertc_newton_norm grid(%groups, %parts, %one) (%f, %n, %instances, %log_lanes, %chunk, %partial)
launch @sparsertc_newton_judge grid(%threads, %one, %one) (%partial, %chunks, %instances, %states, %record, %words, %failed_bit, %history, %control)
launch @sparsertc_newton_decide grid(%one, %one, %one) (%control, %flags)
)";

/// The residual at x, and the Jacobian where they come together.
std::string_view evaluation(const NewtonProgramOptions& options) {
  return options.together ? "call @evaluate(%x, %f, %values)\n" : "call @residual(%x, %f)\n";
}
std::string new_direction(const NewtonProgramOptions& options) {
  return fmt::format("{}call @factor_and_solve(%values, %f, %direction)\n",
                     options.together ? "" : "call @jacobian(%x, %values)\n");
}

std::string buffers(const NewtonLayout& layout) {
  return fmt::format(R"(  %base = alloc.any.f64 {0}
  %f = alloc.any.f64 {0}
  %direction = alloc.any.f64 {0}
  %partial = alloc.any.f64 {1}
  %flags = alloc.any.i32 {3}
  copy %control, %options, {2}
)",
                     layout.vector(), layout.partial(), layout.kControlWords, layout.kFlags);
}

std::string direction(const NewtonProgramOptions& options) {
  if (options.always_new)
    return new_direction(options);
  return fmt::format(R"(%renew = load.any.i32 %flags + 8
%new = cmp.ne.i32 %renew, 0
if %new {{
{}}} else {{
call @solve(%f, %direction)
}}
)",
                     new_direction(options));
}

/// The norms of the Jacobian's values tell NaN from a column of zeros. Where they come with the
/// residual they may be those of a step that was not taken, and are found again.
std::string classification(const NewtonProgramOptions& options) {
  const NewtonLayout& layout = options.layout;
  return fmt::format(R"(%failed = load.any.i32 %flags + 12
%singular = cmp.ne.i32 %failed, 0
if %singular {{
{}%entries = const.i64 {}
%value_chunks = const.i64 {}
%value_parts = const.i32 {}
launch @{} grid(%groups, %value_parts, %one) (%values, %entries, %instances, %log_lanes, %chunk, %partial)
launch @sparsertc_newton_classify grid(%threads, %one, %one) (%partial, %value_chunks, %instances, %states)
}}
)",
                     options.together ? evaluation(options) : "", layout.entries,
                     layout.chunks(layout.entries),
                     std::max<uint64_t>(layout.chunks(layout.entries), 1),
                     options.f32_jacobian ? "sparsertc_newton_norm_f32" : "sparsertc_newton_norm");
}

} // namespace

ir::Module lower_newton_program(const NewtonProgramOptions& options) {
  if (options.together && !options.always_new)
    throw InternalError("residuals with Jacobians, and steps without");
  const NewtonLayout& layout = options.layout;
  std::string text =
      fmt::format(fmt::runtime(kHead),
                  fmt::format("damped Newton's method, {} unknowns, {} derivatives, {} instances",
                              layout.unknowns, layout.entries, layout.instances));
  text += external_work(options);
  const std::string trial = fmt::format("{}{}{}", kMove, evaluation(options), kJudge);
  text += fmt::format(R"(
host @newton(%x: device.f64, %values: {}, %states: device.i64, %history: device.f64,
    %control: device.i64, %options: host.i64, %record: device.i64, %words: device.i32, %failed_bit: i64) {{
{}{}{}{}loop {{
{}{}%trying = load.any.i32 %flags + 4
%again = cmp.ne.i32 %trying, 0
if %again {{
loop {{
{}%retrying = load.any.i32 %flags + 4
%once_more = cmp.ne.i32 %retrying, 0
}} while %once_more
}}
%left = load.any.i32 %flags + 0
%more = cmp.ne.i32 %left, 0
}} while %more
{}{}}}
)",
                      element(options), constants(layout), buffers(layout), evaluation(options),
                      kStart, direction(options), trial, trial, kMove, classification(options));
  const std::string parameters = fmt::format(fmt::runtime(kParameters), element(options));
  const auto part = [&](std::string_view name, const std::string& body) {
    text += fmt::format("\nhost @{}({}) {{\n{}{}}}\n", name, parameters, constants(layout), body);
  };
  part("start", fmt::format("{}{}", evaluation(options), kStart));
  part("step", fmt::format("{}{}{}{}", new_direction(options), kMove, evaluation(options), kJudge));
  part("update", fmt::format("{}{}", kMove, kJudge));
  ir::Module module = ir::parse(text, "newton.sir");
  ir::verify_or_throw(module, "writing Newton's program");
  return module;
}

} // namespace sparsertc
