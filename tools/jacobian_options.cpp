#include "tools/jacobian_options.h"

#include "compiler/input/read.h"
#include "ir/error.h"
#include "tools/colouring_words.h"
#include "tools/jacobian_input.h"

#include <array>
#include <fmt/format.h>

#include <charconv>

namespace sparsertc {

void declare(CLI::App& parser, JacobianOptions& options) {
  parser.add_option("F", options.residual, "The residual, CUDA C++ (runtime/jacobian/README.md)")
      ->required();
  parser.add_option("--x0", options.x0, "The unknowns to evaluate at, a vector in any format");
  parser.add_option("-n,--n", options.n, "Instead of --x0: so many unknowns, all 1");
  parser.add_option("--parameters", options.parameters,
                    "Arrays that the residual reads as p.NAME[k]: .npz, or a JSON object");
  parser.add_option("--varying", options.varying,
                    "Parameters whose last dimension is the instances of a batch");
  parser.add_option("--instances", options.instances, "Systems of a batch")->capture_default_str();
  parser.add_option("--pattern", options.pattern,
                    "The Jacobian's pattern, a sparse matrix of any format, instead of finding it");
  parser.add_flag("--compare-patterns", options.compare_patterns,
                  "Find the pattern, too, and compare it with --pattern");
  parser
      .add_option("--points", options.points,
                  "Look for the pattern at the start and at so many points around it, less one")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  parser.add_option("--seed", options.seed, "Of those points, and of the vector of the probe")
      ->capture_default_str();
  parser.add_option("--dtype", options.dtype, "f64 or f32: the numbers T")->capture_default_str();
  parser
      .add_option("--compression", options.compression,
                  "local (each row's own columns), terms (of the row's sum), coloured, or auto")
      ->capture_default_str();
  parser.add_option("--width", options.width, "Derivatives at once: 1, 2, 4, 8, or auto")
      ->capture_default_str();
  parser
      .add_option(
          "--lanes", options.lanes,
          "Threads of the GPU that share a row's sums: off, auto, or one for each 2, 3, 4, 6, "
          "8, 16 of its entries")
      ->capture_default_str();
  parser.add_option("--order", options.order, kColouringOrderHelp)->capture_default_str();
  parser
      .add_option("--loop-limit", options.loop_limit,
                  "Iterations that one loop of the residual may take; 0: no limit")
      ->capture_default_str();
}

JacobianRequest to_request(const JacobianOptions& options) {
  JacobianRequest request;
  request.f32 = choose_word("--dtype", options.dtype, {"f64", "f32"}) == 1;
  const size_t compression =
      choose_word("--compression", options.compression, {"auto", "local", "terms", "coloured"});
  if (compression > 0)
    request.compression = std::array{JacobianCompression::local, JacobianCompression::terms,
                                     JacobianCompression::coloured}[compression - 1];
  if (const size_t width = choose_word("--width", options.width, {"auto", "1", "2", "4", "8"}))
    request.width = kJacobianWidths[width - 1];
  const size_t lanes =
      choose_word("--lanes", options.lanes, {"auto", "off", "2", "3", "4", "6", "8", "16"});
  if (lanes > 0)
    request.entries_per_lane = lanes == 1 ? 0 : kEntriesPerLane[lanes - 2];
  request.order = choose_colouring_order(options.order);
  if (options.x0.empty() && options.n == 0)
    throw UsageError("how many unknowns are there?", "give --x0 X.npy, or --n N");
  if (!options.x0.empty() && options.n != 0)
    throw UsageError("--x0 and --n exclude each other", "x0 says how many unknowns there are");
  if (options.compare_patterns && options.pattern.empty())
    throw UsageError("--compare-patterns: there is no --pattern to compare with");
  if (options.instances == 0)
    throw UsageError("--instances: expected at least 1");
  request.source = read_residual(options.residual);
  request.instances = options.instances;
  request.parameters = read_parameters(options.parameters, options.varying, options.instances);
  request.x0 =
      options.x0.empty() ? std::vector<double>(options.n, 1.0) : read_start_vector(options.x0);
  if (!options.pattern.empty())
    request.pattern = read_matrix(options.pattern).pattern;
  request.compare_patterns = options.compare_patterns;
  request.points = options.points;
  request.seed = options.seed;
  request.loop_limit = options.loop_limit;
  return request;
}

} // namespace sparsertc
