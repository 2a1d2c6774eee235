// The container in which compiled code travels: a manifest, the code, and a digest over both. The
// file `layer.srtc` is one, and so is every file of the disk cache. README.md has the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

struct Bundle {
  /// JSON text, one object: what a launcher must know. The keys of OUT.json (see
  /// compiler/manifest.h), and in addition
  ///
  ///   compute_capability   [9, 0]; the least one whose GPUs run the PTX
  ///   assembler            "ptxas 13.0.88", or null where there is no cubin
  ///   entries[].registers, static_shared_bytes, stack_bytes, spill_store_bytes,
  ///   spill_load_bytes, code_bytes   of a kernel as assembled; absent without a cubin
  std::string manifest;

  struct Section {
    std::string name; ///< "cubin", "ptx", "binding"; readers pass over names they do not know
    std::vector<uint8_t> bytes;
  };
  /// In file order. Names are not empty and differ from each other.
  std::vector<Section> sections;

  /// The section of this name, or null.
  const Section* find(std::string_view name) const;
  Section* find(std::string_view name);
};

/// The file's bytes; the same bundle gives the same bytes. Throws InternalError for names that are
/// empty, too long or given twice.
std::vector<uint8_t> serialize(const Bundle& bundle);

/// Reads what serialize made. Every length is checked against the bytes that are there before
/// memory is taken. `name` is the file's, for messages. Throws UserError with the byte's place for
/// what is no bundle, of another format version, cut short, damaged, or followed by foreign bytes.
Bundle parse_bundle(std::span<const uint8_t> bytes, const std::string& name);

/// Reads a file. Throws UserError as parse_bundle, and where the file cannot be read.
Bundle read_bundle(const std::string& path);

/// Writes a file, whole or not at all: beside its place first, then renamed. Throws RuntimeError
/// where the system refuses (no permission, no space); what was there before is then untouched.
void write_bundle(const std::string& path, const Bundle& bundle);

} // namespace sparsertc
