// How long a peer may take over its part of a round.
#pragma once
#include <algorithm>
#include <cstdint>

namespace veil {

struct Patience {
  double seconds;                 // that a peer may be silent
  double least_bytes_per_second;  // that it may take for the rest of a round

  // Nanoseconds that a round may take on the link to a peer, with so many bytes in its larger
  // direction.
  uint64_t allowed(uint64_t bytes) const {
    constexpr double kMost = 1e18;  // 30 years, and no overflow
    const double seconds_of_bytes = static_cast<double>(bytes) / least_bytes_per_second;
    return static_cast<uint64_t>(std::min(kMost, (seconds + seconds_of_bytes) * 1e9));
  }
};

}  // namespace veil
