// Files of bundles: written whole or not at all, read without trusting what they claim to be.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sparsertc {

/// What temporary files' names end in, after the target's name, a process number and a count.
inline constexpr const char* kTemporarySuffix = ".tmp";

/// Writes `bytes` to a new file beside `path` and renames it to `path`: readers see the old file or
/// the new one, and a process that is killed leaves at most a file that ends in `.tmp`. Returns the
/// system's errno, 0 for success (EINVAL for a pipe or a device); after a failure `path` is
/// untouched and nothing is left beside it. A symbolic link is replaced, not followed.
int replace_file(const std::string& path, std::span<const uint8_t> bytes);

/// All bytes of a regular file, or nothing, with the system's errno in `error` (EINVAL for what is
/// no regular file). Never waits for a pipe.
std::optional<std::vector<uint8_t>> read_whole_file(const std::string& path, int& error);

} // namespace sparsertc
