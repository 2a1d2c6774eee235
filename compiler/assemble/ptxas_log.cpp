#include "compiler/assemble/ptxas_log.h"

#include <algorithm>
#include <charconv>

namespace sparsertc {
namespace {

/// The lines of a text, without their ends.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// The text after `mark`; nothing where it does not occur.
std::optional<std::string_view> after(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos)
    return std::nullopt;
  return text.substr(at + mark.size());
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos)
    return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// The number that ends right before `unit`: 24 of "used 24 registers".
std::optional<uint32_t> number_before(std::string_view text, std::string_view unit) {
  const size_t end = text.find(unit);
  if (end == std::string_view::npos)
    return std::nullopt;
  size_t begin = end;
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9')
    --begin;
  uint32_t value = 0;
  if (begin == end ||
      std::from_chars(text.data() + begin, text.data() + end, value).ec != std::errc())
    return std::nullopt;
  return value;
}

void set_if(std::optional<uint32_t> value, uint32_t& target) {
  if (value)
    target = *value;
}

} // namespace

std::optional<AssemblerDiagnostic> first_error(std::string_view log) {
  for (const std::string_view line : lines_of(log)) {
    const auto colon = line.find(" : ");
    if (colon == std::string_view::npos)
      continue;
    const std::string_view head = line.substr(0, colon);
    if (head.find("error") == std::string_view::npos &&
        head.find("fatal") == std::string_view::npos)
      continue;
    AssemblerDiagnostic diagnostic;
    diagnostic.message = trimmed(line.substr(colon + 3));
    if (const auto rest = after(head, ", line "))
      std::from_chars(rest->data(), rest->data() + rest->size(), diagnostic.line);
    return diagnostic;
  }
  return std::nullopt;
}

void add_resources(std::string_view log, std::vector<FunctionResources>& functions) {
  std::string name;
  const auto function = [&]() -> FunctionResources& {
    const auto found = std::find_if(functions.begin(), functions.end(),
                                    [&](const FunctionResources& one) { return one.name == name; });
    if (found != functions.end())
      return *found;
    functions.emplace_back().name = name;
    return functions.back();
  };
  for (const std::string_view line : lines_of(log)) {
    if (const auto rest = after(line, "Function properties for ")) {
      // ptxas writes the bare name, nvlink 'name':
      std::string_view text = trimmed(*rest);
      if (!text.empty() && text.front() == '\'')
        text = text.substr(1, text.find('\'', 1) - 1);
      name = text;
      continue;
    }
    if (name.empty())
      continue;
    if (line.find("bytes stack frame") != std::string_view::npos) {
      FunctionResources& one = function();
      set_if(number_before(line, " bytes stack frame"), one.stack_bytes);
      set_if(number_before(line, " bytes spill stores"), one.spill_store_bytes);
      set_if(number_before(line, " bytes spill loads"), one.spill_load_bytes);
    } else if (line.find(" registers") != std::string_view::npos) {
      FunctionResources& one = function();
      set_if(number_before(line, " registers"), one.registers);
      set_if(number_before(line, " barriers"), one.barriers);
      set_if(number_before(line, " bytes smem"), one.shared_bytes);
      set_if(number_before(line, " stack,"), one.stack_bytes);
    }
  }
}

std::string version_in(std::string_view text) {
  const auto rest = after(text, ", V");
  if (!rest)
    return {};
  return std::string(rest->substr(0, rest->find_first_not_of("0123456789.")));
}

} // namespace sparsertc
