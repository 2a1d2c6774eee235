// What the driver hands out, each with one owner: context, module, kernel, buffer, stream, event.
//
// Everything made on a context must go before it does. Destructors ignore the driver's answer:
// after a kernel's fault every call fails, and the first failure has been reported already.
#pragma once

#include "runtime/driver/cuda_driver.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace sparsertc::cuda {

struct DeviceProperties {
  std::string name;                ///< "NVIDIA H200"
  uint32_t compute_capability = 0; ///< 90 for 9.0
  uint32_t multiprocessors = 0;
  uint32_t max_threads_per_block = 0;
  uint32_t max_registers_per_block = 0;
  uint32_t max_shared_bytes_per_block = 0; ///< with opt-in
  uint32_t max_grid[3] = {0, 0, 0};
  uint64_t l2_cache_bytes = 0;
  uint64_t memory_bytes = 0;
};

/// A device's primary context, current on the thread that made it.
class Context {
public:
  /// Throws UsageError where there is no such device, RuntimeError where the driver refuses.
  explicit Context(std::shared_ptr<const Driver> driver, unsigned ordinal = 0);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// To be called by every other thread before it uses what belongs to this context.
  void make_current() const;

  const DriverTable& api() const { return driver_->api(); }
  const Driver& driver() const { return *driver_; }
  ContextHandle handle() const { return handle_; }
  const DeviceProperties& properties() const { return properties_; }
  /// Bytes of device memory free now.
  uint64_t free_memory() const;

private:
  std::shared_ptr<const Driver> driver_;
  DeviceOrdinal device_ = 0;
  DeviceProperties properties_;
  ContextHandle handle_ = nullptr;
};

/// A queue of work on the device.
class Stream {
public:
  explicit Stream(const Context& context);
  /// Somebody else's, which stays theirs; null is the default stream.
  Stream(const Context& context, StreamHandle handle)
      : context_(context), handle_(handle), is_borrowed_(true) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Waits. Kernels' faults are reported here: `doing` says what had been enqueued.
  void synchronize(const char* doing = "waiting for the GPU") const;
  StreamHandle handle() const { return handle_; }

private:
  const Context& context_;
  StreamHandle handle_ = nullptr;
  bool is_borrowed_ = false;
};

class Event {
public:
  explicit Event(const Context& context);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream) const;
  void synchronize() const;
  /// Microseconds from `start` to this event; both must have happened.
  double microseconds_since(const Event& start) const;

private:
  const Context& context_;
  EventHandle handle_ = nullptr;
};

/// Device memory. A buffer of 0 bytes has no address and takes no memory.
class DeviceBuffer {
public:
  DeviceBuffer(const Context& context, uint64_t bytes);
  /// Somebody else's memory, which stays theirs.
  DeviceBuffer(const Context& context, DeviceAddress address, uint64_t bytes)
      : context_(context), address_(address), bytes_(bytes), is_borrowed_(true) {}
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  DeviceAddress address() const { return address_; }
  uint64_t bytes() const { return bytes_; }

  /// Enqueues a copy to the start of the buffer; `source` must stay until the stream has been
  /// synchronised, and be no longer than the buffer.
  void upload(std::span<const uint8_t> source, const Stream& stream) const;
  /// Copies from the start of the buffer and waits for it.
  void download(std::span<uint8_t> destination, const Stream& stream) const;
  /// Enqueues filling with one byte.
  void fill(uint8_t byte, const Stream& stream) const;

private:
  const Context& context_;
  DeviceAddress address_ = 0;
  uint64_t bytes_ = 0;
  bool is_borrowed_ = false;
};

/// Where the buffers of something come from: memory of their own, or parts of one piece of the
/// caller's, one behind the other.
class DeviceMemory {
public:
  /// Of each part in the caller's memory, bytes.
  static constexpr uint64_t kAlignment = 256;

  explicit DeviceMemory(const Context& context) : context_(context) {}
  /// Nothing is read or written here.
  DeviceMemory(const Context& context, DeviceAddress memory)
      : context_(context), memory_(memory), is_borrowed_(true) {}

  DeviceBuffer take(uint64_t bytes);
  /// To the end of the last part that was taken.
  uint64_t bytes() const { return bytes_; }

private:
  const Context& context_;
  DeviceAddress memory_ = 0;
  uint64_t bytes_ = 0;
  bool is_borrowed_ = false;
};

/// A loaded kernel and what it takes; valid as long as its module.
struct Kernel {
  FunctionHandle handle = nullptr;
  std::string name;
  uint32_t registers = 0;             ///< a thread
  uint32_t local_bytes = 0;           ///< a thread; spilled registers are here
  uint32_t static_shared_bytes = 0;   ///< a block
  uint32_t max_threads_per_block = 0; ///< as its registers allow
};

class Module {
public:
  /// Loads a cubin, or PTX text which the driver assembles. The driver's log is in the error.
  Module(const Context& context, std::span<const uint8_t> image);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Throws RuntimeError where there is no such kernel.
  Kernel kernel(const std::string& name) const;
  /// Nothing where there is no such kernel.
  std::optional<Kernel> find_kernel(const std::string& name) const;
  /// An array of the code, by its name. Throws RuntimeError where there is none.
  DeviceBuffer array(const std::string& name) const;
  /// What the driver's assembler said; empty for a cubin.
  const std::string& log() const { return log_; }

private:
  const Context& context_;
  ModuleHandle handle_ = nullptr;
  std::string log_;
};

} // namespace sparsertc::cuda
