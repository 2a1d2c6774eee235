#include "tools/dense_call.h"

#include "compiler/inspect/dense_schedule.h"
#include "ir/error.h"

namespace sparsertc {
namespace {

cuda::DenseShape shape_of(const SpmmSchedule& schedule) {
  const SpmmProblem& problem = schedule.problem;
  cuda::DenseShape shape;
  shape.m = schedule.rows;
  shape.n = *problem.columns;
  shape.k = schedule.inner;
  shape.type = problem.type == DataType::f16    ? cuda::DenseShape::Type::f16
               : problem.type == DataType::bf16 ? cuda::DenseShape::Type::bf16
               : problem.type == DataType::f64  ? cuda::DenseShape::Type::f64
                                                : cuda::DenseShape::Type::f32;
  shape.tf32 = problem.precision == Precision::tf32;
  shape.lda = dense_array(schedule).leading;
  shape.column_major = problem.layout == Layout::column_major;
  shape.ldb = problem.ldb;
  shape.ldc = problem.ldc;
  shape.alignment = dense_alignment(schedule);
  shape.adds = problem.epilogue.residual;
  shape.relu = problem.epilogue.activation == Activation::relu;
  return shape;
}

} // namespace

DenseCall::DenseCall(const cuda::Context& gpu, std::span<const uint8_t> image,
                     const SpmmSchedule& schedule)
    : module_(gpu, image), product_(cuda::CublasLt::open(), shape_of(schedule)),
      array_(module_.array(std::string(kDenseSymbol))),
      workspace_(gpu, product_.workspace_bytes()) {}

std::unique_ptr<DenseCall> DenseCall::make(const cuda::Context& gpu, std::span<const uint8_t> image,
                                           const SpmmSchedule& schedule, std::string& refused) {
  if (schedule.tile.dense != DenseCode::library || schedule.tile_count() == 0)
    return nullptr;
  try {
    return std::unique_ptr<DenseCall>(new DenseCall(gpu, image, schedule));
  } catch (const RuntimeError& error) {
    refused = error.what();
    return nullptr;
  }
}

void DenseCall::enqueue(cuda::DeviceAddress b, cuda::DeviceAddress c, cuda::DeviceAddress residual,
                        const cuda::Stream& stream) const {
  product_.enqueue(array_.address(), b, residual, c, workspace_.address(), stream.handle());
}

} // namespace sparsertc
