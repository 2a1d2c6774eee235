// The decoded form of PTX that the interpreter's machine executes; internal to the interpreter.
#pragma once

#include "tests/support/ptx_interpreter.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sparsertc::ptx {

/// What an instruction does. The first part is the table of ptx_interpreter_ops.def.
enum class Code : uint16_t {
#define PTX_VALUE1(code, ...) code,
#define PTX_VALUE2(code, ...) code,
#define PTX_VALUE3(code, ...) code,
#include "tests/support/ptx_interpreter_ops.def"
  convert,    ///< pool[extra]: ConversionRule; d, a
  mov_pack,   ///< d <- width elements of `size` bytes each from pool[extra..]
  mov_unpack, ///< pool[extra..] <- a
  load,       ///< d (or pool[extra..] for vectors) <- [a + immediate]
  store,      ///< [a + immediate] <- b (or pool[extra..])
  atomic,     ///< d <- old [a + immediate]; b operand, c second operand of cas
  copy_async, ///< [d + immediate] <- [a + pool constant]; b source size, c ignore predicate
  copy_commit,
  copy_wait,      ///< immediate = groups that may stay in flight
  fence,          ///< nothing to do: threads of a block share one memory here
  barrier,        ///< a number, b count (kNone: all threads)
  cluster_arrive, ///< barrier.cluster
  cluster_wait,
  map_shared,   ///< d <- address in .shared::cluster of a in block b of the cluster
  barrier_warp, ///< a member mask
  shuffle,      ///< d, pool[extra] predicate result; a, b, c, and pool[extra + 1] mask
  vote,         ///< d; a predicate (negated by flag), b mask
  active_mask,
  match_any,    ///< d; a, b mask
  reduce_warp,  ///< redux.sync: d; a, b mask
  mma,          ///< pool[extra..]: see MmaRule
  load_matrix,  ///< pool[extra..]: four results; [a + immediate] is this lane's row
  branch,       ///< immediate = target
  branch_table, ///< a index; pool[extra] = count, then the targets
  call,         ///< pool[extra..]: function, then pairs (callee slot, operand), see decoder
  ret,
  exit,
  trap,
  nop,
};

/// Where an operand's value is: the two upper bits say the base (the thread's frame, the program's
/// constants, the thread's special registers), the rest is the index of a 64-bit word.
using OperandRef = uint32_t;
inline constexpr OperandRef kFrameBase = 0u << 30;
inline constexpr OperandRef kConstantBase = 1u << 30;
inline constexpr OperandRef kSpecialBase = 2u << 30;
inline constexpr OperandRef kOperandIndex = (1u << 30) - 1;
inline constexpr OperandRef kNone = UINT32_MAX;

enum class Space : uint8_t { generic, global, shared, cluster, constant, param };

/// Instruction::flags
inline constexpr uint8_t kSigned = 1;      ///< loads: sign-extend into wider registers
inline constexpr uint8_t kNonCoherent = 2; ///< ld.global.nc
inline constexpr uint8_t kStrong = 4;      ///< relaxed, acquire, release, volatile: no data race
inline constexpr uint8_t kNegated = 8;     ///< the source predicate is negated
inline constexpr uint8_t kAligned = 16;    ///< barriers: whole warps take part

struct Instruction {
  Code code = Code::nop;
  Space space = Space::generic;
  uint8_t size = 0;  ///< bytes of an element
  uint8_t width = 1; ///< elements
  uint8_t flags = 0;
  uint8_t rule = 0; ///< comparison, atomic, shuffle, vote: which
  uint8_t reserved = 0;
  /// Slot of the guard predicate * 2 + negated, or kNone.
  uint32_t guard = kNone;
  uint32_t d = kNone, a = kNone, b = kNone, c = kNone;
  uint32_t extra = 0;
  int64_t immediate = 0;
};

/// Element types of conversions and atomics.
enum class ScalarType : uint8_t {
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  tf32,
  f32,
  f64,
  pred
};

enum class AtomicRule : uint8_t {
  add,
  min,
  max,
  bit_and,
  bit_or,
  bit_xor,
  exchange,
  cas,
  inc,
  dec
};
enum class ShuffleRule : uint8_t { up, down, butterfly, index };
enum class VoteRule : uint8_t { ballot, all, any, uniform };

/// Pool words of a conversion: to, from, rounding, saturate.
/// Pool words of a call: function index, number of arguments, then (callee slot, words, operand);
/// number of results, then (caller slot, callee slot, words).
/// Pool words of an mma: element type of A and B, k, sparse, count and operands of d, a, b, c, then
/// metadata operand and selector.

struct Parameter {
  std::string name;
  uint32_t slot = 0; ///< of the frame
  uint32_t bytes = 0;
  bool is_register = false;
};

struct FunctionCode {
  std::string name;
  bool is_entry = false;
  bool defined = false;
  uint32_t first = 0; ///< instruction
  uint32_t frame_words = 0;
  std::vector<Parameter> parameters;
  std::vector<Parameter> results;
  uint32_t required_threads[3] = {0, 0, 0}; ///< .reqntid, 0 where absent
  uint32_t maximum_threads = 0;             ///< .maxntid, 0 where absent
  uint32_t cluster[3] = {1, 1, 1};          ///< .reqnctapercluster
  bool uses_extern_shared = false;
};

struct Variable {
  std::string name;
  Space space = Space::global;
  uint32_t alignment = 1;
  uint64_t bytes = 0;
  uint64_t address = 0; ///< within its space
  bool writable = true;
  bool external_shared = false;
  bool defined = true;
  std::vector<uint8_t> initial; ///< empty: zeros (global, const), nothing (shared)
};

struct DecodedProgram {
  std::vector<Instruction> code;
  std::vector<uint32_t> line; ///< of each instruction; unit in the upper 8 bits
  std::vector<uint32_t> pool;
  std::vector<uint64_t> constants;
  /// Constants that are addresses within dynamic shared memory.
  std::vector<uint32_t> extern_shared_constants;
  std::vector<FunctionCode> functions;
  std::vector<Variable> variables;
  uint64_t shared_bytes = 0; ///< static ones; dynamic shared memory begins here, aligned
  uint64_t constant_bytes = 0;
  std::vector<uint8_t> constant_memory;
  std::string target, version;
  std::map<std::string, uint64_t> opcode_counts;
  std::vector<std::string> texts;
  std::vector<std::vector<uint32_t>> line_starts;

  /// "line 12: `ld.global.f32 %f1, [%rd1];`" of an instruction.
  std::string describe_line(uint32_t line_and_unit) const;
};

/// Generic addresses: global ones are their own; shared and constant memory appear in windows.
inline constexpr uint64_t kConstantWindow = uint64_t{1} << 38;
inline constexpr uint64_t kSharedWindow = uint64_t{1} << 39;
/// Addresses of .shared::cluster: the block's rank + 1 above the address in its memory; without one
/// the own block is meant.
inline constexpr unsigned kRankShift = 24;
/// Bits of an address below the number of its buffer; module variables count from kVariableRegion.
inline constexpr unsigned kRegionBits = 40;
inline constexpr uint64_t kVariableRegion = uint64_t{1} << 20;
/// Offset of a buffer in its region.
inline constexpr uint64_t kBufferOffset = 4096;

/// Indices of special registers in a thread's special words.
enum class SpecialRegister : uint32_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  lanemask_eq,
  lanemask_lt,
  lanemask_le,
  lanemask_gt,
  lanemask_ge,
  dynamic_smem_size,
  total_smem_size,
  count
};

} // namespace sparsertc::ptx
