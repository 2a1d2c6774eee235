// IR -> LLVM -> PTX through the NVPTX back end, or host code. No LLVM header is needed to use this.
#pragma once

#include "compiler/emit/llvm_road.h"
#include "compiler/emit/target.h"
#include "ir/module.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc {

struct LlvmOptions {
  unsigned optimisation_level = 2; ///< 0 to 3
};

/// Textual LLVM IR (.ll), after optimisation.
std::string emit_llvm_ir(const ir::Module& module, const Target& target,
                         const LlvmOptions& options = {});
/// PTX through LLVM's NVPTX back end.
std::string emit_ptx_through_llvm(const ir::Module& module, const Target& target,
                                  const LlvmOptions& options = {});
/// A relocatable ELF object (.o) for this machine's CPU; see host_program.h for the functions in
/// it.
std::vector<uint8_t> emit_host_object(const ir::Module& module, const Target& target,
                                      const LlvmOptions& options = {});

/// The three as one object with the default options, for the pipeline; lives as long as the
/// program.
const LlvmRoad& llvm_road();

} // namespace sparsertc
