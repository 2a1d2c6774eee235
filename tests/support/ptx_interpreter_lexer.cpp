// Tokens and type words of PTX.
#include "tests/support/ptx_interpreter_parser.h"

#include <algorithm>

namespace sparsertc::ptx {
namespace {

bool starts_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' ||
         c == '.';
}
bool continues_identifier(char c) {
  return starts_identifier(c) || (c >= '0' && c <= '9');
}

constexpr std::pair<std::string_view, TypeInfo> kTypes[] = {
    {"b8", {ScalarType::b8, 8}},          {"b16", {ScalarType::b16, 16}},
    {"b32", {ScalarType::b32, 32}},       {"b64", {ScalarType::b64, 64}},
    {"b128", {ScalarType::b128, 128}},    {"u8", {ScalarType::u8, 8}},
    {"u16", {ScalarType::u16, 16}},       {"u32", {ScalarType::u32, 32}},
    {"u64", {ScalarType::u64, 64}},       {"s8", {ScalarType::s8, 8}},
    {"s16", {ScalarType::s16, 16}},       {"s32", {ScalarType::s32, 32}},
    {"s64", {ScalarType::s64, 64}},       {"f16", {ScalarType::f16, 16}},
    {"f16x2", {ScalarType::f16x2, 32}},   {"bf16", {ScalarType::bf16, 16}},
    {"bf16x2", {ScalarType::bf16x2, 32}}, {"tf32", {ScalarType::tf32, 32}},
    {"f32", {ScalarType::f32, 32}},       {"f64", {ScalarType::f64, 64}},
    {"pred", {ScalarType::pred, 1}},
};

} // namespace

const TypeInfo* find_type(std::string_view word) {
  for (const auto& [name, info] : kTypes)
    if (name == word)
      return &info;
  return nullptr;
}

void Lexer::advance() {
  const char* data = text_.data();
  const size_t size = text_.size();
  while (position_ < size) {
    const char c = data[position_];
    if (c == '\n') {
      ++line_;
      ++position_;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++position_;
    } else if (c == '/' && position_ + 1 < size && data[position_ + 1] == '/') {
      while (position_ < size && data[position_] != '\n')
        ++position_;
    } else if (c == '/' && position_ + 1 < size && data[position_ + 1] == '*') {
      position_ += 2;
      while (position_ < size &&
             !(data[position_] == '*' && position_ + 1 < size && data[position_ + 1] == '/')) {
        line_ += data[position_] == '\n';
        ++position_;
      }
      position_ = std::min(position_ + 2, size);
    } else {
      break;
    }
  }
  token_.line = line_;
  if (position_ >= size) {
    token_ = {TokenKind::end, {}, line_};
    return;
  }
  const size_t begin = position_;
  const char c = data[position_];
  if (starts_identifier(c)) {
    while (position_ < size &&
           (continues_identifier(data[position_]) ||
            (data[position_] == ':' && position_ + 1 < size && data[position_ + 1] == ':'))) {
      position_ += data[position_] == ':' ? 2 : 1;
    }
    token_.kind = TokenKind::identifier;
  } else if (c >= '0' && c <= '9') {
    bool point = false;
    while (position_ < size) {
      const char d = data[position_];
      const bool exponent = point && (data[position_ - 1] == 'e' || data[position_ - 1] == 'E');
      if (!((d >= '0' && d <= '9') || (d >= 'a' && d <= 'z') || (d >= 'A' && d <= 'Z') ||
            d == '.' || (exponent && (d == '-' || d == '+'))))
        break;
      point = point || d == '.';
      ++position_;
    }
    token_.kind = TokenKind::number;
  } else if (c == '"') {
    ++position_;
    while (position_ < size && data[position_] != '"')
      ++position_;
    position_ = std::min(position_ + 1, size);
    token_.kind = TokenKind::string;
  } else {
    ++position_;
    token_.kind = TokenKind::punctuation;
  }
  token_.text = text_.substr(begin, position_ - begin);
}

} // namespace sparsertc::ptx
