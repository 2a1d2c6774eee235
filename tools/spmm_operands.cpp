#include "tools/spmm_operands.h"

#include "compiler/input/convert.h"
#include "compiler/input/random_values.h"
#include "compiler/input/read.h"
#include "ir/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace sparsertc {
namespace {

constexpr size_t kAlignment = 64;

/// A dense file of the given shape; a vector may also be a matrix with one column.
std::vector<double> read_operand(const std::string& path, const char* what, uint64_t rows,
                                 uint64_t columns) {
  DenseTensor tensor = read_dense(path);
  const bool as_matrix = tensor.shape == std::vector<uint64_t>{rows, columns};
  const bool as_vector = columns == 1 && tensor.shape == std::vector<uint64_t>{rows};
  if (!as_matrix && !as_vector)
    throw UserError(Place{path, 0, 0, {}},
                    fmt::format("{} has the shape [{}], expected [{}, {}]", what,
                                fmt::join(tensor.shape, ", "), rows, columns));
  return std::move(tensor.values);
}

/// The number of columns of a file with K rows.
uint32_t columns_of(const std::string& path, uint64_t inner) {
  const DenseTensor tensor = read_dense(path);
  const bool fits =
      (tensor.shape.size() == 1 || tensor.shape.size() == 2) && tensor.shape[0] == inner;
  if (!fits)
    throw UserError(Place{path, 0, 0, {}}, fmt::format("B has the shape [{}], expected [{}, N]",
                                                       fmt::join(tensor.shape, ", "), inner));
  const uint64_t columns = tensor.shape.size() == 1 ? 1 : tensor.shape[1];
  if (columns > kMaximumDimension)
    throw UserError(Place{path, 0, 0, {}}, fmt::format("B has {} columns, too many", columns));
  return static_cast<uint32_t>(columns);
}

void store(std::byte* where, double value, DataType type) {
  switch (type) {
  case DataType::f32: {
    const uint32_t bits = to_f32(value);
    std::memcpy(where, &bits, sizeof bits);
    return;
  }
  case DataType::f16: {
    const uint16_t bits = to_f16(value);
    std::memcpy(where, &bits, sizeof bits);
    return;
  }
  case DataType::bf16: {
    const uint16_t bits = to_bf16(value);
    std::memcpy(where, &bits, sizeof bits);
    return;
  }
  case DataType::f64:
    std::memcpy(where, &value, sizeof value);
    return;
  }
}

double load(const std::byte* where, DataType type) {
  if (type == DataType::f64) {
    double value;
    std::memcpy(&value, where, sizeof value);
    return value;
  }
  if (type == DataType::f32) {
    uint32_t bits;
    std::memcpy(&bits, where, sizeof bits);
    return from_f32(bits);
  }
  uint16_t bits;
  std::memcpy(&bits, where, sizeof bits);
  return type == DataType::f16 ? from_f16(bits) : from_bf16(bits);
}

/// Places of the elements of a rows x columns matrix; of images, row_major lays out a channel of an
/// image after the other (`pixels` columns each), column_major the channels of a pixel.
struct Placement {
  Layout layout;
  uint64_t leading;
  uint64_t pixels; ///< 0: a plain matrix
  uint64_t at(uint64_t row, uint64_t column) const {
    if (layout == Layout::column_major)
      return column * leading + row;
    return pixels == 0 ? row * leading + column
                       : column / pixels * leading + row * pixels + column % pixels;
  }
  /// Elements of the whole.
  uint64_t extent(uint64_t rows, uint64_t columns) const {
    if (layout == Layout::column_major)
      return columns * leading;
    return (pixels == 0 ? rows : columns / pixels) * leading;
  }
};

Placement b_placement(const SpmmProblem& problem, uint64_t ldb) {
  return {problem.layout, ldb, problem.convolution ? problem.convolution->in_pixels() : 0};
}
Placement c_placement(const SpmmProblem& problem, uint64_t ldc) {
  return {problem.layout, ldc, problem.convolution ? problem.convolution->out_pixels() : 0};
}

AlignedBytes encode(const std::vector<double>& values, uint64_t rows, uint64_t columns,
                    const Placement& placement, DataType type) {
  const uint64_t size = element_bytes(type);
  AlignedBytes bytes(placement.extent(rows, columns) * size);
  for (uint64_t row = 0; row < rows; ++row)
    for (uint64_t column = 0; column < columns; ++column)
      store(bytes.data() + placement.at(row, column) * size, values[row * columns + column], type);
  return bytes;
}

/// The leading dimension: as stated, or tight.
uint64_t leading_dimension(uint64_t stated, uint64_t tight, const char* name) {
  if (stated != 0 && stated < tight)
    throw UsageError(fmt::format("--{}={} is less than {}", name, stated, tight),
                     "a leading dimension is at least the length of a row (row-major) or of a "
                     "column (column-major)");
  return stated != 0 ? stated : tight;
}

/// [images, channels, pixels] to channels x (images * pixels), or back.
std::vector<double> swap_images_and_channels(const std::vector<double>& values, uint64_t images,
                                             uint64_t channels, uint64_t pixels, bool back) {
  std::vector<double> swapped(values.size());
  for (uint64_t image = 0; image < images; ++image)
    for (uint64_t channel = 0; channel < channels; ++channel)
      for (uint64_t pixel = 0; pixel < pixels; ++pixel) {
        const uint64_t in_file = (image * channels + channel) * pixels + pixel;
        const uint64_t in_matrix = (channel * images + image) * pixels + pixel;
        swapped[back ? in_file : in_matrix] = values[back ? in_matrix : in_file];
      }
  return swapped;
}

/// Images from a file, as a matrix.
std::vector<double> read_images(const std::string& path, const char* what, uint64_t images,
                                uint64_t channels, uint64_t height, uint64_t width) {
  const DenseTensor tensor = read_dense(path);
  const std::vector<uint64_t> expected = {images, channels, height, width};
  if (tensor.shape != expected)
    throw UserError(Place{path, 0, 0, {}},
                    fmt::format("{} has the shape [{}], expected [{}]", what,
                                fmt::join(tensor.shape, ", "), fmt::join(expected, ", ")),
                    "files hold images as N, C, H, W, whatever --layout says of the memory");
  return swap_images_and_channels(tensor.values, images, channels, height * width, false);
}

/// The number of images in a file.
uint32_t images_of(const std::string& path) {
  const DenseTensor tensor = read_dense(path);
  if (tensor.shape.size() != 4 || tensor.shape[0] > kMaximumDimension)
    throw UserError(
        Place{path, 0, 0, {}},
        fmt::format("B has the shape [{}], expected [N, C, H, W]", fmt::join(tensor.shape, ", ")));
  return static_cast<uint32_t>(tensor.shape[0]);
}

} // namespace

StoredType stored_type(DataType type) {
  switch (type) {
  case DataType::f32:
    return StoredType::f32;
  case DataType::f16:
    return StoredType::f16;
  case DataType::bf16:
    return StoredType::bf16;
  case DataType::f64:
    return StoredType::f64;
  }
  return StoredType::none;
}

SpmmOperands make_operands(const Matrix& weights, const SpmmProblem& problem,
                           const OperandSources& sources, uint32_t default_columns) {
  SpmmOperands operands;
  operands.rows = weights.pattern.rows;
  const Convolution* const conv = problem.convolution ? &*problem.convolution : nullptr;
  operands.inner = conv ? conv->channels : weights.pattern.columns;
  if (problem.columns)
    operands.n = *problem.columns;
  else if (!sources.b.empty())
    operands.n = conv ? images_of(sources.b) : columns_of(sources.b, operands.inner);
  else
    operands.n = conv ? 1 : default_columns;
  operands.columns = static_cast<uint32_t>(conv ? operands.n * conv->out_pixels() : operands.n);
  operands.b_columns = static_cast<uint32_t>(conv ? operands.n * conv->in_pixels() : operands.n);

  const auto draw = [&](uint64_t count, uint64_t seed) {
    std::vector<double> values = random_values(count, seed);
    if (problem.type != DataType::f64)
      return values;
    // 24 bits would make most sums exact in f64, and a check of their rounding worthless.
    const std::vector<double> finer = random_values(count, ~seed);
    for (uint64_t i = 0; i < count; ++i)
      values[i] += 0x1p-24 * finer[i];
    return values;
  };
  const auto round = [&](std::vector<double> values) {
    for (double& value : values)
      value = round_to(value, stored_type(problem.type));
    return values;
  };
  const auto make = [&](const std::string& path, const char* what, uint64_t rows, uint64_t columns,
                        uint64_t seed) {
    return round(path.empty() ? draw(rows * columns, seed)
                              : read_operand(path, what, rows, columns));
  };
  const auto make_images = [&](const std::string& path, const char* what, uint64_t channels,
                               uint64_t height, uint64_t width, uint64_t seed) {
    return round(path.empty() ? draw(operands.n * channels * height * width, seed)
                              : read_images(path, what, operands.n, channels, height, width));
  };
  // Each operand has a seed of its own, so that one does not change with another's presence.
  operands.b =
      conv ? make_images(sources.b, "B", conv->channels, conv->height, conv->width, sources.seed)
           : make(sources.b, "B", operands.inner, operands.columns, sources.seed);
  if (problem.epilogue.bias)
    operands.bias = make(sources.bias, "the bias", operands.rows, 1, sources.seed + 1);
  if (problem.epilogue.residual)
    operands.residual = conv ? make_images(sources.residual, "the residual", operands.rows,
                                           conv->out_height(), conv->out_width(), sources.seed + 2)
                             : make(sources.residual, "the residual", operands.rows,
                                    operands.columns, sources.seed + 2);
  return operands;
}

void encode_vector(const std::vector<double>& values, DataType type, uint8_t* where) {
  for (size_t i = 0; i < values.size(); ++i)
    store(reinterpret_cast<std::byte*>(where) + i * element_bytes(type), values[i], type);
}

std::vector<uint64_t> result_shape(const SpmmOperands& operands, const SpmmProblem& problem) {
  if (!problem.convolution)
    return {operands.rows, operands.columns};
  return {operands.n, operands.rows, problem.convolution->out_height(),
          problem.convolution->out_width()};
}

std::vector<double> in_file_order(const SpmmOperands& operands, const SpmmProblem& problem,
                                  const std::vector<double>& c) {
  if (!problem.convolution)
    return c;
  return swap_images_and_channels(c, operands.n, operands.rows, problem.convolution->out_pixels(),
                                  true);
}

uint64_t b_position(const SpmmProblem& problem, uint64_t row, uint64_t column, uint64_t ldb) {
  return b_placement(problem, ldb).at(row, column);
}
uint64_t c_position(const SpmmProblem& problem, uint64_t row, uint64_t column, uint64_t ldc) {
  return c_placement(problem, ldc).at(row, column);
}

AlignedBytes::AlignedBytes(size_t size) : size_(size) {
  const size_t rounded = (std::max<size_t>(size, 1) + kAlignment - 1) / kAlignment * kAlignment;
  auto* bytes = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  if (bytes == nullptr)
    throw std::bad_alloc();
  bytes_.reset(bytes);
  // All bits set: NaN in every floating-point type.
  std::memset(bytes, 0xff, rounded);
}

void AlignedBytes::Free::operator()(std::byte* bytes) const {
  std::free(bytes);
}

SpmmBuffers lay_out(const SpmmOperands& operands, const SpmmProblem& problem) {
  SpmmBuffers buffers;
  const bool row_major = problem.layout == Layout::row_major;
  const auto tight = [&](uint64_t rows, uint64_t columns, uint64_t pixels) {
    return !row_major ? rows : problem.convolution ? rows * pixels : columns;
  };
  const Convolution conv = problem.convolution.value_or(Convolution{});
  const uint64_t in = problem.convolution ? conv.in_pixels() : 0;
  const uint64_t out = problem.convolution ? conv.out_pixels() : 0;
  buffers.ldb =
      leading_dimension(problem.ldb, tight(operands.inner, operands.b_columns, in), "ldb");
  buffers.ldc = leading_dimension(problem.ldc, tight(operands.rows, operands.columns, out), "ldc");
  const Placement b = b_placement(problem, buffers.ldb), c = c_placement(problem, buffers.ldc);
  buffers.b = encode(operands.b, operands.inner, operands.b_columns, b, problem.type);
  buffers.c = AlignedBytes(c.extent(operands.rows, operands.columns) * element_bytes(problem.type));
  if (problem.epilogue.bias)
    buffers.bias = encode(operands.bias, operands.rows, 1, {Layout::row_major, 1, 0}, problem.type);
  if (problem.epilogue.residual)
    buffers.residual = encode(operands.residual, operands.rows, operands.columns, c, problem.type);
  return buffers;
}

std::vector<double> read_back(const SpmmBuffers& buffers, const SpmmOperands& operands,
                              const SpmmProblem& problem) {
  const uint64_t size = element_bytes(problem.type);
  const Placement placement = c_placement(problem, buffers.ldc);
  std::vector<double> values(uint64_t{operands.rows} * operands.columns);
  for (uint64_t row = 0; row < operands.rows; ++row)
    for (uint64_t column = 0; column < operands.columns; ++column)
      values[row * operands.columns + column] =
          load(buffers.c.data() + placement.at(row, column) * size, problem.type);
  return values;
}

OperandAddresses addresses_of(const SpmmBuffers& buffers) {
  return {buffers.b.data(), buffers.c.data(), buffers.bias.data(), buffers.residual.data()};
}

std::vector<KernelArgument> arguments_of(const KernelManifest& kernel,
                                         const OperandAddresses& addresses, uint32_t columns,
                                         uint64_t ldb, uint64_t ldc) {
  std::vector<KernelArgument> arguments;
  for (const KernelParameter& parameter : kernel.parameters) {
    KernelArgument argument = {};
    switch (parameter.role) {
    case ParameterRole::b:
      argument.pointer = addresses.b;
      break;
    case ParameterRole::c:
      argument.pointer = addresses.c;
      break;
    case ParameterRole::bias:
      argument.pointer = addresses.bias;
      break;
    case ParameterRole::residual:
      argument.pointer = addresses.residual;
      break;
    case ParameterRole::columns:
      argument.integer = columns;
      break;
    case ParameterRole::ldb:
      argument.integer = static_cast<int64_t>(ldb);
      break;
    case ParameterRole::ldc:
      argument.integer = static_cast<int64_t>(ldc);
      break;
    }
    arguments.push_back(argument);
  }
  return arguments;
}

void run_on_host(const HostProgram& program, const std::vector<KernelManifest>& kernels,
                 const SpmmBuffers& buffers, uint32_t columns, TaskPool& pool) {
  for (const KernelManifest& kernel : kernels) {
    const std::vector<KernelArgument> arguments =
        arguments_of(kernel, addresses_of(buffers), columns, buffers.ldb, buffers.ldc);
    const auto grid_x = static_cast<uint32_t>(kernel.grid_x(columns));
    if (grid_x != 0 && kernel.grid_rows != 0)
      program.run(kernel.entry, {grid_x, kernel.grid_rows, 1}, arguments, pool);
  }
}

} // namespace sparsertc
