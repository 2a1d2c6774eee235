#include "runtime/bundle/binding.h"

#include "ir/values_digest.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>

namespace sparsertc {
namespace {

using Json = nlohmann::ordered_json;

// The format: README.md has the table.
constexpr uint32_t kVersion = 1;
struct Header {
  uint32_t version;
  uint8_t type, stored;
  uint16_t reserved;
  uint64_t values, places;
};
static_assert(sizeof(Header) == 24);

constexpr ir::Scalar kScalars[] = {ir::Scalar::f32, ir::Scalar::f16, ir::Scalar::bf16,
                                   ir::Scalar::f64};

uint8_t number_of(ir::Scalar scalar) {
  return static_cast<uint8_t>(std::find(std::begin(kScalars), std::end(kScalars), scalar) -
                              std::begin(kScalars));
}
ir::Scalar scalar_of(uint8_t number) {
  return number < std::size(kScalars) ? kScalars[number] : ir::Scalar::none;
}

constexpr const char* kCompileAgain =
    "compile the new weights: sparsertc compile IN --bindable -o OUT.srtc";

std::string reason_in(const Bundle& bundle) {
  if (bundle.find("cubin") == nullptr)
    return "it holds PTX only, no machine code";
  const Json json = Json::parse(bundle.manifest, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("not_bindable") && json["not_bindable"].is_string())
    return json["not_bindable"].get<std::string>();
  return "it was compiled without --bindable";
}

} // namespace

std::vector<uint8_t> serialize_binding(const ValuePlaces& places) {
  const Header header = {kVersion, number_of(places.type), number_of(places.stored),
                         0,        places.values,          places.offset.size()};
  const size_t list = places.offset.size() * sizeof(uint32_t);
  std::vector<uint8_t> bytes(sizeof header + 2 * list);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (list != 0) {
    std::memcpy(bytes.data() + sizeof header, places.offset.data(), list);
    std::memcpy(bytes.data() + sizeof header + list, places.element.data(), list);
  }
  return bytes;
}

ValuePlaces read_binding(const Bundle& bundle, const std::string& name) {
  const Bundle::Section* section = bundle.find(kBindingSection);
  const Bundle::Section* cubin = bundle.find("cubin");
  if (section == nullptr || cubin == nullptr)
    throw NotBindableError(
        fmt::format("{} cannot be bound to new weights: {}", name, reason_in(bundle)),
        kCompileAgain);
  const auto damaged = [&](const char* why) {
    return UserError(fmt::format("{}: section {} is damaged: {}", name, kBindingSection, why),
                     kCompileAgain);
  };
  const std::vector<uint8_t>& bytes = section->bytes;
  Header header;
  if (bytes.size() < sizeof header)
    throw damaged("it is cut short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.version != kVersion)
    throw damaged("its version is not known");
  constexpr uint64_t kPlaceBytes = 2 * sizeof(uint32_t);
  const uint64_t rest = bytes.size() - sizeof header;
  if (header.places != rest / kPlaceBytes || rest % kPlaceBytes != 0)
    throw damaged("its length does not fit the number of places");
  ValuePlaces places;
  places.type = scalar_of(header.type);
  places.stored = scalar_of(header.stored);
  places.values = header.values;
  places.offset.resize(header.places);
  places.element.resize(header.places);
  if (const size_t list = header.places * sizeof(uint32_t); list != 0) {
    std::memcpy(places.offset.data(), bytes.data() + sizeof header, list);
    std::memcpy(places.element.data(), bytes.data() + sizeof header + list, list);
  }
  if (const char* fault = find_fault(places, cubin->bytes.size()))
    throw damaged(fault);
  return places;
}

void drop_ptx(Bundle& bundle) {
  std::erase_if(bundle.sections,
                [](const Bundle::Section& section) { return section.name == "ptx"; });
}

void set_values_digest(Bundle& bundle, std::span<const double> values) {
  Json json = Json::parse(bundle.manifest);
  json["values_digest"] = values_digest(values);
  bundle.manifest = json.dump(2) + "\n";
}

} // namespace sparsertc
