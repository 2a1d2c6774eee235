// place: every buffer of a program gets a memory, host or device or both for a while; whole buffers
// are copied where their contents are wanted on the other side; sequential functions run where that
// is cheaper. placement.h says how it is decided.
#include "compiler/transform/compact_registers.h"
#include "compiler/transform/pass.h"
#include "compiler/transform/placement.h"
#include "compiler/transform/sequential_functions.h"
#include "ir/operands.h"

#include <algorithm>

namespace sparsertc {
namespace {

using ir::Form;
using ir::Function;
using ir::Module;
using ir::Op;
using ir::Opcode;
using ir::Reg;
using ir::Space;
using ir::Type;

constexpr uint32_t kNone = UINT32_MAX;

/// Writes the answer into the function.
class Rewriter {
public:
  Rewriter(const Module& module, Function& function, const ProgramShape& shape,
           const PlacementProblem& problem, const Placement& placement)
      : module_(module), function_(function), shape_(shape), problem_(problem),
        placement_(placement) {}

  /// Returns the calls that are to become launches.
  std::vector<uint32_t> run();

private:
  /// A buffer's share of one memory.
  struct Instance {
    uint32_t reg = kNone;
    std::vector<uint8_t> alloc_in, free_in; ///< by gap
  };
  struct Places {
    uint32_t elements = 0; ///< the operand of its allocations
    Instance on[2];        ///< by side
  };

  bool valid(uint32_t buffer, Side side, uint32_t point) const {
    const BufferPlaces& places = placement_.buffers[buffer];
    return (side == Side::host ? places.on_host : places.on_device)[point] != 0;
  }
  /// Whether gap `gap` copies the buffer to `side`.
  bool copies(uint32_t buffer, Side side, uint32_t gap) const {
    return gap > 0 && !valid(buffer, side, 2 * gap - 1) && valid(buffer, side, 2 * gap) &&
           copied_[buffer][gap] != 0;
  }
  void find_instances(uint32_t buffer);
  void lifetime(uint32_t buffer, Side side, const std::vector<uint8_t>& touched);
  void name_instances(uint32_t buffer);
  void gap(uint32_t at);
  void operation(uint32_t at);
  Side side_of_touch(uint32_t at, uint32_t reg) const;
  void replace(uint32_t& reg, Side side);
  void emit_alloc(uint32_t buffer, Side side);
  void emit_free(uint32_t buffer, Side side);
  void emit_copy(uint32_t buffer, Side to);

  const Module& module_;
  Function& function_;
  const ProgramShape& shape_;
  const PlacementProblem& problem_;
  const Placement& placement_;
  std::vector<Op> out_;
  std::vector<Places> places_;
  std::vector<std::vector<uint8_t>> copied_; ///< by buffer and gap: contents are wanted there
  std::vector<uint32_t> number_;             ///< of the buffer, by register
  std::vector<uint32_t> moved_;
};

constexpr Side kSides[] = {Side::host, Side::device};

Side other(Side side) {
  return side == Side::host ? Side::device : Side::host;
}

Space space_of(Side side) {
  return side == Side::host ? Space::host : Space::device;
}

void Rewriter::find_instances(uint32_t buffer) {
  const auto gaps = static_cast<uint32_t>(function_.ops.size()) + 1;
  const BufferPoints points(function_, shape_, problem_.use, buffer);
  std::vector<uint8_t>& wanted = copied_.emplace_back(gaps);
  for (uint32_t gap = 1; gap < gaps; ++gap)
    wanted[gap] = points.defined(2 * gap - 1) && points.live(2 * gap);
  for (Side side : kSides) {
    // By operation; a gap's copies count for the operation after it.
    std::vector<uint8_t> touched(gaps);
    for (size_t i = 0; i < problem_.use.touches.size(); ++i)
      if (problem_.use.touches[i].buffer == buffer)
        for (const SideOf& of : problem_.sides[i])
          if (placement_.side(of) == side)
            touched[problem_.use.touches[i].op] = 1;
    lifetime(buffer, side, touched);
  }
}

/// Memory is taken and given back between the statements of the block that the buffer belongs to,
/// not inside of loops in it, and is held no longer than something uses it or what it holds is
/// wanted.
void Rewriter::lifetime(uint32_t buffer, Side side, const std::vector<uint8_t>& touched) {
  const auto gaps = static_cast<uint32_t>(function_.ops.size()) + 1;
  Instance& instance = places_[buffer].on[static_cast<size_t>(side)];
  instance.alloc_in.assign(gaps, 0);
  instance.free_in.assign(gaps, 0);
  const uint32_t alloc = problem_.use.buffers[buffer].alloc;
  const uint32_t region = shape_.region_of_op(alloc);
  const uint32_t end = shape_.region(region).end;
  const auto copies_in = [&](uint32_t gap) {
    return copies(buffer, Side::host, gap) || copies(buffer, Side::device, gap);
  };
  bool held = false;
  for (uint32_t gap = alloc + 1;;) {
    bool wanted = valid(buffer, side, 2 * gap);
    uint32_t next = gap;
    if (gap != end) {
      next = shape_.statement_end(gap);
      for (uint32_t op = gap; op <= next; ++op)
        wanted = wanted || touched[op] != 0 || (op != gap && copies_in(op));
    }
    if (!held && (wanted || copies_in(gap)))
      instance.alloc_in[gap] = 1;
    if ((held || instance.alloc_in[gap] != 0) && !wanted)
      instance.free_in[gap] = 1;
    held = wanted;
    if (gap == end)
      break;
    gap = next + 1;
  }
}

/// The buffer's register becomes the first of its instances.
void Rewriter::name_instances(uint32_t buffer) {
  const Buffer& of = problem_.use.buffers[buffer];
  Places& places = places_[buffer];
  const auto used = [&](Side side) {
    const std::vector<uint8_t>& allocs = places.on[static_cast<size_t>(side)].alloc_in;
    return std::find(allocs.begin(), allocs.end(), uint8_t{1}) != allocs.end();
  };
  const bool both = used(Side::host) && used(Side::device);
  const auto found = function_.register_name.find(of.reg);
  const std::string name = found == function_.register_name.end() ? std::string() : found->second;
  bool first = true;
  for (Side side : kSides) {
    if (!used(side))
      continue;
    const Type type = Type::pointer(space_of(side), of.type.element());
    uint32_t reg = of.reg;
    if (!first) {
      reg = static_cast<uint32_t>(function_.register_type.size());
      function_.register_type.push_back(type);
    }
    function_.register_type[reg] = type;
    places.on[static_cast<size_t>(side)].reg = reg;
    if (both && !name.empty())
      function_.register_name[reg] = name + (side == Side::host ? "_host" : "_device");
    first = false;
  }
  if (first) // no memory at all
    function_.register_type[of.reg] = Type::pointer(Space::host, of.type.element());
}

void Rewriter::replace(uint32_t& reg, Side side) {
  if (reg < number_.size() && number_[reg] != kNone)
    reg = places_[number_[reg]].on[static_cast<size_t>(side)].reg;
}

void Rewriter::emit_alloc(uint32_t buffer, Side side) {
  Op op;
  op.code = Opcode::alloc;
  op.type = Type::pointer(space_of(side), problem_.use.buffers[buffer].type.element());
  op.result = Reg{places_[buffer].on[static_cast<size_t>(side)].reg};
  op.operand[0] = places_[buffer].elements;
  op.immediate = problem_.use.buffers[buffer].elements == ir::kImmediate
                     ? problem_.use.buffers[buffer].count
                     : 0;
  out_.push_back(op);
}

void Rewriter::emit_free(uint32_t buffer, Side side) {
  Op op;
  op.code = Opcode::free;
  op.type = Type::pointer(space_of(side), problem_.use.buffers[buffer].type.element());
  op.operand[0] = places_[buffer].on[static_cast<size_t>(side)].reg;
  out_.push_back(op);
}

void Rewriter::emit_copy(uint32_t buffer, Side to) {
  Op op;
  op.code = Opcode::copy;
  op.operand[0] = places_[buffer].on[static_cast<size_t>(to)].reg;
  op.operand[1] = places_[buffer].on[static_cast<size_t>(other(to))].reg;
  op.operand[2] = places_[buffer].elements;
  op.immediate = problem_.use.buffers[buffer].elements == ir::kImmediate
                     ? problem_.use.buffers[buffer].count
                     : 0;
  out_.push_back(op);
}

/// What comes before operation `at`: memory that is not needed goes first.
void Rewriter::gap(uint32_t at) {
  const auto count = static_cast<uint32_t>(places_.size());
  const auto frees = [&](uint32_t b, Side side) {
    return places_[b].on[static_cast<size_t>(side)].free_in[at] != 0;
  };
  const auto copying = [&](uint32_t b) {
    return copies(b, Side::host, at) || copies(b, Side::device, at);
  };
  for (uint32_t b = 0; b < count; ++b)
    for (Side side : kSides)
      if (frees(b, side) && !copying(b))
        emit_free(b, side);
  for (uint32_t b = 0; b < count; ++b) {
    for (Side side : kSides)
      if (places_[b].on[static_cast<size_t>(side)].alloc_in[at] != 0)
        emit_alloc(b, side);
    for (Side side : kSides)
      if (copies(b, side, at))
        emit_copy(b, side);
    for (Side side : kSides)
      if (frees(b, side) && copying(b))
        emit_free(b, side);
  }
}

void Rewriter::operation(uint32_t at) {
  Op op = function_.ops[at];
  const bool of_buffer = op.type.space() == Space::any;
  if (of_buffer && op.code == Opcode::free)
    return;
  if (of_buffer && op.code == Opcode::alloc) {
    // A length that may change is kept for later allocations and copies.
    const uint32_t b = number_[op.result.id];
    if (places_[b].elements == op.operand[0])
      return;
    Op keep;
    keep.code = Opcode::move;
    keep.type = ir::Scalar::i64;
    keep.result = Reg{places_[b].elements};
    keep.operand[0] = op.operand[0];
    out_.push_back(keep);
    return;
  }
  const auto list = [&](uint32_t begin, size_t count, const auto& side) {
    for (uint32_t i = 0; i < count; ++i)
      replace(function_.pool[begin + i], side(i));
  };
  const auto device = [](uint32_t) { return Side::device; };
  const size_t count = ir::arguments(function_, op).size();
  switch (ir::info(op.code).form) {
  case Form::load:
  case Form::store:
    if (of_buffer) {
      replace(op.operand[0], Side::host);
      op.type = Type::pointer(Space::host, op.type.element());
    }
    break;
  case Form::copy:
    for (unsigned i = 0; i < 2; ++i)
      replace(op.operand[i], side_of_touch(at, op.operand[i]));
    break;
  case Form::launch:
    list(op.operand[1] + 4, count, device);
    break;
  case Form::call:
  case Form::switch_call: {
    const bool plain = op.code == Opcode::call;
    const Function& callee = module_.functions[ir::callees(function_, op).front()];
    const Side where = placement_.side(problem_.call_side[at]);
    list(
        plain ? op.operand[1] : op.operand[1] + 2 + function_.pool[op.operand[1]], count,
        [&](uint32_t i) {
          const Space wanted = callee.register_type[i].space();
          return wanted == Space::any ? where : wanted == Space::device ? Side::device : Side::host;
        });
    if (callee.is_sequential() && where == Side::device)
      moved_.push_back(static_cast<uint32_t>(out_.size()));
    break;
  }
  default:
    break;
  }
  out_.push_back(op);
}

/// Of the one mention of the buffer in a copy.
Side Rewriter::side_of_touch(uint32_t at, uint32_t reg) const {
  const std::vector<uint32_t>& first = problem_.use.first_touch;
  for (uint32_t i = first[at]; i < first[at + 1]; ++i)
    if (problem_.use.touches[i].buffer == number_[reg])
      return placement_.side(problem_.sides[i].front());
  return Side::host; // it has a place already
}

std::vector<uint32_t> Rewriter::run() {
  const auto buffers = static_cast<uint32_t>(problem_.use.buffers.size());
  number_.assign(function_.register_type.size(), kNone);
  places_.resize(buffers);
  for (uint32_t b = 0; b < buffers; ++b) {
    const Buffer& buffer = problem_.use.buffers[b];
    number_[buffer.reg] = b;
    places_[b].elements = buffer.elements;
    if (buffer.elements != ir::kImmediate && !shape_.assigned_once(buffer.elements)) {
      places_[b].elements = static_cast<uint32_t>(function_.register_type.size());
      function_.register_type.push_back(ir::Scalar::i64);
    }
    find_instances(b);
    name_instances(b);
  }
  const auto count = static_cast<uint32_t>(function_.ops.size());
  for (uint32_t at = 0; at < count; ++at) {
    gap(at);
    operation(at);
  }
  gap(count);
  function_.ops = std::move(out_);
  // Registers that are declared and never used.
  for (Type& type : function_.register_type)
    if (type.space() == Space::any)
      type = Type::pointer(Space::host, type.element());
  return std::move(moved_);
}

void place(Module& module) {
  remove_dead_copies(module);
  MemoryEffects effects(module);
  std::vector<MovedCall> moved;
  std::vector<uint32_t> changed;
  for (uint32_t f = 0; f < module.functions.size(); ++f) {
    Function& function = module.functions[f];
    if (function.kind != ir::FunctionKind::host || function.is_sequential())
      continue;
    const ProgramShape shape(function);
    const PlacementProblem problem = make_placement_problem(module, function, shape, effects);
    const Placement placement = solve_placement(function, shape, problem);
    const std::vector<uint32_t> calls = Rewriter(module, function, shape, problem, placement).run();
    for (uint32_t op : calls)
      moved.push_back({f, op});
    if (!problem.use.buffers.empty() || !calls.empty())
      changed.push_back(f);
  }
  split_sequential_functions(module, moved);
  for (uint32_t f : changed)
    compact_registers(module.functions[f]);
}

} // namespace

Pass place_pass() {
  return {"place", place};
}

} // namespace sparsertc
