#include "compiler/transform/describe_placement.h"

#include "compiler/transform/placement_costs.h"
#include "compiler/transform/program_shape.h"
#include "ir/operands.h"
#include "ir/printer.h"
#include "ir/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace sparsertc {

using ir::Function;
using ir::FunctionKind;
using ir::Op;
using ir::Opcode;
using ir::Reg;
using ir::Space;

namespace {

/// A number, and whether a convention stands in for it.
struct Amount {
  int64_t value = 0;
  bool known = true;

  Amount& operator+=(const Amount& more) {
    value += more.value;
    known = known && more.known;
    return *this;
  }
  std::string text() const { return fmt::format("{}{}", value, known ? "" : "?"); }
};

Amount larger(const Amount& a, const Amount& b) {
  return {std::max(a.value, b.value), a.known && b.known};
}

struct Memory {
  Amount host, device;
  Amount& in(Space space) { return space == Space::host ? host : device; }
};

class Describer {
public:
  explicit Describer(const ir::Module& module) : module_(module) {}

  std::string run() {
    for (uint32_t f = 0; f < module_.functions.size(); ++f)
      if (const Function& function = module_.functions[f]; function.kind == FunctionKind::host) {
        const std::string text = describe(function);
        if (!text.empty())
          text_ += fmt::format("placement of @{}\n{}", function.name, text);
      }
    if (text_.find('?') != std::string::npos)
      text_ +=
          fmt::format("?: not known before the program runs; {} rounds of a loop, {} elements\n",
                      placement_costs::kUnknownTrips, placement_costs::kUnknownElements);
    return text_;
  }

private:
  static Amount bytes(const Function& function, const ProgramShape& shape, const Op& op,
                      uint32_t pointer) {
    const uint32_t elements = op.operand[op.code == Opcode::copy ? 2 : 0];
    const std::optional<int64_t> count =
        elements == ir::kImmediate ? op.immediate : shape.constant(elements);
    return {
        saturating_product(std::max<int64_t>(count.value_or(placement_costs::kUnknownElements), 0),
                           ir::size_in_bytes(function.type_of(Reg{pointer}).element())),
        count.has_value()};
  }

  std::string describe(const Function& function);
  /// The most that is allocated at a time, with what called functions allocate.
  Memory peak(const Function& function);

  const ir::Module& module_;
  std::map<uint32_t, Memory> peaks_; ///< of called functions
  std::string text_;
};

Memory Describer::peak(const Function& function) {
  const ProgramShape shape(function);
  Memory now, most;
  std::map<uint32_t, Amount> sizes; // by register
  for (const Op& op : function.ops) {
    if (op.code == Opcode::alloc) {
      const Amount size = bytes(function, shape, op, op.result.id);
      sizes[op.result.id] = size;
      now.in(op.type.space()) += size;
    } else if (op.code == Opcode::free) {
      now.in(op.type.space()).value -= sizes[op.operand[0]].value;
    }
    Memory with = now;
    for (uint32_t callee : ir::callees(function, op)) {
      if (!peaks_.contains(callee))
        peaks_[callee] = peak(module_.functions[callee]);
      with.host = larger(with.host, {now.host.value + peaks_[callee].host.value,
                                     now.host.known && peaks_[callee].host.known});
      with.device = larger(with.device, {now.device.value + peaks_[callee].device.value,
                                         now.device.known && peaks_[callee].device.known});
    }
    most = {larger(most.host, with.host), larger(most.device, with.device)};
  }
  return most;
}

std::string Describer::describe(const Function& function) {
  const ProgramShape shape(function);
  std::string buffers, copies;
  Memory moved; // bytes copied to that memory, over all runs
  const auto count = static_cast<uint32_t>(function.ops.size());
  for (uint32_t at = 0; at < count; ++at) {
    const Op& op = function.ops[at];
    const ProgramShape::Region& region = shape.region(shape.region_of_op(at));
    const Amount runs{region.executions, region.known};
    if (op.code == Opcode::alloc) {
      uint32_t last = at;
      while (last < count && !(function.ops[last].code == Opcode::free &&
                               function.ops[last].operand[0] == op.result.id))
        ++last;
      buffers += fmt::format("  {} in {} memory, {} bytes, from operation {} {}\n",
                             ir::print_register(function, op.result), ir::name_of(op.type.space()),
                             bytes(function, shape, op, op.result.id).text(), at + 1,
                             last == count ? std::string("on; not freed")
                                           : fmt::format("to {}", last + 1));
    } else if (op.code == Opcode::copy) {
      const Space to = function.type_of(Reg{op.operand[0]}).space();
      const Space from = function.type_of(Reg{op.operand[1]}).space();
      const Amount size = bytes(function, shape, op, op.operand[0]);
      copies += fmt::format("  operation {} copies {} to {}, {} to {}, {} bytes x {}\n", at + 1,
                            ir::print_register(function, Reg{op.operand[1]}),
                            ir::print_register(function, Reg{op.operand[0]}), ir::name_of(from),
                            ir::name_of(to), size.text(), runs.text());
      if (to != from)
        moved.in(to) += {saturating_product(size.value, runs.value), size.known && runs.known};
    }
  }
  if (buffers.empty() && copies.empty())
    return {};
  const Memory most = peak(function);
  return buffers + copies +
         fmt::format("  peak: host {} bytes, device {} bytes\n"
                     "  copied: to the device {} bytes, to the host {} bytes\n",
                     most.host.text(), most.device.text(), moved.device.text(), moved.host.text());
}

} // namespace

std::string describe_placement(const ir::Module& module) {
  ir::require_placed(module);
  return Describer(module).run();
}

} // namespace sparsertc
