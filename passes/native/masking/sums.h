// Values as sums, and the draws that hide them: passes/party/sums.py.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ir/party/native/arrays.h"
#include "passes/native/masking/dependencies.h"

namespace veil {

// How often an operation's operands count where words are read as a sum, and bits or words as one
// modulo 2; 0 behind the last of them. Whether it is a multiple of one operand by a constant.
struct Signs {
  int64_t adds[2], xors[2], scales;
};

// Of a tensor a number for its type, one for its kind, whether that is of words or
// of planes, and its bits.
struct SummedType {
  int64_t type, kind, is_words, is_planes, bits;
};

// Columns of a program as sums are read of them. `values`: by attributes, of constants. `is_same`:
// of each node whether it is its operand, passed on or reduced to fewer bits. `same`, `same_here`:
// the first node behind those that are so, through messages or not.
struct SummedColumns {
  std::span<const uint32_t> facts;
  std::span<const uint8_t> ops;
  std::span<const int32_t> tensors, attributes;
  std::span<const int64_t> numbers, elements;
  std::span<const uint8_t> is_same;
  std::span<const int32_t> same, same_here;
  Operands operands;
  std::span<const Signs> signs;
  std::span<const SummedType> types;
  std::span<const int64_t> values;

  const SummedType& type(int32_t row) const { return types[tensors[row]]; }
  bool is(int32_t row, uint32_t asked) const { return (facts[row] & asked) != 0; }
};

// Terms, each with how often it is added, never zero; of bits never even. A draw goes by minus its
// number, minus one, whoever makes it; all else by its node's row. Counts are modulo 2^64, of which
// every ring is a part.
struct Sum {
  std::vector<std::pair<int64_t, int64_t>> terms;
  bool by_xor = false;
};

class Sums {
 public:
  // A sum is taken apart in up to `most` looks at nodes; what is deeper is a term as it is.
  Sums(const SummedColumns& columns, int64_t most) : c_(columns), most_(most) {}

  // Of a value; a message is what was sent, or as it is.
  Sum of(int32_t start, bool behind_messages) const;

  // What a node is a public multiple of, and how often: an operand's row, or -1.
  std::pair<int32_t, int64_t> scaled(int32_t row) const;

  const SummedColumns& columns() const { return c_; }

 private:
  using Terms = std::vector<std::pair<int32_t, int64_t>>;

  bool parts(int32_t row, bool by_xor, Terms& found) const;
  bool adds_alike(int32_t row) const;
  int64_t canonical(int32_t row) const;

  SummedColumns c_;
  int64_t most_;
};

// What a coalition does not know: of each draw whether it is hidden, its bit among dependencies, a
// node that makes it, and of each node its phase. `selected`: the first node behind sections.
struct HiddenDraws {
  std::span<const uint8_t> is_hidden;
  std::span<const int32_t> bits, makers;
  std::span<const int32_t> phases, selected;
};

// The hidden draws that a value of a phase has an odd number of times, whole, and in no other of
// its terms: each hides it.
std::vector<int32_t> witnesses(const Sums& sums, const Dependencies& depends,
                               const HiddenDraws& draws, int32_t value, int32_t phase);

}  // namespace veil
