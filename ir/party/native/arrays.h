// NumPy arrays in and out of native passes over a program's columns.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace veil {

template <typename T>
using Column =
    nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

template <typename T>
std::span<const T> span(const Column<T>& column) {
  return {column.data(), column.size()};
}

// What some work gives that touches nothing of Python's: its threads run meanwhile.
template <typename Work>
auto unlocked(const Work& work) {
  const nanobind::gil_scoped_release released;
  return work();
}

// The vector's own memory as an array.
template <typename T>
nanobind::object array(std::vector<T> values) {
  auto* held = new std::vector<T>(std::move(values));
  nanobind::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nanobind::cast(nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(
      held->data(), {held->size()}, owner));
}

// Operands of nodes: those of node i are args[first[i] : first[i + 1]], each made before it.
// Checked once, when a native pass is given them, so that no pass reads outside its columns.
class Operands {
 public:
  Operands(const Column<int64_t>& first, const Column<int32_t>& args, size_t nodes);

  std::span<const int32_t> of(size_t node) const {
    return args_.subspan(first_[node], first_[node + 1] - first_[node]);
  }

 private:
  std::span<const int64_t> first_;
  std::span<const int32_t> args_;
};

inline Operands::Operands(const Column<int64_t>& first, const Column<int32_t>& args, size_t nodes)
    : first_(span(first)), args_(span(args)) {
  if (first_.size() != nodes + 1 || first_[0] != 0 ||
      first_[nodes] != static_cast<int64_t>(args_.size())) {
    throw nanobind::value_error("operands are those of another program");
  }
  for (size_t i = 0; i < nodes; ++i) {
    if (first_[i + 1] < first_[i]) throw nanobind::value_error("operands are out of order");
    for (const int32_t arg : of(i)) {
      if (arg < 0 || static_cast<size_t>(arg) >= i) {
        throw nanobind::value_error("a node reads what is made after it");
      }
    }
  }
}

}  // namespace veil
