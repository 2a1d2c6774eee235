#include "tests/fuzz/reader_fuzz.h"

#include "compiler/input/matpower.h"
#include "ir/error.h"

#include <cmath>

namespace sparsertc::testing {
namespace {

/// Small, so that a few compressed bytes cannot ask for much.
constexpr uint64_t kMaximumBytes = uint64_t{8} << 20;

template <typename Action>
std::optional<std::string> guarded(Action&& action) {
  try {
    return action();
  } catch (const UserError& error) {
    // A place, or at least the input's name, begins every message.
    if (std::string(error.what()).rfind("input", 0) != 0)
      return std::string("an error without a place: ") + error.what();
    return std::nullopt;
  } catch (const std::exception& error) {
    return std::string("another exception: ") + error.what();
  }
}

} // namespace

std::optional<std::string> try_readers(std::span<const uint8_t> bytes, std::optional<Format> format,
                                       uint8_t variant) {
  ReadOptions options;
  options.maximum_bytes = kMaximumBytes;
  options.duplicates = (variant & 1) != 0 ? Duplicates::refuse : Duplicates::sum;
  options.allow_nonfinite = (variant & 2) != 0;
  options.require_values = (variant & 4) != 0;
  if ((variant & 8) != 0)
    options.random_values_seed = variant;
  if ((variant & 16) != 0)
    options.tensor = "w";

  auto fault = guarded([&]() -> std::optional<std::string> {
    const Matrix matrix = read_matrix_from_bytes(bytes, "input", format, options);
    if (options.require_values && !matrix.has_values())
      return "values are required and missing";
    if (!options.allow_nonfinite)
      for (const double value : matrix.values)
        if (!std::isfinite(value))
          return "a value is not finite";
    return find_fault(matrix);
  });
  if (fault)
    return fault;
  fault = guarded([&]() -> std::optional<std::string> {
    const DenseTensor tensor = read_dense_from_bytes(bytes, "input", format, options);
    uint64_t elements = 1;
    for (const uint64_t dimension : tensor.shape)
      elements *= dimension;
    if (elements != tensor.values.size())
      return "the number of values is not that of the shape";
    return std::nullopt;
  });
  if (fault)
    return fault;
  return guarded([&]() -> std::optional<std::string> {
    list_tensors_from_bytes(bytes, "input", format, options);
    return std::nullopt;
  });
}

std::optional<std::string> try_power_case(std::span<const uint8_t> bytes) {
  return guarded([&]() -> std::optional<std::string> {
    const PowerCase grid = read_power_case_from_bytes(bytes, "input", kMaximumBytes);
    const size_t buses = grid.buses.size();
    for (const PowerGenerator& generator : grid.generators)
      if (generator.bus >= buses || !std::isfinite(generator.power_mw))
        return "a generator of no bus, or without a power";
    for (const PowerBranch& branch : grid.branches)
      if (branch.from >= buses || branch.to >= buses || branch.from == branch.to ||
          !std::isfinite(branch.reactance_pu))
        return "a branch of no bus, or without a reactance";
    return std::nullopt;
  });
}

} // namespace sparsertc::testing
