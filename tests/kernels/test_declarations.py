"""What kernels declare, against what reads it."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from calling import call

from veilgraph.kernels import KERNELS, PART_ELEMENTS
from veilgraph.kernels.conv2d import declaration as conv2d
from veilgraph.kernels.cpp import cuda_struct, header
from veilgraph.kernels.cuda.source import ROOT
from veilgraph.kernels.declared import DECLARED
from veilgraph.kernels.fill import declaration as fill
from veilgraph.kernels.kernel import ANY, NoParams, Params
from veilgraph.kernels.matmul import declaration as matmul
from veilgraph.kernels.pool_sum import declaration as pool_sum

CHECKOUT = Path(__file__).parents[2]  # what is installed has no sources of the processor's side


def test_each_kernel_has_its_parts() -> None:
    parts = ("declaration.py", "reference.py", "cpu.cpp", "cuda.py")
    for name in KERNELS:
        assert all((CHECKOUT / "kernels" / name / part).exists() for part in parts), name
        assert DECLARED[name].name == name


def test_cmake_is_told_the_names_and_given_the_header(tmp_path: Path) -> None:
    command = [sys.executable, "-I", str(ROOT / "kernels" / "build_header.py"), str(tmp_path)]
    for _ in range(2):
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert said.split(";") == list(KERNELS)
    assert (tmp_path / "kernels" / "declared.h").read_text() == header()


def test_the_header_has_each_parameter_in_order() -> None:
    text = header()
    for kernel in DECLARED.values():
        names = list(kernel.params.ranges())
        places = [text.find(f"at_{name} = {place}") for place, name in enumerate(names)]
        assert -1 not in places, kernel.name
    assert f"VEIL_PART_ELEMENTS = {PART_ELEMENTS};" in text
    assert "each(fused) each(matmul)" in text
    fields = [line.strip() for line in cuda_struct("pool_sum").splitlines() if "int64_t" in line]
    assert fields == [f"int64_t {name};" for name in pool_sum.Params.ranges()]


def test_parameters_are_read_as_they_are_written() -> None:
    given = conv2d.Params(40, 2, 3, 1, 4, 5, 6, groups=7)
    assert given.values() == (40, 2, 3, 1, 4, 5, 6, 7)
    assert conv2d.Params.of(given.values()) == given
    attributes = {"strides": (2, 3), "pads_low": (1, 4), "dilations": (5, 6), "groups": 7}
    assert conv2d.Params.of_op(40, attributes) == given
    windows = {"kernel": (2, 3), "strides": (4, 5), "pads_low": (6, 7)}
    assert pool_sum.Params.of_op(64, windows).values() == (2, 3, 4, 5, 6, 7)
    assert matmul.Params.of_op(52, {}).values() == (52,)
    assert NoParams.of_op(64, {"axes": (1,)}).values() == ()
    assert fill.Params((1 << 64) - 1).values() == fill.Params(-1).values() == (-1,)
    assert fill.Params.ranges() == {"value": ANY}


def test_a_kernel_that_no_op_becomes_has_no_ops_parameters() -> None:
    with pytest.raises(NotImplementedError, match=r"fill\.declaration says no op's parameters"):
        fill.Params.of_op(64, {})


# Of each kernel whose parameters have a range: operands, and parameters that it takes.
TAKEN: dict[str, tuple[list[tuple[int, ...]], Params]] = {
    "matmul": ([(1, 2, 2), (1, 2, 2), (1, 2, 2)], matmul.Params(64)),
    "conv2d": ([(1, 1, 2, 2), (1, 1, 2, 2), (1, 1, 1, 1)], conv2d.Params(64)),
    "pool_sum": ([(1, 1, 2, 2), (1, 1, 2, 2)], pool_sum.Params(1, 1)),
}


@pytest.mark.parametrize("kernel", TAKEN)
def test_values_out_of_range_are_refused(kernel: str) -> None:
    shapes, params = TAKEN[kernel]
    operands = [np.zeros(shape, np.uint64) for shape in shapes]
    call(kernel, operands, params.values())
    for place, each in enumerate(params.ranges().values()):
        for wrong in (each.least - 1, each.most + 1):
            values = list(params.values())
            values[place] = wrong
            with pytest.raises(ValueError, match="parameter out of range"):
                call(kernel, operands, values)
    for values in ([*params.values(), 0], params.values()[:-1]):
        with pytest.raises(ValueError, match="wrong number of parameters"):
            call(kernel, operands, values)


def test_products_of_a_matmul_are_counted() -> None:
    shapes = [(2, 3, 5), (2, 3, 7), (2, 7, 5), (2, 3, 4), (2, 4, 5)]
    indices = product(range(2), range(3), range(5), range(7 + 4))
    assert DECLARED["matmul"].multiply_adds(shapes) == sum(1 for _ in indices)


def test_products_of_a_convolution_are_counted() -> None:
    """Of 2 pairs: each output has a product for each channel of its group and tap."""
    image, weights, out = (2, 6, 9, 8), (4, 3, 2, 5), (2, 4, 8, 4)
    taps = product(*map(range, out), *map(range, weights[1:]))
    shapes = [out, *2 * (image, weights)]
    assert DECLARED["conv2d"].multiply_adds(shapes) == 2 * sum(1 for _ in taps)


@pytest.mark.parametrize("kernel", ["pool_sum", "reduce_sum", "copy", "fill", "fused"])
def test_others_multiply_nothing(kernel: str) -> None:
    assert DECLARED[kernel].multiply_adds([(2, 3, 4, 5), (2, 3, 8, 10)]) == 0
