// The tables of sparse LU as bytes: what a bundle's sections hold, and what reads them back.
// runtime/bundle/README.md has the format.
#pragma once

#include "ir/lu_batch_loop.h"
#include "ir/lu_tables.h"
#include "runtime/lu/gpu_plan.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sparsertc::lu {

std::vector<uint8_t> to_bytes(const LuTables& tables);
std::vector<uint8_t> to_bytes(const LuDataflow& flow);
std::vector<uint8_t> to_bytes(const GpuFlows::Solve& solve);
std::vector<uint8_t> to_bytes(const LuBatchLoop& loop);

/// Read back what to_bytes made. Every length is checked against the bytes that are there before
/// memory is taken; whether the tables make sense, table_check.h says. `name` is the bundle's and
/// the section's, for messages. Throw UserError for what is cut short, of another version, or
/// followed by foreign bytes.
LuTables parse_tables(std::span<const uint8_t> bytes, const std::string& name);
LuDataflow parse_dataflow(std::span<const uint8_t> bytes, const std::string& name);
GpuFlows::Solve parse_solve(std::span<const uint8_t> bytes, const std::string& name);
LuBatchLoop parse_batch_loop(std::span<const uint8_t> bytes, const std::string& name);

} // namespace sparsertc::lu
