// Runs the table of malformed inputs: each must be refused by a UserError with the exact place, the
// expected words, at once and without memory.
#include "tests/error/reader_cases.h"

#include "ir/error.h"
#include "tests/support/allocation_guard.h"

#include <chrono>
#include <set>

#include <catch2/catch.hpp>

namespace sparsertc::testing {
namespace {

/// The largest single allocation a tiny malformed file may cause: the index of 2^20 rows that are
/// always allowed, with room for growth.
constexpr size_t kMostBytes = size_t{20} << 20;
constexpr double kMostSeconds = 1.0;

void run(const ReaderCase& c) {
  INFO("case: " << c.name);
  std::string message;
  size_t largest = 0;
  const auto start = std::chrono::steady_clock::now();
  {
    const AllocationGuard guard(kMostBytes);
    try {
      read_matrix_from_bytes(c.content, "in." + c.suffix, format_of_name("in." + c.suffix),
                             c.options);
      message = "(accepted)";
    } catch (const UserError& error) {
      message = error.what();
    } catch (const std::exception& error) {
      message = std::string("(not a UserError) ") + error.what();
    }
    largest = guard.largest();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  INFO("message: " << message);
  CHECK(message.substr(0, c.place.size()) == c.place);
  for (const std::string& word : c.words) {
    INFO("word: " << word);
    CHECK(message.find(word) != std::string::npos);
  }
  CHECK(largest <= kMostBytes);
  CHECK(seconds.count() < kMostSeconds);
}

} // namespace

TEST_CASE("Malformed text inputs are refused with their place") {
  for (const ReaderCase& c : text_reader_cases())
    run(c);
}

TEST_CASE("Malformed binary inputs are refused with their place") {
  for (const ReaderCase& c : binary_reader_cases())
    run(c);
}

TEST_CASE("The table of malformed inputs is large and has no case twice") {
  std::set<std::string> names;
  size_t count = 0;
  for (const auto& cases : {text_reader_cases(), binary_reader_cases()})
    for (const ReaderCase& c : cases) {
      ++count;
      CHECK(names.insert(c.suffix + ": " + c.name).second);
    }
  CHECK(count >= 70);
}

} // namespace sparsertc::testing
