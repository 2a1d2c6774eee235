// The files of a residual: its CUDA C++, its parameters, its start vector.
#pragma once

#include "runtime/jacobian/parameters.h"
#include "runtime/jacobian/source.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sparsertc {

jacobian::ResidualSource read_residual(const std::string& path);

/// The arrays of an .npz archive (members without their ".npy") or of a JSON object (numbers, or
/// arrays of them, nested ones in row-major order); a number is an array of one entry. Integers
/// become i64, all else f64. `varying`: names of those whose last dimension is the instances. Empty
/// path: none. UserError with the place.
jacobian::ParameterSet read_parameters(const std::string& path,
                                       const std::vector<std::string>& varying, uint64_t instances);

/// The numbers of a vector in any of the formats, of any length.
std::vector<double> read_start_vector(const std::string& path);

} // namespace sparsertc
