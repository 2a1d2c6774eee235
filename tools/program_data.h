// The arrays and numbers that a program of the IR is given: from files and words, and back.
#pragma once

#include "ir/module.h"
#include "runtime/program/values.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc {

/// One parameter's array.
struct ProgramArray {
  uint32_t parameter = 0;
  std::vector<uint8_t> bytes;
  std::vector<uint64_t> shape;
};

struct ProgramData {
  std::vector<ProgramArray> arrays;
  std::vector<program::Bits> arguments; ///< numbers; of arrays 0
};

/// For the parameters of `function`. `buffers`: NAME=FILE.npy, or NAME=zeros:ELEMENTS; `values`:
/// NAME=NUMBER. UsageError where a parameter has none or a word names none; UserError where a
/// file's elements are not of the parameter's type.
ProgramData read_program_data(const ir::Function& function, const std::vector<std::string>& buffers,
                              const std::vector<std::string>& values);

/// The parameter that "NAME=FILE" names, and the file. UsageError where it is no array.
std::pair<uint32_t, std::string> program_output(const ir::Function& function,
                                                const std::string& word);

/// UsageError where .npy has no elements of this type.
void write_program_array(const ir::Function& function, const ProgramArray& array,
                         const std::string& path);

} // namespace sparsertc
