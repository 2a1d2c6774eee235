#include "compiler/input/convert.h"
#include "compiler/input/read.h"
#include "ir/error.h"
#include "tests/support/input_files.h"
#include "tests/support/temporary_folder.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <unistd.h>

namespace sparsertc::testing {
namespace {

Matrix read(const Bytes& bytes, Format format, const ReadOptions& options = {}) {
  return read_matrix_from_bytes(bytes, "in", format, options);
}

DenseTensor dense(const Bytes& bytes, Format format, const ReadOptions& options = {}) {
  return read_dense_from_bytes(bytes, "in", format, options);
}

ReadOptions tensor(std::string name) {
  ReadOptions options;
  options.tensor = std::move(name);
  return options;
}

/// 0 3 0
/// 1 0 2
const Pattern kPattern = {2, 3, {0, 1, 3}, {1, 0, 2}};
const std::vector<double> kValues = {3, 1, 2};

template <typename T>
void check_type(const std::string& kind, StoredType type) {
  INFO("type " << kind);
  const std::vector<T> row_major = {0, 3, 0, 1, 0, 2};
  const std::vector<T> column_major = {0, 1, 3, 0, 0, 2};
  for (const bool big : {false, true})
    for (const bool fortran : {false, true}) {
      const std::string order = sizeof(T) == 1 ? "|" : big ? ">" : "<";
      const Matrix matrix = read(
          npy_file(order + kind, fortran, "2, 3", raw(fortran ? column_major : row_major, big)),
          Format::npy);
      CHECK(matrix.pattern == kPattern);
      CHECK(matrix.values == kValues);
      CHECK(matrix.stored == type);
    }
}

} // namespace

TEST_CASE("npy: every element type, both byte orders, both orders of elements") {
  check_type<float>("f4", StoredType::f32);
  check_type<double>("f8", StoredType::f64);
  check_type<int8_t>("i1", StoredType::i8);
  check_type<int16_t>("i2", StoredType::i16);
  check_type<int32_t>("i4", StoredType::i32);
  check_type<int64_t>("i8", StoredType::i64);
  check_type<uint8_t>("u1", StoredType::u8);
  check_type<uint16_t>("u2", StoredType::u16);
  check_type<uint32_t>("u4", StoredType::u32);
  check_type<uint64_t>("u8", StoredType::u64);
  for (const bool big : {false, true}) {
    const std::vector<uint16_t> halves = {0, to_f16(3), 0x8000, to_f16(1), 0, to_f16(2)};
    const Matrix matrix =
        read(npy_file(big ? ">f2" : "<f2", false, "2, 3", raw(halves, big)), Format::npy);
    CHECK(matrix.pattern == kPattern);
    CHECK(matrix.values == kValues);
    CHECK(matrix.stored == StoredType::f16);
  }
  const Matrix booleans = read(npy_file("|b1", false, "2, 3", {0, 1, 0, 1, 0, 1}), Format::npy);
  CHECK(booleans.pattern == kPattern);
  CHECK(booleans.stored == StoredType::u8);
  const Matrix large =
      read(npy_file("<i8", false, "1, 2",
                    raw(std::vector<int64_t>{9007199254740993, -9007199254740995})),
           Format::npy);
  CHECK(large.values == std::vector<double>{9007199254740992.0, -9007199254740996.0});
}

TEST_CASE("npy: versions and headers as other writers make them") {
  const Bytes data = raw(std::vector<float>{0, 3, 0, 1, 0, 2});
  for (const unsigned version : {1u, 2u, 3u})
    CHECK(read(npy_file("<f4", false, "2, 3", data, version), Format::npy).pattern == kPattern);
  for (const char* header : {"{\"shape\": (2L, 3L), \"fortran_order\": False, \"descr\": \"<f4\"}",
                             "{'descr':'f4','fortran_order':False,'shape':(2,3,),}"})
    CHECK(read(npy_file("", false, "", data, 1, header), Format::npy).pattern == kPattern);
}

TEST_CASE("npy: zeros are no entries, -0.0 is a zero, subnormals are not") {
  const Matrix matrix =
      read(npy_file("<f8", false, "1, 4", raw(std::vector<double>{-0.0, 5e-324, 0.0, -5e-324})),
           Format::npy);
  CHECK(matrix.pattern == Pattern{1, 4, {0, 2}, {1, 3}});
  CHECK(matrix.values == std::vector<double>{5e-324, -5e-324});
}

TEST_CASE("npy: four dimensions are flattened, in either order") {
  std::vector<float> row_major(2 * 3 * 2 * 2);
  for (size_t i = 0; i < row_major.size(); ++i)
    row_major[i] = static_cast<float>(i);
  std::vector<float> column_major;
  for (size_t d = 0; d < 2; ++d)
    for (size_t c = 0; c < 2; ++c)
      for (size_t b = 0; b < 3; ++b)
        for (size_t a = 0; a < 2; ++a)
          column_major.push_back(row_major[((a * 3 + b) * 2 + c) * 2 + d]);
  const Matrix c_order = read(npy_file("<f4", false, "2, 3, 2, 2", raw(row_major)), Format::npy);
  const Matrix f_order = read(npy_file("<f4", true, "2, 3, 2, 2", raw(column_major)), Format::npy);
  CHECK(c_order.pattern.rows == 2);
  CHECK(c_order.pattern.columns == 12);
  CHECK(c_order.pattern == f_order.pattern);
  CHECK(c_order.values == f_order.values);
  CHECK(c_order.values[0] == 1);
  CHECK(c_order.source_shape == std::vector<uint64_t>{2, 3, 2, 2});
  REQUIRE(c_order.remarks.size() == 1);
  CHECK(c_order.remarks[0].find("[2, 3, 2, 2] is read as 2 x 12") != std::string::npos);
  const DenseTensor tensor_ =
      dense(npy_file("<f4", true, "2, 3, 2, 2", raw(column_major)), Format::npy);
  CHECK(tensor_.fortran_order);
  CHECK(tensor_.values == std::vector<double>(row_major.begin(), row_major.end()));
}

TEST_CASE("npy: empty in every way") {
  CHECK(read(npy_file("<f4", false, "0, 0", {}), Format::npy).pattern == Pattern{});
  CHECK(read(npy_file("<f4", false, "0, 3", {}), Format::npy).pattern == Pattern{0, 3, {0}, {}});
  CHECK(read(npy_file("<f4", true, "2, 0", {}), Format::npy).pattern ==
        Pattern{2, 0, {0, 0, 0}, {}});
  CHECK(read(npy_file("<f4", false, "2, 0, 3", {}), Format::npy).pattern ==
        Pattern{2, 0, {0, 0, 0}, {}});
}

TEST_CASE("npz: SciPy's layouts, stored and deflated") {
  const std::vector<std::vector<Member>> layouts = {
      scipy_members("csr", {2, 3}, {3, 1, 2}, {{"indices", {1, 0, 2}}, {"indptr", {0, 1, 3}}}),
      scipy_members("csc", {2, 3}, {1, 3, 2}, {{"indices", {1, 0, 1}}, {"indptr", {0, 1, 2, 3}}}),
      scipy_members("coo", {2, 3}, {2, 1, 3}, {{"row", {1, 1, 0}}, {"col", {2, 0, 1}}}),
      // Unsorted within the row.
      scipy_members("csr", {2, 3}, {3, 2, 1}, {{"indices", {1, 2, 0}}, {"indptr", {0, 1, 3}}})};
  for (const std::vector<Member>& members : layouts)
    for (const bool deflated : {false, true}) {
      const Matrix matrix = read(zip_file(members, deflated), Format::npz);
      CHECK(matrix.pattern == kPattern);
      CHECK(matrix.values == kValues);
      CHECK(matrix.stored == StoredType::f64);
    }
  // An explicit zero stays; duplicates are summed.
  const Matrix kept = read(zip_file(scipy_members("csr", {1, 3}, {0, 4, 5},
                                                  {{"indices", {0, 2, 2}}, {"indptr", {0, 3}}}),
                                    true),
                           Format::npz);
  CHECK(kept.pattern == Pattern{1, 3, {0, 2}, {0, 2}});
  CHECK(kept.values == std::vector<double>{0, 9});
  CHECK(kept.remarks.size() == 1);
  // A Unicode name of the format, as some versions wrote.
  std::vector<Member> members = layouts[2];
  members[2].content = npy_file("<U3", false, "", raw(std::vector<uint32_t>{'c', 'o', 'o'}));
  CHECK(read(zip_file(members, false), Format::npz).pattern == kPattern);
}

TEST_CASE("npz: dense arrays, chosen by name or by being the only matrix") {
  const Bytes w = npy_file("<f4", false, "2, 3", raw(std::vector<float>{0, 3, 0, 1, 0, 2}));
  const Bytes bias = npy_file("<f8", false, "2,", raw(std::vector<double>{7, 8}));
  CHECK(read(zip_file({{"arr_0.npy", w}}, false), Format::npz).pattern == kPattern);
  const Bytes both = zip_file({{"bias.npy", bias}, {"w.npy", w}}, true);
  CHECK(read(both, Format::npz).pattern == kPattern);
  CHECK(read(both, Format::npz, tensor("w")).pattern == kPattern);
  CHECK(dense(both, Format::npz, tensor("bias")).values == std::vector<double>{7, 8});
  const std::vector<TensorInfo> list = list_tensors_from_bytes(both, "in", Format::npz);
  REQUIRE(list.size() == 2);
  CHECK(list[0].name == "bias");
  CHECK(list[0].dtype == "<f8");
  CHECK(list[0].shape == std::vector<uint64_t>{2});
  CHECK(list[1].name == "w");
  CHECK(list[1].bytes == 24);
}

TEST_CASE("safetensors: every type") {
  const auto file = [](const std::string& dtype, const Bytes& data) {
    return safetensors_file(fmt::format(R"({{"__metadata__":{{"by":"a test"}},"w":{{"dtype":"{}",)"
                                        R"("shape":[2,3],"data_offsets":[0,{}]}}}})",
                                        dtype, data.size()),
                            data);
  };
  const auto check = [&](const std::string& dtype, const Bytes& data, StoredType type) {
    INFO("dtype " << dtype);
    const Matrix matrix = read(file(dtype, data), Format::safetensors);
    CHECK(matrix.pattern == kPattern);
    CHECK(matrix.values == kValues);
    CHECK(matrix.stored == type);
    CHECK(matrix.name == "in: w");
  };
  check("F64", raw(std::vector<double>{0, 3, -0.0, 1, 0, 2}), StoredType::f64);
  check("F32", raw(std::vector<float>{0, 3, 0, 1, 0, 2}), StoredType::f32);
  check("F16", raw(std::vector<uint16_t>{0, to_f16(3), 0, to_f16(1), 0, to_f16(2)}),
        StoredType::f16);
  check("BF16", raw(std::vector<uint16_t>{0, to_bf16(3), 0, to_bf16(1), 0, to_bf16(2)}),
        StoredType::bf16);
  check("I64", raw(std::vector<int64_t>{0, 3, 0, 1, 0, 2}), StoredType::i64);
  check("I32", raw(std::vector<int32_t>{0, 3, 0, 1, 0, 2}), StoredType::i32);
  check("I16", raw(std::vector<int16_t>{0, 3, 0, 1, 0, 2}), StoredType::i16);
  check("I8", raw(std::vector<int8_t>{0, 3, 0, 1, 0, 2}), StoredType::i8);
  check("U64", raw(std::vector<uint64_t>{0, 3, 0, 1, 0, 2}), StoredType::u64);
  check("U32", raw(std::vector<uint32_t>{0, 3, 0, 1, 0, 2}), StoredType::u32);
  check("U16", raw(std::vector<uint16_t>{0, 3, 0, 1, 0, 2}), StoredType::u16);
  check("U8", raw(std::vector<uint8_t>{0, 3, 0, 1, 0, 2}), StoredType::u8);
  CHECK(read(file("BOOL", {0, 1, 0, 1, 0, 1}), Format::safetensors).pattern == kPattern);
}

TEST_CASE("safetensors: choosing and listing") {
  Bytes data = raw(std::vector<float>{7, 8, 0, 3, 0, 1, 0, 2});
  data.resize(data.size() + 4);
  const Bytes file =
      safetensors_file(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
                       R"("bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("new":{"dtype":"F8_E5M2","shape":[4],"data_offsets":[32,36]}}   )",
                       data);
  CHECK(read(file, Format::safetensors).pattern == kPattern);
  CHECK(dense(file, Format::safetensors, tensor("bias")).values == std::vector<double>{7, 8});
  const std::vector<TensorInfo> list = list_tensors_from_bytes(file, "in", Format::safetensors);
  REQUIRE(list.size() == 3);
  CHECK(list[0].name == "bias");
  CHECK(list[1].name == "new");
  CHECK(list[1].dtype == "F8_E5M2");
  CHECK(list[1].bytes == 4);
  CHECK(list[2].shape == std::vector<uint64_t>{2, 3});
}

TEST_CASE("gzip: several members and padding") {
  const Bytes npy = npy_file("<f4", false, "2, 3", raw(std::vector<float>{0, 3, 0, 1, 0, 2}));
  Bytes file = gzip({npy.begin(), npy.begin() + 50});
  const Bytes second = gzip({npy.begin() + 50, npy.end()});
  file.insert(file.end(), second.begin(), second.end());
  CHECK(decompress_gzip(file, "in") == npy);
  file.resize(file.size() + 100);
  CHECK(read(file, Format::npy).pattern == kPattern);
  // More than is gathered without counting first.
  const Bytes zeros(size_t{70} << 20);
  CHECK(decompress_gzip(gzip(zeros), "in") == zeros);
  CHECK(decompress_gzip(gzip(zeros), "in", zeros.size()) == zeros);
  CHECK_THROWS_AS(decompress_gzip(gzip(zeros), "in", zeros.size() - 1), UserError);
}

TEST_CASE("write_npy: what is written reads back, rounded") {
  const std::vector<double> values = {1.0 / 3, -0.0, NAN, 1e300, 5, 70000};
  const std::vector<uint64_t> shape = {2, 3};
  for (const StoredType type :
       {StoredType::f16, StoredType::bf16, StoredType::f32, StoredType::f64}) {
    INFO("type " << to_string(type));
    const DenseTensor back = dense(npy_bytes(shape, type, values), Format::npy);
    CHECK(back.shape == shape);
    CHECK(back.stored == (type == StoredType::bf16 ? StoredType::f32 : type));
    CHECK_FALSE(back.fortran_order);
    for (size_t i = 0; i < values.size(); ++i) {
      const double expected = round_to(values[i], type);
      CHECK((std::isnan(expected) ? std::isnan(back.values[i]) : back.values[i] == expected));
      CHECK(std::signbit(back.values[i]) == std::signbit(expected));
    }
  }
  CHECK(dense(npy_bytes(std::vector<uint64_t>{}, StoredType::f32, std::vector<double>{4}),
              Format::npy)
            .shape.empty());
  CHECK(dense(npy_bytes(std::vector<uint64_t>{0, 7}, StoredType::f32, {}), Format::npy).shape ==
        std::vector<uint64_t>{0, 7});
  CHECK(npy_bytes(std::vector<uint64_t>{3}, StoredType::f32, std::vector<double>{1, 2, 3}).size() ==
        128 + 12);
}

TEST_CASE("write_npz: what is written reads back, exactly") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/all.npz";
  const std::vector<NamedArray> arrays = {
      {"whole", {3}, StoredType::i64, {-1, 0, 9007199254740992.0}},
      {"real", {2, 2}, StoredType::f64, {1.0 / 3, -0.0, INFINITY, 5e-324}},
      {"empty", {0}, StoredType::f64, {}}};
  write_npz(path, arrays);
  const std::vector<uint8_t> bytes = read_bytes(path);
  write_npz(path, arrays);
  CHECK(read_bytes(path) == bytes);
  const std::vector<TensorInfo> listed = list_tensors(path);
  REQUIRE(listed.size() == 3);
  for (size_t i = 0; i < arrays.size(); ++i) {
    CHECK(listed[i].name == arrays[i].name);
    CHECK(listed[i].shape == arrays[i].shape);
    CHECK(listed[i].dtype == (arrays[i].type == StoredType::i64 ? "<i8" : "<f8"));
    const DenseTensor back = read_dense(path, tensor(arrays[i].name));
    CHECK(back.values == arrays[i].values);
    CHECK(back.shape == arrays[i].shape);
  }
}

TEST_CASE("'-' is standard input and standard output") {
  /// Puts a pipe's end in place of a standard descriptor, and the old one back.
  class Redirection {
  public:
    Redirection(int standard, int replacement) : standard_(standard), saved_(::dup(standard)) {
      ::dup2(replacement, standard);
      ::close(replacement);
    }
    Redirection(const Redirection&) = delete;
    Redirection& operator=(const Redirection&) = delete;
    ~Redirection() {
      ::dup2(saved_, standard_);
      ::close(saved_);
    }

  private:
    int standard_;
    int saved_;
  };

  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const std::vector<uint64_t> shape = {2, 3};
  {
    const Redirection output(STDOUT_FILENO, ends[1]);
    write_npy("-", shape, StoredType::f32, std::vector<double>{0, 3, 0, 1, 0, 2});
  }
  Matrix matrix;
  {
    const Redirection input(STDIN_FILENO, ends[0]);
    matrix = read_matrix("-");
  }
  CHECK(matrix.pattern == kPattern);
  CHECK(matrix.values == kValues);
  CHECK(matrix.name == "<stdin>");
}

TEST_CASE("write_npy: the file is replaced whole, links and permissions stay") {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "sparsertc_write.XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const std::string path = folder + "/c.npy";
  const std::vector<uint64_t> shape = {1, 2};
  write_npy(path, shape, StoredType::f32, std::vector<double>{1, 2});
  CHECK((fs::status(path).permissions() & fs::perms::owner_read) != fs::perms::none);
  fs::permissions(path, fs::perms::owner_all | fs::perms::group_read);
  fs::create_symlink(path, folder + "/link.npy");
  write_npy(folder + "/link.npy", shape, StoredType::f32, std::vector<double>{3, 4});
  CHECK(fs::is_symlink(folder + "/link.npy"));
  CHECK(read_dense(path).values == std::vector<double>{3, 4});
  CHECK(fs::status(path).permissions() == (fs::perms::owner_all | fs::perms::group_read));
  CHECK(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == 2);
  fs::remove_all(folder);
}

} // namespace sparsertc::testing
