// A module: symbols, functions and the origins of operations.
#pragma once

#include "ir/op.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sparsertc::ir {

enum class FunctionKind : uint8_t {
  device, ///< `func`: called from kernels, one thread's work
  kernel, ///< `kernel`: an entry, launched over a grid
  host,   ///< `host`: program level, runs on the CPU
};

/// A function: its first `parameter_count` registers are the parameters. The body is one list of
/// operations; `for`, `loop` and `if` nest by their closing operations. No function returns a
/// value.
struct Function {
  std::string name;
  FunctionKind kind = FunctionKind::device;
  /// `cpu` functions have inputs and intermediates in host memory (program level only).
  bool cpu = false;
  /// A kernel or host function of which only the name and the parameters are known here: whoever
  /// runs the program brings it. No operations.
  bool external = false;
  /// Threads of a block (kernels only).
  uint32_t block[3] = {1, 1, 1};
  /// Blocks of a cluster (kernels only): the grid is a multiple along each axis.
  uint32_t cluster[3] = {1, 1, 1};
  /// Cap on registers a thread for the assembler, 0 for none (kernels only).
  uint32_t max_registers = 0;

  uint32_t parameter_count = 0;
  std::vector<Type> register_type;
  /// Names of the registers that have one ("%columns"); the others print as their number.
  std::map<uint32_t, std::string> register_name;
  std::vector<Op> ops;
  /// Operand lists of call, switch and launch.
  std::vector<uint32_t> pool;

  Type type_of(Reg reg) const { return register_type[reg.id]; }
  /// An entry whose code is here.
  bool is_kernel() const { return kind == FunctionKind::kernel && !external; }
  bool has_cluster() const { return cluster[0] != 1 || cluster[1] != 1 || cluster[2] != 1; }
  /// A host function with parameters in `any` memory: sequential work that may run on either side.
  bool is_sequential() const;
};

/// An array of the module: `constant` (initialised, at most 64 KB together), `shared` (a block's,
/// not initialised) or `device` (initialised, read-only).
struct Symbol {
  std::string name;
  Type type; ///< pointer type: space and element
  uint64_t count = 0;
  uint32_t alignment = 16;
  /// count * size_in_bytes(element) little-endian bytes; empty for `shared`.
  std::vector<uint8_t> bytes;
};

/// Where an operation comes from in the sparse matrix.
struct Origin {
  uint32_t row = 0;
  uint32_t column = 0;
  friend bool operator==(Origin, Origin) = default;
};

struct Module {
  /// Facts about the module in the order given, printed as `attribute "key" "value"`; emitters put
  /// them into header comments.
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<Symbol> symbols;
  std::vector<Function> functions;
  std::vector<Origin> origins;

  /// Index by name; UINT32_MAX where there is none.
  uint32_t find_function(std::string_view name) const;
  uint32_t find_symbol(std::string_view name) const;
};

} // namespace sparsertc::ir
