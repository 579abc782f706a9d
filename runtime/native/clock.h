// Time for measurements; the same clock as Python's time.perf_counter_ns, in every process.
#pragma once
#include <chrono>
#include <cstdint>

namespace veil {

inline uint64_t nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace veil
