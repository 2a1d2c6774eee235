// Zip archives (PKWARE APPNOTE 6.3), as far as .npz files use them: stored and deflated members,
// also with 64-bit sizes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sparsertc {

struct ZipMember {
  std::string name;
  /// 0 stored, 8 deflated.
  uint16_t method = 0;
  uint32_t crc = 0;
  uint64_t compressed_bytes = 0;
  uint64_t bytes = 0;
  /// Of the local header.
  uint64_t offset = 0;
};

/// The members in the order of the archive's directory. UserError where the directory is damaged,
/// leads outside the file, or names a member twice; and for encrypted members.
std::vector<ZipMember> list_zip(std::span<const uint8_t> archive, const std::string& name);

/// A member's content. UserError when it is damaged (its checksum is verified), larger than
/// `maximum_bytes`, or promises more than its compressed bytes can hold.
std::vector<uint8_t> extract_zip(std::span<const uint8_t> archive, const ZipMember& member,
                                 const std::string& name, uint64_t maximum_bytes);

struct ZipContent {
  std::string name;
  std::vector<uint8_t> bytes;
};

/// An archive of stored members, without times: the same bytes for the same members. UserError
/// where it would take 4 GiB or more, which needs another form.
std::vector<uint8_t> zip_bytes(std::span<const ZipContent> members);

} // namespace sparsertc
