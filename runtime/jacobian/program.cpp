#include "runtime/jacobian/program.h"

#include "runtime/jacobian/shared_terms.h"
#include "runtime/kernels/kernel_sources.h"

#include <fmt/format.h>

#include <string_view>

namespace sparsertc::jacobian {
namespace {

/// A file's name as a string literal.
std::string quoted(std::string_view name) {
  std::string text = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\')
      text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text + '"';
}

std::string headed(std::string_view name) {
  return fmt::format("#line 1 \"sparsertc/{}\"\n{}", name, kernels::kernel_source(name));
}

/// What the program is told about reads of rows or terms (residual_reads.cuh).
std::string reads_text(std::string_view of, const ReadsShape& shape) {
  return fmt::format("#define SPARSERTC_{0}_INTEGERS {1}\n#define SPARSERTC_{0}_WORDS {2}\n"
                     "#define SPARSERTC_{0}_UNKNOWNS {3}ull\n"
                     "#define SPARSERTC_{0}_NUMBERS {4}ull\n",
                     of, shape.integers, shape.words, shape.unknowns, shape.numbers);
}

} // namespace

std::string local_entry(uint32_t width) {
  return fmt::format("sparsertc_local_{}", width);
}

std::string coloured_entry(uint32_t width) {
  return fmt::format("sparsertc_coloured_{}", width);
}

std::string terms_entry(const TermTasks& tasks) {
  return fmt::format("sparsertc_terms_{}_{}", tasks.outer, tasks.inner);
}

std::vector<ProgramEntry> inspection_entries(bool read_log) {
  std::vector<ProgramEntry> entries = {{"sparsertc_form", "FormCall"},
                                       {"sparsertc_residual", "ResidualCall"},
                                       {"sparsertc_reads", "ReadsCall"},
                                       {"sparsertc_row_sets", "RowSetsCall"},
                                       {"sparsertc_whole_sets", "WholeSetsCall"}};
  if (read_log)
    entries.push_back({kReadLogEntry, "ReadLogCall"});
  return entries;
}

std::vector<ProgramEntry> evaluation_entries(const JacobianTables& tables, bool with_write,
                                             const std::optional<ReadAheadShape>& read_ahead) {
  std::vector<ProgramEntry> entries = {{"sparsertc_residual", "ResidualCall"},
                                       {"sparsertc_product", "ProductCall"}};
  for (const LocalTasks& tasks : tables.local)
    entries.push_back({local_entry(tasks.width), fmt::format("LocalCall<{}>", tasks.width)});
  if (read_ahead)
    entries.push_back({terms_entry(tables.terms),
                       fmt::format("ReadAheadCall<{}, {}, {}, {}>", read_ahead->outer,
                                   read_ahead->inner, read_ahead->often, read_ahead->rounds)});
  else if (tables.terms.count() > 0)
    entries.push_back({terms_entry(tables.terms),
                       fmt::format("{}TermsCall<{}, {}>", by_lanes(tables.terms) ? "Shared" : "",
                                   tables.terms.outer, tables.terms.inner)});
  if (tables.coloured.count() > 0)
    entries.push_back({coloured_entry(tables.coloured.width),
                       fmt::format("ColouredCall<{}>", tables.coloured.width)});
  if (with_write)
    entries.push_back({kWriteEntry, "WriteCall"});
  return entries;
}

std::string make_program(const ResidualSource& source, const ParameterSet& parameters,
                         const ProgramOptions& options) {
  line_of_residual(source); // there is one
  std::string text = fmt::format(
      "#define SPARSERTC_REAL {}\n"
      "#define SPARSERTC_VALUE {}\n"
      "#define SPARSERTC_BATCH {:d}\n"
      "#define SPARSERTC_CHECKED {:d}\n"
      "#define SPARSERTC_LOOP_LIMIT {}u\n"
      "#define SPARSERTC_SHARED {:d}\n"
      "#define SPARSERTC_READS {}\n"
      "#define SPARSERTC_KEPT {}\n",
      options.f32 ? "float" : "double", options.f32 || options.f32_values ? "float" : "double",
      options.batch, options.checked, options.loop_limit > 0 ? options.loop_limit : UINT32_MAX,
      options.shared,
      options.read_ahead ? 2
      : options.read_log ? 1
                         : 0,
      kMostKeptNumbersOfCpu);
  if (options.read_ahead) {
    text +=
        reads_text("ROW", options.read_ahead->row) + reads_text("TERM", options.read_ahead->term);
    text += fmt::format("#define SPARSERTC_TERMS {}\n", options.read_ahead->terms);
  }
  for (const std::string_view header :
       {"residual_prelude.cuh", "dual.cuh", "dual_math.cuh", "residual_numbers.cuh",
        "residual_tangents.cuh", "residual_reads.cuh", "residual_sums.cuh", "residual_types.cuh"})
    text += headed(header);
  text += "#line 1 \"sparsertc/parameters\"\n" + parameter_types(parameters);
  text += "using sparsertc::Row;\nusing sparsertc::Unknowns;\nusing sparsertc::Residuals;\n"
          "using sparsertc::Parameters;\nusing sparsertc::value_of;\nusing sparsertc::sum_over;\n";
  text += fmt::format("#line 1 {}\n{}\n", quoted(source.name),
                      options.loop_limit > 0 ? limit_loops(source) : source.text);
  text += headed("residual_kernels.cuh");
  if (options.read_ahead)
    text += headed("residual_read_ahead.cuh");
  else if (options.shared)
    text += headed("residual_shared_terms.cuh");
  text += "#line 1 \"sparsertc/entries\"\nnamespace sparsertc {\n";
  for (const ProgramEntry& entry : options.entries)
    text += fmt::format("SPARSERTC_ENTRY({}, {})\n", entry.name, entry.call);
  return text + "} // namespace sparsertc\n";
}

} // namespace sparsertc::jacobian
