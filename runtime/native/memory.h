// Pages of this process's own: zeroed at first, aligned, between two that may not be touched, so
// that a stray access ends the process instead of reaching other data.
#pragma once
#include <cstddef>
#include <cstdint>

namespace veil {

class Pages {
 public:
  // Throws std::bad_alloc when the system has no such memory to give.
  explicit Pages(size_t bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Overwrites all of it with zeros; no compiler may leave that out.
  void wipe();
  // From here on a write is a fault of the process.
  void protect();

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;  // whole pages, without the two around them
  bool writable_ = true;
};

}  // namespace veil
