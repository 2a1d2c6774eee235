#include "runtime/plan/device_check.h"

#include <fmt/format.h>

#include <charconv>

namespace sparsertc {
namespace {

// The same on every GPU of compute capability 8.0 to 12.x (CUDA C++ Programming Guide, "Technical
// specifications per compute capability").
constexpr uint32_t kMostBlock[3] = {1024, 1024, 64};
constexpr uint64_t kWarp = 32;
constexpr uint64_t kRegisterUnit = 8; ///< registers of a thread are given out in eights
constexpr uint32_t kMostRegisters = 255;

struct CodeTarget {
  uint32_t capability = 0;
  bool exact = false;  ///< "a": this capability and no other
  bool family = false; ///< "f": later minors of its major, for PTX, too
};

CodeTarget parse_target(const std::string& name) {
  CodeTarget target;
  constexpr std::string_view kPrefix = "sm_";
  const char* const end = name.data() + name.size();
  std::from_chars_result number = {name.data(), std::errc::invalid_argument};
  if (name.starts_with(kPrefix))
    number = std::from_chars(name.data() + kPrefix.size(), end, target.capability);
  const std::string_view suffix(number.ptr, static_cast<size_t>(end - number.ptr));
  target.exact = suffix == "a";
  target.family = suffix == "f";
  if (number.ec != std::errc() || (!suffix.empty() && !target.exact && !target.family))
    throw UserError(fmt::format("the bundle's code is for \"{}\", which is no GPU", name),
                    "compile with --target=native or one of the targets that --help lists");
  return target;
}

bool same_major(const CodeTarget& target, uint32_t capability) {
  return target.capability / 10 == capability / 10 && target.capability <= capability;
}

[[noreturn]] void refuse(const cuda::DeviceProperties& device, const std::string& entry,
                         const std::string& reason) {
  throw UnsupportedDeviceError(fmt::format("checking the kernel {} against {}", entry, device.name),
                               reason, "compile with a smaller tile (--tile=...)");
}

void check_registers(const PlanEntry& entry, const cuda::DeviceProperties& device) {
  if (entry.registers > kMostRegisters)
    refuse(device, entry.name,
           fmt::format("a thread needs {} registers, at most {} are possible", entry.registers,
                       kMostRegisters));
  const uint64_t warps = (entry.threads_per_block() + kWarp - 1) / kWarp;
  const uint64_t each = (entry.registers + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit;
  if (warps * kWarp * each > device.max_registers_per_block)
    refuse(device, entry.name,
           fmt::format("a block of {} threads with {} registers needs {} registers, the device "
                       "has {}",
                       entry.threads_per_block(), entry.registers, warps * kWarp * each,
                       device.max_registers_per_block));
}

void check_shared(const PlanEntry& entry, uint64_t static_bytes,
                  const cuda::DeviceProperties& device) {
  const uint64_t bytes = static_bytes + entry.dynamic_shared_bytes;
  if (bytes > device.max_shared_bytes_per_block)
    refuse(device, entry.name,
           fmt::format("a block needs {} bytes of shared memory, the device has {}", bytes,
                       device.max_shared_bytes_per_block));
}

} // namespace

bool runs_machine_code(const std::string& name, uint32_t compute_capability) {
  const CodeTarget target = parse_target(name);
  return target.exact ? target.capability == compute_capability
                      : same_major(target, compute_capability);
}

bool runs_ptx(const std::string& name, uint32_t compute_capability) {
  const CodeTarget target = parse_target(name);
  if (target.exact)
    return target.capability == compute_capability;
  return target.family ? same_major(target, compute_capability)
                       : target.capability <= compute_capability;
}

const Bundle::Section& choose_code(const Bundle& bundle, const std::string& target,
                                   const cuda::DeviceProperties& device, const std::string& name,
                                   const std::string& part) {
  const Bundle::Section* cubin = bundle.find(part + "cubin");
  const Bundle::Section* ptx = bundle.find(part + "ptx");
  if (!cubin && !ptx)
    throw UserError(Place{name, 0, 0, {}},
                    fmt::format("the bundle has neither a {0}cubin nor {0}PTX", part),
                    "compile it again; a bundle for the CPU cannot be loaded");
  const uint32_t capability = device.compute_capability;
  if (cubin && runs_machine_code(target, capability))
    return *cubin;
  if (ptx && runs_ptx(target, capability))
    return *ptx;
  throw UnsupportedDeviceError(
      fmt::format("checking {} against {}", name, device.name),
      fmt::format("the code is for {}, the device has compute capability {}.{}{}", target,
                  capability / 10, capability % 10,
                  ptx ? "" : ", and the bundle carries no PTX to assemble for it"),
      "compile with --target=native on the machine that runs it");
}

void check_limits(const PlanEntry& entry, const cuda::DeviceProperties& device) {
  if (entry.threads_per_block() > device.max_threads_per_block)
    refuse(device, entry.name,
           fmt::format("a block has {} threads, the device allows {}", entry.threads_per_block(),
                       device.max_threads_per_block));
  for (int axis = 0; axis < 3; ++axis)
    if (entry.block[axis] > kMostBlock[axis])
      refuse(device, entry.name,
             fmt::format("a block has {} threads along {}, at most {} are possible",
                         entry.block[axis], "xyz"[axis], kMostBlock[axis]));
  if (entry.grid_rows > device.max_grid[1])
    refuse(device, entry.name,
           fmt::format("the grid has {} blocks along y, the device allows {}", entry.grid_rows,
                       device.max_grid[1]));
  check_shared(entry, entry.static_shared_bytes, device);
  check_registers(entry, device);
}

void check_loaded(const PlanEntry& entry, const cuda::Kernel& kernel,
                  const cuda::DeviceProperties& device) {
  if (entry.threads_per_block() > kernel.max_threads_per_block)
    refuse(device, entry.name,
           fmt::format("a block has {} threads, {} registers a thread allow {}",
                       entry.threads_per_block(), kernel.registers, kernel.max_threads_per_block));
  check_shared(entry, kernel.static_shared_bytes, device);
}

} // namespace sparsertc
