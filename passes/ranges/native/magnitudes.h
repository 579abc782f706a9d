// How large the values of an array are: passes/ranges/magnitudes.py.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace veil {

// The least and the largest of what is added. One of them is no number if a value is none.
class Extremes {
 public:
  void add(std::span<const float> values);
  std::pair<float, float> found() const;  // infinity and -infinity of nothing

 private:
  // As integers in the order of the numbers; at first those of both infinities.
  int32_t low_ = 0x7f800000;
  int32_t high_ = ~0x7f800000;
};

struct Magnitudes {
  std::pair<float, float> extremes;
  std::vector<int64_t> counts;  // by biased exponent, zeros left out
};

std::pair<float, float> extremes(std::span<const float> values);
Magnitudes magnitudes(std::span<const float> values);

}  // namespace veil
