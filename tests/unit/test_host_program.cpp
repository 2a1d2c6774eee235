// Host code against plain C++: memory shapes, control flow, calls, and blocks whose lanes disagree.
#include "compiler/emit/host_program.h"
#include "ir/builder.h"
#include "ir/error.h"
#include "tests/unit/host_kernels.h"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <ctime>
#include <random>

using namespace sparsertc;
using namespace sparsertc::test;
using ir::Builder;
using ir::Comparison;
using ir::FunctionKind;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;

namespace {

/// A small sparse matrix: per row, (column, value).
struct Sparse {
  uint32_t columns = 0;
  std::vector<std::vector<std::pair<uint32_t, float>>> rows;
};

Sparse random_sparse(std::mt19937_64& random, uint32_t rows, uint32_t columns, double density) {
  Sparse made;
  made.columns = columns;
  made.rows.resize(rows);
  std::uniform_real_distribution<double> unit(0, 1);
  std::uniform_real_distribution<float> value(-1, 1);
  for (auto& row : made.rows)
    for (uint32_t k = 0; k < columns; ++k)
      if (unit(random) < density)
        row.emplace_back(k, value(random));
  return made;
}

/// C = A * B as the lowering of SpMM writes it: a kernel that picks a tile by block_y, unrolled
/// tiles of four rows, the odd ones streamed through arrays of indices and values.
ir::Module spmm_module(const Sparse& a, uint32_t lanes, uint32_t n_known) {
  constexpr uint32_t kRows = 4;
  const uint32_t tiles = static_cast<uint32_t>((a.rows.size() + kRows - 1) / kRows);
  ir::Module module;
  module.functions.reserve(tiles + 1);
  ir::Symbol indices{"indices", device(Scalar::i32), 0, 16, {}};
  ir::Symbol values{"values", device(Scalar::f32), 0, 16, {}};
  module.symbols = {indices, values};
  std::vector<uint32_t> functions;
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    module.functions.emplace_back();
    ir::Function& function = module.functions.back();
    function.name = "tile_" + std::to_string(tile);
    functions.push_back(tile);
    Builder b(module, function);
    Reg from = b.parameter(device(Scalar::f32), "b");
    Reg to = b.parameter(device(Scalar::f32), "c");
    Reg inside = b.parameter(Scalar::pred, "inside");
    Reg n = b.parameter(Scalar::i32, "n");
    for (uint32_t r = tile * kRows; r < std::min<size_t>(a.rows.size(), (tile + 1) * kRows); ++r) {
      Reg sum = b.constant(Scalar::f32, Operand::f32(0));
      if (tile % 2 == 0) {
        for (auto [k, value] : a.rows[r]) {
          b.set_origin(r, k);
          Reg x = b.load(from, int64_t{k} * n_known * 4, 1, ir::Cache::readonly);
          b.fma(Scalar::f32, x, Operand::f32(value), sum, sum);
        }
      } else {
        const uint64_t first = module.symbols[0].count;
        for (auto [k, value] : a.rows[r]) {
          const uint32_t words[2] = {k, std::bit_cast<uint32_t>(value)};
          for (int i = 0; i < 2; ++i) {
            const auto* bytes = reinterpret_cast<const uint8_t*>(&words[i]);
            module.symbols[i].bytes.insert(module.symbols[i].bytes.end(), bytes, bytes + 4);
            ++module.symbols[i].count;
          }
        }
        Reg index = b.address(0);
        Reg weight = b.address(1);
        Reg stride = b.value(Opcode::shl, Scalar::i32, {n, Operand::integer(2)});
        Reg i = b.for_loop(Operand::integer(static_cast<int64_t>(a.rows[r].size())), 1);
        Reg k = b.load(b.index(index, i, Operand::integer(4)), static_cast<int64_t>(first * 4));
        Reg w = b.load(b.index(weight, i, Operand::integer(4)), static_cast<int64_t>(first * 4));
        Reg x = b.load(b.value(Opcode::index, device(Scalar::f32), {from, k, stride}), 0);
        b.fma(Scalar::f32, x, w, sum, sum);
        b.end();
      }
      b.clear_origin();
      b.if_begin(inside);
      b.store(b.index(to, n, Operand::integer(int64_t{r} * 4)), 0, sum);
      b.end();
    }
  }
  module.functions.emplace_back();
  ir::Function& kernel = module.functions.back();
  kernel.name = "spmm";
  kernel.kind = FunctionKind::kernel;
  kernel.block[0] = lanes;
  Builder b(module, kernel);
  Reg from = b.parameter(device(Scalar::f32), "b");
  Reg to = b.parameter(device(Scalar::f32), "c");
  Reg n = b.parameter(Scalar::i32, "n");
  const Column at = column(b, n, lanes);
  Reg my_b = b.index(from, at.number, Operand::integer(4));
  Reg my_c = b.index(to, at.number, Operand::integer(4));
  Reg tile = b.special(ir::Special::block_y);
  const Reg arguments[] = {my_b, my_c, at.inside, n};
  b.switch_call(tile, functions, arguments);
  return module;
}

void check_spmm(uint32_t lanes, uint32_t n, std::mt19937_64& random, unsigned level) {
  const Sparse a = random_sparse(random, 13, 29, 0.3);
  const ir::Module module = spmm_module(a, lanes, n);
  const HostProgram program = HostProgram::compile(module, {level});
  TaskPool pool(2);
  std::vector<float> b(a.columns * n);
  for (float& x : b)
    x = std::uniform_real_distribution<float>(-1, 1)(random);
  std::vector<float> c(a.rows.size() * n + 1, 77);
  const KernelArgument arguments[] = {pointer(b.data()), pointer(c.data()), integer(n)};
  const uint32_t grid[3] = {(n + lanes - 1) / lanes, 4, 1};
  program.run("spmm", grid, arguments, pool);
  INFO("lanes " << lanes << ", n " << n << ", level " << level << ", seed " << seed());
  for (size_t r = 0; r < a.rows.size(); ++r)
    for (uint32_t j = 0; j < n; ++j) {
      float sum = 0;
      for (auto [k, value] : a.rows[r])
        sum = std::fma(b[k * n + j], value, sum);
      if (std::bit_cast<uint32_t>(sum) != std::bit_cast<uint32_t>(c[r * n + j]))
        FAIL("row " << r << ", column " << j << ": " << c[r * n + j] << " != " << sum);
    }
  REQUIRE(c.back() == 77);
}

} // namespace

TEST_CASE("tiles, switches and streamed loops, whole and ragged columns") {
  std::mt19937_64 random(seed());
  for (uint32_t lanes : {16u, 8u, 1u})
    for (uint32_t n : {1u, 15u, 16u, 64u, 67u})
      check_spmm(lanes, n, random, 2);
  for (unsigned level : {0u, 1u, 3u})
    check_spmm(16, 35, random, level);
}

TEST_CASE("loops and ifs carry registers") {
  // out[column] = steps of the Collatz sequence of in[block_x], plus the sum of the odd numbers
  // below a limit, all uniform; the value is spread over the lanes when it is stored.
  for (uint32_t lanes : {16u, 1u}) {
    ir::Module module;
    ir::Function& kernel = add_function(module, "collatz", FunctionKind::kernel, lanes);
    Builder b(module, kernel);
    Reg in = b.parameter(device(Scalar::i32), "in");
    Reg out = b.parameter(device(Scalar::i32), "out");
    Reg block = b.special(ir::Special::block_x);
    Reg x = b.load(b.index(in, block, Operand::integer(4)), 0);
    Reg limit = b.move(x);
    Reg steps = b.constant(Scalar::i32, Operand::integer(0));
    Reg odd_sum = b.constant(Scalar::i32, Operand::integer(0));
    b.loop();
    {
      Reg low = b.value(Opcode::bit_and, Scalar::i32, {x, Operand::integer(1)});
      Reg odd = b.compare(Comparison::ne, Scalar::i32, low, Operand::integer(0));
      b.if_begin(odd);
      b.mul(Scalar::i32, x, Operand::integer(3), x);
      b.add(Scalar::i32, x, Operand::integer(1), x);
      b.else_mark();
      b.value(Opcode::shr, Scalar::i32, {x, Operand::integer(1)}, x);
      b.end();
      b.add(Scalar::i32, steps, Operand::integer(1), steps);
    }
    b.while_end(b.compare(Comparison::gt, Scalar::i32, x, Operand::integer(1)));
    Reg i = b.for_loop(limit, 3);
    {
      Reg j = b.for_loop(Operand::integer(4), 2);
      Reg both = b.add(Scalar::i32, i, j);
      b.add(Scalar::i32, odd_sum, both, odd_sum);
      b.end();
    }
    b.end();
    b.add(Scalar::i32, steps, odd_sum, steps);
    Reg first = b.mul(Scalar::i32, block, Operand::integer(lanes));
    Reg number = b.add(Scalar::i32, first, b.special(ir::Special::thread_x));
    b.store(b.index(out, number, Operand::integer(4)), 0, steps);

    std::vector<int32_t> input = {2, 7, 27, 1, 97};
    std::vector<int32_t> output(input.size() * lanes);
    TaskPool pool(1);
    const HostProgram program = HostProgram::compile(module);
    const KernelArgument arguments[] = {pointer(input.data()), pointer(output.data())};
    program.run("collatz", {static_cast<uint32_t>(input.size()), 1, 1}, arguments, pool);
    for (size_t k = 0; k < input.size(); ++k) {
      int32_t value = input[k];
      int32_t expected = 0;
      do {
        value = value % 2 != 0 ? value * 3 + 1 : value / 2;
        ++expected;
      } while (value > 1);
      for (int32_t row = 0; row < input[k]; row += 3)
        expected += row + (row + 2);
      for (uint32_t lane = 0; lane < lanes; ++lane)
        REQUIRE(output[k * lanes + lane] == expected);
    }
  }
}

TEST_CASE("tuples, strides, gathers and blocks with more threads than lanes") {
  // Thread (x, y) of a block of 256 x 2: reads 4 elements in a row, writes them back in pairs to a
  // transposed place, and gathers in[permutation[x]].
  constexpr uint32_t kThreads = 256;
  ir::Module module;
  ir::Function& kernel = add_function(module, "mix", FunctionKind::kernel, kThreads);
  kernel.block[1] = 2;
  Builder b(module, kernel);
  Reg in = b.parameter(device(Scalar::f32), "in");
  Reg permutation = b.parameter(device(Scalar::i32), "permutation");
  Reg pairs = b.parameter(device(Scalar::f32), "pairs");
  Reg columns = b.parameter(device(Scalar::f32), "columns");
  Reg gathered = b.parameter(device(Scalar::f32), "gathered");
  Reg x = b.special(ir::Special::thread_x);
  Reg y = b.special(ir::Special::thread_y);
  Reg thread = b.add(Scalar::i32, b.mul(Scalar::i32, y, Operand::integer(kThreads)), x);
  Reg four = b.load(b.index(in, thread, Operand::integer(16)), 0, 4);
  Reg two = b.fresh_tuple(Scalar::f32, 2);
  b.add(Scalar::f32, four[0], four[1], two[0]);
  b.sub(Scalar::f32, four[2], four[3], two[1]);
  b.store(b.index(pairs, thread, Operand::integer(8)), 0, two, 2);
  // Every thread's element in a row of its own: a scatter.
  b.store(b.index(columns, thread, Operand::integer(12)), 4, four[3]);
  Reg source = b.load(b.index(permutation, thread, Operand::integer(4)), 0);
  Reg value = b.load(b.index(in, source, Operand::integer(4)), 0);
  b.store(b.index(gathered, thread, Operand::integer(4)), 0, value);

  constexpr uint32_t kCount = 2 * kThreads;
  std::vector<float> input(4 * kCount);
  std::vector<int32_t> order(kCount);
  for (uint32_t i = 0; i < input.size(); ++i)
    input[i] = static_cast<float>(i * 7 % 1001);
  for (uint32_t i = 0; i < kCount; ++i)
    order[i] = static_cast<int32_t>((i * 37 + 11) % (4 * kCount));
  std::vector<float> out_pairs(2 * kCount), out_columns(3 * kCount, -1), out_gathered(kCount);
  const HostProgram program = HostProgram::compile(module);
  TaskPool pool(1);
  const KernelArgument arguments[] = {pointer(input.data()), pointer(order.data()),
                                      pointer(out_pairs.data()), pointer(out_columns.data()),
                                      pointer(out_gathered.data())};
  program.run("mix", {1, 1, 1}, arguments, pool);
  for (uint32_t i = 0; i < kCount; ++i) {
    REQUIRE(out_pairs[2 * i] == input[4 * i] + input[4 * i + 1]);
    REQUIRE(out_pairs[2 * i + 1] == input[4 * i + 2] - input[4 * i + 3]);
    REQUIRE(out_columns[3 * i] == -1);
    REQUIRE(out_columns[3 * i + 1] == input[4 * i + 3]);
    REQUIRE(out_columns[3 * i + 2] == -1);
    REQUIRE(out_gathered[i] == input[static_cast<size_t>(order[i])]);
  }
}

TEST_CASE("a comparison that lanes disagree on only in the middle of the type gives the block up") {
  // The last columns pass 2^31: lane 0 is inside, the last lane has wrapped around to a negative
  // number and looks inside as well.
  constexpr uint32_t kLanes = 16;
  ir::Module module;
  ir::Function& kernel = add_function(module, "wrap", FunctionKind::kernel, kLanes);
  Builder b(module, kernel);
  Reg out = b.parameter(device(Scalar::i32), "out");
  Reg base = b.parameter(Scalar::i32, "base");
  Reg limit = b.parameter(Scalar::i32, "limit");
  Reg x = b.special(ir::Special::thread_x);
  Reg number = b.add(Scalar::i32, base, x);
  Reg inside = b.compare(Comparison::lt, Scalar::i32, number, limit);
  Reg word = b.select(Scalar::i32, inside, number, Operand::integer(0));
  b.store(b.index(out, x, Operand::integer(4)), 0, word);
  std::vector<int32_t> output(kLanes);
  const HostProgram program = HostProgram::compile(module);
  TaskPool pool(1);
  const int32_t kBase = INT32_MAX - 7;
  const KernelArgument arguments[] = {pointer(output.data()), integer(kBase),
                                      integer(INT32_MAX - 3)};
  program.run("wrap", {1, 1, 1}, arguments, pool);
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const auto value = static_cast<int32_t>(static_cast<uint32_t>(kBase) + lane);
    REQUIRE(output[lane] == (value < INT32_MAX - 3 ? value : 0));
  }
}

TEST_CASE("atomics count every thread") {
  constexpr uint32_t kLanes = 16;
  ir::Module module;
  ir::Function& kernel = add_function(module, "count", FunctionKind::kernel, kLanes);
  Builder b(module, kernel);
  Reg counter = b.parameter(device(Scalar::i32), "counter");
  Reg order = b.parameter(device(Scalar::i32), "order");
  Reg one = b.constant(Scalar::i32, Operand::integer(1));
  Reg old = b.fresh(Scalar::i32);
  ir::Op op;
  op.code = Opcode::atomic;
  op.type = device(Scalar::i32);
  op.detail = static_cast<uint8_t>(ir::Atomic::add);
  op.result = old;
  op.operand[0] = counter.id;
  op.operand[1] = one.id;
  b.append(op);
  b.store(b.index(order, old, Operand::integer(4)), 0, old);
  int32_t count = 0;
  std::vector<int32_t> seen(kLanes * 100, -1);
  const HostProgram program = HostProgram::compile(module);
  TaskPool pool(2);
  const KernelArgument arguments[] = {pointer(&count), pointer(seen.data())};
  program.run("count", {100, 1, 1}, arguments, pool);
  REQUIRE(count == static_cast<int32_t>(kLanes) * 100);
  for (size_t i = 0; i < seen.size(); ++i)
    REQUIRE(seen[i] == static_cast<int32_t>(i));
}

TEST_CASE("what the host has not is refused with a way out") {
  ir::Module module;
  ir::Function& kernel = add_function(module, "blocked", FunctionKind::kernel, 16);
  {
    Builder b(module, kernel);
    b.barrier();
  }
  REQUIRE_THROWS_WITH(HostProgram::compile(module),
                      Catch::Contains("barrier") && Catch::Contains("--target=host"));
  kernel.ops.clear();
  Builder b(module, kernel);
  Reg in = b.parameter(device(Scalar::i32), "in");
  Reg x = b.load(b.index(in, b.special(ir::Special::thread_x), Operand::integer(4)), 0);
  b.if_begin(b.compare(Comparison::eq, Scalar::i32, x, Operand::integer(3)));
  b.end();
  REQUIRE_THROWS_WITH(HostProgram::compile(module), Catch::Contains("lane to lane"));

  ir::Module empty;
  add_function(empty, "nothing", FunctionKind::kernel);
  const HostProgram program = HostProgram::compile(empty);
  TaskPool pool(1);
  REQUIRE_THROWS_AS(program.run("something", {1, 1, 1}, {}, pool), UsageError);
  const KernelArgument one[] = {integer(1)};
  REQUIRE_THROWS_AS(program.run("nothing", {1, 1, 1}, one, pool), UsageError);
  program.run("nothing", {0, 1, 1}, {}, pool);
  program.run("nothing", {3, 2, 1}, {}, pool);
}

TEST_CASE("compile times of straight-line code", "[.timing]") {
  for (uint32_t count : {1000u, 10000u, 50000u}) {
    for (uint32_t per_function : {1000u, count}) {
      ir::Module module;
      module.functions.reserve(count / per_function + 1);
      std::vector<uint32_t> tiles;
      for (uint32_t t = 0; t < count / per_function; ++t) {
        module.functions.emplace_back();
        ir::Function& tile = module.functions.back();
        tile.name = "tile" + std::to_string(t);
        tiles.push_back(t);
        Builder b(module, tile);
        Reg from = b.parameter(device(Scalar::f32), "b");
        Reg to = b.parameter(device(Scalar::f32), "c");
        Reg inside = b.parameter(Scalar::pred, "inside");
        Reg sums[8];
        for (Reg& sum : sums)
          sum = b.constant(Scalar::f32, Operand::f32(0));
        for (uint32_t i = 0; i < per_function;) {
          Reg x = b.load(from, int64_t{i} * 512, 1, ir::Cache::readonly);
          for (uint32_t j = 0; j < 1 + i % 3 && i < per_function; ++j, ++i) {
            Reg sum = sums[(i * 5) % 8];
            b.fma(Scalar::f32, x, Operand::f32(static_cast<float>(i) * 0.37f + 1), sum, sum);
          }
        }
        b.if_begin(inside);
        for (int r = 0; r < 8; ++r)
          b.store(to, r * 4096, sums[r]);
        b.end();
      }
      module.functions.emplace_back();
      ir::Function& kernel = module.functions.back();
      kernel.name = "k";
      kernel.kind = FunctionKind::kernel;
      kernel.block[0] = 16;
      Builder b(module, kernel);
      Reg from = b.parameter(device(Scalar::f32), "b");
      Reg to = b.parameter(device(Scalar::f32), "c");
      Reg n = b.parameter(Scalar::i32, "n");
      const Column at = column(b, n, 16);
      const Reg arguments[] = {b.index(from, at.number, Operand::integer(4)),
                               b.index(to, at.number, Operand::integer(4)), at.inside};
      b.switch_call(b.special(ir::Special::block_y), tiles, arguments);
      const std::clock_t start = std::clock();
      const HostProgram program = HostProgram::compile(module);
      const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      WARN(count << " multiply-adds in functions of " << per_function << ": " << took
                 << " s of processor time");
    }
  }
}
