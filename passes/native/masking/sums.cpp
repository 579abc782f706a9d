#include "passes/native/masking/sums.h"

#include <algorithm>

#include "passes/native/facts.h"

namespace veil {

namespace {

// Counts wrap, without overflowing.
int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

int64_t times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

void add(Sum& sum, int64_t key, int64_t count) {
  const auto found = std::find_if(sum.terms.begin(), sum.terms.end(),
                                  [key](const auto& term) { return term.first == key; });
  if (found != sum.terms.end()) {
    count = plus(count, found->second);
    sum.terms.erase(found);
  }
  if (sum.by_xor ? count & 1 : count != 0) sum.terms.emplace_back(key, count);
}

}  // namespace

Sum Sums::of(int32_t start, bool behind_messages) const {
  const int32_t top = behind_messages ? c_.same[start] : c_.same_here[start];
  // XOR of words is a sum of its own.
  Sum sum{{}, !c_.type(top).is_words || c_.signs[c_.ops[top]].xors[0] != 0};
  Terms todo{{start, 1}}, found;
  for (int64_t steps = 1; !todo.empty(); ++steps) {
    const auto [row, count] = todo.back();
    todo.pop_back();
    const bool is_end = steps >= most_ || (c_.is(row, kSend) && !behind_messages);
    if (is_end || !parts(row, sum.by_xor, found)) {
      add(sum, canonical(row), count);
    } else {
      for (const auto& [operand, each] : found) todo.emplace_back(operand, times(count, each));
    }
  }
  return sum;
}

// The operands that a node is the sum of, by elements, and how often; false for any other.
bool Sums::parts(int32_t row, bool by_xor, Terms& found) const {
  found.clear();
  const auto args = c_.operands.of(row);
  if (c_.is_same[row]) {
    found.emplace_back(args[0], 1);
    return true;
  }
  const Signs& all = c_.signs[c_.ops[row]];
  const auto& signs = by_xor ? all.xors : all.adds;
  if (signs[0] != 0) {
    if (!adds_alike(row)) return false;
    for (size_t i = 0; i < args.size(); ++i) found.emplace_back(args[i], signs[i]);
    return true;
  }
  if (by_xor) return false;
  const auto [operand, count] = scaled(row);
  if (operand >= 0) found.emplace_back(operand, count);
  return operand >= 0;
}

// Whether operands are of the node's type, and element i is made of elements i.
bool Sums::adds_alike(int32_t row) const {
  const auto args = c_.operands.of(row);
  return std::all_of(args.begin(), args.end(), [&](int32_t arg) {
    return c_.type(arg).type == c_.type(row).type &&
           (c_.elements[arg] == c_.elements[row] || c_.is(arg, kConst));
  });
}

std::pair<int32_t, int64_t> Sums::scaled(int32_t row) const {
  const auto args = c_.operands.of(row);
  if (c_.signs[c_.ops[row]].scales == 0) return {-1, 0};
  for (const auto& [one, other] : {std::pair(args[0], args[1]), std::pair(args[1], args[0])}) {
    const bool alike =
        c_.type(one).type == c_.type(row).type && c_.elements[one] == c_.elements[row];
    if (!alike || !c_.is(other, kConst)) continue;
    const auto value = static_cast<uint64_t>(c_.values[c_.attributes[other]]);
    const int64_t bits = c_.type(row).bits;
    const bool is_negative = bits < 64 && value >> (bits - 1) != 0;
    return {one, static_cast<int64_t>(is_negative ? value - (uint64_t{1} << bits) : value)};
  }
  return {-1, 0};
}

int64_t Sums::canonical(int32_t row) const {
  return c_.is(row, kDraw) ? -1 - c_.numbers[row] : row;
}

namespace {

class Witnesses {
 public:
  Witnesses(const Sums& sums, const Dependencies& depends, const HiddenDraws& draws, int32_t value,
            int32_t phase)
      : c_(sums.columns()), depends_(depends), d_(draws), value_(value), phase_(phase) {}

  std::vector<int32_t> of(const Sum& sum) const {
    std::vector<int32_t> found;
    for (const auto& [key, count] : sum.terms) {
      const int64_t draw = drawn(key);
      if (draw < 0 || count % 2 == 0 || !d_.is_hidden[draw] || !covers(draw, key)) continue;
      const bool elsewhere = std::any_of(sum.terms.begin(), sum.terms.end(), [&](const auto& term) {
        return term.first != key && has(term.first, draw);
      });
      if (!elsewhere) found.push_back(static_cast<int32_t>(draw));
    }
    return found;
  }

 private:
  // The number of the draw that a term is, or of which it has some elements, each once; -1 for
  // none.
  int64_t drawn(int64_t key) const {
    if (key < 0) return -1 - key;
    const int32_t row = d_.selected[key];
    return c_.is(row, kDraw) ? c_.numbers[row] : -1;
  }

  // Whether the draw is as wide as the value, and made as often: in setup, only once.
  bool covers(int64_t draw, int64_t key) const {
    const int32_t maker = d_.makers[draw];
    if (maker < 0 || (d_.phases[maker] == 0 && phase_ > 0)) return false;
    const SummedType &made = c_.type(maker), &hidden = c_.type(value_);
    const bool is_wide = hidden.is_planes ? made.bits == hidden.bits : made.bits >= hidden.bits;
    const int64_t elements = c_.elements[key < 0 ? maker : key];
    return made.kind == hidden.kind && is_wide && elements == c_.elements[value_];
  }

  bool has(int64_t term, int64_t draw) const {
    if (term < 0) return term == -1 - draw;
    return depends_.has(static_cast<int32_t>(term), d_.bits[draw]);
  }

  const SummedColumns& c_;
  const Dependencies& depends_;
  const HiddenDraws& d_;
  int32_t value_, phase_;
};

}  // namespace

std::vector<int32_t> witnesses(const Sums& sums, const Dependencies& depends,
                               const HiddenDraws& draws, int32_t value, int32_t phase) {
  return Witnesses(sums, depends, draws, value, phase).of(sums.of(value, true));
}

}  // namespace veil
