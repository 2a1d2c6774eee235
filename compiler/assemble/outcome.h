// What the assemblers share after the work: reading a result, and saying what went wrong.
#pragma once

#include "compiler/assemble/assembler.h"
#include "compiler/assemble/ptxas_log.h"
#include "ir/error.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

/// Why an assembler is passed over, in one piece: its name and the error's message, without the
/// word that begins it, further lines indented; without its notes, which are for whoever needs just
/// this one, unless `with_notes`.
std::string as_reason(std::string_view assembler, const Error& error, bool with_notes = false);

/// The name of a unit's file, "unit_00003.ptx".
std::string unit_name(size_t unit, const char* suffix);

/// Throws RuntimeError when the request has been stopped by somebody else.
void throw_if_stopped(const AssembleRequest& request);

/// Fills in `result.functions` from `result.cubin`, by name. Returns what is wrong with it: no
/// cubin, or a kernel that was asked for is missing; empty where nothing is.
std::string read_functions(const AssembleRequest& request, Assembled& result);

/// How a failure can be seen again, beside the units.
struct Reproduction {
  std::string script_name; ///< "reproduce.sh"
  std::string script;
  std::string log; ///< what the assembler said
};
/// Throws what the failure of one unit means: InternalError where the assembler finds fault with a
/// line of ours, else RuntimeError with its message or, where it has none, with `otherwise`. Keeps
/// the reproduction unless the assembler merely does not know the target or the PTX version.
[[noreturn]] void throw_unit_failure(const AssembleRequest& request, const std::string& assembler,
                                     size_t unit,
                                     const std::optional<AssemblerDiagnostic>& diagnostic,
                                     const std::string& otherwise,
                                     const Reproduction& reproduction);

/// The same for linking the units: InternalError where there is a diagnostic.
[[noreturn]] void throw_link_failure(const AssembleRequest& request, const std::string& linker,
                                     const std::optional<AssemblerDiagnostic>& diagnostic,
                                     const std::string& otherwise,
                                     const Reproduction& reproduction);

/// Throws the InternalError of a result that read_functions found wrong.
[[noreturn]] void throw_wrong_result(const AssembleRequest& request, const std::string& assembler,
                                     const std::string& reason, const Reproduction& reproduction);

} // namespace sparsertc
