// What proves that messages are masked, in veilgraph.passes._native.
#pragma once

#include <nanobind/nanobind.h>

namespace veil {

void bind_masking(nanobind::module_& m);

}  // namespace veil
