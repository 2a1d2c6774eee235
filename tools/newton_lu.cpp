#include "tools/newton_lu.h"

#include "compiler/inspect/lu_schedule.h"

#include <utility>

namespace sparsertc {

Matrix jacobian_matrix(const JacobianPattern& pattern, std::vector<double> values,
                       const std::string& name) {
  Matrix matrix;
  matrix.name = name;
  matrix.pattern = {pattern.rows, pattern.columns, pattern.row_offset, pattern.column_index};
  matrix.values = std::move(values);
  matrix.stored = StoredType::f64;
  return matrix;
}

NewtonLu prepare_newton_lu(const Matrix& jacobian, const LuAnalysisOptions& options) {
  NewtonLu lu;
  lu.analysis = analyse_lu(jacobian, options);
  lu.tables = make_lu_tables(
      jacobian.pattern,
      {lu.analysis.rows, lu.analysis.columns, lu.analysis.row_scale, lu.analysis.column_scale},
      options.pool);
  return lu;
}

} // namespace sparsertc
