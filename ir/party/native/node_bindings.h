// `NodeMaker` as a class of veilgraph.ir.party._native.
#pragma once

#include <nanobind/nanobind.h>

namespace veil {

void bind_nodes(nanobind::module_& m);

}  // namespace veil
