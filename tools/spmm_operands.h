// The dense operands of one SpMM run: made or read, rounded to the problem's type, laid out as the
// kernel wants them, and handed to it in the order of its manifest.
#pragma once

#include "compiler/emit/host_program.h"
#include "compiler/input/matrix.h"
#include "compiler/inspect/spmm_problem.h"
#include "compiler/lower/kernel_manifest.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sparsertc {

/// Dense values in float64, row-major and tight; each is a value of the problem's type. Of a
/// convolution a row of B and C is a channel, and the columns are the pixels of all images, one
/// after the other.
struct SpmmOperands {
  uint32_t rows = 0;            ///< M, of C
  uint32_t inner = 0;           ///< K; of a convolution the channels
  uint32_t columns = 0;         ///< of C: N, or images * output pixels
  uint32_t b_columns = 0;       ///< of B: N, or images * input pixels
  uint32_t n = 0;               ///< what a launch is given: N, or the number of images
  std::vector<double> b;        ///< inner x b_columns
  std::vector<double> bias;     ///< M, or empty
  std::vector<double> residual; ///< M x columns, or empty
};

/// Where the operands come from; an empty path means: drawn from the seed, in [-1, 1).
struct OperandSources {
  std::string b, bias, residual;
  uint64_t seed = 1;
};

/// Makes or reads the operands. N is the problem's, else B's, else `default_columns`. Of a
/// convolution, whose geometry is complete (SpmmSchedule::request), files hold images as NCHW
/// whatever the layout. UserError where a file's shape is not what the problem needs.
SpmmOperands make_operands(const Matrix& weights, const SpmmProblem& problem,
                           const OperandSources& sources, uint32_t default_columns);

/// The element type that stands for the problem's type in files and conversions.
StoredType stored_type(DataType type);

/// The values one after the other in the problem's type, in host memory.
void encode_vector(const std::vector<double>& values, DataType type, uint8_t* where);

/// Bytes aligned for every vector access.
class AlignedBytes {
public:
  explicit AlignedBytes(size_t size = 0);
  std::byte* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  std::unique_ptr<std::byte[], Free> bytes_;
  size_t size_ = 0;
};

/// The operands as the kernel sees them. C is filled with NaN, so that an element that no thread
/// writes does not pass a check.
struct SpmmBuffers {
  AlignedBytes b, c, bias, residual;
  uint64_t ldb = 0; ///< elements
  uint64_t ldc = 0;
};
/// Where element (row, column) of B (or C) lies, in elements.
uint64_t b_position(const SpmmProblem& problem, uint64_t row, uint64_t column, uint64_t ldb);
uint64_t c_position(const SpmmProblem& problem, uint64_t row, uint64_t column, uint64_t ldc);
/// The shape of C in files: M x N, or [images, OC, height, width]; and its values in that order.
std::vector<uint64_t> result_shape(const SpmmOperands& operands, const SpmmProblem& problem);
std::vector<double> in_file_order(const SpmmOperands& operands, const SpmmProblem& problem,
                                  const std::vector<double>& c);

SpmmBuffers lay_out(const SpmmOperands& operands, const SpmmProblem& problem);
/// C as float64, M x columns, row-major.
std::vector<double> read_back(const SpmmBuffers& buffers, const SpmmOperands& operands,
                              const SpmmProblem& problem);

/// Addresses of the operands, in host or device memory.
struct OperandAddresses {
  void* b = nullptr;
  void* c = nullptr;
  void* bias = nullptr;
  void* residual = nullptr;
};
OperandAddresses addresses_of(const SpmmBuffers& buffers);
/// In the order of the kernel's parameters.
std::vector<KernelArgument> arguments_of(const KernelManifest& kernel,
                                         const OperandAddresses& addresses, uint32_t columns,
                                         uint64_t ldb, uint64_t ldc);

/// One launch on the CPU; returns when it is done.
void run_on_host(const HostProgram& program, const std::vector<KernelManifest>& kernels,
                 const SpmmBuffers& buffers, uint32_t columns, TaskPool& pool);

} // namespace sparsertc
