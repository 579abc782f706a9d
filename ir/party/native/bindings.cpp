// The Python module veilgraph.ir.party._native: party-level programs as columns.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
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

std::string_view utf8(const nb::str& text) {
  Py_ssize_t size = 0;
  const char* start = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (start == nullptr) throw nb::python_error();
  return {start, static_cast<size_t>(size)};
}

size_t count_lines(nb::str text, size_t most) {
  const std::string_view all = utf8(text);
  return veil::unlocked([&] { return veil::count_lines(all, most); });
}

nb::tuple read_lines(nb::str text, const std::vector<std::string>& operations, int64_t layers) {
  veil::Lines lines;
  const std::string_view all = veil::lines_of_nodes(utf8(text));
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

// Nodes as their forms have them: ir/party/_native.pyi.
struct Formed {
  const std::vector<veil::Column<int32_t>>&seen, &own;
  veil::Column<uint8_t> by_type;
  veil::Column<int32_t> tensors, shapes, types;
  veil::Operands operands;

  int32_t shape(size_t node) const { return shapes.data()[tensors.data()[node]]; }
  int32_t type(size_t node) const { return types.data()[tensors.data()[node]]; }
};

// The first node of each form: what a node is, and what its operands are as operands.
std::vector<int64_t> first_of(const Formed& nodes) {
  std::unordered_set<Key> met;
  std::vector<int64_t> found;
  Key key;
  const auto add = [&](int32_t number) { key += static_cast<char32_t>(number); };
  for (size_t i = 0; i < nodes.tensors.size(); ++i) {
    const auto args = nodes.operands.of(i);
    const bool of_types = nodes.by_type.data()[i] && std::ranges::all_of(args, [&](int32_t arg) {
                            return nodes.shape(static_cast<size_t>(arg)) == nodes.shape(i);
                          });
    const auto as_seen = [&](size_t node) {
      for (const auto& column : nodes.seen) add(column.data()[node]);
      add(of_types ? nodes.type(node) : nodes.tensors.data()[node]);
    };
    key.clear();
    add(of_types);
    for (const auto& column : nodes.own) add(column.data()[i]);
    as_seen(i);
    for (const int32_t arg : args) as_seen(static_cast<size_t>(arg));
    if (met.insert(key).second) found.push_back(static_cast<int64_t>(i));
  }
  return found;
}

nb::object first_of_forms(const std::vector<veil::Column<int32_t>>& seen,
                          const std::vector<veil::Column<int32_t>>& own,
                          const veil::Column<uint8_t>& by_type,
                          const veil::Column<int32_t>& tensors, const veil::Column<int32_t>& shapes,
                          const veil::Column<int32_t>& types, const veil::Column<int64_t>& first,
                          const veil::Column<int32_t>& args) {
  const size_t nodes = tensors.size();
  bool sound = by_type.size() == nodes && shapes.size() == types.size();
  for (const auto* columns : {&seen, &own}) {
    for (const auto& column : *columns) sound = sound && column.size() == nodes;
  }
  if (!sound) throw nb::value_error("columns are of other lengths");
  return veil::array(veil::unlocked([&] {
    const bool known = std::ranges::all_of(veil::span(tensors), [&](int32_t tensor) {
      return tensor >= 0 && static_cast<size_t>(tensor) < shapes.size();
    });
    if (!known) throw nb::value_error("a tensor is not there");
    return first_of({seen, own, by_type, tensors, shapes, types, {first, args, nodes}});
  }));
}

}  // namespace

NB_MODULE(_native, m) {
  veil::bind_nodes(m);
  veil::bind_rows(m);
  m.def("count_lines", &count_lines, "text"_a, "most"_a);
  m.def("read_lines", &read_lines, "text"_a, "operations"_a, "layers"_a);
  m.def("first_of_forms", &first_of_forms, "seen"_a, "own"_a, "by_type"_a, "tensors"_a, "shapes"_a,
        "types"_a, "first"_a, "args"_a);
}
