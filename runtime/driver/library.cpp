#include "runtime/driver/library.h"

#include "ir/error.h"

#include <fmt/format.h>

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

namespace sparsertc::cuda {
namespace {

void* open_file(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

} // namespace

std::string loader_error() {
  const char* text = dlerror();
  return text ? text : "unknown error";
}

Library Library::open(const LibraryNames& names) {
  const std::string doing = "opening " + names.title;
  const std::string way_out =
      fmt::format("{} names its file where it is in an unusual place", names.variable);
  Library library;
  if (const char* chosen = std::getenv(names.variable.c_str()); chosen && *chosen) {
    library.path_ = chosen;
    library.handle_ = open_file(chosen);
    if (!library.handle_)
      throw RuntimeError(doing,
                         fmt::format("{} names {}: {}", names.variable, chosen, loader_error()));
    return library;
  }
  std::vector<std::string> folders;
  if (const char* toolkit = std::getenv("CUDA_PATH"); toolkit && *toolkit)
    folders.push_back(std::string(toolkit) + "/lib64/");
  folders.push_back("/usr/local/cuda/lib64/");
  std::string broken;
  for (const std::string& file : names.files) {
    std::vector<std::string> places = {file}; // where the loader looks
    for (const std::string& folder : folders)
      places.push_back(folder + file);
    for (const std::string& place : places) {
      library.path_ = place;
      library.handle_ = open_file(place);
      if (library.handle_)
        return library;
      // One that is there and cannot be opened is worth a word.
      if (broken.empty() && std::filesystem::exists(place))
        broken = loader_error();
    }
  }
  throw RuntimeError(
      doing,
      broken.empty() ? fmt::format("{} is neither where the loader looks nor in CUDA_PATH/lib64 or "
                                   "/usr/local/cuda/lib64",
                                   fmt::join(names.files, " or "))
                     : broken,
      way_out);
}

void* Library::find(const char* symbol, const std::string& needed) const {
  void* function = dlsym(handle_, symbol);
  if (!function)
    throw RuntimeError(fmt::format("looking up {} in {}", symbol, path_),
                       fmt::format("it does not have it; {} is needed", needed));
  return function;
}

} // namespace sparsertc::cuda
