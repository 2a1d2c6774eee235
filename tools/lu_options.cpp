#include "tools/lu_options.h"

#include "tools/words.h"

#include <vector>

namespace sparsertc {
namespace {

Toggle to_toggle(const char* option, const std::string& word) {
  constexpr Toggle kToggles[] = {Toggle::automatic, Toggle::on, Toggle::off};
  return kToggles[choose_word(option, word, {"auto", "on", "off"})];
}

} // namespace

void declare(CLI::App& parser, LuOptions& options) {
  parser
      .add_option("--matching", options.matching,
                  "Move and scale rows so that the pivots are large: on, off, or auto: unless the "
                  "diagonal is strong")
      ->capture_default_str()
      ->group("Sparse LU");
  parser
      .add_option("--order", options.order,
                  "Order for little fill: natural, amd, colamd, nd (nested dissection), or auto: "
                  "what promises the least time")
      ->capture_default_str()
      ->group("Sparse LU");
  parser
      .add_option("--blocks", options.blocks,
                  "Keep the blocks of the block triangular form together: on, off, or auto: where "
                  "it promises less time")
      ->capture_default_str()
      ->group("Sparse LU");
}

LuAnalysisOptions to_analysis_options(const LuOptions& options) {
  LuAnalysisOptions analysis;
  analysis.matching = to_toggle("--matching", options.matching);
  analysis.blocks = to_toggle("--blocks", options.blocks);
  std::vector<std::string> words = {"auto"};
  for (FillOrder order : kFillOrders)
    words.emplace_back(name_of(order));
  if (const size_t word = choose_word("--order", options.order, words); word > 0)
    analysis.order = kFillOrders[word - 1];
  return analysis;
}

} // namespace sparsertc
