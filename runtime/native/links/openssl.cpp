#include "runtime/native/links/openssl.h"

#include <dlfcn.h>

#include <stdexcept>

namespace veil {
namespace {

constexpr unsigned long kMajorShift = 28;
constexpr unsigned long kMajor = 3;  // what the signatures and numbers were taken from

void* opened(const std::string& module) {
  void* library = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

}  // namespace

OpenSsl::OpenSsl(const std::string& module) : library_(opened(module)) {
  const unsigned long major = version_number() >> kMajorShift;
  if (major != kMajor) {
    const std::string found = version(0);
    dlclose(library_);
    throw std::runtime_error(found + ", which is not OpenSSL 3");
  }
}

OpenSsl::~OpenSsl() { dlclose(library_); }

// A handle stands for its library and for all that it is linked with.
void* OpenSsl::find(const char* name) const {
  if (void* address = dlsym(library_, name)) return address;
  const std::string reason = dlerror();
  dlclose(library_);
  throw std::runtime_error(reason);
}

std::string OpenSsl::take_error() const {
  const unsigned long code = get_error();
  clear_errors();
  const char* words = code == 0 ? nullptr : reason(code);
  return words == nullptr ? "unknown TLS error" : words;
}

}  // namespace veil
