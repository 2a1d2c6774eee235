// Which registers of host code are the same in all lanes, which grow by a constant from lane to
// lane, and which differ. Internal to the LLVM road.
#pragma once

#include "ir/module.h"
#include "ir/operands.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// How the values of one register in the lanes of a group relate.
struct LaneShape {
  enum Kind : uint8_t {
    none,    ///< never assigned
    uniform, ///< one value
    affine,  ///< value of lane 0 + lane * stride (in bytes for pointers)
    varying,
  };
  Kind kind = none;
  /// affine i32 or i64: lane 0's value plus all lanes' steps stays inside the signed type.
  bool no_wrap = false;
  int64_t stride = 0;

  static LaneShape make_uniform() { return {uniform, true, 0}; }
  static LaneShape make_varying() { return {varying, false, 0}; }
  static LaneShape make_affine(int64_t stride, bool no_wrap) {
    return stride == 0 ? make_uniform() : LaneShape{affine, no_wrap, stride};
  }
  bool is_uniform() const { return kind == uniform; }
  bool is_affine() const { return kind == affine; }
  bool is_varying() const { return kind == varying; }
  friend bool operator==(const LaneShape&, const LaneShape&) = default;
};

LaneShape join(LaneShape a, LaneShape b);

/// Lanes of a group for a kernel: threads along x that one vector holds (a divisor of block[0]).
uint32_t lanes_of_kernel(const ir::Function& kernel);

/// Shapes of every register of the functions that kernels with this number of lanes reach. Flow
/// inside a function is ignored (a register has one shape), flow between functions is followed:
/// a parameter's shape is the join over all calls. With one lane everything is uniform, for every
/// kernel; else only the kernels whose lanes_of_kernel is `lanes` are looked at.
class LaneAnalysis {
public:
  LaneAnalysis(const ir::Module& module, uint32_t lanes);

  uint32_t lanes() const { return lanes_; }
  bool reached(uint32_t function) const { return reached_[function]; }
  LaneShape shape(uint32_t function, uint32_t reg) const { return shapes_[function][reg]; }
  /// The shape that operation `at` itself gives its result (the register's may be wider).
  LaneShape of_op(uint32_t function, uint32_t at) const;
  /// True where an operation may check what all lanes agree on and give the block up otherwise: in
  /// a kernel, before anything was written.
  bool may_speculate(uint32_t function, uint32_t at) const {
    return at < speculation_end_[function];
  }

private:
  bool pass(uint32_t function);
  bool assign(uint32_t function, uint32_t reg, LaneShape shape);
  bool constant_of(const ir::Function& function, const ir::Op& op, unsigned slot,
                   uint32_t function_index, int64_t& value) const;
  LaneShape operand(uint32_t function, const ir::Op& op, unsigned slot) const;

  const ir::Module& module_;
  uint32_t lanes_;
  std::vector<bool> reached_;
  std::vector<std::vector<LaneShape>> shapes_;
  /// Per function and register: 1 + index of the only operation that assigns it, 0 otherwise.
  std::vector<std::vector<uint32_t>> only_definition_;
  std::vector<uint32_t> speculation_end_;
};

/// True if the function (or one that it calls) asks for the indices of thread or block.
std::vector<bool> functions_using_special(const ir::Module& module);

} // namespace sparsertc
