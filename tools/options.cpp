#include "tools/options.h"

#include "ir/error.h"
#include "tools/gpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace sparsertc {
namespace {

const std::vector<std::string> kTileWords = {"strategy", "rows",  "vec",   "warps",    "groups",
                                             "splitk",   "stage", "chunk", "prefetch", "weights"};

/// For 64-bit options: CLI11 would read "-1" as the largest number.
const CLI::Validator kNotNegative(
    [](std::string& text) {
      return text.find('-') == std::string::npos
                 ? std::string()
                 : fmt::format("expected a whole number from 0, found \"{}\"", text);
    },
    "");

/// Insertions, deletions, substitutions and swaps of neighbours that turn one word into the other
/// (optimal string alignment).
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> distance(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      const size_t substituted = distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance[i][j] = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, substituted});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
    }
  return distance[a.size()][b.size()];
}

uint64_t parse_number(const std::string& what, std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw UsageError(fmt::format("{}: expected a whole number, found \"{}\"", what, text));
  return number;
}

} // namespace

std::optional<std::string> nearest_word(const std::string& word,
                                        const std::vector<std::string>& known) {
  std::optional<std::string> nearest;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

size_t choose_word(const std::string& what, const std::string& word,
                   const std::vector<std::string>& known) {
  const auto found = std::find(known.begin(), known.end(), word);
  if (found != known.end())
    return static_cast<size_t>(found - known.begin());
  const std::optional<std::string> nearest = nearest_word(word, known);
  throw UsageError(
      fmt::format("{}: unknown word \"{}\"", what, word),
      nearest ? fmt::format("did you mean {}? Known are {}", *nearest, fmt::join(known, ", "))
              : fmt::format("known are {}", fmt::join(known, ", ")));
}

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
  parser.add_option("--op", options.op, "What is computed: spmm, C = epilogue(A * B)")
      ->capture_default_str()
      ->group("Problem");
  parser
      .add_option("-n,--columns", options.columns,
                  "Columns of B and C: a number, or dynamic (given at launch)")
      ->capture_default_str()
      ->group("Problem");
  parser
      .add_option("--dtype", options.type,
                  "Type of A, B and C: f32, f16, bf16 (both summed in f32) or f64")
      ->capture_default_str()
      ->group("Problem");
  parser.add_option("--layout", options.layout, "Of B, C and the residual: row or column (major)")
      ->capture_default_str()
      ->group("Problem");
  parser.add_option("--ldb", options.ldb, "Leading dimension of B in elements; 0: tight")
      ->check(kNotNegative)
      ->capture_default_str()
      ->group("Problem");
  parser
      .add_option("--ldc", options.ldc,
                  "Leading dimension of C and the residual in elements; 0: tight")
      ->check(kNotNegative)
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
}

SpmmProblem to_problem(const ProblemOptions& options) {
  choose_word("--op", options.op, {"spmm"});
  SpmmProblem problem;
  if (options.columns != "dynamic") {
    const uint64_t columns = parse_number("--columns", options.columns);
    if (columns > kMaximumDimension)
      throw UsageError(fmt::format("--columns: {} is too large", columns),
                       fmt::format("at most {}", kMaximumDimension));
    problem.columns = static_cast<uint32_t>(columns);
  }
  constexpr DataType types[] = {DataType::f32, DataType::f16, DataType::bf16, DataType::f64};
  problem.type = types[choose_word("--dtype", options.type, {"f32", "f16", "bf16", "f64"})];
  problem.layout = choose_word("--layout", options.layout, {"row", "column"}) == 0
                       ? Layout::row_major
                       : Layout::column_major;
  problem.ldb = options.ldb;
  problem.ldc = options.ldc;
  problem.epilogue.bias = options.bias;
  problem.epilogue.residual = options.residual;
  constexpr Activation activations[] = {Activation::none, Activation::relu, Activation::gelu,
                                        Activation::silu};
  problem.epilogue.activation = activations[choose_word("--activation", options.activation,
                                                        {"none", "relu", "gelu", "silu"})];
  problem.half_terms = options.half_terms;
  return problem;
}

// ---- schedule ---------------------------------------------------------------------------------

void declare(CLI::App& parser, ScheduleOptions& options) {
  parser
      .add_option("--tile", options.tile,
                  "Any of strategy=unrolled|streamed, rows=, vec=, warps=, groups=, splitk=, "
                  "stage=global|smem, chunk=, prefetch=, weights=imm|const, joined by commas; the "
                  "rest is chosen")
      ->group("Schedule");
  parser
      .add_option(
          "--budget", options.budget,
          fmt::format("Most multiply-adds in unrolled code, over which the streamed strategy "
                      "is taken; 0: {} for GPUs, {} for the host",
                      kDefaultGpuBudget, kDefaultHostBudget))
      ->check(kNotNegative)
      ->capture_default_str()
      ->group("Schedule");
}

SpmmTileChoice to_tile_choice(const ScheduleOptions& options) {
  if (options.tile.empty())
    return {};
  size_t begin = 0;
  while (begin <= options.tile.size()) {
    const size_t end = std::min(options.tile.find(',', begin), options.tile.size());
    const std::string item = options.tile.substr(begin, end - begin);
    choose_word("--tile", item.substr(0, item.find('=')), kTileWords);
    begin = end + 1;
  }
  return parse_tile_choice(options.tile);
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
