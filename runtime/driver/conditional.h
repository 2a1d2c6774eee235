// Parts of a graph that the device itself repeats or leaves out: conditional nodes (CUDA 12.4).
//
// A condition is a number that belongs to a graph. A kernel in the graph sets it; a conditional
// node behind that kernel runs its body if it is not 0, or as long as it is not 0, in which case
// the body sets it again.
#pragma once

#include "runtime/driver/cuda_objects.h"

#include <cstdint>
#include <functional>

namespace sparsertc::cuda {

/// A condition of the graph that the stream is recording; that of each launch begins as `initial`.
ConditionHandle make_condition(const Context& context, const Stream& stream, bool initial);

/// Adds a node behind all that the stream has recorded. `body` is given a stream on which it
/// enqueues what the node runs: kernels, copies in device memory, other such nodes.
void record_conditional(const Context& context, const Stream& stream, ConditionHandle condition,
                        ConditionalType type, const std::function<void(const Stream&)>& body);

/// How an element in device memory compares with a number. Of a number that is NaN, and of an
/// element that is, only `unordered` can be true.
struct ElementTest {
  enum class Type : uint8_t { i32, i64, f32, f64 };
  Type type = Type::i32;
  bool unsigned_order = false; ///< integers
  bool less = false, equal = false, greater = false, unordered = false;
  uint64_t number = 0; ///< an integer, sign-extended, or the bits of an f64
};

/// The kernel that sets conditions. Needs a driver that has conditional nodes.
class ConditionSetter {
public:
  explicit ConditionSetter(const Context& context);
  /// Enqueues setting the condition to whether the element passes the test.
  void enqueue(const Stream& stream, ConditionHandle condition, DeviceAddress element,
               const ElementTest& test) const;

private:
  const Context& context_;
  Module module_;
  Kernel kernel_;
};

} // namespace sparsertc::cuda
