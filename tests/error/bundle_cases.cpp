// Bundles that are not what they should be: each is refused, with the byte's place and a way out.
#include "ir/error.h"
#include "ir/sha256.h"
#include "runtime/bundle/bundle.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>

using namespace sparsertc;

namespace {

Bundle small_bundle() {
  Bundle bundle;
  bundle.manifest = "{\"schema\": 1}\n";
  bundle.sections.push_back({"cubin", {0x7F, 'E', 'L', 'F', 0, 1, 2, 3}});
  bundle.sections.push_back({"ptx", {'.', 'v', 'e', 'r', 's', 'i', 'o', 'n'}});
  bundle.sections.push_back({"empty", {}});
  return bundle;
}

/// The message of the UserError that parsing throws; empty where it throws none.
std::string complaint(std::span<const uint8_t> bytes) {
  try {
    parse_bundle(bytes, "layer.srtc");
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

void put_integer(std::vector<uint8_t>& bytes, size_t at, uint64_t value, size_t count) {
  for (size_t i = 0; i < count; ++i)
    bytes[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

/// What somebody would do who forges a bundle: the digest fits.
void sign(std::vector<uint8_t>& bytes) {
  Sha256 digest;
  digest.add(bytes.data(), bytes.size() - 32);
  const std::array<uint8_t, 32> value = digest.finish();
  std::copy(value.begin(), value.end(), bytes.end() - 32);
}

} // namespace

TEST_CASE("a bundle that is cut short is refused at every length") {
  const std::vector<uint8_t> bytes = serialize(small_bundle());
  for (size_t length = 0; length < bytes.size(); ++length) {
    CAPTURE(length);
    // A copy of exactly this length, so that a sanitizer sees reads past the end.
    const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length));
    const std::string message = complaint(cut);
    CHECK(message.find("layer.srtc: byte ") == 0);
    CHECK(message.find(length == 0 ? "empty" : "cut short") != std::string::npos);
    CHECK(message.find("\nnote: ") != std::string::npos);
  }
}

TEST_CASE("a bundle with one bit flipped is refused, whichever bit") {
  const std::vector<uint8_t> bytes = serialize(small_bundle());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    CAPTURE(bit);
    std::vector<uint8_t> flipped = bytes;
    flipped[bit / 8] = static_cast<uint8_t>(flipped[bit / 8] ^ (1U << (bit % 8)));
    const std::string message = complaint(flipped);
    CHECK(message.find("layer.srtc: byte ") == 0);
    CHECK(message.find("\nnote: ") != std::string::npos);
  }
}

TEST_CASE("what is wrong with a file is said with its place") {
  const std::vector<uint8_t> bytes = serialize(small_bundle());
  const auto contains = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };

  std::vector<uint8_t> newer = bytes;
  put_integer(newer, 8, 7, 4);
  std::memcpy(&newer[16], "9.8.7\0", 6);
  sign(newer);
  CHECK(contains(complaint(newer), "byte 8: error: bundle format 7, made by sparsertc 9.8.7"));

  std::vector<uint8_t> longer = bytes;
  longer.push_back(0);
  CHECK(contains(complaint(longer),
                 "byte " + std::to_string(bytes.size()) + ": error: 1 foreign byte"));

  std::vector<uint8_t> flipped = bytes;
  flipped[150] ^= 1;
  CHECK(contains(complaint(flipped), "the digest does not fit"));

  const std::string text = "%%MatrixMarket matrix coordinate real general\n";
  CHECK(contains(complaint({reinterpret_cast<const uint8_t*>(text.data()), text.size()}),
                 "byte 0: error: not a bundle"));
  // As a transfer in text mode leaves it.
  std::vector<uint8_t> unix_lines = bytes;
  unix_lines.erase(unix_lines.begin() + 5);
  CHECK(contains(complaint(unix_lines), "byte 5: error: not a bundle"));
}

TEST_CASE("forged lengths take no memory and are refused") {
  const std::vector<uint8_t> bytes = serialize(small_bundle());
  const size_t manifest_at = 40, count_at = 12, first_length_at = 48 + 24;
  for (const uint64_t value : {uint64_t{0}, uint64_t{13}, uint64_t{15}, uint64_t{1} << 40,
                               ~uint64_t{0}, ~uint64_t{0} - 40}) {
    CAPTURE(value);
    for (const size_t at : {manifest_at, first_length_at}) {
      std::vector<uint8_t> forged = bytes;
      put_integer(forged, at, value, 8);
      sign(forged);
      CHECK(complaint(forged).find("damaged") != std::string::npos);
    }
  }
  for (const uint64_t count : {0U, 2U, 4U, 65U, 0xFFFFFFFFU}) {
    std::vector<uint8_t> forged = bytes;
    put_integer(forged, count_at, count, 4);
    sign(forged);
    CAPTURE(count);
    CHECK(complaint(forged).find("damaged") != std::string::npos);
  }
  for (const uint64_t length : {0U, 79U}) {
    std::vector<uint8_t> forged = bytes;
    put_integer(forged, 32, length, 8);
    sign(forged);
    CHECK(complaint(forged).find("byte 32: error: damaged") != std::string::npos);
  }
  // Names: twice the same, and a letter after the zeros.
  std::vector<uint8_t> twice = bytes;
  std::memcpy(&twice[48 + 32], &bytes[48], 24);
  sign(twice);
  CHECK(complaint(twice).find("byte 80: error: damaged") != std::string::npos);
  std::vector<uint8_t> hidden = bytes;
  hidden[48 + 20] = 'x';
  sign(hidden);
  CHECK(complaint(hidden).find("byte 48: error: damaged") != std::string::npos);
}
