// `Rows` and `Alike` as classes of veilgraph.ir.party._native.
#pragma once

#include <nanobind/nanobind.h>

namespace veil {

void bind_rows(nanobind::module_& m);

}  // namespace veil
