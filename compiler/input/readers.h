// The readers behind read.h, one for each format. `name` is the file in messages. None of them
// makes values or looks at options.require_values: read.cpp does.
#pragma once

#include "compiler/input/read.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc {

Matrix read_smtx(std::string_view text, const std::string& name, const ReadOptions& options);

Matrix read_matrix_market(std::string_view text, const std::string& name,
                          const ReadOptions& options);
DenseTensor read_matrix_market_dense(std::string_view text, const std::string& name,
                                     const ReadOptions& options);

Matrix read_npy(std::span<const uint8_t> bytes, const std::string& name,
                const ReadOptions& options);
DenseTensor read_npy_dense(std::span<const uint8_t> bytes, const std::string& name,
                           const ReadOptions& options);
TensorInfo describe_npy(std::span<const uint8_t> bytes, const std::string& name);

Matrix read_npz(std::span<const uint8_t> bytes, const std::string& name,
                const ReadOptions& options);
DenseTensor read_npz_dense(std::span<const uint8_t> bytes, const std::string& name,
                           const ReadOptions& options);
std::vector<TensorInfo> list_npz(std::span<const uint8_t> bytes, const std::string& name,
                                 const ReadOptions& options);

Matrix read_safetensors(std::span<const uint8_t> bytes, const std::string& name,
                        const ReadOptions& options);
DenseTensor read_safetensors_dense(std::span<const uint8_t> bytes, const std::string& name,
                                   const ReadOptions& options);
std::vector<TensorInfo> list_safetensors(std::span<const uint8_t> bytes, const std::string& name);

} // namespace sparsertc
