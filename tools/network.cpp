#include "tools/network.h"

#include "compiler/input/convert.h"
#include "compiler/manifest.h"
#include "ir/error.h"
#include "runtime/host/task_pool.h"
#include "tools/make_bundle.h"
#include "tools/session.h"
#include "tools/spmm_operands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

namespace sparsertc {
namespace {

/// What a layer reads or writes.
struct Tensor {
  DataType type = DataType::f32;
  Layout layout = Layout::row_major;
  uint64_t rows = 0; ///< channels
  /// Of an image; of a matrix nothing.
  std::optional<std::pair<uint64_t, uint64_t>> image;
  std::optional<uint64_t> n; ///< columns, or images; nothing: given at each execution

  /// Where n is given at each execution for n = 1.
  uint64_t columns() const { return n.value_or(1) * (image ? image->first * image->second : 1); }
  uint64_t bytes() const { return rows * columns() * element_bytes(type); }
};

Tensor input_of(const SourceLayer& layer) {
  const SpmmProblem& problem = layer.problem;
  Tensor tensor = {problem.type, problem.layout, layer.matrix.pattern.columns, {}, problem.columns};
  if (const auto& conv = problem.convolution) {
    tensor.rows = conv->channels;
    tensor.image = {conv->height, conv->width};
  }
  return tensor;
}

Tensor output_of(const SourceLayer& layer) {
  const SpmmProblem& problem = layer.problem;
  Tensor tensor = {problem.type, problem.layout, layer.matrix.pattern.rows, {}, problem.columns};
  if (const auto& conv = problem.convolution)
    tensor.image = {conv->out_height(), conv->out_width()};
  return tensor;
}

std::string describe(const Tensor& tensor) {
  const std::string n = tensor.n ? std::to_string(*tensor.n) : "n";
  const bool row_major = tensor.layout == Layout::row_major;
  if (!tensor.image)
    return fmt::format("{} x {} ({}, {})", tensor.rows, n, name_of(tensor.type),
                       row_major ? "row" : "column");
  return fmt::format("{} x {} x {}, {} {} ({}, {})", tensor.rows, tensor.image->first,
                     tensor.image->second, n, tensor.n == 1u ? "image" : "images",
                     name_of(tensor.type), row_major ? "nchw" : "nhwc");
}

/// Whether what was written as one can be read as the other, byte by byte. Images and matrices meet
/// where a column is a pixel: of NHWC always, of NCHW with a single image.
bool is_same(const Tensor& a, const Tensor& b) {
  if (a.type != b.type || a.layout != b.layout || a.rows != b.rows ||
      a.n.has_value() != b.n.has_value())
    return false;
  if (a.image.has_value() == b.image.has_value())
    return a.image == b.image && a.n == b.n;
  const Tensor& images = a.image ? a : b;
  if (!images.n || (images.layout == Layout::row_major && images.n != 1u))
    return false;
  return a.columns() == b.columns();
}

/// Runs a task for each layer; of several errors that of the first layer is thrown.
void for_each_layer(size_t layers, unsigned threads, const std::function<void(size_t)>& task) {
  std::vector<std::exception_ptr> errors(layers);
  TaskPool pool(threads);
  pool.run(layers, [&](uint64_t layer) {
    try {
      task(layer);
    } catch (...) {
      errors[layer] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors)
    if (error)
      std::rethrow_exception(error);
}

std::vector<double> read_bias(const std::string& path, uint64_t rows, DataType type) {
  DenseTensor tensor = read_dense(path);
  if (tensor.shape != std::vector<uint64_t>{rows} && tensor.shape != std::vector<uint64_t>{rows, 1})
    throw UserError(fmt::format("{} has the shape [{}], expected [{}]", path,
                                fmt::join(tensor.shape, ", "), rows));
  for (double& value : tensor.values)
    value = round_to(value, stored_type(type));
  return std::move(tensor.values);
}

/// Throws what went wrong with a file or a shape as an error of the layer's key.
template <typename Work>
void about(const NetworkFile& file, const NetworkFileLayer& layer, const char* key, Work&& work) {
  try {
    work();
  } catch (const UserError& error) {
    const auto [message, way_out] = parts_of(error);
    refuse_layer(file, layer, key, message, way_out);
  } catch (const UsageError& error) {
    const auto [message, way_out] = parts_of(error);
    refuse_layer(file, layer, key, message, way_out);
  }
}

SourceLayer open_layer(const NetworkFile& file, const NetworkFileLayer& said) {
  SourceLayer layer;
  about(file, said, "weights", [&] {
    ReadOptions read = to_read_options(said.weights);
    read.require_values = true;
    layer.weights = read_matrix(said.weights.path, read);
  });
  layer.problem = said.problem;
  if (layer.problem.convolution) {
    about(file, said, "conv", [&] {
      layer.matrix = filters_as_matrix(layer.weights, *layer.problem.convolution);
      check_convolution(*layer.problem.convolution);
    });
  } else {
    layer.matrix = layer.weights;
  }
  if (!said.bias.empty()) {
    about(file, said, "bias", [&] {
      layer.bias = read_bias(said.bias, layer.matrix.pattern.rows, layer.problem.type);
    });
  }
  return layer;
}

/// Shapes, and where everything lies.
NetworkManifest plan_network(const NetworkFile& file, const std::vector<SourceLayer>& layers) {
  NetworkManifest manifest;
  manifest.name = file.name;
  manifest.sparsertc = sparsertc_version();
  manifest.dynamic = !layers.front().problem.columns;
  std::optional<Tensor> input; // of the network
  uint64_t constants = kNetworkAlignment;
  for (size_t i = 0; i < layers.size(); ++i) {
    const NetworkFileLayer& said = file.layers[i];
    const Tensor in = input_of(layers[i]), out = output_of(layers[i]);
    const auto check = [&](const char* key, int32_t from, const Tensor& taken, const char* what) {
      if (from == NetworkLayer::kNothing)
        return;
      const bool is_input = from == NetworkLayer::kNetworkInput;
      if (is_input && !input)
        input = taken;
      const Tensor given = is_input ? *input : output_of(layers[static_cast<size_t>(from)]);
      if (!is_same(given, taken))
        refuse_layer(file, said, key,
                     fmt::format("{} is {}, it {} {}",
                                 is_input
                                     ? std::string("the network's input")
                                     : fmt::format("the output of \"{}\"",
                                                   file.layers[static_cast<size_t>(from)].name),
                                 describe(given), what, describe(taken)),
                     given.n.has_value() != taken.n.has_value()
                         ? "give n to all layers, or to none: columns, or N in conv"
                         : "");
    };
    check("input", said.input, in, "takes");
    check("residual", said.residual, out, "adds");
    if (layers[i].problem.columns.has_value() == manifest.dynamic)
      refuse_layer(file, said, layers[i].problem.convolution ? "conv" : "columns",
                   "n is given for some layers and left open for others",
                   "give it to all layers, or to none: columns, or N in conv");
    NetworkLayer& layer = manifest.layers.emplace_back();
    layer.name = said.name;
    layer.input = said.input;
    layer.residual = said.residual;
    if (layers[i].problem.epilogue.bias) {
      const uint64_t bytes = layers[i].bias.size() * element_bytes(layers[i].problem.type);
      layer.bias = {constants, bytes};
      constants = network_aligned(constants + bytes);
    }
    if (i + 1 < layers.size())
      layer.output = {0, out.bytes()};
  }
  manifest.constant_bytes = constants;
  manifest.input_bytes = input ? input->bytes() : 0;
  manifest.output_bytes = output_of(layers.back()).bytes();
  place_activations(manifest);
  return manifest;
}

} // namespace

std::string describe_input(const SourceLayer& layer) {
  return describe(input_of(layer));
}
std::string describe_output(const SourceLayer& layer) {
  return describe(output_of(layer));
}

SourceNetwork open_network(NetworkFile file, unsigned jobs) {
  SourceNetwork network;
  network.layers.resize(file.layers.size());
  for_each_layer(file.layers.size(), jobs, [&](size_t layer) {
    stop_if_interrupted();
    network.layers[layer] = open_layer(file, file.layers[layer]);
  });
  network.manifest = plan_network(file, network.layers);
  network.file = std::move(file);
  return network;
}

std::vector<CompiledLayer> compile_network(const SourceNetwork& network,
                                           const NetworkCompilation& compilation) {
  const size_t count = network.layers.size();
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const unsigned jobs = compilation.jobs != 0 ? compilation.jobs : cores;
  JobLimit limit(jobs);
  std::mutex mutex;
  size_t done = 0;
  std::vector<CompiledLayer> compiled(count);
  // More threads than jobs, so that layers are made ready while others are assembled.
  const unsigned threads = static_cast<unsigned>(std::min<size_t>(count, size_t{jobs} * 2));
  for_each_layer(count, threads, [&](size_t number) {
    const NetworkFileLayer& said = network.file.layers[number];
    const SourceLayer& source = network.layers[number];
    PipelineOptions& pipeline = compiled[number].options;
    pipeline.problem = said.problem;
    about(network.file, said, "target", [&] {
      pipeline.target = resolve_target(!compilation.target.empty() ? compilation.target
                                       : !said.target.empty()      ? said.target
                                                                   : compilation.default_target);
      if (pipeline.target.is_host && compilation.artefact == Artefact::bundle)
        throw UsageError("there are no bundles for the CPU");
    });
    const bool for_gpu = !pipeline.target.is_host;
    if (for_gpu) {
      pipeline.tile = said.tile;
      pipeline.budget = said.budget;
    }
    pipeline.artefact = compilation.artefact;
    pipeline.assembler = compilation.assembler;
    pipeline.bindable =
        compilation.artefact == Artefact::bundle && (said.bindable || compilation.bindable);
    pipeline.jobs = jobs;
    pipeline.limit = &limit;
    pipeline.stop = &interrupt_flag();
    pipeline.verify_each = compilation.verify_each;
    pipeline.stop_after = compilation.stop_after;
    if (for_gpu && !said.tuning.empty())
      about(network.file, said, "tuning",
            [&] { apply_tuning(said.tuning, said.mismatch, source.weights, pipeline); });

    // A job until the assembler takes over, whose processes are jobs themselves.
    std::optional<JobLimit::Job> job(std::in_place, &limit);
    pipeline.before_stage = [&](std::string_view stage) {
      stop_if_interrupted();
      if (stage == "assemble")
        job.reset();
    };
    about(network.file, said, "weights", [&] {
      compiled[number].result = compile_spmm([&] { return source.weights; }, pipeline);
    });
    pipeline.before_stage = {};
    pipeline.limit = nullptr;
    const std::lock_guard lock(mutex);
    ++done;
    if (compilation.progress)
      compilation.progress(done);
  });
  return compiled;
}

Bundle make_network_bundle(const SourceNetwork& network, const std::vector<CompiledLayer>& layers) {
  Bundle bundle;
  bundle.manifest = network_manifest_json(network.manifest);
  std::vector<uint8_t> biases(network.manifest.constant_bytes - kNetworkAlignment, 0);
  for (size_t i = 0; i < layers.size(); ++i)
    if (const std::optional<NetworkSlice>& place = network.manifest.layers[i].bias)
      encode_vector(network.layers[i].bias, network.layers[i].problem.type,
                    biases.data() + (place->offset - kNetworkAlignment));
  if (!biases.empty())
    bundle.sections.push_back({kBiasSection, std::move(biases)});
  for (size_t i = 0; i < layers.size(); ++i)
    bundle.sections.push_back(
        {plan_section(i), serialize(make_bundle(layers[i].result, layers[i].options))});
  return bundle;
}

} // namespace sparsertc
