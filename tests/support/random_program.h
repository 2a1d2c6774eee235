// Random programs of the IR over four elements of each array, for passes and what executes them.
#pragma once

#include "ir/type.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace sparsertc::test {

class RandomProgram {
public:
  explicit RandomProgram(unsigned seed) : random_(seed) {}

  /// A program @program(%out0..: host or device arrays, %n: i32), %n from 0 to 3.
  std::string program(unsigned buffers, unsigned statements, bool nested);

  unsigned outputs = 0;
  std::vector<ir::Space> output_space;
  int64_t length = 4;

private:
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  std::string buffer() { return names_[below(static_cast<uint32_t>(names_.size()))]; }
  void line(const std::string& text) { text_ += std::string(2 * depth_, ' ') + text + "\n"; }
  void statement(bool nested);
  void block(unsigned statements) {
    ++depth_;
    const size_t known = names_.size();
    for (unsigned i = 0; i < statements; ++i)
      statement(depth_ < 3);
    names_.resize(known);
    --depth_;
  }

  std::mt19937_64 random_;
  std::string text_;
  std::vector<std::string> names_;
  unsigned depth_ = 1;
  unsigned fresh_ = 0;
};

} // namespace sparsertc::test
