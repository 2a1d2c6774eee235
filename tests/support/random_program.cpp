#include "tests/support/random_program.h"

#include <fmt/format.h>

namespace sparsertc::test {
namespace {

/// Functions that touch the first four elements of their arrays.
constexpr const char* kFunctions = R"(
kernel @increment(%x: device.i32) block(4, 1, 1) {
  %t = special.thread_x
  %p = index.device.i32 %x, %t, 4
  %v = load.device.i32 %p + 0
  %v = add.i32 %v, 1
  store.device.i32 %p + 0, %v
}

kernel @mix(%x: device.i32, %y: device.i32) block(4, 1, 1) {
  %t = special.thread_x
  %p = index.device.i32 %x, %t, 4
  %q = index.device.i32 %y, %t, 4
  %v = load.device.i32 %p + 0
  %w = load.device.i32 %q + 0
  %v = mul.i32 %v, 3
  %w = add.i32 %w, %v
  store.device.i32 %q + 0, %w
}

kernel @fill(%x: device.i32, %v: i32) block(4, 1, 1) {
  %t = special.thread_x
  %p = index.device.i32 %x, %t, 4
  %v2 = add.i32 %v, %t
  store.device.i32 %p + 0, %v2
}

kernel @first(%x: device.i32, %y: device.i32) block(1, 1, 1) {
  %v = load.device.i32 %x + 4
  store.device.i32 %y + 0, %v
}

host cpu @host_mix(%x: host.i32, %y: host.i32) {
  for %i = 0 to 4 step 1 {
    %p = index.host.i32 %x, %i, 4
    %q = index.host.i32 %y, %i, 4
    %v = load.host.i32 %p + 0
    %w = load.host.i32 %q + 0
    %w = sub.i32 %v, %w
    store.host.i32 %q + 0, %w
  }
}

host cpu @host_fill(%x: host.i32, %v: i32) {
  for %i = 0 to 4 step 1 {
    %p = index.host.i32 %x, %i, 4
    %w = mul.i32 %i, 7
    %w = add.i32 %w, %v
    store.host.i32 %p + 0, %w
  }
}

host @helper(%x: any.i32) {
  %v = load.any.i32 %x + 8
  %v = xor.i32 %v, 21
  store.any.i32 %x + 8, %v
}

host @outer(%x: any.i32) {
  call @helper(%x)
}

host @small(%x: any.i32, %y: any.i32) {
  %v = load.any.i32 %x + 4
  %w = load.any.i32 %y + 0
  %v = add.i32 %v, %w
  store.any.i32 %y + 4, %v
  call @helper(%y)
}

host @long(%x: any.i32) {
  for %i = 0 to 300 step 1 {
    %v = load.any.i32 %x + 0
    %v = add.i32 %v, %i
    store.any.i32 %x + 0, %v
  }
}
)";

} // namespace

void RandomProgram::statement(bool nested) {
  const std::string a = buffer();
  std::string b = buffer();
  switch (below(nested ? 20 : 14)) {
  case 0:
    return line(fmt::format("launch @increment grid(%one, %one, %one) ({})", a));
  case 1:
    return line(fmt::format("launch @mix grid(%one, %one, %one) ({}, {})", a, b));
  case 2:
    return line(fmt::format("launch @fill grid(%one, %one, %one) ({}, %n)", a));
  case 3:
    return line(fmt::format("launch @first grid(%one, %one, %one) ({}, {})", a, b));
  case 4:
  case 5:
    return line(fmt::format("call @host_mix({}, {})", a, b));
  case 6:
    return line(fmt::format("call @host_fill({}, %n)", a));
  case 7:
  case 8:
    return line(fmt::format("call @small({}, {})", a, b));
  case 9:
    return line(fmt::format("call @long({})", a));
  case 10:
    return line(fmt::format("copy {}, {}, {}", a, b, length));
  case 11:
    line(fmt::format("%v{} = load.any.i32 {} + 4", fresh_, a));
    return line(fmt::format("store.any.i32 {} + 8, %v{}", b, fresh_++));
  case 12:
    return line(fmt::format("call @outer({})", a));
  case 13:
    if (a != b)
      line(fmt::format("call @transfer({}, {})", a, b));
    return;
  case 14: {
    const bool known = below(2) == 0;
    line(fmt::format("for %i{} = 0 to {} step 1 {{", fresh_++,
                     known ? std::to_string(below(4)) : "%n"));
    block(1 + below(4));
    return line("}");
  }
  case 15: {
    const unsigned id = fresh_++;
    line(fmt::format("%k{} = move.i32 %n", id));
    line("loop {");
    block(1 + below(4));
    line(fmt::format("  %k{0} = sub.i32 %k{0}, 1", id));
    line(fmt::format("  %p{0} = cmp.gt.i32 %k{0}, 0", id));
    return line(fmt::format("}} while %p{}", id));
  }
  case 16:
  case 17:
    line(fmt::format("%p{} = cmp.gt.i32 %n, {}", fresh_, below(3)));
    line(fmt::format("if %p{} {{", fresh_++));
    block(1 + below(3));
    if (below(2) == 0) {
      line("} else {");
      block(1 + below(3));
    }
    return line("}");
  default: {
    const std::string name = fmt::format("%t{}", fresh_++);
    line(fmt::format("{} = alloc.any.i32 {}", name, length));
    line(below(2) == 0 ? fmt::format("launch @fill grid(%one, %one, %one) ({}, %n)", name)
                       : fmt::format("call @host_fill({}, %n)", name));
    names_.push_back(name);
    return;
  }
  }
}

std::string RandomProgram::program(unsigned buffers, unsigned statements, bool nested) {
  length = below(3) == 0 ? 4 : below(3) != 0 ? 3000 : 300000;
  outputs = buffers;
  text_ = kFunctions;
  text_ += fmt::format("\nhost @transfer(%x: host.i32, %y: device.i32) {{\n  copy %y, %x, {}\n}}\n",
                       length);
  text_ += "\nhost @program(";
  for (unsigned i = 0; i < buffers; ++i) {
    output_space.push_back(below(2) == 0 ? ir::Space::host : ir::Space::device);
    text_ += fmt::format("%out{}: {}.i32, ", i, ir::name_of(output_space.back()));
  }
  text_ += "%n: i32) {\n";
  line("%one = const.i32 1");
  for (unsigned i = 0; i < buffers; ++i) {
    names_.push_back(fmt::format("%b{}", i));
    line(fmt::format("%b{} = alloc.any.i32 {}", i, length));
    if (below(4) != 0)
      line(fmt::format("copy %b{0}, %out{0}, {1}", i, length));
  }
  for (unsigned i = 0; i < statements; ++i)
    statement(nested);
  for (unsigned i = 0; i < buffers; ++i)
    line(fmt::format("copy %out{0}, %b{0}, {1}", i, length));
  return text_ + "}\n";
}

} // namespace sparsertc::test
