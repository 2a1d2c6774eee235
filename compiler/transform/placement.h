// Placing the buffers and the sequential work of a program: the question, as data, and its answer
// by a minimum cut.
//
// For each buffer and each point of the program there are two questions: is its contents valid in
// host memory, and is it in device memory? An operation that runs on the host needs the first, one
// on the device the second, and one that writes leaves the buffer valid on its own side only. A
// copy is where validity begins. For each operation that may run on either side there is one
// question more. Every rule forbids, or prices, one answer to a question together with one answer
// to another, in such a way that the cheapest answers to all questions together are a minimum cut.
// (For one side of one buffer this is partial redundancy elimination by a cut: Cai and Xue,
// "Optimal and efficient speculation-based partial redundancy elimination", 2003.)
#pragma once

#include "compiler/transform/buffer_use.h"
#include "compiler/transform/min_cut.h"
#include "ir/module.h"

#include <cstdint>
#include <vector>

namespace sparsertc {

enum class Side : uint8_t { host, device };

/// Where an operation has an end: on a known side, or as a choice is decided.
struct SideOf {
  Side side = Side::host;
  uint32_t choice = kNone; ///< index into PlacementProblem::choices; kNone: `side` is known

  static constexpr uint32_t kNone = UINT32_MAX;
  bool fixed() const { return choice == kNone; }
  friend bool operator==(const SideOf&, const SideOf&) = default;
};

/// What may run on either side, and what all its runs cost there.
struct SideChoice {
  uint32_t op;
  int64_t host_ns;
  int64_t device_ns;
};

/// Two ends of a copy that the program itself makes: what all its runs cost if they are on
/// different sides.
struct CopyEnds {
  SideOf destination, source;
  int64_t ns;
};

/// One function's question.
struct PlacementProblem {
  BufferUse use;                          ///< of buffers without a place only
  std::vector<std::vector<SideOf>> sides; ///< of each touch; never empty
  std::vector<SideChoice> choices;
  std::vector<CopyEnds> copies;
  /// The side of each call of a sequential function, by operation.
  std::vector<SideOf> call_side;
};

/// Throws UserError where a program asks for what cannot be.
PlacementProblem make_placement_problem(const ir::Module& module, const ir::Function& function,
                                        const ProgramShape& shape, MemoryEffects& effects);

/// The answers for one buffer, by point.
struct BufferPlaces {
  std::vector<uint8_t> on_host, on_device;
};

struct Placement {
  int64_t cost_ns = 0;
  std::vector<Side> choice;          ///< of each choice
  std::vector<BufferPlaces> buffers; ///< of each buffer

  Side side(const SideOf& of) const { return of.fixed() ? of.side : choice[of.choice]; }
};

/// The cheapest placement; of equally cheap ones one with few places at a time and late copies.
Placement solve_placement(const ir::Function& function, const ProgramShape& shape,
                          const PlacementProblem& problem);

/// Removes copies of the program whose destination is not read before it is written over or ends,
/// and buffers that nothing touches.
void remove_dead_copies(ir::Module& module);

} // namespace sparsertc
