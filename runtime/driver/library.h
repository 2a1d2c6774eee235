// Libraries of a CUDA toolkit, opened at run time: nothing is linked, and a machine without them
// is told where they were looked for.
#pragma once

#include <string>
#include <vector>

namespace sparsertc::cuda {

/// What a library is called.
struct LibraryNames {
  std::string title;              ///< "nvJitLink", for messages
  std::string variable;           ///< the environment variable that names its file
  std::vector<std::string> files; ///< "libnvJitLink.so.13", the best first
};

class Library {
public:
  /// Opens the file that the variable names, else the first of `files` that the loader finds, or
  /// that is in CUDA_PATH/lib64 or /usr/local/cuda/lib64. It is never closed: libraries with
  /// threads and exit handlers of their own do not survive it. Throws RuntimeError that says
  /// where it was looked for.
  static Library open(const LibraryNames& names);

  /// The function of this name. Throws RuntimeError where there is none; `needed`: which version
  /// has it, "NVRTC of CUDA 12.0 or newer".
  void* find(const char* symbol, const std::string& needed) const;
  const std::string& path() const { return path_; }

private:
  void* handle_ = nullptr;
  std::string path_; ///< as it was given to the loader
};

/// dlerror()'s text; it gives null where nothing is known.
std::string loader_error();

} // namespace sparsertc::cuda
