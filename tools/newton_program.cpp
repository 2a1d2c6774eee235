#include "tools/newton_program.h"

#include "compiler/transform/pass.h"
#include "ir/verifier.h"

namespace sparsertc {

ir::Module newton_program(const NewtonProgramOptions& options) {
  ir::Module module = lower_newton_program(options);
  place_pass().run(module);
  ir::verify_or_throw(module, "pass place");
  return module;
}

} // namespace sparsertc
