#include "runtime/native/interpreter/library.h"

#include <dlfcn.h>

#include <stdexcept>

namespace veil {

Library::Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) throw std::runtime_error(std::string("kernel library: ") + dlerror());
  auto* table = reinterpret_cast<decltype(&veil_kernels)>(dlsym(handle_, "veil_kernels"));
  if (table == nullptr) {
    dlclose(handle_);
    throw std::runtime_error("kernel library: " + path + " has no kernels");
  }
  uint32_t count = 0;
  const VeilKernel* kernels = table(&count);
  kernels_ = {kernels, count};
}

Library::~Library() { dlclose(handle_); }

}  // namespace veil
