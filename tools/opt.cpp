// sparsertc opt: IR text in, passes, IR text or code out.
#include "compiler/emit/llvm.h"
#include "compiler/emit/ptx.h"
#include "compiler/input/bytes.h"
#include "compiler/transform/describe_placement.h"
#include "compiler/transform/pass.h"
#include "ir/error.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/session.h"
#include "tools/verify_expected.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

namespace sparsertc {
namespace {

struct OptOptions {
  std::string input;
  std::string output = "-";
  std::vector<std::string> passes;
  std::string emit;
  std::string target = "sm_90";
  std::string road = "direct";
  bool annotate = false;
  bool verify_expected = false;
  bool dump_placement = false;
};

const std::vector<std::string> kArtefacts = {"ir", "ptx", "llvm", "host"};
const std::vector<std::string> kSuffixes = {".sir", ".ptx", ".ll", ".o"};

/// A word of kArtefacts: what the user says, or what the output's suffix says, or IR.
std::string artefact_word(const OptOptions& options) {
  if (!options.emit.empty())
    return kArtefacts[choose_word("--emit", options.emit, kArtefacts)];
  for (size_t i = 0; i < kSuffixes.size(); ++i)
    if (options.output.ends_with(kSuffixes[i]))
      return kArtefacts[i];
  return "ir";
}

int opt(const OptOptions& options) {
  const std::vector<uint8_t> bytes = read_bytes(options.input);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string file = options.input == "-" ? kStandardInputName : options.input;
  if (options.verify_expected) {
    const std::string report = check_expected_errors(text, file);
    fmt::print(stderr, "{}", report);
    return report.empty() ? 0 : 1;
  }

  const std::string artefact = artefact_word(options);
  const bool through_llvm = choose_word("--road", options.road, {"direct", "llvm"}) == 1;
  std::vector<Pass> passes;
  for (const std::string& word : options.passes)
    passes.push_back(find_pass(word));

  ir::SourceMap map;
  ir::Module module = ir::parse(text, file, &map);
  ir::verify_or_throw(module, "parsing", &map);
  for (const Pass& pass : passes) {
    stop_if_interrupted();
    pass.run(module);
    ir::verify_or_throw(module, "pass " + pass.name);
  }

  if (options.dump_placement)
    fmt::print(stderr, "{}", describe_placement(module));
  if (artefact == "ir") {
    write_text(options.output, ir::print(module));
    return 0;
  }
  const Target target = artefact == "host" ? find_target("host") : resolve_target(options.target);
  if (artefact == "llvm") {
    write_text(options.output, emit_llvm_ir(module, target));
  } else if (artefact == "host") {
    write_bytes(options.output, emit_host_object(module, target));
  } else {
    if (target.is_host)
      throw UsageError("PTX is made for a GPU target, not for 'host'",
                       "use --target=sm_90, or --emit=llvm or --emit=host for the host");
    const PtxOptions ptx{.annotate = options.annotate};
    write_text(options.output, through_llvm ? emit_ptx_through_llvm(module, target)
                                            : emit_ptx(module, target, ptx));
  }
  return 0;
}

} // namespace

Command add_opt_command(CLI::App& application) {
  auto options = std::make_shared<OptOptions>();
  CLI::App* parser =
      application.add_subcommand("opt", "Verify IR text, run passes on it, print IR or code");
  parser->add_option("input", options->input, "IR text (.sir); - is standard input")->required();
  parser->add_option("-o,--output", options->output, "Where the result goes; - is standard output")
      ->capture_default_str();
  parser
      ->add_option("--pass", options->passes,
                   fmt::format("Passes in the order in which they run:\n{}",
                               fmt::join(describe_passes(), "\n")))
      ->delimiter(',');
  parser->add_option("--emit", options->emit,
                     "ir, ptx, llvm or host; else the output's suffix says: .sir .ptx .ll .o; else "
                     "ir");
  parser->add_option("--target", options->target, "What ptx and llvm are made for")
      ->capture_default_str();
  parser
      ->add_option("--road", options->road,
                   "How IR becomes PTX: direct (printed) or llvm (through its optimiser)")
      ->capture_default_str();
  parser->add_flag("--annotate", options->annotate,
                   "Comments in the PTX that say which entry an operation comes from");
  parser->add_flag("--dump-placement", options->dump_placement,
                   "Print on standard error where each buffer of the host functions lives, each "
                   "copy, and the most memory in use");
  parser->add_flag("--verify-expected", options->verify_expected,
                   "Print nothing but compare the errors with the comments `// expected-error: "
                   "TEXT` on their lines");
  parser->footer("Examples:\n"
                 "  sparsertc opt layer.sir\n"
                 "  sparsertc opt layer.sir --pass=schedule-loads=4,place-weights -o layer.ptx\n"
                 "  sparsertc opt program.sir --pass=place --dump-placement\n"
                 "  sparsertc opt layer.sir --emit=llvm --target=host\n"
                 "  sparsertc opt wrong.sir --verify-expected");
  return {parser, [options] { return opt(*options); }};
}

} // namespace sparsertc
