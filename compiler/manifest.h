// The manifest that lies beside an artefact as OUT.json: all that a launcher must know.
#pragma once

#include "compiler/pipeline.h"

#include <string>
#include <string_view>

namespace sparsertc {

/// The version of this program, "0.1.0".
std::string_view sparsertc_version();

/// JSON text, one object, ending in a newline; the same result gives the same bytes. Entries are in
/// launch order, each with its parameters in order:
///
///   schema            1; grows when a key changes its meaning
///   family            "spmm" or "conv2d"
///   n                 a number, or null where N is a parameter; of conv2d the number of images
///   ldb, ldc          elements, or null where they are parameters
///   convolution       of conv2d: its geometry, and how interior and border share pixels and code
///   entries[].ranges  kinds of blocks that follow one another along x: each has `items` for each
///                     unit of n, of which a block takes `items_per_block`
///   entries[].grid    x = the sum over ranges of ceil(n * items / items_per_block), y, z;
///                     cluster_y blocks along y form a cluster, as the code itself says
///   entries[].parameters[]  name, role, type, bytes
///   max_registers     the cap that was asked for, a thread; 0: none
///   compute_capability      of a GPU target, [9, 0]: the least whose GPUs run the PTX
///   assembler         of cubins and bundles: "ptxas 13.0.88", null where a bundle has no cubin
///   bindable          of bundles compiled to be bound to other weights: whether they can be; if
///                     not, not_bindable says why
///   entries[].registers, static_shared_bytes, stack_bytes, spill_store_bytes, spill_load_bytes,
///                     code_bytes: of cubins, as far as the assembler says
std::string manifest_json(const PipelineResult& result, const PipelineOptions& options);

} // namespace sparsertc
