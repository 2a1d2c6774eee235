#include "compiler/emit/host_program.h"

#include "compiler/emit/llvm_host.h"
#include "ir/error.h"

#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include <fmt/format.h>

namespace sparsertc {
namespace {

using BlockFunction = uint32_t (*)(const KernelArgument*, uint32_t, uint32_t, uint32_t, uint32_t,
                                   uint32_t, uint32_t);

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using AlignedBytes = std::unique_ptr<uint8_t, Free>;

/// A symbol's bytes where the code finds them, aligned as it says.
AlignedBytes aligned_copy(const ir::Symbol& symbol) {
  size_t alignment = 64;
  while (alignment < symbol.alignment)
    alignment *= 2;
  const size_t size = (symbol.bytes.size() + alignment) / alignment * alignment;
  AlignedBytes copy(static_cast<uint8_t*>(std::aligned_alloc(alignment, size)));
  if (copy == nullptr)
    throw RuntimeError("keeping the array '" + symbol.name + "'",
                       fmt::format("no memory for {} bytes", size));
  if (!symbol.bytes.empty())
    std::memcpy(copy.get(), symbol.bytes.data(), symbol.bytes.size());
  return copy;
}

template <typename T>
T expect(llvm::Expected<T> value, const char* doing) {
  if (!value)
    throw RuntimeError(doing, llvm::toString(value.takeError()));
  return std::move(*value);
}

void expect(llvm::Error error, const char* doing) {
  if (error)
    throw RuntimeError(doing, llvm::toString(std::move(error)));
}

/// Objects linked into this process. Makes no platform's run-time set-up: the code has no
/// constructors and no thread-local variables.
std::unique_ptr<llvm::orc::LLJIT> make_jit() {
  return expect(
      llvm::orc::LLJITBuilder().setPlatformSetUp(llvm::orc::setUpInactivePlatform).create(),
      "starting the just-in-time linker");
}

} // namespace

struct HostProgram::Implementation {
  struct Kernel {
    uint32_t function = 0;
    uint32_t block[3] = {1, 1, 1};
    uint32_t lanes = 1;
    uint32_t parameters = 0;
    BlockFunction run = nullptr;
    BlockFunction single = nullptr; ///< set once `single_once` has run
  };

  ir::Module module; ///< kept for the single lanes; its symbols' bytes are in `data`
  Target target;
  LlvmOptions options;
  std::vector<AlignedBytes> data;
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::map<std::string, Kernel> kernels;
  std::once_flag single_once;

  void add(const std::vector<HostFunction>& functions, TaskPool& pool) {
    for (const std::vector<uint8_t>& object :
         host_objects(module, functions, target, options.optimisation_level, pool))
      expect(jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(
                 llvm::StringRef(reinterpret_cast<const char*>(object.data()), object.size()),
                 "sparsertc")),
             "adding host code");
  }

  BlockFunction find(const std::string& kernel, uint32_t lanes) {
    return expect(jit->lookup(host_function_name(kernel, lanes)), "linking host code")
        .toPtr<BlockFunction>();
  }

  /// Compiles the single lanes at their first use; most programs never need them.
  void need_single() {
    std::call_once(single_once, [&] {
      // Called from a task, so on this thread alone: the pool's threads are at work.
      TaskPool alone(1);
      // What a kernel with blocks of one thread needed at one lane is there already.
      std::vector<HostFunction> wanted = host_functions(module, true);
      std::erase_if(wanted, [&](const HostFunction& f) {
        for (const HostFunction& known : compiled)
          if (known.function == f.function && known.lanes == f.lanes)
            return true;
        return false;
      });
      add(wanted, alone);
      for (auto& [name, kernel] : kernels)
        kernel.single = kernel.lanes == 1 ? kernel.run : find(name, 1);
    });
  }

  std::vector<HostFunction> compiled;
};

HostProgram::HostProgram(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
HostProgram::HostProgram(HostProgram&&) noexcept = default;
HostProgram& HostProgram::operator=(HostProgram&&) noexcept = default;
HostProgram::~HostProgram() = default;

HostProgram HostProgram::compile(const ir::Module& module, const LlvmOptions& options) {
  auto made = std::make_unique<Implementation>();
  made->target = find_target("host");
  made->options = options;
  made->module = module;
  made->compiled = host_functions(module, false);
  { LlvmBackend initialised(made->target, options.optimisation_level); }
  made->jit = make_jit();

  llvm::orc::SymbolMap symbols;
  for (ir::Symbol& symbol : made->module.symbols) {
    made->data.push_back(aligned_copy(symbol));
    symbol.bytes = {};
    symbols[made->jit->mangleAndIntern(symbol.name + "$data")] = {
        llvm::orc::ExecutorAddr::fromPtr(made->data.back().get()), llvm::JITSymbolFlags::Exported};
  }
  expect(made->jit->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols))),
         "binding the arrays of host code");

  TaskPool pool;
  made->add(made->compiled, pool);
  for (uint32_t f = 0; f < module.functions.size(); ++f) {
    const ir::Function& function = module.functions[f];
    if (!function.is_kernel())
      continue;
    Implementation::Kernel kernel;
    kernel.function = f;
    std::copy(std::begin(function.block), std::end(function.block), kernel.block);
    kernel.lanes = lanes_of_kernel(function);
    kernel.parameters = function.parameter_count;
    kernel.run = made->find(function.name, kernel.lanes);
    made->kernels.emplace(function.name, kernel);
  }
  return HostProgram(std::move(made));
}

void HostProgram::run(const std::string& name, const uint32_t (&grid)[3],
                      std::span<const KernelArgument> arguments, TaskPool& pool) const {
  Implementation& program = *implementation_;
  const auto found = program.kernels.find(name);
  if (found == program.kernels.end())
    throw UsageError("the host program has no kernel '" + name + "'");
  const Implementation::Kernel& kernel = found->second;
  if (arguments.size() != kernel.parameters)
    throw UsageError(fmt::format("kernel '{}' takes {} arguments, {} were given", name,
                                 kernel.parameters, arguments.size()));
  const uint64_t blocks = uint64_t{grid[0]} * grid[1] * grid[2];
  const KernelArgument* values = arguments.data();
  // Blocks along y first: they share the columns of B, which then stay in the cache.
  pool.run(blocks, [&](uint64_t block) {
    const auto y = static_cast<uint32_t>(block % grid[1]);
    const auto x = static_cast<uint32_t>(block / grid[1] % grid[0]);
    const auto z = static_cast<uint32_t>(block / grid[0] / grid[1]);
    for (uint32_t tz = 0; tz < kernel.block[2]; ++tz)
      for (uint32_t ty = 0; ty < kernel.block[1]; ++ty)
        for (uint32_t tx = 0; tx < kernel.block[0]; tx += kernel.lanes) {
          if (kernel.run(values, x, y, z, tx, ty, tz) == 0)
            continue;
          program.need_single();
          for (uint32_t lane = 0; lane < kernel.lanes; ++lane)
            kernel.single(values, x, y, z, tx + lane, ty, tz);
        }
  });
}

} // namespace sparsertc
