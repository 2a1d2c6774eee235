// The safetensors format: 8 bytes of header length, a JSON header with the type, shape and place of
// each tensor, then the tensors' bytes without gaps.
#include "compiler/input/dense_array.h"
#include "compiler/input/readers.h"
#include "compiler/input/text_cursor.h"

#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace sparsertc {
namespace {

constexpr uint64_t kLengthBytes = 8;
/// The format's own limit.
constexpr uint64_t kLongestHeader = 100'000'000;

struct TypeName {
  const char* name;
  StoredType type;
  bool boolean = false;
};

constexpr TypeName kTypes[] = {
    {"F64", StoredType::f64},      {"F32", StoredType::f32}, {"F16", StoredType::f16},
    {"BF16", StoredType::bf16},    {"I64", StoredType::i64}, {"I32", StoredType::i32},
    {"I16", StoredType::i16},      {"I8", StoredType::i8},   {"U64", StoredType::u64},
    {"U32", StoredType::u32},      {"U16", StoredType::u16}, {"U8", StoredType::u8},
    {"BOOL", StoredType::u8, true}};

struct Tensor {
  std::string name;
  std::string dtype;
  /// Null for types of the format that are not read (F8_E4M3, ...): they may be listed.
  const TypeName* type = nullptr;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

class File {
public:
  File(std::span<const uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {
    read_length();
    read_header();
    check_places();
  }

  /// Sorted by name.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor& choose(const std::string& wanted, size_t dimensions) const;
  DenseArray array(const Tensor& tensor) const;

private:
  [[noreturn]] void fail(uint64_t at, const std::string& message,
                         const std::string& way_out = {}) const {
    throw UserError(Place::binary(name_, at), message, way_out);
  }
  /// For faults inside the header: the place is where it begins, the message names the tensor.
  [[noreturn]] void fail_in(const std::string& tensor, const std::string& message,
                            const std::string& way_out = {}) const {
    fail(kLengthBytes, fmt::format("tensor '{}': {}", printable(tensor), message), way_out);
  }
  void read_length();
  void read_header();
  Tensor read_tensor(const std::string& name, const nlohmann::json& entry) const;
  std::vector<uint64_t> read_numbers(const std::string& tensor, const nlohmann::json& entry,
                                     const char* key) const;
  void check_places() const;

  uint64_t data_begin() const { return kLengthBytes + header_bytes_; }
  uint64_t data_bytes() const { return bytes_.size() - data_begin(); }

  std::span<const uint8_t> bytes_;
  std::string name_;
  uint64_t header_bytes_ = 0;
  std::vector<Tensor> tensors_;
};

void File::read_length() {
  if (bytes_.size() < kLengthBytes)
    fail(bytes_.size(), bytes_.empty() ? "the file is empty, expected a safetensors header"
                                       : "expected 8 bytes of header length, found the end of the "
                                         "file");
  for (int i = 7; i >= 0; --i)
    header_bytes_ = header_bytes_ << 8 | bytes_[static_cast<size_t>(i)];
  if (header_bytes_ > bytes_.size() - kLengthBytes)
    fail(0,
         fmt::format("a header of {} bytes is promised, but only {} bytes follow", header_bytes_,
                     bytes_.size() - kLengthBytes),
         "the file is truncated or no safetensors file");
  if (header_bytes_ > kLongestHeader)
    fail(0, fmt::format("the header has {} bytes, the format allows {}", header_bytes_,
                        kLongestHeader));
}

void File::read_header() {
  const auto* const begin = reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes;
  // The library keeps the last of several equal keys: a file with two must be refused here. Depth
  // is limited because no valid header is deeper than tensor, key, array.
  constexpr int kDeepest = 4;
  std::set<std::string> keys;
  std::string twice;
  bool too_deep = false;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    too_deep = too_deep || depth > kDeepest;
    if (event == nlohmann::json::parse_event_t::key && depth == 1)
      if (!keys.insert(value.get<std::string>()).second && twice.empty())
        twice = value.get<std::string>();
    return !too_deep;
  };
  nlohmann::json header;
  try {
    header = nlohmann::json::parse(begin, begin + header_bytes_, watch);
  } catch (const nlohmann::json::parse_error& error) {
    const uint64_t at = error.byte > 0 ? error.byte - 1 : 0;
    fail(kLengthBytes + std::min(at, header_bytes_), "the header is not valid JSON",
         "the file is damaged or no safetensors file");
  } catch (const nlohmann::json::out_of_range&) {
    fail(kLengthBytes, "a number in the header does not fit in 64 bits",
         "the file is damaged or no safetensors file");
  }
  if (!header.is_object() || too_deep)
    fail(kLengthBytes, "expected a JSON object that describes each tensor");
  if (!twice.empty())
    fail_in(twice, "is described twice");
  for (const auto& [name, entry] : header.items())
    if (name != "__metadata__")
      tensors_.push_back(read_tensor(name, entry));
}

std::vector<uint64_t> File::read_numbers(const std::string& tensor, const nlohmann::json& entry,
                                         const char* key) const {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array())
    fail_in(tensor, fmt::format("expected an array '{}'", key));
  std::vector<uint64_t> numbers;
  for (const nlohmann::json& number : *found) {
    if (!number.is_number_unsigned())
      fail_in(tensor,
              fmt::format("expected whole numbers from 0 to 2^64 - 1 in '{}', found {}", key,
                          number.is_number() ? number.dump() : std::string(number.type_name())));
    numbers.push_back(number.get<uint64_t>());
  }
  return numbers;
}

Tensor File::read_tensor(const std::string& name, const nlohmann::json& entry) const {
  Tensor tensor;
  tensor.name = name;
  if (!entry.is_object())
    fail_in(name, "expected an object with 'dtype', 'shape' and 'data_offsets'");
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string())
    fail_in(name, "expected a string 'dtype'");
  tensor.dtype = dtype->get<std::string>();
  tensor.shape = read_numbers(name, entry, "shape");
  const std::vector<uint64_t> offsets = read_numbers(name, entry, "data_offsets");
  if (offsets.size() != 2)
    fail_in(name, fmt::format("expected 2 'data_offsets', found {}", offsets.size()));
  tensor.begin = offsets[0];
  tensor.end = offsets[1];
  if (tensor.begin > tensor.end)
    fail_in(name, fmt::format("data offsets {} to {} descend", tensor.begin, tensor.end));
  if (tensor.end > data_bytes())
    fail_in(name,
            fmt::format("data offsets {} to {} are promised, but only {} bytes follow the header",
                        tensor.begin, tensor.end, data_bytes()),
            "the file is truncated; write or fetch it again");
  for (const TypeName& type : kTypes)
    if (tensor.dtype == type.name)
      tensor.type = &type;
  if (tensor.type != nullptr) {
    const std::optional<uint64_t> needed = bytes_of(tensor.shape, tensor.type->type);
    if (!needed || *needed != tensor.end - tensor.begin)
      fail_in(name, fmt::format("shape {} of {} needs {} bytes, but the data offsets give {}",
                                describe_shape(tensor.shape), tensor.dtype,
                                needed ? fmt::format("{}", *needed) : "more than 2^64",
                                tensor.end - tensor.begin));
  }
  return tensor;
}

void File::check_places() const {
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : tensors_)
    order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) {
    return std::tie(a->begin, a->end, a->name) < std::tie(b->begin, b->end, b->name);
  });
  uint64_t covered = 0;
  for (const Tensor* tensor : order) {
    if (tensor->begin < covered)
      fail_in(tensor->name, fmt::format("its data overlaps another tensor's: it begins at {}, the "
                                        "other ends at {}",
                                        tensor->begin, covered));
    if (tensor->begin > covered)
      fail_in(tensor->name, fmt::format("its data begins at {}, but {} bytes before it belong to "
                                        "no tensor",
                                        tensor->begin, tensor->begin - covered));
    covered = tensor->end;
  }
  if (covered != data_bytes())
    fail(data_begin() + covered,
         fmt::format("{} bytes at the end belong to no tensor", data_bytes() - covered),
         "the file is damaged; write or fetch it again");
}

const Tensor& File::choose(const std::string& wanted, size_t dimensions) const {
  constexpr size_t kShown = 10;
  std::vector<std::string> names;
  for (size_t i = 0; i < tensors_.size() && i < kShown; ++i)
    names.push_back(printable(tensors_[i].name));
  const std::string list =
      fmt::format("{}{}", fmt::join(names, ", "), tensors_.size() > kShown ? ", ..." : "");
  if (!wanted.empty()) {
    for (const Tensor& tensor : tensors_)
      if (tensor.name == wanted)
        return tensor;
    fail(kLengthBytes,
         fmt::format("expected a tensor '{}', found {}", printable(wanted),
                     tensors_.empty() ? "none" : list),
         "--list-tensors shows all");
  }
  if (tensors_.empty())
    fail(kLengthBytes, "the file holds no tensor");
  if (tensors_.size() == 1)
    return tensors_[0];
  const auto fits = [&](const Tensor& tensor) { return tensor.shape.size() >= dimensions; };
  if (std::count_if(tensors_.begin(), tensors_.end(), fits) != 1)
    fail(kLengthBytes, fmt::format("the file holds several tensors ({})", list),
         "choose one with --tensor=NAME");
  return *std::find_if(tensors_.begin(), tensors_.end(), fits);
}

DenseArray File::array(const Tensor& tensor) const {
  if (tensor.type == nullptr) {
    std::vector<const char*> known;
    for (const TypeName& type : kTypes)
      known.push_back(type.name);
    fail_in(tensor.name,
            fmt::format("expected a dtype of {}, found '{}'", fmt::join(known, ", "),
                        printable(tensor.dtype)),
            "convert the tensor to F32");
  }
  DenseArray array;
  array.shape = tensor.shape;
  array.type = tensor.type->type;
  array.boolean = tensor.type->boolean;
  array.bytes = bytes_.subspan(data_begin() + tensor.begin, tensor.end - tensor.begin);
  array.name = name_ + ": " + printable(tensor.name);
  array.byte_offset = data_begin() + tensor.begin;
  return array;
}

} // namespace

Matrix read_safetensors(std::span<const uint8_t> bytes, const std::string& name,
                        const ReadOptions& options) {
  const File file(bytes, name);
  return sparse_from_dense(file.array(file.choose(options.tensor, 2)), options);
}

DenseTensor read_safetensors_dense(std::span<const uint8_t> bytes, const std::string& name,
                                   const ReadOptions& options) {
  const File file(bytes, name);
  return tensor_from_dense(file.array(file.choose(options.tensor, 0)));
}

std::vector<TensorInfo> list_safetensors(std::span<const uint8_t> bytes, const std::string& name) {
  const File file(bytes, name);
  std::vector<TensorInfo> list;
  for (const Tensor& tensor : file.tensors())
    list.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.end - tensor.begin});
  return list;
}

} // namespace sparsertc
