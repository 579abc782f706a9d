#include "ir/party/native/node_bindings.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "ir/party/native/arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using veil::Column;
using veil::span;

// Whether all numbers of a column are places in a list.
template <typename T>
void are_inside(const Column<T>& column, size_t length) {
  const auto numbers = span(column);
  const bool sound =
      std::ranges::all_of(numbers, [&](T n) { return n >= 0 && static_cast<size_t>(n) < length; });
  if (!sound) throw nb::value_error("columns are of other lists");
}

// The nodes of columns as objects, each made by its row.
class NodeMaker {
 public:
  NodeMaker(nb::object node, nb::tuple operations, nb::tuple places, nb::tuple tensors,
            nb::tuple pairs, nb::str counted, Column<uint8_t> op, Column<int32_t> place,
            Column<int32_t> tensor, Column<int32_t> attributes, Column<int64_t> number,
            Column<int32_t> layer, Column<int64_t> first, Column<int32_t> args)
      : node_(std::move(node)),
        operations_(std::move(operations)),
        places_(std::move(places)),
        tensors_(std::move(tensors)),
        pairs_(std::move(pairs)),
        op_(std::move(op)),
        place_(std::move(place)),
        tensor_(std::move(tensor)),
        attributes_(std::move(attributes)),
        number_(std::move(number)),
        layer_(std::move(layer)),
        first_(std::move(first)),
        args_(std::move(args)) {
    for (const size_t size :
         {place_.size(), tensor_.size(), attributes_.size(), number_.size(), layer_.size()}) {
      if (size != op_.size()) throw nb::value_error("columns are of other lengths");
    }
    if (first_.size() != op_.size() + 1) throw nb::value_error("columns are of other lengths");
    are_inside(op_, operations_.size());
    are_inside(place_, places_.size());
    are_inside(tensor_, tensors_.size());
    are_inside(attributes_, pairs_.size());
    are_inside(first_, args_.size() + 1);
    if (!std::ranges::is_sorted(span(first_))) throw nb::value_error("operands are out of order");
    are_records(places_, 3);
    are_records(tensors_, 2);
    find_counted(counted);
  }

  nb::object node(int64_t row) const {
    if (row < 0 || static_cast<size_t>(row) >= op_.size()) throw nb::index_error("no such node");
    const auto i = static_cast<size_t>(row);
    PyObject* const place = PyTuple_GET_ITEM(places_.ptr(), place_.data()[i]);
    PyObject* const tensor = PyTuple_GET_ITEM(tensors_.ptr(), tensor_.data()[i]);
    const nb::object attrs = attrs_of(i), operands = operands_of(i);
    const nb::int_ id(row), layer(layer_.data()[i]);
    PyObject* const fields[] = {
        id.ptr(),
        PyTuple_GET_ITEM(operations_.ptr(), op_.data()[i]),
        PyTuple_GET_ITEM(place, 0),
        operands.ptr(),
        attrs.ptr(),
        PyTuple_GET_ITEM(tensor, 0),
        PyTuple_GET_ITEM(tensor, 1),
        PyTuple_GET_ITEM(place, 1),
        layer.ptr(),
        PyTuple_GET_ITEM(place, 2),
    };
    PyObject* const made = PyObject_Vectorcall(node_.ptr(), fields, std::size(fields), nullptr);
    if (made == nullptr) throw nb::python_error();
    return nb::steal(made);
  }

 private:
  static void are_records(const nb::tuple& all, size_t fields) {
    for (const nb::handle each : all) {
      if (!PyTuple_Check(each.ptr()) || nb::len(each) != fields) {
        throw nb::value_error("columns are of other lists");
      }
    }
  }

  // Where the counted attribute is among those of each tuple; -1 where there is none.
  void find_counted(const nb::str& counted) {
    for (const nb::handle pairs : pairs_) {
      Py_ssize_t at = -1, next = 0;
      if (!PyTuple_Check(pairs.ptr())) throw nb::value_error("columns are of other lists");
      for (const nb::handle pair : nb::borrow<nb::tuple>(pairs)) {
        if (pair[0].equal(counted)) at = next;
        ++next;
      }
      counted_.push_back(at);
    }
    counted_name_ = counted;
  }

  // The attributes of a row, with its number where they have one.
  nb::object attrs_of(size_t row) const {
    const int32_t which = attributes_.data()[row];
    PyObject* const pairs = PyTuple_GET_ITEM(pairs_.ptr(), which);
    const Py_ssize_t at = counted_[static_cast<size_t>(which)];
    if (number_.data()[row] < 0 || at < 0) return nb::borrow(pairs);
    nb::object found = nb::steal(PyTuple_New(PyTuple_GET_SIZE(pairs)));
    if (!found.is_valid()) throw nb::python_error();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); ++i) {
      nb::object each = i == at ? nb::make_tuple(counted_name_, number_.data()[row])
                                : nb::borrow(PyTuple_GET_ITEM(pairs, i));
      PyTuple_SET_ITEM(found.ptr(), i, each.release().ptr());
    }
    return found;
  }

  nb::object operands_of(size_t row) const {
    const int64_t begin = first_.data()[row], end = first_.data()[row + 1];
    nb::object found = nb::steal(PyTuple_New(end - begin));
    if (!found.is_valid()) throw nb::python_error();
    for (int64_t i = begin; i < end; ++i) {
      PyObject* const arg = PyLong_FromLong(args_.data()[i]);
      if (arg == nullptr) throw nb::python_error();
      PyTuple_SET_ITEM(found.ptr(), i - begin, arg);
    }
    return found;
  }

  nb::object node_;
  nb::tuple operations_, places_, tensors_, pairs_;
  nb::str counted_name_{""};
  std::vector<Py_ssize_t> counted_;  // of `pairs_`
  Column<uint8_t> op_;
  Column<int32_t> place_, tensor_, attributes_;
  Column<int64_t> number_;
  Column<int32_t> layer_;
  Column<int64_t> first_;
  Column<int32_t> args_;
};

}  // namespace

namespace veil {

void bind_nodes(nb::module_& m) {
  nb::class_<NodeMaker>(m, "NodeMaker")
      .def(nb::init<nb::object, nb::tuple, nb::tuple, nb::tuple, nb::tuple, nb::str,
                    Column<uint8_t>, Column<int32_t>, Column<int32_t>, Column<int32_t>,
                    Column<int64_t>, Column<int32_t>, Column<int64_t>, Column<int32_t>>(),
           "node"_a, "operations"_a, "places"_a, "tensors"_a, "pairs"_a, "counted"_a, "op"_a,
           "place"_a, "tensor"_a, "attributes"_a, "number"_a, "layer"_a, "first"_a, "args"_a)
      .def("node", &NodeMaker::node, "row"_a);
}

}  // namespace veil
