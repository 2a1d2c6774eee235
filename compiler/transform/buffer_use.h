// Where the buffers of a program are touched, and where their contents matter.
#pragma once

#include "compiler/transform/memory_effects.h"
#include "compiler/transform/program_shape.h"
#include "ir/module.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

/// What one operation does to one buffer, all its mentions taken together.
struct BufferTouch {
  uint32_t op = 0;
  uint32_t buffer = 0;
  bool reads = false;
  bool writes = false;
  /// Writes every element, so that nothing of what was there before is left.
  bool overwrites = false;
};

/// A buffer: the one register that an `alloc` assigns, used by that name only.
struct Buffer {
  uint32_t reg = 0;
  ir::Type type;
  uint32_t alloc = 0;    ///< the operation
  uint32_t elements = 0; ///< its operand: a register, or ir::kImmediate
  int64_t count = 0;     ///< elements; by convention where not `known`
  bool known = false;

  int64_t bytes() const;
};

/// The buffers of a host function and all that touches them, except `alloc` and `free`.
struct BufferUse {
  std::vector<Buffer> buffers;
  std::vector<BufferTouch> touches; ///< by operation, then by first mention
  /// Operation k has the touches from first_touch[k] on, up to first_touch[k + 1].
  std::vector<uint32_t> first_touch;
};
BufferUse find_buffer_use(const ir::Function& function, const ProgramShape& shape,
                          MemoryEffects& effects);

/// The points of a function as one buffer sees them: before and after an operation that does
/// nothing to it there is one state, which has a number. Between operations the state may change
/// where one of the two has to do with the buffer: touches it, or opens or closes a block in which
/// it is touched.
class BufferPoints {
public:
  BufferPoints(const ir::Function& function, const ProgramShape& shape, const BufferUse& use,
               uint32_t buffer);

  uint32_t state(uint32_t point) const { return state_[point]; }
  uint32_t states() const { return static_cast<uint32_t>(defined_.size()); }
  /// Something may have been written there.
  bool defined(uint32_t point) const { return defined_[state_[point]] != 0; }
  /// What is there may be read.
  bool live(uint32_t point) const { return live_[state_[point]] != 0; }

private:
  std::vector<uint32_t> state_;
  std::vector<uint8_t> defined_, live_;
};

} // namespace sparsertc
