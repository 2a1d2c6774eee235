// PTX -> cubin. An assembler is an object; ptxas as a subprocess is one, and the runtime can hand
// in others.
#pragma once

#include "compiler/assemble/job_limit.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

struct AssembleRequest {
  /// PTX text. One unit is a whole program; several are relocatable units, assembled in parallel
  /// and linked.
  std::span<const std::string> units;
  std::string target; ///< "sm_90a"
  /// Entries that the result must hold.
  std::vector<std::string> kernels;
  /// What the units were made from, lines of `fact=value` in a fixed order; part of a cache's key.
  std::string provenance;
  unsigned optimisation_level = 3; ///< 0 to 3
  uint32_t max_registers = 0;      ///< a thread; 0: no cap
  unsigned jobs = 0;               ///< processes at once; 0: one for each core
  /// Shared with other requests, so that all together have no more jobs than it lets run; or null.
  JobLimit* limit = nullptr;
  /// Set by somebody else to stop: running processes are ended and assemble() throws.
  const std::atomic<bool>* stop = nullptr;
  /// Where a failing unit is kept with the command line; empty: the folder for temporary files.
  std::string reproduce_directory;
  /// What a line (from 1) of a unit was emitted for, "row 3, column 5"; empty where nothing is
  /// known. Asked only when that line is refused, so it may be slow. May be empty itself.
  std::function<std::string(size_t unit, uint64_t line)> origin_of;
};

/// What one function takes; zeros where the assembler does not say.
struct FunctionResources {
  std::string name;
  bool is_kernel = false;
  uint32_t registers = 0; ///< a thread; of a kernel with all that it calls
  uint32_t barriers = 0;
  uint32_t stack_bytes = 0; ///< a thread
  uint32_t spill_store_bytes = 0;
  uint32_t spill_load_bytes = 0;
  uint32_t shared_bytes = 0; ///< a block, static
  uint64_t code_bytes = 0;
};

struct Assembled {
  std::vector<uint8_t> cubin;
  std::string assembler; ///< as Assembler::identity()
  std::string log;       ///< everything it said, units in order
  /// Kernels and the functions they call, by name.
  std::vector<FunctionResources> functions;
};

class Assembler {
public:
  virtual ~Assembler() = default;
  /// Name and version, "ptxas 13.0.88": part of what a result depends on.
  virtual std::string identity() const = 0;
  /// Throws RuntimeError where the machine or the assembler refuses (no space, unknown target,
  /// stopped) and InternalError where it finds fault with our PTX; the message has the line, its
  /// text and origin, and names a folder with all that is needed to see it again. May be called by
  /// several threads at once.
  virtual Assembled assemble(const AssembleRequest& request) const = 0;
};

/// The most registers a thread may have so that a block of `threads` fits (65536 registers a
/// multiprocessor, given out in eights, at most 255).
uint32_t register_limit(uint64_t threads);

} // namespace sparsertc
