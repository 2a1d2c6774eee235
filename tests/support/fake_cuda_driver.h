// A CUDA driver without a GPU: its memory is host memory, it records every call, and any call can
// be made to fail. For tests.
#pragma once

#include "runtime/driver/cuda_api.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sparsertc::cuda {

/// Allocates as a device does: aligned to 256 bytes.
template <typename T>
struct DeviceAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{256};
  DeviceAllocator() = default;
  template <typename U>
  explicit DeviceAllocator(const DeviceAllocator<U>&) {}
  T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* address, size_t) { ::operator delete(address, kAlignment); }
  bool operator==(const DeviceAllocator&) const { return true; }
};

/// One at a time in a process: the driver's functions have no argument that could name it. The
/// driver's functions may be called from several threads at once; what is below only while none is.
class FakeCudaDriver {
public:
  FakeCudaDriver();
  ~FakeCudaDriver();
  FakeCudaDriver(const FakeCudaDriver&) = delete;
  FakeCudaDriver& operator=(const FakeCudaDriver&) = delete;

  DriverTable table() const;

  /// The call with this number (from 1, counted from now, of any kind) returns `result` and does
  /// nothing; 0: none.
  void fail_call(uint64_t number, Result result = Result::CUDA_ERROR_UNKNOWN);
  /// Every call of this name returns `result` and does nothing.
  void fail_every(const std::string& name, Result result);
  /// The name of the call that fail_call() made fail; empty while it has not come.
  std::string failed_call() const { return failed_; }
  std::vector<std::string> calls() const { return calls_; }
  uint64_t count(const std::string& name) const;

  /// What has been made and not yet given back: "context", "memory", "module", "link", "stream",
  /// "event", "graph", "graph executable", and "capture" for a stream that is still capturing.
  std::map<std::string, uint64_t> alive() const;

  struct Launch {
    std::string kernel;
    std::array<uint32_t, 3> grid{};
    std::array<uint32_t, 3> block{};
    uint32_t shared_bytes = 0;
    bool captured = false;
    StreamHandle stream = nullptr;
    void** parameters = nullptr; ///< valid during `on_launch` only
    /// The PTX text of its module, with its NUL; null for a cubin.
    std::shared_ptr<const std::vector<uint8_t>> image;
  };
  /// Called for every launch, one at a time; "runs" the kernel.
  std::function<void(const Launch&)> on_launch;
  /// Says how many words of 8 bytes a kernel's arguments are. Where it is given, graphs run when
  /// they are launched, conditional nodes and all, and so come to `on_launch`.
  std::function<size_t(const Launch&)> argument_words;
  /// Whether the driver has the functions for conditional nodes.
  bool conditional_nodes = true;
  std::vector<Launch> launches;
  /// Milliseconds between two events: of the launch, or of the last one in the graph, that came
  /// last before. Half of one where this is empty.
  std::function<float(const Launch&)> time_of;

  // What the fake device looks like.
  int32_t devices = 1;
  std::map<DeviceAttribute, int32_t> attributes;
  std::map<FunctionAttribute, int32_t> function_attributes;
  /// Blocks of a cooperative launch that can be resident at once; larger ones are refused.
  uint32_t resident_blocks = UINT32_MAX;
  /// Kernels that every module has, besides the entries of its PTX.
  std::set<std::string> kernels = {"kernel"};
  /// Arrays that every module has: address and bytes.
  std::map<std::string, std::pair<DeviceAddress, size_t>> arrays;
  /// What the assembler in the driver says when loading fails.
  std::string jit_error;
  /// The last PTX text that was loaded, with its NUL; empty for a cubin.
  std::vector<uint8_t> last_image;

  /// Counts the call and says what it must return; for the functions of the table.
  Result enter(const char* name);
  /// Held by a function of the table while it runs.
  std::recursive_mutex mutex;
  /// The context current on each thread.
  std::map<std::thread::id, ContextHandle> current_contexts;
  bool has_current_context() const;
  static FakeCudaDriver& current();

  /// A handle that is not alive yet.
  template <typename Handle>
  Handle next() {
    return reinterpret_cast<Handle>(++handles_);
  }
  template <typename Handle>
  void adopt(const std::string& kind, Handle handle) {
    alive_[kind].insert(reinterpret_cast<uint64_t>(handle));
  }
  template <typename Handle>
  Handle make(const std::string& kind) {
    const Handle handle = next<Handle>();
    adopt(kind, handle);
    return handle;
  }
  template <typename Handle>
  Result remove(const std::string& kind, Handle handle) {
    return alive_[kind].erase(reinterpret_cast<uint64_t>(handle)) == 1
               ? Result::CUDA_SUCCESS
               : Result::CUDA_ERROR_INVALID_HANDLE;
  }
  /// For contexts, which are given back by device and not by handle.
  Result remove_any(const std::string& kind);
  template <typename Handle>
  bool is_alive(const std::string& kind, Handle handle) const {
    const auto found = alive_.find(kind);
    return found != alive_.end() && found->second.count(reinterpret_cast<uint64_t>(handle)) == 1;
  }
  using Memory = std::vector<uint8_t, DeviceAllocator<uint8_t>>;
  std::map<DeviceAddress, Memory> memory;
  struct Function {
    std::string name;
    std::shared_ptr<const std::vector<uint8_t>> image;
  };
  std::map<FunctionHandle, Function> functions;
  std::map<ModuleHandle, std::shared_ptr<const std::vector<uint8_t>>> images;
  std::set<StreamHandle> capturing;
  Launch last_captured;
  std::map<GraphHandle, Launch> graphs;
  /// What a graph does: a launch, a copy, a part that a condition decides about.
  struct Node {
    std::optional<Launch> launch;
    std::vector<uint64_t> arguments;
    DeviceAddress to = 0, from = 0;
    size_t bytes = 0; ///< of a copy
    ConditionHandle condition = 0;
    bool repeats = false;
    GraphHandle body = nullptr; ///< of a conditional node
  };
  std::map<GraphHandle, std::vector<Node>> nodes;
  std::map<StreamHandle, GraphHandle> capture_graphs;
  std::map<ConditionHandle, std::pair<uint32_t, uint32_t>> conditions; ///< initial and present
  std::set<GraphHandle> bodies;                                        ///< of conditional nodes
  void run_graph(GraphHandle graph);
  std::map<GraphExecHandle, Launch> executables;
  std::map<GraphExecHandle, GraphHandle> executable_graphs;
  Launch last_executed;
  struct Link {
    std::vector<JitOption> options;
    std::vector<void*> values;
    std::vector<std::string> kernels;
    std::string log;
    std::vector<uint8_t> cubin;
  };
  std::map<LinkHandle, Link> links;
  Link last_link; ///< as it was created

private:
  std::vector<std::string> calls_;
  uint64_t countdown_ = 0;
  Result countdown_result_ = Result::CUDA_ERROR_UNKNOWN;
  std::map<std::string, Result> always_;
  std::string failed_;
  uint64_t handles_ = 0;
  std::map<std::string, std::set<uint64_t>> alive_;
};

} // namespace sparsertc::cuda
