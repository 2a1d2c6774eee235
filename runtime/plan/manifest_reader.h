// The objects of a bundle's manifest, read with checks.
#pragma once

#include "ir/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace sparsertc {

/// One object of the manifest; every access says what was expected where.
class ManifestReader {
public:
  using Json = nlohmann::json;
  /// Dimensions and byte offsets inside a kernel are signed 32-bit numbers.
  static constexpr uint64_t kMost32 = std::numeric_limits<int32_t>::max();

  ManifestReader(const Json& object, const std::string& file, std::string where)
      : object_(object), file_(file), where_(std::move(where)) {
    if (!object_.is_object())
      throw UserError(Place{file_, 0, 0, {}}, fmt::format("the manifest's {} is not a JSON object",
                                                          where_.empty() ? "text" : where_));
  }

  [[noreturn]] void refuse(std::string_view key, const std::string& expected) const {
    const auto found = object_.find(key);
    throw UserError(Place{file_, 0, 0, {}},
                    fmt::format("manifest key {}{}: expected {}, found {}", where_, key, expected,
                                found == object_.end() ? "nothing" : found->dump().substr(0, 60)),
                    "the file was made by another version of sparsertc; compile it again");
  }

  const Json& at(std::string_view key, const char* expected) const {
    const auto found = object_.find(key);
    if (found == object_.end())
      refuse(key, expected);
    return *found;
  }

  uint64_t number(std::string_view key, uint64_t least, uint64_t most) const {
    const std::string expected = fmt::format("a number from {} to {}", least, most);
    const Json& value = at(key, expected.c_str());
    if (!value.is_number_unsigned() || value.get<uint64_t>() < least ||
        value.get<uint64_t>() > most)
      refuse(key, expected);
    return value.get<uint64_t>();
  }
  uint32_t number32(std::string_view key, uint64_t least, uint64_t most) const {
    return static_cast<uint32_t>(number(key, least, most));
  }
  /// `otherwise` where the key is absent.
  uint32_t number32_or(std::string_view key, uint32_t otherwise) const {
    return object_.contains(key) ? number32(key, 0, kMost32) : otherwise;
  }
  /// Nothing where the value is null.
  std::optional<uint64_t> optional_number(std::string_view key, uint64_t most) const {
    if (at(key, "a number or null").is_null())
      return std::nullopt;
    return number(key, 0, most);
  }

  std::string text(std::string_view key) const {
    const Json& value = at(key, "text");
    if (!value.is_string())
      refuse(key, "text");
    return value.get<std::string>();
  }
  /// "" where the key is absent or null.
  std::string text_or_empty(std::string_view key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? std::string() : text(key);
  }
  /// The index of the text in `words`.
  size_t word(std::string_view key, std::initializer_list<std::string_view> words) const {
    const std::string value = text(key);
    const auto found = std::find(words.begin(), words.end(), value);
    if (found == words.end())
      refuse(key, fmt::format("one of {}", fmt::join(words, ", ")));
    return static_cast<size_t>(found - words.begin());
  }

  bool flag(std::string_view key) const {
    const Json& value = at(key, "true or false");
    if (!value.is_boolean())
      refuse(key, "true or false");
    return value.get<bool>();
  }

  const Json& array(std::string_view key) const {
    const Json& value = at(key, "an array");
    if (!value.is_array())
      refuse(key, "an array");
    return value;
  }

  ManifestReader object(std::string_view key) const {
    return ManifestReader(at(key, "an object"), file_, fmt::format("{}{}.", where_, key));
  }
  ManifestReader element(std::string_view key, size_t index) const {
    return ManifestReader(array(key)[index], file_, fmt::format("{}{}[{}].", where_, key, index));
  }

private:
  const Json& object_;
  const std::string& file_;
  std::string where_; ///< "entries[0]."
};

} // namespace sparsertc
