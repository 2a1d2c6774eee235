// LLVM's target machines, pass pipelines and code generation. Internal to the LLVM road.
#pragma once

#include "compiler/emit/llvm.h"
#include "compiler/emit/llvm_function.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>
#include <vector>

namespace sparsertc {

/// What a thread needs to compile modules: target machines are not shared between threads.
class LlvmBackend {
public:
  /// Throws UserError where LLVM does not know the target.
  LlvmBackend(const Target& target, unsigned optimisation_level);

  /// An empty module with the target's triple and data layout.
  std::unique_ptr<llvm::Module> make_module(const std::string& name);
  LlvmModuleEmitter::Settings settings() const;

  void optimise(llvm::Module& module);
  std::vector<uint8_t> object(llvm::Module& module);
  std::string assembly(llvm::Module& module);

private:
  std::string generate(llvm::Module& module, llvm::CodeGenFileType type);

  const Target target_;
  unsigned level_;
  std::unique_ptr<std::string> errors_; ///< written by the context's diagnostic handler
  std::unique_ptr<llvm::LLVMContext> context_;
  std::unique_ptr<llvm::TargetMachine> machine_;
  std::string cpu_;
  std::string features_;
};

} // namespace sparsertc
