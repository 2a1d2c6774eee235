// The assemblers of this machine: which are tried, in which order, and the disk cache behind each.
#pragma once

#include "compiler/assemble/assembler.h"
#include "tools/options.h"

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

namespace sparsertc {

/// Which one makes machine code.
struct AssemblerOptions {
  std::string choice = "auto";
};
void declare(CLI::App& parser, AssemblerOptions& options);

/// The chosen assembler, or for "auto" the chain ptxas, nvJitLink, driver: ptxas assembles units in
/// parallel, which nvJitLink does not (runtime/driver/README.md has the figures); nvJitLink is
/// often there where no toolkit is, and the driver wherever a GPU is. Null where "auto" finds none;
/// the reasons are then added to `refused`. Throws RuntimeError where the chosen one is not there.
std::unique_ptr<Assembler> find_assembler(const AssemblerOptions& options,
                                          std::vector<std::string>& refused);

/// The same, each member behind the disk cache: an entry is then found under the identity of the
/// assembler that made it, whichever of the chain that was. Hits and misses go to standard error
/// where `verbose`; that nothing can be kept, always.
std::unique_ptr<Assembler> find_cached_assembler(const AssemblerOptions& options,
                                                 const CacheOptions& cache, bool verbose,
                                                 std::vector<std::string>& refused);

/// The same, where there is nothing to be done without one: throws RuntimeError with the reasons.
std::unique_ptr<Assembler> require_assembler();
std::unique_ptr<Assembler> require_cached_assembler(const AssemblerOptions& options,
                                                    const CacheOptions& cache);

} // namespace sparsertc
