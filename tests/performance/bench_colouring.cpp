// Colouring on one core: numbers of colours and times for the patterns given.
//
//   bench_colouring FILE...                   columns, rows, and both, in four orders each
//   bench_colouring grid WIDTH HEIGHT         the same for the five-point pattern of a grid
//
// Times are medians in microseconds, of colouring alone: ordering included, reading not.
#include "compiler/input/read.h"
#include "compiler/pattern/colouring.h"
#include "ir/error.h"
#include "tests/support/lu_patterns.h"
#include "tests/support/median_time.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>

namespace sparsertc {
namespace {

/// Whether all colourings are right.
bool bench(const std::string& name, const Pattern& pattern) {
  bool right = true;
  fmt::print("{}: {} x {}, {} non-zeros\n", name, pattern.rows, pattern.columns, pattern.nnz());
  for (const ColouringSide side :
       {ColouringSide::column, ColouringSide::row, ColouringSide::star}) {
    fmt::print("  {:<7} at least {:>6}", to_string(side), colouring_lower_bound(pattern, side));
    for (const ColouringOrder order :
         {ColouringOrder::natural, ColouringOrder::largest_first, ColouringOrder::smallest_last,
          ColouringOrder::incidence_degree}) {
      Colouring colouring;
      const double time = test::median_us(side == ColouringSide::star ? 3 : 15, [&] {
        colouring = colour_pattern(pattern, side, order);
      });
      fmt::print("  {} {} {:.1f}", to_string(order), colouring.count(), time);
      if (const auto conflict = find_conflict(pattern, colouring)) {
        fmt::print("  WRONG: {}", *conflict);
        right = false;
      }
    }
    fmt::print("\n");
  }
  return right;
}

int run(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "grid") {
    test::Random random(1);
    const auto number = [&](int i) {
      return static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10));
    };
    return bench("grid", test::random_grid(random, number(2), number(3), 0)) ? 0 : 1;
  }
  bool right = argc > 1;
  for (int i = 1; i < argc; ++i)
    right &= bench(argv[i], read_matrix(argv[i]).pattern);
  return right ? 0 : 1;
}

} // namespace
} // namespace sparsertc

int main(int argc, char** argv) {
  try {
    return sparsertc::run(argc, argv);
  } catch (const sparsertc::Error& error) {
    fmt::print(stderr, "bench_colouring: {}\n", error.what());
    return error.exit_code();
  }
}
