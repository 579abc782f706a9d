// The Python module veilgraph.runtime._native: only loads and calls.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "runtime/native/interpreter/interpreter.h"
#include "runtime/native/links/link_bindings.h"
#include "runtime/native/python_buffers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

void make_interpreter(veil::Interpreter* self, const std::string& library, nb::object steps,
                      nb::object buffers, nb::object params, nb::object constants,
                      uint64_t arena_bytes, nb::object keys, uint32_t threads,
                      uint64_t max_arena_bytes) {
  veil::PythonBuffers held;
  veil::Program program{{held.readable(steps), held.readable(buffers), held.readable(params)},
                        held.readable(constants),
                        held.readable(keys),
                        0,
                        0,
                        0};
  program.arena_bytes = arena_bytes;
  program.max_arena_bytes = max_arena_bytes;
  program.threads = threads;
  new (self) veil::Interpreter(library, program);
}

void check_program(const std::string& library, nb::object steps, nb::object buffers,
                   nb::object params, uint64_t arena_bytes, uint64_t constants_bytes,
                   uint32_t keys) {
  veil::PythonBuffers held;
  const veil::Tables tables{held.readable(steps), held.readable(buffers), held.readable(params)};
  veil::check_program(library, tables, arena_bytes, constants_bytes, keys);
}

using ByteArray = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

// A view that keeps the interpreter alive.
ByteArray arena(nb::handle_t<veil::Interpreter> self) {
  veil::Pages& pages = nb::cast<veil::Interpreter&>(self).arena();
  return ByteArray(pages.data(), {pages.size()}, self);
}

void rekey(veil::Interpreter& interpreter, nb::object keys) {
  veil::PythonBuffers held;
  interpreter.rekey(held.readable(keys));
}

nb::dict profile(const veil::Interpreter& interpreter) {
  nb::dict times;
  for (size_t i = 0; i < interpreter.kernels().size(); ++i) {
    const veil::KernelTime& time = interpreter.profile()[i];
    times[interpreter.kernels()[i].name] = nb::make_tuple(time.calls, time.nanoseconds);
  }
  return times;
}

nb::list spans(const veil::Interpreter& interpreter) {
  nb::list found;
  for (const veil::Span& span : interpreter.spans()) {
    found.append(nb::make_tuple(span.step, span.start, span.end));
  }
  return found;
}

nb::tuple kernel_names(const veil::Interpreter& interpreter) {
  nb::list names;
  for (const VeilKernel& kernel : interpreter.kernels()) names.append(nb::str(kernel.name));
  return nb::tuple(names);
}

}  // namespace

NB_MODULE(_native, m) {
  nb::class_<veil::Interpreter>(m, "Interpreter")
      .def("__init__", &make_interpreter, "library"_a, "steps"_a, "buffers"_a, "params"_a,
           "constants"_a, "arena_bytes"_a, "keys"_a, "threads"_a = 1, nb::kw_only(),
           "max_arena_bytes"_a = uint64_t{16} << 30)
      .def("run", &veil::Interpreter::run, "first"_a, "last"_a, "run"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def("rekey", &rekey, "keys"_a)
      .def("wipe", &veil::Interpreter::wipe)
      .def("reset_profile", &veil::Interpreter::reset_profile)
      .def("trace", &veil::Interpreter::trace)
      .def("note", &veil::Interpreter::note, "step"_a, "start"_a, "end"_a)
      .def_prop_ro("spans", &spans)
      .def("__len__", &veil::Interpreter::step_count)
      .def_prop_ro("arena", &arena)
      .def_prop_ro("kernels", &kernel_names)
      .def_prop_ro("profile", &profile);
  m.def("check_program", &check_program, "library"_a, "steps"_a, "buffers"_a, "params"_a,
        "arena_bytes"_a, "constants_bytes"_a, "keys"_a);
  veil::bind_links(m);
}
