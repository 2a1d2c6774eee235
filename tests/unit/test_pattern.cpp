#include "compiler/pattern/pattern.h"
#include "ir/sha256.h"
#include "ir/values_digest.h"

#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

namespace sparsertc {
namespace {

/// x . x .
/// . . . .
/// . x . .
Pattern small() {
  return {3, 4, {0, 2, 2, 3}, {0, 2, 1}};
}

std::string digest_of(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hash.hex();
}

} // namespace

TEST_CASE("SHA-256 gives FIPS 180's answers") {
  CHECK(digest_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(digest_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  Sha256 hash;
  const std::string portion(997, 'a');
  size_t left = 1'000'000;
  while (left > 0) {
    const size_t count = std::min(left, portion.size());
    hash.add(portion.data(), count);
    left -= count;
  }
  CHECK(hash.hex() == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("The digest of a pattern depends on everything in it and never changes") {
  const std::string digest = pattern_digest(small());
  CHECK(digest == "626dc27be49b87370ea2250e47fa619469640218ef7df73fe7b49c2bf98080ad");
  Pattern wider = small();
  wider.columns = 5;
  CHECK(pattern_digest(wider) != digest);
  Pattern moved = small();
  moved.row_offset = {0, 2, 3, 3};
  CHECK(pattern_digest(moved) != digest);
  Pattern other = small();
  other.column_index[2] = 3;
  CHECK(pattern_digest(other) != digest);
  CHECK(pattern_digest(Pattern{}) != pattern_digest(Pattern{0, 1, {0}, {}}));
  CHECK(values_digest(std::vector<double>{1, 2}) != values_digest(std::vector<double>{2, 1}));
  CHECK(values_digest(std::vector<double>{0.0}) != values_digest(std::vector<double>{-0.0}));
}

TEST_CASE("Faults of patterns are found") {
  CHECK_FALSE(find_fault(small()));
  CHECK_FALSE(find_fault(Pattern{}));
  const auto fault_after = [](auto&& change) {
    Pattern pattern = small();
    change(pattern);
    return find_fault(pattern).value_or("none");
  };
  CHECK(fault_after([](Pattern& p) { p.rows = 2; }) == "2 rows, but 4 row offsets");
  CHECK(fault_after([](Pattern& p) {
          p.row_offset = {1, 2, 2, 3};
        }) == "the first row offset is 1, not 0");
  CHECK(fault_after([](Pattern& p) {
          p.row_offset = {0, 2, 2, 2};
        }) == "the last row offset is 2, but there are 3 column indices");
  CHECK(fault_after([](Pattern& p) {
          p.row_offset = {0, 3, 2, 3};
        }) == "row 1: the row offsets descend");
  CHECK(fault_after([](Pattern& p) { p.columns = 2; }) == "row 0: column 2 of 2");
  CHECK(fault_after([](Pattern& p) {
          p.column_index = {2, 0, 1};
        }) == "row 0: columns do not ascend");
  CHECK(fault_after([](Pattern& p) {
          p.column_index = {2, 2, 1};
        }) == "row 0: columns do not ascend");
  CHECK(fault_after([](Pattern& p) { p.columns = 1u << 31; }) == "3 x 2147483648 is too large");
}

TEST_CASE("Statistics of a pattern") {
  const PatternStatistics s = statistics_of(small());
  CHECK(s.rows == 3);
  CHECK(s.columns == 4);
  CHECK(s.nnz == 3);
  CHECK(s.sparsity == 0.75);
  CHECK(s.empty_rows == 1);
  CHECK(s.empty_columns == 1);
  CHECK(s.minimum_row_length == 0);
  CHECK(s.maximum_row_length == 2);
  CHECK(s.maximum_column_length == 1);
  CHECK(s.mean_row_length == 1.0);
  CHECK(s.row_length_variation == Approx(std::sqrt(2.0 / 3)));
  CHECK(s.bandwidth == 2);
  CHECK(s.row_length_histogram == std::vector<uint64_t>{1, 1, 1});

  const PatternStatistics none = statistics_of(Pattern{});
  CHECK(none.sparsity == 0);
  CHECK(none.row_length_histogram.empty());
  const PatternStatistics empty = statistics_of(Pattern{2, 2, {0, 0, 0}, {}});
  CHECK(empty.sparsity == 1);
  CHECK(empty.row_length_variation == 0);
  CHECK(empty.row_length_histogram == std::vector<uint64_t>{2});
}

} // namespace sparsertc
