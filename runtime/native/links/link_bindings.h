// The part of the Python module that is about links.
#pragma once
#include <nanobind/nanobind.h>

namespace veil {

void bind_links(nanobind::module_& module);

}  // namespace veil
