// Everything about one function that can be said without looking into others. Internal to the
// verifier.
#pragma once

#include "ir/module.h"
#include "ir/register_names.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sparsertc::ir {

class FunctionVerifier {
public:
  using Report = std::function<void(uint32_t op, std::string message)>;

  FunctionVerifier(const Module& module, const Function& function, Report report);

  /// False if indices or nesting are so wrong that nothing else may look at the operations.
  bool structure();
  void semantics();

private:
  /// What is known of a pointer that comes from `address`.
  struct Origin {
    uint32_t symbol = UINT32_MAX;
    bool exact = false; ///< offset is the distance from the symbol in bytes
    int64_t offset = 0;
  };
  /// An open block, for definite assignment.
  struct Block {
    Opcode code;
    uint32_t op;
    size_t assigned_before;
    std::vector<uint32_t> then_assigned;
    bool ended = false;      ///< the present branch has returned
    bool then_ended = false; ///< the first branch of an if returned
  };

  // structure
  void check_head();
  void check_indices(const Op& op);
  void check_pool(const Op& op);
  void check_slots(const Op& op);
  void check_nesting();
  bool in_pool(size_t begin, size_t count) const {
    return begin <= function_.pool.size() && count <= function_.pool.size() - begin;
  }

  // definite assignment
  void flow(const Op& op);
  void read(uint32_t first, uint32_t count);
  void assign(const Op& op);
  void close_block(Opcode closing);
  void else_block();
  void forget(size_t assigned_before);

  // types
  void types(const Op& op);
  void type_of_operand(const Op& op, unsigned slot, Type expected);
  void tuple_types(std::string_view what, uint32_t first, uint32_t count, Type expected);
  void immediate(const Op& op, Scalar scalar);
  void convert(const Op& op);
  void calls(const Op& op);
  void argument_types(const Function& callee, std::string_view name,
                      std::span<const uint32_t> arguments);
  bool fits(Type given, Type expected) const;
  void synchronisation(const Op& op);

  // memory
  void memory(const Op& op);
  void where_allowed(const Op& op);
  void access(const Op& op);
  void atomic(const Op& op);
  void ordered(const Op& op);
  void copies(const Op& op);
  void address_range(Type pointer_type, uint32_t pointer, int64_t offset, uint32_t bytes);
  void follow(const Op& op);
  const Origin* origin_of(uint32_t pointer) const;

  // buffers without a place
  void unplaced();
  void sequential_only(const Op& op);
  void whole_buffers();
  void buffer_use(const Op& op, uint32_t reg);

  void report(std::string message) { report_(at_, std::move(message)); }
  std::string name(uint32_t reg);
  Type type(uint32_t reg) const { return function_.register_type[reg]; }
  bool is_host() const { return function_.kind == FunctionKind::host; }

  const Module& module_;
  const Function& function_;
  Report report_;
  uint32_t at_ = 0; ///< the operation looked at
  bool sound_ = true;
  std::optional<RegisterNames> names_; ///< made for the first message

  std::vector<uint8_t> assigned_;
  std::vector<uint32_t> assigned_order_;
  std::vector<uint32_t> fixed_; ///< registers that open `for` loops count with or to
  std::vector<Block> blocks_;
  bool ended_ = false;
  std::vector<Origin> origins_; ///< by register; empty if the function takes no symbol's address
  std::vector<uint8_t> assignments_; ///< 0, 1 or 2 for more, for pointers
};

} // namespace sparsertc::ir
