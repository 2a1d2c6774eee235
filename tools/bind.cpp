// sparsertc bind: new weights for a bundle, without compiling.
#include "runtime/plan/plan.h"
#include "tools/bundle_weights.h"
#include "tools/command.h"
#include "tools/session.h"

#include <memory>

namespace sparsertc {
namespace {

struct BindOptions {
  std::string bundle;
  std::string values;
  std::string tensor;
  std::string output = "-";
};

int bind(const BindOptions& options) {
  refuse_overwriting(options.output, {options.bundle, options.values});
  // Without a device: the code is changed and not loaded.
  Plan plan(std::make_shared<ExecutionContext>(ExecutionContext::kNoDevice),
            read_bundle(options.bundle), options.bundle);
  const Matrix weights =
      read_bundle_weights(options.values, options.tensor, plan.manifest(), options.bundle);
  plan.bind_values(std::span<const double>(weights.values));
  write_bytes(options.output, serialize(plan.bundle()));
  return 0;
}

} // namespace

Command add_bind_command(CLI::App& application) {
  auto options = std::make_shared<BindOptions>();
  CLI::App* parser = application.add_subcommand(
      "bind", "New weights for a bundle of the same pattern, without compiling");
  parser->add_option("BUNDLE", options->bundle, "Made by `sparsertc compile --bindable`")
      ->required();
  parser
      ->add_option("--values", options->values,
                   "The new weights, with entries at the same places: .mtx .npy .npz .safetensors, "
                   "also with .gz")
      ->required();
  parser->add_option("--tensor", options->tensor, "Which tensor of an .npz or .safetensors file");
  parser
      ->add_option(
          "-o,--output", options->output,
          "Where the new bundle goes; - is standard output. It holds machine code only, no "
          "PTX")
      ->capture_default_str();
  parser->footer("Examples:\n"
                 "  sparsertc compile layer.npy --bindable --target=sm_90 -o layer.srtc\n"
                 "  sparsertc bind layer.srtc --values retrained.npy -o retrained.srtc");
  return {parser, [options] { return bind(*options); }};
}

} // namespace sparsertc
