// A blocked matrix product in the manner of BLIS (Van Zee and van de Geijn, ACM TOMS 41(3), 2015):
// blocks of both factors are packed into panels that stay in the second-level and first-level cache
// while the micro-kernel walks over them.
#pragma once
#include <cstdint>

#include "kernels/gemm/cpu/micro.h"

namespace veil {

// Rows, columns and depth that are packed at a time.
template <class Micro>
struct Blocking {
  static constexpr int64_t kDepth = Micro::kBlockDepth;
  static constexpr int64_t kRows = Micro::kBlockRows;
  static constexpr int64_t kColumns = Micro::kBlockColumns;
  static constexpr int64_t kBytesA = round_up(kRows * kDepth * Micro::kBytesA, 64);
  static constexpr int64_t kBytesB = kDepth * kColumns * Micro::kBytesB;
  static constexpr int64_t kScratch = kBytesA + kBytesB;
};

// Bytes of one row of a panel, and of one column.
template <class Micro>
constexpr int64_t row_bytes(int64_t depth) {
  return round_up(depth, Micro::kDepthStep) * Micro::kBytesA;
}
template <class Micro>
constexpr int64_t column_bytes(int64_t depth) {
  return round_up(depth, Micro::kDepthStep) * Micro::kBytesB;
}

// Part of a sum of products: `left` gives panels of rows, `right` panels of columns, over `depth`.
template <class Left, class Right>
struct Term {
  Left left;
  Right right;
  int64_t depth;
};

// A rectangle of the output.
struct Tile {
  int64_t row, rows, column, columns;
};

template <class Micro, class Source>
void pack_rows(uint8_t* to, const Source& left, const Tile& t, int64_t first, int64_t depth) {
  for (int64_t i = 0; i < t.rows; i += Micro::kRows) {
    const int64_t count = t.rows - i < Micro::kRows ? t.rows - i : Micro::kRows;
    Micro::pack_left(to, left, t.row + i, count, first, depth);
    to += Micro::kRows * row_bytes<Micro>(depth);
  }
}

template <class Micro, class Source>
void pack_columns(uint8_t* to, const Source& right, const Tile& t, int64_t first, int64_t depth) {
  for (int64_t j = 0; j < t.columns; j += Micro::kColumns) {
    const int64_t count = t.columns - j < Micro::kColumns ? t.columns - j : Micro::kColumns;
    Micro::pack_right(to, right, t.column + j, count, first, depth);
    to += Micro::kColumns * column_bytes<Micro>(depth);
  }
}

// One micro-kernel call. A tile that is cut off, or that lies in several pieces of the output, goes
// through memory of its own.
template <class Micro, class Sink>
void multiply_tile(const uint8_t* a, const uint8_t* b, const Sink& sink, const Tile& t,
                   int64_t depth, bool accumulate) {
  using T = typename Micro::Word;
  const bool whole = t.rows == Micro::kRows && t.columns == Micro::kColumns;
  if (whole && sink.in_one_piece(t.column, t.columns)) {
    Micro::run(depth, a, b, sink.at(t.row, t.column), sink.row_stride(), accumulate);
    return;
  }
  alignas(64) T tile[Micro::kRows * Micro::kColumns];
  Micro::run(depth, a, b, tile, Micro::kColumns, false);
  for (int64_t i = 0; i < t.rows; ++i) {
    for (int64_t j = 0; j < t.columns; ++j) {
      T& to = *sink.at(t.row + i, t.column + j);
      const T value = tile[i * Micro::kColumns + j];
      to = accumulate ? static_cast<T>(to + value) : value;
    }
  }
}

template <class Micro, class Sink>
void multiply_blocks(const uint8_t* a, const uint8_t* b, const Sink& sink, const Tile& block,
                     int64_t depth, bool accumulate) {
  for (int64_t j = 0; j < block.columns; j += Micro::kColumns) {
    const int64_t columns =
        block.columns - j < Micro::kColumns ? block.columns - j : Micro::kColumns;
    const uint8_t* right = b + j * column_bytes<Micro>(depth);
    for (int64_t i = 0; i < block.rows; i += Micro::kRows) {
      const int64_t rows = block.rows - i < Micro::kRows ? block.rows - i : Micro::kRows;
      const Tile tile{block.row + i, rows, block.column + j, columns};
      const uint8_t* left = a + i * row_bytes<Micro>(depth);
      multiply_tile<Micro>(left, right, sink, tile, depth, accumulate);
    }
  }
}

// The rectangle `t` of the output, given by `sink`, becomes the sum of the terms' products.
// `scratch` is of Blocking<Micro>::kScratch bytes.
template <class Micro, class Terms, class Sink>
void multiply(const Terms& terms, const Sink& sink, const Tile& t, uint8_t* scratch) {
  using B = Blocking<Micro>;
  [[maybe_unused]] const typename Micro::Scope scope(t.rows);
  uint8_t *packed_a = scratch, *packed_b = scratch + B::kBytesA;
  for (int64_t j = 0; j < t.columns; j += B::kColumns) {
    Tile block = t;
    block.column = t.column + j;
    block.columns = t.columns - j < B::kColumns ? t.columns - j : B::kColumns;
    bool accumulate = false;
    for (int64_t p = 0; p < terms.count(); ++p) {
      const auto term = terms.term(p);
      for (int64_t k = 0; k < term.depth; k += B::kDepth) {
        const int64_t depth = term.depth - k < B::kDepth ? term.depth - k : B::kDepth;
        pack_columns<Micro>(packed_b, term.right, block, k, depth);
        for (int64_t i = 0; i < t.rows; i += B::kRows) {
          block.row = t.row + i;
          block.rows = t.rows - i < B::kRows ? t.rows - i : B::kRows;
          pack_rows<Micro>(packed_a, term.left, block, k, depth);
          multiply_blocks<Micro>(packed_a, packed_b, sink, block, depth, accumulate);
        }
        accumulate = true;
      }
    }
  }
}

}  // namespace veil
