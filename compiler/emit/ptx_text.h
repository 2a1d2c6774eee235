// Text at the speed of copying: short operands formatted in place and one growing buffer. Used by
// the PTX printer, whose inner loop must not go through a formatting library.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace sparsertc {

/// Two decimal digits for each number below 100.
inline constexpr auto kDecimalPairs = [] {
  std::array<char, 200> digits{};
  for (int i = 0; i < 100; ++i) {
    digits[2 * i] = static_cast<char>('0' + i / 10);
    digits[2 * i + 1] = static_cast<char>('0' + i % 10);
  }
  return digits;
}();

/// Writes `value` in decimal at `to` (20 bytes are enough) and returns the end.
inline char* write_decimal(char* to, uint64_t value) {
  char digits[20];
  unsigned at = sizeof digits;
  while (value >= 100) {
    const uint64_t rest = value / 100;
    at -= 2;
    std::memcpy(digits + at, &kDecimalPairs[2 * (value - rest * 100)], 2);
    value = rest;
  }
  if (value >= 10) {
    at -= 2;
    std::memcpy(digits + at, &kDecimalPairs[2 * value], 2);
  } else {
    digits[--at] = static_cast<char>('0' + value);
  }
  std::memcpy(to, digits + at, sizeof digits - at);
  return to + (sizeof digits - at);
}

inline char* write_signed(char* to, int64_t value) {
  if (value >= 0)
    return write_decimal(to, static_cast<uint64_t>(value));
  *to++ = '-';
  return write_decimal(to, 0 - static_cast<uint64_t>(value));
}

/// Writes `digits` hexadecimal digits of `value` (upper case) and returns the end.
inline char* write_hex(char* to, uint64_t value, unsigned digits) {
  for (unsigned i = 0; i < digits; ++i)
    to[i] = "0123456789ABCDEF"[(value >> (4 * (digits - 1 - i))) & 15];
  return to + digits;
}

/// An operand as it is printed: a register, a literal or an address. At most 31 characters.
class PtxText {
public:
  PtxText() = default;
  explicit PtxText(std::string_view text) : size_(static_cast<uint8_t>(text.size())) {
    std::memcpy(data_, text.data(), text.size());
  }
  /// A register: its class's prefix and its number.
  static PtxText numbered(std::string_view prefix, uint32_t number) {
    PtxText text(prefix);
    text.end_at(write_decimal(text.data_ + prefix.size(), number));
    return text;
  }
  static PtxText integer(int64_t value) {
    PtxText text;
    text.end_at(write_signed(text.data_, value));
    return text;
  }
  static PtxText unsigned_integer(uint64_t value) {
    PtxText text;
    text.end_at(write_decimal(text.data_, value));
    return text;
  }
  /// "0f3F800000": a float by its bits.
  static PtxText f32(uint32_t bits) {
    PtxText text("0f");
    text.end_at(write_hex(text.data_ + 2, bits, 8));
    return text;
  }
  static PtxText f64(uint64_t bits) {
    PtxText text("0d");
    text.end_at(write_hex(text.data_ + 2, bits, 16));
    return text;
  }
  /// "0x3C00", `digits` wide.
  static PtxText hex(uint64_t bits, unsigned digits) {
    PtxText text("0x");
    text.end_at(write_hex(text.data_ + 2, bits, digits));
    return text;
  }
  /// "[%rd1+16]"; the offset fits 32 bits.
  static PtxText address(const PtxText& base, int64_t offset) {
    PtxText text("[");
    std::memcpy(text.data_ + 1, base.data_, base.size_);
    char* end = text.data_ + 1 + base.size_;
    if (offset != 0) {
      *end++ = '+';
      end = write_signed(end, offset);
    }
    *end++ = ']';
    text.end_at(end);
    return text;
  }

  std::string_view view() const { return {data_, size_}; }
  const char* data() const { return data_; }
  unsigned size() const { return size_; }
  static constexpr unsigned kCapacity = 31;

private:
  void end_at(const char* end) { size_ = static_cast<uint8_t>(end - data_); }

  char data_[kCapacity] = {};
  uint8_t size_ = 0;
};
static_assert(sizeof(PtxText) == 32);

/// A character buffer that grows by doubling.
class PtxBuffer {
public:
  PtxBuffer() = default;
  PtxBuffer(const PtxBuffer&) = delete;
  PtxBuffer& operator=(const PtxBuffer&) = delete;

  void put(std::string_view text) {
    reserve(text.size());
    text.copy(end_, text.size()); // also of nothing
    end_ += text.size();
  }
  void put(char character) {
    reserve(1);
    *end_++ = character;
  }
  void put(const PtxText& text) {
    reserve(PtxText::kCapacity);
    // A fixed length is copied in two moves; what is too much is overwritten by what follows.
    std::memcpy(end_, text.data(), PtxText::kCapacity);
    end_ += text.size();
  }
  void put_decimal(uint64_t value) {
    reserve(20);
    end_ = write_decimal(end_, value);
  }
  /// Room for `bytes` more, to be written at end() and accounted for by set_end().
  void reserve(size_t bytes) {
    if (static_cast<size_t>(limit_ - end_) < bytes)
      grow(bytes);
  }
  char* end() { return end_; }
  void set_end(char* end) { end_ = end; }

  bool empty() const { return end_ == storage_.data(); }
  size_t size() const { return static_cast<size_t>(end_ - storage_.data()); }
  std::string_view view() const { return {storage_.data(), size()}; }
  /// Forgets the text, keeps the memory.
  void clear() { end_ = storage_.data(); }
  /// Drops the last `count` characters.
  void drop(size_t count) { end_ -= count; }
  /// The text; the buffer is empty afterwards.
  std::string take();

private:
  void grow(size_t bytes);

  std::string storage_;
  char* end_ = storage_.data();
  char* limit_ = storage_.data();
};

} // namespace sparsertc
