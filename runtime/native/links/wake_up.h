// What wakes a thread that waits for sockets too.
#pragma once
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace veil {

class WakeUp {
 public:
  WakeUp() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  ~WakeUp() { ::close(descriptor_); }
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  // Readable from here on, until hushed. A full counter is readable too.
  void ring() { [[maybe_unused]] const int done = eventfd_write(descriptor_, 1); }
  void hush() {
    eventfd_t count;
    [[maybe_unused]] const int done = eventfd_read(descriptor_, &count);
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace veil
