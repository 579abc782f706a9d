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

// The least and the largest as such integers; at first those of both infinities.
struct Ends {
  int32_t low = 0x7f800000;
  int32_t high = ~0x7f800000;

  std::pair<float, float> numbers() const { return {number(low), number(high)}; }
};

VEIL_WIDE Ends extended(Ends ends, const float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const int32_t order = ordered(std::bit_cast<int32_t>(values[i]));
    ends.low = std::min(ends.low, order);
    ends.high = std::max(ends.high, order);
  }
  return ends;
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

std::pair<float, float> extremes(std::span<const float> values) {
  return extended({}, values.data(), values.size()).numbers();
}

Magnitudes magnitudes(std::span<const float> values) {
  Ends ends;
  Counts counts{};
  int64_t none = 0;
  for (size_t first = 0; first < values.size(); first += kBlock) {
    const auto block = values.subspan(first, std::min(kBlock, values.size() - first));
    ends = extended(ends, block.data(), block.size());
    none += zeros(block.data(), block.size());
    count(block, counts);
  }
  std::vector<int64_t> found(kExponents, 0);
  for (const auto& each : counts) {
    for (size_t place = 0; place < kExponents; ++place) found[place] += each[place];
  }
  found[0] -= none;
  return {ends.numbers(), std::move(found)};
}

}  // namespace veil
