// How fast the PTX printer prints: operations a second for an unrolled SpMM, and elements a second
// for initialised arrays. Arguments: [number of multiply-adds].
#include "compiler/emit/ptx.h"
#include "ir/builder.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>

using namespace sparsertc;
using namespace sparsertc::ir;

namespace {

/// `terms` multiply-adds with an immediate and half as many loads, over tile functions of 1,000
/// multiply-adds, called by one dispatcher.
Module unrolled(uint32_t terms) {
  constexpr uint32_t kTermsPerTile = 1000;
  const Type device = Type::pointer(Space::device, Scalar::f32);
  const uint32_t tiles = (terms + kTermsPerTile - 1) / kTermsPerTile;
  Module module;
  module.functions.resize(tiles + 1);
  std::vector<uint32_t> functions;
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    Function& function = module.functions[tile];
    function.name = fmt::format("tile_{}", tile);
    functions.push_back(tile);
    Builder builder(module, function);
    const Reg b = builder.parameter(device, "b");
    const Reg c = builder.parameter(device, "c");
    const Reg sums = builder.fresh_tuple(Scalar::f32, 32);
    for (uint32_t i = 0; i < 32; ++i)
      builder.constant(Scalar::f32, Operand::f32(0), sums[i]);
    Reg value;
    for (uint32_t i = 0; i < kTermsPerTile; ++i) {
      if (i % 2 == 0)
        value = builder.load(b, int64_t{16384} * (i / 2), 1, Cache::readonly);
      builder.set_origin(tile * 32 + i % 32, i / 2);
      builder.fma(Scalar::f32, value, Operand::f32(1.0F / static_cast<float>(i + tile + 3)),
                  sums[i % 32], sums[i % 32]);
    }
    for (uint32_t i = 0; i < 32; ++i)
      builder.store(c, int64_t{16384} * i, sums[i]);
  }
  Function& kernel = module.functions[tiles];
  kernel.name = "sparsertc_spmm";
  kernel.kind = FunctionKind::kernel;
  kernel.block[0] = 256;
  Builder builder(module, kernel);
  const Reg arguments[] = {builder.parameter(device, "b"), builder.parameter(device, "c")};
  builder.switch_call(builder.special(Special::block_y), functions, arguments);
  return module;
}

Module arrays(uint64_t count) {
  Module module;
  for (Scalar element : {Scalar::i32, Scalar::f32}) {
    Symbol& symbol = module.symbols.emplace_back();
    symbol.name = element == Scalar::i32 ? "columns" : "values";
    symbol.type = Type::pointer(Space::device, element);
    symbol.count = count;
    symbol.bytes.resize(count * 4);
    for (uint64_t i = 0; i < count; ++i) {
      const auto column = static_cast<uint32_t>(i * 2654435761U % 4096);
      const float value = 1.0F / static_cast<float>(i + 1);
      std::memcpy(symbol.bytes.data() + 4 * i,
                  element == Scalar::i32 ? static_cast<const void*>(&column) : &value, 4);
    }
  }
  return module;
}

/// Seconds of the fastest of five runs.
template <typename Run>
double fastest(Run&& run) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    best = std::min(best, taken.count());
  }
  return best;
}

} // namespace

int main(int argc, char** argv) {
  const auto terms = static_cast<uint32_t>(argc > 1 ? std::atoi(argv[1]) : 1'000'000);
  const Target target = find_target("sm_90a");
  const Module module = unrolled(terms);
  size_t operations = 0;
  for (const Function& function : module.functions)
    operations += function.ops.size();

  fmt::print("{:<28}{:>12}{:>10}{:>10}{:>16}\n", "what", "count", "MB", "ms", "million/s");
  const auto row = [](const char* what, size_t count, size_t bytes, double seconds) {
    fmt::print("{:<28}{:>12}{:>10.1f}{:>10.1f}{:>16.1f}\n", what, count,
               static_cast<double>(bytes) * 1e-6, seconds * 1e3,
               static_cast<double>(count) / seconds * 1e-6);
  };
  size_t bytes = 0;
  double seconds = fastest([&] { bytes = emit_ptx(module, target).size(); });
  row("operations, one file", operations, bytes, seconds);
  seconds = fastest([&] { bytes = emit_ptx(module, target, {true}).size(); });
  row("operations, annotated", operations, bytes, seconds);
  seconds = fastest([&] {
    bytes = 0;
    for (const std::string& unit : emit_ptx_units(module, target))
      bytes += unit.size();
  });
  row("operations, in units", operations, bytes, seconds);
  const Module data = arrays(1'000'000);
  seconds = fastest([&] { bytes = emit_ptx(data, target).size(); });
  row("elements of arrays", 2'000'000, bytes, seconds);
}
