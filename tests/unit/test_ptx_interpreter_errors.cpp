// What the PTX interpreter refuses and detects, each with the line to blame.
#include "tests/support/ptx_snippet.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace sparsertc;
using ptx::ErrorKind;
using sparsertc::test::Snippet;

namespace {

/// Runs a body over one buffer of 64 words (writable or not) and returns the error, whose line is
/// counted from the body's first line.
struct Caught {
  ErrorKind kind = ErrorKind::syntax;
  int line = 0;
  std::string message;
  bool happened = false;
};
Caught caught(const std::string& body, ptx::Dim3 block = {}, bool writable = true) {
  constexpr const char* kHead = R"(.visible .entry sparsertc_error(.param .u64 data)
{ .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .b16 %h<4>;
  .shared .align 16 .b8 area[4096];
  ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mov.u32 %r2, area; mad.lo.u32 %r3, %r1, 4, %r2;
)";
  Caught result;
  std::vector<uint32_t> data(64);
  try {
    Snippet snippet(kHead + body + "\nret; }\n");
    snippet.machine.set_instruction_limit(1000000);
    snippet.argument(snippet.machine.register_buffer(data.data(), 256, writable));
    snippet.run("sparsertc_error", {}, block);
  } catch (const ptx::Error& error) {
    result = {error.kind(), static_cast<int>(error.line()) - 7, error.what(), true};
  }
  INFO(result.message);
  return result;
}
void check_caught(const Caught& result, ErrorKind kind, int line, const std::string& part) {
  INFO(result.message);
  REQUIRE(result.happened);
  CHECK(to_string(result.kind) == to_string(kind));
  CHECK(result.line == line);
  CHECK_THAT(result.message, Catch::Contains(part));
}

} // namespace

TEST_CASE("accesses outside a buffer are errors with line and thread") {
  check_caught(caught("ld.global.u32 %r4, [%rd1+252];\nld.global.u32 %r4, [%rd1+256];"),
               ErrorKind::out_of_bounds, 2, "reads 4 bytes at offset 256");
  check_caught(caught("ld.global.u32 %r4, [%rd1-4];"), ErrorKind::out_of_bounds, 1, "offset -4");
  check_caught(caught("ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1+244];"),
               ErrorKind::out_of_bounds, 1, "16 bytes");
  check_caught(caught("mul.wide.u32 %rd2, %r1, 64;\nadd.u64 %rd2, %rd2, %rd1;\n"
                      "st.global.u32 [%rd2], %r1;",
                      {5, 1, 1}),
               ErrorKind::out_of_bounds, 3, "thread (4,0,0) of block (0,0,0)");
  check_caught(caught("mov.u64 %rd2, 0;\nld.global.u32 %r4, [%rd2];"), ErrorKind::out_of_bounds, 2,
               "where no buffer is");
  check_caught(caught("ld.shared.u32 %r4, [%r2+4096];"), ErrorKind::out_of_bounds, 1,
               "shared memory, which has 4096");
  // A predicated-off access touches nothing.
  CHECK_FALSE(caught("setp.ne.u32 %p1, %r1, %r1;\n@%p1 ld.global.u32 %r4, [%rd1+256];").happened);
}

TEST_CASE("misaligned accesses and writes to read-only memory are errors") {
  check_caught(caught("ld.global.u32 %r4, [%rd1+2];"), ErrorKind::misaligned, 1, "4 bytes");
  check_caught(caught("ld.global.v2.u32 {%r4, %r5}, [%rd1+4];"), ErrorKind::misaligned, 1,
               "8 bytes");
  check_caught(caught("st.shared.u16 [%r2+1], %h1;"), ErrorKind::misaligned, 1, "2 bytes");
  check_caught(caught("cp.async.cg.shared.global [%r2+8], [%rd1], 16;"), ErrorKind::misaligned, 1,
               "16 bytes");
  check_caught(caught("st.global.u32 [%rd1], %r1;", {}, false), ErrorKind::read_only, 1,
               "writes 4 bytes");
  check_caught(caught("st.global.u32 [%rd1], %r1;\nld.global.nc.u32 %r4, [%rd1];"), ErrorKind::race,
               2, "non-coherent");
}

TEST_CASE("shared memory: unwritten bytes and races") {
  check_caught(caught("ld.shared.u32 %r4, [%r2];"), ErrorKind::uninitialised, 1, "never written");
  // Neighbours read each other without a barrier.
  const std::string exchange = "st.shared.u32 [%r3], %r1;\n{}\nxor.b32 %r4, %r1, 1;\n"
                               "mad.lo.u32 %r4, %r4, 4, %r2;\nld.shared.u32 %r5, [%r4];";
  check_caught(caught(fmt::format(fmt::runtime(exchange), ""), {64, 1, 1}),
               ErrorKind::uninitialised, 5, "never written");
  CHECK_FALSE(caught(fmt::format(fmt::runtime(exchange), "bar.sync 0;"), {64, 1, 1}).happened);
  CHECK_FALSE(caught(fmt::format(fmt::runtime(exchange), "bar.warp.sync 0xffffffff;"), {64, 1, 1})
                  .happened);
  // A write after others have read, without a barrier between.
  check_caught(caught("st.shared.u32 [%r3], %r1;\nbar.sync 0;\nld.shared.u32 %r4, [%r2];\n"
                      "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [%r2], %r1;",
                      {64, 1, 1}),
               ErrorKind::race, 5, "was read by thread");
  // Two threads write one word.
  check_caught(caught("st.shared.u32 [%r2], %r1;", {2, 1, 1}), ErrorKind::race, 1,
               "was written by thread (0,0,0)");
  // A barrier of half a block does not order the other half.
  check_caught(caught("st.shared.u32 [%r3], %r1;\nshr.u32 %r4, %r1, 5;\nbar.sync %r4, 32;\n"
                      "xor.b32 %r5, %r1, 32;\nmad.lo.u32 %r5, %r5, 4, %r2;\n"
                      "setp.eq.u32 %p1, %r4, 1;\n@%p1 ld.shared.u32 %r6, [%r5];",
                      {64, 1, 1}),
               ErrorKind::race, 7, "without a barrier");
  CHECK_FALSE(caught("red.shared.add.u32 [%r2], 1;", {64, 1, 1}).happened);
}

TEST_CASE("asynchronous copies must be waited for") {
  const std::string copy = "cp.async.ca.shared.global [%r3], [%rd1], 4;\n";
  check_caught(caught(copy + "cp.async.commit_group;\nld.shared.u32 %r4, [%r3];"),
               ErrorKind::stale_copy, 3, "not waited for");
  check_caught(caught(copy + "cp.async.commit_group;\ncp.async.wait_group 1;\n"
                             "ld.shared.u32 %r4, [%r3];"),
               ErrorKind::stale_copy, 4, "not waited for");
  // Not committed: no group contains it.
  check_caught(caught(copy + "cp.async.wait_group 0;\nld.shared.u32 %r4, [%r3];"),
               ErrorKind::stale_copy, 3, "not waited for");
  CHECK_FALSE(caught(copy + "cp.async.wait_all;\nld.shared.u32 %r4, [%r3];").happened);
  // Own copies are visible to others only after a barrier.
  const std::string other = "xor.b32 %r4, %r1, 1;\nmad.lo.u32 %r4, %r4, 4, %r2;\n";
  check_caught(caught(copy + "cp.async.wait_all;\nbar.warp.sync 0xffffffff;\n" + other +
                          "ld.shared.u32 %r5, [%r4];\n" + copy,
                      {32, 1, 1}),
               ErrorKind::race, 6, "was written by");
}

TEST_CASE("threads that wait for ever, and warps that part") {
  check_caught(caught("setp.eq.u32 %p1, %r1, 3;\n@%p1 bra $end;\nbar.sync 0;\n$end:", {64, 1, 1}),
               ErrorKind::deadlock, 3, "63 of 64 threads");
  check_caught(caught("bar.sync 1, 64;", {32, 1, 1}), ErrorKind::deadlock, 1, "32 of 64");
  check_caught(caught("setp.lt.u32 %p1, %r1, 16;\n@%p1 bra $end;\n"
                      "shfl.sync.idx.b32 %r4, %r1, 0, 31, 0xffffffff;\n$end:",
                      {32, 1, 1}),
               ErrorKind::divergence, 3, "has ended");
  // Half of two warps: as many threads as asked for, but no whole warp.
  check_caught(caught("setp.lt.u32 %p1, %r1, 16;\n@%p1 bra $b;\nsetp.ge.u32 %p2, %r1, 48;\n"
                      "@%p2 bra $b;\nbar.sync 1, 32;\n$b:",
                      {64, 1, 1}),
               ErrorKind::divergence, 5, "aligned barrier");
  check_caught(caught("setp.lt.u32 %p1, %r1, 16;\n@%p1 bra $b;\nbar.sync 0;\nbra $c;\n"
                      "$b: bar.sync 0;\n$c:",
                      {64, 1, 1}),
               ErrorKind::divergence, 3, "different");
  check_caught(caught("bar.sync 1, 48;", {64, 1, 1}), ErrorKind::trap, 1, "48 threads");
  check_caught(caught("$again: bra $again;"), ErrorKind::limit, -7, "1000000 instructions");
  check_caught(caught("t: .branchtargets $x;\nmov.u32 %r4, 1;\nbrx.idx %r4, t;\n$x:"),
               ErrorKind::trap, 3, "branch 1 of 1");
  check_caught(caught("trap;"), ErrorKind::trap, 1, "trap");
}

TEST_CASE("malformed text is refused with its line") {
  const auto refused = [](const std::string& body, const std::string& part) {
    check_caught(caught("mov.u32 %r4, 0;\n" + body), ErrorKind::syntax, 2, part);
  };
  refused("add.u32 %r4, %r99, 1;", "`%r99` is not declared");
  refused("add.u64 %rd1, %r1, 1;", "has 32 bits, 64 expected");
  refused("add.u32 %r4, %r1;", "operands");
  refused("bra $nowhere;", "no label `$nowhere`");
  refused("ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1];", "vector of 2");
  refused("ld.global.u32 %r4, [%r1];", "cannot be an address");
  refused("cvt.f16.f32 %h1, %f1;", "needs .rn");
  refused("cvt.rn.f32.f16 %f1, %h1;", "takes no rounding");
  refused("@%r1 add.u32 %r4, %r1, 1;", "no predicate");
  refused("st.shared.u32 [area+4] %r1;", "`;` expected");
  check_caught(caught("ex2.approx.f32 %f1, %f2;"), ErrorKind::unsupported, 1, "ex2.approx");
  check_caught(caught("$a:\n$a:"), ErrorKind::syntax, 2, "defined twice");
}

TEST_CASE("launches are checked") {
  Snippet snippet(".visible .entry sparsertc_launch(.param .u64 a) .reqntid 32, 1, 1 { ret; }");
  snippet.argument(0);
  CHECK_NOTHROW(snippet.run("sparsertc_launch", {}, {32, 1, 1}));
  CHECK_THROWS_WITH(snippet.run("sparsertc_launch", {}, {64, 1, 1}), Catch::Contains("requires"));
  CHECK_THROWS_WITH(snippet.run("other", {}, {32, 1, 1}), Catch::Contains("no entry"));
  CHECK_THROWS_WITH(snippet.run("sparsertc_launch", {}, {32, 64, 1}), Catch::Contains("2048"));
  CHECK_THROWS_WITH(snippet.run("sparsertc_launch", {0, 1, 1}, {32, 1, 1}),
                    Catch::Contains("grid"));
  snippet.argument(1);
  CHECK_THROWS_WITH(snippet.run("sparsertc_launch", {}, {32, 1, 1}),
                    Catch::Contains("2 arguments"));
}

TEST_CASE("faults of clusters of blocks are found") {
  // Block r writes r at the place of its thread, and reads what the other block has there.
  const auto program = [](const std::string& first, const std::string& last,
                          const std::string& rank = "%r2") {
    return fmt::format(R"(.visible .entry sparsertc_pair(.param .u64 out)
.reqntid 32, 1, 1
.explicitcluster
.reqnctapercluster 2, 1, 1
{{
  .reg .b32 %r<8>;
  .reg .b64 %rd<2>;
  .reg .pred %p<1>;
  .shared .b32 mine[32];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  and.b32 %r1, %r1, 1;
  xor.b32 %r2, %r1, 1;
  mov.b32 %r3, mine;
  mad.lo.s32 %r3, %r0, 4, %r3;
  st.shared.b32 [%r3], %r1;
  {}
  mapa.shared::cluster.u32 %r4, %r3, {};
  ld.shared::cluster.b32 %r5, [%r4];
  {}
  ld.param.b64 %rd0, [out];
  mov.u32 %r6, %ctaid.x;
  mad.lo.s32 %r6, %r6, 32, %r0;
  mad.wide.s32 %rd1, %r6, 4, %rd0;
  st.global.b32 [%rd1], %r5;
  ret;
}})",
                       first, rank, last);
  };
  const std::string meet = "barrier.cluster.arrive; barrier.cluster.wait;";
  std::vector<uint32_t> out(128, 99);
  const auto run = [&](const std::string& text, uint32_t blocks = 4) -> std::string {
    Snippet snippet(text);
    snippet.argument(snippet.machine.register_buffer(out.data(), 4 * out.size(), true));
    try {
      snippet.run("sparsertc_pair", {blocks, 1, 1}, {32, 1, 1});
    } catch (const ptx::Error& error) {
      return error.what();
    }
    return {};
  };
  CHECK(run(program(meet, meet)) == "");
  for (uint32_t i = 0; i < 128; ++i)
    CHECK(out[i] == 1 - i / 32 % 2);
  CHECK(run(program("barrier.cluster.arrive; add.u32 %r7, %r0, 1; barrier.cluster.wait;", meet)) ==
        "");
  CHECK_THAT(run(program("", meet)), Catch::Contains("shared memory"));
  CHECK_THAT(run(program("bar.sync 0;", meet)), Catch::Contains("shared memory"));
  CHECK_THAT(run(program(meet, "")), Catch::Contains("has ended"));
  CHECK_THAT(run(program(meet, meet, "2")), Catch::Contains("block 2 of a cluster of 2"));
  CHECK_THAT(run(program("barrier.cluster.wait;", meet)),
             Catch::Contains("without having arrived"));
  CHECK_THAT(run(program("barrier.cluster.arrive; barrier.cluster.arrive;", meet)),
             Catch::Contains("a second time"));
  CHECK_THAT(run(program(meet, meet), 3), Catch::Contains("in clusters of 2x1x1"));
  // Threads that have ended are not waited for.
  CHECK(run(program(meet, "setp.lt.u32 %p0, %r0, 16; @%p0 barrier.cluster.arrive; "
                          "@%p0 barrier.cluster.wait;")) == "");
}
