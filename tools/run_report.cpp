#include "tools/run_report.h"

#include <fmt/format.h>

#include <cstdio>

namespace sparsertc {
namespace {

double sparsity_of(const RunReport& report) {
  const double elements = static_cast<double>(report.m) * static_cast<double>(report.k);
  return elements > 0 ? 1.0 - static_cast<double>(report.nnz) / elements : 0.0;
}

double gflops_of(const RunReport& report) {
  return report.time_us > 0 ? static_cast<double>(report.operations) / report.time_us * 1e-3 : 0.0;
}

} // namespace

nlohmann::ordered_json to_json(const RunReport& report, const CheckResult* check) {
  nlohmann::ordered_json json;
  json["input"] = report.input;
  json["m"] = report.m;
  json["k"] = report.k;
  json["n"] = report.n;
  json["nnz"] = report.nnz;
  json["sparsity"] = sparsity_of(report);
  json["dtype"] = report.dtype;
  if (!report.convolution.empty())
    json["conv"] = report.convolution;
  json["layout"] = report.layout;
  json["device"] = report.device;
  json["target"] = report.target;
  if (report.threads != 0)
    json["threads"] = report.threads;
  json["strategy"] = report.strategy;
  json["tile"] = report.tile;
  if (!report.code.empty())
    json["code"] = report.code;
  json[report.code.empty() ? "compile_us" : "load_us"] = report.prepare_us;
  json["repeat"] = report.repeat;
  json["time_us"] = report.time_us;
  json["time_min_us"] = report.time_min_us;
  json["time_max_us"] = report.time_max_us;
  json["gflops"] = gflops_of(report);
  json["check"] = check == nullptr ? "skipped" : check->passed ? "passed" : "failed";
  if (check != nullptr) {
    json["max_error"] = check->max_error;
    json["max_error_over_bound"] = check->max_error_over_bound;
    json["worst"] = {{"row", check->row},
                     {"column", check->column},
                     {"expected", check->expected},
                     {"found", check->found},
                     {"bound", check->bound}};
  }
  return json;
}

std::string to_text(const RunReport& report) {
  const std::string prepared =
      report.code.empty() ? std::string("compiled") : fmt::format("{} loaded", report.code);
  std::string text =
      fmt::format("{} x {}, {} non-zeros ({:.2f} % zeros), {}, {}\n", report.m, report.k,
                  report.nnz, 100 * sparsity_of(report),
                  report.convolution.empty()
                      ? fmt::format("times {} x {}", report.k, report.n)
                      : fmt::format("over {} images of {}", report.n, report.convolution),
                  report.dtype);
  text += fmt::format("on {}{}: {}\n", report.device,
                      report.threads != 0 ? fmt::format(" ({} threads)", report.threads) : "",
                      report.tile);
  text += fmt::format("{} in {:.1f} ms, runs in {:.1f} us (median of {}, {:.1f} to {:.1f}), {:.2f} "
                      "GFLOP/s\n",
                      prepared, report.prepare_us * 1e-3, report.time_us, report.repeat,
                      report.time_min_us, report.time_max_us, gflops_of(report));
  return text;
}

std::string describe(const CheckResult& check) {
  if (check.max_error_over_bound == 0)
    return "check passed: every element is exact\n";
  return fmt::format(
      "check {}: worst element ({}, {}): expected {:.9g}, found {:.9g}, bound {:.3g}; "
      "largest error / bound {:.3f}, largest error {:.3g}\n",
      check.passed ? "passed" : "FAILED", check.row, check.column, check.expected, check.found,
      check.bound, check.max_error_over_bound, check.max_error);
}

int print_report(const RunReport& report, const CheckResult* check, bool json, bool to_stderr) {
  std::FILE* out = to_stderr ? stderr : stdout;
  if (json)
    fmt::print(out, "{}\n", to_json(report, check).dump(2));
  else
    fmt::print(out, "{}{}", to_text(report), check != nullptr ? describe(*check) : "");
  if (check == nullptr || check->passed)
    return 0;
  if (json)
    fmt::print(stderr, "{}", describe(*check));
  return 1;
}

} // namespace sparsertc
