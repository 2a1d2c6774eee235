#include "runtime/tune/plan_comparison.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace sparsertc::tune {
namespace {

/// NaN in f32, f16, bf16 and f64: what is not written does not pass.
constexpr uint8_t kNanByte = 0xff;
/// Runs with unit vectors, and elements of C that are kept of them.
constexpr uint64_t kMostUnitRuns = 4096;
constexpr uint64_t kMostUnitElements = uint64_t{1} << 25;
constexpr double kMostParts = 32;
constexpr double kMostLipschitz = 1.13;
constexpr double kActivationUnits = 8;

enum class Element : uint8_t { f32, f16, bf16, f64 };

Element element_of(const std::string& dtype) {
  return dtype == "f32"    ? Element::f32
         : dtype == "f16"  ? Element::f16
         : dtype == "bf16" ? Element::bf16
                           : Element::f64;
}

struct Precision {
  double unit_roundoff, eta, largest;
};
Precision precision_of(Element element) {
  switch (element) {
  case Element::f32:
    return {0x1p-24, 0x1p-150, 0x1.fffffep127};
  case Element::f16:
    return {0x1p-11, 0x1p-25, 65504.0};
  case Element::bf16:
    return {0x1p-8, 0x1p-134, 0x1.fep127};
  case Element::f64:
    break;
  }
  return {0x1p-53, 0x1p-1074, std::numeric_limits<double>::max()};
}

/// Writes units / 128, |units| <= 128: exact in every type.
void encode(Element element, int units, uint8_t* to) {
  const double value = units / 128.0;
  const auto narrow = static_cast<float>(value);
  const auto bits = std::bit_cast<uint32_t>(narrow);
  switch (element) {
  case Element::f32:
    std::memcpy(to, &bits, sizeof bits);
    return;
  case Element::bf16: {
    const auto high = static_cast<uint16_t>(bits >> 16);
    std::memcpy(to, &high, sizeof high);
    return;
  }
  case Element::f16: {
    // A normal number of f16: its exponent has another bias, its significand 10 bits.
    const uint32_t magnitude =
        units == 0 ? 0 : ((bits >> 23 & 0xff) - 127 + 15) << 10 | (bits >> 13 & 0x3ff);
    const auto half = static_cast<uint16_t>((bits >> 16 & 0x8000) | magnitude);
    std::memcpy(to, &half, sizeof half);
    return;
  }
  case Element::f64:
    std::memcpy(to, &value, sizeof value);
    return;
  }
}

double decode(Element element, const uint8_t* from) {
  switch (element) {
  case Element::f32: {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  case Element::bf16: {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return std::bit_cast<float>(uint32_t{half} << 16);
  }
  case Element::f16: {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    const int exponent = half >> 10 & 0x1f;
    const int fraction = half & 0x3ff;
    const double magnitude = exponent == 31  ? (fraction ? std::numeric_limits<double>::quiet_NaN()
                                                         : std::numeric_limits<double>::infinity())
                             : exponent == 0 ? std::ldexp(fraction, -24)
                                             : std::ldexp(fraction + 1024, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
  }
  case Element::f64:
    break;
  }
  double value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
class Generator {
public:
  explicit Generator(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  /// -128 to 127.
  int units() { return static_cast<int>(next() >> 56) - 128; }

private:
  uint64_t state_;
};

/// Dense products by a library as well as by kernels of our own.
bool is_on_tensor_cores(const PlanManifest& manifest) {
  return manifest.strategy == "panels" || manifest.strategy == "bitmap" ||
         (manifest.strategy == "dense" &&
          (manifest.dtype == "f16" || manifest.dtype == "bf16" || manifest.precision == "tf32"));
}

/// What a product on tensor cores may be off by, relative to its magnitude, for operands of f32
/// that are cut, rounded or split there (compiler/inspect/README.md, Panels and Dense), and what a
/// sum of one product may.
struct OperandError {
  double of_product = 0, alone = 0;
};
OperandError operand_error(const PlanManifest& manifest) {
  if (manifest.dtype != "f32" || !is_on_tensor_cores(manifest))
    return {};
  constexpr double kOneSum = 0x1p-20; // its additions, too
  const double error = manifest.precision != "tf32"   ? 0x1p-22 + 0x1p-31
                       : manifest.strategy == "dense" ? 0x1p-9 + 0x1p-20
                                                      : 0x1p-10 + 0x1p-11 + 0x1p-21;
  return {error, error + kOneSum};
}

double growth(double terms, double unit_roundoff) {
  const double product = terms * unit_roundoff;
  return product < 1 ? product / (1 - product) : std::numeric_limits<double>::infinity();
}

/// Where the elements of B and C lie, and which unit vectors meet every weight alone.
///
/// Of a product, unit k is a column of B with a 1 in row k. Of a convolution a unit is an image: in
/// one channel, ones as far from each other as a window is high and wide, so that no output pixel
/// sees two; moved through all places that a window has, they meet each tap of each output pixel.
class Shape {
public:
  explicit Shape(const PlanManifest& manifest, uint64_t n)
      : images_(manifest.images), column_major_(manifest.column_major), n_(n),
        in_pixels_(images_ ? uint64_t{images_->height} * images_->width : 1),
        out_pixels_(images_ ? uint64_t{images_->out_height} * images_->out_width : 1),
        b_rows_(images_ ? images_->channels : manifest.k), c_rows_(manifest.m) {
    const uint64_t tight_b = tight(b_rows_, in_pixels_), tight_c = tight(c_rows_, out_pixels_);
    ldb_ = manifest.ldb.value_or(tight_b);
    ldc_ = manifest.ldc.value_or(tight_c);
  }

  uint64_t n() const { return n_; }
  uint64_t b_rows() const { return b_rows_; }
  uint64_t b_columns() const { return n_ * in_pixels_; }
  uint64_t c_rows() const { return c_rows_; }
  uint64_t c_columns() const { return n_ * out_pixels_; }
  uint64_t out_pixels() const { return out_pixels_; }
  uint64_t b_elements() const { return lines(b_rows_, in_pixels_) * ldb_; }
  uint64_t c_elements() const { return c_lines() * ldc_; }
  uint64_t b_place(uint64_t row, uint64_t column) const {
    return place(row, column, in_pixels_, ldb_);
  }
  uint64_t c_place(uint64_t row, uint64_t column) const {
    return place(row, column, out_pixels_, ldc_);
  }
  /// Runs of elements of C that follow one another: how many, how long, and from one to the next.
  uint64_t c_lines() const { return lines(c_rows_, out_pixels_); }
  uint64_t c_line_length() const { return tight(c_rows_, out_pixels_); }
  uint64_t ldc() const { return ldc_; }

  uint64_t units() const {
    return images_ ? b_rows_ * images_->window_height * images_->window_width : b_rows_;
  }
  /// The unit to which an element of B belongs.
  uint64_t unit_of(uint64_t row, uint64_t column) const {
    if (!images_)
      return row;
    const uint64_t pixel = column % in_pixels_;
    const uint64_t y = pixel / images_->width % images_->window_height;
    const uint64_t x = pixel % images_->width % images_->window_width;
    return (row * images_->window_height + y) * images_->window_width + x;
  }
  /// Calls `at` for the elements of the column (image) `index` that are 1 in a unit.
  template <typename At>
  void for_each_one(uint64_t unit, uint64_t index, At&& at) const {
    if (!images_)
      return at(b_place(unit, index));
    const uint64_t row = unit / (uint64_t{images_->window_height} * images_->window_width);
    const uint64_t first_x = unit % images_->window_width;
    const uint64_t first_y = unit / images_->window_width % images_->window_height;
    for (uint64_t y = first_y; y < images_->height; y += images_->window_height)
      for (uint64_t x = first_x; x < images_->width; x += images_->window_width)
        at(b_place(row, index * in_pixels_ + y * images_->width + x));
  }
  std::string describe(uint64_t unit) const {
    return images_ ? fmt::format("in places {} of the images", unit)
                   : fmt::format("in row {} of B", unit);
  }

private:
  uint64_t tight(uint64_t rows, uint64_t pixels) const {
    return column_major_ ? rows : images_ ? rows * pixels : n_;
  }
  uint64_t lines(uint64_t rows, uint64_t pixels) const {
    return column_major_ ? n_ * pixels : images_ ? n_ : rows;
  }
  uint64_t place(uint64_t row, uint64_t column, uint64_t pixels, uint64_t leading) const {
    if (column_major_)
      return column * leading + row;
    return images_ ? column / pixels * leading + row * pixels + column % pixels
                   : row * leading + column;
  }

  std::optional<PlanImages> images_;
  bool column_major_;
  uint64_t n_, in_pixels_, out_pixels_, b_rows_, c_rows_;
  uint64_t ldb_ = 0, ldc_ = 0;
};

} // namespace

class PlanComparison::Operands {
public:
  Operands(const Plan& plan, const cuda::Stream& stream, uint32_t columns, uint64_t seed)
      : manifest_(plan.manifest()), gpu_(plan.context().require_gpu("comparing plans")),
        stream_(stream), shape_(manifest_, columns), element_(element_of(manifest_.dtype)),
        bytes_(manifest_.element_bytes), host_b_(shape_.b_elements() * bytes_),
        host_c_(shape_.c_elements() * bytes_), unit_(*this), random_(*this),
        c_(gpu_, host_c_.size()), workspace_(gpu_, plan.workspace_bytes()) {
    plan.initialize_workspace(workspace_.address(), stream_.handle());
    unit_.bias.fill(0, stream_);
    unit_.residual.fill(0, stream_);
    plan_unit_runs();
    for (const UnitRun& run : runs_) {
      set_unit_vectors(run);
      execute(plan, unit_);
      unit_results_.push_back(host_c_);
    }
    measure_rows();
    set_random(seed);
    execute(plan, random_);
    random_result_ = host_c_;
  }

  std::string compare(const Plan& other) {
    on_tensor_cores_ = is_on_tensor_cores(manifest_) || is_on_tensor_cores(other.manifest());
    const OperandError ours = operand_error(manifest_), theirs = operand_error(other.manifest());
    operand_error_ = {std::max(ours.of_product, theirs.of_product), ours.alone + theirs.alone};
    std::string wrong;
    for (size_t i = 0; wrong.empty() && i < runs_.size(); ++i) {
      set_unit_vectors(runs_[i]);
      execute(other, unit_);
      wrong = compare_units(runs_[i], unit_results_[i]);
    }
    if (wrong.empty()) {
      execute(other, random_);
      wrong = compare_within_bound();
    }
    return wrong;
  }

  void enqueue(const Plan& plan) const { enqueue(plan, random_); }

private:
  /// What an execution reads.
  struct Inputs {
    explicit Inputs(const Operands& layer)
        : b(layer.gpu_, layer.host_b_.size()),
          bias(layer.gpu_, layer.manifest_.bias ? layer.manifest_.m * layer.bytes_ : 0),
          residual(layer.gpu_, layer.manifest_.residual ? layer.host_c_.size() : 0) {}
    cuda::DeviceBuffer b, bias, residual;
  };
  void enqueue(const Plan& plan, const Inputs& inputs) const {
    plan.execute({inputs.b.address(), c_.address(), inputs.bias.address(),
                  inputs.residual.address(), static_cast<int64_t>(shape_.n()), 0, 0},
                 workspace_.address(), stream_.handle());
  }

  /// Column (image) j of B is unit first + j times `sign`, where there is such a unit.
  struct UnitRun {
    uint64_t first;
    int sign;
  };

  double c_at(const std::vector<uint8_t>& c, uint64_t row, uint64_t column) const {
    return decode(element_, c.data() + shape_.c_place(row, column) * bytes_);
  }

  /// As many as the limits allow, spread evenly.
  void plan_unit_runs() {
    const bool both_signs = manifest_.activation != "none";
    const uint64_t all = (shape_.units() + shape_.n() - 1) / shape_.n();
    const uint64_t elements = std::max<uint64_t>(1, shape_.c_rows() * shape_.c_columns());
    uint64_t runs = std::min(all, kMostUnitRuns);
    runs =
        std::min(runs, std::max<uint64_t>(1, kMostUnitElements / elements / (both_signs ? 2 : 1)));
    met_.assign(shape_.units(), false);
    for (uint64_t i = 0; i < runs; ++i) {
      const uint64_t first = i * all / runs * shape_.n();
      for (uint64_t unit = first; unit < std::min(shape_.units(), first + shape_.n()); ++unit)
        met_[unit] = true;
      runs_.push_back({first, 1});
      if (both_signs)
        runs_.push_back({first, -1});
    }
  }

  void set_unit_vectors(const UnitRun& run) {
    std::fill(host_b_.begin(), host_b_.end(), uint8_t{0});
    for (uint64_t j = 0; j < shape_.n() && run.first + j < shape_.units(); ++j)
      shape_.for_each_one(run.first + j, j, [&](uint64_t place) {
        encode(element_, 128 * run.sign, host_b_.data() + place * bytes_);
      });
    unit_.b.upload(host_b_, stream_);
  }

  void set_random(uint64_t seed) {
    Generator generator(seed);
    std::fill(host_b_.begin(), host_b_.end(), uint8_t{0});
    for (uint64_t k = 0; k < shape_.b_rows(); ++k)
      for (uint64_t j = 0; j < shape_.b_columns(); ++j)
        if (const int units = generator.units(); met_[shape_.unit_of(k, j)])
          encode(element_, units, host_b_.data() + shape_.b_place(k, j) * bytes_);
    std::vector<uint8_t> bias(random_.bias.bytes()), residual(random_.residual.bytes());
    for (uint64_t i = 0; i * bytes_ < bias.size(); ++i)
      encode(element_, generator.units(), bias.data() + i * bytes_);
    for (uint64_t i = 0; i < shape_.c_rows() && !residual.empty(); ++i)
      for (uint64_t j = 0; j < shape_.c_columns(); ++j)
        encode(element_, generator.units(), residual.data() + shape_.c_place(i, j) * bytes_);
    random_.b.upload(host_b_, stream_);
    random_.bias.upload(bias, stream_);
    random_.residual.upload(residual, stream_);
    stream_.synchronize("copying operands to the GPU");
  }

  /// The whole buffer of C comes back, with what lies beside it.
  void execute(const Plan& plan, const Inputs& inputs) {
    c_.fill(kNanByte, stream_);
    enqueue(plan, inputs);
    c_.download(host_c_, stream_);
  }

  /// S_i and the number of entries of each row, from the results with unit vectors; of a
  /// convolution the largest over the output pixels.
  void measure_rows() {
    magnitudes_.assign(shape_.c_rows(), 2); // bias and residual
    entries_.assign(shape_.c_rows(), 0);
    const bool bends = manifest_.activation != "none" && manifest_.activation != "relu";
    const Precision output = precision_of(element_);
    const size_t signs = manifest_.activation == "none" ? 1 : 2;
    const uint64_t pixels = shape_.out_pixels();
    std::vector<double> sums(pixels);
    std::vector<uint64_t> counts(pixels);
    for (uint64_t i = 0; i < shape_.c_rows(); ++i) {
      sums.assign(pixels, 0);
      counts.assign(pixels, 0);
      for (size_t r = 0; r < runs_.size(); r += signs)
        for (uint64_t j = 0; j < shape_.n() && runs_[r].first + j < shape_.units(); ++j)
          for (uint64_t p = 0; p < pixels; ++p) {
            const double one = c_at(unit_results_[r], i, j * pixels + p);
            double most = std::fabs(one);
            if (signs == 2)
              most = std::fmax(most, std::fabs(c_at(unit_results_[r + 1], i, j * pixels + p)));
            if (std::isnan(one))
              most = std::numeric_limits<double>::quiet_NaN();
            counts[p] += most != 0;
            sums[p] += bends ? 2 * (most * (1 + 4 * output.unit_roundoff) + output.eta) : most;
          }
      double most = 0;
      for (uint64_t p = 0; p < pixels; ++p) {
        entries_[i] = std::max(entries_[i], counts[p]);
        most = std::isnan(sums[p]) || sums[p] > most ? sums[p] : most;
        if (std::isnan(most))
          break;
      }
      magnitudes_[i] += most;
    }
  }

  /// How far results with one product may be apart: not at all but for operands of f32 on tensor
  /// cores. Where the activation bends, the weight is not known, only a bound of the row's.
  double allowed_alone(uint64_t row, double want) const {
    const bool bends = manifest_.activation != "none" && manifest_.activation != "relu";
    return operand_error_.alone * (bends ? kMostLipschitz * magnitudes_[row] : std::fabs(want));
  }

  std::string compare_units(const UnitRun& run, const std::vector<uint8_t>& expected) const {
    if (host_c_ == expected)
      return {};
    for (uint64_t i = 0; i < shape_.c_rows(); ++i)
      for (uint64_t j = 0; j < shape_.c_columns(); ++j) {
        const double want = c_at(expected, i, j), found = c_at(host_c_, i, j);
        if (want != found && !(std::isnan(want) && std::isnan(found)) &&
            !(std::fabs(want - found) <= allowed_alone(i, want)))
          return fmt::format("with {} {} alone, C({}, {}) is {:.9g} and should be {:.9g}", run.sign,
                             shape_.describe(run.first + j / shape_.out_pixels()), i, j, found,
                             want);
      }
    return beside(expected);
  }

  /// Zeros may differ in their sign, NaNs in their bits; gaps between lines may not.
  std::string beside(const std::vector<uint8_t>& expected) const {
    const uint64_t lines = shape_.c_lines();
    const uint64_t used = shape_.c_line_length() * bytes_, step = shape_.ldc() * bytes_;
    for (uint64_t line = 0; line < lines; ++line) {
      const uint64_t begin = line * step;
      if (!std::equal(host_c_.begin() + static_cast<ptrdiff_t>(begin + used),
                      host_c_.begin() + static_cast<ptrdiff_t>(begin + step),
                      expected.begin() + static_cast<ptrdiff_t>(begin + used)))
        return fmt::format("something is written behind line {} of C", line);
    }
    return {};
  }

  std::string compare_within_bound() const {
    for (uint64_t i = 0; i < shape_.c_rows(); ++i)
      for (uint64_t j = 0; j < shape_.c_columns(); ++j) {
        const double want = c_at(random_result_, i, j), found = c_at(host_c_, i, j);
        if (want == found)
          continue;
        const double allowed = allowed_difference(i, std::fmax(std::fabs(want), std::fabs(found)));
        const bool may_overflow = !(magnitudes_[i] < precision_of(element_).largest / 2);
        const bool same_kind = std::isnan(want) && std::isnan(found);
        if (!same_kind && !may_overflow && !(std::fabs(want - found) <= allowed))
          return fmt::format("C({}, {}) is {:.9g}, the untuned plan has {:.9g}, the difference may "
                             "be {:.3g}",
                             i, j, found, want, allowed);
      }
    return beside(random_result_);
  }

  double allowed_difference(uint64_t row, double magnitude_of_c) const {
    const Precision output = precision_of(element_);
    const Precision sum = precision_of(element_ == Element::f64 ? Element::f64 : Element::f32);
    const double terms = static_cast<double>(entries_[row]) + kMostParts + 4;
    const double all = magnitudes_[row];
    double bound = growth(terms, sum.unit_roundoff) * all + terms * sum.eta;
    if (on_tensor_cores_) // compiler/inspect/README.md, Panels
      bound = (growth(3 * terms, 0x1p-23) + operand_error_.of_product) * all +
              3 * terms * (manifest_.dtype == "f32" ? 0x1p-121 : 0x1p-126);
    if (manifest_.half_terms > 0)
      bound += growth(manifest_.half_terms, output.unit_roundoff) * all + terms * output.eta;
    if (manifest_.activation != "none")
      bound = kMostLipschitz * bound + kActivationUnits * sum.unit_roundoff * all + 2 * sum.eta;
    if (element_ == Element::f16 || element_ == Element::bf16)
      bound += output.unit_roundoff * (magnitude_of_c + bound) + output.eta;
    return 2 * bound;
  }

  const PlanManifest& manifest_;
  const cuda::Context& gpu_;
  const cuda::Stream& stream_;
  Shape shape_;
  Element element_;
  uint64_t bytes_;
  std::vector<uint8_t> host_b_, host_c_;
  Inputs unit_, random_;
  cuda::DeviceBuffer c_, workspace_;
  std::vector<UnitRun> runs_; ///< with an activation, both signs one after the other
  std::vector<bool> met_;     ///< units
  std::vector<std::vector<uint8_t>> unit_results_;
  std::vector<uint8_t> random_result_;
  std::vector<double> magnitudes_; ///< S_i
  bool on_tensor_cores_ = false;   ///< one of the plans
  OperandError operand_error_;     ///< the larger one's
  std::vector<uint64_t> entries_;  ///< of row i that were met and are not 0
};

PlanComparison::PlanComparison(const Plan& plan, const cuda::Stream& stream, uint32_t columns,
                               uint64_t seed)
    : operands_(std::make_unique<Operands>(plan, stream, columns, seed)) {}
PlanComparison::~PlanComparison() = default;

std::string PlanComparison::compare(const Plan& other) const {
  return operands_->compare(other);
}

void PlanComparison::enqueue(const Plan& plan) const {
  operands_->enqueue(plan);
}

} // namespace sparsertc::tune
