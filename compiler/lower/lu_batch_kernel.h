// The kernels around a batch's straight-line functions, and who writes them.
#pragma once

#include "compiler/inspect/lu_batch_shares.h"
#include "compiler/lower/lu_batch_sequence.h"

namespace sparsertc::lu_batch {

/// Calls the functions for the lanes that have an instance, each warp of a block its own, with a
/// barrier between stages.
class KernelWriter {
public:
  /// functions[s][w]: of warp w in stage s.
  using Functions = std::vector<std::vector<std::vector<uint32_t>>>;

  KernelWriter(ir::Module& module, const char* name, uint32_t bytes, uint32_t warps)
      : module_(module), bytes_(bytes), warps_(warps), b_(module, function_) {
    function_.name = name;
    function_.kind = ir::FunctionKind::kernel;
    function_.block[0] = kLuBatchLanes * warps;
  }
  KernelWriter(const KernelWriter&) = delete;
  KernelWriter& operator=(const KernelWriter&) = delete;

  Reg parameter(ir::Type type, const char* name) { return b_.parameter(type, name); }
  void begin(Reg instances) {
    group_ = b_.special(ir::Special::block_x);
    const Reg thread = b_.special(ir::Special::thread_x);
    lane_ = b_.value(Opcode::bit_and, Scalar::i32, {thread, Operand::integer(kLuBatchLanes - 1)});
    warp_ = b_.value(Opcode::shr, Scalar::i32, {thread, Operand::integer(5)});
    const Reg before = b_.mul(Scalar::i32, group_, Operand::integer(kLuBatchLanes));
    instance_ = b_.add(Scalar::i32, before, lane_);
    has_instance_ = b_.compare(Comparison::lt, Scalar::i32, instance_, instances);
  }
  Reg of_instance(Reg pointer, uint32_t bytes) {
    return b_.index(pointer, instance_, Operand::integer(bytes));
  }
  Reg of_lane(Reg factors, uint64_t numbers) {
    const Reg group = b_.index(
        factors, group_, Operand::integer(static_cast<int64_t>(numbers * kLuBatchLanes * bytes_)));
    return b_.index(group, lane_, Operand::integer(bytes_));
  }
  void clear(Reg word) {
    begin_warp(0);
    b_.store(word, 0, b_.constant(Scalar::i32, Operand::integer(0)));
    end_warp();
    meet();
  }
  void finish(const Functions& functions, const std::vector<Reg>& arguments) {
    for (size_t stage = 0; stage < functions.size(); ++stage) {
      if (stage > 0)
        meet();
      for (uint32_t warp = 0; warp < functions[stage].size(); ++warp) {
        if (functions[stage][warp].empty())
          continue;
        begin_warp(warp);
        for (const uint32_t function : functions[stage][warp])
          b_.call(function, arguments);
        end_warp();
      }
    }
    b_.return_void();
    module_.functions.push_back(std::move(function_));
  }

private:
  void begin_warp(uint32_t warp) {
    b_.if_begin(b_.compare(Comparison::eq, Scalar::i32, warp_, Operand::integer(warp)));
    b_.if_begin(has_instance_);
  }
  void end_warp() {
    b_.end();
    b_.end();
  }
  void meet() {
    if (warps_ > 1)
      b_.barrier();
  }

  ir::Module& module_;
  const uint32_t bytes_, warps_;
  ir::Function function_;
  ir::Builder b_;
  Reg group_, lane_, warp_, instance_, has_instance_;
};

/// As many warps as have something to do.
inline uint32_t busy_warps(const LuBatchShares& shares) {
  uint32_t busy = 1;
  for (const auto& stage : shares.stages)
    for (uint32_t warp = 0; warp < stage.size(); ++warp)
      if (!stage[warp].empty())
        busy = std::max(busy, warp + 1);
  return busy;
}

/// The two kernels of make_lu_batch with their functions, added to the module.
void write_factor(ir::Module& module, const LuTables& tables, const LuBatchOptions& options);
void write_solve(ir::Module& module, const LuTables& tables, const LuBatchOptions& options);

} // namespace sparsertc::lu_batch
