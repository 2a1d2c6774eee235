// The road through LLVM as an object that is handed to the pipeline: a program that only prints PTX
// directly links no LLVM. emit/llvm.h makes one.
#pragma once

#include "compiler/emit/target.h"
#include "ir/module.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc {

class LlvmRoad {
public:
  virtual ~LlvmRoad() = default;
  /// Textual LLVM IR (.ll), after optimisation.
  virtual std::string llvm_ir(const ir::Module& module, const Target& target) const = 0;
  /// PTX of the whole program.
  virtual std::string ptx(const ir::Module& module, const Target& target) const = 0;
  /// A relocatable ELF object for this machine's CPU.
  virtual std::vector<uint8_t> host_object(const ir::Module& module,
                                           const Target& target) const = 0;
};

} // namespace sparsertc
