"""Functions with a singularity, on ranges so wide that their operand is brought near 1 first."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from models import model, run_onnx
from onnx import helper

import veilgraph
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.mlir import context
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.types import RangeSource
from veilgraph.passes.encode.encode_fixed_point import EncodeFixedPoint
from veilgraph.passes.encode.functions.singularities import EXPONENTS, SINGULARITIES, Normalized
from veilgraph.passes.graph.infer_visibility import InferVisibility
from veilgraph.passes.ranges.calibrate import calibrate
from veilgraph.runtime.simulate import simulate
from veilgraph.targets.suites import SUITES

OPERATORS = {"log": "Log", "sqrt": "Sqrt", "reciprocal": "Reciprocal"}
EXACT = {"log": np.log, "sqrt": np.sqrt, "reciprocal": np.reciprocal}
SIZE = 400
FIT = SUITES["rep3"].fit


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


@pytest.mark.parametrize("name", sorted(SINGULARITIES))
@pytest.mark.parametrize(("low", "high"), [(1e-3, 1e3), (3.0, 4.0), (0.25, 0.25), (1.0, 1e5)])
def test_the_intervals_hold_the_range(name: str, low: float, high: float) -> None:
    call = Normalized(name, low, high, 24, 16, 64, FIT)
    assert call.least_bits % 2 == 0
    assert 2.0**call.least_bits <= low
    assert high <= 2.0 ** (call.least_bits + 2 * call.intervals)
    if name in EXPONENTS:
        powers = 2.0 ** np.array(call.powers)
        starts = 2.0 ** (call.least_bits + 2.0 * np.arange(call.intervals))
        np.testing.assert_array_equal(powers, starts ** EXPONENTS[name])


def test_a_range_that_is_too_wide_has_no_series() -> None:
    assert Normalized("log", 1e-8, 1e8, 24, 16, 64, FIT).fitted() is None
    assert Normalized("reciprocal", 1e-3, 1e3, 12, 16, 24, FIT).fitted() is None


def test_bits_are_dropped_where_a_comparison_has_no_room() -> None:
    """With a margin of 2, operands and thresholds may be 2.04 apart: 31 bits hold less than 2."""
    call = Normalized("rsqrt", 0.0053, 0.9576, 29, 16, 32, FIT, (-0.9576, 1.875))
    assert call.dropped_bits == 1
    assert replace(call, ends=(0.0053, 0.9576)).dropped_bits == 0


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


def at_the_edges(low: float, high: float) -> np.ndarray:
    """The domain's low end and what is around it, below zero too; the middle; the high end.

    The least is what a margin of two leaves to an input.
    """
    near = low * np.array([0, 0.001, 0.1, 0.4, 0.46, 0.505, 0.55, 0.6, 1])
    least = 0.99 * (low - high)
    x = [least, least / 2, least / 4, *near, math.sqrt(low * high), high, 1.99 * high]
    return np.array(x, np.float32)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        *((name, 2**-1.6875, 3.41) for name in OPERATORS),
        *((name, 2**-6.625, 100.0) for name in OPERATORS),
        ("log", 2.0, 2.5),
        ("sqrt", 2.0, 2.5),
        ("reciprocal", 2.0, 2.5),
    ],
)
@pytest.mark.parametrize("suite", ["cleartext", "rep3"])
@pytest.mark.parametrize("sign", [1, -1])
def test_below_the_domain_is_its_low_end(
    suite: str, name: str, low: float, high: float, sign: int
) -> None:
    """Half of what was calibrated, of whatever an input's owner may give; never anything else.

    A sixteenth below the end either will do. Here ends are what ranges are rounded to.
    """
    if sign < 0 and name != "reciprocal":
        return
    x = at_the_edges(low, high)
    proto = model([helper.make_node(OPERATORS[name], ["x"], ["y"])], {"x": x.shape}, ["y"])
    samples = sign * np.geomspace(low, high, x.size).astype(np.float32)
    options = {"suite": suite, "ring": 64, "frac_bits": 20}
    plan, weights = veilgraph.compile(proto, calibrate={"x": samples[None]}, **options)
    found = simulate(plan, weights, {"x": sign * x}).outputs["y"]
    within = np.maximum(x, low / 2).astype(np.float64)
    np.testing.assert_allclose(sign * found, EXACT[name](within), atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_inside_a_network_too(name: str) -> None:
    """What layers make is no input that is refused: it may leave the range by its margin."""
    nodes = [
        helper.make_node("Sub", ["x", "d"], ["z"]),
        helper.make_node(OPERATORS[name], ["z"], ["y"]),
    ]
    x, d = np.linspace(2, 4, 9, dtype=np.float32), np.linspace(1, 0.5, 9, dtype=np.float32)
    proto = model(nodes, {"x": (9,), "d": (9,)}, ["y"])
    samples = {"x": x[None], "d": d[None]}
    plan, weights = veilgraph.compile(proto, calibrate=samples, ring=64)
    found = simulate(plan, weights, {"x": x / 2, "d": 2 * d}).outputs["y"]
    within = np.maximum(x / 2 - 2 * d, 0.5).astype(np.float64)
    np.testing.assert_allclose(found, EXACT[name](within), atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize(("high", "thresholds"), [(4.0, 0), (400.0, 5)])
def test_what_is_proven_is_not_compared_with_an_end(high: float, thresholds: int) -> None:
    """Fourier series alone compare nothing, and the others no more than powers of four."""
    graph = Graph.create(context(), {"x": (1,)}, {})
    with graph.end("node"):
        y = ops.Log.build(graph.inputs["x"])
    graph.finish({"y": y})
    seen = {"x": np.array([[1.0], [high]], np.float32)}
    counts = []
    calibrated = calibrate(graph, seen)
    proven = {
        key: replace(found, range=replace(found.range, source=RangeSource.PROVEN))
        for key, found in calibrated.known.items()
    }
    for known in (replace(calibrated, known=proven), calibrated):
        visibility = InferVisibility({"x": "alice", "weights": "bob"}).run(graph)
        program = EncodeFixedPoint(ring_bits=64).run(graph, visibility, known)
        kinds = secret_ops.Step | secret_ops.ClippedFunction
        compared = [op for op in program.operations if isinstance(op, kinds)]
        counts.append(sum(int(np.prod(shape_of(op.operation.results[0]))) for op in compared))
    assert counts[0] == thresholds
    assert counts[1] > counts[0]


@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_what_leaves_its_range_is_not_taken_for_what_is_below_it(suite: str) -> None:
    """A clipped function compares as far as its form holds: four times as far as samples went."""
    node = helper.make_node
    nodes = [
        node("Mul", ["x", "x"], ["q"], name="square"),
        node("Mul", ["q", "two"], ["d"], name="twice"),
        node("Sub", ["d", "less"], ["s"], name="less"),
        node("Reciprocal", ["s"], ["y"], name="inverse"),
    ]
    proto = model(nodes, {"x": (8,)}, ["y"], {"two": np.float32([2]), "less": np.float32([1.2])})
    seen = np.linspace(0.9, 1.15, 24, dtype=np.float32).reshape(3, 8)
    dealer = "dave" if suite == "additive" else None
    plan, weights = veilgraph.compile(proto, calibrate={"x": seen}, suite=suite, dealer=dealer)
    assert "secret.clipped_function" in plan.ir["secret"]
    x = np.linspace(0.95, 1.95, 8, dtype=np.float32)
    found = simulate(plan, weights, {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, run_onnx(proto, {"x": x})["y"], atol=0.02)


def test_around_zero_there_is_no_approximation() -> None:
    x = np.linspace(-1, 1, SIZE).astype(np.float32)
    proto = model([helper.make_node("Reciprocal", ["x"], ["y"], name="node")], {"x": (SIZE,)}, "y")
    with pytest.raises(AccuracyError, match=r"'node' takes the reciprocal of numbers from -1 to 1"):
        veilgraph.compile(proto, calibrate={"x": x[None]})
