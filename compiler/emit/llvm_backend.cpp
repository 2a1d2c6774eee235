#include "compiler/emit/llvm_backend.h"

#include "ir/error.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/Scalar/ADCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/IndVarSimplify.h>
#include <llvm/Transforms/Scalar/InstSimplifyPass.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopUnrollPass.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <algorithm>
#include <cctype>
#include <mutex>

namespace sparsertc {
namespace {

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
}

/// Keeps LLVM's errors from inside the code generator, which would be printed and end the process.
class Diagnostics : public llvm::DiagnosticHandler {
public:
  explicit Diagnostics(std::string& errors) : errors_(errors) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error)
      return true;
    llvm::raw_string_ostream stream(errors_);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    info.print(printer);
    return true;
  }

private:
  std::string& errors_;
};

std::string host_features() {
  std::vector<std::string> on;
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    on.push_back((feature.second ? "+" : "-") + feature.first().str());
  std::sort(on.begin(), on.end());
  std::string text;
  for (const std::string& feature : on)
    text += (text.empty() ? "" : ",") + feature;
  return text;
}

bool has_feature(const std::string& features, const std::string& name) {
  return ("," + features + ",").find(",+" + name + ",") != std::string::npos;
}

llvm::CodeGenOptLevel codegen_level(unsigned level) {
  switch (level) {
  case 0:
    return llvm::CodeGenOptLevel::None;
  case 1:
    return llvm::CodeGenOptLevel::Less;
  case 2:
    return llvm::CodeGenOptLevel::Default;
  default:
    return llvm::CodeGenOptLevel::Aggressive;
  }
}

} // namespace

LlvmBackend::LlvmBackend(const Target& target, unsigned optimisation_level)
    : target_(target), level_(optimisation_level), errors_(std::make_unique<std::string>()),
      context_(std::make_unique<llvm::LLVMContext>()) {
  initialise_llvm();
  context_->setDiagnosticHandler(std::make_unique<Diagnostics>(*errors_));
  const llvm::Triple triple(target.is_host ? llvm::sys::getProcessTriple() : "nvptx64-nvidia-cuda");
  std::string why;
  const llvm::Target* known = llvm::TargetRegistry::lookupTarget(triple, why);
  if (known == nullptr)
    throw RuntimeError("looking up LLVM's target " + triple.str(), why);
  if (target.is_host) {
    cpu_ = llvm::sys::getHostCPUName().str();
    features_ = host_features();
  } else {
    cpu_ = target.name;
    std::string digits;
    for (char c : target.ptx_version)
      if (std::isdigit(static_cast<unsigned char>(c)))
        digits += c;
    features_ = "+ptx" + digits;
  }
  // LLVM itself only warns about a name it does not know and then emits for another one.
  const std::unique_ptr<llvm::MCSubtargetInfo> names(known->createMCSubtargetInfo(triple, "", ""));
  if (names == nullptr || !names->isCPUStringValid(cpu_))
    throw UserError("LLVM does not know the processor '" + cpu_ + "'",
                    "print the PTX directly, or name another target");
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  machine_.reset(known->createTargetMachine(triple, cpu_, features_, options, llvm::Reloc::PIC_,
                                            std::nullopt, codegen_level(level_)));
  if (machine_ == nullptr)
    throw RuntimeError("making LLVM's target machine for " + target.name, "LLVM refused");
}

std::unique_ptr<llvm::Module> LlvmBackend::make_module(const std::string& name) {
  auto module = std::make_unique<llvm::Module>(name, *context_);
  module->setTargetTriple(machine_->getTargetTriple());
  module->setDataLayout(machine_->createDataLayout());
  return module;
}

LlvmModuleEmitter::Settings LlvmBackend::settings() const {
  LlvmModuleEmitter::Settings settings;
  settings.gpu = !target_.is_host;
  if (settings.gpu) {
    settings.ordered_metadata =
        target_.ptx_version.size() > 1 && std::stod(target_.ptx_version) >= 8.5;
    return settings;
  }
  settings.native_f16 = has_feature(features_, "avx512fp16") || has_feature(features_, "fullfp16");
  settings.attributes = {{"target-cpu", cpu_}, {"target-features", features_}};
  if (target_.lanes_f32 >= 16) {
    // LLVM prefers half of the width on many processors; streams of multiply-adds want all of it.
    settings.attributes.emplace_back("prefer-vector-width", "512");
    settings.attributes.emplace_back("min-legal-vector-width", "512");
  }
  return settings;
}

void LlvmBackend::optimise(llvm::Module& module) {
#ifndef NDEBUG
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (llvm::verifyModule(module, &stream))
    throw InternalError("LLVM emitter: ill-formed module: " + text);
#endif
  if (level_ == 0)
    return;
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(machine_.get());
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graph, modules);

  // The code comes in SSA form with loops rotated and lanes already vectors: what is left is to
  // share equal subexpressions, tidy the control flow and move what a loop does not change. The
  // standard pipeline's other passes find nothing here and cost most of the time; its InstCombine
  // would move a whole tile's sums into the `if` that stores them, all loads first.
  llvm::FunctionPassManager straight;
  straight.addPass(llvm::EarlyCSEPass(true));
  straight.addPass(llvm::ADCEPass());
  llvm::FunctionPassManager looping;
  looping.addPass(llvm::EarlyCSEPass(true));
  looping.addPass(llvm::SimplifyCFGPass());
  looping.addPass(llvm::InstSimplifyPass());
  if (level_ >= 2) {
    llvm::LoopPassManager in_loop;
    in_loop.addPass(llvm::LICMPass(llvm::LICMOptions()));
    looping.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(in_loop), true));
    llvm::LoopPassManager induction;
    induction.addPass(llvm::IndVarSimplifyPass());
    looping.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(induction), false));
    looping.addPass(llvm::EarlyCSEPass(true));
  }
  if (level_ >= 3)
    looping.addPass(llvm::LoopUnrollPass(llvm::LoopUnrollOptions(3)));
  looping.addPass(llvm::ADCEPass());
  looping.addPass(llvm::SimplifyCFGPass());
  constexpr unsigned kLong = 4000; // instructions from which only the linear passes run
  for (llvm::Function& function : module) {
    if (function.isDeclaration())
      continue;
    if (function.getInstructionCount() > kLong)
      straight.run(function, functions);
    else
      looping.run(function, functions);
  }
}

std::string LlvmBackend::generate(llvm::Module& module, llvm::CodeGenFileType type) {
  llvm::SmallString<0> out;
  llvm::raw_svector_ostream stream(out);
  llvm::legacy::PassManager passes;
  if (machine_->addPassesToEmitFile(passes, stream, nullptr, type))
    throw InternalError("LLVM cannot emit this kind of file for " + target_.name);
  errors_->clear();
  passes.run(module);
  if (!errors_->empty())
    throw InternalError("LLVM's code generator: " + *errors_);
  return std::string(out.begin(), out.end());
}

std::vector<uint8_t> LlvmBackend::object(llvm::Module& module) {
  const std::string bytes = generate(module, llvm::CodeGenFileType::ObjectFile);
  return {bytes.begin(), bytes.end()};
}

std::string LlvmBackend::assembly(llvm::Module& module) {
  return generate(module, llvm::CodeGenFileType::AssemblyFile);
}

} // namespace sparsertc
