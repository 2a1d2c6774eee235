#include "tests/support/lu_batch.h"

#include "compiler/emit/ptx.h"
#include "compiler/inspect/lu_rounds.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace sparsertc::test {
namespace {

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

std::span<const uint8_t> bytes_of(const std::vector<double>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(double)};
}
std::span<uint8_t> bytes_of(std::vector<double>& values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(double)};
}

/// rows[s][i] as [i][s].
std::vector<double> interleaved(const std::vector<std::vector<double>>& rows, uint64_t count) {
  std::vector<double> result(count * rows.size());
  for (size_t s = 0; s < rows.size(); ++s)
    for (uint64_t i = 0; i < count; ++i)
      result[i * rows.size() + s] = rows[s][i];
  return result;
}

} // namespace

BatchReference solve_in_order(const LuTables& t, const std::vector<double>& values,
                              const std::vector<double>& b, double threshold) {
  BatchReference result;
  std::vector<double>& v = result.factors;
  v.assign(t.nnz(), 0.0);
  std::vector<double> column(t.size), largest(t.size, 0.0);
  for (uint32_t j = 0; j < t.size; ++j)
    for (uint64_t p = t.input_offset[j]; p < t.input_offset[j + 1]; ++p) {
      const double scale = t.input_scale.empty() ? 1.0 : t.input_scale[p];
      v[t.input_slot[p]] = values[t.input_source[p]] * scale;
      largest[j] = std::max(largest[j], std::abs(v[t.input_slot[p]]));
    }
  for (uint32_t j = 0; j < t.size; ++j) {
    for (uint64_t slot = t.column_offset[j]; slot < t.column_offset[j + 1]; ++slot)
      column[t.row_index[slot]] = v[slot];
    for (uint64_t slot = t.column_offset[j]; slot < t.diagonal[j]; ++slot) {
      const uint32_t k = t.row_index[slot];
      const double minus = -(column[k] * v[t.diagonal[k]]);
      for (uint64_t q = t.diagonal[k] + 1; q < t.column_offset[k + 1]; ++q)
        column[t.row_index[q]] = std::fma(v[q], minus, column[t.row_index[q]]);
    }
    const double least = threshold * largest[j];
    if (std::abs(column[j]) < least) {
      column[j] = std::signbit(column[j]) ? -least : least;
      ++result.replaced;
    }
    column[j] = 1 / column[j];
    for (uint64_t slot = t.column_offset[j]; slot < t.column_offset[j + 1]; ++slot)
      v[slot] = column[t.row_index[slot]];
  }
  std::vector<double> z(t.size);
  result.x.assign(t.size, 0.0);
  for (uint32_t i = 0; i < t.size; ++i) {
    const uint32_t row = t.row_order[i];
    double sum = b[row] * (t.row_scale.empty() ? 1.0 : t.row_scale[row]);
    for (uint64_t p = t.row_offset[i]; p < t.row_diagonal[i]; ++p)
      sum = std::fma(-v[t.row_slot[p]], z[t.column_index[p]], sum);
    z[i] = sum * v[t.diagonal[i]];
  }
  for (uint32_t i = t.size; i-- > 0;) {
    double sum = 0;
    const uint64_t end = t.row_offset[i + 1], first = t.row_diagonal[i] + 1;
    for (uint64_t p = end; p-- > first;)
      sum = p + 1 == end ? v[t.row_slot[p]] * z[t.column_index[p]]
                         : std::fma(v[t.row_slot[p]], z[t.column_index[p]], sum);
    if (end > first)
      z[i] = std::fma(-sum, v[t.diagonal[i]], z[i]);
    const uint32_t unknown = t.column_order[i];
    result.x[unknown] = z[i] * (t.column_scale.empty() ? 1.0 : t.column_scale[unknown]);
  }
  return result;
}

LuBatchOnDevice::LuBatchOnDevice(const cuda::Context& context, const LuTables& tables,
                                 uint64_t instances, const LuBatchOptions& options)
    : tables_(tables), instances_(instances), stream_(context),
      values_(context, tables.input_nnz * instances * sizeof(double)),
      b_(context, tables.size * instances * sizeof(double)),
      x_(context, tables.size * instances * sizeof(double)) {
  const std::string ptx = emit_ptx(make_lu_batch(tables, options), find_target("sm_80"));
  lu::GpuBatchCode code;
  code.image = {reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()};
  code.factor = kLuBatchFactorKernel;
  code.solve = kLuBatchSolveKernel;
  code.lanes = kLuBatchLanes;
  code.numbers = lu_batch_numbers(tables);
  code.not_finite_bit = kLuBatchNotFinite;
  batch_ = std::make_unique<lu::GpuBatch>(context, code, tables, instances);
  batch_->factors().fill(0xFF, stream_);
  x_.fill(0xFF, stream_);
}

std::vector<std::vector<double>>
LuBatchOnDevice::solve(const std::vector<std::vector<double>>& values,
                       const std::vector<std::vector<double>>& b,
                       const lu::FactorOptions& options) {
  const std::vector<double> all_values = interleaved(values, tables_.input_nnz),
                            all_b = interleaved(b, tables_.size);
  values_.upload(bytes_of(all_values), stream_);
  b_.upload(bytes_of(all_b), stream_);
  batch_->factor(values_.address(), stream_, options);
  batch_->solve(b_.address(), x_.address(), stream_);
  std::vector<double> all(all_b.size());
  x_.download(bytes_of(all), stream_);
  std::vector<std::vector<double>> x(instances_, std::vector<double>(tables_.size));
  for (uint64_t s = 0; s < instances_; ++s)
    for (uint32_t i = 0; i < tables_.size; ++i)
      x[s][i] = all[i * instances_ + s];
  return x;
}

std::vector<double> LuBatchOnDevice::factors(uint64_t instance) const {
  const uint64_t numbers = lu_batch_numbers(tables_);
  std::vector<double> all(batch_->factors().bytes() / sizeof(double));
  batch_->factors().download(bytes_of(all), stream_);
  std::vector<double> v(tables_.nnz());
  for (uint64_t s = 0; s < v.size(); ++s)
    v[s] =
        all[((instance / kLuBatchLanes) * numbers + s) * kLuBatchLanes + instance % kLuBatchLanes];
  return v;
}

void check_batch(const cuda::Context& context, const LuTables& tables,
                 const std::vector<std::vector<double>>& values, Random& random,
                 const LuBatchOptions& options, double threshold) {
  std::vector<std::vector<double>> b(values.size(), std::vector<double>(tables.size));
  for (std::vector<double>& vector : b)
    for (double& number : vector)
      number = random.symmetric();
  LuBatchOnDevice device(context, tables, values.size(), options);
  lu::FactorOptions factor;
  factor.pivot_threshold = threshold;
  const double used =
      threshold > 0 ? threshold : std::sqrt(std::numeric_limits<double>::epsilon() / 2);
  const std::vector<std::vector<double>> x = device.solve(values, b, factor);
  const std::vector<lu::BatchStatus> status = device.status();
  for (size_t s = 0; s < values.size(); ++s) {
    INFO("instance " << s);
    const BatchReference expected = solve_in_order(tables, values[s], b[s], used);
    const bool finite = std::all_of(expected.factors.begin(), expected.factors.end(),
                                    [](double number) { return std::isfinite(number); });
    REQUIRE(status[s].finite == finite);
    if (!finite)
      continue; // which NaN it is may differ
    CHECK(status[s].replaced == expected.replaced);
    CHECK(same_bits(device.factors(s), expected.factors));
    CHECK(same_bits(x[s], expected.x));
  }
}

void check_rounds(const cuda::Context& context, std::span<const uint8_t> image,
                  const lu::GpuRoundsShape& shape, const LuTables& tables,
                  const std::vector<std::vector<double>>& values, Random& random,
                  double threshold) {
  const uint64_t instances = values.size();
  std::vector<std::vector<double>> b(instances, std::vector<double>(tables.size));
  for (std::vector<double>& vector : b)
    for (double& number : vector)
      number = random.symmetric();
  const std::optional<LuRounds> rounds = make_lu_rounds(tables, shape.workers());
  REQUIRE(rounds);
  const lu::GpuRounds solver(context, image, *rounds, tables, shape, instances);
  const cuda::Stream stream(context);
  const std::vector<double> all_values = interleaved(values, tables.input_nnz),
                            all_b = interleaved(b, tables.size);
  const cuda::DeviceBuffer values_there(context, all_values.size() * sizeof(double)),
      b_there(context, all_b.size() * sizeof(double)), x_there(context, b_there.bytes());
  values_there.upload(bytes_of(all_values), stream);
  b_there.upload(bytes_of(all_b), stream);
  x_there.fill(0xFF, stream);
  lu::FactorOptions options;
  options.pivot_threshold = threshold;
  solver.solve(values_there.address(), b_there.address(), x_there.address(), stream, options);
  std::vector<double> x(all_b.size());
  x_there.download(bytes_of(x), stream);
  const std::vector<lu::BatchStatus> status = solver.status(stream);
  const double used =
      threshold > 0 ? threshold : std::sqrt(std::numeric_limits<double>::epsilon() / 2);
  for (uint64_t s = 0; s < instances; ++s) {
    INFO("instance " << s);
    const BatchReference expected = solve_in_order(tables, values[s], b[s], used);
    const bool finite = std::all_of(expected.factors.begin(), expected.factors.end(),
                                    [](double number) { return std::isfinite(number); });
    REQUIRE(status[s].finite == finite);
    if (!finite)
      continue; // which NaN it is may differ
    CHECK(status[s].replaced == expected.replaced);
    std::vector<double> own(tables.size);
    for (uint32_t i = 0; i < tables.size; ++i)
      own[i] = x[i * instances + s];
    CHECK(same_bits(own, expected.x));
  }
}

} // namespace sparsertc::test
