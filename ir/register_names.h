// How the registers of one function are called in text. Internal to ir/.
#pragma once

#include "ir/module.h"

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace sparsertc::ir {

class RegisterNames {
public:
  explicit RegisterNames(const Function& function);
  RegisterNames(const RegisterNames&) = delete;
  RegisterNames& operator=(const RegisterNames&) = delete;

  /// Without the '%'; empty for registers that are called by their number.
  std::string_view name(uint32_t id) const {
    return id < names_.size() ? names_[id] : std::string_view();
  }
  void append(std::string& text, uint32_t id) const;

private:
  std::vector<std::string_view> names_; ///< empty if no register has a name
  std::deque<std::string> changed_;     ///< names that had to be changed
};

} // namespace sparsertc::ir
