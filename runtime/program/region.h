// Parts of a program that the device can carry out without the host: what is recorded and launched
// as one. README.md has the rules.
#pragma once

#include "ir/module.h"
#include "runtime/program/device.h"

#include <cstdint>
#include <map>
#include <vector>

namespace sparsertc::program {

/// A host buffer that a region only copies to, and decides by. While the region runs its contents
/// are in device memory.
struct Mirror {
  uint32_t buffer = 0;    ///< the register that its `alloc` assigns
  uint32_t copy = kNever; ///< the first operation that copies to it
  bool arrives = false;   ///< what it held before may be read, or stays
  static constexpr uint32_t kNever = UINT32_MAX;
};

/// What an `if` or the end of a loop decides by.
struct Decision {
  uint32_t mirror = 0; ///< index into Region::mirrors
  uint32_t load = 0;   ///< the operations
  uint32_t compare = 0;
};

/// Operations [begin, end) of one block, whole statements.
struct Region {
  uint32_t begin = 0, end = 0;
  std::vector<Mirror> mirrors;
  std::map<uint32_t, Decision> decisions; ///< by the operation that decides
  /// Index into `mirrors` of the buffer's register; UINT32_MAX where it is none.
  uint32_t mirror_of(uint32_t buffer) const;
};

/// The blocks of a function.
class Blocks {
public:
  explicit Blocks(const ir::Function& function);
  /// The operation that closes the block which `open` opens, an `if` with its `else`.
  uint32_t close(uint32_t open) const { return close_[open]; }
  /// The `else` of an `if`, or what closes it.
  uint32_t otherwise(uint32_t open) const { return otherwise_[open]; }
  /// The operation that opens the block around an operation; `kBody`: the function's body. An
  /// `else` opens its own, and opening and closing operations are in the block around them.
  uint32_t around(uint32_t op) const { return around_[op]; }
  static constexpr uint32_t kBody = UINT32_MAX;

private:
  std::vector<uint32_t> close_, otherwise_, around_;
};

/// The regions of a host function in their order, as large as they can be; not nested.
std::vector<Region> find_regions(const ir::Module& module, const ir::Function& function,
                                 const Blocks& blocks, Records records);

} // namespace sparsertc::program
