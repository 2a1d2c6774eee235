// Table, means, CSV, JSON and plot of `bench --device=gpu`.
#include "tools/bench_gpu.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace sparsertc {
namespace {

constexpr const char* kPeerNames[] = {"cublas_fp32",   "cublas_tf32",   "cublas_fp16",
                                      "cusparse_alg1", "cusparse_alg2", "cusparse_alg3"};

double spread_percent(const tune::Timing& timing) {
  return 50 * (timing.maximum_us - timing.minimum_us) / timing.median_us;
}

std::string cell(const tune::Timing* timing) {
  return timing ? fmt::format("{:.2f} ({:.0f}%)", timing->median_us, spread_percent(*timing)) : "-";
}

std::optional<double> speed_up(const GpuBenchRow& row, const tune::Timing* other) {
  if (!other || !row.failure.empty() || row.ours.median_us <= 0)
    return {};
  return other->median_us / row.ours.median_us;
}

const tune::Timing* best_cusparse_timing(const GpuBenchRow& row) {
  const PeerTiming* best = row.best_cusparse();
  return best ? &best->timing : nullptr;
}

std::string number(const std::optional<double>& value, const char* none = "-") {
  return value ? fmt::format("{:.2f}", *value) : none;
}

/// The last two parts of a path.
std::string short_name(const std::string& name) {
  constexpr size_t kWidth = 44;
  size_t slash = name.rfind('/');
  std::string text = slash == std::string::npos ? name : name.substr(slash + 1);
  for (const char* ending : {".gz", ".smtx", ".npy"})
    if (text.ends_with(ending))
      text.resize(text.size() - std::string_view(ending).size());
  return text.size() <= kWidth ? text : "~" + text.substr(text.size() - kWidth + 1);
}

double gflops(const GpuBenchRow& row) {
  return row.ours.median_us > 0
             ? 2.0 * static_cast<double>(row.nnz) * row.n / row.ours.median_us * 1e-3
             : 0;
}

constexpr const char* kConvolutionTableFormat =
    "{:<44} {:<32} {:>5} {:>7} {:>15} {:>13} {:>5}  {}\n";

constexpr const char* kTableFormat =
    "{:<44} {:>5} {:>7} {:>15} {:>13} {:>13} {:>13} {:>13} {:>13} {:>6} {:>6} {:>6} {:>8} {:>5}  "
    "{}\n";

/// Geometric mean, least and number of the ratios in one group.
struct Mean {
  double log_sum = 0;
  double least = 0;
  unsigned count = 0, slower = 0;
  void add(const std::optional<double>& ratio) {
    if (!ratio)
      return;
    least = count == 0 ? *ratio : std::min(least, *ratio);
    log_sum += std::log(*ratio);
    slower += *ratio < 1;
    ++count;
  }
  std::string text() const {
    return count == 0 ? "-"
                      : fmt::format("{:.2f} (least {:.2f}, {} slower)", std::exp(log_sum / count),
                                    least, slower);
  }
};

struct Group {
  unsigned cases = 0;
  Mean fp32, tf32, fp16, cusparse;
  void add(const GpuBenchRow& row) {
    ++cases;
    fp32.add(speed_up(row, row.peer("cublas_fp32")));
    tf32.add(speed_up(row, row.peer("cublas_tf32")));
    fp16.add(speed_up(row, row.peer("cublas_fp16")));
    cusparse.add(speed_up(row, best_cusparse_timing(row)));
  }
};

/// Names of nominal levels and of all, in order.
std::vector<std::pair<std::string, Group>> groups_of(const std::vector<GpuBenchRow>& rows) {
  std::map<double, Group> levels;
  Group all;
  for (const GpuBenchRow& row : rows)
    if (row.failure.empty() && row.nnz > 0) {
      levels[row.nominal_percent].add(row);
      all.add(row);
    }
  std::vector<std::pair<std::string, Group>> groups;
  for (const auto& [level, group] : levels)
    groups.emplace_back(level < 0 ? "-" : fmt::format("{:g}%", level), group);
  groups.emplace_back("all", all);
  return groups;
}

std::string quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text)
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

nlohmann::ordered_json to_json(const tune::Timing* timing) {
  if (!timing)
    return nullptr;
  return {{"time_us", timing->median_us},
          {"time_min_us", timing->minimum_us},
          {"time_max_us", timing->maximum_us}};
}

nlohmann::ordered_json to_json(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

} // namespace

const tune::Timing* GpuBenchRow::peer(std::string_view peer_name) const {
  for (const PeerTiming& one : peers)
    if (one.name == peer_name)
      return &one.timing;
  return nullptr;
}

const PeerTiming* GpuBenchRow::best_cusparse() const {
  const PeerTiming* best = nullptr;
  for (const PeerTiming& one : peers)
    if (one.name.starts_with("cusparse") &&
        (!best || one.timing.median_us < best->timing.median_us))
      best = &one;
  return best;
}

std::string gpu_table_head(const GpuBenchSetting& setting) {
  if (setting.convolutions)
    return fmt::format(kConvolutionTableFormat, "filters", "conv", "zeros", "actual", "M x K x N",
                       "ours us", "tried", "tile");
  return fmt::format(kTableFormat, "matrix", "zeros", "actual", "M x K x N", "ours us",
                     "cuBLAS fp32", "tf32", "fp16", "cuSPARSE", "x fp32", "x tf32", "x fp16",
                     "x sparse", "tried", "tile");
}

std::string gpu_table_line(const GpuBenchRow& row, const GpuBenchSetting& setting) {
  const std::string name = short_name(row.name);
  const std::string nominal =
      row.nominal_percent < 0 ? "-" : fmt::format("{:g}%", row.nominal_percent);
  const std::string actual = fmt::format("{:.2f}%", row.actual_percent);
  const std::string shape = fmt::format("{}x{}x{}", row.m, row.k, row.n);
  if (setting.convolutions)
    return fmt::format(kConvolutionTableFormat, name, row.conv, nominal, actual, shape,
                       cell(&row.ours), row.tried, row.tile);
  const PeerTiming* sparse = row.best_cusparse();
  return fmt::format(
      kTableFormat, name, nominal, actual, shape, cell(&row.ours), cell(row.peer("cublas_fp32")),
      cell(row.peer("cublas_tf32")), cell(row.peer("cublas_fp16")),
      sparse ? fmt::format("{} {}", cell(&sparse->timing), sparse->name.back()) : "-",
      number(speed_up(row, row.peer("cublas_fp32"))),
      number(speed_up(row, row.peer("cublas_tf32"))),
      number(speed_up(row, row.peer("cublas_fp16"))),
      number(speed_up(row, best_cusparse_timing(row))), row.tried, row.tile);
}

std::string gpu_means(const std::vector<GpuBenchRow>& rows) {
  std::string text = "geometric means of the speed-up\n";
  constexpr const char* format = "{:>6} {:>6}  {:<30} {:<30} {:<30} {:<30}\n";
  text +=
      fmt::format(format, "zeros", "cases", "over cuBLAS fp32", "tf32", "fp16", "best of cuSPARSE");
  for (const auto& [name, group] : groups_of(rows))
    text += fmt::format(format, name, group.cases, group.fp32.text(), group.tf32.text(),
                        group.fp16.text(), group.cusparse.text());
  return text;
}

std::string gpu_csv(const std::vector<GpuBenchRow>& rows, const GpuBenchSetting& setting) {
  std::string csv = setting.convolutions ? "conv," : "";
  csv += "matrix,nominal_sparsity,sparsity,m,k,n,nnz,tile,registers,code_bytes,"
         "spill_bytes,compile_us,candidates_tried,candidates_refused,candidates_wrong,"
         "time_us,time_min_us,time_max_us,gflops";
  if (!setting.convolutions) {
    for (const char* name : kPeerNames)
      csv += fmt::format(",{0}_time_us,{0}_time_min_us,{0}_time_max_us", name);
    csv += ",speedup_cublas_fp32,speedup_cublas_tf32,speedup_cublas_fp16,speedup_cusparse";
  }
  csv += ",failure\n";
  const auto columns = [](const tune::Timing* timing) {
    return timing ? fmt::format("{:.3f},{:.3f},{:.3f}", timing->median_us, timing->minimum_us,
                                timing->maximum_us)
                  : std::string(",,");
  };
  for (const GpuBenchRow& row : rows) {
    if (setting.convolutions)
      csv += quoted(row.conv) + ",";
    csv += fmt::format(
        "{},{},{:.6f},{},{},{},{},{},{},{},{},{:.0f},{},{},{},{},{:.3f}", quoted(row.name),
        row.nominal_percent < 0 ? "" : fmt::format("{:g}", row.nominal_percent / 100),
        row.actual_percent / 100, row.m, row.k, row.n, row.nnz, quoted(row.tile), row.registers,
        row.code_bytes, row.spill_bytes, row.compile_us, row.tried, row.refused, row.wrong,
        columns(row.failure.empty() ? &row.ours : nullptr), gflops(row));
    if (!setting.convolutions) {
      for (const char* name : kPeerNames)
        csv += "," + columns(row.peer(name));
      for (const char* name : {"cublas_fp32", "cublas_tf32", "cublas_fp16"})
        csv += "," + number(speed_up(row, row.peer(name)), "");
      csv += "," + number(speed_up(row, best_cusparse_timing(row)), "");
    }
    csv += "," + quoted(row.failure.substr(0, row.failure.find('\n'))) + "\n";
  }
  return csv;
}

std::string gpu_trials_head() {
  return "matrix,m,k,n,nnz,candidate,predicted_us,time_us,sample,refused\n";
}

std::string gpu_trials_csv(const GpuBenchRow& row, const tune::SearchResult& found) {
  std::string csv;
  for (const tune::Trial& trial : found.trials)
    csv += fmt::format("{},{},{},{},{},{},{:.3f},{},{},{}\n", quoted(row.name), row.m, row.k, row.n,
                       row.nnz, quoted(to_string(trial.candidate)), trial.candidate.predicted_us,
                       trial.time_us > 0 ? fmt::format("{:.3f}", trial.time_us) : "",
                       trial.is_sample ? 1 : 0,
                       quoted(trial.refused.substr(0, trial.refused.find('\n'))));
  return csv;
}

std::string gpu_json(const std::vector<GpuBenchRow>& rows, const GpuBenchSetting& setting) {
  nlohmann::ordered_json json;
  json["device"] = setting.gpu;
  json["driver_cuda_version"] = setting.driver;
  json["assembler"] = setting.assembler;
  json["libraries"] = setting.libraries;
  json["missing"] = setting.missing;
  json["dtype"] = setting.type;
  json["cold"] = setting.cold;
  json["rounds"] = setting.rounds;
  json["cases"] = nlohmann::ordered_json::array();
  for (const GpuBenchRow& row : rows) {
    nlohmann::ordered_json one;
    one["matrix"] = row.name;
    if (setting.convolutions)
      one["conv"] = row.conv;
    if (row.nominal_percent >= 0)
      one["nominal_sparsity"] = row.nominal_percent / 100;
    if (!row.failure.empty()) {
      one["failure"] = row.failure;
      json["cases"].push_back(one);
      continue;
    }
    one["sparsity"] = row.actual_percent / 100;
    one["m"] = row.m;
    one["k"] = row.k;
    one["n"] = row.n;
    one["nnz"] = row.nnz;
    one["tile"] = row.tile;
    one["registers"] = row.registers;
    one["bytes_code"] = row.code_bytes;
    one["bytes_spilled"] = row.spill_bytes;
    one["compile_us"] = row.compile_us;
    one["candidates_tried"] = row.tried;
    one["candidates_refused"] = row.refused;
    one["candidates_wrong"] = row.wrong;
    one["candidates_in_space"] = row.space;
    one["ours"] = to_json(&row.ours);
    one["gflops"] = gflops(row);
    if (!setting.convolutions) {
      for (const char* name : kPeerNames)
        one[name] = to_json(row.peer(name));
      one["speedup_cublas_fp32"] = to_json(speed_up(row, row.peer("cublas_fp32")));
      one["speedup_cusparse"] = to_json(speed_up(row, best_cusparse_timing(row)));
    }
    json["cases"].push_back(one);
  }
  if (setting.convolutions)
    return json.dump(2);
  json["means"] = nlohmann::ordered_json::array();
  for (const auto& [name, group] : groups_of(rows)) {
    const auto mean = [](const Mean& one) {
      return one.count == 0 ? nlohmann::ordered_json(nullptr)
                            : nlohmann::ordered_json(std::exp(one.log_sum / one.count));
    };
    json["means"].push_back({{"nominal", name},
                             {"cases", group.cases},
                             {"speedup_cublas_fp32", mean(group.fp32)},
                             {"speedup_cublas_tf32", mean(group.tf32)},
                             {"speedup_cublas_fp16", mean(group.fp16)},
                             {"speedup_cusparse", mean(group.cusparse)}});
  }
  return json.dump(2);
}

std::string gpu_plot(const std::vector<GpuBenchRow>& rows, const GpuBenchSetting& setting) {
  constexpr double left = 60, top = 50, width = 620, height = 380;
  constexpr double least_ratio = 0.5, most_ratio = 32;
  double least_zeros = 90;
  for (const GpuBenchRow& row : rows)
    if (row.failure.empty())
      least_zeros = std::min(least_zeros, std::floor(row.actual_percent / 10) * 10);
  const auto x_of = [&](double zeros) {
    return left + width * (zeros - least_zeros) / (100 - least_zeros);
  };
  const auto y_of = [&](double ratio) {
    const double clamped = std::clamp(ratio, least_ratio, most_ratio);
    return top + height * (std::log2(most_ratio) - std::log2(clamped)) /
                     (std::log2(most_ratio) - std::log2(least_ratio));
  };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 480\" "
      "font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"720\" height=\"480\" fill=\"white\"/>\n"
      "<text x=\"{}\" y=\"20\" font-size=\"14\">sparsertc, f32, {}: speed-up over sparsity, one "
      "mark a matrix</text>\n"
      "<circle cx=\"{}\" cy=\"35\" r=\"4\" fill=\"#1f5fa8\"/><text x=\"{}\" y=\"39\">over cuBLAS "
      "fp32</text>\n"
      "<rect x=\"{}\" y=\"31\" width=\"8\" height=\"8\" fill=\"none\" stroke=\"#c2511b\"/><text "
      "x=\"{}\" y=\"39\">over the best of cuSPARSE</text>\n",
      left, escaped(setting.gpu), left + 5, left + 14, left + 150, left + 164);
  for (double ratio = least_ratio; ratio <= most_ratio; ratio *= 2)
    svg += fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" "
                       "stroke=\"{3}\"/><text x=\"{4}\" y=\"{5:.1f}\" "
                       "text-anchor=\"end\">{6:g}x</text>\n",
                       left, left + width, y_of(ratio), ratio == 1 ? "black" : "#dddddd", left - 6,
                       y_of(ratio) + 4, ratio);
  for (double zeros = least_zeros; zeros <= 100; zeros += least_zeros < 80 ? 10 : 5)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}%</text>\n",
                       x_of(zeros), top + height + 18, zeros);
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">zeros</text>\n",
                     left + width / 2, top + height + 36);
  for (const GpuBenchRow& row : rows) {
    const std::string title = escaped(
        fmt::format("{} {}x{}x{}, {:.2f} us", row.name, row.m, row.k, row.n, row.ours.median_us));
    if (const auto ratio = speed_up(row, row.peer("cublas_fp32")))
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#1f5fa8\" "
                         "fill-opacity=\"0.6\"><title>{}: {:.2f}x</title></circle>\n",
                         x_of(row.actual_percent), y_of(*ratio), title, *ratio);
    if (const auto ratio = speed_up(row, best_cusparse_timing(row)))
      svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"8\" height=\"8\" fill=\"none\" "
                         "stroke=\"#c2511b\"><title>{}: {:.2f}x</title></rect>\n",
                         x_of(row.actual_percent) - 4, y_of(*ratio) - 4, title, *ratio);
  }
  return svg + "</svg>\n";
}

} // namespace sparsertc
