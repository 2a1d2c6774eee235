#include "tests/support/lu_session.h"

#include "runtime/lu/refine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace sparsertc::test {
namespace {

constexpr uint64_t kAlignment = 256;

sparsertc_lu_info query(const sparsertc_lu* lu) {
  sparsertc_lu_info info;
  info.struct_size = sizeof info;
  require_ok(sparsertc_lu_query(lu, &info));
  return info;
}

uint64_t workspace_bytes(const sparsertc_lu* lu, int64_t right_sides) {
  uint64_t bytes = 0;
  require_ok(sparsertc_lu_workspace_size(lu, right_sides, &bytes));
  return bytes;
}

template <class V>
double residual_of(const Matrix& a, const std::vector<double>& b, const std::vector<double>& x,
                   bool transposed) {
  const std::vector<double> values = parts_of(a);
  const auto numbers = [](const std::vector<double>& parts) {
    return std::span<const V>(reinterpret_cast<const V*>(parts.data()),
                              parts.size() * sizeof(double) / sizeof(V));
  };
  const uint64_t n = a.pattern.rows;
  const lu::MatrixView<V> view{a.pattern.rows, a.pattern.row_offset, a.pattern.column_index,
                               numbers(values)};
  double worst = 0;
  for (uint64_t first = 0; first < numbers(b).size(); first += n) {
    const double found = lu::relative_residual<V>(view, numbers(b).subspan(first, n),
                                                  numbers(x).subspan(first, n), transposed);
    worst = found <= worst ? worst : found; // NaN stays
  }
  return worst;
}

} // namespace

void require_ok(sparsertc_result result) {
  if (result != SPARSERTC_OK)
    throw std::runtime_error(std::string(sparsertc_result_name(result)) + ": " +
                             sparsertc_last_error());
}

void replace_values(Matrix& matrix, Random& random) {
  const Pattern& pattern = matrix.pattern;
  const bool complex = !matrix.imaginary.empty();
  for (uint64_t p = 0; p < pattern.nnz(); ++p) {
    matrix.values[p] = random.symmetric();
    if (complex)
      matrix.imaginary[p] = random.symmetric();
  }
  for (uint32_t i = 0; i < pattern.rows; ++i) {
    double sum = 1;
    for (uint64_t p = pattern.row_offset[i]; p < pattern.row_offset[i + 1]; ++p)
      sum += std::abs(matrix.values[p]) + (complex ? std::abs(matrix.imaginary[p]) : 0.0);
    for (uint64_t p = pattern.row_offset[i]; p < pattern.row_offset[i + 1]; ++p)
      if (pattern.column_index[p] == i)
        matrix.values[p] = std::copysign(sum, matrix.values[p]);
  }
}

Matrix safe_matrix(const Pattern& pattern, Random& random, bool complex) {
  Matrix matrix;
  matrix.name = "a random matrix";
  matrix.pattern = pattern;
  matrix.values.resize(pattern.nnz());
  if (complex)
    matrix.imaginary.resize(pattern.nnz());
  matrix.stored = StoredType::f64;
  replace_values(matrix, random);
  return matrix;
}

Bundle lu_bundle(const Matrix& matrix, const LuBundleChoice& choice) {
  LuCompileOptions options;
  options.precision = choice.precision;
  options.target = find_target(choice.target);
  options.multiprocessors = choice.multiprocessors;
  options.solve = choice.solve;
  options.transposed = choice.transposed;
  options.batch = choice.batch;
  options.batch_budget = choice.batch_budget;
  return compile_lu(matrix, options);
}

void LuMemory::FreeAligned::operator()(uint8_t* memory) const {
  std::free(memory);
}

LuMemory::LuMemory(const sparsertc_context* context, bool on_host, uint64_t bytes)
    : context_(context), on_host_(on_host), bytes_(bytes) {
  if (on_host) {
    const uint64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    host_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, std::max(whole, kAlignment))));
    address = host_.get();
  } else {
    require_ok(sparsertc_memory_allocate(context, bytes, &address));
  }
  try {
    write(std::vector<uint8_t>(bytes, 0xFF));
  } catch (...) {
    give_back();
    throw;
  }
}

LuMemory::~LuMemory() {
  give_back();
}

void LuMemory::give_back() {
  if (!on_host_)
    sparsertc_memory_free(context_, address);
}

void LuMemory::write(const std::vector<uint8_t>& bytes) const {
  if (!on_host_)
    require_ok(sparsertc_memory_write(context_, address, bytes.data(), bytes.size(), nullptr));
  else if (!bytes.empty())
    std::memcpy(address, bytes.data(), bytes.size());
}

std::vector<uint8_t> LuMemory::read() const {
  std::vector<uint8_t> bytes(bytes_);
  if (!on_host_)
    require_ok(sparsertc_memory_read(context_, bytes.data(), address, bytes.size(), nullptr));
  else if (!bytes.empty())
    std::memcpy(bytes.data(), address, bytes.size());
  return bytes;
}

LuSession::LuSession(const sparsertc_context* context, bool on_host, const sparsertc_lu* lu,
                     int64_t sides_at_once)
    : context_(context), on_host_(on_host), lu_(lu), info_(query(lu)),
      memory_(context, on_host, workspace_bytes(lu, sides_at_once)),
      values_(context, on_host, static_cast<uint64_t>(info_.nnz) * info_.element_size),
      workspace_{sizeof workspace_, memory_.address, workspace_bytes(lu, sides_at_once)} {
  require_ok(sparsertc_lu_workspace_initialize(lu, &workspace_, nullptr));
}

void LuSession::refactor(const Matrix& a, void* stream) {
  values_.write(packed(parts_of(a)));
  const sparsertc_lu_matrix matrix = {sizeof matrix, values_.address, 0};
  require_ok(sparsertc_lu_refactor(lu_, &matrix, &workspace_, stream));
}

std::vector<double> LuSession::solve(const std::vector<double>& b, int64_t right_sides,
                                     bool transposed, bool in_place, void* stream) {
  const uint64_t bytes = static_cast<uint64_t>(info_.n * right_sides) * info_.element_size;
  const LuMemory b_there(context_, on_host_, bytes), x_there(context_, on_host_, bytes);
  b_there.write(packed(b));
  const LuMemory& result = in_place ? b_there : x_there;
  const sparsertc_lu_system system = {sizeof system, b_there.address,      result.address,
                                      right_sides,   transposed ? 1u : 0u, 0};
  require_ok(sparsertc_lu_solve(lu_, &system, &workspace_, stream));
  status(stream); // waits
  return unpacked(result.read());
}

std::vector<double> LuSession::solve_refined(const Matrix& a, const std::vector<double>& b,
                                             int64_t right_sides, bool transposed, bool in_place,
                                             uint32_t maximum_steps, double target, void* stream) {
  const uint64_t bytes = static_cast<uint64_t>(info_.n * right_sides) * info_.element_size;
  const LuMemory b_there(context_, on_host_, bytes), x_there(context_, on_host_, bytes);
  uint64_t memory_bytes = 0;
  require_ok(sparsertc_lu_refinement_size(lu_, right_sides, &memory_bytes));
  const LuMemory memory(context_, on_host_, memory_bytes);
  b_there.write(packed(b));
  values_.write(packed(parts_of(a)));
  const LuMemory& result = in_place ? b_there : x_there;
  const sparsertc_lu_matrix matrix = {sizeof matrix, values_.address, 0};
  const sparsertc_lu_system system = {sizeof system, b_there.address,      result.address,
                                      right_sides,   transposed ? 1u : 0u, 0};
  const sparsertc_lu_refinement refinement = {
      sizeof refinement, memory.address, memory_bytes, maximum_steps, 0, target};
  require_ok(sparsertc_lu_solve_refined(lu_, &matrix, &system, &refinement, &workspace_, stream));
  const auto count = static_cast<size_t>(right_sides);
  std::vector<double> errors(count), residuals(count);
  std::vector<int64_t> steps(count);
  require_ok(sparsertc_lu_refinement_results(lu_, &refinement, stream, right_sides, errors.data(),
                                             residuals.data(), steps.data()));
  refined_.clear();
  for (size_t side = 0; side < count; ++side)
    refined_.push_back({errors[side], residuals[side], steps[side]});
  return unpacked(result.read());
}

sparsertc_lu_factor_status LuSession::status(void* stream) const {
  sparsertc_lu_factor_status status;
  status.struct_size = sizeof status;
  require_ok(sparsertc_lu_status(lu_, &workspace_, stream, &status));
  return status;
}

std::vector<uint8_t> LuSession::packed(const std::vector<double>& parts) const {
  const bool single = info_.dtype == std::string("f32") || info_.dtype == std::string("c64");
  std::vector<uint8_t> bytes(parts.size() * (single ? sizeof(float) : sizeof(double)));
  const std::vector<float> narrow(parts.begin(), parts.end());
  if (!bytes.empty())
    std::memcpy(bytes.data(),
                single ? static_cast<const void*>(narrow.data())
                       : static_cast<const void*>(parts.data()),
                bytes.size());
  return bytes;
}

std::vector<double> LuSession::unpacked(const std::vector<uint8_t>& bytes) const {
  if (bytes.empty())
    return {};
  const bool single = info_.dtype == std::string("f32") || info_.dtype == std::string("c64");
  if (!single) {
    std::vector<double> parts(bytes.size() / sizeof(double));
    std::memcpy(parts.data(), bytes.data(), bytes.size());
    return parts;
  }
  std::vector<float> narrow(bytes.size() / sizeof(float));
  std::memcpy(narrow.data(), bytes.data(), bytes.size());
  return {narrow.begin(), narrow.end()};
}

std::vector<double> parts_of(const Matrix& a) {
  if (a.imaginary.empty())
    return a.values;
  std::vector<double> parts;
  for (size_t p = 0; p < a.values.size(); ++p)
    parts.insert(parts.end(), {a.values[p], a.imaginary[p]});
  return parts;
}

std::vector<double> random_parts(Random& random, uint64_t count) {
  std::vector<double> parts(count);
  for (double& part : parts)
    part = random.symmetric();
  return parts;
}

double largest_residual(const Matrix& a, const std::vector<double>& b, const std::vector<double>& x,
                        bool transposed) {
  return a.imaginary.empty() ? residual_of<double>(a, b, x, transposed)
                             : residual_of<std::complex<double>>(a, b, x, transposed);
}

} // namespace sparsertc::test
