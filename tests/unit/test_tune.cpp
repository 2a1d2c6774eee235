// The tuner without a GPU: space, cost model, search with a simulated machine, records, and the
// replay of graphs on the fake driver.
#include "compiler/inspect/spmm_schedule.h"
#include "ir/error.h"
#include "runtime/tune/candidate.h"
#include "runtime/tune/graph_replay.h"
#include "runtime/tune/record.h"
#include "runtime/tune/search.h"
#include "runtime/tune/strategies.h"
#include "tests/support/fake_cuda_driver.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <set>

using namespace sparsertc;
using namespace sparsertc::tune;

namespace {

const Layer kLayer = {512, 512, 2048, 26214, 4};

struct FakeCode : CandidateCode {
  explicit FakeCode(Candidate made_of) : candidate(std::move(made_of)) {}
  Candidate candidate;
};

/// A machine whose clock moves only when something is made or timed.
class Machine {
public:
  explicit Machine(std::function<double(const Candidate&)> time) : time_(std::move(time)) {}

  SearchHooks hooks() {
    SearchHooks hooks;
    hooks.make = [this](const Candidate& candidate, const std::atomic<bool>& stop) {
      if (stop)
        throw RuntimeError("making", "stopped");
      advance(make_seconds);
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        made.push_back(candidate.words + std::to_string(candidate.registers));
      }
      if (refuse && refuse(candidate))
        throw UsageError("no such tile");
      return std::make_shared<const FakeCode>(candidate);
    };
    hooks.time = [this](const CandidateCode& code) {
      return time_(static_cast<const FakeCode&>(code).candidate);
    };
    hooks.check = [this](const CandidateCode& code) -> std::string {
      ++checks;
      return wrong && wrong(static_cast<const FakeCode&>(code).candidate) ? "wrong element" : "";
    };
    hooks.now = [this] { return now_.load(); };
    hooks.interrupted = [this] { return interrupt_after > 0 && checks >= interrupt_after; };
    return hooks;
  }
  void advance(double seconds) {
    const std::lock_guard<std::mutex> lock(mutex_);
    now_ = now_ + seconds;
  }

  double make_seconds = 0.01;
  std::function<bool(const Candidate&)> refuse, wrong;
  std::vector<std::string> made;
  unsigned checks = 0, interrupt_after = 0;

private:
  std::function<double(const Candidate&)> time_;
  std::mutex mutex_;
  std::atomic<double> now_{100};
};

/// A landscape with its valley at 16 rows, 4 warps, 128 registers, which the prediction gets wrong.
double landscape(const Candidate& candidate) {
  return 5 + std::abs(std::log2(candidate.rows) - 4) +
         0.5 * std::abs(std::log2(candidate.warps) - 2) +
         std::abs(double(candidate.registers) - 128) / 64 + 0.3 * std::log2(candidate.groups) +
         0.7 * std::log2(candidate.splitk) + (candidate.chunk > 0 ? 2 : 0);
}

Record example_record() {
  Record record;
  record.environment = {"NVIDIA H200", 13000, "sm_90", "0.1.0", "ptxas 13.0.88", "636d",
                        26214,         512,   512,     2048,    "f32",           "layout=row"};
  record.tile = "strategy=unrolled,rows=32,vec=1";
  record.registers = 128;
  record.warm = {9.0, 8.9, 9.2};
  record.cold = {14.5, 14, 15};
  record.search_seconds = 18.25;
  record.candidates_tried = 40;
  record.candidates_in_space = 900;
  record.rivals = {{"cublas_fp32", 29.5}};
  return record;
}

} // namespace

TEST_CASE("every candidate of a space is accepted by the compiler") {
  for (const Layer& layer : {kLayer, Layer{64, 32, 12544, 200, 4}, Layer{512, 2048, 49, 104857, 4},
                             Layer{2048, 512, 256, 104857, 4}, Layer{100, 70, 33, 700, 2}}) {
    const std::vector<Candidate> space = candidate_space(layer, Device{});
    INFO(layer.m << "x" << layer.k << "x" << layer.n);
    REQUIRE(space.size() > 20);
    SpmmProblem problem;
    problem.type = layer.element_bytes == 2 ? DataType::f16 : DataType::f32;
    problem.columns = layer.n;
    // The words decide, not the entries.
    Matrix empty;
    empty.pattern.rows = layer.m;
    empty.pattern.columns = layer.k;
    empty.pattern.row_offset.assign(layer.m + 1, 0);
    std::set<std::string> seen;
    for (const Candidate& candidate : space) {
      INFO(to_string(candidate));
      CHECK(seen.insert(to_string(candidate)).second);
      const SpmmSchedule schedule = schedule_spmm(empty, problem, find_target("sm_90"),
                                                  parse_tile_choice(candidate.words), 0);
      CHECK(std::isfinite(candidate.predicted_us));
      CHECK((schedule.tile.strategy == Strategy::compressed) == candidate.is_compressed);
      if (candidate.is_compressed) // whose rows and warps are the compiler's choice
        continue;
      CHECK(schedule.tile.rows == candidate.rows);
      CHECK(schedule.tile.warps == candidate.warps);
      CHECK(schedule.tile.parts() == candidate.parts());
      CHECK((schedule.tile.stage == Stage::smem) == (candidate.chunk > 0));
      CHECK(32 * candidate.warps * candidate.groups * candidate.splitk * candidate.registers <=
            65536);
    }
    CHECK(std::is_sorted(space.begin(), space.end(), [](const auto& a, const auto& b) {
      return a.predicted_us < b.predicted_us;
    }));
  }
}

TEST_CASE("panels are candidates where they are allowed, and accepted by the compiler") {
  for (const DataType type : {DataType::f16, DataType::f32})
    for (Layer layer : {kLayer, Layer{100, 70, 33, 700, 4}, Layer{4096, 4096, 16, 1677721, 4}}) {
      layer.element_bytes = type == DataType::f16 ? 2 : 4;
      const auto panels_of = [](std::vector<Candidate> space) {
        std::erase_if(space, [](const Candidate& one) { return one.panel_rows == 0; });
        return space;
      };
      CHECK(panels_of(candidate_space(layer, Device{})).empty());
      layer.allows_panels = true;
      const std::vector<Candidate> panels = panels_of(candidate_space(layer, Device{}));
      CHECK(panels.size() > 10);
      SpmmProblem problem;
      problem.type = type;
      problem.columns = layer.n;
      problem.precision = Precision::tf32;
      problem.nonfinite = Nonfinite::dense;
      Matrix empty;
      empty.pattern.rows = layer.m;
      empty.pattern.columns = layer.k;
      empty.pattern.row_offset.assign(layer.m + 1, 0);
      for (const Candidate& candidate : panels) {
        INFO(to_string(candidate));
        const SpmmSchedule schedule = schedule_spmm(empty, problem, find_target("sm_90"),
                                                    parse_tile_choice(candidate.words), 0);
        CHECK(schedule.tile.strategy == Strategy::panels);
        CHECK(schedule.tile.rows == candidate.panel_rows);
        CHECK(schedule.tile.warps == candidate.warps);
        CHECK(schedule.tile.groups == candidate.groups);
        CHECK(schedule.tile.splitk == candidate.splitk);
        CHECK(schedule.tile.vec == candidate.vec);
        CHECK((std::isfinite(candidate.predicted_us) && candidate.predicted_us > 0));
      }
    }
}

TEST_CASE("bitmaps are candidates where they are allowed, and accepted by the compiler") {
  for (const uint32_t columns : {1u, 8u, 33u, 64u})
    for (Layer layer : {Layer{100, 70, 1, 700, 2}, Layer{4096, 4096, 1, 8388608, 2},
                        Layer{4096, 11008, 1, 4508876, 2}}) {
      layer.n = columns;
      CAPTURE(layer.m, layer.k, columns);
      const auto bitmaps_of = [](std::vector<Candidate> space) {
        std::erase_if(space, [](const Candidate& one) { return !one.is_bitmap; });
        return space;
      };
      CHECK(bitmaps_of(candidate_space(layer, Device{})).empty());
      layer.allows_panels = true;
      const std::vector<Candidate> bitmaps = bitmaps_of(candidate_space(layer, Device{}));
      CHECK_FALSE(bitmaps.empty());
      SpmmProblem problem;
      problem.type = DataType::f16;
      problem.columns = layer.n;
      problem.nonfinite = Nonfinite::dense;
      Matrix empty;
      empty.pattern.rows = layer.m;
      empty.pattern.columns = layer.k;
      empty.pattern.row_offset.assign(layer.m + 1, 0);
      for (const Candidate& candidate : bitmaps) {
        INFO(to_string(candidate));
        const SpmmSchedule schedule = schedule_spmm(empty, problem, find_target("sm_90"),
                                                    parse_tile_choice(candidate.words), 0);
        CHECK(schedule.tile.strategy == Strategy::bitmap);
        CHECK(schedule.tile.cluster == candidate.cluster);
        CHECK((std::isfinite(candidate.predicted_us) && candidate.predicted_us > 0));
      }
    }
}

TEST_CASE("candidates that stage the images of a convolution are accepted by the compiler") {
  Layer layer = {64, 36, 8 * 196, 200, 4};
  layer.images = {8, 4, 14, 14, 14, 14, 3, 3, 1, true};
  SpmmProblem problem;
  problem.columns = 8;
  problem.convolution = parse_convolution("H=14,W=14,C=4,R=3,S=3,pad=1").convolution;
  Matrix empty;
  empty.pattern.rows = layer.m;
  empty.pattern.columns = layer.k;
  empty.pattern.row_offset.assign(layer.m + 1, 0);
  for (const Layout layout : {Layout::row_major, Layout::column_major}) {
    problem.layout = layout;
    size_t staged = 0;
    for (const Candidate& candidate : candidate_space(layer, Device{})) {
      INFO(to_string(candidate));
      const SpmmSchedule schedule = schedule_spmm(empty, problem, find_target("sm_90"),
                                                  parse_tile_choice(candidate.words), 0);
      CHECK(std::isfinite(candidate.predicted_us));
      CHECK((schedule.tile.stage == Stage::smem) == (candidate.chunk > 0));
      staged += candidate.chunk > 0;
    }
    CHECK(staged > 20);
  }
  layer.images->can_be_staged = false;
  for (const Candidate& candidate : candidate_space(layer, Device{}))
    CHECK(candidate.chunk == 0);
}

TEST_CASE("the cost model follows what was measured on an H200") {
  const auto predicted = [](const Layer& layer, Candidate candidate) {
    return predict_us(layer, Device{}, candidate);
  };
  const Candidate tall = {"", 96, 0, 16, 1, 4, 1, 1, 0, false};
  CHECK(predicted(kLayer, tall) == Approx(10.56).epsilon(0.25));
  const Layer small = {512, 512, 256, 26214, 4};
  const Candidate split = {"", 64, 0, 4, 1, 8, 1, 4, 0, false};
  CHECK(predicted(small, split) == Approx(3.86).epsilon(0.25));
  const Layer wide = {2048, 512, 256, 104857, 4};
  CHECK(predicted(wide, {"", 128, 0, 16, 1, 8, 1, 2, 0, false}) == Approx(7.93).epsilon(0.25));
  const Layer big = {2048, 512, 2048, 104857, 4};
  const double four_warps = predicted(big, {"", 64, 0, 32, 1, 4, 1, 1, 0, false});
  CHECK(four_warps == Approx(29.2).epsilon(0.25));
  // A block of one warp's width fetches as much code for a quarter of the columns.
  CHECK(predicted(big, {"", 128, 0, 32, 1, 1, 2, 1, 0, false}) > 2 * four_warps);
  // With few columns the code would be most of the traffic: streamed.
  const Layer narrow = {512, 2048, 49, 104857, 4};
  const double streamed = predicted(narrow, {"", 40, 0, 1, 1, 2, 1, 4, 0, true});
  CHECK(streamed == Approx(6.29).epsilon(0.25));
  CHECK(streamed < predicted(narrow, {"", 64, 0, 2, 1, 1, 1, 2, 0, false}));
  // More entries, more time.
  const Layer denser = {512, 512, 2048, 52428, 4};
  CHECK(predicted(kLayer, tall) < predicted(denser, tall));
}

TEST_CASE("registers= is taken out of the tile's words") {
  const Candidate candidate = parse_candidate("rows=32,registers=128,warps=8");
  CHECK(candidate.words == "rows=32,warps=8");
  CHECK(candidate.registers == 128);
  CHECK(to_string(candidate) == "rows=32,warps=8,registers=128");
  CHECK(parse_candidate("").words.empty());
  CHECK(parse_candidate("rows=8").registers == 0);
  CHECK(parse_candidate("rows=8,groups=2").rows == 8);
  CHECK(parse_candidate("rows=8,groups=2").groups == 2);
  for (const char* wrong : {"registers=", "registers=8", "registers=256", "registers=1x"})
    CHECK_THROWS_AS(parse_candidate(wrong), UsageError);
}

TEST_CASE("a search finds the best of a small space and keeps code of the best few") {
  const std::vector<Candidate> space = candidate_space(kLayer, Device{});
  Machine machine(landscape);
  SearchOptions options;
  options.budget_seconds = 1e9;
  options.threads = 3;
  options.keep = 3;
  const SearchResult result = search(space, machine.hooks(), options);
  CHECK(result.exhausted);
  CHECK(result.valid() == space.size());
  CHECK(std::set<std::string>(machine.made.begin(), machine.made.end()).size() == space.size());
  double best = 1e9;
  for (const Candidate& candidate : space)
    best = std::min(best, landscape(candidate));
  CHECK(result.trials.front().time_us == best);
  for (size_t i = 0; i < result.trials.size(); ++i)
    CHECK((result.trials[i].code != nullptr) == (i < 3));
}

TEST_CASE("measurements correct the predictions") {
  const std::vector<Candidate> space = candidate_space(kLayer, Device{});
  double best = 1e9;
  for (const Candidate& candidate : space)
    best = std::min(best, landscape(candidate));
  Machine machine(landscape);
  SearchOptions options;
  options.threads = 1; // with several, which come first depends on their speed
  options.most_trials = space.size() / 8;
  const SearchResult result = search(space, machine.hooks(), options);
  CHECK(result.trials.size() == options.most_trials);
  CHECK_FALSE(result.exhausted);
  CHECK(result.trials.front().time_us <= 1.1 * best);
}

TEST_CASE("refused and wrong candidates do not win") {
  const std::vector<Candidate> space = candidate_space(kLayer, Device{});
  Machine machine(landscape);
  machine.refuse = [](const Candidate& candidate) { return candidate.rows == 16; };
  machine.wrong = [](const Candidate& candidate) { return candidate.warps == 4; };
  SearchOptions options;
  options.budget_seconds = 1e9;
  options.threads = 2;
  const SearchResult result = search(space, machine.hooks(), options);
  REQUIRE(result.trials.front().refused.empty());
  CHECK(result.trials.front().candidate.rows != 16);
  CHECK(result.trials.front().candidate.warps != 4);
  REQUIRE(result.trials.front().code);
  bool saw_wrong = false, saw_refused = false;
  for (const Trial& trial : result.trials) {
    if (trial.code)
      CHECK(trial.candidate.warps != 4);
    saw_wrong |= trial.is_wrong && trial.refused == "wrong element";
    saw_refused |= trial.refused.find("no such tile") != std::string::npos && !trial.is_wrong;
  }
  CHECK(saw_wrong);
  CHECK(saw_refused);
}

TEST_CASE("a search ends with its budget, but not without a result") {
  const std::vector<Candidate> space = candidate_space(kLayer, Device{});
  SECTION("after some candidates") {
    Machine machine(landscape);
    machine.make_seconds = 1;
    SearchOptions options;
    options.budget_seconds = 10;
    const SearchResult result = search(space, machine.hooks(), options);
    CHECK_FALSE(result.exhausted);
    CHECK(result.valid() >= 1);
    CHECK(result.trials.front().code);
  }
  SECTION("the first takes longer than the budget") {
    Machine machine(landscape);
    machine.make_seconds = 100;
    SearchOptions options;
    options.budget_seconds = 1;
    CHECK(search(space, machine.hooks(), options).valid() >= 1);
  }
  SECTION("but the first of the space are tried however short it is") {
    Machine machine(landscape);
    machine.make_seconds = 1;
    SearchOptions options;
    options.budget_seconds = 0.5;
    options.first = 3;
    const SearchResult result = search(space, machine.hooks(), options);
    CHECK(result.trials.size() == 3);
    REQUIRE(machine.made.size() >= 3);
    for (size_t i = 0; i < 3; ++i)
      CHECK(machine.made[i] == space[i].words + std::to_string(space[i].registers));
  }
  SECTION("everything is refused") {
    Machine machine(landscape);
    machine.refuse = [](const Candidate&) { return true; };
    const SearchResult result = search({space.begin(), space.begin() + 20}, machine.hooks(), {});
    CHECK(result.valid() == 0);
    CHECK(result.trials.size() == 20);
    CHECK(result.exhausted);
  }
  SECTION("everything is refused and the budget is spent") {
    Machine machine(landscape);
    machine.make_seconds = 1;
    machine.refuse = [](const Candidate&) { return true; };
    SearchOptions options;
    options.budget_seconds = 2;
    const SearchResult result = search(space, machine.hooks(), options);
    CHECK(result.valid() == 0);
    CHECK(result.trials.size() >= 8);
    CHECK(result.trials.size() < space.size());
  }
  SECTION("nothing to try") {
    Machine machine(landscape);
    CHECK(search({}, machine.hooks(), {}).trials.empty());
  }
}

TEST_CASE("what a search says of the strategies") {
  Layer layer = kLayer;
  layer.allows_panels = layer.allows_dense = layer.allows_dense_library = true;
  const std::vector<Candidate> space = candidate_space(layer, Device{});
  const auto trial_of = [&](const char* strategy, double us) {
    Trial trial;
    for (const Candidate& candidate : space) // the best prediction
      if (strategy_of(candidate.words) == strategy) {
        trial.candidate = candidate;
        break;
      }
    REQUIRE(strategy_of(trial.candidate.words) == strategy);
    trial.time_us = us;
    return trial;
  };
  std::vector<Trial> trials = {trial_of("unrolled", 6.9), trial_of("unrolled", 7.5),
                               trial_of("streamed", 24), trial_of("dense", 28.3)};
  trials.push_back(trial_of("unrolled", 1));
  trials.back().refused = "wrong";
  trials.push_back(trial_of("unrolled", 1));
  trials.back().is_sample = true;
  const std::vector<StrategyResult> strategies = compare_strategies(space, trials);
  REQUIRE(strategies.size() == 4); // too many columns for the others
  CHECK(strategies[0].name == "unrolled");
  CHECK(strategies[0].time_us == 6.9);
  CHECK(strategies[0].tried == 3);
  CHECK(strategies[1].name == "streamed");
  CHECK(strategies[2].name == "dense");
  CHECK(strategies[3].name == "panels");
  CHECK(strategies[3].tried == 0);
  const std::vector<StrategyRange> ranges =
      strategy_ranges(layer, Device{}, {strategies[0], strategies[1], strategies[2]});
  REQUIRE(ranges.size() >= 2);
  CHECK(ranges.front().name == "dense");
  CHECK(ranges.front().from == 0);
  CHECK(ranges[1].name == "unrolled");
  CHECK(ranges[1].from > 0.3);
  CHECK(ranges[1].from < 0.9);
  // Measured times move the bounds: as fast as this, dense would be ahead here, too.
  trials[3].time_us = 6;
  const std::vector<StrategyResult> others = compare_strategies(space, trials);
  CHECK(others[0].name == "dense");
  const std::vector<StrategyRange> moved =
      strategy_ranges(layer, Device{}, {others[0], others[1], others[2]});
  REQUIRE(moved.size() >= 2);
  CHECK(moved.front().name == "dense");
  CHECK(moved[1].from > 0.9);

  const std::string text = describe_strategies(layer, Device{}, space, trials);
  CHECK(text.starts_with("dense 6.00 us (1 tried), unrolled 6.90 us (3 tried), streamed 24.00 us"));
  CHECK(text.find("panels not measured (predicted ") != std::string::npos);
  CHECK(text.find("\nfastest by zeros, with as many rows and columns: dense from 0 %, ") !=
        std::string::npos);
  CHECK(describe_strategies(kLayer, Device{}, candidate_space(kLayer, Device{}), {})
            .find("only nonfinite=dense") != std::string::npos);
}

TEST_CASE("an interrupt keeps the best so far") {
  const std::vector<Candidate> space = candidate_space(kLayer, Device{});
  Machine machine(landscape);
  machine.interrupt_after = 3;
  SearchOptions options;
  options.budget_seconds = 1e9;
  const SearchResult result = search(space, machine.hooks(), options);
  CHECK(result.interrupted);
  CHECK(result.trials.size() < space.size());
  CHECK(result.trials.front().code);
}

TEST_CASE("a search on samples makes the best few in full") {
  const std::vector<Candidate> space = candidate_space(kLayer, Device{});
  Machine machine(landscape);
  std::atomic<size_t> samples = 0;
  SearchHooks hooks = machine.hooks();
  hooks.make_sample = [&](const Candidate& candidate, const std::atomic<bool>&) {
    ++samples;
    return std::make_shared<const FakeCode>(candidate);
  };
  SearchOptions options;
  options.budget_seconds = 1e9;
  options.keep = 3;
  options.finalists = 6;

  SECTION("to the end") {
    const SearchResult result = search(space, hooks, options);
    CHECK(samples == space.size());
    CHECK(machine.made.size() == 6);
    REQUIRE(result.trials.size() == space.size() + 6);
    double best = 1e9;
    for (const Candidate& candidate : space)
      best = std::min(best, landscape(candidate));
    CHECK(result.trials.front().time_us == best);
    for (size_t i = 0; i < result.trials.size(); ++i) {
      CHECK(result.trials[i].is_sample == (i >= 6));
      CHECK((result.trials[i].code != nullptr) == (i < 3));
    }
    CHECK(result.exhausted);
    CHECK(result.space == space.size());
    CHECK(result.tried == space.size());
  }
  SECTION("what has no sample is made, checked and counted once") {
    hooks.has_sample = [](const Candidate& candidate) { return candidate.rows != 16; };
    const SearchResult result = search(space, hooks, options);
    const auto whole = static_cast<size_t>(std::count_if(
        space.begin(), space.end(), [](const Candidate& one) { return one.rows == 16; }));
    CHECK(samples == space.size() - whole);
    const std::set<std::string> once(machine.made.begin(), machine.made.end());
    CHECK(once.size() == machine.made.size());
    const auto in_full =
        static_cast<size_t>(std::count_if(result.trials.begin(), result.trials.end(),
                                          [](const Trial& one) { return !one.is_sample; }));
    CHECK(machine.made.size() == in_full);
    CHECK(machine.checks <= 6);
    CHECK(result.tried == space.size());
    CHECK(result.exhausted);
    CHECK(result.trials.front().candidate.rows == 16);
    CHECK_FALSE(result.trials.front().is_sample);
    for (size_t i = 0; i < result.trials.size(); ++i)
      CHECK((result.trials[i].code != nullptr) == (i < 3));
  }
  SECTION("stopped while samples are timed: one is made") {
    std::atomic<unsigned> timed = 0;
    hooks.time = [&](const CandidateCode& code) {
      ++timed;
      return landscape(static_cast<const FakeCode&>(code).candidate);
    };
    hooks.interrupted = [&] { return timed >= 5; };
    const SearchResult result = search(space, hooks, options);
    CHECK(result.interrupted);
    CHECK(machine.made.size() == 1);
    CHECK(result.trials.front().code);
    CHECK_FALSE(result.trials.front().is_sample);
  }
  SECTION("every sample refused") {
    hooks.make_sample = [](const Candidate&, const std::atomic<bool>&) {
      throw UsageError("no such tile");
      return std::shared_ptr<const CandidateCode>();
    };
    const SearchResult result = search(space, hooks, options);
    CHECK(machine.made.empty());
    CHECK(result.valid() == 0);
    CHECK(result.trials.front().refused.find("no such tile") != std::string::npos);
  }
}

TEST_CASE("clusters are tried where most multiprocessors would have no block") {
  const auto has_clusters = [](const Layer& layer, const Device& device) {
    const std::vector<Candidate> space = candidate_space(layer, device);
    return std::any_of(space.begin(), space.end(),
                       [](const Candidate& one) { return one.cluster > 1; });
  };
  const Layer few = {512, 2048, 256, 104857, 4};
  Layer many = few;
  many.n = 8192;
  Device older;
  older.has_clusters = false;
  CHECK(has_clusters(few, Device{}));
  CHECK_FALSE(has_clusters(few, older));
  CHECK_FALSE(has_clusters(many, Device{}));
}

TEST_CASE("the best candidate is tried with its rows in the other order, too") {
  const std::vector<Candidate> space = candidate_space(kLayer, Device{});
  for (const double gain : {0.5, -0.5})
    for (const bool samples : {false, true}) {
      CAPTURE(gain, samples);
      Machine machine([&](const Candidate& c) {
        const bool similar = c.words.find("order=similar") != std::string::npos;
        return landscape(c) - (similar ? gain : 0.0);
      });
      SearchHooks hooks = machine.hooks();
      hooks.alternative = in_other_row_order;
      if (samples)
        hooks.make_sample = hooks.make;
      SearchOptions options;
      options.budget_seconds = 1e9;
      options.most_trials = 60;
      const SearchResult result = search(space, hooks, options);
      CHECK(result.tried == 61);
      CHECK(result.space == space.size() + 1);
      REQUIRE(result.valid() >= 2);
      const Trial& best = result.trials[0];
      const std::string expected = gain > 0 ? "order=similar" : "order=natural";
      CHECK(best.candidate.words.find(expected) != std::string::npos);
      CHECK(best.code);
      const auto other =
          std::find_if(result.trials.begin(), result.trials.end(), [&](const Trial& trial) {
            return trial.candidate.words == in_other_row_order(best.candidate)->words &&
                   trial.candidate.registers == best.candidate.registers && !trial.is_sample;
          });
      REQUIRE(other != result.trials.end());
      CHECK(other->time_us == Approx(best.time_us + std::abs(gain)));
      CHECK(std::is_sorted(result.trials.begin(),
                           std::find_if(result.trials.begin(), result.trials.end(),
                                        [](const Trial& trial) { return trial.is_sample; }),
                           [](const Trial& a, const Trial& b) { return a.time_us < b.time_us; }));
      CHECK(std::count_if(result.trials.begin(), result.trials.end(), [](const Trial& trial) {
              return trial.code != nullptr;
            }) == options.keep);
    }
  CHECK(!in_other_row_order(parse_candidate("strategy=streamed,rows=4")));
  CHECK(!in_other_row_order(parse_candidate("strategy=unrolled,rows=4")));
  CHECK(in_other_row_order(parse_candidate("rows=4,order=similar"))->words ==
        "rows=4,order=natural");
}

TEST_CASE("what is no Error passes through a search") {
  const std::vector<Candidate> space = candidate_space(kLayer, Device{});
  Machine machine(landscape);
  SearchHooks hooks = machine.hooks();
  SECTION("from a making thread") {
    hooks.make = [](const Candidate&,
                    const std::atomic<bool>&) -> std::shared_ptr<const CandidateCode> {
      throw std::bad_alloc();
    };
  }
  SECTION("from the measuring thread") {
    hooks.time = [](const CandidateCode&) -> double { throw std::bad_alloc(); };
  }
  SearchOptions options;
  options.threads = 2;
  CHECK_THROWS_AS(search(space, hooks, options), std::bad_alloc);
}

TEST_CASE("a record comes back as it was written") {
  const Record record = example_record();
  const std::string text = to_json(record);
  const Record back = record_from_json(text, "record.json");
  CHECK(to_json(back) == text);
  CHECK(back.tile == record.tile);
  CHECK(back.registers == 128);
  CHECK(back.warm.median_us == 9.0);
  CHECK(back.rivals.size() == 1);
  CHECK(differences(back.environment, record.environment).empty());
}

TEST_CASE("a record of another environment says what differs") {
  const Environment here = example_record().environment;
  Environment other = here;
  other.gpu = "NVIDIA T4";
  other.n = 256;
  const std::vector<std::string> found = differences(other, here);
  REQUIRE(found.size() == 2);
  CHECK(found[0] == "gpu: the record has NVIDIA T4, here it is NVIDIA H200");
  CHECK(found[1] == "n: the record has 256, here it is 2048");
}

TEST_CASE("records of layers of the same shape and density are similar") {
  const Environment here = example_record().environment;
  Environment other = here;
  other.pattern_digest = "abcd";
  CHECK(is_similar(here, here));
  CHECK(is_similar(other, here));
  other.nnz = here.nnz * 109 / 100;
  CHECK(is_similar(other, here));
  CHECK(is_similar(here, other));
  other.nnz = here.nnz * 112 / 100;
  CHECK_FALSE(is_similar(other, here));
  CHECK_FALSE(is_similar(here, other));
  other.nnz = 0;
  CHECK_FALSE(is_similar(other, here));
  other = here;
  SECTION("shape") {
    other.k = 1024;
  }
  SECTION("n") {
    other.n = 64;
  }
  SECTION("type") {
    other.dtype = "f16";
  }
  SECTION("options") {
    other.options = "layout=column";
  }
  SECTION("gpu") {
    other.gpu = "NVIDIA T4";
  }
  SECTION("driver") {
    other.driver = 12080;
  }
  SECTION("target") {
    other.target = "sm_90a";
  }
  SECTION("assembler") {
    other.assembler = "ptxas 12.8.90";
  }
  SECTION("version") {
    other.sparsertc = "0.2.0";
  }
  if (!differences(other, here).empty())
    CHECK_FALSE(is_similar(other, here));
}

TEST_CASE("of several records the one that holds is found, else the most similar") {
  const Environment here = example_record().environment;
  std::vector<Record> records(5, example_record());
  records[0].environment.n = 7;
  records[1].environment.pattern_digest = "a";
  records[1].environment.nnz += 100;
  records[2].environment.pattern_digest = "b";
  records[2].environment.nnz -= 40;
  records[3].environment.pattern_digest = "c";
  records[3].environment.nnz -= 40;
  records[3].warm.median_us = 8;
  records[4].warm.median_us = 20;
  CHECK(find_record(records, here, false) == &records[4]);
  CHECK(find_record(records, here, true) == &records[4]);
  records.pop_back();
  CHECK(find_record(records, here, false) == nullptr);
  CHECK(find_record(records, here, true) == &records[3]);
  records.resize(1);
  CHECK(find_record(records, here, true) == nullptr);
  CHECK(find_record({}, here, true) == nullptr);
}

TEST_CASE("damaged records are a user's error that names the key") {
  const std::string text = to_json(example_record());
  const auto message = [](const std::string& damaged) -> std::string {
    try {
      record_from_json(damaged, "record.json");
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    REQUIRE(at != std::string::npos);
    return changed.replace(at, from.size(), to);
  };
  CHECK(message("").find("no JSON") != std::string::npos);
  CHECK(message("[]").find("\"kind\"") != std::string::npos);
  CHECK(message(text.substr(0, text.size() / 2)).find("no JSON") != std::string::npos);
  CHECK(message(replaced("\"schema\": 2", "\"schema\": 3")).find("another version") !=
        std::string::npos);
  CHECK(message(replaced("\"registers\": 128", "\"registers\": -1")).find("\"registers\"") !=
        std::string::npos);
  CHECK(message(replaced("\"registers\": 128", "\"registers\": 99999999999")).find("too large") !=
        std::string::npos);
  CHECK(message(replaced("\"n\": 2048", "\"n\": \"2048\"")).find("\"n\"") != std::string::npos);
  CHECK(message(replaced("\"gpu\"", "\"gpo\"")).find("\"gpu\" is missing") != std::string::npos);
  CHECK(message(text) == "accepted");
  // Cut or changed anywhere, it is read or refused, never worse.
  for (size_t i = 0; i < text.size(); i += 3) {
    std::string changed = text;
    changed[i] = '7';
    message(changed);
    message(text.substr(0, i));
  }
}

TEST_CASE("graphs are replayed, timed and given back") {
  cuda::FakeCudaDriver driver;
  {
    const cuda::Context context(std::make_shared<cuda::Driver>(driver.table()));
    const cuda::Stream stream(context);
    unsigned calls = 0;
    const GraphReplay replay(
        context, stream, [&] { ++calls; }, 7);
    CHECK(calls == 8); // once outside of the graph
    const Timing timing = replay.time(5);
    CHECK(driver.count("cuGraphLaunch") == 10); // one before each that is timed
    CHECK(timing.minimum_us <= timing.median_us);
    CHECK(timing.median_us <= timing.maximum_us);
    const cuda::DeviceBuffer flush(context, 64);
    time_cold(
        context, stream, [&] { ++calls; }, flush, 3);
    CHECK(calls == 11);
    CHECK(driver.count("cuMemsetD8Async") == 3);
  }
  CHECK(driver.alive().empty());
}

TEST_CASE("a replay that fails to be recorded leaves nothing behind") {
  for (uint64_t call = 1; call < 20; ++call) {
    cuda::FakeCudaDriver driver;
    std::string failed;
    {
      const cuda::Context context(std::make_shared<cuda::Driver>(driver.table()));
      const cuda::Stream stream(context);
      driver.fail_call(call);
      try {
        const GraphReplay replay(context, stream, [] {});
        replay.sample();
      } catch (const RuntimeError&) {
      }
      failed = driver.failed_call();
      driver.fail_call(0);
    }
    INFO("call " << call << ": " << failed);
    // Where giving back is what fails, something stays.
    if (failed.find("Destroy") == std::string::npos && failed != "cuStreamEndCapture")
      CHECK(driver.alive().empty());
  }
  cuda::FakeCudaDriver driver;
  const cuda::Context context(std::make_shared<cuda::Driver>(driver.table()));
  const cuda::Stream stream(context);
  unsigned calls = 0;
  CHECK_THROWS_AS(GraphReplay(context, stream,
                              [&] {
                                if (++calls == 3)
                                  throw RuntimeError("enqueueing", "it refuses");
                              }),
                  RuntimeError);
  CHECK(driver.alive()["capture"] == 0);
}

TEST_CASE("median and range of samples") {
  CHECK(summarise({3, 1, 2}).median_us == 2);
  CHECK(summarise({4, 1, 2, 3}).median_us == 2.5);
  CHECK(summarise({5}).minimum_us == 5);
  CHECK(summarise({4, 1, 2, 3}).maximum_us == 4);
}
