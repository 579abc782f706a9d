// Memory of Python objects, for as long as it is held here.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <vector>

namespace veil {

// The bytes of contiguous objects of the buffer protocol.
class PythonBuffers {
 public:
  PythonBuffers() = default;
  ~PythonBuffers() {
    for (Py_buffer& view : views_) PyBuffer_Release(&view);
  }
  PythonBuffers(const PythonBuffers&) = delete;
  PythonBuffers& operator=(const PythonBuffers&) = delete;

  std::span<const uint8_t> readable(nanobind::handle object) { return hold(object, PyBUF_SIMPLE); }
  std::span<uint8_t> writable(nanobind::handle object) { return hold(object, PyBUF_WRITABLE); }

 private:
  std::span<uint8_t> hold(nanobind::handle object, int flags) {
    Py_buffer view;
    if (PyObject_GetBuffer(object.ptr(), &view, flags) != 0) throw nanobind::python_error();
    views_.push_back(view);
    return {static_cast<uint8_t*>(view.buf), static_cast<size_t>(view.len)};
  }

  std::vector<Py_buffer> views_;
};

}  // namespace veil
