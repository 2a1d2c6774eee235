// Arrays as a file of parameters has them, for residuals that are compiled in the same process.
#pragma once

#include "compiler/input/read.h"
#include "runtime/jacobian/parameters.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace sparsertc::test {

/// Arrays of two dimensions differ by instance, the last one.
inline jacobian::ParameterSet named_parameters(const std::vector<NamedArray>& arrays,
                                               uint64_t instances) {
  jacobian::ParameterSet set;
  set.instances = instances;
  for (const NamedArray& array : arrays) {
    jacobian::ParameterArray parameter;
    parameter.name = array.name;
    parameter.varies = array.shape.size() == 2;
    if (array.type == StoredType::i64)
      parameter.values = std::vector<int64_t>(array.values.begin(), array.values.end());
    else
      parameter.values = array.values;
    set.arrays.push_back(std::move(parameter));
  }
  return set;
}

} // namespace sparsertc::test
