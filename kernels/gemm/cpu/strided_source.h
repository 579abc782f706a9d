// A strided matrix as a source of panels: lanes are rows of the left factor or columns of the right
// one.
#pragma once
#include <cstdint>

namespace veil {

template <class T>
struct StridedSource {
  const T* data;
  int64_t lane_stride, depth_stride;

  // Whether steps of the depth follow one another, and lanes do not.
  bool along_depth() const { return depth_stride == 1 && lane_stride != 1; }
  const T* at(int64_t lane, int64_t k) const {
    return data + lane * lane_stride + k * depth_stride;
  }

  // Calls emit(k, values) for k in [0, depth): `values` are `Width` elements at depth `first` + k,
  // of `count` lanes from `lane` on, zeros beyond those.
  template <int Width, class Emit>
  void panel(int64_t lane, int64_t count, int64_t first, int64_t depth, Emit&& emit) const {
    const T* from = at(lane, first);
    if (along_depth()) return transposed<Width>(from, count, depth, emit);
    alignas(64) T values[Width] = {};
    for (int64_t k = 0; k < depth; ++k, from += depth_stride) {
      if (lane_stride == 1 && count == Width) {
        prefetch<Width>(from + kAhead * depth_stride);
        for (int i = 0; i < Width; ++i) values[i] = from[i];
      } else {
        for (int64_t i = 0; i < count; ++i) values[i] = from[i * lane_stride];
      }
      emit(k, values);
    }
  }

 private:
  static constexpr int64_t kAhead = 24;  // rows that are far apart, which no processor foresees

  template <int Width>
  static void prefetch(const T* row) {
    for (int i = 0; i < Width; i += 64 / sizeof(T)) __builtin_prefetch(row + i);
  }

  // Each lane's elements follow one another: eight of every lane at a time, turned in a small
  // square.
  template <int Width, class Emit>
  void transposed(const T* from, int64_t count, int64_t depth, Emit&& emit) const {
    constexpr int kSteps = 8;
    alignas(64) T square[kSteps][Width] = {};
    for (int64_t k = 0; k < depth; k += kSteps, from += kSteps) {
      const int64_t steps = depth - k < kSteps ? depth - k : kSteps;
      for (int64_t i = 0; i < count; ++i) {
        const T* lane = from + i * lane_stride;
        for (int64_t s = 0; s < steps; ++s) square[s][i] = lane[s];
      }
      for (int64_t s = 0; s < steps; ++s) emit(k + s, square[s]);
    }
  }
};

}  // namespace veil
