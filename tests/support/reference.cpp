#include "tests/support/reference.h"

#include <fmt/format.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace sparsertc::test {
namespace {

constexpr size_t kGuard = 256;

void put(uint8_t* to, double value, DataType type) {
  const uint64_t bits = ptx::round_to_format(value, format_of(type), ptx::Rounding::nearest);
  std::memcpy(to, &bits, element_bytes(type));
}

/// Where the elements of a matrix lie. Of images the columns are pixels; row-major keeps a channel
/// of an image together (NCHW), column-major the channels of a pixel (NHWC).
struct Placement {
  bool row_major;
  uint64_t leading;
  uint64_t pixels; ///< of an image; of a plain matrix 0
  uint64_t at(uint64_t row, uint64_t column) const {
    if (!row_major)
      return column * leading + row;
    if (pixels == 0)
      return row * leading + column;
    return column / pixels * leading + row * pixels + column % pixels;
  }
};

Placement placement_of_b(const SpmmCase& test) {
  const auto& convolution = test.problem.convolution;
  return {test.problem.layout == Layout::row_major, test.ldb,
          convolution ? uint64_t{convolution->height} * convolution->width : 0};
}
Placement placement_of_c(const SpmmCase& test) {
  const auto& convolution = test.problem.convolution;
  return {test.problem.layout == Layout::row_major, test.ldc,
          convolution ? uint64_t{convolution->out_height()} * convolution->out_width() : 0};
}

/// The last line ends with its last element: nothing behind it may be touched.
size_t matrix_bytes(const SpmmCase& test, uint64_t rows, uint64_t columns,
                    const Placement& placement) {
  return rows == 0 || columns == 0
             ? 0
             : (placement.at(rows - 1, columns - 1) + 1) * element_bytes(test.problem.type);
}

GuardedBuffer lay_out(const SpmmCase& test, const std::vector<double>& values, uint64_t rows,
                      uint64_t columns, const Placement& placement) {
  GuardedBuffer buffer(matrix_bytes(test, rows, columns, placement), test.edge);
  const size_t size = element_bytes(test.problem.type);
  for (uint64_t row = 0; row < rows; ++row)
    for (uint64_t column = 0; column < columns; ++column)
      put(buffer.data() + placement.at(row, column) * size, values[row * columns + column],
          test.problem.type);
  return buffer;
}

/// Calls add(weight, b) for every product that element (row, column) of C is the sum of.
template <class Add>
void for_each_product(const SpmmCase& test, uint32_t row, uint32_t column, Add add) {
  const Pattern& pattern = test.weights.pattern;
  const uint64_t begin = pattern.row_offset[row], end = pattern.row_offset[row + 1];
  if (!test.problem.convolution) {
    for (uint64_t entry = begin; entry < end; ++entry)
      add(test.weights.values[entry],
          test.b[size_t{pattern.column_index[entry]} * test.columns + column]);
    return;
  }
  const Convolution& c = *test.problem.convolution;
  const uint32_t height = c.filter_height, width = c.filter_width;
  const uint32_t group_channels = pattern.columns / (height * width);
  const uint32_t group = row / (pattern.rows / c.groups);
  const uint32_t pixels = c.out_height() * c.out_width();
  const uint32_t image = column / pixels, pixel = column % pixels;
  const uint32_t oh = pixel / c.out_width(), ow = pixel % c.out_width();
  for (uint64_t entry = begin; entry < end; ++entry) {
    const uint32_t at = pattern.column_index[entry];
    const bool crs = c.taps == TapOrder::crs;
    const uint32_t channel = crs ? at / (height * width) : at % group_channels;
    const uint32_t r = crs ? at / width % height : at / group_channels / width;
    const uint32_t s = crs ? at % width : at / group_channels % width;
    const int64_t y = int64_t{oh} * c.stride_h + int64_t{r} * c.dilation_h - c.pad_top;
    const int64_t x = int64_t{ow} * c.stride_w + int64_t{s} * c.dilation_w - c.pad_left;
    if (y < 0 || y >= c.height || x < 0 || x >= c.width)
      continue;
    const uint64_t b_row = group * group_channels + channel;
    const uint64_t b_column = (uint64_t{image} * c.height + static_cast<uint64_t>(y)) * c.width +
                              static_cast<uint64_t>(x);
    add(test.weights.values[entry], test.b[b_row * test.b_columns() + b_column]);
  }
}

struct TypeFacts {
  double unit_roundoff;
  double half_least; ///< half the least subnormal: the error of an underflow
  double largest;
};
TypeFacts facts_of(ptx::FloatFormat format) {
  return {std::ldexp(1.0, -format.precision),
          std::ldexp(1.0, std::max(format.minimum - format.precision, -1074)),
          std::ldexp(2.0 - std::ldexp(1.0, 1 - format.precision), format.maximum)};
}

long double activate(long double x, Activation activation) {
  if (activation != Activation::none && std::isinf(x) && x < 0)
    return -0.0L; // the limit
  switch (activation) {
  case Activation::none:
    return x;
  case Activation::relu:
    return x < 0 ? 0 : x;
  case Activation::gelu:
    return 0.5L * x * erfcl(-x / sqrtl(2));
  case Activation::silu:
    return x / (1 + expl(-x));
  }
  return x;
}

/// The greatest slope of the activation.
double slope(Activation activation) {
  return activation == Activation::gelu ? 1.13 : activation == Activation::silu ? 1.1 : 1.0;
}

} // namespace

ptx::FloatFormat format_of(DataType type) {
  switch (type) {
  case DataType::f16:
    return ptx::kF16;
  case DataType::bf16:
    return ptx::kBf16;
  case DataType::f32:
    return ptx::kF32;
  case DataType::f64:
    return ptx::kF64;
  }
  return ptx::kF64;
}

double rounded(double value, DataType type) {
  return ptx::decode(ptx::round_to_format(value, format_of(type), ptx::Rounding::nearest),
                     format_of(type));
}

Matrix rounded(Matrix matrix, DataType type) {
  const double largest = facts_of(format_of(type)).largest;
  for (double& value : matrix.values)
    value = std::clamp(rounded(value, type), -largest, largest);
  return matrix;
}

GuardedBuffer::GuardedBuffer(size_t bytes, Edge edge) : bytes_(bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  zone_bytes_ = (bytes + 2 * kGuard + page - 1) / page * page;
  void* const pages =
      mmap(nullptr, zone_bytes_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    throw std::bad_alloc();
  zone_ = static_cast<uint8_t*>(pages) + page;
  if (mprotect(zone_, zone_bytes_, PROT_READ | PROT_WRITE) != 0)
    throw std::bad_alloc();
  std::memset(zone_, 0xff, zone_bytes_);
  begin_ = edge == Edge::begin ? 0 : edge == Edge::end ? zone_bytes_ - bytes : kGuard;
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept
    : zone_(std::exchange(other.zone_, nullptr)), zone_bytes_(other.zone_bytes_),
      begin_(other.begin_), bytes_(other.bytes_) {}

GuardedBuffer::~GuardedBuffer() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (zone_ != nullptr)
    munmap(zone_ - page, zone_bytes_ + 2 * page);
}

bool GuardedBuffer::guards_intact() const {
  const auto poisoned = [](uint8_t byte) { return byte == 0xff; };
  return std::all_of(zone_, zone_ + begin_, poisoned) &&
         std::all_of(zone_ + begin_ + bytes_, zone_ + zone_bytes_, poisoned);
}

uint32_t SpmmCase::n() const {
  return problem.convolution
             ? columns / (problem.convolution->out_height() * problem.convolution->out_width())
             : columns;
}
uint32_t SpmmCase::b_rows() const {
  const auto& convolution = problem.convolution;
  return convolution ? inner() / (convolution->filter_height * convolution->filter_width) *
                           convolution->groups
                     : inner();
}
uint32_t SpmmCase::b_columns() const {
  return problem.convolution ? n() * problem.convolution->height * problem.convolution->width
                             : columns;
}
size_t SpmmCase::b_bytes() const {
  return matrix_bytes(*this, b_rows(), b_columns(), placement_of_b(*this));
}
size_t SpmmCase::c_bytes() const {
  return matrix_bytes(*this, rows(), columns, placement_of_c(*this));
}

GuardedBuffer lay_out_b(const SpmmCase& test) {
  return lay_out(test, test.b, test.b_rows(), test.b_columns(), placement_of_b(test));
}
GuardedBuffer lay_out_residual(const SpmmCase& test) {
  return test.residual.empty()
             ? GuardedBuffer(0)
             : lay_out(test, test.residual, test.rows(), test.columns, placement_of_c(test));
}
GuardedBuffer lay_out_bias(const SpmmCase& test) {
  const size_t size = element_bytes(test.problem.type);
  GuardedBuffer buffer(test.bias.size() * size, test.edge);
  for (size_t i = 0; i < test.bias.size(); ++i)
    put(buffer.data() + i * size, test.bias[i], test.problem.type);
  return buffer;
}

std::vector<uint64_t> read_c(const SpmmCase& test, const GuardedBuffer& c) {
  const size_t size = element_bytes(test.problem.type);
  const Placement placement = placement_of_c(test);
  std::vector<uint64_t> bits;
  bits.reserve(size_t{test.rows()} * test.columns);
  for (uint64_t row = 0; row < test.rows(); ++row)
    for (uint64_t column = 0; column < test.columns; ++column) {
      uint64_t element = 0;
      std::memcpy(&element, c.data() + placement.at(row, column) * size, size);
      bits.push_back(element);
    }
  return bits;
}

bool gaps_intact(const SpmmCase& test, const GuardedBuffer& c) {
  const size_t size = element_bytes(test.problem.type);
  const Placement placement = placement_of_c(test);
  std::vector<bool> is_element(c.bytes() / size, false);
  for (uint64_t row = 0; row < test.rows(); ++row)
    for (uint64_t column = 0; column < test.columns; ++column)
      is_element[placement.at(row, column)] = true;
  for (size_t byte = 0; byte < c.bytes(); ++byte)
    if (!is_element[byte / size] && c.data()[byte] != 0xff)
      return false;
  return true;
}

std::string compare_with_reference(const SpmmCase& test, const std::vector<uint64_t>& c,
                                   uint32_t parts, bool on_tensor_cores) {
  const SpmmProblem& problem = test.problem;
  const ptx::FloatFormat format = format_of(problem.type);
  const TypeFacts output = facts_of(format);
  const TypeFacts sum_type = facts_of(problem.type == DataType::f64 ? ptx::kF64 : ptx::kF32);
  const Pattern& pattern = test.weights.pattern;
  const uint32_t h = problem.half_terms;
  std::string worst;
  double worst_ratio = 1;
  for (uint32_t row = 0; row < test.rows(); ++row) {
    const auto entries = static_cast<double>(pattern.row_length(row));
    // f32 on tensor cores: its upper bits, or three parts.
    const bool is_split =
        on_tensor_cores && problem.type == DataType::f32 && problem.precision == Precision::full;
    const bool is_cut = on_tensor_cores && !is_split;
    const double terms = (is_cut     ? 3 * entries
                          : is_split ? entries + 7 * std::min(entries, 16.0) + 2
                                     : entries) +
                         parts + 2 + (problem.epilogue.bias ? 1 : 0) +
                         (problem.epilogue.residual ? 1 : 0);
    // Tensor cores cut where others round.
    const double product = terms * (is_cut ? 0x1p-23 : sum_type.unit_roundoff);
    const double operands = is_split                                  ? 0x1p-22 + 0x1p-31
                            : is_cut && problem.type == DataType::f32 ? 0x1p-11 + 0x1p-10 + 0x1p-21
                                                                      : 0;
    const double half_product = h * output.unit_roundoff;
    const double growth = product / (1 - product) + half_product / (1 - half_product) + operands;
    // Products and sums in the half type may underflow and overflow there.
    double largest_weight = 0;
    for (uint64_t i = pattern.row_offset[row]; i < pattern.row_offset[row + 1]; ++i)
      largest_weight = std::max(largest_weight, std::fabs(test.weights.values[i]));
    const double underflow = terms * (is_split ? std::max(0x1p-121, largest_weight * 0x1p-133)
                                      : is_cut ? 0x1p-126
                                      : h      ? output.half_least
                                               : sum_type.half_least);
    const double largest = h ? output.largest : sum_type.largest;
    for (uint32_t column = 0; column < test.columns; ++column) {
      long double sum = 0;
      long double magnitude = 0;
      bool finite = true;
      const auto add = [&](long double term) {
        sum += term;
        magnitude += fabsl(term);
        finite = finite && std::isfinite(term);
      };
      for_each_product(test, row, column,
                       [&](double weight, double b) { add(static_cast<long double>(weight) * b); });
      if (problem.epilogue.bias)
        add(test.bias[row]);
      if (problem.epilogue.residual)
        add(test.residual[size_t{row} * test.columns + column]);
      if (finite && magnitude * (1 + growth) >= largest)
        continue; // partial sums may overflow
      const long double expected = activate(sum, problem.epilogue.activation);
      const double found = ptx::decode(c[size_t{row} * test.columns + column], format);
      double ratio = 0;
      double bound = 0;
      if (!std::isfinite(expected) || !std::isfinite(found)) {
        const bool same =
            std::isnan(expected) ? std::isnan(found) : static_cast<double>(expected) == found;
        const bool rounds_away = std::isinf(found) && fabsl(expected) > output.largest * 0.999 &&
                                 std::signbit(found) == std::signbit(expected);
        ratio = same || rounds_away ? 0 : std::numeric_limits<double>::infinity();
      } else {
        bound = slope(problem.epilogue.activation) *
                (growth * static_cast<double>(magnitude) + underflow);
        if (problem.epilogue.activation == Activation::gelu ||
            problem.epilogue.activation == Activation::silu)
          bound += 16 * sum_type.unit_roundoff * static_cast<double>(fabsl(sum)) +
                   4 * sum_type.half_least;
        bound += output.unit_roundoff * (static_cast<double>(fabsl(expected)) + bound) +
                 output.half_least;
        ratio = static_cast<double>(fabsl(expected - found)) / bound;
      }
      if (!(ratio <= worst_ratio)) {
        worst_ratio = ratio;
        worst = fmt::format("element ({}, {}): found {}, expected {}, bound {}", row, column, found,
                            static_cast<double>(expected), bound);
      }
    }
  }
  return worst;
}

std::string first_difference(const SpmmCase& test, const std::vector<uint64_t>& a,
                             const std::vector<uint64_t>& b) {
  const ptx::FloatFormat format = format_of(test.problem.type);
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = ptx::decode(a[i], format), y = ptx::decode(b[i], format);
    if (a[i] != b[i] && !(std::isnan(x) && std::isnan(y)))
      return fmt::format("element ({}, {}): {:#x} ({}) and {:#x} ({})", i / test.columns,
                         i % test.columns, a[i], x, b[i], y);
  }
  return {};
}

} // namespace sparsertc::test
