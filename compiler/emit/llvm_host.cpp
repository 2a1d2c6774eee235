#include "compiler/emit/llvm_host.h"

#include "ir/error.h"

#include <llvm/IR/IRBuilder.h>

#include <map>
#include <memory>
#include <set>

namespace sparsertc {
namespace {

using Analyses = std::map<uint32_t, std::unique_ptr<LaneAnalysis>>;

void refuse_shared(const ir::Module& module) {
  for (const ir::Symbol& symbol : module.symbols)
    if (symbol.type.space() == ir::Space::shared)
      throw UserError("symbol '" + symbol.name + "' is in shared memory, which the host has not",
                      "take a schedule for the host (--target=host), which avoids barriers, shared "
                      "memory, shuffles and matrix fragments");
}

Analyses analyse(const ir::Module& module, const std::vector<HostFunction>& functions) {
  Analyses analyses;
  for (const HostFunction& wanted : functions)
    if (analyses.count(wanted.lanes) == 0)
      analyses.emplace(wanted.lanes, std::make_unique<LaneAnalysis>(module, wanted.lanes));
  return analyses;
}

/// One block: all groups of lanes, and one lane at a time where a group gives up.
void emit_block_entry(llvm::Module& out, const ir::Function& kernel, llvm::Function* lanes,
                      llvm::Function* single,
                      const std::vector<std::pair<std::string, std::string>>& attributes) {
  llvm::LLVMContext& context = out.getContext();
  llvm::IRBuilder<> builder(context);
  llvm::Type* i32 = builder.getInt32Ty();
  auto* entry = llvm::Function::Create(
      llvm::FunctionType::get(builder.getVoidTy(), {builder.getPtrTy(), i32, i32, i32}, false),
      llvm::GlobalValue::ExternalLinkage, kernel.name, out);
  entry->setDoesNotThrow();
  for (const auto& [key, value] : attributes)
    entry->addFnAttr(key, value);
  builder.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", entry));

  // Counts from 0 to `count`; the body is written by `body`.
  auto loop = [&](uint32_t count, uint32_t step, auto&& body) {
    llvm::BasicBlock* before = builder.GetInsertBlock();
    auto* inside = llvm::BasicBlock::Create(context, "each", entry);
    auto* after = llvm::BasicBlock::Create(context, "done", entry);
    builder.CreateBr(inside);
    builder.SetInsertPoint(inside);
    llvm::PHINode* i = builder.CreatePHI(i32, 2);
    i->addIncoming(builder.getInt32(0), before);
    body(i);
    llvm::Value* next = builder.CreateAdd(i, builder.getInt32(step));
    i->addIncoming(next, builder.GetInsertBlock());
    builder.CreateCondBr(builder.CreateICmpULT(next, builder.getInt32(count)), inside, after);
    builder.SetInsertPoint(after);
  };
  const uint32_t width = lanes_of_kernel(kernel);
  loop(kernel.block[2], 1, [&](llvm::Value* z) {
    loop(kernel.block[1], 1, [&](llvm::Value* y) {
      loop(kernel.block[0], width, [&](llvm::Value* x) {
        llvm::Value* arguments[] = {
            entry->getArg(0), entry->getArg(1), entry->getArg(2), entry->getArg(3), x, y, z};
        llvm::Value* gave_up = builder.CreateCall(lanes, arguments);
        if (width == 1)
          return;
        auto* each_lane = llvm::BasicBlock::Create(context, "lanes", entry);
        auto* after = llvm::BasicBlock::Create(context, "block.done", entry);
        builder.CreateCondBr(builder.CreateICmpNE(gave_up, builder.getInt32(0)), each_lane, after);
        builder.SetInsertPoint(each_lane);
        loop(width, 1, [&](llvm::Value* lane) {
          arguments[4] = builder.CreateAdd(x, lane);
          builder.CreateCall(single, arguments);
        });
        builder.CreateBr(after);
        builder.SetInsertPoint(after);
      });
    });
  });
  builder.CreateRetVoid();
}

} // namespace

std::vector<HostFunction> host_functions(const ir::Module& module, bool one_lane) {
  refuse_shared(module);
  std::set<uint32_t> lanes;
  for (const ir::Function& function : module.functions)
    if (function.is_kernel() && (!one_lane || lanes_of_kernel(function) != 1))
      lanes.insert(one_lane ? 1 : lanes_of_kernel(function));
  std::vector<HostFunction> wanted;
  for (uint32_t count : lanes) {
    // Reached from the kernels with this number of lanes; a walk over the calls.
    std::vector<bool> reached(module.functions.size(), false);
    std::vector<uint32_t> work;
    for (uint32_t f = 0; f < module.functions.size(); ++f) {
      const ir::Function& kernel = module.functions[f];
      if (kernel.is_kernel() && (one_lane || lanes_of_kernel(kernel) == count)) {
        reached[f] = true;
        work.push_back(f);
      }
    }
    while (!work.empty()) {
      const ir::Function& function = module.functions[work.back()];
      work.pop_back();
      for (const ir::Op& op : function.ops)
        for (uint32_t callee : ir::callees(function, op))
          if (!reached[callee]) {
            reached[callee] = true;
            work.push_back(callee);
          }
    }
    for (uint32_t f = 0; f < module.functions.size(); ++f)
      if (reached[f])
        wanted.push_back({f, count});
  }
  return wanted;
}

std::vector<std::vector<uint8_t>> host_objects(const ir::Module& module,
                                               const std::vector<HostFunction>& functions,
                                               const Target& target, unsigned optimisation_level,
                                               TaskPool& pool) {
  const Analyses analyses = analyse(module, functions);
  const std::vector<bool> special = functions_using_special(module);
  // Pieces large enough that a module's fixed cost does not count, small enough to share out.
  constexpr size_t kOperations = 4000;
  std::vector<std::pair<size_t, size_t>> pieces;
  size_t first = 0;
  size_t operations = 0;
  for (size_t i = 0; i < functions.size(); ++i) {
    operations += module.functions[functions[i].function].ops.size();
    const bool next_differs =
        i + 1 == functions.size() || functions[i + 1].lanes != functions[i].lanes;
    if (operations >= kOperations || next_differs) {
      pieces.emplace_back(first, i + 1);
      first = i + 1;
      operations = 0;
    }
  }
  std::vector<std::vector<uint8_t>> objects(pieces.size());
  pool.run(pieces.size(), [&](uint64_t piece) {
    LlvmBackend backend(target, optimisation_level);
    LlvmModuleEmitter::Settings settings = backend.settings();
    settings.define_symbols = false;
    settings.external = true;
    std::unique_ptr<llvm::Module> out = backend.make_module("sparsertc");
    LlvmModuleEmitter emitter(*out, module, *analyses.at(functions[pieces[piece].first].lanes),
                              special, settings);
    for (size_t i = pieces[piece].first; i < pieces[piece].second; ++i)
      emitter.define(functions[i].function);
    backend.optimise(*out);
    objects[piece] = backend.object(*out);
  });
  return objects;
}

std::unique_ptr<llvm::Module> whole_host_module(const ir::Module& module, LlvmBackend& backend) {
  std::vector<HostFunction> functions = host_functions(module, false);
  for (const HostFunction& single : host_functions(module, true)) {
    bool there = false;
    for (const HostFunction& known : functions)
      there = there || (known.function == single.function && known.lanes == 1);
    if (!there)
      functions.push_back(single);
  }
  const Analyses analyses = analyse(module, functions);
  const std::vector<bool> special = functions_using_special(module);
  const LlvmModuleEmitter::Settings settings = backend.settings();
  std::unique_ptr<llvm::Module> out = backend.make_module("sparsertc");
  std::map<uint32_t, std::unique_ptr<LlvmModuleEmitter>> emitters;
  for (const auto& [lanes, analysis] : analyses)
    emitters.emplace(
        lanes, std::make_unique<LlvmModuleEmitter>(*out, module, *analysis, special, settings));
  for (const HostFunction& wanted : functions)
    emitters.at(wanted.lanes)->define(wanted.function);
  for (uint32_t f = 0; f < module.functions.size(); ++f) {
    const ir::Function& kernel = module.functions[f];
    if (!kernel.is_kernel())
      continue;
    const uint32_t lanes = lanes_of_kernel(kernel);
    emit_block_entry(*out, kernel, emitters.at(lanes)->declare(f),
                     lanes == 1 ? nullptr : emitters.at(1)->declare(f), settings.attributes);
  }
  return out;
}

} // namespace sparsertc
