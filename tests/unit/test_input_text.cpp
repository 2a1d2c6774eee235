#include "compiler/input/read.h"
#include "ir/error.h"
#include "tests/support/input_files.h"

#include <cmath>

#include <catch2/catch.hpp>

namespace sparsertc::testing {
namespace {

Matrix smtx(std::string_view text, const ReadOptions& options = {}) {
  return read_matrix_from_bytes(bytes_of_text(text), "in.smtx", Format::smtx, options);
}

Matrix mtx(std::string_view text, const ReadOptions& options = {}) {
  return read_matrix_from_bytes(bytes_of_text(text), "in.mtx", Format::matrix_market, options);
}

Matrix mtx_of(std::string_view banner, std::string_view lines, const ReadOptions& options = {}) {
  return mtx("%%MatrixMarket matrix " + std::string(banner) + "\n" + std::string(lines), options);
}

} // namespace

TEST_CASE("smtx: pattern, layout and blanks") {
  const Pattern expected = {2, 4, {0, 2, 3}, {0, 3, 1}};
  CHECK(smtx("2, 4, 3\n0 2 3\n0 3 1\n").pattern == expected);
  CHECK(smtx("2, 4, 3 \n0 2 3 \n0 3 1 ").pattern == expected);
  CHECK(smtx("2,4,3\r\n0 2 3\r\n0 3 1\r\n\r\n").pattern == expected);
  const Matrix matrix = smtx("2, 4, 3\n0 2 3\n0 3 1\n");
  CHECK(matrix.stored == StoredType::none);
  CHECK_FALSE(matrix.has_values());
  CHECK(matrix.name == "in.smtx");
}

TEST_CASE("smtx: empty in every way") {
  CHECK(smtx("2, 3, 0\n0 0 0\n\n").pattern == Pattern{2, 3, {0, 0, 0}, {}});
  CHECK(smtx("2, 3, 0\n0 0 0").pattern == Pattern{2, 3, {0, 0, 0}, {}});
  CHECK(smtx("0, 3, 0\n0\n\n").pattern == Pattern{0, 3, {0}, {}});
  CHECK(smtx("2, 0, 0\n0 0 0\n\n").pattern == Pattern{2, 0, {0, 0, 0}, {}});
  CHECK(smtx("0, 0, 0\n0\n\n").has_values());
}

TEST_CASE("Values are made from a seed where there are none") {
  ReadOptions options;
  options.random_values_seed = 3;
  options.require_values = true;
  const Matrix matrix = smtx("2, 4, 3\n0 2 3\n0 3 1\n", options);
  REQUIRE(matrix.values.size() == 3);
  CHECK(matrix.values == smtx("2, 4, 3\n0 2 3\n0 3 1\n", options).values);
  CHECK(matrix.stored == StoredType::none);
  const Matrix own = mtx_of("coordinate real general", "1 1 1\n1 1 5\n", options);
  CHECK(own.values == std::vector<double>{5});
  CHECK(own.remarks.size() == 1);
}

TEST_CASE("mtx: coordinate, any order, comments and blank lines") {
  const Matrix matrix = mtx("%%matrixmarket MATRIX Coordinate REAL General\r\n"
                            "% a comment\n\n   \n%\n"
                            "2 3 4\n"
                            "2 3 -1.5e1\n\n"
                            "1 2\t.5\n"
                            "% in between\n"
                            "  1 1 +2 \n"
                            "2 1 0\n\n");
  CHECK(matrix.pattern == Pattern{2, 3, {0, 2, 4}, {0, 1, 0, 2}});
  CHECK(matrix.values == std::vector<double>{2, 0.5, 0, -15});
  CHECK(matrix.stored == StoredType::f64);
  CHECK(matrix.imaginary.empty());
}

TEST_CASE("mtx: numbers") {
  const auto value = [](const std::string& text) {
    return mtx_of("coordinate real general", "1 1 1\n1 1 " + text + "\n").values.at(0);
  };
  CHECK(value("0.1") == 0.1);
  CHECK(value("1e-320") == 1e-320);
  CHECK(value("1e-400") == 0);
  CHECK(std::signbit(value("-1e-400")));
  CHECK(value("0." + std::string(400, '0') + "1") == 0);
  CHECK(value("1" + std::string(400, '0') + "e-400") == 1);
  CHECK(value("1.7976931348623157e308") == 1.7976931348623157e308);
  CHECK(value("9007199254740993") == 9007199254740992.0);
  const auto integer = [](const std::string& text) {
    return mtx_of("coordinate integer general", "1 1 1\n1 1 " + text + "\n").values.at(0);
  };
  CHECK(integer("-7") == -7);
  CHECK(integer("+7") == 7);
  CHECK(integer("18446744073709551615") == 18446744073709551616.0);
  CHECK(integer("-9223372036854775808") == -9223372036854775808.0);
  // The tie between 2^53 and 2^53 + 2 goes to the even one.
  CHECK(integer("9007199254740993") == 9007199254740992.0);
  CHECK(mtx_of("coordinate integer general", "1 1 1\n1 1 3\n").stored == StoredType::i64);
}

TEST_CASE("mtx: duplicates are summed in their order, the pattern has one entry") {
  const Matrix matrix = mtx_of("coordinate real general", "2 2 5\n2 2 1\n1 1 1e16\n1 1 1\n"
                                                          "2 2 -1\n1 1 -1e16\n");
  CHECK(matrix.pattern == Pattern{2, 2, {0, 1, 2}, {0, 1}});
  CHECK(matrix.values == std::vector<double>{0, 0});
  REQUIRE(matrix.remarks.size() == 1);
  CHECK(matrix.remarks[0].find("3 duplicate entries") != std::string::npos);
  const Matrix pattern = mtx_of("coordinate pattern general", "2 2 3\n2 2\n1 1\n2 2\n");
  CHECK(pattern.pattern == matrix.pattern);
  CHECK(pattern.remarks.size() == 1);
}

TEST_CASE("mtx: symmetries are expanded") {
  const std::string lines = "3 3 3\n1 1 1\n3 1 2\n3 2 3\n";
  const Pattern expected = {3, 3, {0, 2, 3, 5}, {0, 2, 2, 0, 1}};
  const Matrix symmetric = mtx_of("coordinate real symmetric", lines);
  CHECK(symmetric.pattern == expected);
  CHECK(symmetric.values == std::vector<double>{1, 2, 3, 2, 3});
  CHECK(mtx_of("coordinate pattern symmetric", "3 3 3\n1 1\n3 1\n3 2\n").pattern == expected);

  const Matrix skew = mtx_of("coordinate integer skew-symmetric", "2 2 2\n2 1 5\n2 2 0\n");
  CHECK(skew.pattern == Pattern{2, 2, {0, 1, 3}, {1, 0, 1}});
  CHECK(skew.values == std::vector<double>{-5, 5, 0});

  const Matrix hermitian = mtx_of("coordinate complex hermitian", "2 2 2\n1 1 4 0\n2 1 1 2\n");
  CHECK(hermitian.pattern == Pattern{2, 2, {0, 2, 3}, {0, 1, 0}});
  CHECK(hermitian.values == std::vector<double>{4, 1, 1});
  CHECK(hermitian.imaginary == std::vector<double>{0, -2, 2});
  CHECK(hermitian.stored == StoredType::c128);

  const Matrix complex_symmetric = mtx_of("coordinate complex symmetric", "2 2 1\n2 1 1 2\n");
  CHECK(complex_symmetric.imaginary == std::vector<double>{2, 2});
  const Matrix complex_skew = mtx_of("coordinate complex skew-symmetric", "2 2 1\n2 1 1 2\n");
  CHECK(complex_skew.values == std::vector<double>{-1, 1});
  CHECK(complex_skew.imaginary == std::vector<double>{-2, 2});
}

TEST_CASE("mtx: arrays are column-major and their zeros no entries") {
  const Matrix general = mtx_of("array real general", "2 3\n1\n0\n-0.0\n2\n3\n4\n");
  CHECK(general.pattern == Pattern{2, 3, {0, 2, 4}, {0, 2, 1, 2}});
  CHECK(general.values == std::vector<double>{1, 3, 2, 4});
  const Matrix symmetric = mtx_of("array integer symmetric", "2 2\n1\n2\n3\n");
  CHECK(symmetric.values == std::vector<double>{1, 2, 2, 3});
  const Matrix skew = mtx_of("array real skew-symmetric", "3 3\n1\n2\n3\n");
  CHECK(skew.pattern == Pattern{3, 3, {0, 2, 4, 6}, {1, 2, 0, 2, 0, 1}});
  CHECK(skew.values == std::vector<double>{-1, -2, 1, -3, 2, 3});
  const Matrix hermitian = mtx_of("array complex hermitian", "2 2\n1 0\n0 2\n3 0\n");
  CHECK(hermitian.imaginary == std::vector<double>{0, -2, 2, 0});
}

TEST_CASE("mtx: empty in every way") {
  CHECK(mtx_of("coordinate real general", "0 0 0\n").pattern == Pattern{});
  CHECK(mtx_of("coordinate real general", "3 2 0").pattern == Pattern{3, 2, {0, 0, 0, 0}, {}});
  CHECK(mtx_of("array real general", "0 5\n").pattern == Pattern{0, 5, {0}, {}});
  CHECK(mtx_of("array real skew-symmetric", "1 1\n").pattern == Pattern{1, 1, {0, 0}, {}});
}

TEST_CASE("mtx: NaN passes where it is allowed") {
  ReadOptions options;
  options.allow_nonfinite = true;
  const Matrix matrix =
      mtx_of("coordinate real general", "1 2 2\n1 1 NaN\n1 2 -Infinity\n", options);
  CHECK(std::isnan(matrix.values[0]));
  CHECK(matrix.values[1] == -INFINITY);
}

TEST_CASE("mtx: dense tensors") {
  const auto dense = [](std::string_view text) {
    return read_dense_from_bytes(bytes_of_text(text), "b.mtx", Format::matrix_market);
  };
  const DenseTensor array = dense("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\nnan\n");
  CHECK(array.shape == std::vector<uint64_t>{2, 2});
  CHECK(array.fortran_order);
  CHECK(array.values[1] == 3);
  CHECK(std::isnan(array.values[3]));
  const DenseTensor sparse =
      dense("%%MatrixMarket matrix coordinate integer symmetric\n2 2 2\n2 1 5\n2 1 1\n");
  CHECK(sparse.values == std::vector<double>{0, 6, 6, 0});
  CHECK(sparse.stored == StoredType::i64);
}

TEST_CASE("Formats are told by name and by content") {
  CHECK(format_of_name("a/b.SMTX") == Format::smtx);
  CHECK(format_of_name("b.mtx.gz") == Format::matrix_market);
  CHECK(format_of_name("b.npy") == Format::npy);
  CHECK(format_of_name("b.npz.GZ") == Format::npz);
  CHECK(format_of_name("b.safetensors") == Format::safetensors);
  CHECK_FALSE(format_of_name("npy"));
  CHECK_FALSE(format_of_name("b.gz"));
  CHECK(format_of_content(bytes_of_text("%%MatrixMarket x")) == Format::matrix_market);
  CHECK(format_of_content(bytes_of_text("3, 4, 5 \n0 1")) == Format::smtx);
  CHECK(format_of_content(npy_file("<f4", false, "0, 0", {})) == Format::npy);
  CHECK(format_of_content(zip_file({}, false)) == Format::npz);
  CHECK(format_of_content(zip_file({{"a.npy", {}}}, false)) == Format::npz);
  CHECK(format_of_content(safetensors_file("{}", {})) == Format::safetensors);
  CHECK_FALSE(format_of_content(bytes_of_text("3 4 5")));
  const Bytes gzipped = gzip(bytes_of_text("1, 2, 1\n0 1\n1\n"));
  CHECK(read_matrix_from_bytes(gzipped, "<stdin>", {}).pattern == Pattern{1, 2, {0, 1}, {1}});
}

} // namespace sparsertc::testing
