// What a cubin, an ELF file for the GPU, holds: functions of its symbol table, sections.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sparsertc {

struct CubinFunction {
  std::string name;
  bool is_kernel = false;
  uint64_t code_bytes = 0;
};

/// The functions that are defined in the file, in the order of the symbol table; nothing where the
/// bytes are no ELF file (64 bits, little-endian) for an NVIDIA GPU, or a damaged one.
std::optional<std::vector<CubinFunction>> read_cubin_functions(std::span<const uint8_t> cubin);

struct CubinSection {
  std::string name;
  uint64_t offset = 0; ///< in the file
  uint64_t bytes = 0;
};

/// The sections that have bytes in the file, in the order of their headers; none where the bytes
/// are no ELF file for an NVIDIA GPU, or a damaged one.
std::vector<CubinSection> read_cubin_sections(std::span<const uint8_t> cubin);

} // namespace sparsertc
