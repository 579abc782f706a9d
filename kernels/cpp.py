"""The C++ that is made of declarations: a header for the native code, and structs for CUDA sources.

    class Params: bits: Bits, stride_h: Count = 1   ->   struct Conv2dParams { int64_t bits; ...

CMake writes the header when it configures (`build_header.py`), so nothing here may need more than
the standard library and NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator

from veilgraph.kernels import KERNELS, PART_ELEMENTS
from veilgraph.kernels.declared import DECLARED
from veilgraph.kernels.fused.instructions import Family, Op, of_family
from veilgraph.kernels.kernel import Kernel

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def header() -> str:
    """kernels/declared.h: the list of kernels, their parameters, and what both sides know."""
    kernels = " ".join(f"each({name})" for name in KERNELS)
    structs = "\n".join(_struct(kernel) for kernel in DECLARED.values() if kernel.params.ranges())
    return f"""\
// Made of kernels/*/declaration.py by kernels/cpp.py, and no file of the sources.
#pragma once
#include <cstdint>

#define VEIL_FOR_EACH_KERNEL(each) {kernels}

constexpr int64_t VEIL_PART_ELEMENTS = {PART_ELEMENTS};

{_instructions()}

namespace veil {{

{structs}
}}  // namespace veil
"""


def _instructions() -> str:
    """Of fused programs: all with number, word widths and operands, and each family with signs."""
    rows = ((op, (op.row.dst, op.row.a, op.row.b, op.row.c)) for op in Op)
    every = (
        f"each({op.name}, {int(op)}, {_truth(32 in op.row.words)}, {_truth(64 in op.row.words)}, "
        f"{', '.join(operand.value for operand in operands)})"
        for op, operands in rows
    )
    lines = [f"#define VEIL_FOR_EACH_INSTRUCTION(each) {' '.join(every)}"]
    for family in Family:
        signs = " ".join(f"each({op.name}, {op.row.sign})" for op in of_family(family))
        lines.append(f"#define VEIL_FOR_EACH_{family.name}(each) {signs}")
    return "\n".join(lines)


def _truth(value: bool) -> str:
    return str(value).lower()


def cuda_struct(name: str) -> str:
    """A kernel's parameters as its CUDA sources begin with them."""
    kernel = DECLARED[name]
    lines = "\n".join(_fields(kernel))
    once = f"VEIL_{name.upper()}_PARAMS"
    return f"""\
#ifndef {once}
#define {once}
#include <cstdint>

namespace veil {{
struct {_name(kernel)} {{
{lines}
}};
}}
#endif

"""


def _name(kernel: Kernel) -> str:
    """matmul -> MatmulParams, pool_sum -> PoolSumParams."""
    return "".join(word.capitalize() for word in kernel.name.split("_")) + "Params"


def _fields(kernel: Kernel) -> Iterator[str]:
    yield from (f"  int64_t {name};" for name in kernel.params.ranges())


def _struct(kernel: Kernel) -> str:
    """The parameters by name, their number, what each may be, and the place of each."""
    ranges = kernel.params.ranges()
    places = ", ".join(f"at_{name} = {place}" for place, name in enumerate(ranges))
    least = ", ".join(_number(each.least) for each in ranges.values())
    most = ", ".join(_number(each.most) for each in ranges.values())
    return "\n".join(
        (
            f"struct {_name(kernel)} {{",
            *_fields(kernel),
            "",
            f"  static constexpr uint32_t kCount = {len(ranges)};",
            f"  static constexpr bool kHasTail = {_truth(kernel.has_tail)};",
            f"  static constexpr int64_t kLeast[] = {{{least}}};",
            f"  static constexpr int64_t kMost[] = {{{most}}};",
            f"  enum Place : int64_t {{ {places} }};",
            "};",
            "",
        )
    )


def _number(value: int) -> str:
    return {_LEAST: "INT64_MIN", _MOST: "INT64_MAX"}.get(value, f"int64_t{{{value}}}")
