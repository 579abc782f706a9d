// How large the values of an array are: passes/ranges/magnitudes.py.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace veil {

struct Magnitudes {
  std::pair<float, float> extremes;
  std::vector<int64_t> counts;  // by biased exponent, zeros left out
};

// The least and the largest; infinity and -infinity of none. One of them is no number if a value is
// none.
std::pair<float, float> extremes(std::span<const float> values);
Magnitudes magnitudes(std::span<const float> values);

}  // namespace veil
