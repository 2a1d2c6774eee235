#include "tools/options.h"

#include "ir/error.h"
#include "tools/gpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sparsertc {

// ---- input ------------------------------------------------------------------------------------

void declare(CLI::App& parser, InputOptions& options) {
  parser
      .add_option(
          "IN", options.path,
          "The matrix: .smtx .mtx .npy .npz .safetensors, also with .gz; - is standard input")
      ->required();
  parser.add_option("--tensor", options.tensor, "Which tensor of an .npz or .safetensors file")
      ->group("Input");
  parser
      .add_flag("--list-tensors", options.list_tensors,
                "Only print the tensors of an .npy, .npz or .safetensors file")
      ->group("Input");
  parser
      .add_option("--duplicates", options.duplicates,
                  "Entries given twice in an .mtx file: sum or refuse")
      ->capture_default_str()
      ->group("Input");
  parser
      .add_option("--values", options.values,
                  "random:SEED makes values, in [-1, 1), for files that have none")
      ->group("Input");
}

ReadOptions to_read_options(const InputOptions& options) {
  ReadOptions read;
  read.tensor = options.tensor;
  read.duplicates = choose_word("--duplicates", options.duplicates, {"sum", "refuse"}) == 0
                        ? Duplicates::sum
                        : Duplicates::refuse;
  if (!options.values.empty()) {
    const std::string kind = options.values.substr(0, options.values.find(':'));
    choose_word("--values", kind, {"random"});
    if (kind.size() == options.values.size())
      throw UsageError("--values: a seed is missing", "for example --values=random:1");
    read.random_values_seed = parse_number(
        "--values=random:SEED", std::string_view(options.values).substr(kind.size() + 1));
  }
  return read;
}

void print_tensors(const InputOptions& options) {
  for (const TensorInfo& tensor : list_tensors(options.path, to_read_options(options)))
    fmt::print("{}\t{}\t[{}]\t{} bytes\n", tensor.name.empty() ? "-" : tensor.name, tensor.dtype,
               fmt::join(tensor.shape, ", "), tensor.bytes);
}

// ---- problem ----------------------------------------------------------------------------------

void declare(CLI::App& parser, ProblemOptions& options) {
  parser
      .add_option(
          "--op", options.op,
          "What is computed: spmm, C = epilogue(A * B), or conv2d, the same with the images of "
          "a convolution for B")
      ->capture_default_str()
      ->group("Problem");
  parser
      .add_option(
          "--conv", options.conv,
          "conv2d: the geometry, N=1,H=28,W=28,pad=1,stride=1,dilation=1,groups=1, pairs as "
          "pad=1x2 (height x width), also pad_top=, pad_bottom=, pad_left=, pad_right=; N may "
          "be dynamic; R=, S= and taps=crs|rsc for flattened filters")
      ->group("Problem");
  parser
      .add_option("-n,--columns", options.columns,
                  "Columns of B and C: a number, or dynamic (given at launch); conv2d: images")
      ->capture_default_str()
      ->group("Problem");
  parser
      .add_option("--dtype", options.type,
                  "Type of A, B and C: f32, f16, bf16 (both summed in f32) or f64")
      ->capture_default_str()
      ->group("Problem");
  parser
      .add_option(
          "--layout", options.layout,
          "Of B, C and the residual in memory: row (the default) or column (major); conv2d: nchw "
          "(the default) or nhwc; in files rows come first, and images are N x C x H x W")
      ->group("Problem");
  parser
      .add_option(
          "--ldb", options.ldb,
          "Leading dimension of B in elements (conv2d: from image to image for nchw, from pixel "
          "to pixel for nhwc); 0: tight")
      ->capture_default_str()
      ->group("Problem");
  parser
      .add_option("--ldc", options.ldc,
                  "Leading dimension of C and the residual in elements; 0: tight")
      ->capture_default_str()
      ->group("Problem");
  parser.add_flag("--bias", options.bias, "Add bias[row] to every element")->group("Problem");
  parser.add_flag("--residual", options.residual, "Add a matrix of C's shape")->group("Problem");
  parser
      .add_option("--activation", options.activation,
                  "Applied last: none, relu, gelu (the erf form) or silu")
      ->capture_default_str()
      ->group("Problem");
  parser
      .add_option("--half-terms", options.half_terms,
                  "f16 and bf16: sum this many products in the half type before they are added in "
                  "f32; 0: all in f32")
      ->capture_default_str()
      ->group("Problem");
  parser
      .add_option("--precision", options.precision,
                  "f32: full, or tf32, which also allows strategies that multiply with 10 bits of "
                  "the fraction")
      ->capture_default_str()
      ->group("Problem");
  parser
      .add_option("--nonfinite", options.nonfinite,
                  "exact, or dense, which also allows strategies that multiply padding: NaN and "
                  "infinity in B may then reach rows of C without an entry there")
      ->capture_default_str()
      ->group("Problem");
}

// ---- schedule ---------------------------------------------------------------------------------

void declare(CLI::App& parser, ScheduleOptions& options) {
  parser
      .add_option(
          "--tile", options.tile,
          "Any of strategy=unrolled|streamed|compressed|panels|bitmap|dense, rows=, vec=, warps=, "
          "groups=, splitk=, cluster=, stage=global|smem, chunk=, prefetch=, weights=imm|const, "
          "border=own|shared, dense=library|own, order=natural|similar, joined by commas; the rest "
          "is chosen")
      ->group("Schedule");
  parser
      .add_option(
          "--budget", options.budget,
          fmt::format("Most multiply-adds in unrolled code, over which the streamed strategy "
                      "is taken; 0: {} for GPUs, {} for the host",
                      kDefaultGpuBudget, kDefaultHostBudget))
      ->capture_default_str()
      ->group("Schedule");
}

Target resolve_target(const std::string& name) {
  if (name == "native") {
    const std::unique_ptr<cuda::Context> gpu = find_gpu();
    if (!gpu)
      throw NoGpuError("--target=native: this machine has no GPU that can be used",
                       fmt::format("name the target: {}", fmt::join(known_targets(), ", ")));
    return find_target(target_of(*gpu));
  }
  std::vector<std::string> known = known_targets();
  known.push_back("native");
  choose_word("--target", name, known);
  return find_target(name);
}

// ---- watching ---------------------------------------------------------------------------------

void declare(CLI::App& parser, WatchOptions& options) {
  parser
      .add_option("--dump-ir-after", options.dump_ir_after,
                  "Print the IR on standard error after this stage (may be repeated)")
      ->expected(1)
      ->take_all()
      ->group("Watching");
  parser
      .add_flag("--print-timing", options.print_timing,
                "Print the time of each stage on standard error")
      ->group("Watching");
  parser
      .add_flag("--verify-each,!--no-verify-each", options.verify_each,
                fmt::format("Verify the IR after each stage (default: {})",
                            options.verify_each ? "on" : "off"))
      ->group("Watching");
  parser.add_flag("-v,--verbose", options.verbose, "Print remarks and decisions on standard error")
      ->group("Watching");
}

void declare(CLI::App& parser, JobOptions& options) {
  parser
      .add_option("--jobs", options.jobs,
                  "Threads and assembler processes at once; 0: one for each core")
      ->check(CLI::Range(0u, 1024u))
      ->capture_default_str();
}

void declare(CLI::App& parser, CacheOptions& options) {
  parser
      .add_option(
          "--cache-dir", options.directory,
          "Where assembled code is kept; else SPARSERTC_CACHE_DIR, XDG_CACHE_HOME/sparsertc "
          "or ~/.cache/sparsertc")
      ->group("Cache");
  parser.add_flag("--no-cache", options.off, "Assemble anew and keep nothing")->group("Cache");
  parser
      .add_option("--cache-limit", options.limit_mib,
                  "MiB the cache may take; what was used least recently goes")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 40))
      ->capture_default_str()
      ->group("Cache");
}

void declare(CLI::App& parser, ReportOptions& options) {
  parser.add_option("--report", options.report, "Form of the report: text or json")
      ->capture_default_str();
}

bool wants_json(const ReportOptions& options) {
  return choose_word("--report", options.report, {"text", "json"}) == 1;
}

} // namespace sparsertc
