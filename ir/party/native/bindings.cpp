// The Python module veilgraph.ir.party._native: party-level programs as columns.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <unordered_set>

#include "ir/party/native/arrays.h"
#include "ir/party/native/lines.h"
#include "ir/party/native/node_bindings.h"
#include "ir/party/native/row_bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

nb::list strings(const veil::Interned& interned) {
  nb::list found;
  for (const std::string_view text : interned.texts())
    found.append(nb::str(text.data(), text.size()));
  return found;
}

nb::tuple read_lines(nb::str text, const std::vector<std::string>& operations, int64_t layers) {
  Py_ssize_t size = 0;
  const char* start = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (start == nullptr) throw nb::python_error();
  veil::Lines lines;
  const std::string_view all(start, static_cast<size_t>(size));
  try {
    veil::unlocked([&] { veil::read_lines(all, operations, layers, lines); });
  } catch (const veil::NoNode& error) {
    const std::string_view line = all.substr(error.start, error.end - error.start);
    PyObject* shown =
        PyUnicode_DecodeUTF8(line.data(), static_cast<Py_ssize_t>(line.size()), "replace");
    if (shown == nullptr) throw nb::python_error();
    return nb::make_tuple(error.reason, nb::steal<nb::str>(shown));
  }
  return nb::make_tuple(veil::array(std::move(lines.op)), veil::array(std::move(lines.place)),
                        veil::array(std::move(lines.type)),
                        veil::array(std::move(lines.attributes)),
                        veil::array(std::move(lines.number)), veil::array(std::move(lines.layer)),
                        veil::array(std::move(lines.first)), veil::array(std::move(lines.args)),
                        strings(lines.places), strings(lines.types), strings(lines.described));
}

using Key = std::u32string;

// The first node of each form: what a node is, and what its operands are as operands.
nb::object first_of_forms(const std::vector<veil::Column<int32_t>>& seen,
                          const std::vector<veil::Column<int32_t>>& own,
                          const veil::Column<int64_t>& first, const veil::Column<int32_t>& args) {
  const size_t nodes = first.size() - 1;
  for (const auto* columns : {&seen, &own}) {
    for (const auto& column : *columns) {
      if (column.size() != nodes) throw nb::value_error("columns are of other lengths");
    }
  }
  const veil::Operands operands(first, args, nodes);
  std::unordered_set<Key> met;
  std::vector<int64_t> found;
  Key key;
  for (size_t i = 0; i < nodes; ++i) {
    key.clear();
    for (const auto& column : own) key += static_cast<char32_t>(column.data()[i]);
    for (const auto& column : seen) key += static_cast<char32_t>(column.data()[i]);
    for (const int32_t arg : operands.of(i)) {
      for (const auto& column : seen) key += static_cast<char32_t>(column.data()[arg]);
    }
    if (met.insert(key).second) found.push_back(static_cast<int64_t>(i));
  }
  return veil::array(std::move(found));
}

}  // namespace

NB_MODULE(_native, m) {
  veil::bind_nodes(m);
  veil::bind_rows(m);
  m.def("read_lines", &read_lines, "text"_a, "operations"_a, "layers"_a);
  m.def("first_of_forms", &first_of_forms, "seen"_a, "own"_a, "first"_a, "args"_a);
}
