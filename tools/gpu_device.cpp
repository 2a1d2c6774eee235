#include "tools/gpu_device.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <charconv>

namespace sparsertc {

std::unique_ptr<cuda::Context> require_gpu() {
  return std::make_unique<cuda::Context>(cuda::Driver::open());
}

std::unique_ptr<cuda::Context> find_gpu() {
  try {
    return require_gpu();
  } catch (const NoGpuError&) {
    return nullptr;
  }
}

std::string target_of(const cuda::Context& gpu) {
  const uint32_t capability = gpu.properties().compute_capability;
  std::string best;
  uint32_t best_capability = 0;
  for (const std::string& name : known_targets()) {
    const Target target = find_target(name);
    // Names with a letter at the end run on exactly one architecture.
    const bool exact_only = name.back() < '0' || name.back() > '9';
    if (target.is_host || exact_only || target.compute_capability > capability ||
        target.compute_capability <= best_capability)
      continue;
    best = name;
    best_capability = target.compute_capability;
  }
  if (best.empty())
    throw NoGpuError(fmt::format("{} has compute capability {}.{}, which is too old",
                                 gpu.properties().name, capability / 10, capability % 10),
                     "sparsertc needs 8.0 or newer; --device=cpu runs on the CPU");
  return best;
}

bool takes_cubins(const cuda::Context& gpu, const Target& target, const std::string& assembler) {
  const size_t digits = assembler.find_first_of("0123456789");
  if (digits == std::string::npos)
    return false;
  int major = 0;
  std::from_chars(assembler.data() + digits, assembler.data() + assembler.size(), major);
  return gpu.properties().compute_capability / 10 == target.compute_capability / 10 &&
         gpu.driver().version() / 1000 >= major;
}

} // namespace sparsertc
