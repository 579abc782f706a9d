// Memory of this process's own.
#pragma once
#include <cstddef>
#include <cstdint>

namespace veil {

// A range of addresses with nothing behind them: whoever touches one ends the process.
class Addresses {
 public:
  // Throws std::bad_alloc when so many are not free.
  explicit Addresses(size_t bytes);
  ~Addresses();
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_;
  size_t size_;  // whole pages
};

// Zeroed at first, aligned, between two pages that may not be touched, so that a stray access ends
// the process instead of reaching other data.
class Pages {
 public:
  // Throws std::bad_alloc when the system has no such memory to give.
  explicit Pages(size_t bytes);

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Overwrites all of it with zeros; no compiler may leave that out.
  void wipe();
  // From here on a write is a fault of the process.
  void protect();

 private:
  size_t size_;
  Addresses all_;
  uint8_t* data_;
  size_t mapped_;  // whole pages, without the two around them
  bool writable_ = true;
};

}  // namespace veil
