#include "runtime/driver/conditional.h"

#include "ir/error.h"

#include <string_view>

namespace sparsertc::cuda {
namespace {

constexpr uint64_t kUnsignedBias = uint64_t{1} << 63;
constexpr uint32_t kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8;

// cudaGraphSetConditional is the driver's: nothing is linked for it. PTX as text, so that no
// compiler is needed where the program runs.
constexpr std::string_view kSetter = R"(.version 8.0
.target sm_80
.address_size 64

.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

// Sets the condition to bit 0 (less), 1 (equal), 2 (greater) or 3 (unordered) of `accepted`, as the
// element compares with `number`. type: 0 i32, 1 i64, 2 f32, 3 f64. Integers are compared as signed
// numbers after `bias` has been xor-ed to both.
.visible .entry sparsertc_set_condition(
  .param .u64 condition,
  .param .u64 element,
  .param .u64 type,
  .param .u64 number,
  .param .u64 bias,
  .param .u64 accepted)
{
  .reg .pred %p<8>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<10>;
  .reg .f32 %f<2>;
  .reg .f64 %fd<3>;
  ld.param.u64 %rd0, [condition];
  ld.param.u64 %rd1, [element];
  ld.param.u64 %rd2, [type];
  ld.param.u64 %rd3, [number];
  ld.param.u64 %rd4, [bias];
  ld.param.u64 %rd5, [accepted];
  cvta.to.global.u64 %rd1, %rd1;
  cvt.u32.u64 %r0, %rd5;
  setp.ge.u64 %p0, %rd2, 2;
  @%p0 bra FLOATS;
  setp.eq.u64 %p1, %rd2, 0;
  @%p1 ld.global.s32 %rd6, [%rd1];
  @!%p1 ld.global.s64 %rd6, [%rd1];
  xor.b64 %rd6, %rd6, %rd4;
  xor.b64 %rd3, %rd3, %rd4;
  setp.lt.s64 %p2, %rd6, %rd3;
  setp.eq.s64 %p3, %rd6, %rd3;
  selp.b32 %r1, 1, 2, %p3;
  selp.b32 %r1, 0, %r1, %p2;
  bra.uni SET;
FLOATS:
  setp.eq.u64 %p1, %rd2, 2;
  @!%p1 bra WIDE;
  ld.global.f32 %f0, [%rd1];
  cvt.f64.f32 %fd0, %f0;
  bra.uni COMPARE;
WIDE:
  ld.global.f64 %fd0, [%rd1];
COMPARE:
  mov.b64 %fd1, %rd3;
  setp.lt.f64 %p2, %fd0, %fd1;
  setp.eq.f64 %p3, %fd0, %fd1;
  setp.gt.f64 %p4, %fd0, %fd1;
  selp.b32 %r1, 2, 3, %p4;
  selp.b32 %r1, 1, %r1, %p3;
  selp.b32 %r1, 0, %r1, %p2;
SET:
  shr.u32 %r2, %r0, %r1;
  and.b32 %r2, %r2, 1;
  {
  .param .b64 handle;
  .param .b32 value;
  st.param.b64 [handle], %rd0;
  st.param.b32 [value], %r2;
  call.uni cudaGraphSetConditional, (handle, value);
  }
  ret;
}
)";

struct Recording {
  GraphHandle graph = nullptr;
  const GraphNodeHandle* last = nullptr; ///< what the next node stands behind
  size_t last_count = 0;
};

Recording recording_of(const Context& context, const Stream& stream) {
  uint32_t status = 0;
  uint64_t id = 0;
  Recording recording;
  check(context.api().cuStreamGetCaptureInfo(stream.handle(), &status, &id, &recording.graph,
                                             &recording.last, nullptr, &recording.last_count),
        "cuStreamGetCaptureInfo", "recording a graph");
  if (recording.graph == nullptr)
    throw InternalError("a conditional node on a stream that records no graph");
  return recording;
}

} // namespace

ConditionHandle make_condition(const Context& context, const Stream& stream, bool initial) {
  ConditionHandle condition = 0;
  check(context.api().cuGraphConditionalHandleCreate(
            &condition, recording_of(context, stream).graph, context.handle(), initial ? 1 : 0,
            kConditionAssignDefault),
        "cuGraphConditionalHandleCreate", "recording a graph");
  return condition;
}

void record_conditional(const Context& context, const Stream& stream, ConditionHandle condition,
                        ConditionalType type, const std::function<void(const Stream&)>& body) {
  const DriverTable& api = context.api();
  const Recording recording = recording_of(context, stream);
  ConditionalNodeParams parameters;
  parameters.handle = condition;
  parameters.type = type;
  parameters.context = context.handle();
  GraphNodeHandle node = nullptr;
  check(api.cuGraphAddNode(&node, recording.graph, recording.last, nullptr, recording.last_count,
                           &parameters),
        "cuGraphAddNode", "recording a conditional node");
  check(api.cuStreamUpdateCaptureDependencies(stream.handle(), &node, nullptr, 1,
                                              kSetCaptureDependencies),
        "cuStreamUpdateCaptureDependencies", "recording a conditional node");
  const Stream inner(context);
  check(api.cuStreamBeginCaptureToGraph(inner.handle(), parameters.bodies[0], nullptr, nullptr, 0,
                                        kCaptureModeThreadLocal),
        "cuStreamBeginCaptureToGraph", "recording a conditional node");
  GraphHandle graph = nullptr; // the node's own
  try {
    body(inner);
  } catch (...) {
    api.cuStreamEndCapture(inner.handle(), &graph);
    throw;
  }
  check(api.cuStreamEndCapture(inner.handle(), &graph), "cuStreamEndCapture",
        "recording a conditional node");
}

ConditionSetter::ConditionSetter(const Context& context)
    : context_(context),
      module_(context, {reinterpret_cast<const uint8_t*>(kSetter.data()), kSetter.size() + 1}),
      kernel_(module_.kernel("sparsertc_set_condition")) {}

void ConditionSetter::enqueue(const Stream& stream, ConditionHandle condition,
                              DeviceAddress element, const ElementTest& test) const {
  uint64_t arguments[] = {condition,
                          element,
                          static_cast<uint64_t>(test.type),
                          test.number,
                          test.unsigned_order ? kUnsignedBias : 0,
                          (test.less ? kLess : 0) | (test.equal ? kEqual : 0) |
                              (test.greater ? kGreater : 0) | (test.unordered ? kUnordered : 0)};
  void* pointers[std::size(arguments)];
  for (size_t i = 0; i < std::size(arguments); ++i)
    pointers[i] = &arguments[i];
  check(context_.api().cuLaunchKernel(kernel_.handle, 1, 1, 1, 1, 1, 1, 0, stream.handle(),
                                      pointers, nullptr),
        "cuLaunchKernel", "setting the condition of a graph");
}

} // namespace sparsertc::cuda
