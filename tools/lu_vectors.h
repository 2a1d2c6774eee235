// Right-hand sides from files, solutions to files.
#pragma once

#include "tools/lu_backend.h"

#include <string>

namespace sparsertc {

/// The columns of an n x m matrix, dense or sparse, real or complex; or a vector of n numbers.
/// UserError where it has not n rows.
LuVectors read_vectors(const std::string& path, uint32_t rows);

/// As an array in Matrix Market form, real or complex, with as many digits as tell the numbers
/// apart; or as .npy where the name says so, which only real numbers can be.
void write_vectors(const std::string& path, const LuVectors& x, uint32_t rows);

} // namespace sparsertc
