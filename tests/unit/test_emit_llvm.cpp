// The LLVM road's texts: PTX that ptxas takes for every target, host code that is what was meant.
#include "compiler/emit/llvm.h"
#include "ir/builder.h"
#include "ir/error.h"
#include "tests/support/cuda_programs.h"

#include <catch2/catch.hpp>

using namespace sparsertc;
using ir::Builder;
using ir::Opcode;
using ir::Operand;
using ir::Reg;
using ir::Scalar;
using ir::Space;
using ir::Type;

namespace {

Type device(Scalar element) {
  return Type::pointer(Space::device, element);
}
Type shared(Scalar element) {
  return Type::pointer(Space::shared, element);
}

void append(Builder& b, Opcode code, Type type, Reg result, std::initializer_list<Reg> operands,
            uint8_t detail = 0) {
  ir::Op op;
  op.code = code;
  op.type = type;
  op.result = result;
  op.detail = detail;
  unsigned slot = 0;
  for (Reg operand : operands)
    op.operand[slot++] = operand.id;
  b.append(op);
}

/// A kernel that uses what a block's threads do together, every half-precision operation, ordered
/// accesses, tuples of every width, a switch over functions, and matrix fragments.
ir::Module gpu_module() {
  ir::Module module;
  module.attributes = {{"family", "test"}};
  module.functions.reserve(3);
  module.symbols.push_back({"stage", shared(Scalar::f32), 1024, 16, {}});
  module.symbols.push_back({"weights",
                            Type::pointer(Space::constant, Scalar::f32),
                            2,
                            16,
                            {0, 0, 128, 63, 0, 0, 0, 64}});
  module.symbols.push_back({"indices", device(Scalar::i32), 1, 16, {7, 0, 0, 0}});
  for (int t = 0; t < 2; ++t) {
    module.functions.emplace_back();
    ir::Function& tile = module.functions.back();
    tile.name = "tile_" + std::to_string(t);
    Builder b(module, tile);
    Reg from = b.parameter(device(Scalar::f32), "b");
    Reg to = b.parameter(device(Scalar::f32), "c");
    Reg sum = b.constant(Scalar::f32, Operand::f32(0));
    for (int k = 0; k < 3; ++k)
      b.fma(Scalar::f32, b.load(from, k * 512, 1, ir::Cache::readonly),
            Operand::f32(1.5f + static_cast<float>(t)), sum, sum);
    b.store(to, 0, sum);
  }
  module.functions.emplace_back();
  ir::Function& kernel = module.functions.back();
  kernel.name = "sparsertc_test";
  kernel.kind = ir::FunctionKind::kernel;
  kernel.block[0] = 128;
  kernel.max_registers = 128;
  Builder b(module, kernel);
  Reg from = b.parameter(device(Scalar::f32), "b");
  Reg to = b.parameter(device(Scalar::f32), "c");
  Reg halves = b.parameter(device(Scalar::f16), "halves");
  Reg bfloats = b.parameter(device(Scalar::bf16), "bfloats");
  Reg words = b.parameter(device(Scalar::i32), "words");
  Reg n = b.parameter(Scalar::i32, "n");
  Reg x = b.special(ir::Special::thread_x);
  Reg stage = b.address(0);
  Reg mine = b.index(from, x, Operand::integer(16));
  b.copy_async(b.index(stage, x, Operand::integer(16)), 0, mine, 0, 16);
  b.copy_async(b.index(stage, x, Operand::integer(4)), 0, mine, 64, 4, n);
  b.copy_commit();
  b.copy_wait(0);
  b.barrier();
  b.barrier(Operand::integer(1), 64);
  Reg four = b.load(b.index(stage, x, Operand::integer(16)), 0, 4);
  Reg out = b.index(to, x, Operand::integer(64));
  b.store(out, 0, four, 4, ir::Cache::streaming);
  Reg weight = b.load(b.address(1), 4);
  Reg index = b.load(b.address(2), 0, 1, ir::Cache::readonly);
  b.store(out, 16, b.fma(Scalar::f32, four, weight, four[1]));
  b.store(b.index(words, index, Operand::integer(4)), 0, x);

  for (Reg from_half : {halves, bfloats}) {
    const Scalar half = kernel.type_of(from_half).element();
    const Scalar two = half == Scalar::f16 ? Scalar::f16x2 : Scalar::bf16x2;
    Reg at = b.index(from_half, x, Operand::integer(16));
    Reg in = b.load(at, 0, 4);
    Reg a = b.fma(half, in[0], in[1], in[2]);
    a = b.add(half, a, in[3]);
    a = b.mul(half, a, in[1]);
    a = b.sub(half, a, in[2]);
    Reg pair = b.value(Opcode::pack, two, {a, in[0]});
    pair = b.fma(two, pair, pair, pair);
    pair = b.add(two, pair, pair);
    pair = b.mul(two, pair, pair);
    pair = b.sub(two, pair, pair);
    Reg low = b.value(Opcode::low, two, {pair});
    Reg wide = b.convert(Scalar::f32, low, ir::Conversion::exact);
    b.store(at, 8, b.convert(half, wide, ir::Conversion::nearest));
  }
  Reg shuffled = b.value(Opcode::shuffle, Scalar::f32, {four, Operand::integer(1)}, {},
                         static_cast<uint8_t>(ir::Shuffle::butterfly));
  b.store(out, 20, shuffled);
  Reg inside = b.compare(ir::Comparison::lt, Scalar::i32, x, n);
  Reg votes = b.fresh(Scalar::i32);
  append(b, Opcode::ballot, {}, votes, {inside});
  b.warp_barrier();
  Reg slot = b.index(words, x, Operand::integer(4));
  b.store(slot, 0, votes);

  Reg seen = b.fresh(Scalar::i32);
  append(b, Opcode::load_ordered, device(Scalar::i32), seen, {slot},
         static_cast<uint8_t>(ir::Order::acquire_device));
  append(b, Opcode::store_ordered, device(Scalar::i32), {}, {slot, seen},
         static_cast<uint8_t>(ir::Order::release_system));
  append(b, Opcode::atomic, device(Scalar::i32), b.fresh(Scalar::i32), {slot, seen},
         static_cast<uint8_t>(ir::Atomic::max));
  append(b, Opcode::compare_swap, device(Scalar::i32), b.fresh(Scalar::i32), {slot, seen, votes},
         static_cast<uint8_t>(ir::Order::relaxed_device));
  append(b, Opcode::fence, {}, {}, {}, static_cast<uint8_t>(ir::Order::release_device));

  const Reg arguments[] = {mine, out};
  const uint32_t tiles[] = {0, 1};
  b.if_begin(inside);
  b.switch_call(b.special(ir::Special::block_y), tiles, arguments);
  b.end();
  for (auto [fragment, scalar] : {std::pair{ir::Fragment::m16n8k16_f16, Scalar::f16x2},
                                  std::pair{ir::Fragment::m16n8k16_bf16, Scalar::bf16x2},
                                  std::pair{ir::Fragment::m16n8k32_f16, Scalar::f16x2},
                                  std::pair{ir::Fragment::m16n8k32_bf16, Scalar::bf16x2}}) {
    const bool sparse = fragment >= ir::Fragment::m16n8k32_f16;
    Reg a = b.fresh_tuple(scalar, 4);
    Reg other = b.fresh_tuple(scalar, 4);
    for (uint32_t i = 0; i < 4; ++i) {
      b.bitcast(scalar, votes, a[i]);
      b.bitcast(scalar, seen, other[i]);
    }
    Reg sums = b.fresh_tuple(Scalar::f32, 4);
    ir::Op op;
    op.code = sparse ? Opcode::mma_sparse : Opcode::mma;
    op.detail = static_cast<uint8_t>(fragment);
    op.result = sums;
    op.operand[0] = a.id;
    op.operand[1] = other.id;
    op.operand[2] = four.id;
    op.immediate = sparse ? int64_t{votes.id} : 0;
    b.append(op);
    b.store(out, 32, sums, 4);
  }
  return module;
}

} // namespace

TEST_CASE("PTX through LLVM is taken by ptxas for every target") {
  const std::string ptxas = testing::find_cuda_program("ptxas");
  if (ptxas.empty())
    WARN("SKIPPED: ptxas not found, so the PTX is made but not assembled");
  const ir::Module module = gpu_module();
  for (const std::string& name : known_targets()) {
    const Target target = find_target(name);
    if (target.is_host)
      continue;
    const std::string ptx = emit_ptx_through_llvm(module, target);
    INFO(name << "\n" << ptx);
    for (const char* wanted :
         {"// family: test", ".visible .entry sparsertc_test", ".maxntid 128", ".maxnreg 128",
          "cp.async.cg.shared.global", "bar", "fma.rn.bf16", "fma.rn.bf16x2", "fma.rn.f16x2",
          "fma.rn.f32", "shfl.sync.bfly", "vote.sync.ballot", "bar.warp.sync",
          "mma.sync.aligned.m16n8k16", "ld.global.nc", "ld.acquire", "st.release", "ld.const",
          "st.global.v4"})
      REQUIRE_THAT(ptx, Catch::Contains(wanted));
    // No multiplication and sum may be joined, no subnormal flushed.
    REQUIRE_THAT(ptx, !Catch::Contains(".ftz"));
    REQUIRE(emit_ptx_through_llvm(module, target) == ptx);
    if (ptxas.empty())
      continue;
    testing::TemporaryFolder folder;
    const testing::ProgramResult result = testing::run_program(
        {ptxas, "-arch=" + name, folder.write("a.ptx", ptx), "-o", folder.file("a.cubin")});
    INFO(result.output);
    REQUIRE(result.status == 0);
  }
}

TEST_CASE("shared memory beyond 48 KB is dynamic, laid out as by the direct printer") {
  ir::Module module;
  module.symbols.push_back({"first", shared(Scalar::f32), 3, 16, {}});
  module.symbols.push_back({"second", shared(Scalar::f32), 16384, 16, {}});
  module.functions.emplace_back();
  ir::Function& kernel = module.functions.back();
  kernel.name = "k";
  kernel.kind = ir::FunctionKind::kernel;
  Builder b(module, kernel);
  Reg zero = b.constant(Scalar::f32, Operand::f32(0));
  b.store(b.address(0), 0, zero);
  b.store(b.address(1), 4, zero);
  const std::string ptx = emit_ptx_through_llvm(module, find_target("sm_90"));
  INFO(ptx);
  REQUIRE_THAT(ptx, Catch::Contains(".extern .shared"));
  REQUIRE_THAT(ptx, Catch::Contains("sparsertc_dynamic_shared+20"));
}

TEST_CASE("host code as text and as an object") {
  ir::Module module;
  module.functions.emplace_back();
  ir::Function& kernel = module.functions.back();
  kernel.name = "sparsertc_scale";
  kernel.kind = ir::FunctionKind::kernel;
  kernel.block[0] = 16;
  Builder b(module, kernel);
  Reg data = b.parameter(device(Scalar::f32), "data");
  Reg at = b.index(data, b.special(ir::Special::thread_x), Operand::integer(4));
  Reg x = b.load(at, 0);
  b.store(at, 0, b.fma(Scalar::f32, x, Operand::f32(0.3f), x));
  const Target host = find_target("host");
  const std::string text = emit_llvm_ir(module, host);
  INFO(text);
  REQUIRE_THAT(text, Catch::Contains("load <16 x float>"));
  REQUIRE_THAT(text, Catch::Contains("llvm.fma.v16f32"));
  REQUIRE_THAT(text, Catch::Contains("define void @sparsertc_scale(ptr"));
  REQUIRE_THAT(text, !Catch::Contains("fast") && !Catch::Contains("contract"));
  const std::vector<uint8_t> object = emit_host_object(module, host);
  REQUIRE(object.size() > 64);
  REQUIRE(std::string(object.begin() + 1, object.begin() + 4) == "ELF");
  REQUIRE(emit_host_object(module, host) == object);
  REQUIRE_THROWS_AS(emit_host_object(module, find_target("sm_90")), UsageError);
  REQUIRE_THROWS_AS(emit_ptx_through_llvm(module, host), UsageError);
}

TEST_CASE("a target that LLVM does not know is refused") {
  Target target = find_target("sm_90");
  target.name = "sm_77";
  REQUIRE_THROWS_WITH(emit_ptx_through_llvm(ir::Module{}, target), Catch::Contains("sm_77"));
}
