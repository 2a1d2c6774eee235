// Networks on the GPU: each layer against float64, of what the GPU itself gave it to read, then all
// layers as one CUDA graph against the layers one by one, bit by bit.
#include "ir/error.h"
#include "runtime/driver/graph.h"
#include "runtime/plan/network.h"
#include "tests/gpu/gpu_spmm.h"
#include "tests/support/interpreting_driver.h"
#include "tools/gpu_device.h"
#include "tools/network.h"
#include "tools/spmm_check.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

using namespace sparsertc;

namespace {

/// The small network of the repository; on a machine without one it is beside the program
/// (pack.sh).
std::string tiny_network() {
  const std::filesystem::path own =
      std::filesystem::path(SPARSERTC_SOURCE_DIR) / "tests/data/network/tiny.json";
  if (std::filesystem::exists(own))
    return own.string();
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "network/tiny.json")
      .string();
}

/// A network of the pruned pointwise layers at 14 x 14 pixels, as tools/examples/mobilenet.py
/// chains them; `folder` has the weights.
std::string mobilenet_json(const std::filesystem::path& folder) {
  std::string layers;
  for (int i = 5; i < 12; ++i) {
    const std::string weights = (folder / fmt::format("contraction_1x1_{}.npy.gz", i)).string();
    const std::string bias = (folder / fmt::format("contraction_1x1_{}_bias.npy.gz", i)).string();
    if (std::filesystem::exists(weights) && std::filesystem::exists(bias))
      layers += fmt::format(R"({}{{"name": "pointwise{}", "weights": "{}", "bias": "{}"}})",
                            layers.empty() ? "" : ", ", i, weights, bias);
  }
  return fmt::format(
      R"({{"name": "mobilenet", "columns": 196, "activation": "relu", "layers": [{}]}})", layers);
}

/// A file that is gone with its object.
class TemporaryFile {
public:
  explicit TemporaryFile(const std::string& text) {
    std::string name = (std::filesystem::temp_directory_path() / "network_XXXXXX.json").string();
    const int file = mkstemps(name.data(), 5);
    REQUIRE(file != -1);
    close(file);
    path = name;
    std::ofstream(path) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::filesystem::path path;
};

std::shared_ptr<const ExecutionContext> open_context() {
  cuda::FakeCudaDriver* interpreter = Machine::get().interpreter();
  if (interpreter != nullptr)
    interpret_launches(*interpreter);
  return std::make_shared<const ExecutionContext>(0, [interpreter] {
    return interpreter ? std::make_shared<const cuda::Driver>(interpreter->table())
                       : cuda::Driver::open();
  });
}

std::span<uint8_t> bytes_of(const AlignedBytes& bytes) {
  return {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()};
}

/// A network on the GPU with memory for one execution, all of it NaN where nothing has been
/// written.
class NetworkRun {
public:
  NetworkRun(const SourceNetwork& source, const Assembler* assembler)
      : source_(source), context_(open_context()) {
    NetworkCompilation compilation;
    compilation.target = Machine::get().target().name;
    compilation.assembler = assembler;
    compiled_ = compile_network(source, compilation);
    network_.emplace(context_, make_network_bundle(source, compiled_), source.file.path);
    const cuda::Context& gpu = context_->require_gpu("testing a network");
    const uint64_t units = network_->units(0);
    stream_.emplace(gpu);
    input_.emplace(gpu, units * network_->manifest().input_bytes);
    output_.emplace(gpu, units * network_->manifest().output_bytes);
    workspace_.emplace(gpu, network_->workspace_bytes(0));
    arguments_ = {input_->address(), output_->address(), 0};
  }

  const Network& network() const { return *network_; }

  /// Forgets all outputs.
  void poison() const {
    workspace_->fill(0xff, *stream_);
    output_->fill(0xff, *stream_);
    network_->initialize_workspace(workspace_->address(), stream_->handle());
    stream_->synchronize();
  }

  /// Draws an input and runs the layers one by one, each checked; returns the bytes of the output.
  std::vector<uint8_t> check_layers(uint64_t seed) {
    poison();
    results_.clear();
    std::vector<uint8_t> last;
    for (size_t i = 0; i < source_.layers.size(); ++i) {
      INFO("layer " << source_.manifest.layers[i].name);
      const SpmmProblem& problem = source_.layers[i].problem;
      const SpmmOperands operands = operands_of(i, seed);
      SpmmBuffers buffers = lay_out(operands, problem);
      if (i == 0)
        input_->upload(bytes_of(buffers.b), *stream_);
      network_->execute_layer(i, arguments_, workspace_->address(), stream_->handle());
      network_->status(workspace_->address(), stream_->handle()); // waits, and tells of faults
      const cuda::DeviceAddress at = network_->output_of(i, arguments_, workspace_->address());
      const std::span<uint8_t> bytes = bytes_of(buffers.c);
      const cuda::Context& gpu = context_->require_gpu("testing a network");
      cuda::DeviceBuffer(gpu, at, bytes.size()).download(bytes, *stream_);
      results_.push_back(read_back(buffers, operands, problem));
      const CheckResult check =
          check_spmm(source_.layers[i].matrix, problem, compiled_[i].result.schedule.tile, operands,
                     results_.back(), Machine::get().pool());
      INFO(fmt::format("worst element ({}, {}): expected {}, found {}, bound {}", check.row,
                       check.column, check.expected, check.found, check.bound));
      CHECK(check.passed);
      // A chain of zeros would pass every check.
      CHECK(std::any_of(results_.back().begin(), results_.back().end(),
                        [](double value) { return value != 0; }));
      last.assign(bytes.begin(), bytes.end());
    }
    return last;
  }

  /// All layers, enqueued by one call.
  void execute() const { network_->execute(arguments_, workspace_->address(), stream_->handle()); }
  std::vector<uint8_t> output() const {
    stream_->synchronize();
    std::vector<uint8_t> bytes(output_->bytes());
    output_->download(bytes, *stream_);
    return bytes;
  }
  const cuda::Stream& stream() const { return *stream_; }
  const cuda::Context& gpu() const { return context_->require_gpu("testing a network"); }

private:
  /// What layer `number` reads: results of the GPU, or the input.
  SpmmOperands operands_of(size_t number, uint64_t seed) const {
    const SourceLayer& layer = source_.layers[number];
    const NetworkLayer& place = source_.manifest.layers[number];
    SpmmProblem problem = layer.problem;
    problem.epilogue = {};
    OperandSources sources;
    sources.seed = seed;
    SpmmOperands operands =
        make_operands(layer.matrix, problem, sources, layer.problem.columns.value());
    if (place.input != NetworkLayer::kNetworkInput)
      operands.b = results_[static_cast<size_t>(place.input)];
    operands.bias = layer.bias;
    if (place.residual != NetworkLayer::kNothing)
      operands.residual = results_[static_cast<size_t>(place.residual)];
    return operands;
  }

  const SourceNetwork& source_;
  std::shared_ptr<const ExecutionContext> context_;
  std::vector<CompiledLayer> compiled_;
  std::optional<Network> network_;
  std::optional<cuda::Stream> stream_;
  std::optional<cuda::DeviceBuffer> input_, output_, workspace_;
  NetworkArguments arguments_;
  std::vector<std::vector<double>> results_;
};

void check_network(const std::string& path, size_t layers, const Assembler* assembler,
                   uint64_t seed) {
  CAPTURE(path, seed, assembler != nullptr);
  const SourceNetwork source = open_network(read_network_file(path), 0);
  CHECK(source.layers.size() == layers);
  NetworkRun run(source, assembler);
  for (size_t i = 0; i < run.network().layers(); ++i)
    CHECK(run.network().plan(i)->code() == (assembler ? Plan::Code::cubin : Plan::Code::ptx));

  std::vector<uint8_t> expected = run.check_layers(seed);
  run.poison();
  run.execute();
  CHECK(run.output() == expected);
  if (Machine::get().interpreter() != nullptr)
    return; // which records no graphs

  const cuda::Graph graph(run.gpu(), run.stream(), [&] { run.execute(); });
  // Of what is in the buffers when it is launched.
  for (const uint64_t other : {seed, seed + 1}) {
    if (other != seed)
      expected = run.check_layers(other);
    for (int replay = 0; replay < 3; ++replay) {
      run.poison();
      graph.launch();
      CHECK(run.output() == expected);
    }
  }
}

} // namespace

TEST_CASE("network: small, layer by layer and as one graph", "[interpret][sanitize]") {
  if (!Machine::get().can_test() || Machine::get().gpu() == nullptr)
    return;
  check_network(tiny_network(), 4, nullptr, 3);
}

TEST_CASE("network: pruned MobileNet, layer by layer and as one graph") {
  const char* const data = std::getenv("SPARSERTC_DATA");
  const std::filesystem::path folder =
      std::filesystem::path(data ? data : "") / "weights" / "mobilenet";
  if (data == nullptr || !std::filesystem::exists(folder)) {
    WARN("SKIPPED: SPARSERTC_DATA does not name a folder with weights/mobilenet");
    return;
  }
  Machine& machine = Machine::get();
  if (!machine.can_test())
    return;
  if (machine.gpu() == nullptr || machine.interpreter() != nullptr) {
    WARN("SKIPPED: needs a GPU; too large for the interpreter");
    return;
  }
  const TemporaryFile file(mobilenet_json(folder));
  // The driver would assemble each long kernel on one core: ptxas does where it is found.
  check_network(file.path.string(), 6, machine.ptxas(), 5);
}
