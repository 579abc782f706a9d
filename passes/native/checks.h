// What native passes are given by Python, held to what they take for granted.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>
#include <span>

#include "ir/party/native/arrays.h"
#include "passes/native/facts.h"

namespace veil {

// Rows of numbers.
using Table =
    nanobind::ndarray<const int64_t, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

// Rows of numbers as structs of as many.
template <typename T>
std::span<const T> structs(const Table& table) {
  static_assert(sizeof(T) % sizeof(int64_t) == 0);
  if (table.shape(1) * sizeof(int64_t) != sizeof(T)) {
    throw nanobind::value_error("rows have other numbers");
  }
  return {reinterpret_cast<const T*>(table.data()), table.shape(0)};
}

inline void of_one_length(size_t nodes, std::initializer_list<size_t> sizes) {
  for (const size_t size : sizes) {
    if (size != nodes) throw nanobind::value_error("columns are of other lengths");
  }
}

// That numbers are places in a list.
template <typename T>
void are_numbered(const Column<T>& numbers, size_t count, int64_t least = 0) {
  for (const T number : span(numbers)) {
    if (number < least || (number >= 0 && static_cast<size_t>(number) >= count)) {
      throw nanobind::value_error("a column numbers what is not there");
    }
  }
}

// Passes look at the first operand of these without a question.
inline void has_operands(const Column<uint32_t>& facts, const Operands& operands) {
  for (size_t i = 0; i < facts.size(); ++i) {
    const uint32_t is = facts.data()[i];
    const size_t least = is & kLookup ? 2 : (is & (kView | kSend)) != 0;
    if (operands.of(i).size() < least) throw nanobind::value_error("a node lacks an operand");
  }
}

// That list i is rows[first[i] : first[i + 1]], of rows of a program.
inline void are_lists(const Column<int64_t>& first, const Column<int32_t>& rows, size_t nodes) {
  const auto begins = span(first);
  bool sound =
      !begins.empty() && begins.front() == 0 && begins.back() == static_cast<int64_t>(rows.size());
  for (size_t i = 1; i < begins.size(); ++i) sound = sound && begins[i - 1] <= begins[i];
  for (const int32_t row : span(rows)) {
    sound = sound && row >= 0 && static_cast<size_t>(row) < nodes;
  }
  if (!sound) throw nanobind::value_error("lists are of no rows");
}

}  // namespace veil
