// SHA-256 (FIPS 180-4), for digests of patterns, values and files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sparsertc {

/// Bytes go in by `add` in any portions; `finish` or `hex` may be called once, at the end.
class Sha256 {
public:
  void add(const void* bytes, size_t count);
  void add(std::string_view text) { add(text.data(), text.size()); }

  /// The 32 bytes of the digest.
  std::array<uint8_t, 32> finish();
  /// The digest as 64 lower-case hexadecimal digits.
  std::string hex();

private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> buffer_{};
  size_t buffered_ = 0;
  uint64_t total_ = 0;
};

} // namespace sparsertc
