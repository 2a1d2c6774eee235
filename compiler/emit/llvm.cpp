#include "compiler/emit/llvm.h"

#include "compiler/emit/clusters.h"
#include "compiler/emit/llvm_backend.h"
#include "compiler/emit/llvm_host.h"
#include "ir/error.h"
#include "ir/verifier.h"

#include <llvm/Support/raw_ostream.h>

#include <fmt/format.h>

namespace sparsertc {
namespace {

/// One thread's code for the GPU.
std::unique_ptr<llvm::Module> gpu_module(const ir::Module& module, LlvmBackend& backend) {
  const LaneAnalysis one_lane(module, 1);
  const std::vector<bool> special(module.functions.size(), false); // indices are registers there
  std::unique_ptr<llvm::Module> out = backend.make_module("sparsertc");
  LlvmModuleEmitter emitter(*out, module, one_lane, special, backend.settings());
  for (uint32_t f = 0; f < module.functions.size(); ++f)
    if (one_lane.reached(f))
      emitter.define(f);
  return out;
}

std::unique_ptr<llvm::Module> optimised(const ir::Module& module, const Target& target,
                                        LlvmBackend& backend) {
  ir::require_placed(module);
  require_clusters(module, target);
  std::unique_ptr<llvm::Module> out =
      target.is_host ? whole_host_module(module, backend) : gpu_module(module, backend);
  backend.optimise(*out);
  return out;
}

/// The target with the PTX version that the module's operations need.
Target with_needed_ptx(const ir::Module& module, Target target) {
  for (const ir::Function& function : module.functions)
    for (const ir::Op& op : function.ops)
      if (op.code == ir::Opcode::mma_sparse && target.ptx_version == "7.0")
        target.ptx_version = "7.1"; // mma.sp came with PTX ISA 7.1
  return target;
}

void require_host(const Target& target, bool host) {
  if (target.is_host != host)
    throw UsageError(
        fmt::format("target {} {}", target.name, host ? "has no host object" : "has no PTX"),
        host ? "--target=host makes one" : "name an NVIDIA target, such as sm_90");
}

} // namespace

std::string emit_llvm_ir(const ir::Module& module, const Target& target,
                         const LlvmOptions& options) {
  LlvmBackend backend(with_needed_ptx(module, target), options.optimisation_level);
  const std::unique_ptr<llvm::Module> out = optimised(module, target, backend);
  std::string text;
  for (const auto& [key, value] : module.attributes)
    text += fmt::format("; {}: {}\n", key, value);
  llvm::raw_string_ostream stream(text);
  out->print(stream, nullptr);
  return text;
}

std::string emit_ptx_through_llvm(const ir::Module& module, const Target& target,
                                  const LlvmOptions& options) {
  require_host(target, false);
  LlvmBackend backend(with_needed_ptx(module, target), options.optimisation_level);
  const std::unique_ptr<llvm::Module> out = optimised(module, target, backend);
  std::string text;
  for (const auto& [key, value] : module.attributes)
    text += fmt::format("// {}: {}\n", key, value);
  return text + backend.assembly(*out);
}

std::vector<uint8_t> emit_host_object(const ir::Module& module, const Target& target,
                                      const LlvmOptions& options) {
  require_host(target, true);
  LlvmBackend backend(target, options.optimisation_level);
  const std::unique_ptr<llvm::Module> out = optimised(module, target, backend);
  return backend.object(*out);
}

const LlvmRoad& llvm_road() {
  class Default : public LlvmRoad {
  public:
    std::string llvm_ir(const ir::Module& module, const Target& target) const override {
      return emit_llvm_ir(module, target);
    }
    std::string ptx(const ir::Module& module, const Target& target) const override {
      return emit_ptx_through_llvm(module, target);
    }
    std::vector<uint8_t> host_object(const ir::Module& module,
                                     const Target& target) const override {
      return emit_host_object(module, target);
    }
  };
  static const Default road;
  return road;
}

} // namespace sparsertc
