#include "tests/error/reader_cases.h"

namespace sparsertc::testing {
namespace {

constexpr const char* kGeneral = "%%MatrixMarket matrix coordinate real general\n";

ReadOptions refusing_duplicates() {
  ReadOptions options;
  options.duplicates = Duplicates::refuse;
  return options;
}

ReadOptions requiring_values() {
  ReadOptions options;
  options.require_values = true;
  return options;
}

ReaderCase smtx(std::string name, std::string_view text, std::string place,
                std::vector<std::string> words, ReadOptions options = {}) {
  return {std::move(name),  "smtx", bytes_of_text(text), "in.smtx" + place + ": error: ",
          std::move(words), options};
}

ReaderCase mtx(std::string name, const std::string& text, std::string place,
               std::vector<std::string> words, ReadOptions options = {}) {
  return {std::move(name),  "mtx",  bytes_of_text(text), "in.mtx" + place + ": error: ",
          std::move(words), options};
}

ReaderCase coordinate(std::string name, const std::string& lines, std::string place,
                      std::vector<std::string> words, ReadOptions options = {}) {
  return mtx(std::move(name), kGeneral + lines, std::move(place), std::move(words), options);
}

} // namespace

std::vector<ReaderCase> text_reader_cases() {
  return {
      smtx("empty file", "", ":1:1", {"empty", "ROWS, COLUMNS, NONZEROS"}),
      smtx("blank file", "\n\n", ":1:1", {"number of rows", "the end of the line"}),
      smtx("no comma", "2 3, 4\n", ":1:3", {"','", "'3'"}),
      smtx("header cut", "2, 3", ":1:5", {"','", "end of the file"}),
      smtx("header has a fourth number", "2, 3, 1, 9\n0 1 1\n0\n", ":1:8", {"end of the line"}),
      smtx("rows are a word", "two, 3, 1\n0 1 1\n0\n", ":1:1", {"number of rows", "'two'"}),
      smtx("rows are a fraction", "2.5, 3, 1\n0 1 1\n0\n", ":1:1", {"whole number", "'2.5'"}),
      smtx("rows are negative", "-2, 3, 1\n0 1 1\n0\n", ":1:1", {"'-2'", "negative"}),
      smtx("rows pass 31 bits", "2147483648, 3, 1\n0 1 1\n0\n", ":1:1",
           {"2147483648", "2147483647", "31 bits"}),
      smtx("columns pass 32 bits", "2, 4294967296, 1\n0 1 1\n0\n", ":1:4",
           {"4294967296", "31 bits"}),
      smtx("non-zeros pass 64 bits", "2, 3, 99999999999999999999\n0 1 1\n0\n", ":1:7",
           {"99999999999999999999", "64 bits"}),
      smtx("promises 2 billion rows", "2000000000, 3, 1\n0 1 1\n0\n", ":1:1",
           {"2000000000 rows", "8 bytes follow", "truncated"}),
      smtx("promises 2 billion columns", "2, 2000000000, 1\n0 1 1\n0\n", ":1:4",
           {"2000000000 columns", "promised"}),
      smtx("promises 10 billion non-zeros", "2, 3, 10000000000\n0 1 1\n0\n", ":1:7",
           {"10000000000 non-zeros", "8 bytes follow"}),
      smtx("more non-zeros than positions", "1, 2, 3\n0 3\n0 1 2\n", ":1:7",
           {"3 non-zeros", "1 x 2"}),
      smtx("offsets missing", "2, 3, 2\n0 1\n0 1\n", ":2:4", {"3 row offsets", "found 2"}),
      smtx("one offset too many", "2, 3, 2\n0 1 2 2\n0 1\n", ":2:7", {"end of the line", "'2'"}),
      smtx("first offset not zero", "2, 3, 2\n1 1 2\n0 1\n", ":2:1", {"first row offset", "1"}),
      smtx("offsets descend", "3, 3, 2\n0 2 1 2\n0 1\n", ":2:5", {"descend", "1 after 2"}),
      smtx("offset beyond the non-zeros", "2, 3, 2\n0 5 2\n0 1\n", ":2:3", {"5", "beyond"}),
      smtx("last offset too small", "2, 3, 2\n0 1 1\n0 1\n", ":2:5",
           {"last row offset", "2", "found 1"}),
      smtx("offset negative", "2, 3, 2\n0 -1 2\n0 1\n", ":2:3", {"negative", "'-1'"}),
      smtx("columns missing", "2, 3, 2\n0 1 2\n0\n", ":3:2", {"2 column indices", "found 1"}),
      smtx("columns line missing", "2, 3, 2\n0 1 2\n", ":3:1", {"2 column indices", "found 0"}),
      smtx("column out of range", "2, 3, 2\n0 1 2\n0 3\n", ":3:3",
           {"column index 3", "row 1", "3 columns"}),
      smtx("column negative", "2, 3, 2\n0 1 2\n0 -3\n", ":3:3", {"negative", "'-3'"}),
      smtx("columns unsorted", "1, 4, 3\n0 3\n0 3 2\n", ":3:5", {"ascend", "2 after 3", "sort"}),
      smtx("column twice", "1, 4, 2\n0 2\n1 1\n", ":3:3", {"ascend", "duplicates"}),
      smtx("one column too many", "2, 3, 2\n0 1 2\n0 1 2\n", ":3:5", {"end of the line", "'2'"}),
      smtx("a fourth line", "2, 3, 2\n0 1 2\n0 1\n0.5 0.5\n", ":4:1", {"end of the file", "'0.5'"}),
      smtx("NaN among the columns", "2, 3, 2\n0 1 2\n0 nan\n", ":3:3", {"whole number", "'nan'"}),
      smtx("a control character", std::string_view("2, 3, 2\n0 \0 2\n0 1\n", 19), ":2:3",
           {"'\\x00'"}),
      smtx("values are needed", "1, 2, 1\n0 1\n1\n", "", {"no values", "--values=random:SEED"},
           requiring_values()),

      mtx("empty file", "", ":1:1", {"empty", "%%MatrixMarket"}),
      mtx("banner missing", "2 2 1\n1 1 1\n", ":1:1", {"%%MatrixMarket", "'2'", "first line"}),
      mtx("banner misspelt", "%MatrixMarket matrix coordinate real general\n1 1 0\n", ":1:1",
          {"'%MatrixMarket'"}),
      mtx("object is a vector", "%%MatrixMarket vector coordinate real general\n1 1 0\n", ":1:16",
          {"the object (matrix)", "'vector'"}),
      mtx("unknown form", "%%MatrixMarket matrix dense real general\n1 1 0\n", ":1:23",
          {"coordinate, array", "'dense'"}),
      mtx("unknown field", "%%MatrixMarket matrix coordinate quaternion general\n1 1 0\n", ":1:34",
          {"real, integer, complex, pattern", "'quaternion'"}),
      mtx("unknown symmetry", "%%MatrixMarket matrix coordinate real lopsided\n1 1 0\n", ":1:39",
          {"skew-symmetric", "'lopsided'"}),
      mtx("banner ends early", "%%MatrixMarket matrix coordinate real\n1 1 0\n", ":1:38",
          {"symmetry", "end of the line"}),
      mtx("banner has a sixth word", "%%MatrixMarket matrix coordinate real general x\n1 1 0\n",
          ":1:47", {"end of the line", "'x'"}),
      mtx("array of pattern", "%%MatrixMarket matrix array pattern general\n1 1\n", ":1:37",
          {"no meaning", "coordinate pattern"}),
      mtx("hermitian but real", "%%MatrixMarket matrix coordinate real hermitian\n1 1 0\n", ":1:39",
          {"only complex", "symmetric"}),
      mtx("hermitian pattern", "%%MatrixMarket matrix coordinate pattern hermitian\n1 1 0\n",
          ":1:42", {"only complex"}),
      mtx("skew-symmetric pattern",
          "%%MatrixMarket matrix coordinate pattern skew-symmetric\n1 1 0\n", ":1:42",
          {"skew-symmetric", "pattern symmetric"}),
      mtx("no size line", std::string(kGeneral) + "% only a comment\n", ":3:1",
          {"size line", "ROWS COLUMNS ENTRIES", "end of the file"}),
      coordinate("size line cut", "2 2\n1 1 1\n", ":2:4", {"number of entries", "end of the line"}),
      coordinate("size line too long", "2 2 1 7\n1 1 1\n", ":2:7", {"end of the line", "'7'"}),
      coordinate("size negative", "2 -2 1\n1 1 1\n", ":2:3", {"negative", "'-2'"}),
      coordinate("rows pass 31 bits", "2147483648 2 1\n1 1 1\n", ":2:1", {"31 bits"}),
      coordinate("entries pass 64 bits", "2 2 18446744073709551616\n1 1 1\n", ":2:5", {"64 bits"}),
      coordinate("promises 10 billion entries", "2 2 10000000000\n1 1 1\n", ":2:5",
                 {"10000000000 entries", "6 bytes follow"}),
      coordinate("promises 2 billion rows", "2000000000 2 1\n1 1 1\n", ":2:1",
                 {"2000000000 rows", "promised"}),
      coordinate("promises 2 billion columns", "2 2000000000 1\n1 1 1\n", ":2:3",
                 {"2000000000 columns", "promised"}),
      coordinate("one entry missing", "2 2 2\n1 1 1.000000\n", ":4:1",
                 {"2 entries", "found 1", "truncated"}),
      coordinate("one entry too many", "2 2 1\n1 1 1\n2 2 1\n", ":4:1",
                 {"end of the file", "1 entries", "'2'"}),
      coordinate("row index 0", "2 2 1\n0 1 1\n", ":3:1", {"row index", "counts from 1"}),
      coordinate("column index 0", "2 2 1\n1 0 1\n", ":3:3", {"column index", "counts from 1"}),
      coordinate("row index too large", "2 2 1\n3 1 1\n", ":3:1",
                 {"row index 3", "out of range", "2 rows"}),
      coordinate("column index too large", "2 2 1\n1 4294967297 1\n", ":3:3",
                 {"column index 4294967297", "out of range", "2 columns"}),
      coordinate("index negative", "2 2 1\n1 -1 1\n", ":3:3", {"negative", "'-1'"}),
      coordinate("index is a real", "2 2 1\n1.0 1 1\n", ":3:1", {"whole number", "'1.0'"}),
      coordinate("value missing", "2 2 2\n1 1 1\n2 2\n2 1 1\n", ":4:4",
                 {"a value", "end of the line"}),
      coordinate("value is a word", "2 2 1\n1 1 one\n", ":3:5", {"a value", "'one'"}),
      coordinate("value has a Fortran exponent", "2 2 1\n1 1 1.5D+00\n", ":3:5",
                 {"'1.5D+00'", "'e'"}),
      coordinate("value with two signs", "2 2 1\n1 1 +-1\n", ":3:5", {"'+-1'"}),
      coordinate("extra token", "2 2 1\n1 1 1 0\n", ":3:7", {"end of the line", "'0'"}),
      coordinate("value is NaN", "2 2 1\n1 2 nan\n", ":3:5", {"row 1, column 2", "nan", "finite"}),
      coordinate("value is infinite", "2 2 1\n2 1 -inf\n", ":3:5", {"row 2, column 1", "-inf"}),
      coordinate("value too large", "2 2 1\n2 1 1e400\n", ":3:5", {"'1e400'", "too large"}),
      coordinate("duplicate refused", "2 2 3\n1 1 1\n2 1 4\n1 1 2\n", ":5:1",
                 {"second entry", "line 3"}, refusing_duplicates()),
      coordinate("duplicates add up to infinity", "2 2 2\n1 1 1e308\n1 1 1e308\n", "",
                 {"row 0, column 0", "inf"}),
      mtx("integer with a fraction",
          "%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 "
          "1 2.5\n",
          ":3:5", {"whole number", "'2.5'"}),
      mtx("integer passes 64 bits",
          "%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 18446744073709551616\n",
          ":3:5", {"64 bits"}),
      mtx("negative integer passes 64 bits",
          "%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 -9223372036854775809\n",
          ":3:5", {"64 bits"}),
      mtx("imaginary part missing",
          "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 2.50\n", ":3:9",
          {"imaginary part", "end of the line"}),
      mtx("imaginary part is NaN",
          "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 2 nan\n", ":3:7",
          {"row 1, column 1", "nan"}),
      mtx("value in a pattern file",
          "%%MatrixMarket matrix coordinate pattern general\n1 1 1\n1 1 2\n", ":3:5",
          {"end of the line", "'2'"}),
      mtx("pattern where values are needed",
          "%%MatrixMarket matrix coordinate pattern general\n1 1 1\n1 1\n", "",
          {"no values", "--values=random:SEED"}, requiring_values()),
      mtx("symmetric but not square",
          "%%MatrixMarket matrix coordinate real symmetric\n2 3 1\n1 1 1\n", ":2:1",
          {"square", "2 x 3"}),
      mtx("entry above the diagonal",
          "%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 2 1\n", ":3:1",
          {"(1, 2)", "above the diagonal", "general"}),
      mtx("diagonal of a skew-symmetric matrix",
          "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 2 1\n", ":3:1",
          {"skew-symmetric", "row 2"}),
      mtx("imaginary diagonal of a hermitian matrix",
          "%%MatrixMarket matrix coordinate complex hermitian\n2 2 1\n2 2 1 1\n", ":3:1",
          {"hermitian", "row 2"}),
      mtx("array ends early", "%%MatrixMarket matrix array real general\n2 2\n1.5\n2.5\n3.5\n",
          ":6:1", {"4 entries", "found 3"}),
      mtx("array too long", "%%MatrixMarket matrix array real general\n1 2\n1\n2\n3\n", ":5:1",
          {"end of the file", "'3'"}),
      mtx("array with two values in a line", "%%MatrixMarket matrix array real general\n1 2\n1 2\n",
          ":3:3", {"end of the line"}),
      mtx("array promises 10 GB", "%%MatrixMarket matrix array real general\n40000 31250\n1\n",
          ":2:1", {"1250000000 entries", "2 bytes follow"}),
  };
}

} // namespace sparsertc::testing
