// The innermost products in plain C++.
#pragma once
#include <cstdint>

#include "kernels/gemm/cpu/stepwise.h"

namespace veil {

template <class T>
struct MicroScalar : Stepwise<MicroScalar<T>, 2, 4> {
  using Word = T;
  static constexpr int kRows = 2, kColumns = 4;
  static constexpr int kBytesA = sizeof(T), kBytesB = sizeof(T);

  static void pack_a(uint8_t* panel, int64_t k, const T* values) {
    for (int i = 0; i < kRows; ++i) reinterpret_cast<T*>(panel)[k * kRows + i] = values[i];
  }

  static void pack_b(uint8_t* panel, int64_t k, const T* values) {
    for (int j = 0; j < kColumns; ++j) reinterpret_cast<T*>(panel)[k * kColumns + j] = values[j];
  }

  static void run(int64_t depth, const uint8_t* a_panel, const uint8_t* b_panel, T* out,
                  int64_t stride, bool accumulate) {
    const T* a = reinterpret_cast<const T*>(a_panel);
    const T* b = reinterpret_cast<const T*>(b_panel);
    T sum[kRows][kColumns] = {};
    for (int64_t k = 0; k < depth; ++k, a += kRows, b += kColumns) {
      for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kColumns; ++j) sum[i][j] += a[i] * b[j];
      }
    }
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) {
        T& to = out[i * stride + j];
        to = accumulate ? static_cast<T>(to + sum[i][j]) : sum[i][j];
      }
    }
  }
};

}  // namespace veil
