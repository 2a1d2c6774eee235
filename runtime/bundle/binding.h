// The section `binding` of a bundle: where the weights stand in its cubin. README.md has the
// format.
//
//   compile --bindable --> places --> section        section --> places --> new weights in the
//   cubin
#pragma once

#include "ir/error.h"
#include "ir/value_places.h"
#include "runtime/bundle/bundle.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sparsertc {

inline constexpr const char* kBindingSection = "binding";

/// The weights of this code cannot be replaced; it must be compiled anew.
class NotBindableError : public UserError {
public:
  using UserError::UserError;
};

std::vector<uint8_t> serialize_binding(const ValuePlaces& places);

/// Reads the bundle's section and checks it against the bundle's cubin. Throws NotBindableError
/// where the bundle has none (with the reason that its manifest gives), UserError where the section
/// is damaged. `name` is the bundle's, for messages.
ValuePlaces read_binding(const Bundle& bundle, const std::string& name);

/// Takes the bundle's PTX out: the weights that stand in it are not those that were written into
/// the cubin.
void drop_ptx(Bundle& bundle);

/// Puts the digest of these weights into the manifest.
void set_values_digest(Bundle& bundle, std::span<const double> values);

} // namespace sparsertc
