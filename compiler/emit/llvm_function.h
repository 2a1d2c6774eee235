// IR functions as LLVM functions, for a group of lanes of the host or one thread of a GPU. Internal
// to the LLVM road.
//
// Host: a kernel becomes `i32 NAME$LANES(ptr arguments, i32 block_x, i32 block_y, i32 block_z,
// i32 first_thread_x, i32 thread_y, i32 thread_z)`; it returns 0 when the lanes are done and 1 when
// it gave up before writing anything, because the lanes do not agree on a comparison: the caller
// then runs NAME$1 for each thread. A device function takes its parameters (lane 0's value where
// the shape is affine) and, where it asks for indices, the same six numbers.
#pragma once

#include "compiler/emit/llvm_lanes.h"
#include "compiler/emit/ptx_symbols.h"
#include "ir/module.h"

#include <llvm/IR/Module.h>

#include <string>
#include <vector>

namespace sparsertc {

class LlvmModuleEmitter {
public:
  struct Settings {
    bool gpu = false;
    bool native_f16 = false;
    /// GPU: PTX 8.5 and later want mma.sp::ordered_metadata.
    bool ordered_metadata = false;
    /// Host: symbols are defined here; else they are declared and bound by the loader.
    bool define_symbols = true;
    /// Host: functions are visible to other objects.
    bool external = false;
    /// Attributes of every host function ("target-cpu", "target-features", ...).
    std::vector<std::pair<std::string, std::string>> attributes;
  };

  LlvmModuleEmitter(llvm::Module& out, const ir::Module& module, const LaneAnalysis& lanes,
                    const std::vector<bool>& uses_special, Settings settings)
      : out_(out), module_(module), lanes_(lanes), uses_special_(uses_special),
        settings_(std::move(settings)), shared_(shared_layout(module)) {}

  /// The LLVM function of an IR function, declared on first use.
  llvm::Function* declare(uint32_t function);
  /// Writes the body. Throws UserError for what the target has not.
  void define(uint32_t function);
  /// The address of a symbol.
  llvm::Constant* symbol(uint32_t index);

  llvm::Module& out() { return out_; }
  const ir::Module& module() const { return module_; }
  const LaneAnalysis& lanes() const { return lanes_; }
  const Settings& settings() const { return settings_; }
  bool uses_special(uint32_t function) const { return uses_special_[function]; }
  llvm::Type* pointer_type(ir::Space space) const;
  /// The type of a register whose lanes relate like `shape`.
  llvm::Type* register_type(ir::Type type, LaneShape shape) const;

private:
  llvm::Module& out_;
  const ir::Module& module_;
  const LaneAnalysis& lanes_;
  const std::vector<bool>& uses_special_;
  Settings settings_;
  SharedLayout shared_;
};

/// "NAME$LANES".
std::string host_function_name(const std::string& name, uint32_t lanes);

} // namespace sparsertc
