// Reading what ptxas and nvlink print.
#pragma once

#include "compiler/assemble/assembler.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

/// The first error of a log: "ptxas FILE, line 8; error   : MESSAGE", "ptxas fatal   : MESSAGE" or
/// "nvlink error   : MESSAGE".
struct AssemblerDiagnostic {
  uint64_t line = 0; ///< of the PTX, from 1; 0 where it names none
  std::string message;
};
std::optional<AssemblerDiagnostic> first_error(std::string_view log);

/// Adds what `-v` says about functions: stack and spills from ptxas, registers, barriers and shared
/// memory from whichever names them. Functions keep one element each.
void add_resources(std::string_view log, std::vector<FunctionResources>& functions);

/// "13.0.88" out of `ptxas --version`; empty where it is not there.
std::string version_in(std::string_view text);

} // namespace sparsertc
