#include "tools/tuning.h"

#include "compiler/manifest.h"
#include "ir/error.h"
#include "runtime/tune/candidate.h"
#include "tools/gpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
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

/// The records of a folder in the order of their names; other files are passed over.
std::vector<tune::Record> read_records(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end;
       at.increment(failed))
    if (at->path().extension() == ".json")
      paths.push_back(at->path());
  if (failed)
    throw UserError(Place{folder, 0, 0, {}}, "cannot be read: " + failed.message());
  std::sort(paths.begin(), paths.end());
  std::vector<tune::Record> records;
  for (const std::filesystem::path& path : paths) {
    const std::string text = read_text(path.string());
    if (tune::is_record(text))
      records.push_back(tune::record_from_json(text, path.string()));
  }
  return records;
}

/// The environment of this compilation, as far as it takes part: what does not is the record's.
tune::Environment environment_here(const Matrix& weights, const PipelineOptions& pipeline) {
  SpmmProblem problem = pipeline.problem;
  const Matrix matrix = as_matrix(weights, problem);
  tune::Environment here = environment_of(matrix.pattern, problem, pipeline.target,
                                          pipeline.assembler ? pipeline.assembler->identity() : "");
  if (const std::unique_ptr<cuda::Context> gpu = find_gpu()) {
    here.gpu = gpu->properties().name;
    here.driver = static_cast<uint32_t>(gpu->driver().version());
  }
  return here;
}
tune::Environment without_what_takes_no_part(tune::Environment record,
                                             const tune::Environment& here) {
  if (here.assembler.empty())
    record.assembler.clear();
  if (here.gpu.empty()) {
    record.gpu.clear();
    record.driver = 0;
  }
  if (here.n == 0) // code for every n; the record says which one was measured
    record.n = 0;
  return record;
}

} // namespace

Matrix as_matrix(Matrix weights, SpmmProblem& problem) {
  if (!problem.convolution)
    return weights;
  weights = filters_as_matrix(std::move(weights), *problem.convolution);
  weights.source_shape.clear();
  problem.convolution->groups = 1;
  problem.convolution->taps = TapOrder::crs;
  return weights;
}

tune::Environment environment_of(const Pattern& pattern, const SpmmProblem& problem,
                                 const Target& target, const std::string& assembler) {
  tune::Environment environment;
  environment.target = target.name;
  environment.sparsertc = sparsertc_version();
  environment.assembler = assembler;
  environment.pattern_digest = pattern_digest(pattern);
  environment.nnz = pattern.nnz();
  environment.m = pattern.rows;
  environment.k = pattern.columns;
  environment.n = problem.columns.value_or(0);
  environment.dtype = name_of(problem.type);
  const bool row_major = problem.layout == Layout::row_major;
  const auto& conv = problem.convolution;
  if (conv)
    check_convolution(*conv);
  // `pixels`: of an image.
  const auto unless_tight = [&](uint64_t leading, uint64_t rows, uint64_t pixels) {
    const uint64_t tight = !row_major ? rows : conv ? rows * pixels : environment.n;
    return leading == std::max<uint64_t>(tight, 1) ? 0 : leading;
  };
  tune::LayerOptions options;
  options.layout = layout_word(problem);
  options.ldb = unless_tight(problem.ldb, conv ? conv->channels : pattern.columns,
                             conv ? conv->in_pixels() : 0);
  options.ldc = unless_tight(problem.ldc, pattern.rows, conv ? conv->out_pixels() : 0);
  options.convolution = conv ? to_string(*conv) : std::string();
  options.bias = problem.epilogue.bias;
  options.residual = problem.epilogue.residual;
  options.activation = name_of(problem.epilogue.activation);
  options.half_terms = problem.half_terms;
  if (problem.precision != Precision::full)
    options.precision = name_of(problem.precision);
  if (problem.nonfinite != Nonfinite::exact)
    options.nonfinite = name_of(problem.nonfinite);
  options.dynamic_columns = !problem.columns;
  environment.options = to_string(options);
  return environment;
}

void apply_tuning(const std::string& path, TuningMismatch mismatch, const Matrix& weights,
                  PipelineOptions& pipeline) {
  const tune::Environment here = environment_here(weights, pipeline);
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  std::vector<tune::Record> records;
  if (is_folder)
    records = read_records(path);
  else
    records.push_back(tune::record_from_json(read_text(path), path));
  for (tune::Record& record : records)
    record.environment = without_what_takes_no_part(record.environment, here);

  const bool similar = mismatch != TuningMismatch::refuse;
  const tune::Record* found = tune::find_record(records, here, similar);
  if (found == nullptr && is_folder)
    throw UserError(
        Place{path, 0, 0, {}},
        fmt::format("none of the {} tuning records here was made for this", records.size()),
        similar ? "sparsertc tune makes one"
                : "sparsertc tune makes one; --tuning-mismatch=similar also takes that "
                  "of a layer of the same shape and density");
  if (found == nullptr && mismatch == TuningMismatch::accept)
    found = &records.front();
  const tune::Record& record = found ? *found : records.front();
  const std::vector<std::string> differences = tune::differences(record.environment, here);
  if (found == nullptr)
    throw UserError(Place{path, 0, 0, {}},
                    fmt::format("this tuning record was made for something else:\n  {}",
                                fmt::join(differences, "\n  ")),
                    "sparsertc tune makes one for this; --tuning-mismatch=similar takes that of a "
                    "layer of the same shape and density, =accept any");
  for (const std::string& difference : differences)
    fmt::print(stderr, "remark: {}: {}\n", path, difference);
  pipeline.tile = parse_tile_choice(record.tile);
  pipeline.max_registers = record.registers;
}

} // namespace sparsertc
