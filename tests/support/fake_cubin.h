// Machine code for a GPU that does not exist: an ELF file with a symbol table and nothing else; and
// what an assembler reads out of PTX. For fakes of assemblers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc::testing {

/// A cubin that holds these kernels, 128 bytes each.
inline std::vector<uint8_t> fake_cubin(const std::vector<std::string>& kernels) {
  constexpr size_t kHeader = 64, kSection = 64, kSymbol = 24;
  const auto put = []<typename T>(std::vector<uint8_t>& to, size_t offset, T value) {
    std::memcpy(to.data() + offset, &value, sizeof value);
  };
  std::string names(1, '\0');
  std::vector<uint32_t> name_of;
  for (const std::string& kernel : kernels) {
    name_of.push_back(static_cast<uint32_t>(names.size()));
    names += kernel + '\0';
  }
  const size_t symbols = kHeader + 3 * kSection;
  const size_t symbol_bytes = (1 + kernels.size()) * kSymbol;
  std::vector<uint8_t> bytes(symbols + symbol_bytes + names.size());
  // The file's header: ELF, 64 bits, little-endian, for EM_CUDA, 3 sections.
  constexpr std::array<uint8_t, 6> identification = {0x7f, 'E', 'L', 'F', 2, 1};
  std::copy(identification.begin(), identification.end(), bytes.begin());
  put(bytes, 18, uint16_t{190});
  put(bytes, 40, uint64_t{kHeader});
  put(bytes, 58, uint16_t{kSection});
  put(bytes, 60, uint16_t{3});
  // Section 1: the symbols, whose names are in section 2.
  const size_t first = kHeader + kSection, second = kHeader + 2 * kSection;
  put(bytes, first + 4, uint32_t{2});
  put(bytes, first + 24, uint64_t{symbols});
  put(bytes, first + 32, uint64_t{symbol_bytes});
  put(bytes, first + 40, uint32_t{2});
  put(bytes, second + 24, uint64_t{symbols + symbol_bytes});
  put(bytes, second + 32, uint64_t{names.size()});
  for (size_t i = 0; i < kernels.size(); ++i) {
    const size_t symbol = symbols + (1 + i) * kSymbol;
    put(bytes, symbol, uint32_t{name_of[i]});
    put(bytes, symbol + 4, uint8_t{0x12}); // a global function
    put(bytes, symbol + 5, uint8_t{0x10}); // that is a kernel
    put(bytes, symbol + 6, uint16_t{2});
    put(bytes, symbol + 16, uint64_t{128});
  }
  std::copy(names.begin(), names.end(),
            bytes.begin() + static_cast<std::ptrdiff_t>(symbols + symbol_bytes));
  return bytes;
}

/// The names behind ".entry" in PTX text.
inline std::vector<std::string> entries_in(std::string_view ptx) {
  constexpr std::string_view kWord = ".entry ";
  std::vector<std::string> names;
  for (size_t at = ptx.find(kWord); at != std::string_view::npos; at = ptx.find(kWord, at)) {
    at += kWord.size();
    names.emplace_back(ptx.substr(at, ptx.find_first_of("( \n", at) - at));
  }
  return names;
}

/// What an assembler would say about `word` in the text: "ptxas application ptx input, line 8;
/// error   : Not a name of any known instruction: 'word'" and a second line; empty where the text
/// does not have it.
inline std::string complaint_about(std::string_view word, std::string_view ptx) {
  const size_t at = ptx.find(word);
  if (at == std::string_view::npos)
    return {};
  const auto line =
      1 + std::count(ptx.begin(), ptx.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  return "ptxas application ptx input, line " + std::to_string(line) +
         "; error   : Not a name of any known instruction: '" + std::string(word) +
         "'\nptxas fatal   : Ptx assembly aborted due to errors\n";
}

} // namespace sparsertc::testing
