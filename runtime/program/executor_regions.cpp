// The executor's regions: recorded once, launched as one (README.md).
#include "ir/error.h"
#include "runtime/program/executor_state.h"

#include <fmt/format.h>

namespace sparsertc::program {

using ir::Form;
using ir::Op;
using ir::Opcode;

namespace {

/// Mirrors are small: what the host decides by, not arrays.
constexpr uint64_t kMostMirrored = 4096;
/// Whose arguments are others each time is not recorded.
constexpr unsigned kMostMisses = 2;

} // namespace

/// Writes down all that a recording depends on.
class Executor::KeyRecorder : public Recorder {
public:
  explicit KeyRecorder(std::vector<uint64_t>& key) : key_(key) {}
  void launch(uint32_t kernel, const uint32_t (&grid)[3], std::span<const Bits> list) override {
    key_.insert(key_.end(), {kernel, grid[0], grid[1], grid[2]});
    key_.insert(key_.end(), list.begin(), list.end());
  }
  void call(uint32_t function, std::span<const Bits> list) override {
    key_.push_back(function);
    key_.insert(key_.end(), list.begin(), list.end());
  }
  void copy(uint64_t to, uint64_t from, uint64_t bytes) override {
    key_.insert(key_.end(), {to, from, bytes});
  }
  void repeat(const Work& body, const std::function<Test()>& again) override {
    body(*this);
    test(again());
  }
  void choose(const Test& condition, const Work& body, const Work& otherwise) override {
    test(condition);
    body(*this);
    if (otherwise)
      otherwise(*this);
  }

private:
  void test(const Test& test) { key_.insert(key_.end(), {test.element, test.number}); }
  std::vector<uint64_t>& key_;
};

Test Executor::test_of(Frame& frame, const RegionState& region, uint32_t at) const {
  const Decision& decision = region.region.decisions.at(at);
  const Op& load = frame.code.ops[decision.load];
  const Op& compare = frame.code.ops[decision.compare];
  Test test;
  test.element = region.shadows[decision.mirror] + static_cast<uint64_t>(load.immediate);
  test.type = load.type.element();
  test.comparison = static_cast<ir::Comparison>(compare.detail);
  test.number = operand(compare, 1, frame.registers);
  return test;
}

/// Puts the statements to the recorder. The frame's fixed values are computed on the way.
void Executor::walk(Frame& frame, RegionState& region, uint32_t begin, uint32_t end,
                    Recorder& recorder) {
  for (uint32_t at = begin; at < end; ++at) {
    const Op& op = frame.code.ops[at];
    switch (ir::info(op.code).form) {
    case Form::launch:
      launch(frame, at, recorder);
      break;
    case Form::call:
      recorder.call(op.operand[0], arguments_of(frame.code, op, frame.registers));
      break;
    case Form::copy: {
      const uint32_t mirror = region.region.mirror_of(op.operand[0]);
      const uint64_t bytes = elements(frame, at) *
                             ir::size_in_bytes(frame.code.register_type[op.operand[0]].element());
      const uint64_t to =
          mirror == UINT32_MAX ? frame.registers[op.operand[0]] : region.shadows[mirror];
      if (mirror != UINT32_MAX && bytes > region.shadow_bytes[mirror])
        throw UserError(
            fmt::format("{}: more than there is room for", place(module_, frame.code, at)));
      if (mirror != UINT32_MAX && bytes < region.shadow_bytes[mirror])
        region.partly_written[mirror] = true;
      if (bytes != 0)
        recorder.copy(to, frame.registers[op.operand[1]], bytes);
      break;
    }
    case Form::open: {
      const uint32_t close = frame.state.blocks.close(at);
      recorder.repeat(
          [&, at, close](Recorder& inner) { walk(frame, region, at + 1, close, inner); },
          [&, close] { return test_of(frame, region, close); });
      at = close;
      break;
    }
    case Form::if_begin: {
      const uint32_t close = frame.state.blocks.close(at);
      const uint32_t otherwise = frame.state.blocks.otherwise(at);
      Recorder::Work other;
      if (otherwise != close)
        other = [&, otherwise, close](Recorder& inner) {
          walk(frame, region, otherwise + 1, close, inner);
        };
      recorder.choose(
          test_of(frame, region, at),
          [&, at, otherwise](Recorder& inner) { walk(frame, region, at + 1, otherwise, inner); },
          other);
      at = close;
      break;
    }
    case Form::value:
      // What depends on mirrors is the recorder's.
      if (op.code == Opcode::compare && op.operand[0] != ir::kImmediate) {
        bool decides = false;
        for (const auto& [place, decision] : region.region.decisions)
          decides = decides || decision.compare == at;
        if (decides)
          break;
      }
      value(frame, at);
      break;
    default: // a load from a mirror
      break;
    }
  }
}

bool Executor::region(Frame& frame, RegionState& state) {
  if (state.misses > kMostMisses)
    return false;
  const std::vector<Mirror>& mirrors = state.region.mirrors;
  for (size_t i = 0; i < mirrors.size(); ++i) {
    const auto array = host_arrays_.find(frame.registers[mirrors[i].buffer]);
    const uint64_t bytes = array == host_arrays_.end() ? 0 : array->second;
    if (bytes == 0 || bytes > kMostMirrored)
      return false;
    if (state.shadows.size() == i) {
      state.shadows.push_back(device_.allocate(bytes));
      state.shadow_bytes.push_back(bytes);
    }
    if (state.shadow_bytes[i] != bytes)
      return false;
  }
  state.partly_written.assign(mirrors.size(), false);
  std::vector<uint64_t> key;
  KeyRecorder keys(key);
  walk(frame, state, state.region.begin, state.region.end, keys);
  if (state.recording == nullptr || key != state.key) {
    state.misses += state.recording == nullptr ? 0 : 1;
    state.recording.reset();
    state.recording = device_.record([&](Recorder& recorder) {
      walk(frame, state, state.region.begin, state.region.end, recorder);
    });
    state.key = std::move(key);
    ++recorded_;
  }
  for (size_t i = 0; i < mirrors.size(); ++i)
    if (mirrors[i].arrives || state.partly_written[i])
      device_.upload(state.shadows[i],
                     reinterpret_cast<const void*>(frame.registers[mirrors[i].buffer]),
                     state.shadow_bytes[i]);
  state.recording->launch();
  ++recordings_launched_;
  for (size_t i = 0; i < mirrors.size(); ++i)
    if (mirrors[i].copy != Mirror::kNever) {
      device_.download(reinterpret_cast<void*>(frame.registers[mirrors[i].buffer]),
                       state.shadows[i], state.shadow_bytes[i]);
      count(frame, mirrors[i].copy, state.shadow_bytes[i]);
    }
  return true;
}

} // namespace sparsertc::program
