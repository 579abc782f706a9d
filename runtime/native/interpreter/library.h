// One kernel library, loaded.
#pragma once
#include <span>
#include <string>

#include "kernels/cpu/abi.h"

namespace veil {

class Library {
 public:
  // Throws std::runtime_error where `path` is no kernel library.
  explicit Library(const std::string& path);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  std::span<const VeilKernel> kernels() const { return kernels_; }

 private:
  void* handle_;
  std::span<const VeilKernel> kernels_;
};

}  // namespace veil
