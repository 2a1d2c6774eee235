#include "tests/error/reader_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace sparsertc::testing {
namespace {

const Bytes kFour = raw(std::vector<float>{1, 0, 0, 2});

ReadOptions with_tensor(std::string name) {
  ReadOptions options;
  options.tensor = std::move(name);
  return options;
}

ReadOptions with_limit(uint64_t bytes) {
  ReadOptions options;
  options.maximum_bytes = bytes;
  return options;
}

ReadOptions refusing_duplicates() {
  ReadOptions options;
  options.duplicates = Duplicates::refuse;
  return options;
}

ReaderCase npy(std::string name, Bytes content, std::string place, std::vector<std::string> words) {
  return {std::move(name), "npy", std::move(content),
          "in.npy: " + place + ": error: ", std::move(words)};
}

ReaderCase npy_header(std::string name, std::string_view header, std::string place,
                      std::vector<std::string> words) {
  return npy(std::move(name), npy_file("", false, "", kFour, 1, header), std::move(place),
             std::move(words));
}

ReaderCase npz(std::string name, Bytes content, std::string place, std::vector<std::string> words,
               ReadOptions options = {}) {
  return {std::move(name),  "npz",  std::move(content), "in.npz: " + place + ": error: ",
          std::move(words), options};
}

ReaderCase scipy(std::string name, const std::vector<Member>& members, std::string place,
                 std::vector<std::string> words, ReadOptions options = {}) {
  return npz(std::move(name), zip_file(members, false), std::move(place), std::move(words),
             options);
}

ReaderCase tensors(std::string name, std::string_view json, const Bytes& data, std::string place,
                   std::vector<std::string> words, ReadOptions options = {}) {
  return {std::move(name),
          "safetensors",
          safetensors_file(json, data),
          "in.safetensors: " + place + ": error: ",
          std::move(words),
          options};
}

ReaderCase zipped(std::string name, Bytes content, std::string place,
                  std::vector<std::string> words, ReadOptions options = {}) {
  return {std::move(name),  "npy.gz", std::move(content), "in.npy.gz" + place + ": error: ",
          std::move(words), options};
}

Bytes cut(Bytes bytes, size_t size) {
  bytes.resize(size);
  return bytes;
}

Bytes flip(Bytes bytes, size_t at) {
  bytes[at] ^= 0xff;
  return bytes;
}

Bytes joined(Bytes first, const Bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Bytes with_bytes(Bytes bytes, size_t at, std::initializer_list<uint8_t> replacement) {
  std::copy(replacement.begin(), replacement.end(), bytes.begin() + static_cast<long>(at));
  return bytes;
}

void add_npy(std::vector<ReaderCase>& cases) {
  const Bytes good = npy_file("<f4", false, "2, 2", kFour);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<ReaderCase> more = {
      npy("empty file", {}, "byte 0", {"empty", ".npy"}),
      npy("other magic", bytes_of_text("MUMPY, not it"), "byte 0", {"NUMPY", "suffix"}),
      npy("magic cut", cut(good, 4), "byte 4", {"header", "end of the file"}),
      npy("version 9", with_bytes(good, 6, {9, 0}), "byte 6", {"1.0, 2.0 or 3.0", "9.0"}),
      npy("header cut", cut(good, 40), "byte 40", {"128 bytes", "truncated"}),
      npy("header length lies", with_bytes(good, 8, {0xff, 0xff}),
          fmt::format("byte {}", good.size()), {"65545 bytes", "end of the file"}),
      npy("version 2 header promises 4 GB",
          with_bytes(npy_file("<f4", false, "2, 2", kFour, 2), 8, {0xff, 0xff, 0xff, 0xff}),
          "byte 144", {"4294967307 bytes"}),
      npy_header("header is no dictionary", "[1, 2, 3]", "byte 10", {"'{'", "'['"}),
      npy_header("descr missing", "{'fortran_order': False, 'shape': (2, 2), }", "byte 64",
                 {"no key 'descr'"}),
      npy_header("shape missing", "{'descr': '<f4', 'fortran_order': False}", "byte 64",
                 {"no key 'shape'"}),
      npy_header("key twice",
                 "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }",
                 "byte 27", {"'descr'", "twice"}),
      npy_header("unknown key", "{'descr': '<f4', 'colour': 3}", "byte 27", {"'colour'"}),
      npy_header("fortran_order is a number",
                 "{'descr': '<f4', 'fortran_order': 1, 'shape': (2, 2), }", "byte 44",
                 {"True or False", "'1'"}),
      npy_header("shape is a list", "{'descr': '<f4', 'fortran_order': False, 'shape': [2, 2], }",
                 "byte 60", {"'('", "'['"}),
      npy_header("dimension negative",
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -2), }", "byte 64",
                 {"negative"}),
      npy_header("dimension passes 64 bits",
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 18446744073709551616), }",
                 "byte 64", {"64 bits"}),
      npy_header("quote never closed", "{'descr': '<f4", "byte 20", {"closing quote"}),
      npy_header("text after the dictionary",
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), } import os", "byte 70",
                 {"end of the header", "'i'"}),
      npy_header("structured type",
                 "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2), }", "byte 20",
                 {"structured"}),
      npy("complex", npy_file("<c8", false, "2, 1", Bytes(16)), "byte 20",
          {"'<c8'", "Matrix Market"}),
      npy("Python objects", npy_file("|O", false, "2, 2", Bytes(32)), "byte 20",
          {"'|O'", "pickled"}),
      npy("bfloat16", npy_file("<V2", false, "2, 2", Bytes(8)), "byte 20",
          {"'<V2'", "safetensors"}),
      npy("one-dimensional", npy_file("<f4", false, "4,", kFour), "byte 128",
          {"matrix", "[4]", "reshape"}),
      npy("scalar", npy_file("<f4", false, "", raw(std::vector<float>{1})), "byte 128",
          {"matrix", "[]"}),
      npy("data cut", cut(good, 140), "byte 140", {"[2, 2]", "16 bytes", "only 12"}),
      npy("data too long", joined(good, {0, 0}), "byte 144", {"2 bytes follow"}),
      npy("promises 10 GB", npy_file("<f4", false, "50000, 50000", kFour), "byte 144",
          {"10000000000 bytes", "only 16"}),
      npy("size passes 64 bits",
          npy_file("<f8", false, "4294967296, 4294967296, 4294967296", kFour), "byte 60",
          {"64 bits"}),
      npy("no columns, 2 billion rows", npy_file("<f4", false, "2000000000, 0", {}), "byte 128",
          {"2000000000 rows", "promised"}),
      npy("no rows, flattened columns pass 31 bits", npy_file("<f4", false, "0, 65536, 65536", {}),
          "byte 128", {"columns", "31 bits"}),
      npy("NaN", npy_file("<f4", false, "2, 2", raw(std::vector<float>{1, 0, nan, 2})), "byte 136",
          {"row 1, column 0", "nan", "finite"}),
      npy("infinity in Fortran order",
          npy_file("<f4", true, "2, 2", raw(std::vector<float>{1, 0, infinity, 2})), "byte 136",
          {"row 0, column 1", "inf"}),
      npy("boolean that is 2", npy_file("|b1", false, "2, 2", {1, 0, 2, 0}), "byte 130",
          {"boolean", "2"}),
  };
  cases.insert(cases.end(), more.begin(), more.end());
}

void add_npz(std::vector<ReaderCase>& cases) {
  const Bytes array = npy_file("<f4", false, "2, 2", kFour);
  const Bytes stored = zip_file({{"w.npy", array}}, false);
  const Bytes deflated = zip_file({{"w.npy", array}}, true);
  // The directory's only entry: 46 bytes and "w.npy", before the end record of 22 bytes.
  const size_t stored_entry = stored.size() - 22 - 51;
  const size_t deflated_entry = deflated.size() - 22 - 51;
  const std::string end = fmt::format("byte {}", stored.size());
  const std::vector<int32_t> offsets = {0, 1, 2};
  const std::vector<int32_t> indices = {0, 1};
  const std::vector<double> data = {1, 2};
  const auto csr = [&](std::vector<int32_t> indptr, std::vector<int32_t> columns) {
    return scipy_members("csr", {2, 2}, data,
                         {{"indices", std::move(columns)}, {"indptr", std::move(indptr)}});
  };
  std::vector<Member> without_data = csr(offsets, indices);
  without_data.pop_back();
  std::vector<Member> nan_data = csr(offsets, indices);
  nan_data.back().content = npy_file("<f8", false, "2,", raw(std::vector<double>{1, NAN}));
  std::vector<Member> flat_data = csr(offsets, indices);
  flat_data.back().content = npy_file("<f8", false, "2, 1", raw(data));
  std::vector<Member> real_indices = csr(offsets, indices);
  real_indices.front().content = npy_file("<f8", false, "2,", raw(data));
  std::vector<Member> no_name = csr(offsets, indices);
  no_name[2].content = npy_file("<i8", false, "1,", Bytes(8));

  const std::vector<ReaderCase> more = {
      npz("empty file", {}, "byte 0", {"empty", "zip"}),
      npz("no zip", array, "byte 0", {"'PK'", "suffix"}),
      npz("end cut", cut(stored, stored.size() - 10), fmt::format("byte {}", stored.size() - 10),
          {"end record", "truncated"}),
      npz("no array", zip_file({}, false), "byte 0", {"no array"}),
      npz("member damaged", flip(stored, stored_entry - 3), "byte 55", {"'w.npy'", "checksum"}),
      npz("deflated member damaged", flip(deflated, 58), "byte 55", {"'w.npy'", "damaged"}),
      npz("member promises 10 GB",
          with_bytes(deflated, deflated_entry + 24, {0x00, 0xe4, 0x0b, 0x54}), "byte 0",
          {"promises 1410065408 bytes", "cannot hold"}),
      npz("stored member with two sizes", with_bytes(stored, stored_entry + 24, {0, 1, 0, 0}),
          "byte 0", {"promises 256 bytes"}),
      npz("member larger than the limit", stored, "byte 0", {"'w.npy'", "144 bytes", "limit"},
          with_limit(100)),
      npz("member outside the file",
          with_bytes(stored, stored_entry + 42, {0xff, 0xff, 0xff, 0x7f}), end,
          {"member's header", "truncated"}),
      npz("member's header elsewhere", with_bytes(stored, stored_entry + 42, {1}), "byte 1",
          {"header of member 'w.npy'"}),
      npz("encrypted", with_bytes(stored, stored_entry + 8, {1}),
          fmt::format("byte {}", stored_entry), {"encrypted"}),
      npz("other compression", with_bytes(stored, stored_entry + 10, {14}), "byte 0",
          {"method 14", "savez"}),
      npz("directory outside the file", with_bytes(stored, stored.size() - 6, {0xff, 0xff, 0xff}),
          fmt::format("byte {}", stored.size() - 22), {"directory", "does not fit"}),
      npz("directory damaged", flip(stored, stored_entry), fmt::format("byte {}", stored_entry),
          {"entry 1 of 1"}),
      npz("name twice", zip_file({{"w.npy", array}, {"w.npy", array}}, false), "byte 449",
          {"'w.npy'", "twice"}),
      npz("a member's name that a terminal would obey",
          zip_file({{"\x1b[2J.npy", bytes_of_text("hello, world")}}, false), "\\x1b[2J.npy: byte 0",
          {"NUMPY"}),
      npz("several arrays", zip_file({{"v.npy", array}, {"w.npy", array}}, false), "byte 0",
          {"several arrays", "v, w", "--tensor"}),
      npz("no such array", stored, "byte 0", {"'x'", "found w", "--list-tensors"},
          with_tensor("x")),
      npz("member is no array", zip_file({{"w.npy", bytes_of_text("hello, world")}}, false),
          "w.npy: byte 0", {"NUMPY"}),
      scipy("SciPy format bsr", scipy_members("bsr", {2, 2}, data, {}), "format.npy: byte 0",
            {"csr, csc or coo", "'bsr'", "tocsr()"}),
      scipy("SciPy format is no string", no_name, "format.npy: byte 20", {"string"}),
      scipy("SciPy data missing", without_data, "byte 0", {"'csr'", "'data'"}),
      scipy("SciPy indices missing", scipy_members("csc", {2, 2}, data, {{"indptr", offsets}}),
            "byte 0", {"'csc'", "'indices'"}),
      scipy("SciPy shape negative",
            scipy_members("coo", {2, -2}, data, {{"row", indices}, {"col", indices}}),
            "shape.npy: byte 136", {"columns", "negative"}),
      scipy("SciPy shape has three numbers",
            scipy_members("coo", {2, 2, 2}, data, {{"row", indices}, {"col", indices}}),
            "shape.npy: byte 128", {"2 elements", "found 3"}),
      scipy("SciPy promises 2 billion rows",
            scipy_members("coo", {2000000000, 2}, data, {{"row", indices}, {"col", indices}}),
            "shape.npy: byte 128", {"2000000000 rows"}),
      scipy("SciPy data is a matrix", flat_data, "data.npy: byte 128",
            {"one-dimensional", "[2, 1]"}),
      scipy("SciPy indices are real", real_indices, "indices.npy: byte 128", {"integers", "f64"}),
      scipy("SciPy index negative", csr(offsets, {0, -1}), "indices.npy: byte 132",
            {"column index -1", "0 to 1"}),
      scipy("SciPy index too large", csr(offsets, {0, 2}), "indices.npy: byte 132",
            {"column index 2", "0 to 1"}),
      scipy("SciPy index missing", csr(offsets, {0}), "indices.npy: byte 128",
            {"2 elements", "found 1"}),
      scipy("SciPy offset missing", csr({0, 2}, indices), "indptr.npy: byte 128",
            {"3 elements", "found 2"}),
      scipy("SciPy first offset not 0", csr({1, 1, 2}, indices), "indptr.npy: byte 128",
            {"first offset", "found 1"}),
      scipy("SciPy offsets descend", csr({0, 2, 1}, indices), "indptr.npy: byte 136",
            {"descend", "1 after 2"}),
      scipy("SciPy offset too large", csr({0, 7, 2}, indices), "indptr.npy: byte 132",
            {"offset 7", "2 entries"}),
      scipy("SciPy last offset too small", csr({0, 1, 1}, indices), "indptr.npy: byte 136",
            {"last offset", "found 1"}),
      scipy("SciPy value is NaN", nan_data, "data.npy: byte 136", {"row 1, column 1", "nan"}),
      scipy("SciPy duplicate refused", csr({0, 2, 2}, {1, 1}), "data.npy: byte 136",
            {"row 0, column 1", "sum_duplicates"}, refusing_duplicates()),
  };
  cases.insert(cases.end(), more.begin(), more.end());
}

void add_safetensors(std::vector<ReaderCase>& cases) {
  const Bytes& data = kFour;
  constexpr const char* kGood = R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
  const Bytes good = safetensors_file(kGood, data);
  const auto file = [](std::string name, Bytes content, const std::string& place,
                       std::vector<std::string> words) {
    return ReaderCase{std::move(name), "safetensors", std::move(content),
                      "in.safetensors: " + place + ": error: ", std::move(words)};
  };
  const std::vector<ReaderCase> more = {
      file("empty file", {}, "byte 0", {"empty"}),
      file("length cut", cut(good, 5), "byte 5", {"8 bytes of header length"}),
      file("header promises 10 GB", with_bytes(good, 0, {0x00, 0xe4, 0x0b, 0x54, 0x02}), "byte 0",
           {"10000000000 bytes", "follow"}),
      file("header cut", cut(good, 20), "byte 0", {"12 bytes follow"}),
      file("data cut", cut(good, good.size() - 1), "byte 8", {"'w'", "only 15 bytes", "truncated"}),
      file("bytes at the end", joined(good, {0}), fmt::format("byte {}", good.size()),
           {"1 bytes", "no tensor"}),
      tensors("no JSON", "{\"w\": ?}", data, "byte 14", {"not valid JSON"}),
      tensors("JSON is a list", "[1]", data, "byte 8", {"JSON object"}),
      tensors("JSON too deep", R"({"w":{"shape":[[[[[[1]]]]]]}})", data, "byte 8", {"JSON object"}),
      tensors("tensor is a number", R"({"w":1})", data, "byte 8", {"'w'", "object"}),
      tensors("tensor twice",
              R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
              R"("w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})",
              data, "byte 8", {"'w'", "twice"}),
      tensors("no dtype", R"({"w":{"shape":[2,2],"data_offsets":[0,16]}})", data, "byte 8",
              {"'w'", "'dtype'"}),
      tensors("no shape", R"({"w":{"dtype":"F32","data_offsets":[0,16]}})", data, "byte 8",
              {"'w'", "'shape'"}),
      tensors("no offsets", R"({"w":{"dtype":"F32","shape":[2,2]}})", data, "byte 8",
              {"'w'", "'data_offsets'"}),
      tensors("three offsets", R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,8,16]}})",
              data, "byte 8", {"2 'data_offsets'", "found 3"}),
      tensors("dimension negative", R"({"w":{"dtype":"F32","shape":[2,-2],"data_offsets":[0,16]}})",
              data, "byte 8", {"'shape'", "-2"}),
      tensors("dimension real", R"({"w":{"dtype":"F32","shape":[2,2.5],"data_offsets":[0,16]}})",
              data, "byte 8", {"whole numbers", "2.5"}),
      tensors("dimension passes float64",
              R"({"w":{"dtype":"F32","shape":[2,1e999],"data_offsets":[0,16]}})", data, "byte 8",
              {"64 bits"}),
      tensors("dimension is text", R"({"w":{"dtype":"F32","shape":[2,"2"],"data_offsets":[0,16]}})",
              data, "byte 8", {"whole numbers", "string"}),
      tensors("offsets descend", R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[16,0]}})",
              data, "byte 8", {"16 to 0", "descend"}),
      tensors("offsets outside", R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[4,20]}})",
              data, "byte 8", {"4 to 20", "only 16 bytes"}),
      tensors("shape and offsets differ",
              R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,16]}})", data, "byte 8",
              {"[2, 3]", "24 bytes", "16"}),
      tensors("shape passes 64 bits",
              R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}})",
              data, "byte 8", {"2^64"}),
      tensors("tensors overlap",
              R"({"v":{"dtype":"F32","shape":[1,3],"data_offsets":[0,12]},)"
              R"("w":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]}})",
              data, "byte 8", {"'w'", "overlaps"}),
      tensors("gap between tensors",
              R"({"v":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
              R"("w":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]}})",
              data, "byte 8", {"'w'", "4 bytes before it"}),
      tensors("unreadable dtype",
              R"({"w":{"dtype":"F8_E4M3","shape":[4,4],"data_offsets":[0,16]}})", data, "byte 8",
              {"'F8_E4M3'", "BF16", "F32"}),
      tensors("no tensor", "{}", {}, "byte 8", {"no tensor"}),
      tensors("several tensors",
              R"({"v":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
              R"("w":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]}})",
              data, "byte 8", {"several tensors", "v, w", "--tensor"}),
      tensors("no such tensor", kGood, data, "byte 8", {"'x'", "found w"}, with_tensor("x")),
      tensors("non-finite bf16", R"({"w":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}})",
              raw(std::vector<uint16_t>{0, 0x7f80}), "w: byte 67", {"row 0, column 1", "inf"}),
      tensors("boolean that is 3", R"({"w":{"dtype":"BOOL","shape":[1,2],"data_offsets":[0,2]}})",
              {1, 3}, "w: byte 66", {"boolean", "3"}),
  };
  cases.insert(cases.end(), more.begin(), more.end());
}

void add_gzip(std::vector<ReaderCase>& cases) {
  const Bytes good = gzip(npy_file("<f4", false, "2, 2", kFour));
  const Bytes zeros = gzip(Bytes(size_t{10} << 20));
  const std::vector<ReaderCase> more = {
      zipped("gzip truncated", cut(good, good.size() / 2),
             fmt::format(": byte {}", good.size() / 2), {"ends early", "truncated"}),
      zipped("gzip header only", cut(good, 10), ": byte 10", {"ends early"}),
      zipped("gzip checksum cut", cut(good, good.size() - 4),
             fmt::format(": byte {}", good.size() - 4), {"ends early"}),
      zipped("gzip checksum wrong", flip(good, good.size() - 6),
             fmt::format(": byte {}", good.size() - 4), {"damaged gzip", "data check"}),
      zipped("gzip with another method", flip(good, 2), ": byte 4", {"damaged gzip", "method"}),
      zipped("gzip with text behind", joined(good, bytes_of_text("junk")),
             fmt::format(": byte {}", good.size()), {"4 bytes", "not gzip"}),
      zipped("gzip larger than the limit", zeros, "", {"decompressed", "1000000 bytes"},
             with_limit(1000000)),
      zipped("place counts decompressed bytes", gzip(npy_file("<f4", false, "2, 3", kFour)),
             ": byte 144", {"24 bytes", "only 16"}),
  };
  cases.insert(cases.end(), more.begin(), more.end());
}

} // namespace

std::vector<ReaderCase> binary_reader_cases() {
  std::vector<ReaderCase> cases;
  add_npy(cases);
  add_npz(cases);
  add_safetensors(cases);
  add_gzip(cases);
  return cases;
}

} // namespace sparsertc::testing
