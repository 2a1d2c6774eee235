// A folder for one test, removed with all that is in it.
#pragma once

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <stdlib.h>

namespace sparsertc::testing {

class TemporaryFolder {
public:
  TemporaryFolder() {
    path_ = (std::filesystem::temp_directory_path() / "sparsertc-test-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr)
      throw std::runtime_error("cannot make " + path_);
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

  /// What lies in it, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& item : std::filesystem::directory_iterator(path_))
      found.push_back(item.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

private:
  std::string path_;
};

} // namespace sparsertc::testing
