#include "compiler/emit/target.h"

#include "ir/error.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

namespace sparsertc {
namespace {

struct KnownTarget {
  std::string_view name;
  uint32_t compute_capability;
  std::string_view ptx_version;
  uint32_t shared_kilobytes; ///< of one block, opt-in included (CUDA programming guide, table of
                             ///< compute capabilities)
};

constexpr KnownTarget kGpus[] = {
    {"sm_80", 80, "7.0", 163},  {"sm_86", 86, "7.1", 99},   {"sm_89", 89, "7.8", 99},
    {"sm_90", 90, "7.8", 227},  {"sm_90a", 90, "8.0", 227}, {"sm_100", 100, "8.6", 227},
    {"sm_120", 120, "8.7", 99},
};

/// f32 elements of the widest vector that this machine's compiler baseline may assume at run time.
uint32_t host_lanes_f32() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    return 16;
  if (__builtin_cpu_supports("avx2"))
    return 8;
  return 4;
#elif defined(__aarch64__)
  return 4;
#else
  return 1;
#endif
}

/// Levenshtein's distance: insertions, deletions and replacements that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

} // namespace

std::vector<std::string> known_targets() {
  std::vector<std::string> names;
  for (const KnownTarget& gpu : kGpus)
    names.emplace_back(gpu.name);
  names.emplace_back("host");
  return names;
}

Target find_target(std::string_view name) {
  Target target;
  target.name = std::string(name);
  if (name == "host") {
    target.is_host = true;
    target.lanes_f32 = host_lanes_f32();
    return target;
  }
  for (const KnownTarget& gpu : kGpus)
    if (gpu.name == name) {
      target.compute_capability = gpu.compute_capability;
      target.ptx_version = std::string(gpu.ptx_version);
      target.shared_bytes_per_block = gpu.shared_kilobytes * 1024;
      return target;
    }

  const std::vector<std::string> names = known_targets();
  std::string_view nearest;
  size_t least = 3; // further away it is no slip of the finger
  for (const std::string& known : names)
    if (const size_t distance = edit_distance(name.substr(0, 32), known); distance < least) {
      least = distance;
      nearest = known;
    }
  throw UserError(fmt::format("unknown target '{}'{}", name.substr(0, 64),
                              nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)),
                  fmt::format("known targets: {}", fmt::join(names, ", ")));
}

} // namespace sparsertc
