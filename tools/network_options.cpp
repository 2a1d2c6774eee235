#include "tools/network_options.h"

#include "ir/error.h"

#include <fmt/format.h>

namespace sparsertc {

void declare_network(CLI::App& parser, std::string& network) {
  parser.get_option("IN")->required(false);
  parser.add_option("--network", network,
                    "In place of IN: a file that describes several layers with their weights "
                    "(runtime/bundle/README.md)");
}

void check_network_options(const CLI::App& parser, const std::string& network,
                           const std::vector<std::string>& for_one_layer) {
  const bool has_input = parser.get_option("IN")->count() != 0;
  if (network.empty() && !has_input)
    throw UsageError("IN is required", "the matrix's file, or --network=FILE.json");
  if (network.empty())
    return;
  if (has_input)
    throw UsageError("IN and --network exclude each other");
  for (const std::string& name : for_one_layer)
    if (const CLI::Option* option = parser.get_option_no_throw(name);
        option != nullptr && option->count() != 0)
      throw UsageError(fmt::format("{}: the file of the network says that for each layer", name),
                       fmt::format("write it into {}", network));
}

const std::vector<std::string>& options_of_a_layer() {
  static const std::vector<std::string> names = {
      "--tensor",        "--list-tensors", "--duplicates",
      "--values",        "--op",           "--conv",
      "--dtype",         "--layout",       "--ldb",
      "--ldc",           "--bias",         "--residual",
      "--activation",    "--half-terms",   "--precision",
      "--nonfinite",     "--tile",         "--budget",
      "--tuning",        "--road",         "--tuning-mismatch",
      "--dump-ir-after", "--stop-after",   "--annotate",
      "--plot"};
  return names;
}

} // namespace sparsertc
