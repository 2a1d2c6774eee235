// .npz archives: SciPy's sparse matrices (scipy.sparse.save_npz) and NumPy's dense arrays
// (numpy.savez, numpy.savez_compressed).
#include "compiler/input/npy.h"
#include "compiler/input/readers.h"
#include "compiler/input/text_cursor.h"
#include "compiler/input/zip.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sparsertc {
namespace {

constexpr std::string_view kSuffix = ".npy";

class Archive {
public:
  Archive(std::span<const uint8_t> bytes, const std::string& name, const ReadOptions& options)
      : bytes_(bytes), name_(name), options_(options), members_(list_zip(bytes, name)) {}

  const std::vector<ZipMember>& members() const { return members_; }

  const ZipMember* find(std::string_view member) const {
    for (const ZipMember& candidate : members_)
      if (candidate.name == member)
        return &candidate;
    return nullptr;
  }

  std::vector<uint8_t> extract(const ZipMember& member) const {
    return extract_zip(bytes_, member, name_, options_.maximum_bytes);
  }

  /// For places inside a member.
  std::string name_of(const ZipMember& member) const {
    return name_ + ": " + printable(member.name);
  }

  [[noreturn]] void fail(const std::string& message, const std::string& way_out = {}) const {
    throw UserError(Place::binary(name_, 0), message, way_out);
  }

  /// A member that SciPy's layout needs.
  const ZipMember& need(const std::string& member, const std::string& layout) const {
    const ZipMember* const found = find(member + std::string(kSuffix));
    if (found == nullptr)
      fail(fmt::format("a SciPy matrix of format '{}' needs an array '{}', found none", layout,
                       member),
           "write the archive with scipy.sparse.save_npz");
    return *found;
  }

private:
  std::span<const uint8_t> bytes_;
  std::string name_;
  ReadOptions options_;
  std::vector<ZipMember> members_;
};

/// A member's array together with the memory it lies in.
struct Loaded {
  Loaded(const Archive& archive, const ZipMember& member)
      : content(archive.extract(member)), array(parse_npy(content, archive.name_of(member))) {}
  std::vector<uint8_t> content;
  DenseArray array;
};

std::string without_suffix(const std::string& member) {
  return member.ends_with(kSuffix) ? member.substr(0, member.size() - kSuffix.size()) : member;
}

bool is_scipy(const Archive& archive) {
  return archive.find("format.npy") != nullptr && archive.find("shape.npy") != nullptr;
}

bool is_integer(StoredType type) {
  return type >= StoredType::i8 && type <= StoredType::u64;
}

/// A one-dimensional array of whole numbers.
Loaded load_indices(const Archive& archive, const std::string& member, const std::string& layout) {
  Loaded loaded(archive, archive.need(member, layout));
  if (loaded.array.shape.size() != 1 || !is_integer(loaded.array.type))
    throw UserError(Place::binary(loaded.array.name, loaded.array.byte_offset),
                    fmt::format("expected a one-dimensional array of integers, found shape {} of "
                                "{}",
                                describe_shape(loaded.array.shape), to_string(loaded.array.type)));
  return loaded;
}

void check_length(const DenseArray& array, uint64_t expected, const char* because) {
  if (array.elements() != expected)
    throw UserError(
        Place::binary(array.name, array.byte_offset),
        fmt::format("expected {} elements ({}), found {}", expected, because, array.elements()));
}

/// Copies an index for each entry, each below `count`.
void check_indices(const DenseArray& array, const char* what, uint32_t count, uint64_t entries,
                   std::vector<uint32_t>& index) {
  check_length(array, entries, "one for each value");
  index.resize(entries);
  for (uint64_t i = 0; i < entries; ++i) {
    const int64_t number = array.integer(i);
    if (number < 0 || number >= count)
      throw UserError(array.place_of(i),
                      fmt::format("{} index {} is out of range: 0 to {} expected", what, number,
                                  int64_t{count} - 1));
    index[i] = static_cast<uint32_t>(number);
  }
}

/// Fills the compressed dimension's index of each entry from offsets (`indptr`).
void expand_offsets(const DenseArray& offsets, uint32_t count, uint64_t entries,
                    std::vector<uint32_t>& index) {
  check_length(offsets, uint64_t{count} + 1, "the compressed dimension plus 1");
  int64_t previous = 0;
  index.resize(entries);
  for (uint64_t i = 0; i <= count; ++i) {
    const int64_t offset = offsets.integer(i);
    if (i == 0 && offset != 0)
      throw UserError(offsets.place_of(i),
                      fmt::format("the first offset must be 0, found {}", offset));
    if (offset < previous)
      throw UserError(offsets.place_of(i),
                      fmt::format("offsets must not descend: {} after {}", offset, previous));
    if (static_cast<uint64_t>(offset) > entries)
      throw UserError(offsets.place_of(i),
                      fmt::format("offset {} is beyond the {} entries", offset, entries));
    if (i == count && static_cast<uint64_t>(offset) != entries)
      throw UserError(offsets.place_of(i), fmt::format("the last offset must be the number of "
                                                       "entries, {}, found {}",
                                                       entries, offset));
    if (i > 0)
      std::fill(index.begin() + previous, index.begin() + offset, static_cast<uint32_t>(i - 1));
    previous = offset;
  }
}

Matrix read_scipy(const Archive& archive, const std::string& name, const ReadOptions& options) {
  const ZipMember& format_member = *archive.find("format.npy");
  const std::string layout =
      parse_npy_string(archive.extract(format_member), archive.name_of(format_member));
  if (layout != "csr" && layout != "csc" && layout != "coo")
    throw UserError(Place::binary(archive.name_of(format_member), 0),
                    fmt::format("expected a SciPy matrix of format csr, csc or coo, found '{}'",
                                printable(layout)),
                    "convert with matrix.tocsr() before save_npz");

  const Loaded shape = load_indices(archive, "shape", layout);
  check_length(shape.array, 2, "rows and columns");
  const Loaded data(archive, archive.need("data", layout));
  if (data.array.shape.size() != 1)
    throw UserError(Place::binary(data.array.name, data.array.byte_offset),
                    fmt::format("expected a one-dimensional array of values, found shape {}",
                                describe_shape(data.array.shape)));
  const uint64_t entries = data.array.elements();
  const bool coordinates = layout == "coo";
  // Of coordinates the rows and the columns; else the indices and the offsets to them.
  const Loaded indices = load_indices(archive, coordinates ? "row" : "indices", layout);
  const Loaded partner = load_indices(archive, coordinates ? "col" : "indptr", layout);

  Triplets triplets;
  const uint64_t bytes_there =
      data.array.bytes.size() + indices.array.bytes.size() + partner.array.bytes.size();
  for (const auto& [i, what, dimension] :
       {std::tuple{uint64_t{0}, "rows", &triplets.rows}, {1, "columns", &triplets.columns}}) {
    const int64_t count = shape.array.integer(i);
    const Place place = shape.array.place_of(i);
    if (count < 0)
      throw UserError(place, fmt::format("the number of {} is negative: {}", what, count));
    check_dimension(static_cast<uint64_t>(count), what, bytes_there, place);
    *dimension = static_cast<uint32_t>(count);
  }
  if (layout == "csr") {
    check_indices(indices.array, "column", triplets.columns, entries, triplets.column);
    expand_offsets(partner.array, triplets.rows, entries, triplets.row);
  } else if (layout == "csc") {
    check_indices(indices.array, "row", triplets.rows, entries, triplets.row);
    expand_offsets(partner.array, triplets.columns, entries, triplets.column);
  } else {
    check_indices(indices.array, "row", triplets.rows, entries, triplets.row);
    check_indices(partner.array, "column", triplets.columns, entries, triplets.column);
  }
  triplets.value = tensor_from_dense(data.array).values;
  if (!options.allow_nonfinite)
    for (uint64_t i = 0; i < entries; ++i)
      if (!std::isfinite(triplets.value[i]))
        throw UserError(data.array.place_of(i),
                        fmt::format("the value at row {}, column {} (counted from 0) is {}, "
                                    "expected a finite number",
                                    triplets.row[i], triplets.column[i], triplets.value[i]),
                        "repair the weights: they must be finite");

  std::vector<uint32_t> rows;
  std::vector<uint32_t> columns;
  if (options.duplicates == Duplicates::refuse) {
    rows = triplets.row;
    columns = triplets.column;
  }
  Matrix matrix =
      compress(std::move(triplets), options.duplicates, [&](uint64_t first, uint64_t second) {
        throw UserError(data.array.place_of(second),
                        fmt::format("entry {} is a second one at row {}, column {} (counted from "
                                    "0); the first is entry {}",
                                    second, rows[second], columns[second], first),
                        "call sum_duplicates() before save_npz, or let duplicates be summed");
      });
  matrix.stored = data.array.type;
  matrix.name = name;
  return matrix;
}

/// The dense array to read: the one that is named, or the only one that can be meant.
const ZipMember& choose(const Archive& archive, const ReadOptions& options, size_t dimensions) {
  std::vector<std::string> names;
  for (const ZipMember& member : archive.members())
    names.push_back(without_suffix(member.name));
  constexpr size_t kShown = 10;
  std::vector<std::string> first;
  for (size_t i = 0; i < names.size() && i < kShown; ++i)
    first.push_back(printable(names[i]));
  const std::string shown =
      fmt::format("{}{}", fmt::join(first, ", "), names.size() > kShown ? ", ..." : "");
  if (!options.tensor.empty()) {
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] == options.tensor || archive.members()[i].name == options.tensor)
        return archive.members()[i];
    archive.fail(fmt::format("expected an array '{}', found {}", printable(options.tensor),
                             names.empty() ? "none" : shown),
                 "--list-tensors shows all");
  }
  if (names.empty())
    archive.fail("the archive holds no array");
  if (names.size() == 1)
    return archive.members()[0];
  const ZipMember* only = nullptr;
  size_t candidates = 0;
  for (const ZipMember& member : archive.members()) {
    const std::vector<uint8_t> content = archive.extract(member);
    if (parse_npy_header(content, archive.name_of(member)).shape.size() >= dimensions) {
      only = &member;
      if (++candidates > 1)
        break;
    }
  }
  if (candidates != 1)
    archive.fail(fmt::format("the archive holds several arrays ({})", shown),
                 "choose one with --tensor=NAME");
  return *only;
}

} // namespace

Matrix read_npz(std::span<const uint8_t> bytes, const std::string& name,
                const ReadOptions& options) {
  const Archive archive(bytes, name, options);
  if (is_scipy(archive) && options.tensor.empty())
    return read_scipy(archive, name, options);
  const Loaded loaded(archive, choose(archive, options, 2));
  return sparse_from_dense(loaded.array, options);
}

DenseTensor read_npz_dense(std::span<const uint8_t> bytes, const std::string& name,
                           const ReadOptions& options) {
  const Archive archive(bytes, name, options);
  if (is_scipy(archive) && options.tensor.empty())
    archive.fail("expected a dense array, found a sparse SciPy matrix",
                 "save matrix.toarray() with numpy.save");
  const Loaded loaded(archive, choose(archive, options, 0));
  return tensor_from_dense(loaded.array);
}

std::vector<TensorInfo> list_npz(std::span<const uint8_t> bytes, const std::string& name,
                                 const ReadOptions& options) {
  const Archive archive(bytes, name, options);
  std::vector<TensorInfo> list;
  for (const ZipMember& member : archive.members()) {
    TensorInfo info = describe_npy(archive.extract(member), archive.name_of(member));
    info.name = without_suffix(member.name);
    list.push_back(std::move(info));
  }
  return list;
}

void write_npz(const std::string& path, std::span<const NamedArray> arrays) {
  std::vector<ZipContent> members;
  for (const NamedArray& array : arrays)
    members.push_back({array.name + ".npy", npy_bytes(array.shape, array.type, array.values)});
  write_bytes(path, zip_bytes(members));
}

} // namespace sparsertc
