// A short deterministic run of what the libFuzzer targets do: mutations of valid inputs from a
// seed, each read under a limit on memory.
#include "compiler/input/matpower.h"
#include "compiler/input/random_values.h"
#include "tests/fuzz/reader_fuzz.h"
#include "tests/fuzz/seed_inputs.h"
#include "tests/support/allocation_guard.h"

#include <algorithm>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace sparsertc::testing {
namespace {

constexpr uint64_t kSeed = 2024;
constexpr int kMutations = 4000;
/// The 8 MiB limit on decompressed bytes, as float64, and growth of arrays.
constexpr size_t kMostBytes = size_t{160} << 20;

class Mutator {
public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t bound) { return random_.next() % bound; }

  void mutate(Bytes& bytes, const std::vector<Bytes>& others) {
    for (uint64_t times = 1 + below(4); times > 0; --times)
      mutate_once(bytes, others);
  }

private:
  void mutate_once(Bytes& bytes, const std::vector<Bytes>& others) {
    static constexpr std::string_view kWords[] = {"0",
                                                  "-1",
                                                  "1",
                                                  "2147483647",
                                                  "2147483648",
                                                  "4294967296",
                                                  "18446744073709551615",
                                                  "99999999999999999999",
                                                  "nan",
                                                  "inf",
                                                  "1e999",
                                                  "-0.0",
                                                  " ",
                                                  "\n",
                                                  ",",
                                                  "%",
                                                  "'",
                                                  "{",
                                                  "(",
                                                  "symmetric",
                                                  "pattern",
                                                  "array",
                                                  "complex",
                                                  "True",
                                                  "<f8",
                                                  "|O",
                                                  "F64",
                                                  "[",
                                                  "\"",
                                                  "PK"};
    static constexpr uint8_t kBytes[] = {0, 1, 0x7f, 0x80, 0xff, ' ', '\n', '0', '9', '-', '.'};
    const size_t at = static_cast<size_t>(below(bytes.size() + 1));
    const auto here = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(9)) {
    case 0:
      if (at < bytes.size())
        bytes[at] ^= static_cast<uint8_t>(1u << below(8));
      break;
    case 1:
      if (at < bytes.size())
        bytes[at] = kBytes[below(std::size(kBytes))];
      break;
    case 2:
      bytes.resize(at);
      break;
    case 3: {
      const auto count = std::min<uint64_t>(1 + below(8), bytes.size() - at);
      bytes.erase(here, here + static_cast<std::ptrdiff_t>(count));
      break;
    }
    case 4:
    case 5: {
      const std::string_view word = kWords[below(std::size(kWords))];
      bytes.insert(here, word.begin(), word.end());
      break;
    }
    case 6: {
      // A little-endian number of 1 to 8 bytes, all ones or random.
      const uint64_t value = below(2) == 0 ? ~uint64_t{0} : random_.next() >> below(64);
      const uint64_t width = 1 + below(8);
      for (size_t i = 0; i < width && at + i < bytes.size(); ++i)
        bytes[at + i] = static_cast<uint8_t>(value >> (8 * i));
      break;
    }
    case 7: {
      const Bytes& other = others[below(others.size())];
      const auto from = static_cast<std::ptrdiff_t>(below(other.size()));
      bytes.resize(at);
      bytes.insert(bytes.end(), other.begin() + from, other.end());
      break;
    }
    case 8: {
      const auto count = std::min<uint64_t>(1 + below(64), bytes.size() - at);
      const Bytes copy(here, here + static_cast<std::ptrdiff_t>(count));
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size() + 1)),
                   copy.begin(), copy.end());
      break;
    }
    }
  }

  SplitMix64 random_;
};

/// `attempt` gets the bytes and a number that chooses options, and says what is wrong.
template <typename Attempt>
void run(const std::vector<Bytes>& seeds, std::string_view what, const Attempt& attempt) {
  WARN("seed " << kSeed << ", " << kMutations << " mutations of " << what);
  Mutator mutator(kSeed);
  for (int i = 0; i < kMutations; ++i) {
    Bytes bytes = seeds[mutator.below(seeds.size())];
    // The first round is the seeds themselves.
    if (i < static_cast<int>(seeds.size()))
      bytes = seeds[static_cast<size_t>(i)];
    else
      mutator.mutate(bytes, seeds);
    const auto variant = static_cast<uint8_t>(mutator.below(32));
    std::optional<std::string> fault;
    {
      const AllocationGuard guard(kMostBytes);
      fault = attempt(bytes, variant);
    }
    if (fault) {
      std::string shown;
      for (const uint8_t byte : bytes)
        shown += fmt::format("{:02x}", byte);
      FAIL("mutation " << i << ", options " << int{variant} << ": " << *fault << "\ninput "
                       << shown);
    }
  }
  SUCCEED();
}

void run(std::optional<Format> format) {
  run(seed_inputs(format), format ? to_string(*format) : "content of any format",
      [&](const Bytes& bytes, uint8_t variant) { return try_readers(bytes, format, variant); });
}

} // namespace

TEST_CASE("Mutated .smtx") {
  run(Format::smtx);
}

TEST_CASE("Mutated Matrix Market") {
  run(Format::matrix_market);
}

TEST_CASE("Mutated .npy") {
  run(Format::npy);
}

TEST_CASE("Mutated .npz") {
  run(Format::npz);
}

TEST_CASE("Mutated safetensors") {
  run(Format::safetensors);
}

TEST_CASE("Mutated inputs whose content decides, gzipped ones among them") {
  run(std::nullopt);
}

TEST_CASE("Mutated MATPOWER cases") {
  run(power_case_seeds(), "MATPOWER cases",
      [](const Bytes& bytes, uint8_t) { return try_power_case(bytes); });
}

TEST_CASE("The seeds are valid inputs") {
  for (const Bytes& bytes : power_case_seeds())
    CHECK_NOTHROW(read_power_case_from_bytes(bytes, "input"));
  for (const Format format :
       {Format::smtx, Format::matrix_market, Format::npy, Format::npz, Format::safetensors}) {
    size_t valid = 0;
    for (const Bytes& bytes : seed_inputs(format)) {
      try {
        read_matrix_from_bytes(bytes, "input", format);
        ++valid;
      } catch (const std::exception&) {
        // One .npy is one-dimensional: it is a seed for dense arrays.
        CHECK(format == Format::npy);
        CHECK_NOTHROW(read_dense_from_bytes(bytes, "input", format));
      }
    }
    CHECK(valid > 0);
  }
}

} // namespace sparsertc::testing
