// sparsertc execute: places a program of the IR and runs it, on the CPU or on the GPU.
#include "compiler/emit/ptx.h"
#include "compiler/emit/target.h"
#include "compiler/input/bytes.h"
#include "compiler/transform/describe_placement.h"
#include "compiler/transform/pass.h"
#include "ir/error.h"
#include "ir/operands.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "runtime/program/executor.h"
#include "runtime/program/gpu_device.h"
#include "tools/command.h"
#include "tools/gpu_device.h"
#include "tools/options.h"
#include "tools/program_data.h"
#include "tools/program_on_host.h"
#include "tools/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sparsertc {
namespace {

struct ExecuteOptions {
  std::string input;
  std::string function;
  std::vector<std::string> buffers, values, outputs;
  std::string device = "auto";
  std::string record = "loops";
  bool dump_placement = false;
  bool print_timing = false;
  JobOptions jobs;
};

/// The named host function, or the only one that nothing calls.
uint32_t choose_function(const ir::Module& module, const std::string& name) {
  std::vector<bool> called(module.functions.size());
  for (const ir::Function& function : module.functions)
    for (const ir::Op& op : function.ops)
      for (const uint32_t callee : ir::callees(function, op))
        called[callee] = true;
  std::vector<uint32_t> candidates;
  std::vector<std::string> names;
  for (uint32_t f = 0; f < module.functions.size(); ++f)
    if (const ir::Function& function = module.functions[f];
        function.kind == ir::FunctionKind::host && !function.external) {
      names.push_back(function.name);
      if (function.name == name)
        return f;
      if (!called[f])
        candidates.push_back(f);
    }
  if (!name.empty() && !names.empty())
    choose_word("--function", name, names);
  if (names.empty() || !name.empty())
    throw UserError("the file has no host function to execute");
  if (candidates.size() != 1)
    throw UsageError(
        fmt::format("{} host functions are called by no other", candidates.size()),
        fmt::format("--function=NAME says which one to execute: {}", fmt::join(names, ", ")));
  return candidates.front();
}

/// Device memory for arrays that the program wants there.
class DeviceArrays {
public:
  DeviceArrays(program::Device& device, const ir::Function& function, ProgramData& data)
      : device_(device) {
    for (ProgramArray& array : data.arrays) {
      if (function.register_type[array.parameter].space() == ir::Space::host) {
        data.arguments[array.parameter] = reinterpret_cast<uint64_t>(array.bytes.data());
        continue;
      }
      const uint64_t address = device.allocate(array.bytes.size());
      arrays_.push_back({&array, address});
      data.arguments[array.parameter] = address;
      if (!array.bytes.empty())
        device.upload(address, array.bytes.data(), array.bytes.size());
    }
  }
  ~DeviceArrays() {
    for (const auto& [array, address] : arrays_)
      device_.free(address, array->bytes.size());
  }
  DeviceArrays(const DeviceArrays&) = delete;
  DeviceArrays& operator=(const DeviceArrays&) = delete;

  void bring_back() const {
    for (const auto& [array, address] : arrays_)
      if (!array->bytes.empty())
        device_.download(array->bytes.data(), address, array->bytes.size());
  }

private:
  program::Device& device_;
  std::vector<std::pair<ProgramArray*, uint64_t>> arrays_;
};

void print_statistics(const ir::Module& module, const program::Executor& executor, double time_us,
                      double prepare_us) {
  uint64_t to_device = 0, to_host = 0;
  for (const program::CopyCount& copy : executor.copies()) {
    const ir::Function& function = module.functions[copy.function];
    const ir::Op& op = function.ops[copy.op];
    fmt::print(stderr, "@{} operation {} copies {} to {}, {} to {}, {} bytes x {}\n", function.name,
               copy.op + 1, ir::print_register(function, ir::Reg{op.operand[1]}),
               ir::print_register(function, ir::Reg{op.operand[0]}), ir::name_of(copy.from),
               ir::name_of(copy.to), copy.bytes / copy.times, copy.times);
    if (copy.from == ir::Space::host && copy.to == ir::Space::device)
      to_device += copy.bytes;
    if (copy.from == ir::Space::device && copy.to == ir::Space::host)
      to_host += copy.bytes;
  }
  fmt::print(stderr, "copied: to the device {} bytes, to the host {} bytes\n", to_device, to_host);
  fmt::print(stderr, "launches: {} one by one, {} of recordings\n", executor.launches(),
             executor.recordings_launched());
  fmt::print(stderr, "{:<15} {:>12.1f} us\n{:<15} {:>12.1f} us\n", "prepare", prepare_us, "execute",
             time_us);
}

int execute(const ExecuteOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  const size_t device_word = choose_word("--device", options.device, {"auto", "cpu", "gpu"});
  const size_t record = choose_word("--record", options.record, {"loops", "sequences", "off"});
  const std::vector<uint8_t> bytes = read_bytes(options.input);
  const std::string file = options.input == "-" ? kStandardInputName : options.input;
  ir::SourceMap map;
  ir::Module module =
      ir::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file, &map);
  ir::verify_or_throw(module, "parsing", &map);
  const std::string name = module.functions[choose_function(module, options.function)].name;
  place_pass().run(module);
  ir::verify_or_throw(module, "pass place");
  if (options.dump_placement)
    fmt::print(stderr, "{}", describe_placement(module));
  const ir::Function& function = module.functions[module.find_function(name)];
  ProgramData data = read_program_data(function, options.buffers, options.values);
  std::vector<std::pair<uint32_t, std::string>> outputs;
  for (const std::string& word : options.outputs) {
    auto output = program_output(function, word);
    for (const auto& [parameter, path] : outputs)
      if (path == output.second)
        throw UsageError(fmt::format("--output: two arrays would be written to {}", path),
                         "give each a file of its own");
    outputs.push_back(std::move(output));
  }

  const Clock::time_point preparing = Clock::now();
  std::unique_ptr<cuda::Context> gpu;
  if (device_word == 0)
    gpu = find_gpu();
  else if (device_word == 2)
    gpu = require_gpu();
  TaskPool pool(options.jobs.jobs);
  std::optional<cuda::Stream> stream;
  std::optional<cuda::Module> code;
  std::unique_ptr<program::GpuDevice> on_gpu;
  std::unique_ptr<ProgramOnHost> on_host;
  program::Executor::Options execution;
  execution.record = record != 2;
  execution.every_round = stop_if_interrupted;
  if (gpu) {
    stream.emplace(*gpu);
    program::GpuBindings bindings;
    if (std::any_of(module.functions.begin(), module.functions.end(),
                    [](const ir::Function& f) { return f.is_kernel(); })) {
      const std::string ptx = emit_ptx(module, find_target(target_of(*gpu)));
      code.emplace(*gpu, std::span(reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()));
      bindings.modules.push_back(&*code);
    }
    on_gpu = std::make_unique<program::GpuDevice>(*gpu, *stream, module, std::move(bindings),
                                                  record == 0);
  } else {
    const StopAtOnce stop;
    on_host = std::make_unique<ProgramOnHost>(module, pool);
    execution.host_code = on_host.get();
  }
  program::Device& device = gpu ? static_cast<program::Device&>(*on_gpu) : *on_host;
  program::Executor executor(module, device, execution);
  const DeviceArrays arrays(device, function, data);
  for (ProgramArray& array : data.arrays)
    if (!array.bytes.empty())
      executor.bind_host(array.bytes.data(), array.bytes.size());
  const double prepare_us = since(preparing);

  const Clock::time_point start = Clock::now();
  {
    std::optional<StopAtOnce> at_once; // machine code for the CPU does not look up in its loops
    if (!gpu)
      at_once.emplace();
    executor.run(name, data.arguments);
    device.synchronize();
  }
  const double time_us = since(start);
  arrays.bring_back();
  for (const auto& [parameter, path] : outputs)
    for (const ProgramArray& array : data.arrays)
      if (array.parameter == parameter)
        write_program_array(function, array, path);
  if (options.print_timing)
    print_statistics(module, executor, time_us, prepare_us);
  return 0;
}

} // namespace

Command add_execute_command(CLI::App& application) {
  auto options = std::make_shared<ExecuteOptions>();
  CLI::App* parser = application.add_subcommand(
      "execute", "Places a program (a host function of IR text) and executes it");
  parser->add_option("input", options->input, "IR text (.sir); - is standard input")->required();
  parser->add_option("--function", options->function,
                     "The host function; else the only one that no other calls");
  parser
      ->add_option("--buffer", options->buffers,
                   "A parameter's array: NAME=FILE.npy, or NAME=zeros:ELEMENTS")
      ->allow_extra_args(false);
  parser->add_option("--value", options->values, "A parameter's number: NAME=NUMBER")
      ->allow_extra_args(false);
  parser
      ->add_option("--output", options->outputs,
                   "Write a parameter's array as it is at the end: NAME=FILE.npy")
      ->allow_extra_args(false);
  parser->add_option("--device", options->device, "cpu, gpu, or auto: the GPU if there is one")
      ->capture_default_str();
  parser
      ->add_option("--record", options->record,
                   "GPU: what is recorded as CUDA graphs: loops, where the driver has conditional "
                   "nodes; sequences; or off")
      ->capture_default_str();
  parser->add_flag(
      "--dump-placement", options->dump_placement,
      "Print on standard error where each buffer lives, each copy, and the most memory "
      "in use");
  parser->add_flag("--print-timing", options->print_timing,
                   "Print on standard error the copies that were made with their bytes, and times");
  declare(*parser, options->jobs);
  parser->footer("Examples:\n"
                 "  sparsertc execute program.sir --buffer=pattern=pattern.npy "
                 "--buffer=result=zeros:128 --output=result=result.npy\n"
                 "  sparsertc execute program.sir --value=n=3 --device=cpu --print-timing");
  return {parser, [options] { return execute(*options); }};
}

} // namespace sparsertc
