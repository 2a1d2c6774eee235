// Runs PTX text on the CPU: an oracle for the PTX printers on machines without a GPU.
//
// The interpreter knows nothing of the compiler: it reads the text with the meaning that the PTX
// ISA gives it and shares no code with what writes it. Arithmetic is exact where the ISA says so:
// every .rn result is the correctly rounded one. What real hardware would let pass in silence is an
// error here: accesses outside a registered buffer, misaligned accesses, writes to read-only
// buffers, reads of shared memory that nobody wrote, races on shared memory between barriers, reads
// of an asynchronous copy's target before it was waited for, and barriers that wait for ever.
//
// Covered: kernels and functions with .reg and .param parameters, branches, brx.idx, calls, integer
// and floating-point arithmetic on 16, 32 and 64 bits and on f16x2 and bf16x2, conversions, all
// loads and stores (const, global, shared, param, generic; vectors; cache, order and scope words),
// cp.async, atomics, barriers, shuffles, votes, mma.sync and mma.sp with f32 sums, ldmatrix of four
// transposed matrices. Not covered:
// approximations (ex2.approx, ...), which have no exact meaning, .local memory, textures. Of
// clusters: .reqnctapercluster, mapa, loads of .shared::cluster, barrier.cluster. Floating-point
// operations without a rounding word (`add.f32`) are refused: an assembler may fuse them, so their
// result is not determined.
//
// Clusters of blocks (of one block, where nothing is said) run one after another, so a kernel whose
// clusters wait for each other does not end here; it is stopped by the instruction limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc::ptx {

enum class ErrorKind : uint8_t {
  syntax,        ///< the text is malformed: unknown name, wrong register width, ...
  unsupported,   ///< PTX that the interpreter does not know
  launch,        ///< wrong entry, arguments, block or shared memory
  out_of_bounds, ///< an access outside every registered buffer or symbol
  misaligned,    ///< an address that is no multiple of the access's size
  read_only,     ///< a write to a buffer or symbol that may not be written
  uninitialised, ///< a read of shared memory that was never written
  race,          ///< two threads on one byte of shared memory, one writing, no barrier between
  stale_copy,    ///< an access to bytes of an asynchronous copy that was not waited for
  deadlock,      ///< threads that wait for ever
  divergence,    ///< an operation of a whole warp that not all its threads reach
  trap,          ///< the kernel executed `trap`, or branched or called nowhere
  limit,         ///< more instructions than allowed
};
std::string_view to_string(ErrorKind kind);

/// What went wrong, where: what() holds the line's number and text, and the thread when one ran.
class Error : public std::runtime_error {
public:
  Error(ErrorKind kind, uint32_t line, const std::string& message)
      : std::runtime_error(message), kind_(kind), line_(line) {}
  ErrorKind kind() const { return kind_; }
  /// 1-based line of the PTX text; 0 where no line is to blame.
  uint32_t line() const { return line_; }

private:
  ErrorKind kind_;
  uint32_t line_;
};

struct DecodedProgram;

/// Parsed PTX. Cheap to copy.
class Program {
public:
  /// Instructions in the text (all functions) by opcode with its words: "fma.rn.f32" -> 26214.
  const std::map<std::string, uint64_t>& opcode_counts() const;
  /// The sum of opcode_counts() over the opcodes that begin with `prefix`.
  uint64_t count(std::string_view prefix) const;
  /// Names of the entries in the order of the text.
  std::vector<std::string> entries() const;
  /// The words after .target and .version.
  const std::string& target() const;
  const std::string& version() const;

  const DecodedProgram& decoded() const { return *decoded_; }
  explicit Program(std::shared_ptr<const DecodedProgram> decoded) : decoded_(std::move(decoded)) {}

private:
  std::shared_ptr<const DecodedProgram> decoded_;
};

/// Parses one file of PTX; throws Error (syntax, unsupported).
Program parse(std::string_view text);
/// Parses and links several files: `.extern` names of one are defined by another.
Program parse_units(std::span<const std::string> texts);

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

struct RunStatistics {
  uint64_t instructions = 0; ///< executed, counted per thread (predicated-off ones included)
  uint64_t barriers = 0;     ///< completed, counted per block
};

class Machine {
public:
  /// Makes `bytes` bytes of host memory visible to kernels and returns their device address, which
  /// is aligned like the host pointer, to at most 16 bytes plus any larger alignment asked for by
  /// vector accesses (256). Addresses of different buffers are far apart: no overrun of one reaches
  /// another. The memory must outlive the machine's runs.
  uint64_t register_buffer(void* host, size_t bytes, bool writable, std::string name = {});
  /// A read-only buffer.
  uint64_t register_buffer(const void* host, size_t bytes, std::string name = {});
  /// Forgets all buffers.
  void clear();

  /// Most instructions (per thread, all threads together) of one run.
  void set_instruction_limit(uint64_t limit) { instruction_limit_ = limit; }

  /// Runs the entry over the grid, block after block. `arguments`: one word a parameter; narrower
  /// parameters take the low bytes. Module-scope variables start from their initialisers in every
  /// run. Throws Error.
  RunStatistics run(const Program& program, std::string_view entry, Dim3 grid, Dim3 block,
                    std::span<const uint64_t> arguments, uint32_t dynamic_shared_bytes = 0);

  struct Buffer {
    uint8_t* host = nullptr;
    uint64_t address = 0;
    uint64_t bytes = 0;
    bool writable = false;
    std::string name;
    /// One flag a byte, set by stores of the current run: a non-coherent load may not see them.
    std::vector<uint8_t> written;
  };

private:
  std::vector<Buffer> buffers_;
  uint64_t instruction_limit_ = uint64_t{1} << 34;
};

} // namespace sparsertc::ptx
