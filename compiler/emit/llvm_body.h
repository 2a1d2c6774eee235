// The body of one function: walks the IR's operations and keeps the current value of every
// register, so that LLVM's SSA form is built directly. Internal to the LLVM road.
#pragma once

#include "compiler/emit/llvm_function.h"
#include "compiler/emit/llvm_values.h"

#include <map>

namespace sparsertc {

class LlvmBody {
public:
  LlvmBody(LlvmModuleEmitter& emitter, uint32_t function, llvm::Function* llvm_function);
  void emit();

private:
  using Value = llvm::Value;

  /// An open `for`, `loop` or `if`.
  struct Region {
    uint32_t at = 0; ///< the opening operation
    bool in_else = false;
    llvm::BasicBlock* before = nullptr; ///< where control comes from
    llvm::BasicBlock* body = nullptr;
    llvm::BasicBlock* other = nullptr; ///< else
    llvm::BasicBlock* after = nullptr;
    llvm::BasicBlock* then_end = nullptr;
    Value* limit = nullptr;
    llvm::PHINode* induction = nullptr;
    std::vector<llvm::PHINode*> phis; ///< one for each register of `assigned`, or null
    std::vector<Value*> before_values;
    std::vector<Value*> then_values;
  };

  void find_regions();
  void operation(uint32_t at);
  void cut_long_block();

  // registers
  LaneShape shape(uint32_t reg) const;
  Value* raw(uint32_t reg) const; ///< lane 0's value or the vector, as the shape says
  Value* vector(uint32_t reg);
  Value* spread(Value* value, LaneShape from); ///< to a vector
  void set(uint32_t reg, Value* value, LaneShape from);
  Value* in_shape(Value* value, LaneShape from, LaneShape to);
  Value* extract(Value* value, LaneShape from, uint32_t lane);
  /// Operand of a value operation, as lane 0's value or as a vector.
  Value* operand(const ir::Op& op, unsigned slot, bool as_vector);
  Value* uniform_condition(uint32_t at);

  // values
  void value_operation(uint32_t at);
  Value* special(ir::Special which);
  Value* gpu_special(ir::Special which);
  Value* pointer_operation(const ir::Op& op, bool as_vector);
  void speculate(uint32_t at);
  void check(Value* agreed);
  Value* last_lane(Value* first, LaneShape from);
  Value* stays_ordered(Value* first, LaneShape from, bool as_unsigned);

  // memory
  Value* address(const ir::Op& op, Value* pointer, int64_t more = 0);
  void load(const ir::Op& op);
  void store(const ir::Op& op);
  void gpu_load(const ir::Op& op);
  void gpu_store(const ir::Op& op);
  void ordered(const ir::Op& op);
  Value* ordered_lane(const ir::Op& op, Value* pointer, Value* value, Value* replacement);
  void annotate(llvm::Instruction* instruction, const ir::Op& op);

  // threads of a GPU
  void gpu_operation(const ir::Op& op);
  void gpu_barrier(const ir::Op& op);
  void gpu_copy_async(const ir::Op& op);
  void gpu_load_matrix(const ir::Op& op);
  void gpu_matrix(const ir::Op& op);

  // control
  void begin_for(uint32_t at);
  void begin_loop(uint32_t at);
  void end_loop(Region& region, Value* again);
  void begin_if(uint32_t at);
  void else_mark();
  void close(uint32_t at);
  void open_header(Region& region);
  void call(const ir::Op& op);
  void call_function(uint32_t callee, uint32_t first, uint32_t count);
  void return_void();

  llvm::BasicBlock* block(const char* name);
  [[noreturn]] void refuse(const ir::Op& op, const std::string& why, const std::string& way_out);
  ir::Scalar scalar_of(uint32_t reg) const { return function_.register_type[reg].element(); }

  LlvmModuleEmitter& emitter_;
  const ir::Module& module_;
  const ir::Function& function_;
  uint32_t index_;
  llvm::Function* out_;
  llvm::IRBuilder<> builder_;
  LlvmValues values_;
  uint32_t lanes_;
  bool gpu_;
  std::vector<Value*> registers_;
  std::vector<Region> open_;
  std::map<uint32_t, std::vector<uint32_t>> assigned_; ///< by the opening operation
  uint32_t in_block_ = 0;                              ///< operations since a block was begun
  llvm::BasicBlock* give_up_ = nullptr;
  Value* indices_[6] = {}; ///< block x y z, first thread x, thread y z
};

} // namespace sparsertc
