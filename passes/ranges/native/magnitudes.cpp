#include "passes/ranges/native/magnitudes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>

// Loops over all values of samples are compiled for two kinds of processors.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define VEIL_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define VEIL_WIDE
#endif

namespace veil {
namespace {

constexpr size_t kExponents = 256;
constexpr int kMantissaBits = 23;
// Neighbours have like exponents, and an addition to the place of the last one waits for it.
constexpr size_t kCounts = 4;
constexpr size_t kBlock = 1 << 12;  // values that stay in the first cache

// Integers in the order of the numbers: those that are none lie beyond both infinities.
constexpr int32_t ordered(int32_t bits) {
  return bits ^ ((bits >> 31) & std::numeric_limits<int32_t>::max());
}

float number(int32_t order) { return std::bit_cast<float>(ordered(order)); }

VEIL_WIDE void extend(const float* values, size_t count, int32_t* ends) {
  int32_t low = ends[0], high = ends[1];
  for (size_t i = 0; i < count; ++i) {
    const int32_t order = ordered(std::bit_cast<int32_t>(values[i]));
    low = std::min(low, order);
    high = std::max(high, order);
  }
  ends[0] = low;
  ends[1] = high;
}

VEIL_WIDE uint32_t zeros(const float* values, size_t count) {
  uint32_t found = 0;
  for (size_t i = 0; i < count; ++i) found += std::bit_cast<uint32_t>(values[i]) << 1 == 0;
  return found;
}

using Counts = std::array<std::array<int64_t, kExponents>, kCounts>;

void count(std::span<const float> values, Counts& counts) {
  const auto add = [&](size_t i, size_t k) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i + k]);
    ++counts[k][bits << 1 >> (kMantissaBits + 1)];
  };
  size_t i = 0;
  for (; i + kCounts <= values.size(); i += kCounts) {
    for (size_t k = 0; k < kCounts; ++k) add(i, k);
  }
  for (; i < values.size(); ++i) add(i, 0);
}

}  // namespace

void Extremes::add(std::span<const float> values) {
  std::array<int32_t, 2> ends{low_, high_};
  extend(values.data(), values.size(), ends.data());
  low_ = ends[0];
  high_ = ends[1];
}

std::pair<float, float> Extremes::found() const { return {number(low_), number(high_)}; }

std::pair<float, float> extremes(std::span<const float> values) {
  Extremes found;
  found.add(values);
  return found.found();
}

Magnitudes magnitudes(std::span<const float> values) {
  Extremes extremes;
  Counts counts{};
  int64_t none = 0;
  for (size_t first = 0; first < values.size(); first += kBlock) {
    const auto block = values.subspan(first, std::min(kBlock, values.size() - first));
    extremes.add(block);
    none += zeros(block.data(), block.size());
    count(block, counts);
  }
  std::vector<int64_t> found(kExponents, 0);
  for (const auto& each : counts) {
    for (size_t place = 0; place < kExponents; ++place) found[place] += each[place];
  }
  found[0] -= none;
  return {extremes.found(), std::move(found)};
}

}  // namespace veil
