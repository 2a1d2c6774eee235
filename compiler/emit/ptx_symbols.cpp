#include "compiler/emit/ptx_symbols.h"

#include "ir/error.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

namespace sparsertc {

using ir::Scalar;
using ir::Space;

namespace {

/// The most shared memory that a kernel can declare; more has to be asked for at launch.
constexpr uint64_t kStaticSharedBytes = 48 * 1024;
/// From so many bytes on, arrays are written as words of eight bytes, whatever their elements are:
/// ptxas reads numbers at some 2 million a second.
constexpr uint64_t kLongSymbol = 64 * 1024;

std::string_view element_type(Scalar scalar) {
  switch (scalar) {
  case Scalar::i32:
    return ".s32";
  case Scalar::i64:
    return ".s64";
  case Scalar::f16:
  case Scalar::bf16:
    return ".b16";
  case Scalar::f16x2:
  case Scalar::bf16x2:
    return ".b32";
  case Scalar::f32:
    return ".f32";
  case Scalar::f64:
    return ".f64";
  case Scalar::pred:
  case Scalar::none:
    break;
  }
  throw InternalError("PTX: a symbol whose elements have no memory form");
}

template <typename Bits>
Bits element_at(const std::vector<uint8_t>& bytes, uint64_t index) {
  static_assert(std::endian::native == std::endian::little);
  Bits bits;
  std::memcpy(&bits, bytes.data() + index * sizeof(Bits), sizeof(Bits));
  return bits;
}

/// Writes `count` elements, sixteen a line, each by `write(char* to, uint64_t index)`.
template <typename Write>
void put_elements(PtxBuffer& out, uint64_t count, Write&& write) {
  constexpr uint64_t kPerLine = 16;
  for (uint64_t begin = 0; begin < count; begin += kPerLine) {
    out.reserve(kPerLine * 24);
    char* at = out.end();
    const uint64_t end = std::min(count, begin + kPerLine);
    for (uint64_t i = begin; i < end; ++i) {
      at = write(at, i);
      *at++ = ',';
    }
    if (end == count)
      --at;
    *at++ = '\n';
    out.set_end(at);
  }
}

bool is_written_in_words(const ir::Symbol& symbol) {
  return symbol.type.space() == Space::device && symbol.bytes.size() >= kLongSymbol &&
         symbol.bytes.size() % 8 == 0 && symbol.alignment % 8 == 0;
}

void put_values(PtxBuffer& out, const ir::Symbol& symbol) {
  const std::vector<uint8_t>& bytes = symbol.bytes;
  if (is_written_in_words(symbol))
    return put_elements(out, bytes.size() / 8, [&](char* to, uint64_t i) {
      *to++ = '0';
      *to++ = 'x';
      return write_hex(to, element_at<uint64_t>(bytes, i), 16);
    });
  switch (symbol.type.element()) {
  case Scalar::i32:
    return put_elements(out, symbol.count, [&](char* to, uint64_t i) {
      return write_signed(to, element_at<int32_t>(bytes, i));
    });
  case Scalar::i64:
    return put_elements(out, symbol.count, [&](char* to, uint64_t i) {
      return write_signed(to, element_at<int64_t>(bytes, i));
    });
  case Scalar::f16:
  case Scalar::bf16:
    return put_elements(out, symbol.count, [&](char* to, uint64_t i) {
      return write_decimal(to, element_at<uint16_t>(bytes, i));
    });
  case Scalar::f16x2:
  case Scalar::bf16x2:
    return put_elements(out, symbol.count, [&](char* to, uint64_t i) {
      *to++ = '0';
      *to++ = 'x';
      return write_hex(to, element_at<uint32_t>(bytes, i), 8);
    });
  case Scalar::f32:
    return put_elements(out, symbol.count, [&](char* to, uint64_t i) {
      *to++ = '0';
      *to++ = 'f';
      return write_hex(to, element_at<uint32_t>(bytes, i), 8);
    });
  case Scalar::f64:
    return put_elements(out, symbol.count, [&](char* to, uint64_t i) {
      *to++ = '0';
      *to++ = 'd';
      return write_hex(to, element_at<uint64_t>(bytes, i), 16);
    });
  case Scalar::pred:
  case Scalar::none:
    break;
  }
}

} // namespace

SharedLayout shared_layout(const ir::Module& module) {
  SharedLayout layout;
  layout.offset.resize(module.symbols.size());
  for (size_t i = 0; i < module.symbols.size(); ++i) {
    const ir::Symbol& symbol = module.symbols[i];
    if (symbol.type.space() != Space::shared)
      continue;
    const uint64_t alignment = std::max(symbol.alignment, 1u);
    layout.alignment = std::max(layout.alignment, symbol.alignment);
    layout.offset[i] = (layout.bytes + alignment - 1) / alignment * alignment;
    layout.bytes = layout.offset[i] + symbol.count * size_in_bytes(symbol.type.element());
  }
  layout.is_dynamic = layout.bytes > kStaticSharedBytes;
  return layout;
}

void put_symbol(PtxBuffer& out, const ir::Symbol& symbol, SymbolLinkage linkage) {
  const Space space = symbol.type.space();
  // Whoever loads the code finds by name what is meant to be found.
  if (linkage == SymbolLinkage::local && space == Space::device &&
      symbol.name.starts_with("sparsertc_"))
    linkage = SymbolLinkage::visible;
  const std::string_view words = space == Space::constant ? ".const"
                                 : space == Space::shared ? ".shared"
                                                          : ".global";
  if (space != Space::constant && space != Space::shared && space != Space::device)
    throw InternalError(fmt::format("PTX: symbol '@{}' lies in no memory of a GPU", symbol.name));
  const bool is_words = is_written_in_words(symbol);
  out.put(fmt::format("{}{} .align {} {} {}[{}]",
                      linkage == SymbolLinkage::visible    ? ".visible "
                      : linkage == SymbolLinkage::external ? ".extern "
                                                           : "",
                      words, symbol.alignment,
                      is_words ? ".b64" : element_type(symbol.type.element()), symbol.name,
                      is_words ? symbol.bytes.size() / 8 : symbol.count));
  if (space != Space::shared && linkage != SymbolLinkage::external) {
    out.put(std::string_view(" = {\n"));
    put_values(out, symbol);
    out.put('}');
  }
  out.put(std::string_view(";\n"));
}

} // namespace sparsertc
