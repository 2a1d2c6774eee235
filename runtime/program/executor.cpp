#include "runtime/program/executor.h"

#include "ir/error.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "runtime/program/executor_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace sparsertc::program {

using ir::Form;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Space;

std::string place(const ir::Module& module, const Function& function, uint32_t at) {
  return fmt::format("@{}, operation {}, `{}`", function.name, at + 1,
                     ir::print_op(module, function, function.ops[at]));
}

Executor::Executor(const ir::Module& module, Device& device, Options options)
    : module_(module), device_(device), options_(std::move(options)) {
  ir::require_placed(module);
}

Executor::~Executor() {
  for (const auto& [index, function] : functions_)
    for (const auto& [begin, region] : function->regions) {
      region->recording.reset();
      for (size_t i = 0; i < region->shadows.size(); ++i)
        device_.free(region->shadows[i], region->shadow_bytes[i]);
    }
  for (const auto& [address, bytes] : device_memory_) // of a run that threw
    device_.free(address, bytes);
}

Executor::FunctionState& Executor::state(uint32_t function) {
  std::unique_ptr<FunctionState>& found = functions_[function];
  if (found == nullptr)
    found = std::make_unique<FunctionState>(module_, module_.functions[function],
                                            options_.record ? device_.records() : Records::nothing);
  return *found;
}

void Executor::bind_host(void* address, uint64_t bytes) {
  host_arrays_[reinterpret_cast<uint64_t>(address)] = bytes;
}

void Executor::run(std::string_view name, std::span<const Bits> arguments) {
  const uint32_t index = module_.find_function(name);
  if (index == UINT32_MAX || module_.functions[index].kind != ir::FunctionKind::host)
    throw UsageError(fmt::format("the program has no host function @{}", name));
  if (arguments.size() != module_.functions[index].parameter_count)
    throw UsageError(fmt::format("@{} has {} parameters, but {} arguments are given", name,
                                 module_.functions[index].parameter_count, arguments.size()));
  call(index, arguments);
}

std::vector<CopyCount> Executor::copies() const {
  std::vector<CopyCount> list;
  for (const auto& [place, count] : copies_)
    list.push_back(count);
  return list;
}

void Executor::call(uint32_t index, std::span<const Bits> arguments) {
  const Function& function = module_.functions[index];
  if (function.external) {
    ++launches_;
    device_.call(index, arguments);
    return;
  }
  if (options_.host_code != nullptr && options_.host_code->run(index, arguments))
    return;
  Frame frame{index, function, state(index), {arguments.begin(), arguments.end()}, {}};
  frame.registers.resize(function.register_type.size());
  block(frame, 0, static_cast<uint32_t>(function.ops.size()));
  for (const auto& [space, address] : frame.allocated) {
    if (space == Space::host) {
      host_arrays_.erase(address);
      host_memory_.erase(address);
    } else {
      device_.free(address, device_memory_[address]);
      device_memory_.erase(address);
    }
  }
  last_array_ = {};
}

bool Executor::block(Frame& frame, uint32_t begin, uint32_t end) {
  const auto next_round = [&] {
    if (options_.every_round)
      options_.every_round();
  };
  for (uint32_t at = begin; at < end; ++at) {
    if (const auto found = frame.state.regions.find(at);
        found != frame.state.regions.end() && region(frame, *found->second)) {
      at = found->second->region.end - 1;
      continue;
    }
    const Op& op = frame.code.ops[at];
    switch (op.code) {
    case Opcode::return_void:
      return false;
    case Opcode::for_loop: {
      const uint32_t close = frame.state.blocks.close(at);
      const auto limit = op.operand[0] == ir::kImmediate
                             ? static_cast<int32_t>(ir::low_half(op.immediate))
                             : static_cast<int32_t>(frame.registers[op.operand[0]]);
      for (int64_t i = 0; i < limit; i += ir::high_half(op.immediate)) {
        next_round();
        frame.registers[op.result.id] = static_cast<Bits>(i);
        if (!block(frame, at + 1, close))
          return false;
      }
      at = close;
      break;
    }
    case Opcode::loop: {
      const uint32_t close = frame.state.blocks.close(at);
      do {
        next_round();
        if (!block(frame, at + 1, close))
          return false;
      } while (frame.registers[frame.code.ops[close].operand[0]] != 0);
      at = close;
      break;
    }
    case Opcode::if_begin: {
      const uint32_t close = frame.state.blocks.close(at);
      const uint32_t otherwise = frame.state.blocks.otherwise(at);
      if (frame.registers[op.operand[0]] != 0) {
        if (!block(frame, at + 1, otherwise))
          return false;
      } else if (otherwise != close && !block(frame, otherwise + 1, close)) {
        return false;
      }
      at = close;
      break;
    }
    default:
      operation(frame, at);
      break;
    }
  }
  return true;
}

uint64_t Executor::elements(const Frame& frame, uint32_t at) const {
  const Op& op = frame.code.ops[at];
  const auto count =
      static_cast<int64_t>(operand(op, op.code == Opcode::copy ? 2 : 0, frame.registers));
  if (count < 0 || count >= int64_t{1} << 48)
    throw UserError(fmt::format("{}: {} elements", place(module_, frame.code, at), count));
  return static_cast<uint64_t>(count);
}

/// Host memory of the program; UserError where it is none.
uint8_t* Executor::reach(const Frame& frame, uint32_t at, Bits address, uint64_t bytes) {
  const auto inside = [&](const std::pair<uint64_t, uint64_t>& array) {
    return address >= array.first && address - array.first <= array.second &&
           bytes <= array.second - (address - array.first);
  };
  if (!inside(last_array_) || last_array_.second == 0) {
    auto found = host_arrays_.upper_bound(address);
    if (found == host_arrays_.begin() || !inside(*--found)) {
      if (bytes == 0)
        return nullptr;
      throw UserError(fmt::format("{}: {} bytes that belong to no array of the program",
                                  place(module_, frame.code, at), bytes),
                      "check the index, and the lengths of the arrays that the program is given");
    }
    last_array_ = *found;
  }
  return reinterpret_cast<uint8_t*>(address);
}

void Executor::operation(Frame& frame, uint32_t at) {
  const Op& op = frame.code.ops[at];
  switch (ir::info(op.code).form) {
  case Form::value:
    value(frame, at);
    break;
  case Form::load:
  case Form::store: {
    const ir::Scalar type = op.type.element();
    const uint64_t size = ir::size_in_bytes(type);
    uint8_t* const from =
        reach(frame, at, frame.registers[op.operand[0]] + static_cast<Bits>(op.immediate),
              size * op.width);
    for (uint32_t i = 0; i < op.width; ++i)
      if (ir::info(op.code).form == Form::load)
        frame.registers[op.result.id + i] = load_element(type, from + i * size);
      else
        store_element(type, from + i * size, frame.registers[op.operand[1] + i]);
    break;
  }
  case Form::alloc: {
    const uint64_t bytes = elements(frame, at) * ir::size_in_bytes(op.type.element());
    uint64_t address = 0;
    if (op.type.space() == Space::host) {
      std::vector<uint8_t> memory(std::max<uint64_t>(bytes, 1));
      address = reinterpret_cast<uint64_t>(memory.data());
      host_memory_[address] = std::move(memory);
      host_arrays_[address] = bytes;
    } else {
      address = device_.allocate(bytes);
      if (address != 0)
        device_memory_[address] = bytes;
    }
    if (address != 0)
      frame.allocated.emplace_back(op.type.space(), address);
    frame.registers[op.result.id] = address;
    break;
  }
  case Form::value_none: { // free
    const uint64_t address = frame.registers[op.operand[0]];
    const std::pair<Space, uint64_t> entry{op.type.space(), address};
    const auto found = std::find(frame.allocated.begin(), frame.allocated.end(), entry);
    if (found == frame.allocated.end()) {
      if (address == 0)
        break; // of no bytes
      throw UserError(fmt::format("{}: memory that @{} has not allocated",
                                  place(module_, frame.code, at), frame.code.name));
    }
    frame.allocated.erase(found);
    last_array_ = {};
    if (op.type.space() == Space::host) {
      host_arrays_.erase(address);
      host_memory_.erase(address);
    } else {
      device_.free(address, device_memory_[address]);
      device_memory_.erase(address);
    }
    break;
  }
  case Form::copy:
    copy(frame, at);
    break;
  case Form::launch:
    ++launches_;
    launch(frame, at, device_);
    break;
  case Form::call:
    call(op.operand[0], arguments_of(frame.code, op, frame.registers));
    break;
  case Form::switch_call: {
    const std::span<const uint32_t> list = ir::callees(frame.code, op);
    if (const auto which = static_cast<uint32_t>(frame.registers[op.operand[0]]);
        which < list.size())
      call(list[which], arguments_of(frame.code, op, frame.registers));
    break;
  }
  default:
    throw InternalError(fmt::format("{} in a host function", place(module_, frame.code, at)));
  }
}

void Executor::value(Frame& frame, uint32_t at) {
  const Op& op = frame.code.ops[at];
  const ir::Type source = op.operand[0] < frame.code.register_type.size()
                              ? frame.code.register_type[op.operand[0]]
                              : op.type;
  frame.registers[op.result.id] = evaluate(op, source, operands(op, frame.registers));
}

void Executor::count(const Frame& frame, uint32_t at, uint64_t bytes) {
  const Op& op = frame.code.ops[at];
  CopyCount& entry = copies_[{frame.function, at}];
  entry.function = frame.function;
  entry.op = at;
  entry.to = frame.code.register_type[op.operand[0]].space();
  entry.from = frame.code.register_type[op.operand[1]].space();
  ++entry.times;
  entry.bytes += bytes;
}

void Executor::copy(Frame& frame, uint32_t at) {
  const Op& op = frame.code.ops[at];
  const uint64_t to = frame.registers[op.operand[0]], from = frame.registers[op.operand[1]];
  const bool to_host = frame.code.register_type[op.operand[0]].space() == Space::host;
  const bool from_host = frame.code.register_type[op.operand[1]].space() == Space::host;
  const uint64_t bytes =
      elements(frame, at) * ir::size_in_bytes(frame.code.register_type[op.operand[0]].element());
  count(frame, at, bytes);
  if (bytes == 0)
    return;
  const auto check_device = [&](uint64_t address) {
    const auto after = device_memory_.upper_bound(address);
    if (address != 0 && after == device_memory_.begin())
      return; // the caller's, whose length is not known
    const uint64_t offset = address == 0 ? 0 : address - std::prev(after)->first;
    const uint64_t length = address == 0 ? 0 : std::prev(after)->second;
    if (address == 0 || (offset < length && bytes > length - offset))
      throw UserError(fmt::format("{}: {} bytes of an array in device memory that has {}",
                                  place(module_, frame.code, at), bytes, length - offset),
                      "check the lengths of the arrays");
  };
  if (!to_host)
    check_device(to);
  if (!from_host)
    check_device(from);
  uint8_t* const host_to = to_host ? reach(frame, at, to, bytes) : nullptr;
  const uint8_t* const host_from = from_host ? reach(frame, at, from, bytes) : nullptr;
  if (to_host && from_host)
    std::memmove(host_to, host_from, bytes);
  else if (to_host)
    device_.download(host_to, from, bytes);
  else if (from_host)
    device_.upload(to, host_from, bytes);
  else
    device_.copy(to, from, bytes);
}

void Executor::launch(Frame& frame, uint32_t at, Queue& queue) {
  const Op& op = frame.code.ops[at];
  uint32_t grid[3];
  for (unsigned i = 0; i < 3; ++i) {
    grid[i] = static_cast<uint32_t>(frame.registers[frame.code.pool[op.operand[1] + i]]);
    if (grid[i] > INT32_MAX)
      throw UserError(fmt::format("{}: a grid of {} blocks", place(module_, frame.code, at),
                                  static_cast<int32_t>(grid[i])));
  }
  queue.launch(op.operand[0], grid, arguments_of(frame.code, op, frame.registers));
}

} // namespace sparsertc::program
