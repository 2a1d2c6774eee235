// Which unknowns each residual depends on: found by running the residual with sets of unknowns in
// the place of derivatives (runtime/kernels/dual.cuh), on the CPU or on the GPU.
#pragma once

#include "ir/jacobian_tables.h"
#include "runtime/jacobian/read_ahead.h"
#include "runtime/jacobian/residual_program.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace sparsertc::jacobian {

/// Where a residual is looked at: code with branches may depend on other unknowns elsewhere.
struct DetectionPoint {
  std::vector<double> x; ///< n
  uint64_t instance = 0; ///< of the parameters
};

/// Looks at a residual by its inspection entries (program.h).
class Inspection {
public:
  /// All must outlive it. `n`: unknowns and residuals.
  Inspection(const ResidualProgram& program, const ParameterSet& parameters, uint64_t n, bool f32);

  /// Whether the user's residual is by row, or whole.
  bool by_row() const { return by_row_; }

  /// The residual at a point; indices are checked on the way.
  std::vector<double> residual(const DetectionPoint& point) const;

  /// The union of what is found at the points. A row's columns are those that its value depends on
  /// by operations with derivatives: not by comparisons, and not through floor and its like.
  JacobianPattern pattern(std::span<const DetectionPoint> points) const;

  /// What the terms of a residual by row read, the union of what is found at the points.
  RowTerms terms(std::span<const DetectionPoint> points) const;

  /// What the rows of a residual by row read at a point; of programs with ProgramOptions::read_log.
  ReadLog read_log(const DetectionPoint& point) const;

private:
  struct Reads {
    std::vector<uint32_t> count; ///< by row
    std::vector<uint64_t> offset;
    std::vector<uint32_t> list, term; ///< by row, in the order of reading
    std::vector<uint32_t> sums;       ///< by row
    std::vector<uint32_t> lengths;    ///< by row: of the last sum, in terms
  };
  Reads reads(const DetectionPoint& point, uint64_t x) const;
  using Columns = std::vector<std::vector<uint32_t>>;
  ProgramCall call(std::vector<uint64_t> words, uint64_t tasks, uint64_t x,
                   const DetectionPoint& point) const;
  void add_by_row(const DetectionPoint& point, Columns& columns) const;
  void add_whole(const DetectionPoint& point, Columns& columns) const;

  const ResidualProgram& program_;
  const ParameterSet& parameters_;
  uint64_t n_;
  bool f32_;
  ParameterMemory memory_;
  bool by_row_ = false;
};

/// An entry that a pattern lacks.
struct MissingEntry {
  uint32_t row = 0;
  uint32_t column = 0;
  double derivative = 0;
};

/// J v at one point, without a pattern.
using Product = std::function<std::vector<double>(std::span<const double> v)>;

/// Compares J v by `product` for a random v with that by `values`, the derivatives at the entries
/// of `pattern`, at the same point. Where a row differs by more than the root of the unit roundoff
/// times its terms, the entry is found by halving the row's other columns; nothing where all agree.
std::optional<MissingEntry> find_missing_entry(const JacobianPattern& pattern,
                                               std::span<const double> values,
                                               const Product& product, bool f32, uint64_t seed);

/// The first entry of `found` (by rows) that `given` lacks, or nothing.
std::optional<MissingEntry> first_not_in(const JacobianPattern& given,
                                         const JacobianPattern& found);

} // namespace sparsertc::jacobian
