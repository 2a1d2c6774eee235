// What the pipeline has made, as the container in which it travels.
#pragma once

#include "compiler/pipeline.h"
#include "runtime/bundle/bundle.h"

namespace sparsertc {

/// Of a result of Artefact::bundle: machine code where there was an assembler, the places of its
/// weights where they were asked for and are known, and always PTX, for other GPUs.
Bundle make_bundle(const PipelineResult& result, const PipelineOptions& options);

} // namespace sparsertc
