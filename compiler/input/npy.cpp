#include "compiler/input/npy.h"

#include "compiler/input/convert.h"
#include "compiler/input/readers.h"
#include "compiler/input/text_cursor.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sparsertc {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr const char* kTruncated = "the file is truncated; write or fetch it again";

/// The header's Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class DictionaryParser {
public:
  DictionaryParser(std::string_view text, uint64_t offset, const std::string& name)
      : text_(text), offset_(offset), name_(name) {}

  void parse(NpyHeader& header) {
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    const auto once = [&](bool& seen, size_t at, const std::string& key) {
      if (seen)
        fail(at, fmt::format("the key '{}' occurs twice", key));
      seen = true;
    };
    expect('{');
    while (!take('}')) {
      skip_blanks();
      const size_t key_at = at_;
      const std::string key = take_string("a key");
      expect(':');
      skip_blanks();
      if (key == "descr") {
        once(has_descr, key_at, key);
        header.descr_at = offset_ + at_;
        if (at_ < text_.size() && text_[at_] == '[')
          fail(at_, "structured element types are not read",
               "save one field of the array by itself");
        header.descr = take_string("the element type");
      } else if (key == "fortran_order") {
        once(has_order, key_at, key);
        header.fortran_order = take_boolean();
      } else if (key == "shape") {
        once(has_shape, key_at, key);
        header.shape_at = offset_ + at_;
        header.shape = take_shape();
      } else {
        fail(key_at, fmt::format("expected the keys 'descr', 'fortran_order' and 'shape', found "
                                 "'{}'",
                                 printable(key)));
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size())
      fail(at_, fmt::format("expected the end of the header, found {}", found()));
    for (const auto& [seen, key] :
         {std::pair{has_descr, "descr"}, {has_order, "fortran_order"}, {has_shape, "shape"}})
      if (!seen)
        fail(text_.size(), fmt::format("the header has no key '{}'", key));
  }

private:
  [[noreturn]] void fail(size_t at, const std::string& message,
                         const std::string& way_out = {}) const {
    throw UserError(Place::binary(name_, offset_ + at), message, way_out);
  }
  std::string found() const {
    return at_ < text_.size() ? fmt::format("'{}'", printable(text_.substr(at_, 1)))
                              : "the end of the header";
  }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c)
      return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c))
      fail(at_, fmt::format("expected '{}' in the header's dictionary, found {}", c, found()));
  }
  std::string take_string(const char* what) {
    skip_blanks();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"'))
      fail(at_, fmt::format("expected {} in quotes, found {}", what, found()));
    const char quote = text_[at_];
    const size_t stop = text_.find(quote, at_ + 1);
    if (stop == std::string_view::npos)
      fail(at_, fmt::format("expected {} in quotes, found no closing quote", what));
    const std::string result(text_.substr(at_ + 1, stop - at_ - 1));
    at_ = stop + 1;
    return result;
  }
  bool take_boolean() {
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {"False", false}})
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    fail(at_, fmt::format("expected True or False, found {}", found()));
  }
  std::vector<uint64_t> take_shape() {
    std::vector<uint64_t> shape;
    expect('(');
    while (!take(')')) {
      skip_blanks();
      if (at_ < text_.size() && text_[at_] == '-')
        fail(at_, "a dimension is negative");
      uint64_t dimension = 0;
      const auto [stop, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), dimension);
      if (error == std::errc::result_out_of_range)
        fail(at_, "a dimension does not fit in 64 bits");
      if (error != std::errc())
        fail(at_, fmt::format("expected a dimension, found {}", found()));
      at_ = static_cast<size_t>(stop - text_.data());
      // Python 2 wrote long integers with a suffix.
      if (at_ < text_.size() && text_[at_] == 'L')
        ++at_;
      shape.push_back(dimension);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  uint64_t offset_;
  std::string name_;
  size_t at_ = 0;
};

struct ElementType {
  StoredType type;
  bool big_endian;
  bool boolean;
};

ElementType element_type(const NpyHeader& header, const std::string& name) {
  const std::string& descr = header.descr;
  const Place place = Place::binary(name, header.descr_at);
  const char order = descr.empty() ? '\0' : descr[0];
  const bool has_order = order == '<' || order == '>' || order == '|' || order == '=';
  const std::string kind = has_order ? descr.substr(1) : descr;
  constexpr std::pair<const char*, StoredType> kTypes[] = {
      {"f2", StoredType::f16}, {"f4", StoredType::f32}, {"f8", StoredType::f64},
      {"i1", StoredType::i8},  {"i2", StoredType::i16}, {"i4", StoredType::i32},
      {"i8", StoredType::i64}, {"u1", StoredType::u8},  {"u2", StoredType::u16},
      {"u4", StoredType::u32}, {"u8", StoredType::u64}, {"b1", StoredType::u8}};
  for (const auto& [text, type] : kTypes)
    if (kind == text)
      return {type, order == '>', kind == "b1"};
  const char* way_out = "convert with array.astype('float32')";
  if (kind[0] == 'O')
    way_out = "arrays of Python objects are pickled and never read: save an array of numbers";
  else if (kind == "V2" || kind == "bfloat16")
    way_out = "the format has no bfloat16: store it as .safetensors or as float32";
  else if (kind[0] == 'c')
    way_out = "complex arrays are read from Matrix Market files only";
  throw UserError(place,
                  fmt::format("expected elements of type f2, f4, f8, i1 to i8, u1 to u8 or b1, "
                              "found '{}'",
                              printable(descr)),
                  way_out);
}

} // namespace

NpyHeader parse_npy_header(std::span<const uint8_t> bytes, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto truncated = [&](uint64_t needed) {
    if (bytes.size() < needed)
      throw UserError(
          Place::binary(name, bytes.size()),
          fmt::format("expected an .npy header of {} bytes, found the end of the file", needed),
          kTruncated);
  };
  if (bytes.empty())
    throw UserError(Place::binary(name, 0), "the file is empty, expected an .npy array");
  if (text.substr(0, kMagic.size()) != kMagic.substr(0, std::min(bytes.size(), kMagic.size())))
    throw UserError(Place::binary(name, 0),
                    "expected an .npy file, which begins with the bytes 93 'NUMPY'",
                    "if the file has another format, its suffix must say so");
  truncated(kMagic.size() + 4);
  const unsigned major = bytes[6];
  const unsigned minor = bytes[7];
  if (major < 1 || major > 3 || minor != 0)
    throw UserError(Place::binary(name, 6), fmt::format("expected .npy version 1.0, 2.0 or 3.0, "
                                                        "found {}.{}",
                                                        major, minor));
  uint64_t length = bytes[8] | uint64_t{bytes[9]} << 8;
  uint64_t begin = 10;
  if (major >= 2) {
    truncated(12);
    length |= uint64_t{bytes[10]} << 16 | uint64_t{bytes[11]} << 24;
    begin = 12;
  }
  truncated(begin + length);
  NpyHeader header;
  header.data_offset = begin + length;
  DictionaryParser(text.substr(begin, length), begin, name).parse(header);
  return header;
}

DenseArray parse_npy(std::span<const uint8_t> bytes, const std::string& name) {
  NpyHeader header = parse_npy_header(bytes, name);
  const ElementType type = element_type(header, name);
  const std::optional<uint64_t> needed = bytes_of(header.shape, type.type);
  const uint64_t there = bytes.size() - header.data_offset;
  if (!needed)
    throw UserError(
        Place::binary(name, header.shape_at),
        fmt::format("the size of shape {} does not fit in 64 bits", describe_shape(header.shape)));
  if (*needed > there)
    throw UserError(Place::binary(name, bytes.size()),
                    fmt::format("shape {} of '{}' needs {} bytes, found only {}",
                                describe_shape(header.shape), printable(header.descr), *needed,
                                there),
                    kTruncated);
  if (*needed < there)
    throw UserError(Place::binary(name, header.data_offset + *needed),
                    fmt::format("{} bytes follow the {} that shape {} of '{}' needs",
                                there - *needed, *needed, describe_shape(header.shape),
                                printable(header.descr)),
                    "write one array to a file");
  DenseArray array;
  array.shape = std::move(header.shape);
  array.type = type.type;
  array.big_endian = type.big_endian;
  array.boolean = type.boolean;
  array.fortran_order = header.fortran_order;
  array.bytes = bytes.subspan(header.data_offset);
  array.name = name;
  array.byte_offset = header.data_offset;
  return array;
}

std::string parse_npy_string(std::span<const uint8_t> bytes, const std::string& name) {
  const NpyHeader header = parse_npy_header(bytes, name);
  const std::string& descr = header.descr;
  const size_t kind_at = !descr.empty() && (descr[0] == '<' || descr[0] == '|' || descr[0] == '>');
  const char kind = descr.size() > kind_at ? descr[kind_at] : '\0';
  const auto data = bytes.subspan(header.data_offset);
  uint64_t elements = 1;
  for (const uint64_t dimension : header.shape)
    elements = dimension == 1 ? elements : 0;
  uint64_t characters = 0;
  const char* const digits = descr.data() + std::min(kind_at + 1, descr.size());
  const auto parsed = std::from_chars(digits, descr.data() + descr.size(), characters);
  const uint64_t width = kind == 'U' ? 4 : 1;
  if ((kind != 'S' && kind != 'U') || elements != 1 || parsed.ec != std::errc() ||
      characters > data.size() || characters * width != data.size())
    throw UserError(Place::binary(name, header.descr_at), "expected one string",
                    "write the archive with scipy.sparse.save_npz");
  std::string text;
  for (uint64_t i = 0; i < characters; ++i) {
    // Only ASCII has a meaning here; the low byte stands first or, big-endian, last.
    const uint8_t c = data[i * width + (descr[0] == '>' ? width - 1 : 0)];
    if (c != 0)
      text += c < 0x7f && c >= 0x20 ? static_cast<char>(c) : '?';
  }
  return text;
}

Matrix read_npy(std::span<const uint8_t> bytes, const std::string& name,
                const ReadOptions& options) {
  return sparse_from_dense(parse_npy(bytes, name), options);
}

DenseTensor read_npy_dense(std::span<const uint8_t> bytes, const std::string& name,
                           const ReadOptions&) {
  return tensor_from_dense(parse_npy(bytes, name));
}

TensorInfo describe_npy(std::span<const uint8_t> bytes, const std::string& name) {
  NpyHeader header = parse_npy_header(bytes, name);
  TensorInfo info;
  info.dtype = header.descr;
  info.shape = std::move(header.shape);
  info.bytes = bytes.size() - header.data_offset;
  return info;
}

namespace {

/// The header of a file, with room for the elements behind it; and where they begin.
std::pair<std::vector<uint8_t>, uint64_t> begin_npy(std::span<const uint64_t> shape,
                                                    std::string_view descr, uint64_t data_bytes) {
  // NumPy's own spelling: "(3,)", but "(3, 4)".
  const std::string dimensions =
      fmt::format("{}{}", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, dimensions);
  // Blanks and a line end bring the elements to a multiple of 64 bytes.
  constexpr uint64_t kAlignment = 64;
  const uint64_t begin = kMagic.size() + 4;
  header.append((kAlignment - (begin + header.size() + 1) % kAlignment) % kAlignment, ' ');
  header += '\n';
  if (header.size() > UINT16_MAX)
    throw InternalError(fmt::format("write_npy: {} dimensions", shape.size()));

  std::vector<uint8_t> bytes(begin + header.size() + data_bytes);
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  bytes[6] = 1;
  bytes[7] = 0;
  bytes[8] = static_cast<uint8_t>(header.size());
  bytes[9] = static_cast<uint8_t>(header.size() >> 8);
  std::memcpy(bytes.data() + begin, header.data(), header.size());
  return {std::move(bytes), begin + header.size()};
}

} // namespace

std::vector<uint8_t> npy_bytes(std::span<const uint64_t> shape, StoredType type,
                               std::span<const double> values) {
  const char* descr = nullptr;
  uint64_t width = 0;
  switch (type) {
  case StoredType::f16:
    descr = "<f2";
    width = 2;
    break;
  case StoredType::bf16:
  case StoredType::f32:
    descr = "<f4";
    width = 4;
    break;
  case StoredType::f64:
    descr = "<f8";
    width = 8;
    break;
  case StoredType::i64:
    descr = "<i8";
    width = 8;
    break;
  default:
    throw InternalError(fmt::format("write_npy: elements of type {}", to_string(type)));
  }
  uint64_t elements = 1;
  for (const uint64_t dimension : shape)
    elements *= dimension;
  if (elements != values.size())
    throw InternalError(
        fmt::format("write_npy: {} values for shape {}", values.size(), describe_shape(shape)));
  auto [bytes, data] = begin_npy(shape, descr, values.size() * width);
  uint8_t* to = bytes.data() + data;
  for (const double value : values) {
    uint64_t bits = 0;
    if (type == StoredType::f16)
      bits = to_f16(value);
    else if (type == StoredType::bf16)
      bits = uint32_t{to_bf16(value)} << 16;
    else if (type == StoredType::f32)
      bits = to_f32(value);
    else if (type == StoredType::i64)
      bits = static_cast<uint64_t>(static_cast<int64_t>(value));
    else
      bits = std::bit_cast<uint64_t>(value);
    std::memcpy(to, &bits, width);
    to += width;
  }
  return bytes;
}

void write_npy_elements(const std::string& path, std::span<const uint64_t> shape, StoredType type,
                        std::span<const uint8_t> elements) {
  const std::string_view descr = type == StoredType::i32   ? "<i4"
                                 : type == StoredType::i64 ? "<i8"
                                 : type == StoredType::f16 ? "<f2"
                                 : type == StoredType::f32 ? "<f4"
                                                           : "<f8";
  if (bytes_of(shape, type) != elements.size())
    throw InternalError(fmt::format("write_npy_elements: {} bytes for {} of type {}",
                                    elements.size(), describe_shape(shape), to_string(type)));
  auto [bytes, data] = begin_npy(shape, descr, elements.size());
  std::copy(elements.begin(), elements.end(), bytes.begin() + static_cast<std::ptrdiff_t>(data));
  write_bytes(path, bytes);
}

void write_npy(const std::string& path, std::span<const uint64_t> shape, StoredType type,
               std::span<const double> values) {
  write_bytes(path, npy_bytes(shape, type, values));
}

} // namespace sparsertc
