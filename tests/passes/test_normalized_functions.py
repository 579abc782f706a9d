"""Functions with a pole, on ranges so wide that their operand is brought near 1 first."""

from __future__ import annotations

import math

import numpy as np
import pytest
from models import model, run_onnx
from onnx import helper

import veilgraph
from veilgraph.ir.errors import AccuracyError
from veilgraph.passes.normalized_functions import EXPONENTS, POLES, Normalized
from veilgraph.runtime.simulate import simulate

OPERATORS = {"log": "Log", "sqrt": "Sqrt", "reciprocal": "Reciprocal"}
SIZE = 400


def wide(low: float, high: float) -> np.ndarray:
    """Numbers from low to high, both ends and what is next to the thresholds among them."""
    powers = 4.0 ** np.arange(math.floor(math.log(low, 4)), math.ceil(math.log(high, 4)) + 1)
    near = (powers[:, None] * (1 + np.array([-0.0626, -0.06, -0.01, 0, 0.01]))).ravel()
    near = near[(near >= low) & (near <= high)]
    x = np.concatenate([np.geomspace(low, high, SIZE - near.size), near])
    return x.astype(np.float32)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("log", 1e-3, 1e3), ("log", 0.5, 64.0), ("sqrt", 1e-2, 1e4), ("reciprocal", 0.05, 50.0),
     ("reciprocal", -1000.0, -1.0)],
)  # fmt: skip
@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_in_a_plan(suite: str, name: str, low: float, high: float) -> None:
    """Within 1e-3 of the larger of 1 and the value, all over the range."""
    node = helper.make_node(OPERATORS[name], ["x"], ["y"], name="node")
    proto = model([node], {"x": (SIZE,)}, ["y"])
    x = wide(low, high) if low > 0 else -wide(-high, -low)
    dealer = "dave" if suite == "additive" else None
    options = {"max_error": 2e-5, "suite": suite, "dealer": dealer}
    plan, weights = veilgraph.compile(proto, calibrate={"x": x[None]}, **options)
    found = simulate(plan, weights, {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, run_onnx(proto, {"x": x})["y"], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", sorted(POLES))
@pytest.mark.parametrize(("low", "high"), [(1e-3, 1e3), (3.0, 4.0), (0.25, 0.25), (1.0, 1e5)])
def test_the_intervals_hold_the_range(name: str, low: float, high: float) -> None:
    call = Normalized(name, low, high, 24, 16, 64)
    assert call.least_bits % 2 == 0
    assert 2.0**call.least_bits <= low
    assert high <= 2.0 ** (call.least_bits + 2 * call.intervals)
    if name in EXPONENTS:
        powers = 2.0 ** np.array(call.powers)
        starts = 2.0 ** (call.least_bits + 2.0 * np.arange(call.intervals))
        np.testing.assert_array_equal(powers, starts ** EXPONENTS[name])


def test_a_range_that_is_too_wide_has_no_waves() -> None:
    assert Normalized("log", 1e-8, 1e8, 24, 16, 64).waves() is None
    assert Normalized("reciprocal", 1e-3, 1e3, 12, 16, 24).waves() is None


def divided(count: int) -> object:
    node = helper.make_node("Div", ["x", "d"], ["y"], name="node")
    return model([node], {"x": (count,), "d": (count,)}, ["y"])


def test_division_by_numbers_spread_over_three_orders_of_magnitude() -> None:
    rng = np.random.default_rng(5)
    x, d = rng.uniform(-4, 4, SIZE), np.geomspace(0.5, 500, SIZE)
    given = {"x": x.astype(np.float32), "d": d.astype(np.float32)}
    samples = {name: array[None] for name, array in given.items()}
    plan, weights = veilgraph.compile(divided(SIZE), calibrate=samples, ring=64)
    found = simulate(plan, weights, given).outputs["y"]
    np.testing.assert_allclose(found, x / d, atol=1e-3)


def test_around_zero_there_is_no_approximation() -> None:
    x = np.linspace(-1, 1, SIZE).astype(np.float32)
    proto = model([helper.make_node("Reciprocal", ["x"], ["y"], name="node")], {"x": (SIZE,)}, "y")
    with pytest.raises(AccuracyError, match=r"'node' takes the reciprocal of numbers from -1 to 1"):
        veilgraph.compile(proto, calibrate={"x": x[None]})
