#include "tools/bench_regimes.h"

#include "compiler/inspect/svg.h"
#include "ir/error.h"
#include "tools/bench_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace sparsertc {
namespace {

/// A prediction is good where its strategy takes at most so much longer than the fastest.
constexpr double kGoodEnough = 1.15;

constexpr Strategy kStrategies[] = {Strategy::unrolled, Strategy::streamed, Strategy::compressed,
                                    Strategy::panels,   Strategy::bitmap,   Strategy::dense};
constexpr const char* kHead =
    "matrix,zeros_percent,m,k,n,nnz,contender,tile,predicted_us,time_us,cold_us";

/// The fields of one line of the CSV.
class Fields {
public:
  Fields(std::vector<std::string> fields, Place place)
      : fields_(std::move(fields)), place_(std::move(place)) {
    constexpr size_t kCount = 11;
    if (fields_.size() != kCount)
      throw UserError(place_, fmt::format("expected {} fields, found {}", kCount, fields_.size()));
  }

  const std::string& text(size_t i) const { return fields_[i]; }
  template <typename Number>
  Number number(size_t i) const {
    const std::string& field = fields_[i];
    Number value = 0;
    const char* const end = field.data() + field.size();
    const auto [rest, error] = std::from_chars(field.data(), end, value);
    if (error != std::errc() || rest != end)
      throw UserError(place_, fmt::format("\"{}\" is no number that can stand here", field));
    return value;
  }
  /// 0 where there is none.
  double microseconds(size_t i) const { return fields_[i].empty() ? 0 : number<double>(i); }

private:
  std::vector<std::string> fields_;
  Place place_;
};

/// Geometric mean, least and number below 1.
struct Mean {
  double logarithms = 0, least = 0;
  unsigned count = 0, below = 0;

  void add(double ratio) {
    least = count == 0 ? ratio : std::min(least, ratio);
    logarithms += std::log(ratio);
    below += ratio < 1;
    ++count;
  }
  std::string text() const {
    return count == 0 ? "-"
                      : fmt::format("{:.2f} (least {:.2f}, {} slower)",
                                    std::exp(logarithms / count), least, below);
  }
};

/// Of one level.
struct Level {
  unsigned cases = 0;
  Mean fastest, predicted, sparse, over_cusparse;
};

const RegimePeer* peer_of(const RegimeCase& one, const std::string& name) {
  for (const RegimePeer& peer : one.peers)
    if (peer.name == name)
      return &peer;
  return nullptr;
}

std::string table_of_means(const std::vector<RegimeCase>& cases, const std::string& peer,
                           bool cold) {
  const auto us = [&](const auto& one) { return cold ? one.cold_us : one.time_us; };
  std::map<double, Level> levels;
  for (const RegimeCase& one : cases) {
    const RegimePeer* rival = peer_of(one, peer);
    if (one.times.empty() || rival == nullptr || us(*rival) <= 0)
      continue;
    double best = 0, best_sparse = 0, best_cusparse = 0;
    const auto least = [](double& so_far, double time) {
      so_far = so_far == 0 ? time : std::min(so_far, time);
    };
    for (const RegimeTime& time : one.times) {
      least(best, us(time));
      if (time.strategy != Strategy::dense)
        least(best_sparse, us(time));
    }
    for (const RegimePeer& other : one.peers)
      if (other.name.starts_with("cusparse"))
        least(best_cusparse, us(other));
    Level& level = levels[one.zeros_percent];
    ++level.cases;
    level.fastest.add(us(*rival) / best);
    level.predicted.add(us(*rival) / us(*one.predicted_fastest()));
    if (best_sparse > 0)
      level.sparse.add(us(*rival) / best_sparse);
    if (best_cusparse > 0)
      level.over_cusparse.add(best_cusparse / best);
  }
  if (levels.empty())
    return {};
  constexpr const char* kFormat = "{:>6} {:>6}  {:<30} {:<30} {:<30} {:<30}\n";
  std::string text =
      fmt::format("geometric means of the speed-up over {}, {}\n", peer, cold ? "cold" : "warm") +
      fmt::format(kFormat, "zeros", "cases", "fastest strategy", "the predicted one",
                  "fastest but dense", "fastest over cuSPARSE");
  for (const auto& [zeros, level] : levels)
    text += fmt::format(kFormat, fmt::format("{:.6g}%", zeros), level.cases, level.fastest.text(),
                        level.predicted.text(), level.sparse.text(), level.over_cusparse.text());
  return text;
}

constexpr const char* kColours[] = {"#3b7dd8", "#b8b8b8", "#e0a030",
                                    "#8a55b5", "#c2566a", "#4fa36b"};

std::string microseconds(double us) {
  return us > 0 ? fmt::format("{:.3f}", us) : std::string();
}

} // namespace

const RegimeTime* RegimeCase::fastest() const {
  const auto found =
      std::min_element(times.begin(), times.end(), [](const RegimeTime& a, const RegimeTime& b) {
        return a.time_us < b.time_us;
      });
  return found == times.end() ? nullptr : &*found;
}

const RegimeTime* RegimeCase::predicted_fastest() const {
  const auto found =
      std::min_element(times.begin(), times.end(), [](const RegimeTime& a, const RegimeTime& b) {
        return a.predicted_us < b.predicted_us;
      });
  return found == times.end() ? nullptr : &*found;
}

std::string regimes_csv(const std::vector<RegimeCase>& cases) {
  std::string csv = kHead + std::string("\n");
  for (const RegimeCase& one : cases) {
    const std::string begin = fmt::format("\"{}\",{},{},{},{},{}", one.name, one.zeros_percent,
                                          one.m, one.k, one.n, one.nnz);
    for (const RegimeTime& time : one.times)
      csv += fmt::format("{},{},\"{}\",{},{},{}\n", begin, name_of(time.strategy), time.tile,
                         microseconds(time.predicted_us), microseconds(time.time_us),
                         microseconds(time.cold_us));
    for (const RegimePeer& peer : one.peers)
      csv += fmt::format("{},{},,,{},{}\n", begin, peer.name, microseconds(peer.time_us),
                         microseconds(peer.cold_us));
  }
  return csv;
}

std::vector<RegimeCase> parse_regimes_csv(const std::string& text, const std::string& name) {
  std::vector<RegimeCase> cases;
  const std::string_view head = kHead;
  if (!text.starts_with(head) || text.size() <= head.size() || text[head.size()] != '\n')
    throw UserError(Place::text(name, 1, 1), fmt::format("expected the line {}", kHead),
                    "bench --regimes --csv= writes such files");
  uint64_t line = 2;
  for (size_t at = head.size() + 1; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const Fields fields(split_at_commas(text.substr(at, end - at)), Place::text(name, line, 1));
    at = end + 1;
    RegimeCase one;
    one.name = fields.text(0);
    one.zeros_percent = fields.number<double>(1);
    one.m = fields.number<uint32_t>(2);
    one.k = fields.number<uint32_t>(3);
    one.n = fields.number<uint32_t>(4);
    one.nnz = fields.number<uint64_t>(5);
    if (cases.empty() || cases.back().name != one.name || cases.back().n != one.n ||
        cases.back().zeros_percent != one.zeros_percent)
      cases.push_back(std::move(one));
    RegimeCase& owner = cases.back();
    const std::string& contender = fields.text(6);
    const auto strategy =
        std::find_if(std::begin(kStrategies), std::end(kStrategies),
                     [&](Strategy one_of) { return name_of(one_of) == contender; });
    if (strategy == std::end(kStrategies))
      owner.peers.push_back({contender, fields.number<double>(9), fields.microseconds(10)});
    else
      owner.times.push_back({*strategy, fields.text(7), fields.number<double>(8),
                             fields.number<double>(9), fields.microseconds(10)});
  }
  return cases;
}

std::string regime_line(const RegimeCase& one) {
  std::string text = fmt::format("{:>14} {:>6.6g} %  ",
                                 fmt::format("{}x{}x{}", one.m, one.k, one.n), one.zeros_percent);
  const auto cold = [](double us) { return us > 0 ? fmt::format(" cold {:.2f}", us) : ""; };
  for (const RegimeTime& time : one.times)
    text += fmt::format(" {} {:.2f} ({:.2f}){}", name_of(time.strategy), time.time_us,
                        time.predicted_us, cold(time.cold_us));
  for (const RegimePeer& peer : one.peers)
    text += fmt::format(" {} {:.2f}{}", peer.name, peer.time_us, cold(peer.cold_us));
  const RegimeTime *best = one.fastest(), *predicted = one.predicted_fastest();
  if (best != nullptr)
    text += fmt::format("; fastest {}, predicted {}: {:.2f} of its time", name_of(best->strategy),
                        name_of(predicted->strategy), predicted->time_us / best->time_us);
  return text + "\n";
}

std::string prediction_summary(const std::vector<RegimeCase>& cases) {
  unsigned all = 0, good = 0;
  double worst = 1;
  for (const RegimeCase& one : cases) {
    if (one.times.empty())
      continue;
    const double ratio = one.predicted_fastest()->time_us / one.fastest()->time_us;
    ++all;
    good += ratio <= kGoodEnough;
    worst = std::max(worst, ratio);
  }
  return fmt::format("the strategy predicted to be the fastest takes at most {:g} times as long as "
                     "the fastest in {} of {} cases; at worst {:.2f} times\n",
                     kGoodEnough, good, all, worst);
}

std::string regime_means(const std::vector<RegimeCase>& cases, const std::string& peer) {
  return table_of_means(cases, peer, false) + table_of_means(cases, peer, true);
}

std::string regimes_svg(const std::vector<RegimeCase>& cases, const std::string& title) {
  constexpr double kCell = 46, kHeight = 24, kLeft = 60, kTop = 74, kGap = 70;
  std::set<std::pair<uint32_t, uint32_t>> shapes;
  std::set<double> levels;
  std::set<uint32_t> columns;
  for (const RegimeCase& one : cases) {
    shapes.insert({one.m, one.k});
    levels.insert(one.zeros_percent);
    columns.insert(one.n);
  }
  const double panel = kCell * static_cast<double>(levels.size());
  const double width =
      kLeft + (panel + kGap) * static_cast<double>(std::max<size_t>(shapes.size(), 1));
  const double height = kTop + kHeight * static_cast<double>(columns.size()) + 86;
  std::string svg = svg_begin(std::max(width, 480.0), height, kLeft, title);
  const auto place = [](const auto& set, const auto& value) {
    return static_cast<double>(std::distance(set.begin(), set.find(value)));
  };
  for (const auto& shape : shapes) {
    const double left = kLeft + (panel + kGap) * place(shapes, shape);
    svg +=
        svg_text(left, kTop - 14, "start", fmt::format("A is {} x {}", shape.first, shape.second));
    for (const double level : levels)
      svg += svg_text(left + kCell * (place(levels, level) + 0.5),
                      kTop + kHeight * static_cast<double>(columns.size()) + 16, "middle",
                      fmt::format("{:g} %", level));
    for (const uint32_t n : columns)
      svg += svg_text(left - 6, kTop + kHeight * (place(columns, n) + 0.7), "end",
                      fmt::format("N={}", n));
  }
  for (const RegimeCase& one : cases) {
    const RegimeTime* best = one.fastest();
    if (best == nullptr)
      continue;
    const double x = kLeft + (panel + kGap) * place(shapes, std::make_pair(one.m, one.k)) +
                     kCell * place(levels, one.zeros_percent);
    const double y = kTop + kHeight * place(columns, one.n);
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                       "fill=\"{}\" stroke=\"#fff\"/>\n",
                       x, y, kCell, kHeight, kColours[static_cast<size_t>(best->strategy)]);
    const bool good = one.predicted_fastest()->time_us <= kGoodEnough * best->time_us;
    svg += svg_text(x + kCell / 2, y + kHeight * 0.68, "middle",
                    fmt::format("{:.1f}{}", best->time_us, good ? "" : " *"));
  }
  double x = kLeft;
  const double y = height - 40;
  for (size_t i = 0; i < std::size(kColours); ++i) {
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n",
                       x, y - 10, kColours[i]);
    svg += svg_text(x + 16, y, "start", std::string(name_of(static_cast<Strategy>(i))));
    x += 92;
  }
  svg += svg_text(kLeft, height - 16, "start",
                  "Microseconds; zeros of A across. * the model's choice takes over 1.15 times as "
                  "long.");
  return svg + "</svg>\n";
}

} // namespace sparsertc
