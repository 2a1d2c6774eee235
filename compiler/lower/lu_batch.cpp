#include "compiler/lower/lu_batch.h"

#include "compiler/inspect/lu_schedule.h"
#include "compiler/lower/lu_batch_kernel.h"
#include "ir/error.h"
#include "ir/verifier.h"

#include <fmt/format.h>

namespace sparsertc {

ir::Scalar lu_batch_vector_type(const LuBatchOptions& options) {
  return options.wide_vectors ? ir::Scalar::f64 : options.type;
}

uint64_t lu_batch_numbers(const LuTables& tables) {
  return tables.nnz() + kLuBatchMostWarps + tables.size;
}

bool is_unrolled(const LuTables& tables, const LuBatchOptions& options) {
  return !options.complex && multiply_adds(tables) <= options.most_multiply_adds &&
         lu_batch_numbers(tables) <= lu_batch::kMostNumbers;
}

ir::Module make_lu_batch(const LuTables& tables, const LuBatchOptions& options) {
  const uint64_t work = multiply_adds(tables), numbers = lu_batch_numbers(tables);
  if (!is_unrolled(tables, options))
    throw UserError(
        fmt::format("unrolled code for a batch is made for at most {} multiply-adds and "
                    "{} numbers; this pattern has {} and {}",
                    options.most_multiply_adds, lu_batch::kMostNumbers, work, numbers),
        "larger ones are worked through by tables");
  if (options.warps == 0 || options.warps > kLuBatchMostWarps)
    throw InternalError(fmt::format("a batch by {} warps a block", options.warps));
  ir::Module module;
  lu_batch::write_factor(module, tables, options);
  lu_batch::write_solve(module, tables, options);
  ir::verify_or_throw(module, "lowering a batch of sparse LU");
  return module;
}

uint32_t lu_batch_threads(const ir::Module& module, std::string_view kernel) {
  for (const ir::Function& function : module.functions)
    if (function.name == kernel)
      return function.block[0];
  throw InternalError(fmt::format("a batch without the kernel {}", kernel));
}

} // namespace sparsertc
