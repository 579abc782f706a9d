#include "ir/party/native/row_bindings.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "ir/party/native/arrays.h"
#include "ir/party/native/rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using veil::Alike;
using veil::array;
using veil::Column;
using veil::Place;
using veil::Rows;
using veil::span;

using Args = std::vector<int32_t>;

int32_t number(PyObject* python) {
  const long found = PyLong_AsLong(python);
  if (found == -1 && PyErr_Occurred()) throw nb::python_error();
  if (found < INT32_MIN || found > INT32_MAX) throw std::out_of_range("there is no such node");
  return static_cast<int32_t>(found);
}

// Setup is of no entry.
Place place(int32_t party, int32_t phase, int32_t entry) {
  return {party, phase, phase ? entry : 0};
}

// A party that holds all operands, its key in dictionaries, and the operands.
struct Holder {
  int32_t party;
  PyObject* key;
  Args args;
};

std::vector<Holder> holders(nb::list copies) {
  std::vector<Holder> found;
  if (copies.size() == 0) return found;
  PyObject *key, *value;
  Py_ssize_t next = 0;
  PyObject* const first = nb::cast<nb::dict>(copies[0]).ptr();
  while (PyDict_Next(first, &next, &key, &value)) {
    Args args;
    args.reserve(copies.size());
    args.push_back(number(value));
    for (size_t i = 1; i < copies.size(); ++i) {
      PyObject* const other = PyDict_GetItemWithError(nb::handle(copies[i]).ptr(), key);
      if (other == nullptr && PyErr_Occurred()) throw nb::python_error();
      if (other == nullptr) break;
      args.push_back(number(other));
    }
    if (args.size() == copies.size()) found.push_back({number(key), key, std::move(args)});
  }
  std::ranges::sort(found, {}, &Holder::party);
  return found;
}

nb::dict apply(Rows& rows, const Alike& alike, nb::list copies, int32_t entry, int32_t layer) {
  nb::dict made;
  for (const Holder& holder : holders(copies)) {
    int32_t phase = 0;
    for (const int32_t arg : holder.args) phase = std::max(phase, rows.place_of(arg).phase);
    const Place at = place(holder.party, phase, entry);
    made[nb::handle(holder.key)] = rows.once(alike, at, holder.args, -1, layer);
  }
  return made;
}

int32_t add(Rows& rows, const Alike& alike, int32_t party, const Args& args, int32_t phase,
            int32_t entry, int32_t layer, int64_t number) {
  return rows.add(alike, place(party, phase, entry), args, number, layer);
}

int32_t once(Rows& rows, const Alike& alike, int32_t party, const Args& args, int32_t phase,
             int32_t entry, int32_t layer, int64_t number) {
  return rows.once(alike, place(party, phase, entry), args, number, layer);
}

template <typename T>
nb::object from(const std::vector<T>& column, size_t first) {
  return array(std::vector<T>(column.begin() + static_cast<std::ptrdiff_t>(first), column.end()));
}

nb::tuple arrays(const Rows& rows, size_t first) {
  if (first > rows.size()) throw std::out_of_range("there is no such node");
  std::vector<int64_t> begins(rows.first().begin() + static_cast<std::ptrdiff_t>(first),
                              rows.first().end());
  const int64_t begin = begins.front();
  for (int64_t& each : begins) each -= begin;
  return nb::make_tuple(from(rows.op(), first), from(rows.place(), first),
                        from(rows.tensor(), first), from(rows.attributes(), first),
                        from(rows.number(), first), from(rows.layer(), first),
                        array(std::move(begins)), from(rows.args(), static_cast<size_t>(begin)));
}

nb::tuple row(const Rows& rows, int64_t number) {
  const size_t at = rows.at(number);
  const auto args = rows.args_of(at);
  PyObject* const operands = PyTuple_New(static_cast<Py_ssize_t>(args.size()));
  if (operands == nullptr) throw nb::python_error();
  nb::tuple held = nb::steal<nb::tuple>(operands);
  for (size_t i = 0; i < args.size(); ++i) {
    PyTuple_SET_ITEM(operands, static_cast<Py_ssize_t>(i), PyLong_FromLong(args[i]));
  }
  const Place& place = rows.place_of(number);
  return nb::make_tuple(nb::make_tuple(rows.op()[at], rows.tensor()[at], rows.attributes()[at],
                                       rows.number()[at], rows.layer()[at]),
                        nb::make_tuple(place.party, place.phase, place.entry), held);
}

nb::list places(const Rows& rows) {
  nb::list found;
  for (const Place& each : rows.places()) {
    found.append(nb::make_tuple(each.party, each.phase, each.entry));
  }
  return found;
}

// A block whose columns are of one length.
veil::RowBlock block(const Column<uint8_t>& op, const Column<int32_t>& place,
                     const Column<int32_t>& tensor, const Column<int32_t>& attributes,
                     const Column<int64_t>& number, const Column<int64_t>& ends,
                     const Column<int64_t>& args) {
  const size_t rows = op.size();
  for (const size_t size :
       {place.size(), tensor.size(), attributes.size(), number.size(), ends.size()}) {
    if (size != rows) throw nb::value_error("columns are of other lengths");
  }
  int64_t before = 0;
  for (const int64_t end : span(ends)) {
    if (end < before) throw nb::value_error("operands are out of order");
    before = end;
  }
  if (before != static_cast<int64_t>(args.size())) {
    throw nb::value_error("operands are those of another program");
  }
  return {span(op),     span(place), span(tensor), span(attributes),
          span(number), span(ends),  span(args)};
}

using Block = std::tuple<Column<uint8_t>, Column<int32_t>, Column<int32_t>, Column<int32_t>,
                         Column<int64_t>, Column<int64_t>, Column<int64_t>>;

bool knows(const Rows& rows, const Block& columns, const Column<int64_t>& which,
           const Column<int64_t>& at) {
  return rows.knows(std::apply(block, columns), span(which), span(at));
}

void add_block(Rows& rows, const Block& columns, const Column<int64_t>& at, uint8_t draw,
               int64_t draws, int64_t sends, int32_t layer) {
  rows.extend(std::apply(block, columns), span(at), draw, draws, sends, layer);
}

void know(Rows& rows, const Column<int64_t>& which) {
  for (const int64_t each : span(which)) rows.know(each);
}

}  // namespace

namespace veil {

void bind_rows(nb::module_& m) {
  nb::class_<Alike>(m, "Alike")
      .def(nb::init<uint8_t, int32_t, int32_t>(), "op"_a, "tensor"_a, "attributes"_a);
  nb::class_<Rows>(m, "Rows")
      .def(nb::init<>())
      .def("__len__", &Rows::size)
      .def("apply", &apply, "alike"_a, "copies"_a, "entry"_a, "layer"_a)
      .def("add", &add, "alike"_a, "party"_a, "args"_a, "phase"_a, "entry"_a, "layer"_a,
           "number"_a = -1)
      .def("once", &once, "alike"_a, "party"_a, "args"_a, "phase"_a, "entry"_a, "layer"_a,
           "number"_a = -1)
      .def(
          "phase", [](const Rows& rows, int64_t row) { return rows.place_of(row).phase; }, "row"_a)
      .def("row", &row, "row"_a)
      .def("arrays", &arrays, "first"_a)
      .def("places", &places)
      .def("know", &know, "rows"_a)
      .def("knows", &knows, "block"_a, "rows"_a, "at"_a)
      .def("add_block", &add_block, "block"_a, "at"_a, "draw"_a, "draws"_a, "sends"_a, "layer"_a)
      .def_rw("watched", &Rows::watched)
      .def_rw("has_reused", &Rows::has_reused);
}

}  // namespace veil
