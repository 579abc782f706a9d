// The Python module veilgraph.ir.party._native: party-level programs as columns.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "ir/party/native/arrays.h"
#include "ir/party/native/lines.h"
#include "ir/party/native/node_bindings.h"
#include "ir/party/native/print.h"
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

template <typename T>
void stand_for(const veil::Column<T>& column, size_t nodes, size_t count) {
  const auto own = veil::span(column);
  const auto is_known = [&](T x) { return x >= 0 && static_cast<size_t>(x) < count; };
  if (own.size() != nodes || !std::all_of(own.begin(), own.end(), is_known)) {
    throw nb::value_error("columns are of other lists, or of other lengths");
  }
}

bool is_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

bool are_ascii(const std::vector<std::string>& texts) {
  return std::all_of(texts.begin(), texts.end(), is_ascii);
}

// The head and the lines behind it, without a copy of what may be hundreds of megabytes.
nb::object print_lines(const std::string& head, const veil::Column<uint8_t>& op,
                       const veil::Column<int32_t>& tensor, const veil::Column<int32_t>& attributes,
                       const veil::Column<int64_t>& number, const veil::Column<int32_t>& place,
                       const veil::Column<int32_t>& layer, const veil::Column<int64_t>& first,
                       const veil::Column<int32_t>& args, std::vector<std::string> operations,
                       std::vector<std::string> tensors, std::vector<std::string> places,
                       std::vector<std::pair<std::string, std::string>> described) {
  const size_t nodes = op.size();
  stand_for(op, nodes, operations.size());
  stand_for(tensor, nodes, tensors.size());
  stand_for(place, nodes, places.size());
  stand_for(attributes, nodes, described.size());
  if (number.size() != nodes || layer.size() != nodes) {
    throw nb::value_error("columns are of other lists, or of other lengths");
  }
  const veil::Printed printed{veil::span(op),       veil::span(tensor),    veil::span(attributes),
                              veil::span(place),    veil::span(layer),     veil::span(number),
                              {first, args, nodes}, std::move(operations), std::move(tensors),
                              std::move(places),    std::move(described)};
  const size_t size = head.size() + veil::unlocked([&] { return veil::printed_size(printed); });
  const auto write = [&](char* to) {
    const size_t start = head.copy(to, head.size());
    veil::print_lines(printed, {to + start, size - start});
    return size;
  };
  const auto& told = printed.described;
  const auto told_ascii = [](const auto& each) { return is_ascii(each.first + each.second); };
  if (!is_ascii(head) || !are_ascii(printed.operations) || !are_ascii(printed.tensors) ||
      !are_ascii(printed.places) || !std::all_of(told.begin(), told.end(), told_ascii)) {
    std::string text(size, ' ');
    veil::unlocked([&] { return write(text.data()); });
    return nb::str(text.data(), text.size());
  }
  nb::object text = nb::steal(PyUnicode_New(static_cast<Py_ssize_t>(size), 127));
  if (!text.is_valid()) throw nb::python_error();
  char* to = static_cast<char*>(PyUnicode_DATA(text.ptr()));
  veil::unlocked([&] { return write(to); });
  return text;
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
  m.def("print_lines", &print_lines, "head"_a, "op"_a, "tensor"_a, "attributes"_a, "number"_a,
        "place"_a, "layer"_a, "first"_a, "args"_a, "operations"_a, "tensors"_a, "places"_a,
        "described"_a);
  m.def("first_of_forms", &first_of_forms, "seen"_a, "own"_a, "by_type"_a, "tensors"_a, "shapes"_a,
        "types"_a, "first"_a, "args"_a);
}
