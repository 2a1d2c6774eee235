// Opcode words -> how the instruction is read and what it does.
#include "tests/support/ptx_interpreter_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace sparsertc::ptx {
namespace {

template <class T>
constexpr uint32_t bits_of = sizeof(T) * 8;
template <>
constexpr uint32_t bits_of<bool> = 1;

using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;

struct ValueRow {
  Code code;
  std::string_view opcodes;
  uint32_t arity;
  uint32_t bits[4];
};
constexpr ValueRow kValueRows[] = {
#define PTX_VALUE1(code, opcodes, r, a, ...)                                                       \
  {Code::code, opcodes, 1, {bits_of<r>, bits_of<a>, 0, 0}},
#define PTX_VALUE2(code, opcodes, r, a, b, ...)                                                    \
  {Code::code, opcodes, 2, {bits_of<r>, bits_of<a>, bits_of<b>, 0}},
#define PTX_VALUE3(code, opcodes, r, a, b, c, ...)                                                 \
  {Code::code, opcodes, 3, {bits_of<r>, bits_of<a>, bits_of<b>, bits_of<c>}},
#include "tests/support/ptx_interpreter_ops.def"
};

const ValueRow* find_value(std::string_view opcode) {
  static const std::unordered_map<std::string_view, const ValueRow*> index = [] {
    std::unordered_map<std::string_view, const ValueRow*> made;
    for (const ValueRow& row : kValueRows) {
      std::string_view rest = row.opcodes;
      while (!rest.empty()) {
        const size_t blank = std::min(rest.find(' '), rest.size());
        made[rest.substr(0, blank)] = &row;
        rest.remove_prefix(std::min(blank + 1, rest.size()));
      }
    }
    return made;
  }();
  const auto found = index.find(opcode);
  return found == index.end() ? nullptr : found->second;
}

std::vector<std::string_view> split(std::string_view opcode) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  while (begin <= opcode.size()) {
    const size_t end = std::min(opcode.find('.', begin), opcode.size());
    words.push_back(opcode.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

bool has_prefix(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool is_signed(ScalarType type) {
  return type >= ScalarType::s8 && type <= ScalarType::s64;
}
bool is_integer(ScalarType type) {
  return type >= ScalarType::u8 && type <= ScalarType::s64;
}
bool is_float(ScalarType type) {
  return type >= ScalarType::f16 && type <= ScalarType::f64;
}

} // namespace

// ---- templates ---------------------------------------------------------------------------------

const OpcodeTemplate& Parser::opcode(const Token& token) {
  auto found = templates_.find(token.text);
  if (found == templates_.end())
    found = templates_.emplace(token.text, make_template(token.text)).first;
  ++counts_[&found->second];
  return found->second;
}

OpcodeTemplate Parser::make_template(std::string_view text) {
  OpcodeTemplate made;
  made.text = text;
  const std::vector<std::string_view> words = split(text);
  const std::string_view base = words[0];
  Instruction& instruction = made.instruction;
  if (const ValueRow* row = find_value(text)) {
    made.form = base == "mov" ? OperandForm::move : OperandForm::value;
    instruction.code = row->code;
    instruction.size = static_cast<uint8_t>(row->bits[0] / 8);
    made.arity = row->arity;
    std::copy(row->bits, row->bits + 4, made.bits);
    return made;
  }
  if (words.size() == 2 && (base == "add" || base == "sub" || base == "mul" || base == "fma") &&
      find_value(fmt::format("{}.rn.{}", base, words[1])))
    fail(fmt::format("`{}` without .rn may be fused by an assembler; its result is not determined",
                     text),
         ErrorKind::unsupported);
  if (base == "setp" && words.size() == 4) {
    const ValueRow* row = find_value(fmt::format("setp.{}.{}", words[1], words[3]));
    if (row && (words[2] == "and" || words[2] == "or" || words[2] == "xor")) {
      made.form = OperandForm::compare_combined;
      made.combine = words[2] == "and"  ? Code::and_pred
                     : words[2] == "or" ? Code::or_pred
                                        : Code::xor_pred;
      instruction.code = row->code;
      std::copy(row->bits, row->bits + 4, made.bits);
      return made;
    }
  }
  if (base == "cvt") {
    convert_template(made, words);
  } else if (base == "ld" || base == "ldu" || base == "st" || base == "atom" || base == "red") {
    memory_template(made, words);
  } else if (text == "barrier.cluster.arrive" || text == "barrier.cluster.arrive.release") {
    instruction.code = Code::cluster_arrive;
  } else if (text == "barrier.cluster.wait" || text == "barrier.cluster.wait.acquire") {
    instruction.code = Code::cluster_wait;
  } else if (text == "mapa.shared::cluster.u32" || text == "mapa.shared::cluster.u64") {
    made.form = OperandForm::map_shared;
    made.bits[0] = made.bits[1] = text.back() == '4' ? 64 : 32;
    instruction.code = Code::map_shared;
  } else if (text == "cp.async.commit_group") {
    instruction.code = Code::copy_commit;
  } else if (text == "cp.async.wait_group") {
    made.form = OperandForm::copy_wait;
    instruction.code = Code::copy_wait;
  } else if (text == "cp.async.wait_all") {
    instruction.code = Code::copy_wait;
    instruction.flags = kStrong; // uncommitted copies too
  } else if (has_prefix(text, "cp.async.ca.shared") || has_prefix(text, "cp.async.cg.shared")) {
    made.form = OperandForm::copy_async;
    instruction.code = Code::copy_async;
    instruction.rule = words[2] == "cg";
    if (std::find(words.begin(), words.end(), "global") == words.end())
      fail("cp.async copies from .global");
  } else if (base == "bar" || base == "barrier" || base == "shfl" || base == "vote" ||
             base == "activemask" || base == "match" || base == "redux") {
    warp_template(made, words);
  } else if (text == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16" ||
             text == "ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16") {
    made.form = OperandForm::load;
    made.bits[0] = 32;
    instruction.code = Code::load_matrix;
    instruction.space = Space::shared;
    instruction.size = 4;
    instruction.width = 4;
  } else if (base == "mma") {
    mma_template(made, words);
  } else if (base == "fence" || base == "membar") {
    instruction.code = Code::fence;
  } else if (base == "prefetch" || base == "prefetchu" || base == "nanosleep") {
    made.form = OperandForm::skip;
    instruction.code = Code::nop;
  } else if (text == "bra" || text == "bra.uni") {
    made.form = OperandForm::branch;
    instruction.code = Code::branch;
  } else if (text == "brx.idx" || text == "brx.idx.uni") {
    made.form = OperandForm::branch_table;
    instruction.code = Code::branch_table;
  } else if (text == "call" || text == "call.uni") {
    made.form = OperandForm::call;
    instruction.code = Code::call;
  } else if (text == "ret" || text == "ret.uni") {
    instruction.code = Code::ret;
  } else if (text == "exit") {
    instruction.code = Code::exit;
  } else if (text == "trap") {
    instruction.code = Code::trap;
  } else {
    fail(fmt::format("unknown instruction `{}`", text), ErrorKind::unsupported);
  }
  return made;
}

void Parser::convert_template(OpcodeTemplate& made, const std::vector<std::string_view>& words) {
  constexpr std::string_view kRoundings[] = {"rn", "rz", "rm", "rp", "rna"};
  constexpr std::string_view kIntegerRoundings[] = {"rni", "rzi", "rmi", "rpi"};
  int rounding = -1;
  bool to_integral = false;
  bool saturate = false;
  std::vector<TypeInfo> types;
  for (size_t i = 1; i < words.size(); ++i) {
    const auto* plain = std::find(std::begin(kRoundings), std::end(kRoundings), words[i]);
    const auto* integral =
        std::find(std::begin(kIntegerRoundings), std::end(kIntegerRoundings), words[i]);
    if (plain != std::end(kRoundings)) {
      rounding = static_cast<int>(plain - kRoundings);
    } else if (integral != std::end(kIntegerRoundings)) {
      rounding = static_cast<int>(integral - kIntegerRoundings);
      to_integral = true;
    } else if (words[i] == "sat") {
      saturate = true;
    } else if (const TypeInfo* type = find_type(words[i])) {
      types.push_back(*type);
    } else {
      fail(fmt::format("unknown word `.{}` in a conversion", words[i]), ErrorKind::unsupported);
    }
  }
  if (types.size() != 2)
    fail("a conversion has two types");
  const ScalarType to = types[0].type, from = types[1].type;
  const auto scalar = [](ScalarType type) {
    return is_integer(type) || (is_float(type) && type != ScalarType::f16x2 &&
                                type != ScalarType::bf16x2 && type != ScalarType::tf32);
  };
  if (!scalar(to) || !scalar(from))
    fail("no such conversion", ErrorKind::unsupported);
  if (saturate && is_float(to))
    fail("saturation to [0, 1]", ErrorKind::unsupported);
  const bool narrows =
      is_float(to) && is_float(from) &&
      (types[0].bits < types[1].bits || (types[0].bits == 16 && types[1].bits == 16 && to != from));
  const bool needs_rounding = (is_integer(from) && is_float(to)) || narrows;
  const bool needs_integral = is_float(from) && is_integer(to);
  if (needs_rounding && (rounding < 0 || to_integral))
    fail("this conversion needs .rn, .rz, .rm or .rp");
  if (needs_integral && !to_integral)
    fail("this conversion needs .rni, .rzi, .rmi or .rpi");
  if (!needs_rounding && !needs_integral && rounding >= 0 && !(to == from && to_integral))
    fail("this conversion takes no rounding");
  made.form = OperandForm::convert;
  made.instruction.code = Code::convert;
  made.bits[0] = types[0].bits;
  made.bits[1] = types[1].bits;
  made.pool[0] = static_cast<uint32_t>(to);
  made.pool[1] = static_cast<uint32_t>(from);
  made.pool[2] = static_cast<uint32_t>(rounding < 0 ? 0 : rounding);
  made.pool[3] = (saturate ? 1 : 0) | (to_integral ? 2 : 0);
}

void Parser::memory_template(OpcodeTemplate& made, const std::vector<std::string_view>& words) {
  Instruction& instruction = made.instruction;
  const std::string_view base = words[0];
  const bool atomic = base == "atom" || base == "red";
  constexpr std::string_view kIgnored[] = {"weak", "cta", "cluster", "gpu", "sys", "ca",   "cg",
                                           "cs",   "lu",  "cv",      "wb",  "wt",  "noftz"};
  constexpr std::pair<std::string_view, AtomicRule> kAtomics[] = {
      {"add", AtomicRule::add},       {"min", AtomicRule::min},   {"max", AtomicRule::max},
      {"and", AtomicRule::bit_and},   {"or", AtomicRule::bit_or}, {"xor", AtomicRule::bit_xor},
      {"exch", AtomicRule::exchange}, {"cas", AtomicRule::cas},   {"inc", AtomicRule::inc},
      {"dec", AtomicRule::dec}};
  const TypeInfo* type = nullptr;
  bool has_rule = false;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "global") {
      instruction.space = Space::global;
    } else if (word == "shared" || word == "shared::cta") {
      instruction.space = Space::shared;
    } else if (word == "shared::cluster") {
      instruction.space = Space::cluster;
    } else if (word == "const") {
      instruction.space = Space::constant;
    } else if (word == "param" || word == "param::entry" || word == "param::func") {
      instruction.space = Space::param;
    } else if (word == "nc") {
      instruction.flags |= kNonCoherent;
    } else if (word == "relaxed" || word == "acquire" || word == "release" || word == "acq_rel" ||
               word == "volatile" || word == "mmio") {
      instruction.flags |= kStrong;
    } else if (word == "v2" || word == "v4" || word == "v8") {
      instruction.width = static_cast<uint8_t>(word[1] - '0');
    } else if (has_prefix(word, "L1::") || has_prefix(word, "L2::") ||
               std::find(std::begin(kIgnored), std::end(kIgnored), word) != std::end(kIgnored)) {
      continue;
    } else if (const TypeInfo* found = find_type(word)) {
      type = found;
    } else {
      const auto* rule = std::find_if(std::begin(kAtomics), std::end(kAtomics),
                                      [&](const auto& row) { return row.first == word; });
      if (!atomic || rule == std::end(kAtomics))
        fail(fmt::format("unknown word `.{}` in `{}`", word, made.text), ErrorKind::unsupported);
      instruction.rule = static_cast<uint8_t>(rule->second);
      has_rule = true;
    }
  }
  if (!type || type->bits < 8 || type->bits > 64 || (atomic && !has_rule))
    fail(fmt::format("`{}` lacks a type or an operation", made.text));
  if (instruction.space == Space::cluster && atomic)
    fail("atomics on another block's memory", ErrorKind::unsupported);
  if ((instruction.flags & kNonCoherent) != 0 && instruction.space != Space::global)
    fail(".nc is for .global");
  if (is_signed(type->type))
    instruction.flags |= kSigned;
  instruction.size = static_cast<uint8_t>(type->bits / 8);
  made.bits[0] = type->bits;
  made.pool[0] = static_cast<uint32_t>(type->type);
  made.form = atomic         ? (base == "atom" ? OperandForm::atomic : OperandForm::reduction)
              : base == "st" ? OperandForm::store
                             : OperandForm::load;
  instruction.code = atomic ? Code::atomic : base == "st" ? Code::store : Code::load;
}

void Parser::warp_template(OpcodeTemplate& made, const std::vector<std::string_view>& words) {
  Instruction& instruction = made.instruction;
  const std::string_view text = made.text;
  if (text == "bar.warp.sync") {
    made.form = OperandForm::barrier_warp;
    instruction.code = Code::barrier_warp;
  } else if (text == "bar.sync" || text == "bar.cta.sync" || text == "barrier.sync" ||
             text == "barrier.cta.sync" || text == "barrier.sync.aligned" ||
             text == "barrier.cta.sync.aligned") {
    made.form = OperandForm::barrier;
    instruction.code = Code::barrier;
    if (words[0] == "bar" || words.back() == "aligned")
      instruction.flags = kAligned;
  } else if (words.size() == 4 && words[0] == "shfl" && words[1] == "sync" && words[3] == "b32") {
    made.form = OperandForm::shuffle;
    instruction.code = Code::shuffle;
    constexpr std::string_view kModes[] = {"up", "down", "bfly", "idx"};
    const auto* mode = std::find(std::begin(kModes), std::end(kModes), words[2]);
    if (mode == std::end(kModes))
      fail(fmt::format("unknown shuffle `.{}`", words[2]));
    instruction.rule = static_cast<uint8_t>(mode - kModes);
  } else if (words.size() == 4 && words[0] == "vote" && words[1] == "sync") {
    made.form = OperandForm::vote;
    instruction.code = Code::vote;
    constexpr std::string_view kModes[] = {"ballot", "all", "any", "uni"};
    const auto* mode = std::find(std::begin(kModes), std::end(kModes), words[2]);
    if (mode == std::end(kModes) || words[3] != (words[2] == "ballot" ? "b32" : "pred"))
      fail(fmt::format("unknown vote `{}`", text));
    instruction.rule = static_cast<uint8_t>(mode - kModes);
    made.bits[0] = words[2] == "ballot" ? 32 : 1;
  } else if (text == "activemask.b32") {
    made.form = OperandForm::active_mask;
    instruction.code = Code::active_mask;
  } else if (text == "match.any.sync.b32") {
    made.form = OperandForm::match_any;
    instruction.code = Code::match_any;
  } else if (words.size() == 4 && words[0] == "redux" && words[1] == "sync") {
    made.form = OperandForm::reduce_warp;
    instruction.code = Code::reduce_warp;
    constexpr std::string_view kRules[] = {"add", "min", "max", "and", "or", "xor"};
    const auto* rule = std::find(std::begin(kRules), std::end(kRules), words[2]);
    const TypeInfo* type = find_type(words[3]);
    if (rule == std::end(kRules) || !type || type->bits != 32 || is_float(type->type))
      fail(fmt::format("unknown reduction `{}`", text), ErrorKind::unsupported);
    instruction.rule = static_cast<uint8_t>(rule - kRules);
    instruction.flags = is_signed(type->type) ? kSigned : 0;
  } else {
    fail(fmt::format("unknown instruction `{}`", text), ErrorKind::unsupported);
  }
}

void Parser::mma_template(OpcodeTemplate& made, const std::vector<std::string_view>& words) {
  made.form = OperandForm::mma;
  made.instruction.code = Code::mma;
  const bool sparse = words.size() > 1 && has_prefix(words[1], "sp");
  uint32_t k = 0;
  const TypeInfo* input = nullptr;
  std::vector<ScalarType> types;
  for (size_t i = 1; i < words.size(); ++i) {
    if (has_prefix(words[i], "m16n8k"))
      k = static_cast<uint32_t>(std::atoi(std::string(words[i].substr(6)).c_str()));
    else if (const TypeInfo* type = find_type(words[i]))
      types.push_back(type->type);
  }
  if (types.size() == 4 && types[0] == ScalarType::f32 && types[3] == ScalarType::f32 &&
      types[1] == types[2]) {
    for (const std::string_view word : words)
      if (const TypeInfo* type = find_type(word); type && type->type == types[1])
        input = type;
  }
  const bool half = input && (input->type == ScalarType::f16 || input->type == ScalarType::bf16);
  const bool tf32 = input && input->type == ScalarType::tf32;
  const uint32_t dense_k = sparse ? k / 2 : k;
  if (!((half && (dense_k == 16 || dense_k == 8)) || (tf32 && (dense_k == 8 || dense_k == 4))))
    fail(fmt::format("unknown matrix fragment `{}`", made.text), ErrorKind::unsupported);
  made.pool[0] = static_cast<uint32_t>(input->type);
  made.pool[1] = k;
  made.pool[2] = sparse;
}

} // namespace sparsertc::ptx
