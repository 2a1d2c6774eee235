// What is wrong with a file rather than with its content; and the writer's failures.
#include "compiler/input/read.h"
#include "ir/error.h"
#include "tests/support/input_files.h"

#include <filesystem>
#include <fstream>
#include <functional>

#include <catch2/catch.hpp>
#include <unistd.h>

namespace sparsertc::testing {
namespace {

class Folder {
public:
  Folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "sparsertc_error.XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name, std::string_view content) const {
    const std::string path = path_ + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  const std::string& path() const { return path_; }

private:
  std::string path_;
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.exit_code() == 1);
    return error.what();
  }
  return "(accepted)";
}

void expect(const std::string& message, const std::string& place,
            const std::vector<std::string>& words) {
  INFO("message: " << message);
  CHECK(message.substr(0, place.size()) == place);
  for (const std::string& word : words) {
    INFO("word: " << word);
    CHECK(message.find(word) != std::string::npos);
  }
}

} // namespace

TEST_CASE("Files that cannot be read are refused by name") {
  const Folder folder;
  const std::string missing = folder.path() + "/missing.npy";
  expect(message_of([&] { read_matrix(missing); }), missing + ": error: ", {"no such file"});
  expect(message_of([&] { read_matrix(folder.path()); }),
         folder.path() + ": error: ", {"is a directory"});
  const std::string inside = folder.file("plain.mtx", "x") + "/w.npy";
  expect(message_of([&] { read_matrix(inside); }), inside + ": error: ", {"cannot be opened"});
  const std::string unknown = folder.file("weights.onnx", "abc");
  expect(message_of([&] { read_matrix(unknown); }),
         unknown + ": error: ", {"suffix", ".smtx", ".safetensors"});
  const std::string bare = folder.file("weights", "%%MatrixMarket");
  expect(message_of([&] { read_matrix(bare); }), bare + ": error: ", {"suffix"});
  const std::string empty = folder.file("empty.mtx", "");
  expect(message_of([&] { read_matrix(empty); }), empty + ":1:1: error: ", {"empty"});
  const std::string large = folder.file("large.mtx", std::string(1000, ' '));
  ReadOptions options;
  options.maximum_bytes = 999;
  expect(message_of([&] { read_matrix(large, options); }),
         large + ": error: ", {"file is larger", "999 bytes"});
}

TEST_CASE("Content without a known format is refused") {
  expect(message_of([] { read_matrix_from_bytes(bytes_of_text("hello"), "<stdin>", {}); }),
         "<stdin>: error: ", {"no known format", ".smtx"});
  expect(message_of([] { read_matrix_from_bytes({}, "<stdin>", {}); }),
         "<stdin>: error: ", {"empty"});
}

TEST_CASE("Lists of tensors and dense arrays are refused where there are none") {
  const Bytes smtx = bytes_of_text("1, 1, 0\n0 0\n\n");
  expect(message_of([&] { list_tensors_from_bytes(smtx, "in.smtx", Format::smtx); }),
         "in.smtx: error: ", {"one matrix", ".npz"});
  expect(message_of([&] { read_dense_from_bytes(smtx, "in.smtx", Format::smtx); }),
         "in.smtx: error: ", {"dense", ".npy"});
  const Bytes complex_array =
      bytes_of_text("%%MatrixMarket matrix array complex general\n1 1\n1 2\n");
  expect(message_of([&] { read_dense_from_bytes(complex_array, "in.mtx", Format::matrix_market); }),
         "in.mtx:1:1: error: ", {"real", "complex"});
  const Bytes wide = bytes_of_text("%%MatrixMarket matrix coordinate real general\n"
                                   "1000000 1000000 1\n1 1 1\n");
  expect(message_of([&] { read_dense_from_bytes(wide, "in.mtx", Format::matrix_market); }),
         "in.mtx:1:1: error: ", {"too large", "array"});
  const Bytes scipy =
      zip_file(scipy_members("coo", {1, 1}, {1}, {{"row", {0}}, {"col", {0}}}), false);
  expect(message_of([&] { read_dense_from_bytes(scipy, "in.npz", Format::npz); }),
         "in.npz: byte 0: error: ", {"sparse SciPy", "toarray()"});
}

TEST_CASE("Writing fails with a reason and leaves nothing behind") {
  const Folder folder;
  const std::vector<uint64_t> shape = {1};
  const std::vector<double> values = {1};
  const std::string nowhere = folder.path() + "/no/such/folder/c.npy";
  expect(message_of([&] { write_npy(nowhere, shape, StoredType::f32, values); }), "error: writing ",
         {nowhere, "No such file"});
  expect(message_of([&] { write_npy(folder.path(), shape, StoredType::f32, values); }),
         "error: writing ", {folder.path()});
  expect(message_of([&] { write_npy("/dev/full", shape, StoredType::f32, values); }),
         "error: writing ", {"/dev/full", "No space"});
  CHECK(std::filesystem::is_empty(folder.path()));
}

} // namespace sparsertc::testing
