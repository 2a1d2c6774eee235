#include "tools/colouring_words.h"

#include "tools/words.h"

namespace sparsertc {
namespace {

template <class Enum, size_t N>
Enum choose(const std::string& what, const std::string& word, const Enum (&known)[N]) {
  std::vector<std::string> words;
  for (const Enum value : known)
    words.emplace_back(to_string(value));
  return known[choose_word(what, word, words)];
}

} // namespace

ColouringOrder choose_colouring_order(const std::string& word) {
  return choose("--order", word,
                {ColouringOrder::natural, ColouringOrder::largest_first,
                 ColouringOrder::smallest_last, ColouringOrder::incidence_degree});
}

ColouringSide choose_colouring_side(const std::string& word) {
  return choose("--side", word, {ColouringSide::column, ColouringSide::row, ColouringSide::star});
}

} // namespace sparsertc
