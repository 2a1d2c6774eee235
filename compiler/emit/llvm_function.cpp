#include "compiler/emit/llvm_function.h"

#include "compiler/emit/llvm_body.h"
#include "ir/error.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>

#include <fmt/format.h>

namespace sparsertc {

using ir::Scalar;
using ir::Space;

std::string host_function_name(const std::string& name, uint32_t lanes) {
  return fmt::format("{}${}", name, lanes);
}

llvm::Type* LlvmModuleEmitter::pointer_type(Space space) const {
  unsigned number = 0; // of NVPTX
  if (settings_.gpu) {
    switch (space) {
    case Space::device:
      number = 1;
      break;
    case Space::shared:
      number = 3;
      break;
    case Space::constant:
      number = 4;
      break;
    case Space::cluster:
      number = 7;
      break;
    default:
      break;
    }
  }
  return llvm::PointerType::get(out_.getContext(), number);
}

llvm::Type* LlvmModuleEmitter::register_type(ir::Type type, LaneShape shape) const {
  llvm::IRBuilder<> builder(out_.getContext());
  llvm::Type* scalar = type.is_pointer()
                           ? pointer_type(type.space())
                           : LlvmValues(builder, settings_.gpu, false).scalar_type(type.element());
  if (shape.is_varying())
    return llvm::FixedVectorType::get(scalar, lanes_.lanes());
  return scalar;
}

llvm::Function* LlvmModuleEmitter::declare(uint32_t index) {
  const ir::Function& function = module_.functions[index];
  const bool kernel = function.kind == ir::FunctionKind::kernel;
  const std::string name =
      settings_.gpu ? function.name : host_function_name(function.name, lanes_.lanes());
  if (llvm::Function* known = out_.getFunction(name))
    return known;

  llvm::LLVMContext& context = out_.getContext();
  llvm::Type* i32 = llvm::Type::getInt32Ty(context);
  llvm::Type* result = llvm::Type::getVoidTy(context);
  std::vector<llvm::Type*> parameters;
  if (kernel && !settings_.gpu) {
    parameters.push_back(llvm::PointerType::get(context, 0));
    result = i32;
  } else {
    for (uint32_t p = 0; p < function.parameter_count; ++p)
      parameters.push_back(register_type(function.register_type[p], lanes_.shape(index, p)));
  }
  if (!settings_.gpu && (kernel || uses_special_[index]))
    parameters.insert(parameters.end(), 6, i32);

  auto* made = llvm::Function::Create(llvm::FunctionType::get(result, parameters, false),
                                      settings_.gpu && !kernel ? llvm::GlobalValue::InternalLinkage
                                                               : llvm::GlobalValue::ExternalLinkage,
                                      name, out_);
  made->setDoesNotThrow();
  if (settings_.gpu) {
    if (kernel) {
      made->setCallingConv(llvm::CallingConv::PTX_Kernel);
      made->addFnAttr("nvvm.maxntid", fmt::format("{},{},{}", function.block[0], function.block[1],
                                                  function.block[2]));
      if (function.has_cluster())
        made->addFnAttr("nvvm.cluster_dim", fmt::format("{},{},{}", function.cluster[0],
                                                        function.cluster[1], function.cluster[2]));
      if (function.max_registers != 0)
        made->addFnAttr("nvvm.maxnreg", std::to_string(function.max_registers));
    } else {
      made->addFnAttr(llvm::Attribute::NoInline);
    }
    made->setConvergent();
    return made;
  }
  made->addFnAttr(llvm::Attribute::NoInline);
  if (!settings_.external)
    made->setLinkage(llvm::GlobalValue::InternalLinkage);
  for (const auto& [key, value] : settings_.attributes)
    made->addFnAttr(key, value);
  return made;
}

void LlvmModuleEmitter::define(uint32_t index) {
  LlvmBody(*this, index, declare(index)).emit();
}

llvm::Constant* LlvmModuleEmitter::symbol(uint32_t index) {
  const ir::Symbol& symbol = module_.symbols[index];
  llvm::LLVMContext& context = out_.getContext();
  llvm::Type* byte = llvm::Type::getInt8Ty(context);
  const unsigned space =
      llvm::cast<llvm::PointerType>(pointer_type(symbol.type.space()))->getAddressSpace();
  const bool shared = symbol.type.space() == Space::shared;
  if (shared && shared_.is_dynamic) {
    // More than a kernel may declare: a part of the array whose size the launch says.
    llvm::GlobalVariable* all = out_.getNamedGlobal(kDynamicShared);
    if (all == nullptr) {
      all = new llvm::GlobalVariable(
          out_, llvm::ArrayType::get(byte, 0), false, llvm::GlobalValue::ExternalLinkage, nullptr,
          llvm::StringRef(kDynamicShared), nullptr, llvm::GlobalValue::NotThreadLocal, space);
      all->setAlignment(llvm::Align(shared_.alignment));
    }
    return llvm::ConstantExpr::getGetElementPtr(
        byte, all, llvm::ConstantInt::get(llvm::Type::getInt64Ty(context), shared_.offset[index]));
  }
  const std::string name = settings_.gpu ? symbol.name : symbol.name + "$data";
  if (llvm::GlobalVariable* known = out_.getNamedGlobal(name))
    return known;
  const uint32_t size = ir::size_in_bytes(symbol.type.element());
  llvm::Type* element = llvm::Type::getIntNTy(context, 8 * size);
  auto* type = llvm::ArrayType::get(element, symbol.count);
  llvm::Constant* values = nullptr;
  if (shared)
    values = llvm::UndefValue::get(type);
  else if (settings_.gpu || settings_.define_symbols)
    values = llvm::ConstantDataArray::getRaw(
        llvm::StringRef(reinterpret_cast<const char*>(symbol.bytes.data()), symbol.bytes.size()),
        symbol.count, element);
  // Whoever loads the code finds by name what is meant to be found.
  const bool is_public = settings_.gpu && symbol.type.space() == Space::device &&
                         symbol.name.starts_with("sparsertc_");
  auto* global =
      new llvm::GlobalVariable(out_, type, !shared,
                               values == nullptr || is_public ? llvm::GlobalValue::ExternalLinkage
                                                              : llvm::GlobalValue::InternalLinkage,
                               values, name, nullptr, llvm::GlobalValue::NotThreadLocal, space);
  global->setAlignment(llvm::Align(symbol.alignment == 0 ? 1 : symbol.alignment));
  // Weights in the constant bank stay there: folding them into the code would undo the choice.
  if (symbol.type.space() == Space::constant && settings_.gpu)
    global->setExternallyInitialized(true);
  return global;
}

} // namespace sparsertc
