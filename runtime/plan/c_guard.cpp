#include "runtime/plan/c_guard.h"

#include "runtime/bundle/binding.h"
#include "runtime/plan/device_check.h"

#include <new>
#include <string>

namespace sparsertc {
namespace {

thread_local std::string message_of_last_error;

/// The message that tells what went wrong even where there is no memory for one.
void remember(const char* message) noexcept {
  try {
    message_of_last_error = message;
  } catch (...) {
    message_of_last_error.clear();
  }
}

} // namespace

const char* last_error() noexcept {
  return message_of_last_error.c_str();
}

sparsertc_result remember_exception(sparsertc_result user_error) noexcept {
  try {
    throw;
  } catch (const UnsupportedDeviceError& error) {
    remember(error.what());
    return SPARSERTC_ERROR_UNSUPPORTED_DEVICE;
  } catch (const NotBindableError& error) {
    remember(error.what());
    return SPARSERTC_ERROR_NOT_BINDABLE;
  } catch (const RuntimeError& error) {
    remember(error.what());
    return SPARSERTC_ERROR_MACHINE;
  } catch (const UserError& error) {
    remember(error.what());
    return user_error;
  } catch (const UsageError& error) {
    remember(error.what());
    return SPARSERTC_ERROR_INVALID_ARGUMENT;
  } catch (const NoGpuError& error) {
    remember(error.what());
    return SPARSERTC_ERROR_NO_GPU;
  } catch (const std::bad_alloc&) {
    remember("error: out of host memory");
    return SPARSERTC_ERROR_MACHINE;
  } catch (const std::exception& error) {
    remember(error.what());
    return SPARSERTC_ERROR_INTERNAL;
  } catch (...) {
    remember("error: an exception that nobody knows");
    return SPARSERTC_ERROR_INTERNAL;
  }
}

void check_unknown_end(const void* given, size_t given_size, size_t known, const char* name) {
  const auto* bytes = static_cast<const unsigned char*>(given);
  for (size_t i = known; i < given_size; ++i)
    if (bytes[i] != 0)
      throw UsageError(
          fmt::format("{}: byte {} is set, and this version knows only {}", name, i, known),
          "use the sparsertc.h of the library that is loaded");
}

} // namespace sparsertc
