#include "compiler/emit/ptx_function.h"

#include "ir/error.h"
#include "ir/operands.h"

#include <algorithm>
#include <fmt/format.h>

namespace sparsertc {

using ir::high_half;
using ir::low_half;
using ir::Opcode;
using ir::Scalar;
using ir::Space;
using ir::Type;

namespace {

struct ClassWords {
  std::string_view prefix, type, bits;
};
constexpr ClassWords kClassWords[kPtxClasses] = {
    {"%p", ".pred", ".b32"}, {"%h", ".b16", ".b16"}, {"%r", ".b32", ".b32"},
    {"%rd", ".b64", ".b64"}, {"%f", ".f32", ".b32"}, {"%fd", ".f64", ".b64"},
};

const ClassWords& words_of(PtxClass register_class) {
  return kClassWords[static_cast<unsigned>(register_class)];
}

/// This block's shared memory, or another's of the cluster.
bool is_shared(Type pointer) {
  return pointer.space() == Space::shared || pointer.space() == Space::cluster;
}

} // namespace

PtxClass class_of(Type type) {
  if (type.is_pointer())
    return is_shared(type) ? PtxClass::b32 : PtxClass::b64;
  switch (type.element()) {
  case Scalar::pred:
    return PtxClass::pred;
  case Scalar::i32:
  case Scalar::f16x2:
  case Scalar::bf16x2:
    return PtxClass::b32;
  case Scalar::i64:
    return PtxClass::b64;
  case Scalar::f16:
  case Scalar::bf16:
    return PtxClass::b16;
  case Scalar::f32:
    return PtxClass::f32;
  case Scalar::f64:
    return PtxClass::f64;
  case Scalar::none:
    break;
  }
  throw InternalError("PTX: a register without a type");
}

std::string_view suffix_of(Type type) {
  if (type.is_pointer())
    return is_shared(type) ? "b32" : "b64";
  switch (type.element()) {
  case Scalar::none:
    break;
  case Scalar::pred:
    return "pred";
  case Scalar::i32:
    return "s32";
  case Scalar::i64:
    return "s64";
  case Scalar::f16:
    return "f16";
  case Scalar::f16x2:
    return "f16x2";
  case Scalar::bf16:
    return "bf16";
  case Scalar::bf16x2:
    return "bf16x2";
  case Scalar::f32:
    return "f32";
  case Scalar::f64:
    return "f64";
  }
  throw InternalError("PTX: an operation without a type");
}

std::string_view bits_of(PtxClass register_class) {
  return words_of(register_class).bits;
}

std::string_view type_word(PtxClass register_class) {
  return words_of(register_class).type;
}

void put_parameters(PtxBuffer& out, const ir::Function& function) {
  out.put('(');
  for (uint32_t i = 0; i < function.parameter_count; ++i) {
    const Type type = function.register_type[i];
    out.put(i == 0 ? std::string_view("\n\t.param ") : std::string_view(",\n\t.param "));
    out.put(bits_of(class_of(type)));
    if (function.kind == ir::FunctionKind::kernel && type.is_pointer() &&
        type.space() == Space::device) {
      // The driver only promises what every access to an element needs.
      out.put(std::string_view(" .ptr .global .align "));
      out.put_decimal(size_in_bytes(type.element()));
    }
    out.put(' ');
    out.put(std::string_view(function.name));
    out.put(std::string_view("_param_"));
    out.put_decimal(i);
  }
  out.put(')');
}

// ---- the frame ----

void PtxFunctionPrinter::number_registers() {
  numbered_ = {};
  scratch_now_ = {};
  scratch_most_ = {};
  names_.clear();
  names_.reserve(function_->register_type.size());
  for (Type type : function_->register_type) {
    const PtxClass register_class = class_of(type);
    names_.push_back(PtxText::numbered(words_of(register_class).prefix,
                                       numbered_[static_cast<unsigned>(register_class)]++));
  }
}

PtxText PtxFunctionPrinter::scratch(PtxClass register_class) {
  const auto which = static_cast<unsigned>(register_class);
  const uint32_t number = scratch_now_[which]++;
  scratch_most_[which] = std::max(scratch_most_[which], scratch_now_[which]);
  return PtxText::numbered(words_of(register_class).prefix, numbered_[which] + number);
}

void PtxFunctionPrinter::put_register_declarations(PtxBuffer& out) const {
  for (unsigned i = 0; i < kPtxClasses; ++i) {
    const uint32_t count = numbered_[i] + scratch_most_[i];
    if (count == 0)
      continue;
    out.put(std::string_view("\t.reg "));
    out.put(kClassWords[i].type);
    out.put(' ');
    out.put(kClassWords[i].prefix);
    out.put('<');
    out.put_decimal(count);
    out.put(std::string_view(">;\n"));
  }
}

void PtxFunctionPrinter::load_parameters() {
  for (uint32_t i = 0; i < function_->parameter_count; ++i) {
    const PtxClass register_class = class_of(function_->register_type[i]);
    const bool predicate = register_class == PtxClass::pred;
    const PtxText target = predicate ? scratch(PtxClass::b32) : reg(i);
    begin({"ld.param", bits_of(register_class), " "});
    body_.put(target);
    body_.put(std::string_view(", ["));
    body_.put(std::string_view(function_->name));
    body_.put(std::string_view("_param_"));
    body_.put_decimal(i);
    body_.put(']');
    end_line();
    if (predicate)
      line({"setp.ne.b32"}, reg(i), target, '0');
    scratch_now_ = {};
  }
}

void PtxFunctionPrinter::print(PtxBuffer& out, const ir::Function& function,
                               std::string_view linkage) {
  function_ = &function;
  next_label_ = 0;
  regions_.clear();
  body_.clear();
  number_registers();
  load_parameters();
  for (const Op& op : function.ops) {
    scratch_now_ = {};
    if (context_.options.annotate && op.origin != 0) {
      const size_t start = body_.size();
      operation(op);
      annotate(op, start);
    } else {
      operation(op);
    }
  }
  if (!regions_.empty())
    malformed(*regions_.back().op, "it is never closed");
  if (function.ops.empty() || function.ops.back().code != Opcode::return_void)
    line({"ret"});

  const bool kernel = function.kind == ir::FunctionKind::kernel;
  out.put(linkage);
  out.put(kernel ? std::string_view(".entry ") : std::string_view(".func "));
  out.put(std::string_view(function.name));
  put_parameters(out, function);
  if (kernel) {
    out.put(std::string_view("\n.reqntid "));
    for (int i = 0; i < 3; ++i) {
      if (i != 0)
        out.put(std::string_view(", "));
      out.put_decimal(function.block[i]);
    }
    if (function.has_cluster()) {
      out.put(std::string_view("\n.explicitcluster\n.reqnctapercluster "));
      for (int i = 0; i < 3; ++i) {
        if (i != 0)
          out.put(std::string_view(", "));
        out.put_decimal(function.cluster[i]);
      }
    }
    if (function.max_registers != 0) {
      out.put(std::string_view("\n.maxnreg "));
      out.put_decimal(function.max_registers);
    }
  }
  out.put(std::string_view("\n{\n"));
  put_register_declarations(out);
  out.put(body_.view());
  out.put(std::string_view("}\n"));
}

void PtxFunctionPrinter::annotate(const Op& op, size_t start) {
  const ir::Origin origin = context_.module.origins[op.origin - 1];
  const std::string lines(body_.view().substr(start));
  body_.drop(lines.size());
  // Every line, so that each says by itself where it comes from.
  for (const char character : lines) {
    if (character == '\n') {
      body_.put(std::string_view(" // row "));
      body_.put_decimal(origin.row);
      body_.put(std::string_view(", column "));
      body_.put_decimal(origin.column);
    }
    body_.put(character);
  }
}

std::string PtxFunctionPrinter::place(const Op& op) const {
  std::string text =
      fmt::format("operation '{}' of function '@{}'", info(op.code).text, function_->name);
  if (op.origin != 0) {
    const ir::Origin origin = context_.module.origins[op.origin - 1];
    text += fmt::format(" (row {}, column {})", origin.row, origin.column);
  }
  return text;
}

void PtxFunctionPrinter::malformed(const Op& op, const std::string& reason) const {
  throw InternalError(fmt::format("PTX: {}: {}; was the module verified?", place(op), reason));
}

// ---- operands ----

PtxText PtxFunctionPrinter::literal(Type type, int64_t bits) const {
  switch (class_of(type)) {
  case PtxClass::pred:
    return PtxText::integer(bits & 1);
  case PtxClass::b16:
    return PtxText::hex(static_cast<uint64_t>(bits), 4);
  case PtxClass::b32:
    if (type.is_pair())
      return PtxText::hex(low_half(bits), 8);
    return PtxText::integer(static_cast<int32_t>(bits));
  case PtxClass::b64:
    return PtxText::integer(bits);
  case PtxClass::f32:
    return PtxText::f32(low_half(bits));
  case PtxClass::f64:
    return PtxText::f64(static_cast<uint64_t>(bits));
  }
  throw InternalError("PTX: a literal of no class");
}

PtxText PtxFunctionPrinter::operand(const Op& op, unsigned slot, Type type) const {
  const uint32_t value = op.operand[slot];
  return value == ir::kImmediate ? literal(type, op.immediate) : reg(value);
}

PtxText PtxFunctionPrinter::unsigned_operand(const Op& op, unsigned slot, Type type) const {
  const uint32_t value = op.operand[slot];
  if (value != ir::kImmediate)
    return reg(value);
  return PtxText::unsigned_integer(type == Type(Scalar::i32) ? low_half(op.immediate)
                                                             : static_cast<uint64_t>(op.immediate));
}

PtxText PtxFunctionPrinter::constant_in_register(Type type, int64_t bits) {
  const PtxClass register_class = class_of(type);
  const PtxText to = scratch(register_class);
  line({"mov", words_of(register_class).type}, to, literal(type, bits));
  return to;
}

PtxText PtxFunctionPrinter::value_operand(const Op& op, unsigned slot, Type type) {
  if (op.operand[slot] != ir::kImmediate)
    return reg(op.operand[slot]);
  if (class_of(type) == PtxClass::b16 || type.is_pair())
    return constant_in_register(type, op.immediate);
  return literal(type, op.immediate);
}

void PtxFunctionPrinter::put_tuple(uint32_t first, unsigned count) {
  body_.put('{');
  for (unsigned i = 0; i < count; ++i) {
    if (i != 0)
      body_.put(std::string_view(", "));
    body_.put(reg(first + i));
  }
  body_.put('}');
}

// ---- control flow ----

void PtxFunctionPrinter::put_label(uint32_t label) {
  body_.put(std::string_view("$L_"));
  body_.put_decimal(label);
}

void PtxFunctionPrinter::place_label(uint32_t label) {
  put_label(label);
  body_.put(std::string_view(":\n"));
}

void PtxFunctionPrinter::branch(const PtxText* predicate, bool negated, uint32_t label) {
  body_.put('\t');
  if (predicate != nullptr) {
    body_.put(negated ? std::string_view("@!") : std::string_view("@"));
    body_.put(*predicate);
    body_.put(' ');
  }
  body_.put(std::string_view("bra "));
  put_label(label);
  end_line();
}

void PtxFunctionPrinter::for_loop(const Op& op) {
  Region region{Opcode::for_loop, next_label_++, next_label_++, true, &op};
  line({"mov.b32"}, reg(op.result), '0');
  // The body runs only if there is a first round.
  if (op.operand[0] == ir::kImmediate) {
    region.end_used = static_cast<int32_t>(low_half(op.immediate)) <= 0;
    if (region.end_used)
      branch(nullptr, false, region.end_label);
  } else {
    const PtxText none = scratch(PtxClass::pred);
    line({"setp.le.s32"}, none, reg(op.operand[0]), '0');
    branch(&none, false, region.end_label);
  }
  place_label(region.label);
  regions_.push_back(region);
}

void PtxFunctionPrinter::end(const Op& op) {
  if (regions_.empty())
    malformed(op, "it closes nothing");
  const Region region = regions_.back();
  regions_.pop_back();
  if (region.kind == Opcode::for_loop) {
    const Op& loop = *region.op;
    const PtxText again = scratch(PtxClass::pred);
    line({"add.s32"}, reg(loop.result), reg(loop.result),
         PtxText::integer(static_cast<int32_t>(high_half(loop.immediate))));
    // Induction register and step are not negative, so their sum may pass the signed range but not
    // the unsigned one: compared unsigned, no limit makes the loop endless.
    line({"setp.lt.u32"}, again, reg(loop.result),
         loop.operand[0] == ir::kImmediate ? PtxText::unsigned_integer(low_half(loop.immediate))
                                           : reg(loop.operand[0]));
    branch(&again, false, region.label);
    if (region.end_used)
      place_label(region.end_label);
  } else if (region.kind == Opcode::if_begin) {
    place_label(region.end_used ? region.end_label : region.label);
  } else {
    malformed(op, "a loop is closed by 'while'");
  }
}

// ---- calls ----

/// The arguments of a call as they are stored: predicates as numbers.
std::vector<PtxFunctionPrinter::Argument>
PtxFunctionPrinter::prepare_arguments(std::span<const uint32_t> registers) {
  std::vector<Argument> arguments;
  arguments.reserve(registers.size());
  for (uint32_t id : registers) {
    const PtxClass register_class = class_of(function_->register_type[id]);
    PtxText text = reg(id);
    if (register_class == PtxClass::pred) {
      text = scratch(PtxClass::b32);
      line({"selp.b32"}, text, '1', '0', reg(id));
    }
    arguments.push_back({bits_of(register_class), text});
  }
  return arguments;
}

void PtxFunctionPrinter::put_call(const ir::Function& callee,
                                  const std::vector<Argument>& arguments) {
  // PTX wants the parameters stored right before the call, so every call has its own.
  body_.put(std::string_view("\t{\n"));
  for (size_t i = 0; i < arguments.size(); ++i) {
    begin({".param ", arguments[i].bits, " $a"});
    body_.put_decimal(i);
    end_line();
    begin({"st.param", arguments[i].bits, " [$a"});
    body_.put_decimal(i);
    body_.put(std::string_view("], "));
    body_.put(arguments[i].text);
    end_line();
  }
  // All active threads call the same function.
  begin({"call.uni ", callee.name});
  for (size_t i = 0; i < arguments.size(); ++i) {
    body_.put(i == 0 ? std::string_view(", ($a") : std::string_view(", $a"));
    body_.put_decimal(i);
  }
  if (!arguments.empty())
    body_.put(')');
  end_line();
  body_.put(std::string_view("\t}\n"));
}

void PtxFunctionPrinter::call(const Op& op) {
  put_call(context_.module.functions[op.operand[0]],
           prepare_arguments(ir::arguments(*function_, op)));
}

void PtxFunctionPrinter::switch_call(const Op& op) {
  const std::span<const uint32_t> functions = ir::callees(*function_, op);
  const auto count = static_cast<uint32_t>(functions.size());
  const std::vector<Argument> arguments = prepare_arguments(ir::arguments(*function_, op));
  const uint32_t table = next_label_++;
  const uint32_t done = next_label_++;
  const uint32_t first = next_label_;
  next_label_ += count;

  const PtxText outside = scratch(PtxClass::pred);
  line({"setp.ge.u32"}, outside, reg(op.operand[0]), PtxText::unsigned_integer(count));
  branch(&outside, false, done);
  put_label(table);
  body_.put(std::string_view(": .branchtargets\n\t\t"));
  for (uint32_t i = 0; i < count; ++i) {
    if (i != 0)
      body_.put(i % 8 == 0 ? std::string_view(",\n\t\t") : std::string_view(", "));
    put_label(first + i);
  }
  end_line();
  begin({"brx.idx "});
  body_.put(reg(op.operand[0]));
  body_.put(std::string_view(", "));
  put_label(table);
  end_line();
  for (uint32_t i = 0; i < count; ++i) {
    place_label(first + i);
    put_call(context_.module.functions[functions[i]], arguments);
    branch(nullptr, false, done);
  }
  place_label(done);
}

} // namespace sparsertc
