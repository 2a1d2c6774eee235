#include "tests/support/input_files.h"

#include <stdexcept>

#include <fmt/format.h>
#include <zlib.h>

namespace sparsertc::testing {
namespace {

void append(Bytes& to, const Bytes& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void number(Bytes& to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    to.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

Bytes deflate_with(const Bytes& content, int window_bits) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("zlib");
  Bytes output(deflateBound(&stream, content.size()) + 64);
  stream.next_in = const_cast<Bytef*>(content.data());
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = output.data();
  stream.avail_out = static_cast<uInt>(output.size());
  const int code = deflate(&stream, Z_FINISH);
  output.resize(stream.total_out);
  deflateEnd(&stream);
  if (code != Z_STREAM_END)
    throw std::runtime_error("zlib");
  return output;
}

} // namespace

Bytes bytes_of_text(std::string_view text) {
  return {text.begin(), text.end()};
}

Bytes npy_file(std::string_view descr, bool fortran_order, std::string_view shape,
               const Bytes& data, unsigned version, std::string_view header) {
  std::string dictionary(header);
  if (dictionary.empty())
    dictionary = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}), }}", descr,
                             fortran_order ? "True" : "False", shape);
  const size_t begin = version == 1 ? 10 : 12;
  while ((begin + dictionary.size() + 1) % 64 != 0)
    dictionary += ' ';
  dictionary += '\n';
  Bytes bytes = bytes_of_text("\x93NUMPY");
  bytes.push_back(static_cast<uint8_t>(version));
  bytes.push_back(0);
  number(bytes, dictionary.size(), version == 1 ? 2 : 4);
  append(bytes, bytes_of_text(dictionary));
  append(bytes, data);
  return bytes;
}

Bytes zip_file(const std::vector<Member>& members, bool deflated) {
  Bytes archive;
  Bytes directory;
  for (const Member& member : members) {
    const uint64_t offset = archive.size();
    const Bytes data = deflated ? deflate_with(member.content, -MAX_WBITS) : member.content;
    const uint64_t crc = crc32(0, member.content.data(), static_cast<uInt>(member.content.size()));
    const int method = deflated ? 8 : 0;
    number(archive, 0x04034b50, 4);
    number(archive, 45, 2);
    number(archive, 0, 2);
    number(archive, static_cast<uint64_t>(method), 2);
    number(archive, 0, 4);
    number(archive, crc, 4);
    number(archive, 0xffffffff, 4);
    number(archive, 0xffffffff, 4);
    number(archive, member.name.size(), 2);
    number(archive, 20, 2);
    append(archive, bytes_of_text(member.name));
    number(archive, 1, 2);
    number(archive, 16, 2);
    number(archive, member.content.size(), 8);
    number(archive, data.size(), 8);
    append(archive, data);

    number(directory, 0x02014b50, 4);
    number(directory, 45, 2);
    number(directory, 45, 2);
    number(directory, 0, 2);
    number(directory, static_cast<uint64_t>(method), 2);
    number(directory, 0, 4);
    number(directory, crc, 4);
    number(directory, data.size(), 4);
    number(directory, member.content.size(), 4);
    number(directory, member.name.size(), 2);
    number(directory, 0, 2);
    number(directory, 0, 2);
    number(directory, 0, 8);
    number(directory, offset, 4);
    append(directory, bytes_of_text(member.name));
  }
  const uint64_t directory_at = archive.size();
  append(archive, directory);
  number(archive, 0x06054b50, 4);
  number(archive, 0, 4);
  number(archive, members.size(), 2);
  number(archive, members.size(), 2);
  number(archive, directory.size(), 4);
  number(archive, directory_at, 4);
  number(archive, 0, 2);
  return archive;
}

Bytes safetensors_file(std::string_view json, const Bytes& data) {
  Bytes bytes;
  number(bytes, json.size(), 8);
  append(bytes, bytes_of_text(json));
  append(bytes, data);
  return bytes;
}

Bytes gzip(const Bytes& content) {
  return deflate_with(content, 16 + MAX_WBITS);
}

std::vector<Member>
scipy_members(std::string_view format, std::vector<int64_t> shape, const std::vector<double>& data,
              const std::vector<std::pair<std::string, std::vector<int32_t>>>& indices) {
  std::vector<Member> members;
  for (const auto& [name, numbers] : indices)
    members.push_back(
        {name + ".npy", npy_file("<i4", false, fmt::format("{},", numbers.size()), raw(numbers))});
  members.push_back({"format.npy", npy_file(fmt::format("|S{}", format.size()), false, "",
                                            bytes_of_text(format))});
  members.push_back(
      {"shape.npy", npy_file("<i8", false, fmt::format("{},", shape.size()), raw(shape))});
  members.push_back(
      {"data.npy", npy_file("<f8", false, fmt::format("{},", data.size()), raw(data))});
  return members;
}

} // namespace sparsertc::testing
