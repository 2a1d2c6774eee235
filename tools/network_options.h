// `--network=FILE.json` of the subcommands that take several layers in place of one matrix.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace sparsertc {

/// Declares the option; IN is then not required any more.
void declare_network(CLI::App& parser, std::string& network);
/// Throws UsageError unless exactly one of IN and --network is given, and for options (by their
/// names, "--tile") that are for one layer where a network was given.
void check_network_options(const CLI::App& parser, const std::string& network,
                           const std::vector<std::string>& for_one_layer);
/// Options that say what one layer is and how it is compiled; a network's file says that itself.
const std::vector<std::string>& options_of_a_layer();

} // namespace sparsertc
