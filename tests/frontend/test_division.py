"""Quotients and remainders of integers are exact in the rings that are chosen by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from models import model
from numpy.typing import NDArray
from onnx import TensorProto, helper

import veilgraph
from veilgraph.runtime.simulate import simulate

COUNT = 600


def computed(operator: str, x: NDArray[Any], n: NDArray[Any], public: bool, **named: Any) -> Any:
    """What the cleartext engine makes of it, calibrated on the same numbers."""
    made = helper.make_node(operator, ["x", "n"], ["y"], name="node", **named)
    shapes = {"x": x.shape} if public else {"x": x.shape, "n": n.shape}
    proto = model([made], shapes, ["y"], {"n": n} if public else {})
    for info in (*proto.graph.input, *proto.graph.output):
        info.type.tensor_type.elem_type = TensorProto.INT64
    feeds = {"x": x} if public else {"x": x, "n": n}
    samples = {name: given[None].astype(np.float32) for name, given in feeds.items()}
    plan, weights = veilgraph.compile(proto, suite="cleartext", calibrate=samples)
    return simulate(plan, weights, feeds).outputs["y"]


def numbers(top: int, divisor: int) -> NDArray[np.int64]:
    """Numbers of both signs, many of them multiples of the divisor or next to one."""
    rng = np.random.default_rng(divisor)
    x = rng.integers(-top, top, COUNT)
    multiples = rng.integers(-top // divisor, top // divisor, COUNT // 2) * divisor
    x[: COUNT // 2] = multiples + rng.integers(-1, 2, COUNT // 2)
    return x


@pytest.mark.parametrize("top", [100, 1 << 20])
@pytest.mark.parametrize("divisor", [3, 8, -7, 1000])
def test_by_a_public_number(divisor: int, top: int) -> None:
    x, n = numbers(top, abs(divisor)), np.array(divisor)
    np.testing.assert_array_equal(computed("Div", x, n, True), np.trunc(x / divisor))
    np.testing.assert_array_equal(computed("Mod", x, n, True), np.mod(x, divisor))
    np.testing.assert_array_equal(computed("Mod", x, n, True, fmod=1), np.fmod(x, divisor))


def test_by_public_numbers_of_both_signs() -> None:
    x, n = numbers(5000, 3), np.resize(np.array([2, -3, 10, 250]), COUNT)
    np.testing.assert_array_equal(computed("Div", x, n, True), np.trunc(x / n))
    np.testing.assert_array_equal(computed("Mod", x, n, True), np.mod(x, n))


def test_by_secret_numbers_of_both_signs() -> None:
    x = numbers(5000, 3)
    n = np.random.default_rng(0).integers(1, 40, COUNT) * np.resize([1, -1], COUNT)
    np.testing.assert_array_equal(computed("Div", x, n, False), np.trunc(x / n))
