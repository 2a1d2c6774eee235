#include "tools/tuning.h"

#include "compiler/manifest.h"
#include "ir/error.h"
#include "runtime/tune/candidate.h"
#include "tools/gpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace sparsertc {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file)
    throw UserError(Place{path, 0, 0, {}}, fmt::format("cannot be read: {}", std::strerror(errno)));
  return text;
}

} // namespace

tune::Environment environment_of(const Pattern& pattern, const SpmmProblem& problem,
                                 const Target& target, const std::string& assembler) {
  tune::Environment environment;
  environment.target = target.name;
  environment.sparsertc = sparsertc_version();
  environment.assembler = assembler;
  environment.pattern_digest = pattern_digest(pattern);
  environment.m = pattern.rows;
  environment.k = pattern.columns;
  environment.n = problem.columns.value_or(0);
  environment.dtype = name_of(problem.type);
  const Epilogue& epilogue = problem.epilogue;
  environment.options =
      fmt::format("layout={},ldb={},ldc={},bias={},residual={},activation={},half_terms={}",
                  name_of(problem.layout), problem.ldb, problem.ldc, epilogue.bias ? 1 : 0,
                  epilogue.residual ? 1 : 0, name_of(epilogue.activation), problem.half_terms);
  return environment;
}

void apply_tuning(const std::string& path, bool accept, const Pattern& pattern,
                  PipelineOptions& pipeline) {
  const tune::Record record = tune::record_from_json(read_text(path), path);
  tune::Environment here = environment_of(pattern, pipeline.problem, pipeline.target,
                                          pipeline.assembler ? pipeline.assembler->identity() : "");
  // What takes no part here cannot differ.
  if (!pipeline.assembler)
    here.assembler = record.environment.assembler;
  here.gpu = record.environment.gpu;
  here.driver = record.environment.driver;
  if (const std::unique_ptr<cuda::Context> gpu = find_gpu()) {
    here.gpu = gpu->properties().name;
    here.driver = static_cast<uint32_t>(gpu->driver().version());
  }
  const std::vector<std::string> found = tune::differences(record.environment, here);
  if (!found.empty() && !accept)
    throw UserError(Place{path, 0, 0, {}},
                    fmt::format("this tuning record was made for something else:\n  {}",
                                fmt::join(found, "\n  ")),
                    "sparsertc tune makes one for this; --tuning-mismatch=accept uses it all the "
                    "same");
  for (const std::string& difference : found)
    fmt::print(stderr, "remark: {}: {}\n", path, difference);
  pipeline.tile = parse_tile_choice(record.tile);
  pipeline.max_registers = record.registers;
}

} // namespace sparsertc
