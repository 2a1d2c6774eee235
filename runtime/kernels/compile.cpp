#include "runtime/kernels/compile.h"

#include "ir/sha256.h"
#include "runtime/kernels/kernel_sources.h"

#include <fmt/format.h>

#include <optional>
#include <string>

namespace sparsertc::kernels {
namespace {

constexpr const char* kHeaders[] = {"fill2.cuh", "fill2.cu", "kahn.cuh", "kahn.cu", "scan.cu"};

/// The form of the cache's entries, too.
std::string manifest_of(const std::string& artefact) {
  return fmt::format("{{\"schema\": 1, \"artefact\": \"{} kernels\"}}\n", artefact);
}

CacheKey key_of(const cuda::CudaSource& source, const std::string& compiler) {
  Sha256 digest;
  digest.add(source.text);
  for (const cuda::CudaSource::Header& header : source.headers)
    digest.add(header.text);
  std::string text = fmt::format("schema=1\nprogram={}\ntexts={}\ntarget={}\ncompiler={}\n",
                                 source.name, digest.hex(), source.target, compiler);
  for (const std::string& option : source.options)
    text += fmt::format("option={}\n", option);
  return {text};
}

std::vector<uint8_t> cubin_of(const cuda::Nvrtc& nvrtc, const cuda::CudaSource& source,
                              const std::string& artefact, Cache* cache) {
  const CacheKey key = key_of(source, nvrtc.identity());
  if (cache != nullptr)
    if (const std::optional<Bundle> bundle = cache->find(key); bundle)
      if (const Bundle::Section* cubin = bundle->find("cubin"); cubin != nullptr)
        return cubin->bytes;
  std::vector<uint8_t> cubin = nvrtc.compile(source).cubin;
  if (cache != nullptr)
    cache->store(key, {manifest_of(artefact), {{"cubin", cubin}}});
  return cubin;
}

cuda::CudaSource source_of(const char* program, uint32_t compute_capability,
                           std::vector<std::string> options) {
  cuda::CudaSource source;
  source.name = program;
  source.text = kernel_source(program);
  source.target = fmt::format("sm_{}", compute_capability);
  source.options = std::move(options);
  source.want_cubin = true;
  return source;
}

} // namespace

std::vector<uint8_t> compile_lu_analysis(const cuda::Nvrtc& nvrtc, uint32_t compute_capability,
                                         Cache* cache) {
  cuda::CudaSource source = source_of("lu_analysis.cu", compute_capability, {"-std=c++17"});
  for (const char* header : kHeaders)
    source.headers.push_back({header, std::string(kernel_source(header))});
  return cubin_of(nvrtc, source, "lu_analysis", cache);
}

std::vector<uint8_t> compile_lu_right_looking(const cuda::Nvrtc& nvrtc, uint32_t compute_capability,
                                              const std::string& number, Cache* cache) {
  cuda::CudaSource source =
      source_of("lu_right_looking.cu", compute_capability,
                {"-std=c++17", "--fmad=false", "-DSPARSERTC_LU_NUMBER=" + number});
  for (const char* header : {"lu_right_looking.cuh", "lu_number.cuh", "lu_dense_tail.cu"})
    source.headers.push_back({header, std::string(kernel_source(header))});
  return cubin_of(nvrtc, source, "lu_right_looking", cache);
}

} // namespace sparsertc::kernels
