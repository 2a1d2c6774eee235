#include "compiler/assemble/elf.h"

#include <algorithm>
#include <cstring>

namespace sparsertc {
namespace {

constexpr uint16_t kMachineCuda = 190;    // EM_CUDA
constexpr uint32_t kSymbolTable = 2;      // SHT_SYMTAB
constexpr uint32_t kNoBits = 8;           // SHT_NOBITS
constexpr uint8_t kTypeFunction = 2;      // STT_FUNC
constexpr uint8_t kOtherEntry = 0x10;     // STO_CUDA_ENTRY
constexpr uint16_t kUndefinedSection = 0; // SHN_UNDEF

// The structures of the ELF-64 format, as they are in the file.
struct FileHeader {
  uint8_t identification[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, program_headers, section_headers;
  uint32_t flags;
  uint16_t header_bytes, program_header_bytes, program_header_count;
  uint16_t section_header_bytes, section_count, names_section;
};
static_assert(sizeof(FileHeader) == 64);

struct SectionHeader {
  uint32_t name, type;
  uint64_t flags, address, offset, bytes;
  uint32_t link, info;
  uint64_t alignment, entry_bytes;
};
static_assert(sizeof(SectionHeader) == 64);

struct Symbol {
  uint32_t name;
  uint8_t info, other;
  uint16_t section;
  uint64_t value, bytes;
};
static_assert(sizeof(Symbol) == 24);

/// Reads a structure at an offset; false where it is not inside.
template <typename T>
bool read(std::span<const uint8_t> bytes, uint64_t offset, T& result) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T))
    return false;
  std::memcpy(&result, bytes.data() + offset, sizeof(T));
  return true;
}

bool read_section(std::span<const uint8_t> file, const FileHeader& header, uint32_t number,
                  SectionHeader& section) {
  // 16 x 32 bits: the product fits, the sum may wrap.
  const uint64_t distance = uint64_t{number} * header.section_header_bytes;
  return number < header.section_count && header.section_headers <= file.size() &&
         read(file, header.section_headers + distance, section);
}

std::optional<std::span<const uint8_t>> contents(std::span<const uint8_t> file,
                                                 const SectionHeader& section) {
  if (section.offset > file.size() || section.bytes > file.size() - section.offset)
    return std::nullopt;
  return file.subspan(section.offset, section.bytes);
}

bool read_header(std::span<const uint8_t> cubin, FileHeader& header) {
  constexpr uint8_t identification[6] = {0x7f, 'E', 'L', 'F', 2 /*64 bits*/, 1 /*little-endian*/};
  return read(cubin, 0, header) &&
         std::equal(identification, identification + 6, header.identification) &&
         header.machine == kMachineCuda && header.section_header_bytes >= sizeof(SectionHeader);
}

/// The text at an offset of a string table, up to its zero.
std::string name_at(std::span<const uint8_t> names, uint32_t offset) {
  if (offset >= names.size())
    return {};
  const auto rest = names.subspan(offset);
  return {rest.begin(), std::find(rest.begin(), rest.end(), 0)};
}

} // namespace

std::optional<std::vector<CubinFunction>> read_cubin_functions(std::span<const uint8_t> cubin) {
  FileHeader header;
  if (!read_header(cubin, header))
    return std::nullopt;

  std::vector<CubinFunction> functions;
  for (uint32_t number = 0; number < header.section_count; ++number) {
    SectionHeader table;
    if (!read_section(cubin, header, number, table))
      return std::nullopt;
    if (table.type != kSymbolTable)
      continue;
    SectionHeader names_header;
    if (!read_section(cubin, header, table.link, names_header))
      return std::nullopt;
    const auto symbols = contents(cubin, table);
    const auto names = contents(cubin, names_header);
    if (!symbols || !names)
      return std::nullopt;
    for (uint64_t offset = 0; offset < symbols->size(); offset += sizeof(Symbol)) {
      Symbol symbol;
      if (!read(*symbols, offset, symbol) || symbol.name >= names->size())
        return std::nullopt;
      if ((symbol.info & 15) != kTypeFunction || symbol.section == kUndefinedSection)
        continue;
      functions.push_back(
          {name_at(*names, symbol.name), (symbol.other & kOtherEntry) != 0, symbol.bytes});
    }
  }
  return functions;
}

std::vector<CubinSection> read_cubin_sections(std::span<const uint8_t> cubin) {
  FileHeader header;
  SectionHeader names_header;
  if (!read_header(cubin, header) ||
      !read_section(cubin, header, header.names_section, names_header))
    return {};
  const auto names = contents(cubin, names_header);
  std::vector<CubinSection> sections;
  for (uint32_t number = 0; names && number < header.section_count; ++number) {
    SectionHeader section;
    if (!read_section(cubin, header, number, section))
      return {};
    if (section.type != kNoBits && contents(cubin, section))
      sections.push_back({name_at(*names, section.name), section.offset, section.bytes});
  }
  return sections;
}

} // namespace sparsertc
