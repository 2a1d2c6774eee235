// What a cubin holds: the functions in the symbol table of an ELF file for the GPU.
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

} // namespace sparsertc
