#include "compiler/assemble/find_values.h"

#include "compiler/assemble/elf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

namespace sparsertc {
namespace {

/// An element's bits in both lists, and which element it is; ordered by the bits.
struct Marked {
  uint32_t first, second, element;
  friend bool operator<(const Marked& a, const Marked& b) {
    return a.first != b.first ? a.first < b.first : a.second < b.second;
  }
};

uint32_t bits_at(std::span<const uint8_t> code, size_t at, uint32_t count) {
  uint32_t bits = 0;
  std::memcpy(&bits, &code[at], count);
  return bits;
}

/// Where in the cubin a byte is, for people.
std::string describe(std::span<const uint8_t> cubin, uint64_t byte) {
  for (const CubinSection& section : read_cubin_sections(cubin))
    if (byte >= section.offset && byte - section.offset < section.bytes)
      return fmt::format("byte {} of section {}", byte - section.offset, section.name);
  return fmt::format("byte {}", byte);
}

} // namespace

FoundValues find_values(std::span<const uint8_t> first, std::span<const uint8_t> second,
                        ir::Scalar type, ir::Scalar stored,
                        std::span<const uint32_t> first_elements,
                        std::span<const uint32_t> second_elements) {
  FoundValues found;
  const auto refuse = [&](std::string why) {
    found = {};
    found.refusal = std::move(why);
    return found;
  };
  ValuePlaces& places = found.places;
  places.type = type;
  places.stored = stored;
  places.values = first_elements.size() / places.elements_per_value();
  if (first.size() != second.size())
    return refuse("the size of the code depends on the weights");
  if (first.size() > std::numeric_limits<uint32_t>::max() ||
      first_elements.size() > std::numeric_limits<uint32_t>::max())
    return refuse("the code is larger than 4 GiB");

  std::vector<Marked> marked(first_elements.size());
  for (uint32_t i = 0; i < marked.size(); ++i)
    marked[i] = {first_elements[i], second_elements[i], i};
  std::sort(marked.begin(), marked.end());

  const uint32_t width = places.element_bytes();
  std::vector<bool> has_place(marked.size(), false);
  const size_t whole = first.size() / width * width;
  for (size_t at = 0; at < whole; at += width) {
    const Marked here{bits_at(first, at, width), bits_at(second, at, width), 0};
    if (here.first == here.second)
      continue;
    const auto is = std::lower_bound(marked.begin(), marked.end(), here);
    if (is == marked.end() || here < *is)
      return refuse(
          fmt::format("{} depends on the weights, and is no copy of one", describe(first, at)));
    places.offset.push_back(static_cast<uint32_t>(at));
    places.element.push_back(is->element);
    has_place[is->element] = true;
  }
  if (!std::equal(first.begin() + static_cast<ptrdiff_t>(whole), first.end(),
                  second.begin() + static_cast<ptrdiff_t>(whole)))
    return refuse("the end of the code depends on the weights");
  if (const auto none = std::find(has_place.begin(), has_place.end(), false);
      none != has_place.end())
    return refuse(fmt::format("no copy of weight {} is in the code",
                              (none - has_place.begin()) / places.elements_per_value()));
  return found;
}

} // namespace sparsertc
