#include "tools/bench_layer.h"

#include "ir/error.h"
#include "runtime/driver/launcher.h"
#include "runtime/tune/machine.h"
#include "tools/dense_call.h"
#include "tools/gpu.h"
#include "tools/spmm_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>

namespace sparsertc {
namespace {

constexpr unsigned kQuickSamples = 5;
/// Samples are made down to so many entries and so many rows.
constexpr uint64_t kEntriesOfSample = 8192;
constexpr uint32_t kRowsOfSample = 32;
/// NaN in f32, f16, bf16 and f64: what is not written does not pass a check.
constexpr uint8_t kNanByte = 0xff;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::span<uint8_t> bytes_of(const AlignedBytes& bytes) {
  return {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()};
}

void* as_pointer(const cuda::DeviceBuffer& buffer) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(buffer.address()));
}

/// Every `step`-th row by length, in the matrix's order: a sample with the same lengths of rows.
Matrix sample_rows(const Matrix& matrix, uint32_t step) {
  const Pattern& pattern = matrix.pattern;
  std::vector<uint32_t> by_length(pattern.rows);
  std::iota(by_length.begin(), by_length.end(), 0u);
  std::stable_sort(by_length.begin(), by_length.end(), [&](uint32_t a, uint32_t b) {
    return pattern.row_length(a) > pattern.row_length(b);
  });
  std::vector<uint32_t> rows;
  for (uint32_t i = step / 2; i < pattern.rows; i += step)
    rows.push_back(by_length[i]);
  std::sort(rows.begin(), rows.end());
  Matrix sample;
  sample.name = matrix.name;
  sample.stored = matrix.stored;
  sample.pattern.rows = static_cast<uint32_t>(rows.size());
  sample.pattern.columns = pattern.columns;
  for (uint32_t row : rows) {
    const auto columns = pattern.row(row);
    sample.pattern.column_index.insert(sample.pattern.column_index.end(), columns.begin(),
                                       columns.end());
    sample.pattern.row_offset.push_back(sample.pattern.column_index.size());
    const auto first = matrix.values.begin() + static_cast<ptrdiff_t>(pattern.row_offset[row]);
    sample.values.insert(sample.values.end(), first,
                         first + static_cast<ptrdiff_t>(columns.size()));
  }
  return sample;
}

} // namespace

/// A candidate's cubin and, once it has been timed, what was loaded of it.
struct GpuLayer::Code : tune::CandidateCode {
  SpmmTile tile;
  SpmmSchedule schedule; ///< of the dense strategy
  std::vector<KernelManifest> kernels;
  std::vector<uint8_t> cubin;
  /// How often each block runs: a sample's blocks stand for those of the whole; what its time is
  /// multiplied with.
  uint32_t copies = 1;
  double correction = 1;
  CandidateFacts facts;

  struct Kernel {
    std::unique_ptr<cuda::Launcher> launcher;
    std::vector<uint64_t> arguments;
  };
  // The measuring thread's alone.
  mutable std::vector<Kernel> loaded;
  mutable std::unique_ptr<DenseCall> dense; ///< then nothing else is loaded
  mutable std::function<void(const cuda::Stream&)> enqueue_dense;
  mutable std::unique_ptr<tune::GraphReplay> replay;

  void enqueue(const cuda::Stream& stream) const {
    if (dense)
      enqueue_dense(stream);
    for (const Kernel& kernel : loaded)
      kernel.launcher->launch(kernel.arguments, stream);
  }
};

GpuLayer::GpuLayer(const cuda::Context& gpu, const cuda::Stream& stream, const Assembler& assembler,
                   TaskPool& pool, Matrix weights, const SpmmProblem& problem, uint64_t seed)
    : gpu_(gpu), stream_(stream), assembler_(assembler), pool_(pool),
      samples_(1, std::move(weights)), problem_(problem), target_(find_target(target_of(gpu))),
      pattern_digest_(sparsertc::pattern_digest(samples_.front().pattern)),
      operands_(make_operands(samples_.front(), problem_, OperandSources{{}, {}, {}, seed}, 0)),
      buffers_(lay_out(operands_, problem_)), b_(gpu, buffers_.b.size()),
      c_(gpu, buffers_.c.size()), bias_(gpu, buffers_.bias.size()),
      residual_(gpu, buffers_.residual.size()) {
  b_.upload(bytes_of(buffers_.b), stream_);
  bias_.upload(bytes_of(buffers_.bias), stream_);
  residual_.upload(bytes_of(buffers_.residual), stream_);
  stream_.synchronize("copying the operands to the GPU");
  // Rows of several groups of a convolution are not alike.
  const bool one_group = !problem_.convolution || problem_.convolution->groups == 1;
  while (one_group && samples_.back().pattern.nnz() >= 2 * kEntriesOfSample &&
         samples_.back().pattern.rows >= 2 * kRowsOfSample)
    samples_.push_back(sample_rows(samples_.front(), 1u << samples_.size()));
}

GpuLayer::~GpuLayer() = default;

tune::Layer GpuLayer::shape() const {
  tune::Layer layer = {operands_.rows, weights().pattern.columns, operands_.columns,
                       weights().pattern.nnz(), element_bytes(problem_.type)};
  const SpmmSchedule schedule = schedule_spmm(weights(), problem_, target_, {}, 0);
  layer.allows_panels = problem_.nonfinite == Nonfinite::dense && problem_.half_terms == 0 &&
                        problem_.type != DataType::f64 && schedule.problem.columns &&
                        !schedule.problem.convolution;
  const Epilogue& epilogue = problem_.epilogue;
  layer.allows_dense = problem_.nonfinite == Nonfinite::dense && problem_.half_terms == 0 &&
                       schedule.problem.columns && !schedule.problem.convolution;
  layer.allows_dense_library =
      layer.allows_dense && !epilogue.bias &&
      (epilogue.activation == Activation::none || epilogue.activation == Activation::relu);
  layer.is_tf32 = problem_.type == DataType::f32 && problem_.precision == Precision::tf32;
  if (!schedule.problem.convolution) // a product of matrices, perhaps after all
    return layer;
  const Convolution& c = *schedule.problem.convolution;
  const uint64_t row_bytes = uint64_t{c.width} * layer.element_bytes;
  const bool can_be_staged =
      problem_.layout == Layout::row_major
          ? row_bytes % 4 == 0 && schedule.problem.ldb * layer.element_bytes % 4 == 0
          : layer.element_bytes >= 4;
  layer.images = {operands_.n,   c.channels,        c.height,         c.width,    c.out_height(),
                  c.out_width(), c.window_height(), c.window_width(), c.stride_h, can_be_staged};
  return layer;
}

std::vector<tune::Candidate> GpuLayer::space() const {
  const tune::Layer layer = shape();
  std::vector<tune::Candidate> space = tune::candidate_space(layer, tune::device_of(gpu_));
  if (!layer.images)
    return space;
  SpmmTileChoice pairs;
  pairs.vec = 2;
  const SpmmSchedule schedule = schedule_spmm(weights(), problem_, target_, pairs, 0);
  // Where all pixels share the border's code whatever is asked for, they are taken singly.
  std::erase_if(space, [&](const tune::Candidate& candidate) {
    return candidate.chunk == 0 && schedule.tile.vec == 1 && candidate.vec > 1;
  });
  return space;
}

size_t GpuLayer::sample_for(const tune::Candidate& candidate) const {
  const uint32_t rows_of_block = candidate.rows * candidate.groups;
  size_t sample = rows_of_block == 0 ? 0 : samples_.size() - 1; // a user's words are not known
  while (sample > 0 && samples_[sample].pattern.rows % rows_of_block != 0)
    --sample;
  return sample;
}

std::shared_ptr<const tune::CandidateCode> GpuLayer::make(const tune::Candidate& candidate,
                                                          size_t sample, unsigned jobs,
                                                          const std::atomic<bool>& stop) const {
  const double begin = now();
  PipelineOptions pipeline;
  pipeline.problem = problem_;
  pipeline.target = target_;
  pipeline.tile = parse_tile_choice(candidate.words);
  pipeline.artefact = Artefact::cubin;
  pipeline.assembler = &assembler_;
  pipeline.max_registers = candidate.registers;
  pipeline.stop_after = "emit"; // what the assembler says of the code is wanted, too
  pipeline.verify_each = false;
  pipeline.before_stage = [&](std::string_view stage) {
    if (stop)
      throw RuntimeError("compiling a candidate before the stage " + std::string(stage), "stopped");
  };
  PipelineResult compiled = compile_spmm([&] { return samples_[sample]; }, pipeline);

  auto code = std::make_shared<Code>();
  code->tile = compiled.schedule.tile;
  code->copies = 1u << sample;
  code->correction = tune::sample_correction(candidate, code->copies);
  if (code->tile.dense)
    code->schedule = compiled.schedule;
  code->kernels = std::move(compiled.lowered.kernels);
  AssembleRequest request;
  request.units = compiled.units;
  request.target = target_.name;
  uint64_t threads = 1;
  for (const KernelManifest& kernel : code->kernels) {
    request.kernels.push_back(kernel.entry);
    threads =
        std::max(threads, uint64_t{kernel.block[0]} * kernel.block[1] * uint64_t{kernel.block[2]});
  }
  const uint32_t limit = register_limit(threads);
  request.max_registers = candidate.registers != 0 ? std::min(candidate.registers, limit) : limit;
  request.jobs = jobs;
  request.stop = &stop;
  Assembled assembled = assembler_.assemble(request);
  code->cubin = std::move(assembled.cubin);
  for (const FunctionResources& function : assembled.functions) {
    code->facts.code_bytes += function.code_bytes;
    code->facts.registers = std::max(code->facts.registers, function.registers);
    code->facts.spill_bytes += function.spill_store_bytes + function.spill_load_bytes;
  }
  tune::Candidate resolved;
  resolved.words = to_string(code->tile);
  resolved.registers = candidate.registers;
  code->facts.tile = to_string(resolved);
  code->facts.compile_us = (now() - begin) * 1e6;
  return code;
}

void GpuLayer::load(const Code& code) const {
  if (!code.loaded.empty() || code.dense)
    return;
  if (code.tile.dense) {
    std::string refused; // our own kernel takes part then
    code.dense = DenseCall::make(gpu_, code.cubin, code.schedule, refused);
    code.enqueue_dense = [this, &code](const cuda::Stream& stream) {
      code.dense->enqueue(b_.address(), c_.address(), residual_.address(), stream);
    };
    if (code.dense)
      return;
  }
  const OperandAddresses addresses = {as_pointer(b_), as_pointer(c_), as_pointer(bias_),
                                      as_pointer(residual_)};
  for (const KernelManifest& kernel : code.kernels) {
    cuda::LaunchShape shape;
    shape.grid[0] = static_cast<uint32_t>(kernel.grid_x(operands_.n));
    shape.grid[1] = kernel.grid_rows;
    shape.grid[2] = code.copies; // which the kernel does not ask for
    std::memcpy(shape.block, kernel.block, sizeof shape.block);
    shape.dynamic_shared_bytes = kernel.dynamic_shared_bytes;
    Code::Kernel loaded;
    for (const KernelArgument& argument :
         arguments_of(kernel, addresses, operands_.n, buffers_.ldb, buffers_.ldc)) {
      static_assert(sizeof(uint64_t) == sizeof argument);
      std::memcpy(&loaded.arguments.emplace_back(), &argument, sizeof argument);
    }
    loaded.launcher = std::make_unique<cuda::Launcher>(gpu_, code.cubin, kernel.entry, shape);
    code.loaded.push_back(std::move(loaded));
  }
}

const tune::GraphReplay& GpuLayer::replay(const tune::CandidateCode& code) const {
  const auto& own = static_cast<const Code&>(code);
  load(own);
  if (!own.replay)
    own.replay = std::make_unique<tune::GraphReplay>(gpu_, stream_, [&] { own.enqueue(stream_); });
  return *own.replay;
}

void GpuLayer::enqueue(const tune::CandidateCode& code) const {
  const auto& own = static_cast<const Code&>(code);
  load(own);
  own.enqueue(stream_);
}

tune::Timing GpuLayer::time_cold(const tune::CandidateCode& code, const cuda::DeviceBuffer& flush,
                                 unsigned samples) const {
  const auto& own = static_cast<const Code&>(code);
  load(own);
  return tune::time_cold(
      gpu_, stream_, [&] { own.enqueue(stream_); }, flush, samples);
}

std::string GpuLayer::check(const tune::CandidateCode& code) const {
  const auto& own = static_cast<const Code&>(code);
  load(own);
  c_.fill(kNanByte, stream_);
  own.enqueue(stream_);
  c_.download(bytes_of(buffers_.c), stream_);
  const CheckResult result = check_spmm(weights(), problem_, own.tile, operands_,
                                        read_back(buffers_, operands_, problem_), pool_);
  if (result.passed)
    return {};
  return fmt::format("wrong result at ({}, {}): expected {:.9g}, found {:.9g}, bound {:.3g}",
                     result.row, result.column, result.expected, result.found, result.bound);
}

CandidateFacts GpuLayer::facts(const tune::CandidateCode& code) const {
  return static_cast<const Code&>(code).facts;
}

tune::SearchHooks GpuLayer::hooks(unsigned assembler_jobs) {
  tune::SearchHooks hooks;
  hooks.make = [this, assembler_jobs](const tune::Candidate& candidate,
                                      const std::atomic<bool>& stop) {
    return make(candidate, 0, assembler_jobs, stop);
  };
  if (samples_.size() > 1) {
    hooks.has_sample = [this](const tune::Candidate& candidate) {
      return sample_for(candidate) != 0;
    };
    hooks.make_sample = [this, assembler_jobs](const tune::Candidate& candidate,
                                               const std::atomic<bool>& stop) {
      return make(candidate, sample_for(candidate), assembler_jobs, stop);
    };
  }
  hooks.time = [this](const tune::CandidateCode& code) {
    return replay(code).time(kQuickSamples).median_us * static_cast<const Code&>(code).correction;
  };
  hooks.check = [this](const tune::CandidateCode& code) { return check(code); };
  hooks.alternative = tune::in_other_row_order;
  hooks.now = now;
  hooks.interrupted = [] { return interrupt_flag().load(); };
  return hooks;
}

std::vector<PreparedPeer> prepare_peers(const cuda::Context& gpu, const cuda::Stream& stream,
                                        const GpuPeerLibraries& libraries, const GpuLayer& layer,
                                        TaskPool& pool, std::vector<std::string>& refused) {
  const SpmmProblem& problem = layer.problem();
  const SpmmOperands& operands = layer.operands();
  const bool plain =
      !problem.convolution && (problem.type == DataType::f32 || problem.type == DataType::f16) &&
      problem.layout == Layout::row_major && !problem.epilogue.bias && !problem.epilogue.residual &&
      problem.epilogue.activation == Activation::none &&
      (problem.ldb == 0 || problem.ldb == operands.columns) &&
      (problem.ldc == 0 || problem.ldc == operands.columns);
  if (!plain || libraries.found().empty())
    return {};
  const DenseReference reference = multiply_in_f64(layer.weights(), operands, pool);
  std::vector<PreparedPeer> prepared;
  for (std::unique_ptr<GpuPeer>& peer : libraries.prepare(layer.weights(), operands, refused)) {
    try {
      auto replay = std::make_unique<tune::GraphReplay>(gpu, stream, [&] { peer->enqueue(); });
      replay->sample();
      const std::string wrong =
          check_peer(*peer, peer->result(), layer.weights(), operands, reference);
      if (!wrong.empty())
        refused.push_back("wrong result: " + wrong);
      else
        prepared.push_back({std::move(peer), std::move(replay)});
    } catch (const RuntimeError& error) {
      refused.push_back(error.what());
    }
  }
  return prepared;
}

void report_refusals(const tune::SearchResult& found, const std::string& name) {
  size_t refused = 0;
  const tune::Trial* first = nullptr;
  for (const tune::Trial& trial : found.trials) {
    if (trial.refused.empty())
      continue;
    if (trial.is_wrong) {
      fmt::print(stderr, "sparsertc: {}: {}: {}\n", name, to_string(trial.candidate),
                 trial.refused);
      continue;
    }
    first = first ? first : &trial;
    ++refused;
  }
  if (first)
    fmt::print(stderr, "sparsertc: {}: {} of {} candidates refused, the first, {}: {}\n", name,
               refused, found.trials.size(), to_string(first->candidate),
               first->refused.substr(0, first->refused.find('\n')));
}

} // namespace sparsertc
