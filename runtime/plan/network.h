// Several layers from one bundle, run one after the other on one stream with one piece of device
// memory beside input and output.
//
//   bundle --> manifest, bundles of the layers --> plans --> execute: a launch (or more) a layer
//
// Everything slow happens in the constructor; what an execution changes lies in its workspace, so
// that several threads may execute one network at once, each with its own workspace.
#pragma once

#include "runtime/plan/network_manifest.h"
#include "runtime/plan/plan.h"

#include <memory>
#include <string>
#include <vector>

namespace sparsertc {

/// Addresses are device memory.
struct NetworkArguments {
  cuda::DeviceAddress input = 0;  ///< what the first layers read: their B
  cuda::DeviceAddress output = 0; ///< C of the last layer; may not overlap the input
  /// Columns or images, where they are given at each execution; else 0, or what the first layer
  /// was compiled for.
  int64_t n = 0;
};

class Network {
public:
  /// Loads the bundle `name` (for messages). Throws as Plan does, of each layer; UserError also
  /// where the layers do not fit together.
  Network(std::shared_ptr<const ExecutionContext> context, Bundle bundle, const std::string& name);

  const NetworkManifest& manifest() const { return manifest_; }
  /// The manifest's JSON text.
  const std::string& manifest_text() const { return manifest_text_; }
  const ExecutionContext& context() const { return *context_; }
  size_t layers() const { return plans_.size(); }
  /// Binding values to it changes the network, too. Never null.
  const std::shared_ptr<Plan>& plan(size_t layer) const { return plans_[layer]; }
  /// Bytes to which input and output must be aligned.
  uint64_t operand_alignment() const { return alignment_; }

  /// Columns or images of the first layer; -1 where they are given at each execution.
  int64_t n() const;
  /// What n multiplies: `n` itself where it is given at each execution, else 1. Throws UsageError
  /// for an n that the network cannot take.
  uint64_t units(int64_t n) const;
  /// Device memory that every execution under way needs for itself.
  uint64_t workspace_bytes(int64_t n) const;
  static constexpr uint64_t kWorkspaceAlignment = kNetworkAlignment;

  /// Enqueues what a workspace must hold before its first execution: status record and biases. The
  /// network must stay until the stream has passed it.
  void initialize_workspace(cuda::DeviceAddress workspace, cuda::StreamHandle stream) const;

  /// Enqueues all layers in their order, as Plan::execute does.
  void execute(const NetworkArguments& arguments, cuda::DeviceAddress workspace,
               cuda::StreamHandle stream) const;
  /// Enqueues one of them. What it reads must be there.
  void execute_layer(size_t layer, const NetworkArguments& arguments, cuda::DeviceAddress workspace,
                     cuda::StreamHandle stream) const;
  /// Where a layer's output lies after it has run, until another layer needs the place.
  cuda::DeviceAddress output_of(size_t layer, const NetworkArguments& arguments,
                                cuda::DeviceAddress workspace) const;

  /// As Plan::status.
  StatusRecord status(cuda::DeviceAddress workspace, cuda::StreamHandle stream) const;

private:
  void check_layers(const std::string& name) const;

  std::shared_ptr<const ExecutionContext> context_;
  NetworkManifest manifest_;
  std::string manifest_text_;
  std::vector<uint8_t> biases_;
  std::vector<std::shared_ptr<Plan>> plans_;
  uint64_t alignment_ = 1;
};

/// Bytes of B (or C) of a layer, where n is given at the launch for n = 1. Leading dimensions must
/// be tight.
uint64_t input_bytes(const PlanManifest& manifest);
uint64_t output_bytes(const PlanManifest& manifest);

} // namespace sparsertc
