#include "tools/newton_program.h"

#include "compiler/lower/newton_program.h"
#include "compiler/transform/pass.h"
#include "ir/verifier.h"

namespace sparsertc {

ir::Module newton_program(const NewtonLayout& layout, bool always_new) {
  ir::Module module = lower_newton_program({layout, always_new});
  place_pass().run(module);
  ir::verify_or_throw(module, "pass place");
  return module;
}

} // namespace sparsertc
