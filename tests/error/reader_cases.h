// A table of malformed inputs: what is read, and what the error must say.
#pragma once

#include "compiler/input/read.h"
#include "tests/support/input_files.h"

#include <functional>
#include <string>
#include <vector>

namespace sparsertc::testing {

struct ReaderCase {
  /// What is wrong; also the section's name.
  std::string name;
  /// Named "in.<suffix>", which decides the format.
  std::string suffix;
  Bytes content;
  /// How the message begins: "in.mtx:3:5: error: ".
  std::string place;
  /// Words that the message must hold, in any order.
  std::vector<std::string> words;
  ReadOptions options = {};
};

std::vector<ReaderCase> text_reader_cases();
std::vector<ReaderCase> binary_reader_cases();

} // namespace sparsertc::testing
