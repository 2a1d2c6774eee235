// How fast the IR is built, verified, printed and parsed; prints operations a second. Nothing here
// is a timed test: the numbers are for people. Processor time, the best of three.
//
//   bench_ir [multiply-adds, a million by default]
#include "ir/builder.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>

using namespace sparsertc::ir;

namespace {

constexpr uint32_t kRows = 32;
constexpr uint32_t kEntriesATile = 1000;

/// Unrolled SpMM as its lowering writes it: tiles of 32 rows, a load and a multiply-add for each
/// entry, one function a tile, and the kernel that switches to them.
Module make_module(uint32_t entries) {
  Module module;
  const uint32_t tiles = (entries + kEntriesATile - 1) / kEntriesATile;
  module.functions.reserve(tiles + 1);
  std::mt19937 random(1);
  std::normal_distribution<float> weight;
  const Type pointer = Type::pointer(Space::device, Scalar::f32);
  std::vector<uint32_t> list;
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    Function& function = module.functions.emplace_back();
    function.name = fmt::format("tile_{}", tile);
    Builder builder(module, function);
    const Reg b = builder.parameter(pointer, "b");
    const Reg c = builder.parameter(pointer, "c");
    Reg sums[kRows];
    for (Reg& sum : sums)
      sum = builder.constant(Scalar::f32, Operand::f32(0));
    for (uint32_t i = 0; i < kEntriesATile; i += 2) {
      const Reg x = builder.load(b, 4 * int64_t{i}, 1, Cache::readonly);
      for (uint32_t k = 0; k < 2; ++k) {
        const uint32_t row = (i + k) % kRows;
        builder.set_origin(tile * kRows + row, i / 2);
        builder.fma(Scalar::f32, x, Operand::f32(weight(random)), sums[row], sums[row]);
      }
      builder.clear_origin();
    }
    for (uint32_t row = 0; row < kRows; ++row)
      builder.store(c, 4 * int64_t{row}, sums[row]);
    list.push_back(tile);
  }
  Function& kernel = module.functions.emplace_back();
  kernel.name = "kernel";
  kernel.kind = FunctionKind::kernel;
  kernel.block[0] = 128;
  Builder builder(module, kernel);
  const Reg b = builder.parameter(pointer, "b");
  const Reg c = builder.parameter(pointer, "c");
  const Reg arguments[] = {b, c};
  builder.switch_call(builder.special(Special::block_y), list, arguments);
  return module;
}

Symbol make_stream(uint64_t count) {
  Symbol symbol;
  symbol.name = "stream";
  symbol.type = Type::pointer(Space::device, Scalar::f32);
  symbol.count = count;
  symbol.bytes.resize(count * 4);
  std::mt19937 random(2);
  std::normal_distribution<float> weight;
  for (uint64_t i = 0; i < count; ++i) {
    const float value = weight(random);
    std::memcpy(symbol.bytes.data() + 4 * i, &value, 4);
  }
  return symbol;
}

template <class Work>
void measure(const char* what, uint64_t items, Work&& work) {
  double best = 1e30;
  for (int i = 0; i < 3; ++i) {
    const std::clock_t start = std::clock();
    work();
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  fmt::print("{:<24} {:>10} {:>10.1f} {:>12.1f}\n", what, items, best * 1e3,
             static_cast<double>(items) / best / 1e6);
}

} // namespace

int main(int argc, char** argv) {
  const auto entries =
      static_cast<uint32_t>(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1000000);
  Module module;
  std::string text;
  fmt::print("{:<24} {:>10} {:>10} {:>12}\n", "step", "operations", "cpu_ms", "million/s");
  measure("build", entries, [&] { module = make_module(entries); });
  uint64_t operations = 0;
  for (const Function& function : module.functions)
    operations += function.ops.size();
  measure("verify", operations, [&] {
    if (!verify(module).empty())
      std::abort();
  });
  measure("print", operations, [&] { text = print(module); });
  measure("parse", operations, [&] { module = parse(text, "bench.sir"); });
  fmt::print("text: {:.1f} MB\n", static_cast<double>(text.size()) / 1e6);

  Module array;
  array.symbols.push_back(make_stream(1000000));
  measure("print array (elements)", 1000000, [&] { text = print(array); });
  measure("parse array (elements)", 1000000, [&] { array = parse(text, "bench.sir"); });
  return 0;
}
