// Whole files as bytes: reading with transparent decompression, writing whole or not at all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sparsertc {

/// The largest file or decompressed file that is read unless an option says otherwise: 16 GiB.
inline constexpr uint64_t kDefaultMaximumBytes = uint64_t{16} << 30;

/// The name in messages of what is read from standard input.
inline constexpr const char* kStandardInputName = "<stdin>";

/// All bytes of the file, or of standard input for "-". Gzip is recognised by its first bytes,
/// whatever the name, and decompressed. UserError when the file is missing, a directory, larger
/// than `maximum_bytes` (before or after decompression) or damaged gzip; RuntimeError when the
/// system fails to read it. No memory is taken for more bytes than there are.
std::vector<uint8_t> read_bytes(const std::string& path,
                                uint64_t maximum_bytes = kDefaultMaximumBytes);

/// True when the bytes begin like a gzip member.
bool is_gzip(std::span<const uint8_t> bytes);

/// Decompresses gzip: one member or several in a row, with zero bytes as padding at the end.
/// UserError, with the byte of the compressed data, when it is damaged, ends early, is followed by
/// something else or is larger than `maximum_bytes`.
std::vector<uint8_t> decompress_gzip(std::span<const uint8_t> compressed, const std::string& name,
                                     uint64_t maximum_bytes = kDefaultMaximumBytes);

/// Writes the file whole or not at all: beside `path` under another name, then renamed. "-" is
/// standard output; what exists and is no regular file (a pipe, a device) is written to directly.
/// RuntimeError when the system refuses.
void write_bytes(const std::string& path, std::span<const uint8_t> bytes);

} // namespace sparsertc
