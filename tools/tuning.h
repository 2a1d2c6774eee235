// Between tuning records and the compiler: which environment this is, and what a record asks of the
// pipeline.
#pragma once

#include "compiler/pipeline.h"
#include "runtime/tune/record.h"

#include <string>

namespace sparsertc {

/// The filters of a convolution as one matrix over all channels, with the geometry in the problem
/// complete and said of that matrix: one group. What is no convolution stays as it is.
Matrix as_matrix(Matrix weights, SpmmProblem& problem);

/// What a record holds for, besides the GPU and its driver, which the caller fills in where there
/// are any. Of convolutions after as_matrix.
tune::Environment environment_of(const Pattern& pattern, const SpmmProblem& problem,
                                 const Target& target, const std::string& assembler);

/// What is done with a record that was made for something else.
enum class TuningMismatch : uint8_t {
  refuse,
  similar, ///< that of a layer which differs in its pattern only, and little in its entries, is
           ///< taken
  accept
};

/// Reads a record and sets tile and cap of the pipeline. The record must hold here: the pattern,
/// the problem, the target, the program, the assembler where one takes part, GPU and driver where
/// there are any. Else a UserError with all differences, or, where `mismatch` lets it pass, remarks
/// on standard error. `path` may also be a folder: among its .json files the record that holds is
/// taken, else the similar one with the nearest number of entries, where `mismatch` lets it pass.
void apply_tuning(const std::string& path, TuningMismatch mismatch, const Matrix& weights,
                  PipelineOptions& pipeline);

} // namespace sparsertc
