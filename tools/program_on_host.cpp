#include "tools/program_on_host.h"

#include "compiler/transform/host_entries.h"
#include "ir/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include <unistd.h>

namespace sparsertc {
namespace {

constexpr std::align_val_t kAlignment{256};

void* pointer(uint64_t address) {
  return reinterpret_cast<void*>(address);
}

uint64_t physical_memory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

} // namespace

ProgramOnHost::ProgramOnHost(const ir::Module& module, TaskPool& pool)
    : module_(module), pool_(pool) {
  for (const ir::Function& function : module.functions)
    if (function.external)
      throw UserError(fmt::format("@{} is external: its code is not in the program", function.name),
                      "execute the program by what knows the function");
  HostEntries entries = make_host_entries(module);
  entries_ = std::move(entries.names);
  code_ = HostProgram::compile(entries.module);
}

void ProgramOnHost::run_kernel(const std::string& name, const uint32_t (&grid)[3],
                               std::span<const program::Bits> arguments) const {
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0)
    return;
  std::vector<KernelArgument> list(arguments.size());
  for (size_t i = 0; i < list.size(); ++i)
    list[i].integer = static_cast<int64_t>(arguments[i]);
  code_->run(name, grid, list, pool_);
}

void ProgramOnHost::launch(uint32_t kernel, const uint32_t (&grid)[3],
                           std::span<const program::Bits> arguments) {
  run_kernel(module_.functions[kernel].name, grid, arguments);
}

bool ProgramOnHost::run(uint32_t function, std::span<const program::Bits> arguments) {
  const auto found = entries_.find(function);
  if (found == entries_.end())
    return false;
  run_kernel(found->second, {1, 1, 1}, arguments);
  return true;
}

void ProgramOnHost::call(uint32_t function, std::span<const program::Bits>) {
  throw InternalError(
      fmt::format("the CPU has no external function @{}", module_.functions[function].name));
}

void ProgramOnHost::copy(uint64_t to, uint64_t from, uint64_t bytes) {
  std::memmove(pointer(to), pointer(from), bytes);
}

uint64_t ProgramOnHost::allocate(uint64_t bytes) {
  if (bytes == 0)
    return 0;
  // The system hands out more than it has, and ends the process that touches it.
  const uint64_t most = physical_memory();
  if (bytes > most - std::min(most, allocated_))
    throw UserError(fmt::format("buffers of {} bytes beside {} that are in use are more than the "
                                "machine's memory, {} bytes",
                                bytes, allocated_, most),
                    "smaller buffers, or free those that are not needed");
  const auto address = reinterpret_cast<uint64_t>(::operator new(bytes, kAlignment));
  allocated_ += bytes;
  return address;
}

void ProgramOnHost::free(uint64_t address, uint64_t bytes) {
  ::operator delete(pointer(address), kAlignment);
  if (address != 0)
    allocated_ -= bytes;
}

void ProgramOnHost::upload(uint64_t to, const void* from, uint64_t bytes) {
  std::memcpy(pointer(to), from, bytes);
}

void ProgramOnHost::download(void* to, uint64_t from, uint64_t bytes) {
  std::memcpy(to, pointer(from), bytes);
}

} // namespace sparsertc
