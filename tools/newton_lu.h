// What sparse LU needs to know of a Jacobian before Newton's method begins: order, pivots and
// tables, chosen for its values at the start.
#pragma once

#include "compiler/inspect/lu_analysis.h"
#include "ir/jacobian_tables.h"
#include "ir/lu_tables.h"
#include "runtime/host/task_pool.h"

#include <span>
#include <string>
#include <vector>

namespace sparsertc {

struct NewtonLu {
  LuAnalysis analysis;
  LuTables tables;
};

/// A Jacobian with these values, in the order of the pattern. `name` stands for it in messages.
Matrix jacobian_matrix(const JacobianPattern& pattern, std::vector<double> values,
                       const std::string& name);

/// UserError with the word `singular` where the Jacobian is structurally singular, and where its
/// values are not finite.
NewtonLu prepare_newton_lu(const Matrix& jacobian, const LuAnalysisOptions& options = {});

} // namespace sparsertc
