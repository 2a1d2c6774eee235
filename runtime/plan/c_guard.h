// What every function of a C API does: no exception leaves it, the message is kept for the calling
// thread, structs of other sizes are noticed.
#pragma once

#include "ir/error.h"
#include "runtime/include/sparsertc.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>

namespace sparsertc {

/// The message of the calling thread's last failure; "" before the first. Valid until the next.
const char* last_error() noexcept;

/// The code of the exception that is being handled, whose message is kept; to be called in a
/// `catch (...)`. Errors of input are `user_error`.
sparsertc_result remember_exception(sparsertc_result user_error) noexcept;

/// Runs `work`; no exception leaves the library.
template <typename Work>
sparsertc_result guarded(Work&& work,
                         sparsertc_result user_error = SPARSERTC_ERROR_INVALID_BUNDLE) noexcept {
  try {
    work();
    return SPARSERTC_OK;
  } catch (...) {
    return remember_exception(user_error);
  }
}

inline void check_not_null(const void* pointer, const char* name) {
  if (!pointer) [[unlikely]]
    throw UsageError(fmt::format("{} is a null pointer", name));
}
template <typename T>
T& required(T* pointer, const char* name) {
  check_not_null(pointer, name);
  return *pointer;
}

/// A struct of this library's size, or a longer one of which it does not know the end.
template <typename Struct>
void check_size(const Struct& given, const char* name) {
  // No library's struct will be as long as the upper bound: nobody has set the size.
  if (given.struct_size < sizeof(Struct) || given.struct_size > 16 * sizeof(Struct) + 1024)
      [[unlikely]]
    throw UsageError(
        fmt::format("{}: struct_size is {}, expected {}", name, given.struct_size, sizeof(Struct)),
        "set struct_size to sizeof the struct before the call");
}

/// The bytes after what this library knows must be 0: they would ask for something.
void check_unknown_end(const void* given, size_t given_size, size_t known, const char* name);

/// A struct that is passed in: there, long enough, and asking for nothing unknown.
template <typename Struct>
const Struct& required_struct(const Struct* given, const char* argument, const char* name) {
  const Struct& found = required(given, argument);
  check_size(found, name);
  check_unknown_end(given, found.struct_size, sizeof(Struct), name);
  return found;
}

template <typename Struct>
void clear_keeping_size(Struct& output) {
  const size_t size = output.struct_size;
  std::memset(static_cast<void*>(&output), 0, size);
  output.struct_size = size;
}

} // namespace sparsertc
