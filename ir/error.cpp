#include "ir/error.h"

#include <fmt/format.h>

namespace sparsertc {
namespace {

constexpr int kDiagnosed = 1;
constexpr int kUsage = 2;
constexpr int kNoGpu = 3;
constexpr int kInternal = 70;

std::string with_note(std::string text, const std::string& way_out) {
  if (!way_out.empty())
    text += "\nnote: " + way_out;
  return text;
}

} // namespace

Place Place::text(std::string file, uint64_t line, uint64_t column) {
  return Place{std::move(file), line, column, std::nullopt};
}

Place Place::binary(std::string file, uint64_t byte) {
  return Place{std::move(file), 0, 0, byte};
}

std::string Place::describe() const {
  if (byte)
    return fmt::format("{}: byte {}", file, *byte);
  if (line != 0)
    return fmt::format("{}:{}:{}", file, line, column);
  return file;
}

UserError::UserError(const std::string& message, const std::string& way_out)
    : Error(with_note("error: " + message, way_out), kDiagnosed) {}

UserError::UserError(const Place& place, const std::string& message, const std::string& way_out)
    : Error(with_note(place.describe() + ": error: " + message, way_out), kDiagnosed) {}

UsageError::UsageError(const std::string& message, const std::string& way_out)
    : Error(with_note("usage error: " + message, way_out), kUsage) {}

RuntimeError::RuntimeError(const std::string& doing, const std::string& reason,
                           const std::string& way_out)
    : Error(with_note(fmt::format("error: {}: {}", doing, reason), way_out), kDiagnosed) {}

NoGpuError::NoGpuError(const std::string& message, const std::string& way_out)
    : Error(with_note("error: " + message, way_out), kNoGpu) {}

InternalError::InternalError(const std::string& message)
    : Error(with_note("internal error: " + message,
                      "this is a bug in sparsertc; please report it with the command line and the "
                      "input that led here"),
            kInternal) {}

} // namespace sparsertc
