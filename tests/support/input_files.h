// Input files made in memory, well-formed or not, for the tests of the readers.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sparsertc::testing {

using Bytes = std::vector<uint8_t>;

Bytes bytes_of_text(std::string_view text);

/// The little-endian (or, reversed, big-endian) bytes of the elements.
template <typename T>
Bytes raw(const std::vector<T>& elements, bool big_endian = false) {
  Bytes bytes(elements.size() * sizeof(T));
  if (!elements.empty())
    std::memcpy(bytes.data(), elements.data(), bytes.size());
  if (big_endian)
    for (size_t i = 0; i < bytes.size(); i += sizeof(T))
      for (size_t j = 0; j < sizeof(T) / 2; ++j)
        std::swap(bytes[i + j], bytes[i + sizeof(T) - 1 - j]);
  return bytes;
}

/// An .npy file; `shape` is the text between the parentheses ("3, 4"). `header` replaces the whole
/// dictionary when it is not empty.
Bytes npy_file(std::string_view descr, bool fortran_order, std::string_view shape,
               const Bytes& data, unsigned version = 1, std::string_view header = {});

struct Member {
  std::string name;
  Bytes content;
};
/// A zip archive as numpy.savez (stored) or numpy.savez_compressed (deflated) writes it, with
/// 64-bit extra fields in the local headers.
Bytes zip_file(const std::vector<Member>& members, bool deflated);

/// A safetensors file with this JSON header and data.
Bytes safetensors_file(std::string_view json, const Bytes& data);

Bytes gzip(const Bytes& content);

/// The members of scipy.sparse.save_npz for a matrix with float64 values and int32 indices.
std::vector<Member>
scipy_members(std::string_view format, std::vector<int64_t> shape, const std::vector<double>& data,
              const std::vector<std::pair<std::string, std::vector<int32_t>>>& indices);

} // namespace sparsertc::testing
