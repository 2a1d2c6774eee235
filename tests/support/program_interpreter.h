// Runs whole programs of the IR, host functions and kernels, on integers: an oracle for passes over
// the program level. Host and device memory may be kept apart, so that an access from the wrong
// side, after `free` or outside of an array is an error. Elements that nothing has written are
// undefined, and so is what is computed from them.
#pragma once

#include "ir/module.h"

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace sparsertc::test {

/// What the program does wrong, or what the interpreter does not know.
class ProgramError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};
/// It decides by an undefined value.
class UndefinedCondition : public ProgramError {
public:
  using ProgramError::ProgramError;
};

class ProgramInterpreter {
public:
  /// Integers only; nothing where undefined.
  using Element = std::optional<int64_t>;
  struct Array {
    ir::Space space = ir::Space::none; ///< none: any side reaches it
    std::vector<Element> elements;
    bool freed = false;
    bool given = false; ///< an argument of the program
  };
  struct Copy {
    ir::Space from, to;
    int64_t elements;
    bool whole; ///< all of both arrays
  };

  /// Without `separate_memories` every array is reached from everywhere, so that programs before
  /// placement run as well.
  ProgramInterpreter(const ir::Module& module, bool separate_memories)
      : module_(module), separate_(separate_memories) {}

  /// An array to be handed to the program. Returns the argument.
  int64_t give(ir::Space space, std::vector<Element> elements);
  const Array& array(int64_t argument) const {
    return arrays_[static_cast<size_t>(argument >> 32)];
  }
  /// Runs a host function; pointers are what give() returned.
  void run(const std::string& function, const std::vector<int64_t>& arguments);

  const std::vector<Copy>& copies() const { return copies_; }
  uint64_t launches() const { return launches_; }
  /// Arrays that the program allocated and did not free.
  unsigned leaks() const;
  /// The most bytes that the program had allocated in this memory at a time.
  int64_t peak(ir::Space space) const { return memory_[index(space)].peak; }

private:
  struct Memory {
    int64_t now = 0, peak = 0;
  };
  static size_t index(ir::Space space) { return space == ir::Space::device ? 1 : 0; }
  struct Thread {
    uint32_t thread[3] = {0, 0, 0};
    uint32_t block[3] = {0, 0, 0};
  };
  using Registers = std::vector<Element>;

  void function(uint32_t index, const Registers& arguments, const Thread& thread);
  /// Runs operations [begin, end); true if it returned.
  bool block(const ir::Function& f, uint32_t begin, uint32_t end, Registers& r, const Thread& t);
  void operation(const ir::Function& f, const ir::Op& op, Registers& r, const Thread& t);
  void value(const ir::Function& f, const ir::Op& op, Registers& r, const Thread& t);
  void launch(const ir::Function& f, const ir::Op& op, const Registers& r);
  void copy(const ir::Function& f, const ir::Op& op, const Registers& r);
  Element& element(const ir::Function& f, const ir::Op& op, const Registers& r);
  Array& reach(const ir::Function& f, Element pointer);
  static bool decide(Element condition);

  const ir::Module& module_;
  bool separate_;
  std::vector<Array> arrays_;
  std::vector<Copy> copies_;
  Memory memory_[2]; ///< host, device
  uint64_t launches_ = 0;
  uint64_t steps_ = 0;
};

} // namespace sparsertc::test
